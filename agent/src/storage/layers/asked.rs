//! The runtime's own statistics, each question under a deadline: one that hangs makes layers unknown, and nothing else late.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use brink_core::node::workload::FsUsage;
use brink_cri::client::{Client, Patience, Runtime as _, connect_first};
use brink_cri::endpoint;
use tokio::runtime::{Builder, Runtime};
use tracing::debug;

use super::Told;
use crate::disks::runtime::folders;

/// So long is waited for a runtime: it answers from what it has measured already.
const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(1),
    ask: Duration::from_secs(5),
    remove: Duration::ZERO,
};
/// One that does not answer is asked again only after so long.
const AGAIN: Duration = Duration::from_mins(1);

/// Who is asked.
pub(in crate::storage) struct Layers {
    root: PathBuf,
    endpoint: Option<PathBuf>,
    /// Made when it is needed first.
    runtime: Option<Runtime>,
    client: Option<Client>,
    /// When it may be tried again.
    next: Instant,
}

impl Layers {
    /// Nobody has been asked yet; without an endpoint sockets are looked for below this root.
    pub(in crate::storage) fn new(root: PathBuf, endpoint: Option<PathBuf>) -> Self {
        Self {
            root,
            endpoint,
            runtime: None,
            client: None,
            next: Instant::now(),
        }
    }

    /// What it tells; nothing where nobody answers.
    pub(in crate::storage) fn read(&mut self) -> Told {
        if Instant::now() < self.next {
            return Told::default();
        }
        let asked = self.ask();
        if asked.is_none() {
            (self.client, self.next) = (None, Instant::now() + AGAIN);
        }
        asked.unwrap_or_default()
    }

    fn ask(&mut self) -> Option<Told> {
        if self.runtime.is_none() {
            let made = Builder::new_current_thread().enable_all().build();
            self.runtime = made.inspect_err(|error| debug!(%error, "no runtime")).ok();
        }
        let runtime = self.runtime.as_ref()?;
        self.client = self.client.take().filter(|client| !client.is_closed());
        if self.client.is_none() {
            let sockets = endpoint::find(&self.root, self.endpoint.as_deref());
            let connected = runtime.block_on(connect_first(&sockets, PATIENCE));
            let connected = connected.inspect_err(|errors| {
                for error in errors {
                    debug!(%error, "a container runtime does not tell what its containers have written");
                }
            });
            self.client = connected.ok().map(|(_, client)| client);
        }
        let client = self.client.as_ref()?;
        let layers = runtime.block_on(client.layers());
        let layers = layers.inspect_err(|error| debug!(%error, "no statistics of containers"));
        let used = |(id, written): (String, brink_cri::state::Written)| {
            let used = FsUsage {
                bytes: Some(written.bytes),
                // No layer has none: the runtime does not tell.
                inodes: Some(written.inodes).filter(|&inodes| inodes > 0),
            };
            (id, used)
        };
        let layers = layers.ok()?.into_iter().map(used).collect();
        let places = runtime.block_on(client.places());
        let places = places.inspect_err(|error| debug!(%error, "nobody says where images are"));
        Some(Told {
            layers,
            folders: places.ok().map(folders),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_listens_layers_are_unknown_and_it_is_not_tried_all_the_time() {
        let root = tempfile::tempdir().unwrap();
        let mut layers = Layers::new(root.path().to_path_buf(), None);
        assert!(layers.read().layers.is_empty());
        assert!(layers.next > Instant::now());
    }

    #[test]
    fn a_runtime_that_hangs_is_not_waited_for_long() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("run/containerd");
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("containerd.sock");
        // It lets everybody in, and says nothing.
        let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        let mut layers = Layers::new(root.path().to_path_buf(), None);
        assert!(layers.read().layers.is_empty());
        assert!(layers.client.is_none() && layers.next > Instant::now());
    }

    #[test]
    fn a_runtime_is_asked_where_it_was_configured() {
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("odd.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let mut layers = Layers::new(root.path().to_path_buf(), Some(socket));
        assert!(layers.read().layers.is_empty());
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_ok(), "somebody came");
    }
}
