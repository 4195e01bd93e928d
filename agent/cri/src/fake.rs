//! A runtime out of a value, for tests: it changes while it is asked, and notes each removal that should not have been.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use brink_core::base::Moment;
use tonic::Code;

use crate::client::Runtime;
use crate::fault::CriError;
use crate::plan::tests::fate;
use crate::plan::{Fate, Policy};
use crate::state::{Container, Image, Layers, Pod, Standing, State};

/// What becomes of a call.
#[derive(Clone, Debug)]
pub(crate) enum Plays {
    /// It is answered.
    Answers,
    /// It is answered, after some seconds.
    Slowly,
    /// This happens before it is answered.
    Changes(Change),
    /// It is refused.
    Refuses,
    /// It is never answered.
    Hangs,
    /// It is given up, for it has not been answered in time.
    GivenUp,
    /// The connection ends.
    Breaks,
}

/// What others do with a runtime meanwhile; each number is the place of a container or image, wrapped.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A container is started on an image.
    Starts(usize),
    /// An image is pinned.
    Pins(usize),
    /// An image is removed by somebody else.
    LosesImage(usize),
    /// A container is removed by somebody else.
    LosesContainer(usize),
    /// A container ends.
    Ends(usize),
}

/// The runtime. Without a play for the next call it answers.
#[derive(Debug, Default)]
pub(crate) struct Fake(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: State,
    /// What it told last: nobody can know better.
    told: State,
    /// By which it is to be treated.
    policy: Policy,
    plays: VecDeque<Plays>,
    asked: Vec<String>,
    crimes: Vec<String>,
}

impl Fake {
    pub(crate) fn new(state: State, plays: Vec<Plays>) -> Self {
        Self(Mutex::new(Inner {
            state,
            plays: plays.into(),
            ..Inner::default()
        }))
    }

    /// The same for whoever goes by this policy, and not by the default.
    pub(crate) fn under(self, policy: &Policy) -> Self {
        self.0.lock().unwrap().policy = policy.clone();
        self
    }

    /// What it holds now.
    pub(crate) fn state(&self) -> State {
        self.0.lock().unwrap().state.clone()
    }

    /// What it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().asked.clone()
    }

    /// Removals of what was alive, in use, pinned, to be kept, of sandboxes or a kubelet's.
    pub(crate) fn crimes(&self) -> Vec<String> {
        self.0.lock().unwrap().crimes.clone()
    }

    /// Notes a call and plays what is next; removals see nothing change before them, for no look can.
    async fn play(&self, call: &'static str, what: &str, may_change: bool) -> Result<(), CriError> {
        let play = {
            let mut inner = self.0.lock().unwrap();
            inner.asked.push(format!("{call} {what}").trim().to_owned());
            inner.plays.pop_front().unwrap_or(Plays::Answers)
        };
        match play {
            Plays::Answers => Ok(()),
            Plays::Slowly => {
                tokio::time::sleep(Duration::from_secs(5)).await;
                Ok(())
            }
            Plays::Changes(change) => {
                if may_change {
                    self.0.lock().unwrap().state.undergo(&change);
                }
                Ok(())
            }
            Plays::Refuses => Err(CriError::Refused {
                call,
                code: Code::FailedPrecondition,
                message: "not now".to_owned(),
            }),
            Plays::Hangs => std::future::pending().await,
            Plays::GivenUp => Err(CriError::Hung {
                call,
                after: Duration::from_secs(20),
            }),
            Plays::Breaks => Err(CriError::Gone {
                call,
                why: "connection reset".to_owned(),
            }),
        }
    }
}

impl Inner {
    /// Whether a container was one of the newest dead ones of its name, which stay while their pod is not over.
    fn is_to_be_kept(&self, container: &str) -> bool {
        let dead = || {
            let all = self.told.containers.iter();
            all.filter(|one| one.standing == Standing::Exited)
        };
        let Some(gone) = dead().find(|one| one.id == container) else {
            return false;
        };
        let age = |one: &Container| (one.attempt, one.created_at, one.id.clone());
        let newer = dead().filter(|one| one.pod == gone.pod && one.name == gone.name);
        let newer = newer.filter(|one| age(one) > age(gone)).count();
        fate(&gone.pod) != Fate::Over && newer < self.policy.kept_containers
    }

    fn note_kubelets(&mut self, what: &str) {
        if self.told.is_kubelets() && !self.policy.beside_kubelet {
            self.crimes
                .push(format!("{what} was in a kubelet's runtime"));
        }
    }
}

/// Every text by which somebody may call an image; each runtime has its own way.
pub(crate) fn spellings(image: &Image) -> Vec<String> {
    let bare = image.id.trim_start_matches("sha256:");
    let ids = [bare.to_owned(), format!("sha256:{bare}")];
    ids.into_iter().chain(image.names.iter().cloned()).collect()
}

/// Whether a container says that it uses this image.
pub(crate) fn is_used(image: &Image, by: &Container) -> bool {
    spellings(image).iter().any(|name| by.images.contains(name))
}

/// Whether sandboxes are made of an image, by what the runtime says or by its name.
pub(crate) fn is_of_sandboxes(state: &State, image: &Image) -> bool {
    let mut all = spellings(image).into_iter();
    all.any(|name| name.contains("/pause:") || state.sandbox_images.contains(&name))
}

impl State {
    fn undergo(&mut self, change: &Change) {
        let at = |place: usize, len: usize| (len > 0).then(|| place % len);
        match *change {
            Change::Starts(place) => {
                if let Some(place) = at(place, self.images.len()) {
                    let id = format!("new-{}", self.containers.len());
                    let all = spellings(&self.images[place]);
                    let image = &all[self.containers.len() % all.len()];
                    self.containers
                        .push(container(&id, "new", Standing::Running, &[image]));
                }
            }
            Change::Pins(place) => {
                if let Some(place) = at(place, self.images.len()) {
                    self.images[place].is_pinned = true;
                }
            }
            Change::LosesImage(place) => {
                if let Some(place) = at(place, self.images.len()) {
                    self.images.remove(place);
                }
            }
            Change::LosesContainer(place) => {
                if let Some(place) = at(place, self.containers.len()) {
                    self.containers.remove(place);
                }
            }
            Change::Ends(place) => {
                if let Some(place) = at(place, self.containers.len()) {
                    self.containers[place].standing = Standing::Exited;
                }
            }
        }
    }
}

impl Runtime for Fake {
    async fn read(&self) -> Result<State, CriError> {
        self.play("read", "", true).await?;
        let mut inner = self.0.lock().unwrap();
        inner.told = inner.state.clone();
        Ok(inner.told.clone())
    }

    async fn layers(&self) -> Result<Layers, CriError> {
        self.play("layers", "", true).await?;
        Ok(Layers::new())
    }

    async fn standing(&self, container: &str) -> Result<Option<Standing>, CriError> {
        self.play("standing", container, true).await?;
        let state = self.state();
        let mut found = state.containers.iter();
        Ok(found
            .find(|one| one.id == container)
            .map(|one| one.standing))
    }

    async fn remove_container(&self, container: &str) -> Result<(), CriError> {
        self.play("remove container", container, false).await?;
        let mut inner = self.0.lock().unwrap();
        let alive = |one: &Container| one.id == container && one.standing != Standing::Exited;
        if inner.state.containers.iter().any(alive) {
            inner.crimes.push(format!("{container} was alive"));
        }
        if inner.is_to_be_kept(container) {
            inner.crimes.push(format!("{container} was to be kept"));
        }
        inner.note_kubelets(container);
        inner.state.containers.retain(|one| one.id != container);
        Ok(())
    }

    async fn remove_image(&self, image: &str, _handler: &str) -> Result<(), CriError> {
        self.play("remove image", image, false).await?;
        let mut inner = self.0.lock().unwrap();
        let state = inner.state.clone();
        let may_use = |own: &Image| {
            let mut all = state.containers.iter();
            all.any(|one| one.images.is_empty() || is_used(own, one))
        };
        for own in state.images.iter().filter(|own| own.id == image) {
            if own.is_pinned || may_use(own) || is_of_sandboxes(&state, own) {
                inner.crimes.push(format!("{image} was wanted"));
            }
        }
        inner.note_kubelets(image);
        inner.state.images.retain(|one| one.id != image);
        Ok(())
    }
}

/// A container of a pod that is called like its identity, as old as its attempt.
pub(crate) fn container(id: &str, pod: &str, standing: Standing, images: &[&str]) -> Container {
    Container {
        id: id.to_owned(),
        pod: Pod {
            uid: pod.to_owned(),
            namespace: "default".to_owned(),
            name: pod.to_owned(),
            is_of_api: false,
        },
        name: "app".to_owned(),
        attempt: 0,
        standing,
        created_at: Moment::START,
        is_kubelets: false,
        images: images.iter().map(|&name| name.to_owned()).collect(),
    }
}

/// An image without a name, of 1 MiB.
pub(crate) fn image(id: &str) -> Image {
    Image {
        id: id.to_owned(),
        bytes: 1 << 20,
        ..Image::default()
    }
}
