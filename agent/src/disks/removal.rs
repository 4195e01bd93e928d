//! One reclaim through a container runtime: what would go, or what went, and how it ended.

use std::collections::BTreeMap;
use std::time::Duration;

use brink_core::node::reclaim::Reclaim;
use brink_cri::act::{self, Ended, Report, Spared, Target};
use brink_cri::client::Runtime;
use brink_cri::fault::CriError;
use brink_cri::plan::{self, Fates, Known, Plan, Policy, Stays};
use brink_cri::state::{Layers, Standing, State};
use brink_cri::usage::Records;

use super::answer::{End, Order, Outcome, Removed, held};
use super::runtime::Stopper;
use crate::guard;

/// Why nothing more is removed.
const NO_ORDERS: &str = "orders are not carried out any more";

/// What is to be done.
pub(super) struct Job<'a> {
    pub(super) order: &'a Order<'a>,
    pub(super) policy: &'a Policy,
    pub(super) fates: &'a Fates<'a>,
    /// How long it may take, and when it must be over.
    pub(super) within: Duration,
    pub(super) until: tokio::time::Instant,
}

impl Job<'_> {
    /// Removes what may go. What is gone is told, however it ends; `enough` hears what it held, where that is said of all.
    pub(super) async fn carry_out<R: Runtime>(
        &self,
        runtime: &R,
        stopper: &Stopper,
        (records, enough): (&mut Records, &mut dyn FnMut(Option<u64>) -> bool),
    ) -> Outcome {
        let permitted = Permitted {
            runtime,
            stopper,
            may_act: self.order.may_act,
        };
        let order = act::Order {
            ways: self.order.ways,
            policy: self.policy,
            fates: self.fates,
            clock: &guard::now,
            until: self.until,
        };
        let last = self.order.ways.last().copied();
        let after = |way: Reclaim, report: &Report| {
            // After the last one the engine looks for itself.
            let gone = &report.removed;
            Some(way) != last && !gone.is_empty() && enough(held(gone.iter().map(Target::bytes)))
        };
        let report = act::act(&permitted, order, records, after).await;
        let is_given_up = matches!(&report.ended, Ended::Lost(error) if is_ours(error));
        let outcome = outcome(report);
        if is_given_up || !(self.order.may_act)() {
            stopped(outcome)
        } else {
            outcome
        }
    }

    /// What would be removed.
    pub(super) async fn plan<R: Runtime>(
        &self,
        runtime: &R,
        state: &State,
        records: &Records,
    ) -> Outcome {
        let (layers, why) = match tokio::time::timeout_at(self.until, runtime.layers()).await {
            Ok(Ok(layers)) => (layers, None),
            Ok(Err(error)) => (Layers::default(), Some(error.to_string())),
            Err(_elapsed) => (Layers::default(), Some("time ran out".to_owned())),
        };
        let known = Known {
            fates: self.fates,
            records,
            layers: &layers,
            now: guard::now(),
        };
        let plan = plan::plan(self.order.ways, state, self.policy, &known);
        let said_bytes = plan.frees_bytes();
        let Plan {
            containers,
            images,
            kept,
            left_to_kubelet,
        } = plan;
        let end = if left_to_kubelet {
            End::Kubelet
        } else {
            End::DryRun
        };
        Outcome {
            end,
            why: why.map(|why| format!("what dead containers hold is not known: {why}")),
            containers: containers.iter().map(container).collect(),
            images: images.iter().map(image).collect(),
            kept: summed(kept.iter().map(|(_, why)| *why)),
            said_bytes,
            ..Outcome::default()
        }
    }
}

/// It was given up.
pub(super) fn stopped(outcome: Outcome) -> Outcome {
    Outcome {
        end: End::Stopped,
        why: Some(NO_ORDERS.to_owned()),
        ..outcome
    }
}

fn container(dead: &plan::DeadContainer) -> Removed {
    let plan::DeadContainer { pod, name, id, .. } = dead;
    let short: String = id.chars().take(12).collect();
    Removed {
        name: format!("{}/{} {name} ({short})", pod.namespace, pod.name),
        bytes: dead.frees.map(|layer| layer.bytes),
    }
}

fn image(unused: &plan::UnusedImage) -> Removed {
    Removed {
        name: unused.name.clone(),
        bytes: Some(unused.bytes),
    }
}

/// How often each reason is among these.
fn summed(reasons: impl Iterator<Item = Stays>) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for why in reasons {
        *sums.entry(why.word()).or_default() += 1;
    }
    sums
}

fn outcome(report: Report) -> Outcome {
    let said_bytes = report.freed_bytes();
    let (mut containers, mut images) = (Vec::new(), Vec::new());
    for target in &report.removed {
        match target {
            Target::Container(one) => containers.push(container(one)),
            Target::Image(one) => images.push(image(one)),
        }
    }
    // What somebody began to use since stays as well.
    let spared = report.spared.iter().filter_map(|(_, spared)| match spared {
        Spared::Stays(why) => Some(*why),
        Spared::Gone | Spared::Alive(_) => None,
    });
    let kept = summed(report.kept.iter().map(|(_, why)| *why).chain(spared));
    let (end, why) = match report.ended {
        Ended::Done => (End::Done, None),
        Ended::Enough(_) => (End::Enough, None),
        Ended::LeftToKubelet => (End::Kubelet, None),
        Ended::Late => (End::Late, None),
        Ended::Lost(error) => (End::Lost(error.name()), Some(error.to_string())),
    };
    let refused = report.refused.into_iter();
    Outcome {
        end,
        why,
        containers,
        images,
        kept,
        said_bytes,
        refused: refused.map(|(_, error)| error.to_string()).collect(),
    }
}

/// A runtime that is asked to remove nothing once orders are not carried out any more, and nothing at all once it is given up.
struct Permitted<'a, R> {
    runtime: &'a R,
    stopper: &'a Stopper,
    may_act: &'a (dyn Fn() -> bool + Sync),
}

impl<R> Permitted<'_, R> {
    fn permit(&self, call: &'static str) -> Result<(), CriError> {
        if (self.may_act)() {
            return Ok(());
        }
        Err(no_orders(call))
    }

    async fn ask<T>(
        &self,
        call: &'static str,
        question: impl Future<Output = Result<T, CriError>>,
    ) -> Result<T, CriError> {
        let asked = self.stopper.unless(question).await;
        asked.unwrap_or_else(|| Err(no_orders(call)))
    }
}

fn no_orders(call: &'static str) -> CriError {
    CriError::Gone {
        call,
        why: NO_ORDERS.to_owned(),
    }
}

fn is_ours(error: &CriError) -> bool {
    matches!(error, CriError::Gone { why, .. } if why == NO_ORDERS)
}

impl<R: Runtime> Runtime for Permitted<'_, R> {
    async fn read(&self) -> Result<State, CriError> {
        self.ask("ListContainers", self.runtime.read()).await
    }

    async fn layers(&self) -> Result<Layers, CriError> {
        self.ask("ListContainerStats", self.runtime.layers()).await
    }

    async fn standing(&self, container: &str) -> Result<Option<Standing>, CriError> {
        let standing = self.runtime.standing(container);
        self.ask("ContainerStatus", standing).await
    }

    async fn remove_container(&self, container: &str) -> Result<(), CriError> {
        self.permit("RemoveContainer")?;
        let removed = self.runtime.remove_container(container);
        self.ask("RemoveContainer", removed).await
    }

    async fn remove_image(&self, image: &str, handler: &str) -> Result<(), CriError> {
        self.permit("RemoveImage")?;
        let removed = self.runtime.remove_image(image, handler);
        self.ask("RemoveImage", removed).await
    }
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod tests;
