//! The places at a door: so many connections at a time, and one that only waits makes room for a newcomer.
//!
//! Without that anybody could fill a door by connections that say nothing, and keep the kubelet's probes from their answer. One
//! that waits for a request goes first, the longest wait before all others. At a public port, where every answer is short, a
//! client that does not take its answer goes after those; elsewhere an answer may be a stream, and nobody goes in its middle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::connection::Entrance;

/// What is done for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doing {
    /// Its request is waited for.
    Hearing,
    /// It is answered.
    Answering,
}

/// Whose turn it is to make room: the least of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    doing: Doing,
    /// Rises by one with every change at the door.
    since: u64,
}

impl Turn {
    fn may_come(self, entrance: Entrance) -> bool {
        match entrance {
            Entrance::Socket | Entrance::Loopback => self.doing == Doing::Hearing,
            Entrance::Public => true,
        }
    }
}

/// The places at one door.
pub(super) struct Places {
    entrance: Entrance,
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    changes: u64,
    by: BTreeMap<u64, Holder>,
}

struct Holder {
    turn: Turn,
    /// Ends the connection.
    end: oneshot::Sender<()>,
}

impl Held {
    fn turn(&mut self, doing: Doing) -> Turn {
        self.changes += 1;
        let since = self.changes;
        Turn { doing, since }
    }
}

impl Places {
    pub(super) fn new(entrance: Entrance, most: usize) -> Self {
        Self {
            entrance,
            most,
            held: Mutex::default(),
        }
    }

    /// How many there are.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// A place for a newcomer, and what comes when another one gets it; none where nobody makes room.
    pub(super) fn take(self: &Arc<Self>) -> Option<(Place, oneshot::Receiver<()>)> {
        let mut held = self.lock();
        if held.by.len() >= self.most {
            let holders = held.by.iter();
            let those = holders.filter(|(_, holder)| holder.turn.may_come(self.entrance));
            let (&least, _) = those.min_by_key(|(_, holder)| holder.turn)?;
            if let Some(holder) = held.by.remove(&least) {
                let _ended_already = holder.end.send(());
            }
        }
        let (end, ended) = oneshot::channel();
        let turn = held.turn(Doing::Hearing);
        let id = turn.since;
        held.by.insert(id, Holder { turn, end });
        let places = Arc::clone(self);
        Some((Place { id, places }, ended))
    }

    /// What a thread that died has left behind is whole: nothing panics within a change.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that somebody has; it is free when this is dropped.
pub(super) struct Place {
    id: u64,
    places: Arc<Places>,
}

impl Place {
    /// How its holder came in.
    pub(super) fn entrance(&self) -> Entrance {
        self.places.entrance
    }

    /// Takes note of what is done for it from now on.
    pub(super) fn begins(&self, doing: Doing) {
        let mut held = self.places.lock();
        let turn = held.turn(doing);
        if let Some(holder) = held.by.get_mut(&self.id) {
            holder.turn = turn;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Another's by now, if it had to make room: ids come once.
        self.places.lock().by.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::Doing::{Answering, Hearing};
    use super::*;

    /// Which of those who came in this order makes room for one more.
    #[track_caller]
    fn check(entrance: Entrance, doing: &[Doing], expected: Option<usize>) {
        let places = Arc::new(Places::new(entrance, doing.len()));
        let come = |doing: &Doing| {
            let (place, ended) = places.take().unwrap();
            place.begins(*doing);
            (place, ended)
        };
        let mut held: Vec<_> = doing.iter().map(come).collect();
        let newcomer = places.take();
        let mut ended = held.iter_mut();
        let ended = ended.position(|(_, ended)| ended.try_recv().is_ok());
        assert_eq!(ended, expected, "{entrance:?} {doing:?}");
        assert_eq!(newcomer.is_some(), expected.is_some());
    }

    #[test]
    fn who_waits_makes_room_before_who_is_answered() {
        check(Entrance::Loopback, &[Hearing, Hearing], Some(0));
        check(Entrance::Loopback, &[Answering, Hearing, Hearing], Some(1));
        check(Entrance::Loopback, &[Answering, Answering], None);
        check(Entrance::Public, &[Hearing, Hearing], Some(0));
        check(Entrance::Public, &[Answering, Hearing], Some(1));
        check(Entrance::Public, &[Answering, Answering], Some(0));
        check(Entrance::Socket, &[Answering, Hearing], Some(1));
        check(Entrance::Socket, &[Answering, Answering], None);
    }

    #[test]
    fn who_was_answered_waits_anew_and_who_goes_leaves_room() {
        let places = Arc::new(Places::new(Entrance::Loopback, 2));
        let (first, mut first_ended) = places.take().unwrap();
        let (second, mut second_ended) = places.take().unwrap();
        first.begins(Answering);
        first.begins(Hearing);
        let (third, mut third_ended) = places.take().unwrap();
        assert!(second_ended.try_recv().is_ok(), "it has waited longest");
        // Its place is another's: that it goes gives nobody a second one.
        drop(second);
        first.begins(Answering);
        third.begins(Answering);
        assert!(places.take().is_none());
        drop(first);
        assert!(places.take().is_some());
        assert!(first_ended.try_recv().is_err() && third_ended.try_recv().is_err());
    }
}
