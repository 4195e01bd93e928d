//! What the live tests of the agent share: a bounded cgroup as the node, workloads as manifests, and a real `brink run`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use brink::control::client::{AskError, ask};
use brink::control::protocol::{Answer, Question, Status};
use brink::guard::rung::LOADING;
use brink::record::DecisionRecord;
use brink_host::cgroup::Controller;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::hog::{HogSpec, Load};
use brink_tests::{Hog, Sandbox, agent_binary, wait_until};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
};
use serde_json::Value;

/// Longest wait for anything that should take milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The user nobody.
const NOBODY: u32 = 65534;
/// Bytes in a mebibyte.
pub(crate) const MIB: u64 = 1 << 20;

/// A node of our own: a cgroup whose limit is the capacity.
pub(crate) struct Node {
    pub(crate) sandbox: Sandbox,
    pub(crate) groups: Vec<OwnedCgroup>,
    pub(crate) folder: tempfile::TempDir,
    /// What the agent is started by, if not by itself.
    pub(crate) within: Vec<String>,
    /// Where the agent's standard output goes, if anywhere.
    pub(crate) stdout: Option<PathBuf>,
    /// Capabilities of root that whatever is started has not got.
    pub(crate) without: CapabilitySet,
    /// Those that it has as the user nobody, if it is started as that.
    nobodys: Option<CapabilitySet>,
    agents: Vec<Child>,
}

impl Node {
    /// A node of so many MiB without workloads.
    pub(crate) fn new(mib: u64) -> Self {
        let sandbox = Sandbox::new(&[Controller::Memory, Controller::Pids], mib * MIB).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("manifests")).unwrap();
        Self {
            sandbox,
            groups: Vec::new(),
            folder,
            within: Vec::new(),
            stdout: None,
            without: CapabilitySet::empty(),
            nobodys: None,
            agents: Vec::new(),
        }
    }

    /// Adds a workload; `spec` is YAML that is put into the pod's `spec`.
    pub(crate) fn workload(&mut self, name: &str, spec: &str) -> usize {
        let group = self.sandbox.group.child(name).unwrap();
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: test, uid: uid-{name}, annotations: {{brink.dev/cgroup: \"{}\"}}}}\nspec: {{{spec}}}\n",
            group.group()
        );
        fs::write(
            self.path("manifests").join(format!("{name}.yaml")),
            manifest,
        )
        .unwrap();
        self.groups.push(group);
        self.groups.len() - 1
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("state/brink.sock")
    }

    /// Writes the configuration of an agent whose node is our cgroup, with `extra` lines of YAML at its end.
    pub(crate) fn configure(&self, mode: &str, extra: &str) {
        self.configure_in(self.sandbox.group.group(), mode, extra);
    }

    /// The same with another cgroup as the node.
    pub(crate) fn configure_in(&self, group: &str, mode: &str, extra: &str) {
        let node = format!("{{cgroup: \"{group}\"}}");
        self.configure_on(&node, mode, extra);
    }

    /// The same with the machine as the node.
    pub(crate) fn configure_machine(&self, mode: &str, extra: &str) {
        self.configure_on("machine", mode, extra);
    }

    fn configure_on(&self, node: &str, mode: &str, extra: &str) {
        let text = format!(
            "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\nmode: {mode}\nnode: {node}\nenforceNodeAllocatable: []\nheadroomHard: 0%\nworkloads: {{manifests: \"{}\"}}\npaths: {{stateDir: \"{}\", decisionJournal: \"{}\"}}\n{extra}\n",
            self.path("manifests").display(),
            self.path("state").display(),
            self.path("journal").display(),
        );
        fs::write(self.path("config.yaml"), text).unwrap();
    }

    /// Starts everything in a mount namespace of its own, after these commands of a shell.
    pub(crate) fn hide(&mut self, commands: &str) {
        let script = format!("{commands} && exec \"$@\"");
        self.within = ["unshare", "-m", "sh", "-c", &script, "sh"]
            .map(str::to_owned)
            .to_vec();
    }

    /// Starts everything as the user nobody with these capabilities.
    pub(crate) fn become_nobody_with(&mut self, capabilities: CapabilitySet) {
        fs::copy(agent_binary().unwrap(), self.path("brink")).unwrap();
        for (path, mode) in [(self.path("brink"), 0o755), (self.path(""), 0o777)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        self.nobodys = Some(capabilities);
    }

    /// `brink` with these arguments, in the place of this node's agent.
    fn command(&self, arguments: &[&str]) -> Command {
        let binary = match self.nobodys {
            Some(_) => self.path("brink"),
            None => agent_binary().unwrap(),
        };
        let binary = binary.display().to_string();
        let mut line = self.within.iter().chain([&binary]);
        let mut command = Command::new(line.next().unwrap());
        command.args(line).args(arguments).stdin(Stdio::null());
        if self.nobodys.is_some() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Starts it with the rights of this node's agent: those of a thread are those of its children.
    fn spawn(&self, mut command: Command) -> Child {
        let (without, nobodys) = (self.without, self.nobodys);
        let start = move || {
            for capability in without.iter() {
                remove_capability_from_bounding_set(capability).unwrap();
            }
            if let Some(nobodys) = nobodys {
                keep_over_change_of_user(nobodys);
            }
            command.spawn().unwrap()
        };
        thread::spawn(start).join().unwrap()
    }

    /// What a command of `brink` says here, whole.
    pub(crate) fn said(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.env("BRINK_CONFIG", self.path("config.yaml"));
        command.env("BRINK_SOCKET", self.socket());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn(command).wait_with_output().unwrap()
    }

    /// The doctor's report here.
    pub(crate) fn doctor(&self) -> Value {
        let output = self.said(&["doctor", "-o", "json"]);
        let talk = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_slice(&output.stdout);
        report.unwrap_or_else(|error| panic!("{error}: {talk}"))
    }

    /// Starts `brink run` without waiting for anything.
    pub(crate) fn launch(&mut self, flags: &[&str]) -> u32 {
        self.launch_logging_to(&self.path("log"), flags)
    }

    /// The same with its log in another file.
    pub(crate) fn launch_logging_to(&mut self, log: &Path, flags: &[&str]) -> u32 {
        let mut options = fs::File::options();
        let log = options.create(true).append(true).open(log).unwrap();
        let config = self.path("config.yaml").display().to_string();
        let mut command = self.command(&["run", "--config", &config]);
        let out = self.stdout.as_ref();
        let out = out.map_or_else(Stdio::null, |path| fs::File::create(path).unwrap().into());
        command.args(flags).stdout(out).stderr(log);
        let child = self.spawn(command);
        let pid = child.id();
        self.agents.push(child);
        pid
    }

    /// Starts `brink run` and waits until it stands on the rung it is going to stand on.
    pub(crate) fn start(&mut self, flags: &[&str]) -> Status {
        self.launch(flags);
        let settled = |status: &Status| {
            let loading = |reason: &String| reason == LOADING;
            status.rung.is_some() && !status.rung_reasons.iter().any(loading)
        };
        let status = wait_until(PATIENCE, || self.status().filter(settled));
        status.unwrap_or_else(|| panic!("the agent did not come up: {}", self.log()))
    }

    /// Ends an agent and waits for it.
    pub(crate) fn stop(&mut self, signal: rustix::process::Signal) {
        for mut agent in self.agents.drain(..) {
            let pid = rustix::process::Pid::from_child(&agent);
            let _ended_already = rustix::process::kill_process(pid, signal);
            agent.wait().unwrap();
        }
    }

    /// Ends the agent that was started first and waits for it.
    pub(crate) fn stop_first(&mut self, signal: rustix::process::Signal) {
        let mut agent = self.agents.remove(0);
        rustix::process::kill_process(rustix::process::Pid::from_child(&agent), signal).unwrap();
        agent.wait().unwrap();
    }

    /// Sends a signal to the agent that was started first, and waits for nothing.
    pub(crate) fn signal_first(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.agents[0]);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Sends a signal to every agent.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        for agent in &self.agents {
            rustix::process::kill_process(rustix::process::Pid::from_child(agent), signal).unwrap();
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn ask(&self, question: &Question) -> Result<Answer, AskError> {
        ask(&self.socket(), question)
    }

    pub(crate) fn status(&self) -> Option<Status> {
        match self.ask(&Question::Status) {
            Ok(Answer::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// Waits for a status that is as wanted.
    #[track_caller]
    pub(crate) fn until(&self, is_so: impl Fn(&Status) -> bool) -> Status {
        let found = wait_until(PATIENCE, || self.status().filter(&is_so));
        found.unwrap_or_else(|| panic!("{:#?}\n{}", self.status(), self.log()))
    }

    /// Lifts a pause and a tripped guard: the mode that comes of it.
    pub(crate) fn resumed(&self) -> String {
        match self.ask(&Question::Resume) {
            Ok(Answer::Mode(view)) => view.mode,
            other => panic!("{other:?}\n{}", self.log()),
        }
    }

    pub(crate) fn decisions(&self) -> Vec<DecisionRecord> {
        match self.ask(&Question::Decisions) {
            Ok(Answer::Decisions(records)) => records,
            other => panic!("{other:?}\n{}", self.log()),
        }
    }

    /// The first decision, which need not be over.
    #[track_caller]
    pub(crate) fn first_decision(&self) -> DecisionRecord {
        let found = wait_until(PATIENCE, || self.decisions().into_iter().next());
        found.unwrap_or_else(|| panic!("nobody went: {}", self.log()))
    }

    /// Waits for the decision with this number to be finished.
    pub(crate) fn finished(&self, order: u64) -> DecisionRecord {
        let found = wait_until(PATIENCE, || {
            let records = self.decisions();
            records
                .into_iter()
                .find(|record| record.order == order && record.end.is_some())
        });
        found.unwrap_or_else(|| panic!("no decision {order}: {}", self.log()))
    }

    /// What `brink replay` says of the journal, which must give the same answers.
    pub(crate) fn replay(&self) -> String {
        let mut command = Command::new(agent_binary().unwrap());
        let output = command.arg("replay").arg(self.path("journal")).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{talk}");
        text
    }

    /// A load in a workload's cgroup that has taken all it is to take.
    pub(crate) fn holding(&self, workload: usize, mib: u64) -> Hog {
        let mut hog = self.load(workload, Load::Anon, mib * MIB);
        hog.wait_touched(mib * MIB, PATIENCE).unwrap();
        hog
    }

    /// The same, and it does not listen when it is asked to end.
    pub(crate) fn deaf(&self, workload: usize, load: Load, mib: u64) -> Hog {
        let mut hog = self.going_deaf(workload, load, mib);
        hog.wait_touched(mib * MIB, PATIENCE).unwrap();
        hog
    }

    /// The same, and it may still be taking what it is to take.
    pub(crate) fn going_deaf(&self, workload: usize, load: Load, mib: u64) -> Hog {
        let spec = HogSpec::new(load, mib * MIB, Duration::from_mins(1));
        let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
        Hog::spawn_deaf(program, Some(&self.groups[workload]), &spec).unwrap()
    }

    /// A load in a workload's cgroup that has just been started.
    pub(crate) fn load(&self, workload: usize, load: Load, amount: u64) -> Hog {
        let spec = HogSpec::new(load, amount, Duration::from_mins(1));
        self.hog(workload, &spec)
    }

    pub(crate) fn hog(&self, workload: usize, spec: &HogSpec) -> Hog {
        let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
        Hog::spawn(program, Some(&self.groups[workload]), spec).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop(rustix::process::Signal::TERM);
    }
}

/// Lets the calling thread's children have these capabilities whoever they become.
fn keep_over_change_of_user(kept: CapabilitySet) {
    let mut sets = capabilities(None).unwrap();
    sets.inheritable = kept;
    set_capabilities(None, sets).unwrap();
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP).unwrap();
    for capability in kept.iter() {
        configure_capability_in_ambient_set(capability, true).unwrap();
    }
}

/// Whether a hog still runs.
pub(crate) fn lives(hog: &Hog) -> bool {
    runs(hog.pid())
}

/// Whether a process runs, and is not only waiting to be reaped.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until a hog is gone, and tells how long that took.
pub(crate) fn gone_after(hog: &Hog) -> Duration {
    let began = Instant::now();
    wait_until(PATIENCE, || (!lives(hog)).then_some(())).expect("it was to be killed");
    began.elapsed()
}
