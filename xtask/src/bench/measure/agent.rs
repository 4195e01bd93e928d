//! The agent as users run it: the real `brink run`, with a configuration, asked over its socket.
use std::{
    fmt::Write as _,
    fs::{self, File},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use brink::{
    control::{
        client::ask,
        protocol::{Answer, Question, Status},
    },
    record::DecisionRecord,
};
use brink_host::clock::monotonic_ns;
use brink_tests::wait_until;
use rustix::{
    process::{Pid, Signal},
    thread::CapabilitySet,
};

use super::{arena::Arena, programs};

/// How long an agent may take to start, to read its configuration again, and to stop.
const PATIENCE: Duration = Duration::from_secs(10);
/// A threshold that nothing here reaches, and no smaller than what is usual: how far the sampler may differ from the
/// files follows from it.
pub(super) const OUT_OF_REACH: u64 = 160 << 20;

/// What carries the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Rung {
    /// Everything there is.
    KernelSampler,
    /// Without the right to load programs into the kernel.
    RealtimePoll,
    /// The same, with real time switched off.
    Poll,
}

impl Rung {
    /// The agent's own word for it.
    pub(in crate::bench) const fn word(self) -> &'static str {
        match self {
            Self::KernelSampler => "kernel-sampler",
            Self::RealtimePoll => "realtime-poll",
            Self::Poll => "poll",
        }
    }
}

/// How an agent is set up.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Setup {
    /// The cgroup that is the node; none for the machine.
    pub(in crate::bench) node: Option<String>,
    /// The cgroup all pods live in.
    pub(in crate::bench) pods: Option<String>,
    /// What is watched over.
    pub(in crate::bench) workloads: String,
    /// What is ranked and never killed.
    pub(in crate::bench) protected: Option<String>,
    /// `confirmed` or `kubelet`.
    pub(in crate::bench) policy: &'static str,
    /// On which rung.
    pub(in crate::bench) rung: Rung,
    /// Whether inputs are journalled.
    pub(in crate::bench) journal: bool,
    /// Whether events are told, with all that is in force by default: journal, recorder, metrics.
    pub(in crate::bench) events: bool,
    /// Where they are served to browsers, with the page, if they are.
    pub(in crate::bench) page: Option<SocketAddr>,
    /// The folder that nodefs is measured by, beside no container runtime; that of the machine if none.
    pub(in crate::bench) nodefs: Option<PathBuf>,
}

impl Setup {
    /// The arena as the node, in the default policy, on the top rung.
    pub(in crate::bench) fn of(arena: &Arena) -> Self {
        Self {
            node: Some(arena.node.group().to_owned()),
            pods: None,
            workloads: arena.glob(),
            protected: None,
            policy: "confirmed",
            rung: Rung::KernelSampler,
            journal: false,
            events: true,
            page: None,
            nodefs: None,
        }
    }
}

/// A running agent. Dropping it ends it.
pub(in crate::bench) struct Agent {
    child: Child,
    setup: Setup,
    folder: tempfile::TempDir,
}

impl Agent {
    /// Starts an agent that enforces, with its thresholds out of reach, and waits until it stands on its rung.
    pub(in crate::bench) fn start(setup: Setup) -> anyhow::Result<Self> {
        let (agent, _began) = Self::launch(setup, &[])?;
        agent.wait_on_its_rung()?;
        Ok(agent)
    }

    /// Waits until it stands on the rung that it is to stand on.
    pub(in crate::bench) fn wait_on_its_rung(&self) -> anyhow::Result<()> {
        let wanted = self.setup.rung.word();
        let stands = wait_until(PATIENCE, || {
            let status = self.status().ok()?;
            (status.rung.as_deref() == Some(wanted)).then_some(())
        });
        if stands.is_none() {
            let status = self.status();
            let seen = status.map(|status| (status.rung, status.rung_reasons));
            bail!(
                "the agent does not stand on {wanted}: {seen:?}\n{}",
                self.log()
            );
        }
        Ok(())
    }

    /// Starts an agent with these hard thresholds, waits for nothing, and tells when its process was started.
    pub(in crate::bench) fn launch(
        setup: Setup,
        thresholds: &[(&str, u64)],
    ) -> anyhow::Result<(Self, u64)> {
        let folder = tempfile::Builder::new().prefix("brink-bench-").tempdir()?;
        let config = folder.path().join("config.yaml");
        fs::write(config, text(&setup, folder.path(), thresholds))?;
        let (child, began) = run(folder.path(), setup.rung)?;
        let agent = Self {
            child,
            setup,
            folder,
        };
        Ok((agent, began))
    }

    /// Lets it run no further, whatever happens.
    pub(in crate::bench) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Kills it by SIGKILL, and starts another in its folder: with its configuration, its ledger and its journal. That one is
    /// put off by so long; tells when its process was started.
    pub(in crate::bench) fn start_again(&mut self, put_off: Duration) -> anyhow::Result<u64> {
        self.signal(Signal::KILL);
        self.child.wait().context("waiting for the agent's end")?;
        sleep(put_off);
        let (child, began) = run(self.folder.path(), self.setup.rung)?;
        self.child = child;
        Ok(began)
    }

    /// What it printed.
    pub(in crate::bench) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Its journal.
    pub(in crate::bench) fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// The socket of its events.
    pub(in crate::bench) fn events(&self) -> PathBuf {
        self.folder.path().join("events.sock")
    }

    /// Its process.
    pub(in crate::bench) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ask(&self, question: &Question) -> anyhow::Result<Answer> {
        Ok(ask(&self.folder.path().join("brink.sock"), question)?)
    }

    /// How it is.
    pub(in crate::bench) fn status(&self) -> anyhow::Result<Status> {
        match self.ask(&Question::Status)? {
            Answer::Status(status) => Ok(*status),
            other => bail!("not a status: {other:?}"),
        }
    }

    /// Its thread is scheduled in real time.
    pub(in crate::bench) fn is_fifo(&self) -> anyhow::Result<bool> {
        let scheduling = self.status()?.scheduling.unwrap_or_default();
        Ok(scheduling.starts_with("SCHED_FIFO"))
    }

    /// Puts its thresholds out of reach again.
    pub(in crate::bench) fn disarm(&self) -> anyhow::Result<()> {
        self.arm(&[("memory.available", OUT_OF_REACH)])
    }

    /// Gives it hard thresholds in place of those it had.
    pub(in crate::bench) fn arm(&self, thresholds: &[(&str, u64)]) -> anyhow::Result<()> {
        let config = self.folder.path().join("config.yaml");
        let fresh = self.folder.path().join("fresh.yaml");
        fs::write(&fresh, text(&self.setup, self.folder.path(), thresholds))?;
        fs::rename(fresh, config)?;
        self.signal(Signal::HUP);
        let wanted = |status: &Status| {
            thresholds.iter().all(|(signal, value)| {
                status.thresholds.iter().any(|known| {
                    known.signal == *signal && known.quantity == i64::try_from(*value).ok()
                })
            })
        };
        let taken = wait_until(PATIENCE, || self.status().ok().filter(wanted));
        taken.with_context(|| format!("the agent did not take {thresholds:?}\n{}", self.log()))?;
        // The status knows the thresholds a moment before the guard does.
        sleep(Duration::from_millis(5));
        Ok(())
    }

    /// Its latest decision since a moment (nanoseconds of `CLOCK_MONOTONIC`), once that is over.
    pub(in crate::bench) fn decision_since(
        &self,
        since: u64,
        patience: Duration,
    ) -> Option<DecisionRecord> {
        let deadline = Instant::now() + patience;
        loop {
            if let Ok(Answer::Decision(record)) = self.ask(&Question::Decision { order: None })
                && record.decided.monotonic_ns >= i64::try_from(since).unwrap_or(i64::MAX)
                && record.end.is_some()
            {
                return Some(*record);
            }
            if Instant::now() > deadline {
                return None;
            }
            sleep(Duration::from_millis(5));
        }
    }

    /// Kills it has ordered since it was started.
    pub(in crate::bench) fn decisions(&self) -> anyhow::Result<Vec<DecisionRecord>> {
        match self.ask(&Question::Decisions)? {
            Answer::Decisions(records) => Ok(records),
            other => bail!("no decisions: {other:?}"),
        }
    }

    /// Waits until it watches over this workload, whose group has just been made. After a second it is made to look:
    /// whoever wants to know how long it took then sees at least that second.
    pub(in crate::bench) fn wait_known(&self, group: &str) -> anyhow::Result<()> {
        const NUDGE: Duration = Duration::from_secs(1);
        let question = Question::ExplainWorkload {
            workload: group.to_owned(),
            against: None,
            signal: None,
        };
        let is_known = || matches!(self.ask(&question), Ok(Answer::Explanation(_))).then_some(());
        if wait_until(NUDGE, is_known).is_some() {
            return Ok(());
        }
        self.signal(Signal::HUP);
        let known = wait_until(2 * PATIENCE, is_known);
        known.with_context(|| format!("the agent does not know {group}\n{}", self.log()))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // A dead agent answers no question either.
            let _delivered = rustix::process::kill_process(pid, signal);
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let ended = wait_until(PATIENCE, || self.child.try_wait().ok().flatten());
        if ended.is_none() {
            let _killed = self.child.kill();
            let _reaped = self.child.wait();
        }
    }
}

/// When a stage of a decision was reached, in nanoseconds of `CLOCK_MONOTONIC`.
pub(in crate::bench) fn time_of(record: &DecisionRecord, stage: &str) -> Option<u64> {
    let found = record.stages.iter().find(|known| known.stage == stage)?;
    u64::try_from(found.at.monotonic_ns).ok()
}

/// The configuration. Without thresholds of its own, one that nothing reaches.
fn text(setup: &Setup, folder: &Path, thresholds: &[(&str, u64)]) -> String {
    let none = [("memory.available", OUT_OF_REACH)];
    let given = if thresholds.is_empty() {
        &none[..]
    } else {
        thresholds
    };
    let hard: Vec<String> = given
        .iter()
        .map(|(signal, value)| format!("{signal}: \"{value}\""))
        .collect();
    let mut text = format!(
        "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\nmode: enforce\nmemoryPolicy: {}\n\
         evictionHard: {{{}}}\nheadroomHard: \"0%\"\n\
         workloads: {{cgroups: [{{glob: \"{}\"}}]}}\n\
         limits: {{burst: 10000, refillInterval: 100ms, maxKills: 10000, window: 1s}}\n",
        setup.policy,
        hard.join(", "),
        setup.workloads
    );
    let priority = if setup.rung == Rung::Poll { 0 } else { 49 };
    let folder = folder.display();
    // Writing to a `String` cannot fail.
    let _written = writeln!(
        text,
        "realtime: {{priority: {priority}, moveGuardToRootCpuGroup: true}}"
    );
    let journal = if setup.journal {
        format!(", decisionJournal: {folder}/journal")
    } else {
        String::new()
    };
    let _written = writeln!(
        text,
        "paths: {{stateDir: {folder}, socket: {folder}/brink.sock{journal}}}"
    );
    let page = setup.page.map_or_else(String::new, |address| {
        format!(", listen: \"{address}\", page: true")
    });
    let _written = writeln!(text, "events: {{enabled: {}{page}}}", setup.events);
    if let Some(nodefs) = &setup.nodefs {
        let nodefs = nodefs.display();
        let _written = writeln!(
            text,
            "filesystems: {{nodefs: \"{nodefs}\"}}\nruntime: {{endpoint: \"{folder}/no-runtime.sock\"}}"
        );
    }
    if let Some(protected) = &setup.protected {
        let _written = writeln!(text, "protect: [\"{protected}\"]");
    }
    if let Some(node) = &setup.node {
        let _written = writeln!(text, "node: {{cgroup: {node}}}");
    }
    if let Some(pods) = &setup.pods {
        let _written = writeln!(text, "podsCgroup: {pods}");
    }
    text
}

/// An address of loopback that nobody has.
pub(super) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Starts an agent by the configuration in this folder, and tells when.
fn run(folder: &Path, rung: Rung) -> anyhow::Result<(Child, u64)> {
    let mut options = File::options();
    let log = options.create(true).append(true);
    let log = log.open(folder.join("log"))?;
    let mut command = Command::new(programs::agent()?);
    command.arg("run").arg("--config");
    command.arg(folder.join("config.yaml"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let began = monotonic_ns();
    Ok((spawn(command, rung)?, began))
}

/// Starts the agent, for the lower rungs without the right to load programs: what it may have is decided by the
/// thread that starts it.
fn spawn(mut command: Command, rung: Rung) -> anyhow::Result<Child> {
    if rung == Rung::KernelSampler {
        return Ok(command.spawn()?);
    }
    let thread = std::thread::spawn(move || {
        for capability in [
            CapabilitySet::SYS_ADMIN,
            CapabilitySet::BPF,
            CapabilitySet::PERFMON,
        ] {
            rustix::thread::remove_capability_from_bounding_set(capability)?;
        }
        command.spawn()
    });
    let child = thread.join();
    Ok(child.map_err(|_| anyhow::anyhow!("starting the agent panicked"))??)
}
