//! Limits of local storage on a real node: who is over one goes with the kubelet's words, and a neighbour within its own stays.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::kubelet::Held;
use crate::manifest::{GO, waiting};
use crate::running::Agent;
use crate::support::{
    Cluster, FOLDER, NODE, Pod, SOCKET, commands_in, groups_beside, holds_in_time, write_inside,
};
use crate::told::{condition, events};
use crate::{group_of, wait_running};

/// A limit that is exceeded.
const TIGHT: &str = "4Mi";
const TIGHT_BYTES: u64 = 4 << 20;
/// A limit that nobody comes near.
const WIDE: &str = "64Mi";
const WIDE_BYTES: u64 = 64 << 20;
/// What a pod writes to each of its files, in MiB.
const WRITTEN: u64 = 8;
/// The volume that each pod has, on disk, and a file in it.
const VOLUME: &str = "scratch";
const IN_VOLUME: &str = "/scratch/file";
/// A file beside it, in the writable layer.
const IN_LAYER: &str = "/file";

/// A pod over one of its limits, and what there is to be said of it.
struct Case {
    name: &'static str,
    /// What its first container writes.
    file: &'static str,
    /// The size of its volume, and the limits of its containers.
    limits: (&'static str, &'static [&'static str]),
    /// What the kubelet counts its eviction under, and whose limit it is.
    cause: (&'static str, &'static str),
    /// The kubelet's message.
    message: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        name: "volume",
        file: IN_VOLUME,
        limits: (TIGHT, &[WIDE]),
        cause: ("emptydirfs.limit", VOLUME),
        message: r#"Usage of EmptyDir volume "scratch" exceeds the limit "4Mi". "#,
    },
    Case {
        name: "sum",
        file: IN_VOLUME,
        limits: (WIDE, &[TIGHT]),
        cause: ("ephemeralpodfs.limit", ""),
        message: "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
    },
    Case {
        name: "layer",
        file: IN_LAYER,
        // The pod's own limit is the sum of both.
        limits: (WIDE, &[TIGHT, WIDE]),
        cause: ("ephemeralcontainerfs.limit", "c0"),
        message: r#"Container c0 exceeded its local ephemeral storage limit "4Mi". "#,
    },
];

/// A pod whose first container writes these files once it is told to; the others only sleep.
fn writer(name: &str, files: &[&str], (size, limits): (&str, &[&str])) -> Value {
    let writes = format!(
        "for f in {}; do dd if=/dev/urandom of=$f bs=1M count={WRITTEN} conv=fsync; done; sleep 3600",
        files.join(" ")
    );
    let mut scripts = vec![writes.as_str()];
    scripts.resize(limits.len(), "sleep 3600");
    let resources = json!({ "requests": { "memory": "16Mi" }, "limits": { "memory": "64Mi" } });
    let name = format!("{name}-{}", std::process::id());
    let mut pod = waiting(&name, &scripts, &resources);
    let spec = &mut pod["spec"];
    for (at, limit) in limits.iter().enumerate() {
        spec["containers"][at]["resources"]["limits"]["ephemeral-storage"] = json!(limit);
    }
    let mounts = spec["containers"][0]["volumeMounts"].as_array_mut();
    let mount = json!({ "name": VOLUME, "mountPath": format!("/{VOLUME}") });
    mounts.unwrap().push(mount);
    let volumes = spec["volumes"].as_array_mut();
    let volume = json!({ "name": VOLUME, "emptyDir": { "sizeLimit": size } });
    volumes.unwrap().push(volume);
    pod
}

/// The settings by which an agent finds the files of the node, which has a mount namespace of its own, and looks at them each second.
fn seen_from_outside() -> String {
    let cluster = Path::new(FOLDER);
    let [kubelet, logs, runtime, socket] = [
        "node/kubelet",
        "node/logs-of-pods",
        "node/containerd",
        SOCKET,
    ]
    .map(|path| cluster.join(path).display().to_string());
    format!(
        "storage: {{volumeStatsAggPeriod: 1s, rootDir: {kubelet}, podLogsDir: {logs}}}\n\
         filesystems: {{nodefs: {kubelet}, imagefs: {runtime}, containerfs: {runtime}}}\n\
         runtime: {{endpoint: \"unix://{socket}\"}}\n"
    )
}

/// A pod that runs, and its groups.
struct Started<'a> {
    pod: Pod<'a>,
    uid: String,
    sandbox: PathBuf,
    containers: Vec<PathBuf>,
}

impl<'a> Started<'a> {
    fn new(pod: Pod<'a>) -> Self {
        let found = wait_running(&pod);
        let group = group_of(&found);
        let mut containers = groups_beside(&group);
        let is_pause = |group: &PathBuf| commands_in(group) == ["/pause"];
        let place = containers.iter().position(is_pause).expect("a sandbox");
        let sandbox = containers.remove(place);
        containers.push(group);
        Self {
            uid: found["metadata"]["uid"].as_str().unwrap().to_owned(),
            sandbox,
            containers,
            pod,
        }
    }

    /// Has it write.
    fn begin(&self) {
        write_inside(self.containers.last().unwrap(), GO, "go");
    }

    /// How many processes its containers have.
    fn processes(&self) -> usize {
        let members = self.containers.iter().map(|group| {
            let members = fs::read_to_string(group.join("cgroup.procs"));
            members.unwrap_or_default().lines().count()
        });
        members.sum()
    }

    /// Whether the kubelet has taken it apart, with whatever it has started in it again.
    fn is_gone(&self) -> bool {
        !self.sandbox.exists() && groups_beside(&self.sandbox).is_empty()
    }
}

/// Whether the agent knows all that a pod writes, to its volume and beside it.
fn knows_what_it_wrote(agent: &Agent, pod: &Pod<'_>) -> bool {
    let (name, all) = (format!("default/{}", pod.name), Some(WRITTEN << 20));
    let storage = agent.status().and_then(|status| status.storage);
    storage.is_some_and(|storage| {
        let mut workloads = storage.workloads.iter();
        let own = workloads.find(|one| one.workload == name);
        own.is_some_and(|own| own.volumes_bytes >= all && own.rootfs_bytes >= all)
    })
}

/// What there is of an eviction before the kubelet has seen anything of it.
fn check(cluster: &Cluster, agent: &Agent, one: &Started<'_>, case: &Case) {
    let record = agent.decision(&one.uid).unwrap();
    let Some(limit) = &record.limit else {
        panic!("no limit: {record:#?}");
    };
    let signal_and_part = (record.threshold.signal.as_str(), limit.part.as_str());
    assert_eq!(signal_and_part, case.cause, "{record:#?}");
    assert_eq!(limit.message, case.message);
    assert_eq!(limit.limit_bytes, TIGHT_BYTES.cast_signed());
    // It may have been seen while it wrote.
    let used = TIGHT_BYTES + 1..WIDE_BYTES;
    assert!(used.contains(&limit.used_bytes), "{limit:?}");
    assert_eq!(record.mode, "enforcing");

    assert!(holds_in_time(|| one.processes() == 0), "{}", agent.log());
    assert_eq!(commands_in(&one.sandbox), ["/pause"], "the sandbox lives");

    let status = one.pod.status();
    let said = ["phase", "reason", "message"].map(|key| status[key].clone());
    let expected = [json!("Failed"), json!("Evicted"), json!(case.message)];
    assert_eq!(said, expected, "{status:#}");
    let target = condition(&json!({ "status": status }), "DisruptionTarget");
    assert_eq!(target, None, "for a limit the kubelet writes none");

    let posted = events(cluster, &one.uid, "Evicted");
    assert_eq!(posted.len(), 1, "{posted:#?}");
    let event = &posted[0];
    let said = ["type", "message", "count"].map(|key| event[key].clone());
    let expected = [json!("Warning"), json!(case.message), json!(1)];
    assert_eq!(said, expected, "{event:#}");
    assert_eq!(event["metadata"]["annotations"], Value::Null, "{event:#}");
    let source = json!({ "component": "brink", "host": NODE });
    assert_eq!(event["source"], source);
}

/// The kubelet has looked again, and may have found the pod over its limit before it had seen the status: it says so in the same words.
fn check_words(cluster: &Cluster, one: &Started<'_>, case: &Case) {
    let posted = events(cluster, &one.uid, "Evicted");
    let is_ours = |event: &&Value| event["source"]["component"] == "brink";
    assert_eq!(posted.iter().filter(is_ours).count(), 1, "{posted:#?}");
    for event in &posted {
        assert_eq!(event["message"], case.message, "{event:#}");
    }
}

/// All three limits in one go. Kubelet and Brink would act on the same figures, and whoever looks first would come first: the kubelet
/// stands still until Brink has acted.
#[test]
fn who_is_over_a_limit_of_local_storage_goes_with_the_kubelets_words_and_its_neighbour_stays() {
    let cluster = cluster!(with_pods_here);
    let make = |case: &Case| cluster.pod(&writer(case.name, &[case.file], case.limits));
    let pods: Vec<Pod<'_>> = CASES.iter().map(make).collect();
    let files = [IN_VOLUME, IN_LAYER];
    let neighbour = cluster.pod(&writer("neighbour", &files, (WIDE, &[WIDE])));
    let over: Vec<Started<'_>> = pods.into_iter().map(Started::new).collect();
    let neighbour = Started::new(neighbour);
    let (_line, agent) = Agent::on_pods(&cluster, "enforce", "", &seen_from_outside());
    assert!(holds_in_time(|| agent.is_connected()), "{}", agent.log());

    let held = Held::kubelet();
    for one in over.iter().chain([&neighbour]) {
        one.begin();
    }
    let are_told = || over.iter().all(|one| agent.has_told(&one.uid));
    assert!(
        holds_in_time(are_told),
        "{:#?}\n{}",
        agent.decisions(),
        agent.log()
    );
    assert!(
        holds_in_time(|| knows_what_it_wrote(&agent, &neighbour.pod)),
        "{:#?}\n{}",
        agent.status().map(|status| status.storage),
        agent.log()
    );
    for (one, case) in over.iter().zip(&CASES) {
        check(&cluster, &agent, one, case);
    }

    drop(held);
    for (one, case) in over.iter().zip(&CASES) {
        let is_over = || one.is_gone() && one.pod.status()["phase"] == "Failed";
        assert!(
            holds_in_time(is_over),
            "{}\n{}",
            one.pod.described(),
            agent.log()
        );
        check_words(&cluster, one, case);
    }
    let status = neighbour.pod.status();
    assert_eq!(status["phase"], "Running", "{status:#}");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    assert!(neighbour.processes() > 0, "{}", agent.log());
    assert_eq!(agent.decisions().len(), CASES.len(), "nobody else");
}
