//! The agent as its manifests install it, for as long as a test lasts.

use std::fs;
use std::path::{Path, PathBuf};

use brink::config::document::{Limits, Origins, parse, to_json};
use brink::runtime::LOCK;
use serde_json::{Value, json};

use crate::support::{Cluster, holds_in_time};

/// Where it is installed.
pub(crate) const NAMESPACE: &str = "brink-system";
/// What the manifests call the agents.
pub(crate) const SET: &str = "brink";
/// What is the cluster's and no namespace's, and so goes by its own name.
const OF_CLUSTER: [&str; 2] = ["clusterrole", "clusterrolebinding"];

/// The installation of one test, which goes with it.
pub(crate) struct Installed<'a> {
    cluster: &'a Cluster,
    /// What stands in for `/run/brink` and `/var/lib/brink` of the machine.
    folder: PathBuf,
    objects: Vec<Value>,
}

impl<'a> Installed<'a> {
    /// Applies a variant.
    pub(crate) fn new(cluster: &'a Cluster, variant: &str) -> Self {
        Self::with(cluster, variant, &[])
    }

    /// Applies a variant and components beside it.
    pub(crate) fn with(cluster: &'a Cluster, variant: &str, components: &[&str]) -> Self {
        let folder = PathBuf::from(format!("/run/brink-test-{}", std::process::id()));
        // On a busy machine a cluster takes a namespace apart for longer than the test before has waited. Somebody's own would be
        // overwritten, and removed at the end.
        assert!(is_gone(cluster), "there is a namespace {NAMESPACE} already");
        let installed = Self {
            cluster,
            objects: fitting(cluster, &folder, (variant, components)),
            folder,
        };
        installed.apply();
        installed
    }

    /// Has the server look at another variant, of which it keeps nothing.
    pub(crate) fn try_out(&self, variant: &str) {
        let objects = fitting(self.cluster, &self.folder, (variant, &[]));
        let words = ["apply", "--dry-run=server", "-f", "-"];
        self.cluster.kubectl(&words, &list(&objects));
    }

    /// Gives the agent another drop-in, and its `ConfigMap` another name, as kustomize does.
    pub(crate) fn configure(&mut self, name: &str, drop_in: &str) {
        let map = of_kind(&mut self.objects, "ConfigMap");
        map["data"]["90-test.yaml"] = drop_in.into();
        map["metadata"]["name"] = name.into();
        let set = of_kind(&mut self.objects, "DaemonSet");
        let volumes = set["spec"]["template"]["spec"]["volumes"]
            .as_array_mut()
            .unwrap();
        let config = volumes.iter_mut().find(|volume| volume["name"] == "config");
        config.unwrap()["configMap"]["name"] = name.into();
    }

    pub(crate) fn apply(&self) {
        self.cluster
            .kubectl(&["apply", "-f", "-"], &list(&self.objects));
    }

    /// The lock of whoever enforces, in the folder that all agents here have in common.
    pub(crate) fn lock(&self) -> PathBuf {
        self.folder.join("state").join(LOCK)
    }

    /// Adds another set of agents beside the first, on the same folders of the machine: what an update starts where a server knows how
    /// to start the next pod beside the one before.
    pub(crate) fn add_set(&mut self, name: &str) {
        let mut set = of_kind(&mut self.objects, "DaemonSet").clone();
        set["metadata"]["name"] = name.into();
        for labels in ["/selector/matchLabels", "/template/metadata/labels"] {
            let labels = set["spec"].pointer_mut(labels).unwrap();
            labels["app.kubernetes.io/component"] = name.into();
        }
        self.objects.push(set);
    }

    /// Ends the agents as the page for administrators has it: while they still have their rights, and waiting for them.
    pub(crate) fn end(&self) {
        self.end_set(SET);
    }

    /// The same of the agents of one set.
    pub(crate) fn end_set(&self, name: &str) {
        self.delete_set(name, "--wait=true");
    }

    /// The same without waiting for them.
    pub(crate) fn begin_to_end(&self, name: &str) {
        self.delete_set(name, "--wait=false");
    }

    fn delete_set(&self, name: &str, wait: &str) {
        let words = ["delete", "daemonset", name, "-n", NAMESPACE];
        let how = ["--cascade=foreground", wait];
        self.cluster.kubectl(&[&words[..], &how].concat(), "");
    }

    fn set(&self, name: &str) -> Value {
        let words = ["get", "daemonset", name, "-n", NAMESPACE, "-o", "json"];
        serde_json::from_str(&self.cluster.kubectl(&words, "")).unwrap()
    }

    /// Waits until every node that is to have an agent has one that is ready, of the newest template.
    #[track_caller]
    pub(crate) fn wait_ready(&self) {
        self.wait_set_ready(SET);
    }

    /// The same of the agents of one set.
    #[track_caller]
    pub(crate) fn wait_set_ready(&self, name: &str) {
        let is_ready = || {
            let set = self.set(name);
            let status = &set["status"];
            let wanted = status["desiredNumberScheduled"].as_u64().unwrap_or(0);
            let count = |key: &str| status[key].as_u64().unwrap_or(0);
            wanted > 0
                && status["observedGeneration"] == set["metadata"]["generation"]
                && count("updatedNumberScheduled") == wanted
                && count("numberReady") == wanted
        };
        assert!(holds_in_time(is_ready), "{}", self.described());
    }

    /// The pods that are not on their way out.
    pub(crate) fn pods(&self) -> Vec<Value> {
        let words = ["get", "pods", "-n", NAMESPACE, "-o", "json"];
        let found: Value = serde_json::from_str(&self.cluster.kubectl(&words, "")).unwrap();
        let pods = found["items"].as_array().unwrap().iter();
        let staying = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        staying.cloned().collect()
    }

    /// The name of the one pod, on a cluster of one node; it has not been restarted.
    #[track_caller]
    pub(crate) fn pod(&self) -> String {
        let pods = self.pods();
        assert_eq!(pods.len(), 1, "{}", self.described());
        let container = &pods[0]["status"]["containerStatuses"][0];
        assert_eq!(container["restartCount"], 0, "{}", self.described());
        pods[0]["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// The name of the one pod of a set, on a cluster of one node.
    #[track_caller]
    pub(crate) fn pod_of(&self, set: &str) -> String {
        let mut pods = self.pods();
        pods.retain(|pod| pod["metadata"]["ownerReferences"][0]["name"] == set);
        assert_eq!(pods.len(), 1, "{}", self.described());
        pods[0]["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// What `brink` says in a pod; a doctor that has found something ends with a code of its own.
    pub(crate) fn brink(&self, pod: &str, words: &[&str]) -> Value {
        let begin = ["exec", "-n", NAMESPACE, pod, "--", "brink"];
        let words = [&begin[..], words, &["-o", "json"]].concat();
        let said = self.cluster.said(&words);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// A page of the pod's own port, by way of the API server.
    pub(crate) fn page(&self, pod: &str, path: &str) -> String {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:9820/proxy{path}");
        self.cluster.kubectl(&["get", "--raw", &path], "")
    }

    pub(crate) fn may(&self, words: &[&str]) -> bool {
        let account = format!("--as=system:serviceaccount:{NAMESPACE}:brink");
        let words = [&["auth", "can-i", &account], words].concat();
        self.cluster
            .answer(&words)
            .lines()
            .any(|line| line == "yes")
    }

    /// For whoever has to find out why it is not as it should be.
    pub(crate) fn described(&self) -> String {
        let all = ["describe", "daemonset,pods", "-n", NAMESPACE];
        let logs = [
            "logs",
            "-n",
            NAMESPACE,
            "-l",
            "app.kubernetes.io/name=brink",
            "--tail=40",
        ];
        let before = [&logs[..], &["--previous"]].concat();
        let parts = [&all[..], &logs, &before];
        parts.map(|words| self.cluster.answer(words)).join("\n")
    }
}

/// The objects of a variant as it is rendered with components beside it, but for the folders of the machine that it would write to, and
/// for what a server or a node of this cluster's age does not know.
fn fitting(cluster: &Cluster, folder: &Path, (variant, components): (&str, &[&str])) -> Vec<Value> {
    let mut objects = documents(&format!("rendered/{variant}.yaml"));
    for component in components {
        add(&mut objects, component);
    }
    let policies = cluster.kubectl(&["api-resources", "--output=name"], "");
    if !policies.contains("validatingadmissionpolicies") {
        let is_policy = |object: &Value| object["kind"].as_str().unwrap().starts_with("Validating");
        objects.retain(|object| !is_policy(object));
    }
    let minor = cluster.minor_version();
    let set = of_kind(&mut objects, "DaemonSet");
    if minor < 22 {
        set["spec"]["updateStrategy"]["rollingUpdate"] = json!({ "maxUnavailable": 1 });
    }
    let pod = &mut set["spec"]["template"]["spec"];
    if minor < 30 {
        let context = pod["containers"][0]["securityContext"].as_object_mut();
        context.unwrap().remove("appArmorProfile");
    }
    for volume in pod["volumes"].as_array_mut().unwrap() {
        let name = volume["name"].as_str().unwrap().to_owned();
        if ["state", "journal"].contains(&name.as_str()) {
            volume["hostPath"]["path"] = folder.join(name).display().to_string().into();
        }
    }
    objects
}

/// A file of the manifests, as text.
fn text(path: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes");
    fs::read_to_string(folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents of one.
pub(crate) fn documents(path: &str) -> Vec<Value> {
    let nodes = parse(text(path).as_bytes(), Origins::DEFAULT, Limits::WRITTEN).unwrap();
    nodes.iter().map(to_json).collect()
}

/// Adds a component: its objects, its files of configuration, and what patches of its own files add to other objects. The kustomize within
/// a `kubectl` of this cluster's age knows no components.
fn add(objects: &mut Vec<Value>, component: &str) {
    let within = |file: &Value| format!("components/{component}/{}", file.as_str().unwrap());
    let of = documents(&within(&json!("kustomization.yaml"))).remove(0);
    let list = |of: &Value, key: &str| of[key].as_array().cloned().unwrap_or_default();
    for file in list(&of, "resources") {
        objects.extend(documents(&within(&file)));
    }
    for files in list(&of, "configMapGenerator") {
        for file in list(&files, "files") {
            let data = &mut of_kind(objects, "ConfigMap")["data"];
            data[file.as_str().unwrap()] = text(&within(&file)).into();
        }
    }
    for patch in list(&of, "patches") {
        let patch = documents(&within(&patch["path"])).remove(0);
        merge(of_kind(objects, patch["kind"].as_str().unwrap()), &patch);
    }
}

/// Merges a patch into an object: members of lists by their place in a container, or else by their name.
fn merge(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(object), Value::Array(patch)) => {
            for member in patch {
                let is_mount = member["mountPath"].is_string();
                let key = if is_mount { "mountPath" } else { "name" };
                assert!(member[key].is_string(), "no key to merge by: {member}");
                let mut members = object.iter_mut();
                match members.find(|known| known[key] == member[key]) {
                    Some(known) => merge(known, member),
                    None => object.push(member.clone()),
                }
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

fn of_kind<'a>(objects: &'a mut [Value], kind: &str) -> &'a mut Value {
    let mut objects = objects.iter_mut();
    objects.find(|object| object["kind"] == kind).unwrap()
}

/// All of them as one object.
fn list(objects: &[Value]) -> String {
    json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()
}

/// Waits until nothing is left of the namespace, and says whether it came to that.
fn is_gone(cluster: &Cluster) -> bool {
    let words = ["get", "namespace", NAMESPACE, "--ignore-not-found"];
    holds_in_time(|| cluster.answer(&words).is_empty())
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        // A test that fails leaves nothing either. The namespace goes with all that is in it, once its pods have ended.
        for kind in OF_CLUSTER {
            let label = "app.kubernetes.io/name=brink";
            self.cluster
                .answer(&["delete", kind, "-l", label, "--ignore-not-found"]);
        }
        let words = [
            "delete",
            "namespace",
            NAMESPACE,
            "--wait=false",
            "--ignore-not-found",
        ];
        self.cluster.answer(&words);
        let _told_by_the_next = is_gone(self.cluster);
        let _gone_already = fs::remove_dir_all(&self.folder);
    }
}
