//! Why a watch does not go on, and what follows from it.

use std::time::Duration;

use kube::core::Status;

use super::ANSWER;
use crate::client::in_words;

/// What counts as asked for by a 429 whose body has no number: it stands in `Retry-After`, which the client's library drops with the
/// other headers. Servers say at least this.
const UNSAID: Duration = Duration::from_secs(1);

/// Why a watch does not go on for now.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The server refuses, or cannot be asked.
    #[error("{}", in_words(.0))]
    Request(#[from] kube::Error),
    /// It does not begin to answer.
    #[error("the API server has not answered for {} s", ANSWER.as_secs())]
    Slow,
    /// It answers without a version.
    #[error(
        "the API server's answer has no resourceVersion, so that no change after it could be asked for"
    )]
    NoVersion,
    /// It ends each watch as soon as it has begun.
    #[error("the API server ends the watch as soon as it has begun")]
    Cut,
}

impl WatchError {
    /// How long the server asks to be left alone: with 429, and where it says so.
    pub fn asked_wait(&self) -> Option<Duration> {
        let status = self.status()?;
        let said = status.details.as_ref();
        let seconds = said.map_or(0, |details| details.retry_after_seconds);
        if seconds > 0 {
            return Some(Duration::from_secs(u64::from(seconds)));
        }
        (status.code == 429).then_some(UNSAID)
    }

    /// Whether it does not know us: a client with newer credentials may be let in.
    pub fn is_refused(&self) -> bool {
        self.status()
            .is_some_and(|status| matches!(status.code, 401 | 403))
    }

    /// Whether the server has forgotten the version it was asked for.
    pub(super) fn is_expired(&self) -> bool {
        let is_gone = |status: &Status| {
            status.code == 410 || matches!(status.reason.as_str(), "Expired" | "Gone")
        };
        self.status().is_some_and(is_gone)
    }

    /// Whether the server does not have the version yet.
    pub(super) fn is_ahead(&self) -> bool {
        const CAUSE: &str = "ResourceVersionTooLarge";
        let details = self.status().and_then(|status| status.details.as_ref());
        details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == CAUSE))
    }

    /// Whether the server takes the question for a wrong one.
    pub(super) fn is_refusal(&self) -> bool {
        self.status()
            .is_some_and(|status| matches!(status.code, 400 | 422))
    }

    fn status(&self) -> Option<&Status> {
        match self {
            Self::Request(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }
}

/// Whether a stream broke off, as opposed to saying what cannot be understood.
pub(super) const fn is_break(error: &kube::Error) -> bool {
    matches!(
        error,
        kube::Error::ReadEvents(_) | kube::Error::HyperError(_) | kube::Error::Service(_)
    )
}
