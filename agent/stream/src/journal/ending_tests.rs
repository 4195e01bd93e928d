//! What the end of a run leaves for the next one to tell.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::queue::{JournalSink, Queue};
use super::simulated::Simulated;
use super::store::Store;
use super::unwritten::Unwritten;
use super::writer::Writer;
use super::{JournalState, Limits};
use crate::hub::{Hub, Identity, Sink as _};
use crate::model::event::{Draft, Time};
use crate::model::kind::Kind;
use crate::outlet::samples::line;

const BOOT: &str = "3f2a0000-0000-4000-8000-000000000000";
/// Of so small a journal the longest event has 16 KiB.
const SMALL: Limits = Limits {
    size: 64 << 10,
    age: Duration::from_hours(1),
};

/// A journal that no thread writes yet.
struct Scene {
    disk: Simulated,
    hub: Hub,
    queue: Arc<Queue>,
    told: Arc<Mutex<Vec<(u64, u64)>>>,
    writer: Writer<Simulated>,
}

fn scene() -> Scene {
    let disk = Simulated::default();
    let (store, _) = Store::open(disk.clone(), SMALL, BOOT, 1).unwrap();
    let (unwritten, _) = Unwritten::open(&disk);
    let queue = Arc::new(Queue::default());
    let told = Arc::<Mutex<Vec<_>>>::default();
    let telling = Arc::clone(&told);
    let writer = Writer {
        store,
        unwritten,
        queue: Arc::clone(&queue),
        clock: || 1,
        on_loss: Box::new(move |count, total| telling.lock().unwrap().push((count, total))),
    };
    let identity = Identity {
        node: "node".to_owned(),
        boot_id: BOOT.to_owned(),
    };
    let hub = Hub::new(identity, 0, crate::hub::Limits::default());
    hub.attach(Box::new(JournalSink(Arc::clone(&queue))));
    Scene {
        disk,
        hub,
        queue,
        told,
        writer,
    }
}

fn draft(bytes: usize) -> Draft {
    let filler = json!({"filler": "x".repeat(bytes)});
    let at = Time::new(1_700_000_000_000_000, 1);
    Draft::new(Kind::Pressure, at, None, &filler).unwrap()
}

/// What the next run tells as lost.
fn left(disk: &Simulated) -> u64 {
    Unwritten::open(disk).1
}

#[test]
fn what_the_last_flush_could_not_make_safe_is_left_to_the_next_run() {
    let mut scene = scene();
    assert!(scene.writer.store.push(1, b"{}\n", 1));
    scene.writer.store.write(1).unwrap();
    scene.disk.set_sync_fails(true);
    scene.writer.finish();
    let status = scene.queue.status();
    assert!(
        matches!(status.state, JournalState::Failed(_)),
        "{status:?}"
    );
    assert_eq!((status.lost, left(&scene.disk)), (1, 1));
}

#[test]
fn what_is_lost_once_nobody_can_be_told_is_left_to_the_next_run() {
    let scene = scene();
    scene.hub.tell(draft(10));
    scene.hub.tell(draft(20_000));
    scene.queue.close();
    scene.writer.run();
    let status = scene.queue.status();
    assert_eq!((status.written, status.lost), (1, 1));
    assert_eq!(*scene.told.lock().unwrap(), [], "it could not be written");
    assert_eq!(left(&scene.disk), 1);
}

#[test]
fn what_is_told_as_lost_while_the_queue_is_closed_is_not_forgotten() {
    // What tells of it is taken before the end, or refused behind it: that is one more then.
    for (is_late, untold) in [(false, 0), (true, 5)] {
        let queue = Arc::new(Queue::default());
        let mut sink = JournalSink(Arc::clone(&queue));
        queue.lose(4);
        let lost = queue.written(0, 0);
        if is_late {
            queue.close();
        }
        sink.take(&line(1));
        queue.close();
        queue.told(lost);
        assert_eq!((lost, queue.untold()), (4, untold));
    }
}

#[test]
fn a_run_that_loses_nothing_leaves_nothing() {
    let scene = scene();
    scene.hub.tell(draft(10));
    scene.queue.close();
    scene.writer.run();
    assert_eq!((scene.queue.status().lost, left(&scene.disk)), (0, 0));
}

#[test]
fn what_has_come_while_the_disk_was_at_work_is_flushed_together() {
    let scene = scene();
    for _ in 0..500 {
        scene.hub.tell(draft(10));
    }
    scene.queue.close();
    let before = scene.disk.syncs();
    scene.writer.run();
    // The head of the segment, all that waited, and the end.
    assert_eq!(scene.disk.syncs() - before, 3);
    assert_eq!(scene.queue.status().written, 500);
}
