//! Local storage of workloads: what is told of it, and that whoever exceeds a limit of its own goes, with the kubelet's words.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brink::control::protocol::{DiskView, Question, StorageView};
use brink_host::disk::calm::is_idle;
use brink_host::hog::Load;
use brink_tests::schema::assert_keeps_to;
use brink_tests::{OwnDisk, lacks_disk, skip, wait_until};
use rustix::process::{Pid, getpriority_process};
use rustix::thread::CapabilitySet;

use crate::pods::{Kubelets, UID, id};
use crate::support::{MIB, Node, PATIENCE, gone_after, lives};

/// Nothing but local storage, measured as often as can be.
const OFTEN: &str = "evictionHard: {}\nstorage: {volumeStatsAggPeriod: 1s}";

/// A workload whose folder this is, and that may use so much, if anything is said of it.
pub(crate) fn keeper(node: &mut Node, name: &str, folder: &Path, limit: &str) -> usize {
    let index = node.workload(name, "");
    let limits = match limit {
        "" => String::new(),
        limit => format!(", resources: {{limits: {{ephemeral-storage: {limit}}}}}"),
    };
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: test, uid: uid-{name}, annotations: {{brink.dev/cgroup: \"{}\", brink.dev/directories: \"{}\"}}}}\nspec: {{containers: [{{name: c{limits}}}]}}\n",
        node.groups[index].group(),
        folder.display()
    );
    let path = node.path("manifests").join(format!("{name}.yaml"));
    fs::write(path, manifest).unwrap();
    index
}

fn grow(file: &Path, mib: u64) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    for _ in 0..mib {
        file.write_all(&vec![1; usize::try_from(MIB).unwrap()])
            .unwrap();
    }
    file.sync_all().unwrap();
}

/// What is told of storage, once it is as it is wanted.
fn told(node: &Node, is_wanted: impl Fn(&StorageView) -> bool) -> StorageView {
    let found = wait_until(PATIENCE, || node.status()?.storage.filter(&is_wanted));
    found.unwrap_or_else(|| {
        let last = node.status().map(|status| status.storage);
        panic!("{last:#?}\n{}", node.log())
    })
}

/// Whether some trouble is told in these words.
fn is_said(view: &StorageView, words: &str) -> bool {
    view.troubles.iter().any(|one| one.contains(words))
}

fn volumes(view: &StorageView, name: &str) -> Option<u64> {
    let mut workloads = view.workloads.iter();
    let is_meant = |one: &&DiskView| one.workload == format!("test/{name}");
    workloads.find(is_meant)?.volumes_bytes
}

#[test]
fn a_file_that_grows_in_a_folder_that_does_not_change_is_seen() {
    if let Err(why) = OwnDisk::own_mounts() {
        skip!("{why}");
    }
    let mut node = Node::new(200);
    let disk = match OwnDisk::ext4(&node.path("disk"), 64, &[]) {
        Ok(disk) => disk,
        Err(why) => lacks_disk!("{why}"),
    };
    let folder = disk.place().join("data");
    fs::create_dir(&folder).unwrap();
    File::create(folder.join("file")).unwrap();
    keeper(&mut node, "a", &folder, "");
    let nodefs = format!(
        "{OFTEN}\nfilesystems: {{nodefs: \"{}\"}}",
        disk.place().display()
    );
    node.configure("observe", &nodefs);
    node.start(&[]);
    told(&node, |view| {
        volumes(view, "a").is_some_and(|bytes| bytes < MIB)
    });
    grow(&folder.join("file"), 5);
    let view = told(&node, |view| {
        volumes(view, "a").is_some_and(|bytes| bytes >= 5 * MIB)
    });
    assert_eq!((view.folders, view.troubles.len()), (1, 0), "{view:#?}");
    // The ranking for the disk goes by it.
    let signal = Some("nodefs.available".to_owned());
    let ranking = node.ask(&Question::Rank { signal }).unwrap();
    let ranking = format!("{ranking:?}");
    assert!(ranking.contains("usage: Some("), "{ranking}");
    node.stop(rustix::process::Signal::TERM);
}

#[test]
fn whoever_exceeds_its_limit_goes_and_nobody_else() {
    let mut node = Node::new(200);
    let folders = ["a", "b"].map(|name| node.path(name));
    for path in &folders {
        fs::create_dir(path).unwrap();
    }
    let [a, b] = &folders;
    let over = keeper(&mut node, "over", a, "4Mi");
    let within = keeper(&mut node, "within", b, "40Mi");
    node.configure("enforce", OFTEN);
    node.start(&[]);
    let (over, within) = (node.holding(over, 8), node.holding(within, 8));
    grow(&b.join("file"), 6);
    grow(&a.join("file"), 3);
    told(&node, |view| {
        volumes(view, "over").is_some_and(|bytes| bytes >= 3 * MIB)
    });
    assert!(lives(&over), "it is within its limit");
    grow(&a.join("file"), 2);
    gone_after(&over);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/over");
    assert_eq!(record.threshold.signal, "ephemeralpodfs.limit");
    let limit = record.limit.expect("the limit that was exceeded");
    assert_eq!((limit.limit_bytes, limit.part.as_str()), (4 << 20, ""));
    assert!(limit.used_bytes >= 5 * MIB, "{limit:?}");
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ";
    assert_eq!(limit.message, message);
    assert!(record.signals.is_empty() && record.kubelet.is_none());
    assert_eq!(record.kill.unwrap().signalled, 1);
    assert!(lives(&within));
    for (arguments, schema) in [
        (&["status"][..], "status"),
        (&["explain", "1"], "decision"),
        (&["explain", "test/within"], "explanation"),
    ] {
        let output = node.said(&[arguments, &["-o", "json"]].concat());
        let json = String::from_utf8(output.stdout).unwrap();
        assert_keeps_to(schema, &json);
    }
    let words = String::from_utf8(node.said(&["explain", "1"]).stdout).unwrap();
    assert!(words.contains(message.trim_end()), "{words}");
    let words = String::from_utf8(node.said(&["status"]).stdout).unwrap();
    assert!(words.contains("Local storage: 2 folders"), "{words}");
    node.stop(rustix::process::Signal::TERM);
    let replayed = node.replay();
    assert!(replayed.contains("ephemeralpodfs.limit"), "{replayed}");
}

#[test]
fn a_volume_that_hangs_is_told_and_keeps_nobody_from_being_killed() {
    if let Err(why) = OwnDisk::own_mounts() {
        skip!("{why}");
    }
    let mut node = Node::new(200);
    let disk = match OwnDisk::hung(&node.path("hung")) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    keeper(&mut node, "hung", disk.place(), "");
    let leaks = node.workload("leaks", "containers: [{name: c}]");
    node.configure(
        "enforce",
        "evictionHard: {memory.available: 40Mi}\nstorage: {volumeStatsAggPeriod: 1s}",
    );
    node.start(&[]);
    let leak = node.load(leaks, Load::Anon, 180 * MIB);
    gone_after(&leak);
    assert_eq!(node.finished(1).victim_name(), "test/leaks");
    let is_told = |trouble: &String| trouble.contains("/hung is not measured after");
    let view = told(&node, |view| view.troubles.iter().any(is_told));
    assert_eq!(volumes(&view, "hung"), None, "{view:#?}");
    // It ends although its thread is held.
    node.stop(rustix::process::Signal::TERM);
}

#[test]
fn whoever_is_started_again_with_the_same_files_is_not_killed_all_the_time() {
    let mut node = Node::new(200);
    let folder = node.path("a");
    fs::create_dir(&folder).unwrap();
    let workload = keeper(&mut node, "a", &folder, "1Mi");
    grow(&folder.join("file"), 2);
    node.configure("enforce", OFTEN);
    node.start(&[]);
    let first = node.load(workload, Load::Anon, MIB);
    gone_after(&first);
    assert_eq!(node.finished(1).victim_name(), "test/a");
    let second = node.holding(workload, 1);
    std::thread::sleep(Duration::from_secs(8));
    assert!(
        lives(&second) && node.decisions().len() == 1,
        "{}",
        node.log()
    );
}

/// Whether the thread that measures is in the idle class of I/O, and how nice it is.
fn calm(node: &Node) -> (bool, i32) {
    let agent = node.status().unwrap().pid;
    let threads = fs::read_dir(format!("/proc/{agent}/task")).unwrap();
    let mut threads = threads.map(Result::unwrap);
    let measures = |thread: &fs::DirEntry| {
        let name = fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == "brink-storage")
    };
    let thread = threads.find(measures).expect("a thread that measures");
    let id: i32 = thread.file_name().to_str().unwrap().parse().unwrap();
    let id = Pid::from_raw(id);
    (is_idle(id).unwrap(), getpriority_process(id).unwrap())
}

#[test]
fn an_agent_that_observes_only_tells() {
    let mut node = Node::new(200);
    let folder = node.path("a");
    fs::create_dir(&folder).unwrap();
    let workload = keeper(&mut node, "a", &folder, "1Mi");
    node.configure("observe", OFTEN);
    node.start(&[]);
    let process = node.holding(workload, 4);
    grow(&folder.join("file"), 2);
    let record = node.finished(1);
    assert_eq!(
        (record.mode.as_str(), record.threshold.signal.as_str()),
        ("observing", "ephemeralpodfs.limit")
    );
    assert!(lives(&process));
    assert_eq!(calm(&node), (true, 19));
}

/// A pod as a kubelet makes it below `home`, with more in its `spec`, and the folder of its volume `scratch`, which may use 1 MiB.
fn pod_with_scratch(home: &Path, spec: &str) -> (Kubelets, PathBuf) {
    let (root, logs) = (home.join("kubelet"), home.join("logs"));
    let settings = format!(
        "evictionHard: {{}}\nstorage: {{volumeStatsAggPeriod: 1s, rootDir: \"{}\", podLogsDir: \"{}\"}}",
        root.display(),
        logs.display()
    );
    let kubelets = Kubelets::new(200, &['a'], &settings);
    let volumes = "volumes: [{name: scratch, emptyDir: {sizeLimit: 1Mi}}]";
    kubelets.specify(&format!("containers: [{{name: c}}], {spec}{volumes}"));
    let pod = root.join("pods").join(UID);
    let scratch = pod.join("volumes/kubernetes.io~empty-dir/scratch");
    fs::create_dir_all(&scratch).unwrap();
    fs::write(pod.join("etc-hosts"), "127.0.0.1 localhost\n").unwrap();
    (kubelets, scratch)
}

#[test]
fn an_empty_dir_over_its_size_goes_with_the_kubelets_message() {
    let home = tempfile::tempdir().unwrap();
    let (mut kubelets, scratch) = pod_with_scratch(home.path(), "");
    let of_container = home.path().join(format!("logs/shop_web_{UID}/c"));
    fs::create_dir_all(&of_container).unwrap();
    grow(&of_container.join("0.log"), 2);
    let container = kubelets.make(&id('a'));
    kubelets.node.start(&[]);
    let process = kubelets.holding(container, 8);
    let view = told(&kubelets.node, |view| {
        let mut workloads = view.workloads.iter();
        workloads.any(|one| one.logs_bytes >= Some(2 * MIB))
    });
    assert_eq!(view.workloads[0].workload, "shop/web", "{view:#?}");
    // Of writable layers nobody tells here, unless it is a build that could not ask.
    let is_of_layers = |one: &String| one.starts_with("what containers have written: ");
    let is_so = view.troubles.iter().all(is_of_layers);
    assert!(lives(&process) && is_so, "{view:#?}");
    grow(&scratch.join("file"), 2);
    gone_after(&process);
    let record = kubelets.node.finished(1);
    let limit = record.limit.expect("the limit that was exceeded");
    assert_eq!(record.threshold.signal, "emptydirfs.limit");
    assert_eq!(
        (limit.part.as_str(), limit.message.as_str()),
        (
            "scratch",
            "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\". "
        )
    );
    assert!(kubelets.is_sandbox_alive());
}

#[test]
fn by_the_quota_of_its_project_an_empty_dir_goes_for_a_file_that_no_walk_finds() {
    if let Err(why) = OwnDisk::own_mounts() {
        skip!("{why}");
    }
    let home = tempfile::tempdir().unwrap();
    let _disk = match OwnDisk::ext4_counting_projects(&home.path().join("kubelet")) {
        Ok(disk) => disk,
        Err(why) => lacks_disk!("needs an ext4 with project quotas: {why}"),
    };
    // No quota answers for a pod without a user namespace of its own.
    let (mut kubelets, scratch) = pod_with_scratch(home.path(), "hostUsers: false, ");
    if let Err(why) = OwnDisk::give_project(&scratch, 4242) {
        lacks_disk!("needs an ext4 with project quotas: {why}");
    }
    let container = kubelets.make(&id('a'));
    kubelets.node.start(&[]);
    let process = kubelets.holding(container, 8);
    let view = told(&kubelets.node, |view| {
        let mut workloads = view.workloads.iter();
        workloads.any(|one| one.volumes_bytes.is_some())
    });
    assert!(view.workloads[0].volumes_bytes < Some(MIB), "{view:#?}");
    assert!(lives(&process), "it is within its limit");
    // It has no name from the beginning.
    let mut file = tempfile::tempfile_in(&scratch).unwrap();
    file.write_all(&vec![1; 2 << 20]).unwrap();
    file.sync_all().unwrap();
    gone_after(&process);
    let limit = kubelets.node.finished(1).limit.expect("the limit");
    assert_eq!(limit.part, "scratch");
    assert!(limit.used_bytes >= 2 * MIB, "{limit:?}");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn what_may_not_be_read_or_is_gone_is_unknown_and_said_so_and_without_a_feed_it_is_walked() {
    let mut node = Node::new(200);
    let folders = ["open", "closed", "going"].map(|name| node.path(name));
    for path in &folders {
        fs::create_dir(path).unwrap();
    }
    let [open, closed, going] = &folders;
    std::os::unix::fs::chown(closed, Some(65_534), None).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(closed, mode).unwrap();
    for (name, folder) in [("open", open), ("closed", closed), ("going", going)] {
        keeper(&mut node, name, folder, "");
    }
    // The last one refuses the feed, the others what is somebody else's.
    let rights = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    node.without = rights | CapabilitySet::SYS_ADMIN;
    node.configure("observe", OFTEN);
    node.start(&[]);
    grow(&open.join("file"), 1);
    let view = told(&node, |view| {
        let bytes = volumes(view, "open");
        bytes.is_some_and(|bytes| bytes >= MIB)
            && volumes(view, "going").is_some()
            && is_said(view, "may not read")
    });
    assert_eq!(volumes(&view, "closed"), None, "{view:#?}");
    assert!(
        view.feeds == 0 && !view.without_feed.is_empty(),
        "{view:#?}"
    );
    grow(&open.join("file"), 1);
    fs::remove_dir_all(going).unwrap();
    told(&node, |view| {
        let bytes = volumes(view, "open");
        bytes.is_some_and(|bytes| bytes >= 2 * MIB)
            && volumes(view, "going").is_none()
            && is_said(view, "is not there")
    });
}
