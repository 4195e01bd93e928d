//! The runtime's own statistics: every call under a deadline.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use brink_core::node::workload::FsUsage;
use brink_cri::client::{Client, Patience, Runtime as _, connect_first};
use brink_cri::endpoint;
use brink_cri::fault::CriError;
use brink_cri::state::Written;
use tokio::runtime::{Builder, Runtime};
use tracing::debug;

use super::asking::{Asking, Source};
use super::{Answer, Told};
use crate::disks::runtime::folders;

/// So long is waited for a runtime. Containerd answers from what it has measured already; CRI-O goes through what each container has
/// written when it is asked, and a kubelet waits two minutes for that.
const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(1),
    ask: Duration::from_secs(30),
    remove: Duration::ZERO,
};

/// Who is asked.
pub(in crate::storage) type Layers = Asking<Runtimes>;

/// The runtimes of a node; the first that lets itself be connected to is asked.
pub(in crate::storage) struct Runtimes {
    root: PathBuf,
    endpoint: Option<PathBuf>,
    /// Made when it is needed first.
    tokio: Option<Runtime>,
    /// None after a question without an answer: another one may listen there then.
    client: Option<Client>,
}

impl Asking<Runtimes> {
    /// Nobody has been asked yet; without an endpoint sockets are looked for below this root.
    pub(in crate::storage) fn new(root: PathBuf, endpoint: Option<PathBuf>) -> Self {
        Self::of(Runtimes {
            root,
            endpoint,
            tokio: None,
            client: None,
        })
    }
}

impl Source for Runtimes {
    fn ask(&mut self, ids: &[String]) -> Answer {
        let tokio = match self.tokio.take() {
            Some(tokio) => tokio,
            None => Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| format!("nobody can be asked: {error}"))?,
        };
        let tokio = self.tokio.insert(tokio);
        let known = self.client.take().filter(|client| !client.is_closed());
        let client = if let Some(client) = known {
            client
        } else {
            let sockets = endpoint::find(&self.root, self.endpoint.as_deref());
            let connected = tokio.block_on(connect_first(&sockets, PATIENCE));
            connected.map_err(|errors| in_words(&errors))?.1
        };
        let layers = tokio.block_on(client.layers());
        let layers = layers.map_err(|error| error.to_string())?;
        let places = tokio.block_on(client.places());
        let places = places.inspect_err(|error| debug!(%error, "nobody says where images are"));
        self.client = Some(client);
        let nothing = ids.iter().map(|id| (id.clone(), FsUsage::default()));
        let mut all: HashMap<String, FsUsage> = nothing.collect();
        all.extend(layers.into_iter().map(used));
        Ok(Told {
            layers: all,
            folders: places.ok().map(folders),
        })
    }
}

fn used((id, written): (String, Written)) -> (String, FsUsage) {
    let used = FsUsage {
        bytes: Some(written.bytes),
        // No layer has none: the runtime does not tell.
        inodes: Some(written.inodes).filter(|&inodes| inodes > 0),
    };
    (id, used)
}

/// Why none of them can be connected to.
fn in_words(errors: &[CriError]) -> String {
    if errors.is_empty() {
        return "no container runtime's socket is found".to_owned();
    }
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("; ")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Longer than it takes to find out that nobody is there.
    const WHILE: Duration = Duration::from_secs(10);

    fn asked(layers: &mut Layers) {
        assert!(layers.ask(true, Instant::now(), || vec!["id".to_owned()]));
    }

    #[test]
    fn where_nobody_listens_it_is_said_why_there_is_no_answer() {
        let root = tempfile::tempdir().unwrap();
        for (endpoint, words) in [
            (None, "no container runtime's socket is found"),
            (Some(root.path().join("none.sock")), "none.sock"),
        ] {
            let mut layers = Layers::new(root.path().to_path_buf(), endpoint);
            asked(&mut layers);
            let (answer, _) = layers.hear(WHILE, Instant::now()).unwrap();
            let why = answer.unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_runtime_that_hangs_is_waited_for_by_nobody_else() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("run/containerd");
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("containerd.sock");
        // It lets everybody in, and says nothing.
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        let mut layers = Layers::new(root.path().to_path_buf(), None);
        asked(&mut layers);
        let began = Instant::now();
        let (connection, _) = listener.accept().unwrap();
        assert!(layers.hear(Duration::from_millis(10), began).is_none());
        // It hangs up, and then that is told.
        drop((connection, listener));
        let (answer, _) = layers.hear(WHILE, Instant::now()).unwrap();
        let why = answer.unwrap_err();
        assert!(why.contains("container runtime"), "{why}");
    }

    #[test]
    fn a_runtime_is_asked_where_it_was_configured() {
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("odd.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let mut layers = Layers::new(root.path().to_path_buf(), Some(socket));
        asked(&mut layers);
        listener.accept().expect("somebody comes");
    }
}
