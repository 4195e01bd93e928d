//! Thresholds beside what the kernel keeps back: are they met before the kernel itself gets into trouble?

use brink_core::node::signal::Signal;

use crate::config::NodeScope;
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::kubelet::lead::ours;
use crate::record::text::unsigned;

/// Both concern a node that is the machine; a group's usage has its kernel memory in it, and no watermarks.
pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    match facts.config.node {
        NodeScope::Machine => Vec::from([unseen(facts), watermarks(facts)]),
        NodeScope::Cgroup(_) => Vec::new(),
    }
}

/// The hard threshold on a signal at the machine's capacity, bytes.
pub(super) fn hard(facts: &Facts, signal: Signal) -> Option<u64> {
    let capacity = facts.memory.meminfo.as_ref().ok()?.total;
    let capacity = i64::try_from(capacity).ok()?;
    u64::try_from(ours(&facts.config, signal, capacity)?).ok()
}

fn unseen(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("memory.unseen", "memory that memory.available does not see");
    let Some(unseen) = facts.memory.unseen() else {
        return SUBJECT.unknown("/proc/meminfo or /proc/zoneinfo cannot be read");
    };
    let size = unsigned(unseen);
    let found = format!("{size}: the kernel's own memory, its reserves, huge pages set aside");
    let Some(threshold) = hard(facts, Signal::MemoryAvailable) else {
        return SUBJECT.ok(format!(
            "{found}; there is no hard threshold on memory.available"
        ));
    };
    let limit = unsigned(threshold);
    if threshold > unseen {
        return SUBJECT.ok(format!("{found}; the threshold of {limit} is above that"));
    }
    let follows = format!(
        "when nothing more can be allocated, memory.available still shows about {size}, so its threshold of {limit} is \
         never met: a kubelet with this threshold does not act before the kernel's OOM killer"
    );
    match hard(facts, Signal::MemoryHeadroom) {
        Some(headroom) => SUBJECT.note(found).follows(format!(
            "{follows}; memory.headroom (below {}) sees it and guards in its place",
            unsigned(headroom)
        )),
        None => SUBJECT
            .failed(found)
            .follows(format!(
                "{follows}, and neither does Brink: headroomHard is off"
            ))
            .next("switch headroom on: headroomHard: 50Mi")
            .next(format!(
                "or set evictionHard memory.available well above {size}"
            )),
    }
}

fn watermarks(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject(
        "memory.watermarks",
        "thresholds beside the kernel's watermarks",
    );
    let zones = match &facts.memory.zones {
        Ok(zones) => *zones,
        Err(why) => return SUBJECT.unknown(why.clone()),
    };
    let min_free = match &facts.memory.min_free {
        Ok(bytes) => format!(" (vm.min_free_kbytes {})", unsigned(*bytes)),
        Err(_) => String::new(),
    };
    let (min, low) = (unsigned(zones.min), unsigned(zones.low));
    let found = format!(
        "the kernel reclaims in the background below {low} free and stalls below {min}{min_free}"
    );
    let available = hard(facts, Signal::MemoryAvailable);
    let headroom = hard(facts, Signal::MemoryHeadroom);
    // Headroom counts from the min watermark up, memory.available from zero.
    let first = available
        .into_iter()
        .chain(headroom.map(|bytes| bytes.saturating_add(zones.min)))
        .max();
    match first {
        None => SUBJECT
            .warning(found)
            .follows("there is no hard memory threshold at all: only the kernel's own killer is left")
            .next("evictionHard: {memory.available: 100Mi}, or headroomHard: 50Mi"),
        Some(first) if first > zones.low => {
            SUBJECT.ok(format!("{found}; a hard threshold is met at {} already", unsigned(first)))
        }
        Some(first) => SUBJECT
            .warning(format!("{found}; the first hard threshold is met at {} only", unsigned(first)))
            .follows(
                "everybody who allocates is slowed down before anything is evicted, and the kernel's OOM killer may \
                 come first",
            )
            .next(format!("set evictionHard memory.available above {}", unsigned(zones.high))),
    }
}
