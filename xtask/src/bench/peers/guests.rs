//! The runs in guests: as many after each other as it takes; one that dies costs the run that it died in, unless its emulator has failed.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::wire::{DISK, Found, JOB, Job, Line, Run, parse};
use crate::{
    bench::{machine::Machine, measure::units::millis},
    vm::errand::{Depot, End, Errand},
};

/// Memory of a guest, in MiB.
pub(super) const MEMORY: u32 = 1024;
/// A guest that says nothing for so long lives no more: it speaks every two seconds of its own time.
const SILENCE: Duration = Duration::from_mins(3);
/// Guests in a row that come to the end of no run: more are not tried, for they would not either.
const TRIES: usize = 3;
/// Noted of a run that was made again.
const AGAIN: &str = "made again: the emulator failed in it the first time";

/// What guests have found out.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) machine: Option<Machine>,
    /// Of each guest: bytes a second at the most, by load.
    pub(super) rates: Vec<BTreeMap<String, u64>>,
    pub(super) found: Vec<Found>,
    /// Runs that could not be judged, and why.
    pub(super) failed: Vec<(usize, String)>,
    /// Guests that were used.
    pub(super) guests: usize,
    /// Workers that have ended with runs left, because their guests came to the end of none.
    gave_up: usize,
}

/// Runs everything, in so many guests side by side: each takes one processor of the host.
///
/// # Errors
/// When QEMU cannot be started, or no guest of anybody comes to the end of a run.
pub(super) fn run(
    (depot, disk): (&Depot, &Path),
    runs: &[Run],
    (beside, most): (usize, Duration),
) -> anyhow::Result<Results> {
    let part = |worker: usize| -> anyhow::Result<Results> {
        let own = runs.iter().skip(worker).step_by(beside);
        in_turn(own.copied().collect(), most, |turn, spare| {
            turn.one((depot, disk, worker), spare)
        })
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..beside)
            .map(|worker| scope.spawn(move || part(worker)))
            .collect();
        let mut all = Results::default();
        for worker in workers {
            let found = worker.join();
            all.add(found.map_err(|_| anyhow::anyhow!("a guest's thread panicked"))??);
        }
        all.found.sort_by_key(|found| found.number);
        all.unless_nothing()
    })
}

impl Results {
    fn add(&mut self, other: Self) {
        self.machine = self.machine.take().or(other.machine);
        self.rates.extend(other.rates);
        self.found.extend(other.found);
        self.failed.extend(other.failed);
        self.guests += other.guests;
        self.gave_up += other.gave_up;
    }

    /// Runs that nobody began miss their figure, so what there is beside them is kept; where there is nothing, guests cannot be
    /// had here.
    fn unless_nothing(self) -> anyhow::Result<Self> {
        let is_nothing = self.found.is_empty() && self.failed.is_empty();
        anyhow::ensure!(
            self.gave_up == 0 || !is_nothing,
            "{TRIES} guests in a row died before a run of theirs had ended, and nobody's came further"
        );
        Ok(self)
    }
}

/// One guest after the other.
fn in_turn(
    left: Vec<Run>,
    most: Duration,
    mut one: impl FnMut(&mut Turn, Duration) -> anyhow::Result<()>,
) -> anyhow::Result<Results> {
    let began = Instant::now();
    let mut turn = Turn {
        left,
        ..Turn::default()
    };
    let mut useless = 0;
    while !turn.left.is_empty() {
        if useless == TRIES {
            println!(
                "{TRIES} guests in a row died before a run of theirs had ended: {} runs are left, and not begun",
                turn.left.len()
            );
            turn.results.gave_up = 1;
            break;
        }
        let spare = most.saturating_sub(began.elapsed());
        if spare.is_zero() {
            println!("the time is over with {} runs left", turn.left.len());
            break;
        }
        turn.results.guests += 1;
        let before = turn.progress();
        one(&mut turn, spare)?;
        useless = if turn.progress() == before {
            useless + 1
        } else {
            0
        };
    }
    Ok(turn.results)
}

/// What one worker has to do, and has done.
#[derive(Debug, Default)]
struct Turn {
    left: Vec<Run>,
    /// Runs in which an emulator has failed: each is made again once.
    again: BTreeSet<usize>,
    results: Results,
}

impl Turn {
    /// It is another one after each guest that was of any use.
    fn progress(&self) -> (usize, usize) {
        (self.left.len(), self.again.len())
    }

    /// One guest; what it has done is taken off the list.
    fn one(
        &mut self,
        (depot, disk, worker): (&Depot, &Path, usize),
        spare: Duration,
    ) -> anyhow::Result<()> {
        let job = Job {
            runs: self.left.clone(),
        };
        let errand = Errand {
            name: format!("guest-{worker}"),
            orders: "guest --peers",
            memory: MEMORY,
            deadline: spare,
            silence: SILENCE,
            disk: (disk, DISK),
            files: vec![(JOB, serde_json::to_vec(&job)?)],
        };
        let mut under_way: Option<Run> = None;
        let mut finished = false;
        let end = depot.run(&errand, |text| match parse::<Line>(text) {
            None => println!("guest: {text}"),
            Some(Line::Ready { machine, rates }) => {
                println!("guest: {machine}; at the most, bytes a second: {rates:?}");
                self.results.machine = Some(*machine);
                self.results.rates.push(rates);
            }
            Some(Line::Begin(run)) => under_way = Some(run),
            Some(Line::Done(found)) => {
                self.take(*found);
                under_way = None;
            }
            Some(Line::Failed { number, why }) => {
                self.fail(number, why);
                under_way = None;
            }
            Some(Line::Alive) => {}
            Some(Line::End) => finished = true,
        })?;
        self.charge(end, under_way, finished);
        Ok(())
    }

    /// What the end of a guest makes of the run that it came in. A failure of the emulator is not held against whoever ran there.
    fn charge(&mut self, end: End, run: Option<Run>, is_finished: bool) {
        let (why, is_emulators) = match end {
            End::Emulator(why) => (why, true),
            End::Died(why) => (why, false),
            End::Itself if !is_finished => ("it restarted itself".to_owned(), false),
            // A run that the end of our time cut off has shown nothing.
            End::Itself | End::Time => return,
        };
        println!("guest: {why}");
        let Some(run) = run else {
            return;
        };
        let why = why.lines().next().unwrap_or_default();
        if !is_emulators {
            self.take(Found::died(&run, format!("the guest: {why}")));
        } else if self.again.insert(run.number) {
            println!("run {} is made again", run.number);
        } else {
            self.fail(run.number, format!("the emulator, twice: {why}"));
        }
    }

    /// A run has been judged.
    fn take(&mut self, mut found: Found) {
        if self.again.contains(&found.number) {
            found.notes.push(AGAIN.to_owned());
        }
        tell(&found);
        self.left.retain(|run| run.number != found.number);
        self.results.found.push(found);
    }

    /// A run cannot be judged.
    fn fail(&mut self, number: usize, why: String) {
        println!("run {number} failed: {why}");
        self.left.retain(|run| run.number != number);
        self.results.failed.push((number, why));
    }
}

fn tell(found: &Found) {
    let shown = |nanos: Option<i64>| {
        nanos.map_or_else(
            || "-".to_owned(),
            |nanos| format!("{:.1} ms", millis(nanos)),
        )
    };
    println!(
        "{:>4} {:<24} {:<28} signalled {:>11} oom {:>11} freed {:>11} right {} wrong {} {}{}",
        found.number,
        found.contender,
        found.workload,
        shown(found.signalled),
        shown(found.oom),
        shown(found.freed),
        found.right,
        found.wrong,
        found.lock_up.as_deref().unwrap_or_default(),
        found.notes.join("; "),
    );
    if !found.stages.is_empty() {
        let own = found
            .signals
            .get(&found.signal)
            .and_then(|seen| seen.crossed)
            .unwrap_or(0);
        let stages = found.stages.iter();
        let stages = stages.map(|(name, at)| format!("{name} {:.1}", millis(at - own)));
        println!(
            "     after the crossing, ms: {}",
            stages.collect::<Vec<_>>().join(", ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{contender::Contender, workload::Workload},
        *,
    };

    fn run(number: usize) -> Run {
        Run {
            number,
            contender: Contender::Earlyoom,
            workload: Workload::Anon(100),
            seed: 0,
        }
    }

    /// Of a worker with three runs, whose guests judge one each until so many have, and then die at once.
    fn worker(useful: usize) -> Results {
        let hour = Duration::from_hours(1);
        let guest = |turn: &mut Turn, _: Duration| {
            let number = turn.results.found.len();
            if number < useful {
                turn.take(Found::of(&run(number)));
            }
            Ok(())
        };
        in_turn(vec![run(0), run(1), run(2)], hour, guest).unwrap()
    }

    #[test]
    fn guests_that_die_at_once_cost_what_is_left_and_not_what_was_judged() {
        for (useful, guests, gave_up) in [(1, 4, 1), (2, 5, 1), (3, 3, 0)] {
            let results = worker(useful).unless_nothing().unwrap();
            let shown = (results.found.len(), results.guests, results.gave_up);
            assert_eq!(shown, (useful, guests, gave_up));
        }
    }

    #[test]
    fn only_where_nobody_came_to_the_end_of_a_run_is_there_nothing_to_compare() {
        let both = |useful: [usize; 2]| {
            let mut all = Results::default();
            for useful in useful {
                all.add(worker(useful));
            }
            all.unless_nothing()
        };
        assert_eq!(both([0, 2]).unwrap().found.len(), 2);
        assert_eq!(both([3, 0]).unwrap().found.len(), 3);
        let error = both([0, 0]).unwrap_err().to_string();
        assert!(error.contains("nobody's came further"), "{error}");
        let failed = Results {
            failed: vec![(0, "why".to_owned())],
            ..worker(0)
        };
        assert!(failed.unless_nothing().is_ok(), "a guest came to its runs");
    }

    #[test]
    fn a_run_in_which_the_emulator_fails_is_made_again_once_and_is_nobodys_loss() {
        let crash = || End::Emulator("QEMU: signal: 9 (SIGKILL)".to_owned());
        let mut turn = Turn {
            left: vec![run(0), run(1), run(2)],
            ..Turn::default()
        };
        turn.charge(crash(), None, false);
        assert_eq!(turn.progress(), (3, 0), "in no run");
        for number in [0, 1] {
            turn.charge(crash(), Some(run(number)), false);
        }
        assert_eq!(turn.progress(), (3, 2));
        turn.take(Found::of(&run(0)));
        turn.charge(crash(), Some(run(1)), false);
        assert_eq!(turn.left, [run(2)]);
        let [found] = &turn.results.found[..] else {
            panic!("{:?}", turn.results.found);
        };
        assert_eq!((found.number, &*found.notes), (0, &[AGAIN.to_owned()][..]));
        let [(1, why)] = &turn.results.failed[..] else {
            panic!("{:?}", turn.results.failed);
        };
        assert!(why.contains("twice") && why.contains("SIGKILL"), "{why}");
    }

    #[test]
    fn a_guest_that_falls_silent_or_restarts_is_lost_by_whoever_ran_there() {
        let run = run(7);
        for (end, is_finished, is_lost) in [
            (
                End::Died("silent for 180s\n    last words".to_owned()),
                false,
                true,
            ),
            (End::Itself, false, true),
            (End::Itself, true, false),
            (End::Time, false, false),
        ] {
            let mut turn = Turn {
                left: vec![run],
                ..Turn::default()
            };
            turn.charge(end, Some(run), is_finished);
            let lost = turn.results.found.iter().filter(|found| found.is_lost());
            assert_eq!(lost.count(), usize::from(is_lost));
            assert_eq!(turn.left.is_empty(), is_lost);
        }
    }
}
