//! A stand-in for the agent, for these tests alone: the real server, hub and routes around recorded figures.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brink::control::protocol::{Answer, Ranking, Status};
use brink::page::routes::{self, Asked};
use brink_stream::hub::{Hub, Identity, Limits};
use brink_stream::model::event::{Draft, Subject, Time};
use brink_stream::model::kind::Kind;
use brink_stream::serve::{Door, Routes, Service};
use brink_tests::slowed;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The boot that everything is told in.
const BOOT: &str = "3f2a0b1c-5d6e-4f70-8192-a3b4c5d6e7f8";
/// When the first event is told, in microseconds since 1970: 2026-11-21, noon.
const NOON_US: i64 = 1_795_262_400_000_000;
/// Numbers that were given before: an incident is looked for from the number in its id on, and those of the samples are lower.
const BEFORE: u64 = 100;
/// One second on the clocks of the stand-in.
const SECOND_US: i64 = 1_000_000;

/// What the agent knows.
pub(crate) struct Known {
    pub(crate) status: Value,
    pub(crate) ranking: Value,
}

struct Figures(Mutex<Known>);

/// The stand-in; it stops with it.
pub(crate) struct Recorded {
    figures: Arc<Figures>,
    hub: Hub,
    last: Arc<AtomicU64>,
    address: SocketAddr,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

fn fixture(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

impl Figures {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked for Figures {
    fn status(&self) -> Status {
        let mut known = self.known();
        // Whoever asks once a second sees time go by.
        let now = &mut known.status["now"]["monotonicNs"];
        *now = json!(now.as_i64().unwrap() + SECOND_US * 1000);
        serde_json::from_value(known.status.clone()).unwrap()
    }

    fn ranking(&self, _signal: Option<&str>) -> Answer {
        let ranking: Ranking = serde_json::from_value(self.known().ranking.clone()).unwrap();
        Answer::Ranking(Box::new(ranking))
    }
}

fn hub_after(last: u64) -> Hub {
    let identity = Identity {
        node: "node-a".to_owned(),
        boot_id: BOOT.to_owned(),
    };
    Hub::new(
        identity,
        last,
        Limits {
            events: 4096,
            bytes: 64 << 20,
        },
    )
}

impl Recorded {
    pub(crate) fn start() -> Self {
        let known = Known {
            status: fixture(include_str!("status.json")),
            ranking: fixture(include_str!("ranking.json")),
        };
        let mut recorded = Self {
            figures: Arc::new(Figures(Mutex::new(known))),
            hub: hub_after(0),
            last: Arc::new(AtomicU64::new(BEFORE)),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            running: None,
        };
        recorded.restart();
        recorded
    }

    /// Where the page is.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.figures.known()
    }

    /// Tells an event with the next number.
    pub(crate) fn tell(&self, kind: Kind, subject: Option<(&str, &str)>, data: &Value) {
        let seq = i64::try_from(self.last.fetch_add(1, Ordering::SeqCst) + 1).unwrap();
        // Later than whatever the status said when a page began to look.
        let now = self.known().status["now"]["monotonicNs"].as_i64().unwrap() + seq * 1000;
        let at = Time::new(NOON_US + seq * SECOND_US, now);
        let subject = subject.map(|(namespace, name)| Subject {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            incident: data["id"].as_str().map(str::to_owned),
            ..Subject::default()
        });
        self.hub.tell(Draft::new(kind, at, subject, data).unwrap());
    }

    /// Tells an incident.
    pub(crate) fn tell_incident(&self, kind: Kind, incident: &Value) {
        let workload = &incident["workload"]["value"];
        let text = |key: &str| workload[key].as_str().unwrap_or_default();
        self.tell(kind, Some((text("namespace"), text("name"))), incident);
    }

    /// Ends as an agent does: the port is closed, every connection, and what was in memory is gone.
    pub(crate) fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            thread.join().unwrap();
        }
    }

    /// Begins to listen again at the same address, in the same boot.
    pub(crate) fn restart(&mut self) {
        self.hub = hub_after(self.last.load(Ordering::SeqCst));
        let started = json!({"version": "0.1.0", "pid": 1, "mode": "observe", "after": null});
        self.tell(Kind::AgentStarted, None, &started);
        let mut routes = Routes::default();
        let asked: Arc<dyn Asked> = Arc::clone(&self.figures) as _;
        routes::add(&mut routes, &asked);
        let service = Service::new(self.hub.clone(), || Time::new(NOON_US, 0)).with_routes(routes);
        let (stop, stopped) = oneshot::channel();
        let (told, address) = std::sync::mpsc::channel();
        let wanted = self.address;
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let door = open(wanted);
                told.send(door.address().unwrap()).unwrap();
                tokio::select! {
                    () = Arc::new(service).serve(vec![door]) => {}
                    _ = stopped => {}
                }
            });
        });
        self.address = address.recv().unwrap();
        self.running = Some((stop, thread));
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Somebody else may have the port for a moment.
fn open(address: SocketAddr) -> Door {
    let end = Instant::now() + slowed(Duration::from_secs(30));
    loop {
        match Door::loopback(address) {
            Ok(door) => return door,
            Err(error) => assert!(Instant::now() < end, "{address}: {error}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}
