//! What is asked of a server, and what becomes of its answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde::Deserialize;
use tower::service_fn;

use super::*;

/// A server that gives its answers in turn, and then none. What it was asked is noted.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn answering<const N: usize>(answers: [(u16, &str); N]) -> Self {
        let answers = answers.map(|(code, text)| (code, text.to_owned()));
        Self {
            answers: Arc::new(Mutex::new(answers.into())),
            asked: Arc::default(),
        }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            server.asked.lock().unwrap().push(request.uri().to_string());
            let answer = server.answers.lock().unwrap().pop_front();
            async move {
                let Some((code, text)) = answer else {
                    return std::future::pending().await;
                };
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(text.into_bytes()));
                Ok::<_, std::io::Error>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn watch(&self, streaming: Streaming) -> Watch<Named> {
        let query = Query {
            path: "/api/v1/pods",
            fields: "spec.nodeName=a".to_owned(),
            only_metadata: false,
            streaming,
            lasts: Duration::from_mins(5),
        };
        Watch::new(self.client(), query)
    }

    /// What was asked at last, `&` by `&`.
    fn last(&self) -> String {
        self.asked.lock().unwrap().last().unwrap().clone()
    }
}

/// An object by name and version.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Named {
    metadata: Meta,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Meta {
    name: String,
    #[serde(rename = "resourceVersion")]
    version: String,
}

impl Object for Named {
    fn resource_version(&self) -> &str {
        &self.metadata.version
    }
}

fn object(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn list(version: &str, more: &str, items: &[String]) -> String {
    let items = items.join(",");
    format!(
        r#"{{"apiVersion":"v1","kind":"PodList","metadata":{{"resourceVersion":"{version}","continue":"{more}"}},"items":[{items}]}}"#
    )
}

fn status(code: u16, reason: &str, details: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"{reason}","details":{details},"code":{code}}}"#
    )
}

fn bookmark(version: u32, annotations: &str) -> String {
    let object = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"resourceVersion":"{version}","annotations":{{{annotations}}}}}}}"#
    );
    event("BOOKMARK", &object)
}

/// The next changes in short: `+a` found, `=a` applied, `-a` deleted, and words for the rest; an error ends them.
async fn told(watch: &mut Watch<Named>, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    for _ in 0..count {
        let name = |sign: char, named: &Named| format!("{sign}{}", named.metadata.name);
        told.push(match watch.next().await {
            Ok(Change::Began) => "began".to_owned(),
            Ok(Change::Found(named)) => name('+', &named),
            Ok(Change::Complete) => "complete".to_owned(),
            Ok(Change::Opened) => "opened".to_owned(),
            Ok(Change::Applied(named)) => name('=', &named),
            Ok(Change::Deleted(named)) => name('-', &named),
            Err(error) => format!("error: {error}"),
        });
    }
    told
}

#[tokio::test]
async fn a_list_and_then_changes_from_where_it_was_made() {
    let changes = event("MODIFIED", &object("a", 12))
        + &event("DELETED", &object("b", 13))
        + &bookmark(20, "");
    let server = Server::answering([
        (200, &list("11", "", &[object("a", 3), object("b", 5)])),
        (200, &changes),
        (200, &event("ADDED", &object("c", 21))),
    ]);
    let mut watch = server.watch(Streaming::Never);
    let first = told(&mut watch, 4).await;
    assert_eq!(first, ["began", "+a", "+b", "complete"]);
    let asked = server.last();
    assert!(
        asked.contains("fieldSelector=spec.nodeName%3Da") && asked.contains("resourceVersion=0"),
        "{asked}"
    );
    assert!(!asked.contains("limit"), "the cache has no pages: {asked}");
    assert_eq!(told(&mut watch, 3).await, ["opened", "=a", "-b"]);
    let asked = server.last();
    assert!(
        asked.contains("watch=true") && asked.contains("resourceVersion=11"),
        "{asked}"
    );
    assert!(
        asked.contains("timeoutSeconds=300") && asked.contains("allowWatchBookmarks=true"),
        "{asked}"
    );
    // The watch ended; the next goes on from the mark.
    assert_eq!(told(&mut watch, 2).await, ["opened", "=c"]);
    assert!(
        server.last().contains("resourceVersion=20"),
        "{}",
        server.last()
    );
}

#[tokio::test]
async fn a_server_that_has_forgotten_is_asked_for_the_list_again() {
    let expired = status(410, "Expired", "{}");
    let server = Server::answering([
        (200, &list("11", "", &[object("a", 3)])),
        (200, &event("ERROR", &expired)),
        (200, &list("40", "", &[object("b", 30)])),
        (410, &expired),
        (200, &list("50", "", &[])),
        (200, &bookmark(60, "")),
    ]);
    let mut watch = server.watch(Streaming::Never);
    let expected = [
        "began", "+a", "complete", "opened", "began", "+b", "complete",
    ];
    assert_eq!(told(&mut watch, 7).await, expected, "as an event");
    assert!(
        server.last().contains("resourceVersion=11"),
        "none older than what was seen"
    );
    // As an answer, and for the second time without a word in between: that takes a pause.
    assert_eq!(told(&mut watch, 1).await, ["error: no (HTTP 410)"]);
    assert_eq!(told(&mut watch, 3).await, ["began", "complete", "opened"]);
}

#[tokio::test]
async fn a_list_that_the_cache_cannot_give_is_asked_of_etcd_page_by_page() {
    let causes = r#"{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1}"#;
    let server = Server::answering([
        (504, &status(504, "Timeout", causes)),
        (200, &list("11", "next", &[object("a", 3)])),
        (200, &list("11", "", &[object("b", 4)])),
    ]);
    let mut watch = server.watch(Streaming::Never);
    assert_eq!(told(&mut watch, 1).await, ["began"]);
    let error = watch.next().await.unwrap_err();
    assert_eq!(error.asked_wait(), Some(Duration::from_secs(1)));
    assert_eq!(told(&mut watch, 2).await, ["began", "+a"]);
    let asked = server.last();
    assert!(
        asked.contains("limit=500") && !asked.contains("resourceVersion"),
        "{asked}"
    );
    assert_eq!(told(&mut watch, 2).await, ["+b", "complete"]);
    assert!(server.last().contains("continue=next"), "{}", server.last());
}

#[tokio::test]
async fn a_stream_that_the_cache_cannot_give_is_asked_of_etcd() {
    let causes = r#"{"causes":[{"reason":"ResourceVersionTooLarge"}]}"#;
    let expired = status(410, "Expired", "{}");
    let ahead = status(504, "Timeout", causes);
    let end = |version| bookmark(version, r#""k8s.io/initial-events-end":"true""#);
    // etcd was restored: what was seen is ahead of all there is. Said as an answer, and as an event.
    for refused in [(504, ahead.clone()), (200, event("ERROR", &ahead))] {
        let server = Server::answering([
            (200, &end(5000)),
            (410, &expired),
            (refused.0, &refused.1),
            (200, &(event("ADDED", &object("a", 3)) + &end(11))),
        ]);
        let mut watch = server.watch(Streaming::Always);
        assert_eq!(told(&mut watch, 2).await, ["began", "complete"]);
        while watch.next().await.is_ok() {}
        let asked = server.last();
        assert!(asked.ends_with("resourceVersion=5000"), "{asked}");
        assert_eq!(told(&mut watch, 3).await, ["began", "+a", "complete"]);
        let asked = server.last();
        assert!(
            asked.contains("sendInitialEvents=true") && asked.ends_with("resourceVersion="),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn credentials_that_have_run_out_are_told_from_those_that_are_refused() {
    let check = async |code: u16, until: Option<i64>, expected: bool| {
        let server = Server::answering([(code, &status(code, "Reason", "{}"))]);
        let mut watch = server.watch(Streaming::Never);
        let until = until.map(|second| Timestamp::from_second(second).unwrap());
        watch.reconnect(server.client().with_valid_until(until));
        assert_eq!(told(&mut watch, 1).await, ["began"]);
        let error = watch.next().await.unwrap_err();
        let found = [(); 2].map(|()| watch.is_to_be_renewed(&error));
        assert_eq!(found, [expected, false], "{code} {until:?}: once in a row");
    };
    check(401, Some(1), true).await;
    check(401, Some(99_999_999_999), false).await;
    check(401, None, false).await;
    check(503, Some(1), false).await;
}

#[tokio::test]
async fn a_refusal_keeps_what_is_known() {
    let server = Server::answering([
        (200, &list("11", "", &[])),
        (
            429,
            &status(429, "TooManyRequests", r#"{"retryAfterSeconds":7}"#),
        ),
        (429, "Too many requests, please try again later."),
        (503, "no healthy upstream"),
        (401, &status(401, "Unauthorized", "{}")),
        (200, &bookmark(12, "")),
    ]);
    let mut watch = server.watch(Streaming::Never);
    assert_eq!(told(&mut watch, 2).await, ["began", "complete"]);
    let error = watch.next().await.unwrap_err();
    assert_eq!(error.asked_wait(), Some(Duration::from_secs(7)));
    let overloaded = watch.next().await.unwrap_err();
    assert_eq!(overloaded.asked_wait(), Some(Duration::from_secs(1)));
    let away = watch.next().await.unwrap_err();
    assert_eq!(away.to_string(), "no healthy upstream (HTTP 503)");
    assert_eq!(away.asked_wait(), None);
    assert!(watch.next().await.unwrap_err().is_refused());
    watch.reconnect(server.client());
    assert_eq!(
        told(&mut watch, 1).await,
        ["opened"],
        "without another list"
    );
    assert!(
        server.last().contains("resourceVersion=11"),
        "{}",
        server.last()
    );
}

#[tokio::test]
async fn lists_are_streamed_where_the_server_does_so() {
    let version = |minor: &str| {
        let rest = r#""gitVersion":"","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":"""#;
        format!(r#"{{"major":"1","minor":"{minor}",{rest}}}"#)
    };
    let stream =
        event("ADDED", &object("a", 3)) + &bookmark(11, r#""k8s.io/initial-events-end":"true""#);
    let server = Server::answering([
        (200, &version("34")),
        (200, &(stream + &event("ADDED", &object("b", 12)))),
    ]);
    let mut watch = server.watch(Streaming::Auto);
    assert_eq!(told(&mut watch, 4).await, ["began", "+a", "complete", "=b"]);
    assert!(
        server.last().contains("sendInitialEvents=true"),
        "{}",
        server.last()
    );
    // One that knows of it and has it switched off, and one that does not know of it.
    let refused = status(422, "Invalid", "{}");
    let plain = list("11", "", &[object("a", 3)]);
    let server = Server::answering([(200, &version("28+")), (422, &refused), (200, &plain)]);
    assert_eq!(
        told(&mut server.watch(Streaming::Auto), 3).await,
        ["began", "+a", "complete"]
    );
    let server = Server::answering([(200, &version("20")), (200, &plain)]);
    assert_eq!(
        told(&mut server.watch(Streaming::Auto), 3).await,
        ["began", "+a", "complete"]
    );
    assert!(!server.last().contains("watch"), "{}", server.last());
    // Who insists is told.
    let server = Server::answering([(422, &refused)]);
    assert_eq!(
        told(&mut server.watch(Streaming::Always), 1).await,
        ["error: no (HTTP 422)"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_away() {
    let server = Server::answering([(200, &list("11", "", &[]))]);
    let mut watch = server.watch(Streaming::Never);
    assert_eq!(told(&mut watch, 2).await, ["began", "complete"]);
    assert_eq!(
        told(&mut watch, 1).await,
        ["error: the API server has not answered for 30 s"]
    );
}

#[tokio::test]
async fn a_watch_that_is_cut_at_once_is_a_failure() {
    let empty = "\n";
    let server = Server::answering([(200, &list("11", "", &[])), (200, empty), (200, empty)]);
    let mut watch = server.watch(Streaming::Never);
    assert_eq!(told(&mut watch, 3).await, ["began", "complete", "opened"]);
    let cut = "error: the API server ends the watch as soon as it has begun";
    assert_eq!(told(&mut watch, 2).await, [cut, "opened"]);
}

#[tokio::test]
async fn answers_without_a_version_are_not_gone_on_from() {
    let server = Server::answering([(200, &list("", "", &[]))]);
    let mut watch = server.watch(Streaming::Never);
    let said = told(&mut watch, 2).await;
    assert!(said[1].contains("no resourceVersion"), "{said:?}");
}
