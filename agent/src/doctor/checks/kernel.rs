//! The kernel: its release, its type description, tracefs, lockdown, and the machine under it.

use brink_host::probe::abi::MAX_NODES;
use brink_host::probe::facts::{FactError, Lockdown};
use brink_host::probe::layout::Need;
use brink_host::probe::programs::{PROGRAMS, Program};

use super::count;
use crate::doctor::advice::{Denied, past_denial};
use crate::doctor::check::{Check, Step, Subject};
use crate::doctor::facts::Facts;
use crate::record::text::unsigned;

/// The oldest kernel Brink is built for.
const OLDEST: (u32, u32) = (5, 15);
/// Series on which the tests run: all but 6.18 in guests.
const TESTED: [(u32, u32); 4] = [(6, 1), (6, 12), (6, 18), (7, 3)];

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    Vec::from([
        release(facts),
        machine(facts),
        types(facts),
        tracefs(facts),
        lockdown(facts),
        bpf(facts),
    ])
}

fn release(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("kernel.release", "kernel");
    let release = match &facts.kernel.probe.release {
        Ok(release) => release,
        Err(error) => return SUBJECT.unknown(error.to_string()),
    };
    let tested = TESTED
        .map(|(major, minor)| format!("{major}.{minor}"))
        .join(", ");
    match facts.kernel.version() {
        None => SUBJECT.unknown(format!("Linux {release:?}, which is no release number")),
        Some(version) if version < OLDEST => SUBJECT
            .failed(format!("Linux {release}"))
            .follows(
                "Brink is built for 5.15 and newer: before that there is no process_mrelease, and the sampler's \
                 timer does not exist",
            )
            .next("run a kernel of 5.15 or newer"),
        Some(version) if TESTED.contains(&version) => {
            SUBJECT.ok(format!("Linux {release}, a series the tests run on"))
        }
        Some(_) => SUBJECT
            .note(format!("Linux {release}; the tests run on {tested}"))
            .follows(
                "everything that differs between kernels is looked up on this one, so it should work; the checks \
                 below say what really does",
            ),
    }
}

fn machine(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("kernel.machine", "machine");
    let kernel = &facts.kernel;
    let architecture = kernel.architecture;
    let cpus = match &kernel.cpus {
        Ok(cpus) => count(*cpus as usize, "CPU"),
        Err(_) => "an unknown number of CPUs".to_owned(),
    };
    let nodes = match (&kernel.probe.nodes, &kernel.cpus) {
        // A kernel without NUMA lists no nodes, but it lists its CPUs.
        (Ok(nodes), Ok(_)) => count(nodes.len(), "memory node"),
        _ => "an unknown number of memory nodes".to_owned(),
    };
    let memory = match &facts.memory.meminfo {
        Ok(info) => unsigned(info.total),
        Err(_) => "an unknown amount of memory".to_owned(),
    };
    let page = kernel.probe.page_size / 1024;
    let found = format!("{architecture}, {cpus}, {nodes}, {memory}, pages of {page}Ki");
    let too_many = kernel
        .probe
        .nodes
        .as_ref()
        .is_ok_and(|nodes| nodes.len() > MAX_NODES);
    if too_many {
        return SUBJECT
            .warning(found)
            .follows(format!(
                "the sampler sums over {MAX_NODES} memory nodes at most; the files serve instead"
            ))
            .next("report it with the number of memory nodes, so that the sampler learns to sum over more");
    }
    match architecture {
        "x86_64" if kernel.cpus.is_err() => SUBJECT.unknown(found),
        "x86_64" => SUBJECT.ok(found),
        "aarch64" | "riscv64" | "powerpc64" => SUBJECT
            .note(found)
            .follows("built to work here; the tests run on x86_64 only"),
        _ => SUBJECT
            .warning(found)
            .follows("the kernel programs are for 64-bit little-endian machines; elsewhere the files serve instead")
            .next("run it on such a machine if signals are to come from the kernel"),
    }
}

const TYPES: Subject = Subject("kernel.btf", "type description of the kernel (BTF)");

fn types(facts: &Facts) -> Check {
    let types = match &facts.kernel.probe.types {
        Ok(types) => types,
        Err(error) => return no_types(error),
    };
    let missing = types.resolved.missing.iter();
    let missing: Vec<_> = missing.filter(|(need, _)| *need != Need::Detail).collect();
    if missing.is_empty() {
        return TYPES.ok("present and sufficient");
    }
    let mut members: Vec<String> = missing.iter().map(|(_, member)| member.clone()).collect();
    members.dedup();
    let is_hit = |program: &&Program| missing.iter().any(|(need, _)| program.needs.contains(need));
    let mut families: Vec<String> = PROGRAMS
        .iter()
        .filter(is_hit)
        .map(|program| program.family.word().to_owned())
        .collect();
    families.dedup();
    TYPES
        .warning(format!("this kernel has no {}", members.join(", ")))
        .follows(format!(
            "the programs that need it are left out: {}",
            families.join(", ")
        ))
        .next("report it with the kernel's release, so that the programs learn the new layout")
}

fn no_types(error: &FactError) -> Check {
    let check = TYPES
        .warning(error.to_string())
        .follows("no kernel program can be laid out, so signals come from files the guard polls");
    if matches!(error, FactError::File { .. }) {
        check.run(
            "use a kernel that was built with CONFIG_DEBUG_INFO_BTF; whether this one was:",
            "grep CONFIG_DEBUG_INFO_BTF /boot/config-$(uname -r)",
        )
    } else {
        check.next(
            "report it with the kernel's release: the description is there and is not understood",
        )
    }
}

fn tracefs(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("kernel.tracefs", "tracefs");
    const LOST: &str = "kills by the kernel's own OOM killer are not counted, and no decision knows of them; incidents do, where the programs on kills run";
    let probe = &facts.kernel.probe;
    let mount = match &probe.tracefs {
        Ok(mount) => mount.display().to_string(),
        Err(error @ FactError::File { .. }) => return SUBJECT.unknown(error.to_string()),
        Err(_) => {
            return SUBJECT.warning("not mounted").follows(LOST).run(
                "mount it, and for good in /etc/fstab",
                "sudo mount -t tracefs tracefs /sys/kernel/tracing",
            );
        }
    };
    match &probe.formats {
        Ok(_) => SUBJECT.ok(format!("mounted at {mount}")),
        Err(FactError::File { error, .. })
            if error.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            let as_root = Step::with_command("look as root", "sudo brink doctor");
            SUBJECT
                .unknown(format!(
                    "mounted at {mount}, and closed to user {}",
                    facts.process.user
                ))
                .steps([past_denial(&facts.process, Denied::Reading, as_root)])
        }
        Err(error) => SUBJECT
            .warning(format!("mounted at {mount}; {error}"))
            .follows(LOST)
            .next("use a kernel with the oom:mark_victim and oom:reclaim_retry_zone tracepoints"),
    }
}

fn lockdown(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("kernel.lockdown", "kernel lockdown");
    let runs = facts
        .trials
        .programs
        .done()
        .is_some_and(|programs| programs.states.iter().any(|state| state.absent.is_none()));
    match &facts.kernel.probe.lockdown {
        Ok(Lockdown::None) => SUBJECT.ok("off"),
        Ok(Lockdown::Integrity) => {
            SUBJECT.ok("integrity, under which kernel memory may still be read")
        }
        Ok(Lockdown::Confidentiality) => SUBJECT
            .warning("confidentiality: nobody may read kernel memory, root included")
            .follows("no kernel program loads, so signals come from files the guard polls")
            .next("boot with lockdown=integrity, if your rules permit that"),
        Err(_) if runs => SUBJECT.ok("not in the way: kernel programs load"),
        Err(_) if facts.kernel.securityfs == Ok(true) => SUBJECT.ok("this kernel has none"),
        Err(error) => SUBJECT.unknown(error.to_string()).run(
            "mount securityfs, which shows it",
            "sudo mount -t securityfs securityfs /sys/kernel/security",
        ),
    }
}

fn bpf(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("kernel.bpf", "BPF compiler");
    let unprivileged = match facts.kernel.unprivileged_bpf_disabled {
        Ok(0) => "; programs of unprivileged users are allowed",
        Ok(_) => "; closed to unprivileged users",
        Err(_) => "",
    };
    match &facts.kernel.jit {
        Ok(0) => SUBJECT
            .note(format!("off, so programs are interpreted{unprivileged}"))
            .follows("each tick of the sampler and each hook costs several times as much")
            .run("switch it on", "sudo sysctl net.core.bpf_jit_enable=1"),
        Ok(_) => SUBJECT.ok(format!("on{unprivileged}")),
        Err(why) => SUBJECT.unknown(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_guests_are_those_that_are_published() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/kernels");
        let mut series: Vec<(u32, u32)> = Vec::from([(6, 18)]);
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let found: serde_json::Value = serde_json::from_str(&text).unwrap();
            let mut numbers = found["kernel"].as_str().unwrap().split('.');
            let mut number = || numbers.next().unwrap().parse().unwrap();
            series.push((number(), number()));
        }
        series.sort_unstable();
        series.dedup();
        assert_eq!(series, TESTED);
    }
}
