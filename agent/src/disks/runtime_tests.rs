//! Against a socket behind which nobody says anything.

use std::os::unix::net::UnixListener;

use brink_core::node::reclaim::Reclaim;

use super::*;

const SOON: Duration = Duration::from_millis(300);
/// Far longer than it takes to be stopped: what a question waits for by itself, seconds, ends before that.
const LONG: Duration = Duration::from_mins(1);

/// The runtime, its listener, which must live, and where that is.
fn mute() -> (ContainerRuntime, UnixListener, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("cri.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let config = RuntimeConfig {
        endpoint: Some(socket),
        ..RuntimeConfig::default()
    };
    let runtime = ContainerRuntime::new(PathBuf::from("/"), config, Stopper::default());
    (runtime, listener, folder)
}

fn reclaim(runtime: &mut ContainerRuntime, within: Duration) -> Outcome {
    let order = Order {
        ways: &[Reclaim::DeadContainers],
        is_dry: false,
        image_min_age: None,
        pods: &|_| PodIs::Unknown,
        may_act: &|| true,
    };
    runtime.reclaim(&order, within, &mut |_| false)
}

#[test]
fn the_look_before_a_reclaim_is_part_of_its_time() {
    let (mut runtime, _listener, _folder) = mute();
    let outcome = reclaim(&mut runtime, SOON);
    assert_eq!(outcome.end, End::Lost("hung"), "{outcome:?}");
    let why = outcome.why.unwrap();
    assert!(why.contains("within 300 ms"), "{why}");
    assert_eq!(runtime.state().fault, Some("hung"));
}

#[test]
fn who_is_stopped_says_so() {
    let (mut runtime, _listener, _folder) = mute();
    let stopper = runtime.stopper.clone();
    let stops = std::thread::spawn(move || {
        std::thread::sleep(SOON);
        stopper.stop();
    });
    let outcome = reclaim(&mut runtime, LONG);
    assert_eq!(outcome.end, End::Stopped, "{outcome:?}");
    stops.join().unwrap();
}

#[test]
fn who_does_not_answer_is_not_taken_for_one_that_restarts() {
    let (mut runtime, _listener, _folder) = mute();
    runtime.asking.state.name = Some("containerd 1.7".to_owned());
    runtime.observe();
    // A connection that waits behind another one says nothing either, and is one attempt.
    assert_eq!(runtime.state().fault, Some("hung"));
    assert_eq!(runtime.state().name, None);
}

#[test]
fn images_stay_as_long_as_the_kubelet_has_it_and_two_minutes_else() {
    let age = |image_min_age| policy(ReclaimPolicy::default(), image_min_age).image_min_age;
    let ten_minutes = Span::from_secs(600);
    assert_eq!(age(None), Span::from_secs(120));
    assert_eq!(age(Some(ten_minutes)), ten_minutes);
}

#[test]
fn a_pod_that_is_missing_is_over_only_where_the_api_would_have_it() {
    let of = |is_of_api| Pod {
        uid: "u".to_owned(),
        is_of_api,
        ..Pod::default()
    };
    let (young, old) = (Some(Span::from_secs(599)), Some(MISSING_AFTER));
    for (is, is_of_api, seen, expected) in [
        (PodIs::Wanted, true, old, Fate::Lives),
        (PodIs::Over, false, None, Fate::Over),
        (PodIs::Missing, true, old, Fate::Over),
        (PodIs::Missing, true, young, Fate::Unknown),
        (PodIs::Missing, true, None, Fate::Unknown),
        // A static pod, or nobody knows whose.
        (PodIs::Missing, false, old, Fate::Unknown),
        (PodIs::Unknown, true, old, Fate::Unknown),
    ] {
        assert_eq!(fate(is, &of(is_of_api), seen), expected, "{is:?} {seen:?}");
    }
}

#[test]
fn a_pod_has_been_here_since_it_was_first_seen() {
    let at = Moment::from_secs;
    let state = |uids: &[&str]| State {
        sandboxes: uids
            .iter()
            .map(|uid| brink_cri::state::Sandbox {
                id: (*uid).to_owned(),
                pod: Pod {
                    uid: (*uid).to_owned(),
                    ..Pod::default()
                },
                is_ready: false,
                is_kubelets: true,
            })
            .collect(),
        ..State::default()
    };
    let mut asking = Asking::default();
    asking.note_pods(at(1), &state(&["a"]));
    asking.note_pods(at(2), &state(&["a", "b"]));
    let known: Vec<_> = asking.pods.clone().into_iter().collect();
    assert_eq!(known, [("a".to_owned(), at(1)), ("b".to_owned(), at(2))]);
    asking.note_pods(at(3), &state(&["b"]));
    assert_eq!(asking.pods.len(), 1);
}
