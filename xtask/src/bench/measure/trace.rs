//! The truth of single events: the kernel's own tracer, in an instance of ours, on the monotonic clock.
use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Where tracefs may be mounted.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Room for the events of one run, for each processor.
const BUFFER_KIB: &str = "4096";

/// An instance that traces some events. Dropping it removes it.
pub(in crate::bench) struct Trace {
    folder: PathBuf,
    events: Vec<String>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::bench) struct Entry {
    /// Nanoseconds of `CLOCK_MONOTONIC`, to the microsecond.
    pub(in crate::bench) at: u64,
    /// Name of the event.
    pub(in crate::bench) name: String,
    /// Its fields, as the kernel prints them.
    pub(in crate::bench) fields: String,
}

impl Trace {
    /// Traces these events (`oom/mark_victim`) from [`Trace::clear`] on; nothing where there is no tracefs.
    pub(in crate::bench) fn start(events: &[&str]) -> anyhow::Result<Option<Self>> {
        let mut roots = ROOTS.iter().map(|root| Path::new(root).join("instances"));
        let Some(instances) = roots.find(|instances| instances.is_dir()) else {
            return Ok(None);
        };
        let folder = instances.join(format!("brink-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        let trace = Self {
            folder,
            events: events
                .iter()
                .map(|event| format!("events/{event}/enable"))
                .collect(),
        };
        trace.write("tracing_on", "0")?;
        trace.write("trace_clock", "mono")?;
        trace.write("buffer_size_kb", BUFFER_KIB)?;
        for event in &trace.events {
            trace.write(event, "1")?;
        }
        Ok(Some(trace))
    }

    /// Lets through of an event what the kernel's filter holds for.
    pub(in crate::bench) fn filter(&self, event: &str, filter: &str) -> anyhow::Result<()> {
        self.write(&format!("events/{event}/filter"), filter)
    }

    /// Forgets what was traced, and traces.
    pub(in crate::bench) fn clear(&self) -> anyhow::Result<()> {
        self.write("trace", "")?;
        self.write("tracing_on", "1")
    }

    /// Stops, and reads what was traced.
    pub(in crate::bench) fn read(&self) -> anyhow::Result<Vec<Entry>> {
        self.write("tracing_on", "0")?;
        let file = self.folder.join("trace");
        let text = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter_map(entry).collect())
    }

    fn write(&self, name: &str, value: &str) -> anyhow::Result<()> {
        let file = self.folder.join(name);
        fs::write(&file, value).with_context(|| format!("writing {}", file.display()))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        for event in &self.events {
            // The instance goes with its events.
            let _off = self.write(event, "0");
        }
        let _removed = fs::remove_dir(&self.folder);
    }
}

/// `  comm-123   [001] d..1.  6022.374511: mark_victim: pid=123 …`
fn entry(line: &str) -> Option<Entry> {
    if line.starts_with('#') {
        return None;
    }
    // A command name may hold anything; the processor's number in brackets ends it.
    let rest = line.split_once("] ")?.1;
    let mut words = rest.trim_start().splitn(2, ": ");
    let stamp = words.next()?.rsplit(' ').next()?;
    let (name, fields) = words.next()?.split_once(": ")?;
    let (seconds, micros) = stamp.split_once('.')?;
    let micros: u64 = format!("{micros:0<6}").parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    Some(Entry {
        at: seconds * 1_000_000_000 + micros * 1000,
        name: name.trim().to_owned(),
        fields: fields.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<(u64, &str, &str)>) {
        let found = entry(line);
        let found = found
            .as_ref()
            .map(|entry| (entry.at, entry.name.as_str(), entry.fields.as_str()));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn lines_of_the_tracer_are_read() {
        check(
            "       brink-hog-1234    [001] d..1.  6022.374511: mark_victim: pid=1234 comm=brink-hog",
            Some((6_022_374_511_000, "mark_victim", "pid=1234 comm=brink-hog")),
        );
        check(
            "     a] b: c-7       [000] .....    12.000001: task_newtask: pid=8 comm=a] b: c clone_flags=0",
            None,
        );
        check("# tracer: nop", None);
        check("", None);
    }
}
