//! From a crossing, as the truth sees it, to the first SIGKILL: Brink on each of its rungs, and polls beside it.
//!
//! The node is the machine, a cgroup, or (for `allocatableMemory.available`) the cgroup of all pods. In each run one
//! contender alone is armed, in random order, round by round; the threshold lies a fixed amount under what is
//! available at that moment, and a process that allocates at full speed starts at a random phase.
mod basis;
mod beside;
mod scene;
mod trial;
mod verdict;

use std::collections::BTreeMap;

use super::super::{
    machine,
    random::SplitMix64,
    registry::{Measured, Outcome, Settings},
};
use basis::Disturbed;
use scene::{Contender, Node, Scene};
use trial::{Pages, Trial};
pub(super) use verdict::hold;

pub(super) use beside::{hold as hold_beside, with_and_without};

/// Workloads on the node, beside the groups that take turns as the victim.
const WORKLOADS: usize = 110;

/// Runs under one condition, by contender and pages; none in the place of one that could not be judged.
type Runs = BTreeMap<(Contender, Pages), Vec<Option<Trial>>>;

/// One condition: who is the node, and what else runs.
#[derive(Debug, Clone, Copy)]
struct Condition {
    node: Node,
    storm: bool,
}

impl Condition {
    fn name(self) -> String {
        let load = if self.storm { "storms" } else { "idle" };
        format!("{}, {load}", self.node.word())
    }
}

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = super::refusal() {
        return Ok(refusal);
    }
    let mut random = SplitMix64::new(settings.seed);
    let mut outcome = Outcome::default();
    for condition in conditions() {
        match measure(condition, settings, &mut random, &mut outcome)? {
            Some(runs) => verdict::add(&mut outcome, &condition.name(), &runs),
            None => {
                return Ok(Measured::Skipped {
                    reason: "the guard gets no SCHED_FIFO here".to_owned(),
                });
            }
        }
    }
    Ok(Measured::Ran(outcome))
}

/// All conditions, in the order they are measured.
fn conditions() -> impl Iterator<Item = Condition> {
    let nodes = [Node::Machine, Node::Group, Node::Pods].into_iter();
    nodes.flat_map(|node| [false, true].map(|storm| Condition { node, storm }))
}

/// Who is measured under a condition.
#[derive(Debug, Clone, Copy)]
struct Entry {
    contender: Contender,
    pages: Pages,
    /// It takes part in every such round.
    every: usize,
}

/// Who is measured under a condition, and in how many rounds.
fn plan(condition: Condition, settings: &Settings) -> (Vec<Entry>, usize) {
    let rounds = settings.runs(10, 120);
    let machine = matches!(condition.node, Node::Machine);
    let mut chosen = Vec::new();
    for contender in Contender::ALL {
        // The others are compared on the machine. The short form looks whether they still work; a poll every 10 s
        // takes 5 s a run, and needs no many of them to show it.
        let every = match (contender, settings.short) {
            (Contender::Brink, _) | (Contender::FifoPoll, true) => 1,
            (Contender::SlowPoll, true) => rounds,
            (Contender::SlowPoll, false) => 12,
            (_, true) => 5,
            (_, false) => 3,
        };
        for pages in [Pages::Base, Pages::Huge] {
            let base_only = settings.short && (contender != Contender::Brink || !machine);
            let wanted = contender == Contender::Brink || machine;
            if wanted && !(base_only && pages == Pages::Huge) {
                chosen.push(Entry {
                    contender,
                    pages,
                    every,
                });
            }
        }
    }
    (chosen, rounds)
}

/// What is planned of Brink, and held to its figures.
fn held(settings: &Settings) -> Vec<(Condition, Pages)> {
    let planned = |condition: Condition| {
        let entries = plan(condition, settings).0.into_iter();
        let own = entries.filter(|entry| entry.contender == Contender::Brink);
        own.map(move |entry| (condition, entry.pages))
    };
    conditions().flat_map(planned).collect()
}

/// The entries of all runs, round by round, each round in an order of its own.
fn order(chosen: &[Entry], rounds: usize, random: &mut SplitMix64) -> Vec<Entry> {
    let places = random.rounds(chosen.len(), rounds).into_iter().enumerate();
    let entries = places.filter_map(|(at, place)| {
        let entry = chosen.get(place)?;
        (at / chosen.len())
            .is_multiple_of(entry.every)
            .then_some(*entry)
    });
    entries.collect()
}

/// All runs under one condition; none without real time.
fn measure(
    condition: Condition,
    settings: &Settings,
    random: &mut SplitMix64,
    outcome: &mut Outcome,
) -> anyhow::Result<Option<Runs>> {
    let (chosen, rounds) = plan(condition, settings);
    let contenders = chosen.iter().map(|entry| entry.contender);
    let mut scene = Scene::new(condition.node, contenders)?;
    if !scene.brink_is_fifo()? {
        return Ok(None);
    }
    let storms = if condition.storm {
        scene.arena.storm()?
    } else {
        Vec::new()
    };
    let stolen = machine::stolen();
    let mut runs = Runs::new();
    let mut disturbed = Disturbed::default();
    for Entry {
        contender, pages, ..
    } in order(&chosen, rounds, random)
    {
        let found = trial::undisturbed(&mut scene, contender, pages, random, &mut disturbed)?;
        runs.entry((contender, pages)).or_default().push(found);
    }
    drop(storms);
    outcome.notes.push(format!(
        "{}: {}; {}",
        condition.name(),
        scene.witness.note()?,
        disturbed.note()
    ));
    if let Some((before, after)) = stolen.zip(machine::stolen()) {
        outcome.notes.push(format!(
            "{}: the hypervisor took {} ms of the processors' time",
            condition.name(),
            after.saturating_sub(before).as_millis()
        ));
    }
    let sampler = scene.sampler_note()?;
    let note = sampler.map(|note| format!("{}: {note}", condition.name()));
    outcome.notes.extend(note);
    Ok(Some(runs))
}
