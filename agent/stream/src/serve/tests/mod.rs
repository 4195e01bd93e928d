//! The server over real sockets: what is asked, what comes back, and who may harm whom.

mod asking;
mod following;
mod hostile;
mod incidents;
mod privileged_tests;
mod resuming;
mod rotating;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::*;
use crate::hub::{Identity, Limits};
use crate::model::event::{Draft, Subject};
use crate::model::kind::Kind;

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_mins(1);
const BOOT: &str = "3f2a0000-0000-4000-8000-000000000000";
/// Microseconds since 1970 of what is told first; one second from event to event.
const START_US: i64 = 1_700_000_000_000_000;

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let done = runtime.block_on(async { timeout(PATIENCE, test).await });
    done.expect("the test ends in time")
}

fn hub_of(base: u64, events: usize) -> Hub {
    let identity = Identity {
        node: "node".to_owned(),
        boot_id: BOOT.to_owned(),
    };
    let limits = Limits {
        events,
        bytes: 64 << 20,
    };
    Hub::new(identity, base, limits)
}

/// Tells one event; its time follows from its number.
fn tell(hub: &Hub, of: Kind, workload: Option<(&str, &str)>) -> u64 {
    let seq = i64::try_from(hub.numbering().last + 1).unwrap();
    let subject = workload.map(|(namespace, name)| Subject {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Subject::default()
    });
    let at = Time::new(START_US + seq * 1_000_000, seq);
    hub.tell(Draft::new(of, at, subject, &json!({})).unwrap())
}

fn service(hub: &Hub) -> Service {
    let clock = hub.clone();
    Service::new(hub.clone(), move || {
        let last = i64::try_from(clock.numbering().last).unwrap();
        Time::new(START_US + last * 1_000_000, last)
    })
}

/// A served socket in a folder that goes with it.
struct Served {
    folder: tempfile::TempDir,
}

impl Served {
    fn new(service: Service) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let door = Door::unix(&folder.path().join("events.sock")).unwrap();
        tokio::spawn(Arc::new(service).serve(vec![door]));
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("events.sock")
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.path()).await.unwrap()
    }

    /// Asks for a target and reads to the end.
    async fn get(&self, target: &str) -> Answer {
        self.get_with(target, "").await
    }

    async fn get_with(&self, target: &str, headers: &str) -> Answer {
        let head =
            format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        self.say(head.as_bytes()).await
    }

    /// Sends bytes and reads to the end.
    async fn say(&self, bytes: &[u8]) -> Answer {
        say(&self.path(), bytes).await
    }

    /// Begins to follow, and reads the head of the answer.
    async fn follow(&self, target: &str, headers: &str) -> Following {
        let mut stream = self.connect().await;
        let head = format!("GET {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut following = Following {
            stream,
            raw: Vec::new(),
        };
        while !following.raw.windows(4).any(|four| four == b"\r\n\r\n") {
            assert!(following.read().await, "the head of the answer");
        }
        following
    }
}

async fn say(path: &Path, bytes: &[u8]) -> Answer {
    let mut stream = UnixStream::connect(path).await.unwrap();
    // Who is refused early may not take everything.
    let _written = stream.write_all(bytes).await;
    let mut raw = Vec::new();
    let _reset = stream.read_to_end(&mut raw).await;
    Answer::parse(&raw)
}

/// A stream of events that is being read.
struct Following {
    stream: UnixStream,
    raw: Vec<u8>,
}

impl Following {
    async fn read(&mut self) -> bool {
        self.stream.read_buf(&mut self.raw).await.unwrap_or(0) > 0
    }

    /// Reads until the body holds `text`.
    async fn until(&mut self, text: &str) -> Answer {
        loop {
            let answer = Answer::parse(&self.raw);
            if answer.body.contains(text) {
                return answer;
            }
            assert!(self.read().await, "{text} never came: {}", answer.body);
        }
    }

    async fn rest(mut self) -> Answer {
        while self.read().await {}
        Answer::parse(&self.raw)
    }
}

/// An answer, its body out of its chunks.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
    is_whole: bool,
}

impl Answer {
    fn parse(raw: &[u8]) -> Self {
        let text = String::from_utf8_lossy(raw);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let (body, is_whole) = if head.contains("Transfer-Encoding: chunked") {
            unchunked(body)
        } else {
            (body.to_owned(), true)
        };
        Self {
            status: status.unwrap_or(0),
            head: head.to_owned(),
            body,
            is_whole,
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    fn lines(&self) -> Vec<Value> {
        let lines = self.body.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The numbers of its events.
    fn numbers(&self) -> Vec<u64> {
        let lines = self.lines();
        lines
            .iter()
            .map(|line| line["seq"].as_u64().unwrap())
            .collect()
    }
}

fn unchunked(mut rest: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("the size of a chunk");
        if size == 0 {
            return (body, true);
        }
        let Some(piece) = behind.get(..size + 2) else {
            body.push_str(behind);
            break;
        };
        body.push_str(&piece[..size]);
        rest = &behind[size + 2..];
    }
    (body, false)
}
