//! Putting an entry into the outbox: on disk, into the record and on its way; and what an agent before us had no time to put in.

use brink_core::node::policy::Policy;
use brink_core::node::workload::Workload;
use brink_kube::outbox::{Cause, Entry, Part, PutError, last};
use tracing::warn;

use super::super::Tell as _;
use super::{Speaker, lock};
use crate::guard::ports::Evicted;
use crate::record::DecisionRecord;
use crate::record::told::ToldView;
use crate::runtime::kept;

impl Speaker {
    /// Puts it on disk, into the record and on its way; what finds no room is said.
    pub(super) fn put(&self, entry: Entry) {
        let key = entry.key.clone();
        let is_kept = match self.files.put(&entry) {
            Ok(()) => true,
            Err(error @ PutError::Full) => return self.give_up(&entry, error.to_string()),
            Err(error) => {
                warn!(%error, pod = entry.pod.name, "what Kubernetes is to be told would not outlive this agent");
                false
            }
        };
        lock(&self.owed).insert(key.clone());
        // Before anybody can have told it.
        if let Cause::Order(order) = key.of {
            self.remember(order, view(&entry, None));
        }
        match self.new.try_send(entry) {
            Ok(()) => {}
            Err(_) if is_kept => self.ours.notify_one(),
            Err(error) => {
                let why = "too much is on its way, and there is no room on disk".to_owned();
                return self.give_up(&error.into_inner(), why);
            }
        }
        if let Cause::Order(_) = key.of
            && let Err(error) = kept::write(&self.last, &key)
        {
            warn!(%error, path = %self.last.display(), "a restart may not tell what is lost on the way to Kubernetes");
        }
    }

    /// There is no room for it: nobody is ever told.
    fn give_up(&self, entry: &Entry, why: String) {
        let (key, pod, refused) = (entry.key.text(), &entry.pod.name, self.files.refused());
        warn!(
            key,
            pod, why, refused, "there is no room for what Kubernetes is to be told"
        );
        lock(&self.owed).remove(&entry.key);
        if let Cause::Order(order) = entry.key.of {
            let word = |part: &Part| match part {
                Part::None => "none".to_owned(),
                _ => "ended".to_owned(),
            };
            let view = ToldView {
                status: word(&entry.status_part),
                event: word(&entry.event_part),
                why: Some(why),
            };
            self.remember(order, view);
        }
    }

    /// The last order of this boot that was put in; none where there was none, or that is not known.
    fn last(&self) -> Option<u64> {
        let unknown = |error: &dyn std::fmt::Display| {
            warn!(%error, path = %self.last.display(), "it is not known what Kubernetes was told");
        };
        let text = kept::read_bytes(&self.last, last::LARGEST)
            .inspect_err(|error| unknown(error))
            .ok()??;
        last::read(&text, &self.boot)
            .inspect_err(|error| unknown(error))
            .ok()?
    }

    /// Puts in those that were evicted lately, and that the outbox never had. What was evicted longer ago runs again: nobody killed
    /// it again meanwhile.
    pub(super) fn recall(&self, evicted: &[Evicted]) {
        let last = self.last().unwrap_or(0);
        let is_owed = |record: &DecisionRecord| {
            let order = record.order;
            order > last && evicted.iter().any(|evicted| evicted.order == order)
        };
        let owed: Vec<(DecisionRecord, Workload, Policy)> = {
            let state = self.shared.lock();
            let mut all = state.decisions.iter().collect::<Vec<_>>();
            all.retain(|record| is_owed(record) && record.boot_id == self.boot);
            let victims = all.into_iter().filter_map(|record| {
                let victim = state.workload(&record.victim.uid)?;
                Some((record.clone(), victim.clone(), state.policy.clone()))
            });
            victims.collect()
        };
        for (record, victim, policy) in owed {
            self.ordered(&record, &victim, &policy);
        }
    }

    /// Has the record of an order say how far it has come.
    pub(super) fn remember(&self, order: u64, view: ToldView) {
        let mut state = self.shared.lock();
        let mut known = state.decisions.iter_mut().rev();
        if let Some(record) = known.find(|record| record.order == order) {
            record.kubernetes = Some(view);
        }
    }
}

/// How far an entry has come, for the record.
pub(super) fn view(entry: &Entry, waits: Option<String>) -> ToldView {
    let word = |part: &Part| match part {
        Part::None => "none",
        Part::Owed => "waiting",
        Part::Done => "told",
        Part::Ended(_) => "ended",
    };
    let ended = [&entry.status_part, &entry.event_part];
    let ended = ended.into_iter().find_map(|part| match part {
        Part::Ended(end) => Some(end.words()),
        _ => None,
    });
    ToldView {
        status: word(&entry.status_part).to_owned(),
        event: word(&entry.event_part).to_owned(),
        why: waits.or(ended),
    }
}
