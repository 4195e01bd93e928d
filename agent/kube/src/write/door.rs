//! One request, one answer: with a limit on how long it may take, and nothing of it thrown away that says why.

use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::timeout;

use super::answer::{Answer, Reply};
use super::request::Ready;
use crate::client::{Access, ConnectError, Origin, has_run_out, in_words};

/// A request that takes longer has no answer. An API server that is alive answers within a second, and a busy one puts off.
const PATIENCE: Duration = Duration::from_secs(10);
/// No server is left alone for longer than this.
const LONGEST_REST: Duration = Duration::from_mins(2);
/// Longest message of the server's that is kept, in bytes.
const LONGEST_MESSAGE: usize = 512;

/// The parts of an object, or of an error, that are looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Metadata,
    reason: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
}

/// The way to the server. After a connection that failed, and where the server does not know who asks (401), the next request
/// goes by a new client: certificates and tokens may be others by then. A right that is missing (403) is missing to a new one
/// too, unless it is another account: [`Self::has_changed`] tells.
pub struct Door {
    access: Option<Access>,
    client: Option<Client>,
    /// The files the client was made of, as they were.
    origin: Origin,
}

/// An answer with its body.
type Whole = (http::response::Parts, Vec<u8>);

impl Door {
    /// By what is configured; nothing is asked yet.
    pub const fn new(access: Access) -> Self {
        Self {
            access: Some(access),
            client: None,
            origin: Origin::NONE,
        }
    }

    /// By this client, whatever becomes of it.
    pub const fn by(client: Client) -> Self {
        Self {
            access: None,
            client: Some(client),
            origin: Origin::NONE,
        }
    }

    /// Whether the files that say who asks are others than they were when the client was made; the next request then goes by a
    /// new one. Files that cannot be looked at in time are taken for the same.
    pub async fn has_changed(&mut self) -> bool {
        let Some(access) = &self.access else {
            return false;
        };
        let Ok(origin) = access.origin().await else {
            return false;
        };
        let is_other = origin != self.origin;
        if is_other {
            self.origin = origin;
            self.client = None;
        }
        is_other
    }

    /// Sends a request, and says what came back.
    pub async fn ask(&mut self, ready: Ready) -> Reply {
        read(self.ask_whole(ready).await)
    }

    /// The same, with the body.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask_whole(&mut self, ready: Ready) -> Result<Whole, String> {
        let request = ready.map_err(|error| error.to_string())?;
        let client = self.client().await?;
        let whole = async {
            let answer = client.send(request.map(Body::from)).await?;
            let (parts, body) = answer.into_parts();
            let body = body.collect_bytes().await?;
            Ok::<_, kube::Error>((parts, body.to_vec()))
        };
        let whole = match timeout(PATIENCE, whole).await {
            Ok(Ok(whole)) => Ok(whole),
            Ok(Err(error)) => Err(shortened(in_words(&error))),
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        let is_refused = |whole: &Whole| whole.0.status == StatusCode::UNAUTHORIZED;
        if self.access.is_some() && whole.as_ref().map_or(true, is_refused) {
            self.client = None;
        }
        whole
    }

    async fn client(&mut self) -> Result<Client, String> {
        // Before the server refuses it. One that was given says nothing of how long it holds.
        let holds = |client: &&Client| !has_run_out(*client.valid_until(), Timestamp::now());
        if let Some(client) = self.client.as_ref().filter(holds) {
            return Ok(client.clone());
        }
        let access = self.access.as_ref().ok_or("no way to the API server")?;
        let in_words = |error: ConnectError| error.to_string();
        self.origin = access.origin().await.map_err(in_words)?;
        let client = access.connect().await.map_err(in_words)?;
        self.client = Some(client.clone());
        Ok(client)
    }
}

/// What an answer says of itself.
pub(crate) fn read(whole: Result<Whole, String>) -> Reply {
    let (parts, body) = match whole {
        Ok(whole) => whole,
        Err(why) => return Reply::Away(why),
    };
    let code = parts.status.as_u16();
    let after = parts.headers.get(RETRY_AFTER);
    let after = after.and_then(|after| after.to_str().ok()?.parse().ok());
    let retry_after = after.map(|after| Duration::from_secs(after).min(LONGEST_REST));
    let head: Head = serde_json::from_slice(&body).unwrap_or_else(|_| Head {
        // A proxy's page, perhaps.
        message: String::from_utf8_lossy(&body).into_owned(),
        ..Head::default()
    });
    Reply::Answer(Answer {
        code,
        retry_after,
        reason: shortened(head.reason),
        message: shortened(head.message),
        uid: head.metadata.uid,
        version: head.metadata.resource_version,
    })
}

/// A message as far as it is kept.
pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE)
            .rev()
            .find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(code: u16, after: Option<&str>, body: &str) -> Reply {
        let mut response = http::Response::builder().status(code);
        if let Some(after) = after {
            response = response.header(RETRY_AFTER, after);
        }
        let (parts, ()) = response.body(()).unwrap().into_parts();
        read(Ok((parts, body.as_bytes().to_vec())))
    }

    #[tokio::test]
    async fn another_kubeconfig_is_seen_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, "one").unwrap();
        let mut door = Door::new(Access::new(Some(path.clone()), None, None));
        door.origin = door.access.as_ref().unwrap().origin().await.unwrap();
        assert!(!door.has_changed().await);
        for text in ["another", "a third"] {
            let aside = folder.path().join("new");
            std::fs::write(&aside, text).unwrap();
            std::fs::rename(&aside, &path).unwrap();
            assert!(
                door.has_changed().await && !door.has_changed().await,
                "{text}"
            );
        }
        std::fs::remove_file(&path).unwrap();
        assert!(door.has_changed().await && !door.has_changed().await);
    }

    #[tokio::test]
    async fn a_plugin_is_asked_anew_before_what_it_said_runs_out() {
        for (until, expected) in [("2020-01-01T00:00:00Z", 2), ("2999-01-01T00:00:00Z", 1)] {
            let folder = tempfile::tempdir().unwrap();
            let (path, runs) = (folder.path().join("config"), folder.path().join("runs"));
            let answer = format!(r#"{{"status":{{"token":"a","expirationTimestamp":"{until}"}}}}"#);
            let script = format!("echo '{answer}'; echo >> '{}'", runs.display());
            let config = serde_json::json!({
                "current-context": "a",
                "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                "users": [{"name": "a", "user": {"exec": {"command": "sh", "args": ["-c", script]}}}],
            });
            std::fs::write(&path, config.to_string()).unwrap();
            let mut door = Door::new(Access::new(Some(path), None, None));
            for _ in 0..2 {
                door.client().await.unwrap();
            }
            let runs = std::fs::read_to_string(runs).unwrap();
            assert_eq!(runs.len(), expected, "{until}");
        }
    }

    #[test]
    fn an_object_and_an_error_are_told_apart_by_code_and_fields() {
        let object = r#"{"metadata":{"uid":"u","resourceVersion":"7","labels":null}}"#;
        assert_eq!(
            whole(200, None, object),
            Reply::Answer(Answer {
                code: 200,
                uid: "u".to_owned(),
                version: "7".to_owned(),
                ..Answer::default()
            })
        );
        let error = r#"{"kind":"Status","metadata":{},"message":"slow down","reason":"TooManyRequests","code":429}"#;
        assert_eq!(
            whole(429, Some("3"), error),
            Reply::Answer(Answer {
                code: 429,
                retry_after: Some(Duration::from_secs(3)),
                reason: "TooManyRequests".to_owned(),
                message: "slow down".to_owned(),
                ..Answer::default()
            })
        );
    }

    #[test]
    fn a_proxys_page_is_shortened_and_a_server_is_not_left_alone_for_ever() {
        let page = "\u{20ac}".repeat(1000);
        let Reply::Answer(answer) = whole(502, Some("999999"), &page) else {
            panic!("there was an answer");
        };
        assert_eq!(answer.retry_after, Some(LONGEST_REST));
        assert!(answer.message.len() <= LONGEST_MESSAGE && !answer.message.is_empty());
        assert_eq!(
            whole(503, Some("soon"), ""),
            Reply::Answer(Answer {
                code: 503,
                ..Answer::default()
            })
        );
    }
}
