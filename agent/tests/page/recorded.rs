//! A stand-in for the agent, for these tests alone: it serves the page's own files, and answers what a test has put in.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brink::page::bundle::{HEADERS, SERVED};
use brink_tests::slowed;
use serde_json::{Value, json};

/// The boot that everything is told in.
const BOOT: &str = "3f2a0b1c-5d6e-4f70-8192-a3b4c5d6e7f8";

/// What the agent knows.
pub(crate) struct Known {
    pub(crate) status: Value,
    pub(crate) ranking: Value,
    /// Incidents by id, as they were told last.
    pub(crate) incidents: BTreeMap<String, Value>,
    events: Vec<Value>,
    /// The places that readers of the stream asked to go on from.
    pub(crate) resumed: Vec<String>,
}

impl Known {
    /// Whoever asks once a second sees time go by.
    fn pass_a_second(&mut self) {
        let now = &mut self.status["now"]["monotonicNs"];
        *now = json!(now.as_i64().unwrap() + 1_000_000_000);
    }
}

struct Shared {
    known: Mutex<Known>,
    news: Condvar,
    stops: AtomicBool,
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stand-in; it stops with it.
pub(crate) struct Recorded {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

fn fixture(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

impl Recorded {
    pub(crate) fn start() -> Self {
        let known = Known {
            status: fixture(include_str!("status.json")),
            ranking: fixture(include_str!("ranking.json")),
            incidents: BTreeMap::new(),
            events: Vec::new(),
            resumed: Vec::new(),
        };
        let shared = Shared {
            known: Mutex::new(known),
            news: Condvar::new(),
            stops: AtomicBool::new(true),
        };
        let mut recorded = Self {
            shared: Arc::new(shared),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            thread: None,
        };
        recorded.restart();
        recorded.tell(
            "agent-started",
            None,
            &json!({"version": "0.1.0", "pid": 1, "mode": "observe", "after": null}),
        );
        recorded
    }

    /// Where the page is.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.shared.known()
    }

    /// Tells an event with the next number.
    pub(crate) fn tell(&self, kind: &str, subject: Option<(&str, &str)>, data: &Value) {
        let mut known = self.known();
        let seq = known.events.len() + 1;
        // Later than whatever the status said when a page began to look.
        let now = known.status["now"]["monotonicNs"].as_i64().unwrap()
            + 1_000_000 * i64::try_from(seq).unwrap();
        let mut event = json!({
            "apiVersion": "brink.dev/v1alpha1", "kind": "Event", "type": kind, "node": "node-a", "bootId": BOOT, "seq": seq,
            "at": {"wall": format!("2026-11-21T12:{:02}:{:02}.000000Z", seq / 60, seq % 60), "monotonicNs": now}, "data": data,
        });
        if let Some((namespace, name)) = subject {
            event["subject"] = json!({"namespace": namespace, "name": name, "uid": "u"});
        }
        known.events.push(event);
        drop(known);
        self.shared.news.notify_all();
    }

    /// Tells an incident, which is then listed too.
    pub(crate) fn tell_incident(&self, kind: &str, incident: &Value) {
        let id = incident["id"].as_str().unwrap().to_owned();
        self.known().incidents.insert(id, incident.clone());
        self.tell(kind, Some(("shop", "cart")), incident);
    }

    /// Ends as an agent does: the port is closed, and every connection.
    pub(crate) fn stop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        self.shared.news.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Begins to listen again at the same address.
    pub(crate) fn restart(&mut self) {
        let end = Instant::now() + slowed(Duration::from_secs(30));
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < end, "{}: {error}", self.address),
            }
            thread::sleep(Duration::from_millis(50));
        };
        listener.set_nonblocking(true).unwrap();
        self.address = listener.local_addr().unwrap();
        self.shared.stops.store(false, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        self.thread = Some(thread::spawn(move || accept(&listener, &shared)));
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut talks = Vec::new();
    while !shared.stops.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => {
                let shared = Arc::clone(shared);
                talks.push(thread::spawn(move || drop(converse(stream, &shared))));
            }
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
    for talk in talks {
        talk.join().unwrap();
    }
}

/// One request a connection; a browser that opens one ahead of time and says nothing is not waited for.
fn converse(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    while lines.last().is_none_or(|last| !last.is_empty()) {
        match reader.read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => lines.push(std::mem::take(&mut line).trim_end().to_owned()),
            Err(_) if shared.stops.load(Ordering::SeqCst) => return Ok(()),
            Err(_) => {}
        }
    }
    let target = lines[0].split(' ').nth(1).unwrap_or("/").to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    if path == "/v1/events" {
        let resume = lines.iter().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("last-event-id: ")
                .map(str::to_owned)
        });
        return stream_events(stream, query, resume, shared);
    }
    answer(stream, path, shared)
}

fn answer(mut stream: TcpStream, path: &str, shared: &Shared) -> std::io::Result<()> {
    let (status, content_type, body) = content(path, shared);
    let own = HEADERS.map(|(name, value)| format!("{name}: {value}\r\n"));
    let head = format!(
        "HTTP/1.1 {status} -\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n",
        body.len(),
        own.concat()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn content(path: &str, shared: &Shared) -> (u16, &'static str, String) {
    if let Some(asset) = SERVED.iter().find(|asset| asset.path == path) {
        return (200, asset.content_type, asset.text.to_owned());
    }
    let mut known = shared.known();
    if path == "/v1/status" {
        known.pass_a_second();
    }
    let (status, body) = data(path, &known);
    (status, "application/json", body.to_string())
}

fn data(path: &str, known: &Known) -> (u16, Value) {
    match path {
        "/v1/status" => (200, known.status.clone()),
        "/v1/rank" => (200, known.ranking.clone()),
        "/v1/incidents" => (
            200,
            json!({"incidents": known.incidents.values().collect::<Vec<_>>()}),
        ),
        _ => {
            let id = path.strip_prefix("/v1/incidents/").unwrap_or_default();
            let found = known
                .incidents
                .get(id)
                .map(|incident| (200, incident.clone()));
            found.unwrap_or_else(|| {
                (
                    404,
                    json!({"error": "no incident has this id", "next": "the list has them all"}),
                )
            })
        }
    }
}

/// Server-sent events from where the browser says it stands.
fn stream_events(
    mut stream: TcpStream,
    query: &str,
    resume: Option<String>,
    shared: &Shared,
) -> std::io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
    )?;
    let mut pairs = query.split('&');
    let since = pairs.find_map(|pair| pair.strip_prefix("since="));
    let place = resume.unwrap_or_else(|| since.unwrap_or_default().replace("%3A", ":"));
    let number = place.strip_prefix(BOOT).map(|rest| rest[1..].parse());
    let mut sent: usize = number.and_then(Result::ok).unwrap_or(0);
    shared.known().resumed.push(place);
    while !shared.stops.load(Ordering::SeqCst) {
        let known = shared.known();
        let news: Vec<_> = known.events.iter().skip(sent).map(event_text).collect();
        sent = known.events.len().max(sent);
        if news.is_empty() {
            let waited = shared.news.wait_timeout(known, Duration::from_millis(100));
            drop(waited);
        } else {
            drop(known);
            stream.write_all(news.concat().as_bytes())?;
        }
    }
    Ok(())
}

fn event_text(event: &Value) -> String {
    let kind = event["type"].as_str().unwrap_or_default();
    let seq = &event["seq"];
    format!("id: {BOOT}:{seq}\nevent: {kind}\ndata: {event}\n\n")
}
