//! The runtime's own statistics: every call under a deadline.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brink_core::node::workload::FsUsage;
use brink_cri::client::{Client, Patience, connect_first};
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
        let asked = SystemTime::now();
        let layers = tokio.block_on(client.layers_of_the_living());
        let layers = layers.map_err(|error| error.to_string())?;
        let places = tokio.block_on(client.places());
        let places = places.inspect_err(|error| debug!(%error, "nobody says where images are"));
        self.client = Some(client);
        let behind = behind(ids, &layers, asked);
        let nothing = ids.iter().map(|id| (id.clone(), FsUsage::default()));
        let mut all: HashMap<String, FsUsage> = nothing.collect();
        all.extend(layers.into_iter().map(used));
        Ok(Told {
            layers: all,
            folders: places.ok().map(folders),
            behind,
        })
    }
}

/// How long before a runtime was asked the oldest of these containers' figures was taken, by the wall clock: containerd tells what it
/// has measured within the last ten seconds.
fn behind(ids: &[String], layers: &BTreeMap<String, Written>, asked: SystemTime) -> Duration {
    let asked = asked.duration_since(UNIX_EPOCH).unwrap_or_default();
    let taken = ids
        .iter()
        .filter_map(|id| u64::try_from(layers.get(id)?.at).ok());
    let oldest = taken.filter(|&at| at > 0).min();
    oldest.map_or(Duration::ZERO, |at| {
        asked.saturating_sub(Duration::from_nanos(at))
    })
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
    fn an_answer_is_as_old_as_the_oldest_figure_in_it_that_was_asked_for() {
        let asked = UNIX_EPOCH + Duration::from_secs(100);
        let taken = [("a", 99), ("b", 92), ("another's", 1), ("unsaid", 0)];
        let taken = taken.map(|(id, seconds)| {
            let at = seconds * 1_000_000_000;
            let written = Written {
                at,
                ..Written::default()
            };
            (id.to_owned(), written)
        });
        let layers = BTreeMap::from(taken);
        for (ids, expected) in [
            (&["a"][..], 1),
            (&["a", "b"], 8),
            (&["unsaid", "nobody's"], 0),
        ] {
            let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
            let expected = Duration::from_secs(expected);
            assert_eq!(behind(&ids, &layers, asked), expected, "{ids:?}");
        }
        let set_back = behind(&["a".to_owned()], &layers, UNIX_EPOCH);
        assert_eq!(set_back, Duration::ZERO);
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
