//! What the kubelet says of itself, as it was asked last: for whoever loads the configuration, and why it is not known.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brink_kube::client::Access;
use brink_kube::configz::{ConfigzError, Follow};
use tokio::sync::watch;
use tracing::{info, warn};

use super::Answers;

/// The kubelet as it is asked.
pub(super) struct Configz {
    follow: Follow,
    answer: watch::Sender<Option<Arc<str>>>,
    /// Why it was not answered when it was asked last.
    why: Mutex<Option<String>>,
    /// Whether it was ever asked in vain.
    failed: watch::Sender<bool>,
}

impl Configz {
    /// Nobody has asked yet.
    pub(super) fn new(access: Access, node: String, seed: u64) -> Self {
        Self {
            follow: Follow {
                access,
                node,
                seed,
                again: Arc::default(),
            },
            answer: watch::Sender::new(None),
            why: Mutex::default(),
            failed: watch::Sender::new(false),
        }
    }

    /// Asks now and again, for ever.
    pub(super) async fn run(&self) {
        self.follow.run(|asked| self.take(asked)).await;
    }

    /// Has it asked again at once.
    pub(super) fn ask_again(&self) {
        self.follow.again.notify_one();
    }

    /// Tells what it says as that changes, beginning with what it has said so far.
    pub(super) fn answers(&self) -> Answers {
        let mut answers = self.answer.subscribe();
        answers.mark_changed();
        answers
    }

    /// Tells whether it was ever asked in vain.
    pub(super) fn failures(&self) -> watch::Receiver<bool> {
        self.failed.subscribe()
    }

    /// Whether it said what it goes by when it was asked last.
    pub(super) fn is_known(&self) -> bool {
        self.lock().is_none() && self.answer.borrow().is_some()
    }

    /// Why it was not answered when it was asked last.
    pub(super) fn why(&self) -> Option<String> {
        self.lock().clone()
    }

    fn take(&self, asked: Result<String, ConfigzError>) {
        match asked {
            Ok(said) => {
                if self.lock().take().is_some() {
                    info!("the kubelet says what it goes by");
                }
                self.answer.send_if_modified(|known| {
                    let is_news = known.as_deref() != Some(said.as_str());
                    if is_news {
                        *known = Some(said.into());
                    }
                    is_news
                });
            }
            Err(error) => {
                let why = Some(error.to_string());
                let mut known = self.lock();
                // Once a reason, not once an attempt.
                if *known != why {
                    warn!(%error, "the kubelet does not say what it goes by; thresholds stay as they are");
                }
                *known = why;
                self.failed
                    .send_if_modified(|failed| !std::mem::replace(failed, true));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_when_it_is_news_and_stays_while_there_is_none() {
        let configz = Configz::new(Access::default(), "node-a".to_owned(), 7);
        assert!(!configz.is_known(), "nobody has asked");
        configz.take(Ok("{}".to_owned()));
        assert!(configz.is_known() && !*configz.failures().borrow());
        let mut answers = configz.answers();
        let mut news = || {
            let is_news = answers.has_changed().unwrap();
            let answer = answers.borrow_and_update().clone();
            is_news
                .then_some(answer)
                .flatten()
                .map(|text| text.to_string())
        };
        assert_eq!(news().as_deref(), Some("{}"), "what was said so far");
        configz.take(Ok("{}".to_owned()));
        assert_eq!((news(), configz.why()), (None, None));
        configz.take(Err(ConfigzError::Slow));
        assert_eq!(news(), None);
        assert!(configz.why().unwrap().contains("no answer"));
        assert!(!configz.is_known() && *configz.failures().borrow());
        configz.take(Ok(r#"{"a":1}"#.to_owned()));
        assert_eq!(news().as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(configz.why(), None);
    }
}
