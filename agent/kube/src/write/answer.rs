//! What an answer of the API server means for what was to be told.

use std::time::Duration;

use crate::outbox::End;

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nobody answered in time, or in full: it may have been taken all the same.
    Away(String),
    /// The server's answer.
    Answer(Answer),
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's code.
    pub code: u16,
    /// How long the server wants to be left alone.
    pub retry_after: Option<Duration>,
    /// Of an error: why, in one word.
    pub reason: String,
    /// Of an error: what it says.
    pub message: String,
    /// `metadata.uid` of the object; empty where there is none.
    pub uid: String,
    /// `metadata.resourceVersion`, likewise.
    pub version: String,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// To write a pod's status.
    Status,
    /// To look whether the pod of that name is still the one that is meant.
    Look,
    /// To take an event.
    Event,
}

/// Who else would not be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nobody, as far as is known: it is about this alone.
    One,
    /// Whoever does the same: the account lacks the right, or somebody keeps it from that.
    Act,
    /// Whoever asks by this account: the server does not know it.
    Account,
    /// Anybody: the server is away, or busy.
    Server,
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Told; the version of the object, where the server said one.
    Done(Option<u64>),
    /// It may be another pod: to be looked at before anything else.
    Look(String),
    /// The pod is the one that is meant; what it was looked at for stays owed.
    Same,
    /// Later, and not before the server wants to hear of us.
    Later {
        /// Why not now.
        why: String,
        /// How long the server wants to be left alone.
        after: Option<Duration>,
        /// Who else would not be heard.
        of: Scope,
    },
    /// Never.
    Never(End),
}

impl Verdict {
    /// The verdict on a reply; `uid` is the pod that was meant.
    pub fn of(act: Act, uid: &str, reply: &Reply) -> Self {
        let answer = match reply {
            Reply::Away(why) => return later(why.clone(), None, Scope::Server),
            Reply::Answer(answer) => answer,
        };
        let why = || format!("{} {}", answer.code, answer.message);
        match (answer.code, act) {
            (200..=299, Act::Event) => Self::Done(None),
            (200..=299, _) if !answer.uid.is_empty() && answer.uid != uid => {
                Self::Never(End::Replaced)
            }
            (200..=299, Act::Status) => Self::Done(answer.version.parse().ok()),
            (200..=299, Act::Look) => Self::Same,
            (404, _) => Self::Never(End::Gone),
            // The name comes from what happened: the server has the event already.
            (409, Act::Event) if answer.reason == EXISTS => Self::Done(None),
            // A uid that does not fit, or a conflict that is over when it is tried again.
            (409 | 422, Act::Status) => Self::Look(why()),
            // A namespace that ends takes nothing any more.
            (403, Act::Event) if is_ending(&answer.message) => Self::Never(End::Gone),
            // A right that may be given.
            (403, _) if lacks_right(&answer.message) => later(why(), None, Scope::Act),
            // Whatever else forbids it, a quota or a webhook, does so for one object or one namespace; a conflict is with whoever counts
            // in the same quota.
            (403, _) | (409, Act::Event) => later(why(), None, Scope::One),
            (401, _) => later(why(), None, Scope::Account),
            (408 | 429 | 500..=599, _) => later(why(), answer.retry_after, Scope::Server),
            _ => Self::Never(End::Refused(why())),
        }
    }
}

/// How the server says that it has an object of that name.
const EXISTS: &str = "AlreadyExists";

fn later(why: String, after: Option<Duration>, of: Scope) -> Verdict {
    Verdict::Later { why, after, of }
}

/// How the server says that an account has not the right: `User "…" cannot patch resource …`.
fn lacks_right(message: &str) -> bool {
    message.contains("\" cannot ")
}

/// How the server says that a namespace is being deleted.
fn is_ending(message: &str) -> bool {
    message.contains("is being terminated")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16) -> Answer {
        Answer {
            code,
            message: "said".to_owned(),
            ..Answer::default()
        }
    }

    #[track_caller]
    fn check(act: Act, answer: Answer, expected: &Verdict) {
        let reply = Reply::Answer(answer);
        assert_eq!(&Verdict::of(act, "mine", &reply), expected, "{act:?}");
    }

    #[test]
    fn each_answer_has_its_meaning() {
        let object = |uid: &str| Answer {
            uid: uid.to_owned(),
            version: "42".to_owned(),
            ..answer(200)
        };
        check(Act::Status, object("mine"), &Verdict::Done(Some(42)));
        check(Act::Status, object("other"), &Verdict::Never(End::Replaced));
        check(Act::Look, object("mine"), &Verdict::Same);
        check(Act::Look, object("other"), &Verdict::Never(End::Replaced));
        check(Act::Event, answer(201), &Verdict::Done(None));
        let exists = Answer {
            reason: EXISTS.to_owned(),
            ..answer(409)
        };
        check(Act::Event, exists, &Verdict::Done(None));
        for act in [Act::Status, Act::Look, Act::Event] {
            check(act, answer(404), &Verdict::Never(End::Gone));
            let refused = End::Refused("400 said".to_owned());
            check(act, answer(400), &Verdict::Never(refused));
        }
        for code in [409, 422] {
            check(
                Act::Status,
                answer(code),
                &Verdict::Look(format!("{code} said")),
            );
        }
    }

    #[test]
    fn what_may_change_is_tried_again() {
        let slow = Answer {
            retry_after: Some(Duration::from_secs(7)),
            ..answer(429)
        };
        let expected = Verdict::Later {
            why: "429 said".to_owned(),
            after: Some(Duration::from_secs(7)),
            of: Scope::Server,
        };
        check(Act::Status, slow, &expected);
        for (code, of) in [
            (500, Scope::Server),
            (503, Scope::Server),
            (401, Scope::Account),
            (403, Scope::One),
            (409, Scope::One),
        ] {
            let expected = Verdict::Later {
                why: format!("{code} said"),
                after: None,
                of,
            };
            check(Act::Event, answer(code), &expected);
        }
        let away = Verdict::of(Act::Status, "mine", &Reply::Away("no route".to_owned()));
        let expected = later("no route".to_owned(), None, Scope::Server);
        assert_eq!(away, expected);
    }

    #[test]
    fn a_right_that_is_missing_is_told_from_a_quota() {
        for (message, of) in [
            (
                "events is forbidden: User \"system:serviceaccount:brink-system:brink\" cannot create resource \"events\" in API \
                 group \"\" in the namespace \"shop\"",
                Scope::Act,
            ),
            (
                "events \"web.1\" is forbidden: exceeded quota: small, requested: count/events=1, used: count/events=5, limited: \
                 count/events=5",
                Scope::One,
            ),
        ] {
            let forbidden = Answer {
                message: message.to_owned(),
                ..answer(403)
            };
            let expected = later(format!("403 {message}"), None, of);
            check(Act::Event, forbidden, &expected);
        }
    }

    #[test]
    fn a_namespace_that_ends_takes_no_event() {
        let ending = Answer {
            message:
                "unable to create new content in namespace shop because it is being terminated"
                    .to_owned(),
            ..answer(403)
        };
        check(Act::Event, ending, &Verdict::Never(End::Gone));
    }
}
