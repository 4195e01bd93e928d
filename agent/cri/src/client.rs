//! A runtime that answers: every call under a deadline, every way to fail told apart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::call::Call;
use crate::connection::{Connection, speaks_otherwise};
use crate::fault::{CriError, Spoken};
use crate::generated as cri;
use crate::layout::{self, Places};
use crate::state::{Layers, Standing, State, Written, mounted};

/// The host in every request's head: a socket has none.
const ORIGIN: &str = "http://localhost";
/// The version before ours has this message under another name, and the same numbers.
const ALPHA: &str = "/runtime.v1alpha2.RuntimeService/Version";
/// The largest answer, as for the kubelet: several thousand containers.
const LARGEST: usize = 16 << 20;

/// How long is waited for a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// To be let in.
    pub connect: Duration,
    /// For an answer.
    pub ask: Duration,
    /// For a removal: on a slow disk a large image takes a while.
    pub remove: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            ask: Duration::from_secs(10),
            remove: Duration::from_mins(1),
        }
    }
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What it calls itself: `containerd`, `cri-o`.
    pub name: String,
    /// Its own version.
    pub version: String,
}

/// What is asked of a runtime to plan and to act.
pub trait Runtime: Sync {
    /// All that it holds.
    ///
    /// # Errors
    /// [`CriError`]; then nothing is known.
    fn read(&self) -> impl Future<Output = Result<State, CriError>> + Send;

    /// What containers have written; without those of which the runtime has no figures.
    ///
    /// # Errors
    /// [`CriError`].
    fn layers(&self) -> impl Future<Output = Result<Layers, CriError>> + Send;

    /// What a container is doing; `None` if there is none of that identity.
    ///
    /// # Errors
    /// [`CriError`].
    fn standing(
        &self,
        container: &str,
    ) -> impl Future<Output = Result<Option<Standing>, CriError>> + Send;

    /// Removes a container; the runtime kills it if it runs. That it is gone already is no error.
    ///
    /// # Errors
    /// [`CriError`].
    fn remove_container(
        &self,
        container: &str,
    ) -> impl Future<Output = Result<(), CriError>> + Send;

    /// Removes an image, for one runtime handler or, where that is empty, for any. That it is gone already is no error.
    ///
    /// # Errors
    /// [`CriError`].
    fn remove_image(
        &self,
        image: &str,
        handler: &str,
    ) -> impl Future<Output = Result<(), CriError>> + Send;
}

/// A runtime at a socket.
#[derive(Debug)]
pub struct Client {
    grpc: Grpc<Connection>,
    connection: Connection,
    patience: Patience,
    identity: Identity,
    sandbox_images: Vec<String>,
    /// The images that are mounted in each container, which never change as long as it is there.
    mounted: Mutex<BTreeMap<String, Vec<String>>>,
}

impl Client {
    /// Connects to a socket, and asks who answers and what it makes sandboxes of. The runtime of tokio must be there.
    ///
    /// # Errors
    /// [`CriError`], each way to fail by its own name.
    pub async fn connect(socket: &Path, patience: Patience) -> Result<Self, CriError> {
        let connection = Connection::open(socket, patience.connect).await?;
        let origin = Uri::from_static(ORIGIN);
        let mut client = Self {
            grpc: Grpc::with_origin(connection.clone(), origin).max_decoding_message_size(LARGEST),
            connection,
            patience,
            identity: Identity {
                name: String::new(),
                version: String::new(),
            },
            sandbox_images: Vec::new(),
            mounted: Mutex::default(),
        };
        client.identity = client.identify(socket).await?;
        client.sandbox_images = client.sandbox_images().await?;
        Ok(client)
    }

    /// Who answers.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether the connection has ended, so that everything asked on it would fail.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Where images and writable layers lie.
    ///
    /// # Errors
    /// [`CriError`]; [`CriError::Unusable`] if the answer names no filesystem.
    pub async fn places(&self) -> Result<Places, CriError> {
        let answer = self.ask(cri::ImageFsInfoRequest {}).await?;
        layout::read(answer).ok_or_else(|| CriError::Unusable {
            call: cri::ImageFsInfoRequest::PATH,
            why: "it names no image filesystem".to_owned(),
        })
    }

    /// What containers have written that have not ended. Containerd tells it of the others too; as for the kubelet they have written
    /// nothing.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn layers_of_the_living(&self) -> Result<Layers, CriError> {
        let mut layers = self.layers().await?;
        let all = self.ask(cri::ListContainersRequest {}).await?.containers;
        let ended = all.into_iter();
        let ended = ended.filter(|one| Standing::of(one.state) == Standing::Exited);
        layers.extend(ended.map(|one| (one.id, Written::default())));
        Ok(layers)
    }

    /// Makes one call and waits for its answer as long as for any.
    ///
    /// # Errors
    /// [`CriError`].
    pub async fn ask<C: Call>(&self, request: C) -> Result<C::Answer, CriError> {
        self.call(C::PATH, request, self.patience.ask).await
    }

    async fn call<C: Call>(
        &self,
        path: &'static str,
        request: C,
        within: Duration,
    ) -> Result<C::Answer, CriError> {
        let hung = || CriError::Hung {
            call: path,
            after: within,
        };
        let mut grpc = self.grpc.clone();
        let mut request = Request::new(request);
        // So that nobody works on for somebody who has given up.
        request.set_timeout(within);
        let asked = async {
            let ready = grpc.ready().await;
            ready.map_err(|error| gone(path, &error))?;
            let path_and_query = PathAndQuery::from_static(path);
            let codec = ProstCodec::<C, C::Answer>::default();
            let answer = grpc.unary(request, path_and_query, codec).await;
            answer.map_err(|status| self.judge(path, &status))
        };
        match timeout(within, asked).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            // It has watched the clock too.
            Ok(Err(CriError::Refused {
                code: Code::DeadlineExceeded,
                ..
            })) => Err(hung()),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(hung()),
        }
    }

    /// What a status means: the runtime's word, or what has become of the connection.
    fn judge(&self, call: &'static str, status: &Status) -> CriError {
        let source = std::error::Error::source(status);
        match source {
            Some(source) => gone(call, source),
            None if self.is_closed() => gone(call, status),
            None => CriError::Refused {
                call,
                code: status.code(),
                message: status.message().to_owned(),
            },
        }
    }

    async fn identify(&self, socket: &Path) -> Result<Identity, CriError> {
        let path = cri::VersionRequest::PATH;
        let error = match self.version(path).await {
            Ok(answer) => {
                return Ok(Identity {
                    name: answer.runtime_name,
                    version: answer.runtime_version,
                });
            }
            Err(error) => error,
        };
        let spoken = match error {
            CriError::Refused {
                code: Code::Unimplemented,
                ..
            } => match self.version(ALPHA).await {
                Ok(answer) => Spoken::V1Alpha2 {
                    runtime: format!("{} {}", answer.runtime_name, answer.runtime_version),
                },
                Err(CriError::Refused { .. }) => Spoken::OnlyGrpc,
                Err(other) => return Err(other),
            },
            CriError::Gone { call, why } => {
                if !speaks_otherwise(socket, self.patience.connect).await {
                    return Err(CriError::Gone { call, why });
                }
                Spoken::NotGrpc
            }
            other => return Err(other),
        };
        Err(CriError::NoCriV1 {
            socket: socket.to_owned(),
            spoken,
        })
    }

    async fn version(&self, path: &'static str) -> Result<cri::VersionResponse, CriError> {
        let request = cri::VersionRequest::default();
        self.call(path, request, self.patience.ask).await
    }

    /// What the runtime is configured to make sandboxes of; nothing where it does not say.
    async fn sandbox_images(&self) -> Result<Vec<String>, CriError> {
        match self.ask(cri::StatusRequest { verbose: true }).await {
            Ok(answer) => Ok(answer.info.values().flat_map(|text| named(text)).collect()),
            // The images it makes sandboxes of are known by their names too, and pinned by newer runtimes.
            Err(error) if error.is_of_one_call() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Asks for the images that are mounted in the containers that may run, each once.
    async fn ask_for_mounts(&self, containers: &[cri::Container]) -> Result<(), CriError> {
        let alive = |one: &&cri::Container| Standing::of(one.state) != Standing::Exited;
        let alive: BTreeSet<&str> = containers
            .iter()
            .filter(alive)
            .map(|one| &*one.id)
            .collect();
        let missing: Vec<&str> = {
            let mut known = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|id, _| alive.contains(id.as_str()));
            let missing = alive.iter().filter(|id| !known.contains_key(**id));
            missing.copied().collect()
        };
        for id in missing {
            // One that has gone since the list was made mounts nothing.
            let Some(status) = self.status(id).await? else {
                continue;
            };
            let mut known = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(id.to_owned(), mounted(&status));
        }
        Ok(())
    }

    async fn status(&self, container: &str) -> Result<Option<cri::ContainerStatus>, CriError> {
        let request = cri::ContainerStatusRequest {
            container_id: container.to_owned(),
        };
        match self.ask(request).await {
            Ok(answer) => Ok(answer.status),
            Err(CriError::Refused {
                code: Code::NotFound,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Runtime for Client {
    async fn read(&self) -> Result<State, CriError> {
        // Containers last: whoever starts one on an image that was listed before is seen.
        let images = self.ask(cri::ListImagesRequest {}).await?.images;
        let sandboxes = self.ask(cri::ListPodSandboxRequest {}).await?.items;
        let containers = self.ask(cri::ListContainersRequest {}).await?.containers;
        self.ask_for_mounts(&containers).await?;
        let mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        let state = State::of(containers, sandboxes, images, &mounted);
        Ok(State {
            sandbox_images: self.sandbox_images.clone(),
            ..state
        })
    }

    async fn layers(&self) -> Result<Layers, CriError> {
        let answer = self.ask(cri::ListContainerStatsRequest {}).await?;
        let layer = |one: cri::ContainerStats| {
            let id = one.attributes?.id;
            let layer = one.writable_layer?;
            let written = Written {
                bytes: layer.used_bytes?.value,
                inodes: layer.inodes_used.map_or(0, |figure| figure.value),
                at: layer.timestamp,
            };
            // So containerd tells of one that it has not measured yet, after its own start for instance.
            let is_measured = written != Written::default();
            is_measured.then_some((id, written))
        };
        Ok(answer.stats.into_iter().filter_map(layer).collect())
    }

    async fn standing(&self, container: &str) -> Result<Option<Standing>, CriError> {
        let status = self.status(container).await?;
        Ok(status.map(|status| Standing::of(status.state)))
    }

    async fn remove_container(&self, container: &str) -> Result<(), CriError> {
        let request = cri::RemoveContainerRequest {
            container_id: container.to_owned(),
        };
        let path = cri::RemoveContainerRequest::PATH;
        let answer = self.call(path, request, self.patience.remove).await;
        gone_is_removed(answer.map(drop))
    }

    async fn remove_image(&self, image: &str, handler: &str) -> Result<(), CriError> {
        let request = cri::RemoveImageRequest {
            image: Some(cri::ImageSpec {
                image: image.to_owned(),
                runtime_handler: handler.to_owned(),
                ..cri::ImageSpec::default()
            }),
        };
        let path = cri::RemoveImageRequest::PATH;
        let answer = self.call(path, request, self.patience.remove).await;
        gone_is_removed(answer.map(drop))
    }
}

fn gone_is_removed(answer: Result<(), CriError>) -> Result<(), CriError> {
    match answer {
        Err(CriError::Refused {
            code: Code::NotFound,
            ..
        }) => Ok(()),
        other => other,
    }
}

/// An error of the connection, in its own words and those of its causes.
fn gone(call: &'static str, error: &dyn std::error::Error) -> CriError {
    let mut why = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !why.contains(&more) {
            why = format!("{why}: {more}");
        }
        cause = error.source();
    }
    CriError::Gone { call, why }
}

/// The images of sandboxes in a runtime's own words, which are JSON: `sandboxImage` of containerd before 2.0, and what it calls
/// `sandbox` among its `pinnedImages` since.
fn named(text: &str) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else {
        return Vec::new();
    };
    let places = ["/sandboxImage", "/pinnedImages/sandbox"];
    let found = places
        .iter()
        .filter_map(|place| value.pointer(place)?.as_str());
    let found = found.filter(|name| !name.is_empty()).map(str::to_owned);
    found.collect()
}

/// The socket of the first runtime that answers, with what was wrong with each before it.
///
/// # Errors
/// What was wrong with each, if none answers; nothing if there is none to try.
pub async fn connect_first(
    sockets: &[PathBuf],
    patience: Patience,
) -> Result<(PathBuf, Client), Vec<CriError>> {
    let mut errors = Vec::new();
    for socket in sockets {
        match Client::connect(socket, patience).await {
            Ok(client) => return Ok((socket.clone(), client)),
            Err(error) => errors.push(error),
        }
    }
    Err(errors)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
