//! Who would go now and why: the ranking as it stands, and the place of one workload in it.

use brink_core::base::Moment;
use brink_core::node::signal::Signal;
use brink_core::node::workload::CRITICAL_PRIORITY;

use super::Views;
use super::ranked::{Missing, Ranked};
use super::status::thresholds;
use crate::control::protocol::{Answer, Explanation, Ranking, RefusalReason, ThresholdState};
use crate::control::server::refused;
use crate::guard;
use crate::record::DecisionRecord;
use crate::record::wire::{API_VERSION, OrderView, RankedWorkload};
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
            met: met(&state, ranked.ranking.signal, now),
        }))
    }

    pub(super) fn explanation(
        &self,
        wanted: &str,
        signal: Option<&str>,
        against: Option<&str>,
        advice: Vec<String>,
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
        let explanation = self.explain(&state, &ranked, index, other);
        Answer::Explanation(Box::new(Explanation {
            advice,
            ..explanation
        }))
    }

    fn explain(
        &self,
        state: &State,
        ranked: &Ranked<'_>,
        index: u32,
        other: Option<u32>,
    ) -> Explanation {
        let now = guard::now();
        let workload = ranked.workload(index);
        let place = ranked.order.iter().position(|&other| other == index);
        let orders = orders_against(state, &workload);
        let mut reasons = ranked.reasons(index, place, other);
        reasons.extend(made_again(state, &workload));
        if place.is_some() && workload.refusal.is_none() {
            reasons.extend(ranked.beyond_reach(state));
        }
        Explanation {
            api_version: API_VERSION.to_owned(),
            kind: "Explanation".to_owned(),
            signal: ranked.ranking.signal.name().to_owned(),
            now: self.time(now),
            figures_age_ms: ranked.age_ms(now),
            place: place.and_then(|place| u32::try_from(place + 1).ok()),
            candidates: u32::try_from(ranked.order.len()).unwrap_or(u32::MAX),
            met: met(state, ranked.ranking.signal, now),
            reasons,
            advice: Vec::new(),
            cgroups: ranked.cgroups(index).to_vec(),
            orders,
            storage: self.disk_of(&workload.uid, workload.full_name()),
            workload,
        }
    }
}

/// Thresholds on a signal that are met now.
fn met(state: &State, signal: Signal, now: Moment) -> Vec<ThresholdState> {
    let all = thresholds(state, now).into_iter();
    all.filter(|one| one.met && one.signal == signal.name())
        .collect()
}

/// What evicting it would come to, if a `DaemonSet` made it.
fn made_again(state: &State, workload: &RankedWorkload) -> Option<String> {
    let owner = state.daemons.get(&workload.uid)?;
    Some(format!(
        "it is of DaemonSet {owner}: evicted, it is made again on this node at once, and what it held is back before it \
         helped; a priority of {CRITICAL_PRIORITY} or more keeps it (priorityClassName: system-node-critical)"
    ))
}

/// The remembered orders against a workload; a record keeps the first part of a long name only.
fn orders_against(state: &State, workload: &RankedWorkload) -> Vec<OrderView> {
    let is_against = |record: &&DecisionRecord| {
        let victim = &record.victim;
        victim.uid == workload.uid || victim.full_name() == workload.full_name()
    };
    let records = state.decisions.iter().filter(is_against);
    records.map(OrderView::of).collect()
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
