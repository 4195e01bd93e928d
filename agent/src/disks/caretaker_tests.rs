//! A caretaker that looks, with nobody behind its queues.

use brink_core::node::engine::MemoryPolicy;
use brink_core::node::input::Reconfiguration;
use brink_core::node::observe::Layout;
use brink_core::node::safety::Mode;
use brink_core::node::signal::Signal;

use super::super::answer::Folders;
use super::*;
#[cfg(feature = "cri")]
use crate::config::RuntimeConfig;
use crate::config::{Filesystems, of_text};
use crate::fake::{add_process, end_process};
use crate::guard;
use crate::guard::disks::ReclaimAsked;
use crate::guard::ports::Ports;
use crate::runtime::state::State;

/// Another filesystem than any folder that a test can make.
const ELSEWHERE: &str = "/proc";
/// The process of a kubelet.
const KUBELET: u32 = 4_000_000;

/// A caretaker of a machine that is a folder, and that folder. Its nodefs is the folder itself.
fn caretaker() -> (Caretaker, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("proc")).unwrap();
    let text = format!(
        "evictionHard: {{nodefs.available: 1Mi}}\nruntime: {{endpoint: {}/none.sock}}\n",
        folder.path().display()
    );
    let mut config = of_text(&text);
    config.paths.root = folder.path().to_path_buf();
    let ports = Arc::new(Ports::new(4, 4).unwrap());
    let written = Reconfiguration {
        policy: config.policy.clone(),
        live: config.live_settings(),
    };
    let state = State::new(
        config.policy.clone(),
        MemoryPolicy::Kubelet,
        Mode::Enforcing,
    );
    let shared = Arc::new(Shared::new(state));
    let disks = Arc::new(Disks::new(ports, config.policy.thresholds()));
    let handover = Handover::new(Arc::clone(&shared), Arc::clone(&disks), written);
    let known = (disks, Arc::new(handover));
    let told = (shared, Telling::default());
    let caretaker = Caretaker::new(&config, known, told, &Stop::default());
    (caretaker, folder)
}

/// What the guard was told, in words.
fn told(caretaker: &Caretaker) -> Vec<String> {
    let commands = &caretaker.disks.ports.commands;
    let next = || {
        Some(match commands.take()? {
            Command::Control(Control::Kubelet(is)) => format!("kubelet {is}"),
            Command::Reconfigure(new) => format!("{:?}", new.policy.layout()),
            Command::Reclaimed(..) => "reclaimed".to_owned(),
            _ => "something else".to_owned(),
        })
    };
    std::iter::from_fn(next).collect()
}

/// The same of this machine, with that for its images.
fn with_images(images: &str) -> Caretaker {
    let (mut caretaker, machine) = caretaker();
    let filesystems = Filesystems {
        nodefs: machine.path().parent().map(Path::to_path_buf),
        imagefs: Some(images.into()),
        containerfs: None,
    };
    caretaker.discovery = Discovery::new("/".into(), filesystems);
    caretaker
}

#[test]
fn images_whose_folder_cannot_be_measured_have_no_filesystem_of_their_own() {
    let mut caretaker = with_images("/nowhere/at/all");
    caretaker.look();
    assert_eq!(told(&caretaker).len(), 1, "of a kubelet alone");
    assert_eq!(caretaker.disks.lock().laid.layout, Layout::Single);
    caretaker.discovery.configured.imagefs = Some(ELSEWHERE.into());
    caretaker.look();
    assert_eq!(told(&caretaker), ["DedicatedImagefs"]);
    // Gone, for whatever reason: it was there, and is unknown now.
    caretaker.discovery.configured.imagefs = Some("/nowhere/at/all".into());
    caretaker.look();
    assert_eq!(told(&caretaker), [""; 0]);
    caretaker.end();
}

#[test]
fn a_runtime_that_is_away_has_its_images_where_it_had_them() {
    let mut caretaker = with_images("");
    caretaker.discovery.configured.imagefs = None;
    caretaker.discovery.told = Folders {
        images: Some(ELSEWHERE.into()),
        layers: None,
    };
    for _ in 0..2 {
        caretaker.look();
        assert_eq!(caretaker.disks.lock().laid.layout, Layout::DedicatedImagefs);
    }
    caretaker.end();
}

#[test]
fn whose_the_filesystems_are_is_known_before_their_layout() {
    let mut caretaker = with_images(ELSEWHERE);
    caretaker.look();
    let told = told(&caretaker);
    assert!(
        told.len() == 2 && told[0].starts_with("kubelet ") && told[1] == "DedicatedImagefs",
        "{told:?}"
    );
    caretaker.end();
}

#[test]
fn where_no_runtime_answers_it_counts_whether_a_kubelet_runs() {
    let (mut caretaker, machine) = caretaker();
    let left = |caretaker: &Caretaker| caretaker.disks.lock().left_to_kubelet;
    caretaker.look();
    assert_eq!(told(&caretaker), [""; 0], "nobody can tell who runs there");
    assert_eq!(left(&caretaker), None);
    add_process(machine.path(), std::process::id(), "brink", &[]);
    caretaker.look();
    assert_eq!(told(&caretaker), ["kubelet false"]);
    assert_eq!(left(&caretaker), Some(false));
    add_process(machine.path(), KUBELET, "kubelet", &[]);
    caretaker.look();
    assert_eq!(told(&caretaker), ["kubelet true"]);
    assert_eq!(left(&caretaker), Some(true));
    caretaker.end();
}

#[cfg(feature = "cri")]
#[test]
fn why_the_runtime_cannot_be_asked_is_told_until_it_can_or_there_is_none() {
    let (mut caretaker, machine) = caretaker();
    assert_eq!(caretaker.told_of_fault, None);
    caretaker.look();
    assert_eq!(caretaker.told_of_fault, Some("absent"));
    // Nothing is configured any more, and no known socket is there.
    caretaker.runtime = ContainerRuntime::new(
        machine.path().to_path_buf(),
        RuntimeConfig::default(),
        Stopper::default(),
    );
    caretaker.look();
    assert_eq!(caretaker.told_of_fault, None);
    caretaker.end();
}

#[test]
fn a_kubelet_that_has_come_since_the_last_look_is_told_before_a_reclaim_is_answered() {
    let (mut caretaker, machine) = caretaker();
    add_process(machine.path(), std::process::id(), "brink", &[]);
    caretaker.look();
    assert_eq!(told(&caretaker), ["kubelet false"]);
    let asked = || ReclaimAsked {
        signal: Signal::NodefsAvailable,
        quantity: 1 << 20,
        available: 0,
        at: guard::now(),
        is_dry: false,
    };
    caretaker.reclaim(asked());
    assert_eq!(told(&caretaker), ["reclaimed"]);
    add_process(machine.path(), KUBELET, "kubelet", &[]);
    caretaker.reclaim(asked());
    assert_eq!(told(&caretaker), ["kubelet true", "reclaimed"]);
    caretaker.end();
}

#[test]
fn nodefs_follows_a_kubelet_that_comes_back_with_another_folder_and_stays_while_none_runs() {
    let (mut caretaker, machine) = caretaker();
    add_process(machine.path(), std::process::id(), "brink", &[]);
    let mut nodefs = || {
        caretaker.tell_of_kubelet();
        let [nodefs, ..] = caretaker.discovery.folders();
        nodefs.unwrap()
    };
    assert_eq!(nodefs(), machine.path(), "there is no kubelet");
    for folder in ["srv/one", "srv/two"] {
        let argument = format!("--root-dir=/{folder}");
        add_process(machine.path(), KUBELET, "kubelet", &[&argument]);
        assert_eq!(nodefs(), machine.path().join(folder));
    }
    end_process(machine.path(), KUBELET);
    assert_eq!(nodefs(), machine.path().join("srv/two"));
}

#[test]
fn a_kubelet_is_one_that_runs_or_that_has_left_its_mark() {
    for (runs, heard, expected) in [
        (Some(true), None, Some(true)),
        (Some(true), Some(false), Some(true)),
        (Some(false), Some(true), Some(true)),
        (None, Some(true), Some(true)),
        (Some(false), None, Some(false)),
        (Some(false), Some(false), Some(false)),
        // Nobody can say.
        (None, None, None),
        (None, Some(false), None),
    ] {
        assert_eq!(keeps(runs, heard), expected, "{runs:?} {heard:?}");
    }
}
