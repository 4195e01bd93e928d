//! An agent that is stopped as a whole (SIGSTOP) and goes on later: what it missed, it must know or find out.

use std::ops::RangeInclusive;
use std::thread::sleep;
use std::time::{Duration, Instant};

use brink_tests::{Hog, lacks, slowed, wait_until};
use rustix::process::Signal;

use super::churn::Churn;
use super::scene::{Scene, grace};
use super::truth::now;
use crate::support::{PATIENCE, gone_after};

/// What brings the node under its hard threshold, and what brings it between that and the soft one, in MiB.
const TO_HARD: u64 = 400;
const TO_SOFT: u64 = 350;
/// From the end of a stop, or of a grace, to the signal: far from a second look at anything. How fast it is, benchmarks say.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Events during a stop: more than any ring has room for.
const CROWD: u64 = 3000;

/// Stops the agent, does something, and lets it go on.
pub(super) fn while_stopped<T>(scene: &mut Scene, what: impl FnOnce(&mut Scene) -> T) -> T {
    scene.node.signal(Signal::STOP);
    let since = now();
    let answer = what(scene);
    scene.excuse(since, now());
    scene.node.signal(Signal::CONT);
    answer
}

/// A leak that crosses the hard threshold during a stop is ended as soon as that is over.
pub(super) fn leak_in_a_stop(scene: &mut Scene) {
    let leak = while_stopped(scene, |scene| scene.node.holding(scene.leaker, TO_HARD));
    let took = gone_after(&leak);
    assert!(took < slowed(AT_ONCE), "{took:?} after the stop");
    let record = scene.next_record();
    assert_eq!(record.victim_name(), "test/leaker", "{record:#?}");
}

#[test]
fn what_was_crossed_during_a_stop_is_acted_on_at_once() {
    let mut scene = Scene::begin_with_rare_passes();
    leak_in_a_stop(&mut scene);
    scene.audit(&["test/leaker"]);
    scene.close();
}

#[test]
fn what_was_over_before_the_end_of_a_stop_kills_nobody() {
    let mut scene = Scene::begin();
    for load in [TO_HARD, TO_SOFT] {
        while_stopped(&mut scene, |scene| {
            drop(scene.node.holding(scene.leaker, load));
            sleep(Duration::from_millis(100));
        });
        sleep(grace() + Duration::from_millis(200));
        scene.audit(&[]);
    }
    scene.close();
}

#[test]
fn what_found_no_room_during_a_stop_is_counted_and_looked_for() {
    let mut scene = Scene::begin();
    if scene.node.status().unwrap().rings.is_empty() {
        lacks!("no kernel program runs here");
    }
    while_stopped(&mut scene, |scene| {
        let churn = Churn::start(&scene.node);
        let enough = || (churn.made() > CROWD).then_some(());
        assert!(wait_until(PATIENCE, enough).is_some());
        drop(churn);
        // Whoever comes now has no room in the ring.
        scene.welcome("late");
    });
    let began = Instant::now();
    scene.wait_for_workloads();
    assert!(began.elapsed() < slowed(Duration::from_secs(2)));
    let rings = scene.node.status().unwrap().rings;
    let dropped: u64 = rings.iter().map(|ring| ring.dropped).sum();
    println!("{dropped} records found no room: {rings:?}");
    assert!(dropped > 0, "{rings:?}");
    scene.audit(&[]);
    scene.dismiss("late");
    scene.close();
}

/// Memory that came back in between ends a grace, although nobody looked.
#[test]
fn a_grace_does_not_run_on_over_a_break_during_a_stop() {
    let mut scene = Scene::begin();
    let held = scene.node.holding(scene.leaker, TO_SOFT);
    sleep(grace() / 3);
    let (again, crossed) = while_stopped(&mut scene, |scene| {
        drop(held);
        sleep(grace() / 3);
        let before = now();
        let again = scene.node.holding(scene.leaker, TO_SOFT);
        let crossed = before..=now();
        sleep(grace() / 2);
        (again, crossed)
    });
    check_grace(&mut scene, &again, crossed);
    scene.close();
}

/// Holds a soft eviction to its grace since the crossing, of which is known between what times it was: not before, and not
/// much later.
pub(super) fn check_grace(scene: &mut Scene, held: &Hog, crossed: RangeInclusive<i64>) {
    gone_after(held);
    let record = scene.next_record();
    assert!(!record.threshold.hard, "{record:#?}");
    let asked = record.stages.iter().find(|stage| stage.stage == "asked");
    let asked = asked.expect("a soft eviction asks").at.monotonic_ns;
    let after = |at: i64| Duration::from_nanos(u64::try_from(asked - at).unwrap_or(0));
    let (most, least) = (after(*crossed.start()), after(*crossed.end()));
    assert!(
        most >= grace() && least < grace() + slowed(AT_ONCE),
        "asked {least:?} to {most:?} after the crossing\n{}",
        scene.node.log()
    );
    scene.audit(&["test/leaker"]);
}
