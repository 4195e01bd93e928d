//! systemd-oomd without systemd as the first process: its configuration, and who tells it which groups it is to watch.
//!
//! It asks the first process for them, by the protocol Varlink: one JSON object and a zero byte each way. Nothing else of
//! systemd is needed, and no D-Bus: it waits for one in vain, and works.
use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{pods::ROOT, swap::Swap, tool::DISK};

/// In the tools' root.
pub(super) const PROGRAM: &str = "/usr/lib/systemd/systemd-oomd";
const CONFIG: &str = "etc/systemd/oomd.conf.d/compare.conf";
const SOCKET: &str = "run/systemd/io.systemd.ManagedOOM";
/// What it listens on itself for systemd of users, of whom there are none; its folder has to be there.
const OWN: &str = "run/systemd/oom/io.systemd.ManagedOOM";
const METHOD: &str = "io.systemd.ManagedOOM.SubscribeManagedOOMCGroups";
/// What its unit gives it: `MemoryMin=64M`.
pub(super) const MEMORY_MIN: &str = "64M";
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest question that is read.
const QUESTION: usize = 1 << 12;

/// Stands in for the first process.
pub(super) struct Manager {
    listener: UnixListener,
    path: PathBuf,
    /// They last as long as their connection.
    subscriptions: Vec<UnixStream>,
    _swap: Swap,
}

impl Manager {
    /// Fills swap, writes the configuration, and listens.
    pub(super) fn prepare(limit: u64, total: u64) -> anyhow::Result<Self> {
        let (config, path) = (Path::new(DISK).join(CONFIG), Path::new(DISK).join(SOCKET));
        let own = Path::new(DISK).join(OWN);
        for file in [&config, &path, &own] {
            let folder = file.parent().context("a file without a folder")?;
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        fs::write(&config, configuration(limit, total)).context(CONFIG)?;
        let _of_the_last = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).context(SOCKET)?;
        listener.set_nonblocking(true).context(SOCKET)?;
        Ok(Self {
            listener,
            path,
            subscriptions: Vec::new(),
            _swap: Swap::full()?,
        })
    }

    /// Waits for its question and answers it.
    pub(super) fn subscribe(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context(SOCKET),
            }
            if began.elapsed() > PATIENCE {
                bail!("systemd-oomd does not ask which groups it is to watch");
            }
            sleep(Duration::from_millis(20));
        };
        stream.set_nonblocking(false).context(SOCKET)?;
        stream.set_read_timeout(Some(PATIENCE)).context(SOCKET)?;
        check_question(&question(&mut stream)?)?;
        stream.write_all(&answer()).context(SOCKET)?;
        self.subscriptions.push(stream);
        Ok(())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _removed = fs::remove_file(&self.path);
    }
}

/// Acts on `MemAvailable` below the limit where swap is full, and on pressure.
///
/// The limit is what has to be used of memory and of swap, in ten thousandths, rounded so that it acts at the limit and not
/// later. Of the rule on pressure, the limit is its default and the time the shortest.
fn configuration(limit: u64, total: u64) -> String {
    let left = (u128::from(limit) * 10_000).div_ceil(u128::from(total).max(1));
    let used = 10_000_u128.saturating_sub(left);
    format!(
        "[OOM]\nSwapUsedLimit={used}‱\nDefaultMemoryPressureLimit=60%\nDefaultMemoryPressureDurationSec=1s\n"
    )
}

fn question(stream: &mut UnixStream) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut byte = [0; 1];
    loop {
        stream.read_exact(&mut byte).context("its question")?;
        match byte {
            [0] => return Ok(bytes),
            [other] => bytes.push(other),
        }
        anyhow::ensure!(
            bytes.len() < QUESTION,
            "its question is longer than {QUESTION} bytes"
        );
    }
}

fn check_question(bytes: &[u8]) -> anyhow::Result<()> {
    let asked: Value = serde_json::from_slice(bytes).context("its question")?;
    anyhow::ensure!(
        asked["method"] == METHOD && asked["more"] == true,
        "another question than `{METHOD}`: {asked}"
    );
    Ok(())
}

/// What systemd tells of a slice with `ManagedOOMSwap=kill` and `ManagedOOMMemoryPressure=kill`: of the groups below it, one goes.
fn answer() -> Vec<u8> {
    let rule = |property| json!({"mode": "kill", "path": ROOT, "property": property});
    let groups = ["ManagedOOMSwap", "ManagedOOMMemoryPressure"].map(rule);
    let answer = json!({"parameters": {"cgroups": groups}, "continues": true});
    let mut bytes = answer.to_string().into_bytes();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_acts_at_the_limit_and_not_later() {
        let mib = 1 << 20;
        for (limit, total, used) in [
            (100 * mib, 1000 * mib, 9000),
            (100 * mib, 1_014_591_488, 8966),
            (2000 * mib, 1000 * mib, 0),
        ] {
            let config = configuration(limit, total);
            assert!(
                config.contains(&format!("\nSwapUsedLimit={used}‱\n")),
                "{config}"
            );
            let acts_below = total * (10_000 - used) / 10_000;
            assert!(acts_below >= limit.min(total) && acts_below <= limit + total / 10_000);
        }
    }

    #[test]
    fn the_rule_on_pressure_has_the_shortest_time() {
        let config = configuration(1, 2);
        assert!(config.starts_with("[OOM]\n"), "{config}");
        assert!(
            config.ends_with("\nDefaultMemoryPressureDurationSec=1s\n"),
            "{config}"
        );
    }

    #[test]
    fn it_is_told_the_group_of_the_pods_by_both_rules() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let asked = json!({"method": METHOD, "more": true}).to_string();
        there.write_all(asked.as_bytes()).unwrap();
        there.write_all(&[0]).unwrap();
        check_question(&question(&mut here).unwrap()).unwrap();
        assert!(check_question(b"{}").is_err() && check_question(b"").is_err());
        let answer = answer();
        let told: Value = serde_json::from_slice(answer.strip_suffix(&[0]).unwrap()).unwrap();
        assert_eq!(told["continues"], true);
        for (at, property) in ["ManagedOOMSwap", "ManagedOOMMemoryPressure"]
            .iter()
            .enumerate()
        {
            let group = json!({"mode": "kill", "path": "/pods", "property": property});
            assert_eq!(told["parameters"]["cgroups"][at], group);
        }
    }
}
