//! A `brink run` on this node: its configuration, its life, and what it says.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use brink::control::client::ask;
use brink::control::protocol::{Answer, KubernetesView, Question, Status};
use brink::guard::rung::LOADING;
use brink::record::DecisionRecord;
use brink::record::wire::RankedWorkload;
use brink_tests::agent_binary;
use rustix::process::{Pid, Signal, kill_process};

use crate::line::Line;
use crate::support::{Cluster, NODE, PODS, Pod, available, holds_in_time};

/// The room that is left to the threshold of one whose node is the group of all pods, in bytes.
pub(crate) const ROOM: u64 = 150 << 20;

/// An agent stops itself after so many evictions in so short a time, unless it is told that they are no mistake.
pub(crate) const MANY: &str =
    "limits: {burst: 60, refillInterval: 100ms, maxKills: 60, window: 1s}";

/// Mounts what tells an agent of the kernel's kills, for it alone, where the machine has not done so.
const WITH_TRACEFS: &str = "mount -t tracefs tracefs /sys/kernel/tracing 2>&1; exec \"$@\"";

/// The settings of one whose node is the group of all pods, with [`ROOM`] left to its threshold.
pub(crate) fn pods_as_node(mode: &str) -> String {
    pods_as_node_above(mode, available() - ROOM)
}

/// The same, where so many bytes are to stay available.
pub(crate) fn pods_as_node_above(mode: &str, threshold: u64) -> String {
    format!(
        "mode: {mode}\nmemoryPolicy: kubelet\nheadroomHard: 0%\nnode: {{cgroup: {PODS}}}\nenforceNodeAllocatable: []\n\
         evictionHard: {{memory.available: \"{threshold}\"}}\nevictionPressureTransitionPeriod: 20s\n"
    )
}

/// The agent; it ends with this.
pub(crate) struct Agent {
    child: Option<Child>,
    folder: tempfile::TempDir,
}

impl Agent {
    /// One with these settings beside a folder for its state, still to be started.
    pub(crate) fn new(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let text = format!(
            "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\npaths: {{stateDir: \"{}\"}}\n{settings}\n",
            state.display()
        );
        fs::write(folder.path().join("config.yaml"), text).unwrap();
        Self {
            child: None,
            folder,
        }
    }

    /// The same, where it reaches the server by the line, which outlives it: its last words take away what it said of the node.
    /// `more` goes into `kubernetes`.
    pub(crate) fn with_line(cluster: &Cluster, settings: &str, more: &str) -> (Line, Self) {
        let line = Line::to(cluster);
        let kubeconfig = line.kubeconfig();
        let kubernetes = format!(
            "kubernetes: {{enabled: true, kubeconfig: \"{}\", nodeName: {NODE}{more}}}\n",
            kubeconfig.display()
        );
        let agent = Self::new(&(kubernetes + settings));
        (line, agent)
    }

    /// The same, running, with the group of all pods as its node and more lines of settings.
    pub(crate) fn on_pods(
        cluster: &Cluster,
        mode: &str,
        kubernetes: &str,
        lines: &str,
    ) -> (Line, Self) {
        let settings = pods_as_node(mode) + lines;
        let (line, mut agent) = Self::with_line(cluster, &settings, kubernetes);
        agent.start();
        (line, agent)
    }

    /// Another one with the same folder for its state, and sockets of its own, as the next pod of an update has them; it is still to be
    /// started.
    pub(crate) fn successor(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = |name: &str| folder.path().join("state").join(name);
        let text = fs::read_to_string(self.path("config.yaml")).unwrap();
        let [control, events] = ["brink.sock", "events.sock"].map(socket);
        let paths = format!("paths: {{socket: \"{}\", ", control.display());
        let text = text.replacen("paths: {", &paths, 1);
        let text = format!("{text}events: {{socket: \"{}\"}}\n", events.display());
        fs::write(folder.path().join("config.yaml"), text).unwrap();
        Self {
            child: None,
            folder,
        }
    }

    /// `brink` with these words, by its configuration.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(agent_binary().unwrap());
        command.args(words);
        self.configured(command)
    }

    fn configured(&self, mut command: Command) -> Command {
        command.env_remove("KUBECONFIG").env_remove("NODE_NAME");
        command.env("BRINK_CONFIG", self.path("config.yaml"));
        command
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn start(&mut self) {
        let mut log = fs::File::options();
        let log = log.create(true).append(true).open(self.path("log"));
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", WITH_TRACEFS, "sh"]);
        command.arg(agent_binary().unwrap()).arg("run");
        let mut command = self.configured(command);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.stderr(log.unwrap()).spawn().unwrap());
        assert!(holds_in_time(|| self.status().is_some()), "{}", self.log());
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().unwrap();
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Ends it by a signal.
    pub(crate) fn stop(&mut self, signal: Signal) {
        if let Some(mut child) = self.child.take() {
            let _ended_already = kill_process(Pid::from_child(&child), signal);
            child.wait().unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn ask(&self, question: &Question) -> Option<Answer> {
        ask(&self.path("state/brink.sock"), question).ok()
    }

    pub(crate) fn status(&self) -> Option<Status> {
        match self.ask(&Question::Status) {
            Some(Answer::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// How it stands once the kernel's programs are loaded, or it knows why they are not.
    pub(crate) fn settled(&self) -> Status {
        let settled = || {
            let status = self.status()?;
            let is_loading = status.rung_reasons.iter().any(|reason| reason == LOADING);
            (status.rung.is_some() && !is_loading).then_some(status)
        };
        assert!(holds_in_time(|| settled().is_some()), "{}", self.log());
        settled().unwrap()
    }

    /// Has it enforce, or only look on.
    pub(crate) fn enforces(&self, whether: bool) {
        let (question, mode) = if whether {
            (Question::Resume, "enforcing")
        } else {
            (Question::Pause { seconds: None }, "paused")
        };
        let does = || self.status().is_some_and(|status| status.mode == mode);
        if !does() {
            let answer = self.ask(&question);
            assert!(holds_in_time(does), "{answer:?}\n{}", self.log());
        }
    }

    /// How the API stands for it.
    pub(crate) fn kubernetes(&self) -> KubernetesView {
        let status = self.status().unwrap_or_else(|| panic!("{}", self.log()));
        status.kubernetes.unwrap()
    }

    pub(crate) fn is_connected(&self) -> bool {
        let view = self.status().and_then(|status| status.kubernetes);
        view.is_some_and(|view| view.connected)
    }

    /// How much the API is still to be told, as it says itself.
    pub(crate) fn untold(&self) -> usize {
        self.kubernetes().untold as usize
    }

    /// Files of its outbox.
    pub(crate) fn outbox(&self) -> usize {
        fs::read_dir(self.path("state/outbox")).map_or(0, Iterator::count)
    }

    /// What it remembers; nothing while it does not answer.
    pub(crate) fn decisions(&self) -> Vec<DecisionRecord> {
        match self.ask(&Question::Decisions) {
            Some(Answer::Decisions(records)) => records,
            _ => Vec::new(),
        }
    }

    /// The latest decision about a pod.
    pub(crate) fn decision(&self, uid: &str) -> Option<DecisionRecord> {
        let mut records = self.decisions().into_iter();
        records.rfind(|record| record.victim.uid == uid)
    }

    /// Whether both the status and the event of the pod's eviction are told.
    pub(crate) fn has_told(&self, uid: &str) -> bool {
        let told = self.decision(uid).and_then(|record| record.kubernetes);
        told.is_some_and(|told| told.status == "told" && told.event == "told")
    }

    /// Waits until both are.
    #[track_caller]
    pub(crate) fn wait_told(&self, uid: &str) {
        assert!(
            holds_in_time(|| self.has_told(uid)),
            "{:#?}\n{}",
            self.decisions(),
            self.log()
        );
    }

    /// Whether the pod's eviction is still to be told.
    pub(crate) fn waits(&self, uid: &str) -> bool {
        let told = self.decision(uid).and_then(|record| record.kubernetes);
        told.is_some_and(|told| told.status == "waiting")
    }

    /// All workloads of the cluster's own namespace, the first to go in front.
    pub(crate) fn ranking(&self) -> Vec<RankedWorkload> {
        let Some(Answer::Ranking(ranking)) = self.ask(&Question::Rank { signal: None }) else {
            return Vec::new();
        };
        let mut workloads = ranking.workloads;
        workloads.retain(|one| one.namespace == "default");
        workloads
    }

    /// A pod as it is ranked.
    pub(crate) fn ranked(&self, pod: &Pod<'_>) -> Option<RankedWorkload> {
        let mut workloads = self.ranking().into_iter();
        workloads.find(|one| one.name == pod.name)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop(Signal::TERM);
    }
}
