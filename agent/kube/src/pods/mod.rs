//! The pods of this node as the API has them, kept for whoever binds them to control groups.
//!
//! What is kept of each is a piece of JSON of about a kilobyte, trimmed as it arrives. It stays when the API is away, and
//! [`kept`] makes it outlive the agent: protection goes on from what was known last.

pub mod follow;
pub mod kept;
mod list;
#[cfg(test)]
mod tests;
mod trim;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brink_core::node::message::{PHASE, REASON};
use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::Value;
use tokio::sync::watch;

use self::list::List;
use crate::watch::{Change, Object};
use crate::write::plan::Seen;

/// Pods that are kept; a node with more of them has gone wild, and is told.
pub const MOST_PODS: usize = 2048;

/// The most that is kept of a pod, in bytes of JSON; fifty containers fit. Of a larger one hardly more than its name is kept.
pub const LARGEST_POD: usize = 32 << 10;

/// A pod, trimmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.uid`, the API's own; a static pod's control groups have another.
    pub uid: Box<str>,
    /// The object as JSON, without its version: two that differ in nothing else are the same.
    pub json: Arc<[u8]>,
    /// Whether it has ended: nothing will run of it any more.
    pub is_over: bool,
    /// Whether its status says why it failed as an eviction does, or it has not failed.
    keeps_reason: bool,
    /// Whether it was larger than [`LARGEST_POD`], and its annotations, containers and requests are dropped.
    pub is_stub: bool,
    version: Box<str>,
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut pod = trim::read(deserializer)?;
        let version = match pod.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            Some(metadata) => metadata.remove("resourceVersion"),
            None => return Err(D::Error::custom("a pod without metadata")),
        };
        let text = |value: Option<&Value>| -> Box<str> {
            value.and_then(Value::as_str).unwrap_or_default().into()
        };
        let phase = text(pod.pointer("/status/phase"));
        let is_evicted = &*text(pod.pointer("/status/reason")) == REASON;
        let uid = text(pod.pointer("/metadata/uid"));
        let mut json = serde_json::to_vec(&pod).map_err(D::Error::custom)?;
        let is_stub = json.len() > LARGEST_POD;
        if is_stub {
            let stub = trim::stub(pod).map_err(D::Error::custom)?;
            json = serde_json::to_vec(&stub).map_err(D::Error::custom)?;
        }
        Ok(Self {
            uid,
            version: text(version.as_ref()),
            is_over: matches!(&*phase, "Succeeded" | PHASE),
            keeps_reason: &*phase != PHASE || is_evicted,
            is_stub,
            json: json.into(),
        })
    }
}

impl Object for Pod {
    fn resource_version(&self) -> &str {
        &self.version
    }
}

/// How the list of pods stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether the API server is reached and the list up to date.
    pub connected: bool,
    /// Since when that is so, or not so; none before the first attempt has ended.
    pub since: Option<Timestamp>,
    /// Why it is not reached.
    pub why: Option<String>,
    /// Pods that are known.
    pub pods: usize,
    /// When the list was last known to be up to date; none if it never was.
    pub as_of: Option<Timestamp>,
    /// Pods of now that are not known, since there was no room when they were told of; at most [`MOST_PODS`] are counted.
    pub left_out: u64,
    /// Attempts that have failed.
    pub failures: u64,
}

/// The list, shared by who fills it and who reads it.
pub struct Pods {
    inner: Mutex<Inner>,
    /// Called after each change of what pods are.
    ring: Box<dyn Fn() + Send + Sync>,
    /// Counts what is heard of pods, and whenever the server is heard of again.
    heard: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    list: List,
    /// A new list while it arrives.
    arriving: Option<List>,
    /// Counts the changes.
    changes: u64,
    standing: Standing,
}

impl Pods {
    /// An empty list. `ring` is called after each change, and must not call back.
    pub fn new(ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            inner: Mutex::default(),
            ring: Box::new(ring),
            heard: watch::Sender::default(),
        }
    }

    /// Begins with what was known to the last run, as of then.
    pub fn recall(&self, pods: Vec<Pod>, as_of: Timestamp) {
        let mut inner = self.lock();
        inner.arriving = None;
        for pod in pods {
            inner.list.insert(pod);
        }
        inner.changes += 1;
        inner.standing.as_of = Some(as_of);
    }

    /// All pods, by uid, and a number that is another after each change.
    pub fn snapshot(&self) -> (u64, Vec<Pod>) {
        let inner = self.lock();
        (inner.changes, inner.list.pods.values().cloned().collect())
    }

    /// How the list stands; `as_of` is `now` while the server is reached.
    pub fn standing(&self, now: Timestamp) -> Standing {
        let inner = self.lock();
        let mut standing = inner.standing.clone();
        standing.pods = inner.list.pods.len();
        standing.left_out = inner.list.left_out.len() as u64;
        if standing.connected {
            standing.as_of = Some(now);
        }
        standing
    }

    /// Whether a pod has not ended, by its API uid; nothing if it is not known.
    pub fn is_running(&self, uid: &str) -> Option<bool> {
        self.lock().list.pods.get(uid).map(|pod| !pod.is_over)
    }

    /// A pod that is known, by its API uid.
    pub fn get(&self, uid: &str) -> Option<Pod> {
        self.lock().list.pods.get(uid).cloned()
    }

    /// What is seen of a pod, by its API uid. Of one that is not known it is only known to be gone while the server is reached.
    pub fn seen(&self, uid: &str) -> Seen {
        let inner = self.lock();
        match inner.list.pods.get(uid) {
            Some(pod) => Seen::There {
                is_terminal: pod.is_over,
                keeps_reason: pod.keeps_reason,
                version: pod.version.parse().ok(),
            },
            None if inner.standing.connected => Seen::Gone,
            None => Seen::Unknown,
        }
    }

    /// Changes whenever something is heard of a pod, and whenever the server is heard of again.
    pub fn heard(&self) -> watch::Receiver<u64> {
        self.heard.subscribe()
    }

    /// Takes what the watch told.
    pub fn take(&self, change: Change<Pod>, now: Timestamp) {
        let (is_news, is_heard) = {
            let mut inner = self.lock();
            let was_connected = inner.standing.connected;
            let is_of_a_pod = matches!(&change, Change::Applied(_) | Change::Deleted(_));
            let is_news = inner.take(change, now);
            let is_back = inner.standing.connected && !was_connected;
            (is_news, is_news || is_of_a_pod || is_back)
        };
        if is_heard {
            self.heard.send_modify(|heard| *heard += 1);
        }
        if is_news {
            (self.ring)();
        }
    }

    /// The server is not reached; what is known stands.
    pub fn lost(&self, why: String, now: Timestamp) {
        let mut inner = self.lock();
        inner.arriving = None;
        let standing = &mut inner.standing;
        standing.failures += 1;
        if standing.connected {
            standing.as_of = Some(now);
        }
        if standing.connected || standing.since.is_none() {
            standing.since = Some(now);
        }
        standing.connected = false;
        standing.why = Some(why);
    }

    /// Every change leaves it whole, so one who died holding it harms nobody.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Whether pods are others now.
    fn take(&mut self, change: Change<Pod>, now: Timestamp) -> bool {
        let is_news = match change {
            Change::Began => {
                self.arriving = Some(List::default());
                false
            }
            Change::Found(pod) => {
                self.arriving.get_or_insert_default().insert(pod);
                false
            }
            Change::Complete => {
                self.reached(now);
                let whole = self.arriving.take();
                whole.is_some_and(|whole| self.list.replace(whole))
            }
            Change::Opened => {
                self.reached(now);
                false
            }
            Change::Applied(pod) => {
                let known = self
                    .list
                    .pods
                    .get_mut(&pod.uid)
                    .filter(|known| known.json == pod.json);
                let is_same = known.is_some();
                match known {
                    // The same piece of memory, under its newest version.
                    Some(known) => known.version = pod.version,
                    None => self.list.insert(pod),
                }
                !is_same
            }
            Change::Deleted(pod) => self.list.remove(&pod.uid),
        };
        self.changes += u64::from(is_news);
        is_news
    }

    fn reached(&mut self, now: Timestamp) {
        if !self.standing.connected {
            self.standing.connected = true;
            self.standing.since = Some(now);
            self.standing.why = None;
        }
    }
}
