//! Where container runtimes listen.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The sockets of known runtimes, in the order they are looked for: containerd, CRI-O, and the containerd that k3s and RKE2 bring.
/// `/run` stands for `/var/run` too, which is a link to it wherever these runtimes run.
pub const WELL_KNOWN: [&str; 3] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
];

/// The scheme that a kubelet's configuration and crictl write before a path.
const SCHEME: &str = "unix://";

/// Why what was configured is no socket's path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Another way to connect than by a socket of this machine.
    #[error("{0}: a runtime is reached by unix:///PATH alone")]
    Scheme(String),
    /// No absolute path.
    #[error(
        "{0:?} is no absolute path of a socket, such as unix:///run/containerd/containerd.sock"
    )]
    Relative(String),
}

/// The path in `unix:///PATH` or `/PATH`.
///
/// # Errors
/// [`EndpointError`] for anything else.
pub fn parse(configured: &str) -> Result<PathBuf, EndpointError> {
    let path = match configured.split_once("://") {
        Some(("unix", path)) => path,
        Some(_) => return Err(EndpointError::Scheme(configured.to_owned())),
        None => configured,
    };
    if path.starts_with('/') && path.len() > 1 {
        Ok(PathBuf::from(path))
    } else {
        Err(EndpointError::Relative(configured.to_owned()))
    }
}

/// `unix:///PATH`, as configurations write it.
pub fn in_words(socket: &Path) -> String {
    format!("{SCHEME}{}", socket.display())
}

/// The sockets to try, in order. What is configured is tried alone, whether it is there or not; without that, each
/// [`WELL_KNOWN`] one that is a socket under `root`, the folder where the node's files are seen (`/` unless in a container).
pub fn find(root: &Path, configured: Option<&Path>) -> Vec<PathBuf> {
    if let Some(configured) = configured {
        return vec![configured.to_owned()];
    }
    let places = WELL_KNOWN.map(|place| root.join(place.trim_start_matches('/')));
    let is_socket = |place: &PathBuf| {
        // Who may not look into the folder may still be told so by the attempt to connect.
        place.metadata().map_or_else(
            |error| error.kind() == std::io::ErrorKind::PermissionDenied,
            |found| found.file_type().is_socket(),
        )
    };
    places.into_iter().filter(is_socket).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn endpoints_are_written_as_kubelets_and_people_write_them() {
        let path = PathBuf::from("/run/a.sock");
        assert_eq!(in_words(&path), "unix:///run/a.sock");
        assert_eq!(parse("unix:///run/a.sock").as_ref(), Ok(&path));
        assert_eq!(parse("/run/a.sock"), Ok(path));
        let scheme = |text: &str| Err(EndpointError::Scheme(text.to_owned()));
        assert_eq!(parse("tcp://localhost:1"), scheme("tcp://localhost:1"));
        for text in ["", "/", "run/a.sock", "unix://run/a.sock"] {
            assert_eq!(parse(text), Err(EndpointError::Relative(text.to_owned())));
        }
    }

    #[test]
    fn only_sockets_are_found_and_what_is_configured_needs_no_finding() {
        let root = tempfile::tempdir().unwrap();
        let configured = Path::new("/nowhere/at/all.sock");
        assert_eq!(find(root.path(), Some(configured)), [configured]);
        assert!(find(root.path(), None).is_empty());
        let places = WELL_KNOWN.map(|place| root.path().join(&place[1..]));
        for place in &places {
            fs::create_dir_all(place.parent().unwrap()).unwrap();
        }
        let _crio = UnixListener::bind(&places[1]).unwrap();
        fs::write(&places[0], "a file").unwrap();
        assert_eq!(find(root.path(), None), [places[1].clone()]);
        fs::remove_file(&places[0]).unwrap();
        let _containerd = UnixListener::bind(&places[0]).unwrap();
        assert_eq!(find(root.path(), None), places[..2]);
    }
}
