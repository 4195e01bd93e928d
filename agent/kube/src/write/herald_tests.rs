//! The herald before a server: what is told when, and what is left behind.

use std::path::Path;

use brink_core::node::lead::Lead;
use brink_core::node::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::fake::{Fake, Plays};
use super::*;

const STATUS: &str = "PATCH /api/v1/nodes/node-a/status";
const READ: &str = "GET /api/v1/nodes/node-a";
const STEPS: &str = "PATCH /api/v1/nodes/node-a";

struct Scene {
    wanted: watch::Sender<Wanted>,
    task: JoinHandle<()>,
}

fn start(folder: &Path, fake: &Fake, taints: bool) -> Scene {
    let (wanted, receiver) = watch::channel(Wanted::Unknown);
    let herald = Herald {
        door: Door::by(fake.client()),
        node: "node-a".to_owned(),
        seed: 7,
        taints,
        wanted: receiver,
        file: folder.join("node.json"),
    };
    Scene {
        wanted,
        task: tokio::spawn(herald.run()),
    }
}

fn says(held: &[Condition]) -> Wanted {
    says_beside(held, None)
}

fn says_beside(held: &[Condition], beside: Option<Conflict>) -> Wanted {
    Wanted::Says {
        measured: [Condition::MemoryPressure].into_iter().collect(),
        held: held.iter().copied().collect(),
        beside,
    }
}

async fn until(fake: &Fake, what: &str, holds: impl Fn(&[String]) -> bool) {
    let wait = async {
        while !holds(&fake.lines()) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let patience = Duration::from_mins(10);
    assert!(
        timeout(patience, wait).await.is_ok(),
        "{what}: {:?}",
        fake.lines()
    );
}

fn last_condition(fake: &Fake) -> Value {
    let asked = fake.asked();
    let last = asked.iter().rfind(|asked| asked.path.ends_with("/status"));
    last.unwrap().body["status"]["conditions"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn a_change_is_told_and_the_end_takes_it_away() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let scene = start(folder.path(), &fake, false);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(fake.lines(), Vec::<String>::new(), "nothing is known");
    scene.wanted.send_replace(says(&[]));
    until(&fake, "false is told", |lines| lines.len() == 1).await;
    assert_eq!(last_condition(&fake)["status"], "False");
    sleep(Duration::from_hours(1)).await;
    assert_eq!(fake.lines(), [STATUS], "at rest nothing is told");
    scene
        .wanted
        .send_replace(says(&[Condition::MemoryPressure]));
    until(&fake, "true is told", |lines| lines.len() == 2).await;
    assert_eq!(last_condition(&fake)["status"], "True");
    drop(scene.wanted);
    scene.task.await.unwrap();
    assert_eq!(fake.lines(), [STATUS, STATUS, STATUS]);
    let gone = json!({ "$patch": "delete", "type": "brink.dev/MemoryPressure" });
    assert_eq!(last_condition(&fake), gone);
}

#[tokio::test(start_paused = true)]
async fn who_never_knew_what_to_say_leaves_what_another_one_said() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let first = start(folder.path(), &fake, false);
    first.wanted.send_replace(says(&[]));
    until(&fake, "it is told", |lines| lines.len() == 1).await;
    let beside = start(folder.path(), &fake, false);
    drop(beside.wanted);
    beside.task.await.unwrap();
    assert_eq!(fake.lines(), [STATUS]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_hears_how_it_stands_then() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    fake.always(Some(Plays::Breaks));
    let scene = start(folder.path(), &fake, false);
    scene
        .wanted
        .send_replace(says(&[Condition::MemoryPressure]));
    sleep(Duration::from_mins(2)).await;
    let tries = fake.lines().len();
    assert!((5..=20).contains(&tries), "{tries}");
    scene.wanted.send_replace(says(&[]));
    fake.always(None);
    until(&fake, "it is told", |lines| lines.len() > tries).await;
    assert_eq!(last_condition(&fake)["status"], "False");
    sleep(Duration::from_hours(1)).await;
    assert!(fake.lines().len() <= tries + 2);
}

#[tokio::test(start_paused = true)]
async fn who_starts_again_tells_it_again_and_since_when() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let first = start(folder.path(), &fake, false);
    first
        .wanted
        .send_replace(says(&[Condition::MemoryPressure]));
    until(&fake, "it is told", |lines| lines.len() == 1).await;
    // As after a crash.
    first.task.abort();
    let before = last_condition(&fake);
    let file = folder.path().join("node.json");
    let mut kept: Kept = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    kept.conditions[0].since = "2026-01-01T00:00:00Z".to_owned();
    std::fs::write(&file, serde_json::to_vec(&kept).unwrap()).unwrap();
    let second = start(folder.path(), &fake, false);
    second
        .wanted
        .send_replace(says(&[Condition::MemoryPressure]));
    until(&fake, "it is told again", |lines| lines.len() == 2).await;
    let after = last_condition(&fake);
    assert_eq!(after["status"], before["status"]);
    assert_eq!(after["lastTransitionTime"], "2026-01-01T00:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn what_another_takes_away_late_is_told_again_in_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let first = start(folder.path(), &fake, false);
    first.wanted.send_replace(says(&[]));
    until(&fake, "it is told", |lines| lines.len() == 1).await;
    // Its last words are taken, and nobody knows when they are carried out.
    fake.then(Plays::Hangs);
    drop(first.wanted);
    first.task.await.unwrap();
    let second = start(folder.path(), &fake, false);
    second.wanted.send_replace(says(&[]));
    until(&fake, "the next one tells it", |lines| lines.len() == 3).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(fake.lines().len(), 4, "it is told again");
    assert_eq!(last_condition(&fake)["status"], "False");
    sleep(Duration::from_hours(1)).await;
    assert_eq!(fake.lines().len(), 7, "not for ever");
    // These are answered, so that nothing can come late.
    drop(second.wanted);
    second.task.await.unwrap();
    let third = start(folder.path(), &fake, false);
    third.wanted.send_replace(says(&[]));
    sleep(Duration::from_hours(1)).await;
    assert_eq!(fake.lines().len(), 9, "once");
}

#[tokio::test(start_paused = true)]
async fn who_only_observes_now_takes_away_what_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let quiet = start(folder.path(), &fake, false);
    quiet.wanted.send_replace(Wanted::Nothing);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(fake.lines(), Vec::<String>::new(), "nothing was told");
    quiet.task.abort();
    let first = start(folder.path(), &fake, false);
    first.wanted.send_replace(says(&[]));
    until(&fake, "it is told", |lines| lines.len() == 1).await;
    first.task.abort();
    let second = start(folder.path(), &fake, false);
    second.wanted.send_replace(Wanted::Nothing);
    until(&fake, "it is taken away", |lines| lines.len() == 2).await;
    assert_eq!(last_condition(&fake)["$patch"], "delete");
}

#[tokio::test(start_paused = true)]
async fn who_acts_first_is_told_once_known_stays_while_unknown_and_goes_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let by = |ours| {
        Conflict::By(Lead {
            signal: Signal::MemoryAvailable,
            ours: Some(ours),
            kubelets: Some(100),
            margin: 64,
            is_confirmed: false,
        })
    };
    let conflict = || {
        let asked = fake.asked();
        let conditions = asked.last().unwrap().body["status"]["conditions"].clone();
        let mut conditions = conditions.as_array().unwrap().clone().into_iter();
        conditions.find(|one| one["type"] == "brink.dev/KubeletConflict")
    };
    let first = start(folder.path(), &fake, false);
    first.wanted.send_replace(says(&[]));
    until(&fake, "a condition is told", |lines| lines.len() == 1).await;
    assert_eq!(conflict(), None, "nobody knows");
    for (beside, status) in [
        (by(50), "True"),
        (by(164), "False"),
        (Conflict::Unknown("HTTP 403".into()), "Unknown"),
        (by(50), "True"),
    ] {
        let told = fake.lines().len();
        let wanted = says_beside(&[], Some(beside));
        first.wanted.send_replace(wanted);
        until(&fake, "it is told", |lines| lines.len() > told).await;
        assert_eq!(conflict().unwrap()["status"], status);
    }
    let held = [Condition::MemoryPressure];
    first.wanted.send_replace(says(&held));
    until(&fake, "pressure is told", |lines| lines.len() == 6).await;
    assert_eq!(conflict(), None, "it stays as it was told");
    // As after a crash: the next agent knows what is there.
    first.task.abort();
    let second = start(folder.path(), &fake, false);
    second.wanted.send_replace(Wanted::Nothing);
    until(&fake, "it is taken away", |lines| lines.len() == 7).await;
    let gone = json!({ "$patch": "delete", "type": "brink.dev/KubeletConflict" });
    assert_eq!(conflict(), Some(gone));
}

#[tokio::test(start_paused = true)]
async fn the_taint_comes_and_goes_with_memory_pressure() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let bare = json!({ "metadata": { "resourceVersion": "7" }, "spec": {} });
    let tainted = json!({
        "metadata": { "resourceVersion": "8" },
        "spec": { "taints": [{ "key": taint::KEY, "effect": "NoSchedule" }] },
    });
    fake.has("/api/v1/nodes/node-a", bare.clone());
    let scene = start(folder.path(), &fake, true);
    scene.wanted.send_replace(says(&[]));
    until(&fake, "the condition is told", |lines| lines.len() == 1).await;
    scene
        .wanted
        .send_replace(says(&[Condition::MemoryPressure]));
    until(&fake, "it is put on", |lines| lines.len() == 4).await;
    assert_eq!(fake.lines()[1..], [STATUS, READ, STEPS]);
    assert_eq!(fake.asked()[3].body[1]["value"][0]["key"], taint::KEY);
    fake.has("/api/v1/nodes/node-a", tainted);
    drop(scene.wanted);
    scene.task.await.unwrap();
    assert_eq!(fake.lines()[4..], [READ, STEPS, STATUS]);
    assert_eq!(fake.asked()[5].body[1]["op"], "remove");
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_another_puts_on_late_is_taken_off() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let bare = json!({ "metadata": { "resourceVersion": "7" }, "spec": {} });
    fake.has("/api/v1/nodes/node-a", bare);
    let first = start(folder.path(), &fake, true);
    first
        .wanted
        .send_replace(says(&[Condition::MemoryPressure]));
    until(&fake, "it is put on", |lines| lines.len() == 3).await;
    // It is killed, and what it asked for is carried out only once the next one has found no taint.
    first.task.abort();
    let second = start(folder.path(), &fake, true);
    second.wanted.send_replace(says(&[]));
    until(&fake, "the next one looks", |lines| lines.len() == 5).await;
    let tainted = json!({
        "metadata": { "resourceVersion": "8" },
        "spec": { "taints": [{ "key": taint::KEY, "effect": "NoSchedule" }] },
    });
    fake.has("/api/v1/nodes/node-a", tainted);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(fake.lines()[5..], [STATUS, READ, STEPS]);
    assert_eq!(fake.asked()[7].body[1]["op"], "remove");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_meanwhile_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let scene = start(folder.path(), &fake, true);
    let bare = json!({ "metadata": { "resourceVersion": "7" }, "spec": {} });
    fake.then(Plays::Says(200, json!({})));
    fake.then(Plays::Says(200, bare.clone()));
    fake.then(Plays::Says(
        422,
        json!({ "message": "testing path failed" }),
    ));
    fake.then(Plays::Says(200, bare));
    fake.then(Plays::Says(200, json!({})));
    scene
        .wanted
        .send_replace(says(&[Condition::MemoryPressure]));
    until(&fake, "it is put on", |lines| lines.len() == 5).await;
    assert_eq!(fake.lines(), [STATUS, READ, STEPS, READ, STEPS]);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(fake.lines().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_busy_is_left_alone_for_as_long_as_it_asks() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    fake.then(Plays::PutsOff(20));
    let scene = start(folder.path(), &fake, false);
    scene.wanted.send_replace(says(&[]));
    until(&fake, "it is asked", |lines| lines.len() == 1).await;
    sleep(Duration::from_secs(19)).await;
    assert_eq!(
        fake.lines().len(),
        1,
        "the first wait of ours is half a second"
    );
    until(&fake, "it is told", |lines| lines.len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_asked_for_seldom_and_each_change_is_tried_once() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let forbidden = json!({ "reason": "Forbidden", "message": "nodes is forbidden" });
    fake.always(Some(Plays::Says(403, forbidden)));
    let scene = start(folder.path(), &fake, false);
    scene.wanted.send_replace(says(&[]));
    let hour = Duration::from_hours(1);
    sleep(hour).await;
    let tries = fake.lines().len();
    assert!((10..=20).contains(&tries), "{tries} requests");
    sleep(hour * 2).await;
    let more = fake.lines().len() - tries;
    assert!((7..=13).contains(&more), "{more} requests");
    scene
        .wanted
        .send_replace(says(&[Condition::MemoryPressure]));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fake.lines().len(), tries + more + 1);
    fake.always(None);
    sleep(hour / 4).await;
    assert_eq!(fake.lines().len(), tries + more + 2);
    assert_eq!(last_condition(&fake)["status"], "True");
    // Whoever may not say it cannot take it away either, and does not ask for that twice.
    fake.always(Some(Plays::Says(401, json!({}))));
    drop(scene.wanted);
    scene.task.await.unwrap();
    assert_eq!(fake.lines().len(), tries + more + 3);
}

#[tokio::test(start_paused = true)]
async fn the_last_words_are_tried_again_at_a_server_that_is_busy_and_not_at_one_that_is_away() {
    for (plays, expected) in [(Plays::PutsOff(1), 3), (Plays::Breaks, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake::default();
        let scene = start(folder.path(), &fake, false);
        scene.wanted.send_replace(says(&[]));
        until(&fake, "it is told", |lines| lines.len() == 1).await;
        fake.then(plays);
        drop(scene.wanted);
        scene.task.await.unwrap();
        assert_eq!(fake.lines().len(), expected);
        assert_eq!(last_condition(&fake)["$patch"], "delete");
    }
}
