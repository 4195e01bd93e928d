//! Starts a cluster's processes: each born in the cluster's control groups, with a log of its own, and written down.
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    state::{Process, State},
    supply::Bundle,
};

/// Enters the groups that are told first, then becomes the program that is told behind them. What our caller has open is not
/// handed down: a lock would be held for as long as the cluster runs.
const BORN: &str = r#"exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-
count=$1; shift
while [ "$count" -gt 0 ]; do echo $$ >"$1/cgroup.procs" || exit 125; shift; count=$((count - 1)); done
exec "$@""#;
/// Where programs of the system are looked for: nothing else of our environment is passed on, least of all a proxy.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How often is looked whether something is there.
const TICK: Duration = Duration::from_millis(100);
/// Lines of a log that are shown when its process has ended.
const TAIL: usize = 15;

/// A cluster that is being started.
#[derive(Debug)]
pub(super) struct Launcher {
    pub(super) folder: PathBuf,
    pub(super) bundle: Bundle,
    pub(super) state: State,
    /// What everything is born in.
    pub(super) groups: Vec<PathBuf>,
}

impl Launcher {
    /// A folder of the cluster, made where it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    /// Writes a file of the cluster.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Starts one of the bundle's programs.
    ///
    /// # Errors
    /// When it cannot be started, or ends at once.
    pub(super) fn start(&mut self, name: &str, arguments: &[String]) -> anyhow::Result<Process> {
        let program = self.bundle.program(name).display().to_string();
        let words: Vec<&str> = [program.as_str()]
            .into_iter()
            .chain(arguments.iter().map(String::as_str))
            .collect();
        self.start_as(name, &words)
    }

    /// Starts `words` under a name. It leaves our session, so that what a terminal tells us is not told to it.
    ///
    /// # Errors
    /// When it cannot be started, or ends at once.
    pub(super) fn start_as(&mut self, name: &str, words: &[&str]) -> anyhow::Result<Process> {
        let log = self.folder("logs")?.join(format!("{name}.log"));
        let out = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let mut command = born_in(&self.groups);
        command.arg("setsid").args(words);
        command.current_dir(&self.folder).env_clear();
        command.env(
            "PATH",
            format!("{}:{PATH}", self.bundle.programs().display()),
        );
        command.env("HOME", &self.folder);
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        let child = command
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let process =
            Process::new(name, child.id()).with_context(|| last_words(&self.folder, name))?;
        self.state.processes.push(process.clone());
        self.state.write(&self.folder)?;
        Ok(process)
    }

    /// Waits until `is_there` holds, as long as the process that is to make it so is alive.
    ///
    /// # Errors
    /// When the process ends, or does not come to it within `patience`: with the end of its log.
    pub(super) fn wait(
        &self,
        process: &Process,
        patience: Duration,
        mut is_there: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + patience;
        while !is_there() {
            let name = &process.name;
            if !self.state.runs(process) {
                bail!("{name} has ended; {}", last_words(&self.folder, name));
            }
            if Instant::now() > until {
                bail!(
                    "{name} is not ready after {} s; {}",
                    patience.as_secs(),
                    last_words(&self.folder, name)
                );
            }
            sleep(TICK);
        }
        Ok(())
    }

    /// `kubectl` as whoever may do everything.
    pub(super) fn kubectl(&self) -> Kubectl {
        Kubectl {
            program: self.bundle.program("kubectl"),
            folder: self.folder.clone(),
            groups: self.groups.clone(),
        }
    }

    /// A program that ends by itself, and goes with the cluster if it does not.
    pub(super) fn helper(&self, name: &str) -> Command {
        let mut command = born_in(&self.groups);
        command.arg(self.bundle.program(name));
        command
    }
}

/// A program that asks the API server.
#[derive(Debug, Clone)]
pub(super) struct Kubectl {
    pub(super) program: PathBuf,
    /// The folder of the cluster.
    pub(super) folder: PathBuf,
    /// What it is born in: whoever kills us in the middle leaves it to `down`.
    pub(super) groups: Vec<PathBuf>,
}

impl Kubectl {
    /// What it says, if it succeeds.
    pub(super) fn ask(&self, words: &[&str]) -> Option<String> {
        let kubeconfig = super::pki::Pki::of(&self.folder).admin();
        let mut command = born_in(&self.groups);
        command
            .arg(&self.program)
            .args(words)
            .args(["--request-timeout=5s", "--kubeconfig"])
            .arg(kubeconfig);
        command
            .env_clear()
            .env("HOME", &self.folder)
            .env("PATH", PATH);
        let answer = command.stdin(Stdio::null()).output().ok()?;
        answer
            .status
            .success()
            .then(|| String::from_utf8_lossy(&answer.stdout).into_owned())
    }
}

/// A command that enters these groups before it becomes the program that is its next argument.
fn born_in(groups: &[PathBuf]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", BORN, "sh", &groups.len().to_string()]);
    command.args(groups);
    command
}

/// The end of a log.
fn last_words(folder: &Path, name: &str) -> String {
    let log = folder.join("logs").join(format!("{name}.log"));
    let text = fs::read_to_string(&log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines
        .get(lines.len().saturating_sub(TAIL)..)
        .unwrap_or_default();
    format!("the end of {}:\n    {}", log.display(), tail.join("\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_its_groups_before_it_is_itself() {
        let folder = tempfile::tempdir().unwrap();
        let groups = ["a", "b c"].map(|name| folder.path().join(name));
        for group in &groups {
            fs::create_dir(group).unwrap();
        }
        let mut command = born_in(&groups);
        command.args(["echo", "1 2"]);
        let answer = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&answer.stdout), "1 2\n");
        let [a, b] = groups.map(|group| fs::read_to_string(group.join("cgroup.procs")).unwrap());
        assert_eq!(a, b);
        assert!(a.trim().parse::<u32>().is_ok(), "{a}");
    }

    #[test]
    fn what_our_caller_has_open_is_not_handed_down() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("lock");
        // As `flock FILE COMMAND` has it.
        let script = r#"exec 3>"$1"; shift; exec "$@""#;
        let mut outer = Command::new("sh");
        outer.args(["-c", script, "sh"]).arg(&lock);
        let born = born_in(&[]);
        outer.arg(born.get_program()).args(born.get_args());
        let answer = outer
            .args(["sh", "-c", "readlink /proc/$$/fd/*; echo told"])
            .output()
            .unwrap();
        let open = String::from_utf8_lossy(&answer.stdout);
        assert!(open.contains("told") && !open.contains("lock"), "{open}");
    }

    #[test]
    fn a_process_without_its_group_does_not_begin() {
        let mut command = born_in(&[PathBuf::from("/nonexistent")]);
        command.args(["echo", "begun"]);
        let answer = command.output().unwrap();
        assert_eq!((answer.status.code(), answer.stdout.len()), (Some(125), 0));
    }

    #[test]
    fn only_the_end_of_a_log_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("logs")).unwrap();
        let lines: Vec<String> = (0..40).map(|number| format!("line {number}\n")).collect();
        fs::write(folder.path().join("logs/etcd.log"), lines.concat()).unwrap();
        let shown = last_words(folder.path(), "etcd");
        assert!(
            shown.contains("line 39") && shown.contains("line 25") && !shown.contains("line 24"),
            "{shown}"
        );
        assert!(last_words(folder.path(), "other").contains("other.log"));
    }
}
