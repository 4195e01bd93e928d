//! Reads a scenario: configuration, pods as v1.Pod objects, and steps.

use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::observe::{Layout, Observation, Observations};
use brink_core::node::policy::Draft;
use brink_core::node::signal::Signal;
use brink_core::node::workload::{
    Container, ContainerKind, ContainerUsage, FsUsage, Origin, PodDetail, PodUsage, ResourceList,
    Resources, Toleration, TolerationOperator, Volume, VolumeSource, VolumeUsage, Workload,
};
use serde_json::Value;

pub(crate) struct Scenario {
    pub(crate) draft: Draft,
    pub(crate) layout: Layout,
    pub(crate) pods: Vec<Workload>,
    pub(crate) steps: Vec<Step>,
}

pub(crate) struct Step {
    /// As written, for the line that is printed.
    pub(crate) at: String,
    pub(crate) now: Moment,
    /// `namespace/name` of pods that ended before this step.
    pub(crate) gone: Vec<String>,
    pub(crate) seen: Observations,
    pub(crate) after_reclaim: Observations,
    usage: Value,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A quantity or a plain number.
fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.parse().unwrap()),
        number => Some(number.to_string().parse().unwrap()),
    }
}

fn number(value: &Value) -> Option<u64> {
    quantity(value).map(|quantity| quantity.value().cast_unsigned())
}

impl Scenario {
    pub(crate) fn read(value: &Value) -> Self {
        assert_eq!(value["apiVersion"], "brink.dev/v1alpha1");
        assert_eq!(value["kind"], "Scenario");
        let config = value
            .get("config")
            .cloned()
            .unwrap_or_else(|| Value::Object(serde_json::Map::default()));
        let layout = match value["filesystems"].as_str() {
            None | Some("single") => Layout::Single,
            Some("dedicatedImagefs") => Layout::DedicatedImagefs,
            Some("split") => Layout::Split,
            Some(other) => panic!("filesystems: {other}"),
        };
        let draft: Draft = serde_json::from_value(config).unwrap();
        Self {
            draft: draft.with_defaults(),
            layout,
            pods: list(&value["pods"]).iter().map(workload).collect(),
            steps: list(&value["steps"]).iter().map(Step::read).collect(),
        }
    }
}

impl Step {
    fn read(value: &Value) -> Self {
        let at = text(&value["at"]);
        let now = Moment::START + at.parse::<Span>().unwrap();
        let seen = observations(&value["signals"], now, Observations::default());
        Self {
            now,
            at,
            gone: list(&value["gone"]).iter().map(text).collect(),
            seen,
            after_reclaim: observations(&value["afterReclaim"], now, seen),
            usage: value["usage"].clone(),
        }
    }

    /// What the pod uses in this step; without an entry it has no statistics.
    pub(crate) fn usage_of(&self, pod: &Workload) -> (Option<PodUsage>, PodDetail) {
        let Some(usage) = self.usage.get(format!("{}/{}", pod.namespace, pod.name)) else {
            return (None, PodDetail::default());
        };
        let detail = detail(usage, pod);
        let fs = |key: &str| fs_usage(&usage[key]);
        let figures = PodUsage {
            memory: number(&usage["memory"]).or(detail.containers_memory()),
            processes: Some(number(&usage["processes"]).unwrap_or(0)),
            rootfs: fs("rootfs"),
            logs: fs("logs"),
            volumes: detail.local_volumes(pod),
        };
        (Some(figures), detail)
    }
}

fn observations(signals: &Value, now: Moment, mut seen: Observations) -> Observations {
    for (name, value) in signals.as_object().into_iter().flatten() {
        let signal: Signal = name.parse().unwrap();
        let at = value["time"]
            .as_str()
            .map(|at| Moment::START + at.parse::<Span>().unwrap());
        let figure = |key: &str| quantity(&value[key]).unwrap().value();
        seen[signal] = Some(Observation {
            available: figure("available"),
            capacity: figure("capacity"),
            at: Some(at.unwrap_or(now)),
        });
    }
    seen
}

/// Left out is zero.
fn fs_usage(value: &Value) -> FsUsage {
    let figure = |key: &str| Some(number(&value[key]).unwrap_or(0));
    FsUsage {
        bytes: figure("bytes"),
        inodes: figure("inodes"),
    }
}

/// Containers in the order of the manifest, which is the order of sentences in messages.
fn detail(usage: &Value, pod: &Workload) -> PodDetail {
    let container = |container: &Container| {
        let value = usage["containers"].get(&container.name)?;
        Some(ContainerUsage {
            name: container.name.clone(),
            memory: Some(number(&value["memory"]).unwrap_or(0)),
            rootfs: fs_usage(&value["rootfs"]),
            logs: fs_usage(&value["logs"]),
        })
    };
    let volumes = usage["volumes"].as_object().into_iter().flatten();
    let volume = |(name, value): (&String, &Value)| VolumeUsage {
        name: name.clone(),
        used: fs_usage(value),
    };
    PodDetail {
        containers: pod.containers.iter().filter_map(container).collect(),
        volumes: volumes.map(volume).collect(),
        ..PodDetail::default()
    }
}

fn workload(pod: &Value) -> Workload {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let annotation = |key: &str| metadata["annotations"][key].as_str();
    let origin = match annotation("kubernetes.io/config.source") {
        _ if annotation("kubernetes.io/config.mirror").is_some() => Origin::Mirror,
        Some(source) if source != "api" => Origin::Static,
        _ => Origin::Api,
    };
    let regular = list(&spec["containers"])
        .iter()
        .map(|c| container(c, ContainerKind::Regular));
    let init = list(&spec["initContainers"]).iter().map(|c| {
        let sidecar = c["restartPolicy"] == "Always";
        container(
            c,
            if sidecar {
                ContainerKind::Sidecar
            } else {
                ContainerKind::Init
            },
        )
    });
    Workload {
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        priority: spec["priority"]
            .as_i64()
            .map(|priority| i32::try_from(priority).unwrap()),
        origin,
        termination_grace: spec["terminationGracePeriodSeconds"].as_i64(),
        containers: regular.chain(init).collect(),
        pod_resources: spec.get("resources").map(resources),
        overhead: resource_list(&spec["overhead"]),
        volumes: list(&spec["volumes"]).iter().map(volume).collect(),
        tolerations: list(&spec["tolerations"]).iter().map(toleration).collect(),
        ..Workload::default()
    }
}

fn container(value: &Value, kind: ContainerKind) -> Container {
    Container {
        name: text(&value["name"]),
        kind,
        resources: resources(&value["resources"]),
    }
}

fn resources(value: &Value) -> Resources {
    let list = |key: &str| resource_list(&value[key]);
    Resources {
        requests: list("requests"),
        limits: list("limits"),
    }
}

fn resource_list(value: &Value) -> ResourceList {
    let keys = value.as_object().into_iter().flatten();
    ResourceList {
        cpu: quantity(&value["cpu"]),
        memory: quantity(&value["memory"]),
        ephemeral_storage: quantity(&value["ephemeral-storage"]),
        hugepages: keys
            .into_iter()
            .any(|(key, _)| key.starts_with("hugepages-")),
    }
}

fn volume(value: &Value) -> Volume {
    let source = if let Some(dir) = value.get("emptyDir") {
        let on_disk = dir["medium"].as_str().unwrap_or_default().is_empty();
        VolumeSource::EmptyDir {
            on_disk,
            size_limit: quantity(&dir["sizeLimit"]),
        }
    } else if value.get("hostPath").is_some() {
        VolumeSource::HostPath
    } else if value.get("configMap").is_some() {
        VolumeSource::ConfigMap
    } else if value.get("gitRepo").is_some() {
        VolumeSource::GitRepo
    } else {
        VolumeSource::Other
    };
    Volume {
        name: text(&value["name"]),
        source,
    }
}

fn toleration(value: &Value) -> Toleration {
    Toleration {
        key: text(&value["key"]),
        operator: match value["operator"].as_str() {
            None | Some("" | "Equal") => TolerationOperator::Equal,
            Some("Exists") => TolerationOperator::Exists,
            Some(_) => TolerationOperator::Other,
        },
        value: text(&value["value"]),
        effect: text(&value["effect"]),
    }
}
