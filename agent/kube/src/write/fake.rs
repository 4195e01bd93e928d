//! An API server out of a function, for tests: what was asked is written down, and answers are as the test wants them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// One request that was made.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// How a request is answered.
#[derive(Clone, Debug)]
pub(crate) enum Plays {
    /// With this code and body.
    Says(u16, Value),
    /// That it is busy, and wants to be left alone for so many seconds.
    PutsOff(u64),
    /// By nobody: the connection is broken.
    Breaks,
    /// It is taken, and its answer never comes.
    Hangs,
}

/// The server. Without a wish for the next answer it says yes to everything.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    next: VecDeque<Plays>,
    /// Every answer, as long as it is set.
    always: Option<Plays>,
    version: u64,
    objects: Vec<(String, Value)>,
}

impl Fake {
    pub(crate) fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.map_err(std::io::Error::other)?;
                let asked = Asked {
                    method: parts.method.to_string(),
                    path: parts.uri.path().to_owned(),
                    body: serde_json::from_slice(&bytes).unwrap_or_default(),
                };
                match fake.play(asked) {
                    Plays::Breaks => Err(std::io::Error::other("connection refused")),
                    Plays::Hangs => std::future::pending().await,
                    Plays::PutsOff(seconds) => Ok(Response::builder()
                        .status(429)
                        .header(http::header::RETRY_AFTER, seconds)
                        .body(Body::empty())
                        .unwrap()),
                    Plays::Says(code, body) => Ok(Response::builder()
                        .status(code)
                        .body(Body::from(body.to_string().into_bytes()))
                        .unwrap()),
                }
            }
        });
        Client::new(service, "default")
    }

    /// The next request is answered like that.
    pub(crate) fn then(&self, plays: Plays) {
        self.0.lock().unwrap().next.push_back(plays);
    }

    /// Every request is answered like that, until it is lifted.
    pub(crate) fn always(&self, plays: Option<Plays>) {
        self.0.lock().unwrap().always = plays;
    }

    /// What a path answers with when it is asked for.
    pub(crate) fn has(&self, path: &str, object: Value) {
        let mut state = self.0.lock().unwrap();
        state.objects.retain(|(known, _)| known != path);
        state.objects.push((path.to_owned(), object));
    }

    /// What was asked so far: `METHOD path`.
    pub(crate) fn lines(&self) -> Vec<String> {
        let asked = self.asked();
        let lines = asked
            .iter()
            .map(|asked| format!("{} {}", asked.method, asked.path));
        lines.collect()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.0.lock().unwrap().asked.clone()
    }

    fn play(&self, asked: Asked) -> Plays {
        let mut state = self.0.lock().unwrap();
        let path = asked.path.clone();
        let uid = asked.body["metadata"]["uid"].clone();
        state.asked.push(asked);
        state.version += 1;
        if let Some(plays) = state.always.clone() {
            return plays;
        }
        if let Some(plays) = state.next.pop_front() {
            return plays;
        }
        if let Some((_, object)) = state.objects.iter().find(|(known, _)| *known == path) {
            return Plays::Says(200, object.clone());
        }
        let version = state.version.to_string();
        let mut metadata = json!({ "resourceVersion": version });
        if uid.is_string() {
            metadata["uid"] = uid;
        }
        Plays::Says(200, json!({ "metadata": metadata }))
    }
}
