//! What the guard asks of the container runtime, carried out and told.
//!
//! What was removed may show later: containerd removes the files of a dead container when it cleans up next, some seconds after it has
//! answered, and some filesystems give room back behind that. Who looked at once would go on with images that could stay, and then with
//! pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brink_core::base::Moment;
use brink_core::node::gate::thresholds_met;
use brink_core::node::observe::{Observation, Observations};
use brink_core::node::policy::Policy;
use brink_core::node::reclaim::functions;
use brink_core::node::safety::Mode;
use brink_core::node::signal::{Resource, Signal};
use brink_core::node::workload::Stage;

use super::Disks;
use super::answer::{End, Order, Outcome, PodIs, held};
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
/// For what was removed to show.
const SHOWS: Duration = Duration::from_secs(5);
/// From one look to the next meanwhile.
const LOOKS: Duration = Duration::from_millis(200);

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
        let (disks, shared) = (Arc::clone(&self.disks), Arc::clone(&self.shared));
        let is_stopped = Arc::clone(&self.is_stopped);
        let settling = Settling {
            disks: &disks,
            signal: asked.signal,
            before: seen(&disks)[asked.signal],
            is_stopped: &is_stopped,
        };
        let short = |held: Option<u64>| {
            let policy = shared.lock().policy.clone();
            settling.short(&policy, held)
        };
        let outcome = if self.reclaim_policy == ReclaimPolicy::Off {
            Outcome {
                end: End::Off,
                ..Outcome::default()
            }
        } else {
            self.carry_out(&told, &mut |held| short(held).is_empty())
        };
        let all = outcome.containers.iter().chain(&outcome.images);
        let gone = all.filter(|_| !is_dry).map(|one| one.bytes);
        told.short = short(held(gone));
        told.outcome = Some(outcome);
        told.available = seen(&disks)[asked.signal].map(|seen| seen.available);
        told.took = began.elapsed();
        self.count(&told);
        self.telling.reclaim(guard::now(), &told);
        told.log();
        self.answer(asked.at, answer(&told, self.reclaim_policy));
        self.disks.lock().runtime = self.runtime.state().clone();
    }

    /// Has the runtime remove what may go; `enough` hears what it held, where that is said of all.
    fn carry_out(
        &mut self,
        told: &Reclaimed,
        enough: &mut dyn FnMut(Option<u64>) -> bool,
    ) -> Outcome {
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
        self.runtime.reclaim(&order, WITHIN, enough)
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

/// What was removed for a signal, on its way to being seen.
struct Settling<'a> {
    disks: &'a Disks,
    signal: Signal,
    /// What was left before anything was removed.
    before: Option<Observation>,
    is_stopped: &'a AtomicBool,
}

impl Settling<'_> {
    /// The thresholds on filesystems that are met once what is gone shows. That is waited for only where it could be enough: `held` is
    /// what all of it held, where that is known.
    fn short(&self, policy: &Policy, held: Option<u64>) -> Vec<String> {
        let spots = self.disks.lock().spots();
        let until = Instant::now() + SHOWS;
        let could_be_enough = |left| !self.is_short(policy, self.with_more(left, held));
        let was_to_be = could_be_enough(self.before);
        loop {
            measure(&spots);
            let now = seen(self.disks);
            let left = now[self.signal];
            // Whoever fills it meanwhile may have used up what is still to show.
            let waits = was_to_be && self.is_short(policy, left) && could_be_enough(left);
            if !waits || Instant::now() >= until || self.is_stopped.load(Ordering::Acquire) {
                return short(policy, &now);
            }
            std::thread::sleep(LOOKS);
        }
    }

    /// What would be left with so many bytes more than that. How many inodes come back nobody says, nor how many bytes where that is not
    /// known.
    fn with_more(&self, left: Option<Observation>, held: Option<u64>) -> Option<Observation> {
        let is_counted = self.signal.resource() == Resource::EphemeralStorage || held == Some(0);
        let bytes = held.filter(|_| is_counted);
        let more = bytes.and_then(|bytes| i64::try_from(bytes).ok());
        left.map(|left| Observation {
            available: left.available.saturating_add(more.unwrap_or(i64::MAX)),
            ..left
        })
    }

    /// Whether a threshold on the signal is met with so much left, minimum reclaim included.
    fn is_short(&self, policy: &Policy, left: Option<Observation>) -> bool {
        let thresholds = policy.thresholds().iter();
        let mut thresholds = thresholds.filter(|one| one.signal == self.signal);
        thresholds.any(|one| one.is_held(left.as_ref()))
    }
}

/// What is known of filesystems now.
fn seen(disks: &Disks) -> Observations {
    let mut seen = Observations::default();
    disks.ports.disks.observe(guard::now(), &mut seen);
    seen
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

/// The thresholds on filesystems that are met so, minimum reclaim included.
fn short(policy: &Policy, seen: &Observations) -> Vec<String> {
    let met = thresholds_met(policy, seen, true);
    let thresholds = policy.thresholds();
    let names = met.iter().filter_map(|index| thresholds.get(index));
    names.map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
    use brink_core::node::observe::Layout;
    use brink_core::node::policy::Settings;
    use brink_core::node::threshold::{Threshold, Value};

    use super::*;
    use crate::disks::answer::Removed;
    use crate::guard::disks::{Role, Room};
    use crate::guard::ports::Ports;

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

    /// A filesystem of which 100 bytes, or inodes, are to be left.
    fn disks(signal: Signal) -> (Disks, Policy) {
        let threshold = Threshold {
            signal,
            grace: Span::ZERO,
            value: Value::Quantity(Quantity::from_bytes(100)),
            min_reclaim: None,
        };
        let policy = Policy::new(vec![threshold], Layout::Single, Settings::default());
        let ports = Arc::new(Ports::new(4, 1).unwrap());
        ports.disks.assign(Role::Nodefs, Some(0));
        (Disks::new(ports, policy.thresholds()), policy)
    }

    fn leave(disks: &Disks, left: i64) {
        let room = Room {
            at: guard::now(),
            bytes: (left, 1_000),
            inodes: Some((left, 1_000)),
        };
        disks.ports.disks.publish(0, Some(room));
    }

    #[test]
    fn what_was_removed_is_waited_for_where_it_could_be_enough() {
        let signal = Signal::NodefsAvailable;
        let (disks, policy) = disks(signal);
        let (runs, stopped) = (AtomicBool::new(false), AtomicBool::new(true));
        leave(&disks, 90);
        let settling = |is_stopped| Settling {
            disks: &disks,
            signal,
            before: seen(&disks)[signal],
            is_stopped,
        };
        // Each of these would take all the time there is.
        let began = Instant::now();
        for (is_stopped, held) in [
            (&runs, Some(9)),
            (&runs, Some(0)),
            (&stopped, Some(10)),
            (&stopped, None),
        ] {
            let short = settling(is_stopped).short(&policy, held);
            assert_eq!(short, ["nodefs.available<100"], "{held:?}");
        }
        // What it held was enough, and is not with what somebody has taken since.
        let waiting = settling(&runs);
        leave(&disks, 80);
        let short = waiting.short(&policy, Some(15));
        assert_eq!(short, ["nodefs.available<100"]);
        assert!(began.elapsed() < SHOWS);
        for held in [Some(10), None] {
            leave(&disks, 90);
            let settling = settling(&runs);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // A look and more behind whoever waits.
                    std::thread::sleep(LOOKS + LOOKS / 2);
                    leave(&disks, 100);
                });
                let short = settling.short(&policy, held);
                assert_eq!(short, [""; 0], "{held:?}");
            });
        }
    }

    #[test]
    fn of_inodes_nobody_knows_how_many_come_back() {
        let signal = Signal::NodefsInodesFree;
        let (disks, policy) = disks(signal);
        leave(&disks, 90);
        let settling = Settling {
            disks: &disks,
            signal,
            before: seen(&disks)[signal],
            is_stopped: &AtomicBool::new(false),
        };
        for (held, is_short) in [(Some(0), true), (Some(1), false), (None, false)] {
            let more = settling.with_more(settling.before, held);
            assert_eq!(settling.is_short(&policy, more), is_short, "{held:?}");
        }
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
