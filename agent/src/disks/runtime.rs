//! The container runtime: where images lie, which of them are in use, and their removal. Every question has a deadline.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brink_core::node::reclaim::Reclaim;
use brink_cri::act::{self, Ended, Report, Target};
use brink_cri::client::{Client, Patience, Runtime};
use brink_cri::endpoint;
use brink_cri::fault::CriError;
use brink_cri::plan::{self, Fate, Fates, Known, Plan, Policy};
use brink_cri::state::{Layers, Pod, Standing, State};
use brink_cri::usage::Records;
use tokio::sync::Notify;

use super::RuntimeState;
use super::answer::{End, Folders, Order, Outcome};
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

/// Ends what is being asked.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<Notify>);

impl Stopper {
    /// Whatever is being asked is given up.
    pub fn stop(&self) {
        self.0.notify_one();
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
        let places = self.ask(async |asking, sockets| {
            let client = asking.connect(sockets).await?;
            client.places().await
        })?;
        Some(Folders {
            images: Some(places.images.folder),
            layers: places.layers.map(|place| place.folder),
        })
    }

    /// Notes which images there are, and which are in use.
    pub fn observe(&mut self) {
        let _known = self.ask(async |asking, sockets| asking.observe(sockets).await);
    }

    /// Removes what may go, within a time; `enough` is asked after each way.
    pub fn reclaim(
        &mut self,
        order: &Order<'_>,
        within: Duration,
        enough: &mut dyn FnMut() -> bool,
    ) -> Outcome {
        let until = tokio::time::Instant::now() + within;
        let policy = Policy {
            beside_kubelet: self.config.reclaim == ReclaimPolicy::Always,
            ..Policy::default()
        };
        let lives = order.lives;
        let fates = move |pod: &Pod| {
            if lives(&pod.uid) {
                Fate::Lives
            } else {
                Fate::Unknown
            }
        };
        let asked = self.ask(async |asking, sockets| {
            let job = Job {
                order,
                policy: &policy,
                fates: &fates,
                until,
            };
            asking.reclaim(sockets, &job, enough).await
        });
        asked.unwrap_or_else(|| {
            let trouble = self.asking.state.trouble.clone();
            Outcome {
                end: End::Lost(self.asking.state.fault.unwrap_or("absent")),
                why: trouble.or_else(|| Some("no container runtime was found".to_owned())),
                ..Outcome::default()
            }
        })
    }

    /// Asks, unless somebody stops it; none without an answer, and the state says why.
    fn ask<T>(
        &mut self,
        question: impl AsyncFnOnce(&mut Asking, &[PathBuf]) -> Result<T, CriError>,
    ) -> Option<T> {
        let sockets = endpoint::find(&self.root, self.config.endpoint.as_deref());
        if self.tokio.is_none() {
            let built = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match built {
                Ok(runtime) => self.tokio = Some(runtime),
                Err(error) => {
                    self.asking.state.trouble = Some(error.to_string());
                    return None;
                }
            }
        }
        let (asking, stopper) = (&mut self.asking, &self.stopper);
        if sockets.is_empty() {
            asking.client = None;
            asking.state.forget();
            return None;
        }
        let answer = self.tokio.as_ref()?.block_on(async {
            tokio::select! {
                answer = question(asking, &sockets) => Some(answer),
                () = stopper.0.notified() => None,
            }
        })?;
        match answer {
            Ok(answer) => {
                self.asking.state.trouble = None;
                self.asking.state.fault = None;
                Some(answer)
            }
            Err(error) => {
                self.asking.note(&error);
                None
            }
        }
    }
}

/// One reclaim.
struct Job<'a> {
    order: &'a Order<'a>,
    policy: &'a Policy,
    fates: &'a Fates<'a>,
    until: tokio::time::Instant,
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
                Err(_) if was_there && began.elapsed() < RESTARTING => {
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
        self.state.is_kubelets = Some(state.is_kubelets());
        Ok(state)
    }

    async fn reclaim(
        &mut self,
        sockets: &[PathBuf],
        job: &Job<'_>,
        enough: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, CriError> {
        let state = match self.observe(sockets).await {
            // It may have been restarted since it was asked last, which shows only when it is asked.
            Err(CriError::Gone { .. }) => {
                self.client = None;
                self.observe(sockets).await?
            }
            found => found?,
        };
        if job.order.is_dry {
            return self.plan(&state, job).await;
        }
        let Some(client) = &self.client else {
            return Ok(Outcome::default());
        };
        let permitted = Permitted {
            client,
            may_act: job.order.may_act,
        };
        let order = act::Order {
            ways: job.order.ways,
            policy: job.policy,
            fates: job.fates,
            clock: &guard::now,
            until: job.until,
        };
        let last = job.order.ways.last().copied();
        let after = |way: Reclaim, report: &Report| {
            // After the last one the engine looks for itself.
            Some(way) != last && !report.removed.is_empty() && enough()
        };
        let report = act::act(&permitted, order, &mut self.records, after).await;
        let mut outcome = outcome(report);
        if !(job.order.may_act)() {
            outcome.end = End::Stopped;
            outcome.why = Some("orders are not carried out any more".to_owned());
        }
        if matches!(outcome.end, End::Lost(_)) {
            self.client = None;
        }
        Ok(outcome)
    }

    /// What would be removed.
    async fn plan(&self, state: &State, job: &Job<'_>) -> Result<Outcome, CriError> {
        let layers = match &self.client {
            Some(client) => client.layers().await.unwrap_or_default(),
            None => Layers::default(),
        };
        let known = Known {
            fates: job.fates,
            records: &self.records,
            layers: &layers,
            now: guard::now(),
        };
        let plan = plan::plan(job.order.ways, state, job.policy, &known);
        let said_bytes = plan.frees_bytes();
        let Plan {
            containers,
            images,
            left_to_kubelet,
            ..
        } = plan;
        let end = if left_to_kubelet {
            End::Kubelet
        } else {
            End::DryRun
        };
        Ok(Outcome {
            end,
            containers: containers.iter().map(container).collect(),
            images: images.into_iter().map(|image| image.name).collect(),
            said_bytes,
            ..Outcome::default()
        })
    }
}

fn container(dead: &plan::DeadContainer) -> String {
    let plan::DeadContainer { pod, name, id, .. } = dead;
    let short: String = id.chars().take(12).collect();
    format!("{}/{} {name} ({short})", pod.namespace, pod.name)
}

fn outcome(report: Report) -> Outcome {
    let said_bytes = report.freed_bytes();
    let (mut containers, mut images) = (Vec::new(), Vec::new());
    for target in &report.removed {
        match target {
            Target::Container(one) => containers.push(container(one)),
            Target::Image(one) => images.push(one.name.clone()),
        }
    }
    let (end, why) = match report.ended {
        Ended::Done => (End::Done, None),
        Ended::Enough(_) => (End::Enough, None),
        Ended::LeftToKubelet => (End::Kubelet, None),
        Ended::Late => (End::Late, None),
        Ended::Lost(error) => (End::Lost(error.name()), Some(error.to_string())),
    };
    let refused = report.refused.into_iter();
    Outcome {
        end,
        why,
        containers,
        images,
        said_bytes,
        refused: refused.map(|(_, error)| error.to_string()).collect(),
    }
}

/// A runtime that is asked to remove nothing once orders are not carried out any more.
struct Permitted<'a> {
    client: &'a Client,
    may_act: &'a (dyn Fn() -> bool + Sync),
}

impl Permitted<'_> {
    fn permit(&self, call: &'static str) -> Result<(), CriError> {
        if (self.may_act)() {
            return Ok(());
        }
        Err(CriError::Gone {
            call,
            why: "orders are not carried out any more".to_owned(),
        })
    }
}

impl Runtime for Permitted<'_> {
    async fn read(&self) -> Result<State, CriError> {
        self.client.read().await
    }

    async fn layers(&self) -> Result<Layers, CriError> {
        self.client.layers().await
    }

    async fn standing(&self, container: &str) -> Result<Option<Standing>, CriError> {
        self.client.standing(container).await
    }

    async fn remove_container(&self, container: &str) -> Result<(), CriError> {
        self.permit("RemoveContainer")?;
        self.client.remove_container(container).await
    }

    async fn remove_image(&self, image: &str, handler: &str) -> Result<(), CriError> {
        self.permit("RemoveImage")?;
        self.client.remove_image(image, handler).await
    }
}
