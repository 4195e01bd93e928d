//! A filesystem that is short under a real agent, with a real containerd on it: what that gives back comes before anybody goes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use brink_cri::client::Runtime as _;
use brink_cri::state::{Standing, State};
use brink_host::hog::{HogSpec, Load};
use brink_stream::model::data::{NodeReclaim, ReclaimOutcome, ReclaimPhase};
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, OwnDisk, wait_until};
use rustix::process::Signal;
use tempfile::TempDir;

use super::containerd::{Containerd, SANDBOX};
use super::pods::{Pod, ended, written};
use super::reclaim::{OF_THE_DEAD, SLEEP, USED, held};
use super::{ground, told};
use crate::layouts::take;
use crate::storage::keeper;
use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use crate::{disks, kinds};

/// Images that no container has ever used.
const UNUSED: [&str; 2] = ["localhost/unused:1", "localhost/unused:2"];
/// What the disk has, in MiB: far more than is on it, and the threshold.
const SIZE: u64 = 128;
/// The threshold, in MiB.
const QUANTITY: u64 = 24;
/// The same as it is told.
const THRESHOLD: &str = "nodefs.available<24Mi";
/// So many MiB below the threshold: more than the dead container gives back, and less than that with three images.
const LITTLE_SHORT: u64 = 6;
/// More than the dead container gives back with two images.
const FAR_SHORT: u64 = 16;
/// What the dead container has written, in MiB.
const WRITTEN: u64 = 2;
/// What is seen to come back at least: each image lies there packed and unpacked, and a busybox has nearly 2 MiB.
const COMES_BACK: i64 = 4 << 20;
/// Longer than the agent waits for a runtime.
const OVER: Duration = Duration::from_secs(35);
/// So long it waits for one answer, in milliseconds.
const ASKED_FOR_MS: u64 = 5_000;
/// Somebody else would have gone within this time.
const WHILE: Duration = Duration::from_secs(2);

/// An agent whose disk is a containerd's too, and two workloads with files on it: one has many, the other few.
struct Ground {
    // In the order in which they end: nothing is on the disk any more when that goes.
    much: Hog,
    little: Hog,
    node: Node,
    containers: Containers,
    containerd: Containerd,
    disk: OwnDisk,
    _place: TempDir,
}

/// The containers of one name in a pod of which the agent knows nothing.
struct Containers {
    /// Dead, and on an image that no other uses.
    older: String,
    /// Dead, and the newest one that is.
    newer: String,
    running: String,
}

impl Ground {
    /// With these images beside those that containers use; none with the reason where a disk cannot be had.
    fn new(programs: &Path, reclaim: &str, unused: &[&str]) -> Result<Self, String> {
        OwnDisk::own_mounts()?;
        let place = tempfile::tempdir().unwrap();
        let disk = OwnDisk::ext4(&place.path().join("disk"), SIZE, &["-m", "0"])?;
        let root = disk.place().join("containerd");
        let images = [&[USED, OF_THE_DEAD], unused].concat();
        let runtime = Containerd::start(programs, Some(&root), &images);
        let runtime = runtime.expect("a containerd that runs");
        let containers = told(Containers::make(&runtime));
        let mut node = Node::new(200);
        let workloads = [("much", 12), ("little", 2)].map(|(name, mib)| {
            let folder = disk.place().join(name);
            fs::create_dir(&folder).unwrap();
            take(&folder, mib);
            keeper(&mut node, name, &folder, "")
        });
        // Where images lie the runtime says. They are there before the agent looks for the first time, and so are old.
        let extra = format!(
            "evictionHard: {{nodefs.available: {QUANTITY}Mi}}\nfilesystems: {{nodefs: \"{}\"}}\n\
             runtime: {{endpoint: \"{}\", reclaim: {reclaim}}}\n\
             storage: {{volumeStatsAggPeriod: 1s}}",
            disk.place().display(),
            runtime.socket().display(),
        );
        node.configure("enforce", &extra);
        node.start(&[]);
        // They are to live until they are killed.
        let spec = HogSpec::new(Load::Anon, MIB, HogSpec::LONGEST);
        let [much, little] = workloads.map(|workload| node.hog(workload, &spec));
        let ground = Self {
            much,
            little,
            node,
            containers,
            containerd: runtime,
            disk,
            _place: place,
        };
        ground.wait_until_known();
        Ok(ground)
    }

    /// Waits until the agent has seen all images, and what both workloads hold.
    #[track_caller]
    fn wait_until_known(&self) {
        self.node.until(|status| {
            let disks = status.disks.as_ref();
            let is_asked = disks.is_some_and(|disks| disks.runtime.name.is_some());
            let storage = status.storage.iter();
            let workloads = storage.flat_map(|storage| &storage.workloads);
            let known = workloads.filter(|one| one.volumes_bytes.is_some());
            is_asked && known.count() == 2
        });
    }

    /// Leaves so many MiB of the disk, by a file of nobody's in a folder of this name.
    fn fill(&self, name: &str, leaves: u64) {
        let folder = self.disk.place().join(name);
        fs::create_dir(&folder).unwrap();
        let left = rustix::fs::statvfs(&folder).unwrap();
        let left = left.f_bavail * left.f_frsize / MIB;
        take(&folder, left - leaves);
    }

    /// How the reclaim of this number began, and what came of it.
    #[track_caller]
    fn reclaim(&self, number: usize) -> (NodeReclaim, ReclaimOutcome) {
        let found = wait_until(OVER, || {
            let told = disks::told(&self.node).into_iter();
            let mut told = told.skip(2 * (number - 1));
            Some((told.next()?, told.next()?))
        });
        let log = || self.node.log();
        let (began, over) = found.unwrap_or_else(|| panic!("no reclaim {number}: {}", log()));
        let phases = (began.phase, over.phase);
        assert_eq!(phases, (ReclaimPhase::Started, ReclaimPhase::Finished));
        assert_eq!(began.signal, "nodefs.available");
        (began, over.outcome.expect("what came of it"))
    }

    /// All that nobody needs is told by its name and with what it holds, and of all that stays why.
    #[track_caller]
    fn is_told_whole(&self, outcome: &ReclaimOutcome, unused: &[&str]) {
        let [dead, never @ .., last] = &outcome.removed[..] else {
            panic!("{outcome:?}\n{}", self.node.log());
        };
        let id = &self.containers.older[..12];
        assert_eq!(*dead, format!("test/lives app ({id})"));
        // Among those that were never used their identities decide; the other one was used since.
        let mut never: Vec<&str> = never.iter().map(String::as_str).collect();
        never.sort_unstable();
        assert_eq!(never, unused);
        assert_eq!(last, OF_THE_DEAD);
        let counts = (outcome.containers, outcome.images, outcome.more);
        assert_eq!(counts, (1, unused.len() as u64 + 1, 0));
        let bytes = outcome.removed_bytes.iter();
        let bytes: Vec<u64> = bytes.map(|bytes| bytes.unwrap_or(0)).collect();
        assert!(bytes[0] >= WRITTEN * MIB, "{outcome:?}");
        assert!(bytes.iter().all(|bytes| *bytes >= MIB), "{outcome:?}");
        assert_eq!(outcome.said_bytes, bytes.iter().sum::<u64>());
        let kept = outcome.kept.iter().map(|(why, many)| (why.as_str(), *many));
        let kept: Vec<(&str, u64)> = kept.collect();
        // What sandboxes are made of is pinned by newer ones.
        let is_expected = |of_sandboxes: &str| kept == [("inUse", 1), (of_sandboxes, 1)];
        assert!(
            is_expected("ofSandboxes") || is_expected("pinned"),
            "{outcome:?}"
        );
        assert!(outcome.refused.is_empty(), "{outcome:?}");
    }

    /// All of that is gone, nothing else is, and the bytes are back.
    #[track_caller]
    fn has_given_back(&self, began: &NodeReclaim, outcome: &ReclaimOutcome) {
        assert_eq!(outcome.result, "done", "{outcome:?}");
        let available = outcome.available.expect("the disk answers");
        assert!(
            available >= began.available + COMES_BACK,
            "{began:?} {outcome:?}"
        );
        let state = self.state();
        let (containers, images) = held(&state);
        let Containers { newer, running, .. } = &self.containers;
        let mut left = [newer.as_str(), running.as_str()];
        left.sort_unstable();
        assert_eq!(containers, left);
        assert_eq!(images, [SANDBOX, USED]);
        let mut all = state.containers.iter();
        let running = all.find(|one| one.id == *running);
        assert_eq!(running.map(|one| one.standing), Some(Standing::Running));
    }

    /// Whoever has much goes, and nobody else.
    #[track_caller]
    fn much_alone_goes(&self) {
        gone_after(&self.much);
        let record = self.node.first_decision();
        assert_eq!(record.victim_name(), "test/much", "{record:#?}");
        assert_eq!(record.threshold.signal, "nodefs.available");
        assert!(lives(&self.little));
        assert_eq!(self.node.decisions().len(), 1, "{}", self.node.log());
    }

    /// All that the runtime holds.
    fn state(&self) -> State {
        told(async {
            let client = self.containerd.connect_again().await;
            client.read().await.expect("an answer")
        })
    }
}

impl Containers {
    async fn make(containerd: &Containerd) -> Self {
        let client = containerd.connect().await.expect("an answer");
        let parent = containerd.cgroup_parent();
        let pod = Pod::make(&client, "lives", &parent, false).await;
        let pod = pod.expect("a pod");
        let run = async |attempt, image, command: &[&str]| {
            let started = pod.run(&client, attempt, image, command).await;
            started.expect("a container")
        };
        let write = format!("dd if=/dev/zero of=/written bs=1M count={WRITTEN}");
        let older = run(0, OF_THE_DEAD, &["/busybox", "sh", "-c", write.as_str()]).await;
        let newer = run(1, USED, &["/busybox", "true"]).await;
        let running = run(2, USED, &SLEEP).await;
        ended(&client, &[&older, &newer]).await;
        written(&client, &older, WRITTEN * MIB).await;
        Self {
            older,
            newer,
            running,
        }
    }
}

#[test]
fn where_the_runtime_gives_back_enough_nobody_goes() {
    let ground = ground!("always", &UNUSED);
    ground.fill("filler", QUANTITY - LITTLE_SHORT);
    let (began, outcome) = ground.reclaim(1);
    let quantity = u64::try_from(began.quantity).unwrap();
    assert_eq!(quantity, QUANTITY * MIB);
    assert!(began.available < began.quantity && !began.dry_run);
    assert_eq!(began.functions, ["deadContainers", "unusedImages"]);
    let runtime = began.runtime.as_deref().unwrap_or_default();
    assert!(runtime.starts_with("containerd "), "{began:?}");
    ground.is_told_whole(&outcome, &UNUSED);
    ground.has_given_back(&began, &outcome);
    assert!(outcome.short.is_empty(), "{outcome:?}");
    let status = disks::until(&ground.node, |one| !one.met);
    let view = status.disks.unwrap();
    // By what the runtime says of its folder.
    assert_eq!(view.layout, "single", "{view:?}");
    let runtime = &view.runtime;
    let counts = (runtime.reclaims, runtime.containers, runtime.images);
    assert_eq!((counts, runtime.sufficient), ((1, 1, 3), 1), "{view:?}");
    assert!(ground.node.decisions().is_empty(), "{}", ground.node.log());
    assert!(lives(&ground.much) && lives(&ground.little));
}

/// Containerd removes the files of a dead container behind its answer.
#[test]
fn where_a_dead_container_is_enough_images_stay_and_nobody_goes() {
    let ground = ground!("always", &UNUSED);
    ground.fill("filler", QUANTITY - WRITTEN / 2);
    let (_, outcome) = ground.reclaim(1);
    assert_eq!(outcome.result, "enough", "{outcome:?}");
    assert_eq!((outcome.containers, outcome.images), (1, 0));
    assert!(outcome.short.is_empty(), "{outcome:?}");
    disks::until(&ground.node, |one| !one.met);
    assert_eq!(ground.state().images.len(), 5, "none was removed");
    assert!(ground.node.decisions().is_empty(), "{}", ground.node.log());
    assert!(lives(&ground.much) && lives(&ground.little));
}

#[test]
fn where_that_is_not_enough_whoever_holds_most_goes_after_it() {
    let ground = ground!("always", &UNUSED[..1]);
    ground.fill("filler", QUANTITY - FAR_SHORT);
    let (began, outcome) = ground.reclaim(1);
    ground.is_told_whole(&outcome, &UNUSED[..1]);
    ground.has_given_back(&began, &outcome);
    assert_eq!(outcome.short, [THRESHOLD]);
    ground.much_alone_goes();
    let [reclaim, order] = [Kind::NodeReclaim, Kind::EvictionOrdered];
    let found = wait_until(PATIENCE, || {
        let told = kinds::told(&ground.node)?.into_iter();
        let told = told.map(|event| event.of);
        let told: Vec<Kind> = told.filter(|of| [reclaim, order].contains(of)).collect();
        told.contains(&order).then_some(told)
    });
    let found = found.expect("the order is told");
    assert!(found.starts_with(&[reclaim, reclaim, order]), "{found:?}");
    // Its files are still there, so nobody else goes.
    std::thread::sleep(WHILE);
    ground.much_alone_goes();
}

#[test]
fn a_runtime_that_does_not_answer_is_told_and_keeps_nobody_for_long() {
    let ground = ground!("always", &UNUSED);
    ground.containerd.signal(Signal::STOP);
    ground.fill("filler", QUANTITY - LITTLE_SHORT);
    let (_, outcome) = ground.reclaim(1);
    let says_so = |why: Option<&str>| why.is_some_and(|why| why.contains("has not answered"));
    assert_eq!(outcome.result, "hung", "{outcome:?}");
    assert!(says_so(outcome.why.as_deref()), "{outcome:?}");
    assert!(outcome.took_ms >= ASKED_FOR_MS, "{outcome:?}");
    assert!(outcome.removed.is_empty() && outcome.more == 0);
    assert_eq!(outcome.short, [THRESHOLD]);
    ground.much_alone_goes();
    ground.node.until(|status| {
        let view = status.disks.as_ref();
        view.is_some_and(|view| says_so(view.runtime.why.as_deref()))
    });
    ground.containerd.signal(Signal::CONT);
    assert_eq!(ground.state().images.len(), 5, "nothing was removed");
    // What it held comes back, and then the disk is filled anew.
    fs::remove_dir_all(ground.disk.place().join("much")).unwrap();
    ground.node.finished(1);
    disks::until(&ground.node, |one| !one.met);
    ground.fill("more", QUANTITY - LITTLE_SHORT);
    let (began, outcome) = ground.reclaim(2);
    ground.is_told_whole(&outcome, &UNUSED);
    ground.has_given_back(&began, &outcome);
    assert!(outcome.short.is_empty(), "{outcome:?}");
    ground.node.until(|status| {
        let view = status.disks.as_ref();
        view.is_some_and(|view| view.runtime.why.is_none())
    });
    disks::until(&ground.node, |one| !one.met);
    ground.much_alone_goes();
}

#[test]
fn with_a_dry_run_it_is_told_what_would_go_and_nothing_does() {
    let ground = ground!("dryRun", &UNUSED);
    let before = ground.state();
    ground.fill("filler", QUANTITY - LITTLE_SHORT);
    let (began, outcome) = ground.reclaim(1);
    assert!(began.dry_run, "{began:?}");
    assert_eq!(outcome.result, "dryRun", "{outcome:?}");
    ground.is_told_whole(&outcome, &UNUSED);
    assert_eq!(outcome.short, [THRESHOLD]);
    ground.much_alone_goes();
    assert_eq!(ground.state(), before);
    let view = ground.node.status().unwrap().disks.unwrap();
    let runtime = &view.runtime;
    let removed = (runtime.containers, runtime.images, runtime.freed_bytes);
    assert_eq!((runtime.reclaims, removed), (1, (0, 0, 0)), "{view:?}");
}
