//! Programs that are called around a kill; they are started and forgotten, so none ever delays anything.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::record::DecisionRecord;

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
        let started = if before.is_none() && after.is_none() {
            None
        } else {
            let (sender, receiver) = sync_channel(MOST);
            std::thread::Builder::new()
                .name("brink-hooks".into())
                .stack_size(128 << 10)
                .spawn(move || reap(&receiver, timeout))?;
            Some(sender)
        };
        Ok(Self {
            before,
            after,
            started,
        })
    }

    /// Calls the program of an occasion with the facts in its environment.
    pub fn run(&self, occasion: Occasion, record: &DecisionRecord) {
        let program = match occasion {
            Occasion::Before => &self.before,
            Occasion::After => &self.after,
        };
        let (Some(words), Some(started)) = (program, &self.started) else {
            return;
        };
        let Some((name, arguments)) = words.split_first() else {
            return;
        };
        let child = Command::new(name)
            .args(arguments)
            .envs(environment(occasion, record))
            .stdin(Stdio::null())
            .spawn();
        match child {
            Ok(child) => {
                if let Err(refused) = started.try_send(child) {
                    let mut child = match refused {
                        std::sync::mpsc::TrySendError::Full(child)
                        | std::sync::mpsc::TrySendError::Disconnected(child) => child,
                    };
                    warn!(
                        hook = name,
                        "more than {MOST} hooks run; this one was ended"
                    );
                    let _ended_already = child.kill();
                    let _reaped = child.wait();
                }
            }
            Err(error) => warn!(hook = name, %error, "a hook cannot be started"),
        }
    }
}

/// What a hook is told.
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
        ("BRINK_MODE", record.mode.clone()),
        ("BRINK_FREED_BYTES", record.freed_bytes.to_string()),
        ("BRINK_END", record.end.clone().unwrap_or_default()),
    ]
}

/// Waits for programs to end, and ends those that do not.
fn reap(started: &Receiver<Child>, timeout: Duration) {
    let mut running: Vec<(Child, Instant)> = Vec::new();
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
        running.retain_mut(|(child, end)| match child.try_wait() {
            Ok(None) if Instant::now() < *end => true,
            Ok(None) => {
                warn!(
                    pid = child.id(),
                    "a hook ran longer than {timeout:?} and was ended"
                );
                let _ended_already = child.kill();
                let _reaped = child.wait();
                false
            }
            Ok(Some(_)) | Err(_) => false,
        });
    }
}
