//! Tests of the decision: each fact takes away what depends on it, and nothing else.

use super::super::facts::{Capabilities, FactError, KernelTypes, Target};
use super::super::layout::{Need, Resolved};
use super::*;

fn unknown<T>(what: &str) -> Result<T, FactError> {
    Err(FactError::Content {
        path: "/x".into(),
        what: what.into(),
    })
}

/// A host where everything runs.
fn facts() -> Facts {
    let targets = PROGRAMS.iter().map(|_| Ok(Target { type_id: 1 })).collect();
    let resolved = Resolved {
        layout: Layout::UNKNOWN,
        missing: Vec::new(),
    };
    Facts {
        release: Ok("6.18.0".into()),
        types: Ok(KernelTypes {
            resolved,
            targets,
            gfp_names: None,
        }),
        tracefs: Ok("/sys/kernel/tracing".into()),
        formats: Ok(Formats::UNKNOWN),
        gfp_names: None,
        lockdown: Ok(Lockdown::None),
        capabilities: Ok(Capabilities {
            bpf: true,
            perfmon: true,
            sys_admin: true,
            sys_resource: true,
        }),
        memory: Ok(MemoryController::V2),
        nodes: Ok(vec![0]),
        page_size: 4096,
    }
}

fn everything() -> Wishes {
    Wishes {
        forensics: true,
        ..Wishes::default().recording(10_000_000)
    }
}

/// Changes one fact and names the families that are no longer whole, with one reason.
fn check(change: impl FnOnce(&mut Facts), lost: &[Family], reason: &str) {
    let mut host = facts();
    change(&mut host);
    let coverage = decide(&host, &everything());
    let families = [
        Family::Sampler,
        Family::Reclaim,
        Family::Oom,
        Family::Process,
        Family::Cgroup,
        Family::Forensics,
        Family::Recorder,
    ];
    let found: Vec<Family> = families
        .into_iter()
        .filter(|family| !coverage.whole(*family))
        .collect();
    assert_eq!(found, lost);
    let reasons: Vec<String> = coverage
        .absences()
        .map(|(_, why)| why.to_string())
        .collect();
    assert!(
        lost.is_empty() || reasons.iter().any(|text| text.contains(reason)),
        "{reasons:?}"
    );
}

const ALL: &[Family] = &[
    Family::Sampler,
    Family::Reclaim,
    Family::Oom,
    Family::Process,
    Family::Cgroup,
    Family::Forensics,
    Family::Recorder,
];

fn miss(facts: &mut Facts, need: Need, what: &str) {
    if let Ok(types) = &mut facts.types {
        types.resolved.missing.push((need, what.into()));
    }
}

#[test]
fn one_fact_takes_away_what_depends_on_it() {
    check(|_| {}, &[], "");
    check(|f| f.lockdown = Ok(Lockdown::Integrity), &[], "");
    check(
        |f| f.lockdown = Ok(Lockdown::Confidentiality),
        ALL,
        "lockdown",
    );
    check(|f| f.types = unknown("no BTF"), ALL, "no BTF");
    check(
        |f| f.memory = Ok(MemoryController::Disabled),
        ALL,
        "switched off",
    );
    check(|f| f.memory = unknown("no row"), ALL, "no row");
    check(
        |f| f.formats = unknown("not mounted"),
        &[Family::Oom],
        "not mounted",
    );
    check(
        |f| miss(f, Need::Node, "NR_FREE_PAGES"),
        &[Family::Sampler],
        "NR_FREE_PAGES",
    );
    check(
        |f| miss(f, Need::Slot, "CSS_ONLINE"),
        &[Family::Sampler, Family::Recorder],
        "CSS_ONLINE",
    );
    check(
        |f| miss(f, Need::Process, "signal_struct.live"),
        &[Family::Process, Family::Cgroup, Family::Forensics],
        "signal_struct.live",
    );
    check(
        |f| miss(f, Need::Decision, "oom_control.memcg"),
        &[Family::Forensics],
        "oom_control.memcg",
    );
    check(
        |f| {
            let at = PROGRAMS
                .iter()
                .position(|p| p.name == "kswapd_begin")
                .unwrap();
            if let Ok(types) = &mut f.types {
                types.targets[at] = Err("no such tracepoint".into());
            }
        },
        &[Family::Reclaim],
        "no such tracepoint",
    );
}

#[test]
fn what_is_unknown_is_tried() {
    check(
        |f| f.lockdown = unknown("securityfs is not mounted"),
        &[],
        "",
    );
    check(|f| f.capabilities = unknown("no CapEff"), &[], "");
    check(|f| f.release = unknown("no osrelease"), &[], "");
}

#[test]
fn either_the_two_new_rights_or_the_old_one() {
    let with = |bpf, perfmon, sys_admin| {
        move |f: &mut Facts| {
            f.capabilities = Ok(Capabilities {
                bpf,
                perfmon,
                sys_admin,
                sys_resource: false,
            });
        }
    };
    check(with(true, true, false), &[], "");
    check(with(false, false, true), &[], "");
    check(with(false, true, false), ALL, "CAP_BPF");
    check(with(true, false, false), ALL, "CAP_PERFMON");
}

#[test]
fn settings_follow_the_facts() {
    let mut host = facts();
    host.memory = Ok(MemoryController::V1 { hierarchy: 7 });
    host.page_size = 65_536;
    host.nodes = Ok(vec![0, 2]);
    let found = settings(&host, Wishes::default());
    assert_eq!(
        (found.layout.memory_hierarchy, found.layout.page_shift),
        (7, 16)
    );
    assert_eq!(found.nodes, [0, 2]);
}

#[test]
fn the_pace_follows_the_fastest_growth() {
    // 2 GiB of slack at 25 GiB/s: ten milliseconds, as eight ticks may use up what they find.
    let period = |processors, gib: u64| {
        let pace = knobs(Growth::of_processors(processors));
        pace.period_ns(gib << 30) / 1_000
    };
    assert_eq!(period(2, 2), 9_988);
    // However many processors grow, at every distance, and not only where ticks are far apart.
    assert_eq!(period(32, 2), 624);
    assert_eq!(period(32, 10), 3_124);
    assert_eq!((period(2, 0), period(2, 1 << 20)), (200, 200_000));
}

#[test]
fn programs_on_kills_and_for_the_recorder_run_only_when_asked_for() {
    let mut coverage = decide(&facts(), &Wishes::default());
    let lost = |coverage: &Coverage| -> Vec<Absence> {
        coverage.absences().map(|(_, why)| why.clone()).collect()
    };
    let is_extra =
        |program: &&Program| matches!(program.family, Family::Forensics | Family::Recorder);
    let all = PROGRAMS.iter().filter(is_extra).count();
    assert_eq!(lost(&coverage), vec![Absence::NotWanted; all]);
    coverage = decide(&facts(), &everything());
    assert_eq!(lost(&coverage), []);
}
