//! A contender as users run it: its own program, its own configuration, in a group of its own that is charged what it costs.
use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use brink::control::{
    client::ask,
    protocol::{Answer, Question},
};
use brink::record::DecisionRecord;
use brink_host::meminfo::MeminfoReader;
use serde_json::json;

use super::{
    pods::{Pod, ROOT},
    systemd::{self, Manager},
};
use crate::bench::{
    measure::units::MIB,
    peers::{
        contender::{Contender, LIMIT, earlyoom_kib},
        judge::Judge,
    },
};

/// Where the disk with the tools is mounted.
pub(super) const DISK: &str = "/peers";
const GROUP: &str = "/sys/fs/cgroup/tool";
const LOG: &str = "/run/tool.log";
/// A program in another language takes its time here.
const PATIENCE: Duration = Duration::from_secs(90);
/// After it says that it is ready it may have something to do for the first time.
const PAUSE: Duration = Duration::from_millis(500);
const STATE: &str = "/run/brink";

/// A contender that runs. Dropping it ends it.
pub(super) struct Tool {
    child: Child,
    /// What systemd-oomd takes for the first process.
    manager: Option<Manager>,
}

/// Where the limit lies for those who know it by another figure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// What earlyoom is told, in KiB, so that it acts at the limit.
    pub(super) earlyoom: u64,
    /// What the pods may be charged.
    pub(super) pods: u64,
    /// `MemTotal`, in bytes.
    pub(super) total: u64,
    /// Time to the kubelet's first look.
    pub(super) phase: Duration,
}

impl Tool {
    /// Starts a contender and waits until it is ready; nothing for nobody.
    pub(super) fn start(contender: Contender, terms: &Terms) -> anyhow::Result<Option<Self>> {
        let Some((ready, mut command)) = command(contender, terms)? else {
            return Ok(None);
        };
        let is_systemd = contender == Contender::SystemdOomd;
        let manager = is_systemd.then(|| Manager::prepare(LIMIT, terms.total));
        let manager = manager.transpose()?;
        let log = File::create(LOG).context(LOG)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // A group of its own, so that it is ended with all it started.
        let child = command.process_group(0).spawn();
        let mut tool = Self {
            child: child.with_context(|| format!("starting {}", contender.word()))?,
            manager,
        };
        if let Some(manager) = &mut tool.manager {
            fs::write(memory_min(), systemd::MEMORY_MIN).context("memory.min")?;
            manager.subscribe().with_context(self::log)?;
        }
        tool.wait_ready(contender, ready)?;
        Ok(Some(tool))
    }

    fn wait_ready(&mut self, contender: Contender, ready: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        let is_ready = || match contender {
            Contender::Brink => stands(),
            // It says nothing, and has asked for its groups and been told them.
            Contender::SystemdOomd => true,
            _ => fs::read_to_string(LOG).is_ok_and(|log| log.contains(ready)),
        };
        while !is_ready() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || began.elapsed() > PATIENCE {
                bail!("{} is not ready ({ended:?}):\n{}", contender.word(), log());
            }
            sleep(Duration::from_millis(20));
        }
        sleep(PAUSE);
        Ok(())
    }

    /// Whether it has ended by itself.
    pub(super) fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Processor time of its group, in nanoseconds.
    pub(super) fn cpu() -> Option<i64> {
        let text = fs::read_to_string(Path::new(GROUP).join("cpu.stat")).ok()?;
        let mut lines = text.lines();
        let micros = lines.find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(micros.parse::<i64>().ok()? * 1000)
    }

    /// What its group is charged, and the proportional share of its processes, in bytes.
    pub(super) fn memory() -> Option<[i64; 2]> {
        let group = Path::new(GROUP);
        let charged = fs::read_to_string(group.join("memory.current")).ok()?;
        let processes = fs::read_to_string(group.join("cgroup.procs")).ok()?;
        let share = |pid: &str| {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let mut lines = text.lines();
            let kilobytes = lines.find_map(|line| line.strip_prefix("Pss:"))?;
            kilobytes.trim().strip_suffix(" kB")?.parse::<i64>().ok()
        };
        let shares: i64 = processes.lines().filter_map(share).sum();
        Some([charged.trim().parse().ok()?, shares * 1024])
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _killed = fs::write(Path::new(GROUP).join("cgroup.kill"), "1");
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        let _removed = fs::remove_dir_all(STATE);
        let _unprotected = fs::write(memory_min(), "0");
    }
}

/// The last lines of what it said.
pub(super) fn log() -> String {
    let text = fs::read_to_string(LOG).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// Brink's decisions since `began`, in their order.
pub(super) fn decisions(began: u64) -> anyhow::Result<Vec<DecisionRecord>> {
    let socket = Path::new(STATE).join("brink.sock");
    let Ok(Answer::Decisions(mut records)) = ask(&socket, &Question::Decisions) else {
        return Ok(Vec::new());
    };
    let began = i64::try_from(began)?;
    records.retain(|record| record.decided.monotonic_ns >= began);
    records.sort_by_key(|record| record.decided.monotonic_ns);
    Ok(records)
}

/// When each stage of a decision was reached, after `began`.
pub(super) fn stages(record: &DecisionRecord, began: u64) -> Vec<(String, i64)> {
    let after = |at: i64| at.wrapping_sub(began.cast_signed());
    let stages = record.stages.iter();
    stages
        .map(|stage| (stage.stage.clone(), after(stage.at.monotonic_ns)))
        .collect()
}

/// A decision in one line.
pub(super) fn told(record: &DecisionRecord, began: u64) -> String {
    format!(
        "order {}: {} for {} at {} ns, headroom {:?}, reserve {}, credit {}, freed {}, end {}",
        record.order,
        record.victim.name,
        record.threshold.signal,
        record
            .decided
            .monotonic_ns
            .wrapping_sub(began.cast_signed()),
        record.memory.headroom_bytes,
        record.memory.reserve_bytes,
        record.memory.credit_bytes,
        record.freed_bytes,
        record.end.as_deref().unwrap_or("open"),
    )
}

/// Makes the group, and what the tools need of a system.
pub(super) fn prepare() -> anyhow::Result<()> {
    fs::create_dir(GROUP).context(GROUP)?;
    fs::write(
        "/sys/fs/cgroup/cgroup.subtree_control",
        "+memory +pids +cpu",
    )?;
    Ok(())
}

/// What starts it, and what it says when it is ready.
fn command(contender: Contender, terms: &Terms) -> anyhow::Result<Option<(&'static str, Command)>> {
    Ok(Some(match contender {
        Contender::Nothing => return Ok(None),
        Contender::Brink => {
            fs::create_dir_all(STATE)?;
            let config = format!("{STATE}/config.yaml");
            fs::write(&config, brink_config())?;
            let program = format!("{DISK}/usr/bin/brink");
            ("", launched(&[&program, "run", "--config", &config]))
        }
        Contender::Earlyoom => {
            let kib = terms.earlyoom.to_string();
            let words = [
                "chroot",
                DISK,
                "/usr/bin/earlyoom",
                "-p",
                "-r",
                "0",
                "-M",
                &kib,
            ];
            ("sending SIGTERM when", launched(&words))
        }
        Contender::Nohang => {
            fs::write(format!("{DISK}/etc/nohang/compare.conf"), nohang_config()?)?;
            let config = "/etc/nohang/compare.conf";
            let words = [
                "chroot",
                DISK,
                "/usr/sbin/nohang",
                "--monitor",
                "--config",
                config,
            ];
            ("Monitoring has started", launched(&words))
        }
        Contender::Oomd | Contender::OomdAnon => {
            let rules = oomd_config(contender == Contender::OomdAnon, terms);
            fs::write(format!("{DISK}/etc/oomd/compare.json"), rules)?;
            let config = "/etc/oomd/compare.json";
            let words = [
                "chroot",
                DISK,
                "/usr/bin/oomd",
                "--interval",
                "1",
                "--config",
                config,
            ];
            ("interval=1", launched(&words))
        }
        Contender::SystemdOomd => {
            let words = ["chroot", DISK, systemd::PROGRAM];
            ("", launched(&words))
        }
        Contender::Kubelet => {
            let program = format!("{DISK}/usr/bin/xtask");
            let limit = LIMIT.to_string();
            let phase = terms.phase.as_millis().to_string();
            let mut words = vec![program, "kubelet-model".to_owned()];
            words.extend(["--limit".to_owned(), limit, "--phase".to_owned(), phase]);
            for pod in Pod::ALL {
                let group = format!("{ROOT}/{}", pod.name());
                let request = pod.request().map(|mib| format!("={}", mib * MIB));
                words.extend(["--pod".to_owned(), group + &request.unwrap_or_default()]);
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            ("first look in", launched(&words))
        }
    }))
}

fn memory_min() -> PathBuf {
    Path::new(GROUP).join("memory.min")
}

/// A command in the group, with the score of an ordinary process: ours protects us.
fn launched(words: &[&str]) -> Command {
    let script = r#"echo 0 > /proc/self/oom_score_adj; echo $$ > "$0"/cgroup.procs; exec "$@""#;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, GROUP]).args(words);
    command
}

fn stands() -> bool {
    let socket = Path::new(STATE).join("brink.sock");
    match ask(&socket, &Question::Status) {
        Ok(Answer::Status(status)) => status.rung.as_deref() == Some("kernel-sampler"),
        _ => false,
    }
}

fn brink_config() -> String {
    let workload = |pod: &Pod| {
        let request = pod.request();
        let request = request.map(|mib| format!(", requests: {{memory: {mib}Mi}}"));
        let group = format!("{ROOT}/{}", pod.name());
        format!("  - {{glob: \"{group}\"{}}}\n", request.unwrap_or_default())
    };
    let workloads: String = Pod::ALL.iter().map(workload).collect();
    format!(
        "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\nmode: enforce\nevents: {{enabled: false}}\n\
         evictionHard: {{memory.available: \"{LIMIT}\"}}\nheadroomHard: \"{LIMIT}\"\n\
         workloads:\n  cgroups:\n{workloads}paths: {{stateDir: {STATE}}}\n"
    )
}

/// The one that comes with it, with our limit.
fn nohang_config() -> anyhow::Result<String> {
    let path = format!("{DISK}/usr/share/nohang/nohang.conf");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    with_limits(&text).context(path)
}

/// SIGTERM below the limit and SIGKILL below half of it, as earlyoom does. A file that names them otherwise would leave nohang
/// at limits of its own, and the comparison would not show it.
fn with_limits(text: &str) -> anyhow::Result<String> {
    let limits = [
        ("soft_threshold_min_mem", LIMIT / MIB),
        ("hard_threshold_min_mem", LIMIT / MIB / 2),
    ];
    for (name, _) in limits {
        let times = text.lines().filter(|line| key_of(line) == Some(name));
        let times = times.count();
        ensure!(
            times == 1,
            "`{name}` is set {times} times and not once, so nohang cannot be told our limit"
        );
    }
    let line = |line: &str| {
        let mut limits = limits.iter();
        match limits.find(|(name, _)| key_of(line) == Some(*name)) {
            Some((name, mebibytes)) => format!("{name} = {mebibytes} M\n"),
            None => format!("{line}\n"),
        }
    };
    Ok(text.lines().map(line).collect())
}

/// What a line of that file sets.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    Some(key.trim())
}

/// What the pods may be charged before they leave less than the limit, at once, and the largest part above a pod's
/// protection goes.
fn oomd_config(anon: bool, terms: &Terms) -> String {
    let key = if anon { "threshold_anon" } else { "threshold" };
    let group = ROOT.trim_start_matches('/');
    let rules = json!({"rulesets": [{
        "name": "memory",
        "detectors": [[
            "the pods leave too little",
            {"name": "memory_above", "args": {
                "cgroup": group, key: format!("{}K", terms.pods / 1024), "duration": "0",
            }},
        ]],
        "actions": [{"name": "kill_by_memory_size_or_growth", "args": {"cgroup": format!("{group}/*")}}],
    }]});
    rules.to_string()
}

impl Terms {
    /// As of now.
    pub(super) fn now(judge: &mut Judge, phase: Duration) -> anyhow::Result<Self> {
        let info = MeminfoReader::open(Path::new("/"))?.read()?;
        let available = info.available.context("no MemAvailable")?;
        let [_, _, _, unused, _] = judge.values()?;
        let used = u64::try_from(-unused).unwrap_or(0);
        Ok(Self {
            earlyoom: earlyoom_kib(LIMIT, [info.total, available, info.anon]),
            pods: used + available.saturating_sub(LIMIT),
            total: info.total,
            phase,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohang_gets_our_limits_and_keeps_the_rest_of_its_file() {
        let text = "## soft_threshold_min_mem: see below\nsoft_threshold_min_mem = 5 %\n\n\
                    soft_threshold_min_swap = 10 %\n  hard_threshold_min_mem=2 %\n";
        let told = "## soft_threshold_min_mem: see below\nsoft_threshold_min_mem = 100 M\n\n\
                    soft_threshold_min_swap = 10 %\nhard_threshold_min_mem = 50 M\n";
        assert_eq!(with_limits(text).unwrap(), told);
    }

    #[test]
    fn a_file_that_does_not_set_each_limit_once_is_refused() {
        const SOFT: &str = "soft_threshold_min_mem = 5 %\n";
        const HARD: &str = "hard_threshold_min_mem = 2 %\n";
        for (text, name, times) in [
            (format!("{SOFT}# {HARD}"), "hard_threshold_min_mem", 0),
            (
                format!("{HARD}soft_min_mem = 5 %\n"),
                "soft_threshold_min_mem",
                0,
            ),
            (format!("{SOFT}{HARD}{SOFT}"), "soft_threshold_min_mem", 2),
        ] {
            let error = with_limits(&text).unwrap_err().to_string();
            let said = format!("`{name}` is set {times} times");
            assert!(error.contains(&said), "{text}: {error}");
        }
    }
}
