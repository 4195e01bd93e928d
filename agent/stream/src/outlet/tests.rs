//! What the ways out hand out, and what they say when they cannot.

use std::fs;
use std::io::{self, Read as _, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use serde_json::Value;

use super::file::{RotatedFile, Rotation};
use super::journald::Journald;
use super::samples::{draft, hub, line, long_line, odd_line};
use super::stdout::Lines;
use super::{Failure, Format, Lost, Outlet, Running};
use crate::hub::Line;
use crate::model::kind::Kind;

pub(super) const PATIENCE: Duration = Duration::from_mins(1);

pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn seqs(text: &[u8]) -> Vec<u64> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let values = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    values.map(|value| value["seq"].as_u64().unwrap()).collect()
}

fn file(path: &Path, size: u64, count: u32) -> RotatedFile {
    RotatedFile::new(path, Rotation { size, count }, Format::Json)
}

#[test]
fn a_file_is_rotated_by_size_and_so_many_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("var/events.jsonl");
    let size = 3 * line(10).text.len() as u64;
    let mut outlet = file(&path, size, 2);
    let lines: Vec<_> = (10..21).map(line).collect();
    outlet.put(&lines[..5]).unwrap();
    drop(outlet);
    file(&path, size, 2).put(&lines[5..]).unwrap();
    let names = fs::read_dir(path.parent().unwrap()).unwrap();
    assert_eq!(names.count(), 3);
    let of = |end: &str| seqs(&fs::read(format!("{}{end}", path.display())).unwrap());
    assert_eq!(of(""), [19, 20]);
    assert_eq!(of(".1"), [16, 17, 18]);
    assert_eq!(of(".2"), [13, 14, 15]);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A line that is longer than a file may be has one of its own.
    let mut outlet = file(&path, 10, 0);
    outlet.put(&lines[..2]).unwrap();
    assert_eq!(of(""), [11]);
}

#[test]
fn a_file_that_ends_within_a_line_or_is_taken_away_is_gone_on_with() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events.jsonl");
    fs::write(&path, b"{\"apiVersion\":").unwrap();
    let mut outlet = file(&path, 1 << 20, 1);
    outlet.put(&[line(1)]).unwrap();
    let text = fs::read(&path).unwrap();
    assert!(text.starts_with(b"{\"apiVersion\":\n{\"apiVersion\""));
    fs::rename(&path, root.path().join("taken")).unwrap();
    outlet.put(&[line(2), line(3)]).unwrap();
    assert_eq!(seqs(&fs::read(&path).unwrap()), [2, 3]);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let failure = outlet.put(&[line(4)]).unwrap_err();
    assert_eq!((failure.done, failure.lost), (0, 0));
    let failure = file(Path::new("/dev/full"), 1, 1).put(&[line(4)]);
    let why = failure.unwrap_err().why;
    assert_eq!(why, "/dev/full: it is no plain file");
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events.jsonl");
    let formats = [Format::Json, Format::CloudEvents];
    let outlet = |format| RotatedFile::new(&path, Rotation { size: 10, count: 1 }, format);
    for text in [
        "Somebody's notes.\n",
        "\n",
        "{}\n",
        "{\"seq\":1}\n",
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}\n",
        "{\"specversion\":\"1.0\",\"id\":\"7\",\"source\":\"/another\"}\n",
    ] {
        for format in formats {
            fs::write(&path, text).unwrap();
            let failure = outlet(format).put(&[line(1), line(2)]).unwrap_err();
            assert_eq!((failure.done, failure.lost), (0, 0), "{text}");
            let why =
                "events.jsonl: it is there and has other things than events; it is left alone";
            assert!(failure.why.ends_with(why), "{}", failure.why);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        }
    }
    // What a run before us has written is gone on with, in either format, wherever it was stopped.
    for (before, after) in [(formats[0], formats[1]), (formats[1], formats[0])] {
        fs::remove_file(&path).unwrap();
        outlet(before).put(&[line(1)]).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let mut outlet = RotatedFile::new(
                &path,
                Rotation {
                    size: 1 << 20,
                    count: 1,
                },
                after,
            );
            outlet.put(&[line(2)]).unwrap();
            assert!(fs::read(&path).unwrap().starts_with(&whole[..length]));
        }
    }
}

#[test]
fn rotation_moves_nothing_over_a_file_of_somebody_else() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events.jsonl");
    let of = |end: &str| root.path().join(format!("events.jsonl{end}"));
    fs::write(of(".2"), "Somebody's notes.\n").unwrap();
    let mut outlet = file(&path, 10, 2);
    // The second line needs a new file, and the first cannot go where it would in the end.
    let failure = outlet.put(&[line(1), line(2)]).unwrap_err();
    assert_eq!((failure.done, failure.lost), (1, 0));
    let why =
        "events.jsonl.2 has other things than events and is left alone; the file in use is full";
    assert!(failure.why.ends_with(why), "{}", failure.why);
    assert_eq!(fs::read_to_string(of(".2")).unwrap(), "Somebody's notes.\n");
    assert!(!of(".1").exists());
    fs::remove_file(of(".2")).unwrap();
    outlet.put(&[line(2)]).unwrap();
    assert_eq!(seqs(&fs::read(of(".1")).unwrap()), [1]);
    assert_eq!(seqs(&fs::read(&path).unwrap()), [2]);
}

#[test]
fn a_file_that_cannot_be_had_yet_is_written_once_it_can_be() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("disk");
    fs::write(&folder, "in the way").unwrap();
    let path = folder.join("brink/events.jsonl");
    let mut outlet = file(&path, 1 << 20, 1);
    let failure = outlet.put(&[line(1)]).unwrap_err();
    assert_eq!((failure.done, failure.lost), (0, 0));
    assert!(failure.why.contains("events.jsonl: "), "{}", failure.why);
    fs::remove_file(&folder).unwrap();
    outlet.put(&[line(1), line(2)]).unwrap();
    assert_eq!(seqs(&fs::read(&path).unwrap()), [1, 2]);
}

/// Takes so many bytes at a time, and fails whenever it is told to.
#[derive(Clone, Default)]
struct Fickle {
    taken: Arc<Mutex<Vec<u8>>>,
    room: Arc<Mutex<usize>>,
}

impl Write for Fickle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut room = self.room.lock().unwrap();
        if *room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = bytes.len().min(*room).min(50);
        *room -= length;
        self.taken
            .lock()
            .unwrap()
            .extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn output_that_stops_anywhere_goes_on_there_with_nothing_twice() {
    let lines: Vec<_> = (1..4).map(line).collect();
    let whole: Vec<u8> = lines.iter().flat_map(|line| line.text.to_vec()).collect();
    for room in 0..whole.len() {
        let to = Fickle::default();
        *to.room.lock().unwrap() = room;
        let mut outlet = Lines::new(to.clone(), Format::Json);
        let failure = outlet.put(&lines).unwrap_err();
        *to.room.lock().unwrap() = usize::MAX;
        outlet.put(&lines[failure.done..]).unwrap();
        assert_eq!(*to.taken.lock().unwrap(), whole, "stopped at {room}");
    }
    let to = Fickle::default();
    *to.room.lock().unwrap() = usize::MAX;
    let mut outlet = Lines::new(to.clone(), Format::CloudEvents);
    outlet.put(&lines).unwrap();
    let text = String::from_utf8(to.taken.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("\"specversion\":\"1.0\"").count(), 3);
}

/// The fields of a datagram or file in journald's protocol, read as journald reads them.
fn fields(mut bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|byte| b"=\n".contains(byte)).unwrap();
        let name = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let is_short = bytes[end] == b'=';
        bytes = &bytes[end + 1..];
        let length = if is_short {
            bytes.iter().position(|byte| *byte == b'\n').unwrap()
        } else {
            let (length, rest) = bytes.split_at(8);
            bytes = rest;
            usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap()
        };
        out.push((name, bytes[..length].to_vec()));
        assert_eq!(bytes[length], b'\n');
        bytes = &bytes[length + 1..];
    }
    out
}

/// What the other end gets: a datagram, or the file that comes with an empty one.
fn received(socket: &UnixDatagram) -> (Vec<u8>, bool) {
    let mut bytes = vec![0; 1 << 18];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [io::IoSliceMut::new(&mut bytes)];
    let got = rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::empty()).unwrap();
    bytes.truncate(got.bytes);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message {
            let file = files.next().unwrap();
            let seals = rustix::fs::fcntl_get_seals(&file).unwrap();
            assert!(seals.contains(rustix::fs::SealFlags::WRITE));
            let mut file = fs::File::from(file);
            io::Seek::rewind(&mut file).unwrap();
            bytes.clear();
            file.read_to_end(&mut bytes).unwrap();
            return (bytes, true);
        }
    }
    (bytes, false)
}

/// What it is about, whatever stands there.
fn said(line: &Line) -> String {
    let subject = line.subject.as_ref().unwrap();
    format!("{} {}", subject.namespace, subject.name)
}

#[test]
fn journald_gets_its_fields_and_nobody_can_forge_one() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("socket");
    let mut outlet = Journald::new(&path, said).unwrap();
    let failure = outlet.put(&[line(1)]).unwrap_err();
    assert!(failure.why.contains("socket"), "{}", failure.why);
    let socket = UnixDatagram::bind(&path).unwrap();
    outlet.put(&[line(17), odd_line(18)]).unwrap();
    let (bytes, is_file) = received(&socket);
    assert!(!is_file);
    let found = fields(&bytes);
    let value = |name: &str| {
        let mut values = found.iter().filter(|(own, _)| own == name);
        let value = values
            .next()
            .map(|(_, value)| String::from_utf8(value.clone()).unwrap());
        assert!(values.next().is_none(), "{name} twice");
        value.unwrap_or_default()
    };
    assert_eq!(value("MESSAGE"), "shop cart");
    assert_eq!(value("PRIORITY"), "4");
    assert_eq!(value("SYSLOG_IDENTIFIER"), "brink");
    assert_eq!(value("BRINK_KIND"), "oom-kill");
    assert_eq!(value("BRINK_SEQ"), "17");
    assert_eq!(value("BRINK_INCIDENT"), "3f2a-17");
    assert_eq!(
        value("BRINK_EVENT") + "\n",
        String::from_utf8(line(17).text.to_vec()).unwrap()
    );
    let found = fields(&received(&socket).0);
    let messages = found.iter().filter(|(name, _)| name == "MESSAGE");
    let messages: Vec<_> = messages.map(|(_, value)| value.as_slice()).collect();
    let odd = "a/b \nMESSAGE=forged\u{1f600}";
    assert_eq!(messages, [odd.as_bytes()]);
}

#[test]
fn journald_gets_what_is_too_long_for_a_datagram_as_a_sealed_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("socket");
    let socket = UnixDatagram::bind(&path).unwrap();
    let long = long_line(5, 3 << 20);
    Journald::new(&path, said)
        .unwrap()
        .put(&[Arc::clone(&long)])
        .unwrap();
    let (bytes, is_file) = received(&socket);
    assert!(is_file);
    let found = fields(&bytes);
    let event = found.iter().find(|(name, _)| name == "BRINK_EVENT");
    assert_eq!(event.unwrap().1, long.text.trim_ascii_end());
}

/// Takes what it is allowed to.
#[derive(Clone, Default)]
pub(super) struct Gate {
    pub(super) seen: Arc<Mutex<Vec<u64>>>,
    pub(super) is_open: Arc<Mutex<bool>>,
    refuses: Option<u64>,
}

impl Outlet for Gate {
    fn name(&self) -> &'static str {
        "file"
    }

    fn put(&mut self, lines: &[Arc<Line>]) -> Result<(), Failure> {
        if !*self.is_open.lock().unwrap() {
            let error = io::Error::from(io::ErrorKind::StorageFull);
            return Err(Failure {
                again: Duration::from_millis(5),
                ..Failure::io(0, &error)
            });
        }
        let mut seen = self.seen.lock().unwrap();
        for (at, line) in lines.iter().enumerate() {
            if self.refuses == Some(line.seq) {
                return Err(Failure {
                    done: at + 1,
                    lost: 1,
                    why: "refused".to_owned(),
                    again: Duration::ZERO,
                });
            }
            seen.push(line.seq);
        }
        Ok(())
    }
}

#[test]
fn a_way_out_that_stood_still_tells_exactly_what_it_missed() {
    let hub = hub("node-1", 0);
    let gate = Gate::default();
    let told = Arc::<Mutex<Vec<Lost>>>::default();
    let telling = Arc::clone(&told);
    let running = Running::start(
        Box::new(gate.clone()),
        hub.reader(None),
        |kind| kind != Kind::RungChanged,
        Box::new(move |lost| telling.lock().unwrap().push(lost)),
    )
    .unwrap();
    let tell = |of| hub.tell(draft(of, "a", "b", 1));
    tell(Kind::Pressure);
    until("the failure is shown", || running.status().failed.is_some());
    // The hub keeps 64: those before them are gone when the gate opens.
    for _ in 0..199 {
        tell(Kind::Pressure);
    }
    *gate.is_open.lock().unwrap() = true;
    until("the last is out", || {
        gate.seen.lock().unwrap().last() == Some(&200)
    });
    tell(Kind::RungChanged);
    tell(Kind::OomKill);
    until("the last is out", || {
        gate.seen.lock().unwrap().last() == Some(&202)
    });
    let (seen, lost) = (
        gate.seen.lock().unwrap().clone(),
        told.lock().unwrap().clone(),
    );
    let counted: u64 = lost.iter().map(|lost| lost.count).sum();
    assert_eq!(seen.len() as u64 + counted, 201, "{seen:?} {lost:?}");
    assert_eq!(lost.last().unwrap().total, counted);
    let (from, to) = lost[0].numbers.unwrap();
    assert!(!seen.iter().any(|seq| (from..=to).contains(seq)));
    let status = running.status();
    assert_eq!((status.failed, status.lost), (None, counted));
    drop(running);
}

#[test]
fn what_is_refused_is_lost_and_told_and_the_end_hands_out_the_rest() {
    let hub = hub("node-1", 0);
    let gate = Gate {
        refuses: Some(2),
        ..Gate::default()
    };
    *gate.is_open.lock().unwrap() = true;
    let told = Arc::<Mutex<Vec<Lost>>>::default();
    let telling = Arc::clone(&told);
    let running = Running::start(
        Box::new(gate.clone()),
        hub.reader(None),
        |_| true,
        Box::new(move |lost| telling.lock().unwrap().push(lost)),
    )
    .unwrap();
    for _ in 0..5 {
        hub.tell(draft(Kind::Pressure, "a", "b", 1));
    }
    hub.close();
    drop(running);
    until("the rest is out", || {
        *gate.seen.lock().unwrap() == [1, 3, 4, 5]
    });
    let lost = told.lock().unwrap().clone();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].count, lost[0].numbers), (1, None));
}

/// Refuses whatever it is given.
struct Refusing;

impl Outlet for Refusing {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn put(&mut self, lines: &[Arc<Line>]) -> Result<(), Failure> {
        Err(Failure {
            done: lines.len(),
            lost: lines.len() as u64,
            why: "refused".to_owned(),
            again: Duration::from_millis(1),
        })
    }
}

#[test]
fn who_refuses_the_loss_of_what_it_refused_makes_no_flood() {
    let hub = hub("node-1", 0);
    let telling = hub.clone();
    let on_loss = move |lost: Lost| {
        telling.tell(draft(Kind::Loss, "", lost.place, 1));
    };
    let reader = hub.reader(None);
    let running = Running::start(Box::new(Refusing), reader, |_| true, Box::new(on_loss)).unwrap();
    hub.tell(draft(Kind::Pressure, "a", "b", 1));
    // Its own loss has come back to it.
    until("both are refused", || running.status().lost == 2);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(hub.numbering().last, 2);
    drop(running);
}

/// Refuses the first that it is given, and takes everything after that.
#[derive(Default)]
struct Relenting {
    has_refused: bool,
}

impl Outlet for Relenting {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn put(&mut self, lines: &[Arc<Line>]) -> Result<(), Failure> {
        if std::mem::replace(&mut self.has_refused, true) {
            return Ok(());
        }
        Refusing.put(lines)
    }
}

/// It is asked nothing without an event: the loss that tells of what it has refused is one.
#[test]
fn who_has_refused_the_last_works_again_with_the_loss_of_that() {
    let hub = hub("node-1", 0);
    let telling = hub.clone();
    let on_loss = move |lost: Lost| {
        telling.tell(draft(Kind::Loss, "", lost.place, 1));
    };
    let (outlet, reader) = (Box::<Relenting>::default(), hub.reader(None));
    let running = Running::start(outlet, reader, |_| true, Box::new(on_loss)).unwrap();
    hub.tell(draft(Kind::Pressure, "a", "b", 1));
    until("the loss is taken", || running.status().sent == 1);
    let status = running.status();
    assert_eq!((status.failed, status.lost), (None, 1));
}
