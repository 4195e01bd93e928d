//! Words and numbers for people: amounts, moments, stretches of time, and the words of a record spelled out.

use std::collections::BTreeMap;
use std::fmt::Display;

use brink_core::base::{Format, Quantity};

use super::wire::{PressureView, Time};

/// Both clocks of a moment, side by side.
pub fn moment(time: &Time) -> String {
    format!("{} (monotonic {})", time.wall, monotonic(time.monotonic_ns))
}

/// `09:36:31.250877` of `2026-11-20T09:36:31.250877Z`: the day is in the headline.
pub fn time_of_day(wall: &str) -> &str {
    let time = wall.split_once('T').map_or(wall, |(_, time)| time);
    time.trim_end_matches('Z')
}

/// Seconds of a clock that begins with the boot, to the microsecond.
pub fn monotonic(nanos: i64) -> String {
    let micros = nanos.div_euclid(1000);
    let (seconds, rest) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    format!("{seconds}.{rest:06} s")
}

/// A stretch of time with as much precision as is read.
pub fn stretch(millis: i64) -> String {
    let seconds = millis / 1000;
    match millis {
        ..1000 => format!("{millis} ms"),
        1000..60_000 => format!("{seconds}.{} s", millis % 1000 / 100),
        60_000..3_600_000 => both(seconds / 60, "min", seconds % 60, "s"),
        _ => both(seconds / 3600, "h", seconds / 60 % 60, "min"),
    }
}

/// Two units, or only the larger one where the smaller is zero.
fn both(large: i64, unit: &str, small: i64, smaller: &str) -> String {
    match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {smaller}"),
    }
}

/// Milliseconds of a stretch in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
pub fn millis(nanos: u64) -> String {
    format!("{:.1} ms", nanos as f64 / 1e6)
}

/// A number with its noun, in the singular where it is one.
pub fn counted(number: u64, noun: &str) -> String {
    match (number, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "process") => format!("{number} processes"),
        _ => format!("{number} {noun}s"),
    }
}

/// `hard` or `soft`.
pub const fn hardness(is_hard: bool) -> &'static str {
    if is_hard { "hard" } else { "soft" }
}

/// What a mode means.
pub fn mode_words(mode: &str) -> &str {
    match mode {
        "enforcing" => "orders are carried out",
        "observing" => "the configuration says to observe",
        "standby" => "standby, because another agent enforces on this node",
        "paused" => "paused by the stop button",
        "throttled" => "throttled, because too many kills came in a row",
        "exhausted" => "exhausted, because too many kills came within the window",
        other => other,
    }
}

/// Why a threshold that is met is not acted on.
pub fn held_words(reason: &str) -> &str {
    match reason {
        "unconfirmed" => "memory can still be allocated",
        "reclaimed" => "reclaim on the node would be enough where orders are carried out",
        "unknown" => "the observation is missing",
        "stale" => "no newer observation yet",
        "nobody" => "nobody can be evicted",
        "waiting" => "an order is still open",
        "credited" => "memory of the dying is on its way back",
        "throttled" => "too many kills came in a row",
        "exhausted" => "too many kills came within the window",
        "paused" => "the stop button is pressed",
        "observing" => "observing only",
        "standby" => "another agent enforces",
        "owed" => "what the last victim held of the filesystem is not back yet",
        "unmeasured" => "what workloads hold of the filesystem is still being measured",
        "kubelet" => {
            "the filesystem is left to the kubelet, whose own garbage collection comes first; runtime.reclaim: always acts beside it"
        }
        _ => "no reason given",
    }
}

/// Why a workload could not be evicted.
pub fn refusal_words(reason: &str) -> &str {
    match reason {
        "static" => "a static pod",
        "mirror" => "the mirror of a static pod",
        "critical" => "its priority makes it critical",
        "protected" => "protected by the configuration or by Brink's own list",
        "empty" => "nothing runs in it",
        "outside" => "not among the pods whose memory the signal measures",
        "waiting" => "it was killed just now",
        "evicted" => "evicted already; what is started in it again belongs to that eviction",
        "unused" => "not known to hold anything of the filesystem",
        "annotated" => "its annotation brink.dev/eviction says never",
        _ => "no reason given",
    }
}

/// What decided between two neighbours of a ranking.
pub fn decider_words(by: &str) -> &str {
    match by {
        "statistics" => "no statistics",
        "excess" => "over request",
        "beyond" => "usage",
        other => other,
    }
}

/// A stage of an order.
pub fn stage_words(stage: &str) -> &str {
    match stage {
        "above" => "last known above the threshold",
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

/// How a subtree was reached.
pub fn means_words(means: &str) -> &str {
    match means {
        "signals" => "a signal each",
        "cgroup-kill" => "cgroup.kill",
        "freezer" => "signals while frozen",
        "unified-cgroup-kill" => "cgroup.kill in the v2 tree",
        other => other,
    }
}

/// The end of an order in words.
pub fn end_words(end: &str) -> &str {
    match end {
        "memory-back" => "its memory came back",
        "relieved" => "the threshold was no longer crossed",
        "gone" => "its processes are gone",
        "stalled" => "nothing was freed in time",
        "overtaken" => "memory or process ids are short, which cannot wait for a filesystem",
        "under-reserve" => "so little headroom was left that nobody waits",
        "failed" => "the kill could not be carried out",
        "dry-run" => "dry run",
        "stopped" => {
            "stopped before its grace was over, by hand or because it is protected now or no workload any more"
        }
        other => other,
    }
}

/// Time that was lost waiting, of the last 10 s.
pub fn pressure(found: &[PressureView]) -> String {
    if found.is_empty() {
        return "not told by this kernel (PSI)".to_owned();
    }
    let one = |view: &PressureView| {
        let full = view
            .full
            .map_or_else(String::new, |full| format!(", full {full:.1}%"));
        format!("{} some {:.1}%{full}", view.resource, view.some)
    };
    found.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// An amount of a signal: bytes with binary suffixes, anything else as a plain number.
pub fn amount(signal: &str, value: i64) -> String {
    if is_count(signal) {
        value.to_string()
    } else {
        bytes(value)
    }
}

/// The same where it may be unknown.
pub fn amount_or_unknown(signal: &str, value: Option<i64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| amount(signal, value))
}

/// Whether a signal counts things, none of which can be requested.
pub fn is_count(signal: &str) -> bool {
    counts_processes(signal) || counts_inodes(signal)
}

/// Whether a signal counts process ids.
pub fn counts_processes(signal: &str) -> bool {
    signal.starts_with("pid.")
}

/// Whether a signal counts inodes.
pub fn counts_inodes(signal: &str) -> bool {
    signal.ends_with(".inodesFree")
}

/// The request that counts in a ranking for a signal: always bytes, for inodes too; none for process ids.
pub fn requested(signal: &str, request: i64) -> Option<String> {
    (!counts_processes(signal)).then(|| bytes(request))
}

/// How many there are of each: `3 inUse, 2 pinned`; nothing where there are none.
pub fn of_each<W: Display>(all: &BTreeMap<W, u64>) -> Option<String> {
    let each = all.iter().map(|(word, many)| format!("{many} {word}"));
    (!all.is_empty()).then(|| each.collect::<Vec<_>>().join(", "))
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
        assert_eq!(amount_or_unknown("pid.available", None), "unknown");
        for signal in ["memory.available", "nodefs.available", "nodefs.inodesFree"] {
            assert_eq!(requested(signal, 1 << 20).as_deref(), Some("1.0Mi"));
        }
        assert_eq!(requested("pid.available", 0), None);
    }

    #[test]
    fn times_for_people() {
        for (millis, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1000, "1.0 s"),
            (59_999, "59.9 s"),
            (60_000, "1 min"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
        ] {
            assert_eq!(stretch(millis), expected);
        }
        assert_eq!(monotonic(9_956_458_758_556), "9956.458758 s");
        let time = Time {
            wall: "2026-01-01T00:00:00.000000Z".to_owned(),
            monotonic_ns: 1_000,
        };
        let both = "2026-01-01T00:00:00.000000Z (monotonic 0.000001 s)";
        assert_eq!(moment(&time), both);
    }

    #[test]
    fn every_reason_has_words() {
        use brink_core::base::Reason;
        use brink_core::base::Reason as R;
        for reason in Reason::ALL {
            let word = reason.word();
            let refuses = matches!(
                reason,
                R::Static
                    | R::Mirror
                    | R::Critical
                    | R::Protected
                    | R::Empty
                    | R::Outside
                    | R::Evicted
                    | R::Unused
                    | R::Annotated
            );
            let decides = matches!(reason, R::Hard | R::Soft | R::Limit);
            if refuses {
                assert_ne!(refusal_words(word), "no reason given", "{word}");
            } else if !decides {
                assert_ne!(held_words(word), "no reason given", "{word}");
            }
        }
    }
}
