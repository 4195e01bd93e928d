//! Who goes for which filesystem, in each layout of the kubelet's and in one that it knows nothing of.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use brink::control::protocol::{Status, ThresholdState};
use brink_host::hog::Load;
use brink_tests::{Hog, OwnDisk, lacks_disk};

use crate::storage::keeper;
use crate::support::{MIB, Node, gone_after, lives};

/// What nodefs has, and each of the others.
const SIZE: u64 = 64;
/// Somebody else would have gone within this time.
const WHILE: Duration = Duration::from_secs(2);
/// A threshold that is not met by what the two workloads have written.
const LEFT: u64 = 20;

/// A node whose filesystems are these folders, and two workloads with files on nodefs: one has many, the other few.
struct Ground {
    node: Node,
    disks: Vec<OwnDisk>,
    much: Hog,
    little: Hog,
}

impl Ground {
    /// With a disk for nodefs and one for each of `roles`; none with the reason where such cannot be had.
    fn new(roles: &[&str], thresholds: &str) -> Result<Self, String> {
        Self::measured(roles, thresholds, "1s")
    }

    /// The same, where workloads are measured so often.
    fn measured(roles: &[&str], thresholds: &str, period: &str) -> Result<Self, String> {
        OwnDisk::own_mounts()?;
        let mut node = Node::new(200);
        let mut disks = Vec::new();
        for role in [&["nodefs"], roles].concat() {
            disks.push(OwnDisk::ext4(&node.path(role), SIZE, &["-m", "0"])?);
        }
        let workloads = [("much", 12), ("little", 2)].map(|(name, mib)| {
            let folder = disks[0].place().join(name);
            fs::create_dir(&folder).unwrap();
            take(&folder, mib);
            keeper(&mut node, name, &folder, "")
        });
        let places: Vec<String> = [&["nodefs"], roles]
            .concat()
            .iter()
            .zip(&disks)
            .map(|(role, disk)| format!("{role}: \"{}\"", disk.place().display()))
            .collect();
        let extra = format!(
            "evictionHard: {{{thresholds}}}\nfilesystems: {{{}}}\nruntime: {{endpoint: \"{}\"}}\n\
             storage: {{volumeStatsAggPeriod: {period}}}",
            places.join(", "),
            node.path("no-runtime.sock").display(),
        );
        node.configure("enforce", &extra);
        node.start(&[]);
        let [much, little] = workloads.map(|workload| node.load(workload, Load::Anon, MIB));
        let ground = Self {
            node,
            disks,
            much,
            little,
        };
        ground.node.until(|status| {
            let storage = status.storage.as_ref();
            storage.is_some_and(|seen| {
                let known = seen.workloads.iter();
                known.filter(|one| one.volumes_bytes.is_some()).count() == 2
            })
        });
        Ok(ground)
    }

    /// Leaves less than the threshold of the disk of this place, by a file of nobody's.
    fn fill(&self, disk: usize) {
        let place = self.disks[disk].place();
        take(place, left(place) - LEFT / 2);
    }

    /// The threshold on this signal.
    #[track_caller]
    fn met(&self, signal: &str) -> ThresholdState {
        let of = |status: &Status| {
            let mut all = status.thresholds.iter();
            all.find(|one| one.signal == signal && one.met).cloned()
        };
        let status = self.node.until(|status| of(status).is_some());
        of(&status).unwrap()
    }

    /// Whoever has much goes for this signal, and the other does not.
    fn much_goes_for(&self, signal: &str) {
        gone_after(&self.much);
        // It is not over: nothing comes back before somebody removes the files.
        let record = self.node.first_decision();
        assert_eq!(record.victim_name(), "test/much", "{record:#?}");
        assert_eq!(record.threshold.signal, signal);
        assert!(record.limit.is_none());
        // What it wrote is there still: nobody else goes before that is back.
        self.met(signal);
        std::thread::sleep(WHILE);
        assert!(lives(&self.little));
        assert_eq!(self.node.decisions().len(), 1, "{}", self.node.log());
    }

    /// Nobody goes for this signal, for that reason.
    #[track_caller]
    fn is_held(&self, signal: &str, reason: &str) {
        self.node.until(|status| {
            let mut all = status.thresholds.iter();
            all.any(|one| one.signal == signal && one.held.as_deref() == Some(reason))
        });
    }

    #[track_caller]
    fn is_laid_out(&self, layout: &str) {
        self.node.until(|status| {
            status
                .disks
                .as_ref()
                .is_some_and(|disks| disks.layout == layout)
        });
    }
}

/// MiB that are left of the disk of a folder.
pub(crate) fn left(folder: &Path) -> u64 {
    let left = rustix::fs::statvfs(folder).unwrap();
    left.f_bavail * left.f_frsize / MIB
}

/// A file that holds so many MiB, without writing them.
pub(crate) fn take(folder: &Path, mib: u64) {
    let file = File::create(folder.join("file")).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, flags, 0, mib * MIB).unwrap();
}

#[test]
fn on_a_single_filesystem_whoever_holds_most_of_it_goes() {
    let thresholds = format!("nodefs.available: {LEFT}Mi");
    let ground = match Ground::new(&[], &thresholds) {
        Ok(ground) => ground,
        Err(why) => lacks_disk!("{why}"),
    };
    ground.is_laid_out("single");
    ground.fill(0);
    ground.much_goes_for("nodefs.available");
}

/// Nothing is reclaimed for nodefs where images have a disk of their own, so that the order would come at once; and nobody is measured
/// until then, so that whoever held most before is whoever is known to.
#[test]
fn whoever_fills_a_filesystem_goes_and_not_who_held_most_of_it_before() {
    let thresholds = format!("nodefs.available: {LEFT}Mi, imagefs.available: 1Mi");
    let ground = match Ground::measured(&["imagefs"], &thresholds, "1m") {
        Ok(ground) => ground,
        Err(why) => lacks_disk!("{why}"),
    };
    ground.is_laid_out("dedicatedImagefs");
    let place = ground.disks[0].place();
    take(&place.join("little"), 2 + left(place) - LEFT / 2);
    gone_after(&ground.little);
    let record = ground.node.first_decision();
    assert_eq!(record.victim_name(), "test/little", "{record:#?}");
    assert_eq!(record.threshold.signal, "nodefs.available");
    std::thread::sleep(WHILE);
    assert!(lives(&ground.much));
    assert_eq!(ground.node.decisions().len(), 1, "{}", ground.node.log());
}

#[test]
fn inodes_have_an_order_of_their_own() {
    let ground = match Ground::new(&[], "nodefs.inodesFree: 10000") {
        Ok(ground) => ground,
        Err(why) => lacks_disk!("{why}"),
    };
    // Few bytes in many files.
    let folder = ground.disks[0].place().join("little");
    let free = || {
        rustix::fs::statvfs(ground.disks[0].place())
            .unwrap()
            .f_favail
    };
    assert!(free() > 10_100, "{}", free());
    for number in 0..free() - 9_900 {
        File::create(folder.join(number.to_string())).unwrap();
    }
    gone_after(&ground.little);
    let record = ground.node.first_decision();
    assert_eq!(record.victim_name(), "test/little", "{record:#?}");
    assert_eq!(record.threshold.signal, "nodefs.inodesFree");
    assert!(lives(&ground.much));
}

#[test]
fn for_images_on_their_own_nobody_goes_who_holds_none_of_them() {
    let thresholds = format!("nodefs.available: {LEFT}Mi, imagefs.available: {LEFT}Mi");
    let ground = match Ground::new(&["imagefs"], &thresholds) {
        Ok(ground) => ground,
        Err(why) => lacks_disk!("{why}"),
    };
    ground.is_laid_out("dedicatedImagefs");
    ground.fill(1);
    ground.met("imagefs.available");
    ground.is_held("imagefs.available", "nobody");
    assert!(lives(&ground.much) && lives(&ground.little));
    assert!(ground.node.decisions().is_empty());
    ground.fill(0);
    ground.much_goes_for("nodefs.available");
}

/// Neither of the two has a writable layer: for files on nodefs nobody goes in vain.
#[test]
fn for_writable_layers_on_their_own_nobody_goes_who_has_files_on_nodefs_alone() {
    let thresholds = format!("nodefs.available: {LEFT}Mi, imagefs.available: 1Mi");
    let ground = match Ground::new(&["imagefs", "containerfs"], &thresholds) {
        Ok(ground) => ground,
        Err(why) => lacks_disk!("{why}"),
    };
    ground.is_laid_out("split");
    ground.fill(2);
    // It has the thresholds of nodefs.
    ground.met("containerfs.available");
    ground.is_held("containerfs.available", "nobody");
    std::thread::sleep(WHILE);
    assert!(lives(&ground.much) && lives(&ground.little));
    assert!(ground.node.decisions().is_empty());
    ground.fill(0);
    ground.much_goes_for("nodefs.available");
}
