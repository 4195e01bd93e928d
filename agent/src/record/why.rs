//! Why one place in a recorded ranking goes before another: told from what the record keeps, when the workloads are long gone.

use super::text::{amount, bytes, counts_inodes, counts_processes, refusal_words};
use super::wire::RankedWorkload;

/// Why the victim, and why nobody before it: the refusals first, then what the next one has over it.
pub(super) fn sentences(
    signal: &str,
    ranking: &[RankedWorkload],
    victim: &RankedWorkload,
) -> Vec<String> {
    let is_victim = |place: &RankedWorkload| place.uid == victim.uid && place.name == victim.name;
    let place = ranking.iter().position(is_victim);
    let before = &ranking[..place.unwrap_or(ranking.len())];
    let refused = before.iter().filter_map(|other| {
        let refusal = other.refusal.as_deref()?;
        Some(format!(
            "{} was ranked before it, and refuses: {} ({refusal}).",
            other.full_name(),
            refusal_words(refusal)
        ))
    });
    let mut sentences: Vec<String> = refused.collect();
    let after = ranking
        .iter()
        .skip(place.map_or(ranking.len(), |place| place + 1));
    sentences.extend(after.take(1).map(|next| because(signal, victim, next)));
    if ranking.len() == 1 && place == Some(0) {
        sentences.push(format!("{} was the only candidate.", victim.full_name()));
    }
    sentences
}

/// The kubelet's order of criteria, with Brink's preference before it. What cannot be told from the record any more is
/// said to be so: older builds kept no request with inodes, and uids are compared among all pods.
fn because(signal: &str, one: &RankedWorkload, other: &RankedWorkload) -> String {
    let counts_processes = counts_processes(signal);
    let why = if one.preference != other.preference {
        format!(
            "its preference is {}, the other's {}",
            one.preference_words(),
            other.preference_words()
        )
    } else if !counts_processes && one.usage_to_request != other.usage_to_request {
        excess(signal, one, other)
    } else if one.priority != other.priority {
        format!(
            "its priority {} is lower than {}",
            one.priority, other.priority
        )
    } else if one.usage.is_some() != other.usage.is_some() {
        excess(signal, one, other)
    } else {
        usage(signal, one, other)
    };
    format!(
        "{} goes before {}: {why}.",
        one.full_name(),
        other.full_name()
    )
}

fn excess(signal: &str, one: &RankedWorkload, other: &RankedWorkload) -> String {
    let (Some(uses), Some(others)) = (one.usage, other.usage) else {
        return "nothing is known of its usage, so it may be anything".to_owned();
    };
    if counts_inodes(signal) {
        let yours = match others {
            0 => "none".to_owned(),
            others => amount(signal, others),
        };
        return format!(
            "it uses {}, while the other uses {yours}",
            amount(signal, uses)
        );
    }
    let mine = match one.request {
        0 => "and requested none".to_owned(),
        request => format!("more than the {} it requested", bytes(request)),
    };
    let yours = match (others, other.request) {
        (0, 0) => "none".to_owned(),
        (others, request) => format!(
            "{} of the {} it requested",
            amount(signal, others),
            bytes(request)
        ),
    };
    let comma = if one.request == 0 { "" } else { "," };
    format!(
        "it uses {}{comma} {mine}, while the other uses {yours}",
        amount(signal, uses)
    )
}

fn usage(signal: &str, one: &RankedWorkload, other: &RankedWorkload) -> String {
    let (Some(uses), Some(others)) = (one.usage, other.usage) else {
        return "nothing is known of either, and the lower uid goes".to_owned();
    };
    let beyond = (
        uses.saturating_sub(one.request),
        others.saturating_sub(other.request),
    );
    if counts_processes(signal) && uses != others {
        return format!("it runs {uses} processes, the other {others}");
    }
    if beyond.0 > beyond.1 {
        return format!(
            "its usage is {}, the other's {}{}",
            distance(signal, beyond.0),
            distance(signal, beyond.1),
            footnote(signal)
        );
    }
    if beyond.0 == beyond.1 {
        return "nothing that counts tells them apart, so the lower uid goes".to_owned();
    }
    format!(
        "it uses {}, the other {}, as the kubelet compares them",
        amount(signal, uses),
        amount(signal, others)
    )
}

/// The kubelet's quirk, as the ranking itself has it.
fn footnote(signal: &str) -> &'static str {
    if counts_inodes(signal) {
        " (as the kubelet does, with the request for bytes of storage)"
    } else {
        ""
    }
}

fn distance(signal: &str, beyond: i64) -> String {
    match beyond {
        0 => "exactly its request".to_owned(),
        1.. => format!("{} above its request", amount(signal, beyond)),
        _ => format!(
            "{} below its request",
            amount(signal, beyond.saturating_neg())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str, priority: i32, usage: Option<i64>, request: i64) -> RankedWorkload {
        let excess = match usage {
            None => "unknown",
            Some(usage) if usage > request => "over",
            Some(_) => "within",
        };
        RankedWorkload {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            preference: "normal".to_owned(),
            preference_by: None,
            usage_to_request: excess.to_owned(),
            priority,
            usage,
            request,
            processes: None,
            refusal: None,
        }
    }

    #[track_caller]
    fn check(signal: &str, one: &RankedWorkload, other: &RankedWorkload, expected: &str) {
        let said = sentences(signal, &[one.clone(), other.clone()], one);
        assert_eq!(said, [format!("a/x goes before a/y: {expected}.")]);
    }

    #[test]
    fn the_first_criterion_that_differs_is_named() {
        const MEMORY: &str = "memory.available";
        let x = |priority, usage| workload("x", priority, usage, 100);
        let y = |priority, usage| workload("y", priority, usage, 100);
        let mut preferred = x(9, Some(1));
        preferred.preference = "prefer".to_owned();
        check(
            MEMORY,
            &preferred,
            &y(0, Some(500)),
            "its preference is prefer, the other's normal",
        );
        preferred.preference_by = Some("annotation".to_owned());
        check(
            MEMORY,
            &preferred,
            &y(0, Some(500)),
            "its preference is prefer (annotation), the other's normal",
        );
        check(
            MEMORY,
            &x(9, None),
            &y(0, Some(500)),
            "nothing is known of its usage, so it may be anything",
        );
        check(
            MEMORY,
            &x(9, Some(101)),
            &y(0, Some(100)),
            "it uses 101B, more than the 100B it requested, while the other uses 100B of the 100B it requested",
        );
        let idle = workload("y", 0, Some(0), 0);
        check(
            MEMORY,
            &workload("x", 9, Some(101), 0),
            &idle,
            "it uses 101B and requested none, while the other uses none",
        );
        check(
            MEMORY,
            &x(1, Some(101)),
            &y(2, Some(200)),
            "its priority 1 is lower than 2",
        );
        check(
            MEMORY,
            &x(1, Some(100)),
            &y(1, Some(90)),
            "its usage is exactly its request, the other's 10B below its request",
        );
        check(
            MEMORY,
            &x(1, Some(50)),
            &y(1, Some(50)),
            "nothing that counts tells them apart, so the lower uid goes",
        );
        check(
            "pid.available",
            &x(1, Some(700)),
            &y(1, Some(50)),
            "it runs 700 processes, the other 50",
        );
        check(
            "pid.available",
            &x(1, Some(700)),
            &y(3, Some(50)),
            "its priority 1 is lower than 3",
        );
    }

    #[test]
    fn inodes_are_told_with_the_request_for_bytes_that_is_taken_off_them() {
        const INODES: &str = "nodefs.inodesFree";
        let over = |name: &str, priority: i32, usage: i64, request: i64| RankedWorkload {
            usage_to_request: if usage > 0 { "over" } else { "within" }.to_owned(),
            ..workload(name, priority, Some(usage), request)
        };
        check(
            INODES,
            &over("x", 0, 14, 0),
            &over("y", 0, 357, 1 << 20),
            "its usage is 14 above its request, the other's 1048219 below its request (as the kubelet does, with the request for bytes \
             of storage)",
        );
        check(
            INODES,
            &over("x", 9, 14, 1 << 20),
            &over("y", 0, 0, 0),
            "it uses 14, while the other uses none",
        );
        check(
            INODES,
            &over("x", 0, 14, 0),
            &over("y", 0, 15, 1),
            "nothing that counts tells them apart, so the lower uid goes",
        );
        // From an older build, which kept no request.
        check(
            INODES,
            &over("x", 0, 14, 0),
            &over("y", 0, 357, 0),
            "it uses 14, the other 357, as the kubelet compares them",
        );
    }

    #[test]
    fn whoever_refused_is_named_first() {
        let mut critical = workload("critical", 2_000_000_000, Some(900), 0);
        critical.refusal = Some("critical".to_owned());
        let victim = workload("x", 0, Some(5), 0);
        let said = sentences("memory.available", &[critical, victim.clone()], &victim);
        assert_eq!(
            said,
            [
                "a/critical was ranked before it, and refuses: its priority makes it critical (critical)."
            ]
        );
        let alone = sentences("memory.available", std::slice::from_ref(&victim), &victim);
        assert_eq!(alone, ["a/x was the only candidate."]);
    }
}
