//! Serving the event stream: the doors are opened at the start, or later where one cannot be had yet.
//!
//! No door keeps the agent from protecting the node: one that is taken is told of and tried again every second.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brink_stream::hub::LatePast;
use brink_stream::serve::{Door, Routes, Service};
use rustix::io::Errno;
use tracing::{info, warn};

use super::prepare::Running;
use crate::config::Events;
use crate::telling::time_now;

/// How often a door is tried that could not be had.
const AGAIN: Duration = Duration::from_secs(1);

/// Where events are served.
pub(super) struct Doors {
    socket: Place,
    port: Option<Place>,
    metrics: Option<Place>,
}

impl Doors {
    /// Opens what the configuration names, in a runtime of tokio's; nothing where no events are told.
    pub(super) fn open(config: &Events, metrics: Option<SocketAddr>) -> Option<Self> {
        config.enabled.then(|| Self {
            socket: Place::open(Address::Socket(config.socket.clone())),
            port: config.listen.map(Address::Port).map(Place::open),
            metrics: metrics.map(Address::Metrics).map(Place::open),
        })
    }

    /// How each of them stands, for as long as they are open or tried.
    pub(super) fn states(&self) -> Vec<Arc<DoorState>> {
        let places = [
            Some(&self.socket),
            self.port.as_ref(),
            self.metrics.as_ref(),
        ];
        let states = places.into_iter().flatten();
        states.map(|place| Arc::clone(&place.state)).collect()
    }

    /// Serves a running agent's events until the future is dropped; `public` is what anybody may see.
    pub(super) async fn serve(
        self,
        running: &Running,
        past: Option<Arc<LatePast>>,
        (routes, public): (Routes, Routes),
    ) {
        let Some(hub) = running.telling.hub().cloned() else {
            return std::future::pending().await;
        };
        let started = running.started;
        let mut service = Service::new(hub, move || time_now(started))
            .with_routes(routes)
            .with_public(public)
            .with_cloud_events(brink_stream::cloud_event::envelope);
        if let Some(past) = past {
            service = service.with_late_past(past);
        }
        let service = Arc::new(service);
        let Self {
            socket,
            port,
            metrics,
        } = self;
        let at_socket = async {
            let is_late = socket.door.is_none();
            let door = socket.opened().await;
            if is_late {
                // Who resumes here has had what is in the other agent's journal.
                running.telling.hurry_journal();
            }
            Arc::clone(&service).serve(vec![door]).await;
        };
        let at = async |place: Option<Place>| {
            if let Some(place) = place {
                let door = place.opened().await;
                Arc::clone(&service).serve(vec![door]).await;
            }
        };
        tokio::join!(at_socket, at(port), at(metrics));
        warn!("events are no longer served");
        std::future::pending::<()>().await;
    }
}

/// How a door stands, as it is told to whoever asks.
#[derive(Debug)]
pub struct DoorState {
    /// The setting that names it.
    pub setting: &'static str,
    /// Where it is.
    pub address: String,
    why: Mutex<Option<String>>,
}

impl DoorState {
    fn of(address: &Address) -> Self {
        let (setting, address) = match address {
            Address::Socket(path) => ("events.socket", path.display().to_string()),
            Address::Port(address) => ("events.listen", address.to_string()),
            Address::Metrics(address) => ("metrics.listen", address.to_string()),
        };
        Self {
            setting,
            address,
            why: Mutex::default(),
        }
    }

    /// Why it cannot be had, and what to do; none where it can.
    pub fn why(&self) -> Option<String> {
        self.lock().clone()
    }

    /// Takes down how it stands; whether that is something new.
    fn set(&self, why: Option<String>) -> bool {
        let mut known = self.lock();
        let is_new = *known != why;
        *known = why;
        is_new
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address, and the door there once it could be had.
struct Place {
    address: Address,
    door: Option<Door>,
    state: Arc<DoorState>,
}

impl Place {
    fn open(address: Address) -> Self {
        let mut place = Self {
            state: Arc::new(DoorState::of(&address)),
            address,
            door: None,
        };
        place.attempt();
        place
    }

    /// Tries to open the door; what is in the way is told once.
    fn attempt(&mut self) {
        match self.address.open() {
            Ok(door) => {
                self.door = Some(door);
                self.state.set(None);
            }
            Err(error) => {
                let next = self.address.advice(&error);
                if self.state.set(Some(format!("{error}; {next}"))) {
                    let DoorState {
                        setting, address, ..
                    } = &*self.state;
                    warn!(%address, %setting, %error, next, "events cannot be served there yet; it is tried every second");
                }
            }
        }
    }

    /// The door, once it can be had.
    async fn opened(mut self) -> Door {
        loop {
            if let Some(door) = self.door.take() {
                return door;
            }
            tokio::time::sleep(AGAIN).await;
            self.attempt();
            if self.door.is_some() {
                info!(address = %self.state.address, setting = self.state.setting, "events are served");
            }
        }
    }
}

enum Address {
    Socket(PathBuf),
    Port(SocketAddr),
    Metrics(SocketAddr),
}

impl Address {
    fn open(&self) -> io::Result<Door> {
        match self {
            Self::Socket(path) => Door::unix(path),
            Self::Port(address) => Door::loopback(*address),
            Self::Metrics(address) => Door::public(*address),
        }
    }

    /// What to do where it cannot be had.
    fn advice(&self, error: &io::Error) -> &'static str {
        let is_barred = error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error());
        match (self, error.kind()) {
            (Self::Socket(_), ErrorKind::AddrInUse) => {
                "nothing, if that agent is to serve its events: this one will when that is gone"
            }
            (Self::Socket(_), _) => "set events.socket to a place of its own",
            (Self::Port(_) | Self::Metrics(_), ErrorKind::AddrInUse) => {
                "set it to a port that nobody has; `ss -ltnp` tells who has this one"
            }
            (Self::Port(_) | Self::Metrics(_), _) if is_barred => {
                "allow AF_INET and AF_INET6 in RestrictAddressFamilies= of the unit, if that is set"
            }
            (Self::Port(_) | Self::Metrics(_), _) => "set it to an address that this machine has",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_that_is_taken_keeps_nobody_from_starting() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _inside = runtime.enter();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.sock");
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        std::fs::write(&path, "somebody's").unwrap();
        let mut places = [
            Place::open(Address::Port(other.local_addr().unwrap())),
            Place::open(Address::Metrics(other.local_addr().unwrap())),
            Place::open(Address::Socket(path.clone())),
        ];
        for place in &places {
            assert!(place.door.is_none(), "{:?}", place.state);
        }
        let why = places.each_ref().map(|place| place.state.why().unwrap());
        assert!(
            why[0].contains("in use") && why[0].contains("ss -ltnp"),
            "{why:?}"
        );
        assert_eq!(why[0], why[1]);
        assert!(
            why[2].contains("is no socket; set events.socket"),
            "{why:?}"
        );
        drop(other);
        std::fs::remove_file(&path).unwrap();
        for place in &mut places {
            place.attempt();
            assert!(place.door.is_some(), "{:?}", place.state);
            assert_eq!(place.state.why(), None);
            // The next one wants the same port.
            place.door = None;
        }
    }
}
