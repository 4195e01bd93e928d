//! A wall clock that is set, forward and back, while graces run and orders are open. Only ever in a guest.

use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brink_host::hog::Load;
use brink_tests::{guest_only, in_guest};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use super::scene::{Scene, grace};
use super::stopped::check_grace;
use super::truth::now;

const HOUR: i64 = 3600;
/// What brings the node under its soft threshold, in MiB.
const TO_SOFT: u64 = 350;
/// A record may be so far from the wall clock that everybody else sees.
const TOLERANCE: Duration = Duration::from_mins(1);

/// Sets the wall clock of this guest by so many seconds.
pub(super) fn step(seconds: i64) {
    assert!(
        in_guest(),
        "the clock of a machine that is somebody's is left alone"
    );
    let now = clock_gettime(ClockId::Realtime);
    let then = Timespec {
        tv_sec: now.tv_sec + seconds,
        ..now
    };
    clock_settime(ClockId::Realtime, then).unwrap();
}

/// A leak after a step of the clock, whose record has the clock's time.
pub(super) fn leak_after_a_step(scene: &mut Scene, seconds: i64) {
    step(seconds);
    let record = scene.leak(Load::Anon);
    scene.audit(&["test/leaker"]);
    let told: jiff::Timestamp = record.decided.wall.parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let apart = told.as_second().abs_diff(now.as_secs().cast_signed());
    assert!(
        apart < TOLERANCE.as_secs(),
        "told {told}, {apart} s from the clock"
    );
}

#[test]
fn a_clock_that_is_set_changes_no_decision() {
    guest_only!("the wall clock is set");
    let mut scene = Scene::begin();
    for seconds in [24 * HOUR, -48 * HOUR, 24 * HOUR + 1] {
        leak_after_a_step(&mut scene, seconds);
    }
    let before = now();
    let held = scene.node.holding(scene.leaker, TO_SOFT);
    let crossed = before..=now();
    step(HOUR);
    sleep(grace() / 4);
    step(-HOUR);
    check_grace(&mut scene, &held, crossed);
    scene.close();
}
