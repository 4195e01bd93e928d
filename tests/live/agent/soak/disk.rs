//! A disk that is full: under the state folder and the journal, while the agent runs and when it starts.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use brink::control::client::AskError;
use brink::control::protocol::Question;
use brink_host::hog::Load;
use brink_tests::{agent_binary, lacks, wait_until};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::Signal;

use super::{scene::Scene, truth};
use crate::support::{Node, PATIENCE};

/// A small disk of our own, seen by nobody but this test and what it starts.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    place: PathBuf,
    filler: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of so many KiB in a name space of this thread's own, or says why that cannot be.
    pub(crate) fn mount(place: &Path, kib: u64) -> Result<Self, String> {
        #[expect(
            deprecated,
            reason = "safe with these flags: no file descriptor is concerned"
        )]
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)
            .map_err(|errno| format!("no name space for mounts: {errno}"))?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).unwrap();
        fs::create_dir_all(place).unwrap();
        let options = std::ffi::CString::new(format!("size={kib}k,mode=0700")).unwrap();
        let flags = MountFlags::empty();
        rustix::mount::mount("tmpfs", place, "tmpfs", flags, Some(options.as_c_str())).unwrap();
        Ok(Self {
            place: place.to_path_buf(),
            filler: place.join("filler"),
        })
    }

    /// Takes all that is left.
    pub(crate) fn fill(&self) {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&self.filler)
            .unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Gives it back.
    pub(crate) fn free(&self) {
        fs::remove_file(&self.filler).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // With the name space it would go anyway; only the folder below it could not be removed.
        let _ = rustix::mount::unmount(&self.place, UnmountFlags::DETACH);
    }
}

fn says(node: &Node, words: &str) {
    let said = wait_until(PATIENCE, || node.log().contains(words).then_some(()));
    assert!(said.is_some(), "not said: {words}\n{}", node.log());
}

/// Waits until the journal of events stands like that.
#[track_caller]
fn await_event_journal(node: &Node, wanted: &str) {
    let state = || Some(node.status()?.events?.journal?.state);
    let stands = wait_until(PATIENCE, || state().filter(|state| state == wanted));
    assert!(
        stands.is_some(),
        "{:?} and not {wanted}\n{}",
        state(),
        node.log()
    );
}

#[test]
fn a_full_disk_keeps_nobody_alive_and_is_told() {
    let mut disk = Err(String::new());
    let mut scene = Scene::begin_with("state/journal", |node| {
        disk = SmallDisk::mount(&node.path("state"), 16 << 10);
    });
    let disk = match disk {
        Ok(disk) => disk,
        Err(why) => lacks!("{why}"),
    };
    disk.fill();
    scene.has_gap = true;
    scene.leak(Load::Anon);
    scene.explode();
    scene.audit(&["test/leaker", "test/bomb"]);
    says(&scene.node, "the journal cannot be written");
    says(&scene.node, "cannot be kept");
    // That of events is another one: it waits with what it has.
    says(&scene.node, "the event journal cannot be written");
    await_event_journal(&scene.node, "full");
    // A pause that cannot be kept is refused, and not half pressed.
    let refused = scene.node.ask(&Question::Pause { seconds: Some(60) });
    assert!(matches!(refused, Err(AskError::Refused(_))), "{refused:?}");
    assert!(!scene.node.path("state/pause").exists());
    // A page that the journal has already may still have room for a line of it.
    let told_before = scene.books().lost;
    // The agent that is started on a full disk has its ledger, and protects.
    scene.node.stop(Signal::KILL);
    let pid = scene.node.start(&[]).pid;
    scene.replaced(pid);
    await_event_journal(&scene.node, "full");
    disk.free();
    await_event_journal(&scene.node, "writing");
    // While the disk was full, pages that others gave back may have had room for lines that tell of a part of the gap.
    let freed = truth::now();
    let told = wait_until(PATIENCE, || {
        let books = scene.books();
        (books.lost > told_before && books.last > freed).then_some(())
    });
    assert!(
        told.is_some(),
        "the journal goes on, with a line that tells of the gap"
    );
    scene.has_told_its_gap();
    let lost = scene.books().lost;
    scene.leak(Load::Anon);
    scene.audit(&["test/leaker"]);
    assert_eq!(scene.books().lost, lost, "with room nothing is missing");
    scene.close();
    drop(disk);
}

#[test]
fn an_agent_without_room_for_its_ledger_says_so_and_does_not_start() {
    let node = Node::new(64);
    let disk = match SmallDisk::mount(&node.path("state"), 64) {
        Ok(disk) => disk,
        Err(why) => lacks!("{why}"),
    };
    node.configure("enforce", "evictionHard: {memory.available: 8Mi}");
    disk.fill();
    let mut agent = Command::new(agent_binary().unwrap());
    agent
        .args(["run", "--config"])
        .arg(node.path("config.yaml"));
    let refused = agent.output().unwrap();
    let talk = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code().is_some_and(|code| code > 0),
        "{refused:?}"
    );
    assert!(
        talk.contains("state/") && talk.contains("No space left"),
        "{talk}"
    );
    drop(disk);
}
