//! What is known of writable layers: what the runtime told last, for as long as it tells nothing newer.
//!
//! A runtime that is restarted, or takes its time, does not undo what containers have written. So what it listed last goes on to
//! rank them, with its age told. A container it has never told of is one that nobody has measured yet: it may hold most of all.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use brink_core::node::workload::FsUsage;

use super::{Heard, Told};
use crate::disks::answer::Folders;
use crate::storage::measured::Found;
use crate::storage::owned::Owned;

/// What is known of them. By default nobody has told anything.
#[derive(Default)]
pub(in crate::storage) struct Kept {
    /// By the ids of containers, all of one answer: it holds no more than the runtime did.
    layers: HashMap<String, FsUsage>,
    /// When that answer came.
    told: Option<Instant>,
    /// How long before it was asked for the oldest of its figures was taken.
    behind: Duration,
    /// Why the last question has none.
    why: Option<String>,
}

/// A runtime that does not tell what containers have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::storage) struct Silence {
    /// Why not.
    why: String,
    /// When it told it last.
    told: Option<Instant>,
}

impl Kept {
    /// Takes an answer over, and gives back where images and layers lie, if that is told.
    pub(in crate::storage) fn hear(&mut self, (answer, at): Heard) -> Option<Folders> {
        match answer {
            Ok(told) => {
                let Told {
                    mut layers,
                    folders,
                    mut behind,
                } = told;
                if self.fill_in(&mut layers) {
                    let since = self.told.map(|before| at.saturating_duration_since(before));
                    behind = behind.max(self.behind.saturating_add(since.unwrap_or_default()));
                }
                (self.layers, self.behind) = (layers, behind);
                (self.told, self.why) = (Some(at), None);
                folders
            }
            Err(why) => {
                self.why = Some(why);
                None
            }
        }
    }

    /// Puts what was told before where a runtime has no figures: one that was started anew has measured nothing yet, and what containers
    /// have written is there all the same. Whether that was done.
    fn fill_in(&self, layers: &mut HashMap<String, FsUsage>) -> bool {
        let nothing = FsUsage::default();
        let mut is_done = false;
        for (id, used) in layers {
            let before = self.layers.get(id).copied();
            let before = before.filter(|&before| before != nothing && *used == nothing);
            if let Some(before) = before {
                (*used, is_done) = (before, true);
            }
        }
        is_done
    }

    /// Puts what is known of a workload's containers to what was found of it.
    pub(in crate::storage) fn put_into(&self, found: &mut Found, owned: &Owned) {
        let all = owned.containers.iter().map(|(_, id)| (id, self.of(id)));
        let known = |(id, layer): (&String, Option<FsUsage>)| Some((id.clone(), layer?));
        found.lacks_layers = all.clone().any(|(_, layer)| layer.is_none());
        found.layers = all.filter_map(known).collect();
    }

    /// What a container has written, without figures where the runtime has none; nothing where it is still to tell.
    fn of(&self, id: &str) -> Option<FsUsage> {
        // One that has come since it told, and of which it will tell at the next question, has just begun to write.
        let answers = self.told.is_some() && self.why.is_none();
        let known = self.layers.get(id).copied();
        known.or_else(|| answers.then(FsUsage::default))
    }

    /// How long before the last question that has an answer the oldest figure was taken.
    pub(in crate::storage) const fn behind(&self) -> Duration {
        self.behind
    }

    /// Whether nobody has been asked yet.
    pub(in crate::storage) const fn is_unasked(&self) -> bool {
        self.told.is_none() && self.why.is_none()
    }

    /// Whether the last question has no answer, so that what is known is older than it should be.
    pub(in crate::storage) const fn is_old(&self) -> bool {
        self.why.is_some()
    }

    /// Why it has none, and how old that makes what is known.
    pub(in crate::storage) fn silence(&self) -> Option<Silence> {
        self.why.clone().map(|why| Silence {
            why,
            told: self.told,
        })
    }
}

impl Silence {
    /// What there is to be said of it.
    pub(in crate::storage) fn in_words(&self, now: Instant) -> String {
        let why = &self.why;
        match self.told {
            Some(told) => format!(
                "what containers have written in the last {} s; what was known before ranks them, and counts against no limit: {why}",
                now.saturating_duration_since(told).as_secs()
            ),
            None => format!("what containers have written: {why}"),
        }
    }

    /// Why not.
    pub(in crate::storage) fn why(&self) -> &str {
        &self.why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(bytes: u64) -> FsUsage {
        FsUsage {
            bytes: Some(bytes),
            inodes: None,
        }
    }

    /// An answer that tells so much of these.
    fn told(all: &[(&str, FsUsage)]) -> Told {
        let layers = all.iter().map(|(id, used)| ((*id).to_owned(), *used));
        Told {
            layers: layers.collect(),
            ..Told::default()
        }
    }

    /// What is known of the container of this id, and whether that is all there is to be known.
    fn known(kept: &Kept, id: &str) -> (Option<FsUsage>, bool) {
        let owned = Owned::default().with_containers(vec![("app".to_owned(), id.to_owned())]);
        let mut found = Found::default();
        kept.put_into(&mut found, &owned);
        (found.layers.get(id).copied(), !found.lacks_layers)
    }

    #[test]
    fn what_was_told_last_stands_and_what_never_was_is_still_to_be_measured() {
        let (mut kept, begin) = (Kept::default(), Instant::now());
        let refused = || Err("it hangs".to_owned());
        assert_eq!(known(&kept, "a"), (None, false), "nobody was asked");
        assert!(kept.is_unasked());
        kept.hear((refused(), begin));
        assert!(!kept.is_unasked());
        assert_eq!(known(&kept, "a"), (None, false));
        let words = kept.silence().unwrap().in_words(begin);
        assert_eq!(words, "what containers have written: it hangs");
        kept.hear((
            Ok(told(&[("a", used(5)), ("dead", FsUsage::default())])),
            begin,
        ));
        assert!(kept.silence().is_none() && !kept.is_old());
        assert_eq!(known(&kept, "a"), (Some(used(5)), true));
        let nothing = (Some(FsUsage::default()), true);
        assert_eq!(known(&kept, "new"), nothing, "it is told of next");
        kept.hear((refused(), begin + Duration::from_secs(9)));
        assert_eq!(known(&kept, "a"), (Some(used(5)), true));
        assert_eq!(known(&kept, "dead"), nothing, "nobody has figures of it");
        assert_eq!(known(&kept, "new"), (None, false));
        let words = kept.silence().unwrap();
        let words = words.in_words(begin + Duration::from_secs(75));
        assert!(words.contains("in the last 75 s;"), "{words}");
        assert!(kept.is_old());
        kept.hear((Ok(told(&[("new", used(7))])), begin));
        assert_eq!(known(&kept, "new"), (Some(used(7)), true));
        assert_eq!(kept.layers.len(), 1, "who is gone is forgotten");
    }

    #[test]
    fn what_was_told_before_stands_where_a_runtime_that_answers_has_measured_nothing_yet() {
        let (mut kept, begin) = (Kept::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        kept.hear((Ok(told(&[("a", used(5)), ("b", used(6))])), begin));
        assert_eq!(kept.behind(), Duration::ZERO);
        // It was started anew, and the second container has ended.
        let anew = told(&[("a", FsUsage::default()), ("b", used(0))]);
        kept.hear((Ok(anew), at(7)));
        assert_eq!(known(&kept, "a"), (Some(used(5)), true));
        assert_eq!(known(&kept, "b"), (Some(used(0)), true));
        assert_eq!(kept.behind(), Duration::from_secs(7), "and is as old");
        kept.hear((Ok(told(&[("a", used(9))])), at(9)));
        assert_eq!(known(&kept, "a"), (Some(used(9)), true));
        assert_eq!(kept.behind(), Duration::ZERO);
    }
}
