//! The journal with its thread, behind a hub.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::past::JournalPast;
use super::queue::{JournalSink, Queue};
use super::simulated::{Fate, Simulated};
use super::store::Store;
use super::unwritten::Unwritten;
use super::writer::Writer;
use super::{Journal, JournalError, JournalState, Limits, Recovery, Surroundings};
use crate::hub::{Hub, Identity, Line, Look, Past, Position};
use crate::model::event::{Draft, Time};
use crate::model::kind::Kind;

const PATIENCE: Duration = Duration::from_mins(1);
const BOOT: &str = "3f2a0000-0000-4000-8000-000000000000";
static TIME: AtomicU64 = AtomicU64::new(1);

fn clock() -> i64 {
    i64::try_from(TIME.fetch_add(1, Ordering::Relaxed)).unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never came: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn hub(boot: &str, after: u64) -> Hub {
    let identity = Identity {
        node: "node".to_owned(),
        boot_id: boot.to_owned(),
    };
    Hub::new(identity, after, crate::hub::Limits::default())
}

fn draft(of: Kind, bytes: usize) -> Draft {
    let filler = json!({"filler": "x".repeat(bytes)});
    Draft::new(of, Time::new(1_700_000_000_000_000, 1), None, &filler).unwrap()
}

fn open(path: &Path, boot: &str) -> (Journal, Recovery) {
    open_with(path, boot, Limits::default())
}

fn open_with(path: &Path, boot: &str, limits: Limits) -> (Journal, Recovery) {
    let around = Surroundings {
        boot_id: boot,
        clock,
        on_loss: Box::new(|_, _| ()),
    };
    Journal::open(path, limits, around).unwrap()
}

fn numbers(past: &dyn Past, position: Option<&Position>) -> Vec<(String, u64)> {
    let (mut seen, mut position) = (Vec::new(), position.cloned());
    loop {
        let page = past.after(position.as_ref(), 3).unwrap();
        let Some(last) = page.lines.last() else {
            return seen;
        };
        position = Some(Position {
            boot: Arc::clone(&last.boot),
            seq: last.seq,
        });
        let lines = page.lines.iter();
        seen.extend(lines.map(|line| (line.boot.to_string(), line.seq)));
    }
}

fn of_boot(boot: &str, seqs: impl IntoIterator<Item = u64>) -> Vec<(String, u64)> {
    let seqs = seqs.into_iter();
    seqs.map(|seq| (boot.to_owned(), seq)).collect()
}

/// Goes back through so many parts that have anything.
struct Parts {
    wanted: usize,
    seen: Vec<Vec<(String, u64)>>,
    part: Vec<(String, u64)>,
}

impl Look for Parts {
    fn see(&mut self, line: &Arc<Line>) {
        self.part.push((line.boot.to_string(), line.seq));
    }

    fn goes_on(&mut self) -> bool {
        if !self.part.is_empty() {
            self.seen.push(std::mem::take(&mut self.part));
        }
        self.seen.len() < self.wanted
    }
}

#[test]
fn the_past_is_gone_back_through_from_the_newest_segment() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events");
    for boot in ["one", "two", "three"] {
        let (journal, _) = open(&path, boot);
        let hub = hub(boot, 0);
        hub.attach(journal.sink());
        for _ in 0..3 {
            hub.tell(draft(Kind::Pressure, 10));
        }
    }
    let (journal, _) = open(&path, "four");
    let hub = hub("four", 0);
    hub.attach(journal.sink());
    for _ in 0..3 {
        hub.tell(draft(Kind::OomKill, 10));
    }
    let back = |wanted| {
        let (seen, part) = (Vec::new(), Vec::new());
        let mut parts = Parts { wanted, seen, part };
        journal.past().back(&mut parts).unwrap();
        parts.seen
    };
    until("all is written", || journal.status().waiting == 0);
    let of = |boot| of_boot(boot, 1..=3);
    assert_eq!(
        back(usize::MAX),
        [of("four"), of("three"), of("two"), of("one")]
    );
    assert_eq!(back(2), [of("four"), of("three")]);
    hub.tell(draft(Kind::OomKill, 10));
    // Whether or not it is in the files by now.
    let newest = back(usize::MAX).concat();
    assert!(newest.contains(&("four".to_owned(), 4)), "{newest:?}");
}

#[test]
fn what_is_told_is_read_back_by_this_run_the_next_one_and_without_an_agent() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events");
    let missing = JournalPast::open(&path).unwrap_err();
    assert!(matches!(missing, JournalError::Missing { .. }), "{missing}");
    let nothing = JournalPast::open(root.path()).unwrap_err();
    assert!(matches!(nothing, JournalError::Nothing { .. }), "{nothing}");

    let first = hub("one", 0);
    let (journal, recovery) = open(&path, "one");
    assert_eq!(recovery, Recovery::default());
    first.attach(journal.sink());
    for _ in 0..10 {
        first.tell(draft(Kind::Pressure, 10));
        first.tell(draft(Kind::RungChanged, 10));
        // Whatever is written so far: the waiting ones are seen as well.
        let last = first.numbering().last;
        let seen = numbers(&*journal.past(), None);
        assert_eq!(seen.last(), Some(&("one".to_owned(), last - 1)));
    }
    let odd = of_boot("one", (0..10).map(|at| at * 2 + 1));
    assert_eq!(numbers(&*journal.past(), None), odd);
    drop(journal);
    let alone = JournalPast::open(&path).unwrap();
    assert_eq!(numbers(&alone, None), odd, "without an agent");

    let second = hub("two", 0);
    let (journal, recovery) = open(&path, "two");
    assert_eq!(recovery.last, Some(("one".to_owned(), 19)));
    let here = Position {
        boot: "two".into(),
        seq: 0,
    };
    assert_eq!(
        numbers(&*journal.past(), Some(&here)),
        [],
        "nothing is newer"
    );
    second.attach(journal.sink());
    second.tell(draft(Kind::OomKill, 100));
    second.tell(draft(Kind::IncidentClosed, 100));
    let both = [of_boot("one", [17, 19]), of_boot("two", [1, 2])].concat();
    let resumed = Position {
        boot: "one".into(),
        seq: 16,
    };
    assert_eq!(numbers(&*journal.past(), Some(&resumed)), both);
    let page = journal.past().after(Some(&resumed), 1).unwrap();
    assert!(!page.is_cut);
    let unknown = Position {
        boot: "three".into(),
        seq: 7,
    };
    assert!(journal.past().after(Some(&unknown), 1).unwrap().is_cut);
    until("all is written", || journal.status().waiting == 0);
    assert_eq!(journal.status().written, 2);
    let line = &alone.after(Some(&resumed), 4).unwrap().lines[2];
    assert_eq!((line.of, line.seq), (Kind::OomKill, 1));
    let last = journal.past().before(i64::MAX).unwrap().unwrap();
    assert_eq!((&*last.boot, last.seq), ("two", 2));
    assert_eq!(journal.past().before(0).unwrap(), None);
}

#[test]
fn a_folder_in_use_and_a_file_in_its_place_are_told_apart() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events");
    std::fs::write(&path, "somebody's").unwrap();
    let open_again = || {
        let around = Surroundings {
            boot_id: BOOT,
            clock,
            on_loss: Box::new(|_, _| ()),
        };
        Journal::open(&path, Limits::default(), around).map(|_| ())
    };
    assert!(matches!(open_again(), Err(JournalError::File { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
    std::fs::remove_file(&path).unwrap();
    let (journal, recovery) = open(&path, BOOT);
    assert_eq!(recovery.put_aside, []);
    assert!(matches!(open_again(), Err(JournalError::Busy { .. })));
    drop(journal);
}

/// Whatever has the name of a segment and is no file is out of the way, and keeps nobody from the rest.
#[test]
fn a_link_and_a_socket_in_the_place_of_a_segment_are_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let file = |number| folder.path().join(super::store::name(number));
    std::os::unix::fs::symlink("/dev/null", file(1)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(file(2)).unwrap();
    let (journal, recovery) = open(folder.path(), BOOT);
    assert_eq!(recovery.put_aside.len(), 2, "{recovery:?}");
    let hub = hub(BOOT, 0);
    journal.attach(&hub);
    hub.tell(draft(Kind::OomKill, 10));
    until("it is written", || journal.status().written == 1);
}

#[test]
fn an_event_of_a_later_version_is_passed_over_and_counted() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events");
    let hub = hub(BOOT, 0);
    let (journal, _) = open(&path, BOOT);
    hub.attach(journal.sink());
    for _ in 0..3 {
        hub.tell(draft(Kind::Pressure, 1));
    }
    drop(journal);
    let file = path.join("events-000000000001.log");
    let mut bytes = Vec::new();
    for seq in 4..6 {
        let text = b"{\"type\":\"of-a-later-version\"}\n";
        let record = super::record::Record {
            what: super::record::What::Line,
            seq,
            written: 1,
            text,
        };
        assert!(record.encode(&mut bytes));
    }
    let mut file = std::fs::File::options().append(true).open(file).unwrap();
    file.write_all(&bytes).unwrap();
    let (journal, _) = open(&path, BOOT);
    let hub = self::hub(BOOT, 5);
    hub.attach(journal.sink());
    hub.tell(draft(Kind::Pressure, 1));
    let known = of_boot(BOOT, [1, 2, 3, 6]);
    assert_eq!(numbers(&*journal.past(), None), known);
    assert!(journal.past().unread() >= 2);
    assert!(journal.past().after(None, 4).unwrap().is_cut, "and told");
}

fn behind(line: &Line) -> Position {
    Position {
        boot: Arc::clone(&line.boot),
        seq: line.seq,
    }
}

#[test]
fn who_comes_back_to_a_segment_that_has_gone_is_told_of_a_cut() {
    let root = tempfile::tempdir().unwrap();
    let limits = Limits {
        size: 64 << 10,
        ..Limits::default()
    };
    let (journal, _) = open_with(&root.path().join("events"), BOOT, limits);
    let hub = hub(BOOT, 0);
    hub.attach(journal.sink());
    let tell = |count| {
        for _ in 0..count {
            hub.tell(draft(Kind::Pressure, 1000));
        }
        until("all is written", || journal.status().waiting == 0);
    };
    tell(10);
    let past = journal.past();
    let page = past.after(None, 5).unwrap();
    let place = behind(&page.lines[4]);
    assert!(!page.is_cut);
    let page = past.after(Some(&place), 5).unwrap();
    assert_eq!((page.is_cut, page.lines[0].seq), (false, 6));
    for _ in 0..20 {
        tell(10);
    }
    let page = past.after(Some(&place), 5).unwrap();
    assert!(page.lines[0].seq > 6, "{}", page.lines[0].seq);
    assert!(page.is_cut);
    let page = past.after(Some(&behind(&page.lines[4])), 5).unwrap();
    assert!(!page.is_cut, "it is told once");
}

#[test]
fn who_reads_past_damage_is_told_of_a_cut_once() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events");
    let (journal, _) = open(&path, BOOT);
    let hub = hub(BOOT, 0);
    hub.attach(journal.sink());
    for _ in 0..6 {
        hub.tell(draft(Kind::Pressure, 1000));
    }
    drop(journal);
    // One byte in the text of the third.
    let file = path.join("events-000000000001.log");
    let mut bytes = std::fs::read(&file).unwrap();
    let length = (bytes.len() - super::record::HEAD) / 6;
    bytes[super::record::HEAD + 2 * length + length / 2] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let past = JournalPast::open(&path).unwrap();
    let (mut seen, mut position) = (Vec::new(), None);
    loop {
        let page = past.after(position.as_ref(), 1).unwrap();
        let Some(line) = page.lines.last() else {
            break;
        };
        seen.push((line.seq, page.is_cut));
        position = Some(behind(line));
    }
    let whole = [1, 2, 5, 6].map(|seq| (seq, false));
    assert_eq!(seen, [&whole[..2], &[(4, true)], &whole[2..]].concat());
    // A head that is none any more hides all events of its segment.
    bytes[3] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let page = past.after(None, 1).unwrap();
    assert_eq!((page.lines.len(), page.is_cut), (0, true));
}

/// A journal on a simulated disk, with its thread.
struct Scene {
    disk: Simulated,
    hub: Hub,
    queue: Arc<Queue>,
    told: Arc<Mutex<Vec<(u64, u64)>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Scene {
    fn new() -> Self {
        Self::on(Simulated::default())
    }

    fn on(disk: Simulated) -> Self {
        let (store, _) = Store::open(disk.clone(), Limits::default(), BOOT, 1).unwrap();
        let queue = Arc::new(Queue::default());
        let told = Arc::<Mutex<Vec<_>>>::default();
        let telling = Arc::clone(&told);
        let (unwritten, _) = Unwritten::open(&disk);
        let writer = Writer {
            store,
            unwritten,
            queue: Arc::clone(&queue),
            clock,
            on_loss: Box::new(move |count, total| telling.lock().unwrap().push((count, total))),
        };
        let hub = hub(BOOT, 0);
        hub.attach(Box::new(JournalSink(Arc::clone(&queue))));
        Self {
            disk,
            hub,
            queue,
            told,
            thread: Some(thread::spawn(move || writer.run())),
        }
    }

    fn end(&mut self) {
        self.queue.close();
        self.thread.take().unwrap().join().unwrap();
    }

    /// The events that a power cut now would leave.
    fn safe(&self) -> Vec<u64> {
        let reader = super::read::Reader::new(self.disk.after_cut(|_| Fate::Goes));
        let most = super::read::Most {
            events: usize::MAX,
            bytes: usize::MAX,
        };
        let page = reader.page(super::read::Cursor::default(), most).unwrap();
        page.events.iter().map(|kept| kept.seq).collect()
    }
}

#[test]
fn every_event_is_safe_soon_without_another_one_behind_it() {
    let mut scene = Scene::new();
    for (of, seq) in [(Kind::Pressure, 1), (Kind::OomKill, 2), (Kind::Loss, 3)] {
        scene.hub.tell(draft(of, 10));
        until("it is safe", || scene.safe().last() == Some(&seq));
    }
    scene.hub.tell(draft(Kind::Pressure, 10));
    scene.end();
    assert_eq!(scene.safe(), [1, 2, 3, 4], "the end waits for all");
}

/// An event of any kind is flushed by itself, so that a power cut costs no more than the one that is being written.
#[test]
fn the_disk_is_flushed_for_each_event() {
    let mut scene = Scene::new();
    for seq in 1..=100 {
        let before = scene.disk.syncs();
        scene.hub.tell(draft(Kind::ThresholdCrossed, 10));
        until("it is safe", || scene.safe().last() == Some(&seq));
        assert!(scene.disk.syncs() > before);
    }
    scene.end();
}

#[test]
fn a_full_disk_is_a_state_and_what_is_dropped_meanwhile_is_told_afterwards() {
    let mut scene = Scene::new();
    scene.hub.tell(draft(Kind::Pressure, 10));
    until("it is safe", || scene.safe() == [1]);
    scene.disk.set_capacity(Some(scene.disk.used() + 50));
    scene.hub.tell(draft(Kind::OomKill, 10));
    let is_full = || matches!(scene.queue.status().state, JournalState::Full(_));
    until("the state is shown", is_full);
    for _ in 0..5000 {
        scene.hub.tell(draft(Kind::Pressure, 10));
    }
    let status = scene.queue.status();
    assert_eq!((status.waiting, status.lost), (4096, 905));
    scene.disk.set_capacity(None);
    until("it goes on", || scene.queue.status().waiting == 0);
    until("the loss is told", || {
        !scene.told.lock().unwrap().is_empty()
    });
    assert_eq!(*scene.told.lock().unwrap(), [(905, 905)]);
    scene.hub.tell(draft(Kind::Pressure, 10));
    scene.end();
    let safe = scene.safe();
    assert_eq!(safe.len(), 1 + 4096 + 1);
    assert_eq!((safe[4096], safe[4097]), (4097, 5003));
    assert_eq!(scene.queue.status().state, JournalState::Writing);
}

#[test]
fn memory_is_bounded_while_the_disk_is_full_and_the_end_does_not_wait_for_it() {
    let mut scene = Scene::new();
    scene.disk.set_capacity(Some(0));
    for _ in 0..40 {
        scene.hub.tell(draft(Kind::OomKill, 1 << 20));
    }
    assert!(scene.queue.status().waiting <= 8);
    scene.end();
    let status = scene.queue.status();
    assert_eq!((status.waiting, status.lost, status.written), (0, 40, 0));
}

/// What waits for a full disk is kept count of on that disk, for the run that comes after this one.
#[test]
fn the_next_run_knows_what_the_disk_had_no_room_for() {
    let mut scene = Scene::new();
    scene.hub.tell(draft(Kind::OomKill, 10));
    until("it is safe", || scene.safe() == [1]);
    let left = |disk: &Simulated| Unwritten::open(disk).1;
    assert_eq!(left(&scene.disk), 0);
    scene.disk.set_capacity(Some(scene.disk.used()));
    for _ in 0..3 {
        scene.hub.tell(draft(Kind::OomKill, 10));
    }
    // Whoever is killed now has left their number; and so has a run that ends in order.
    until("it is kept", || left(&scene.disk) == 3);
    scene.hub.tell(draft(Kind::OomKill, 10));
    scene.end();
    assert_eq!(left(&scene.disk), 4);
    // Once the next run has written what it tells of that, it is over.
    scene.disk.set_capacity(None);
    let mut next = Scene::on(scene.disk.clone());
    next.hub.tell(draft(Kind::Loss, 10));
    until("it is over", || left(&next.disk) == 0);
    next.end();
}

#[test]
fn a_disk_that_cannot_flush_is_told_with_what_it_may_have_cost() {
    let mut scene = Scene::new();
    scene.hub.tell(draft(Kind::OomKill, 10));
    until("it is safe", || scene.safe() == [1]);
    scene.disk.set_sync_fails(true);
    scene.hub.tell(draft(Kind::OomKill, 10));
    let has_failed = || matches!(scene.queue.status().state, JournalState::Failed(_));
    until("the state is shown", has_failed);
    assert_eq!(scene.queue.status().lost, 1);
    scene.disk.set_sync_fails(false);
    scene.hub.tell(draft(Kind::OomKill, 10));
    until("it goes on", || scene.safe().last() == Some(&3));
    until("the loss is told", || {
        !scene.told.lock().unwrap().is_empty()
    });
    scene.end();
}

/// The line of an event is what is read back.
#[test]
fn a_line_is_the_same_afterwards() {
    let root = tempfile::tempdir().unwrap();
    let hub = hub(BOOT, 0);
    let (journal, _) = open(&root.path().join("events"), BOOT);
    hub.attach(journal.sink());
    let mut reader = hub.reader(None);
    hub.tell(draft(Kind::ThresholdCrossed, 10));
    let Some(crate::hub::Next::Line(told)) = reader.next() else {
        panic!("the event is not there");
    };
    drop(journal);
    let past = JournalPast::open(&root.path().join("events")).unwrap();
    let read: Vec<Arc<Line>> = past.after(None, 10).unwrap().lines;
    assert_eq!(read, [told]);
}
