//! The postman: tells the API server what is in the outbox, until it is told or never can be.

use std::sync::Arc;
use std::time::Duration;

use brink_core::base::Moment;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use super::answer::{Act, Verdict};
use super::door::Door;
use super::plan::{Next, Plan, Seen, Told};
use super::{body, request};
use crate::outbox::{End, Entry, Files, Key};

/// However far away everything is, the postman wakes then, and looks whether anybody has something for it.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// What the postman asks of those around it.
pub trait Around: Send + Sync + 'static {
    /// Now, `CLOCK_MONOTONIC`.
    fn now(&self) -> Moment;
    /// What is seen of the pod with that uid.
    fn seen(&self, uid: &str) -> Seen;
    /// The postman is awake: whatever waits for its time may be put in. When that is to happen next, if it is known.
    fn wake(&self) -> Option<Moment>;
    /// Something has become of an entry.
    fn told(&self, told: &Told);
}

/// Tells what comes in. It ends when nobody can put anything in any more; what is owed then stays on disk.
pub struct Postman<A> {
    /// The way to the server.
    pub door: Door,
    /// Name of this node.
    pub node: String,
    /// Anything that differs from run to run: no two wait alike.
    pub seed: u64,
    /// The outbox.
    pub files: Arc<Files>,
    /// What is new in it.
    pub new: Receiver<Entry>,
    /// Changes when the pods of this node do, or when the server is heard of again.
    pub pods: watch::Receiver<u64>,
    /// Tells that what is in the outbox is ours to tell from now on, or that there is more in it than was sent.
    pub ours: Arc<Notify>,
    /// Those around it.
    pub around: Arc<A>,
}

impl<A: Around> Postman<A> {
    /// Tells what comes, and what was left in the outbox once it is ours.
    pub async fn run(mut self) {
        let mut plan = Plan::new(&self.node, self.seed);
        let mut has_new = false;
        loop {
            let due = self.around.wake();
            while let Ok(entry) = self.new.try_recv() {
                self.take(&mut plan, entry);
                has_new = true;
            }
            // What has just come in is told before all others are looked at: whoever was killed must not be started again meanwhile.
            let mut next = plan.next(self.around.now());
            if !(std::mem::take(&mut has_new) && matches!(next, Next::Do(..))) {
                self.look(&mut plan);
                if plan.is_refused() && self.door.has_changed().await {
                    plan.ask_again();
                }
                next = plan.next(self.around.now());
            }
            let next = match next {
                Next::Do(key, act) => {
                    self.act(&mut plan, &key, act).await;
                    continue;
                }
                Next::Wait(until) => Some(until),
                Next::Idle => None,
            };
            let next = next.into_iter().chain(due).min();
            let wait = next.map_or(i64::MAX, |at| at.since(self.around.now()).as_nanos());
            let wait = Duration::from_nanos(u64::try_from(wait).unwrap_or(0));
            tokio::select! {
                entry = self.new.recv() => match entry {
                    Some(entry) => {
                        self.take(&mut plan, entry);
                        has_new = true;
                    }
                    None => return,
                },
                changed = self.pods.changed() => match changed {
                    // Whoever sees the pods has heard of the server.
                    Ok(()) => plan.open(),
                    Err(_) => return,
                },
                () = self.ours.notified() => self.take_up(&mut plan),
                () = sleep(wait.min(LONGEST_SLEEP)) => {}
            }
        }
    }

    /// What another run left, also an agent that was beside us until now; and what found no room on its way to us.
    fn take_up(&self, plan: &mut Plan) {
        match self.files.list() {
            Ok((left, troubles)) => {
                for trouble in troubles {
                    warn!(
                        trouble,
                        "an entry of the outbox is not in order, and stays where it is"
                    );
                }
                if !left.is_empty() {
                    info!(
                        entries = left.len(),
                        "there is what Kubernetes is still to be told"
                    );
                }
                for entry in left {
                    if plan.entry(&entry.key).is_some() {
                        continue;
                    }
                    self.around.told(&Told {
                        entry: entry.clone(),
                        waits: None,
                        is_changed: false,
                        is_over: false,
                    });
                    self.add(plan, entry);
                }
            }
            Err(error) => warn!(%error, "what the last run left for Kubernetes is not known"),
        }
    }

    /// One more. It is made to outlive the machine while it is being told.
    fn take(&self, plan: &mut Plan, entry: Entry) {
        let (files, key) = (Arc::clone(&self.files), entry.key.clone());
        self.add(plan, entry);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = files.sync(&key) {
                warn!(%error, key = key.text(), "an entry of the outbox may be lost if the machine falls now");
            }
        });
    }

    fn add(&self, plan: &mut Plan, entry: Entry) {
        let key = entry.key.text();
        if !plan.add(entry, self.around.now()) {
            warn!(
                key,
                "too much waits for the API server; what is on disk of this is told after a restart"
            );
        }
    }

    fn look(&self, plan: &mut Plan) {
        let around = &self.around;
        for told in plan.look(|uid| around.seen(uid), around.now()) {
            self.keep(&told);
        }
    }

    async fn act(&mut self, plan: &mut Plan, key: &Key, act: Act) {
        let Some(entry) = plan.entry(key) else {
            return;
        };
        let ready = match (act, &entry.status) {
            (Act::Status, Some(eviction)) => {
                let patch = body::evicted(&entry.pod.uid, eviction);
                request::pod_status(&entry.pod, &patch)
            }
            (Act::Event, _) => {
                request::event(&entry.pod.namespace, &body::event(entry, &self.node))
            }
            (Act::Look | Act::Status, _) => request::pod_metadata(&entry.pod),
        };
        let uid = entry.pod.uid.clone();
        let told = match ready {
            Ok(ready) => {
                let verdict = Verdict::of(act, &uid, &self.door.ask(Ok(ready)).await);
                plan.settle(key, act, verdict, self.around.now())
            }
            Err(error) => {
                let end = End::Refused(format!("no such name: {error}"));
                plan.give_up(key, act, end)
            }
        };
        if let Some(told) = told {
            self.keep(&told);
        }
    }

    /// Writes down what has become of an entry, and tells it.
    fn keep(&self, told: &Told) {
        let key = &told.entry.key;
        let kept = if told.is_over {
            self.files.remove(key).map_err(|error| error.to_string())
        } else if told.is_changed {
            self.files
                .update(&told.entry)
                .map_err(|error| error.to_string())
        } else {
            Ok(())
        };
        if let Err(error) = kept {
            warn!(%error, key = key.text(), "the outbox cannot be kept up; this may be told again");
        }
        self.around.told(told);
    }
}

#[cfg(test)]
#[path = "deliver_tests.rs"]
mod tests;
