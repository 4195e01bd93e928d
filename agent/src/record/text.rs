//! A decision as a page of text: what happened, on which figures, who and why, when each stage was, and what else could have been.

use std::fmt::{self, Write};

use brink_core::base::{Format, Quantity};

use super::wire::{DecisionRecord, RankedWorkload};

/// Places of the ranking that are printed.
const PLACES: usize = 10;

/// The record of one decision, for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a>(pub &'a DecisionRecord);

impl fmt::Display for Page<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.0;
        headline(out, record)?;
        figures(out, record)?;
        ranking(out, record)?;
        timeline(out, record)?;
        if let Some(kubelet) = &record.kubelet {
            writeln!(out, "\nThe kubelet alone: {}.", kubelet.sentence())?;
        }
        Ok(())
    }
}

fn headline(out: &mut fmt::Formatter<'_>, record: &DecisionRecord) -> fmt::Result {
    let verb = if record.mode == "enforcing" {
        "evicted"
    } else {
        "would have evicted"
    };
    let kind = if record.threshold.hard {
        "hard"
    } else {
        "soft"
    };
    writeln!(
        out,
        "Order {}: {verb} {} at {}",
        record.order,
        record.victim_name(),
        record.decided.wall
    )?;
    let threshold = &record.threshold;
    writeln!(
        out,
        "  {kind} threshold {}: {} available, less than {} (capacity {})",
        threshold.signal,
        amount(&threshold.signal, threshold.available),
        amount(&threshold.signal, threshold.quantity),
        amount(&threshold.signal, threshold.capacity),
    )?;
    if record.mode != "enforcing" {
        writeln!(out, "  nothing was killed: {}", record.mode)?;
    }
    writeln!(
        out,
        "  signal by {}, memory policy {}",
        record.rung, record.memory_policy
    )
}

fn figures(out: &mut fmt::Formatter<'_>, record: &DecisionRecord) -> fmt::Result {
    writeln!(out, "\nFigures it was decided on")?;
    for signal in &record.signals {
        writeln!(
            out,
            "  {:<28} {:>10} of {}",
            signal.signal,
            amount(&signal.signal, signal.available),
            amount(&signal.signal, signal.capacity)
        )?;
    }
    let memory = &record.memory;
    let unknown = || "unknown".to_owned();
    let headroom = memory.headroom_bytes.map_or_else(unknown, bytes);
    writeln!(
        out,
        "  {:<28} {headroom:>10}   (kernel's reserve {}, usable swap {})",
        "headroom without swap",
        unsigned(memory.reserve_bytes),
        unsigned(memory.usable_swap_bytes)
    )?;
    if memory.credit_bytes > 0 {
        writeln!(
            out,
            "  {:<28} {:>10}",
            "credit for the dying",
            unsigned(memory.credit_bytes)
        )?;
    }
    Ok(())
}

fn ranking(out: &mut fmt::Formatter<'_>, record: &DecisionRecord) -> fmt::Result {
    let shown = record.ranking.len().min(PLACES);
    writeln!(
        out,
        "\nRanking ({shown} of {} candidates)",
        record.candidates
    )?;
    let rows: Vec<[String; 7]> = record.ranking[..shown]
        .iter()
        .zip(1..)
        .map(|(place, number)| row(place, number, record))
        .collect();
    let head = ["", "workload", "usage", "request", "", "priority", ""].map(str::to_owned);
    table(out, &head, &rows)
}

fn row(place: &RankedWorkload, number: usize, record: &DecisionRecord) -> [String; 7] {
    let signal = &record.threshold.signal;
    let is_victim = place.uid == record.victim.uid && place.name == record.victim.name;
    let remark = match (&place.refusal, is_victim) {
        (Some(refusal), _) => format!("refuses: {refusal}"),
        (None, true) => "<- goes".to_owned(),
        (None, false) => String::new(),
    };
    let preference = match place.preference.as_str() {
        "normal" => String::new(),
        other => format!("{other} "),
    };
    [
        format!("{number}."),
        place.full_name(),
        place
            .usage
            .map_or_else(|| "unknown".to_owned(), |usage| amount(signal, usage)),
        amount(signal, place.request),
        format!("{preference}{}", place.usage_to_request),
        place.priority.to_string(),
        remark,
    ]
}

/// Columns as wide as their widest cell; amounts to the right.
fn table(out: &mut impl Write, head: &[String; 7], rows: &[[String; 7]]) -> fmt::Result {
    let width = |column: usize| {
        let cells = rows.iter().chain(std::iter::once(head));
        cells
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    for row in std::iter::once(head).chain(rows) {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            match column {
                2 | 3 | 5 => write!(line, " {cell:>width$}")?,
                _ => write!(line, " {cell:<width$}")?,
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn timeline(out: &mut fmt::Formatter<'_>, record: &DecisionRecord) -> fmt::Result {
    writeln!(
        out,
        "\nTimeline (ms after the sample that was below the threshold)"
    )?;
    for stage in &record.stages {
        let Some(nanos) = stage.since_sample_ns else {
            continue;
        };
        #[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
        let millis = nanos as f64 / 1e6;
        writeln!(out, "  {millis:>10.3}  {}", stage_words(&stage.stage))?;
    }
    if let Some(kill) = &record.kill {
        let processes = if kill.signalled == 1 {
            "process"
        } else {
            "processes"
        };
        write!(
            out,
            "  {} {processes} killed by {}",
            kill.signalled, kill.means
        )?;
        writeln!(out, ", {} given back", unsigned(record.freed_bytes))?;
    }
    if let Some(cost) = record.reclaim.filter(|cost| cost.node + cost.cgroup > 0) {
        writeln!(
            out,
            "  its tasks had spent {} in {} reclaims for the node and {} in {} for a limit, {} pages back",
            millis(cost.node_ns),
            cost.node,
            millis(cost.cgroup_ns),
            cost.cgroup,
            cost.pages
        )?;
    }
    match &record.end {
        Some(end) => writeln!(out, "  over: {}", end_words(end)),
        None => writeln!(out, "  still open"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
fn millis(nanos: u64) -> String {
    format!("{:.1} ms", nanos as f64 / 1e6)
}

fn stage_words(stage: &str) -> &str {
    match stage {
        "above" => "last known to be above the threshold",
        "sampled" => "sample below the threshold",
        "submitted" => "handed over by the kernel",
        "woke" => "guard awake",
        "decided" => "victim chosen",
        "recorded" => "record in the ledger",
        "asked" => "SIGTERM sent",
        "firstSignal" => "first SIGKILL sent",
        "lastSignal" => "nobody left to signal",
        "firstMemoryBack" => "first memory back",
        "aboveAgain" => "above the threshold again",
        "gone" => "last process gone",
        "ended" => "order over",
        other => other,
    }
}

/// The end of an order in words.
pub fn end_words(end: &str) -> &str {
    match end {
        "memory-back" => "its memory came back",
        "relieved" => "the threshold was no longer crossed",
        "gone" => "its processes are gone",
        "stalled" => "nothing was freed for 200 ms",
        "under-reserve" => "headroom is under the kernel's reserve, so nobody waits",
        "failed" => "the kill could not be carried out",
        "dry-run" => "dry run",
        "stopped" => "stopped before its grace was over, by hand or because it is protected now",
        other => other,
    }
}

/// An amount of a signal: bytes with binary suffixes, anything else as a plain number.
pub fn amount(signal: &str, value: i64) -> String {
    let counts = signal.starts_with("pid.") || signal.ends_with(".inodesFree");
    if counts {
        value.to_string()
    } else {
        bytes(value)
    }
}

/// Bytes for people: three significant digits, binary suffix.
pub fn bytes(value: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut size = value as f64;
    for suffix in ["B", "Ki", "Mi", "Gi", "Ti"] {
        if size.abs() < 1024.0 {
            let digits = usize::from(size.abs() < 100.0 && suffix != "B");
            return format!("{size:.digits$}{suffix}");
        }
        size /= 1024.0;
    }
    Quantity::new(value, Format::BinarySi).to_string()
}

/// The same for a count that is never negative.
pub fn unsigned(value: u64) -> String {
    bytes(i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_for_people() {
        for (value, expected) in [
            (0, "0B"),
            (1023, "1023B"),
            (1 << 20, "1.0Mi"),
            (100 << 20, "100Mi"),
            (1536 << 20, "1.5Gi"),
            (-(5 << 20), "-5.0Mi"),
        ] {
            assert_eq!(bytes(value), expected);
        }
        assert_eq!(amount("pid.available", 2048), "2048");
        assert_eq!(amount("nodefs.inodesFree", 2048), "2048");
        assert_eq!(amount("nodefs.available", 2048), "2.0Ki");
    }
}
