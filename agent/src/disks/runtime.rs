//! The container runtime: where images lie, which of them are in use, and their removal. Every question has a deadline.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brink_core::base::{Moment, Span};
use brink_cri::client::{Client, Patience, Runtime as _};
use brink_cri::endpoint;
use brink_cri::fault::CriError;
use brink_cri::layout::Places;
use brink_cri::plan::{Fate, Policy};
use brink_cri::state::{Pod, State};
use brink_cri::usage::Records;
use tokio::sync::Notify;

use super::RuntimeState;
use super::answer::{End, Folders, Order, Outcome, PodIs};
use super::removal::{Job, stopped};
use crate::config::{ReclaimPolicy, RuntimeConfig};
use crate::guard;

/// A disk that fills does not wait as long as a kubelet would.
const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(2),
    ask: Duration::from_secs(5),
    remove: Duration::from_secs(20),
};
/// A runtime that was there a moment ago is being restarted: it is waited for so long.
const RESTARTING: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(200);
/// A watch that has died in silence is found dead sooner.
const MISSING_AFTER: Span = Span::from_secs(600);

/// Ends what is being asked.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<Notify>);

impl Stopper {
    /// Whatever is being asked is given up.
    pub fn stop(&self) {
        self.0.notify_one();
    }

    /// What comes of a question, unless it is given up.
    pub(super) async fn unless<T>(&self, question: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            answer = question => Some(answer),
            () = self.0.notified() => None,
        }
    }
}

/// What came of a question.
enum Asked<T> {
    Answer(T),
    /// It was given up.
    Stopped,
    /// Nobody answered; the state says why.
    Lost,
}

impl<T> Asked<T> {
    fn answer(self) -> Option<T> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Stopped | Self::Lost => None,
        }
    }
}

/// The runtime, and what is known of it.
pub struct ContainerRuntime {
    root: PathBuf,
    config: RuntimeConfig,
    stopper: Stopper,
    tokio: Option<tokio::runtime::Runtime>,
    asking: Asking,
}

/// What is kept from question to question.
#[derive(Default)]
struct Asking {
    client: Option<Client>,
    records: Records,
    /// When each pod was first seen here, by its uid; those that are gone are forgotten.
    pods: BTreeMap<String, Moment>,
    state: RuntimeState,
}

impl ContainerRuntime {
    /// One that has not been looked for yet.
    pub fn new(root: PathBuf, config: RuntimeConfig, stopper: Stopper) -> Self {
        Self {
            root,
            config,
            stopper,
            tokio: None,
            asking: Asking::default(),
        }
    }

    /// How it stands.
    pub const fn state(&self) -> &RuntimeState {
        &self.asking.state
    }

    /// Where images and writable layers lie; none where nobody answers.
    pub fn folders(&mut self) -> Option<Folders> {
        let asked = self.ask(async |asking, sockets, stopper| {
            let places = async {
                let client = asking.connect(sockets).await?;
                client.places().await
            };
            stopper.unless(places).await
        });
        asked.answer().map(folders)
    }

    /// Notes which images there are, and which are in use.
    pub fn observe(&mut self) {
        let _known = self
            .ask(async |asking, sockets, stopper| stopper.unless(asking.observe(sockets)).await);
    }

    /// Removes what may go, within a time; `enough` is asked after each way, with what all that is gone held, where that is known.
    pub fn reclaim(
        &mut self,
        order: &Order<'_>,
        within: Duration,
        enough: &mut dyn FnMut(Option<u64>) -> bool,
    ) -> Outcome {
        let until = tokio::time::Instant::now() + within;
        let policy = policy(self.config.reclaim, order.image_min_age);
        let (seen, now) = (self.asking.pods.clone(), guard::now());
        let is_known = |uid: &String| matches!((order.pods)(uid), PodIs::Wanted | PodIs::Over);
        // The API may know another node's pods: what this one is called may be wrong.
        let is_of_here = seen.keys().any(is_known);
        let fates = move |pod: &Pod| {
            let since = seen.get(&pod.uid).filter(|_| is_of_here);
            fate(
                (order.pods)(&pod.uid),
                pod,
                since.map(|since| now.since(*since)),
            )
        };
        let job = Job {
            order,
            policy: &policy,
            fates: &fates,
            within,
            until,
        };
        let asked = self.ask(async |asking, sockets, stopper| {
            asking.reclaim(sockets, &job, (stopper, enough)).await
        });
        match asked {
            Asked::Answer(outcome) => outcome,
            Asked::Stopped => stopped(Outcome::default()),
            Asked::Lost => {
                let trouble = self.asking.state.trouble.clone();
                Outcome {
                    end: End::Lost(self.asking.state.fault.unwrap_or("absent")),
                    why: trouble.or_else(|| Some("no container runtime was found".to_owned())),
                    ..Outcome::default()
                }
            }
        }
    }

    /// Asks. A question that is given up answers nothing.
    fn ask<T>(
        &mut self,
        question: impl AsyncFnOnce(&mut Asking, &[PathBuf], &Stopper) -> Option<Result<T, CriError>>,
    ) -> Asked<T> {
        let sockets = endpoint::find(&self.root, self.config.endpoint.as_deref());
        let (asking, stopper) = (&mut self.asking, &self.stopper);
        if sockets.is_empty() {
            asking.client = None;
            asking.state.forget();
            return Asked::Lost;
        }
        if self.tokio.is_none() {
            let built = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match built {
                Ok(runtime) => self.tokio = Some(runtime),
                Err(error) => {
                    asking.state.trouble = Some(format!("nobody can be asked: {error}"));
                    asking.state.fault = Some("unusable");
                }
            }
        }
        let Some(tokio) = &self.tokio else {
            return Asked::Lost;
        };
        match tokio.block_on(question(asking, &sockets, stopper)) {
            None => Asked::Stopped,
            Some(Ok(answer)) => {
                asking.state.trouble = None;
                asking.state.fault = None;
                Asked::Answer(answer)
            }
            Some(Err(error)) => {
                asking.note(&error);
                Asked::Lost
            }
        }
    }
}

/// What may be removed.
fn policy(reclaim: ReclaimPolicy, image_min_age: Option<Span>) -> Policy {
    let default = Policy::default();
    Policy {
        beside_kubelet: reclaim == ReclaimPolicy::Always,
        image_min_age: image_min_age.unwrap_or(default.image_min_age),
        ..default
    }
}

/// What becomes of a pod that has been seen here for so long. One that is missing in the API counts as deleted only where the API
/// was to have it, and would by now whatever keeps it from us: a kubelet may hear of a pod earlier than we do.
fn fate(is: PodIs, pod: &Pod, seen: Option<Span>) -> Fate {
    let is_old = seen.is_some_and(|seen| seen >= MISSING_AFTER);
    match is {
        PodIs::Wanted => Fate::Lives,
        PodIs::Over => Fate::Over,
        PodIs::Missing if pod.is_of_api && is_old => Fate::Over,
        PodIs::Missing | PodIs::Unknown => Fate::Unknown,
    }
}

/// The folders of an answer.
pub fn folders(places: Places) -> Folders {
    Folders {
        images: Some(places.images),
        layers: places.layers,
    }
}

impl Asking {
    fn note(&mut self, error: &CriError) {
        if !error.is_of_one_call() {
            self.client = None;
        }
        self.state.trouble = Some(error.to_string());
        self.state.fault = Some(error.name());
    }

    /// The client, connected anew if it has to be. One that was there a moment ago is waited for.
    async fn connect(&mut self, sockets: &[PathBuf]) -> Result<&Client, CriError> {
        if self.client.as_ref().is_some_and(Client::is_closed) {
            self.client = None;
        }
        let was_there = self.state.name.is_some();
        let began = Instant::now();
        while self.client.is_none() {
            match self.connect_once(sockets).await {
                Ok(()) => {}
                // One that is there and says nothing is not being restarted.
                Err(CriError::Absent { .. } | CriError::Connect { .. } | CriError::Gone { .. })
                    if was_there && began.elapsed() < RESTARTING =>
                {
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => {
                    self.state.name = None;
                    return Err(error);
                }
            }
        }
        self.client.as_ref().ok_or_else(|| CriError::Gone {
            call: "Version",
            why: "it has just been connected to".to_owned(),
        })
    }

    async fn connect_once(&mut self, sockets: &[PathBuf]) -> Result<(), CriError> {
        let mut failed = None;
        for socket in sockets {
            match Client::connect(socket, PATIENCE).await {
                Ok(client) => {
                    let identity = client.identity();
                    self.state.endpoint = Some(socket.clone());
                    self.state.name = Some(format!("{} {}", identity.name, identity.version));
                    self.client = Some(client);
                    return Ok(());
                }
                Err(error) => {
                    self.state.endpoint.get_or_insert_with(|| socket.clone());
                    failed.get_or_insert(error);
                }
            }
        }
        Err(failed.unwrap_or_else(|| CriError::Absent {
            socket: PathBuf::new(),
            why: "no socket is known".to_owned(),
        }))
    }

    async fn observe(&mut self, sockets: &[PathBuf]) -> Result<State, CriError> {
        let client = self.connect(sockets).await?;
        let state = client.read().await?;
        self.records.observe(guard::now(), &state);
        self.note_pods(guard::now(), &state);
        self.state.is_kubelets = Some(state.is_kubelets());
        Ok(state)
    }

    fn note_pods(&mut self, now: Moment, state: &State) {
        let containers = state.containers.iter().map(|one| &one.pod.uid);
        let sandboxes = state.sandboxes.iter().map(|one| &one.pod.uid);
        let known = &self.pods;
        let noted = containers.chain(sandboxes).map(|uid| {
            let since = known.get(uid).copied().unwrap_or(now);
            (uid.clone(), since)
        });
        self.pods = noted.collect();
    }

    /// One reclaim; none if it was given up before anything could be removed.
    async fn reclaim(
        &mut self,
        sockets: &[PathBuf],
        job: &Job<'_>,
        (stopper, enough): (&Stopper, &mut dyn FnMut(Option<u64>) -> bool),
    ) -> Option<Result<Outcome, CriError>> {
        let looked = tokio::time::timeout_at(job.until, self.observe_again(sockets));
        let state = match stopper.unless(looked).await? {
            Ok(Ok(state)) => state,
            Ok(Err(error)) => return Some(Err(error)),
            Err(_elapsed) => {
                let (call, after) = ("ListContainers", job.within);
                return Some(Err(CriError::Hung { call, after }));
            }
        };
        // It has just answered.
        let client = self.client.as_ref()?;
        let outcome = if job.order.is_dry {
            stopper
                .unless(job.plan(client, &state, &self.records))
                .await?
        } else {
            job.carry_out(client, stopper, (&mut self.records, enough))
                .await
        };
        match outcome.end {
            End::Lost(_) => self.client = None,
            // It may have come since the look before.
            End::Kubelet => self.state.is_kubelets = Some(true),
            _ => {}
        }
        Some(Ok(outcome))
    }

    /// Observes; once more if it was restarted since it was asked last, which shows only when it is asked.
    async fn observe_again(&mut self, sockets: &[PathBuf]) -> Result<State, CriError> {
        match self.observe(sockets).await {
            Err(CriError::Gone { .. }) => {
                self.client = None;
                self.observe(sockets).await
            }
            found => found,
        }
    }
}

#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
