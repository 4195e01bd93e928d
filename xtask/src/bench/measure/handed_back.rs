//! When the kernel hands free memory back to its hypervisor.
//!
//! The host takes page after page away meanwhile, and whatever the machine does, on every processor, takes many times as
//! long.
use super::trace::{Entry, Trace};

/// The work of free page reporting.
const WORK: &str = "page_reporting_process";

/// A look at that work, from [`HandedBack::clear`] on.
pub(super) struct HandedBack {
    trace: Option<Trace>,
}

impl HandedBack {
    /// Begins to look; without a tracer nothing is seen.
    pub(super) fn start() -> anyhow::Result<Self> {
        let events = [
            "workqueue/workqueue_execute_start",
            "workqueue/workqueue_execute_end",
        ];
        Ok(Self {
            trace: Trace::start(&events)?,
        })
    }

    /// Forgets what was seen.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        self.trace.as_ref().map_or(Ok(()), Trace::clear)
    }

    /// The stretches in which it ran, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) fn read(&self) -> anyhow::Result<Vec<(u64, u64)>> {
        let entries = self.trace.as_ref().map(Trace::read).transpose()?;
        Ok(stretches(&entries.unwrap_or_default()))
    }
}

/// Pairs starts with ends; one that is missing lies outside what was traced.
fn stretches(entries: &[Entry]) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut began = None;
    for entry in entries.iter().filter(|entry| entry.fields.contains(WORK)) {
        if entry.name == "workqueue_execute_start" {
            began = Some(entry.at);
        } else {
            found.push((began.take().unwrap_or(0), entry.at));
        }
    }
    found.extend(began.map(|began| (began, u64::MAX)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_and_ends_are_paired_and_other_work_is_not_seen() {
        let entry = |at, name: &str, work: &str| Entry {
            at,
            name: format!("workqueue_execute_{name}"),
            fields: format!("work struct 00000000: function {work}"),
        };
        let entries = [
            entry(1, "end", WORK),
            entry(3, "start", WORK),
            entry(4, "start", "vmstat_update"),
            entry(5, "end", "vmstat_update"),
            entry(7, "end", WORK),
            entry(9, "start", WORK),
        ];
        assert_eq!(stretches(&entries), [(0, 1), (3, 7), (9, u64::MAX)]);
        assert_eq!(stretches(&[]), []);
    }
}
