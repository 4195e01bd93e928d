//! The workloads as they would be ranked now: who is meant by a name, where each stands, and why.

use brink_core::base::{Moment, Reason};
use brink_core::node::decision::Standing;
use brink_core::node::rank::{Preferences, Ranking as RankFor, explain, place, rank};
use brink_core::node::signal::{Resource, Signal};
use brink_core::node::workload::{
    Origin, PodUsage, Preference, PreferenceBy, Stage, Workload, WorkloadTable,
};

use super::names::{Found, Names, find};
use super::reach::beyond;
use crate::control::protocol::{Answer, RefusalReason, Why};
use crate::control::server::refused;
use crate::pod::EVICTION_ANNOTATION;
use crate::record::text::refusal_words;
use crate::record::wire::RankedWorkload;
use crate::record::words::{decider_word, excess_word, preference_by_word, preference_word};
use crate::runtime::state::State;

/// Why a name means no single workload.
pub(super) enum Missing {
    /// Nobody has it; these are nearest.
    Unknown(Vec<String>),
    /// These have it.
    Several(Vec<String>),
}

/// The workloads as they would be ranked now.
pub(super) struct Ranked<'a> {
    /// What it is ranked for.
    pub(super) ranking: RankFor,
    table: &'a WorkloadTable,
    cgroups: &'a [Vec<String>],
    usage: &'a [Option<PodUsage>],
    at: Moment,
    /// Whether a threshold on the signal is met now.
    is_met: bool,
    /// Indexes of the candidates, first to go in front.
    pub(super) order: Vec<u32>,
}

impl<'a> Ranked<'a> {
    /// The ranking for a signal; the answer that says why there is none otherwise.
    pub(super) fn new(state: &'a State, signal: Option<&str>) -> Result<Self, Answer> {
        let Some(signal) = parse_signal(signal) else {
            let names = Signal::ALL.map(Signal::name).join(", ");
            return Err(refused(
                RefusalReason::NotFound,
                &format!("there is no signal {:?}", signal.unwrap_or_default()),
                &format!("name one of {names}"),
            ));
        };
        let reading = state.reading.as_ref();
        let table = reading.and_then(|reading| state.table_of(reading.generation));
        let (Some(reading), Some(table)) = (reading, table) else {
            return Err(refused(
                RefusalReason::NotPossible,
                "the guard has not read the node yet",
                "try again in a moment",
            ));
        };
        let ranking = RankFor {
            signal,
            layout: state.policy.layout(),
            preferences: Preferences::Respect,
        };
        let mut thresholds = state.policy.thresholds().iter().enumerate();
        let is_met =
            thresholds.any(|(index, one)| one.signal == signal && state.met.contains(index));
        let mut order = Vec::with_capacity(table.len());
        rank(ranking, table, &reading.usage, &mut order);
        Ok(Self {
            ranking,
            table,
            cgroups: state.cgroups_of(reading.generation),
            usage: &reading.usage,
            at: reading.at,
            is_met,
            order,
        })
    }

    pub(super) fn age_ms(&self, now: Moment) -> i64 {
        now.since(self.at).as_nanos() / 1_000_000
    }

    pub(super) fn find(&self, wanted: &str) -> Result<u32, Missing> {
        let names = |(workload, index): (&'a Workload, u32)| Names {
            namespace: &workload.namespace,
            name: &workload.name,
            uid: &workload.uid,
            cgroups: self.cgroups(index),
        };
        let all: Vec<Names<'_>> = self.table.workloads().iter().zip(0..).map(names).collect();
        match find(wanted, &all) {
            Found::One(place) => Ok(u32::try_from(place).unwrap_or(u32::MAX)),
            Found::Several(names) => Err(Missing::Several(names)),
            Found::None(near) => Err(Missing::Unknown(near)),
        }
    }

    /// Cgroups of a workload; none is known for a moment when the table is new.
    pub(super) fn cgroups(&self, index: u32) -> &'a [String] {
        self.cgroups.get(index as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn why(&self, one: u32, other: u32) -> Why {
        let stands = |index| place(self.ranking, self.table, self.usage, index);
        let resource: Resource = self.ranking.signal.resource();
        let by = stands(one)
            .zip(stands(other))
            .map(|(one, other)| one.compare(&other, resource).1);
        Why {
            by: by.map_or("", decider_word).to_owned(),
            sentence: explain(self.ranking, self.table, self.usage, (one, other)),
        }
    }

    pub(super) fn workload(&self, index: u32) -> RankedWorkload {
        let place = place(self.ranking, self.table, self.usage, index).map(Standing::from);
        let workload = self.table.workloads().get(index as usize);
        let row = self.table.rows().get(index as usize);
        let text =
            |field: fn(&Workload) -> &String| workload.map(field).cloned().unwrap_or_default();
        RankedWorkload {
            namespace: text(|workload| &workload.namespace),
            name: text(|workload| &workload.name),
            uid: text(|workload| &workload.uid),
            preference: row
                .map_or("", |row| preference_word(row.preference))
                .to_owned(),
            preference_by: row
                .and_then(|row| preference_by_word(row.preference_by))
                .map(str::to_owned),
            usage_to_request: place
                .map_or("unknown", |place| excess_word(place.excess))
                .to_owned(),
            priority: row.map_or(0, |row| row.priority),
            usage: place.and_then(|place| place.usage),
            request: place.map_or(0, |place| place.request),
            processes: self.usage_of(index).and_then(|usage| usage.processes),
            refusal: self.refusal(index).map(|reason| reason.word().to_owned()),
        }
    }

    fn usage_of(&self, index: u32) -> Option<&'a PodUsage> {
        self.usage.get(index as usize).and_then(Option::as_ref)
    }

    /// Why it would not be evicted now; the engine's rules, in its order.
    fn refusal(&self, index: u32) -> Option<Reason> {
        let workload = self.table.workloads().get(index as usize)?;
        let usage = self.usage_of(index);
        let is_empty = usage.is_some_and(|usage| usage.processes == Some(0));
        workload
            .spared_from(self.ranking.signal)
            .or_else(|| is_empty.then_some(Reason::Empty))
    }

    /// Sentences about a workload's place, most important first.
    pub(super) fn reasons(
        &self,
        index: u32,
        place: Option<usize>,
        other: Option<u32>,
    ) -> Vec<String> {
        let Some(place) = place else {
            return vec![self.no_candidate(index).to_owned()];
        };
        let compared = other.filter(|&other| other != index);
        let goes = |&&other: &&u32| self.refusal(other).is_none();
        let first = self.order.iter().find(goes).copied();
        let before = place.checked_sub(1).and_then(|at| self.order.get(at));
        // What goes first has been named already.
        let before = before.filter(|&&before| first != Some(before));
        let next = self.order.get(place + 1);
        let all = [
            compared.map(|other| self.why(index, other).sentence),
            self.refusal(index).map(refuses),
            self.asked(index),
            Some(self.first_of_all(index, first, compared)),
            before.map(|&before| self.why(before, index).sentence),
            next.map(|&next| self.why(index, next).sentence),
        ];
        let mut reasons: Vec<String> = Vec::new();
        for reason in all.into_iter().flatten() {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }

    /// What its pod asked for, if that is why it stands where it does.
    fn asked(&self, index: u32) -> Option<String> {
        let row = self.table.rows().get(index as usize)?;
        let place = match (row.preference_by, row.preference) {
            (PreferenceBy::Annotation, Preference::Prefer) => "first",
            (PreferenceBy::Annotation, Preference::Avoid) => "last",
            (PreferenceBy::Annotation, Preference::Normal) | (PreferenceBy::Node, _) => {
                return None;
            }
        };
        Some(format!(
            "Its annotation {EVICTION_ANNOTATION} puts it {place}."
        ))
    }

    /// Minimum reclaims of the signal that all who may be evicted could not meet together; where it is not known what one of them
    /// holds, those beyond all that there is.
    pub(super) fn beyond_reach(&self, state: &State) -> Vec<String> {
        let signal = self.ranking.signal;
        let seen = state.reading.as_ref();
        let seen = seen.and_then(|reading| reading.observations[signal]);
        let goes = |index: &&u32| self.refusal(**index).is_none();
        let mut held = self.order.iter().filter(goes).map(|&index| {
            place(self.ranking, self.table, self.usage, index)
                .and_then(|at| Standing::from(at).usage)
        });
        let held = held.try_fold(0_i64, |sum, held| Some(sum.saturating_add(held?)));
        let Some(seen) = seen else {
            return Vec::new();
        };
        beyond(state.policy.thresholds(), signal, &seen, held)
    }

    /// Who would go first, seen from one workload; why is said already of the one it was compared with.
    fn first_of_all(&self, index: u32, first: Option<u32>, compared: Option<u32>) -> String {
        let signal = self.ranking.signal.name();
        match first {
            Some(first) if first == index && self.is_met => {
                format!("It is the first to go: a threshold of {signal} is met now.")
            }
            Some(first) if first == index => {
                format!("It would go first if a threshold of {signal} were crossed now.")
            }
            Some(_) if self.refusal(index).is_none() && compared == first => {
                "It would not go first.".to_owned()
            }
            Some(first) if self.refusal(index).is_none() => {
                let why = self.why(first, index).sentence;
                format!("It would not go first. {why}")
            }
            Some(first) => format!("{} would go first.", self.workload(first).full_name()),
            None => "Nobody can be evicted at all.".to_owned(),
        }
    }

    fn no_candidate(&self, index: u32) -> &'static str {
        let workload = self.table.workloads().get(index as usize);
        match workload.map(|workload| (workload.origin, workload.stage)) {
            Some((Origin::Mirror, _)) => {
                "It is no candidate: a mirror pod, of which the static pod behind it is ranked."
            }
            Some((_, Stage::Terminal | Stage::Finished)) => "It is no candidate: its life is over.",
            _ => "It is no candidate.",
        }
    }
}

pub(super) fn parse_signal(name: Option<&str>) -> Option<Signal> {
    let Some(name) = name else {
        return Some(Signal::MemoryAvailable);
    };
    Signal::named(name)
}

fn refuses(refusal: Reason) -> String {
    let word = refusal.word();
    format!(
        "It is ranked, and refuses: {} ({word}).",
        refusal_words(word)
    )
}

#[cfg(test)]
mod tests {
    use brink_core::node::observe::Layout;

    use super::*;

    /// The reasons for the place of one of three workloads, of which the first uses most.
    fn reasons(index: u32, other: Option<u32>, is_met: bool) -> Vec<String> {
        let workload = |name: &str| Workload {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            ..Workload::default()
        };
        let table = WorkloadTable::new(["a", "b", "c"].map(workload).into(), 1);
        let usage = [3, 2, 1].map(|memory| {
            Some(PodUsage {
                memory: Some(memory),
                processes: Some(1),
                ..PodUsage::default()
            })
        });
        let ranked = Ranked {
            ranking: RankFor {
                signal: Signal::MemoryAvailable,
                layout: Layout::Single,
                preferences: Preferences::Respect,
            },
            table: &table,
            cgroups: &[],
            usage: &usage,
            at: Moment::START,
            is_met,
            order: vec![0, 1, 2],
        };
        let place = usize::try_from(index).ok();
        ranked.reasons(index, place, other)
    }

    #[test]
    fn what_was_said_of_the_one_compared_with_is_not_said_again() {
        let alone = reasons(1, None, false);
        let sentence = alone[0].strip_prefix("It would not go first. ").unwrap();
        assert!(
            sentence.starts_with("shop/a goes before shop/b: "),
            "{alone:?}"
        );
        let compared = reasons(1, Some(0), false);
        assert_eq!(compared[..2], [sentence, "It would not go first."]);
        assert!(compared[2].starts_with("shop/b goes before shop/c: "));
        assert_eq!(compared.len(), 3, "{compared:?}");
        // Against another one the first is still to be named.
        let other = reasons(1, Some(2), false);
        assert!(other[0].starts_with("shop/b goes before shop/c: "));
        assert_eq!(other[1..], alone[..1]);
    }

    #[test]
    fn who_goes_first_is_told_whether_that_is_a_question_of_now() {
        let first = |is_met| reasons(0, None, is_met).swap_remove(0);
        assert_eq!(
            first(false),
            "It would go first if a threshold of memory.available were crossed now."
        );
        assert_eq!(
            first(true),
            "It is the first to go: a threshold of memory.available is met now."
        );
    }
}
