//! The warmer: an ordinary thread that keeps the board fresh, faster as memory runs short, never more than a fifth of a CPU.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brink_host::HostError;
use brink_host::clock;

use crate::guard::board::{Board, Figures};
use crate::guard::now;
use crate::guard::roster::{Group, Member, Roster};
use crate::oom_scores::{Audited, Auditor, Rounds};

/// Bytes of slack that are worth a second of rest.
const SLACK_PER_SECOND: i64 = 512 << 20;
const SHORTEST: Duration = Duration::from_millis(100);
/// Whoever is chosen is read anew, so old figures far from every threshold cost nothing but this reading. Page cache of who stands
/// still may be twice as old.
const LONGEST: Duration = Duration::from_secs(30);
/// An incident shows the figures as they stand, and may come with memory to spare.
const LONGEST_SHOWN: Duration = Duration::from_secs(10);
/// With less rest than this memory is short.
const CALM: Duration = Duration::from_secs(1);
/// Processes whose `oom_score_adj` is looked at in one go, and so many while memory is short.
const SCORES: usize = 4096;
const SCORES_SHORT: usize = 64;
/// Passes may take this part of a processor at most: one in five.
const SHARE: u32 = 4;
/// However long a pass took, the next is not put off longer for it.
const LONGEST_PENANCE: Duration = Duration::from_secs(1);

/// What the warmer and its owner share.
pub struct Warmth {
    work: Mutex<Arc<Work>>,
    slack: AtomicI64,
    longest: Duration,
    count_processes: AtomicBool,
    /// Looks at `oom_score_adj` between two passes.
    auditor: Auditor,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct Work {
    members: Vec<Member>,
    board: Option<Arc<Board>>,
    scores: Arc<[Audited]>,
}

/// The thread; it ends when this is dropped.
pub struct Warmer {
    warmth: Arc<Warmth>,
    thread: Option<JoinHandle<()>>,
}

impl Warmer {
    /// Starts the thread with nothing to warm. Usage that is shown in incidents never gets older than ten seconds, other
    /// figures than thirty; page cache of who stands still than thirty and sixty.
    ///
    /// # Errors
    /// [`HostError::Call`] when it cannot be started.
    pub fn start(are_shown: bool, auditor: Auditor) -> Result<Self, HostError> {
        let warmth = Arc::new(Warmth {
            work: Mutex::default(),
            slack: AtomicI64::new(i64::MAX),
            longest: if are_shown { LONGEST_SHOWN } else { LONGEST },
            count_processes: AtomicBool::new(false),
            auditor,
            stop: AtomicBool::new(false),
        });
        let shared = Arc::clone(&warmth);
        let thread = std::thread::Builder::new()
            .name("brink-warmer".into())
            .stack_size(256 << 10)
            .spawn(move || run(&shared))
            .map_err(|source| HostError::Call {
                what: "starting the warmer",
                source,
            })?;
        Ok(Self {
            warmth,
            thread: Some(thread),
        })
    }

    /// Warms the board of this roster from now on, after one pass at once.
    pub fn follow(&self, roster: &Roster) {
        let work = Arc::new(Work {
            members: roster.members.clone(),
            board: Some(Arc::clone(&roster.board)),
            scores: Arc::clone(&roster.scores),
        });
        *self
            .warmth
            .work
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = work;
        self.wake();
    }

    /// Tells how many bytes are left to the nearest threshold.
    pub fn set_slack(&self, slack: i64) {
        let before = self.warmth.slack.swap(slack, Ordering::Relaxed);
        let longest = self.warmth.longest;
        if rest(slack, longest) < rest(before, longest) {
            self.wake();
        }
    }

    /// Whether processes are to be counted, which costs more than everything else.
    pub fn count_processes(&self, count: bool) {
        self.warmth.count_processes.store(count, Ordering::Relaxed);
    }

    /// Who looks at `oom_score_adj`.
    pub fn auditor(&self) -> &Auditor {
        &self.warmth.auditor
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Warmer {
    fn drop(&mut self) {
        self.warmth.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so itself.
            let _ended = thread.join();
        }
    }
}

/// How long to rest with so many bytes of slack.
fn rest(slack: i64, longest: Duration) -> Duration {
    let millis = u64::try_from(slack.max(0) / (SLACK_PER_SECOND / 1000)).unwrap_or(u64::MAX);
    Duration::from_millis(millis).clamp(SHORTEST, longest)
}

/// Whether a pass reads the page cache of all, and not of those alone whose usage has changed: where memory is not far from short,
/// and where it would get too old before the next.
fn is_whole(since: Option<Duration>, rest: Duration) -> bool {
    let slip = Duration::from_secs(1);
    let oldest = LONGEST.max(2 * rest);
    rest < LONGEST_SHOWN || since.is_none_or(|since| since + rest > oldest + slip)
}

fn run(warmth: &Warmth) {
    let mut rounds = Rounds::default();
    // When the page cache of all was read.
    let mut whole_at: Option<Instant> = None;
    while !warmth.stop.load(Ordering::Acquire) {
        let work = Arc::clone(&warmth.work.lock().unwrap_or_else(PoisonError::into_inner));
        let before = clock::thread_cpu();
        let rest = rest(warmth.slack.load(Ordering::Relaxed), warmth.longest);
        let is_whole = is_whole(whole_at.map(|at| at.elapsed()), rest);
        if is_whole {
            whole_at = Some(Instant::now());
        }
        pass(
            &work,
            is_whole,
            warmth.count_processes.load(Ordering::Relaxed),
        );
        let scores = if rest >= CALM { SCORES } else { SCORES_SHORT };
        rounds.turn(&warmth.auditor, (&work.scores, scores), Instant::now());
        let spent = clock::thread_cpu().saturating_sub(before);
        let least = (spent * SHARE).min(LONGEST_PENANCE);
        drop(work);
        let due = rounds.patience(Instant::now());
        let rest = due.map_or(rest, |due| rest.min(due.max(SHORTEST)));
        std::thread::park_timeout(rest.max(least));
    }
}

fn pass(work: &Work, is_whole: bool, count: bool) {
    let Some(board) = &work.board else {
        return;
    };
    for (index, member) in work.members.iter().enumerate() {
        if let Some(figures) = board.get(index) {
            warm(&member.group, figures, (is_whole, count));
        }
    }
}

/// One group; what cannot be read keeps its last value, and usage shows its age. Unless this is a whole pass, its page cache is left as it is
/// while its usage is what it was.
fn warm(group: &Group, figures: &Figures, (is_whole, count): (bool, bool)) {
    let usage = group.usage.read().ok();
    let is_still = usage.is_some() && usage == figures.usage() && figures.inactive_file().is_some();
    if (is_whole || !is_still)
        && let Ok(bytes) = group.stat.inactive_file()
    {
        figures.set_inactive_file(bytes);
    }
    if let Some(bytes) = usage {
        figures.set_usage(now(), bytes);
    }
    if count {
        figures.set_processes(group.target.processes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_of_who_stands_still_is_no_older_than_two_passes_or_half_a_minute() {
        let check = |since: Option<u64>, rest, expected| {
            let since = since.map(Duration::from_millis);
            assert_eq!(is_whole(since, rest), expected, "{since:?} {rest:?}");
        };
        check(None, LONGEST_SHOWN, true);
        // With events the first and each third pass after it.
        check(Some(10_001), LONGEST_SHOWN, false);
        check(Some(20_002), LONGEST_SHOWN, false);
        check(Some(30_003), LONGEST_SHOWN, true);
        // Without them each second one.
        check(None, LONGEST, true);
        check(Some(30_001), LONGEST, false);
        check(Some(60_002), LONGEST, true);
        check(Some(16_001), Duration::from_secs(16), false);
        check(Some(32_002), Duration::from_secs(16), true);
        check(Some(100), Duration::from_secs(9), true);
    }

    #[test]
    fn less_slack_less_rest() {
        for (slack, expected) in [
            (i64::MAX, LONGEST),
            (16 << 30, LONGEST),
            (8 << 30, Duration::from_secs(16)),
            (512 << 20, Duration::from_secs(1)),
            (0, SHORTEST),
            (i64::MIN, SHORTEST),
        ] {
            let shown = rest(slack, LONGEST_SHOWN);
            let rest = rest(slack, LONGEST);
            assert_eq!(shown, rest.min(LONGEST_SHOWN), "{slack}");
            assert!(
                rest.abs_diff(expected) < Duration::from_millis(500),
                "{slack}: {rest:?}"
            );
        }
    }
}
