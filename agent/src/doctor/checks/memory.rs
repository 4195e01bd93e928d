//! Memory: both signals now, swap, pressure, and the kernel's settings for shortage.

use brink_core::node::engine::MemoryPolicy;
use brink_core::node::headroom::FreeSwap;
use brink_core::node::observe::Observation;
use brink_core::node::threshold::Threshold;
use brink_host::swap::Swaps;

use super::{count, watermarks};
use crate::doctor::advice::quoted;
use crate::doctor::check::{Check, Step, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::cgroups::Named;
use crate::record::text::{bytes, unsigned};

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::from([signals(facts)]);
    checks.extend(watermarks::checks(facts));
    checks.extend([
        swap(facts),
        pressure(facts),
        huge_pages(facts),
        overcommit(facts),
        panic_on_oom(facts),
    ]);
    checks
}

fn signals(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("memory.signals", "both memory signals now");
    let (figures, slow) = match &facts.memory.figures {
        Ok(read) => read,
        Err(_) if facts.cgroups.layout.is_err() => return SUBJECT.unknown("see cgroups.layout"),
        Err(why) => {
            return SUBJECT
                .failed(why.clone())
                .follows("the node's memory cannot be read, so the agent does not start")
                .step(readable(facts));
        }
    };
    let (Some(available), Some(headroom)) = (figures.memory, figures.headroom) else {
        return SUBJECT.unknown("the node has no capacity");
    };
    let (found, is_optimistic) = compared(available, headroom);
    let observations = figures.observations(*slow);
    let is_met = |threshold: &&Threshold| threshold.is_met(observations[threshold.signal].as_ref());
    let thresholds = facts.config.policy.thresholds().iter();
    let met: Vec<String> = thresholds.filter(is_met).map(ToString::to_string).collect();
    if !met.is_empty() {
        return SUBJECT
            .warning(format!("{found}; met now: {}", met.join(", ")))
            .follows("an agent that enforces would look for a victim as soon as it starts")
            .run("see who that would be", "brink rank");
    }
    if is_optimistic {
        return SUBJECT.note(found).follows(
            "that much is neither free nor reclaimable, and the formula does not see it: a kubelet counts on it",
        );
    }
    SUBJECT.ok(found)
}

/// What has to be readable for the node's memory to be known.
fn readable(facts: &Facts) -> Step {
    let cgroups = &facts.cgroups;
    let is_unread = |group: &Named| group.readable.is_err();
    if cgroups.node.as_ref().is_some_and(is_unread) {
        return Step::words("see cgroups.node");
    }
    if !cgroups.pods_are_sought && cgroups.pods.as_ref().is_some_and(is_unread) {
        return Step::words("see cgroups.pods");
    }
    let root = &facts.config.paths.root;
    let file = |name: &str| quoted(&root.join(name));
    Step::with_command(
        "mount the kernel's own /proc there, with nothing of it hidden; whether its files are whole:",
        format!(
            "head -n 3 {} {}",
            file("proc/meminfo"),
            file("proc/zoneinfo")
        ),
    )
}

/// Both signals in words, and whether the first promises more than the second.
fn compared(available: Observation, headroom: i64) -> (String, bool) {
    let difference = available.available.saturating_sub(headroom);
    let judgement = if difference > 0 {
        "optimistic"
    } else {
        "pessimistic"
    };
    let found = format!(
        "memory.available {}, memory.headroom {} of {}: the kubelet's formula is {} too {judgement}",
        bytes(available.available),
        bytes(headroom),
        bytes(available.capacity),
        bytes(difference.saturating_abs()),
    );
    (found, difference > 0)
}

fn swap(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("memory.swap", "swap");
    let swaps = match &facts.memory.swaps {
        Ok(swaps) if swaps.areas.is_empty() => {
            return SUBJECT.ok("none: headroom is memory alone");
        }
        Ok(swaps) => swaps,
        Err(why) => return SUBJECT.unknown(why.clone()),
    };
    let found = format!(
        "{} free of {} in {}, {}",
        unsigned(swaps.free()),
        unsigned(swaps.total()),
        count(swaps.areas.len(), "area"),
        kind(swaps),
    );
    match facts.config.memory_policy {
        MemoryPolicy::Confirmed => SUBJECT.note(found).follows(format!(
            "{} of it count as headroom (zram by half): a node that can still swap is not taken for a dying one, and \
             may be slow long before",
            unsigned(usable(swaps))
        )),
        MemoryPolicy::Kubelet => SUBJECT
            .warning(found)
            .follows(
                "memory.available knows no swap, and memoryPolicy kubelet goes by it alone: pods are evicted while \
                 swap is free",
            )
            .next("memoryPolicy: confirmed, which waits until headroom and swap are short too"),
    }
}

fn kind(swaps: &Swaps) -> String {
    let compressed = swaps.areas.iter().filter(|area| area.is_zram()).count();
    match compressed {
        0 => "on disk".to_owned(),
        all if all == swaps.areas.len() => "zram, which is memory itself".to_owned(),
        some => format!("{some} of them zram, which is memory itself"),
    }
}

/// What free swap is worth, by the guard's rule.
fn usable(swaps: &Swaps) -> u64 {
    let disk = swaps.free_outside_memory();
    let zram = swaps.free().saturating_sub(disk);
    FreeSwap { disk, zram }.usable()
}

fn pressure(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("memory.pressure", "pressure stall information (PSI)");
    match &facts.memory.pressure {
        Ok(pressure) => {
            let share = pressure.some.avg10;
            SUBJECT.ok(format!(
                "on; in the last 10 s tasks waited for memory {}.{:02} % of the time",
                share / 100,
                share % 100
            ))
        }
        Err(why) => SUBJECT
            .note(why.clone())
            .follows("nothing is decided by it; it is missing where one wants to see how much a node suffers")
            .next("boot with psi=1"),
    }
}

fn huge_pages(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("memory.huge-pages", "transparent huge pages");
    match facts.memory.huge_pages.as_deref() {
        Ok("always") => SUBJECT
            .note("always")
            .follows(
                "memory can vanish at 20 GiB a second and more: the sampler reckons with it, a poll of files may be \
                 late",
            )
            .run(
                "give them to those who ask only",
                "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
            ),
        Ok(mode) => SUBJECT.ok(mode),
        Err(why) => SUBJECT.unknown(why.clone()),
    }
}

fn overcommit(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("memory.overcommit", "overcommit");
    match &facts.memory.overcommit {
        Ok(2) => SUBJECT
            .note("2: address space is refused at a limit, whatever is free")
            .follows("programs may be refused memory before any threshold is met, and Brink cannot see that coming")
            .run("see how far the limit is", "grep Commit /proc/meminfo"),
        Ok(mode) => SUBJECT.ok(match mode {
            0 => "0: by a rule of thumb, the usual mode".to_owned(),
            mode => format!("{mode}: never refused"),
        }),
        Err(why) => SUBJECT.unknown(why.clone()),
    }
}

fn panic_on_oom(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("memory.panic-on-oom", "panic when out of memory");
    match &facts.memory.panic_on_oom {
        Ok(0) => SUBJECT.ok("off"),
        Ok(mode) => SUBJECT
            .warning(format!("vm.panic_on_oom is {mode}"))
            .follows("if a shortage is ever faster than everybody, the machine goes down instead of one process")
            .run("let the kernel kill instead", "sudo sysctl vm.panic_on_oom=0"),
        Err(why) => SUBJECT.unknown(why.clone()),
    }
}
