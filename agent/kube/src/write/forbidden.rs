//! What the account may not do: one wait for everything of a kind, as one missing right keeps all of it from being told.

use brink_core::base::Moment;

use super::answer::{Act, Scope};
use super::owed::span;
use crate::retry::Backoff;

/// A refusal may be about one namespace alone. So many that were not refused before are tried all the same; then it is taken for
/// one of all.
pub(super) const CONVINCING: u32 = 8;

/// What is refused, by what is asked.
#[derive(Debug)]
pub(super) struct Forbidden {
    status: Gate,
    look: Gate,
    event: Gate,
    /// The account itself: the server does not know who asks.
    account: Gate,
}

#[derive(Debug)]
struct Gate {
    /// Nobody asks before then; none where nothing is refused.
    closed: Option<Moment>,
    /// What was said when it was closed last.
    why: String,
    /// How many were refused for the first time since something of this kind went through.
    found: u32,
    backoff: Backoff,
}

impl Forbidden {
    /// Nothing is refused yet. `node` is whose waits these are.
    pub(super) fn new(node: &str, seed: u64) -> Self {
        let gate = || Gate {
            closed: None,
            why: String::new(),
            found: 0,
            backoff: Backoff::new(node, seed),
        };
        Self {
            status: gate(),
            look: gate(),
            event: gate(),
            account: gate(),
        }
    }

    /// From when on that may be asked, by one that was refused before or not.
    pub(super) fn opens(&self, act: Act, was_refused: bool) -> Moment {
        let gates = self.before(act, was_refused).into_iter().flatten();
        let closed = gates.filter_map(|(_, gate)| gate.closed);
        closed.max().unwrap_or(Moment::START)
    }

    /// What was said to others for which that is not asked now, and what they had no right to; none where it is asked.
    pub(super) fn why(&self, act: Act, was_refused: bool, now: Moment) -> Option<(Scope, &str)> {
        let gates = self.before(act, was_refused).into_iter().flatten();
        let mut shut = gates.filter(|(_, gate)| gate.closed.is_some_and(|until| until > now));
        shut.next().map(|(of, gate)| (of, gate.why.as_str()))
    }

    /// The gates before that: of the account, and of its own kind for whom that counts.
    fn before(&self, act: Act, was_refused: bool) -> [Option<(Scope, &Gate)>; 2] {
        let gate = match act {
            Act::Status => &self.status,
            Act::Look => &self.look,
            Act::Event => &self.event,
        };
        let is_tried = !was_refused && gate.found < CONVINCING;
        [
            Some((Scope::Account, &self.account)),
            (!is_tried).then_some((Scope::Act, gate)),
        ]
    }

    /// The account may not do that, and `why` is what the server says.
    pub(super) fn refuse(&mut self, act: Act, was_refused: bool, why: &str, now: Moment) {
        self.account.open();
        let gate = self.gate(act);
        gate.found = gate.found.saturating_add(u32::from(!was_refused));
        gate.close(why, now);
    }

    /// The server does not know the account, and `why` is what it says.
    pub(super) fn disown(&mut self, why: &str, now: Moment) {
        self.account.close(why, now);
    }

    /// That went through, as far as rights go.
    pub(super) fn pass(&mut self, act: Act) {
        self.account.open();
        self.gate(act).open();
    }

    /// Whether anything waits for a right.
    pub(super) fn is_any(&self) -> bool {
        let gates = [&self.status, &self.look, &self.event, &self.account];
        gates.iter().any(|gate| gate.closed.is_some())
    }

    /// It may be another account now: each kind is asked once at once. If that is in vain the waits go on to grow.
    pub(super) fn ask_again(&mut self) {
        for gate in [
            &mut self.status,
            &mut self.look,
            &mut self.event,
            &mut self.account,
        ] {
            gate.closed = None;
        }
    }

    const fn gate(&mut self, act: Act) -> &mut Gate {
        match act {
            Act::Status => &mut self.status,
            Act::Look => &mut self.look,
            Act::Event => &mut self.event,
        }
    }
}

impl Gate {
    fn close(&mut self, why: &str, now: Moment) {
        why.clone_into(&mut self.why);
        // One that was tried beside those that wait says the same once more: the wait stays.
        if self.closed.is_none_or(|closed| closed <= now) {
            self.closed = Some(now + span(self.backoff.refused()));
        }
    }

    const fn open(&mut self) {
        self.closed = None;
        self.found = 0;
        self.backoff.succeeded();
    }
}
