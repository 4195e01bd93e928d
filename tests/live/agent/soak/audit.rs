//! The audit after each part of a soak: who died, what was recorded, what was short, and how the agent is.

use std::time::Duration;

use brink::control::protocol::{RingView, Status};
use brink::record::DecisionRecord;
use brink_tests::{report_left_out, slowed, wait_until};

use super::scene::Scene;
use super::truth::{ANSWER, Short, answer};
use crate::support::{PATIENCE, lives};

/// What the agent says of a kill of the kernel's own killer among ours; others on the machine may have theirs.
const OOM: &str = "\"comm\":\"brink-hog\"";

impl Scene {
    /// Everything that must hold after a part of the soak, in which exactly these have died, one after the other.
    #[track_caller]
    pub(super) fn audit(&mut self, victims: &[&str]) {
        let names = self.audit_any();
        assert_eq!(
            names,
            victims,
            "who had to die, and no one else\n{}",
            self.node.log()
        );
    }

    /// The same where it is not known who has died; their names.
    #[track_caller]
    pub(super) fn audit_any(&mut self) -> Vec<String> {
        self.settle();
        for each in &self.bystanders {
            assert!(
                lives(&each.hog),
                "a bystander has died\n{}",
                self.node.log()
            );
        }
        let records = self.node.decisions().into_iter();
        let new: Vec<_> = records
            .filter(|record| record.order > self.audited)
            .collect();
        let names = self.check_records(&new);
        self.check_shortages(&new);
        self.check_status();
        self.check_flat();
        self.books.check_numbers();
        self.relieve();
        names
    }

    /// Waits until every order is over and recorded.
    #[track_caller]
    fn settle(&mut self) {
        let settled = wait_until(PATIENCE, || {
            self.books.read();
            let status = self.node.status()?;
            (status.open_order.is_none() && self.books.unfinished().is_empty()).then_some(())
        });
        let open = self.books.unfinished();
        assert!(
            settled.is_some(),
            "never over: {open:?}\n{}",
            self.node.log()
        );
    }

    #[track_caller]
    fn check_records(&mut self, records: &[DecisionRecord]) -> Vec<String> {
        for record in records {
            self.audited += 1;
            assert_eq!(record.order, self.audited, "a record is missing");
            assert_eq!(record.mode, "enforcing", "{record:#?}");
            let kill = record.kill.as_ref();
            let is_killed = kill.is_some_and(|kill| kill.signalled > 0);
            let is_gone = record.since_sample("gone").is_some();
            assert!(is_killed || is_gone, "nobody was killed: {record:#?}");
            // That steps are missing is told when another one comes.
            let is_accounted = wait_until(PATIENCE, || {
                self.books.read();
                let is_told = self.books.orders.contains_key(&record.order);
                let is_excused = self.has_gap || self.books.is_in_gap(record.decided.monotonic_ns);
                (is_told || is_excused).then_some(())
            });
            assert!(is_accounted.is_some(), "not in the journal: {record:#?}");
        }
        self.order = self.audited;
        records.iter().map(DecisionRecord::victim_name).collect()
    }

    /// Every shortage that the files have shown was answered. One that was not, and that the witness saw too little of, is counted.
    #[track_caller]
    fn check_shortages(&mut self, records: &[DecisionRecord]) {
        let shortages = self.truth.take();
        self.books.read();
        for short in &shortages {
            let is_answered = self.is_answered(short, records);
            let held = self.unexcused(short.since, short.until);
            assert!(
                held < answer() || is_answered,
                "memory was short for {} ms and nothing was done or told: {short:?}\n{}",
                held / 1_000_000,
                self.node.log()
            );
            let may_have_held = self.unexcused(short.before, short.after) >= answer();
            let is_open = !is_answered && short.is_vague() && may_have_held;
            self.shortages[usize::from(is_open)] += 1;
        }
    }

    /// Whether something was done about it or told, as far as it may have lasted.
    fn is_answered(&self, short: &Short, records: &[DecisionRecord]) -> bool {
        let within = short.before..=short.after;
        let mut decided = records.iter().map(|record| record.decided.monotonic_ns);
        self.books.answers_in(short.before, short.after) || decided.any(|at| within.contains(&at))
    }

    /// The longest part of a time in which somebody could have answered.
    fn unexcused(&self, since: i64, until: i64) -> i64 {
        longest_outside(&self.excused, since, until)
    }

    /// Tells the runner how many shortages nobody can say of whether they had to be answered.
    pub(super) fn tell_unjudged(&self) {
        let [judged, open] = self.shortages;
        if open > 0 {
            let all = judged + open;
            report_left_out(&format!(
                "{open} of {all} shortages, beside which the witness did not look for {:?}",
                slowed(ANSWER)
            ));
        }
    }

    #[track_caller]
    fn check_status(&self) {
        let sane = wait_until(PATIENCE, || {
            let status = self.node.status()?;
            self.doubts(&status).is_empty().then_some(())
        });
        let status = self.node.status().expect("the agent lives");
        let doubts = self.doubts(&status).join("; ");
        assert!(sane.is_some(), "{doubts}: {status:#?}\n{}", self.node.log());
        let lost = self.books.lost_by_this_one();
        assert!(
            lost <= status.reports_lost || self.has_gap,
            "{lost} lost, {status:#?}"
        );
    }

    /// What is wrong with how the agent says it is.
    fn doubts(&self, status: &Status) -> Vec<String> {
        let balances = |ring: &RingView| ring.seen == ring.sent + ring.dropped + ring.filtered;
        let rings = status.rings.iter().filter(|ring| !balances(ring));
        let mut doubts: Vec<String> = rings.map(|ring| format!("{ring:?}")).collect();
        let age = slowed(Duration::from_secs(3)).as_millis();
        let is_fresh = |ms: i64| u128::try_from(ms).is_ok_and(|ms| ms < age);
        for (holds, doubt) in [
            (status.pid == self.pid, "another process"),
            (status.mode == "enforcing", "it does not enforce"),
            (status.rung == self.rung, "the rung"),
            (status.figures_age_ms.is_some_and(is_fresh), "old figures"),
            (
                status.workloads as usize == self.node.groups.len(),
                "workloads",
            ),
            (
                !self.node.log().contains(OOM),
                "the agent says that the kernel was faster",
            ),
            (
                self.truth.kernel_kills().is_empty(),
                "the files say that the kernel was faster",
            ),
            (status.signals.len() >= 2, "signals"),
        ] {
            doubts.extend((!holds).then(|| doubt.to_owned()));
        }
        doubts
    }
}

/// The longest part of a time that is outside of all these.
fn longest_outside(excuses: &[(i64, i64)], since: i64, until: i64) -> i64 {
    let mut excuses = excuses.to_vec();
    excuses.sort_unstable();
    let (mut from, mut longest) = (since, 0);
    for (begin, end) in excuses {
        longest = longest.max(begin.min(until) - from);
        from = from.max(end);
    }
    longest.max(until - from)
}

#[test]
fn an_excuse_is_one_for_its_own_time_alone() {
    let check = |excuses: &[(i64, i64)], expected| {
        assert_eq!(longest_outside(excuses, 100, 200), expected, "{excuses:?}");
    };
    check(&[], 100);
    check(&[(0, 90), (210, 300)], 100);
    check(&[(160, 300)], 60);
    check(&[(0, 170)], 30);
    check(&[(150, 160), (110, 120)], 40);
    check(&[(110, 190), (120, 130)], 10);
    check(&[(0, 300)], 0);
}
