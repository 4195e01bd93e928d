//! A report as tables: what is asked against what stands on paper, a row a part, and the figures that must be reached.
use std::fmt::Write as _;

use super::report::{Part, Phase, Report, WATCHES, count, whole};
use crate::bench::{
    stats::Summary,
    table::{self, figure, markdown},
};

impl Part {
    const fn words(self) -> &'static str {
        match self {
            Self::Start => "all start at once",
            Self::Rest => "rest",
            Self::Storm => "storm",
            Self::Annotation => "annotation of every node",
            Self::Outage => "server away and back",
            Self::End => "all stop at once",
        }
    }
}

/// All of it.
pub fn of(report: &Report) -> String {
    let limits: Vec<_> = report.limits().iter().map(table::limit_row).collect();
    let parts = [
        head(report),
        against_paper(report),
        of_phases(report),
        of_kinds(report),
        markdown(table::LIMIT_HEAD, &limits),
        notes(report),
    ];
    parts.map(|part| part.trim_end().to_owned()).join("\n\n") + "\n"
}

fn head(report: &Report) -> String {
    let setting = &report.setting;
    let load = report
        .load
        .map(|at| at.map_or_else(|| "unknown".to_owned(), |at| format!("{at:.1}")));
    format!(
        "{} agents, {} pods each, of which {} agents evicted one at once in the storm{}; API server {}, on the machine of the fleet; \
         seed {}. {}; load average {} before and {} after.",
        setting.agents,
        setting.pods,
        setting.evicting,
        setting
            .away
            .map_or("", |_| " and another as the server was killed"),
        report.server,
        setting.seed,
        report.machine,
        load[0],
        load[1]
    )
}

/// A figure, or that it is not known.
fn known(value: Option<f64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), figure)
}

fn range(values: &[f64]) -> Option<String> {
    let summary = Summary::of(values)?;
    Some(format!(
        "p50 {} s, at the latest {} s",
        figure(summary.p50),
        figure(summary.max)
    ))
}

fn against_paper(report: &Report) -> String {
    let agents = count(report.setting.agents);
    let each =
        |part: Part, of: &dyn Fn(&Phase) -> f64| report.phase(part).map(|phase| of(phase) / agents);
    let hourly = |of: &dyn Fn(&Phase) -> u64| {
        let rest = report.phase(Part::Rest)?;
        Some(whole(of(rest)) * 3600.0 / rest.seconds / agents)
    };
    let at_rest = hourly(&|rest| rest.all() - rest.asked_of(&WATCHES));
    let reopened = hourly(&|rest| rest.asked_of(&WATCHES));
    let per_eviction = report.taken_an_eviction().map(figure);
    let conditions = each(Part::Storm, &|phase| {
        whole(phase.taken("PATCH nodes/status"))
    });
    let mut rows = vec![
        [
            "start of one agent, requests".to_owned(),
            "6".to_owned(),
            known(each(Part::Start, &|phase| whole(phase.all()))),
        ],
        [
            "at rest, an agent and hour: but for watches".to_owned(),
            "0".to_owned(),
            known(at_rest),
        ],
        [
            "at rest, an agent and hour: watches opened again".to_owned(),
            "12 to 24".to_owned(),
            format!(
                "{} by the lengths of these agents' watches; {} in the {} s of rest",
                figure(report.reopened.an_hour),
                known(reopened),
                report
                    .phase(Part::Rest)
                    .map_or(0.0, |rest| rest.seconds.round())
            ),
        ],
        [
            "at rest, all agents: watches opened again in the busiest second of the first hour"
                .to_owned(),
            "–".to_owned(),
            report.reopened.busiest.to_string(),
        ],
        [
            "an eviction: PATCH of the status, POST of the event, taken".to_owned(),
            "1 and 1".to_owned(),
            per_eviction.join(" and "),
        ],
        [
            "a condition that changes: PATCH of the node's status, taken".to_owned(),
            "1".to_owned(),
            known(conditions),
        ],
    ];
    let evictions = |part: Part| report.phase(part).and_then(|phase| range(&phase.delays));
    rows.extend(evictions(Part::Storm).map(|told| {
        [
            "storm: from an eviction to status and event told".to_owned(),
            "–".to_owned(),
            told,
        ]
    }));
    if let Some(outage) = report.phase(Part::Outage) {
        for (what, values) in [
            (
                "pods followed again, after the server's return",
                &outage.reached,
            ),
            ("evictions told, after the server's return", &outage.delays),
        ] {
            rows.extend(
                range(values).map(|told| [what.to_owned(), "within 30 s".to_owned(), told]),
            );
        }
    }
    rows.push([
        "memory of these tasks, an agent".to_owned(),
        "–".to_owned(),
        format!("{} KiB", figure(report.memory_of_one() / 1024.0)),
    ]);
    markdown(["what", "on paper", "found"], &rows)
}

fn of_phases(report: &Report) -> String {
    let row = |phase: &Phase| {
        let put_off = match phase.put_off() {
            0 => "0".to_owned(),
            some => format!("{some} ({} by the server)", known(phase.rejected)),
        };
        let watches = phase.watches.map(figure).join(" + ");
        [
            phase.part.words().to_owned(),
            figure(phase.seconds),
            phase.all().to_string(),
            known(phase.dispatched),
            phase.busiest.to_string(),
            known(phase.busiest_dispatched),
            put_off,
            watches,
            known(phase.processor),
        ]
    };
    let rows: Vec<_> = report.phases.iter().map(row).collect();
    markdown(
        [
            "part",
            "s",
            "requests of the fleet",
            "the server's count, without watches",
            "answers in the busiest second",
            "the server's, without watches",
            "put off by 429",
            "watches of pods and nodes at its end",
            "server's processor, s",
        ],
        &rows,
    )
}

/// One row a kind of request, one column a part.
fn of_kinds(report: &Report) -> String {
    const PARTS: [Part; 6] = [
        Part::Start,
        Part::Rest,
        Part::Storm,
        Part::Annotation,
        Part::Outage,
        Part::End,
    ];
    let kinds: std::collections::BTreeSet<&String> = report
        .phases
        .iter()
        .flat_map(|phase| phase.asked.keys())
        .collect();
    let row = |kind: &String| {
        let cell = |part: Part| {
            let phase = report.phase(part)?;
            let asked = phase.asked.get(kind).copied().unwrap_or_default();
            let answered = phase.answered.get(kind);
            let codes = answered
                .into_iter()
                .flatten()
                .filter(|(code, _)| !(200..300).contains(*code));
            let mut notes: Vec<String> = codes
                .map(|(code, count)| format!("{count} {code}"))
                .collect();
            let met: u64 = answered.into_iter().flatten().map(|(_, count)| count).sum();
            if met < asked {
                notes.push(format!("{} unanswered", asked - met));
            }
            Some(match (asked, notes.is_empty()) {
                (asked, true) => asked.to_string(),
                (asked, false) => format!("{asked} ({})", notes.join(", ")),
            })
        };
        let [start, rest, storm, annotation, outage, end] =
            PARTS.map(|part| cell(part).unwrap_or_default());
        [kind.clone(), start, rest, storm, annotation, outage, end]
    };
    let rows: Vec<_> = kinds.into_iter().map(row).collect();
    let [start, rest, storm, annotation, outage, end] = PARTS.map(Part::words);
    markdown(
        [
            "requests of the fleet",
            start,
            rest,
            storm,
            annotation,
            outage,
            end,
        ],
        &rows,
    )
}

fn notes(report: &Report) -> String {
    let mebibytes = |bytes: Option<f64>| known(bytes.map(|bytes| bytes / f64::from(1 << 20)));
    let [before, after] = report.servers.map(mebibytes);
    let [few, many] = report.connections.map(known);
    let mut text = format!(
        "- The server's memory: {before} MiB before the first agent, {after} MiB with all of them at rest; its descriptors {few} and \
         {many}. Nodes and pods are in both.\n\
         - {} evictions; in the server {} without a word, {} told twice, {} of pods that nobody evicted.\n\
         - When all agents had stopped at once, {} of {} nodes still bore a condition of Brink's.\n",
        report.books.evicted,
        report.books.lost,
        report.books.twice,
        report.books.strange,
        report.left_conditions,
        report.setting.agents
    );
    let found: u64 = report.phases.iter().map(Phase::found_there).sum();
    if found > 0 {
        // Writing to a `String` cannot fail.
        let _written = writeln!(
            text,
            "- {found} events were sent twice, as the answer to the first was lost with the server: it said that it had them (409)."
        );
    }
    for (warning, times) in &report.warnings {
        // Writing to a `String` cannot fail.
        let _written = writeln!(text, "- {times} times an agent warned: {}", warning.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::report, *};

    #[test]
    fn every_part_and_every_refusal_is_shown() {
        let mut report = report();
        report.warnings.insert("it broke: here".to_owned(), 3);
        report.phases[2].delays = vec![0.5, 1.5];
        let told = of(&report);
        for part in [
            "10 agents, 3 pods each, of which 3 agents evicted one at once in the storm and another as",
            "1.00 and 1.00",
            "p50 0.500 s, at the latest 1.50 s",
            "4 (1 429)",
            "2 (unknown by the server)",
            "3 times an agent warned: it broke: here",
            "| evictions that are not told",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn what_met_nobody_is_not_taken_for_answered() {
        let mut report = report();
        report.phases[3].asked.insert("GET /version".to_owned(), 5);
        let told = of(&report);
        assert!(told.contains("5 (5 unanswered)"), "{told}");
    }
}
