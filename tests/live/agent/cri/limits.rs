//! Limits of local storage on a real containerd: layers, logs and volumes that containers really write, and who goes for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brink::control::protocol::{DiskView, Status};
use brink::record::DecisionRecord;
use brink_cri::client::Client;
use brink_cri::state::Standing;
use brink_stream::model::event::Event;
use brink_stream::model::incident::{Cause, Incident};
use brink_stream::model::kind::Kind;
use brink_tests::{OwnDisk, wait_until};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::containerd::{Containerd, SANDBOX};
use super::pods::{Pod, ended};
use super::{ground, told};
use crate::kinds;
use crate::support::{MIB, Node, PATIENCE};

/// What the disk has, in MiB: more than all images and all that is written.
const SIZE: u64 = 192;
/// Bytes in a kibibyte.
const KIB: u64 = 1 << 10;
/// The words in which it is said what a container does: it writes so many KiB into a file or into its log, and waits to be let.
const WORDS: &str = "file() { dd if=/dev/zero of=$1 bs=1K count=$2; }
log() { dd if=/dev/zero bs=1K count=$1; }
until_let() { until [ -e /scratch/go ]; do sleep 0.1; done; }
";

/// A pod as a kubelet makes one, with an emptyDir without a limit.
struct Plan {
    name: &'static str,
    uid: &'static str,
    containers: &'static [Part],
    /// What its layers, logs and volumes hold at least before it is let, in KiB.
    at_first: [u64; 3],
}

/// A container of such a pod.
struct Part {
    name: &'static str,
    /// What it may use of local storage; nothing is said where it is none.
    limit: Option<&'static str>,
    /// What it does before it rests.
    does: &'static str,
}

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

impl Plan {
    /// Where a kubelet with its files on this disk has the pod's.
    fn home(&self, disk: &Path) -> PathBuf {
        disk.join("kubelet/pods").join(self.uid)
    }

    fn scratch(&self, disk: &Path) -> PathBuf {
        let volumes = self.home(disk).join("volumes");
        volumes.join("kubernetes.io~empty-dir/scratch")
    }

    /// Makes it in the node that is this group, and tells the ids of its containers.
    async fn make(&self, client: &Client, group: &str, disk: &Path) -> Vec<String> {
        let scratch = self.scratch(disk);
        fs::create_dir_all(&scratch).unwrap();
        let hosts = self.home(disk).join("etc-hosts");
        fs::write(hosts, "127.0.0.1 localhost\n").unwrap();
        let logs = disk.join(format!("logs/test_{}_{}", self.name, self.uid));
        let parent = format!("{group}/kubepods/burstable/pod{}", self.uid);
        let pod = Pod::make_logging(client, (self.name, self.uid), &parent, &logs).await;
        let pod = pod.expect("a pod");
        let mut ids = Vec::new();
        for part in self.containers {
            fs::create_dir_all(logs.join(part.name)).unwrap();
            let script = format!("{WORDS}{}\nexec /busybox sleep 3600", part.does);
            let command = ["/busybox", "sh", "-c", script.as_str()];
            let of = (SANDBOX, &command[..]);
            let volume = (scratch.as_path(), "/scratch");
            let started = pod.run_logging(client, part.name, of, volume).await;
            ids.push(started.expect("a container"));
        }
        ids
    }

    /// As the API has it, with these containers.
    fn manifest(&self, ids: &[String]) -> String {
        let (mut containers, mut statuses) = (Vec::new(), Vec::new());
        for (part, id) in self.containers.iter().zip(ids) {
            let limits = part.limit.map_or_else(String::new, |limit| {
                format!(", resources: {{limits: {{ephemeral-storage: {limit}}}}}")
            });
            containers.push(format!("{{name: {}{limits}}}", part.name));
            let name = part.name;
            statuses.push(format!(
                "{{name: {name}, containerID: 'containerd://{id}'}}"
            ));
        }
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {}, namespace: test, uid: {}}}, \
             spec: {{containers: [{}], volumes: [{{name: scratch, emptyDir: {{}}}}]}}, \
             status: {{phase: Running, containerStatuses: [{}]}}}}\n",
            self.name,
            self.uid,
            containers.join(", "),
            statuses.join(", ")
        )
    }

    /// What an agent knows of its files.
    fn view<'a>(&self, status: &'a Status) -> Option<&'a DiskView> {
        let mut workloads = status.storage.as_ref()?.workloads.iter();
        let name = format!("test/{}", self.name);
        workloads.find(|one| one.workload == name)
    }

    /// Whether an agent knows of all that it writes before it is let.
    fn is_known(&self, status: &Status) -> bool {
        self.view(status).is_some_and(|view| {
            let seen = [view.rootfs_bytes, view.logs_bytes, view.volumes_bytes];
            let mut parts = seen.into_iter().zip(self.at_first);
            parts.all(|(seen, least)| seen.unwrap_or(0) >= least * KIB)
        })
    }
}

/// An agent, a containerd and a kubelet's folders on one disk, and pods that write there.
struct Ground {
    // In the order in which they end: nothing is on the disk any more when that goes.
    node: Node,
    containerd: Containerd,
    /// The pods, and the ids of their containers.
    pods: Vec<(&'static Plan, Vec<String>)>,
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
        let group = containerd.group();
        let pods = told(async {
            let client = Arc::new(containerd.connect().await.expect("an answer"));
            let mut making = JoinSet::new();
            for &pod in pods {
                let client = Arc::clone(&client);
                let (group, disk) = (group.clone(), disk.place().to_path_buf());
                making.spawn(async move { (pod, pod.make(&client, &group, &disk).await) });
            }
            making.join_all().await
        });
        let mut node = Node::new(200);
        for (pod, ids) in &pods {
            let file = node.path("manifests").join(format!("{}.yaml", pod.name));
            fs::write(file, pod.manifest(ids)).unwrap();
        }
        let extra = format!(
            "evictionHard: {{}}\nevents: {{enabled: true}}\nfilesystems: {{nodefs: \"{disk}\"}}\n\
             runtime: {{endpoint: \"{}\"}}\n\
             storage: {{volumeStatsAggPeriod: 1s, rootDir: \"{disk}/kubelet\", podLogsDir: \"{disk}/logs\"}}",
            containerd.socket().display(),
            disk = disk.place().display(),
        );
        node.configure_in(&group, mode, &extra);
        node.start(&[]);
        node.until(|status| pods.iter().all(|(pod, _)| pod.is_known(status)));
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

    /// All containers of these pods end; those of all others run, and so does what every pod is kept by.
    #[track_caller]
    fn have_ended(&self, pods: &[&Plan]) {
        let is_gone = |pod: &Plan| pods.iter().any(|gone| gone.uid == pod.uid);
        let of_gone = self.pods.iter().filter(|(pod, _)| is_gone(pod));
        let gone: Vec<&String> = of_gone.flat_map(|(_, ids)| ids).collect();
        let state = told(async {
            let client = self.containerd.connect_again().await;
            ended(&client, &gone).await
        });
        let all: usize = self.pods.iter().map(|(_, ids)| ids.len()).sum();
        assert_eq!(state.containers.len(), all, "{state:#?}");
        for one in &state.containers {
            let expected = if gone.contains(&&one.id) {
                Standing::Exited
            } else {
                Standing::Running
            };
            assert_eq!(one.standing, expected, "{one:?}\n{}", self.node.log());
        }
        let are_kept = state.sandboxes.iter().all(|sandbox| sandbox.is_ready);
        assert!(are_kept, "{:#?}\n{}", state.sandboxes, self.node.log());
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
