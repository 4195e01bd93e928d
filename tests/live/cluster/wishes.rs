//! Who is passed over: a critical pod, and who asks for that by an annotation in a namespace that the node's configuration names.

use brink::record::wire::RankedWorkload;
use serde_json::{Value, json};

use crate::agent::knows;
use crate::manifest::{GO, container, pod_of, waiting};
use crate::running::Agent;
use crate::support::{Cluster, commands_in, holds_in_time, write_inside};
use crate::{group_of, wait_running};

/// By which a pod asks.
const ANNOTATION: &str = "brink.dev/eviction";
/// Where a cluster has the pods that it cannot do without.
const SYSTEM: &str = "kube-system";

/// A namespace; it goes with this, and with it whatever is in it.
struct Namespace<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl<'a> Namespace<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let name = format!("wishes-{}", std::process::id());
        cluster.kubectl(&["create", "namespace", &name], "");
        let namespace = Self { cluster, name };
        wait_account(cluster, &namespace.name);
        namespace
    }
}

/// Without an account no pod is taken; a controller makes it.
fn wait_account(cluster: &Cluster, place: &str) {
    let words = ["get", "serviceaccount", "default", "--namespace", place];
    assert!(
        holds_in_time(|| cluster.answers(&words)),
        "nobody makes an account in {place}"
    );
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        let words = ["delete", "namespace", self.name.as_str(), "--wait=false"];
        self.cluster.answers(&words);
    }
}

/// A pod of a namespace that only sleeps. It has requested nothing, so that it holds more than it has requested.
fn sleeper(namespace: &str, name: &str) -> Value {
    let name = format!("{name}-{}", std::process::id());
    let sleeps = container("sleeper", &["sleep", "3600"], &json!({}));
    let mut pod = pod_of(&name, &[sleeps]);
    pod["metadata"]["namespace"] = json!(namespace);
    // The account may have no token yet.
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    pod
}

/// The same, which asks for something.
fn wishing(namespace: &Namespace<'_>, wish: &str) -> Value {
    let mut pod = sleeper(&namespace.name, wish);
    pod["metadata"]["annotations"][ANNOTATION] = json!(wish);
    pod
}

/// The same, which the cluster cannot do without.
fn critical(cluster: &Cluster) -> Value {
    wait_account(cluster, SYSTEM);
    let mut pod = sleeper(SYSTEM, "critical");
    pod["spec"]["priorityClassName"] = json!("system-cluster-critical");
    pod
}

/// A pod of the cluster's own namespace that takes more than there is room for once it is told to, and less than it has requested.
fn leaker(wish: &str) -> Value {
    let resources = json!({ "requests": { "memory": "300Mi" }, "limits": { "memory": "400Mi" } });
    let name = format!("foreign-{}", std::process::id());
    let leak = "exec dd if=/dev/zero of=/dev/null bs=250M";
    let mut pod = waiting(&name, &[leak], &resources);
    pod["metadata"]["annotations"][ANNOTATION] = json!(wish);
    pod
}

/// By the kubelet's rules all sleepers would go first, as they hold more than they have requested. One of them may not go, another one
/// only after all others, and a third one is critical, which the kubelet ranks and then refuses; what the leaker asks for counts for
/// nothing.
#[test]
fn a_critical_pod_is_passed_over_and_what_pods_ask_for_counts_where_the_node_says_so() {
    let cluster = cluster!(with_pods_here);
    let namespace = Namespace::new(&cluster);
    let never = cluster.pod(&wishing(&namespace, "never"));
    let last = cluster.pod(&wishing(&namespace, "last"));
    let critical = cluster.pod(&critical(&cluster));
    let foreign = cluster.pod(&leaker("never"));
    let sleepers = [&never, &last, &critical].map(|pod| (pod, group_of(&wait_running(pod))));
    let found = wait_running(&foreign);
    let uid = found["metadata"]["uid"].as_str().unwrap();
    let settings = format!("annotationNamespaces: [{}]\n", namespace.name);
    let (_line, agent) = Agent::on_pods(&cluster, "enforce", "", &settings);
    assert!(holds_in_time(|| knows(&agent, &foreign)), "{}", agent.log());

    write_inside(&group_of(&found), GO, "go");
    agent.wait_told(uid);
    let record = agent.decision(uid).unwrap();
    let place = |one: &RankedWorkload| {
        let (name, preference) = (one.full_name(), one.preference_words());
        (name, preference, one.refusal.clone())
    };
    let ranking: Vec<_> = record.ranking.iter().map(place).collect();
    let expected = |name: String, preference: &str, refusal: Option<&str>| {
        (name, preference.to_owned(), refusal.map(str::to_owned))
    };
    let [never_name, last_name] =
        [&never, &last].map(|pod| format!("{}/{}", namespace.name, pod.name));
    let foreign_name = format!("default/{}", foreign.name);
    let critical_name = format!("{SYSTEM}/{}", critical.name);
    assert_eq!(
        ranking,
        [
            expected(never_name.clone(), "normal", Some("annotated")),
            expected(critical_name.clone(), "normal", Some("critical")),
            expected(foreign_name.clone(), "normal", None),
            expected(last_name.clone(), "avoid (annotation)", None),
        ],
        "{record:#?}"
    );
    let why = [
        format!(
            "{never_name} was ranked before it, and refuses: its annotation {ANNOTATION} says never (annotated)."
        ),
        format!(
            "{critical_name} was ranked before it, and refuses: its priority makes it critical (critical)."
        ),
        format!(
            "{foreign_name} goes before {last_name}: its preference is normal, the other's avoid (annotation)."
        ),
    ];
    assert_eq!(record.why, why);
    let nothing = format!(
        "{ANNOTATION} of pods in the namespace default: annotationNamespaces does not name it"
    );
    let log = agent.log();
    assert!(log.contains(&nothing), "{log}");
    let counting = format!("namespace {}:", namespace.name);
    assert!(!log.contains(&counting), "{log}");

    for (pod, group) in &sleepers {
        assert_eq!(commands_in(group), ["/busybox sleep 3600"]);
        assert_eq!(pod.status()["phase"], "Running");
    }
    assert_eq!(agent.decisions().len(), 1, "nobody else: {log}");
}
