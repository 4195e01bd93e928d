//! A list of pods that is held to a number of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{MOST_PODS, Pod};

/// Pods by uid, and the uids of those for which there was no room.
#[derive(Default)]
pub(super) struct List {
    pub(super) pods: BTreeMap<Box<str>, Pod>,
    pub(super) left_out: BTreeSet<Box<str>>,
}

impl List {
    /// Takes a whole list. What is the same stays the same piece of memory: whoever has read it need not read it again.
    pub(super) fn replace(&mut self, mut whole: Self) -> bool {
        let mut is_news = whole.pods.len() != self.pods.len();
        for (uid, pod) in &mut whole.pods {
            match self.pods.remove(uid) {
                Some(known) if known.json == pod.json => pod.json = known.json,
                _ => is_news = true,
            }
        }
        is_news |= whole.left_out != self.left_out;
        *self = whole;
        is_news
    }

    /// Puts a pod in; where there is no room one that has ended makes some, or the pod is left out.
    pub(super) fn insert(&mut self, pod: Pod) {
        let uid = pod.uid.clone();
        let has_room = self.pods.len() < MOST_PODS || self.pods.contains_key(&uid);
        if uid.is_empty() || !(has_room || self.make_room(&pod)) {
            if self.left_out.len() < MOST_PODS {
                self.left_out.insert(uid);
            }
            return;
        }
        self.left_out.remove(&uid);
        self.pods.insert(uid, pod);
    }

    /// Leaves out a pod that has ended, for one that has not.
    fn make_room(&mut self, pod: &Pod) -> bool {
        let ended = self.pods.iter().find(|(_, known)| known.is_over);
        let Some(uid) = ended.map(|(uid, _)| uid.clone()).filter(|_| !pod.is_over) else {
            return false;
        };
        self.pods.remove(&uid);
        if self.left_out.len() < MOST_PODS {
            self.left_out.insert(uid);
        }
        true
    }

    /// Whether anything is others now.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let was_left_out = self.left_out.remove(uid);
        self.pods.remove(uid).is_some() || was_left_out
    }
}
