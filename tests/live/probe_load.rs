//! Every program loads and attaches on the running kernel, and nothing stays when the probe is dropped.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; only the functions marked as tests are known as such"
)]

use std::fs;

use brink::recorder::NODE_PERIOD_NS;
use brink_host::probe::programs::PROGRAMS;
use brink_host::probe::{Facts, Family, Probe, Roots, Wishes, coverage};
use brink_tests::bpf_ids::{held, loaded};
use brink_tests::{in_guest, lacks};

mod probe_support;

#[test]
fn every_program_runs_here() {
    let facts = Facts::gather(&Roots::default());
    if let Err(error) = &facts.types {
        lacks!("needs the kernel's type description: {error}");
    }
    if let Err(error) = &facts.tracefs {
        lacks!("needs tracefs: {error}");
    }
    let wishes = Wishes {
        forensics: true,
        ..Wishes::default().recording(NODE_PERIOD_NS)
    };
    let settings = coverage::settings(&facts, wishes);
    let mut probe = Probe::load(&facts, &settings).unwrap();
    let absent: Vec<String> = probe
        .coverage()
        .absences()
        .filter(|(program, _)| in_guest() || !program.is_spare())
        .map(|(p, why)| format!("{}: {why}", p.name))
        .collect();
    assert_eq!(absent, Vec::<String>::new());
    assert_eq!(probe.coverage().programs().count(), PROGRAMS.len());
    // How often the kernel leaves one out is known of all that it runs; the recorder's are called.
    let running = probe
        .coverage()
        .programs()
        .filter(|(program, state)| state.is_ok() && program.family != Family::Recorder);
    let running: Vec<&str> = running.map(|(program, _)| program.name).collect();
    let meters = probe.take_meters().unwrap();
    let told: Vec<&str> = meters
        .skipped(|_| true)
        .map(|(program, _)| program)
        .collect();
    assert_eq!(told, running);
    // The verifier's limit is a million; how much of it a program takes differs between kernels.
    let looked_at = verified();
    println!("{looked_at:?} instructions looked at");
    assert!(
        !in_guest() || !looked_at.is_empty(),
        "the kernels of our guests tell it"
    );
    assert!(
        looked_at.iter().all(|count| *count < 200_000),
        "{looked_at:?}"
    );
}

/// Instructions the verifier looked at, for each program of this process; nothing from kernels that do not tell.
fn verified() -> Vec<u64> {
    let infos = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = infos.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let count = |text: String| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("verified_insns:"));
        line.and_then(|count| count.trim().parse().ok())
    };
    texts.filter_map(count).collect()
}

#[test]
fn a_family_left_out_takes_no_other_with_it() {
    let facts = Facts::gather(&Roots::default());
    if let Err(error) = &facts.types {
        lacks!("needs the kernel's type description: {error}");
    }
    let wishes = Wishes {
        without: vec![Family::Process, Family::Oom],
        ..Wishes::default()
    };
    let settings = coverage::settings(&facts, wishes);
    let probe = Probe::load(&facts, &settings).unwrap();
    let runs = |family| probe.coverage().whole(family);
    assert!(runs(Family::Sampler) && runs(Family::Reclaim) && runs(Family::Cgroup));
    assert!(!runs(Family::Process) && !runs(Family::Oom));
}

#[test]
fn nothing_stays_in_the_kernel() {
    let probe = match probe_support::sampling(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let during = held(std::process::id()).unwrap();
    for kind in ["program", "map", "link"] {
        let count = during.iter().filter(|(known, _)| *known == kind).count();
        assert!(count > 10, "{kind}: {during:?}");
    }
    // Or an empty answer below would say nothing.
    assert!(loaded().is_superset(&during), "{during:?}");
    drop(probe);
    // Programs and maps go a grace period after their last descriptor; one that is pinned, or still in use, does not.
    probe_support::until("everything to be unloaded", || {
        loaded().is_disjoint(&during).then_some(())
    });
}
