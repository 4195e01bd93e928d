//! A containerd of a test's own: in namespaces that it ends with, on a folder and in control groups that it leaves empty.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use brink_cri::client::{Client, Patience};
use brink_cri::fault::CriError;
use brink_tests::{cgroup_name, slowed};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::image;

/// What sandboxes are made of. It is not called like a pause, so that only the configuration says so.
pub(crate) const SANDBOX: &str = "localhost/holder:1";
/// Tells where the programs are, or why there are none.
const VARIABLE: &str = "BRINK_CONTAINERD";
/// The most memory that it may take with all it starts.
const MEMORY: &str = "536870912";
/// The first process of its namespace: whatever is lost below is its child, and all of it ends with it. The program is started
/// again whenever it ends, as a service manager does.
const FIRST: &str = r#"for group in $GROUPS_OF_ITS_OWN; do echo $$ >"$group/cgroup.procs" || exit 1; done
mount -t tmpfs none /run && mkdir /run/containerd || exit 1
while :; do containerd --config "$1" >>"$2" 2>&1; sleep 0.2; done"#;

/// The runtime.
pub(crate) struct Containerd {
    folder: TempDir,
    programs: PathBuf,
    groups: Groups,
    child: Child,
}

/// Where the programs are.
///
/// # Errors
/// Why there are none, as whoever started the test says.
pub(crate) fn programs() -> Result<PathBuf, String> {
    let told = std::env::var_os(VARIABLE)
        .ok_or_else(|| format!("{VARIABLE} is not set; start live tests by `cargo xtask test`"))?;
    let path = PathBuf::from(&told);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(told.to_string_lossy().into_owned())
    }
}

impl Containerd {
    /// Starts one that has an image for sandboxes and these, and waits until it answers. It keeps them in `root`, if one is named.
    pub(crate) fn start(programs: &Path, root: Option<&Path>, images: &[&str]) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let own = folder.path().join("root");
        let config = folder.path().join("config.toml");
        let text = configuration(folder.path(), root.unwrap_or(&own));
        fs::write(&config, text)?;
        let groups = Groups::make()?;
        let child = first(&config, folder.path(), programs, &groups).spawn()?;
        let started = Self {
            folder,
            programs: programs.to_owned(),
            groups,
            child,
        };
        started.wait()?;
        for name in [SANDBOX].iter().chain(images) {
            started.import(name)?;
        }
        Ok(started)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("containerd.sock")
    }

    /// The group that pods are made in, as a kubelet names it.
    pub(crate) fn cgroup_parent(&self) -> String {
        format!("{}/pods", self.group())
    }

    /// The group that all of it is in.
    pub(crate) fn group(&self) -> String {
        format!("/{}", self.groups.name)
    }

    /// A client with little patience for answers.
    pub(crate) async fn connect(&self) -> Result<Client, CriError> {
        let patience = Patience {
            ask: slowed(Duration::from_secs(5)),
            ..Patience::default()
        };
        Client::connect(&self.socket(), patience).await
    }

    /// Connects as soon as it answers again.
    pub(crate) async fn connect_again(&self) -> Client {
        let until = Instant::now() + slowed(Duration::from_secs(20));
        loop {
            match self.connect().await {
                Ok(client) => return client,
                Err(error) => assert!(Instant::now() < until, "{error}; {}", self.last_words()),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends a signal to the program itself, and to nothing that it has started.
    pub(crate) fn signal(&self, signal: Signal) {
        let config = self.folder.path().join("config.toml");
        let config = config.to_string_lossy().into_owned();
        let mut sent = 0;
        for entry in fs::read_dir("/proc").expect("/proc").flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            let mut words = line.split('\0');
            let is_containerd = words
                .next()
                .is_some_and(|word| word.ends_with("containerd"));
            if is_containerd && words.any(|word| word == config) {
                let pid = entry.file_name().to_string_lossy().parse().ok();
                let pid = pid.and_then(Pid::from_raw).expect("a process");
                kill_process(pid, signal).expect("signalled");
                sent += 1;
            }
        }
        assert_eq!(sent, 1, "one containerd has our configuration");
    }

    /// containerd's own client, for what the interface has no call for.
    fn ctr(&self, words: &[&str]) -> io::Result<Output> {
        let mut ctr = Command::new(self.programs.join("ctr"));
        ctr.arg("--address").arg(self.socket());
        ctr.args(["--namespace", "k8s.io"]).args(words).output()
    }

    fn import(&self, name: &str) -> io::Result<()> {
        let archive = self.folder.path().join("image.tar");
        image::write(&self.programs.join("busybox"), name, &archive)?;
        let path = archive.to_string_lossy().into_owned();
        let answer = self.ctr(&["images", "import", &path])?;
        if answer.status.success() {
            fs::remove_file(&archive)
        } else {
            let said = String::from_utf8_lossy(&answer.stderr).into_owned();
            Err(io::Error::other(format!("importing {name}: {said}")))
        }
    }

    fn wait(&self) -> io::Result<()> {
        let until = Instant::now() + slowed(Duration::from_secs(30));
        loop {
            if self.ctr(&["version"])?.status.success() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(io::Error::other(self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(20).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        format!("containerd's log ends:\n{}", tail.join("\n"))
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // The first process of the namespace is told to die with this one, and everything in it with that.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        self.groups.remove();
    }
}

fn first(config: &Path, folder: &Path, programs: &Path, groups: &Groups) -> Command {
    let mut command = Command::new("setpriv");
    // Also when the test is killed before it can clean up.
    command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid"]);
    command.args(["--fork", "--kill-child", "--mount-proc"]);
    command.args(["--propagation", "private", "sh", "-c", FIRST, "sh"]);
    command.arg(config).arg(folder.join("log"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [programs.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).unwrap_or_default();
    command.env("PATH", path);
    command.env("GROUPS_OF_ITS_OWN", groups.of_daemon().join(" "));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn configuration(folder: &Path, root: &Path) -> String {
    format!(
        "version = 2
root = '{root}'
state = '/run/containerd/state'
[grpc]
  address = '{folder}/containerd.sock'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '{SANDBOX}'
  restrict_oom_score_adj = true
  stats_collect_period = 1
  [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = '{folder}/none'
    conf_dir = '{folder}/none'
[plugins.'io.containerd.internal.v1.opt']
  path = '{folder}/opt'
",
        folder = folder.display(),
        root = root.display()
    )
}

/// Control groups of the daemon's and its pods' own, in every hierarchy.
struct Groups {
    name: String,
    roots: Vec<PathBuf>,
}

impl Groups {
    fn make() -> io::Result<Self> {
        let name = cgroup_name("cri");
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let roots = mounts.lines().filter_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            let is_cgroup = tail.starts_with("cgroup ") || tail.starts_with("cgroup2 ");
            let point = is_cgroup.then(|| head.split(' ').nth(4)).flatten()?;
            Some(Path::new(point).join(&name))
        });
        let groups = Self {
            roots: roots.collect(),
            name,
        };
        for root in &groups.roots {
            fs::create_dir_all(root)?;
            for limit in ["memory.limit_in_bytes", "memory.max"] {
                let limit = root.join(limit);
                if limit.exists() {
                    fs::write(limit, MEMORY)?;
                }
            }
        }
        for group in groups.of_daemon() {
            fs::create_dir_all(group)?;
        }
        Ok(groups)
    }

    /// Where the daemon is: where memory is counted, and so what it starts.
    fn of_daemon(&self) -> Vec<String> {
        let counts = |root: &&PathBuf| {
            root.join("memory.limit_in_bytes").exists() || root.join("memory.max").exists()
        };
        let counting = self.roots.iter().filter(counts);
        let groups = counting.map(|root| root.join("daemon").display().to_string());
        groups.collect()
    }

    fn remove(&self) {
        let until = Instant::now() + slowed(Duration::from_secs(10));
        // The kernel may take a moment to see that the last has gone.
        while !self.roots.iter().all(|root| remove(root)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn remove(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    fs::remove_dir(group).is_ok() || !group.exists()
}
