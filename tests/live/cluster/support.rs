//! What the tests of a cluster share: the cluster that is there, asked by `kubectl`, and where its pods are on this machine.

use std::env;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use brink_host::cgroup::pod::{PodMember, PodRoots};
use brink_host::cgroup::walk::groups_below;
use brink_host::cgroup::{Controller, Layout};
use brink_host::meminfo::MeminfoReader;
use brink_tests::{agent_binary, slowed};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::dying::wait_for_their_end;
use crate::kubelet::{go_on, is_any_running};
use crate::statics::clear;

/// Longest wait for anything that a kubelet does: it looks at some things only every few seconds.
const PATIENCE: Duration = Duration::from_secs(90);
/// The image that `cargo xtask cluster` gives to its node: a busybox.
pub(crate) const IMAGE: &str = "localhost/brink-test:1";

/// What its node is called.
pub(crate) const NODE: &str = "brink-node";

/// The variable that leads to a cluster of somebody else's, and to its `kubectl` on the path.
const KUBECONFIG: &str = "BRINK_KUBECONFIG";
/// Where `cargo xtask cluster up` has put its own.
pub(crate) const FOLDER: &str = "/var/lib/brink-cluster";
/// Where the containerd of that one listens.
pub(crate) const SOCKET: &str = "node/run/containerd.sock";
/// In its kubelet's `cgroupRoot`, the group of all pods.
pub(crate) const PODS: &str = "/brink-cluster/kubepods";
/// The memory hierarchy.
const MEMORY: &str = "/sys/fs/cgroup/memory";
/// More groups than any test makes.
const GROUPS: usize = 4096;

/// A cluster.
#[derive(Clone)]
pub(crate) struct Cluster {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
}

impl Cluster {
    /// The one that is there, or why there is none. Pods of the tests before this one have ended. One that is there and does not answer is
    /// a failure: a test before may have broken it.
    pub(crate) fn find() -> Result<Self, String> {
        let given = env::var_os(KUBECONFIG).filter(|file| !file.is_empty());
        let is_given = given.is_some();
        let folder = Path::new(FOLDER);
        let cluster = match given {
            Some(file) => Self {
                kubectl: "kubectl".into(),
                kubeconfig: file.into(),
            },
            None => Self {
                kubectl: folder.join("bin/kubectl"),
                kubeconfig: folder.join("pki/admin.kubeconfig"),
            },
        };
        if !cluster.kubeconfig.is_file() {
            let missing = cluster.kubeconfig.display();
            return Err(format!(
                "needs a Kubernetes, and there is no {missing}: `cargo xtask cluster test` runs these tests on one"
            ));
        }
        if !is_given && !is_any_running() {
            return Err(format!(
                "needs a Kubernetes, and of that in {FOLDER} nothing runs: `cargo xtask cluster down` removes what is left of it"
            ));
        }
        // A server that a test has held until it was killed answers nobody.
        go_on();
        // Nor does the kubelet end what such a test has left in its folder.
        clear();
        assert!(
            holds_in_time(|| cluster.answers(&["get", "--raw", "/readyz"])),
            "the cluster does not answer: {}",
            cluster.answer(&["get", "--raw", "/readyz"])
        );
        wait_for_their_end(&cluster);
        Ok(cluster)
    }

    /// The same, where its pods are in groups of this machine of which an agent can make its node.
    pub(crate) fn with_pods_here() -> Result<Self, String> {
        let cluster = Self::find()?;
        if pods_group().is_dir() {
            Ok(cluster)
        } else {
            Err(
                "needs the cluster of `cargo xtask cluster`, with the memory controller on cgroup v1"
                    .to_owned(),
            )
        }
    }

    /// The answer of a `kubectl` that must succeed.
    pub(crate) fn kubectl(&self, words: &[&str], input: &str) -> String {
        let answer = self.run(words, input).unwrap();
        assert!(
            answer.status.success(),
            "kubectl {words:?}: {}",
            said(&answer)
        );
        String::from_utf8(answer.stdout).unwrap()
    }

    /// What `kubectl` says, whether it succeeds or not.
    pub(crate) fn answer(&self, words: &[&str]) -> String {
        let answer = self.run(words, "").unwrap();
        String::from_utf8_lossy(&answer.stdout).into_owned() + &said(&answer)
    }

    /// What `kubectl` says on its standard output, whether it succeeds or not.
    pub(crate) fn said(&self, words: &[&str]) -> String {
        let answer = self.run(words, "").unwrap();
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }

    /// Whether `kubectl` succeeds.
    pub(crate) fn answers(&self, words: &[&str]) -> bool {
        self.run(words, "").unwrap().status.success()
    }

    /// The second number of the server's version: 20 of 1.20.
    pub(crate) fn minor_version(&self) -> u64 {
        let version: Value =
            serde_json::from_str(&self.kubectl(&["get", "--raw", "/version"], "")).unwrap();
        let minor = version["minor"].as_str().unwrap();
        minor.trim_end_matches('+').parse().unwrap()
    }

    /// Whether the node has an image. A kubelet tells of a new one only after a while, so our own containerd is asked.
    pub(crate) fn has_image(&self, name: &str) -> bool {
        let ctr = self.kubectl.with_file_name("ctr");
        if ctr.is_file() {
            let socket = Path::new(FOLDER).join(SOCKET);
            let mut list = Command::new(ctr);
            list.arg("--address").arg(socket);
            list.args(["--namespace", "k8s.io", "images", "list", "--quiet"]);
            let listed = list.output().unwrap();
            return String::from_utf8_lossy(&listed.stdout)
                .lines()
                .any(|line| line == name);
        }
        let names = r"jsonpath={.items[*].status.images[*].names[*]}";
        let all = self.kubectl(&["get", "nodes", "-o", names], "");
        all.split_whitespace().any(|own| own == name)
    }

    /// An object; nothing if there is none.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.read(&["get", kind, name, "--ignore-not-found", "-o", "json"])
    }

    fn read(&self, words: &[&str]) -> Option<Value> {
        let text = self.kubectl(words, "");
        (!text.trim().is_empty()).then(|| serde_json::from_str(&text).unwrap())
    }

    /// A pod that is gone when this is.
    pub(crate) fn pod<'a>(&'a self, manifest: &Value) -> Pod<'a> {
        let metadata = &manifest["metadata"];
        self.kubectl(&["create", "-f", "-"], &manifest.to_string());
        Pod {
            cluster: self,
            name: metadata["name"].as_str().unwrap().to_owned(),
            namespace: metadata["namespace"].as_str().map(str::to_owned),
        }
    }

    /// What `kubectl brink` answers: the agent's program under that name in a folder, beside a `kubectl`.
    pub(crate) fn plugin(&self, folder: &Path, words: &[&str]) -> Output {
        let program = folder.join("kubectl-brink");
        if !program.exists() {
            symlink(agent_binary().unwrap(), &program).unwrap();
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let places = self.kubectl.parent().map(Path::to_owned);
        let places = places.filter(|place| !place.as_os_str().is_empty());
        let path = env::join_paths(places.into_iter().chain(env::split_paths(&path))).unwrap();
        let mut command = Command::new(program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(words);
        command.env("PATH", path).output().unwrap()
    }

    /// A `kubectl` that knows the way to the server.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    fn run(&self, words: &[&str], input: &str) -> std::io::Result<Output> {
        let mut command = self.command();
        command.arg("--request-timeout=30s").args(words);
        // It keeps what it has learnt of the server below its home.
        let home = tempfile::tempdir()?;
        command.env("HOME", home.path());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            // One that does not read to the end has said why.
            let _told_below = pipe.write_all(input.as_bytes());
        }
        child.wait_with_output()
    }
}

/// A pod of a test.
pub(crate) struct Pod<'a> {
    cluster: &'a Cluster,
    pub(crate) name: String,
    /// Where its manifest puts it; nothing for the cluster's own namespace.
    namespace: Option<String>,
}

impl Pod<'_> {
    /// As the API server has it; nothing once it is gone.
    pub(crate) fn read(&self) -> Option<Value> {
        let words = self.words(&["get", "pod", &self.name, "--ignore-not-found", "-o", "json"]);
        self.cluster.read(&words)
    }

    /// Its status, as long as nobody has deleted it.
    pub(crate) fn status(&self) -> Value {
        self.read().expect("nobody has deleted it")["status"].take()
    }

    /// Deletes it, with the grace of its manifest.
    pub(crate) fn delete(&self) {
        let words = self.words(&["delete", "pod", &self.name, "--wait=false"]);
        self.cluster.kubectl(&words, "");
    }

    /// What the cluster says of it, for whoever has to find out why it is not as it should be.
    pub(crate) fn described(&self) -> String {
        let words = self.words(&["describe", "pod", &self.name]);
        self.cluster.kubectl(&words, "")
    }

    /// These words, and where it is.
    fn words<'w>(&'w self, words: &[&'w str]) -> Vec<&'w str> {
        let mut words = words.to_vec();
        if let Some(namespace) = &self.namespace {
            words.extend(["--namespace", namespace.as_str()]);
        }
        words
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        // A test that fails leaves nothing either; one that has deleted it finds nothing to delete. The next test waits until the
        // kubelet has taken it apart.
        let words = self.words(&[
            "delete",
            "pod",
            &self.name,
            "--ignore-not-found",
            "--grace-period=0",
            "--force",
        ]);
        let _told = self.cluster.run(&words, "");
    }
}

/// What is available in the group of all pods, by the kubelet's formula.
pub(crate) fn available() -> u64 {
    let group = pods_group();
    let limit = std::fs::read_to_string(group.join("memory.limit_in_bytes")).unwrap();
    limit.trim().parse::<u64>().unwrap() - working_set(&group)
}

/// What is available on the node, which is this machine, by the kubelet's formula.
pub(crate) fn node_available() -> u64 {
    let meminfo = MeminfoReader::open(Path::new("/")).unwrap();
    meminfo.read().unwrap().total - working_set(Path::new(MEMORY))
}

fn working_set(group: &Path) -> u64 {
    let usage = std::fs::read_to_string(group.join("memory.usage_in_bytes")).unwrap();
    let usage: u64 = usage.trim().parse().unwrap();
    let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap();
    let inactive = stat
        .lines()
        .find_map(|line| line.strip_prefix("total_inactive_file "));
    let inactive: u64 = inactive.unwrap().parse().unwrap();
    usage.saturating_sub(inactive)
}

/// The group of all pods in the memory hierarchy.
pub(crate) fn pods_group() -> PathBuf {
    Path::new(MEMORY).join(PODS.trim_start_matches('/'))
}

/// Whether something comes to hold. Whoever asks a server does so five times a second.
pub(crate) fn holds_in_time(mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + slowed(PATIENCE);
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        sleep(Duration::from_millis(200));
    }
}

/// The container's group in the memory hierarchy, as Brink's own reading of the names leads to it from the pod's `uid` and the
/// container's id.
pub(crate) fn container_group(uid: &str, container: &str) -> Option<PathBuf> {
    let layout = Layout::detect(Path::new("/")).unwrap();
    let hierarchy = layout.require(Controller::Memory).unwrap();
    let roots = PodRoots::new("/", Some(PODS));
    let member = PodMember::Container(container.to_owned());
    let mut groups = groups_below(hierarchy, "/", GROUPS).unwrap().into_iter();
    let found = groups.find(|group| {
        let parsed = roots
            .parse(group)
            .filter(|parsed| parsed.uid == uid && !parsed.nested);
        parsed.is_some_and(|parsed| parsed.member.as_ref() == Some(&member))
    })?;
    hierarchy.folder(&found)
}

/// The sandbox of a container's pod: the group beside the container's own, as long as there is one container.
pub(crate) fn sandbox_beside(group: &Path) -> PathBuf {
    let others = groups_beside(group);
    assert_eq!(others.len(), 1, "{others:?}");
    others[0].clone()
}

/// The groups beside a container's, of the same pod; none once the pod's is gone.
pub(crate) fn groups_beside(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group.parent().unwrap())
        .into_iter()
        .flatten()
        .flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.is_dir() && path != group)
        .collect()
}

/// The name of a group, which is the id of its container or sandbox.
pub(crate) fn id_of(group: &Path) -> &str {
    group.file_name().and_then(|name| name.to_str()).unwrap()
}

/// Kills everybody in a group, and says whether there was anybody.
pub(crate) fn kill_all(group: &Path) -> bool {
    let members = pids_in(group);
    let pids = members
        .lines()
        .filter_map(|line| Pid::from_raw(line.parse().ok()?));
    let mut found = false;
    for pid in pids {
        found = true;
        // One that has ended meanwhile is as good as killed.
        let _killed = kill_process(pid, Signal::KILL);
    }
    found
}

/// Writes a file where the processes of a group have it.
pub(crate) fn write_inside(group: &Path, file: &str, text: &str) {
    let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
    let pid = members.lines().next().expect("its container runs");
    std::fs::write(format!("/proc/{pid}/root{file}"), text).unwrap();
}

/// Reads a file where the processes of a group have it; nothing without them, or before it is there.
pub(crate) fn read_inside(group: &Path, file: &str) -> Option<String> {
    let pids = pids_in(group);
    let pid = pids.lines().next()?;
    std::fs::read_to_string(format!("/proc/{pid}/root{file}")).ok()
}

/// The processes of a group, each in a line; none where it is gone.
pub(crate) fn pids_in(group: &Path) -> String {
    std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default()
}

/// The command lines of the processes in a group, their words apart by spaces.
pub(crate) fn commands_in(group: &Path) -> Vec<String> {
    let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
    let read = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok();
    let lines = members.lines().filter_map(read);
    lines
        .map(|line| line.trim_end_matches('\0').replace('\0', " "))
        .collect()
}

/// Whether a shim for this sandbox or container runs.
pub(crate) fn has_shim(id: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines =
        entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.any(|line| line.contains("containerd-shim") && line.contains(id))
}

fn said(answer: &Output) -> String {
    String::from_utf8_lossy(&answer.stderr).trim().to_owned()
}
