//! What a watch of the node tells, line by line, and when each line came.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use brink::guard;

use crate::support::{Cluster, NODE};

/// A `kubectl get --watch`, of which a thread reads each line as it comes; it ends with this.
pub(crate) struct NodeWatch {
    child: Child,
    told: Arc<Mutex<Vec<Timed>>>,
    /// None once this ends.
    reader: Option<JoinHandle<()>>,
}

/// A line, and when it came, on the clock that the agent's events have too.
#[derive(Debug, Clone)]
pub(crate) struct Timed {
    pub(crate) at_ns: i64,
    pub(crate) text: String,
}

impl NodeWatch {
    /// One that tells of each change what `output` (a `JSONPath`) says.
    pub(crate) fn of(cluster: &Cluster, output: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let output = format!("jsonpath={output}{{\"\\n\"}}");
        let mut command = cluster.command();
        command.args(["get", "--watch", "-o", &output, "node", NODE]);
        command.env("HOME", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&told);
        let reader = thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let line = Timed {
                    at_ns: guard::now().as_nanos(),
                    text: line.trim().to_owned(),
                };
                kept.lock().unwrap().push(line);
            }
            // What kubectl keeps there goes with it.
            drop(home);
        });
        Self {
            child,
            told,
            reader: Some(reader),
        }
    }

    /// All lines so far.
    pub(crate) fn told(&self) -> Vec<Timed> {
        self.told.lock().unwrap().clone()
    }
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _read_to_the_end = reader.join();
        }
    }
}
