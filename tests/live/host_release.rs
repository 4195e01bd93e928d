//! Memory given back early on the real kernel, paired with memory left to the victim. Reported; the bench asserts.
#![cfg(test)]

use std::hint::spin_loop;
use std::path::Path;
use std::time::{Duration, Instant};

use brink_host::HostError;
use brink_host::cgroup::Controller;
use brink_host::cgroup::usage::UsageReader;
use brink_host::hog::{HogSpec, Load};
use brink_host::kill::{KillTarget, Killer, ReleaseConfig, ReleasePool};
use brink_tests::{Hog, Sandbox, lacks};

const SIZE: u64 = 512 << 20;
const GONE: u64 = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const PAIRS: usize = 3;

/// From the call that kills to the memory back.
fn time_to_free(release: bool) -> Result<Duration, HostError> {
    let sandbox = Sandbox::new(&[Controller::Memory], SIZE * 2)?;
    let pool = release
        .then(|| ReleasePool::start(&ReleaseConfig::default(), &sandbox.layout))
        .transpose()?;
    let mut killer = Killer::new(&sandbox.layout, pool)?;
    let target = KillTarget::open(&sandbox.layout, sandbox.group.group())?;
    let usage = UsageReader::open(sandbox.dir(Controller::Memory)?)?;
    let spec = HogSpec::new(Load::Anon, SIZE, PATIENCE);
    let hog = Hog::spawn(
        Path::new(env!("CARGO_BIN_EXE_brink-hog")),
        Some(&sandbox.group),
        &spec,
    );
    let mut hog = hog.expect("a hog");
    hog.wait_touched(SIZE, PATIENCE).expect("progress");
    assert!(usage.read().expect("usage") >= SIZE);
    let begin = Instant::now();
    let outcome = killer.kill(&target);
    assert_eq!(
        (outcome.signalled, outcome.releasing),
        (1, u32::from(release)),
        "{outcome:?}"
    );
    while usage.read().expect("usage") > GONE {
        assert!(begin.elapsed() < PATIENCE, "the memory does not come back");
        spin_loop();
    }
    let elapsed = begin.elapsed();
    hog.wait(PATIENCE).expect("killed");
    if let Some(pool) = killer.release_pool() {
        let counts = pool.counts();
        assert_eq!(counts.released + counts.already_gone, 1, "{counts:?}");
        println!("{counts:?} {:?}", pool.standings());
    }
    Ok(elapsed)
}

#[test]
fn memory_comes_back_with_and_without_help() {
    let mut ratios = Vec::new();
    for pair in 0..PAIRS {
        // Whoever goes second finds warmer caches: take turns.
        let order = if pair % 2 == 0 {
            [false, true]
        } else {
            [true, false]
        };
        let mut times = [Duration::ZERO; 2];
        for release in order {
            match time_to_free(release) {
                Ok(time) => times[usize::from(release)] = time,
                Err(error) => lacks!("{error}"),
            }
        }
        let ratio = times[1].as_secs_f64() / times[0].as_secs_f64();
        println!(
            "512 MiB of 4K pages: alone {:?}, with process_mrelease {:?}, ratio {ratio:.2}",
            times[0], times[1]
        );
        ratios.push(ratio);
    }
    assert!(
        ratios.iter().all(|ratio| *ratio < 3.0),
        "help must not hurt: {ratios:?}"
    );
}

#[test]
fn where_memory_is_not_short_it_is_left_to_the_dying() {
    let sandbox = match Sandbox::new(&[Controller::Memory], SIZE) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let pool = match ReleasePool::start(&ReleaseConfig::default(), &sandbox.layout) {
        Ok(pool) => pool,
        Err(error) => lacks!("{error}"),
    };
    let mut killer = Killer::new(&sandbox.layout, Some(pool)).expect("a killer");
    let target = KillTarget::open(&sandbox.layout, sandbox.group.group()).expect("a target");
    for releases in [false, true] {
        killer.release_memory(releases);
        let spec = HogSpec::new(Load::Anon, GONE, PATIENCE);
        let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
        let mut hog = Hog::spawn(program, Some(&sandbox.group), &spec).expect("a hog");
        hog.wait_touched(GONE, PATIENCE).expect("progress");
        let outcome = killer.kill(&target);
        hog.wait(PATIENCE).expect("killed");
        let expected = (1, u32::from(releases));
        assert_eq!(
            (outcome.signalled, outcome.releasing),
            expected,
            "{outcome:?}"
        );
    }
}
