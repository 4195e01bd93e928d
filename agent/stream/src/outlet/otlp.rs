//! Events as log records of OpenTelemetry: OTLP over plain HTTP with bodies of JSON, to a collector that takes it from there.
//!
//! What a collector says is worth another try (429, 502, 503, 504), and what it does not answer, is tried again until it goes, each
//! time later and every half a minute in the end: the hub keeps what comes meanwhile, as for the other ways out. Anything else it
//! refuses is lost, counted and told.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Failure, Outlet};
use crate::hub::{Identity, Line};
use crate::model::kind::Kind;

/// How long a collector may take for anything.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest and the longest wait between two tries, whatever a collector asks for.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Bytes of an answer that are read.
const LONGEST_ANSWER: u64 = 64 << 10;

/// Where a collector listens: `http://HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name or address, and its port.
    authority: String,
    /// `/v1/logs`, if nothing else is written.
    path: String,
}

impl Endpoint {
    /// Reads an endpoint; none if it is none, or one with TLS.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (authority, path) = rest
            .split_once('/')
            .map_or((rest, String::new()), |(authority, path)| {
                (authority, format!("/{path}"))
            });
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || !is_plain(rest) {
            return None;
        }
        let host_end = authority.rfind(']').map_or(0, |at| at + 1);
        let port = authority.get(host_end..)?.rsplit_once(':');
        let authority = match port {
            Some((_, port)) => {
                port.parse::<u16>().ok()?;
                authority.to_owned()
            }
            None => format!("{authority}:4318"),
        };
        let path = match &*path {
            "" | "/" => "/v1/logs".to_owned(),
            _ => path,
        };
        Some(Self { authority, path })
    }
}

/// The way to a collector.
#[derive(Debug)]
pub struct Otlp {
    endpoint: Endpoint,
    identity: Identity,
    version: &'static str,
    /// Tries of the batch in hand so far.
    tries: u32,
}

impl Otlp {
    /// To the collector at `endpoint`. The node and boot of `identity` describe where the records come from, and `version` is
    /// the agent's.
    pub const fn new(endpoint: Endpoint, identity: Identity, version: &'static str) -> Self {
        Self {
            endpoint,
            identity,
            version,
            tries: 0,
        }
    }

    fn post(&self, body: &[u8]) -> io::Result<Answer> {
        let mut stream = connect(&self.endpoint.authority)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: brink/{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.endpoint.path,
            self.endpoint.authority,
            self.version,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        read_answer(stream)
    }

    /// A failure after which the same is tried again: after 1 s, 2 s, 4 s and so on, or when the collector asks for it.
    fn later(&mut self, why: String, asked: Option<Duration>) -> Failure {
        let (shortest, longest) = WAITS;
        let wait = shortest * (1_u32 << self.tries.min(5));
        self.tries = self.tries.saturating_add(1);
        Failure {
            done: 0,
            lost: 0,
            why,
            again: asked.unwrap_or(wait).clamp(shortest, longest),
        }
    }
}

/// Whoever refuses is not asked again at once.
fn refused(done: usize, lost: u64, why: String) -> Failure {
    Failure {
        done,
        lost,
        why,
        again: WAITS.0,
    }
}

fn connect(authority: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What a collector answered.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// When it wants to be asked again.
    again: Option<Duration>,
    body: Vec<u8>,
}

fn read_answer(stream: TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let mut limited = stream.take(LONGEST_ANSWER);
    let mut chunk = [0; 4096];
    loop {
        let length = limited.read(&mut chunk)?;
        bytes.extend_from_slice(&chunk[..length]);
        let is_over = length == 0;
        if let Some(answer) = parse_answer(&bytes, is_over)? {
            return Ok(answer);
        }
        if is_over {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The answer in some bytes; none while it is not whole.
fn parse_answer(bytes: &[u8], is_over: bool) -> io::Result<Option<Answer>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response
        .parse(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    let httparse::Status::Complete(head) = parsed else {
        return Ok(None);
    };
    let number = |name: &str| {
        let mut named = response.headers.iter();
        let found = named.find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let mut encodings = response.headers.iter();
    let is_chunked = encodings.any(|header| {
        header.name.eq_ignore_ascii_case("transfer-encoding")
            && header.value.to_ascii_lowercase().ends_with(b"chunked")
    });
    let body = bytes.get(head..).unwrap_or_default();
    let (body, is_whole) = if is_chunked {
        unchunked(body)?
    } else {
        let length = number("content-length");
        let is_whole = length.is_some_and(|length| body.len() as u64 >= length);
        (body.to_vec(), is_whole)
    };
    Ok((is_whole || is_over).then(|| Answer {
        status: response.code.unwrap_or(0),
        again: number("retry-after").map(Duration::from_secs),
        body,
    }))
}

/// What is in the chunks of a body that are there, and whether the last one is.
fn unchunked(mut body: &[u8]) -> io::Result<(Vec<u8>, bool)> {
    let mut text = Vec::new();
    loop {
        let size = httparse::parse_chunk_size(body)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        let httparse::Status::Complete((begin, size)) = size else {
            return Ok((text, false));
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let end = begin.saturating_add(size);
        // Each ends with a line of its own.
        let (Some(chunk), Some(rest)) = (body.get(begin..end), body.get(end.saturating_add(2)..))
        else {
            return Ok((text, size == 0));
        };
        if size == 0 {
            return Ok((text, true));
        }
        text.extend_from_slice(chunk);
        body = rest;
    }
}

/// How many records of an accepted batch the collector has refused all the same, and why.
fn partly_refused(body: &[u8]) -> Option<(u64, String)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Response {
        partial_success: Partial,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Partial {
        /// As text or as a number: both are JSON of a 64-bit number in protocol buffers.
        #[serde(default)]
        rejected_log_records: Value,
        #[serde(default)]
        error_message: String,
    }
    let response: Response = serde_json::from_slice(body).ok()?;
    let partial = response.partial_success;
    let rejected = match &partial.rejected_log_records {
        Value::String(text) => text.parse().ok()?,
        number => number.as_u64()?,
    };
    (rejected > 0).then_some((rejected, partial.error_message))
}

impl Outlet for Otlp {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn put(&mut self, lines: &[Arc<Line>]) -> Result<(), Failure> {
        let count = lines.len();
        let body = request(lines, &self.identity, self.version).to_string();
        let answer = match self.post(body.as_bytes()) {
            Ok(answer) => answer,
            Err(error) => {
                let why = format!("the collector at {}: {error}", self.endpoint.authority);
                return Err(self.later(why, None));
            }
        };
        let why = format!(
            "the collector at {} answers {}",
            self.endpoint.authority, answer.status
        );
        match answer.status {
            200..=299 => {
                self.tries = 0;
                partly_refused(&answer.body).map_or(Ok(()), |(lost, message)| {
                    let lost = lost.min(count as u64);
                    Err(refused(
                        count,
                        lost,
                        format!("{why}, and refuses some: {message}"),
                    ))
                })
            }
            429 | 502 | 503 | 504 => Err(self.later(why, answer.again)),
            _ => {
                self.tries = 0;
                Err(refused(count, count as u64, why))
            }
        }
    }
}

/// A batch as the protocol's `ExportLogsServiceRequest`.
fn request(lines: &[Arc<Line>], identity: &Identity, version: &str) -> Value {
    let records: Vec<Value> = lines.iter().map(|line| record(line)).collect();
    json!({"resourceLogs": [{
        "resource": {"attributes": [
            text("service.name", "brink"),
            text("service.version", version),
            text("host.name", &identity.node),
            text("brink.boot_id", &identity.boot_id),
        ]},
        "scopeLogs": [{
            "scope": {"name": "brink.events", "version": version},
            "logRecords": records,
        }],
    }]})
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn record(line: &Line) -> Value {
    let (number, word) = severity(line.of);
    // 64-bit numbers are texts in the JSON of protocol buffers.
    let time = line.wall_us.max(0).unsigned_abs().saturating_mul(1000);
    let mut attributes = vec![
        text("brink.kind", line.of.word()),
        json!({"key": "brink.seq", "value": {"intValue": line.seq.to_string()}}),
    ];
    if let Some(subject) = &line.subject {
        let incident = subject.incident.as_deref().unwrap_or_default();
        let named = [
            ("k8s.namespace.name", &*subject.namespace),
            ("k8s.pod.name", &*subject.name),
            ("k8s.pod.uid", &*subject.uid),
            ("brink.incident", incident),
        ];
        let named = named.into_iter().filter(|(_, value)| !value.is_empty());
        attributes.extend(named.map(|(key, value)| text(key, value)));
    }
    json!({
        "timeUnixNano": time.to_string(),
        "observedTimeUnixNano": time.to_string(),
        "severityNumber": number,
        "severityText": word,
        "eventName": format!("brink.{}", line.of.word()),
        "body": {"stringValue": String::from_utf8_lossy(line.text.trim_ascii_end())},
        "attributes": attributes,
    })
}

/// The protocol's numbers for how pressing a record is.
const fn severity(of: Kind) -> (u8, &'static str) {
    match of {
        Kind::EvictionOrdered | Kind::OomKill | Kind::KillObserved | Kind::Loss => (13, "WARN"),
        _ => (9, "INFO"),
    }
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod receiver_tests;

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use super::*;
    use crate::outlet::samples::{line, odd_line};

    /// A collector that gives these answers, one a connection; returns the bodies that it was sent.
    fn collector(answers: &'static [&'static str]) -> (SocketAddr, thread::JoinHandle<Vec<Value>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let serve = |answer: &&str| {
                let (stream, _) = listener.accept().unwrap();
                let mut reader = io::BufReader::new(stream);
                let (mut line, mut length, mut first) = (String::new(), 0, String::new());
                while reader.read_line(&mut line).unwrap() > 2 {
                    if first.is_empty() {
                        first.clone_from(&line);
                    }
                    if let Some(value) = line.strip_prefix("Content-Length: ") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                assert_eq!(first, "POST /v1/logs HTTP/1.1\r\n");
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
                serde_json::from_slice(&body).unwrap()
            };
            answers.iter().map(serve).collect()
        });
        (address, thread)
    }

    fn otlp(address: SocketAddr) -> Otlp {
        let endpoint = Endpoint::parse(&format!("http://{address}")).unwrap();
        let identity = Identity {
            node: "node-1".to_owned(),
            boot_id: "boot".to_owned(),
        };
        Otlp::new(endpoint, identity, "1.2.3")
    }

    #[test]
    fn an_endpoint_is_plain_http_with_the_ports_and_paths_of_the_protocol() {
        let is = |authority: &str, path: &str| {
            Some(Endpoint {
                authority: authority.to_owned(),
                path: path.to_owned(),
            })
        };
        for (text, expected) in [
            ("http://127.0.0.1", is("127.0.0.1:4318", "/v1/logs")),
            ("http://otel:80/", is("otel:80", "/v1/logs")),
            ("http://[::1]/own/logs", is("[::1]:4318", "/own/logs")),
            ("http://[::1]:9/x", is("[::1]:9", "/x")),
            ("https://otel", None),
            ("otel:4318", None),
            ("http://", None),
            ("http://user@otel", None),
            ("http://otel:port", None),
            ("http://otel/a\r\nX: y", None),
        ] {
            assert_eq!(Endpoint::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn a_batch_is_a_request_of_the_protocol() {
        const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let (address, collector) = collector(&[OK]);
        otlp(address).put(&[line(17), odd_line(18)]).unwrap();
        let body = collector.join().unwrap().remove(0);
        let logs = &body["resourceLogs"][0];
        let attributes = logs["resource"]["attributes"].as_array().unwrap();
        assert!(attributes.contains(&text("host.name", "node-1")));
        let records = &logs["scopeLogs"][0]["logRecords"];
        assert_eq!(records.as_array().unwrap().len(), 2);
        let first = &records[0];
        assert_eq!(first["timeUnixNano"], "1700000000000001000");
        assert_eq!(first["severityNumber"], 13);
        assert_eq!(first["eventName"], "brink.oom-kill");
        let attributes = first["attributes"].as_array().unwrap();
        assert!(attributes.contains(&text("k8s.pod.name", "cart")));
        assert!(attributes.contains(&text("brink.incident", "3f2a-17")));
        let told: Value =
            serde_json::from_str(first["body"]["stringValue"].as_str().unwrap()).unwrap();
        assert_eq!(told["seq"], 17);
    }

    #[test]
    fn what_may_be_tried_again_is_until_it_goes_and_what_is_refused_is_lost() {
        const LATER: &str = "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
        const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        const NOW: &str = "HTTP/1.1 429 Slow\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
        const GONE: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
        const PART: &str = "HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedLogRecords\":\"1\",\"errorMessage\":\"too old\"}}";
        // The same from behind a proxy, in two chunks.
        const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{\"partialSuccess\":{\"rejectedLogR\r\n9;x=y\r\necords\":1\r\n2\r\n}}\r\n0\r\n\r\n";
        let (address, collector) = collector(&[LATER, NOW, "", GONE, PART, CHUNKS]);
        let mut otlp = otlp(address);
        let batch = [line(1), line(2)];
        let failure = otlp.put(&batch).unwrap_err();
        assert_eq!((failure.done, failure.again), (0, Duration::from_secs(7)));
        let failure = otlp.put(&batch).unwrap_err();
        assert_eq!((failure.done, failure.again), (0, Duration::from_secs(1)));
        let failure = otlp.put(&batch).unwrap_err();
        assert_eq!(
            (failure.done, failure.lost),
            (0, 0),
            "no answer: {}",
            failure.why
        );
        let failure = otlp.put(&batch).unwrap_err();
        assert_eq!((failure.done, failure.lost), (2, 2), "{}", failure.why);
        assert_eq!(failure.again, Duration::from_secs(1));
        let failure = otlp.put(&batch).unwrap_err();
        assert_eq!((failure.done, failure.lost), (2, 1));
        assert!(failure.why.contains("too old"), "{}", failure.why);
        let failure = otlp.put(&batch).unwrap_err();
        assert_eq!((failure.done, failure.lost), (2, 1), "{}", failure.why);
        collector.join().unwrap();
        // Nobody listens any more: nothing is lost for that, however long it lasts.
        let mut waits = Vec::new();
        for _ in 0..40 {
            let failure = otlp.put(&batch).unwrap_err();
            assert_eq!((failure.done, failure.lost), (0, 0), "{}", failure.why);
            waits.push(failure.again.as_secs());
        }
        assert_eq!(waits[..7], [1, 2, 4, 8, 16, 30, 30]);
        assert!(waits[7..].iter().all(|wait| *wait == 30), "{waits:?}");
        // Who listens there again gets the batch.
        let (address, collector) = self::collector(&[OK]);
        otlp.endpoint = Endpoint::parse(&format!("http://{address}")).unwrap();
        otlp.put(&batch).unwrap();
        assert_eq!((collector.join().unwrap().len(), otlp.tries), (1, 0));
    }
}
