//! Following an order: when memory comes back, when it is over, and when the victim is gone, which may be later.

use brink_core::base::{Moment, Span};
use brink_core::node::credit::PATIENCE;
use brink_core::node::input::Input;
use brink_core::node::observe::Observations;
use brink_core::node::order::End;
use brink_core::node::safety::Mode;
use brink_core::node::signal::Signal;
use brink_host::ledger::SlotId;

use super::act::Tally;
use super::page::Page;
use super::roster::Group;
use super::usage::Held;
use super::{Guard, now};
use crate::ledger::entry::Completion;

/// A victim is looked at every quarter of a millisecond at first, then every one, then every five.
const PACES: [(Span, Span); 2] = [
    (Span::from_millis(5), Span::from_micros(250)),
    (Span::from_millis(250), Span::from_millis(1)),
];
const SLOW_PACE: Span = Span::from_millis(5);
/// After a look there is none for so many times as long as it took, and no longer than that: it may have been held up.
const REST: i64 = 3;
const LONGEST_REST: Span = Span::from_millis(100);
/// Memory counts as coming back once this much of it is there.
const FIRST_BACK: u64 = 256 << 10;
/// The node is looked at again whenever the victim has given back one more of so many parts.
const PARTS: u64 = 32;
/// No more of the dead's memory than this may still be mapped by somebody when the rest counts as page cache, which they cannot give back:
/// as much as the kernel's counters may be behind on 64 processors. With more, the dead are waited for as if it was held.
const FEW: u64 = 16 << 20;
/// Memory of the dead counts as back when no more has come for so long.
const SETTLED: Span = Span::from_millis(20);
/// The same of those who are only known to be on no list any more, which they leave before they give their memory back; and of those who
/// have exited and whose memory somebody has mapped. Whoever reads of them in `/proc` just then has hold of it, and gives it back in their
/// stead when it gets a processor.
const SETTLED_HELD: Span = PATIENCE;
/// A victim whose order is over is followed to its end for so long, as the engine leaves it alone.
const LINGER: Span = Span::from_secs(5);
/// Victims that are followed beyond their orders.
pub(super) const LINGERING: usize = 4;
/// Cgroups of one victim whose end the kernel is asked to tell; any others are only looked at.
const WATCHED: usize = 16;

/// What an order is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    pub(super) signal: Signal,
    /// The amount the signal has to be at again, in bytes or a count.
    pub(super) quantity: i64,
}

/// The order that is being carried out.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) order: u64,
    pub(super) workload: usize,
    pub(super) slot: Option<SlotId>,
    pub(super) page: Option<Box<Page>>,
    /// Whether the runtime has been told of it.
    pub(super) announced: bool,
    pub(super) completion: Completion,
    cause: Cause,
    /// Nobody is signalled.
    pub(super) dry_run: bool,
    opened: Moment,
    /// Usage of the victim's cgroups when it was chosen, page cache included; as first seen after the kill without a
    /// sampler.
    pub(super) charged: Option<u64>,
    /// What of it nobody had mapped when it was first looked at after the kill, in bytes: mostly page cache.
    files: Option<u64>,
    /// Parts of it that had been given back when the node was last looked at.
    parts: u64,
    /// What they held at the last change since nobody is listed in them, and when that was.
    left: Option<(u64, Moment)>,
    /// Cgroups whose end the kernel was asked to tell.
    watched: [Option<u64>; WATCHED],
}

impl Current {
    /// An order that is carried out, and of which nothing has been recorded yet.
    pub(super) fn new(order: u64, workload: usize, cause: Cause, opened: Moment) -> Self {
        Self {
            order,
            workload,
            slot: None,
            page: None,
            announced: false,
            completion: Completion::default(),
            cause,
            dry_run: false,
            opened,
            charged: None,
            files: None,
            parts: 0,
            left: None,
            watched: [None; WATCHED],
        }
    }

    /// An agent before us has killed it.
    pub(super) fn resume_killed(&mut self, at: Moment) {
        self.completion.stages.last_signal = Some(at);
        self.opened = at;
    }

    /// What the order is for.
    pub(super) const fn signal(&self) -> Signal {
        self.cause.signal
    }

    /// The kill was sent.
    pub(super) fn killed(&mut self, tally: &Tally, at: Moment) {
        let stages = &mut self.completion.stages;
        stages.first_signal = stages.first_signal.or(tally.first_signal);
        stages.last_signal = Some(at);
        self.files = None;
        self.completion.kill = Some(tally.kill);
        self.opened = at;
    }

    /// When to look at the victim again; never for a dry run.
    pub(super) fn next_look(&self, now: Moment) -> Option<Moment> {
        let age = now.since(self.opened);
        let pace = PACES
            .iter()
            .find(|(until, _)| age < *until)
            .map_or(SLOW_PACE, |(_, pace)| *pace);
        (!self.dry_run).then(|| now + pace)
    }

    /// The kernel will tell when this cgroup is empty; false when there is no more room to remember it.
    pub(super) fn remember_watched(&mut self, id: u64) -> bool {
        let free = self.watched.iter_mut().find(|slot| slot.is_none());
        free.map(|slot| *slot = Some(id)).is_some()
    }

    /// Cgroups whose end the kernel was asked to tell.
    pub(super) fn watched(&self) -> impl Iterator<Item = u64> {
        self.watched.into_iter().flatten()
    }

    /// Whether there is anything left to follow now that the order is over.
    pub(super) fn lingers(&self) -> bool {
        self.is_killed() && self.completion.stages.gone.is_none()
    }

    /// Whether the victim has given back another part since this was last true.
    fn has_moved(&mut self) -> bool {
        let parts = self.charged.filter(|&charged| charged > 0).map(|charged| {
            let parts = u128::from(self.completion.freed) * u128::from(PARTS) / u128::from(charged);
            u64::try_from(parts).unwrap_or(PARTS)
        });
        let before = self.parts;
        self.parts = parts.unwrap_or(before).max(before);
        self.parts != before
    }

    /// Takes in what the victim's cgroups still hold.
    fn note_usage(&mut self, usage: Option<u64>, at: Moment) {
        let Some(usage) = usage else {
            return;
        };
        let charged = *self.charged.get_or_insert(usage);
        let freed = charged.saturating_sub(usage);
        self.completion.freed = self.completion.freed.max(freed);
        let stages = &mut self.completion.stages;
        if freed >= FIRST_BACK && stages.first_back.is_none() {
            stages.first_back = Some(at);
        }
    }

    /// Takes in how much its processes have mapped, once.
    fn note_files(&mut self, usage: Option<u64>, mapped: impl FnOnce() -> Option<u64>) {
        if let (None, Some(usage)) = (self.files, usage) {
            self.files = mapped().map(|mapped| usage.saturating_sub(mapped));
        }
    }

    /// Nobody is left. What cgroups that are removed held beyond files, in bytes, if that is more than a part: it may still be held.
    pub(super) fn end(&mut self, held: Held, at: Moment) -> u64 {
        self.note_gone(at);
        let Some(removed) = held.removed else {
            return 0;
        };
        let little = self.charged.unwrap_or(0) / PARTS;
        let mapped = removed.saturating_sub(self.files.unwrap_or(0));
        let unseen = if mapped > little { mapped } else { 0 };
        self.note_usage(Some(held.there.unwrap_or(0).saturating_add(unseen)), at);
        unseen
    }

    /// Whether those who are listed no more have given back what they held; `usage` is what is still held in bytes, none
    /// when there is nothing left to read, and `kept` what of that they could not give back. `have_exited` is what the kernel
    /// says of them, if it does, and `mapped` how many bytes of theirs somebody has mapped.
    fn has_settled(
        &mut self,
        (usage, kept): (Option<u64>, u64),
        have_exited: Option<bool>,
        mapped: impl FnOnce() -> Option<u64>,
        at: Moment,
    ) -> bool {
        if have_exited == Some(false) {
            self.left = None;
            return false;
        }
        let (Some(usage), Some(charged)) = (usage, self.charged) else {
            return true;
        };
        let (usage, little) = (usage.saturating_sub(kept), charged / PARTS);
        if usage <= little {
            return true;
        }
        let (left, since) = *self.left.get_or_insert((usage, at));
        if usage < left {
            self.left = Some((usage, at));
            return false;
        }
        let waited = at.since(since);
        let is_free =
            || have_exited.is_some() && mapped().is_some_and(|all| all <= little.min(FEW));
        waited >= SETTLED_HELD || waited >= SETTLED && is_free()
    }

    /// Nobody looked for so long, until `now`: those who have hold of the memory may not have run meanwhile either.
    pub(super) fn missed(&mut self, now: Moment, time: Span) {
        self.left = self
            .left
            .map(|(usage, since)| (usage, (since + time).min(now)));
    }

    fn is_killed(&self) -> bool {
        self.completion.stages.last_signal.is_some()
    }

    /// Whether its cgroup of this number was killed, and somebody was left in it when it was last looked at: whoever is
    /// started there later is nobody's victim.
    fn is_dying_in(&self, id: u64) -> bool {
        self.is_killed()
            && self.completion.stages.gone.is_none()
            && self.watched.contains(&Some(id))
    }

    /// Nobody is left.
    pub(super) fn note_gone(&mut self, at: Moment) {
        self.completion.stages.gone.get_or_insert(at);
    }
}

impl Guard {
    /// Looks at whoever is being followed, and at the node when that brought news.
    pub(super) fn follow(&mut self, at: Moment) {
        let mut news = self.follow_order(at);
        for place in 0..LINGERING {
            news |= self.follow_beyond(place, at);
        }
        self.plan_follow(at);
        // Who has thousands of processes takes long to look at, which is time that they do not get to exit.
        let seen = now();
        let rest = rest_after(seen.since(at));
        self.times.follow = self.times.follow.map(|due| due.max(seen + rest));
        if news || self.times.evaluate.is_some_and(|due| due <= at) {
            self.look(now());
        }
    }

    /// Sets the next look at whoever is being followed.
    pub(super) fn plan_follow(&mut self, at: Moment) {
        let followed = self.current.iter().chain(self.lingering.iter().flatten());
        self.times.follow = followed.filter_map(|each| each.next_look(at)).min();
    }

    /// Looks at the victim of the open order; true when that is news for the engine.
    fn follow_order(&mut self, at: Moment) -> bool {
        let Some(mut current) = self.current.take() else {
            return false;
        };
        let workload = current.workload;
        let enforces = self.engine.mode(at) == Mode::Enforcing;
        let (mut known, mut empty, mut spared) = (false, true, false);
        for (_, group) in self.roster.of(workload) {
            known = true;
            for target in group.victims() {
                // Asked victims are only looked at: whoever came meanwhile has been granted the same grace.
                let sweeps = enforces && current.is_dying_in(target.id().0);
                empty &= if sweeps {
                    let outcome = self.killer.sweep(target);
                    spared |= outcome.spared > 0;
                    outcome.is_empty()
                } else {
                    target.is_empty()
                };
            }
        }
        let held = self.held_by(workload);
        current.note_usage(held.total(), at);
        current.note_files(held.there, || self.mapped(workload));
        let is_new = known && empty && current.completion.stages.gone.is_none();
        let kept = if is_new { self.mounted(workload) } else { 0 };
        // The kernel does not tell the spared from the others.
        let have_exited = || self.have_exited(workload).filter(|_| !spared);
        let mapped = || self.mapped(workload);
        let gone = is_new && current.has_settled((held.there, kept), have_exited(), mapped, at);
        let unseen = if gone { current.end(held, now()) } else { 0 };
        let moved = current.has_moved();
        self.current = Some(current);
        if gone {
            self.feed_gone(workload, kept, unseen);
        }
        gone || moved
    }

    /// Looks at a victim whose order is over, until it is gone or nobody waits any more; true when it is gone. Whoever
    /// is started in its place is left alone.
    fn follow_beyond(&mut self, place: usize, at: Moment) -> bool {
        let Some(mut victim) = self.lingering.get_mut(place).and_then(Option::take) else {
            return false;
        };
        let workload = victim.workload;
        let known = self.roster.of(workload).next().is_some();
        let held = self.held_by(workload);
        victim.note_usage(held.total(), at);
        victim.note_files(held.there, || self.mapped(workload));
        let empty = self.is_empty(workload);
        let kept = if empty { self.mounted(workload) } else { 0 };
        let (have_exited, mapped) = (|| self.have_exited(workload), || self.mapped(workload));
        let gone = empty && victim.has_settled((held.there, kept), have_exited(), mapped, at);
        // One that left the table has nothing that could be looked at.
        if known && !gone && at.since(victim.opened) < LINGER {
            self.lingering[place] = Some(victim);
            return false;
        }
        let unseen = if gone { victim.end(held, now()) } else { 0 };
        // Only that of an agent before us has no end yet.
        let end = if gone { End::Gone } else { End::Stalled };
        victim.completion.end.get_or_insert(end);
        self.finish_record(victim);
        if gone {
            self.feed_gone(workload, kept, unseen);
        }
        gone
    }

    /// Tells the engine that nobody is left.
    pub(super) fn feed_gone(&mut self, workload: usize, kept: u64, unseen: u64) {
        let gone = Input::Gone {
            workload,
            kept,
            unseen,
        };
        self.feed(now(), &gone);
    }

    /// Bytes of files in memory that a pod is charged for and that go when the kubelet unmounts its volumes, which it does once
    /// nobody runs in the pod; nothing where no kubelet does that, or nobody knows.
    pub(super) fn mounted(&self, workload: usize) -> u64 {
        let found = self.roster.table.workloads().get(workload);
        if !found.is_some_and(|workload| workload.by_kubelet) {
            return 0;
        }
        let files = |group: &Group| group.stat.read().ok()?.shmem;
        let groups = self
            .roster
            .of(workload)
            .filter_map(|(_, group)| files(group));
        groups.fold(0, u64::saturating_add)
    }

    /// Bytes of a workload that somebody has mapped; none when there are none or one cannot be read.
    fn mapped(&self, workload: usize) -> Option<u64> {
        self.sum_of(workload, |_, group| group.stat.read().ok()?.mapped())
    }

    /// Whether a workload is followed to its end, or has been asked to come to it.
    pub(super) fn is_followed(&self, workload: usize) -> bool {
        let mut followed = self.current.iter().chain(self.lingering.iter().flatten());
        followed.any(|each| {
            each.workload == workload && each.completion.stages.gone.is_none() && !each.dry_run
        })
    }

    /// Whether nobody is in the cgroups of a workload any more, the dying included; none where the kernel does not tell.
    fn have_exited(&self, workload: usize) -> Option<bool> {
        let mut groups = self.roster.of(workload);
        groups.try_fold(true, |all, (_, group)| Some(group.have_exited()? && all))
    }

    /// What the cgroups of a workload held when the sampler last looked, page cache included; none when it did not.
    pub(super) fn sampled_usage_of(&self, workload: usize) -> Option<u64> {
        let kernel = self.kernel.as_ref().filter(|_| !self.distrusted)?;
        self.sum_of(workload, |index, _| {
            kernel.usage(self.roster.slots.get(index).copied().flatten()?)
        })
    }

    /// What the cgroups of a workload hold together; none when there are none or one is unknown.
    fn sum_of(&self, workload: usize, held: impl Fn(usize, &Group) -> Option<u64>) -> Option<u64> {
        let mut sum = None;
        for (index, group) in self.roster.of(workload) {
            sum = Some(sum.unwrap_or(0_u64).saturating_add(held(index, group)?));
        }
        sum
    }

    /// Follows a victim beyond its order; the one followed longest makes room.
    pub(super) fn linger(&mut self, victim: Current) {
        let oldest = self
            .lingering
            .iter_mut()
            .min_by_key(|slot| slot.as_ref().map(|each| each.opened));
        if let Some(slot) = oldest
            && let Some(displaced) = slot.replace(victim)
        {
            self.finish_record(displaced);
        }
    }

    /// Notes when the signal of the current order is above its threshold again.
    pub(super) fn note_progress(&mut self, seen: &Observations, at: Moment) {
        let followed = self
            .current
            .iter_mut()
            .chain(self.lingering.iter_mut().flatten());
        for each in followed {
            if let Some(seen) = seen[each.cause.signal]
                && seen.available >= each.cause.quantity
                && each.completion.stages.above_again.is_none()
            {
                each.completion.stages.above_again = Some(at);
            }
        }
    }
}

/// How long nobody is looked at after a look that took so long.
fn rest_after(look: Span) -> Span {
    Span::from_nanos(look.as_nanos().saturating_mul(REST)).min(LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHARGED: u64 = 320 << 20;

    fn victim() -> Current {
        let cause = Cause {
            signal: Signal::MemoryAvailable,
            quantity: 0,
        };
        Current::new(1, 0, cause, Moment::START)
    }

    /// How many milliseconds after everybody has exited they count as gone, where this is all that they have given back
    /// and somebody has so much of the rest mapped.
    fn gone_after(charged: u64, freed: u64, mapped: u64) -> Option<i64> {
        let mut victim = victim();
        let usage = |freed| Some(charged - freed);
        victim.note_usage(usage(0), Moment::START);
        victim.note_usage(usage(freed), Moment::START);
        (0..1000).find(|&millis| {
            let at = Moment::START + Span::from_millis(millis);
            victim.has_settled((usage(freed), 0), Some(true), || Some(mapped), at)
        })
    }

    #[test]
    fn a_look_leaves_those_it_is_for_three_times_its_own_time_and_no_more_than_a_tenth_of_a_second()
    {
        let rest = |millis| rest_after(Span::from_millis(millis)).as_nanos() / 1_000_000;
        assert_eq!([0, 1, 33, 34, 5_000].map(rest), [0, 3, 99, 100, 100]);
    }

    #[test]
    fn time_in_which_nobody_looked_and_looks_at_who_came_again_begin_the_wait_anew() {
        let at = |millis| Moment::START + Span::from_millis(millis);
        let mut victim = victim();
        victim.note_usage(Some(CHARGED), Moment::START);
        let settles = |victim: &mut Current, have_exited, millis| {
            let held = || Some(CHARGED);
            victim.has_settled((Some(CHARGED), 0), Some(have_exited), held, at(millis))
        };
        assert!(!settles(&mut victim, true, 0));
        victim.missed(at(300), Span::from_millis(300));
        assert!(!settles(&mut victim, true, 499));
        assert!(settles(&mut victim, true, 500));
        assert!(!settles(&mut victim, false, 501));
        assert!(!settles(&mut victim, true, 502));
        assert!(settles(&mut victim, true, 702));
    }

    /// What is said to be held of a removed cgroup in which so much was left, where so much was mapped before.
    #[test]
    fn of_a_removed_cgroup_what_was_last_read_may_be_held_but_for_its_files() {
        let part = CHARGED / PARTS;
        let half = CHARGED / 2;
        for (left, mapped, expected) in [
            (CHARGED, Some(CHARGED), CHARGED),
            (half, Some(CHARGED), half),
            (half, Some(CHARGED - part), half - part),
            (half, Some(half), 0),
            (half, None, half),
            (part, Some(CHARGED), 0),
            (part + 1, Some(CHARGED), part + 1),
        ] {
            let mut victim = victim();
            victim.note_usage(Some(CHARGED), Moment::START);
            victim.note_files(Some(CHARGED), || mapped);
            victim.note_files(Some(left), || mapped.map(|_| 0));
            let held = Held {
                there: Some(left),
                removed: None,
            };
            victim.note_usage(held.total(), Moment::START);
            assert_eq!(victim.end(held, Moment::START), 0);
            assert_eq!(victim.completion.freed, CHARGED - left);
            let unseen = victim.end(held.out_of_sight(), Moment::START);
            assert_eq!(unseen, expected, "{left} {mapped:?}");
            assert_eq!(victim.completion.freed, CHARGED - expected);
        }
    }

    #[test]
    fn those_who_have_exited_are_waited_for_longer_while_somebody_has_their_memory_mapped() {
        let part = CHARGED / PARTS;
        let much = 1 << 40;
        for (charged, freed, mapped, expected) in [
            (CHARGED, 0, CHARGED, 200),
            (CHARGED, CHARGED / 2, CHARGED / 2, 200),
            (CHARGED, CHARGED / 2, part + 1, 200),
            (much, 0, FEW + 1, 200),
            // The rest is page cache, which no end of a process gives back.
            (CHARGED, 0, 0, 20),
            (CHARGED, CHARGED / 2, part, 20),
            (much, 0, FEW, 20),
            (CHARGED, CHARGED - part, part, 0),
            (CHARGED, CHARGED, 0, 0),
        ] {
            let found = gone_after(charged, freed, mapped);
            assert_eq!(found, Some(expected), "{charged} {freed} {mapped}");
        }
    }
}
