//! Limits of local storage on a real containerd: layers, logs and volumes that containers really write, and who goes for them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use brink::control::protocol::DiskView;
use brink::record::DecisionRecord;
use brink_stream::model::event::Event;
use brink_stream::model::incident::{Cause, Incident};
use brink_stream::model::kind::Kind;
use brink_tests::{OwnDisk, wait_until};
use tempfile::TempDir;

use super::containerd::Containerd;
use super::ground;
use super::writers::{KIB, Part, Plan, Writers, storage};
use crate::kinds;
use crate::support::{MIB, Node, PATIENCE};

/// What the disk has, in MiB: more than all images and all that is written.
const SIZE: u64 = 192;

/// Its container `app` passes its own 4 MiB by its layer, once it is let. The pod may use 64 MiB, and comes nowhere near.
static OVER: Plan = Plan {
    name: "over",
    uid: "1e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7",
    containers: &[
        Part {
            name: "app",
            limit: Some("4Mi"),
            does: "file /before 2048; until_let; file /after 4096",
        },
        Part {
            name: "side",
            limit: Some("60Mi"),
            does: "",
        },
    ],
    at_first: [2048, 0, 0],
};
/// What a kubelet says of it.
const OF_OVER: &str = "Container app exceeded its local ephemeral storage limit \"4Mi\". ";

/// Passes the 16 MiB of both by its volume, once it is let: 9 MiB of layers, 4 of logs and then 5 of the volume. Without any of
/// these it would not, and neither container passes its own 8 MiB: `app` holds 7 MiB, and `side` 6.
static TOGETHER: Plan = Plan {
    name: "together",
    uid: "2e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7",
    containers: &[
        Part {
            name: "app",
            limit: Some("8Mi"),
            does: "file /written 3072; log 4096",
        },
        Part {
            name: "side",
            limit: Some("8Mi"),
            does: "file /written 6144; file /scratch/before 2048; until_let; file /scratch/after 3072",
        },
    ],
    // The runtime keeps the end of a line that is not over to itself.
    at_first: [9216, 4000, 2048],
};
/// What a kubelet says of it.
const OF_TOGETHER: &str =
    "Pod ephemeral local storage usage exceeds the total limit of containers 16Mi. ";

/// Stays a quarter of a MiB under what it may use, folders and all.
static UNDER: Plan = Plan {
    name: "under",
    uid: "3e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7",
    containers: &[Part {
        name: "app",
        limit: Some("8Mi"),
        does: "file /written 7936",
    }],
    at_first: [7936, 0, 0],
};

/// Uses more than anybody else, and has no limit.
static LARGE: Plan = Plan {
    name: "large",
    uid: "4e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7",
    containers: &[Part {
        name: "app",
        limit: None,
        does: "file /written 24576",
    }],
    at_first: [24_576, 0, 0],
};

/// An agent, a containerd and a kubelet's folders on one disk, and pods that write there.
struct Ground {
    // In the order in which they end: nothing is on the disk any more when that goes.
    node: Node,
    containerd: Containerd,
    pods: Writers,
    disk: OwnDisk,
    _place: TempDir,
}

impl Ground {
    /// With these pods, once the agent knows what they hold; none with the reason where a disk cannot be had.
    fn new(programs: &Path, mode: &str, pods: &[&'static Plan]) -> Result<Self, String> {
        OwnDisk::own_mounts()?;
        let place = tempfile::tempdir().unwrap();
        let disk = OwnDisk::ext4(&place.path().join("disk"), SIZE, &["-m", "0"])?;
        let root = disk.place().join("containerd");
        let containerd = Containerd::start(programs, Some(&root), &[]);
        let containerd = containerd.expect("a containerd that runs");
        let pods = Writers::make(&containerd, disk.place(), pods);
        let mut node = Node::new(200);
        pods.tell(&node);
        let extra = format!(
            "evictionHard: {{}}\nevents: {{enabled: true}}\nfilesystems: {{nodefs: \"{}\"}}\n\
             runtime: {{endpoint: \"{}\"}}\n{}",
            disk.place().display(),
            containerd.socket().display(),
            storage(disk.place()),
        );
        node.configure_in(&containerd.group(), mode, &extra);
        node.start(&[]);
        node.until(|status| pods.are_known(status));
        let ground = Self {
            node,
            containerd,
            pods,
            disk,
            _place: place,
        };
        // Everybody has been looked at, and is within what they may use.
        let early = ground.node.decisions();
        assert!(early.is_empty(), "{early:#?}\n{}", ground.node.log());
        Ok(ground)
    }

    /// Lets these pods write on.
    fn let_go(&self, pods: &[&Plan]) {
        for pod in pods {
            fs::write(pod.scratch(self.disk.place()).join("go"), "").unwrap();
        }
    }

    /// Waits for a look at everybody that began after this.
    #[track_caller]
    fn another_round(&self) {
        let from = Instant::now();
        self.node.until(|status| {
            let ago = status.storage.as_ref().and_then(|seen| {
                let age = u64::try_from(seen.round_age_ms?).ok()?;
                Some(Duration::from_millis(age + seen.round_ms?))
            });
            ago.is_some_and(|ago| ago < from.elapsed())
        });
    }

    /// The order on a pod, given for a limit: this one of this many MiB, with these words.
    #[track_caller]
    fn order_on(
        &self,
        pod: &Plan,
        (signal, part): (&str, &str),
        (mib, message): (u64, &str),
    ) -> DecisionRecord {
        let victim = format!("test/{}", pod.name);
        let found = wait_until(PATIENCE, || {
            let mut records = self.node.decisions().into_iter();
            records.find(|record| record.victim_name() == victim)
        });
        let record = found.unwrap_or_else(|| {
            let storage = self.node.status().map(|status| status.storage);
            panic!("no order on {victim}: {storage:#?}\n{}", self.node.log())
        });
        assert_eq!(record.threshold.signal, signal, "{record:#?}");
        let limit = record.limit.as_ref().expect("the limit that was exceeded");
        let words = (limit.part.as_str(), limit.message.as_str());
        assert_eq!(words, (part, message), "{record:#?}");
        assert_eq!(u64::try_from(limit.limit_bytes), Ok(mib * MIB));
        assert!(limit.used_bytes > mib * MIB, "{limit:?}");
        let largest = LARGE.at_first[0] * KIB;
        assert!(limit.used_bytes < largest, "others use more: {limit:?}");
        record
    }

    /// An order was told as an incident of this cause, with the words of the limit.
    #[track_caller]
    fn is_told(&self, record: &DecisionRecord, cause: Cause, message: &str) {
        let name = &record.victim.name;
        let found = wait_until(PATIENCE, || {
            let is_meant = |event: &Event| {
                let mut subject = event.subject.iter();
                event.of == Kind::EvictionOrdered && subject.any(|one| one.is_named(name))
            };
            let ordered = kinds::told(&self.node)?.into_iter().find(is_meant)?;
            serde_json::from_str::<Incident>(ordered.data.get()).ok()
        });
        let incident = found.unwrap_or_else(|| panic!("{name} is not told: {}", self.node.log()));
        assert_eq!(incident.cause, cause, "{incident:#?}");
        let evidence = format!("our order {} for a limit of its own: ", record.order);
        assert_eq!(incident.evidence[0], evidence + message.trim_end());
        let decision = incident.decision.value().expect("the decision");
        assert_eq!(decision["limit"]["message"], message, "{decision:#}");
    }

    /// All containers of these pods end, and those of no other.
    #[track_caller]
    fn have_ended(&self, pods: &[&Plan]) {
        self.pods.have_ended(pods, (&self.containerd, &self.node));
    }
}

#[test]
fn whoever_is_over_a_limit_of_its_own_goes_alone_and_whoever_uses_more_without_one_stays() {
    let ground = ground!("enforce", &[&OVER, &TOGETHER, &UNDER, &LARGE]);
    ground.let_go(&[&OVER, &TOGETHER]);
    let of_container = ("ephemeralcontainerfs.limit", "app");
    let over = ground.order_on(&OVER, of_container, (4, OF_OVER));
    let of_pod = ("ephemeralpodfs.limit", "");
    let together = ground.order_on(&TOGETHER, of_pod, (16, OF_TOGETHER));
    for (given, message) in [(over, OF_OVER), (together, OF_TOGETHER)] {
        let record = ground.node.finished(given.order);
        assert_eq!(record.mode, "enforcing");
        let kill = record.kill.as_ref().expect("they were killed");
        // Both containers, and whoever was writing in them.
        assert!(kill.signalled >= 2, "{record:#?}");
        ground.is_told(&record, Cause::Eviction, message);
    }
    ground.another_round();
    ground.have_ended(&[&OVER, &TOGETHER]);
    assert_eq!(ground.node.decisions().len(), 2, "{}", ground.node.log());
    // It is seen whole, and within what it may use.
    let status = ground.node.status().expect("the agent answers");
    let under = UNDER.view(&status).and_then(DiskView::bytes);
    let within = UNDER.at_first[0] * KIB..=8 * MIB;
    assert!(
        under.is_some_and(|bytes| within.contains(&bytes)),
        "{status:#?}"
    );
}

#[test]
fn an_agent_that_observes_records_who_is_over_a_limit_and_nobody_ends() {
    let ground = ground!("observe", &[&OVER]);
    ground.let_go(&[&OVER]);
    let of_container = ("ephemeralcontainerfs.limit", "app");
    let record = ground.order_on(&OVER, of_container, (4, OF_OVER));
    assert_eq!(record.mode, "observing");
    assert!(record.kill.is_none(), "{record:#?}");
    ground.is_told(&record, Cause::WouldEvict, OF_OVER);
    ground.another_round();
    ground.have_ended(&[]);
    assert_eq!(ground.node.decisions().len(), 1, "{}", ground.node.log());
}
