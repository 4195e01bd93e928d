//! What a watch of pods tells, line by line as it comes.

use std::fs;
use std::process::{Child, Stdio};

use crate::support::Cluster;

/// A `kubectl get --watch`; it ends with this.
pub(crate) struct Watch {
    child: Child,
    folder: tempfile::TempDir,
}

impl Watch {
    /// One of the pods that `words` choose, which tells of each change what `output` (a `JSONPath`) says.
    pub(crate) fn of(cluster: &Cluster, words: &[&str], output: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let told = fs::File::create(folder.path().join("told")).unwrap();
        let output = format!("jsonpath={output}{{\"\\n\"}}");
        let mut command = cluster.command();
        command
            .args(["get", "pods", "--watch", "-o", &output])
            .args(words);
        command.env("HOME", folder.path());
        let child = command.stdin(Stdio::null()).stdout(told).spawn().unwrap();
        Self { child, folder }
    }

    /// All lines so far. A watch that has ended, as a server ends them after half an hour, would tell nothing more.
    pub(crate) fn told(&mut self) -> Vec<String> {
        assert!(
            self.child.try_wait().unwrap().is_none(),
            "the watch has ended"
        );
        let text = fs::read_to_string(self.folder.path().join("told")).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
