//! Programs that are called around a kill; they are started and forgotten, so none ever delays anything.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use brink_core::node::safety::Mode;
use rustix::process::{Pid, Signal, kill_process_group, setpriority_process};
use tracing::{debug, warn};

use crate::record::DecisionRecord;
use crate::record::words::mode_word;

/// Programs that may run at a time; one more is not started, and said.
const MOST: usize = 8;
/// How often running programs are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// When a program is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A kill was ordered.
    Before,
    /// It is over.
    After,
}

/// The programs, and the thread that sees them end.
#[derive(Debug)]
pub struct Hooks {
    before: Option<Vec<String>>,
    after: Option<Vec<String>>,
    /// Programs that have not been seen to end.
    running: Arc<AtomicUsize>,
    started: Option<SyncSender<Child>>,
}

impl Hooks {
    /// Hooks with a thread that ends whatever runs longer than `timeout`; none without programs.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn new(
        before: Option<Vec<String>>,
        after: Option<Vec<String>>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let running = Arc::new(AtomicUsize::new(0));
        let started = if before.is_none() && after.is_none() {
            None
        } else {
            let (sender, receiver) = sync_channel(MOST);
            let running = Arc::clone(&running);
            std::thread::Builder::new()
                .name("brink-hooks".into())
                .stack_size(128 << 10)
                .spawn(move || reap(&receiver, timeout, &running))?;
            Some(sender)
        };
        Ok(Self {
            before,
            after,
            running,
            started,
        })
    }

    /// Calls the program of an occasion with the facts in its environment; not for what was only observed, which changes
    /// nothing on the machine.
    pub fn run(&self, occasion: Occasion, record: &DecisionRecord) {
        let program = match occasion {
            Occasion::Before => &self.before,
            Occasion::After => &self.after,
        };
        if let Some(words) = program
            && record.mode == mode_word(Mode::Enforcing)
        {
            self.start(words, environment(occasion, record));
        }
    }

    fn start(&self, words: &[String], environment: Vec<(&'static str, String)>) {
        let (Some((name, arguments)), Some(started)) = (words.split_first(), &self.started) else {
            return;
        };
        if self.running.load(Ordering::Acquire) >= MOST {
            warn!(
                hook = name,
                "{MOST} hooks run already; this one is not started"
            );
            return;
        }
        let spawned = Command::new(name)
            .args(arguments)
            .envs(environment)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) => {
                warn!(hook = name, %error, "a hook cannot be started");
                return;
            }
        };
        make_ordinary(&child);
        self.running.fetch_add(1, Ordering::AcqRel);
        // There is room for as many as may run; without the thread nobody would see it end.
        if let Err(TrySendError::Full(mut child) | TrySendError::Disconnected(mut child)) =
            started.try_send(child)
        {
            warn!(
                hook = name,
                "nobody waits for hooks any more; this one was ended"
            );
            end(&mut child);
            self.running.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Takes from a child what it has inherited and only the agent is to have: its place before others, and the protection from
/// the kernel's killer. Where that is refused the child has no more than it came with.
fn make_ordinary(child: &Child) {
    let pid = Pid::from_child(child);
    if let Err(errno) = setpriority_process(Some(pid), 0) {
        debug!(%errno, "a hook keeps our niceness");
    }
    let score = format!("/proc/{}/oom_score_adj", child.id());
    if let Err(error) = std::fs::write(score, "0") {
        debug!(%error, "a hook keeps our oom_score_adj");
    }
}

/// Ends a child that has not been waited for, with all of its group; also one that has gone into another group.
fn end(child: &mut Child) {
    let _ended_already = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ended_already = child.kill();
    let _reaped = child.wait();
}

/// What a hook is told. `BRINK_MODE` would be taken for the setting of that name by any `brink` it calls.
fn environment(occasion: Occasion, record: &DecisionRecord) -> Vec<(&'static str, String)> {
    let occasion = match occasion {
        Occasion::Before => "before-kill",
        Occasion::After => "after-kill",
    };
    vec![
        ("BRINK_HOOK", occasion.to_owned()),
        ("BRINK_ORDER", record.order.to_string()),
        ("BRINK_NAMESPACE", record.victim.namespace.clone()),
        ("BRINK_NAME", record.victim.name.clone()),
        ("BRINK_UID", record.victim.uid.clone()),
        ("BRINK_SIGNAL", record.threshold.signal.clone()),
        ("BRINK_DECISION_MODE", record.mode.clone()),
        ("BRINK_FREED_BYTES", record.freed_bytes.to_string()),
        ("BRINK_END", record.end.clone().unwrap_or_default()),
    ]
}

/// Waits for programs to end, and ends those that do not.
fn reap(started: &Receiver<Child>, timeout: Duration, count: &AtomicUsize) {
    let mut running: Vec<(Child, Instant)> = Vec::with_capacity(MOST);
    loop {
        let wait = if running.is_empty() {
            Duration::from_hours(1)
        } else {
            LOOK
        };
        match started.recv_timeout(wait) {
            Ok(child) => running.push((child, Instant::now() + timeout)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        running.retain_mut(|(child, end_at)| {
            let goes_on = match child.try_wait() {
                Ok(None) if Instant::now() < *end_at => true,
                Ok(None) => {
                    warn!(
                        pid = child.id(),
                        "a hook ran longer than {timeout:?} and was ended"
                    );
                    end(child);
                    false
                }
                Ok(Some(_)) | Err(_) => false,
            };
            if !goes_on {
                count.fetch_sub(1, Ordering::AcqRel);
            }
            goes_on
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn shell(script: &str, file: &Path) -> Vec<String> {
        let words = ["/bin/sh", "-c", script, "sh", file.to_str().unwrap()];
        words.map(str::to_owned).to_vec()
    }

    #[track_caller]
    fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn none_runs(hooks: &Hooks) -> bool {
        hooks.running.load(Ordering::Acquire) == 0
    }

    #[test]
    fn one_more_than_may_run_is_not_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("started");
        let words = shell("echo x >> \"$1\"; sleep 30", &file);
        let hooks = Hooks::new(Some(words.clone()), None, Duration::from_secs(1)).unwrap();
        let started = || fs::read_to_string(&file).map_or(0, |text| text.lines().count());
        for _ in 0..MOST + 3 {
            hooks.start(&words, Vec::new());
        }
        assert_eq!(hooks.running.load(Ordering::Acquire), MOST);
        wait_for("they are ended", || none_runs(&hooks));
        assert_eq!(started(), MOST);
        hooks.start(&words, Vec::new());
        wait_for("there is room again", || started() == MOST + 1);
        wait_for("it is ended too", || none_runs(&hooks));
    }

    #[test]
    fn what_runs_too_long_is_ended_with_all_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("child");
        let words = shell("sleep 30 & echo $! > \"$1\"; wait", &file);
        let hooks = Hooks::new(None, Some(words.clone()), Duration::from_secs(1)).unwrap();
        hooks.start(&words, Vec::new());
        let child = || fs::read_to_string(&file).ok()?.trim().parse::<u32>().ok();
        wait_for("it has a child", || child().is_some());
        wait_for("it is ended", || none_runs(&hooks));
        let stat = format!("/proc/{}/stat", child().unwrap());
        wait_for("its child too", || {
            fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
        });
    }

    #[test]
    fn what_cannot_be_started_takes_no_place() {
        let words = vec!["/nonexistent".to_owned()];
        let hooks = Hooks::new(Some(words.clone()), None, PATIENCE).unwrap();
        hooks.start(&words, Vec::new());
        assert!(none_runs(&hooks));
    }
}
