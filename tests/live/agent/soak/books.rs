//! The books of an agent: its journal, read while it is written, and whether everything that should be in it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use brink::guard::step::Kind;
use brink::runtime::journal::{Line, StepLine};
use brink_core::node::action::Action;
use brink_core::node::condition::Condition;
use brink_core::node::input::Recalled;

use super::truth::now;

/// A journal as far as it was read.
pub(super) struct Books {
    path: PathBuf,
    file: Option<BufReader<File>>,
    /// The begin of a line that is not whole yet.
    begun: String,
    /// When something was done about a threshold, or why nothing was: the answers that stand for that.
    pub(super) answered: Vec<i64>,
    /// When each order was opened, and when it was over.
    pub(super) orders: BTreeMap<u64, (i64, Option<i64>)>,
    /// Orders with a whole record.
    recorded: BTreeSet<u64>,
    /// When pressure on memory began to be reported, and when it ended.
    pub(super) pressure: Vec<(i64, bool)>,
    /// Steps that the journal says are missing.
    pub(super) lost: u64,
    /// Those of them that this agent does not count, or not any more.
    lost_before: u64,
    /// What is told to be missing is from between these times.
    gaps: Vec<(i64, i64)>,
    /// Steps read.
    pub(super) steps: u64,
    /// When the last of them was.
    pub(super) last: i64,
}

impl Books {
    pub(super) fn open(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            begun: String::new(),
            answered: Vec::new(),
            orders: BTreeMap::new(),
            recorded: BTreeSet::new(),
            pressure: Vec::new(),
            lost: 0,
            lost_before: 0,
            gaps: Vec::new(),
            steps: 0,
            last: 0,
        }
    }

    /// Reads what was written since the last time. A journal that was put aside meanwhile is read to its end first.
    pub(super) fn read(&mut self) {
        loop {
            let newest = fs::metadata(&self.path).map(|found| found.ino()).ok();
            let own = |file: &BufReader<File>| file.get_ref().metadata().unwrap().ino();
            let read = self.file.as_ref().map(own);
            self.read_lines();
            if read == newest || newest.is_none() {
                return;
            }
            assert_eq!(self.begun, "", "the journal was put aside within a line");
            self.file = File::open(&self.path).ok().map(BufReader::new);
        }
    }

    fn read_lines(&mut self) {
        while let Some(file) = &mut self.file {
            let read = file.read_line(&mut self.begun).unwrap();
            if read == 0 || !self.begun.ends_with('\n') {
                return;
            }
            let text = std::mem::take(&mut self.begun);
            let line = serde_json::from_str(&text);
            self.take(line.unwrap_or_else(|error| panic!("{error}: {text}")));
        }
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Step(step) => self.take_step(&step),
            Line::Lost { steps } => {
                self.lost += steps;
                self.open_gap();
                // What became of them is not told here.
                self.forget_open();
            }
            Line::Decision(record) => {
                if record.end.is_some() {
                    self.recorded.insert(record.order);
                }
            }
            Line::Start { .. } | Line::Table { .. } | Line::Reconfiguration(_) => {}
        }
    }

    /// Another agent goes on after one that was killed, maybe within a line: what became of what is open is not told any
    /// more, and what that one lost it does not count.
    pub(super) fn begin_anew(&mut self) {
        self.read_lines();
        self.begun.clear();
        self.read();
        self.forget_open();
        self.lost_before = self.lost;
    }

    /// Steps since the last one are missing, up to now: that they are is told once the next one comes, which may be from before
    /// them.
    pub(super) fn open_gap(&mut self) {
        self.gaps.push((self.last, now()));
    }

    /// What was lost so far was not the agent's fault: it counts from here on.
    pub(super) fn forgive_lost(&mut self) {
        self.lost_before = self.lost;
    }

    /// Whether a step of this time is told to be missing, or may be.
    pub(super) fn is_in_gap(&self, at: i64) -> bool {
        let mut gaps = self.gaps.iter();
        gaps.any(|(since, until)| (*since..=*until).contains(&at))
    }

    /// Whether the step that opened an order may be missing: a gap is where it must have been by the orders before and after it.
    fn may_be_missing(&self, order: u64) -> bool {
        let before = self.orders.range(..order).next_back();
        let after = self.orders.range(order + 1..).next();
        let since = before.map_or(i64::MIN, |(_, (opened, _))| *opened);
        let until = after.map_or(i64::MAX, |(_, (opened, _))| *opened);
        let mut gaps = self.gaps.iter();
        gaps.any(|(begin, end)| *begin <= until && since <= *end)
    }

    /// Steps that this agent has lost.
    pub(super) const fn lost_by_this_one(&self) -> u64 {
        self.lost - self.lost_before
    }

    /// The ledger has an order: an agent that is killed may not have come to write its last steps down.
    pub(super) fn know(&mut self, order: u64, decided: i64) {
        self.orders.entry(order).or_insert((decided, Some(decided)));
        self.recorded.insert(order);
    }

    /// Whoever wrote it does not tell any more what became of what is open.
    fn forget_open(&mut self) {
        self.begun.clear();
        for (order, (opened, over)) in &mut self.orders {
            over.get_or_insert(*opened);
            self.recorded.insert(*order);
        }
    }

    fn take_step(&mut self, step: &StepLine) {
        let at = step.at.as_nanos();
        assert!(at >= self.last, "the journal goes back in time: {step:?}");
        self.last = at;
        self.steps += 1;
        if let Kind::Recall(Recalled::Unfinished(before)) = step.kind {
            self.know(before.order, at);
        }
        for action in &step.actions {
            match *action {
                Action::Kill { order, .. }
                | Action::Ask { order, .. }
                | Action::WouldEvict { order, .. } => {
                    self.answered.push(at);
                    self.orders.entry(order).or_insert((at, None));
                }
                Action::Ended { order, .. } => {
                    let opened = self.orders.get_mut(&order);
                    match opened {
                        Some((_, over)) => *over = Some(at),
                        None => assert!(self.may_be_missing(order), "{order} was never given"),
                    }
                }
                Action::Held { .. } => self.answered.push(at),
                Action::Conditions(now) => {
                    let is_short = now.iter().any(|one| one == Condition::MemoryPressure);
                    self.pressure.push((at, is_short));
                }
                _ => {}
            }
        }
    }

    /// Orders that are open, or over and without a whole record.
    pub(super) fn unfinished(&self) -> Vec<u64> {
        let is_over = |(_, (_, over)): &(&u64, &(i64, Option<i64>))| over.is_some();
        let orders = self.orders.iter();
        let open = orders.filter(|order| !is_over(order) || !self.recorded.contains(order.0));
        open.map(|(order, _)| *order).collect()
    }

    /// Whether the agent did something about the node in a time, or said why not.
    pub(super) fn answers_in(&self, since: i64, until: i64) -> bool {
        let within = |at: i64| since <= at && at <= until;
        let is_open = |(opened, over): &(i64, Option<i64>)| {
            *opened <= until && over.is_none_or(|over| over >= since)
        };
        self.answered.iter().any(|at| within(*at)) || self.orders.values().any(is_open)
    }

    /// Holds the orders to numbers that follow each other.
    #[track_caller]
    pub(super) fn check_numbers(&self) {
        let faults = self.faults_of_numbers();
        let is_any = faults.iter().any(|orders| !orders.is_empty());
        assert!(!is_any, "{faults:?}, gaps: {:?}", self.gaps);
    }

    /// What a gap does not explain: orders that are missing among the others, and records without an order.
    fn faults_of_numbers(&self) -> [Vec<u64>; 2] {
        let is_unknown = |order: &u64| !self.orders.contains_key(order);
        let ends = [self.orders.keys().next(), self.orders.keys().next_back()];
        let [first, last] = ends.map(|order| order.copied().unwrap_or(0));
        let lacks = |order: &u64| is_unknown(order) && !self.may_be_missing(*order);
        [
            (first..last).filter(lacks).collect(),
            self.recorded.iter().copied().filter(lacks).collect(),
        ]
    }
}

/// A step that was lost once excuses nothing that is missing later.
#[test]
fn a_gap_excuses_what_is_inside_it_alone() {
    let books = |orders: &[(u64, i64)], recorded: &[u64]| {
        let mut books = Books::open(PathBuf::new());
        books.lost = 3;
        books.gaps = vec![(20, 30)];
        let orders = orders.iter();
        books.orders = orders.map(|(order, at)| (*order, (*at, None))).collect();
        books.recorded = recorded.iter().copied().collect();
        books
    };
    let all = [(1, 10), (2, 25), (3, 40), (4, 50), (5, 60)];
    for (without, is_excused) in [(2, true), (3, true), (4, false)] {
        let mut known = all.to_vec();
        known.retain(|(order, _)| *order != without);
        let found = books(&known, &[]).faults_of_numbers();
        let missing = if is_excused { vec![] } else { vec![without] };
        assert_eq!(found, [missing, vec![]], "without {without}");
    }
    let found = books(&all, &[1, 5, 6, 7]).faults_of_numbers();
    assert_eq!(found, [vec![], vec![6, 7]]);
    let books = books(&all, &[]);
    let places = [19, 20, 30, 31].map(|at| books.is_in_gap(at));
    assert_eq!(places, [false, true, true, false]);
}
