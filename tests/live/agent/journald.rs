//! A real journald beside a real `brink run`: every event of it, read back by `journalctl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use brink_host::hog::Load;
use brink_stream::model::kind::Kind;
use brink_tests::{lacks, skip, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{MIB, Node, PATIENCE, gone_after};

/// Tells where journald and journalctl are, or why there are none.
const VARIABLE: &str = "BRINK_JOURNALD";
/// Runs it where `/run` is a folder of ours: nobody else's sockets or journals are there.
const WITHIN: &str =
    r#"mount --bind "$1" /run && exec env LD_LIBRARY_PATH="$2/lib" "$2/systemd-journald""#;
/// It keeps what it is told in the folder, takes all of it, and reads and writes nothing else.
const CONFIGURATION: &str = "[Journal]
Storage=volatile
RuntimeMaxUse=64M
RateLimitIntervalSec=0
ReadKMsg=no
Audit=no
ForwardToSyslog=no
ForwardToKMsg=no
ForwardToConsole=no
ForwardToWall=no
";
/// Events of the last moment of a run.
const LAST: usize = 16;

/// A journald with a `/run` of its own.
struct Journald {
    programs: PathBuf,
    run: PathBuf,
    child: Child,
}

/// Where the programs are.
///
/// # Errors
/// Why there are none, as whoever started the test says.
fn programs() -> Result<PathBuf, String> {
    let told = std::env::var_os(VARIABLE)
        .ok_or_else(|| format!("{VARIABLE} is not set; start live tests by `cargo xtask test`"))?;
    let path = PathBuf::from(&told);
    if !path.is_absolute() {
        return Err(told.to_string_lossy().into_owned());
    }
    match fs::read_to_string("/etc/machine-id") {
        Ok(id) if !id.trim().is_empty() => Ok(path),
        _ => Err("journald needs /etc/machine-id".to_owned()),
    }
}

impl Journald {
    /// Starts one, and waits until it listens.
    fn start(programs: PathBuf, run: PathBuf) -> Self {
        for folder in ["systemd/journal", "systemd/journald.conf.d", "log/journal"] {
            fs::create_dir_all(run.join(folder)).unwrap();
        }
        fs::write(run.join("systemd/journald.conf.d/test.conf"), CONFIGURATION).unwrap();
        let mut command = Command::new("setpriv");
        // Also when the test is killed before it can clean up.
        command.args(["--pdeathsig", "KILL", "unshare", "--mount"]);
        command.args(["--propagation", "private", "sh", "-c", WITHIN, "sh"]);
        command.arg(&run).arg(&programs);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let started = Self {
            programs,
            run,
            child,
        };
        let socket = started.run.join("systemd/journal/socket");
        let listens = wait_until(PATIENCE, || socket.exists().then_some(()));
        listens.expect("journald listens");
        started
    }

    /// What `journalctl` shows of Brink, in its order.
    fn entries(&self) -> Vec<Value> {
        let mut command = Command::new(self.programs.join("journalctl"));
        command.env("LD_LIBRARY_PATH", self.programs.join("lib"));
        command.arg("--directory").arg(self.run.join("log/journal"));
        command.args(["--all", "--output", "json", "--no-pager", "--quiet"]);
        let told = command.arg("SYSLOG_IDENTIFIER=brink").output().unwrap();
        let text = String::from_utf8(told.stdout).unwrap();
        let entry = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        text.lines().map(entry).collect()
    }
}

impl Drop for Journald {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Every line of a file, which must be whole.
#[track_caller]
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "it ends within a line"
    );
    text.lines().map(str::to_owned).collect()
}

/// What an entry says must be what its event says, and who has said it what the kernel knows.
#[track_caller]
fn check_entry(entry: &Value, event: &Value, pid: u32) {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    let kind = event["type"].as_str().unwrap();
    assert_eq!(text("BRINK_KIND"), kind, "{event}");
    assert_eq!(text("BRINK_SEQ"), event["seq"].to_string());
    assert_eq!(text("BRINK_BOOT_ID"), event["bootId"].as_str().unwrap());
    assert!(text("MESSAGE").starts_with(&format!("{kind}: ")), "{entry}");
    let subject = &event["subject"];
    for (field, of) in [
        ("BRINK_NAMESPACE", "namespace"),
        ("BRINK_NAME", "name"),
        ("BRINK_UID", "uid"),
        ("BRINK_INCIDENT", "incident"),
    ] {
        assert_eq!(
            text(field),
            subject[of].as_str().unwrap_or_default(),
            "{field} {event}"
        );
    }
    let pressing = [Kind::OomKill.word(), Kind::KillObserved.word()].contains(&kind);
    assert!(["4", "5", "6"].contains(&text("PRIORITY")), "{entry}");
    assert!(!pressing || text("PRIORITY") == "4", "{entry}");
    assert_eq!(
        (text("_TRANSPORT"), text("_PID")),
        ("journal", &*pid.to_string())
    );
}

#[test]
fn journald_has_every_event_of_a_run() {
    let programs = match programs() {
        Ok(programs) => programs,
        Err(why) => skip!("needs journald: {why}"),
    };
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.groups[leaker]
        .limit_memory(&node.sandbox.layout, 64 * MIB)
        .unwrap();
    let journald = Journald::start(programs, node.path("run"));
    node.hide(&format!("mount --bind '{}' /run", journald.run.display()));
    node.stdout = Some(node.path("stdout"));
    let told = "evictionHard: {memory.available: 8Mi}\nevents: {enabled: true, journald: true, stdout: json}";
    node.configure("enforce", told);
    let status = node.start(&[]);
    let mut running = status.programs.iter();
    if !running.any(|program| program.name == "oom_victim" && program.running) {
        lacks!("nobody tells of OOMs: {:?}", status.rung_reasons);
    }
    gone_after(&node.load(leaker, Load::Anon, 200 * MIB));
    let closes = format!("\"type\":\"{}\"", Kind::IncidentClosed.word());
    let is_last = |line: &str| line.contains(&closes);
    let told = wait_until(PATIENCE, || {
        let text = fs::read_to_string(node.path("stdout")).unwrap();
        text.lines().any(is_last).then_some(())
    });
    told.unwrap_or_else(|| panic!("no incident is closed: {}", node.log()));
    node.stop(Signal::TERM);
    check(&lines(&node.path("stdout")), &journald, status.pid);
}

/// What came on standard output is in journald, letter by letter and in its order.
#[track_caller]
fn check(told: &[String], journald: &Journald, pid: u32) {
    let is_there = || {
        let entries = journald.entries();
        (entries.len() + LAST >= told.len()).then_some(entries)
    };
    let entries = wait_until(PATIENCE, is_there).expect("journald has the events");
    // An agent that is told to stop gives each way out a moment.
    assert!(
        entries.len().abs_diff(told.len()) <= LAST,
        "{} and {}",
        entries.len(),
        told.len()
    );
    for (entry, line) in entries.iter().zip(told) {
        assert_eq!(entry["BRINK_EVENT"].as_str(), Some(&**line));
        check_entry(entry, &serde_json::from_str(line).unwrap(), pid);
    }
}
