//! What came after a kill: whether the container lives on, and how much memory came back.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{Controller, Version};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::kind::Kind;
use brink_tests::{Sandbox, lacks, skip, wait_until};

use crate::scene::{MIB, PATIENCE, Scene, end};

/// Whoever makes cgroups of its own in its container is one container with all of them.
#[test]
fn who_lives_on_beside_the_victims_cgroup_is_the_container() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    let inner = scene.web.child("inner").unwrap();
    let beside = scene.web.child("beside").unwrap();
    scene.follow();
    scene.limit(&inner, 64);
    let mut other = Scene::leak_in(&beside, 8);
    other.wait_touched(8 * MIB, PATIENCE).unwrap();
    let leak = Scene::leak_in(&inner, 200);
    let closed = scene.about(Kind::IncidentClosed, leak.pid().unsigned_abs());
    let cgroup = closed.victims[0].cgroup.value().unwrap();
    assert_eq!(cgroup, inner.group());
    assert_eq!(closed.course.container_survived, Field::Value(true));
    // Without the other, nobody is left in it.
    drop(other);
    let leak = Scene::leak_in(&inner, 200);
    let closed = scene.about(Kind::IncidentClosed, leak.pid().unsigned_abs());
    assert_eq!(closed.course.container_survived, Field::Value(false));
}

/// What is charged to a cgroup when it is removed is its parent's from then on.
#[test]
fn what_a_removed_cgroup_leaves_to_its_parent_has_not_come_back() {
    let shared = Path::new("/dev/shm");
    if !shared.is_dir() {
        lacks!("there is no /dev/shm");
    }
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    let inner = scene.web.child("inner").unwrap();
    scene.follow();
    scene.limit(&inner, 64);
    let file = tempfile::NamedTempFile::new_in(shared).unwrap();
    fill(file.path(), 24, &inner);
    let mut leak = Scene::leak_in(&inner, 200);
    let pid = leak.pid().unsigned_abs();
    leak.wait(PATIENCE).unwrap();
    let path = inner.group().to_owned();
    inner.remove().unwrap();
    let closed = scene.about(Kind::IncidentClosed, pid);
    assert_eq!(closed.victims[0].cgroup, Field::Value(path));
    let freed = *closed.course.freed.value().unwrap();
    assert!((20 * MIB..=48 * MIB).contains(&freed), "{freed}");
}

/// A task in the freezer of cgroup v1 keeps its SIGKILL until it is let out, long after the rest of the record has settled.
#[test]
fn a_victim_that_exits_late_is_told_with_the_time_of_its_exit() {
    const HELD: Duration = Duration::from_millis(500);
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    let sandbox = match Sandbox::new(&[Controller::Freezer], 0) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let freezer = sandbox.dir(Controller::Freezer).unwrap();
    if freezer.version() == Version::V2 {
        skip!("the freezer of cgroup v2 lets whoever is killed out at once");
    }
    let idler = scene.idler();
    let pid = idler.id();
    let state = freezer.path().join("freezer.state");
    fs::write(freezer.path().join("cgroup.procs"), pid.to_string()).unwrap();
    fs::write(&state, "FROZEN").unwrap();
    let is_frozen = || (fs::read_to_string(&state).ok()?.trim() == "FROZEN").then_some(());
    wait_until(PATIENCE, is_frozen).expect("frozen");
    let killed = Command::new("sh")
        .args(["-c", &format!("kill -9 {pid}")])
        .status()
        .unwrap();
    assert!(killed.success());
    let opened = scene.about(Kind::KillObserved, pid);
    assert_eq!(opened.course.exited, Field::Missing(Missing::Pending));
    std::thread::sleep(HELD);
    fs::write(&state, "THAWED").unwrap();
    let closed = scene.about(Kind::IncidentClosed, pid);
    let (killed, exited) = (&closed.course.killed, &closed.course.exited);
    let (killed, exited) = (killed.value().unwrap(), exited.value().unwrap());
    let took = exited.monotonic_ns - killed.monotonic_ns;
    assert!(took >= HELD.as_nanos().try_into().unwrap(), "{took}");
    assert_eq!(closed.victims[0].exited.value(), Some(exited));
    assert_eq!(closed.course.container_survived, Field::Value(false));
    end(idler);
}

/// Has a process in a cgroup make this file so large, in MiB.
fn fill(file: &Path, mib: u64, group: &OwnedCgroup) {
    let script = format!("read go && exec head -c {} /dev/zero", mib * MIB);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped());
    let mut child = command
        .stdout(fs::File::create(file).unwrap())
        .spawn()
        .unwrap();
    group.add_process(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    let is_empty = || group.processes().unwrap().is_empty().then_some(());
    wait_until(PATIENCE, is_empty).expect("it has exited");
}
