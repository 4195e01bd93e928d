//! The workloads of the last roster as a table of an incident: who could have been evicted instead, from the warm figures.

use std::sync::Arc;

use brink_core::base::{Moment, Reason};
use brink_core::node::observe::Layout;
use brink_core::node::rank::{Preferences, Ranking, rank_head};
use brink_core::node::signal::Signal;
use brink_core::node::workload::{PodUsage, WorkloadTable};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::workloads::{WorkloadLine, Workloads};

use crate::guard::board::{Board, Figures};
use crate::guard::roster::Roster;
use crate::record::words::{preference_by_word, preference_word};
use crate::telling::qos_word;

/// Lines of a table.
const MOST_LINES: usize = 64;
/// Bytes of names and paths in a table: no workload makes an incident as large as it likes by its name.
const MOST_TEXT: usize = 32 << 10;

/// What a threshold of memory would have ranked them for.
const RANKING: Ranking = Ranking {
    signal: Signal::MemoryAvailable,
    // Of no account for memory.
    layout: Layout::Single,
    preferences: Preferences::Respect,
};

/// The workloads of one roster, and the board of their cgroups' figures, which goes on being kept fresh.
#[derive(Clone, Debug, Default)]
pub struct Roll {
    table: Arc<WorkloadTable>,
    /// The index of the workload and the path of each cgroup, in the order of the board.
    groups: Vec<(usize, String)>,
    board: Option<Arc<Board>>,
}

/// What is known of one workload.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// How many cgroups it has.
    groups: usize,
    /// The last one of them.
    last: usize,
    /// Its working set, in bytes.
    memory: Option<u64>,
    /// The age of the oldest figure in it, in milliseconds.
    age_ms: u64,
}

impl Roll {
    /// The workloads of a roster.
    pub fn of(roster: &Roster) -> Self {
        let groups = roster.members.iter().map(|member| {
            let path = member.group.target.dir().group();
            (member.workload, path.to_owned())
        });
        Self {
            table: Arc::clone(&roster.table),
            groups: groups.collect(),
            board: Some(Arc::clone(&roster.board)),
        }
    }

    /// The table for what happened at `at`. `fresh` is what a cgroup used then, in bytes, where that was read.
    pub fn table(&self, at: Moment, fresh: impl Fn(&str) -> Option<u64>) -> Workloads {
        let known = self.known(at, fresh);
        let usage: Vec<Option<PodUsage>> = known.iter().map(Known::usage).collect();
        let mut order = Vec::with_capacity(self.table.len());
        rank_head(RANKING, &self.table, &usage, &mut order, MOST_LINES);
        let mut room = MOST_TEXT;
        let first = order.iter().take(MOST_LINES);
        let lines = first.map_while(|index| {
            let index = *index as usize;
            let line = self.line(index, known.get(index)?)?;
            room = room.checked_sub(length(&line))?;
            Some(line)
        });
        let lines: Vec<WorkloadLine> = lines.collect();
        Workloads {
            more: u32::try_from(order.len() - lines.len()).unwrap_or(u32::MAX),
            lines,
        }
    }

    /// What is known of each workload, in the order of the table.
    fn known(&self, at: Moment, fresh: impl Fn(&str) -> Option<u64>) -> Vec<Known> {
        let mut all = vec![Known::default(); self.table.len()];
        for (index, (workload, path)) in self.groups.iter().enumerate() {
            let Some(known) = all.get_mut(*workload) else {
                continue;
            };
            known.groups += 1;
            known.last = index;
            let figures = self.board.as_ref().and_then(|board| board.get(index));
            let warm = || figures.and_then(|figures| Some((figures.usage()?, age(at, figures))));
            let Some((bytes, age_ms)) = fresh(path).map(|bytes| (bytes, 0)).or_else(warm) else {
                continue;
            };
            let inactive = figures.and_then(Figures::inactive_file).unwrap_or(0);
            let memory = bytes.saturating_sub(inactive);
            known.memory = Some(known.memory.unwrap_or(0).saturating_add(memory));
            known.age_ms = known.age_ms.max(age_ms);
        }
        all
    }

    fn line(&self, index: usize, known: &Known) -> Option<WorkloadLine> {
        let workload = self.table.workloads().get(index)?;
        let row = self.table.rows().get(index)?;
        let only = (known.groups == 1).then(|| self.groups.get(known.last));
        let empty = (known.groups == 0).then_some(Reason::Empty);
        let refusal = workload.spared_from(RANKING.signal).or(empty);
        let usage = known.usage().and_then(|used| used.memory);
        Some(WorkloadLine {
            namespace: workload.namespace.clone(),
            name: workload.name.clone(),
            uid: workload.uid.clone(),
            cgroup: only.flatten().map(|(_, path)| path.clone()),
            qos: qos_word(row.qos).to_owned(),
            preference: preference_word(row.preference).to_owned(),
            preference_by: preference_by_word(row.preference_by).map(str::to_owned),
            priority: row.priority,
            request: row.memory_request.value(),
            usage: Field::or(usage, Missing::Lost),
            usage_age_ms: usage.map(|_| known.age_ms),
            refusal: refusal.map(|reason| reason.word().to_owned()),
        })
    }
}

impl Known {
    /// As the guard would have it: a workload without a cgroup uses nothing.
    fn usage(&self) -> Option<PodUsage> {
        let memory = if self.groups == 0 {
            Some(0)
        } else {
            self.memory
        };
        memory.map(|memory| PodUsage {
            memory: Some(memory),
            ..PodUsage::default()
        })
    }
}

/// How long before `at` figures were read, in milliseconds.
fn age(at: Moment, figures: &Figures) -> u64 {
    let nanos = at.since(figures.at()).as_nanos();
    u64::try_from(nanos / 1_000_000).unwrap_or(0)
}

fn length(line: &WorkloadLine) -> usize {
    let cgroup = line.cgroup.as_ref().map_or(0, String::len);
    line.namespace.len() + line.name.len() + line.uid.len() + cgroup
}

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
    use brink_core::node::workload::{
        Container, Origin, Preference, PreferenceBy, Protection, ResourceList, Resources, Stage,
        Workload,
    };

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A workload that requests so many MiB, with a cgroup for each of `usage`, read 300 ms before second 10.
    struct One<'a> {
        name: &'a str,
        request: i64,
        change: fn(&mut Workload),
        usage: &'a [Option<u64>],
    }

    fn one<'a>(name: &'a str, request: i64, usage: &'a [Option<u64>]) -> One<'a> {
        One {
            name,
            request,
            change: |_| (),
            usage,
        }
    }

    fn roll(all: &[One<'_>]) -> Roll {
        let workload = |one: &One<'_>| {
            let mut workload = Workload {
                namespace: "test".to_owned(),
                name: one.name.to_owned(),
                uid: format!("uid-{}", one.name),
                ..Workload::default()
            };
            let memory = (one.request > 0).then(|| Quantity::from_bytes(one.request << 20));
            workload.containers.push(Container {
                resources: Resources {
                    requests: ResourceList {
                        memory,
                        ..ResourceList::default()
                    },
                    ..Resources::default()
                },
                ..Container::default()
            });
            (one.change)(&mut workload);
            workload
        };
        let table = WorkloadTable::new(all.iter().map(workload).collect(), 1);
        let groups = all.iter().enumerate().flat_map(|(index, one)| {
            let numbers = 0..one.usage.len();
            numbers.map(move |number| (index, format!("/{}/{number}", one.name)))
        });
        let groups: Vec<(usize, String)> = groups.collect();
        let board = Board::new(groups.len());
        let usages = all.iter().flat_map(|one| one.usage);
        for (index, mib) in usages.enumerate() {
            if let (Some(figures), Some(mib)) = (board.get(index), mib) {
                let at = Moment::from_secs(10) + Span::from_millis(-300);
                figures.set_usage(at, mib * MIB);
                figures.set_inactive_file(MIB);
            }
        }
        Roll {
            table: Arc::new(table),
            groups,
            board: Some(Arc::new(board)),
        }
    }

    fn names(table: &Workloads) -> Vec<&str> {
        table.lines.iter().map(|line| line.name.as_str()).collect()
    }

    #[test]
    fn whoever_would_go_first_is_in_front_with_what_is_known_of_it() {
        let all = [
            one("within", 80, &[Some(61)]),
            one("several", 0, &[Some(11), Some(21)]),
            One {
                change: |workload| workload.priority = Some(2_000_001_000),
                ..one("critical", 0, &[Some(99)])
            },
            One {
                change: |workload| workload.protection = Some(Protection::Configured),
                ..one("kept", 0, &[Some(41)])
            },
            one("idle", 0, &[]),
            one("unread", 0, &[None]),
            One {
                change: |workload| workload.origin = Origin::Mirror,
                ..one("mirror", 0, &[])
            },
            One {
                change: |workload| workload.stage = Stage::Terminal,
                ..one("over", 0, &[])
            },
            One {
                change: |workload| {
                    workload.preference = Preference::Prefer;
                    workload.preference_by = PreferenceBy::Annotation;
                },
                ..one("preferred", 9, &[Some(2)])
            },
        ];
        let found = roll(&all).table(Moment::from_secs(10), |path| {
            (path == "/within/0").then_some(71 * MIB)
        });
        let expected = [
            "preferred",
            "unread",
            "kept",
            "several",
            "critical",
            "idle",
            "within",
        ];
        assert_eq!((names(&found).as_slice(), found.more), (&expected[..], 0));
        let line = |name: &str| found.lines.iter().find(|line| line.name == name).unwrap();
        let used = |name: &str| (line(name).usage.clone(), line(name).usage_age_ms);
        assert_eq!(used("several"), (Field::Value(30 * MIB), Some(300)));
        assert_eq!(used("within"), (Field::Value(70 * MIB), Some(0)));
        assert_eq!(used("idle"), (Field::Value(0), Some(0)));
        assert_eq!(used("unread"), (Field::Missing(Missing::Lost), None));
        let refusal = |name: &str| line(name).refusal.as_deref();
        assert_eq!(refusal("critical"), Some("critical"));
        assert_eq!(refusal("kept"), Some("protected"));
        assert_eq!(refusal("idle"), Some("empty"));
        assert_eq!(refusal("several"), None);
        let within = line("within");
        assert_eq!(within.cgroup.as_deref(), Some("/within/0"));
        assert_eq!(line("several").cgroup, None, "it has two");
        assert_eq!(
            (within.qos.as_str(), within.request, within.uid.as_str()),
            ("Burstable", 80 << 20, "uid-within")
        );
        assert_eq!(line("preferred").preference, "prefer");
        let by = |name: &str| line(name).preference_by.as_deref();
        assert_eq!((by("preferred"), by("kept")), (Some("annotation"), None));
    }

    #[test]
    fn a_table_is_bounded_and_says_by_how_much() {
        let short: Vec<String> = (0..200).map(|number| format!("job-{number:03}")).collect();
        let used: Vec<[Option<u64>; 1]> = (0..200).map(|number| [Some(number + 2)]).collect();
        let all = short.iter().zip(&used);
        let all: Vec<One<'_>> = all.map(|(name, used)| one(name, 0, used)).collect();
        let found = roll(&all).table(Moment::from_secs(10), |_| None);
        assert_eq!((found.lines.len(), found.more), (MOST_LINES, 136));
        assert_eq!(names(&found)[..2], ["job-199", "job-198"]);

        let long: Vec<String> = (0..60).map(|number| format!("{number:01000}")).collect();
        let all: Vec<One<'_>> = long.iter().map(|name| one(name, 0, &[])).collect();
        let found = roll(&all).table(Moment::from_secs(10), |_| None);
        let text: usize = found.lines.iter().map(length).sum();
        assert!(text <= MOST_TEXT && text + 2100 > MOST_TEXT, "{text}");
        assert_eq!(found.lines.len() + found.more as usize, 60);
        assert_eq!(Roll::default().table(Moment::START, |_| None).lines, []);
    }
}
