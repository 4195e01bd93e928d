//! Who would go now and why: the ranking as it stands, and the place of one workload in it.

use brink_core::base::{Moment, Reason};
use brink_core::node::decision::Standing;
use brink_core::node::rank::{Preferences, Ranking as RankFor, explain, place, rank};
use brink_core::node::signal::{Resource, Signal};
use brink_core::node::workload::{Origin, PodUsage, Stage, Workload, WorkloadTable};

use super::Views;
use super::names::{Found, Names, find};
use crate::control::protocol::{Answer, Explanation, Ranking, RefusalReason, Why};
use crate::control::server::refused;
use crate::guard;
use crate::record::DecisionRecord;
use crate::record::text::refusal_words;
use crate::record::wire::{
    API_VERSION, OrderView, RankedWorkload, decider_word, excess_word, preference_word,
};
use crate::runtime::state::State;

impl Views {
    pub(super) fn ranking(&self, signal: Option<&str>) -> Answer {
        let state = self.running.shared.lock();
        let ranked = match Ranked::new(&state, signal) {
            Ok(ranked) => ranked,
            Err(refusal) => return refusal,
        };
        let now = guard::now();
        Answer::Ranking(Box::new(Ranking {
            api_version: API_VERSION.to_owned(),
            kind: "Ranking".to_owned(),
            signal: ranked.ranking.signal.name().to_owned(),
            now: self.time(now),
            figures_age_ms: ranked.age_ms(now),
            workloads: ranked
                .order
                .iter()
                .map(|&index| ranked.workload(index))
                .collect(),
            why: ranked
                .order
                .windows(2)
                .map(|pair| ranked.why(pair[0], pair[1]))
                .collect(),
        }))
    }

    pub(super) fn explanation(
        &self,
        wanted: &str,
        signal: Option<&str>,
        against: Option<&str>,
    ) -> Answer {
        let state = self.running.shared.lock();
        let ranked = match Ranked::new(&state, signal) {
            Ok(ranked) => ranked,
            Err(refusal) => return refusal,
        };
        let index = match ranked.find(wanted) {
            Ok(index) => index,
            Err(missing) => return missing.answer(&state, wanted),
        };
        let other = match against.map(|other| (other, ranked.find(other))) {
            None => None,
            Some((_, Ok(other))) => Some(other),
            Some((other, Err(missing))) => return missing.refusal(other),
        };
        let workload = ranked.workload(index);
        let place = ranked.order.iter().position(|&other| other == index);
        let now = guard::now();
        // A record keeps the first part of a long name only.
        let is_against = |victim: &RankedWorkload| {
            victim.uid == workload.uid || victim.full_name() == workload.full_name()
        };
        let orders = state
            .decisions
            .iter()
            .filter(|record| is_against(&record.victim));
        Answer::Explanation(Box::new(Explanation {
            api_version: API_VERSION.to_owned(),
            kind: "Explanation".to_owned(),
            signal: ranked.ranking.signal.name().to_owned(),
            now: self.time(now),
            figures_age_ms: ranked.age_ms(now),
            place: place.and_then(|place| u32::try_from(place + 1).ok()),
            candidates: u32::try_from(ranked.order.len()).unwrap_or(u32::MAX),
            reasons: ranked.reasons(index, place, other),
            cgroups: ranked.cgroups(index).to_vec(),
            orders: orders.map(OrderView::of).collect(),
            workload,
        }))
    }
}

/// The latest decision against a workload that is there no more.
fn gone<'a>(state: &'a State, wanted: &str) -> Option<&'a DecisionRecord> {
    let is_meant = |record: &&DecisionRecord| {
        let victim = &record.victim;
        victim.full_name() == wanted || victim.name == wanted || victim.uid == wanted
    };
    state.decisions.iter().rev().find(is_meant)
}

fn not_found(wanted: &str, near: &[String]) -> Answer {
    let next = match near {
        [] => "`brink rank` lists all of them; a number explains a decision".to_owned(),
        near => format!("did you mean {}?", near.join(" or ")),
    };
    refused(
        RefusalReason::NotFound,
        &format!("no workload is called {wanted:?}"),
        &next,
    )
}

/// Why a name means no single workload.
enum Missing {
    Unknown(Vec<String>),
    Several(Vec<String>),
}

impl Missing {
    /// The decision against a workload that is gone, if there was one.
    fn answer(&self, state: &State, wanted: &str) -> Answer {
        let gone = match self {
            Self::Unknown(_) => gone(state, wanted),
            Self::Several(_) => None,
        };
        gone.map_or_else(
            || self.refusal(wanted),
            |record| Answer::Decision(Box::new(record.clone())),
        )
    }

    fn refusal(&self, wanted: &str) -> Answer {
        match self {
            Self::Unknown(near) => not_found(wanted, near),
            Self::Several(names) => refused(
                RefusalReason::Ambiguous,
                &format!("{} workloads are called {wanted:?}", names.len()),
                &format!("name one of them in full: {}", names.join(", ")),
            ),
        }
    }
}

/// The workloads as they would be ranked now.
struct Ranked<'a> {
    ranking: RankFor,
    table: &'a WorkloadTable,
    cgroups: &'a [Vec<String>],
    usage: &'a [Option<PodUsage>],
    at: Moment,
    order: Vec<u32>,
}

impl<'a> Ranked<'a> {
    /// The ranking for a signal; the answer that says why there is none otherwise.
    fn new(state: &'a State, signal: Option<&str>) -> Result<Self, Answer> {
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
        let mut order = Vec::with_capacity(table.len());
        rank(ranking, table, &reading.usage, &mut order);
        Ok(Self {
            ranking,
            table,
            cgroups: state.cgroups_of(reading.generation),
            usage: &reading.usage,
            at: reading.at,
            order,
        })
    }

    fn age_ms(&self, now: Moment) -> i64 {
        now.since(self.at).as_nanos() / 1_000_000
    }

    fn find(&self, wanted: &str) -> Result<u32, Missing> {
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
    fn cgroups(&self, index: u32) -> &'a [String] {
        self.cgroups.get(index as usize).map_or(&[], Vec::as_slice)
    }

    fn why(&self, one: u32, other: u32) -> Why {
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

    fn workload(&self, index: u32) -> RankedWorkload {
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
            usage_to_request: place
                .map_or("unknown", |place| excess_word(place.excess))
                .to_owned(),
            priority: row.map_or(0, |row| row.priority),
            usage: place.and_then(|place| place.usage),
            request: place.map_or(0, |place| place.request),
            refusal: self.refusal(index).map(|reason| reason.word().to_owned()),
        }
    }

    /// Why it would not be evicted now; the engine's rules, in its order.
    fn refusal(&self, index: u32) -> Option<Reason> {
        let row = self.table.rows().get(index as usize)?;
        let workload = self.table.workloads().get(index as usize)?;
        let usage = self.usage.get(index as usize).and_then(Option::as_ref);
        let is_empty = usage.is_some_and(|usage| usage.processes == Some(0));
        let protected = row.is_protected.then_some(Reason::Protected);
        let refusal = workload.refusal().or(protected);
        refusal.or_else(|| is_empty.then_some(Reason::Empty))
    }

    fn reasons(&self, index: u32, place: Option<usize>, other: Option<u32>) -> Vec<String> {
        let Some(place) = place else {
            return vec![self.no_candidate(index).to_owned()];
        };
        let mut reasons = Vec::new();
        let mut add = |reason: String| {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        };
        if let Some(other) = other.filter(|&other| other != index) {
            add(self.why(index, other).sentence);
        }
        if let Some(refusal) = self.refusal(index) {
            let word = refusal.word();
            add(format!(
                "It is ranked, and refuses: {} ({word}).",
                refusal_words(word)
            ));
        }
        let goes = |&&other: &&u32| self.refusal(other).is_none();
        let first = self.order.iter().find(goes).copied();
        let signal = self.ranking.signal.name();
        match first {
            Some(first) if first == index => add(format!(
                "It would go first if a threshold of {signal} were crossed now."
            )),
            Some(first) if self.refusal(index).is_none() => {
                add(format!(
                    "It would not go first. {}",
                    self.why(first, index).sentence
                ));
            }
            Some(first) => add(format!(
                "{} would go first.",
                self.workload(first).full_name()
            )),
            None => add("Nobody can be evicted at all.".to_owned()),
        }
        if let Some(&before) = place
            .checked_sub(1)
            .and_then(|before| self.order.get(before))
            && first != Some(before)
        {
            add(self.why(before, index).sentence);
        }
        if let Some(&next) = self.order.get(place + 1) {
            add(self.why(index, next).sentence);
        }
        reasons
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

fn parse_signal(name: Option<&str>) -> Option<Signal> {
    let Some(name) = name else {
        return Some(Signal::MemoryAvailable);
    };
    Signal::ALL.into_iter().find(|signal| signal.name() == name)
}
