//! What came of the turns: the table, and what Brink must reach in it.

use super::SPIKES;
use crate::figures::{Spread, hold, share};
use crate::leak::{Kind, MIB};
use crate::sampler::Seen;

/// Who may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Actor {
    Brink,
    Kubelet,
}

/// For how long a pod takes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// For good.
    Leak,
    /// For less time than there is between two polls.
    Spike,
}

/// One crossing, and what came of it.
pub(super) struct Run {
    pub(super) actor: Actor,
    pub(super) way: Way,
    pub(super) kind: Kind,
    pub(super) seen: Seen,
    /// When the last process was signalled; only Brink tells that.
    pub(super) signalled: Option<u64>,
}

impl Run {
    fn acted(&self) -> bool {
        self.seen.gone.is_some()
    }

    /// From the crossing to the last SIGKILL, in milliseconds.
    fn until_signalled(&self) -> Option<f64> {
        Some(millis(self.seen.crossed, self.signalled?))
    }

    /// From the crossing until the processes were gone, in milliseconds.
    fn until_gone(&self) -> Option<f64> {
        Some(millis(self.seen.crossed, self.seen.gone?))
    }

    /// The same, as a part of 20 ms and 100 ms for each GiB of anonymous memory.
    #[expect(clippy::cast_precision_loss, reason = "some hundred MiB")]
    fn part_of_allowed(&self) -> Option<f64> {
        let is_anonymous = self.kind.is_anonymous();
        let anonymous = if is_anonymous { self.seen.held } else { 0 };
        let gibibytes = anonymous as f64 / (1024 * MIB) as f64;
        Some(self.until_gone()? / (20.0 + 100.0 * gibibytes))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "minutes in nanoseconds, shown in milliseconds"
)]
fn millis(from: u64, to: u64) -> f64 {
    (to.cast_signed() - from.cast_signed()) as f64 / 1e6
}

/// The runs of one of the two, in one way.
pub(super) fn of(runs: &[Run], actor: Actor, way: Way) -> impl Iterator<Item = &Run> {
    let is_one = move |run: &&Run| run.actor == actor && run.way == way;
    runs.iter().filter(is_one)
}

/// What became of the pods that Brink has killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct After {
    pub(super) killed: usize,
    /// With a container that was started again.
    pub(super) started: usize,
    /// As running, after they had failed.
    pub(super) shown: usize,
    /// In the watch that tells so.
    pub(super) gaps: u32,
}

/// The figures, and Brink's held to what they must reach.
pub(super) fn report(runs: &[Run], after: After) {
    for actor in [Actor::Brink, Actor::Kubelet] {
        for kind in Kind::ALL {
            let own = of(runs, actor, Way::Leak).filter(|run| run.kind == kind);
            let gone = Spread::of(own.filter_map(Run::until_gone));
            println!("{actor:?}, {}: crossing to gone: {gone}", kind.name());
        }
    }
    let all = |actor| Spread::of(of(runs, actor, Way::Leak).filter_map(Run::until_gone));
    let (brink, kubelet) = (all(Actor::Brink), all(Actor::Kubelet));
    println!("Brink, all: crossing to gone: {brink}");
    println!("Kubelet, all: crossing to gone: {kubelet}");
    let times = kubelet.median() / brink.median();
    println!("in the median the kubelet takes {times:.0} times as long");
    let missed = [Actor::Brink, Actor::Kubelet].map(|actor| {
        let missed = of(runs, actor, Way::Spike).filter(|run| !run.acted());
        missed.count()
    });
    let short = of(runs, Actor::Kubelet, Way::Spike).filter(|run| !run.acted());
    let short = short.map(|run| millis(run.seen.crossed, run.seen.short_until));
    println!(
        "spikes missed: Brink {} of {SPIKES}, the kubelet {} of {SPIKES}; those were short of memory: {}",
        missed[0],
        missed[1],
        Spread::of(short)
    );
    let between = runs.iter().map(|run| run.seen.between).max();
    let between = millis(0, between.unwrap_or(0));
    println!("a crossing lies between two looks, at most {between:.2} ms apart");
    let of_brink = || runs.iter().filter(|run| run.actor == Actor::Brink);
    let signals = Spread::of(of_brink().filter_map(Run::until_signalled));
    println!("Brink, spikes too: crossing to last SIGKILL: {signals}");
    let parts = Spread::of(of_brink().filter_map(Run::part_of_allowed));
    hold(&[
        (
            "crossing to last SIGKILL, median, ms",
            signals.median(),
            5.0,
        ),
        (
            "crossing to last SIGKILL, 99 of 100, ms",
            signals.of_99(),
            20.0,
        ),
        (
            "crossing to gone, of 20 ms and 100 ms a GiB, median",
            parts.median(),
            1.0,
        ),
        (
            "crossing to gone, of 20 ms and 100 ms a GiB, worst",
            parts.worst(),
            1.0,
        ),
        (
            "spikes that Brink misses, of 100",
            share(missed[0], SPIKES),
            0.0,
        ),
        (
            "started again, of 100",
            share(after.started, after.killed),
            3.0,
        ),
        (
            "shown as Running again, of 100",
            share(after.shown, after.killed),
            0.0,
        ),
        // What is in one nobody has seen.
        ("gaps in the watch of that", f64::from(after.gaps), 0.0),
    ]);
}
