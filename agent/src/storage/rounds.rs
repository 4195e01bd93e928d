//! The rounds of the thread: each workload once, those that are new first and those that take long last, at a pace that follows the need.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brink_core::base::{Moment, Span};
use brink_core::node::limits::{Exceeded, exceeded_by};
use brink_core::node::observe::Layout;
use brink_core::node::workload::{PodUsage, Workload, full_name};
use brink_host::clock::thread_cpu;
use brink_host::disk::calm::calm_thread;
use brink_host::disk::{UsageMeter, UsageSettings};
use tracing::{debug, info, warn};

use super::ground::Ground;
use super::keeper::{Means, Shared, Standing, Work};
use super::layers::{self, Heard, Kept, Layers, Silence};
use super::measured::{Found, Measured};
use super::need::Need;
use super::owned::{Owned, Part, Piece};
use super::rests::{Rests, Round};
use super::walk::{Flaw, Walk};
use crate::disks::answer::Folders;
use crate::guard::now;
use crate::guard::ports::Command;

/// What the kernel tells is read so often, so that its queue does not run over.
const LISTEN: Duration = Duration::from_secs(1);
/// So long the thread rests at least where there is nothing to do.
const SHORTEST: Duration = Duration::from_millis(10);
/// A runtime whose figures are all that is missing is asked so often: some measure every few seconds, whoever asks.
const ASK_AGAIN: Span = Span::from_secs(1);
/// A runtime that has its figures at hand is waited for: a round then has them from the beginning.
const PROMPT: Duration = Duration::from_secs(1);
/// Where there is nothing to measure somebody has to bring it.
const FOR_EVER: Duration = Duration::from_hours(1);
/// Troubles that are told.
const MOST_TROUBLES: usize = 16;

/// Measures until it is stopped.
pub(super) fn run(shared: &Shared, means: Means) {
    let calm = calm_thread();
    if let Some(errno) = calm.io.err().or(calm.processor.err()) {
        debug!(%errno, "measuring disks does not go behind all others");
    }
    let mut rounds = Rounds::new(UsageSettings::default());
    let period = means.period;
    rounds.ground = Ground::new(means.root.clone(), means.filesystems);
    let mut runtime = Layers::new(means.root, means.endpoint);
    while !shared.is_stopped() {
        let work = shared.work();
        rounds.adopt(&work, shared);
        let rest = if !shared.is_wanted() || rounds.is_idle() {
            rounds.forget_layers(&mut runtime, shared);
            FOR_EVER
        } else {
            let begins = rounds.begins(shared, period);
            if begins {
                rounds.asked = Some(now());
            }
            rounds.ask(&mut runtime, begins, &work, shared);
            if begins {
                rounds.prepare();
            }
            rounds.turn(&work, shared, period, begins)
        };
        std::thread::park_timeout(rest);
    }
}

/// What is known from one round to the next.
pub(super) struct Rounds {
    meter: UsageMeter,
    /// What the boards were written for last.
    work: Option<Arc<Work>>,
    known: HashMap<String, Known>,
    /// The number of this round.
    number: u64,
    /// When it began, and what the thread had spent on a processor by then; none while none is under way.
    began: Option<(Instant, Duration)>,
    /// When there is rest between them.
    rests: Rests,
    /// When this round began: nothing that it finds in folders is older.
    asked: Option<Moment>,
    /// The same of the last round that is over.
    whole: Option<Moment>,
    /// When the runtime was asked last.
    question: Option<Moment>,
    /// When the oldest figure was taken of what it answered last: nothing that it told of layers is older.
    layers_of: Option<Moment>,
    folders: usize,
    /// Where the node's filesystems lie.
    ground: Ground,
    /// Writable layers, as a runtime told last.
    layers: Kept,
    /// Where it said that images and layers lie, until that is looked at.
    places: Option<Folders>,
    troubles: Vec<String>,
    /// Those of the last round, so that each is said once.
    said: HashSet<String>,
}

/// One workload.
struct Known {
    owned: Owned,
    /// The round it was measured in.
    round: u64,
    /// What was found in its folders.
    found: Found,
    measured: Measured,
    /// The limit that it exceeds.
    exceeded: Option<Exceeded>,
    /// How long that takes: as long as the last time, or half as long as it took before, for what has not changed takes no time.
    took: Duration,
}

impl Rounds {
    pub(super) fn new(settings: UsageSettings) -> Self {
        Self {
            meter: UsageMeter::new(settings),
            work: None,
            known: HashMap::new(),
            number: 0,
            began: None,
            rests: Rests::default(),
            asked: None,
            whole: None,
            question: None,
            layers_of: None,
            folders: 0,
            ground: Ground::default(),
            layers: Kept::default(),
            places: None,
            troubles: Vec::new(),
            said: HashSet::new(),
        }
    }

    /// Whether nobody owns anything.
    fn is_idle(&self) -> bool {
        self.folders == 0
    }

    /// Takes another roster over: what is known of its workloads is on its board at once.
    pub(super) fn adopt(&mut self, work: &Arc<Work>, shared: &Shared) {
        let is_same = |known: &Arc<Work>| Arc::ptr_eq(known, work);
        if self.work.as_ref().is_some_and(is_same) {
            return;
        }
        self.work = Some(Arc::clone(work));
        let owned: HashMap<&str, &Owned> = work.owned.iter().map(|one| (&*one.uid, one)).collect();
        self.known.retain(|uid, known| {
            owned
                .get(&**uid)
                .is_some_and(|owned| **owned == known.owned)
        });
        let pieces = work.owned.iter().flat_map(|owned| &owned.pieces);
        let paths: HashSet<&Path> = pieces.clone().map(|piece| &*piece.folder.path).collect();
        self.folders = paths.len();
        self.meter.retain(|path| paths.contains(path));
        shared.book().standing.folders = self.folders;
        for piece in pieces {
            shared.note_asking(Some(&piece.folder.path));
            // What is wrong with it is told when it is measured.
            let _not_yet = self.meter.watch(&piece.folder, Instant::now());
        }
        shared.note_asking(None);
        let known = &self.known;
        let mut book = shared.book();
        book.measured.retain(|uid, _| known.contains_key(uid));
        drop(book);
        for (index, owned) in work.owned.iter().enumerate() {
            if let (Some(disk), Some(known)) = (work.disks.get(index), self.known.get(&owned.uid)) {
                known.measured.put_on(disk);
            }
        }
        work.disks.note_round(self.measured_since(work));
    }

    /// Since when all that is known was measured. Layers are as old as the runtime's figures, unless it does not answer: nobody waits for
    /// what may never come.
    fn measured_since(&self, work: &Work) -> Option<Moment> {
        let has_layers = work.owned.iter().any(|owned| !owned.containers.is_empty());
        if has_layers && !self.layers.is_old() {
            self.whole.min(self.layers_of)
        } else {
            self.whole
        }
    }

    /// Whether the next turn begins a round.
    fn begins(&self, shared: &Shared, period: Duration) -> bool {
        let is_due = |due: Instant| Instant::now() >= due;
        self.began.is_none() && self.due(shared, period).is_none_or(is_due)
    }

    /// Has the runtime asked what containers have written: as a round begins, and in between where it does not tell, or its figures are
    /// older than what the guard waits for. Its answer is taken when it comes.
    fn ask(&mut self, runtime: &mut Layers, begins: bool, work: &Work, shared: &Shared) {
        if work.owned.iter().all(|owned| owned.containers.is_empty()) {
            return self.forget_layers(runtime, shared);
        }
        let at = Instant::now();
        let asked = now();
        let is_wanted =
            begins || self.layers.is_unasked() || self.lacks_layers(asked, work, shared);
        let is_asked = runtime.ask(is_wanted, at, || layers::ids(work.owned.iter()));
        if is_asked {
            self.question = Some(asked);
        }
        let patience = if is_asked { PROMPT } else { Duration::ZERO };
        if let Some(heard) = runtime.hear(patience, at) {
            self.hear(heard, work, shared);
        }
    }

    /// Whether the guard waits for figures of layers alone, and it is time to ask for them again.
    fn lacks_layers(&self, now: Moment, work: &Work, shared: &Shared) -> bool {
        let is_time = self
            .question
            .is_none_or(|asked| now.since(asked) >= ASK_AGAIN);
        is_time
            && !shared.is_round_owed(self.whole)
            && shared.is_round_owed(self.measured_since(work))
    }

    /// Takes what came of a question: it counts at once, with what is known of folders.
    fn hear(&mut self, heard: Heard, work: &Work, shared: &Shared) {
        let before = self.layers.silence();
        if let Some(places) = self.layers.hear(heard) {
            self.places = Some(places);
        }
        let silence = self.layers.silence();
        let is_news = silence.as_ref().map(Silence::why) != before.as_ref().map(Silence::why);
        match &silence {
            Some(now) if is_news => warn!(
                why = now.why(),
                "no container runtime tells what containers have written"
            ),
            None if is_news => info!("a container runtime tells again what they have written"),
            _ => {}
        }
        if silence.is_none() {
            let behind = i64::try_from(self.layers.behind().as_nanos()).unwrap_or(i64::MAX);
            self.layers_of = self.question.map(|asked| asked - Span::from_nanos(behind));
        }
        shared.book().silence = silence;
        let has_containers = |(_, owned): &(usize, &Owned)| !owned.containers.is_empty();
        for (index, owned) in work.owned.iter().enumerate().filter(has_containers) {
            let workload = work.table.workloads().get(index);
            let (Some(known), Some(workload)) = (self.known.get_mut(&owned.uid), workload) else {
                continue;
            };
            self.layers.put_into(&mut known.found, owned);
            known.measured = Measured::of(workload, owned, &known.found, known.measured.at);
            show((work, index), &owned.uid, &known.measured, shared);
        }
        work.disks.note_round(self.measured_since(work));
    }

    /// Nobody has containers, or nobody wants to know of them: what was told would be old when somebody does.
    fn forget_layers(&mut self, runtime: &mut Layers, shared: &Shared) {
        runtime.forget();
        self.layers = Kept::default();
        (self.question, self.layers_of) = (None, None);
        shared.book().silence = None;
    }

    /// Looks where filesystems lie.
    fn prepare(&mut self) {
        self.ground.look(self.places.take(), Instant::now());
    }

    /// Measures one workload, if one is due, or a round begins, and tells for how long there is nothing to do then.
    fn turn(&mut self, work: &Work, shared: &Shared, period: Duration, begins: bool) -> Duration {
        self.meter.listen();
        let at = Instant::now();
        if begins {
            self.number += 1;
            self.began = Some((at, thread_cpu()));
        }
        if let Some(index) = self.next(work) {
            self.measure(work, index, shared);
            self.tell(work, index, shared);
            return Duration::ZERO;
        }
        // Told until nobody is over a limit any more: the guard may have had no room, or another order open.
        for index in 0..work.owned.len() {
            self.tell(work, index, shared);
        }
        if let Some((began, spent)) = self.began.take() {
            let took = began.elapsed();
            let cost = thread_cpu().saturating_sub(spent);
            self.rests.add(Round { began, took, cost }, period);
            self.end_round(shared, took);
            self.whole = self.asked;
            work.disks.note_round(self.measured_since(work));
        }
        let due = self.due(shared, period).unwrap_or(at);
        let left = due.saturating_duration_since(Instant::now());
        left.clamp(SHORTEST, LISTEN)
    }

    /// When the next round is due, by what is needed now; none before the first, and where the guard waits for one: at once.
    fn due(&self, shared: &Shared, period: Duration) -> Option<Instant> {
        let is_over = self.known.values().any(|known| known.exceeded.is_some());
        let own = if is_over { Need::Near } else { Need::Seldom };
        let due = self.rests.due(shared.need().max(own).rest(period))?;
        if shared.is_round_owed(self.whole) {
            // Unless it has waited for too many of late.
            return self.rests.due_early().map(|early| early.min(due));
        }
        Some(due)
    }

    /// The workload to be measured next: of those that nothing is known of yet, and those that this round has not come to. The guard
    /// does not wait for ever, so nobody who is measured in no time waits for a million files of somebody else's.
    fn next(&self, work: &Work) -> Option<usize> {
        let is_due = |owned: &Owned| match self.known.get(&owned.uid) {
            _ if owned.pieces.is_empty() => false,
            None => true,
            Some(known) => self.began.is_some() && known.round != self.number,
        };
        let due = work.owned.iter().enumerate();
        let due = due.filter(|(_, owned)| is_due(owned));
        let took = |owned: &Owned| self.known.get(&owned.uid).map(|known| known.took);
        due.min_by_key(|(_, owned)| took(owned))
            .map(|(index, _)| index)
    }

    /// Tells the guard of the limit that a workload exceeds, by what its manifest says now.
    fn tell(&mut self, work: &Work, index: usize, shared: &Shared) {
        let (layout, are_layers_old) = (self.ground.layout(), self.layers.is_old());
        let known = work.owned.get(index);
        let Some(known) = known.and_then(|owned| self.known.get_mut(&owned.uid)) else {
            return;
        };
        // What was written since may have gone since: only what is told now is a reason to kill.
        let rest = are_layers_old.then(|| known.measured.without_layers());
        let measured = rest.as_ref().unwrap_or(&known.measured);
        known.exceeded = exceeded(layout, work, index, measured);
        if let (Some(limit), Some(ports)) = (known.exceeded, &shared.ports) {
            let command = Command::Exceeded {
                generation: work.table.generation(),
                workload: index,
                limit,
            };
            // Where there is no room it is told again.
            let _full = ports.commands.is_full() || ports.commands.send(command).is_err();
        }
    }

    fn measure(&mut self, work: &Work, index: usize, shared: &Shared) {
        let (Some(owned), Some(workload)) =
            (work.owned.get(index), work.table.workloads().get(index))
        else {
            return;
        };
        let began = Instant::now();
        let Some(found) = self.look(owned, workload, shared) else {
            return;
        };
        let before = self.known.get(&owned.uid).map(|known| known.took / 2);
        let took = began.elapsed().max(before.unwrap_or_default());
        let measured = Measured::of(workload, owned, &found, now());
        show((work, index), &owned.uid, &measured, shared);
        let known = Known {
            // It is told next.
            exceeded: None,
            took,
            owned: owned.clone(),
            round: self.number,
            found,
            measured,
        };
        self.known.insert(owned.uid.clone(), known);
    }

    /// Measures all folders of a workload; nothing if it was stopped in the middle.
    fn look(&mut self, owned: &Owned, workload: &Workload, shared: &Shared) -> Option<Found> {
        let walk = Walk {
            meter: &mut self.meter,
            ground: &self.ground,
            layers: &self.layers,
            stop: &shared.stop,
            asking: &|path| shared.note_asking(path),
        };
        let mut flaws = Vec::new();
        let found = walk.of(owned, |piece, flaw| {
            flaws.push((piece, flaw));
            true
        })?;
        for (piece, flaw) in flaws {
            match flaw {
                Flaw::NotThere => self.check_home(owned),
                Flaw::Unknown(error) => self.trouble(workload, piece, &error.to_string()),
                Flaw::Partial(gaps) => self.trouble(workload, piece, &partly(&gaps)),
            }
        }
        Some(found)
    }

    /// A pod whose folders are missing is no trouble; a kubelet's folder that is not there at all, or not seen from here, is.
    fn check_home(&mut self, owned: &Owned) {
        let file = owned.hosts_file.as_deref();
        let Some(home) = file.and_then(|file| file.parent()?.parent()) else {
            return;
        };
        if !home.exists() {
            self.note(format!(
                "{} is not there: no volume of a pod can be measured; into a container it has to be mounted",
                home.display()
            ));
        }
    }

    fn trouble(&mut self, workload: &Workload, piece: &Piece, why: &str) {
        let name = full_name(&workload.namespace, &workload.name);
        let what = match &piece.part {
            Part::Volume(volume) => format!("volume {volume}"),
            Part::Logs(container) => format!("logs of {container}"),
            Part::PodLogs => "its logs".to_owned(),
        };
        self.note(format!("{name}, {what}: {why}"));
    }

    fn note(&mut self, trouble: String) {
        if self.troubles.len() < MOST_TROUBLES && !self.troubles.contains(&trouble) {
            self.troubles.push(trouble);
        }
    }

    fn end_round(&mut self, shared: &Shared, took: Duration) {
        let troubles = std::mem::take(&mut self.troubles);
        for trouble in troubles.iter().filter(|one| !self.said.contains(*one)) {
            warn!(
                trouble,
                "what a workload uses of a disk is not wholly known"
            );
        }
        self.said = troubles.iter().cloned().collect();
        let (feeds, told) = self.meter.feeds();
        let without = self.meter.without_feed();
        let line = |(path, why): (&Path, String)| format!("{}: {why}", path.display());
        let mut without_feed: Vec<String> = without.map(line).take(MOST_TROUBLES).collect();
        without_feed.sort();
        shared.book().standing = Standing {
            folders: self.folders,
            troubles,
            feeds,
            told,
            without_feed,
            last_round: Some((now(), took)),
        };
    }
}

/// Puts what was measured of a workload on its board, and where it is asked for.
fn show((work, index): (&Work, usize), uid: &str, measured: &Measured, shared: &Shared) {
    if let Some(disk) = work.disks.get(index) {
        measured.put_on(disk);
    }
    let mut book = shared.book();
    book.measured.insert(uid.to_owned(), measured.clone());
}

/// The limit of its own that a workload exceeds.
fn exceeded(layout: Layout, work: &Work, index: usize, measured: &Measured) -> Option<Exceeded> {
    let usage = PodUsage {
        rootfs: measured.usage.rootfs,
        logs: measured.usage.logs,
        volumes: measured.usage.volumes,
        ..PodUsage::default()
    };
    exceeded_by(layout, &work.table, index, (&usage, &measured.detail))
}

/// What is missing in the figures of a folder.
fn partly(gaps: &brink_host::disk::Gaps) -> String {
    let mut parts = Vec::new();
    if gaps.unread > 0 {
        let why = gaps
            .first_error
            .map_or_else(String::new, |errno| format!(" ({errno})"));
        parts.push(format!("{} entries could not be read{why}", gaps.unread));
    }
    if gaps.too_deep > 0 {
        parts.push(format!("{} folders lie too deep", gaps.too_deep));
    }
    if gaps.stopped.is_some() {
        parts.push("there was no time for all of it".to_owned());
    }
    format!("{}; it uses at least what is told", parts.join(", "))
}

#[cfg(test)]
#[path = "rounds_tests.rs"]
mod tests;
