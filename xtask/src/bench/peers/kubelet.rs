//! The kubelet as a model: its own loop by our core, a look every 10 s, one pod a pass, a second between SIGTERM and SIGKILL.
//!
//! What is favourable to it: its figures are fresh, where the kubelet's are up to 10 s old; asking a runtime takes no
//! time; and SIGTERM goes to every process of the pod at once.
use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use brink_core::{
    base::{Moment, Quantity, Span},
    node::{
        kubelet::{CLEANUP_POLL, CLEANUP_TIMEOUT, Kubelet, MONITORING_INTERVAL, Snapshot},
        observe::{self, Layout as Disks, Observations},
        policy::{Policy, Settings},
        signal::Signal,
        threshold::{Threshold, Value},
        workload::{
            Container, PodDetail, PodUsage, ResourceList, Resources, Workload, WorkloadTable,
        },
    },
};
use brink_host::{
    cgroup::{CgroupDir, Controller, Layout, stat::StatReader, usage::UsageReader},
    clock::monotonic_ns,
    meminfo::MeminfoReader,
};
use rustix::process::{Pid, Signal as ProcessSignal, kill_process};

use crate::Verdict;

/// Options of the model.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Threshold on memory.available, in bytes
    #[arg(long)]
    limit: i64,
    /// Time to the first look, in milliseconds
    #[arg(long)]
    phase: u64,
    /// A pod: its control group, and its request for memory in bytes
    #[arg(long = "pod", value_name = "GROUP[=BYTES]")]
    pods: Vec<String>,
}

/// Runs until it is killed.
///
/// # Errors
/// When a file cannot be read.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let mut model = Model::new(args)?;
    println!("kubelet model: first look in {} ms", args.phase);
    sleep(Duration::from_millis(args.phase));
    loop {
        match model.look()? {
            Some(victim) => model.evict(victim)?,
            None => sleep(span(MONITORING_INTERVAL)),
        }
    }
}

/// The loop and what it reads.
struct Model {
    kubelet: Kubelet,
    pods: Vec<Pod>,
    table: WorkloadTable,
    meminfo: MeminfoReader,
}

struct Pod {
    dir: CgroupDir,
    usage: UsageReader,
    stat: StatReader,
}

impl Model {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let layout = Layout::detect(Path::new("/"))?;
        let hierarchy = layout.require(Controller::Memory)?;
        let mut workloads = Vec::new();
        let mut pods = Vec::new();
        for text in &args.pods {
            let (group, request) = parse(text)?;
            let dir = CgroupDir::open(hierarchy, group)?;
            pods.push(Pod {
                usage: UsageReader::open(&dir)?,
                stat: StatReader::open(&dir)?,
                dir,
            });
            workloads.push(workload(group, request));
        }
        let threshold = Threshold {
            signal: Signal::MemoryAvailable,
            grace: Span::from_secs(0),
            value: Value::Quantity(Quantity::from_bytes(args.limit)),
            min_reclaim: None,
        };
        let policy = Policy::new(vec![threshold], Disks::Single, Settings::default());
        Ok(Self {
            kubelet: Kubelet::new(&policy, Disks::Single),
            pods,
            table: WorkloadTable::new(workloads, 1),
            meminfo: MeminfoReader::open(Path::new("/"))?,
        })
    }

    /// One pass: the pod that has to go.
    fn look(&mut self) -> anyhow::Result<Option<usize>> {
        let now = Moment::from_nanos(i64::try_from(monotonic_ns())?);
        let info = self.meminfo.read()?.memory_available_inputs();
        let used = observe::root_usage(info.anon, info.file);
        let set = observe::working_set(used, info.inactive_file);
        let mut observations = Observations::default();
        observations[Signal::MemoryAvailable] = observe::memory(info.capacity, set, Some(now));
        let usage: Vec<Option<PodUsage>> = self.pods.iter().map(Pod::usage).collect();
        let details = vec![PodDetail::default(); self.pods.len()];
        let cycle = self.kubelet.cycle(
            now,
            &Snapshot {
                observations: &observations,
                after_reclaim: None,
                table: &self.table,
                usage: &usage,
                details: &details,
            },
        );
        Ok(cycle.evict.map(|evict| evict.workload as usize))
    }

    /// Ends a pod, and waits until it is gone as the kubelet does.
    fn evict(&self, victim: usize) -> anyhow::Result<()> {
        /// The grace of a hard eviction.
        const GRACE: Duration = Duration::from_secs(1);
        let pod = self.pods.get(victim).context("no such pod")?;
        println!("kubelet model: evicting {}", pod.dir.path().display());
        pod.signal(ProcessSignal::TERM)?;
        sleep(GRACE);
        pod.signal(ProcessSignal::KILL)?;
        let began = Instant::now();
        while began.elapsed() < span(CLEANUP_TIMEOUT) {
            sleep(span(CLEANUP_POLL));
            if pod.processes()?.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

impl Pod {
    fn usage(&self) -> Option<PodUsage> {
        let usage = self.usage.read().ok()?;
        let stat = self.stat.read().ok()?;
        Some(PodUsage {
            memory: stat.working_set(usage),
            ..PodUsage::default()
        })
    }

    fn processes(&self) -> anyhow::Result<Vec<i32>> {
        let text = std::fs::read_to_string(self.dir.path().join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    fn signal(&self, signal: ProcessSignal) -> anyhow::Result<()> {
        for pid in self.processes()?.into_iter().filter_map(Pid::from_raw) {
            match kill_process(pid, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error).context("signalling a process"),
            }
        }
        Ok(())
    }
}

fn workload(name: &str, request: Option<i64>) -> Workload {
    let requests = ResourceList {
        memory: request.map(Quantity::from_bytes),
        ..ResourceList::default()
    };
    let resources = Resources {
        requests,
        ..Resources::default()
    };
    Workload {
        name: name.to_owned(),
        uid: name.to_owned(),
        containers: vec![Container {
            resources,
            ..Container::default()
        }],
        ..Workload::default()
    }
}

fn parse(text: &str) -> anyhow::Result<(&str, Option<i64>)> {
    match text.split_once('=') {
        None => Ok((text, None)),
        Some((group, bytes)) => {
            let bytes = bytes.parse();
            Ok((group, Some(bytes.with_context(|| text.to_owned())?)))
        }
    }
}

fn span(span: Span) -> Duration {
    Duration::from_nanos(u64::try_from(span.as_nanos()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_told_with_or_without_a_request() {
        assert_eq!(parse("/pods/a").unwrap(), ("/pods/a", None));
        assert_eq!(parse("/pods/a=16").unwrap(), ("/pods/a", Some(16)));
        assert!(parse("/pods/a=").is_err());
    }
}
