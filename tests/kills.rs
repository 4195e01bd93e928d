//! Kills at a pace by the limits of cgroups, and whether what an agent tells of them is all there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use brink_host::cgroup::Layout;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::hog::{HogSpec, Load};
use brink_host::process::brief::start_ticks;
use serde_json::Value;

use crate::Hog;
use crate::lines::Lines;

/// The limit of each group.
const LIMIT: u64 = 16 << 20;
/// A process that is not killed ends by itself.
const DEADLINE: Duration = Duration::from_secs(30);
/// Lines that are kept of one agent, in bytes: a thousand incidents have less than half of it.
const MOST: usize = 512 << 20;

/// One line of an agent's, and when it could be read.
pub type Heard = (u64, Vec<u8>);

/// A process, by its id and when it was started, in clock ticks since boot: among many forks an id is soon another's.
pub type Process = (u64, u64);

/// Whom a limit has killed, and the path of the cgroup whose limit that was.
pub type Killed = BTreeMap<Process, String>;

/// Kills one process after the other, `per_second` of them, each by the limit of the next group. Returns who that was, and how
/// long it took.
///
/// # Errors
/// When a process cannot be started, or is not killed.
pub fn kill_by_limits(
    program: &Path,
    (layout, groups): (&Layout, &[OwnedCgroup]),
    (count, per_second): (u32, u32),
) -> io::Result<(Killed, Duration)> {
    for group in groups {
        group
            .limit_memory(layout, LIMIT)
            .map_err(io::Error::other)?;
    }
    let began = Instant::now();
    let mut killed = Killed::new();
    let mut running = VecDeque::new();
    let spec = HogSpec::new(Load::Anon, 4 * LIMIT, DEADLINE);
    for (number, group) in (0..count).zip(groups.iter().cycle()) {
        // One group takes one process at a time.
        if running.len() == groups.len() {
            reap(&mut running)?;
        }
        let due = Duration::from_secs(1) * number / per_second;
        sleep(due.saturating_sub(began.elapsed()));
        let hog = Hog::spawn(program, Some(group), &spec)?;
        // It is there until we reap it.
        let started = start_ticks(Path::new("/"), hog.pid()).map_err(io::Error::other)?;
        let process = (u64::from(hog.pid().unsigned_abs()), started);
        killed.insert(process, group.group().to_owned());
        running.push_back(hog);
    }
    let took = began.elapsed();
    while !running.is_empty() {
        reap(&mut running)?;
    }
    Ok((killed, took))
}

fn reap(running: &mut VecDeque<Hog>) -> io::Result<()> {
    use std::os::unix::process::ExitStatusExt as _;
    let Some(mut hog) = running.pop_front() else {
        return Ok(());
    };
    let status = hog.wait(DEADLINE)?;
    match status.signal() {
        Some(9) => Ok(()),
        _ => Err(io::Error::other(format!(
            "the limit did not kill: {status}"
        ))),
    }
}

/// Keeps what an agent tells from now on, until so many incidents are closed or nothing comes for `patience`. The thread fails
/// if the stream ends.
///
/// # Errors
/// When nobody answers.
pub fn listen(
    socket: &Path,
    closed: u32,
    patience: Duration,
) -> io::Result<JoinHandle<io::Result<Vec<Heard>>>> {
    let mut lines = Lines::ask(socket, "follow=1", patience)?;
    let keep = move || {
        let (mut heard, mut size, mut left) = (Vec::new(), 0, closed);
        while left > 0 && size < MOST {
            let (at, line) = match lines.take() {
                Ok(Some(told)) => told,
                Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            size += line.len();
            left -= u32::from(is_of(line, "incident-closed"));
            heard.push((at, line.to_vec()));
        }
        Ok(heard)
    };
    Ok(std::thread::spawn(keep))
}

/// Whether a line is an event of a kind; that stands in front of everything whose length is not known.
fn is_of(line: &[u8], kind: &str) -> bool {
    let head = &line[..line.len().min(128)];
    String::from_utf8_lossy(head).contains(&format!("\"type\":\"{kind}\""))
}

/// What an agent has told of kills.
#[derive(Debug, Default)]
pub struct Account {
    /// Milliseconds from the kernel's mark to the line with which the incident opens.
    pub delays: Vec<f64>,
    /// Kills without an event that opens an incident, or without the one that closes it.
    pub missing: usize,
    /// How many lines there were of each kind.
    pub kinds: BTreeMap<String, usize>,
    /// Events that a `loss` counts, whatever it was that was lost.
    pub counted: u64,
    /// Numbers that were neither told nor counted by a `loss`, and missing kills beyond what the losses count.
    pub uncounted: u64,
    /// Final records with a field that is still to come.
    pub pending: usize,
    /// Opening records, which can be read first, in which a part has its value, by part.
    pub first: BTreeMap<&'static str, usize>,
    /// Final records in which a part has its value, by part.
    pub filled: BTreeMap<&'static str, usize>,
    /// Records, of either sort, with the limit of another cgroup than the one that killed.
    pub wrong_limits: usize,
    /// Final records that are complete.
    pub complete: usize,
    /// What was wrong with the first of those that are not.
    pub example: Option<String>,
}

/// Parts of a record that must have values in the final one.
pub const PARTS: [&str; 5] = ["victim", "limit", "memory.stat", "kernel stack", "identity"];

/// A part that need not have one: the arguments lie in the victim's own memory, which may be given back before they are read.
pub const SHOWN: &str = "argv";

/// Where their values are, as JSON pointers.
const POINTERS: [(&str, &[&str]); PARTS.len()] = [
    (
        PARTS[0],
        &[
            "/victims/0/startNs/value",
            "/victims/0/uid/value",
            "/victims/0/oomScoreAdj/value",
            "/victims/0/anon/value",
            "/victims/0/file/value",
            "/victims/0/shmem/value",
            "/victims/0/pageTables/value",
            "/victims/0/ageNs/value",
            "/victims/0/cgroup/value",
            STILL_TO_COME,
        ],
    ),
    (PARTS[1], &["/limit/value/cgroup"]),
    (PARTS[2], &["/memoryStat/value/pgfault"]),
    (PARTS[3], &["/trigger/value/kernelStack/value/3"]),
    (PARTS[4], &["/workload/value/name"]),
];

const ARGUMENTS: &str = "/victims/0/argv/value/0";

/// What no record can have before the victim is gone.
const STILL_TO_COME: &str = "/victims/0/exited/value";

impl Account {
    /// Goes through what was heard of these kills.
    ///
    /// # Errors
    /// When a line is no event.
    pub fn of(killed: &Killed, heard: &[Heard]) -> io::Result<Self> {
        let mut account = Self::default();
        let (mut opened, mut closed) = (BTreeSet::new(), BTreeSet::new());
        let everybody: BTreeSet<Process> = killed.keys().copied().collect();
        let mut last = None;
        for (at, line) in heard {
            let event: Value = serde_json::from_slice(line)?;
            last = Some(account.follow(last, &event));
            let kind = event["type"].as_str().unwrap_or_default();
            *account.kinds.entry(kind.to_owned()).or_default() += 1;
            let victims = event["data"]["victims"].as_array().into_iter().flatten();
            let processes = victims.filter_map(process);
            let ours: Vec<Process> = processes.filter(|each| killed.contains_key(each)).collect();
            let groups = ours.iter().filter_map(|each| killed.get(each));
            let groups: Vec<&String> = groups.collect();
            match kind {
                "oom-kill" if !ours.is_empty() => {
                    account.judge_first(&event["data"]);
                    account.compare(&groups, &event["data"]);
                    opened.extend(ours);
                    account.delays.push(delay(*at, &event["at"]));
                }
                "incident-closed" if !ours.is_empty() => {
                    account.judge(line, &event["data"]);
                    account.compare(&groups, &event["data"]);
                    closed.extend(ours);
                }
                _ => {}
            }
        }
        account.look_for(&everybody, (&opened, &closed), heard);
        Ok(account)
    }

    /// Takes note of those of whom no incident was opened and closed.
    fn look_for(
        &mut self,
        killed: &BTreeSet<Process>,
        (opened, closed): (&BTreeSet<Process>, &BTreeSet<Process>),
        heard: &[Heard],
    ) {
        let told = opened & closed;
        self.missing = killed.difference(&told).count();
        if let Some(missing) = killed.difference(&told).next() {
            let (opened, closed) = (opened.contains(missing), closed.contains(missing));
            let (pid, started) = missing;
            let of_it = |(_, line): &&Heard| {
                let key = format!("\"pid\":{pid},");
                line.windows(key.len()).any(|part| part == key.as_bytes())
            };
            let first = heard.iter().find(of_it).map(|(_, line)| {
                String::from_utf8_lossy(&line[..line.len().min(500)]).into_owned()
            });
            self.example = Some(format!(
                "of the kill of {pid}, started at {started}: opened {opened}, closed {closed}; told first: {first:?}"
            ));
        }
        let missing = u64::try_from(self.missing).unwrap_or(u64::MAX);
        self.uncounted += missing.saturating_sub(self.counted);
    }

    /// Takes note of an event's number; the one that is now the last.
    fn follow(&mut self, last: Option<u64>, event: &Value) -> u64 {
        let number = event["seq"].as_u64().unwrap_or(0);
        let mut first = number;
        if event["type"] == "loss" {
            let data = &event["data"];
            self.counted += data["count"].as_u64().unwrap_or(0);
            first = data["first"].as_u64().unwrap_or(number);
        }
        if let Some(last) = last {
            self.uncounted += first.saturating_sub(last + 1);
        }
        number
    }

    /// Compares the limit that a record tells, if it tells one, with those that killed its victims.
    fn compare(&mut self, groups: &[&String], record: &Value) {
        let told = record
            .pointer("/limit/value/cgroup")
            .and_then(Value::as_str);
        let is_wrong = told.is_some_and(|told| groups.iter().any(|group| *group != told));
        self.wrong_limits += usize::from(is_wrong);
        if is_wrong {
            self.example.get_or_insert_with(|| {
                format!("killed by the limit of {groups:?}, told as that of {told:?}")
            });
        }
    }

    /// Takes note of what is there in the record that can be read first.
    fn judge_first(&mut self, record: &Value) {
        for (part, pointers) in POINTERS {
            let mut pointers = pointers.iter().filter(|pointer| **pointer != STILL_TO_COME);
            let is_filled = pointers.all(|pointer| has(record, pointer));
            *self.first.entry(part).or_default() += usize::from(is_filled);
        }
        let is_filled = has(record, ARGUMENTS);
        *self.first.entry(SHOWN).or_default() += usize::from(is_filled);
    }

    fn judge(&mut self, line: &[u8], record: &Value) {
        // A reason is `missing` of a field, or `…Missing` beside one. Quotes within texts are escaped, so that this is never part of one.
        const PENDING: &[u8] = br#"issing":"pending""#;
        let is_pending = line.windows(PENDING.len()).any(|part| part == PENDING);
        self.pending += usize::from(is_pending);
        let mut absent = None;
        for (part, pointers) in POINTERS {
            let first = pointers.iter().find(|pointer| !has(record, pointer));
            *self.filled.entry(part).or_default() += usize::from(first.is_none());
            absent = absent.or(first);
        }
        let is_filled = has(record, ARGUMENTS);
        *self.filled.entry(SHOWN).or_default() += usize::from(is_filled);
        let is_final = record["isFinal"] == true;
        self.complete += usize::from(is_final && !is_pending);
        if !is_final || is_pending || absent.is_some() {
            self.example.get_or_insert_with(|| {
                let mut record = record.clone();
                record["recording"] = Value::Null;
                format!("final {is_final}, pending {is_pending}, lacks {absent:?}: {record}")
            });
        }
    }
}

/// A victim of a record, if it is told when it was started.
fn process(victim: &Value) -> Option<Process> {
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let started = victim["startNs"]["value"].as_u64()? / tick;
    Some((victim["pid"].as_u64()?, started))
}

/// Whether a record has a value there.
fn has(record: &Value, pointer: &str) -> bool {
    record
        .pointer(pointer)
        .is_some_and(|found| !found.is_null())
}

/// Milliseconds from an event's own time to another one.
#[expect(
    clippy::cast_precision_loss,
    reason = "differences of a run: far below 2^53 ns"
)]
fn delay(at: u64, event: &Value) -> f64 {
    let killed = event["monotonicNs"].as_u64().unwrap_or(0);
    at.saturating_sub(killed) as f64 / 1e6
}
