//! A signal that oscillates around a soft threshold: no wrong kill, no flapping, and the right kill once it stays.

use std::thread::sleep;
use std::time::Duration;

use super::scene::{Scene, grace, transition};
use super::stopped::check_grace;
use super::truth::now;

/// What is always there, above the soft threshold; and the wave, which takes it below. In MiB.
const BASE: u64 = 306;
const WAVE: u64 = 36;
/// How long each stays: never as long as the grace at once.
const BELOW: Duration = Duration::from_millis(250);
const ABOVE: Duration = Duration::from_millis(150);

/// Waves, which must kill nobody.
pub(super) fn swell(scene: &mut Scene, waves: usize) {
    let base = scene.node.holding(scene.leaker, BASE);
    for _ in 0..waves {
        let wave = scene.node.holding(scene.leaker, WAVE);
        sleep(BELOW);
        drop(wave);
        sleep(ABOVE);
    }
    scene.audit(&[]);
    drop(base);
}

#[test]
fn waves_around_a_soft_threshold_kill_nobody_and_do_not_flap() {
    let mut scene = Scene::begin();
    // What the leaks of before have reported is over.
    sleep(transition() + Duration::from_millis(500));
    let before = scene.books().pressure.len();
    // Together below for much longer than the grace.
    let waves = 3 * grace().as_millis() / BELOW.as_millis();
    swell(&mut scene, usize::try_from(waves).unwrap());
    sleep(transition() + Duration::from_millis(500));
    let told = scene.books().pressure[before..].to_vec();
    let words: Vec<bool> = told.iter().map(|(_, is_short)| *is_short).collect();
    assert_eq!(
        words,
        [true, false],
        "reported once, and taken back once: {told:?}"
    );
    let base = scene.node.holding(scene.leaker, BASE);
    let before = now();
    let wave = scene.node.holding(scene.leaker, WAVE);
    check_grace(&mut scene, &wave, before..=now());
    drop(base);
    scene.close();
}
