//! Everything that stands ready while one condition is measured.
use std::{path::Path, time::Duration};

use anyhow::Context as _;
use brink::guard::files::{NodeFiles, NodePlan, Scope};
use brink::guard::pods::PodsGroup;
use brink_host::cgroup::{CgroupDir, Controller};

use super::super::{
    agent::{Agent, Rung, Setup},
    arena::Arena,
    units::MIB,
    witness::{Ground, Witness},
};
use super::WORKLOADS;

/// Limit of the group that holds the workloads, whoever is the node.
pub(super) const LIMIT: u64 = 2048 * MIB;

/// Whose memory runs short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// The machine's.
    Machine,
    /// A cgroup's that is the node.
    Group,
    /// The cgroup's of all pods.
    Pods,
}

impl Node {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Group => "cgroup",
            Self::Pods => "pods",
        }
    }

    /// On the machine `memory.available` is to decide alone, as under Kubernetes: page cache can make headroom
    /// gigabytes larger, and nothing short of filling the machine would confirm a threshold near what is there now.
    pub(super) const fn is_confirmed(self) -> bool {
        !matches!(self, Self::Machine)
    }

    const fn policy(self) -> &'static str {
        if self.is_confirmed() {
            "confirmed"
        } else {
            "kubelet"
        }
    }
}

/// Who is to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    /// The agent with everything it has.
    Brink,
    /// The same without events. Beside the agent with them, and nobody else.
    Silent,
    /// The agent that may not load programs.
    RealtimePoll,
    /// The agent that has no real time either.
    NicePoll,
    /// A bare poll every millisecond under `SCHED_FIFO`.
    FifoPoll,
    /// A bare poll every 100 ms of an ordinary thread.
    OrdinaryPoll,
    /// A bare poll every 10 s of an ordinary thread, as the kubelet's housekeeping.
    SlowPoll,
}

impl Contender {
    /// Those who are compared in every case.
    pub(super) const ALL: [Self; 6] = [
        Self::Brink,
        Self::RealtimePoll,
        Self::NicePoll,
        Self::FifoPoll,
        Self::OrdinaryPoll,
        Self::SlowPoll,
    ];

    /// As the tables name it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Brink => "Brink",
            Self::Silent => "Brink without events",
            Self::RealtimePoll => "Brink without BPF (FIFO poll)",
            Self::NicePoll => "Brink without BPF or FIFO (nice -20)",
            Self::FifoPoll => "bare FIFO poll, 1 ms",
            Self::OrdinaryPoll => "bare ordinary poll, 100 ms",
            Self::SlowPoll => "bare ordinary poll, 10 s",
        }
    }

    /// The rung of an agent.
    const fn rung(self) -> Option<Rung> {
        match self {
            Self::Brink | Self::Silent => Some(Rung::KernelSampler),
            Self::RealtimePoll => Some(Rung::RealtimePoll),
            Self::NicePoll => Some(Rung::Poll),
            Self::FifoPoll | Self::OrdinaryPoll | Self::SlowPoll => None,
        }
    }

    /// The period of a bare poll.
    pub(super) const fn period(self) -> Option<Duration> {
        match self {
            Self::FifoPoll => Some(Duration::from_millis(1)),
            Self::OrdinaryPoll => Some(Duration::from_millis(100)),
            Self::SlowPoll => Some(Duration::from_secs(10)),
            Self::Brink | Self::Silent | Self::RealtimePoll | Self::NicePoll => None,
        }
    }

    /// How long its allocator waits to be killed.
    pub(super) const fn patience(self) -> Duration {
        match self {
            Self::SlowPoll => Duration::from_secs(14),
            _ => Duration::from_secs(4),
        }
    }
}

/// The arena, the agents, and the truth.
pub(super) struct Scene {
    pub(super) node: Node,
    pub(super) witness: Witness,
    agents: Vec<(Contender, Agent)>,
    dir: CgroupDir,
    pub(super) arena: Arena,
}

impl Scene {
    /// Starts what these contenders need.
    pub(super) fn new(
        node: Node,
        contenders: impl Iterator<Item = Contender>,
    ) -> anyhow::Result<Self> {
        let arena = Arena::new(LIMIT, WORKLOADS)?;
        let hierarchy = arena.layout.require(Controller::Memory)?;
        let dir = CgroupDir::open(hierarchy, arena.node.group())?;
        let mut scene = Self {
            node,
            witness: Witness::new(node.is_confirmed())?,
            agents: Vec::new(),
            dir,
            arena,
        };
        for contender in contenders {
            scene.start(contender)?;
        }
        Ok(scene)
    }

    /// Starts the agent of a contender that is one, if it does not run.
    fn start(&mut self, contender: Contender) -> anyhow::Result<()> {
        let Some(rung) = contender.rung() else {
            return Ok(());
        };
        if self.agent(contender).is_some() {
            return Ok(());
        }
        let arena = &self.arena;
        let group = || Some(arena.node.group().to_owned());
        let agent = Agent::start(Setup {
            node: (self.node == Node::Group).then(group).flatten(),
            pods: (self.node == Node::Pods).then(group).flatten(),
            workloads: arena.glob(),
            // Whoever else takes memory on the machine meanwhile must not cost the arena its workloads.
            protected: (self.node == Node::Machine).then(|| arena.glob_of_sleepers()),
            policy: self.node.policy(),
            rung,
            journal: false,
            events: contender != Contender::Silent,
            page: None,
            nodefs: None,
        })?;
        self.agents.push((contender, agent));
        Ok(())
    }

    /// Ends all agents.
    pub(super) fn end_agents(&mut self) {
        self.agents.clear();
    }

    /// Ends all agents, and starts this one.
    pub(super) fn change_to(&mut self, contender: Contender) -> anyhow::Result<()> {
        self.end_agents();
        self.start(contender)
    }

    /// Whether the guard has real time, without which its figures are not those of the top rung.
    pub(super) fn brink_is_fifo(&self) -> anyhow::Result<bool> {
        self.agent(Contender::Brink).context("no agent")?.is_fifo()
    }

    /// The agent of a contender that is one.
    pub(super) fn agent(&self, contender: Contender) -> Option<&Agent> {
        let mut agents = self.agents.iter();
        agents
            .find(|(known, _)| *known == contender)
            .map(|(_, agent)| agent)
    }

    /// What is available now, by the truth.
    pub(super) fn available(&mut self) -> anyhow::Result<i64> {
        self.witness.available(ground(self.node, &self.dir))
    }

    /// Points the truth at the limit, and the contender's agent if it is one.
    pub(super) fn arm(
        &mut self,
        contender: Contender,
        (victim, limit): (&str, i64),
    ) -> anyhow::Result<()> {
        self.witness.aim(ground(self.node, &self.dir), limit)?;
        let Some(agent) = self.agent(contender) else {
            return Ok(());
        };
        let value = u64::try_from(limit)?;
        // The threshold on the pods' cgroup is derived from the one on the node.
        agent.arm(&[("memory.available", value)])?;
        agent.wait_known(victim)
    }

    /// Puts the contender's thresholds out of reach.
    pub(super) fn disarm(&self, contender: Contender) -> anyhow::Result<()> {
        match self.agent(contender) {
            Some(agent) => agent.disarm(),
            None => Ok(()),
        }
    }

    /// The node's files, as the agent's own polls read them.
    pub(super) fn files(&self) -> anyhow::Result<NodeFiles> {
        let group = || self.arena.node.group().to_owned();
        let plan = NodePlan {
            scope: match self.node {
                Node::Group => Scope::Group(group()),
                Node::Machine | Node::Pods => Scope::Machine,
            },
            pods: match self.node {
                Node::Pods => PodsGroup::Named(group()),
                Node::Group | Node::Machine => PodsGroup::None,
            },
        };
        Ok(NodeFiles::open(Path::new("/"), &self.arena.layout, &plan)?)
    }

    /// What the sampler in the kernel cost while this was measured.
    pub(super) fn sampler_note(&self) -> anyhow::Result<Option<String>> {
        let Some(agent) = self.agent(Contender::Brink) else {
            return Ok(None);
        };
        let sampler = agent.status()?.sampler;
        Ok(sampler.map(|sampler| {
            format!(
                "Brink's sampler took {} ns a tick in the mean of {} ticks, by its own clock",
                sampler.mean_ns, sampler.ticks
            )
        }))
    }
}

fn ground(node: Node, dir: &CgroupDir) -> Ground<'_> {
    match node {
        Node::Machine => Ground::Machine,
        Node::Group | Node::Pods => Ground::Group(dir),
    }
}
