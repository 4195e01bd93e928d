//! Serving the event stream: the doors are opened at the start, and the socket later where another agent still has it.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use brink_host::clock::ClockPair;
use brink_stream::hub::LatePast;
use brink_stream::model::event::Time;
use brink_stream::serve::{Door, Routes, Service};
use tracing::{info, warn};

use super::prepare::Running;
use crate::config::Events;

/// How often an agent looks whether the one that has the socket is gone.
const AGAIN: Duration = Duration::from_secs(1);

/// Where events are served.
pub(super) struct Doors {
    path: PathBuf,
    /// None while another agent has it.
    socket: Option<Door>,
    port: Option<Door>,
}

impl Doors {
    /// Opens what the configuration names, in a runtime of tokio's; nothing where no events are told.
    ///
    /// # Errors
    /// When an address cannot be had. A socket that another agent listens on is waited for by [`Self::serve`].
    pub(super) fn open(config: &Events) -> anyhow::Result<Option<Self>> {
        if !config.enabled {
            return Ok(None);
        }
        let port = config.listen.map(|address| {
            Door::loopback(address)
                .with_context(|| format!("cannot serve events on {address} (events.listen)"))
        });
        let path = config.socket.clone();
        let socket = match Door::unix(&path) {
            Ok(door) => Some(door),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                warn!(socket = %path.display(), "another agent serves its events there; this one will when that is gone");
                None
            }
            Err(error) => {
                let problem = format!("cannot serve events on {} (events.socket)", path.display());
                return Err(error).context(problem);
            }
        };
        Ok(Some(Self {
            path,
            socket,
            port: port.transpose()?,
        }))
    }

    /// Serves a running agent's events until the future is dropped.
    pub(super) async fn serve(
        self,
        running: &Running,
        past: Option<Arc<LatePast>>,
        routes: Routes,
    ) {
        let Some(hub) = running.telling.hub().cloned() else {
            return std::future::pending().await;
        };
        let started = running.started;
        let mut service = Service::new(hub, move || now(started))
            .with_routes(routes)
            .with_cloud_events(brink_stream::cloud_event::envelope);
        if let Some(past) = past {
            service = service.with_late_past(past);
        }
        let socket = if let Some(door) = self.socket {
            door
        } else {
            let door = freed(&self.path).await;
            // Who resumes here has had what is in the other agent's journal.
            running.telling.hurry_journal();
            door
        };
        let doors = [Some(socket), self.port].into_iter().flatten().collect();
        service.serve(doors).await;
        warn!("events are no longer served");
        std::future::pending::<()>().await;
    }
}

/// The socket, once nobody else listens on it.
async fn freed(path: &std::path::Path) -> Door {
    loop {
        tokio::time::sleep(AGAIN).await;
        match Door::unix(path) {
            Ok(door) => {
                info!(socket = %path.display(), "events are served");
                return door;
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => warn!(socket = %path.display(), %error, "events cannot be served yet"),
        }
    }
}

fn now(started: ClockPair) -> Time {
    let now = brink_host::clock::monotonic_ns();
    let wall = started.current().realtime_of(now);
    Time::new(wall / 1000, i64::try_from(now).unwrap_or(i64::MAX))
}
