//! The stage: a bounded cgroup as the node, three real workloads as pods, and the agent in enforce mode.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use brink_host::HostError;
use brink_host::cgroup::owned::{OwnedCgroup, remove_abandoned};
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{Controller, Layout};
use brink_host::hog::{HogSpec, Load};
use brink_host::meminfo::MeminfoReader;

use super::Survivor;
use crate::config::{Checked, Sources, load};
use crate::record::DecisionRecord;
use crate::runtime::prepare::{self, Running};

/// Purpose in the names of our cgroups.
const PURPOSE: &str = "demo";
/// The one that goes.
pub(super) const LEAKER: &str = "leaker";
/// Uses exactly what it requested.
const GUARANTEED: &str = "guaranteed";
/// Uses less than it requested.
const BURSTABLE: &str = "burstable";
const NAMES: [&str; 3] = [GUARANTEED, BURSTABLE, LEAKER];
/// The workloads end by themselves after this, whatever happens.
const DEADLINE: Duration = Duration::from_mins(2);
/// The machine must have this much more than the stage, so that the demonstration harms nobody.
const SPARE: u64 = 512 << 20;

/// Everything that is set up, and taken down when dropped.
pub(super) struct Stage {
    layout: Layout,
    bytes: u64,
    node: Option<OwnedCgroup>,
    groups: Vec<OwnedCgroup>,
    usage: Vec<UsageReader>,
    node_usage: UsageReader,
    children: Vec<(&'static str, Child)>,
    folder: tempfile::TempDir,
    agent: Option<Running>,
}

/// One workload as it is shown.
#[derive(Clone, Debug)]
pub struct WorkloadState {
    /// Its name.
    pub name: &'static str,
    /// What it uses, in bytes; none once it is gone.
    pub usage: Option<u64>,
    /// What it requested, in bytes.
    pub request: u64,
}

impl Stage {
    /// Makes the cgroups; nothing runs in them yet.
    pub(super) fn build(bytes: u64) -> anyhow::Result<Self> {
        let root = Path::new("/");
        let info = MeminfoReader::open(root)?
            .read()
            .map_err(|error| error.at(Path::new("/proc/meminfo")))?;
        let available = info.available.unwrap_or(info.free);
        if available < bytes + SPARE {
            bail!(
                "the demonstration needs {} MiB of available memory, and there are {} MiB; try a smaller --size",
                (bytes + SPARE) >> 20,
                available >> 20
            );
        }
        let layout = Layout::detect(root)?;
        remove_abandoned(&layout, PURPOSE)?;
        let node = OwnedCgroup::create(&layout, PURPOSE, &[Controller::Memory])?;
        node.limit_memory(&layout, bytes)?;
        let groups: Vec<OwnedCgroup> = NAMES
            .iter()
            .map(|name| node.child(name))
            .collect::<Result<_, HostError>>()?;
        let dir = |group: &OwnedCgroup| {
            let dir = group
                .dir(&layout, Controller::Memory)
                .context("no memory controller")?;
            Ok(UsageReader::open(dir)?)
        };
        let usage = groups.iter().map(dir).collect::<anyhow::Result<_>>()?;
        let node_usage = dir(&node)?;
        let folder = tempfile::Builder::new().prefix("brink-demo-").tempdir()?;
        Ok(Self {
            layout,
            bytes,
            node: Some(node),
            groups,
            usage,
            node_usage,
            children: Vec::new(),
            folder,
            agent: None,
        })
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The hard threshold: a fifth of the node.
    pub(super) const fn threshold(&self) -> u64 {
        self.bytes / 5
    }

    /// What each workload requests: the first two a fifth of the node each, the leaker nothing.
    fn request(&self, name: &str) -> u64 {
        if name == LEAKER { 0 } else { self.bytes / 5 }
    }

    /// Writes manifests and configuration, as a user would, and starts the agent on them.
    pub(super) fn start_agent(&mut self) -> anyhow::Result<()> {
        let manifests = self.folder.path().join("manifests");
        fs::create_dir(&manifests)?;
        for (name, group) in NAMES.iter().zip(&self.groups) {
            fs::write(
                manifests.join(format!("{name}.yaml")),
                self.manifest(name, group),
            )?;
        }
        let config = self.folder.path().join("config.yaml");
        fs::write(&config, self.config(&manifests))?;
        let sources = Sources {
            config: Some(config),
            ..Sources::default()
        };
        let Checked { config, .. } =
            load(&sources).map_err(|faults| anyhow::anyhow!("{faults}"))?;
        self.agent = Some(prepare::start(&config)?);
        Ok(())
    }

    fn manifest(&self, name: &str, group: &OwnedCgroup) -> String {
        let request = self.request(name);
        let resources = match name {
            GUARANTEED => format!(
                "{{requests: {{cpu: 100m, memory: {request}}}, limits: {{cpu: 100m, memory: {request}}}}}"
            ),
            BURSTABLE => format!("{{requests: {{memory: {request}}}}}"),
            _ => "{}".to_owned(),
        };
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: demo\n  uid: {name}\n  annotations: {{brink.dev/cgroup: \"{}\"}}\nspec:\n  containers:\n  - name: main\n    resources: {resources}\n",
            group.group()
        )
    }

    fn config(&self, manifests: &Path) -> String {
        let group = self.node.as_ref().map_or("", |node| node.group());
        let state = self.folder.path().join("state");
        format!(
            "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\nmode: enforce\nnode: {{cgroup: \"{group}\"}}\nevictionHard: {{memory.available: \"{}\"}}\nenforceNodeAllocatable: []\nworkloads: {{manifests: \"{}\"}}\npaths: {{stateDir: \"{}\"}}\n",
            self.threshold(),
            manifests.display(),
            state.display(),
        )
    }

    /// Starts the two that keep to what they requested.
    pub(super) fn start_peaceful(&mut self) -> anyhow::Result<()> {
        let request = self.request(GUARANTEED);
        self.spawn(
            GUARANTEED,
            HogSpec::new(Load::Anon, request / 10 * 9, DEADLINE),
        )?;
        self.spawn(BURSTABLE, HogSpec::new(Load::Anon, request / 2, DEADLINE))
    }

    /// Starts the one that does not: the whole node in two seconds.
    pub(super) fn start_leak(&mut self) -> anyhow::Result<()> {
        let leak = HogSpec::new(Load::Anon, self.bytes, DEADLINE).at_rate(self.bytes / 2);
        self.spawn(LEAKER, leak)
    }

    fn spawn(&mut self, name: &'static str, mut spec: HogSpec) -> anyhow::Result<()> {
        let place = NAMES.iter().position(|other| *other == name);
        let group = place
            .and_then(|place| self.groups.get(place))
            .context("no such workload")?;
        spec = spec.joining(group.entrances());
        spec.floor = SPARE / 2;
        let program = std::env::current_exe().context("our own program cannot be found")?;
        let child = Command::new(program)
            .arg(crate::cli::HOG)
            .args(spec.to_args())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("a workload cannot be started")?;
        self.children.push((name, child));
        Ok(())
    }

    /// Whether the peaceful ones use what they are to use.
    pub(super) fn is_settled(&mut self) -> bool {
        let request = self.request(GUARANTEED);
        let uses = |place: usize| self.usage[place].read().unwrap_or(0);
        uses(0) >= request / 10 * 9 && uses(1) >= request / 2
    }

    /// Whether the agent stands where it is going to stand.
    pub(super) fn stands(&mut self) -> bool {
        let agent = self.agent.as_ref();
        agent.is_some_and(|agent| {
            let state = agent.shared.lock();
            state
                .standing
                .as_ref()
                .is_some_and(|standing| !standing.is_passing())
        })
    }

    /// Rung and scheduling of the guard, in words.
    pub(super) fn standing(&self) -> String {
        let Some(agent) = &self.agent else {
            return String::new();
        };
        let state = agent.shared.lock();
        let Some(standing) = &state.standing else {
            return String::new();
        };
        let mut words = format!("{}, guard {}", standing.rung, standing.scheduling);
        for reason in &standing.reasons {
            words.push_str("; ");
            words.push_str(reason);
        }
        words
    }

    /// What each workload uses now.
    pub(super) fn workloads(&self) -> Vec<WorkloadState> {
        let state = |(name, usage): (&&'static str, &UsageReader)| WorkloadState {
            name,
            usage: usage.read().ok(),
            request: self.request(name),
        };
        NAMES.iter().zip(&self.usage).map(state).collect()
    }

    /// What the node has left, in bytes.
    pub(super) fn available(&self) -> Option<u64> {
        Some(self.bytes.saturating_sub(self.node_usage.read().ok()?))
    }

    /// The decision, once it is over.
    pub(super) fn finished_decision(&self) -> Option<DecisionRecord> {
        let state = self.agent.as_ref()?.shared.lock();
        state
            .decisions
            .iter()
            .find(|record| record.end.is_some())
            .cloned()
    }

    /// The two that were to live, and whether they do.
    pub(super) fn survivors(&mut self) -> Vec<Survivor> {
        let peaceful = self.children.iter_mut().filter(|(name, _)| *name != LEAKER);
        let alive = |(name, child): &mut (&'static str, Child)| Survivor {
            name: (*name).to_owned(),
            alive: matches!(child.try_wait(), Ok(None)),
        };
        peaceful.map(alive).collect()
    }

    /// Takes everything down; the cgroups that could not be removed.
    pub(super) fn clear(mut self) -> Vec<String> {
        if let Some(agent) = self.agent.take() {
            agent.stop();
        }
        for (_, child) in &mut self.children {
            let _ended_already = child.kill();
            let _reaped = child.wait();
        }
        let mut left = Vec::new();
        let groups = self.groups.drain(..).chain(self.node.take());
        for group in groups {
            let name = group.group().to_owned();
            if group.remove().is_err() {
                left.push(name);
            }
        }
        let hierarchy = self.layout.hierarchy(Controller::Memory);
        left.retain(|name| {
            hierarchy
                .and_then(|hierarchy| hierarchy.folder(name))
                .is_some_and(|path| path.exists())
        });
        left
    }
}
