//! What came after a kill: whether the container lives on, and how much memory came back.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use brink_host::cgroup::owned::OwnedCgroup;
use brink_stream::model::field::Field;
use brink_stream::model::kind::Kind;
use brink_tests::{lacks, wait_until};

use crate::scene::{MIB, PATIENCE, Scene};

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
