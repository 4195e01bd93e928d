//! The agent's numbers of cgroups against the kernel's files.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{MIB, Node, PATIENCE};
use brink::control::protocol::{Answer, Question, Ranking};
use brink_host::cgroup::{Controller, Version};
use brink_host::hog::Load;
use brink_tests::{lacks, wait_until};

/// Pages that processors have charged in advance, and what a file is late by.
const SLACK: i64 = 4 * MIB.cast_signed();

/// Usage less inactive file pages of a group and all below it, as a person would read them, in bytes.
fn working_set(folder: &Path, version: Version) -> i64 {
    let (usage, inactive) = match version {
        Version::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
        Version::V2 => ("memory.current", "inactive_file"),
    };
    let number = |text: &str| -> i64 { text.trim().parse().unwrap() };
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap();
    let line = stat.lines().find_map(|line| line.strip_prefix(inactive));
    number(&fs::read_to_string(folder.join(usage)).unwrap()) - number(line.unwrap())
}

fn ranking(node: &Node, signal: &str) -> Box<Ranking> {
    let signal = Some(signal.to_owned());
    match node.ask(&Question::Rank { signal }) {
        Ok(Answer::Ranking(ranking)) => ranking,
        other => panic!("{other:?}\n{}", node.log()),
    }
}

/// What a workload uses by a ranking.
fn used(node: &Node, signal: &str, name: &str) -> Option<i64> {
    let ranking = ranking(node, signal);
    let mut workloads = ranking.workloads.into_iter();
    workloads.find(|each| each.name == name)?.usage
}

#[test]
fn a_node_and_its_workloads_have_the_numbers_of_their_files() {
    let mut node = Node::new(300);
    let [mixed, plain] =
        ["mixed", "plain"].map(|name| node.workload(name, "containers: [{name: c}]"));
    node.configure("observe", "evictionHard: {memory.available: 60Mi}");
    node.start(&[]);
    let _plain = node.holding(plain, 50);
    let _anon = node.holding(mixed, 30);
    let loads = [Load::Shmem, Load::CacheRead];
    let _others = loads.map(|load| {
        let mut hog = node.load(mixed, load, 20 * MIB);
        hog.wait_touched(20 * MIB, PATIENCE).unwrap();
        hog
    });
    let layout = &node.sandbox.layout;
    let folder = |group: &brink_host::cgroup::owned::OwnedCgroup| {
        let dir = group.dir(layout, Controller::Memory).unwrap();
        (dir.path().to_owned(), dir.version())
    };
    let is_near = |told: i64, expected: i64| (told - expected).abs() <= SLACK;
    let of_node = || {
        let (path, version) = folder(&node.sandbox.group);
        let expected = 300 * MIB.cast_signed() - working_set(&path, version);
        let status = node.status()?;
        let mut signals = status.signals.into_iter();
        let told = signals.find(|seen| seen.signal == "memory.available")?;
        assert_eq!(told.capacity, 300 * MIB.cast_signed());
        is_near(told.available, expected).then_some(())
    };
    assert!(
        wait_until(PATIENCE, of_node).is_some(),
        "{:?}",
        node.status()
    );
    for (index, name) in [(mixed, "mixed"), (plain, "plain")] {
        let (path, version) = folder(&node.groups[index]);
        let is_told = || {
            let told = used(&node, "memory.available", name)?;
            is_near(told, working_set(&path, version)).then_some(())
        };
        let ranking = || ranking(&node, "memory.available");
        assert!(wait_until(PATIENCE, is_told).is_some(), "{:?}", ranking());
    }
}

/// On cgroup v2 the processes of a pod are in the leaves below it.
#[test]
fn workloads_have_as_many_processes_as_their_files_list() {
    let mut node = Node::new(300);
    let [nested, flat] =
        ["nested", "flat"].map(|name| node.workload(name, "containers: [{name: c}]"));
    let leaves = ["a", "b"].map(|name| node.groups[nested].child(name).unwrap());
    node.configure_machine("observe", "evictionHard: {pid.available: \"1\"}");
    let started = |leaf: &brink_host::cgroup::owned::OwnedCgroup, seconds: &str| {
        let script = leaf
            .entrances()
            .into_iter()
            .map(|entrance| format!("echo 0 > {} && ", entrance.display()));
        let script = format!("{} exec sleep {seconds}", script.collect::<String>());
        std::process::Command::new("sh")
            .args(["-c", &script])
            .spawn()
            .unwrap()
    };
    // Some are there before the kernel's programs are.
    let mut sleepers: Vec<_> = (0..3).map(|_| started(&leaves[0], "600")).collect();
    node.start(&[]);
    sleepers.extend((0..4).map(|_| started(&leaves[1], "601")));
    sleepers.extend((0..2).map(|_| started(&node.groups[flat], "602")));
    for (index, name, expected) in [(nested, "nested", 7), (flat, "flat", 2)] {
        let is_told = || {
            let listed = node.groups[index].processes().unwrap().len();
            let told = used(&node, "pid.available", name)?;
            (listed == expected && told == i64::try_from(listed).unwrap()).then_some(())
        };
        let found = wait_until(PATIENCE, is_told);
        assert!(
            found.is_some(),
            "{name}: {:?}",
            ranking(&node, "pid.available")
        );
    }
    for mut sleeper in sleepers {
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}

/// In a storm Linux 7 takes tasks off their processor within a program, and leaves that program out for others meanwhile. Before the
/// next pass, which is far away, the counts are right all the same.
#[test]
fn who_was_born_in_a_storm_is_counted_soon() {
    const CROWD: u64 = 150;
    const SOON: Duration = Duration::from_secs(3);
    let mut node = Node::new(600);
    let crowd = node.workload("crowd", "containers: [{name: c}]");
    let group = &node.groups[crowd];
    group.limit_tasks(&node.sandbox.layout, CROWD).unwrap();
    let settings = "evictionHard: {pid.available: \"1\"}\nhousekeepingInterval: 1h";
    node.configure_machine("observe", settings);
    let status = node.start(&[]);
    if status.rung.as_deref() != Some("kernel-sampler") {
        lacks!("needs the kernel's programs: {:?}", status.rung_reasons);
    }
    let _storm = node.load(crowd, Load::ForkStorm, 0);
    let listed = || node.groups[crowd].processes().unwrap().len() as u64;
    let is_full = || (listed() == CROWD).then_some(());
    assert!(wait_until(PATIENCE, is_full).is_some(), "{}", listed());
    let told = || used(&node, "pid.available", "crowd");
    let is_told = || (told() == Some(CROWD.cast_signed())).then_some(());
    let found = wait_until(SOON, is_told);
    let programs = || node.status().map(|status| status.programs);
    assert!(found.is_some(), "{:?} of {:#?}", told(), programs());
}

/// A copy of /proc/meminfo that is brought up to date all the time, and says that more is cached than is.
struct Meminfo {
    more_kib: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    writer: Option<std::thread::JoinHandle<()>>,
}

impl Meminfo {
    fn at(path: PathBuf) -> Self {
        let (more_kib, ended) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let write = |path: &Path, more: u64| {
            let text = fs::read_to_string("/proc/meminfo").unwrap();
            let lines = text.lines().map(|line| match line.strip_prefix("Cached:") {
                Some(rest) => {
                    let kib: u64 = rest.split_whitespace().next().unwrap().parse().unwrap();
                    format!("Cached: {:>15} kB\n", kib + more)
                }
                None => format!("{line}\n"),
            });
            // Over what is there: whoever reads it has the file open, and finds it as long as ever.
            let file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path);
            file.unwrap()
                .write_all_at(lines.collect::<String>().as_bytes(), 0)
                .unwrap();
        };
        write(&path, 0);
        let (more, end) = (Arc::clone(&more_kib), Arc::clone(&ended));
        let writer = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                write(&path, more.load(Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            more_kib,
            ended,
            writer: Some(writer),
        }
    }
}

impl Drop for Meminfo {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.writer.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn a_sampler_that_reads_too_high_is_found_out_far_from_every_threshold() {
    let mut node = Node::new(300);
    let meminfo = Meminfo::at(node.path("meminfo"));
    node.hide(&format!(
        "mount --bind {} /proc/meminfo",
        node.path("meminfo").display()
    ));
    // No pass comes in time to find it.
    node.configure_machine(
        "observe",
        "evictionHard: {memory.available: 200Mi}\nhousekeepingInterval: 10m",
    );
    let status = node.start(&[]);
    if status.rung.as_deref() != Some("kernel-sampler") {
        lacks!("needs the sampler: {:?}", status.rung_reasons);
    }
    let rung = || node.status().and_then(|status| status.rung);
    // At least one sign of life.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(rung().as_deref(), Some("kernel-sampler"), "{}", node.log());
    meminfo.more_kib.store(1 << 20, Ordering::Relaxed);
    let fell = wait_until(Duration::from_secs(12), || {
        rung().filter(|rung| rung != "kernel-sampler")
    });
    assert!(fell.is_some(), "{}", node.log());
}
