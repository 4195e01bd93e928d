//! The kernel programs, family by family, and the sampler's numbers beside those of the files.

use brink_host::probe::Wishes;
use brink_host::probe::coverage::{Absence, decide};
use brink_host::probe::programs::{Family, PROGRAMS, is_spare};

use super::count;
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::trials::{Load, Programs};
use crate::doctor::verdict::{agrees, tolerance};
use crate::record::text::{bytes, unsigned};

/// Each family with what is lost without it.
const FAMILIES: [(Family, Subject, &str); 7] = [
    (
        Family::Sampler,
        Subject("programs.sampler", "sampler of memory in the kernel"),
        "signals come from files the guard polls: later, and at the price of CPU time",
    ),
    (
        Family::Reclaim,
        Subject("programs.reclaim", "programs on reclaim"),
        "the sampler does not speed up when reclaim begins, and records have no stall times",
    ),
    (
        Family::Oom,
        Subject("programs.oom", "programs on the kernel's OOM killer"),
        "its kills are not counted, and no decision knows of them; incidents do, where the programs on kills run",
    ),
    (
        Family::Process,
        Subject("programs.process", "programs on processes"),
        "threads and processes are counted from files, and the end of a victim is found by looking",
    ),
    (
        Family::Cgroup,
        Subject("programs.cgroup", "programs on control groups"),
        "new and gone control groups are found by walking the tree",
    ),
    (
        Family::Forensics,
        Subject("programs.forensics", "programs on kills"),
        "who killed what, and for which limit, is pieced together from files, where it can be",
    ),
    (
        Family::Recorder,
        Subject("programs.recorder", "program for the flight recorder"),
        "it reads the files of control groups instead, which takes more of a processor",
    ),
];

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let families = FAMILIES
        .iter()
        .map(|(family, subject, lost)| of_family(facts, *family, *subject, lost));
    let mut checks: Vec<Check> = families.collect();
    if let Some(programs) = facts.trials.programs.done() {
        checks.extend([agreement(facts, programs), memory(programs)]);
    }
    checks
}

fn of_family(facts: &Facts, family: Family, subject: Subject, lost: &str) -> Check {
    let of_family = PROGRAMS.iter().filter(|program| program.family == family);
    let all = count(of_family.count(), "program");
    let why = match &facts.trials.programs {
        Load::Done(programs) => return loaded(programs, family, subject, (&all, lost)),
        Load::Failed(why) | Load::NotTried(why) => why,
    };
    if !facts.config.kernel_programs {
        return subject.note(why.clone()).follows(lost);
    }
    if family != Family::Sampler {
        // One reason stops all of them, and the sampler's check tells it.
        return subject
            .unknown("not loaded, for the same reason as the sampler")
            .follows(lost);
    }
    let trouble = subject.warning(why.clone()).follows(lost);
    match decide(&facts.kernel.probe, &Wishes::default())
        .absences()
        .next()
    {
        Some((_, Absence::Capability(_))) => trouble.next("see rights.capabilities"),
        Some((_, Absence::Lockdown)) => trouble.next("see kernel.lockdown"),
        Some((_, Absence::NoTypes(_) | Absence::NoMember(_))) => trouble.next("see kernel.btf"),
        _ if facts.process.namespaces.user == Ok(false) => trouble.next("see rights.namespaces"),
        _ => trouble.next(
            "if kernel.machine and kernel.release are well, look for a seccomp filter or a security module that forbids bpf(); report it with \
             the kernel's release if there is none",
        ),
    }
}

fn loaded(
    programs: &Programs,
    family: Family,
    subject: Subject,
    (all, lost): (&str, &str),
) -> Check {
    let (spare, absent): (Vec<_>, Vec<_>) = programs
        .absent(family)
        .partition(|(name, _)| is_spare(name));
    if absent.is_empty() {
        let but = match spare.first() {
            Some((name, why)) => format!(", but {name}, which nothing depends on ({why})"),
            None => String::new(),
        };
        return subject.ok(format!("{all}, loaded and attached on trial{but}"));
    }
    let absent: Vec<String> = absent
        .iter()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    subject
        .warning(absent.join("; "))
        .follows(lost)
        .next("the reason is the kernel's own; kernel.btf, kernel.tracefs and rights.capabilities say more")
}

fn agreement(facts: &Facts, programs: &Programs) -> Check {
    const SUBJECT: Subject = Subject("programs.agreement", "sampler's numbers beside the files'");
    const FALL: &str = "the guard would not trust the sampler and polls files instead";
    let reading = match &programs.agreement {
        Ok(reading) => *reading,
        Err(why) if programs.absent(Family::Sampler).next().is_some() => {
            return SUBJECT.unknown(format!("no sampler: {why}"));
        }
        Err(why) => {
            return SUBJECT
                .warning(why.clone())
                .follows(FALL)
                .next("see memory.signals and cgroups.pods; report it with the kernel's release if both are well");
        }
    };
    let apart = reading
        .difference()
        .map_or_else(|| "nothing".to_owned(), unsigned);
    let allowed = unsigned(tolerance(facts));
    let seen = reading
        .sampler
        .available
        .map_or_else(|| "unknown".to_owned(), bytes);
    let found = format!("memory.available {seen}; {apart} apart, {allowed} allowed");
    if agrees(facts, &reading) {
        return SUBJECT.ok(found);
    }
    SUBJECT.warning(found).follows(FALL).next(
        "look again when the machine is quieter; report it if it stays, with the kernel's release",
    )
}

fn memory(programs: &Programs) -> Check {
    const SUBJECT: Subject = Subject("programs.memory", "memory of the kernel programs");
    match &programs.memory {
        Ok(size) => SUBJECT.ok(format!("{} in programs and maps", unsigned(*size))),
        Err(why) => SUBJECT.unknown(why.clone()),
    }
}
