//! A kill by somebody else that goes another way than kill(2).

use std::collections::BTreeSet;
use std::process::{Child, Command};

use brink_host::cgroup::Version;
use brink_stream::model::field::Field;
use brink_stream::model::incident::Cause;
use brink_stream::model::kind::Kind;
use brink_tests::{lacks, skip};

use crate::scene::{Scene, end};

/// Who writes to `cgroup.kill` is the sender of all its signals, which are one act.
#[test]
fn a_group_that_somebody_else_kills_whole_is_one_incident_that_names_the_writer() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    if scene.memory().version() == Version::V1 {
        skip!("cgroup v1 has no cgroup.kill");
    }
    let idlers = [scene.idler(), scene.idler()];
    let pids = idlers.each_ref().map(Child::id);
    let file = scene.memory().path().join("cgroup.kill");
    let mut killer = Command::new("sh")
        .args(["-c", &format!("echo 1 > {}", file.display())])
        .spawn()
        .unwrap();
    let sender = killer.id();
    assert!(killer.wait().unwrap().success());
    let told = scene.all_about(Kind::IncidentClosed, &pids);
    let [closed, opened] = &told[..] else {
        panic!("not one that opens and closes: {told:#?}");
    };
    assert_eq!(closed.id, opened.id);
    assert_eq!(closed.cause, Cause::ForeignKill, "{closed:#?}");
    let found: BTreeSet<u32> = closed.victims.iter().map(|victim| victim.pid).collect();
    assert_eq!(found, BTreeSet::from(pids));
    let trigger = opened.trigger.value().unwrap();
    assert_eq!((trigger.pid, trigger.comm.as_str()), (sender, "sh"));
    // SI_USER, as of kill(2).
    assert_eq!(trigger.signal_code, Field::Value(0));
    assert_eq!(opened.workload.value().unwrap().name, "web");
    assert_eq!(closed.course.container_survived, Field::Value(false));
    idlers.into_iter().for_each(end);
}
