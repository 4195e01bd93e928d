//! One part of a simulation, measured: what the fleet asked meanwhile, and what the server says of itself, look by look.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{task::JoinHandle, time::sleep};

use super::{
    asked::{Counter, Counts},
    metrics::Sample,
    report::{Part, Phase},
    scene::Scene,
};

/// How long a server may take to say how it stands at the end of a part.
const PATIENCE: Duration = Duration::from_mins(1);

/// A part that has begun.
pub(super) struct Meter {
    part: Part,
    began: Instant,
    before: Counts,
    looks: Arc<Mutex<Vec<Sample>>>,
    looking: JoinHandle<()>,
}

impl Meter {
    /// Begins; the server is looked at every `pace`.
    ///
    /// # Errors
    /// When the server does not say how it stands.
    pub(super) async fn begin(
        part: Part,
        pace: Duration,
        (scene, counter): (&Scene, &Counter),
    ) -> anyhow::Result<Self> {
        let looks = Arc::new(Mutex::new(vec![scene.sample().await?]));
        let (scene, kept) = (scene.clone(), Arc::clone(&looks));
        let looking = tokio::spawn(async move {
            loop {
                sleep(pace).await;
                // One that is away says nothing.
                if let Ok(sample) = scene.sample().await {
                    kept.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(sample);
                }
            }
        });
        Ok(Self {
            part,
            began: Instant::now(),
            before: counter.counts(),
            looks,
            looking,
        })
    }

    /// What the fleet has asked since then.
    pub(super) fn asked(&self, counter: &Counter) -> Counts {
        counter.counts().since(&self.before)
    }

    /// Ends; `open` are the watches of pods and nodes that are others'.
    ///
    /// # Errors
    /// When the server does not say how it stands.
    pub(super) async fn end(
        self,
        (scene, counter): (&Scene, &Counter),
        open: [f64; 2],
    ) -> anyhow::Result<Phase> {
        let asked = self.asked(counter);
        let seconds = self.began.elapsed().as_secs_f64();
        self.looking.abort();
        let last = last_look(scene).await.context("how the server stands")?;
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.push(last.clone());
        Ok(Phase {
            part: self.part,
            seconds,
            asked: asked
                .asked
                .iter()
                .map(|(kind, count)| (kind.words().to_owned(), *count))
                .collect(),
            answered: answers(&asked),
            busiest: asked.seconds.values().copied().max().unwrap_or_default(),
            dispatched: gained(&looks, |look| look.dispatched),
            busiest_dispatched: busiest(&looks),
            rejected: gained(&looks, |look| look.rejected),
            everybodys: everybodys(&looks),
            watches: [0, 1].map(|at| last.watches[at] - open[at]),
            processor: gained(&looks, |look| look.processor),
            resident: last.resident,
            delays: Vec::new(),
            reached: Vec::new(),
        })
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

async fn last_look(scene: &Scene) -> anyhow::Result<Sample> {
    let until = Instant::now() + PATIENCE;
    loop {
        match scene.sample().await {
            Err(_) if Instant::now() < until => sleep(Duration::from_millis(500)).await,
            found => return found,
        }
    }
}

fn answers(asked: &Counts) -> BTreeMap<String, BTreeMap<u16, u64>> {
    let mut answers: BTreeMap<String, BTreeMap<u16, u64>> = BTreeMap::new();
    for ((kind, code), count) in &asked.answered {
        answers
            .entry(kind.words().to_owned())
            .or_default()
            .insert(*code, *count);
    }
    answers
}

/// How far a counter has come; one that is less than before has begun anew, and one that is not there yet is at nothing. None if it
/// never is there.
fn gained(looks: &[Sample], of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let values: Vec<Option<f64>> = looks.iter().map(of).collect();
    values.iter().any(Option::is_some).then(|| {
        let steps = values.windows(2);
        let steps =
            steps.map(|pair| step(pair[0].unwrap_or_default(), pair[1].unwrap_or_default()));
        steps.sum()
    })
}

fn step(old: f64, new: f64) -> f64 {
    if new >= old { new - old } else { new }
}

/// The most that was taken up in a second; of looks that are closer, at least that.
fn busiest(looks: &[Sample]) -> Option<f64> {
    let rates = looks.windows(2).filter_map(|pair| {
        let seconds = pair[1].at.duration_since(pair[0].at).as_secs_f64();
        Some(gained(pair, |look| look.dispatched)? / seconds.max(1.0))
    });
    rates.reduce(f64::max)
}

fn everybodys(looks: &[Sample]) -> BTreeMap<String, f64> {
    let keys: std::collections::BTreeSet<&String> =
        looks.iter().flat_map(|look| look.requests.keys()).collect();
    let each = keys.into_iter().filter_map(|key| {
        let of = |look: &Sample| Some(look.requests.get(key).copied().unwrap_or_default());
        gained(looks, of)
            .filter(|gained| *gained > 0.0)
            .map(|gained| (key.clone(), gained))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(page: &str) -> Sample {
        Sample::of(page)
    }

    #[test]
    fn a_server_that_has_begun_anew_counts_from_nothing() {
        let page = |seconds: f64, patches: u32| {
            look(&format!(
                "process_cpu_seconds_total {seconds}\napiserver_request_total{{resource=\"pods\",verb=\"PATCH\",code=\"200\"}} {patches}"
            ))
        };
        let looks = [page(10.0, 5), page(12.0, 9), page(1.5, 2)];
        assert_eq!(gained(&looks, |look| look.processor), Some(3.5));
        let all = everybodys(&looks);
        assert_eq!(
            all.into_iter().collect::<Vec<_>>(),
            [("PATCH pods 200".to_owned(), 6.0)]
        );
        assert_eq!(gained(&looks, |look| look.dispatched), None);
    }

    #[test]
    fn the_busiest_second_is_none_of_a_moment() {
        let mut looks = [0, 100, 110].map(|count| {
            look(&format!(
                "apiserver_flowcontrol_dispatched_requests_total{{flow_schema=\"service-accounts\"}} {count}"
            ))
        });
        let began = looks[0].at;
        looks[1].at = began + Duration::from_secs(2);
        looks[2].at = began + Duration::from_millis(2_001);
        assert_eq!(busiest(&looks), Some(50.0));
        let mut first = [look(""), looks[2].clone()];
        first[0].at = first[1].at;
        assert_eq!(
            busiest(&first),
            Some(110.0),
            "a flow begins with its first request"
        );
        assert_eq!(busiest(&[look(""), look("")]), None);
    }
}
