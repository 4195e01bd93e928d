//! What goes and what stays: cases, and what holds of any runtime.

use proptest::prelude::*;

use super::*;
use crate::fake::{container, image, is_of_sandboxes, is_used, spellings};
use crate::state::{Sandbox, Standing};

const NOW: Moment = Moment::from_secs(10_000);
const BOTH: [Reclaim; 2] = [Reclaim::DeadContainers, Reclaim::UnusedImages];

/// Pods whose name begins with `o` are over, those with `l` live, and of others nobody knows.
pub(crate) fn fate(pod: &Pod) -> Fate {
    match pod.name.chars().next() {
        Some('o') => Fate::Over,
        Some('l') => Fate::Lives,
        _ => Fate::Unknown,
    }
}

/// Records of images that are there since long ago.
fn seen_long_ago(state: &State) -> Records {
    let mut records = Records::default();
    let images_alone = State {
        images: state.images.clone(),
        ..State::default()
    };
    records.observe(Moment::START, &images_alone);
    records
}

fn planned(ways: &[Reclaim], state: &State, policy: &Policy, records: &Records) -> Plan {
    let layers = Layers::new();
    let known = Known {
        fates: &fate,
        records,
        layers: &layers,
        now: NOW,
    };
    plan(ways, state, policy, &known)
}

fn dead(id: &str, pod: &str, attempt: u32, seconds: i64) -> Container {
    Container {
        attempt,
        created_at: Moment::from_secs(seconds),
        ..container(id, pod, Standing::Exited, &["i"])
    }
}

#[track_caller]
fn check_containers(containers: Vec<Container>, expected: &[&str]) {
    let state = State {
        containers,
        ..State::default()
    };
    let plan = planned(&BOTH, &state, &Policy::default(), &Records::default());
    let found: Vec<&str> = plan.containers.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_newest_dead_container_of_a_pod_stays_unless_the_pod_is_over() {
    let three = |pod: &str| {
        let id = |at: u32| format!("{pod}{at}");
        vec![
            dead(&id(2), pod, 2, 30),
            dead(&id(0), pod, 0, 10),
            dead(&id(1), pod, 1, 20),
        ]
    };
    check_containers(three("live"), &["live0", "live1"]);
    check_containers(three("unknown"), &["unknown0", "unknown1"]);
    check_containers(three("over"), &["over0", "over1", "over2"]);
    // The attempt says which is newer; a clock may have been set.
    check_containers(
        vec![dead("a", "live", 0, 99), dead("b", "live", 1, 1)],
        &["a"],
    );
    // Each container of a pod for itself, and each pod for itself.
    let other = Container {
        name: "sidecar".to_owned(),
        ..dead("b", "live", 0, 1)
    };
    check_containers(vec![dead("a", "live", 0, 1), other], &[]);
    check_containers(vec![dead("a", "live", 0, 1), dead("b", "later", 0, 1)], &[]);
    // One that runs is none of the dead that are kept.
    let running = Container {
        attempt: 3,
        standing: Standing::Running,
        ..dead("r", "live", 3, 40)
    };
    let with_running = three("live").into_iter().chain([running]).collect();
    check_containers(with_running, &["live0", "live1"]);
}

#[test]
fn pods_that_are_over_go_first_and_then_the_oldest() {
    check_containers(
        vec![
            dead("young0", "young", 0, 50),
            dead("young1", "young", 1, 60),
            dead("old0", "live-old", 0, 5),
            dead("old1", "live-old", 1, 6),
            dead("over1", "over-late", 0, 90),
            dead("over0", "over-soon", 0, 80),
        ],
        &["over0", "over1", "old0", "young0"],
    );
}

#[test]
fn only_who_has_ended_is_dead() {
    for standing in [Standing::Created, Standing::Running, Standing::Unknown] {
        check_containers(vec![container("a", "over", standing, &["i"])], &[]);
    }
}

#[test]
fn images_go_by_their_last_use_and_then_by_their_age() {
    let mut state = State {
        images: ["a", "b", "c", "d"].map(image).to_vec(),
        ..State::default()
    };
    let mut records = Records::default();
    let mut observe = |seconds, used: &[&str], state: &mut State| {
        state.containers = used
            .iter()
            .map(|&id| container(id, "live", Standing::Running, &[id]))
            .collect();
        records.observe(Moment::from_secs(seconds), state);
    };
    let new = state.images.split_off(3);
    observe(1, &["b"], &mut state);
    state.images.extend(new);
    observe(2, &["c"], &mut state);
    observe(3, &[], &mut state);
    let plan = planned(&BOTH, &state, &Policy::default(), &records);
    let found: Vec<&str> = plan.images.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(found, ["a", "d", "b", "c"]);
    assert_eq!(plan.frees_bytes(), 4 << 20);
}

#[test]
fn each_reason_to_stay_keeps_an_image() {
    use Stays::{InUse, OfSandboxes, Pinned, Unnamed, Unseen, Young};

    let mut state = State {
        images: ["used", "pinned", "pause", "configured", "plain"]
            .map(image)
            .to_vec(),
        containers: vec![container("c", "live", Standing::Created, &["used"])],
        sandbox_images: vec!["configured".to_owned()],
        ..State::default()
    };
    state.images[1].is_pinned = true;
    state.images[2].names = vec!["registry.k8s.io/pause:3.9".to_owned()];
    let policy = Policy::default();
    let records = seen_long_ago(&state);
    let plan = planned(&BOTH, &state, &policy, &records);
    assert_eq!(plan.images.len(), 1);
    assert_eq!(plan.images[0].id, "plain");
    let reasons: Vec<Stays> = plan.kept.iter().map(|(_, stays)| *stays).collect();
    assert_eq!(reasons, [InUse, Pinned, OfSandboxes, OfSandboxes]);

    let judged = |state: &State, records: &Records| {
        let plan = planned(&BOTH, state, &policy, records);
        plan.kept.last().map(|(_, stays)| *stays)
    };
    let mut young = Records::default();
    young.observe(Moment::START, &State::default());
    young.observe(Moment::from_secs(10_000 - 119), &state);
    assert_eq!(judged(&state, &young), Some(Young));
    assert_eq!(judged(&state, &Records::default()), Some(Unseen));
    state
        .containers
        .push(container("d", "live", Standing::Running, &[]));
    assert_eq!(judged(&state, &records), Some(Unnamed));
}

#[test]
fn images_of_the_first_look_are_old_and_later_ones_have_their_age() {
    let mut state = State {
        images: vec![image("first")],
        ..State::default()
    };
    let mut records = Records::default();
    records.observe(NOW, &state);
    state.images.push(image("later"));
    records.observe(NOW, &state);
    let plan = planned(&BOTH, &state, &Policy::default(), &records);
    let going: Vec<&str> = plan.images.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(going, ["first"]);
    assert_eq!(plan.kept, [("later".to_owned(), Stays::Young)]);
}

#[test]
fn what_sandboxes_are_made_of_is_known_by_its_name() {
    for name in [
        "registry.k8s.io/pause:3.9",
        "rancher/mirrored-pause:3.6",
        "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/pause@sha256:00",
        "localhost:5000/pause-amd64",
        "pause",
    ] {
        assert!(is_for_sandboxes(name), "{name}");
    }
    for name in ["library/pauses:1", "pause/app:1", "nginx:pause", "a@pause"] {
        assert!(!is_for_sandboxes(name), "{name}");
    }
}

#[test]
fn what_sandboxes_are_made_of_stays_for_every_handler() {
    let of = |handler: &str, names: &[&str]| Image {
        handler: handler.to_owned(),
        names: names.iter().map(|&name| name.to_owned()).collect(),
        ..image("i")
    };
    let state = State {
        images: vec![of("", &["registry.k8s.io/pause:3.9"]), of("other", &[])],
        ..State::default()
    };
    let plan = planned(&BOTH, &state, &Policy::default(), &seen_long_ago(&state));
    assert_eq!(plan.images, []);
}

#[test]
fn images_of_containers_that_go_first_are_unused_then() {
    let state = State {
        images: vec![image("i")],
        containers: vec![dead("a", "over", 0, 1)],
        ..State::default()
    };
    let records = seen_long_ago(&state);
    let count = |ways: &[Reclaim]| {
        let plan = planned(ways, &state, &Policy::default(), &records);
        (plan.containers.len(), plan.images.len())
    };
    assert_eq!(count(&BOTH), (1, 1));
    assert_eq!(count(&BOTH[..1]), (1, 0));
    assert_eq!(count(&BOTH[1..]), (0, 0));
    assert_eq!(count(&[]), (0, 0));
}

#[test]
fn a_kubelets_runtime_is_left_to_it_unless_the_policy_says_otherwise() {
    let of_kubelet = Sandbox {
        id: "s".to_owned(),
        pod: Pod::default(),
        is_ready: true,
        is_kubelets: true,
    };
    let state = State {
        sandboxes: vec![of_kubelet],
        ..State::default()
    };
    let check = |beside_kubelet, expected| {
        let policy = Policy {
            beside_kubelet,
            ..Policy::default()
        };
        let plan = planned(&BOTH, &state, &policy, &Records::default());
        assert_eq!(plan.left_to_kubelet, expected);
    };
    check(false, true);
    check(true, false);
}

/// Runtimes of all kinds: few names, so that they meet. Of some a kubelet has made something.
pub(crate) fn any_state() -> impl Strategy<Value = State> {
    let standing = prop_oneof![
        3 => Just(Standing::Exited),
        1 => Just(Standing::Running),
        1 => Just(Standing::Created),
        1 => Just(Standing::Unknown),
    ];
    let pod = prop_oneof![Just("over"), Just("live"), Just("nobody-knows")];
    let used = proptest::collection::btree_set((0_usize..6, 0_usize..4), 0..3);
    let one = (standing, pod, 0_u32..4, 0_i64..4, used);
    let containers = proptest::collection::vec(one, 0..12);
    let image = (any::<bool>(), 0_u8..8, 0_u64..1 << 40, 0_u8..8);
    let images = proptest::collection::vec(image, 0..6);
    let of_sandboxes = proptest::option::of((0_usize..6, 0_usize..4));
    // The number of what a kubelet has made, if there is so much.
    let all = (containers, images, of_sandboxes, 0_usize..40);
    all.prop_map(|(containers, images, of_sandboxes, kubelets)| {
        let images = any_images(images);
        let called = |&(place, way): &(usize, usize)| {
            let spelled = images.get(place).map(spellings);
            spelled.map_or_else(|| "nowhere".to_owned(), |all| all[way % all.len()].clone())
        };
        let containers = containers.into_iter().enumerate();
        let containers = containers.map(|(at, (standing, pod, attempt, made, used))| {
            let mut images: Vec<String> = used.iter().map(called).collect();
            // One that says nothing keeps everything, which is for one runtime in many.
            if images.is_empty() && made > 0 {
                images.push("nowhere".to_owned());
            }
            let images: Vec<&str> = images.iter().map(String::as_str).collect();
            Container {
                attempt,
                created_at: Moment::from_secs(made),
                is_kubelets: at == kubelets,
                ..container(&format!("c{at}"), pod, standing, &images)
            }
        });
        State {
            containers: containers.collect(),
            sandboxes: vec![Sandbox {
                id: "s".to_owned(),
                pod: Pod::default(),
                is_ready: true,
                is_kubelets: kubelets == 39,
            }],
            sandbox_images: of_sandboxes.iter().map(called).collect(),
            images: images.clone(),
        }
    })
}

fn any_images(all: Vec<(bool, u8, u64, u8)>) -> Vec<Image> {
    let mut images: Vec<Image> = Vec::new();
    for (at, (pinned, kind, bytes, form)) in all.into_iter().enumerate() {
        let names = match kind {
            0 => vec![format!("registry/pause:{at}")],
            1 => Vec::new(),
            _ => vec![format!("registry/app:{at}")],
        };
        // Some runtimes leave the word before an identity out, and some have one for several handlers.
        let (id, handler) = match (form, images.last()) {
            (0 | 1, Some(last)) => (last.id.clone(), format!("handler-{at}")),
            (2..=4, _) => (at.to_string(), String::new()),
            _ => (format!("sha256:{at}"), String::new()),
        };
        images.push(Image {
            names,
            bytes,
            handler,
            is_pinned: pinned && kind > 5,
            ..image(&id)
        });
    }
    images
}

proptest! {
    #[test]
    fn nothing_but_dead_containers_and_unused_images_is_ever_planned(
        state in any_state(),
        ways in proptest::sample::subsequence(BOTH.to_vec(), 0..=2),
        kept in 0_usize..3,
    ) {
        let policy = Policy { kept_containers: kept, ..Policy::default() };
        let plan = planned(&ways, &state, &policy, &seen_long_ago(&state));
        let goes = |id: &str| plan.containers.iter().any(|one| one.id == id);
        for one in &plan.containers {
            let own = state.containers.iter().find(|own| own.id == one.id).unwrap();
            prop_assert_eq!(own.standing, Standing::Exited);
        }
        for one in &plan.images {
            // With one handler's all others' may go.
            for own in state.images.iter().filter(|own| own.id == one.id) {
                prop_assert!(!own.is_pinned && !is_of_sandboxes(&state, own), "{own:?}");
                for user in state.containers.iter().filter(|user| is_used(own, user)) {
                    prop_assert!(user.is_dead() && goes(&user.id), "{own:?} is used by {user:?}");
                }
            }
        }
        prop_assert_eq!(plan.left_to_kubelet, state.is_kubelets());
        let of_way = |way| ways.contains(&way);
        prop_assert!(of_way(Reclaim::DeadContainers) || plan.containers.is_empty());
        prop_assert!(of_way(Reclaim::UnusedImages) || plan.images.is_empty());
    }

    #[test]
    fn all_that_is_dead_goes_but_the_newest_and_the_oldest_goes_first(
        state in any_state(),
        kept in 0_usize..3,
    ) {
        let policy = Policy { kept_containers: kept, ..Policy::default() };
        let plan = planned(&BOTH[..1], &state, &policy, &Records::default());
        let place = |id: &str| plan.containers.iter().position(|one| one.id == id);
        let dead = || state.containers.iter().filter(|one| one.is_dead());
        for one in dead() {
            let age = |one: &Container| (one.attempt, one.created_at, one.id.clone());
            let same = |other: &&Container| other.pod == one.pod && other.name == one.name;
            let newer = dead().filter(same).filter(|other| age(other) > age(one)).count();
            let kept = if fate(&one.pod) == Fate::Over { 0 } else { kept };
            prop_assert_eq!(place(&one.id).is_some(), newer >= kept);
            for other in dead().filter(same).filter(|other| age(other) < age(one)) {
                prop_assert!(place(&other.id) < place(&one.id) || place(&one.id).is_none());
            }
        }
    }

    #[test]
    fn every_image_goes_or_has_a_reason_to_stay(state in any_state()) {
        let policy = Policy::default();
        let plan = planned(&BOTH[1..], &state, &policy, &seen_long_ago(&state));
        prop_assert_eq!(plan.images.len() + plan.kept.len(), state.images.len());
        let blind = state.containers.iter().any(|one| one.images.is_empty());
        prop_assert!(!blind || plan.images.is_empty());
    }
}
