//! What a watch of pods tells, line by line as it comes.
//!
//! A server ends a watch after some time, and one that stands still loses it: the next one goes on behind the latest change that was
//! told. Where the server has forgotten that, there is a gap, and it is counted.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Cluster, holds_in_time};
use crate::{sleeper, wait_running};

/// Between the end of one and the begin of the next.
const PAUSE: Duration = Duration::from_secs(1);
/// So many in a row that fail and tell nothing, and no other is begun: for minutes nobody has answered.
const MISSES: usize = 120;
/// Words of a server that has forgotten what a watch is to begin behind.
const FORGOTTEN: [&str; 2] = ["(Expired)", "(Gone)"];
/// The code of the same where a watch ends with it.
const GONE: u64 = 410;

/// A watch; it ends with this.
pub(crate) struct Watch {
    told: Arc<Mutex<Told>>,
    following: Option<JoinHandle<()>>,
}

/// What it has come to.
#[derive(Default)]
struct Told {
    lines: Vec<String>,
    /// How many were begun.
    begun: u32,
    /// How often the server had forgotten what the next one was to begin behind.
    gaps: u32,
    /// The `kubectl` that runs it.
    child: Option<Child>,
    is_over: bool,
    /// Why there is no other.
    fault: Option<String>,
}

impl Watch {
    /// One of the pods of the cluster's own namespace that a selector chooses, such as `("labelSelector", "a=b")`. It tells of each
    /// change what these fields of the pod are, as pointers, with a space between them; one that is not there is empty.
    pub(crate) fn of(
        cluster: &Cluster,
        (kind, selector): (&str, &str),
        fields: &'static [&'static str],
    ) -> Self {
        let choice = format!("{kind}={}", selector.replace('=', "%3D"));
        Self::with(cluster, ("default", choice), fields)
    }

    /// The same of one pod of any namespace.
    pub(crate) fn of_pod(
        cluster: &Cluster,
        (namespace, name): (&'static str, &str),
        fields: &'static [&'static str],
    ) -> Self {
        let choice = format!("fieldSelector=metadata.name%3D{name}");
        Self::with(cluster, (namespace, choice), fields)
    }

    fn with(
        cluster: &Cluster,
        (namespace, choice): (&'static str, String),
        fields: &'static [&'static str],
    ) -> Self {
        let told = Arc::new(Mutex::new(Told::default()));
        let follower = Follower {
            cluster: cluster.clone(),
            home: tempfile::tempdir().unwrap(),
            namespace,
            choice,
            fields,
            told: Arc::clone(&told),
            version: None,
        };
        Self {
            told,
            following: Some(thread::spawn(move || follower.follow())),
        }
    }

    /// All lines so far.
    #[track_caller]
    pub(crate) fn told(&self) -> Vec<String> {
        let (lines, fault) = {
            let told = self.told.lock().unwrap();
            (told.lines.clone(), told.fault.clone())
        };
        assert_eq!(fault, None, "the watch has ended");
        lines
    }

    /// How often something may be missing between two lines.
    pub(crate) fn gaps(&self) -> u32 {
        self.told.lock().unwrap().gaps
    }

    fn begun(&self) -> u32 {
        self.told.lock().unwrap().begun
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Ok(mut told) = self.told.lock() {
            told.is_over = true;
            if let Some(child) = &mut told.child {
                let _ended_already = child.kill();
            }
        }
        if let Some(following) = self.following.take() {
            // Nothing here may fail: the test may have failed already.
            let _ended = following.join();
        }
    }
}

/// Who begins one after the other.
struct Follower {
    cluster: Cluster,
    /// What a `kubectl` may keep.
    home: tempfile::TempDir,
    namespace: &'static str,
    /// Of the request.
    choice: String,
    fields: &'static [&'static str],
    told: Arc<Mutex<Told>>,
    /// The latest that was told; none before anything was, and after a gap: a watch then begins with all pods as they are.
    version: Option<u64>,
}

impl Follower {
    fn follow(mut self) {
        let mut misses = 0;
        while let Some(out) = self.begin() {
            let has_told = self.listen(out);
            match self.end() {
                Err(why) if FORGOTTEN.iter().any(|word| why.contains(word)) => self.forget(&why),
                Err(why) if !has_told => {
                    misses += 1;
                    if misses == MISSES {
                        self.told.lock().unwrap().fault = Some(why);
                        return;
                    }
                }
                _ => misses = 0,
            }
            sleep(PAUSE);
        }
    }

    /// Begins the next one; nothing once there is to be none.
    fn begin(&self) -> Option<ChildStdout> {
        let mut command = self.cluster.command();
        command.args(["get", "--raw", &self.request()]);
        command.env("HOME", self.home.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut told = self.told.lock().unwrap();
        if told.is_over {
            return None;
        }
        match command.spawn() {
            Ok(mut child) => {
                let out = child.stdout.take();
                told.child = Some(child);
                told.begun += 1;
                out
            }
            Err(error) => {
                told.fault = Some(format!("kubectl cannot be run: {error}"));
                None
            }
        }
    }

    fn request(&self) -> String {
        let from = self.version.map(|from| format!("&resourceVersion={from}"));
        format!(
            "/api/v1/namespaces/{}/pods?watch=true&allowWatchBookmarks=true&{}{}",
            self.namespace,
            self.choice,
            from.unwrap_or_default()
        )
    }

    /// Takes what one tells until it ends, and says whether it was anything.
    fn listen(&mut self, out: ChildStdout) -> bool {
        let mut has_told = false;
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            match change(&line, self.fields) {
                Change::Told(version, words) => {
                    // The pods that it begins with are in no order of time.
                    self.version = self.version.max(Some(version));
                    self.told.lock().unwrap().lines.extend(words);
                    has_told = true;
                }
                Change::Forgotten => self.forget(&line),
                Change::Nothing => {}
            }
        }
        has_told
    }

    /// The end of it, or what its `kubectl` said of that.
    fn end(&self) -> Result<(), String> {
        let child = self.told.lock().unwrap().child.take();
        let Some(child) = child else { return Ok(()) };
        match child.wait_with_output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The server does not know any more what came behind the latest that was told.
    fn forget(&mut self, why: &str) {
        println!("a gap in the watch of {}: {why}", self.choice);
        self.version = None;
        self.told.lock().unwrap().gaps += 1;
    }
}

/// What one line of a watch says.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// A version, and what there is to tell of the pod; nothing where only time has passed.
    Told(u64, Option<String>),
    Forgotten,
    /// Nothing that can be read: it broke off in the middle, and the next one tells it again. Or another failure of the server's.
    Nothing,
}

fn change(line: &str, fields: &[&str]) -> Change {
    let read: Value = serde_json::from_str(line).unwrap_or_default();
    let object = &read["object"];
    if read["type"] == "ERROR" {
        let is_gone = object["code"].as_u64() == Some(GONE);
        return if is_gone {
            Change::Forgotten
        } else {
            Change::Nothing
        };
    }
    let version = object["metadata"]["resourceVersion"].as_str();
    let Some(version) = version.and_then(|version| version.parse().ok()) else {
        return Change::Nothing;
    };
    let word = |field: &&str| match object.pointer(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let words = || fields.iter().map(word).collect::<Vec<_>>().join(" ");
    Change::Told(version, (read["type"] != "BOOKMARK").then(words))
}

#[test]
fn a_line_of_a_watch_tells_a_change_or_that_there_is_a_gap() {
    let fields = ["/metadata/name", "/status/phase", "/status/reason"];
    let pod = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"7"},"status":{"phase":"Failed"}}}"#;
    let mark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
    let [gone, broken] = [410, 500]
        .map(|code| format!(r#"{{"type":"ERROR","object":{{"kind":"Status","code":{code}}}}}"#));
    for (line, expected) in [
        (pod, Change::Told(7, Some("a Failed ".to_owned()))),
        (mark, Change::Told(9, None)),
        (gone.as_str(), Change::Forgotten),
        (broken.as_str(), Change::Nothing),
        (&pod[..40], Change::Nothing),
    ] {
        assert_eq!(change(line, &fields), expected, "{line}");
    }
}

/// The server ends each after a second; together they tell every change once, in its order.
#[test]
fn a_watch_that_the_server_ends_goes_on_where_it_was() {
    let cluster = cluster!();
    let name = format!("watched-{}", std::process::id());
    let choice = format!("timeoutSeconds=1&fieldSelector=metadata.name%3D{name}");
    let watch = Watch::with(
        &cluster,
        ("default", choice),
        &["/metadata/resourceVersion"],
    );
    let pod = cluster.pod(&sleeper(&name));
    wait_running(&pod);
    let before = watch.begun();
    assert!(holds_in_time(|| watch.begun() >= before + 2));
    let known = watch.told().len();
    pod.delete();
    assert!(
        holds_in_time(|| pod.read().is_none()),
        "{}",
        pod.described()
    );
    let told = || -> Vec<u64> {
        let lines = watch.told();
        lines.iter().map(|line| line.parse().unwrap()).collect()
    };
    assert!(holds_in_time(|| told().len() > known), "{:?}", told());
    let told = told();
    assert!(told.is_sorted_by(|one, next| one < next), "{told:?}");
    assert_eq!(watch.gaps(), 0);
}
