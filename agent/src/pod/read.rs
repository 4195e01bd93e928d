//! From a v1.Pod object to a workload. Fields that eviction does not look at are left alone.

use brink_core::node::workload::{
    Container, ContainerKind, Origin, QosClass, Resources, Stage, Toleration, TolerationOperator,
    Volume, VolumeSource, Workload,
};
use brink_host::cgroup::glob::Glob;

use super::admit::NODE_CRITICAL;
use super::resources::{read_amount, read_list, read_resources};
use super::{
    CGROUP_ANNOTATION, DIRECTORIES_ANNOTATION, EVICTION_ANNOTATION, Manifest, PodFiles, Reading,
    Wish, admit,
};
use crate::config::document::{Fields, Keys, Node, Reader, Value};
use crate::config::storage::directory;

/// Annotation of the kubelet: where a pod comes from.
const SOURCE: &str = "kubernetes.io/config.source";

/// Annotation of the kubelet: the API server's image of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Reads one pod; without a name it is none.
pub fn read_pod<'a>(reader: &mut Reader<'a>, node: &'a Node, reading: Reading) -> Option<Manifest> {
    let pod = reader.fields(node, &[], Keys::Open);
    pod.node()?;
    for (key, wanted) in [("apiVersion", "v1"), ("kind", "Pod")] {
        if let Some(node) = pod.get(key)
            && reader.text(node).is_some_and(|text| text != wanted)
        {
            reader.fault(node, "not a pod", wanted);
        }
    }
    let metadata = section(reader, pod, "metadata");
    let spec = section(reader, pod, "spec");
    let status = section(reader, pod, "status");
    let annotations = section(reader, metadata, "annotations");
    let Some(name) = label(reader, metadata, "name", reading) else {
        if metadata.get("name").is_none() {
            let at = metadata.node().unwrap_or(node);
            reader.fault(at, "the pod has no name", "metadata.name");
        }
        return None;
    };
    if name.is_empty() {
        let at = metadata.get("name").unwrap_or(node);
        reader.fault(at, "empty", "a text of at least one character");
        return None;
    }
    let mut workload = Workload {
        name,
        namespace: label(reader, metadata, "namespace", reading).unwrap_or_default(),
        uid: label(reader, metadata, "uid", reading).unwrap_or_default(),
        ..Workload::default()
    };
    read_metadata(reader, metadata, annotations, &mut workload);
    read_spec(reader, spec, reading, &mut workload);
    read_status(reader, (metadata, status), &mut workload);
    if reading == Reading::AsAdmitted {
        if let Some(uid) = uid_on_the_node(reader, annotations) {
            workload.uid = uid;
        }
        let class = spec.get("priorityClassName");
        admit::apply(reader, class, &mut workload);
    }
    Some(Manifest {
        workload,
        cgroup: annotations
            .get(CGROUP_ANNOTATION)
            .and_then(|node| read_binding(reader, node)),
        owner: owner_in(metadata.node()),
        container_ids: read_container_ids(reader, status),
        is_observed: !text(reader, status, "phase").is_empty(),
        files: read_files(reader, annotations, spec),
        wish: read_wish(reader, annotations),
        site: node.site,
    })
}

fn section<'a>(reader: &mut Reader<'a>, fields: Fields<'a>, key: &str) -> Fields<'a> {
    match fields.get(key) {
        Some(node) => reader.fields(node, &[], Keys::Open),
        None => Fields::NONE,
    }
}

fn text<'a>(reader: &mut Reader<'a>, fields: Fields<'a>, key: &str) -> String {
    let text = fields.get(key).and_then(|node| reader.text(node));
    text.unwrap_or_default().to_string()
}

/// A name or an id. The API takes no bare number for one; a scenario may be less strict, as nothing
/// hangs on it there.
fn label<'a>(
    reader: &mut Reader<'a>,
    metadata: Fields<'a>,
    key: &str,
    reading: Reading,
) -> Option<String> {
    let node = metadata.get(key)?;
    if reading == Reading::AsWritten
        && let Value::Number(number) = &node.value
    {
        let problem = "a number where the API wants a text: it refuses this until quoted";
        reader.warn(node, problem);
        return Some(number.clone());
    }
    reader.text(node).map(str::to_string)
}

/// The uid by which the kubelet names a static pod's groups: the annotation of its image in the API has it, whose own uid
/// is another.
fn uid_on_the_node<'a>(reader: &mut Reader<'a>, annotations: Fields<'a>) -> Option<String> {
    let uid = reader.text(annotations.get(MIRROR)?)?;
    (!uid.is_empty()).then(|| uid.to_string())
}

fn read_metadata<'a>(
    reader: &mut Reader<'a>,
    metadata: Fields<'a>,
    annotations: Fields<'a>,
    workload: &mut Workload,
) {
    if workload.namespace.is_empty() {
        workload.namespace = "default".to_string();
    }
    let generation = metadata.get("generation");
    workload.generation = generation
        .and_then(|node| reader.integer(node, i64::MIN, i64::MAX))
        .unwrap_or(0);
    let mut annotation = |key| reader.text(annotations.get(key)?);
    workload.origin = match (annotation(MIRROR), annotation(SOURCE)) {
        (Some(_), _) => Origin::Mirror,
        (None, Some(source)) if source != "api" => Origin::Static,
        (None, _) => Origin::Api,
    };
}

fn read_spec<'a>(
    reader: &mut Reader<'a>,
    spec: Fields<'a>,
    reading: Reading,
    workload: &mut Workload,
) {
    workload.node_critical =
        spec.get("priorityClassName").and_then(Node::scalar) == Some(NODE_CRITICAL);
    let mut integer = |key, least, most| reader.integer(spec.get(key)?, least, most);
    workload.priority = integer("priority", i64::from(i32::MIN), i64::from(i32::MAX))
        .and_then(|priority| i32::try_from(priority).ok());
    let shortest = match reading {
        Reading::AsWritten => 0,
        Reading::AsAdmitted => i64::MIN,
    };
    workload.termination_grace = integer("terminationGracePeriodSeconds", shortest, i64::MAX);
    for (key, init) in [("containers", false), ("initContainers", true)] {
        for node in spec.get(key).map_or(&[][..], |node| reader.list(node)) {
            workload
                .containers
                .push(read_container(reader, node, init, reading));
        }
    }
    workload.pod_resources = spec
        .get("resources")
        .map(|node| read_resources(reader, node, reading));
    if let Some(node) = spec.get("overhead") {
        workload.overhead = read_list(reader, node, reading);
    }
    for node in spec
        .get("volumes")
        .map_or(&[][..], |node| reader.list(node))
    {
        workload.volumes.push(read_volume(reader, node, reading));
    }
    for node in spec
        .get("tolerations")
        .map_or(&[][..], |node| reader.list(node))
    {
        workload.tolerations.push(read_toleration(reader, node));
    }
}

fn read_container<'a>(
    reader: &mut Reader<'a>,
    node: &'a Node,
    init: bool,
    reading: Reading,
) -> Container {
    let fields = reader.fields(node, &[], Keys::Open);
    let policy = text(reader, fields, "restartPolicy");
    let resources = fields.get("resources");
    Container {
        name: text(reader, fields, "name"),
        kind: match (init, policy.as_str()) {
            (false, _) => ContainerKind::Regular,
            (true, "Always") => ContainerKind::Sidecar,
            (true, _) => ContainerKind::Init,
        },
        resources: resources.map_or_else(Resources::default, |node| {
            read_resources(reader, node, reading)
        }),
    }
}

/// A volume without any source is admitted as an empty directory.
fn read_volume<'a>(reader: &mut Reader<'a>, node: &'a Node, reading: Reading) -> Volume {
    let fields = reader.fields(node, &[], Keys::Open);
    let name = text(reader, fields, "name");
    let source = if let Some(node) = fields.get("emptyDir") {
        let dir = reader.fields(node, &[], Keys::Open);
        let size_limit = dir.get("sizeLimit");
        VolumeSource::EmptyDir {
            on_disk: text(reader, dir, "medium").is_empty(),
            size_limit: size_limit.and_then(|node| read_amount(reader, node, reading)),
        }
    } else if fields.get("hostPath").is_some() {
        VolumeSource::HostPath
    } else if fields.get("configMap").is_some() {
        VolumeSource::ConfigMap
    } else if fields.get("gitRepo").is_some() {
        VolumeSource::GitRepo
    } else if reading == Reading::AsAdmitted && has_no_source(node) {
        VolumeSource::EmptyDir {
            on_disk: true,
            size_limit: None,
        }
    } else {
        VolumeSource::Other
    };
    Volume { name, source }
}

fn has_no_source(volume: &Node) -> bool {
    let mut others = volume.entries().iter().filter(|entry| entry.key != "name");
    others.all(|entry| entry.node.value == Value::Null)
}

fn read_toleration<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Toleration {
    let fields = reader.fields(node, &[], Keys::Open);
    Toleration {
        key: text(reader, fields, "key"),
        operator: match text(reader, fields, "operator").as_str() {
            "" | "Equal" => TolerationOperator::Equal,
            "Exists" => TolerationOperator::Exists,
            _ => TolerationOperator::Other,
        },
        value: text(reader, fields, "value"),
        effect: text(reader, fields, "effect"),
    }
}

/// A pod that is being deleted is still a candidate, whatever its phase.
fn read_status<'a>(
    reader: &mut Reader<'a>,
    (metadata, status): (Fields<'a>, Fields<'a>),
    workload: &mut Workload,
) {
    let phase = text(reader, status, "phase");
    let is_deleted = metadata.get("deletionTimestamp").is_some();
    workload.stage = match phase.as_str() {
        _ if is_deleted => Stage::Terminating,
        "Succeeded" | "Failed" => Stage::Terminal,
        _ => Stage::Active,
    };
    // The API takes any text here; one that names no class is as good as none.
    workload.reported_qos = match text(reader, status, "qosClass").as_str() {
        "Guaranteed" => Some(QosClass::Guaranteed),
        "Burstable" => Some(QosClass::Burstable),
        "BestEffort" => Some(QosClass::BestEffort),
        _ => None,
    };
}

/// Which containers run, or ran last. One that waits for its first start has no id.
fn read_container_ids<'a>(reader: &mut Reader<'a>, status: Fields<'a>) -> Vec<(String, String)> {
    const KEYS: [&str; 3] = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    let mut found = Vec::new();
    for key in KEYS {
        for node in status.get(key).map_or(&[][..], |node| reader.list(node)) {
            let fields = reader.fields(node, &[], Keys::Open);
            let id = text(reader, fields, "containerID");
            if let Some((_, id)) = id.split_once("://").filter(|(_, id)| !id.is_empty()) {
                found.push((text(reader, fields, "name"), id.to_string()));
            }
        }
    }
    found
}

/// The one that manages the pod, else the first of those it names. Eviction does not look at it: what is odd there is no
/// fault of the manifest's.
fn owner_in(metadata: Option<&Node>) -> Option<String> {
    let Value::List(owners) = &metadata?.get("ownerReferences")?.value else {
        return None;
    };
    let text = |owner: &Node, key: &str| {
        let text = owner.get(key).and_then(Node::scalar).unwrap_or_default();
        text.to_owned()
    };
    let is_manager = |owner: &&Node| text(owner, "controller") == "true";
    let owner = owners.iter().find(is_manager).or(owners.first())?;
    let (kind, name) = (text(owner, "kind"), text(owner, "name"));
    (!kind.is_empty() && !name.is_empty()).then(|| format!("{kind}/{name}"))
}

fn read_binding<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Option<Glob> {
    let text = reader.name(node)?;
    match Glob::new(text) {
        Ok(glob) => Some(glob),
        Err(error) => {
            let accepted = "a path below the cgroup root such as /user.slice/a.service, or a glob";
            reader.fault(node, error.to_string(), accepted);
            None
        }
    }
}

/// What the pod asks for. A word that is none is a doubt and no fault: it may not cost the other pods of the file.
fn read_wish<'a>(reader: &mut Reader<'a>, annotations: Fields<'a>) -> Option<Wish> {
    let node = annotations.get(EVICTION_ANNOTATION)?;
    let wish = match node.scalar() {
        Some("first") => Wish::First,
        Some("last") => Wish::Last,
        Some("never") => Wish::Never,
        _ => {
            reader.warn(node, "none of first, last and never: it counts for nothing");
            Wish::Unknown
        }
    };
    Some(wish)
}

/// What is odd with `hostUsers` is the API's business.
fn read_files<'a>(reader: &mut Reader<'a>, annotations: Fields<'a>, spec: Fields<'a>) -> PodFiles {
    let host_users = spec.get("hostUsers");
    let has_user_namespace = host_users.is_some_and(|node| node.scalar() == Some("false"));
    let mut files = PodFiles {
        directories: Vec::new(),
        has_user_namespace,
    };
    let Some(node) = annotations.get(DIRECTORIES_ANNOTATION) else {
        return files;
    };
    for text in reader.name(node).unwrap_or_default().split(',') {
        match directory(text.trim()) {
            Some(path) if !files.directories.contains(&path) => files.directories.push(path),
            Some(_) => {}
            None => {
                let accepted =
                    "absolute paths without . and .., separated by commas: /srv/a,/srv/b";
                reader.fault(node, format!("{text:?} is no such folder"), accepted);
            }
        }
    }
    files
}
