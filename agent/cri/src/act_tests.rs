//! Carrying a plan out on a runtime that changes, refuses, hangs and breaks meanwhile.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::fake::{Change, Fake, Plays, container, image};
use crate::plan::tests::{any_state, fate};
use crate::state::{Container, State};

const BOTH: [Reclaim; 2] = [Reclaim::DeadContainers, Reclaim::UnusedImages];

/// Two dead containers of a pod that is over, on one of three images.
fn some() -> State {
    State {
        containers: ["a", "b"]
            .map(|id| container(id, "over", Standing::Exited, &["i"]))
            .to_vec(),
        images: ["i", "j", "k"].map(image).to_vec(),
        ..State::default()
    }
}

async fn act_on(
    fake: &Fake,
    policy: &Policy,
    enough: impl FnMut(Reclaim, &Report) -> bool,
) -> Report {
    let mut records = Records::default();
    let images_alone = State {
        images: fake.state().images,
        ..State::default()
    };
    records.observe(Moment::START, &images_alone);
    let order = Order {
        ways: &BOTH,
        policy,
        fates: &fate,
        clock: &|| Moment::from_secs(1000),
        until: Instant::now() + Duration::from_secs(30),
    };
    act(fake, order, &mut records, enough).await
}

async fn played(plays: Vec<Plays>) -> (Fake, Report) {
    let fake = Fake::new(some(), plays);
    let report = act_on(&fake, &Policy::default(), |_, _| false).await;
    (fake, report)
}

fn names(targets: &[Target]) -> Vec<&str> {
    let names = targets.iter().map(|target| match target {
        Target::Container(one) => one.id.as_str(),
        Target::Image(one) => one.id.as_str(),
    });
    names.collect()
}

#[tokio::test(start_paused = true)]
async fn everything_that_may_goes_each_after_one_more_look() {
    let (fake, report) = played(Vec::new()).await;
    assert!(matches!(report.ended, Ended::Done), "{report:?}");
    assert_eq!(names(&report.removed), ["a", "b", "i", "j", "k"]);
    assert_eq!(report.freed_bytes(), 3 << 20);
    let asked = fake.asked();
    let expected = [
        "read",
        "layers",
        "standing a",
        "remove container a",
        "standing b",
        "remove container b",
        "read",
        "read",
        "remove image i",
        "read",
        "remove image j",
        "read",
        "remove image k",
    ];
    assert_eq!(asked, expected);
    assert_eq!(fake.state(), State::default());
}

#[tokio::test(start_paused = true)]
async fn what_has_changed_since_the_plan_is_spared() {
    use Spared::{Gone, Stays as Kept};

    let change = Plays::Changes;
    let plays = vec![
        Plays::Answers,
        Plays::Answers,
        change(Change::LosesContainer(0)),
        Plays::Answers,
        Plays::Answers,
        Plays::Answers,
        // Somebody starts a container on the first image, somebody else removes the second, and the third is pinned.
        change(Change::Starts(0)),
        change(Change::LosesImage(1)),
        change(Change::Pins(1)),
    ];
    let (fake, report) = played(plays).await;
    assert_eq!(fake.crimes(), [""; 0]);
    assert_eq!(names(&report.removed), ["b"], "{report:?}");
    let spared: Vec<Spared> = report.spared.iter().map(|(_, why)| *why).collect();
    assert_eq!(
        spared,
        [Gone, Kept(Stays::InUse), Gone, Kept(Stays::Pinned)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_and_the_rest_goes_on() {
    let plays = vec![
        Plays::Answers,
        Plays::Refuses,
        Plays::Answers,
        Plays::Refuses,
    ];
    let (_, report) = played(plays).await;
    assert!(matches!(report.ended, Ended::Done), "{report:?}");
    // The image of the container that stays stays with it.
    assert_eq!(names(&report.removed), ["b", "j", "k"]);
    assert_eq!(report.refused.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_breaks_is_not_asked_again_for_each_of_its_containers() {
    let (fake, report) = played(vec![Plays::Answers, Plays::Answers, Plays::Breaks]).await;
    assert!(matches!(report.ended, Ended::Lost(CriError::Gone { .. })));
    assert_eq!(fake.asked().len(), 3);
    assert!(report.removed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_given_up_is_of_that_one_alone_while_the_runtime_answers() {
    let before = std::iter::repeat_n(Plays::Answers, 8);
    let plays = before.clone().chain([Plays::GivenUp]).collect();
    let (fake, report) = played(plays).await;
    assert!(matches!(report.ended, Ended::Done), "{report:?}");
    assert_eq!(names(&report.removed), ["a", "b", "j", "k"]);
    assert_eq!(report.refused.len(), 1);
    let asked = fake.asked();
    assert_eq!(asked[8..11], ["remove image i", "read", "read"]);
    // One that says nothing at all is not asked for each of its images.
    let plays = before.chain([Plays::GivenUp, Plays::GivenUp]).collect();
    let (fake, report) = played(plays).await;
    assert!(matches!(report.ended, Ended::Lost(CriError::Hung { .. })));
    assert_eq!(names(&report.removed), ["a", "b"]);
    assert_eq!(fake.asked().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_newest_that_is_left_is_kept_where_somebody_else_removes_the_one_that_was_to_stay() {
    let dead = |id: &str, pod: &str| container(id, pod, Standing::Exited, &["i"]);
    let state = State {
        containers: vec![
            dead("over", "over"),
            dead("old", "live"),
            Container {
                attempt: 1,
                ..dead("newer", "live")
            },
            Container {
                attempt: 2,
                ..dead("newest", "live")
            },
        ],
        ..State::default()
    };
    // The first removal is given up, or takes its time, and when the runtime is asked what it holds then, the newest is gone.
    for (first, newest, removed) in [
        (Plays::GivenUp, 3, &["old"][..]),
        (Plays::Slowly, 2, &["over", "old"]),
    ] {
        let plays = vec![
            Plays::Answers,
            Plays::Answers,
            Plays::Answers,
            first,
            Plays::Changes(Change::LosesContainer(newest)),
        ];
        let fake = Fake::new(state.clone(), plays);
        let report = act_on(&fake, &Policy::default(), |_, _| false).await;
        assert_eq!(fake.crimes(), [""; 0]);
        assert_eq!(names(&report.removed), removed, "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_over_at_the_deadline_whatever_hangs() {
    let began = Instant::now();
    let answers = [Plays::Answers, Plays::Answers, Plays::Answers];
    let plays = answers.into_iter().chain([Plays::Hangs]).collect();
    let (_, report) = played(plays).await;
    assert!(matches!(report.ended, Ended::Late), "{report:?}");
    assert_eq!(began.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn enough_is_asked_after_each_way() {
    let fake = Fake::new(some(), Vec::new());
    let mut asked = Vec::new();
    let report = act_on(&fake, &Policy::default(), |way, report| {
        asked.push((way, report.removed.len()));
        true
    })
    .await;
    assert_eq!(asked, [(Reclaim::DeadContainers, 2)]);
    assert!(matches!(
        report.ended,
        Ended::Enough(Reclaim::DeadContainers)
    ));
    assert_eq!(fake.state().images.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_beside_a_kubelet_unless_the_policy_says_so() {
    let mut state = some();
    state.containers[0].is_kubelets = true;
    let fake = Fake::new(state, Vec::new());
    let mut policy = Policy::default();
    let report = act_on(&fake, &policy, |_, _| false).await;
    assert!(matches!(report.ended, Ended::LeftToKubelet));
    assert_eq!(fake.asked(), ["read"]);
    policy.beside_kubelet = true;
    let report = act_on(&fake, &policy, |_, _| false).await;
    assert_eq!(report.removed.len(), 5);
}

fn any_play() -> impl Strategy<Value = Plays> {
    let change = (0_usize..5, any::<usize>()).prop_map(|(kind, place)| match kind {
        0 => Change::Starts(place),
        1 => Change::Pins(place),
        2 => Change::LosesImage(place),
        3 => Change::LosesContainer(place),
        _ => Change::Ends(place),
    });
    prop_oneof![
        20 => Just(Plays::Answers),
        3 => Just(Plays::Slowly),
        20 => change.prop_map(Plays::Changes),
        3 => Just(Plays::Refuses),
        1 => Just(Plays::Hangs),
        1 => Just(Plays::GivenUp),
        1 => Just(Plays::Breaks),
    ]
}

proptest! {
    #[test]
    fn nothing_alive_or_wanted_is_removed_whatever_happens_meanwhile(
        state in any_state(),
        plays in proptest::collection::vec(any_play(), 0..40),
        kept in 0_usize..3,
        beside_kubelet in any::<bool>(),
    ) {
        let policy = Policy { kept_containers: kept, beside_kubelet, ..Policy::default() };
        let fake = Fake::new(state, plays).under(&policy);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let report = runtime.block_on(act_on(&fake, &policy, |_, _| false));
        prop_assert_eq!(fake.crimes(), Vec::<String>::new());
        let removals = fake.asked().iter().filter(|line| line.starts_with("remove")).count();
        prop_assert!(report.removed.len() <= removals);
    }
}
