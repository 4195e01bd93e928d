//! What of a runtime's holdings would be removed, in order, and why the rest stays: pure functions, and so the dry run.
//!
//! The rules are the kubelet's, and where it knows more than the runtime tells, or dares more, ours are narrower:
//!
//! - Dead containers: of each (pod, container name) all but the newest one, which the kubelet needs for restart counts and, with the
//!   restart policy Never, to know that the container has run; of a pod that is over, all. The oldest go first.
//! - Dead is who has ended. The kubelet also removes containers that were created and not started, and kills those of an unknown
//!   state to remove them; it can, since it is the one who starts them.
//! - Sandboxes and log folders, which the kubelet cleans up on the way, are left alone: they hold next to nothing.
//! - Images that no container uses, in whatever state: the longest unused first, then the longest known. Not those that are pinned,
//!   or seen first less than two minutes ago: somebody may be about to use them. Those of the first look count as old.
//! - What sandboxes are made of stays also where the runtime does not pin it.

use std::collections::{BTreeMap, BTreeSet};

use brink_core::base::{Moment, Span};
use brink_core::node::reclaim::Reclaim;

use crate::state::{Container, Image, Layers, Pod, State, Written};
use crate::usage::Records;

/// What may be removed, beside what never is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Dead containers that are kept of each (pod, container name), the newest: the kubelet's `maximum-dead-containers-per-container`.
    pub kept_containers: usize,
    /// An image that was first seen less than this ago stays: the kubelet's `imageMinimumGCAge`.
    pub image_min_age: Span,
    /// Whether to remove anything while a kubelet owns the runtime, which has a garbage collector of its own.
    pub beside_kubelet: bool,
}

impl Default for Policy {
    /// The kubelet's defaults; nothing where there is a kubelet.
    fn default() -> Self {
        Self {
            kept_containers: 1,
            image_min_age: Span::from_secs(120),
            beside_kubelet: false,
        }
    }
}

/// What is known of a pod from whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is to run.
    Lives,
    /// It was deleted, or has succeeded or failed for good.
    Over,
    /// Nobody knows; treated as if it lived.
    Unknown,
}

/// Tells a pod's fate.
pub type Fates<'a> = dyn Fn(&Pod) -> Fate + Sync + 'a;

/// A dead container that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadContainer {
    /// What the runtime calls it.
    pub id: String,
    /// Whose it is.
    pub pod: Pod,
    /// What it is called there.
    pub name: String,
    /// Which one of that name.
    pub attempt: u32,
    /// What its removal frees, if the runtime says so.
    pub frees: Option<Written>,
}

/// An unused image that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedImage {
    /// What the runtime calls it.
    pub id: String,
    /// For which runtime handler it is.
    pub handler: String,
    /// The name that people know it by.
    pub name: String,
    /// How large it is, in bytes: the most that its removal frees.
    pub bytes: u64,
}

/// Why something that could have gone stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stays {
    /// A container uses the image.
    InUse,
    /// The runtime has pinned it.
    Pinned,
    /// Sandboxes are made of it.
    OfSandboxes,
    /// It has not been here for long.
    Young,
    /// It is not known for how long it has been here.
    Unseen,
    /// A container does not say what image it uses: it may be this one.
    Unnamed,
}

impl Stays {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::InUse => "inUse",
            Self::Pinned => "pinned",
            Self::OfSandboxes => "ofSandboxes",
            Self::Young => "young",
            Self::Unseen => "unseen",
            Self::Unnamed => "unnamed",
        }
    }
}

/// What would be removed, in this order, and which images would not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Dead containers, the first first.
    pub containers: Vec<DeadContainer>,
    /// Unused images, the first first.
    pub images: Vec<UnusedImage>,
    /// Images that stay, each with the reason.
    pub kept: Vec<(String, Stays)>,
    /// A kubelet owns the runtime, and the policy leaves it to that: nothing of this is going to happen.
    pub left_to_kubelet: bool,
}

impl Plan {
    /// What it frees at most, in bytes: images that share layers free less.
    pub fn frees_bytes(&self) -> u64 {
        let layers = self.containers.iter().filter_map(|one| one.frees);
        let layers = layers.map(|layer| layer.bytes);
        let images = self.images.iter().map(|one| one.bytes);
        layers.chain(images).fold(0, u64::saturating_add)
    }
}

/// What would be removed in these ways, one after the other: images of containers that go before are unused then.
pub fn plan(ways: &[Reclaim], state: &State, policy: &Policy, known: &Known<'_>) -> Plan {
    let mut left = state.clone();
    let mut plan = Plan {
        left_to_kubelet: state.is_kubelets() && !policy.beside_kubelet,
        ..Plan::default()
    };
    for way in ways {
        match way {
            Reclaim::DeadContainers => {
                let dead = dead_containers(&left, policy, known);
                let gone: BTreeSet<&str> = dead.iter().map(|one| one.id.as_str()).collect();
                left.containers
                    .retain(|one| !gone.contains(one.id.as_str()));
                plan.containers.extend(dead);
            }
            Reclaim::UnusedImages => {
                let (unused, kept) = unused_images(&left, policy, known);
                plan.images.extend(unused);
                plan.kept.extend(kept);
            }
        }
    }
    plan
}

/// What is known beside what the runtime holds.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Of pods.
    pub fates: &'a Fates<'a>,
    /// Of images.
    pub records: &'a Records,
    /// Of what containers have written.
    pub layers: &'a Layers,
    /// The time, by the clock of the records.
    pub now: Moment,
}

impl std::fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known")
            .field("records", &self.records.len())
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// The dead containers that go, the first first.
pub fn dead_containers(state: &State, policy: &Policy, known: &Known<'_>) -> Vec<DeadContainer> {
    let alive = state.containers.iter().filter(|one| !one.is_dead());
    let alive: BTreeSet<&str> = alive.map(|one| one.id.as_str()).collect();
    let is_dead = |one: &&Container| one.is_dead() && !alive.contains(one.id.as_str());
    let mut units: BTreeMap<(&Pod, &str), Vec<&Container>> = BTreeMap::new();
    for container in state.containers.iter().filter(is_dead) {
        let unit = units.entry((&container.pod, &container.name)).or_default();
        unit.push(container);
    }
    let mut going: Vec<(bool, Vec<&Container>)> = Vec::new();
    for ((pod, _), mut unit) in units {
        unit.sort_by_key(|one| (one.attempt, one.created_at, &one.id));
        let is_over = (known.fates)(pod) == Fate::Over;
        let kept = if is_over { 0 } else { policy.kept_containers };
        unit.truncate(unit.len().saturating_sub(kept));
        going.push((!is_over, unit));
    }
    // Pods that are over first: nobody asks for theirs any more. Then by age; what is left of a tie, the order of names decides.
    going.sort_by_key(|(lives, unit)| (*lives, unit.iter().map(|one| one.created_at).min()));
    let going = going.into_iter().flat_map(|(_, unit)| unit);
    going.map(|one| dead(one, known.layers)).collect()
}

fn dead(container: &Container, layers: &Layers) -> DeadContainer {
    DeadContainer {
        id: container.id.clone(),
        pod: container.pod.clone(),
        name: container.name.clone(),
        attempt: container.attempt,
        frees: layers.get(&container.id).copied(),
    }
}

/// The unused images that go, the first first, and the others with what keeps them.
pub fn unused_images(
    state: &State,
    policy: &Policy,
    known: &Known<'_>,
) -> (Vec<UnusedImage>, Vec<(String, Stays)>) {
    let mut going = Vec::new();
    let mut kept = Vec::new();
    for image in &state.images {
        match judge(image, state, policy, known) {
            Ok(order) => going.push((order, image)),
            Err(stays) => kept.push((image.in_words().to_owned(), stays)),
        }
    }
    going.sort_by_key(|(order, image)| (*order, &image.id, &image.handler));
    let going = going.into_iter().map(|(_, image)| UnusedImage {
        id: image.id.clone(),
        handler: image.handler.clone(),
        name: image.in_words().to_owned(),
        bytes: image.bytes,
    });
    (going.collect(), kept)
}

/// When an image was last used, and never comes before ever; then when it was first seen, and those of the first look come before all.
type Order = (Option<Moment>, Option<Moment>);

/// Where an image stands among those that go, or why it stays.
///
/// # Errors
/// [`Stays`].
pub fn judge(
    image: &Image,
    state: &State,
    policy: &Policy,
    known: &Known<'_>,
) -> Result<Order, Stays> {
    // One identity may be there for several runtime handlers, and not every runtime removes it for one alone.
    let same = || state.images.iter().filter(|own| own.id == image.id);
    if same().any(|own| own.is_pinned) {
        return Err(Stays::Pinned);
    }
    if state
        .containers
        .iter()
        .any(|one| same().any(|own| one.uses(own)))
    {
        return Err(Stays::InUse);
    }
    // Its image would pass for unused.
    if state.containers.iter().any(|one| one.images.is_empty()) {
        return Err(Stays::Unnamed);
    }
    let told = &state.sandbox_images;
    let is_of_sandboxes = |own: &Image| {
        own.names.iter().any(|name| is_for_sandboxes(name))
            || told.iter().any(|name| own.is_called(name))
    };
    if same().any(is_of_sandboxes) {
        return Err(Stays::OfSandboxes);
    }
    let record = known.records.of(image).ok_or(Stays::Unseen)?;
    let is_young = |seen: Moment| known.now.since(seen) < policy.image_min_age;
    if record.first_seen.is_some_and(is_young) {
        return Err(Stays::Young);
    }
    Ok((record.last_used, record.first_seen))
}

/// Whether an image is called like those that hold a pod's namespaces, as `registry.k8s.io/pause:3.9` or
/// `rancher/mirrored-pause:3.6`: older runtimes do not pin them.
fn is_for_sandboxes(name: &str) -> bool {
    let path = name.split('@').next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    let last = last.split(':').next().unwrap_or_default();
    last.split(['-', '_']).any(|word| word == "pause")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
