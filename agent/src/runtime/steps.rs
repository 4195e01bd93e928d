//! Empty steps for the guard: how many there are, each with room for the workloads of the newest roster.

use brink_core::node::workload::PodUsage;
use brink_host::realtime::prefault_buffer;
use crossbeam_queue::ArrayQueue;

use crate::guard::step::Step;

/// Empty steps at most, and the memory they may take together.
const STEPS: usize = 64;
const STEP_BYTES: usize = 2 << 20;
/// However many workloads there are, so many steps.
const FEWEST: usize = 4;
/// Room in a step at least, so that ordinary nodes never need more.
const WORKLOADS: usize = 128;

/// Room in each step for a roster of so many workloads.
pub(super) fn room_for(workloads: usize) -> usize {
    workloads.max(WORKLOADS)
}

/// How many steps with so much room.
pub(super) fn steps_with(room: usize) -> usize {
    let bytes = room.saturating_mul(size_of::<Option<PodUsage>>());
    (STEP_BYTES / bytes.max(1)).clamp(FEWEST, STEPS)
}

/// Makes room in every empty step, before the guard is told of a roster of so many workloads: it frees and makes no memory
/// itself, and what has no room would be left out. At most one step is out of the queue at a time.
pub(super) fn make_room(steps: &ArrayQueue<Box<Step>>, workloads: usize) {
    for _ in 0..steps.len() {
        let Some(step) = steps.pop() else {
            return;
        };
        give_back(steps, step, workloads);
    }
}

/// Gives a step back to be filled again, with room for so many workloads; one that would be too much memory is dropped.
pub(super) fn give_back(steps: &ArrayQueue<Box<Step>>, mut step: Box<Step>, workloads: usize) {
    let room = room_for(workloads);
    if steps.len() >= steps_with(room) {
        return;
    }
    step.usage.clear();
    if step.usage.capacity() < room {
        step.usage.reserve_exact(room);
        prefault_buffer(&mut step.usage, &None);
    }
    let _one_too_many = steps.push(step);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(steps: usize, room: usize) -> ArrayQueue<Box<Step>> {
        let queue = ArrayQueue::new(steps);
        while queue.push(Box::new(Step::with_room(room))).is_ok() {}
        queue
    }

    /// How many steps there are, and the least room among them.
    fn sizes(steps: &ArrayQueue<Box<Step>>) -> (usize, usize) {
        let all: Vec<_> = std::iter::from_fn(|| steps.pop()).collect();
        let least = all.iter().map(|step| step.usage.capacity()).min();
        (all.len(), least.unwrap_or(0))
    }

    #[test]
    fn every_step_has_room_for_a_roster_that_has_grown() {
        for workloads in [257, 1000, 10_000] {
            let steps = queue(steps_with(room_for(1)), room_for(1));
            make_room(&steps, workloads);
            let (count, least) = sizes(&steps);
            assert!(least >= workloads, "{least} for {workloads}");
            assert_eq!(
                count,
                steps_with(workloads).min(steps.capacity()),
                "{workloads}"
            );
        }
    }

    #[test]
    fn a_step_comes_back_with_room_for_the_newest_roster() {
        let steps = queue(4, room_for(1));
        let step = steps.pop().unwrap();
        give_back(&steps, step, 300);
        let rooms: Vec<_> = std::iter::from_fn(|| steps.pop())
            .map(|step| step.usage.capacity() >= 300)
            .collect();
        assert_eq!(rooms, [false, false, false, true]);
    }

    #[test]
    fn together_they_take_no_more_than_they_may() {
        for workloads in [0, 256, 1000, 4000] {
            let room = room_for(workloads);
            let bytes = steps_with(room) * room * size_of::<Option<PodUsage>>();
            let fewest = FEWEST * room * size_of::<Option<PodUsage>>();
            assert!(bytes <= STEP_BYTES.max(fewest), "{workloads}: {bytes}");
        }
    }
}
