//! The long soak: everything at random, in one agent process for each half, for as long as it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::thread::sleep;
use std::time::{Duration, Instant};

use brink_host::hog::Load;
use brink_tests::{Chance, in_guest, lacks, report_left_out};
use rustix::process::Signal;

use super::churn::Churn;
use super::clock;
use super::disk::SmallDisk;
use super::scene::{HARD, Scene};
use super::starved::{Bound, leak_beside_a_burst};
use super::stopped::leak_in_a_stop;
use super::wave::swell;
use crate::support::Node;

/// How long it goes on, in seconds.
const SECONDS: &str = "BRINK_SOAK_SECONDS";
/// The seed of its course; guests have one for each day and kernel.
const SEED: &str = "BRINK_SOAK_SEED";

/// Why an act has shown nothing although it was done: memory ran short before the processor was taken or after that.
const MISSED: &str = "the crossing did not come in time";

/// What can happen.
#[derive(Clone, Copy, Debug)]
enum Act {
    Leak(Load),
    Bomb,
    Churn,
    Stop,
    Starve,
    Wave,
    Reload,
    FullDisk,
    Clock(i64),
    Rest,
}

const ACTS: [Act; 14] = [
    Act::Leak(Load::Anon),
    Act::Leak(Load::AnonHuge),
    Act::Leak(Load::Shmem),
    Act::Bomb,
    Act::Bomb,
    Act::Churn,
    Act::Stop,
    Act::Starve,
    Act::Wave,
    Act::Reload,
    Act::FullDisk,
    Act::Clock(3600),
    Act::Clock(-86_400),
    Act::Rest,
];

struct Soak {
    scene: Scene,
    disk: SmallDisk,
    chance: Chance,
    /// What is still to come before anything comes again.
    deck: Vec<Act>,
    /// What has come.
    came: BTreeSet<String>,
    /// What has shown nothing, and why; and how often.
    left_out: BTreeMap<String, u32>,
}

impl Soak {
    /// Does it, or says why it cannot be done here. Whether it has shown anything.
    fn act(&mut self, act: Act) -> Result<bool, String> {
        let scene = &mut self.scene;
        match act {
            Act::Leak(load) => {
                scene.leak(load);
                scene.audit(&["test/leaker"]);
            }
            Act::Bomb => {
                scene.explode();
                scene.audit(&["test/bomb"]);
            }
            Act::Churn => {
                let churn = Churn::start(&scene.node);
                leak(scene);
                drop(churn);
            }
            Act::Stop => {
                leak_in_a_stop(scene);
                scene.audit(&["test/leaker"]);
            }
            Act::Starve => {
                let guard = Bound::guard_of(scene.pid);
                return leak_beside_a_burst(scene, &guard);
            }
            Act::Wave => swell(scene, 3),
            Act::Reload => {
                scene.reload(72);
                scene.leak(Load::Anon);
                scene.reload(HARD);
                scene.audit(&["test/leaker"]);
            }
            Act::FullDisk => {
                self.disk.fill();
                leak(scene);
                self.disk.free();
            }
            Act::Clock(seconds) if in_guest() => clock::leak_after_a_step(scene, seconds),
            Act::Clock(_) => return Err("only in a guest: the wall clock is set".to_owned()),
            Act::Rest => {
                sleep(Duration::from_millis(self.chance.below(3000)));
                scene.audit(&[]);
            }
        }
        Ok(true)
    }

    /// Goes on until then, and until half of everything there is was done: the two halves of a soak have all of it, however short.
    /// Where processors are emulated that takes too long, and half of that must do: what never came is told.
    fn go_on_until(&mut self, end: Instant, seed: u64) {
        let least = ACTS.len() / if in_guest() { 4 } else { 2 };
        let mut done = 0;
        while Instant::now() < end || done < least {
            done += 1;
            if self.deck.is_empty() {
                self.deck.extend(ACTS);
            }
            let place = self.chance.below(self.deck.len() as u64);
            let act = self.deck.swap_remove(usize::try_from(place).unwrap());
            println!("{seed}: {act:?}");
            self.came.insert(format!("{act:?}"));
            let why = match self.act(act) {
                Ok(true) => continue,
                Ok(false) => MISSED.to_owned(),
                Err(why) => {
                    assert!(!in_guest(), "{act:?} is left out: {why}");
                    why
                }
            };
            println!("{seed}: {act:?} left out: {why}");
            *self.left_out.entry(format!("{act:?}: {why}")).or_default() += 1;
        }
    }

    /// Tells the runner what was left out and what never came, past libtest, which keeps what a passing test prints.
    fn tell_left_out(&self, seed: u64) {
        for (what, times) in &self.left_out {
            report_left_out(&format!("{what}, {times} times"));
        }
        let all: BTreeSet<String> = ACTS.iter().map(|act| format!("{act:?}")).collect();
        let never: Vec<&str> = all.difference(&self.came).map(String::as_str).collect();
        if !never.is_empty() {
            let never = never.join(", ");
            report_left_out(&format!("no time with {SEED}={seed}: {never}"));
        }
    }
}

fn leak(scene: &mut Scene) {
    scene.leak(Load::Anon);
    scene.audit(&["test/leaker"]);
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}: {text:?} is no number")),
    )
}

/// Does a mix for so long, or says why it cannot be done here.
fn soak(whole: Duration, seed: u64) -> Result<(), String> {
    println!("seed {seed}: {SEED}={seed} repeats it");
    let mut disk = Err(String::new());
    let scene = Scene::begin_with("journal", |node: &Node| {
        disk = SmallDisk::mount(&node.path("state"), 1 << 10);
    });
    let mut soak = Soak {
        scene,
        disk: disk?,
        chance: Chance::new(seed),
        deck: Vec::new(),
        came: BTreeSet::new(),
        left_out: BTreeMap::new(),
    };
    soak.scene.lacks_disk();
    let began = Instant::now();
    soak.go_on_until(began + whole / 2, seed);
    soak.scene.check_flat();
    soak.scene.node.stop(Signal::KILL);
    let pid = soak.scene.node.start(&[]).pid;
    soak.scene.replaced(pid);
    soak.go_on_until(began + whole, seed);
    soak.tell_left_out(seed);
    soak.scene.close();
    drop(soak.disk);
    Ok(())
}

#[test]
fn a_mix_of_everything_in_one_agent() {
    if let Err(why) = soak(Duration::from_secs(10), number(SEED).unwrap_or(1)) {
        lacks!("{why}");
    }
}

#[test]
#[ignore = "slow: 10 minutes, or BRINK_SOAK_SECONDS"]
fn a_long_mix_of_everything_in_one_agent() {
    let shorter = if in_guest() { 120 } else { 600 };
    let seconds = number(SECONDS).unwrap_or(shorter);
    let by_the_clock = std::process::id().into();
    let seed = number(SEED).unwrap_or(by_the_clock);
    if let Err(why) = soak(Duration::from_secs(seconds), seed) {
        lacks!("{why}");
    }
}
