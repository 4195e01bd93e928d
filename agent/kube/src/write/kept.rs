//! What was told of the node, as a file's text: who starts again knows what is there, and since when.

use brink_core::node::condition::ConditionSet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::conditions::Standing;
use super::conflict::Told;

/// The largest file that is read, in bytes: there are few conditions.
pub const LARGEST: u64 = 64 << 10;

/// What was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kept {
    /// The conditions.
    pub conditions: Vec<Standing>,
    /// Whether the kubelet may act beside us, if anything was told of that.
    pub conflict: Option<Told>,
    /// Whether the taint may be on the node.
    pub tainted: bool,
}

/// Reads the text of a file. A condition that is there twice counts once; one that says no time of the past holds since now, as a
/// server takes nothing else for a time, and would take none of the conditions.
///
/// # Errors
/// When it is not what was written.
pub fn read(text: &[u8], now: Timestamp) -> Result<Kept, serde_json::Error> {
    let mut kept: Kept = serde_json::from_slice(text)?;
    let mut seen = ConditionSet::EMPTY;
    kept.conditions.retain_mut(|standing| {
        standing.since = to_the_second(since(&standing.since, now));
        let is_new = !seen.contains(standing.of);
        seen.insert(standing.of);
        is_new
    });
    if let Some(told) = &mut kept.conflict {
        told.since = to_the_second(since(&told.since, now));
    }
    Ok(kept)
}

fn since(text: &str, now: Timestamp) -> Timestamp {
    let since = text.parse().ok();
    let is_past = |since: &Timestamp| (Timestamp::UNIX_EPOCH..=now).contains(since);
    since.filter(is_past).unwrap_or(now)
}

/// As Kubernetes writes a time.
pub(super) fn to_the_second(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

#[cfg(test)]
mod tests {
    use brink_core::node::condition::Condition;

    use super::*;

    #[test]
    fn what_a_server_would_refuse_is_not_told_again() {
        let now = Timestamp::from_second(1_795_000_000).unwrap();
        let told = to_the_second(now);
        let check = |since: &str, expected: &str| {
            let standing = Standing {
                of: Condition::MemoryPressure,
                holds: true,
                since: since.to_owned(),
                is_logged: false,
            };
            let twice = Kept {
                conditions: vec![standing.clone(), standing],
                conflict: Some(Told {
                    holds: Some(true),
                    since: since.to_owned(),
                    is_logged: false,
                }),
                tainted: true,
            };
            let kept = read(&serde_json::to_vec(&twice).unwrap(), now).unwrap();
            let since: Vec<&str> = kept.conditions.iter().map(|of| of.since.as_str()).collect();
            assert_eq!((since, kept.tainted), (vec![expected], true));
            assert_eq!(kept.conflict.unwrap().since, expected);
        };
        check("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z");
        check("2026-01-02 03:04:05.5+01:00", "2026-01-02T02:04:05Z");
        check("", &told);
        check("yesterday", &told);
        check("-009999-01-02T03:04:05Z", &told);
        check("9999-01-02T03:04:05Z", &told);
        assert_eq!(read(b"{}", now).unwrap(), Kept::default());
        // As an agent wrote it that knew nothing of a conflict.
        let before = read(br#"{"conditions":[],"tainted":true}"#, now).unwrap();
        assert_eq!((before.tainted, before.conflict), (true, None));
        for (holds, expected) in [("true", Some(true)), ("false", Some(false)), ("null", None)] {
            let text =
                format!(r#"{{"conflict":{{"holds":{holds},"since":"2026-01-02T03:04:05Z"}}}}"#);
            let kept = read(text.as_bytes(), now).unwrap();
            assert_eq!(kept.conflict.unwrap().holds, expected);
        }
        assert!(read(b"[", now).is_err());
    }
}
