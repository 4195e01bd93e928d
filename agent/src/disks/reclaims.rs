//! What the guard asks of the container runtime, carried out and told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use brink_core::base::Moment;
use brink_core::node::gate::thresholds_met;
use brink_core::node::observe::Observations;
use brink_core::node::policy::Policy;
use brink_core::node::reclaim::functions;
use brink_core::node::safety::Mode;
use brink_core::node::workload::Stage;

use super::Disks;
use super::answer::{End, Order, Outcome, PodIs};
use super::caretaker::Caretaker;
use super::measure::Spot;
use crate::config::ReclaimPolicy;
use crate::guard;
use crate::guard::disks::{ReclaimAnswer, ReclaimAsked};
use crate::guard::ports::Command;
use crate::telling::reclaim::Reclaimed;

/// For figures after a reclaim.
const AFTER: Duration = Duration::from_secs(2);
/// For a reclaim as a whole.
const WITHIN: Duration = Duration::from_secs(30);

impl Caretaker {
    /// Carries out what the guard asks, and tells it when that is over.
    pub(super) fn reclaim(&mut self, asked: ReclaimAsked) {
        let began = Instant::now();
        let known = self.disks.lock().clone();
        let ways = functions(known.laid.layout, asked.signal);
        let is_dry = asked.is_dry || self.reclaim_policy == ReclaimPolicy::DryRun;
        let mut told = Reclaimed {
            asked,
            is_dry,
            ways,
            runtime: known.runtime.name.clone(),
            outcome: None,
            available: None,
            short: Vec::new(),
            took: Duration::ZERO,
        };
        self.telling.reclaim(guard::now(), &told);
        let outcome = if self.reclaim_policy == ReclaimPolicy::Off {
            Outcome {
                end: End::Off,
                ..Outcome::default()
            }
        } else {
            self.carry_out(&told)
        };
        let (available, short) = self.measure_again(&asked);
        told.outcome = Some(outcome);
        (told.available, told.short) = (available, short);
        told.took = began.elapsed();
        self.count(&told);
        self.telling.reclaim(guard::now(), &told);
        told.log();
        self.answer(asked.at, answer(&told, self.reclaim_policy));
        self.disks.lock().runtime = self.runtime.state().clone();
    }

    fn carry_out(&mut self, told: &Reclaimed) -> Outcome {
        let shared = Arc::clone(&self.shared);
        let by_api = self.by_api.as_deref();
        let pods = |uid: &str| {
            let said = by_api.map_or(PodIs::Unknown, |ask| ask(uid));
            let guarded = shared.lock();
            let mut known = guarded
                .table()
                .into_iter()
                .flat_map(|table| table.workloads());
            let stage = known.find(|one| one.uid == uid).map(|one| one.stage);
            pod_is(said, stage)
        };
        let may_act = || shared.lock().mode == Mode::Enforcing;
        let image_min_age = self.disks.lock().image_min_age;
        let order = Order {
            ways: told.ways,
            is_dry: told.is_dry,
            image_min_age,
            pods: &pods,
            may_act: &may_act,
        };
        let (disks, spots) = (Arc::clone(&self.disks), self.disks.lock().spots());
        let mut enough = || {
            measure(&spots);
            short(&disks, &shared.lock().policy).is_empty()
        };
        self.runtime.reclaim(&order, WITHIN, &mut enough)
    }

    /// What is left now of what was asked for, and the thresholds on filesystems that are still met.
    fn measure_again(&self, asked: &ReclaimAsked) -> (Option<i64>, Vec<String>) {
        let spots = self.disks.lock().spots();
        measure(&spots);
        let mut seen = Observations::default();
        self.disks.ports.disks.observe(guard::now(), &mut seen);
        let policy = self.shared.lock().policy.clone();
        let available = seen[asked.signal].map(|seen| seen.available);
        (available, short(&self.disks, &policy))
    }

    fn count(&self, told: &Reclaimed) {
        let Some(outcome) = &told.outcome else {
            return;
        };
        let mut known = self.disks.lock();
        let reclaims = &mut known.reclaims;
        reclaims.asked += 1;
        reclaims.sufficient += u64::from(told.short.is_empty());
        if !told.is_dry {
            reclaims.containers += outcome.containers.len() as u64;
            reclaims.images += outcome.images.len() as u64;
            reclaims.bytes += told.freed_bytes();
        }
    }

    /// The guard waits for it since then; its queue has room as soon as it runs. Whose the filesystems are it hears before: once it is
    /// answered, whoever holds most may go, and a kubelet may have come since the last look.
    fn answer(&mut self, asked: Moment, answer: ReclaimAnswer) {
        let until = Instant::now() + AFTER;
        let keeps = self.look_for_kubelet();
        loop {
            let is_told = self.tell_who_keeps(keeps);
            let answer = Command::Reclaimed(asked, answer);
            let is_answered = is_told && self.disks.ports.commands.send(answer).is_ok();
            if is_answered || Instant::now() > until || self.is_stopped() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What the guard has to know of a reclaim that is over.
fn answer(told: &Reclaimed, policy: ReclaimPolicy) -> ReclaimAnswer {
    let Some(outcome) = &told.outcome else {
        return ReclaimAnswer::Ended;
    };
    if told.asked.is_dry {
        // By `dryRun` nothing comes back where orders are carried out either.
        let would_come = outcome.end == End::DryRun && policy != ReclaimPolicy::DryRun;
        let bytes = if would_come { outcome.said_bytes } else { 0 };
        return ReclaimAnswer::Dry { bytes };
    }
    let is_removed = !(outcome.containers.is_empty() && outcome.images.is_empty());
    let has_more = |left: i64| left > told.asked.available;
    if outcome.end == End::Late && is_removed && told.available.is_some_and(has_more) {
        ReclaimAnswer::InPart
    } else {
        ReclaimAnswer::Ended
    }
}

/// What is known of a pod of which the API says this, and which is a workload at that stage, if it is one: of a static pod the
/// API knows another uid.
const fn pod_is(said: PodIs, stage: Option<Stage>) -> PodIs {
    match (said, stage) {
        (PodIs::Wanted | PodIs::Over, _) | (_, None) => said,
        (_, Some(Stage::Terminal | Stage::Finished)) => PodIs::Over,
        (_, Some(Stage::Active | Stage::Terminating)) => PodIs::Wanted,
    }
}

/// Has these measured, and waits for it.
fn measure(spots: &[Arc<Spot>]) {
    let asked = guard::now();
    for spot in spots {
        spot.look_now();
    }
    let until = Instant::now() + AFTER;
    for spot in spots {
        let left = until.saturating_duration_since(Instant::now());
        let _answered = spot.seen_after(Some(asked), left);
    }
}

/// The thresholds on filesystems that are met now, minimum reclaim included.
fn short(disks: &Disks, policy: &Policy) -> Vec<String> {
    let mut seen = Observations::default();
    disks.ports.disks.observe(guard::now(), &mut seen);
    let met = thresholds_met(policy, &seen, true);
    let thresholds = policy.thresholds();
    let names = met.iter().filter_map(|index| thresholds.get(index));
    names.map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::answer::Removed;

    /// A reclaim that was asked for with 5 bytes left, and ended so: with so many images gone, and so many bytes left.
    fn reclaimed(end: End, is_dry: bool, (images, left): (usize, i64)) -> Reclaimed {
        let removed = Removed {
            name: "image".to_owned(),
            bytes: Some(7),
        };
        let mut reclaimed = Reclaimed::of(Outcome {
            end,
            images: vec![removed; images],
            said_bytes: 7,
            ..Outcome::default()
        });
        (reclaimed.asked.is_dry, reclaimed.is_dry) = (is_dry, is_dry);
        reclaimed.available = Some(left);
        reclaimed
    }

    #[test]
    fn a_reclaim_whose_time_ran_out_may_have_more_where_something_came_back() {
        use ReclaimAnswer::{Ended, InPart};
        for (end, came, expected) in [
            (End::Late, (1, 6), InPart),
            // Somebody fills it as fast, or has made room otherwise.
            (End::Late, (1, 5), Ended),
            (End::Late, (0, 6), Ended),
            (End::Done, (1, 6), Ended),
            (End::Lost("gone"), (1, 6), Ended),
            (End::Stopped, (1, 6), Ended),
        ] {
            let reclaimed = reclaimed(end, false, came);
            let answer = answer(&reclaimed, ReclaimPolicy::Standalone);
            assert_eq!(answer, expected, "{end:?} {came:?}");
        }
    }

    #[test]
    fn what_would_come_back_is_what_would_go_where_orders_are_carried_out() {
        for (policy, end, bytes) in [
            (ReclaimPolicy::Standalone, End::DryRun, 7),
            (ReclaimPolicy::Always, End::DryRun, 7),
            (ReclaimPolicy::DryRun, End::DryRun, 0),
            (ReclaimPolicy::Off, End::Off, 0),
            (ReclaimPolicy::Standalone, End::Kubelet, 0),
            (ReclaimPolicy::Standalone, End::Lost("absent"), 0),
        ] {
            let answer = answer(&reclaimed(end, true, (1, 5)), policy);
            assert_eq!(answer, ReclaimAnswer::Dry { bytes }, "{policy:?} {end:?}");
        }
        // Who carries orders out and removes nothing has nothing coming.
        let dry = reclaimed(End::DryRun, false, (1, 5));
        let answer = answer(&dry, ReclaimPolicy::DryRun);
        assert_eq!(answer, ReclaimAnswer::Ended);
    }

    #[test]
    fn the_api_has_the_first_word_of_a_pod_and_its_manifest_the_next() {
        use PodIs::{Missing, Over, Unknown, Wanted};
        for (said, stage, expected) in [
            (Unknown, None, Unknown),
            (Missing, None, Missing),
            (Unknown, Some(Stage::Active), Wanted),
            (Unknown, Some(Stage::Terminating), Wanted),
            (Unknown, Some(Stage::Terminal), Over),
            // A static one.
            (Missing, Some(Stage::Active), Wanted),
            // The roster is older than the list.
            (Over, Some(Stage::Active), Over),
            (Wanted, Some(Stage::Terminal), Wanted),
        ] {
            assert_eq!(pod_is(said, stage), expected, "{said:?} {stage:?}");
        }
    }
}
