//! Asks by a thread of its own, one question at a time.
//!
//! An answer may take as long as it likes, and what is known of folders waits for none.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::debug;

use super::{Answer, Heard};

/// Who does not answer is asked again after so long, and each time after twice as long.
const SOONEST: Duration = Duration::from_secs(10);
/// After so long at most.
const LATEST: Duration = Duration::from_mins(1);
/// Who answers is asked again after so many times as long as that took: some go through all files for it.
const SHARE: u32 = 4;

/// Whoever can be asked.
pub(in crate::storage) trait Source: Send + 'static {
    /// What it tells, of these containers in any case.
    fn ask(&mut self, ids: &[String]) -> Answer;
}

/// Who is asked, and when.
pub(in crate::storage) struct Asking<S> {
    source: Arc<Mutex<S>>,
    under_way: Option<Receiver<Came>>,
    /// Whether nobody wants the answer any more.
    is_void: bool,
    /// When the next question may be asked; at once, if nothing is said.
    next: Option<Instant>,
    /// Questions that have had no answer, in a row.
    failures: u32,
}

/// What came of a question.
struct Came {
    answer: Answer,
    at: Instant,
    took: Duration,
}

impl<S: Source> Asking<S> {
    /// Nobody has been asked yet.
    pub(super) fn of(source: S) -> Self {
        Self {
            source: Arc::new(Mutex::new(source)),
            under_way: None,
            is_void: false,
            next: None,
            failures: 0,
        }
    }

    /// Asks if that is wanted, or if the last question has had no answer, as soon as it is time. Whether that is done.
    pub(in crate::storage) fn ask(
        &mut self,
        is_wanted: bool,
        now: Instant,
        ids: impl FnOnce() -> Vec<String>,
    ) -> bool {
        let is_due = self.next.is_none_or(|next| now >= next);
        if self.under_way.is_some() || !is_due || !(is_wanted || self.failures > 0) {
            return false;
        }
        let ids = ids();
        if ids.is_empty() {
            return false;
        }
        let (sender, answer) = channel();
        let source = Arc::clone(&self.source);
        let asks = move || {
            let began = Instant::now();
            // Whoever died while it was asked has said so itself.
            let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = source.ask(&ids);
            let at = Instant::now();
            let took = at.saturating_duration_since(began);
            let _nobody_waits = sender.send(Came { answer, at, took });
        };
        let thread = thread::Builder::new().name("brink-layers".to_owned());
        if let Err(error) = thread.stack_size(256 << 10).spawn(asks) {
            // Nobody will answer, which is told as such.
            debug!(%error, "no thread asks a container runtime");
        }
        self.under_way = Some(answer);
        true
    }

    /// What has come of the last question, once; it is waited for no longer than so.
    pub(in crate::storage) fn hear(&mut self, patience: Duration, now: Instant) -> Option<Heard> {
        let came = match self.under_way.as_ref()?.recv_timeout(patience) {
            Ok(came) => came,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => Came {
                answer: Err("the thread that asks the container runtime has ended".to_owned()),
                at: now,
                took: Duration::ZERO,
            },
        };
        self.under_way = None;
        if std::mem::take(&mut self.is_void) {
            return None;
        }
        let rest = if came.answer.is_ok() {
            self.failures = 0;
            came.took.saturating_mul(SHARE)
        } else {
            let times = 1 << self.failures.min(8);
            self.failures = self.failures.saturating_add(1);
            SOONEST.saturating_mul(times)
        };
        self.next = Some(now + rest.min(LATEST));
        Some((came.answer, came.at))
    }

    /// Nobody wants to know any more: what comes of the last question would be old when somebody does.
    pub(in crate::storage) fn forget(&mut self) {
        self.is_void = self.under_way.is_some();
        (self.next, self.failures) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use brink_core::node::workload::FsUsage;

    use super::super::Told;
    use super::*;

    /// Longer than a thread takes to begin and to end.
    const PATIENCE: Duration = Duration::from_mins(1);

    /// Waits until somebody says how: it tells of all containers after so long, or refuses.
    struct Script(Receiver<Option<Duration>>);

    impl Source for Script {
        fn ask(&mut self, ids: &[String]) -> Answer {
            let Ok(Some(takes)) = self.0.recv() else {
                return Err("refused".to_owned());
            };
            thread::sleep(takes);
            let layers = ids.iter().cloned();
            Ok(Told {
                layers: layers.map(|id| (id, FsUsage::default())).collect(),
                ..Told::default()
            })
        }
    }

    /// Dies of each question.
    struct Dying;

    impl Source for Dying {
        fn ask(&mut self, _ids: &[String]) -> Answer {
            panic!("as it is to")
        }
    }

    fn one() -> Vec<String> {
        vec!["id".to_owned()]
    }

    #[test]
    fn who_does_not_answer_is_asked_again_soon_and_then_more_seldom() {
        let (tell, script) = channel();
        let (mut asking, begin) = (Asking::of(Script(script)), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(!asking.ask(false, at(0), one), "nobody wants to know");
        assert!(!asking.ask(true, at(0), Vec::new), "of nobody");
        let mut time = 0;
        for rest in [10, 20, 40, 60, 60] {
            assert!(asking.ask(time == 0, at(time), one), "{rest}");
            tell.send(None).unwrap();
            let (answer, _) = asking.hear(PATIENCE, at(time)).unwrap();
            assert_eq!(answer.unwrap_err(), "refused");
            assert!(!asking.ask(true, at(time + rest - 1), one), "{rest}");
            time += rest;
        }
        assert!(asking.ask(false, at(time), one));
        tell.send(Some(Duration::ZERO)).unwrap();
        let (answer, _) = asking.hear(PATIENCE, at(time)).unwrap();
        assert!(answer.unwrap().layers.contains_key("id"));
        assert!(!asking.ask(false, at(time + 100), one), "it has answered");
        assert!(asking.ask(true, at(time + 100), one));
        tell.send(None).unwrap();
        assert!(asking.hear(PATIENCE, at(time + 100)).is_some());
        assert!(asking.ask(false, at(time + 110), one), "from the beginning");
    }

    #[test]
    fn an_answer_is_not_waited_for_and_one_that_took_long_is_not_asked_for_again_at_once() {
        let (tell, script) = channel();
        let (mut asking, begin) = (Asking::of(Script(script)), Instant::now());
        assert!(asking.ask(true, begin, one));
        assert!(asking.hear(Duration::ZERO, begin).is_none());
        assert!(!asking.ask(true, begin, one), "one at a time");
        tell.send(Some(Duration::from_millis(50))).unwrap();
        let (answer, came) = asking.hear(PATIENCE, begin).unwrap();
        assert!(answer.is_ok() && came >= begin + Duration::from_millis(50));
        assert!(!asking.ask(true, begin + Duration::from_millis(199), one));
        assert!(asking.ask(true, begin + LATEST, one));
        asking.forget();
        tell.send(Some(Duration::ZERO)).unwrap();
        assert!(asking.hear(PATIENCE, begin).is_none(), "nobody wanted it");
        assert!(asking.ask(true, begin, one));
    }

    #[test]
    fn a_thread_that_died_has_not_answered_and_the_next_one_may() {
        let (mut asking, begin) = (Asking::of(Dying), Instant::now());
        for number in 0..2 {
            let now = begin + LATEST * number;
            assert!(asking.ask(true, now, one));
            let (answer, _) = asking.hear(PATIENCE, now).unwrap();
            assert!(answer.unwrap_err().contains("has ended"));
        }
    }
}
