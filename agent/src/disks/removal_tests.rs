//! With a runtime of a few values.

use std::collections::BTreeSet;
use std::sync::Mutex;

use brink_core::base::Moment;
use brink_cri::plan::Fate;
use brink_cri::state::{Container, Image, Pod};
use tokio::time::Instant;

use super::*;
use crate::disks::answer::PodIs;

const SOON: Duration = Duration::from_millis(300);

/// Has two dead containers of nobody's; the removal of the second is never answered.
#[derive(Default)]
struct Dead {
    has_no_figures: bool,
    /// Where it has images, it has no containers.
    images: Vec<Image>,
    stops: Mutex<Option<Stopper>>,
}

impl Runtime for Dead {
    async fn read(&self) -> Result<State, CriError> {
        if !self.images.is_empty() {
            return Ok(State {
                images: self.images.clone(),
                ..State::default()
            });
        }
        let container = |id: &str| Container {
            id: id.to_owned(),
            pod: Pod {
                uid: "u".to_owned(),
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
                is_of_api: false,
            },
            name: id.to_owned(),
            attempt: 0,
            standing: Standing::Exited,
            created_at: Moment::START,
            is_kubelets: false,
            images: BTreeSet::new(),
        };
        Ok(State {
            containers: vec![container("first"), container("second")],
            ..State::default()
        })
    }

    async fn layers(&self) -> Result<Layers, CriError> {
        if self.has_no_figures {
            return Err(CriError::Gone {
                call: "ListContainerStats",
                why: "connection reset".to_owned(),
            });
        }
        Ok(Layers::default())
    }

    async fn standing(&self, _container: &str) -> Result<Option<Standing>, CriError> {
        Ok(Some(Standing::Exited))
    }

    async fn remove_container(&self, container: &str) -> Result<(), CriError> {
        if container == "first" {
            return Ok(());
        }
        if let Some(stopper) = self.stops.lock().unwrap().take() {
            stopper.stop();
        }
        std::future::pending().await
    }

    async fn remove_image(&self, _image: &str, _handler: &str) -> Result<(), CriError> {
        Ok(())
    }
}

fn names(outcome: &Outcome) -> Vec<&str> {
    let all = outcome.containers.iter().chain(&outcome.images);
    all.map(|one| one.name.as_str()).collect()
}

/// Carries a reclaim of what it has out, or tells of one.
fn reclaimed(runtime: &Dead, stopper: &Stopper, is_dry: bool) -> Outcome {
    let ways: &[Reclaim] = if runtime.images.is_empty() {
        &[Reclaim::DeadContainers]
    } else {
        &[Reclaim::UnusedImages]
    };
    let order = Order {
        ways,
        is_dry,
        image_min_age: None,
        pods: &|_| PodIs::Unknown,
        may_act: &|| true,
    };
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    tokio.block_on(async {
        let job = Job {
            order: &order,
            policy: &Policy {
                kept_containers: 0,
                ..Policy::default()
            },
            fates: &|_| Fate::Unknown,
            within: SOON,
            until: Instant::now() + SOON,
        };
        let mut records = Records::default();
        if is_dry {
            let state = runtime.read().await.unwrap();
            records.observe(guard::now(), &state);
            job.plan(runtime, &state, &records).await
        } else {
            let mut enough = |_| false;
            job.carry_out(runtime, stopper, (&mut records, &mut enough))
                .await
        }
    })
}

#[test]
fn what_is_gone_is_told_whoever_stops_it() {
    let stopper = Stopper::default();
    let runtime = Dead {
        stops: Mutex::new(Some(stopper.clone())),
        ..Dead::default()
    };
    let outcome = reclaimed(&runtime, &stopper, false);
    assert_eq!(outcome.end, End::Stopped);
    assert_eq!(names(&outcome), ["shop/web first (first)"]);
    let outcome = reclaimed(&Dead::default(), &Stopper::default(), false);
    assert_eq!(outcome.end, End::Late);
    assert_eq!(names(&outcome), ["shop/web first (first)"]);
}

#[test]
fn a_dry_run_says_what_it_does_not_know() {
    let known = reclaimed(&Dead::default(), &Stopper::default(), true);
    assert_eq!((known.end, &known.why), (End::DryRun, &None));
    assert_eq!(known.containers.len(), 2);
    let runtime = Dead {
        has_no_figures: true,
        ..Dead::default()
    };
    let unknown = reclaimed(&runtime, &Stopper::default(), true);
    assert_eq!((unknown.end, unknown.containers.len()), (End::DryRun, 2));
    let why = unknown.why.unwrap();
    assert!(why.contains("connection reset"), "{why}");
}

#[test]
fn what_stays_is_told_by_why_whether_anything_goes_or_not() {
    let image = |id: &str, is_pinned| Image {
        id: id.to_owned(),
        bytes: 5,
        is_pinned,
        ..Image::default()
    };
    let runtime = Dead {
        images: vec![image("old", false), image("pinned", true)],
        ..Dead::default()
    };
    for (is_dry, end) in [(true, End::DryRun), (false, End::Done)] {
        let outcome = reclaimed(&runtime, &Stopper::default(), is_dry);
        assert_eq!(outcome.end, end);
        assert_eq!(names(&outcome), ["old"]);
        assert_eq!(outcome.images[0].bytes, Some(5));
        assert_eq!(outcome.kept, BTreeMap::from([("pinned", 1)]));
    }
}
