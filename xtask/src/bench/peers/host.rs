//! The same question on this machine, where times are real: Brink, earlyoom, and the model of the kubelet.
//!
//! earlyoom looks at every process of a machine. Here it is told to ignore all whose name is not that of our own
//! victims, and those are bounded by their group, their size, their deadline and their parent.
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use brink_host::{
    cgroup::owned::OwnedCgroup,
    clock::monotonic_ns,
    hog::{HogSpec, Load},
    meminfo::MeminfoReader,
    probe::abi::truth::Crossing,
};
use brink_tests::Hog;
use serde::{Deserialize, Serialize};

use super::{
    contender::{Contender, Signal, earlyoom_kib},
    judge::{Aim, Judge, answered},
};
use crate::{
    bench::{
        measure::{
            agent::{Agent, Rung, Setup},
            arena::Arena,
            programs,
            units::{MIB, between, signed},
        },
        random::SplitMix64,
        registry::Settings,
    },
    vm::errand::Peers,
};

/// The name of our victims, as no other process is called, and what every other name matches.
const VICTIM: &str = "zq-victim";
const ALL_OTHERS: &str = "^([^z].*|z[^q].*|z|)$";
/// The truth's period.
const PERIOD: Duration = Duration::from_micros(50);
/// The group of all workloads.
const NODE: u64 = 2048 * MIB;
const WORKLOADS: usize = 110;
/// From the load's start to the limit, and beyond it.
const WAY: u64 = 300 * MIB;
const BEYOND: u64 = 700 * MIB;
/// Who is compared, and in how many runs: short and full. A hundred are the fewest that have a p99.
const RUNS: [(Contender, usize, usize); 3] = [
    (Contender::Brink, 8, 100),
    (Contender::Earlyoom, 8, 100),
    (Contender::Kubelet, 2, 15),
];
/// A run that others disturb is made again; it is tried so often at most.
const TRIES: usize = 5;
/// How long a victim waits to be killed.
const PATIENCE: Duration = Duration::from_secs(14);
/// Between two ticks of the truth a contender may be earlier; this is several.
const LEAD_NS: u64 = 1_000_000;

/// One run. Whoever acts before the truth has seen any crossing acts at once: by its own figures it was time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Trial {
    /// As the tables name it.
    pub(super) contender: String,
    /// Nanoseconds from the crossing of its own signal to its first SIGTERM or SIGKILL, less than nothing if it came before
    /// the truth's tick; none if there was none.
    pub(super) signalled: Option<i64>,
    /// Bytes below the limit at the worst.
    pub(super) overshoot: i64,
    /// Whether one of the other workloads has gone. All contenders are told to leave them alone, so this is no ranking. Of Brink
    /// also whether it acted before the load began, though nothing was crossed.
    pub(super) wrong: bool,
}

struct Ground {
    arena: Arena,
    judge: Judge,
    agent: Agent,
    earlyoom: [PathBuf; 3],
    folder: tempfile::TempDir,
}

/// What became of all runs.
pub(super) struct Runs {
    pub(super) trials: Vec<Trial>,
    /// How often a run was made again, because others had disturbed it.
    pub(super) made_again: usize,
}

/// How many runs there are to be of each contender.
fn plan(is_short: bool) -> [(Contender, usize); 3] {
    RUNS.map(|(contender, short, full)| (contender, if is_short { short } else { full }))
}

/// The same by the contender's name in the tables.
pub(super) fn planned(is_short: bool) -> BTreeMap<String, usize> {
    plan(is_short)
        .map(|(contender, runs)| (contender.word().to_owned(), runs))
        .into()
}

/// All runs, in random order.
pub(super) fn run(settings: &Settings, peers: &Peers) -> anyhow::Result<Runs> {
    if !rustix::process::geteuid().is_root() {
        bail!("needs root: kernel programs and cgroups of its own");
    }
    let mut random = SplitMix64::new(settings.seed);
    let mut ground = Ground::new(peers)?;
    let mut order = Vec::new();
    for (contender, runs) in plan(settings.short) {
        order.extend(std::iter::repeat_n(contender, runs));
    }
    random.shuffle(&mut order);
    let mut runs = Runs {
        trials: Vec::new(),
        made_again: 0,
    };
    for contender in order {
        for tried in 0..TRIES {
            runs.made_again += usize::from(tried > 0);
            if let Some(trial) = ground.trial(contender, &mut random)? {
                runs.trials.push(trial);
                break;
            }
        }
    }
    Ok(runs)
}

impl Ground {
    fn new(peers: &Peers) -> anyhow::Result<Self> {
        let arena = Arena::new(NODE, WORKLOADS)?;
        let judge = Judge::new(&arena.layout, arena.node.group(), PERIOD)?;
        let agent = Agent::start(Setup {
            node: None,
            protected: Some(arena.glob_of_sleepers()),
            policy: "kubelet",
            rung: Rung::KernelSampler,
            ..Setup::of(&arena)
        })?;
        let folder = tempfile::Builder::new().prefix("brink-peers-").tempdir()?;
        fs::copy(programs::hog()?, folder.path().join(VICTIM)).context("copying the load")?;
        let root = &peers.root;
        let earlyoom = [
            root.join("usr/lib64/ld-linux-x86-64.so.2"),
            root.join("usr/lib/x86_64-linux-gnu"),
            root.join("usr/bin/earlyoom"),
        ];
        Ok(Self {
            arena,
            judge,
            agent,
            earlyoom,
            folder,
        })
    }

    /// One run; nothing if the limit was crossed before the load began, or if nobody acted on no crossing. Brink acting before
    /// either is no disturbance but a fault.
    fn trial(
        &mut self,
        contender: Contender,
        random: &mut SplitMix64,
    ) -> anyhow::Result<Option<Trial>> {
        let workloads = self.arena.workloads_left()?;
        let victim = self.arena.next_victim()?;
        let mut hog = self.victim(&victim)?;
        let [_, estimate, available, _, _] = self.judge.values()?;
        let limits = [i64::MIN, estimate - signed(WAY), available - signed(WAY)];
        let told = told_earlyoom(limits[1])?;
        let looks = Duration::from_millis(random.below(10_000));
        let rival = self.arm(contender, (limits[2], told), victim.group(), looks)?;
        self.judge.aim(Aim {
            limits,
            pods_may: i64::MAX,
            share: signed(told * 1024),
        })?;
        sleep(Duration::from_millis(random.below(1000)));
        let began = monotonic_ns();
        hog.start();
        let ended = hog.wait(PATIENCE + Duration::from_secs(2));
        let shots = self.judge.shots()?;
        let signal = if contender == Contender::Earlyoom {
            Signal::Share
        } else {
            Signal::WorkingSet
        };
        let seen = self.judge.crossing(signal)?;
        if contender == Contender::Brink {
            self.agent.disarm()?;
        }
        drop(rival);
        ended.context("a victim did not end")?;
        let pid = hog.pid();
        drop((hog, victim));
        // Others on this machine send signals too.
        let ours = shots.iter().find(|shot| shot.target == pid);
        let at = answered(&seen, ours.map(|shot| shot.at)).or(ours.map(|shot| shot.at));
        let is_own_fault = contender == Contender::Brink
            && ours.is_some_and(|shot| is_premature(&seen, shot.at, began));
        let wrong = is_own_fault || self.arena.workloads_left()? < workloads;
        let at = at.filter(|&at| at >= began);
        if at.is_none() && !wrong {
            return Ok(None);
        }
        Ok(Some(Trial {
            contender: contender.word().to_owned(),
            signalled: at.zip(ours).map(|(at, shot)| between(at, shot.at)),
            overshoot: seen.overshoot,
            wrong,
        }))
    }

    /// A victim that waits.
    fn victim(&self, group: &OwnedCgroup) -> anyhow::Result<Hog> {
        let spec = HogSpec {
            wait: true,
            ..HogSpec::new(Load::Anon, WAY + BEYOND, PATIENCE)
        };
        let hog = Hog::spawn(&self.folder.path().join(VICTIM), Some(group), &spec)?;
        hog.wait_in(group, Duration::from_secs(5))
            .context("a victim")?;
        Ok(hog)
    }

    /// Sets the contender on the limit.
    fn arm(
        &self,
        contender: Contender,
        (available, told): (i64, u64),
        victim: &str,
        looks: Duration,
    ) -> anyhow::Result<Option<Rival>> {
        let log = self.folder.path().join("log");
        match contender {
            Contender::Brink => {
                let value = u64::try_from(available)?;
                self.agent.arm(&[("memory.available", value)])?;
                self.agent.wait_known(victim)?;
                Ok(None)
            }
            Contender::Earlyoom => {
                let [loader, libraries, program] = &self.earlyoom;
                let mut command = Command::new(loader);
                command.arg("--library-path").arg(libraries).arg(program);
                command.args(["-p", "-r", "0", "--ignore", ALL_OTHERS, "-M"]);
                // Only ever SIGTERM: below half as much it would be SIGKILL.
                command.arg(format!("{told},1"));
                Rival::start(command, &log, "sending SIGTERM when").map(Some)
            }
            Contender::Kubelet => {
                let mut command = Command::new(std::env::current_exe()?);
                command
                    .arg("kubelet-model")
                    .arg("--limit")
                    .arg(available.to_string());
                command.arg("--phase").arg(looks.as_millis().to_string());
                command.arg("--pod").arg(victim);
                Rival::start(command, &log, "first look in").map(Some)
            }
            other => bail!("{} does not run here", other.word()),
        }
    }
}

/// Whether a signal came before the load began, and nothing had been crossed by then.
fn is_premature(seen: &Crossing, signalled: u64, began: u64) -> bool {
    let is_crossed = seen.crossed_ns > 0 && seen.crossed_ns <= signalled.saturating_add(LEAD_NS);
    signalled < began && !is_crossed
}

/// What earlyoom is told for a limit on `MemAvailable`, in KiB.
fn told_earlyoom(limit: i64) -> anyhow::Result<u64> {
    let info = MeminfoReader::open(Path::new("/"))?.read()?;
    let available = info.available.context("no MemAvailable")?;
    let amounts = [info.total, available, info.anon];
    Ok(earlyoom_kib(u64::try_from(limit)?, amounts))
}

/// A rival's process. Dropping it ends it.
struct Rival(Child);

impl Rival {
    fn start(mut command: Command, log: &Path, ready: &str) -> anyhow::Result<Self> {
        let file = File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        let child = command
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let rival = Self(child);
        let began = Instant::now();
        loop {
            let said = fs::read_to_string(log).unwrap_or_default();
            if said.contains(ready) {
                return Ok(rival);
            }
            if began.elapsed() > Duration::from_secs(10) {
                bail!("{command:?} is not ready: {said}");
            }
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use brink_host::probe::abi::Plain as _;

    use super::*;

    #[test]
    fn a_signal_before_the_load_is_a_fault_unless_others_had_crossed_the_limit() {
        const BEGAN: u64 = 50_000_000;
        let check = |crossed_ns: u64, signalled: u64, expected: bool| {
            let seen = Crossing {
                crossed_ns,
                ..Crossing::ZERO
            };
            let found = is_premature(&seen, signalled, BEGAN);
            assert_eq!(found, expected, "{crossed_ns}, {signalled}");
        };
        check(0, BEGAN - 1, true);
        check(BEGAN + 5_000_000, BEGAN - 1, true);
        check(20_000_000, 20_400_000, false);
        check(20_000_000, 19_900_000, false);
        check(20_000_000, 10_000_000, true);
        check(0, BEGAN, false);
    }

    #[test]
    fn nobody_but_our_victims_can_be_killed() {
        let others = regex_lite::Regex::new(ALL_OTHERS).unwrap();
        assert!(!others.is_match(VICTIM));
        for name in [
            "",
            "z",
            "zsh",
            "bash",
            "brink",
            "brink-hog",
            "systemd",
            "q",
            "Zq-victim",
        ] {
            assert!(others.is_match(name), "{name}");
        }
    }
}
