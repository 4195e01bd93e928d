//! Requests to the API server that `kubectl` has no word for, over its proxy on a socket of our own.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::holds_in_time;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy that ends with this.
pub(crate) struct Proxy {
    child: Child,
    folder: tempfile::TempDir,
}

impl Proxy {
    /// Starts one by a `kubectl` that knows the way to the server.
    pub(crate) fn start(mut kubectl: Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("api.sock");
        kubectl.arg("proxy").arg("--unix-socket").arg(&socket);
        kubectl.stdin(Stdio::null()).stdout(Stdio::null());
        let proxy = Self {
            child: kubectl.spawn().unwrap(),
            folder,
        };
        assert!(
            holds_in_time(|| UnixStream::connect(&socket).is_ok()),
            "kubectl proxy does not answer"
        );
        proxy
    }

    /// Merges `patch` into a part of a pod's status as the server's own rules of merging say.
    pub(crate) fn patch_status(&self, pod: &str, patch: &Value) {
        let body = patch.to_string();
        let status = format!("/api/v1/namespaces/default/pods/{pod}/status");
        let head = format!(
            "PATCH {status} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/strategic-merge-patch+json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{status}: {answer}");
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("api.sock")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
