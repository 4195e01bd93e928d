//! What each container, and each workload that is one whole, should have.

use std::sync::Arc;

use brink_core::node::oom_score::{Score, of_container, of_whole};
use brink_core::node::workload::{Protection, QosClass, Workload};
use brink_host::cgroup::pod::PodMember;
use brink_host::kill::KillTarget;

use crate::config::OomScores;
use crate::guard::roster::Group;
use crate::pod::container_name;

/// A container, or a workload that is one whole, and what it should have.
#[derive(Clone, Debug)]
pub struct Audited {
    /// Namespace, name and uid of the workload.
    pub workload: (String, String, String),
    /// The container's name; none of a whole workload, and where it is not known which it is.
    pub container: Option<String>,
    /// Where it lives.
    pub group: Arc<Group>,
    /// Which of the group's victims it is.
    pub part: usize,
    /// What its processes should have.
    pub score: Score,
    /// Whose word that is.
    pub runner: Runner,
}

/// Who answers for the value of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A kubelet sets it.
    Kubelet,
    /// Nobody, and requests or a manifest say what it should be.
    Written,
    /// Nobody, and nothing says what it should be: by the kubelet's rule the kernel takes it first.
    Assumed,
}

/// What is known of a workload beside its description.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// Names and ids of its containers, of a kubelet's pod.
    pub containers: Option<&'a [(String, String)]>,
    /// Whether it is a control group without a manifest.
    pub is_pattern: bool,
    /// The node's memory, bytes.
    pub capacity: i64,
}

impl Audited {
    /// The control group that it lives in.
    pub fn target(&self) -> Option<&KillTarget> {
        self.group.victims().get(self.part)
    }
}

impl OomScores {
    /// Whether these are looked at.
    pub const fn looks_at(self, runner: Runner) -> bool {
        match self {
            Self::Off => false,
            Self::Audit => !matches!(runner, Runner::Assumed),
            Self::Set => true,
        }
    }

    /// Whether these are given the value they should have, where orders are carried out.
    pub const fn sets(self, runner: Runner) -> bool {
        matches!(self, Self::Set) && !matches!(runner, Runner::Kubelet)
    }
}

/// What the containers in these groups of a workload should have.
pub fn expect<'a>(
    workload: &'a Workload,
    groups: impl Iterator<Item = &'a Arc<Group>>,
    of: Of<'a>,
) -> Vec<Audited> {
    let runner = match of.containers {
        Some(_) => Runner::Kubelet,
        None if is_written(workload, of) => Runner::Written,
        None => Runner::Assumed,
    };
    if is_left_alone(workload.protection, runner) {
        return Vec::new();
    }
    let parts = groups.flat_map(|group| (0..group.victims().len()).map(move |part| (group, part)));
    let audited = parts.filter_map(|(group, part)| {
        let (container, score) = match of.containers {
            Some(known) => {
                let name = name_of(group.victims().get(part)?, known);
                (name, of_container(workload, name, of.capacity)?)
            }
            None => (None, of_whole(workload, of.capacity)?),
        };
        Some(Audited {
            workload: (
                workload.namespace.clone(),
                workload.name.clone(),
                workload.uid.clone(),
            ),
            container: container.map(str::to_owned),
            group: Arc::clone(group),
            part,
            score,
            runner,
        })
    });
    audited.collect()
}

/// Whether anything was written that the value follows from.
fn is_written(workload: &Workload, of: Of<'_>) -> bool {
    !of.is_pattern || brink_core::node::requests::qos_class(workload) != QosClass::BestEffort
}

/// Whether it has a value of its own for a reason: the system's services by their units, ourselves, the runtime. What the
/// configuration, an owner or a pod itself protects from us is not touched; a kubelet's word holds for it all the same.
const fn is_left_alone(protection: Option<Protection>, runner: Runner) -> bool {
    match protection {
        None => false,
        Some(Protection::Configured | Protection::OomdOmit | Protection::Annotated) => {
            !matches!(runner, Runner::Kubelet)
        }
        Some(
            Protection::Init
            | Protection::System
            | Protection::Runtime
            | Protection::Brink
            | Protection::Unrecognized,
        ) => true,
    }
}

/// The name of the container that the last part of the path is the id of.
fn name_of<'a>(target: &KillTarget, known: &'a [(String, String)]) -> Option<&'a str> {
    let last = target.dir().group().rsplit('/').next().unwrap_or_default();
    let PodMember::Container(id) = PodMember::of(last) else {
        return None;
    };
    container_name(known, &id)
}
