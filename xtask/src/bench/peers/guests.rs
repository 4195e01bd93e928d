//! The runs in guests: as many after each other as it takes; one that dies costs the run that it died in.
use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::wire::{DISK, Found, JOB, Job, Line, Run, parse};
use crate::{
    bench::{machine::Machine, measure::units::millis},
    vm::errand::{Depot, End, Errand},
};

/// Memory of a guest, in MiB.
pub(super) const MEMORY: u32 = 1024;
/// A guest that says nothing for so long lives no more: it speaks every two seconds of its own time.
const SILENCE: Duration = Duration::from_mins(3);
/// Guests that die before their first run are not tried for ever.
const TRIES: usize = 3;

/// What guests have found out.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) machine: Option<Machine>,
    /// Of each guest: bytes a second at the most, by load.
    pub(super) rates: Vec<BTreeMap<String, u64>>,
    pub(super) found: Vec<Found>,
    /// Runs that could not be judged, and why.
    pub(super) failed: Vec<(usize, String)>,
    /// Guests that were used.
    pub(super) guests: usize,
}

/// Runs everything, in so many guests side by side: each takes one processor of the host.
///
/// # Errors
/// When no guest comes as far as its first run.
pub(super) fn run(
    (depot, disk): (&Depot, &Path),
    runs: &[Run],
    (beside, most): (usize, Duration),
) -> anyhow::Result<Results> {
    let part = |worker: usize| -> anyhow::Result<Results> {
        let own = runs.iter().skip(worker).step_by(beside);
        in_turn((depot, disk, worker), own.copied().collect(), most)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..beside)
            .map(|worker| scope.spawn(move || part(worker)))
            .collect();
        let mut all = Results::default();
        for worker in workers {
            let found = worker.join();
            all.add(found.map_err(|_| anyhow::anyhow!("a guest's thread panicked"))??);
        }
        all.found.sort_by_key(|found| found.number);
        Ok(all)
    })
}

impl Results {
    fn add(&mut self, other: Self) {
        self.machine = self.machine.take().or(other.machine);
        self.rates.extend(other.rates);
        self.found.extend(other.found);
        self.failed.extend(other.failed);
        self.guests += other.guests;
    }
}

/// One guest after the other.
fn in_turn(
    host: (&Depot, &Path, usize),
    mut left: Vec<Run>,
    most: Duration,
) -> anyhow::Result<Results> {
    let began = Instant::now();
    let mut results = Results::default();
    let mut useless = 0;
    while !left.is_empty() && useless < TRIES {
        let spare = most.saturating_sub(began.elapsed());
        if spare.is_zero() {
            println!("the time is over with {} runs left", left.len());
            break;
        }
        results.guests += 1;
        let before = left.len();
        one(host, &mut left, spare, &mut results)?;
        useless = if left.len() < before { 0 } else { useless + 1 };
    }
    anyhow::ensure!(
        useless < TRIES,
        "{TRIES} guests died before a run of theirs had ended"
    );
    Ok(results)
}

/// One guest; what it has done is taken off the list.
fn one(
    (depot, disk, worker): (&Depot, &Path, usize),
    left: &mut Vec<Run>,
    spare: Duration,
    results: &mut Results,
) -> anyhow::Result<()> {
    let job = Job { runs: left.clone() };
    let errand = Errand {
        name: format!("guest-{worker}"),
        orders: "guest --peers",
        memory: MEMORY,
        deadline: spare,
        silence: SILENCE,
        disk: (disk, DISK),
        files: vec![(JOB, serde_json::to_vec(&job)?)],
    };
    let mut under_way: Option<Run> = None;
    let mut finished = false;
    let end = depot.run(&errand, |text| match parse::<Line>(text) {
        None => println!("guest: {text}"),
        Some(Line::Ready { machine, rates }) => {
            println!("guest: {machine}; at the most, bytes a second: {rates:?}");
            results.machine = Some(*machine);
            results.rates.push(rates);
        }
        Some(Line::Begin(run)) => under_way = Some(run),
        Some(Line::Done(found)) => {
            tell(&found);
            left.retain(|run| run.number != found.number);
            results.found.push(*found);
            under_way = None;
        }
        Some(Line::Failed { number, why }) => {
            println!("run {number} failed: {why}");
            left.retain(|run| run.number != number);
            results.failed.push((number, why));
            under_way = None;
        }
        Some(Line::Alive) => {}
        Some(Line::End) => finished = true,
    })?;
    let why = match end {
        End::Died(why) => Some(why),
        End::Itself if !finished => Some("it restarted itself".to_owned()),
        // A run that the end of our time cut off has shown nothing.
        End::Itself | End::Time => None,
    };
    if let (Some(why), Some(run)) = (why, under_way) {
        println!("guest: {why}");
        left.retain(|other| other.number != run.number);
        let why = why.lines().next().unwrap_or_default();
        let found = Found::died(&run, format!("the guest: {why}"));
        tell(&found);
        results.found.push(found);
    }
    Ok(())
}

fn tell(found: &Found) {
    let shown = |nanos: Option<i64>| {
        nanos.map_or_else(
            || "-".to_owned(),
            |nanos| format!("{:.1} ms", millis(nanos)),
        )
    };
    println!(
        "{:>4} {:<24} {:<28} signalled {:>11} oom {:>11} freed {:>11} right {} wrong {} {}{}",
        found.number,
        found.contender,
        found.workload,
        shown(found.signalled),
        shown(found.oom),
        shown(found.freed),
        found.right,
        found.wrong,
        found.lock_up.as_deref().unwrap_or_default(),
        found.notes.join("; "),
    );
    if !found.stages.is_empty() {
        let own = found
            .signals
            .get(&found.signal)
            .and_then(|seen| seen.crossed)
            .unwrap_or(0);
        let stages = found.stages.iter();
        let stages = stages.map(|(name, at)| format!("{name} {:.1}", millis(at - own)));
        println!(
            "     after the crossing, ms: {}",
            stages.collect::<Vec<_>>().join(", ")
        );
    }
}
