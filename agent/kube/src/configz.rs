//! What the kubelet of this node goes by, as it says itself at `/configz`: the API server is asked, and asks the kubelet.
//!
//! Defaults, files and flags are all in it. It takes the right to `get` `nodes/proxy`, which reaches far more than this, so nobody
//! asks unless told to.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use futures_util::io::AsyncReadExt as _;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::client::{Access, ConnectError, SOON, in_words};
use crate::retry::Backoff;
use crate::write::answer::Reply;
use crate::write::door::{self, shortened};
use crate::write::request;

/// Who has not answered by then, in full, is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes, whatever it says: a kubelet's has less than ten thousand.
const LARGEST: usize = 256 << 10;
/// It is asked again after so long, and up to half of that later, so that not all nodes ask at once: a kubelet may have been started
/// with another configuration meanwhile.
const AGAIN: Duration = Duration::from_mins(10);
/// The same where the server knows no such node: its kubelet may not have made it yet.
const UNKNOWN: Duration = Duration::from_mins(1);
/// The server's word for that. A kubelet that does not serve `/configz` answers 404 too, in plain text.
const NOT_FOUND: &str = "NotFound";

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub enum ConfigzError {
    /// There is no way to the server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server cannot be asked.
    #[error("{}", shortened(in_words(.0)))]
    Request(#[from] kube::Error),
    /// The server or the kubelet answers with an error.
    #[error("{}", advised(*.code, .message))]
    Refused {
        /// HTTP's code.
        code: u16,
        /// The server's word for why; empty where the kubelet refuses.
        reason: String,
        /// What it says, shortened.
        message: String,
        /// How long the server wants to be left alone.
        after: Option<Duration>,
    },
    /// The answer broke off.
    #[error("the answer broke off: {0}")]
    Broken(#[from] io::Error),
    /// There is no answer.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Slow,
    /// There is too much of it.
    #[error("the answer is larger than {} KiB", LARGEST >> 10)]
    TooLarge,
    /// It is something else.
    #[error("the answer is no kubelet's configuration: {0}")]
    NotUnderstood(String),
}

/// What was said, and what to do about it.
fn advised(code: u16, message: &str) -> String {
    let said = match message.trim() {
        "" => format!("HTTP {code}"),
        message => format!("{message} (HTTP {code})"),
    };
    let advice = match code {
        401 => {
            "the API server does not know who asks; the agent's token or certificate is over, or is for another server"
        }
        403 => {
            "it takes the right to get nodes/proxy, which the component kubelet-configz of deploy/kubernetes grants"
        }
        404 | 405 => {
            "the node has another name (kubernetes.nodeName), or its kubelet does not serve /configz (enableDebuggingHandlers)"
        }
        _ => return said,
    };
    format!("{said}: {advice}")
}

/// Asks the kubelet of a node once: its `KubeletConfiguration` as JSON.
///
/// # Errors
/// [`ConfigzError`], with what to do about it.
pub async fn ask(access: &Access, node: &str) -> Result<String, ConfigzError> {
    let asked = async {
        let client = access.connect_within(SOON).await?;
        ask_by(&client, node).await
    };
    timeout(PATIENCE, asked)
        .await
        .unwrap_or(Err(ConfigzError::Slow))
}

async fn ask_by(client: &Client, node: &str) -> Result<String, ConfigzError> {
    let request = request::node_configz(node).map_err(kube::Error::HttpError)?;
    let answer = client.send(request.map(Body::from)).await?;
    let (parts, body) = answer.into_parts();
    let body = body.into_data_stream().map_err(io::Error::other);
    // One byte more than allowed is enough to see that it is too much.
    let mut body = pin!(body.into_async_read().take(LARGEST as u64 + 1));
    let mut text = Vec::new();
    let ended = body.read_to_end(&mut text).await;
    if parts.status.is_success() {
        ended?;
        return read(&text);
    }
    // Of an error whatever has come is told.
    Err(match door::read(Ok((parts, text))) {
        Reply::Answer(answer) => ConfigzError::Refused {
            code: answer.code,
            reason: answer.reason,
            message: answer.message,
            after: answer.retry_after,
        },
        Reply::Away(why) => ConfigzError::NotUnderstood(why),
    })
}

/// The answer, as far as it is looked at.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    kubeletconfig: &'a RawValue,
}

fn read(text: &[u8]) -> Result<String, ConfigzError> {
    if text.len() > LARGEST {
        return Err(ConfigzError::TooLarge);
    }
    let answer: Answer<'_> = serde_json::from_slice(text)
        .map_err(|error| ConfigzError::NotUnderstood(shortened(error.to_string())))?;
    let config = answer.kubeletconfig.get();
    if !config.starts_with('{') {
        let why = "kubeletconfig is no object";
        return Err(ConfigzError::NotUnderstood(why.to_owned()));
    }
    Ok(config.to_owned())
}

/// Whose kubelet is asked.
#[derive(Clone, Debug)]
pub struct Follow {
    /// How the API server is reached.
    pub access: Access,
    /// The node.
    pub node: String,
    /// Anything that differs from run to run: no two wait alike.
    pub seed: u64,
    /// Has it asked again at once.
    pub again: Arc<Notify>,
}

impl Follow {
    /// Asks now and again, for ever, and tells each time what was said, or why nothing was.
    pub async fn run(&self, tell: impl FnMut(Result<String, ConfigzError>)) {
        let backoff = Backoff::new(&self.node, self.seed);
        let asks = async || ask(&self.access, &self.node).await;
        follow(asks, backoff, &self.again, tell).await;
    }
}

async fn follow(
    asks: impl AsyncFn() -> Result<String, ConfigzError>,
    mut backoff: Backoff,
    again: &Notify,
    mut tell: impl FnMut(Result<String, ConfigzError>),
) {
    loop {
        let asked = asks().await;
        let wait = match &asked {
            Ok(_) => {
                backoff.succeeded();
                later(&mut backoff, AGAIN)
            }
            Err(ConfigzError::Refused {
                code: 404, reason, ..
            }) if reason == NOT_FOUND => later(&mut backoff, UNKNOWN),
            // Somebody has to change something first: there is no use in asking soon.
            Err(ConfigzError::Refused {
                code: 403..=405, ..
            }) => later(&mut backoff, AGAIN),
            Err(ConfigzError::Refused { after, .. }) => backoff.failed(*after),
            Err(_) => backoff.failed(None),
        };
        tell(asked);
        tokio::select! {
            () = sleep(wait) => {}
            () = again.notified() => {}
        }
    }
}

/// After so long, and up to half of that later.
fn later(backoff: &mut Backoff, least: Duration) -> Duration {
    least + backoff.part_of(least / 2)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::write::fake::{Fake, Plays};

    async fn asked(plays: Plays) -> Result<String, String> {
        let fake = Fake::default();
        fake.then(plays);
        let asked = ask_by(&fake.client(), "node-a").await;
        let expected = ["GET /api/v1/nodes/node-a/proxy/configz"];
        assert_eq!(fake.lines(), expected);
        asked.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_the_kubelet_says_is_taken_as_it_stands() {
        let config = json!({ "evictionHard": { "memory.available": "100Mi" }, "port": 10250 });
        let answer = json!({ "kubeletconfig": config, "other": 1 });
        let said = asked(Plays::Says(200, answer)).await.unwrap();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said, config);
    }

    #[tokio::test]
    async fn whoever_is_refused_hears_what_to_do() {
        let status = |code: u16, message: &str| {
            let body =
                json!({ "kind": "Status", "status": "Failure", "message": message, "code": code });
            Plays::Says(code, body)
        };
        for (plays, expected) in [
            (status(401, "Unauthorized"), "token or certificate is over"),
            (status(403, "nodes is forbidden"), "get nodes/proxy"),
            (status(404, "not found"), "kubernetes.nodeName"),
            (
                Plays::Says(405, json!("Debug endpoints are disabled.")),
                "enableDebuggingHandlers",
            ),
            (status(503, "dial tcp: refused"), "dial tcp: refused"),
            (Plays::Breaks, "connection refused"),
        ] {
            let why = asked(plays.clone()).await.unwrap_err();
            assert!(why.contains(expected), "{plays:?}: {why}");
        }
    }

    #[tokio::test]
    async fn what_is_no_configuration_or_too_much_is_not_taken() {
        let long = "x".repeat(LARGEST);
        for (answer, expected) in [
            (json!({ "kubeletconfig": "text" }), "no object"),
            (
                json!({ "componentconfig": {} }),
                "no kubelet's configuration",
            ),
            (json!([1]), "no kubelet's configuration"),
            (json!({ "kubeletconfig": { "a": long } }), "256 KiB"),
        ] {
            let why = asked(Plays::Says(200, answer)).await.unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[tokio::test]
    async fn an_error_counts_by_its_code_and_is_told_in_part_however_long_it_is() {
        // What the body says of itself is another code.
        let body =
            json!({ "kind": "Status", "message": "\u{20ac}".repeat(LARGEST / 4), "code": 500 });
        let why = asked(Plays::Says(403, body)).await.unwrap_err();
        assert!(why.contains("(HTTP 403): it takes the right"), "{why}");
        assert!(why.len() < 1 << 10, "{}", why.len());
        let page = json!("x".repeat(LARGEST * 2));
        let why = asked(Plays::Says(502, page)).await.unwrap_err();
        assert!(why.contains("(HTTP 502)") && why.len() < 1 << 10, "{why}");
        let long = json!("x".repeat(LARGEST / 2));
        let why = asked(Plays::Says(200, long)).await.unwrap_err();
        assert!(why.len() < 1 << 10, "{}", why.len());
        let why = asked(Plays::PutsOff(7)).await.unwrap_err();
        assert_eq!(why, "HTTP 429");
    }

    #[tokio::test]
    async fn a_node_that_nobody_knows_differs_from_a_kubelet_that_does_not_serve_this() {
        let message = "nodes \"node-a\" not found";
        let status = json!({ "kind": "Status", "reason": NOT_FOUND, "message": message });
        for (body, expected) in [(status, NOT_FOUND), (json!("404 page not found"), "")] {
            let fake = Fake::default();
            fake.then(Plays::Says(404, body));
            let why = ask_by(&fake.client(), "node-a").await.unwrap_err();
            let ConfigzError::Refused { code, reason, .. } = &why else {
                panic!("{why:?}");
            };
            assert_eq!((*code, reason.as_str()), (404, expected));
        }
    }

    fn refused(code: u16, reason: &str) -> ConfigzError {
        ConfigzError::Refused {
            code,
            reason: reason.to_owned(),
            message: "no".to_owned(),
            after: None,
        }
    }

    /// When it is asked if these are the answers, until `longest` is over; somebody wants it again after `wanted`.
    async fn times(
        answers: Vec<Result<String, ConfigzError>>,
        wanted: Option<Duration>,
        longest: Duration,
    ) -> Vec<Duration> {
        let begin = Instant::now();
        let times = RefCell::new(Vec::new());
        let answers = RefCell::new(VecDeque::from(answers));
        let again = Notify::new();
        let asks = async || {
            times.borrow_mut().push(begin.elapsed());
            let next = answers.borrow_mut().pop_front();
            next.unwrap_or_else(|| Ok("{}".to_owned()))
        };
        let wakes = async {
            if let Some(wanted) = wanted {
                sleep(wanted).await;
                again.notify_one();
            }
            sleep(longest).await;
        };
        tokio::select! {
            () = follow(&asks, Backoff::new("node-a", 7), &again, |_| {}) => {}
            () = wakes => {}
        }
        times.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_tried_again_soon_and_a_refusal_as_seldom_as_an_answer() {
        let answers = Vec::from([
            Err(ConfigzError::Slow),
            Err(refused(403, "Forbidden")),
            Ok("{}".to_owned()),
        ]);
        let times = times(answers, None, AGAIN * 3).await;
        let waits: Vec<Duration> = times
            .windows(2)
            .map(|two| two[1].saturating_sub(two[0]))
            .collect();
        assert!(waits[0] <= Duration::from_secs(1), "{waits:?}");
        let seldom = AGAIN..=AGAIN * 3 / 2 + Duration::from_secs(1);
        assert!(waits[1..].iter().all(|wait| seldom.contains(wait)));
        assert!((2..=3).contains(&waits.len()), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_node_is_asked_for_soon_and_a_kubelet_that_does_not_serve_this_seldom() {
        for (reason, least) in [(NOT_FOUND, UNKNOWN), ("", AGAIN)] {
            let answers = Vec::from([Err(refused(404, reason))]);
            let times = times(answers, None, AGAIN * 2).await;
            let wait = times[1].saturating_sub(times[0]);
            assert!((least..=least * 2).contains(&wait), "{reason}: {wait:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_at_once_when_somebody_wants_it() {
        let minute = Duration::from_mins(1);
        let times = times(Vec::new(), Some(minute), minute).await;
        assert_eq!(times.len(), 2, "{times:?}");
        assert!(times[1] >= minute && times[1] < minute * 2);
    }
}
