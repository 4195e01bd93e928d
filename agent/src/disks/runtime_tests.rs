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
        lives: &|_| false,
        may_act: &|| true,
    };
    runtime.reclaim(&order, within, &mut || false)
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
