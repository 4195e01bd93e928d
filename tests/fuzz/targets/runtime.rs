//! What a container runtime answers: messages, what they come to, and what of it would be removed.

use std::collections::{BTreeMap, BTreeSet};

use brink_core::base::Moment;
use brink_core::node::reclaim::Reclaim;
use brink_cri::call::{Call, read};
use brink_cri::generated::{
    ContainerStatusRequest, ImageFsInfoRequest, ListContainersRequest, ListImagesRequest,
    ListPodSandboxRequest,
};
use brink_cri::layout;
use brink_cri::plan::{Fate, Known, Policy, plan};
use brink_cri::state::{Layers, State, mounted};
use brink_cri::usage::Records;

use crate::Taken;
use crate::bundle::Bundle;

const BOTH: [Reclaim; 2] = [Reclaim::DeadContainers, Reclaim::UnusedImages];

/// Answers by what was asked; the first is `containers`.
pub(crate) fn runtime(bytes: &[u8]) -> Taken {
    let files = Bundle::split("containers", bytes);
    let places = answer::<ImageFsInfoRequest>(&files, "places");
    let is_place = places.and_then(layout::read).is_some();
    let Some(containers) = answer::<ListContainersRequest>(&files, "containers") else {
        return Taken::from_accepted(is_place);
    };
    let images = answer::<ListImagesRequest>(&files, "images").unwrap_or_default();
    let sandboxes = answer::<ListPodSandboxRequest>(&files, "sandboxes").unwrap_or_default();
    let status = answer::<ContainerStatusRequest>(&files, "status").unwrap_or_default();
    let status = status.status.unwrap_or_default();
    let mounted = BTreeMap::from([(status.id.clone(), mounted(&status))]);
    let state = State::of(
        containers.containers,
        sandboxes.items,
        images.images,
        &mounted,
    );
    check_plan(&state);
    Taken::from_accepted(!state.containers.is_empty() || is_place)
}

fn answer<C: Call>(files: &Bundle<'_>, name: &str) -> Option<C::Answer> {
    files.get(name).and_then(|bytes| read::<C>(bytes).ok())
}

/// Nothing but dead containers and unused images is planned, each once.
fn check_plan(state: &State) {
    let mut records = Records::default();
    records.observe(Moment::START, state);
    let known = Known {
        fates: &|_| Fate::Over,
        records: &records,
        layers: &Layers::new(),
        now: Moment::from_secs(1000),
    };
    let plan = plan(&BOTH, state, &Policy::default(), &known);
    let going: BTreeSet<&str> = plan.containers.iter().map(|one| one.id.as_str()).collect();
    let stay = state
        .containers
        .iter()
        .filter(|one| !going.contains(one.id.as_str()));
    // A runtime that tells of an id that it is dead and alive says nothing of it: that one stays.
    let alive = state.containers.iter().filter(|one| !one.is_dead());
    let alive: BTreeSet<&str> = alive.map(|one| one.id.as_str()).collect();
    let mut dead = stay.clone().filter(|one| one.is_dead());
    assert!(dead.all(|one| alive.contains(one.id.as_str())), "{state:?}");
    assert!(
        state
            .containers
            .iter()
            .all(|one| one.is_dead() || !going.contains(one.id.as_str()))
    );
    for image in &plan.images {
        for own in state.images.iter().filter(|own| own.id == image.id) {
            let is_used = stay.clone().any(|one| one.uses(own));
            assert!(!own.is_pinned && !is_used, "{own:?}");
        }
    }
}
