//! Flags on the kubelet's command line: they win over its files.

use brink_core::node::policy::{Draft, SignalMap};

/// The value of a flag, as `--flag=value` or `--flag value`; the last one counts.
pub(crate) fn value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    let at = |(index, argument): (usize, &'a String)| {
        let rest = argument.strip_prefix(flag)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if rest.is_empty() => arguments.get(index + 1).map(String::as_str),
            None => None,
        }
    };
    arguments.iter().enumerate().rev().find_map(at)
}

/// `name<value,name<value`; what is no pair is left out.
fn pairs(text: &str, between: char) -> SignalMap {
    let pair = |part: &str| {
        let (name, value) = part.split_once(between)?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.split(',').filter_map(pair).collect()
}

/// Lays the eviction flags over what the files say; tells which were given.
pub(super) fn apply(arguments: &[String], draft: &mut Draft) -> Vec<&'static str> {
    let maps: [(&'static str, char, &mut Option<SignalMap>); 4] = [
        ("--eviction-hard", '<', &mut draft.eviction_hard),
        ("--eviction-soft", '<', &mut draft.eviction_soft),
        (
            "--eviction-soft-grace-period",
            '=',
            &mut draft.eviction_soft_grace_period,
        ),
        (
            "--eviction-minimum-reclaim",
            '=',
            &mut draft.eviction_minimum_reclaim,
        ),
    ];
    let mut given = Vec::new();
    for (flag, between, map) in maps {
        if let Some(text) = value(arguments, flag) {
            *map = Some(pairs(text, between));
            given.push(flag);
        }
    }
    given
}

/// The parts of `--kube-reserved=cpu=1,memory=1Gi` and the like, which stand in for the file's; none where it is not given.
pub(super) fn reserved(arguments: &[String], flag: &str) -> Option<SignalMap> {
    Some(pairs(value(arguments, flag)?, '='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn both_forms_of_a_flag_are_read_and_the_last_counts() {
        fn check(line: &str, expected: Option<&str>) {
            assert_eq!(value(&arguments(line), "--config"), expected, "{line}");
        }
        check("--config=/a", Some("/a"));
        check("--v=2 --config /a --config-dir=/d", Some("/a"));
        check("--config=/a --config=/b", Some("/b"));
        check("--config-dir=/d", None);
        check("--config", None);
    }

    #[test]
    fn eviction_flags_replace_whole_maps() {
        let mut draft = Draft {
            eviction_hard: Some(pairs("memory.available<100Mi,pid.available<10%", '<')),
            ..Draft::default()
        };
        let line =
            arguments("--eviction-hard=memory.available<1Gi --kube-reserved=cpu=1,memory=2Gi");
        assert_eq!(apply(&line, &mut draft), ["--eviction-hard"]);
        assert_eq!(
            draft.eviction_hard,
            Some(pairs("memory.available<1Gi", '<'))
        );
        assert_eq!(
            reserved(&line, "--kube-reserved"),
            Some(pairs("cpu=1,memory=2Gi", '='))
        );
        assert_eq!(reserved(&line, "--system-reserved"), None);
    }
}
