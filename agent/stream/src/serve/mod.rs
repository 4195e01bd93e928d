//! Events over HTTP/1.1: on a Unix socket for root and the agent's own user, and on loopback where that is asked for.
//!
//! Only GET and HEAD, no bodies, no state: a request is parsed by pure functions, and everything it can take of memory and time
//! is bounded. Other parts register their pages in [`Routes`]; those that anybody may see have a door of their own.

mod connection;
pub mod door;
mod feed;
pub mod head;
mod incidents;
mod places;
pub mod query;
mod refused;
mod reply;
mod routes;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::warn;

pub use self::door::Door;
pub use self::head::{Method, Request};
pub use self::reply::Reply;
pub use self::routes::{Handler, Routes};
use crate::hub::{Hub, LatePast, Line, Page, Past, PastError, Position};
use crate::model::event::Time;

/// Bounds on what those who ask can take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at a time at each door. One more has the place of one that only waits, or is refused where none does.
    pub connections: usize,
    /// At the port on loopback no more than this: whoever is on the machine may follow there, and each that takes nothing of what it is
    /// sent holds up to half a MiB.
    pub at_port: usize,
    /// How long a client may take to send the head of a request.
    pub hearing: Duration,
    /// How long a client may take nothing of what it is sent.
    pub stall: Duration,
    /// How often a quiet stream of server-sent events shows that it is alive.
    pub heartbeat: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 256,
            at_port: 64,
            hearing: Duration::from_secs(10),
            stall: Duration::from_mins(1),
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// What is served, to everybody alike.
pub struct Service {
    hub: Hub,
    past: Arc<LatePast>,
    routes: Routes,
    /// Pages for whoever comes by a public port.
    public: Routes,
    clock: Box<dyn Fn() -> Time + Send + Sync>,
    envelope: Option<fn(&Line) -> Vec<u8>>,
    bounds: Bounds,
    /// Who reads the past may block a thread; so many at a time.
    past_room: Semaphore,
}

impl Service {
    /// Serves a hub's events; `clock` tells the time of what is told to one reader alone.
    pub fn new(hub: Hub, clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        const PAST_READERS: usize = 2;
        Self {
            hub,
            past: Arc::new(LatePast::none()),
            routes: Routes::default(),
            public: Routes::default(),
            clock: Box::new(clock),
            envelope: None,
            bounds: Bounds::default(),
            past_room: Semaphore::new(PAST_READERS),
        }
    }

    /// With what is older than the hub's memory.
    #[must_use]
    pub fn with_past(self, past: Arc<dyn Past>) -> Self {
        let opened = LatePast::default();
        opened.open(past);
        self.with_late_past(Arc::new(opened))
    }

    /// The same with what is opened while this serves already.
    #[must_use]
    pub fn with_late_past(mut self, past: Arc<LatePast>) -> Self {
        self.past = past;
        self
    }

    /// With pages of other parts.
    #[must_use]
    pub fn with_routes(mut self, routes: Routes) -> Self {
        self.routes = routes;
        self
    }

    /// With pages that anybody may see: the only ones at a door that is public.
    #[must_use]
    pub fn with_public(mut self, routes: Routes) -> Self {
        self.public = routes;
        self
    }

    /// With `format=cloudevents`: how a line is put into that envelope, newline included.
    #[must_use]
    pub fn with_cloud_events(mut self, envelope: fn(&Line) -> Vec<u8>) -> Self {
        self.envelope = Some(envelope);
        self
    }

    /// With other bounds.
    #[must_use]
    pub fn with_bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Answers at all doors until the future is dropped; further doors that are opened later are served likewise. Needs tokio's
    /// io and time, and spawns a task for each connection.
    pub async fn serve(self: Arc<Self>, doors: Vec<Door>) {
        let mut open = JoinSet::new();
        for door in doors {
            open.spawn(door.serve(Arc::clone(&self)));
        }
        while let Some(ended) = open.join_next().await {
            if let Err(error) = ended {
                warn!(%error, "a door of the event stream has closed");
            }
        }
    }

    /// What is older than the hub's memory, for one who asks now.
    async fn past(&self) -> Option<Arc<dyn Past>> {
        const OPENING: Duration = Duration::from_secs(5);
        self.past.get(OPENING).await
    }

    /// Reads a page of the past on a thread that may block.
    async fn page(
        &self,
        past: Arc<dyn Past>,
        position: Option<Position>,
    ) -> Result<Page, PastError> {
        const LINES: usize = 256;
        self.off_the_runtime(move || past.after(position.as_ref(), LINES))
            .await
    }

    async fn off_the_runtime<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, PastError> + Send + 'static,
    ) -> Result<T, PastError> {
        let ended = |_| PastError("the agent is ending".to_owned());
        let _place = self
            .past_room
            .acquire()
            .await
            .map_err(|_| PastError("the agent is ending".to_owned()))?;
        tokio::task::spawn_blocking(read).await.map_err(ended)?
    }
}
