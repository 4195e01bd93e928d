//! The search for cgroups that are new or gone, and who gets a slot where there are more cgroups than slots.
//!
//! Parents are listed first, so that on a crowded node containers come last. Whoever is new gets a free slot, else that of one that
//! is gone. Where there is neither, only one with a limit of its own gets a slot: that of the one that uses least among those that
//! have no limit and are not near. So nobody without a limit ever drives anybody out, and who was driven out comes back only to a
//! slot that nobody has. To know who has a limit, one file of each that is left out is read, but of no more than `LOOKS` a search,
//! and of none twice within `LIMITS` rounds: those first whose limit was never read, then those longest not read. Of each that is
//! left out only a hash and a round are kept. What that takes counts as part of the search, which has a share of its own.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};

use brink_host::HostError;
use brink_host::cgroup::walk::{Listing, listed_below};
use brink_host::cgroup::{CgroupDir, Hierarchy};
use brink_host::clock;
use tracing::warn;

use super::super::approach::Approach;
use super::super::book::{Book, lock};
use super::super::group::GroupReader;
use super::super::pace::{BEAT_MS, BEATS};
use super::super::point::{Reading, Stamp};
use super::super::tracked::Group;
use super::{LIMITS, Watch, seat, unseat};

/// The tree is looked through so often at least, in rounds: where the kernel's programs tell of every cgroup that comes or goes, and
/// where they do not.
const SEARCH_TOLD: u64 = 60;
const SEARCH: u64 = 10;
/// A search may take one part of so many of a processor.
const SEARCH_SHARE: u64 = 200;
/// Groups that are looked through; what lies beyond is not recorded.
const MOST_LISTED: usize = 1 << 14;
/// Limits of cgroups without a slot that a search reads: some milliseconds.
const LOOKS: usize = 256;

impl Watch {
    /// Looks through the tree for cgroups that are new or gone.
    pub(super) fn search(&mut self, at: Stamp, now_ns: u64, book: &Mutex<Book>) {
        let began = clock::thread_cpu();
        let Listing { groups, trouble } = listed_below(&self.hierarchy, &self.scope, MOST_LISTED);
        // Where some are missing from the list, only its own files tell of one that it is gone.
        if trouble.is_none() && !groups.is_empty() {
            self.part(at, &groups);
        }
        self.complain(trouble.as_ref());
        self.reopens = false;
        let left = self.admit_new(at, &groups, book);
        // Whoever takes a slot from another leaves that one out.
        lock(book).left_out = left.len();
        let is_behind = self.make_room(&left, book);
        let spent = clock::thread_cpu().saturating_sub(began);
        self.searched_ns += u64::try_from(spent.as_nanos()).unwrap_or(0);
        let took = clock::monotonic_ns().saturating_sub(now_ns);
        let penance = took * SEARCH_SHARE / (u64::from(BEAT_MS * BEATS) * 1_000_000);
        let least = if is_behind {
            1
        } else if self.state.is_told && !self.reopens {
            SEARCH_TOLD
        } else {
            SEARCH
        };
        self.search_at = self.round + least.max(penance);
    }

    /// Takes leave of those that are not listed any more.
    fn part(&mut self, at: Stamp, paths: &[String]) {
        let listed: HashSet<&str> = paths.iter().map(String::as_str).collect();
        for (slot, group) in self.groups.iter_mut().enumerate() {
            if let Some(group) = group
                && group.gone.is_none()
                && !listed.contains(&*group.path)
            {
                group.leave(at);
                unseat(&mut self.survey, slot);
            }
        }
    }

    /// Logs what keeps cgroups out of the list: once, and again when it is something else.
    fn complain(&mut self, trouble: Option<&HostError>) {
        let trouble = trouble.map(ToString::to_string);
        if self.trouble == trouble {
            return;
        }
        if let Some(error) = &trouble {
            warn!(%error, "cgroups that cannot be listed are not recorded");
        }
        self.trouble = trouble;
    }

    /// Gives those that are new a slot each, while there are any; returns whom none is left for.
    fn admit_new<'a>(
        &mut self,
        at: Stamp,
        paths: &'a [String],
        book: &Mutex<Book>,
    ) -> Vec<&'a str> {
        let alive = self.groups.iter().flatten();
        let alive = alive.filter(|group| group.gone.is_none());
        let known: HashSet<Arc<str>> = alive.map(|group| Arc::clone(&group.path)).collect();
        // The first is the node itself.
        let paths = paths.iter().skip(1).map(String::as_str);
        let mut new = paths.filter(|path| !known.contains(*path));
        while let Some(slot) = self.unused(at) {
            let Some(path) = new.next() else {
                return Vec::new();
            };
            self.admit(slot, path, book);
        }
        new.collect()
    }

    /// A slot that is free, or that of one that is gone.
    fn unused(&self, at: Stamp) -> Option<usize> {
        let free = self.groups.iter().position(Option::is_none);
        free.or_else(|| self.longest_gone(at))
    }

    fn longest_gone(&self, at: Stamp) -> Option<usize> {
        let groups = self.groups.iter().enumerate();
        let gone =
            groups.filter_map(|(slot, group)| Some((group.as_ref()?.gone?.before(at)?, slot)));
        gone.max().map(|(_, slot)| slot)
    }

    /// Gives those of `left` that have a limit the slots of those that have none. Returns whether some are still to be looked at for
    /// the first time.
    fn make_room(&mut self, left: &[&str], book: &Mutex<Book>) -> bool {
        // Who uses least is known once everybody was read.
        if self.round == 0 {
            return !left.is_empty();
        }
        let mut due = self.due(left);
        let later = due.split_off(due.len().min(LOOKS));
        for (last, path) in due {
            self.looked.insert(hashed(path), self.round);
            if has_limit(&self.hierarchy, path) {
                let Some(slot) = self.least_needed() else {
                    // All have a limit: there is nobody to make room.
                    return false;
                };
                if let Some(Some(group)) = self.groups.get(slot) {
                    self.looked.insert(hashed(&group.path), self.round);
                }
                self.admit(slot, path, book);
            } else {
                // Whoever makes a cgroup sets its limit a moment later.
                self.reopens |= last.is_none();
            }
        }
        let known = later
            .iter()
            .filter_map(|(last, path)| Some((hashed(path), (*last)?)));
        self.looked.extend(known);
        later.iter().any(|(last, _)| last.is_none())
    }

    /// Whose limit may be read again, and when it was read last: those first that are longest not looked at.
    fn due<'a>(&mut self, left: &[&'a str]) -> Vec<(Option<u64>, &'a str)> {
        let before = std::mem::take(&mut self.looked);
        let mut due = Vec::new();
        for path in left {
            let key = hashed(path);
            match before.get(&key).copied() {
                Some(last) if self.round < last + LIMITS => {
                    self.looked.insert(key, last);
                }
                last => due.push((last, *path)),
            }
        }
        // Never is before any round.
        due.sort_by_key(|(last, _)| *last);
        due
    }

    /// The slot of the one that uses least of those that have no limit and are not near. Its limit is read once more: it may have got
    /// one since.
    fn least_needed(&mut self) -> Option<usize> {
        loop {
            let groups = self.groups.iter().enumerate();
            let without = groups.filter_map(|(slot, group)| {
                let group = group.as_ref()?;
                let keeps = group.limit.is_some() || group.lane.is_some() || group.gone.is_some();
                (!keeps).then_some((group.latest.usage, slot))
            });
            let (_, slot) = without.min()?;
            let group = self.groups.get_mut(slot)?.as_mut()?;
            group.limit = group.reader.as_ref()?.limit();
            if group.limit.is_none() {
                return Some(slot);
            }
        }
    }

    /// Opens a cgroup and gives it this slot; whoever had that is forgotten.
    fn admit(&mut self, slot: usize, path: &str, book: &Mutex<Book>) {
        // One that cannot be opened has gone again, or has no memory controller.
        let Ok(reader) = GroupReader::open(&self.hierarchy, path) else {
            // Which it may be given later, and nobody tells of that.
            self.reopens = true;
            return;
        };
        let path: Arc<str> = path.into();
        let (id, limit) = (reader.dir().id().0, reader.limit());
        let Some(place) = self.groups.get_mut(slot) else {
            return;
        };
        let group = Group {
            path: Arc::clone(&path),
            reader: Some(reader),
            limit,
            approach: Approach::default(),
            latest: Reading::default(),
            lane: None,
            gone: None,
            is_surveyed: false,
        };
        if place.replace(group).is_some() {
            // Should the new one get no seat, the place must not tell of the old one.
            unseat(&mut self.survey, slot);
        }
        if let Some(reader) = place.as_ref().and_then(|group| group.reader.as_ref()) {
            seat(&mut self.survey, slot, reader);
        }
        let mut book = lock(book);
        book.admit(slot, path, limit);
        if let Some(entry) = book.entry_mut(slot) {
            entry.id = Some(id);
        }
    }
}

/// Whether a cgroup has a limit of its own; that is all that is read of it.
fn has_limit(hierarchy: &Hierarchy, path: &str) -> bool {
    let limit = CgroupDir::open(hierarchy, path).and_then(|dir| dir.memory_limit());
    limit.is_ok_and(|limit| limit.value().is_some())
}

/// What a path is remembered by. Of two that share a number one may be looked at later, and that is all.
fn hashed(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}
