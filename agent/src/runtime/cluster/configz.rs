//! What the kubelet says of itself, as it was asked last: for whoever loads the configuration, and why it is not known.

use std::sync::Arc;

use brink_kube::client::Access;
use brink_kube::configz::{ConfigzError, Follow};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Answers;

/// That the kubelet is asked in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InVain {
    /// When it was for the first time since it last said something, or was asked first.
    pub since: Instant,
    /// Why it was not answered when it was asked last.
    pub why: Arc<str>,
}

/// The kubelet as it is asked.
pub(super) struct Configz {
    follow: Follow,
    answer: watch::Sender<Option<Arc<str>>>,
    /// That it is asked in vain; none while it answers, and before it was asked.
    in_vain: watch::Sender<Option<InVain>>,
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
            in_vain: watch::Sender::new(None),
        }
    }

    /// Asks now and again, for ever.
    pub(super) async fn run(&self) {
        let take = |asked| self.take(asked, Instant::now());
        self.follow.run(take).await;
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

    /// Has whether it is asked in vain, and tells when that begins and when it ends.
    pub(super) fn in_vain(&self) -> watch::Receiver<Option<InVain>> {
        self.in_vain.subscribe()
    }

    /// Whether it said what it goes by when it was asked last.
    pub(super) fn is_known(&self) -> bool {
        self.in_vain.borrow().is_none() && self.answer.borrow().is_some()
    }

    /// Why it was not answered when it was asked last.
    pub(super) fn why(&self) -> Option<String> {
        let in_vain = self.in_vain.borrow();
        in_vain.as_ref().map(|in_vain| in_vain.why.to_string())
    }

    fn take(&self, asked: Result<String, ConfigzError>, now: Instant) {
        match asked {
            Ok(said) => {
                let was_in_vain = |in_vain: &mut Option<InVain>| in_vain.take().is_some();
                if self.in_vain.send_if_modified(was_in_vain) {
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
                let why = error.to_string();
                let before = self.in_vain.borrow().clone();
                // Once a reason, not once an attempt.
                if before.as_ref().is_none_or(|before| *before.why != *why) {
                    warn!(%error, "the kubelet does not say what it goes by; thresholds stay as they are");
                }
                let is_first = before.is_none();
                let new = InVain {
                    since: before.map_or(now, |before| before.since),
                    why: why.into(),
                };
                // Who waits for it is woken by the first failure alone: each may have words of its own.
                self.in_vain.send_if_modified(|in_vain| {
                    *in_vain = Some(new);
                    is_first
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_is_told_when_it_is_news_and_stays_while_there_is_none() {
        let configz = Configz::new(Access::default(), "node-a".to_owned(), 7);
        let now = Instant::now();
        assert!(!configz.is_known(), "nobody has asked");
        configz.take(Ok("{}".to_owned()), now);
        assert!(configz.is_known() && configz.in_vain().borrow().is_none());
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
        configz.take(Ok("{}".to_owned()), now);
        assert_eq!((news(), configz.why()), (None, None));
        configz.take(Err(ConfigzError::Slow), now);
        assert_eq!(news(), None);
        assert!(configz.why().unwrap().contains("no answer"));
        assert!(!configz.is_known());
        configz.take(Ok(r#"{"a":1}"#.to_owned()), now);
        assert_eq!(news().as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(configz.why(), None);
    }

    #[test]
    fn whoever_waits_is_told_when_it_begins_to_be_in_vain_and_has_since_when_and_why_it_is_now() {
        let configz = Configz::new(Access::default(), "node-a".to_owned(), 7);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut in_vain = configz.in_vain();
        let mut look = || {
            let is_news = in_vain.has_changed().unwrap();
            (is_news, in_vain.borrow_and_update().clone())
        };
        assert_eq!(look(), (false, None));
        configz.take(Err(ConfigzError::Slow), at(1));
        let (is_news, first) = look();
        let first = first.unwrap();
        assert!(is_news && first.why.contains("no answer"));
        assert_eq!(first.since, at(1));
        configz.take(Err(ConfigzError::TooLarge), at(2));
        let (is_news, second) = look();
        let second = second.unwrap();
        assert!(!is_news && second.why.contains("larger than"));
        assert_eq!(second.since, at(1));
        configz.take(Ok("{}".to_owned()), at(3));
        assert_eq!(look(), (true, None));
        configz.take(Err(ConfigzError::Slow), at(4));
        let (is_news, again) = look();
        assert_eq!((is_news, again.unwrap().since), (true, at(4)));
    }
}
