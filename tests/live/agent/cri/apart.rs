//! Images on a filesystem of their own under a real agent, with a real containerd: who goes for that one, and who for nodefs.
//!
//! Of three pods one holds most in its writable layer, one most in its log and volume, and the third most in all of it together.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brink_cri::client::Runtime as _;
use brink_stream::model::data::{NodeReclaim, ReclaimOutcome, ReclaimPhase};
use brink_tests::{OwnDisk, wait_until};
use tempfile::TempDir;

use super::containerd::{Containerd, SANDBOX};
use super::pods::placed;
use super::reclaim::held;
use super::writers::{Part, Plan, Writers, storage};
use super::{ground, told};
use crate::disks;
use crate::layouts::{left, take};
use crate::support::{Node, PATIENCE};

/// An image that no container has ever used.
const UNUSED: &str = "localhost/unused:1";
/// What comes back at least when it goes: it holds a busybox, which has nearly 2 MiB.
const COMES_BACK: i64 = 1 << 20;
/// What each disk has, in MiB: far more than is on it, and the threshold.
const SIZE: u64 = 128;
/// The threshold on each, in MiB.
const QUANTITY: u64 = 24;
/// So many MiB below the threshold: more than the image gives back.
const SHORT: u64 = 16;
/// The signals.
const NODEFS: &str = "nodefs.available";
const IMAGEFS: &str = "imagefs.available";
/// Somebody else would have gone within this time.
const WHILE: Duration = Duration::from_secs(2);

/// Its layer is the largest.
static LAYERED: Plan = Plan {
    name: "layered",
    uid: "5e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7",
    containers: &[Part {
        name: "app",
        limit: None,
        does: "file /written 12288",
    }],
    at_first: [12_288, 0, 0],
};
/// Has the most of files, and only with its log: its volume alone is smaller than that of `BOTH`.
static FILED: Plan = Plan {
    name: "filed",
    uid: "6e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7",
    containers: &[Part {
        name: "app",
        limit: None,
        does: "file /written 1024; log 6144; file /scratch/written 9216",
    }],
    // The runtime keeps the end of a line that is not over to itself.
    at_first: [1024, 6000, 9216],
};
/// Has the most of all, and of neither part.
static BOTH: Plan = Plan {
    name: "both",
    uid: "7e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7",
    containers: &[Part {
        name: "app",
        limit: None,
        does: "file /written 8192; file /scratch/written 12288",
    }],
    at_first: [8192, 0, 12_288],
};

/// What lies on the filesystem of images.
#[derive(Clone, Copy)]
enum Images {
    /// All that the runtime has, writable layers among it, as it says itself.
    WithLayers,
    /// Images as they were fetched. Containerd unpacks them beside the writable layers all the same, on nodefs, and cannot say that these
    /// are apart from images: the configuration does.
    Alone,
}

impl Images {
    /// The layout that makes, by its name.
    const fn layout(self) -> &'static str {
        match self {
            Self::WithLayers => "dedicatedImagefs",
            Self::Alone => "split",
        }
    }

    /// Where the runtime has all that it has, and where the filesystem of images is mounted, with nodefs at that place.
    fn places(self, nodefs: &Path, images: PathBuf) -> (PathBuf, PathBuf) {
        match self {
            Self::WithLayers => (images.join("containerd"), images),
            Self::Alone => {
                let root = nodefs.join("containerd");
                let fetched = root.join("io.containerd.content.v1.content");
                (root, fetched)
            }
        }
    }

    /// What of that has to be configured.
    fn configured(self, root: &Path, images: &Path) -> String {
        match self {
            Self::WithLayers => String::new(),
            Self::Alone => format!(
                ", imagefs: \"{}\", containerfs: \"{}\"",
                images.display(),
                root.display()
            ),
        }
    }
}

/// An agent, a containerd and a kubelet's folders on two disks, and pods that write there.
struct Ground {
    // In the order in which they end: nothing is on the disks any more when these go.
    node: Node,
    containerd: Containerd,
    pods: Writers,
    images: OwnDisk,
    nodefs: OwnDisk,
    _place: TempDir,
}

impl Ground {
    /// With all three, once the agent knows what they hold; none with the reason where disks cannot be had.
    fn new(programs: &Path, on_images: Images) -> Result<Self, String> {
        OwnDisk::own_mounts()?;
        let place = tempfile::tempdir().unwrap();
        let nodefs = OwnDisk::ext4(&place.path().join("nodefs"), SIZE, &["-m", "0"])?;
        let (root, images) = on_images.places(nodefs.place(), place.path().join("images"));
        let images = OwnDisk::ext4(&images, SIZE, &["-m", "0"])?;
        let containerd = Containerd::start(programs, Some(&root), &[UNUSED]);
        let containerd = containerd.expect("a containerd that runs");
        let pods = Writers::make(&containerd, nodefs.place(), &[&LAYERED, &FILED, &BOTH]);
        // An agent that comes before it does would look again in five minutes.
        let says = told(async {
            let client = containerd.connect().await.expect("an answer");
            placed(&client).await
        });
        assert!(says.images.starts_with(&root), "{says:?}");
        let mut node = Node::new(200);
        pods.tell(&node);
        let extra = format!(
            "evictionHard: {{{NODEFS}: {QUANTITY}Mi, {IMAGEFS}: {QUANTITY}Mi}}\n\
             filesystems: {{nodefs: \"{}\"{}}}\n\
             runtime: {{endpoint: \"{}\", reclaim: always}}\n{}",
            nodefs.place().display(),
            on_images.configured(&root, images.place()),
            containerd.socket().display(),
            storage(nodefs.place()),
        );
        node.configure_in(&containerd.group(), "enforce", &extra);
        node.start(&[]);
        node.until(|status| {
            let view = status.disks.as_ref();
            let is_laid_out = view.is_some_and(|view| view.layout == on_images.layout());
            is_laid_out && pods.are_known(status)
        });
        Ok(Self {
            node,
            containerd,
            pods,
            images,
            nodefs,
            _place: place,
        })
    }

    /// How the first reclaim for this signal began, and what came of it.
    #[track_caller]
    fn reclaim(&self, signal: &str) -> (NodeReclaim, ReclaimOutcome) {
        let found = wait_until(PATIENCE, || {
            let told = disks::told(&self.node).into_iter();
            let mut told = told.filter(|one| one.signal == signal);
            Some((told.next()?, told.next()?))
        });
        let log = || self.node.log();
        let (began, over) = found.unwrap_or_else(|| panic!("no reclaim for {signal}: {}", log()));
        let phases = (began.phase, over.phase);
        assert_eq!(phases, (ReclaimPhase::Started, ReclaimPhase::Finished));
        (began, over.outcome.expect("what came of it"))
    }

    /// For images the unused one goes first, by these ways; it gives back what it held, and that is not enough.
    #[track_caller]
    fn image_goes(&self, ways: &[&str]) {
        let (began, outcome) = self.reclaim(IMAGEFS);
        assert_eq!(began.functions, ways);
        assert_eq!(outcome.removed, [UNUSED], "{outcome:?}");
        assert_eq!((outcome.containers, outcome.images), (0, 1));
        let available = outcome.available.expect("the disk answers");
        assert!(
            available >= began.available + COMES_BACK,
            "{began:?} {outcome:?}"
        );
        assert_eq!(outcome.short, [format!("{IMAGEFS}<{QUANTITY}Mi")]);
        self.has_images(&[SANDBOX]);
    }

    /// The runtime holds these images and no others.
    #[track_caller]
    fn has_images(&self, names: &[&str]) {
        let state = told(async {
            let client = self.containerd.connect_again().await;
            client.read().await.expect("an answer")
        });
        assert_eq!(held(&state).1, names);
    }

    /// Of these, in the order of the ranking, the first goes for this signal and the others stay.
    #[track_caller]
    fn first_goes(&self, signal: &str, ranking: [&Plan; 3]) {
        let record = self.node.first_decision();
        assert_eq!(record.threshold.signal, signal, "{record:#?}");
        assert!(record.limit.is_none(), "{record:#?}");
        let ranked: Vec<&str> = record.ranking.iter().map(|one| &*one.name).collect();
        assert_eq!(ranked, ranking.map(|plan| plan.name), "{record:#?}");
        assert_eq!(record.victim.name, ranking[0].name, "{record:#?}");
        // What it wrote is there still, so nobody else goes before that is back.
        std::thread::sleep(WHILE);
        self.has_gone_alone(ranking[0]);
    }

    /// That is the only order there was, and all others run.
    #[track_caller]
    fn has_gone_alone(&self, pod: &Plan) {
        self.pods.have_ended(&[pod], (&self.containerd, &self.node));
        assert_eq!(self.node.decisions().len(), 1, "{}", self.node.log());
    }
}

/// Leaves less of a disk than the threshold, by a file of nobody's, and tells in which folder that is.
fn fill(disk: &OwnDisk) -> PathBuf {
    let folder = disk.place().join("filler");
    fs::create_dir(&folder).unwrap();
    take(&folder, left(&folder) + SHORT - QUANTITY);
    folder
}

#[test]
fn for_images_and_layers_apart_the_largest_layer_goes_where_unused_images_are_not_enough() {
    let ground = ground!(Images::WithLayers);
    fill(&ground.images);
    ground.image_goes(&["deadContainers", "unusedImages"]);
    ground.first_goes(IMAGEFS, [&LAYERED, &BOTH, &FILED]);
}

#[test]
fn for_nodefs_beside_these_logs_and_volumes_count_alone_and_no_image_goes() {
    let ground = ground!(Images::WithLayers);
    fill(&ground.nodefs);
    ground.first_goes(NODEFS, [&FILED, &BOTH, &LAYERED]);
    let view = ground.node.status().unwrap().disks.unwrap();
    assert_eq!(view.runtime.reclaims, 0, "{view:?}");
    ground.has_images(&[SANDBOX, UNUSED]);
}

#[test]
fn where_layers_lie_on_nodefs_they_count_there_and_for_images_alone_nobody_goes() {
    let ground = ground!(Images::Alone);
    let filler = fill(&ground.nodefs);
    let (began, outcome) = ground.reclaim(NODEFS);
    assert_eq!(began.functions, ["deadContainers"]);
    assert!(outcome.removed.is_empty(), "{outcome:?}");
    ground.first_goes(NODEFS, [&BOTH, &FILED, &LAYERED]);
    ground.has_images(&[SANDBOX, UNUSED]);
    fs::remove_dir_all(filler).unwrap();
    ground.node.finished(1);
    fill(&ground.images);
    ground.image_goes(&["unusedImages"]);
    ground.node.until(|status| {
        let mut all = status.thresholds.iter();
        all.any(|one| one.signal == IMAGEFS && one.held.as_deref() == Some("nobody"))
    });
    std::thread::sleep(WHILE);
    ground.has_gone_alone(&BOTH);
}
