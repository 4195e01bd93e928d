//! Workloads: what is known of each pod, as its manifest and its owner say.

mod defaults;
mod table;
mod usage;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

pub use defaults::DEFAULT_TERMINATION_GRACE;
pub use table::{Row, WorkloadTable};
pub use usage::{ContainerUsage, FsUsage, PodDetail, PodUsage, VolumeUsage};

use super::signal::Signal;
use crate::base::{Quantity, Reason};

/// A pod, or whatever else is protected and evicted as one; built field by field over `default()`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Workload {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; unique, and the last word between equals.
    pub uid: String,
    /// `metadata.generation`, reported with the disruption condition.
    pub generation: i64,
    /// `spec.priority`; unset ranks as zero.
    pub priority: Option<i32>,
    /// Whether `spec.priorityClassName` is `system-node-critical`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub node_critical: bool,
    /// Where the pod comes from.
    pub origin: Origin,
    /// How far its life has come.
    pub stage: Stage,
    /// `spec.terminationGracePeriodSeconds`.
    pub termination_grace: Option<i64>,
    /// `status.qosClass` if it is set; computed from the resources otherwise.
    pub reported_qos: Option<QosClass>,
    /// Containers and init containers, in the order of the manifest: containers first.
    pub containers: Vec<Container>,
    /// `spec.resources`: `None` if the field is absent, which is not the same as empty.
    pub pod_resources: Option<Resources>,
    /// `spec.overhead`.
    pub overhead: ResourceList,
    /// `spec.volumes`.
    pub volumes: Vec<Volume>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Brink's own wish for the order; the kubelet knows none.
    pub preference: Preference,
    /// Whose word that is.
    #[cfg_attr(feature = "serde", serde(default))]
    pub preference_by: PreferenceBy,
    /// Why Brink must never kill it, if so; the kubelet knows none.
    pub protection: Option<Protection>,
    /// Whether a kubelet runs it: that starts again what was killed until it has heard of the eviction, and memory in the
    /// pod's volumes comes back when it unmounts them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub by_kubelet: bool,
    /// Whether it lies beside the cgroup that all pods live in, if one is named: on the kubelet there are no such pods.
    pub outside_pods: bool,
}

/// `namespace/name`; a cgroup without a name of its own is called by its path, which begins with a slash already.
pub fn full_name(namespace: &str, name: &str) -> String {
    let between = if name.starts_with('/') { "" } else { "/" };
    format!("{namespace}{between}{name}")
}

/// Where a pod comes from; static and mirror pods are critical.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Origin {
    /// The API server, or no source at all.
    #[default]
    Api,
    /// A manifest on the node: annotation `kubernetes.io/config.source` other than `api`.
    Static,
    /// The API server's image of a static pod: annotation `kubernetes.io/config.mirror`.
    Mirror,
}

/// How far a pod's life has come, as far as eviction cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Stage {
    /// Pending or running.
    #[default]
    Active,
    /// Being terminated; still a candidate.
    Terminating,
    /// Phase Succeeded or Failed and not being terminated; no candidate.
    Terminal,
    /// All its containers are gone; no candidate.
    Finished,
}

/// Kubernetes' quality of service class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum QosClass {
    /// No CPU or memory request or limit anywhere.
    #[default]
    BestEffort,
    /// Neither of the others.
    Burstable,
    /// Every container requests exactly its limits of CPU and memory.
    Guaranteed,
}

/// Brink's own place in the order, before every rule of the kubelet's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Preference {
    /// Goes before all others.
    Prefer,
    /// As the kubelet ranks it.
    #[default]
    Normal,
    /// Goes after all others.
    Avoid,
}

/// Whose word a preference is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PreferenceBy {
    /// The node's: its configuration's, or that of who owns the cgroup.
    #[default]
    Node,
    /// That of the pod's own annotation.
    Annotation,
}

/// Why Brink must never kill a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Protection {
    /// Process 1 and its own scope.
    Init,
    /// Login, journal, device and bus services, and the session that started us.
    System,
    /// The container runtime, its shims, or the kubelet.
    Runtime,
    /// Ourselves.
    Brink,
    /// `user.oomd_omit` on its cgroup.
    OomdOmit,
    /// The configuration's ignore patterns.
    Configured,
    /// A pod in which nobody that runs is known as one of its containers.
    Unrecognized,
    /// The pod's own annotation, where the configuration allows it; any other reason comes before it.
    Annotated,
}

impl Protection {
    /// The word for it where somebody is told why a workload refuses.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Annotated => Reason::Annotated,
            Self::Init
            | Self::System
            | Self::Runtime
            | Self::Brink
            | Self::OomdOmit
            | Self::Configured
            | Self::Unrecognized => Reason::Protected,
        }
    }
}

/// One container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Container {
    /// `name`.
    pub name: String,
    /// In which phase of the pod it runs.
    pub kind: ContainerKind,
    /// `resources`.
    pub resources: Resources,
}

/// In which phase of the pod a container runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ContainerKind {
    /// An ordinary container.
    #[default]
    Regular,
    /// An init container that runs to its end before the next starts.
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
}

/// `resources` of a container or of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Resources {
    /// `requests`.
    pub requests: ResourceList,
    /// `limits`.
    pub limits: ResourceList,
}

/// The entries of a resource list that eviction looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ResourceList {
    /// `cpu`, in cores.
    pub cpu: Option<Quantity>,
    /// `memory`, in bytes.
    pub memory: Option<Quantity>,
    /// `ephemeral-storage`, in bytes.
    pub ephemeral_storage: Option<Quantity>,
    /// Whether there is any `hugepages-…` entry; only its presence matters, and only on pod level.
    pub hugepages: bool,
}

/// One volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Volume {
    /// `name`.
    pub name: String,
    /// What backs it.
    pub source: VolumeSource,
}

/// What backs a volume, as far as eviction tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum VolumeSource {
    /// `emptyDir`.
    EmptyDir {
        /// Whether `medium` is the default one, the node's disk; not memory or huge pages.
        on_disk: bool,
        /// `sizeLimit`.
        size_limit: Option<Quantity>,
    },
    /// `hostPath`.
    HostPath,
    /// `configMap`.
    ConfigMap,
    /// `gitRepo`.
    GitRepo,
    /// A folder that Brink was told of: no pod has one, and it counts like those that a pod has on the node's disk.
    Directory,
    /// Anything else.
    Other,
}

/// A toleration of a node taint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Toleration {
    /// `key`; empty matches every key.
    pub key: String,
    /// `operator`.
    pub operator: TolerationOperator,
    /// `value`.
    pub value: String,
    /// `effect`; empty matches every effect.
    pub effect: String,
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum TolerationOperator {
    /// `Equal`, also when left out.
    #[default]
    Equal,
    /// `Exists`.
    Exists,
    /// Any other word; a pressure taint has no number to compare, so it never matches.
    Other,
}

impl VolumeSource {
    /// Whether it takes local disk and goes with the pod: counted against ephemeral-storage limits.
    pub const fn is_local_ephemeral(self) -> bool {
        matches!(
            self,
            Self::EmptyDir { on_disk: true, .. }
                | Self::ConfigMap
                | Self::GitRepo
                | Self::Directory
        )
    }

    /// Whether it is counted when pods are ranked by disk: the former, and host paths.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::HostPath) || self.is_local_ephemeral()
    }
}

/// Priority at and above which a pod is critical.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;

impl Workload {
    /// Whether the kubelet refuses to evict it: static, mirror, or of critical priority.
    pub fn is_critical(&self) -> bool {
        self.refusal().is_some()
    }

    /// Why the kubelet refuses to evict it, if it does.
    pub fn refusal(&self) -> Option<Reason> {
        match (self.origin, self.priority) {
            (Origin::Static, _) => Some(Reason::Static),
            (Origin::Mirror, _) => Some(Reason::Mirror),
            (Origin::Api, Some(CRITICAL_PRIORITY..)) => Some(Reason::Critical),
            (Origin::Api, _) => None,
        }
    }

    /// Why it is never evicted, if so: the kubelet refuses, or it is protected.
    pub fn spared(&self) -> Option<Reason> {
        self.refusal().or(self.protection.map(Protection::reason))
    }

    /// Whether what it holds has no part in what the signal measures: allocatable memory is that of the pods.
    pub fn is_outside(&self, signal: Signal) -> bool {
        self.outside_pods && signal == Signal::AllocatableMemoryAvailable
    }

    /// Why it is not evicted for `signal`, if so: it never is, or would give nothing back to it.
    pub fn spared_from(&self, signal: Signal) -> Option<Reason> {
        let outside = self.is_outside(signal).then_some(Reason::Outside);
        self.spared().or(outside)
    }

    /// Whether it can be ranked at all: mirror pods and pods whose life is over cannot.
    pub const fn is_candidate(&self) -> bool {
        !matches!(self.origin, Origin::Mirror)
            && matches!(self.stage, Stage::Active | Stage::Terminating)
    }
}
