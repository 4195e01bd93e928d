//! The demonstration: a real crossing on the real kernel, inside a bounded cgroup that plays the node.

mod show;
mod stage;

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::record::DecisionRecord;
use crate::record::wire::API_VERSION;
pub use show::Show;
use stage::Stage;
pub use stage::WorkloadState;

/// The longest the whole may take: some seconds, and several times as many where processors are emulated.
const LONGEST: Duration = Duration::from_mins(1);
/// Of that, until the workloads hold what they are to hold.
const SETTLING: Duration = Duration::from_secs(30);
/// How often progress is shown.
const BEAT: Duration = Duration::from_millis(100);
/// The survivors are looked at for so long after the kill.
const AFTERMATH: Duration = Duration::from_millis(500);
/// Longest wait for the kernel's programs.
const LOADING: Duration = Duration::from_secs(6);

/// What the demonstration showed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// Always `Demo`.
    pub kind: &'static str,
    /// The decision, whole.
    pub decision: DecisionRecord,
    /// The workloads that were to live, and whether they do.
    pub survivors: Vec<Survivor>,
    /// Cgroups that could not be removed; empty unless something is wrong.
    pub left_behind: Vec<String>,
}

/// A workload that was to live.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Survivor {
    /// Its name.
    pub name: String,
    /// Whether its process still runs.
    pub alive: bool,
}

impl Outcome {
    /// Whether the right one went, the others live, and nothing is left.
    pub fn is_as_promised(&self) -> bool {
        self.decision.victim.name == stage::LEAKER
            && self.survivors.iter().all(|survivor| survivor.alive)
            && self.left_behind.is_empty()
    }
}

/// Runs the demonstration in a node of `bytes`, and cleans up whatever happens.
///
/// # Errors
/// What keeps it from running, or what did not happen in time.
pub fn run(bytes: u64, show: &mut dyn Show) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Before there is anything to clear away: a signal that comes in between is not lost.
    let mut signals = {
        let _context = runtime.enter();
        Signals::catch()?
    };
    let mut stage = Stage::build(bytes)?;
    let played = runtime.block_on(async {
        tokio::select! {
            played = tokio::time::timeout(LONGEST, play(&mut stage, show)) => {
                played.context("the demonstration took too long")?
            }
            how = signals.recv() => bail!("{how}"),
        }
    });
    let left_behind = stage.clear();
    let (decision, survivors) = played.map_err(|error| {
        if left_behind.is_empty() {
            error.context("the demonstration did not come to its end; nothing is left behind")
        } else {
            error.context(format!("left behind: {}", left_behind.join(", ")))
        }
    })?;
    Ok(Outcome {
        api_version: API_VERSION,
        kind: "Demo",
        decision,
        survivors,
        left_behind,
    })
}

/// What ends the demonstration early.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn recv(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "ended from outside",
            _ = self.hang_up.recv() => "the terminal is gone",
        }
    }
}

async fn play(
    stage: &mut Stage,
    show: &mut dyn Show,
) -> anyhow::Result<(DecisionRecord, Vec<Survivor>)> {
    show.begin(stage.bytes(), stage.threshold())?;
    stage.start_agent()?;
    stage.start_peaceful()?;
    let ready = wait(stage, SETTLING, Stage::is_settled).await;
    ready.context("the peaceful workloads did not come up")?;
    // A slow machine shows a lower rung then, which protects as well.
    let _shown_as_it_stands = wait(stage, LOADING, Stage::stands).await;
    show.agent(&stage.standing())?;
    show.workloads(&stage.workloads())?;
    stage.start_leak()?;
    let began = Instant::now();
    let decision = loop {
        if let Some(decision) = stage.finished_decision() {
            break decision;
        }
        show.progress(began.elapsed(), &stage.workloads(), stage.available())?;
        tokio::time::sleep(BEAT).await;
    };
    tokio::time::sleep(AFTERMATH).await;
    Ok((decision, stage.survivors()))
}

/// Waits for something about the stage.
async fn wait(
    stage: &mut Stage,
    longest: Duration,
    mut ready: impl FnMut(&mut Stage) -> bool,
) -> io::Result<()> {
    let end = Instant::now() + longest;
    while !ready(stage) {
        if Instant::now() >= end {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
