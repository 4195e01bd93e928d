//! Whether orders are carried out: the configured mode, the stop button, and two guards on the rate.

use crate::base::rate::{TokenBucket, WindowGuard};
use crate::base::{Moment, Reason, Span};

use super::input::Control;

/// Limits on how many workloads may be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// Kills that may follow each other at once.
    pub burst: u32,
    /// Time in which one more becomes possible.
    pub refill: Span,
    /// Kills in a window at most.
    pub most: usize,
    /// Length of that window.
    pub window: Span,
}

impl Limits {
    /// More kills than this in a window cannot be asked for: each is remembered, in room made in advance.
    pub const MOST: usize = 10_000;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            burst: 10,
            refill: Span::from_secs(6),
            most: 30,
            window: Span::from_secs(600),
        }
    }
}

/// Whether orders are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Mode {
    /// They are.
    Enforcing,
    /// They are only told, and this is why.
    Observing(Reason),
}

/// The state of everything that can turn enforcing into observing.
#[derive(Clone, Debug)]
pub struct Safety {
    enforce: bool,
    standby: bool,
    paused: Option<Pause>,
    /// A guard has tripped; stays until somebody resumes.
    tripped: Option<Reason>,
    bucket: TokenBucket,
    guard: WindowGuard,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Option<Moment>,
}

impl Safety {
    /// At `now`, with nothing tripped or paused.
    pub fn new(enforce: bool, limits: Limits, now: Moment) -> Self {
        Self {
            enforce,
            standby: false,
            paused: None,
            tripped: None,
            bucket: TokenBucket::new(limits.burst, limits.refill, now),
            guard: guard(limits),
            limits,
        }
    }

    /// Whether orders are carried out at `now`. A tripped guard is named before everything else:
    /// somebody has to lift it.
    pub fn mode(&self, now: Moment) -> Mode {
        let paused = self
            .paused
            .is_some_and(|pause| pause.until.is_none_or(|until| now < until));
        let reason = self.tripped.or_else(|| {
            let rules = [
                (!self.enforce, Reason::Observing),
                (self.standby, Reason::Standby),
                (paused, Reason::Paused),
            ];
            rules
                .into_iter()
                .find_map(|(holds, reason)| holds.then_some(reason))
        });
        reason.map_or(Mode::Enforcing, Mode::Observing)
    }

    /// Applies a request.
    pub fn control(&mut self, now: Moment, request: Control) {
        match request {
            Control::Pause(length) => {
                self.paused = Some(Pause {
                    until: length.map(|length| now + length),
                });
            }
            Control::Unpause => self.paused = None,
            Control::Resume => {
                self.paused = None;
                if self.tripped.take().is_some() {
                    self.bucket = TokenBucket::new(self.limits.burst, self.limits.refill, now);
                    self.guard.clear();
                }
            }
            Control::Standby(standby) => self.standby = standby,
            Control::Enforce(enforce) => self.enforce = enforce,
            // Of no concern to whether orders are carried out.
            Control::Kubelet(_) | Control::Measuring(_) => {}
        }
    }

    /// Takes other settings over; a pause, a tripped guard and what was spent so far stay, unless
    /// the limits themselves are others.
    pub fn reconfigure(&mut self, enforce: bool, limits: Limits, now: Moment) {
        self.enforce = enforce;
        if limits != self.limits {
            self.limits = limits;
            self.bucket = TokenBucket::new(limits.burst, limits.refill, now);
            self.guard = guard(limits);
        }
    }

    /// Takes the right to one kill.
    ///
    /// # Errors
    /// The guard that refuses. It has tripped: from now on we only observe.
    pub fn spend(&mut self, now: Moment) -> Result<(), Reason> {
        let refused = if !self.guard.allows(now) {
            Some(Reason::Exhausted)
        } else if !self.bucket.take(now) {
            Some(Reason::Throttled)
        } else {
            None
        };
        if let Some(reason) = refused {
            self.tripped = Some(reason);
            return Err(reason);
        }
        self.guard.record(now);
        Ok(())
    }

    /// Whether a kill can be spent on something that has time: half of those that may follow each other, and half of those in
    /// a window, are left to thresholds, which must never find that the guards refuse.
    pub fn has_to_spare(&self, now: Moment) -> bool {
        let kept = (self.limits.burst / 2, self.limits.most / 2);
        self.bucket.available(now) > kept.0 && self.guard.left(now) > kept.1
    }

    /// Counts a kill of the run before as if it had been ours. Before the first of them the bucket was full.
    pub fn recall(&mut self, at: Moment) {
        if self.guard.is_empty() {
            self.bucket = TokenBucket::new(self.limits.burst, self.limits.refill, at);
        }
        // An empty bucket stays empty; whether that one was allowed is over.
        let _was_allowed = self.bucket.take(at);
        self.guard.record(at);
    }

    /// Gives the right to the last kill back: there was nobody to kill.
    pub fn refund(&mut self) {
        self.bucket.put_back();
        self.guard.take_back();
    }

    /// When a pause ends by itself.
    pub fn next_wake(&self, now: Moment) -> Option<Moment> {
        self.paused?.until.filter(|&until| until > now)
    }
}

/// A journal can hold any number, and room for it is made at once.
fn guard(limits: Limits) -> WindowGuard {
    WindowGuard::new(limits.most.min(Limits::MOST), limits.window)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::from_secs(seconds)
    }

    fn safety(burst: u32, most: usize) -> Safety {
        let limits = Limits {
            burst,
            most,
            ..Limits::default()
        };
        Safety::new(true, limits, at(0))
    }

    #[test]
    fn a_pause_ends_by_itself_or_by_hand() {
        let mut safety = safety(1, 10);
        safety.control(at(1), Control::Pause(Some(Span::from_secs(60))));
        assert_eq!(safety.mode(at(60)), Mode::Observing(Reason::Paused));
        assert_eq!(safety.next_wake(at(60)), Some(at(61)));
        assert_eq!(safety.mode(at(61)), Mode::Enforcing);
        safety.control(at(70), Control::Pause(None));
        assert_eq!(safety.mode(at(1_000_000)), Mode::Observing(Reason::Paused));
        assert_eq!(safety.next_wake(at(70)), None);
        safety.control(at(80), Control::Resume);
        assert_eq!(safety.mode(at(80)), Mode::Enforcing);
    }

    #[test]
    fn room_is_made_for_no_more_kills_than_can_be_asked_for() {
        let mut safety = safety(u32::MAX, usize::MAX);
        assert!((0..Limits::MOST).all(|_| safety.spend(at(0)).is_ok()));
        assert_eq!(safety.spend(at(0)), Err(Reason::Exhausted));
    }

    #[test]
    fn an_empty_bucket_trips_until_somebody_resumes() {
        let mut safety = safety(2, 10);
        assert!(safety.spend(at(0)).is_ok() && safety.spend(at(0)).is_ok());
        assert_eq!(safety.spend(at(0)), Err(Reason::Throttled));
        assert_eq!(safety.mode(at(100_000)), Mode::Observing(Reason::Throttled));
        safety.control(at(1), Control::Resume);
        assert_eq!(safety.mode(at(1)), Mode::Enforcing);
        assert!(safety.spend(at(1)).is_ok());
    }

    #[test]
    fn a_restart_forgives_no_kill() {
        let restarted = |kills: &[i64], burst: u32, most: usize| {
            let limits = Limits {
                burst,
                most,
                ..Limits::default()
            };
            let mut safety = Safety::new(true, limits, at(100));
            for &second in kills {
                safety.recall(at(second));
            }
            safety.spend(at(100))
        };
        assert_eq!(restarted(&[], 1, 3), Ok(()));
        // One token comes back in six seconds.
        assert_eq!(restarted(&[95], 1, 3), Err(Reason::Throttled));
        assert_eq!(restarted(&[94], 1, 3), Ok(()));
        assert_eq!(
            restarted(&[95, 96, 97, 98, 99], 3, 30),
            Err(Reason::Throttled)
        );
        assert_eq!(restarted(&[1, 2, 3], 10, 3), Err(Reason::Exhausted));
        assert_eq!(restarted(&[1, 2], 10, 3), Ok(()));
    }

    #[test]
    fn the_window_trips_even_while_tokens_last() {
        let mut safety = safety(100, 3);
        for second in 0..3 {
            assert!(safety.spend(at(second)).is_ok());
        }
        assert_eq!(safety.spend(at(3)), Err(Reason::Exhausted));
        assert_eq!(safety.mode(at(3)), Mode::Observing(Reason::Exhausted));
    }

    #[test]
    fn a_second_agent_stands_by_and_takes_over() {
        let mut safety = safety(1, 1);
        safety.control(at(0), Control::Standby(true));
        assert_eq!(safety.mode(at(0)), Mode::Observing(Reason::Standby));
        safety.control(at(1), Control::Standby(false));
        assert_eq!(safety.mode(at(1)), Mode::Enforcing);
        safety.control(at(2), Control::Enforce(false));
        assert_eq!(safety.mode(at(2)), Mode::Observing(Reason::Observing));
    }
}
