//! Carries a plan out, step by step: each removal only after one more look, all of it within one deadline.

use std::collections::VecDeque;
use std::time::Duration;

use brink_core::base::Moment;
use brink_core::node::reclaim::Reclaim;
use tokio::time::{Instant, timeout_at};

use crate::client::Runtime;
use crate::fault::CriError;
use crate::plan::{
    DeadContainer, Fates, Known, Policy, Stays, UnusedImage, dead_containers, judge, unused_images,
};
use crate::state::{Layers, Standing, State};
use crate::usage::Records;

/// How old what the runtime holds may be while containers go by it: others remove them too, and whoever was to stay may be gone.
const FRESH: Duration = Duration::from_secs(1);

/// What is to be done, and within which bounds.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// The ways, in order.
    pub ways: &'a [Reclaim],
    /// What may be removed.
    pub policy: &'a Policy,
    /// What is known of pods.
    pub fates: &'a Fates<'a>,
    /// The clock of the records of images.
    pub clock: &'a (dyn Fn() -> Moment + Sync + 'a),
    /// When it must be over; what is under way then is given up.
    pub until: Instant,
}

impl std::fmt::Debug for Order<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order")
            .field("ways", &self.ways)
            .field("policy", &self.policy)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

/// One thing that was to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A dead container.
    Container(DeadContainer),
    /// An unused image.
    Image(UnusedImage),
}

/// Why something that was planned was left alone: it had changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spared {
    /// Somebody else has removed it.
    Gone,
    /// The container is not dead.
    Alive(Standing),
    /// The image is wanted.
    Stays(Stays),
}

/// How it ended.
#[derive(Debug)]
pub enum Ended {
    /// Everything that was planned was tried.
    Done,
    /// It was enough after this way, and the next ones were not gone.
    Enough(Reclaim),
    /// A kubelet owns the runtime, and nothing was done.
    LeftToKubelet,
    /// Time ran out.
    Late,
    /// The runtime could not be asked any more.
    Lost(CriError),
}

/// What was done.
#[derive(Debug)]
pub struct Report {
    /// What is gone, in this order.
    pub removed: Vec<Target>,
    /// What had changed.
    pub spared: Vec<(Target, Spared)>,
    /// What the runtime would not remove, and why.
    pub refused: Vec<(Target, CriError)>,
    /// Images that were to stay, each with the reason.
    pub kept: Vec<(String, Stays)>,
    /// How it ended.
    pub ended: Ended,
}

impl Target {
    /// What its removal frees at most, in bytes; `None` where the runtime does not say.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Container(one) => one.frees.map(|layer| layer.bytes),
            Self::Image(one) => Some(one.bytes),
        }
    }
}

impl Report {
    /// What the removals have freed at most, in bytes, as far as the runtime says: images share layers, and a runtime may clean up
    /// later.
    pub fn freed_bytes(&self) -> u64 {
        let freed = self.removed.iter().filter_map(Target::bytes);
        freed.fold(0, u64::saturating_add)
    }
}

/// Why it goes no further.
enum Stop {
    LeftToKubelet,
    Late,
    Lost(CriError),
}

/// Removes what the order's ways allow.
///
/// `enough` is asked after each way that was gone. The kubelet goes all of them and looks then; whoever wants that alone says no
/// until the last.
pub async fn act<R: Runtime>(
    runtime: &R,
    order: Order<'_>,
    records: &mut Records,
    mut enough: impl FnMut(Reclaim, &Report) -> bool,
) -> Report {
    let mut acting = Acting {
        runtime,
        order,
        report: Report {
            removed: Vec::new(),
            spared: Vec::new(),
            refused: Vec::new(),
            kept: Vec::new(),
            ended: Ended::Done,
        },
    };
    for &way in order.ways {
        let gone = match way {
            Reclaim::DeadContainers => acting.dead_containers().await,
            Reclaim::UnusedImages => acting.unused_images(records).await,
        };
        acting.report.ended = match gone {
            Ok(()) if enough(way, &acting.report) => Ended::Enough(way),
            Ok(()) => continue,
            Err(Stop::LeftToKubelet) => Ended::LeftToKubelet,
            Err(Stop::Late) => Ended::Late,
            Err(Stop::Lost(error)) => Ended::Lost(error),
        };
        break;
    }
    acting.report
}

struct Acting<'a, R> {
    runtime: &'a R,
    order: Order<'a>,
    report: Report,
}

impl<R: Runtime> Acting<'_, R> {
    async fn dead_containers(&mut self) -> Result<(), Stop> {
        let mut looked = Instant::now();
        let state = self.in_time(self.runtime.read()).await?;
        self.leave_to_kubelet(state.is_kubelets())?;
        // Without these figures a report says less, and nothing else.
        let layers = match self.in_time(self.runtime.layers()).await {
            Err(Stop::Lost(error)) if error.is_of_one_call() => Layers::new(),
            layers => layers?,
        };
        let records = Records::default();
        let known = Known {
            fates: self.order.fates,
            records: &records,
            layers: &layers,
            now: (self.order.clock)(),
        };
        let policy = self.order.policy;
        let planned = |state: &State| dead_containers(state, policy, &known);
        let mut left = VecDeque::from(planned(&state));
        while let Some(dead) = left.pop_front() {
            let found = self.remove_container(dead).await?;
            if found.is_none() && looked.elapsed() < FRESH {
                continue;
            }
            looked = Instant::now();
            let state = match found {
                Some(state) => state,
                None => self.in_time(self.runtime.read()).await?,
            };
            // Where somebody else has removed the newest of a name meanwhile, the next one is to be kept in its stead.
            self.leave_to_kubelet(state.is_kubelets())?;
            let still = planned(&state);
            left.retain(|one| still.iter().any(|same| same.id == one.id));
        }
        Ok(())
    }

    /// Removes one, and says what the runtime holds where that had to be asked for.
    async fn remove_container(&mut self, dead: DeadContainer) -> Result<Option<State>, Stop> {
        let standing = self.in_time(self.runtime.standing(&dead.id)).await;
        let spared = match standing {
            Ok(Some(Standing::Exited)) => None,
            Ok(Some(standing)) => Some(Spared::Alive(standing)),
            Ok(None) => Some(Spared::Gone),
            Err(stop) => {
                self.refuse(Target::Container(dead), stop)?;
                return Ok(None);
            }
        };
        if let Some(spared) = spared {
            self.report.spared.push((Target::Container(dead), spared));
            return Ok(None);
        }
        let removed = self.in_time(self.runtime.remove_container(&dead.id)).await;
        self.note(Target::Container(dead), removed).await
    }

    async fn unused_images(&mut self, records: &mut Records) -> Result<(), Stop> {
        let state = self.in_time(self.runtime.read()).await?;
        self.leave_to_kubelet(state.is_kubelets())?;
        let now = (self.order.clock)();
        records.observe(now, &state);
        let layers = Layers::new();
        let known = Known {
            fates: self.order.fates,
            records,
            layers: &layers,
            now,
        };
        let (unused, kept) = unused_images(&state, self.order.policy, &known);
        self.report.kept = kept;
        for image in unused {
            self.remove_image(image, &known).await?;
        }
        Ok(())
    }

    async fn remove_image(&mut self, image: UnusedImage, known: &Known<'_>) -> Result<(), Stop> {
        let state = match self.in_time(self.runtime.read()).await {
            Ok(state) => state,
            Err(stop) => return self.refuse(Target::Image(image), stop),
        };
        let mut there = state.images.iter();
        let there = there.find(|one| one.id == image.id && one.handler == image.handler);
        let spared = match there {
            None => Some(Spared::Gone),
            Some(one) => {
                let judged = judge(one, &state, self.order.policy, known);
                judged.err().map(Spared::Stays)
            }
        };
        if let Some(spared) = spared {
            self.report.spared.push((Target::Image(image), spared));
            return Ok(());
        }
        let removed = self
            .in_time(self.runtime.remove_image(&image.id, &image.handler))
            .await;
        self.note(Target::Image(image), removed).await?;
        Ok(())
    }

    fn leave_to_kubelet(&self, is_kubelets: bool) -> Result<(), Stop> {
        if is_kubelets && !self.order.policy.beside_kubelet {
            return Err(Stop::LeftToKubelet);
        }
        Ok(())
    }

    /// What was asked, if the answer comes before the end.
    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, CriError>>,
    ) -> Result<T, Stop> {
        if Instant::now() >= self.order.until {
            return Err(Stop::Late);
        }
        match timeout_at(self.order.until, asked).await {
            Ok(answer) => answer.map_err(Stop::Lost),
            Err(_elapsed) => Err(Stop::Late),
        }
    }

    /// A removal that is not answered in time is no more than that one's, as long as the runtime answers when it is asked what it
    /// holds, which is the result then: the kubelet goes on as well.
    async fn note(
        &mut self,
        target: Target,
        removed: Result<(), Stop>,
    ) -> Result<Option<State>, Stop> {
        match removed {
            Ok(()) => {
                self.report.removed.push(target);
                Ok(None)
            }
            Err(Stop::Lost(error @ CriError::Hung { .. })) => {
                self.report.refused.push((target, error));
                self.in_time(self.runtime.read()).await.map(Some)
            }
            Err(stop) => self.refuse(target, stop).map(|()| None),
        }
    }

    /// The kubelet goes on after a refusal. A runtime that hangs or is gone is not asked again for each of its containers.
    fn refuse(&mut self, target: Target, stop: Stop) -> Result<(), Stop> {
        match stop {
            Stop::Lost(error) if error.is_of_one_call() => {
                self.report.refused.push((target, error));
                Ok(())
            }
            other => Err(other),
        }
    }
}

#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;
