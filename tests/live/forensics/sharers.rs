//! Who shares a victim's memory goes with it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use brink_host::hog::{HogSpec, Load};
use brink_stream::model::field::Field;
use brink_stream::model::incident::Cause;
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, lacks, wait_until};

use crate::scene::{MIB, PATIENCE, Scene, end};

/// Two processes with one memory are no threads of one process: the kernel chooses one of them, and kills the other because nothing
/// would come back otherwise. Both are victims of one incident, and what they shared counts once.
#[test]
fn a_process_that_shares_the_victims_memory_is_in_its_record() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    scene.limit(&scene.web, 96);
    let spec = HogSpec::new(Load::AnonTwin, 64 * MIB, Duration::from_mins(1));
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let mut pair = Hog::spawn(program, Some(&scene.web), &spec).unwrap();
    pair.wait_touched(64 * MIB, PATIENCE).unwrap();
    let both: Vec<u32> = scene
        .web
        .processes()
        .unwrap()
        .into_iter()
        .map(i32::unsigned_abs)
        .collect();
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both.contains(&pair.pid().unsigned_abs()));
    // Whoever else the kernel chooses, this one lives on in the container.
    let idler = scene.idler();
    // It never holds as much, and fits in once they are gone.
    let mut other = Scene::leak_in(&scene.web, 48);
    let told = scene.all_about(Kind::IncidentClosed, &both);
    let [closed, opened] = &told[..] else {
        panic!("not one that opens and closes: {told:#?}");
    };
    // Between the victims' end and their memory the kernel may choose it too: it sees no victim any more then.
    let _it_may_be_killed = other.wait_touched(48 * MIB, PATIENCE);
    assert_eq!(closed.id, opened.id);
    assert_eq!(closed.cause, Cause::MemcgOom, "{closed:#?}");
    let found: BTreeSet<u32> = closed.victims.iter().map(|victim| victim.pid).collect();
    assert_eq!(found, both.iter().copied().collect(), "{closed:#?}");
    let chosen = opened.victims[0].pid;
    let shares = both.iter().find(|pid| **pid != chosen).unwrap();
    let said =
        format!("process {shares} shares the memory of process {chosen}, and was killed with it");
    assert!(closed.evidence.contains(&said), "{:?}", closed.evidence);
    for victim in &closed.victims {
        let anon = victim.anon.value();
        assert!(
            anon.is_some_and(|anon| (60 * MIB..70 * MIB).contains(anon)),
            "{victim:?}"
        );
        assert!(victim.exited.value().is_some(), "{victim:?}");
    }
    let freed = &closed.course.freed;
    assert!(
        freed
            .value()
            .is_some_and(|freed| (32 * MIB..96 * MIB).contains(freed)),
        "{freed:?}"
    );
    assert_eq!(closed.course.container_survived, Field::Value(true));
    let gone = wait_until(PATIENCE, || {
        let left = scene.web.processes().ok()?;
        left.iter()
            .all(|pid| !both.contains(&pid.unsigned_abs()))
            .then_some(())
    });
    assert!(gone.is_some());
    end(idler);
}
