//! The agent's reclaim against a container runtime that is restarted meanwhile, stays away, or may not be asked.
#![expect(
    clippy::unwrap_used,
    reason = "a test stops at what it does not expect"
)]

mod server;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use brink::config::RuntimeConfig;
use brink::disks::answer::{End, Folders, Order, Outcome, PodIs};
use brink::disks::runtime::{ContainerRuntime, Stopper};
use brink_core::base::Span;
use brink_core::node::reclaim::Reclaim;
use brink_cri::call::Call as _;
use brink_cri::generated::RemoveImageRequest;
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use tempfile::TempDir;

use server::{Held, IMAGES, LAYERS, Server};

const IMAGE: &str = "sha256:aa";
/// How long a reclaim may take: far longer than any of these.
const LONG: Duration = Duration::from_mins(2);
/// Shorter than one that is being restarted is waited for, which is 5 s.
const AT_ONCE: Duration = Duration::from_secs(4);
/// The user nobody.
const NOBODY: u32 = 65_534;

/// The agent's side, and where the runtime listens.
struct Ground {
    runtime: ContainerRuntime,
    stopper: Stopper,
    held: Arc<Held>,
    socket: PathBuf,
    folder: TempDir,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("cri.sock");
        let config = RuntimeConfig {
            endpoint: Some(socket.clone()),
            ..RuntimeConfig::default()
        };
        let stopper = Stopper::default();
        Self {
            runtime: ContainerRuntime::new(PathBuf::from("/"), config, stopper.clone()),
            stopper,
            held: Held::new(&[IMAGE]),
            socket,
            folder,
        }
    }

    /// One whose runtime was there, was asked, and has been killed.
    fn after_a_kill() -> Self {
        let mut ground = Self::new();
        let server = Server::start(&ground.socket, &ground.held, None);
        ground.runtime.observe();
        let state = ground.runtime.state();
        assert_eq!(
            (state.name.as_deref(), state.fault),
            (Some("fake 7"), None),
            "{state:?}"
        );
        drop(server);
        ground
    }

    fn reclaim(&mut self) -> Outcome {
        let order = Order {
            ways: &[Reclaim::UnusedImages],
            is_dry: false,
            image_min_age: Some(Span::ZERO),
            pods: &|_| PodIs::Unknown,
            may_act: &|| true,
        };
        self.runtime.reclaim(&order, LONG, &mut |_| false)
    }

    /// A reclaim that removes the image.
    fn check_removal(&mut self) {
        assert_eq!(self.held.images(), [IMAGE]);
        let outcome = self.reclaim();
        assert_eq!(
            (outcome.end, &outcome.why),
            (End::Done, &None),
            "{outcome:?}"
        );
        assert_eq!(outcome.images.len(), 1);
        assert!(self.held.images().is_empty());
        let state = self.runtime.state();
        assert_eq!(
            (state.name.as_deref(), state.fault),
            (Some("fake 7"), None),
            "{state:?}"
        );
    }
}

#[test]
fn one_that_keeps_writable_layers_apart_from_images_says_where_both_lie() {
    let mut ground = Ground::new();
    assert_eq!(ground.runtime.folders(), None, "nobody is there");
    let _server = Server::start(&ground.socket, &ground.held, None);
    let folders = Folders {
        images: Some(IMAGES.into()),
        layers: Some(LAYERS.into()),
    };
    assert_eq!(ground.runtime.folders(), Some(folders));
}

#[test]
fn one_that_is_being_restarted_is_waited_for_and_gives_back_what_it_held() {
    const AWAY: Duration = Duration::from_secs(1);
    let mut ground = Ground::after_a_kill();
    let (socket, held) = (ground.socket.clone(), Arc::clone(&ground.held));
    let began = Instant::now();
    let restarts = thread::spawn(move || {
        thread::sleep(AWAY);
        Server::start(&socket, &held, None)
    });
    ground.check_removal();
    assert!(began.elapsed() >= AWAY);
    drop(restarts.join().unwrap());
}

#[test]
fn one_that_goes_in_the_middle_of_a_removal_has_removed_nothing_and_is_asked_anew() {
    let mut ground = Ground::new();
    let first = Server::start(&ground.socket, &ground.held, Some(RemoveImageRequest::PATH));
    let outcome = ground.reclaim();
    assert_eq!(outcome.end, End::Lost("gone"), "{outcome:?}");
    assert!(outcome.images.is_empty() && outcome.refused.is_empty());
    let why = outcome.why.unwrap();
    assert!(why.contains("RemoveImage"), "{why}");
    drop(first);
    let _second = Server::start(&ground.socket, &ground.held, None);
    ground.check_removal();
}

#[test]
fn one_that_stays_away_is_told_as_absent_and_is_not_waited_for_again() {
    let mut ground = Ground::after_a_kill();
    let mut check = |is_waited_for: bool| {
        let began = Instant::now();
        let outcome = ground.reclaim();
        assert_eq!(outcome.end, End::Lost("absent"), "{outcome:?}");
        let took = began.elapsed();
        assert_eq!(took >= AT_ONCE, is_waited_for, "{took:?}");
        assert!(took < LONG, "{took:?}");
        let state = ground.runtime.state();
        assert_eq!((&state.name, state.fault), (&None, Some("absent")));
    };
    check(true);
    check(false);
}

#[test]
fn who_waits_for_one_that_is_being_restarted_can_be_stopped() {
    let mut ground = Ground::after_a_kill();
    let stopper = ground.stopper.clone();
    let began = Instant::now();
    let stops = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        stopper.stop();
    });
    let outcome = ground.reclaim();
    assert_eq!(outcome.end, End::Stopped, "{outcome:?}");
    assert!(began.elapsed() < AT_ONCE);
    stops.join().unwrap();
}

#[test]
fn a_socket_that_is_denied_is_told_at_once_though_somebody_answered_there_before() {
    let mut ground = Ground::after_a_kill();
    let _second = Server::start(&ground.socket, &ground.held, None);
    for (path, mode) in [(ground.folder.path(), 0o755), (&*ground.socket, 0o000)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let began = Instant::now();
    // Root may use any socket. Of this thread alone.
    let is_root = geteuid().is_root();
    if is_root {
        set_thread_res_uid(Uid::ROOT, Uid::from_raw(NOBODY), Uid::ROOT).unwrap();
    }
    let outcome = ground.reclaim();
    if is_root {
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).unwrap();
    }
    assert_eq!(outcome.end, End::Lost("denied"), "{outcome:?}");
    assert!(began.elapsed() < AT_ONCE, "it is not being restarted");
    let why = outcome.why.unwrap();
    assert!(
        why.contains("may not be asked") && why.contains("Permission denied"),
        "{why}"
    );
    let state = ground.runtime.state();
    assert_eq!((&state.name, state.fault), (&None, Some("denied")));
    fs::set_permissions(&ground.socket, Permissions::from_mode(0o600)).unwrap();
    ground.check_removal();
}
