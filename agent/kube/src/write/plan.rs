//! What is to be told next: which entry, which part of it, and when. Pure; time is an argument.

use brink_core::base::Moment;

use super::answer::{Act, Scope, Verdict};
use super::forbidden::Forbidden;
use super::owed::{Owed, span};
use crate::outbox::{ENTRIES, End, Entry, Key};
use crate::retry::Backoff;

/// What the watch of this node's pods says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: there is no list yet, or it is an old one.
    Unknown,
    /// It is not there.
    Gone,
    /// It is there.
    There {
        /// Whether its phase is `Failed` or `Succeeded`.
        is_terminal: bool,
        /// Whether it is not `Failed`, or for the reason we write.
        keeps_reason: bool,
        /// Its `metadata.resourceVersion`, where that is a number.
        version: Option<u64>,
    },
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This, now.
    Do(Key, Act),
    /// Nothing until then.
    Wait(Moment),
    /// Nothing until there is something new.
    Idle,
}

/// What has become of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The entry.
    pub entry: Entry,
    /// Why it waits; none where it does not.
    pub waits: Option<String>,
    /// Whether it has changed, and is to be written.
    pub is_changed: bool,
    /// Whether it is over, and is to be taken out.
    pub is_over: bool,
}

/// Everything that is owed.
#[derive(Debug)]
pub struct Plan {
    owed: Vec<Owed>,
    /// Nobody is heard before then.
    closed: Option<Moment>,
    /// Whether the server itself has said so.
    is_asked: bool,
    backoff: Backoff,
    forbidden: Forbidden,
}

impl Plan {
    /// Nothing is owed yet. `node` is whose waits these are: two nodes wait differently.
    pub fn new(node: &str, seed: u64) -> Self {
        Self {
            owed: Vec::new(),
            closed: None,
            is_asked: false,
            backoff: Backoff::new(node, seed),
            forbidden: Forbidden::new(node, seed),
        }
    }

    /// One more; one that is there already stays as it is. False where there is no room for it.
    pub fn add(&mut self, entry: Entry, now: Moment) -> bool {
        if self.find(&entry.key).is_none() {
            if self.owed.len() >= ENTRIES {
                return false;
            }
            self.owed.push(Owed::new(entry, now));
        }
        true
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.owed.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// The entry with that key.
    pub fn entry(&self, key: &Key) -> Option<&Entry> {
        Some(&self.owed[self.find(key)?].entry)
    }

    /// The server has been heard of: whoever waits for it is tried at once, unless it has asked to be left alone.
    pub fn open(&mut self) {
        if !self.is_asked {
            self.closed = None;
            self.backoff.succeeded();
            self.owed.iter_mut().for_each(Owed::hurry);
        }
    }

    /// Whether anything waits for a right that the account has not.
    pub fn is_refused(&self) -> bool {
        self.forbidden.is_any()
    }

    /// It may be another account now: what was refused is asked for once, at once.
    pub fn ask_again(&mut self) {
        self.forbidden.ask_again();
    }

    /// What is to be done: statuses before events, since a kubelet starts again what has died; then what was missed less often,
    /// as one that a server never takes must not keep the others waiting; then what was refused less often; then what was never
    /// written before what is written once more; then the oldest.
    pub fn next(&self, now: Moment) -> Next {
        let closed = self.closed.unwrap_or(Moment::START);
        let forbidden = &self.forbidden;
        let wanted = self.owed.iter().flat_map(|owed| {
            // What is new is tried at once, unless the server itself has asked for quiet: it was another that was missed.
            let is_tried = self.is_asked || owed.misses() > 0;
            let closed = if is_tried { closed } else { Moment::START };
            let wanted = owed.wanted();
            wanted.map(move |(act, due)| {
                let opens = forbidden.opens(act, owed.refused() > 0);
                (owed, act, due.max(closed).max(opens))
            })
        });
        let due = wanted.clone().filter(|(_, _, at)| *at <= now);
        let rank = |owed: &Owed, act| {
            let is_again = act != Act::Event && owed.is_written();
            (act == Act::Event, owed.misses(), owed.refused(), is_again)
        };
        // Of equals the first, which is the oldest.
        if let Some((owed, act, _)) = due.min_by_key(|(owed, act, _)| rank(owed, *act)) {
            return Next::Do(owed.entry.key.clone(), act);
        }
        let due = wanted.map(|(_, _, at)| at);
        let looks = self.owed.iter().filter_map(|owed| owed.look_at(now));
        due.chain(looks).min().map_or(Next::Idle, Next::Wait)
    }

    /// Takes the verdict on something that was done.
    pub fn settle(&mut self, key: &Key, act: Act, verdict: Verdict, now: Moment) -> Option<Told> {
        let owed = self.owed.iter_mut().find(|owed| owed.entry.key == *key)?;
        let before = owed.entry.clone();
        let mut waits = None;
        let (not_heard, said) = match &verdict {
            Verdict::Later { of, why, .. } => (Some(*of), why.as_str()),
            _ => (None, ""),
        };
        if not_heard != Some(Scope::Server) {
            self.backoff.succeeded();
            self.closed = None;
            self.is_asked = false;
        }
        match not_heard {
            Some(Scope::Act) => {
                let was_refused = owed.refused() > 0;
                self.forbidden.refuse(act, was_refused, said, now);
            }
            Some(Scope::Account) => self.forbidden.disown(said, now),
            // Who is away or busy says nothing of rights.
            Some(Scope::Server) => {}
            Some(Scope::One) | None => self.forbidden.pass(act),
        }
        owed.refusal_told = not_heard.filter(|of| matches!(of, Scope::Act | Scope::Account));
        match verdict {
            Verdict::Done(version) => owed.done(act, version, now),
            Verdict::Look(why) => {
                owed.doubt(why.clone(), now);
                waits = Some(why);
            }
            Verdict::Same => owed.same(now),
            Verdict::Later { why, after, of } => {
                match of {
                    Scope::One => owed.later(act, now, after),
                    // It waits with all others.
                    Scope::Act => owed.refuse(),
                    Scope::Account => {}
                    Scope::Server => {
                        owed.later(act, now, after);
                        owed.missed();
                        self.is_asked = after.is_some();
                        self.closed = Some(now + span(self.backoff.failed(after)));
                    }
                }
                waits = Some(why);
            }
            Verdict::Never(end) => owed.end(act, end),
        }
        Some(owed.told(&before, waits))
    }

    /// That cannot even be asked for, and is never told. No server has said anything: it counts neither for rights nor as being heard.
    pub fn give_up(&mut self, key: &Key, act: Act, end: End) -> Option<Told> {
        let owed = self.owed.iter_mut().find(|owed| owed.entry.key == *key)?;
        let before = owed.entry.clone();
        owed.end(act, end);
        Some(owed.told(&before, None))
    }

    /// Looks at the pods: a status that was written over is written again, and what is over is taken out. What waits for a right that
    /// others were refused has their reason.
    pub fn look(&mut self, seen: impl Fn(&str) -> Seen, now: Moment) -> Vec<Told> {
        let mut told = Vec::new();
        self.owed.retain_mut(|owed| {
            let is_changed = owed.expire(now);
            let seen = if owed.is_written() {
                seen(&owed.entry.pod.uid)
            } else {
                Seen::Unknown
            };
            owed.insist(seen);
            let is_over = owed.is_over(seen, now);
            if is_over || is_changed {
                told.push(Told {
                    entry: owed.entry.clone(),
                    waits: None,
                    is_changed,
                    is_over,
                });
            }
            !is_over
        });
        for owed in &mut self.owed {
            let refused = refusal(owed, &self.forbidden, now);
            // Texts are not compared: each names the pod that was refused.
            if let Some((of, why)) = refused.filter(|(of, _)| owed.refusal_told != Some(*of)) {
                let waits = format!("another was refused: {why}");
                owed.refusal_told = Some(of);
                told.push(owed.told(&owed.entry, Some(waits)));
            }
        }
        told
    }

    fn find(&self, key: &Key) -> Option<usize> {
        self.owed.iter().position(|owed| owed.entry.key == *key)
    }
}

/// What others were told for which nothing of this one is asked now; none where something is, or nothing is owed.
fn refusal<'a>(owed: &Owed, forbidden: &'a Forbidden, now: Moment) -> Option<(Scope, &'a str)> {
    let wanted = owed.wanted();
    let mut whys = wanted.map(|(act, _)| forbidden.why(act, owed.refused() > 0, now));
    let first = whys.next()??;
    whys.all(|why| why.is_some()).then_some(first)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
