//! A real kubelet alone and Brink, in turns: how long after the same crossing the victim is gone, and which spikes are missed.

mod alike;
mod table;

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use brink_tests::{Chance, skip, slowed};
use serde_json::{Value, json};

use self::alike::{BRINK, KUBELET, STATUSES, Said};
use self::table::{Actor, After, Run, Way, of, report};
use crate::kubelet::{Evicting, pods_limit};
use crate::leak::{Kind, MIB, SPIKE, Waiting, leaker, spiker, wait_for_room};
use crate::manifest::{container, pod_of};
use crate::order::{is_under_pressure, number};
use crate::running::{Agent, MANY, ROOM, pods_as_node_above};
use crate::sampler::{Seen, look_on};
use crate::support::{Cluster, available, holds_in_time, node_available};
use crate::told::{PHASES, is_failed, is_shown_running_again, is_started_again};
use crate::watch::Watch;
use crate::{LAST_WORD, wait_running};

/// Another number of pods that leak under Brink, of those that leak under the kubelet, and another seed of the order.
const UNDER_BRINK: &str = "BRINK_TURNS";
const UNDER_KUBELET: &str = "BRINK_TURNS_KUBELET";
const SEED: &str = "BRINK_TURNS_SEED";
/// Spikes under each of them.
const SPIKES: usize = 8;
/// Pods that leak in one turn of Brink's, started together, and spikes in one turn of either.
const LEAKS_AT_ONCE: usize = 5;
const SPIKES_AT_ONCE: usize = 4;
/// What all pods together may take. That the kubelet alone is short of it has nothing to do with what else runs on the machine.
const NODE: u64 = 1024 * MIB;
/// So much lower than Brink's is the threshold of the kubelet: as long as Brink acts it never sees a shortage, and needs no restart.
const LEAD: u64 = 64 * MIB;
/// What a pod takes: more than there is room for to either threshold.
const LEAK: u64 = 300 * MIB;
/// What a pod takes whose pages are looked at: less than there is room for.
const TRIAL: u64 = 64 * MIB;
/// Milliseconds between two polls of a kubelet.
const POLL: u64 = 10_000;
/// It evicts at a poll at the latest, and takes 2 s to kill; much later it does not any more.
const LONGEST: Duration = Duration::from_mins(1);
/// Whoever acts on a spike has done so this long after it.
const AFTER: Duration = Duration::from_secs(6);
const LABEL: &str = "turns";

/// Some runs, one after the other, for which pods are started together.
#[derive(Debug, Clone, Copy)]
struct Turn {
    actor: Actor,
    way: Way,
    runs: usize,
}

/// All turns, in an order by chance.
fn turns(chance: &mut Chance, under_brink: usize, under_kubelet: usize) -> Vec<Turn> {
    let parts = [
        (Actor::Brink, Way::Leak, under_brink, LEAKS_AT_ONCE),
        // A kubelet whose figures are old takes any pod that waits for the one that leaks: there is one at a time.
        (Actor::Kubelet, Way::Leak, under_kubelet, 1),
        (Actor::Brink, Way::Spike, SPIKES, SPIKES_AT_ONCE),
        (Actor::Kubelet, Way::Spike, SPIKES, SPIKES_AT_ONCE),
    ];
    let mut turns = Vec::new();
    for (actor, way, all, at_once) in parts {
        for first in (0..all).step_by(at_once) {
            let runs = at_once.min(all - first);
            turns.push(Turn { actor, way, runs });
        }
    }
    for place in (1..turns.len()).rev() {
        let other = chance.below(place as u64 + 1);
        turns.swap(place, usize::try_from(other).unwrap());
    }
    turns
}

/// The course of all turns.
struct Course<'a, 'b> {
    cluster: &'a Cluster,
    agent: &'b Agent,
    chance: Chance,
    kinds: Vec<Kind>,
    /// The threshold of the kubelet.
    threshold: u64,
    /// What is available while nobody takes anything.
    rest: u64,
    pods: usize,
    runs: Vec<Run>,
    /// Whom Brink has killed.
    evicted: Vec<Waiting<'a>>,
    /// Of all pods, each status.
    statuses: &'b Watch,
    /// What the kubelet has said of whom it has evicted.
    kubelets: Vec<Said>,
}

impl<'a> Course<'a, '_> {
    fn take(&mut self, turn: Turn) {
        // The kubelet unmounts a volume in memory some time after its pod's end.
        wait_for_room(self.rest, self.agent);
        match turn.actor {
            Actor::Brink => self.under_brink(turn),
            Actor::Kubelet => self.under_kubelet(turn),
        }
    }

    /// Brink enforces, and acts first.
    fn under_brink(&mut self, turn: Turn) {
        self.agent.enforces(true);
        let started = self.start(turn, turn.runs);
        for waiting in &started {
            let ranked = || self.agent.ranked(&waiting.pod);
            let is_known = || ranked().is_some_and(|ranked| ranked.usage.is_some());
            assert!(holds_in_time(is_known), "{}", self.agent.log());
        }
        let mut killed = Vec::new();
        for waiting in started {
            let seen = self.see(&waiting, turn);
            let signalled = seen.gone.map(|_| self.signalled(&waiting));
            self.note(&waiting, turn, (seen, signalled));
            if seen.gone.is_some() {
                killed.push(waiting);
            }
        }
        killed.iter().for_each(Waiting::wait_until_apart);
        self.evicted.append(&mut killed);
    }

    /// Brink only looks on. A pod that spikes, and is not evicted, does so again.
    fn under_kubelet(&mut self, turn: Turn) {
        self.agent.enforces(false);
        let mut kept: Option<Waiting<'a>> = None;
        for _ in 0..turn.runs {
            let waiting = kept.take().unwrap_or_else(|| self.start(turn, 1).remove(0));
            // At any moment between two polls: what we have waited for so far keeps step with them.
            sleep(Duration::from_millis(self.chance.below(POLL)));
            let seen = self.see(&waiting, turn);
            self.note(&waiting, turn, (seen, None));
            if seen.gone.is_some() {
                let said = self.kubelets_word(&waiting);
                self.kubelets.push(said);
                waiting.wait_until_apart();
            } else {
                kept = Some(waiting);
            }
        }
    }

    /// Starts the next pods of a kind each, so that every kind has its turn.
    fn start(&mut self, turn: Turn, pods: usize) -> Vec<Waiting<'a>> {
        let before = of(&self.runs, turn.actor, turn.way).count();
        let mut kinds = self.kinds.clone();
        if turn.way == Way::Spike {
            kinds.retain(|kind| *kind != Kind::Containers);
        }
        let mut manifests = Vec::new();
        for number in before..before + pods {
            let kind = kinds[number % kinds.len()];
            let name = format!("turn-{}-{}", std::process::id(), self.pods);
            self.pods += 1;
            let manifest = match turn.way {
                Way::Leak => leaker(&name, LABEL, kind, LEAK),
                Way::Spike => spiker(&name, LABEL, kind, LEAK),
            };
            manifests.push((kind, manifest));
        }
        Waiting::start(self.cluster, manifests)
    }

    /// Has a pod take memory, and looks on until it is gone, or nobody will do anything any more.
    fn see(&self, waiting: &Waiting<'_>, turn: Turn) -> Seen {
        wait_for_room(self.rest, self.agent);
        let threshold = match turn.actor {
            Actor::Brink => self.threshold + LEAD,
            Actor::Kubelet => self.threshold,
        };
        let longest = match turn.way {
            Way::Leak => LONGEST,
            Way::Spike => SPIKE + AFTER,
        };
        let looking = look_on(threshold, &waiting.groups, slowed(longest));
        waiting.begin();
        let seen = looking.join().unwrap();
        let told = || format!("{}\n{}", waiting.pod.described(), self.agent.log());
        let seen = seen.unwrap_or_else(|| panic!("no crossing: {}", told()));
        assert!(
            seen.gone.is_some() || turn.way == Way::Spike,
            "nobody is evicted: {turn:?} {seen:?} {}",
            told()
        );
        seen
    }

    /// When Brink had signalled the last process, once it has told of the eviction.
    fn signalled(&self, waiting: &Waiting<'_>) -> u64 {
        let Waiting { uid, pod, .. } = waiting;
        assert!(
            holds_in_time(|| self.agent.has_told(uid)),
            "{}\n{}",
            pod.described(),
            self.agent.log()
        );
        let record = self.agent.decision(uid).unwrap();
        let mut stages = record.stages.iter();
        let last = stages.find(|time| time.stage == "lastSignal");
        let last = last.unwrap_or_else(|| panic!("{record:#?}"));
        u64::try_from(last.at.monotonic_ns).unwrap()
    }

    /// What the kubelet says of its eviction. It was none of Brink's.
    fn kubelets_word(&self, waiting: &Waiting<'_>) -> Said {
        let Waiting { uid, pod, .. } = waiting;
        let has_failed = || pod.status()["phase"] == "Failed";
        assert!(holds_in_time(has_failed), "{}", pod.described());
        let record = self.agent.decision(uid);
        assert!(
            record.as_ref().is_none_or(|found| found.mode == "paused"),
            "{record:#?}"
        );
        Said::by(KUBELET, self.cluster, self.statuses, waiting)
    }

    fn note(&mut self, waiting: &Waiting<'_>, turn: Turn, (seen, signalled): (Seen, Option<u64>)) {
        let Turn { actor, way, .. } = turn;
        let run = Run {
            actor,
            way,
            kind: waiting.kind,
            seen,
            signalled,
        };
        println!("{actor:?}, {way:?}, {}: {seen:?}", waiting.kind.name());
        self.runs.push(run);
    }
}

/// A pod that holds less of its request than any other: it goes last, also by figures that are old.
fn bystander() -> Value {
    let resources = json!({ "requests": { "memory": "64Mi" } });
    let name = format!("bystander-{}", std::process::id());
    let sleeps = container("sleeper", &["sleep", "3600"], &resources);
    pod_of(&name, &[sleeps])
}

/// Where a pod is to take huge pages, it does.
fn check_huge_pages(cluster: &Cluster) {
    let name = format!("trial-{}", std::process::id());
    let manifest = leaker(&name, "trial", Kind::Huge, TRIAL);
    let waiting = Waiting::start(cluster, [(Kind::Huge, manifest)]).remove(0);
    waiting.begin();
    let has_them = || huge_pages(&waiting.groups[0]) >= TRIAL / 2;
    assert!(
        holds_in_time(has_them),
        "no huge pages: {}",
        waiting.pod.described()
    );
    waiting.pod.delete();
    waiting.wait_until_apart();
}

/// What of a group's memory is in huge pages, in bytes.
fn huge_pages(group: &Path) -> u64 {
    let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let mut lines = stat.lines();
    let found = lines.find_map(|line| line.strip_prefix("rss_huge "));
    found.map_or(0, |found| found.parse().unwrap())
}

/// In one run the kubelet of the node has some turns alone, and Brink some others. Both have a threshold on what is available to all
/// pods; one look at it, and at the victim's processes, is what both are measured by.
#[test]
#[ignore = "slow: a kubelet takes twenty seconds for each of its turns, and all of it some ten minutes"]
fn brink_acts_at_once_and_misses_no_spike_where_a_kubelet_alone_takes_seconds() {
    let cluster = cluster!(with_pods_here);
    if node_available() < 2 * NODE {
        skip!("needs {} bytes of free memory", 2 * NODE);
    }
    let kinds = Kind::here();
    let bystander = cluster.pod(&bystander());
    wait_running(&bystander);
    if kinds.contains(&Kind::Huge) {
        check_huge_pages(&cluster);
    }
    let used = pods_limit() - available();
    let threshold = NODE - used - ROOM - LEAD;
    let evicting = Evicting::on_a_node_of(NODE, threshold);
    let settings = pods_as_node_above("enforce", threshold + LEAD) + MANY;
    let (line, mut agent) = Agent::with_line(&cluster, &settings, "");
    agent.start();
    let status = agent.settled();
    println!("Brink: {:?}, {:?}", status.rung, status.scheduling);
    let selector = format!("brink-test={LABEL}");
    let of_all = ("labelSelector", selector.as_str());
    let phases = Watch::of(&cluster, of_all, &PHASES);
    let statuses = Watch::of(&cluster, of_all, &STATUSES);
    let mut chance = Chance::new(number(SEED, 1));
    let [under_brink, under_kubelet] = [(UNDER_BRINK, 32), (UNDER_KUBELET, 12)]
        .map(|(name, default)| usize::try_from(number(name, default)).unwrap());
    let turns = turns(&mut chance, under_brink, under_kubelet);
    let mut course = Course {
        cluster: &cluster,
        agent: &agent,
        chance,
        kinds,
        threshold,
        rest: available(),
        pods: 0,
        runs: Vec::new(),
        evicted: Vec::new(),
        statuses: &statuses,
        kubelets: Vec::new(),
    };
    for turn in turns {
        course.take(turn);
    }
    let Course {
        runs,
        evicted,
        kubelets,
        ..
    } = course;
    // The kubelet's last word is behind it.
    sleep(LAST_WORD);
    assert_eq!(bystander.status()["phase"], "Running", "nobody else dies");
    for Waiting { pod, .. } in &evicted {
        assert!(is_failed(pod), "{}", pod.described());
    }
    let told = phases.told();
    let pods = || evicted.iter().map(|waited| &waited.pod);
    let shown = pods().filter(|pod| is_shown_running_again(pod, &told));
    let after = After {
        killed: evicted.len(),
        shown: shown.count(),
        started: pods().filter(|pod| is_started_again(pod)).count(),
        gaps: phases.gaps(),
    };
    println!("of those that Brink has killed: {after:?}");
    let brinks = evicted.iter();
    let brinks = brinks.map(|waiting| Said::by(BRINK, &cluster, &statuses, waiting));
    let brinks: Vec<Said> = brinks.collect();
    alike::check(&brinks, &kubelets);
    drop((agent, line, evicting));
    let is_calm = || !is_under_pressure(&cluster);
    assert!(holds_in_time(is_calm), "the node stays under pressure");
    report(&runs, after);
}
