//! The parts of a simulation, one after the other: start, rest, storm, annotation, a server that goes away, and the end.
use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::bail;
use brink_kube::{pause::Pause, retry::Backoff, watch};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::{task::spawn_blocking, time::sleep};

use super::{
    super::restart,
    Args,
    agent::{Agent, Plan, resident},
    asked::{Counter, Kind},
    descriptors,
    meter::Meter,
    report::{Books, Part, Phase, Reopened},
    scene::{Node, Scene},
};

/// How often the server is looked at where much happens, and at rest: its page is long.
const CLOSE: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(10);
/// How long everybody may take for something.
const PATIENCE: Duration = Duration::from_mins(4);
/// What comes late, or a second time, has come by then.
const LINGER: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(50);
/// From evictions to the server's death: some are told by then, some are being told, and some are not.
const UNDER_WAY: Duration = Duration::from_millis(50);

/// What a simulation runs on.
pub(super) struct Stage<'a> {
    pub(super) args: &'a Args,
    pub(super) scene: &'a Scene,
    pub(super) counter: &'a Counter,
    /// Folder of the cluster, where it is ours and its server can be taken away.
    pub(super) own: Option<&'a Path>,
    /// Folder of the agents.
    pub(super) folder: &'a Path,
}

/// What was found, before it is a report.
pub(super) struct Found {
    pub(super) phases: Vec<Phase>,
    pub(super) own: [u64; 2],
    pub(super) servers: [Option<f64>; 2],
    pub(super) connections: [Option<f64>; 2],
    pub(super) reopened: Reopened,
    pub(super) books: Books,
    pub(super) left_conditions: usize,
}

/// The agents, and what they have done.
struct Fleet {
    agents: Vec<Agent>,
    nodes: Vec<Node>,
    evicted: BTreeSet<String>,
    /// Watches of others, of pods and of nodes.
    others: [f64; 2],
    phases: Vec<Phase>,
}

impl Stage<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// When the server refuses, or something that must come does not.
    pub(super) async fn run(&self) -> anyhow::Result<Found> {
        let args = self.args;
        say(&format!(
            "making {} nodes of {} pods",
            args.agents, args.pods
        ));
        let nodes = self.scene.make(args.agents, args.pods).await?;
        sleep(LINGER).await;
        let before = self.scene.sample().await?;
        if let Some(most) = before.files[1]
            && most < descriptors::of_server(args.agents)
        {
            bail!(
                "the API server may have {most} descriptors, and {} agents take about {}",
                args.agents,
                descriptors::of_server(args.agents)
            );
        }
        let own = resident()?;
        let mut fleet = Fleet {
            agents: Vec::new(),
            nodes,
            evicted: BTreeSet::new(),
            others: before.watches,
            phases: Vec::new(),
        };
        let reopened = self.start(&mut fleet).await?;
        self.rest(&mut fleet).await?;
        let (rested, after) = (resident()?, self.scene.sample().await?);
        self.storm(&mut fleet).await?;
        self.annotation(&mut fleet).await?;
        if let Some(folder) = self.own {
            self.outage(&mut fleet, folder).await?;
        }
        let books = self.scene.books(&fleet.evicted).await?;
        self.end(&mut fleet).await?;
        let left_conditions = self.scene.nodes_with_conditions().await?;
        Ok(Found {
            phases: fleet.phases,
            own: [own, rested],
            servers: [before.resident, after.resident],
            connections: [before.files[0], after.files[0]],
            reopened,
            books,
            left_conditions,
        })
    }

    async fn begin(&self, part: Part, pace: Duration) -> anyhow::Result<Meter> {
        Meter::begin(part, pace, (self.scene, self.counter)).await
    }

    async fn finish(&self, meter: Meter, fleet: &Fleet) -> anyhow::Result<Phase> {
        meter.end((self.scene, self.counter), fleet.others).await
    }

    /// All at once: a roll-out of a `DaemonSet` is gentler.
    async fn start(&self, fleet: &mut Fleet) -> anyhow::Result<Reopened> {
        say("all start");
        let plan = Plan {
            access: self.scene.account(self.folder).await?,
            folder: self.folder,
            run: format!("fleet-{}", Timestamp::now().as_millisecond()),
            seed: self.args.seed,
        };
        let meter = self.begin(Part::Start, CLOSE).await?;
        let began = Instant::now();
        for (index, node) in fleet.nodes.iter().enumerate() {
            fleet.agents.push(Agent::start(&plan, index, &node.name)?);
        }
        let pods = self.args.pods;
        let reached = reach(&fleet.agents, began, pods).await?;
        until("the node's annotation is not known", || {
            missing(&fleet.agents, |agent| agent.tally.pause().is_some())
        })
        .await?;
        let all = u64::try_from(fleet.agents.len())?;
        until("the node's conditions, or a watch, are not there", || {
            let asked = meter.asked(self.counter);
            let kinds = [Kind::NodeStatus, Kind::WatchNode, Kind::WatchPods];
            kinds
                .map(|kind| all.saturating_sub(asked.taken(kind)))
                .into_iter()
                .sum()
        })
        .await?;
        let phase = self.finish(meter, fleet).await?;
        fleet.phases.push(Phase { reached, ..phase });
        let lasts = fleet.nodes.iter().enumerate().map(|(index, node)| {
            let mut backoff = Backoff::new(&node.name, plan.seed_of(index));
            watch::lasts(&mut backoff).as_secs_f64()
        });
        Ok(Reopened::of(&lasts.collect::<Vec<_>>()))
    }

    async fn rest(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        sleep(LINGER).await;
        say(&format!("rest of {} s", self.args.rest));
        let meter = self.begin(Part::Rest, SELDOM).await?;
        sleep(Duration::from_secs(self.args.rest)).await;
        let phase = self.finish(meter, fleet).await?;
        fleet.phases.push(phase);
        Ok(())
    }

    /// Some evict, and every node is short, in the same moment.
    async fn storm(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        say("storm");
        let meter = self.begin(Part::Storm, CLOSE).await?;
        let keys = fleet.evict(self.args.evicting(), 0)?;
        fleet.agents.iter().for_each(|agent| agent.feel(true));
        let all = u64::try_from(fleet.agents.len())?;
        until("what was to be told is not", || {
            let conditions = meter.asked(self.counter).taken(Kind::NodeStatus);
            missing(&fleet.agents, |agent| agent.tally.is_settled())
                + all.saturating_sub(conditions)
        })
        .await?;
        sleep(LINGER).await;
        let delays = fleet.delays(&keys, None)?;
        let phase = self.finish(meter, fleet).await?;
        fleet.phases.push(Phase { delays, ..phase });
        Ok(())
    }

    async fn annotation(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        say("every node is annotated");
        let meter = self.begin(Part::Annotation, CLOSE).await?;
        self.annotate(fleet, true).await?;
        if self.own.is_none() {
            self.annotate(fleet, false).await?;
        }
        let phase = self.finish(meter, fleet).await?;
        fleet.phases.push(phase);
        Ok(())
    }

    /// Every agent hears of it, which shows that its second watch lives.
    async fn annotate(&self, fleet: &Fleet, is_paused: bool) -> anyhow::Result<()> {
        self.scene.annotate(&fleet.nodes, is_paused).await?;
        let expected = if is_paused { Pause::Forever } else { Pause::No };
        until("the node's annotation is not heard of", || {
            missing(&fleet.agents, |agent| agent.tally.pause() == Some(expected))
        })
        .await
    }

    /// The server is killed in the moment in which some evict, so that what was sent may have been taken without an answer.
    async fn outage(&self, fleet: &mut Fleet, folder: &Path) -> anyhow::Result<()> {
        say(&format!("the server is away for {} s", self.args.away));
        let meter = self.begin(Part::Outage, CLOSE).await?;
        let keys = fleet.evict(self.args.evicting(), 1)?;
        sleep(UNDER_WAY).await;
        let own = folder.to_owned();
        spawn_blocking(move || restart::take_away(&own)).await??;
        sleep(Duration::from_secs(self.args.away)).await;
        let unaware = missing(&fleet.agents, |agent| {
            !agent.pods.standing(Timestamp::now()).connected
        });
        if unaware > 0 {
            bail!(
                "{unaware} agents have not noticed in {} s that the server is away",
                self.args.away
            );
        }
        let own = folder.to_owned();
        spawn_blocking(move || restart::give_back(&own)).await??;
        let back = Instant::now();
        let reached = reach(&fleet.agents, back, self.args.pods).await?;
        until("what was to be told is not", || {
            missing(&fleet.agents, |agent| agent.tally.is_settled())
        })
        .await?;
        self.annotate(fleet, false).await?;
        sleep(LINGER).await;
        let delays = fleet.delays(&keys, Some(back))?;
        let phase = self.finish(meter, fleet).await?;
        fleet.phases.push(Phase {
            delays,
            reached,
            ..phase
        });
        Ok(())
    }

    /// All at once: each has its node say nothing any more.
    async fn end(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        say("all stop");
        let meter = self.begin(Part::End, CLOSE).await?;
        let ended = join_all(fleet.agents.drain(..).map(Agent::stop)).await;
        ended.into_iter().collect::<anyhow::Result<()>>()?;
        let phase = self.finish(meter, fleet).await?;
        fleet.phases.push(phase);
        Ok(())
    }
}

impl Fleet {
    /// So many agents, spread over all of them, evict their pod of this number; the keys of what is to be told.
    fn evict(&mut self, some: usize, pod: usize) -> anyhow::Result<BTreeSet<String>> {
        let all = self.agents.len();
        let mut keys = BTreeSet::new();
        for turn in 0..some {
            let at = turn * all / some;
            let Some(pod) = self.nodes[at].pods.get(pod).cloned() else {
                bail!("{} has no pod {pod}", self.nodes[at].name);
            };
            self.evicted.insert(pod.uid.clone());
            keys.insert(self.agents[at].evict(pod)?);
        }
        Ok(keys)
    }

    /// How long it took to tell these; since `back`, where the server was away.
    fn delays(&self, keys: &BTreeSet<String>, back: Option<Instant>) -> anyhow::Result<Vec<f64>> {
        let mut delays = Vec::new();
        for agent in &self.agents {
            for (key, outcome) in agent
                .tally
                .entries()
                .iter()
                .filter(|(key, _)| keys.contains(*key))
            {
                if let Some(why) = &outcome.ended {
                    bail!("{key} of {} is never told: {why}", agent.node);
                }
                delays.extend(outcome.took(back).map(|took| took.as_secs_f64()));
            }
        }
        Ok(delays)
    }
}

/// Waits until all pods of all agents are known and followed; how long that took each of them, in seconds.
async fn reach(agents: &[Agent], began: Instant, pods: usize) -> anyhow::Result<Vec<f64>> {
    let mut reached = vec![None; agents.len()];
    until("the pods are not known", || {
        let now = Timestamp::now();
        for (agent, reached) in agents
            .iter()
            .zip(&mut reached)
            .filter(|(_, reached)| reached.is_none())
        {
            let standing = agent.pods.standing(now);
            if standing.connected && standing.pods == pods {
                *reached = Some(began.elapsed().as_secs_f64());
            }
        }
        u64::try_from(reached.iter().filter(|reached| reached.is_none()).count())
            .unwrap_or(u64::MAX)
    })
    .await?;
    Ok(reached.into_iter().flatten().collect())
}

fn missing(agents: &[Agent], holds: impl Fn(&Agent) -> bool) -> u64 {
    let missing = agents.iter().filter(|agent| !holds(agent)).count();
    u64::try_from(missing).unwrap_or(u64::MAX)
}

/// Waits until nothing is missing any more.
async fn until(what: &str, mut missing: impl FnMut() -> u64) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let missing = missing();
        if missing == 0 {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("{missing} times {what}, after {} s", PATIENCE.as_secs());
        }
        sleep(TICK).await;
    }
}

fn say(what: &str) {
    println!("fleet: {what}");
}
