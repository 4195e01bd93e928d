//! The thread that has filesystems measured, follows the container runtime, and carries out what the guard asks of that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brink_core::node::engine::Disks as Keeper;
use brink_core::node::input::Control;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tracing::{info, warn};

use super::answer::AsksApi;
use super::discover::Discovery;
use super::handover::Handover;
use super::measure::Spot;
use super::plan::{Laid, Measured, plan};
use super::runtime::{ContainerRuntime, Stopper};
use super::{Disks, concerns};
use crate::config::{AgentConfig, ReclaimPolicy};
use crate::guard::disks::{PLACES, Role};
use crate::guard::ports::Command;
use crate::runtime::state::Shared;
use crate::telling::Telling;

/// The runtime's images are noted so often, as by a kubelet, and filesystems looked for anew.
const LOOK: Duration = Duration::from_mins(5);
/// The same while no runtime says where images lie, or something cannot be measured.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// News of one filesystem may be followed by news of another.
const SETTLE: Duration = Duration::from_millis(50);
/// For the first answers of filesystems; one that takes longer is planned for later.
const FIRST: Duration = Duration::from_secs(2);

/// What the thread needs.
pub struct Caretaker {
    /// What is known, for everybody.
    pub disks: Arc<Disks>,
    /// To the guard.
    pub handover: Arc<Handover>,
    /// What everybody sees.
    pub shared: Arc<Shared>,
    /// Where events are told.
    pub telling: Telling,
    /// What may be removed.
    pub(super) reclaim_policy: ReclaimPolicy,
    pub(super) runtime: ContainerRuntime,
    /// What the API knows of pods, where there is one.
    pub(super) by_api: Option<Arc<AsksApi>>,
    threads: Vec<(Arc<Spot>, JoinHandle<()>)>,
    /// Where filesystems are looked for.
    discovery: Discovery,
    pub(super) is_stopped: Arc<AtomicBool>,
    /// Who keeps the filesystems, as configured.
    keeper: Keeper,
    /// Why the runtime cannot be asked, as the log was told.
    told_of_fault: Option<&'static str>,
    /// What the guard was told of a kubelet.
    told_of_kubelet: Option<bool>,
    /// What the runtime has said of one, as long as it says nothing else.
    heard_of_kubelet: Option<bool>,
}

/// Ends the thread.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    is_stopped: Arc<AtomicBool>,
    stopper: Stopper,
}

impl Stop {
    /// Ends it, whatever it waits for.
    pub fn stop(&self, disks: &Disks) {
        self.is_stopped.store(true, Ordering::Release);
        self.stopper.stop();
        disks.ports.reclaims.ring();
    }
}

impl Caretaker {
    /// For an agent of this configuration.
    pub fn new(
        config: &AgentConfig,
        (disks, handover): (Arc<Disks>, Arc<Handover>),
        (shared, telling): (Arc<Shared>, Telling),
        stop: &Stop,
    ) -> Self {
        let root = config.paths.root.clone();
        let stopper = stop.stopper.clone();
        let keeper = config.live_settings().disks;
        disks.lock().left_to_kubelet = keeper.left_to_kubelet(None);
        Self {
            disks,
            handover,
            shared,
            telling,
            runtime: ContainerRuntime::new(root.clone(), config.runtime.clone(), stopper),
            reclaim_policy: config.runtime.reclaim,
            by_api: None,
            threads: Vec::new(),
            discovery: Discovery::new(root, config.filesystems.clone()),
            is_stopped: Arc::clone(&stop.is_stopped),
            keeper,
            told_of_fault: None,
            told_of_kubelet: None,
            heard_of_kubelet: None,
        }
    }

    /// The same beside an API that knows pods.
    #[must_use]
    pub fn with_api(self, by_api: Option<Arc<AsksApi>>) -> Self {
        Self { by_api, ..self }
    }

    /// Runs until it is stopped.
    pub fn run(mut self) {
        let ports = Arc::clone(&self.disks.ports);
        ports.wait_for_first_look();
        ports.reclaims_served.store(true, Ordering::Release);
        let mut due = Instant::now();
        while !self.is_stopped() {
            let is_nudged = self.wait(due);
            let mut is_asked = false;
            while let Some(asked) = ports.reclaims.take() {
                is_asked = true;
                if let Some(asked) = asked {
                    self.reclaim(asked);
                }
            }
            if is_nudged && !is_asked {
                due = due.min(Instant::now() + SETTLE);
            }
            if Instant::now() >= due && !self.is_stopped() {
                due = Instant::now() + self.look();
            }
        }
        ports.reclaims_served.store(false, Ordering::Release);
        self.end();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Waits until something is asked, told or due; whether a filesystem has news.
    fn wait(&self, due: Instant) -> bool {
        let left = due.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let reclaims = &self.disks.ports.reclaims;
        let mut bell = [PollFd::new(reclaims, PollFlags::IN)];
        // An interrupted wait is an early one.
        let is_rung = poll(&mut bell, timeout.as_ref()).is_ok_and(|rung| rung > 0);
        if is_rung {
            reclaims.hush();
        }
        is_rung
    }

    /// Looks at the runtime and at where filesystems are; when to look again.
    fn look(&mut self) -> Duration {
        if !concerns(&self.disks.thresholds()) {
            self.measure_nothing();
            return LOOK;
        }
        self.runtime.observe();
        // First: another layout has the guard act at once.
        self.tell_of_kubelet();
        let folders = self.runtime.folders();
        self.tell_of_runtime();
        // One that has only just started may be there and not know yet.
        let has_named_them = folders.is_some();
        self.discovery.hear_runtime(folders);
        self.plan();
        let mut known = self.disks.lock();
        known.runtime = self.runtime.state().clone();
        let is_whole = has_named_them
            && self.told_of_kubelet.is_some()
            && known
                .measured
                .iter()
                .all(|(_, spot)| spot.seen().filesystem.is_some());
        if is_whole { LOOK } else { LOOK_AGAIN }
    }

    /// No threshold is on any filesystem any more.
    fn measure_nothing(&mut self) {
        for role in Role::ALL {
            self.disks.ports.disks.assign(role, None);
        }
        self.disks.lock().measured.clear();
        self.stop_others(&[]);
    }

    /// Has measured what there is to measure, each filesystem once.
    fn plan(&mut self) {
        let wanted = self.discovery.folders();
        let mut found: [Option<Arc<Spot>>; 3] = [const { None }; 3];
        for (spot, path) in found.iter_mut().zip(&wanted) {
            *spot = path.as_ref().and_then(|path| self.spot(path));
        }
        let measured = |role: Role| {
            let spot = found[role as usize].as_ref()?;
            spot.seen_after(None, FIRST)?.filesystem
        };
        let measured = Measured {
            nodefs: measured(Role::Nodefs),
            images: measured(Role::Imagefs),
            layers: measured(Role::Containerfs),
        };
        let known = wanted.each_ref().map(Option::is_some);
        let (laid, sources) = plan(known, &measured, self.disks.lock().laid);
        let mut by_role = Vec::new();
        for (role, source) in Role::ALL.into_iter().zip(sources) {
            let spot = source.and_then(|source| found[source as usize].clone());
            self.disks
                .ports
                .disks
                .assign(role, spot.as_ref().map(|spot| spot.place));
            by_role.extend(spot.map(|spot| (role, spot)));
        }
        let kept: Vec<Arc<Spot>> = by_role.iter().map(|(_, spot)| Arc::clone(spot)).collect();
        self.tell_of_layout(laid, &by_role);
        self.disks.lock().measured = by_role;
        self.stop_others(&kept);
        for spot in kept {
            spot.look_now();
        }
    }

    /// Whoever measures that folder, if anybody can.
    fn spot(&mut self, path: &Path) -> Option<Arc<Spot>> {
        self.threads.retain(|(_, thread)| !thread.is_finished());
        let mut running = self.threads.iter().map(|(spot, _)| spot);
        let same = running.find(|spot| spot.path == path && !spot.is_stopped());
        if let Some(same) = same {
            return Some(Arc::clone(same));
        }
        let is_free = |place: &usize| self.threads.iter().all(|(spot, _)| spot.place != *place);
        let place = (0..PLACES).find(is_free);
        let Some(place) = place else {
            warn!(path = %path.display(), "too many filesystems do not answer: this one is not measured");
            return None;
        };
        match Spot::start(&self.disks, place, path.to_path_buf()) {
            Ok((spot, thread)) => {
                self.threads.push((Arc::clone(&spot), thread));
                Some(spot)
            }
            Err(error) => {
                warn!(%error, path = %path.display(), "a filesystem is not measured");
                None
            }
        }
    }

    fn stop_others(&self, kept: &[Arc<Spot>]) {
        for (spot, _) in &self.threads {
            if !kept.iter().any(|one| Arc::ptr_eq(one, spot)) {
                spot.stop();
            }
        }
    }

    fn tell_of_layout(&self, laid: Laid, by_role: &[(Role, Arc<Spot>)]) {
        let is_new = {
            let mut known = self.disks.lock();
            let is_new = known.measured.is_empty() || known.laid != laid;
            known.laid = laid;
            is_new
        };
        if is_new {
            for (role, spot) in by_role {
                let seen = spot.seen();
                let why = seen.trouble.map(|(_, why)| why);
                info!(
                    role = role.word(),
                    path = %spot.path.display(),
                    device = seen.filesystem.map(|found| found.device.to_string()),
                    why,
                    "a filesystem is measured"
                );
            }
        }
        if !self.handover.set_layout(laid) {
            warn!("the guard does not keep up; the layout of filesystems is told again later");
        }
    }

    /// Tells the log once why the runtime cannot be asked, and once that it can be again.
    fn tell_of_runtime(&mut self) {
        let state = self.runtime.state();
        if state.fault == self.told_of_fault {
            return;
        }
        let endpoint = state.endpoint.as_ref();
        let endpoint = endpoint.map(|path| path.display().to_string());
        match (&state.trouble, &state.name) {
            (Some(why), _) => warn!(endpoint, why, "the container runtime cannot be asked"),
            (None, Some(name)) => info!(endpoint, name, "the container runtime can be asked again"),
            (None, None) => info!("there is no container runtime any more"),
        }
        self.told_of_fault = state.fault;
    }

    /// Whose garbage collection comes first; whether the guard knows as much as we do.
    pub(super) fn tell_of_kubelet(&mut self) -> bool {
        let keeps = self.look_for_kubelet();
        self.tell_who_keeps(keeps)
    }

    /// Whether a kubelet keeps this node's disks, as far as that is known.
    pub(super) fn look_for_kubelet(&mut self) -> Option<bool> {
        let said = self.runtime.state().is_kubelets;
        self.heard_of_kubelet = said.or(self.heard_of_kubelet);
        // It may have come back with another folder.
        let runs = self.discovery.find_kubelet();
        keeps(runs, self.heard_of_kubelet)
    }

    /// Tells the guard, where it has been told something else; whether it knows.
    pub(super) fn tell_who_keeps(&mut self, keeps: Option<bool>) -> bool {
        if let Some(by_kubelet) = keeps
            && keeps != self.told_of_kubelet
        {
            let command = Command::Control(Control::Kubelet(by_kubelet));
            if self.disks.ports.commands.send(command).is_err() {
                return false;
            }
            self.told_of_kubelet = keeps;
            let left = self.keeper.left_to_kubelet(keeps);
            self.disks.lock().left_to_kubelet = left;
            if left == Some(true) {
                info!(
                    "orders for filesystems are held beside the kubelet; `runtime.reclaim: always` acts beside it"
                );
            }
        }
        true
    }

    /// Ends everybody who measures; whoever is held by a filesystem that does not answer is left to it.
    fn end(self) {
        const MOMENT: Duration = Duration::from_millis(100);
        self.stop_others(&[]);
        let until = Instant::now() + MOMENT;
        for (_, thread) in self.threads {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() && thread.join().is_err() {
                warn!("a thread that measured a filesystem had died");
            }
        }
    }
}

/// Whether a kubelet keeps the filesystems: one that `runs`, or that the runtime has `heard` of. A runtime that cannot be asked
/// says nothing of who runs; where that is not known either, nobody knows.
pub fn keeps(runs: Option<bool>, heard: Option<bool>) -> Option<bool> {
    match (runs, heard) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), _) => Some(false),
        (None, _) => None,
    }
}

#[cfg(test)]
#[path = "caretaker_tests.rs"]
mod tests;
