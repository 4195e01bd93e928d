//! The end of an agent: it enforces until its last words are said, and then whoever stands by has the node at once.
//!
//! Kubernetes comes first, as its server may take seconds to answer. What the guard orders meanwhile goes into the outbox as ever; what
//! the thread has not told by its end the next agent finds there. Then come the guard, and the clerk once it has written down all that
//! the guard told: from there on nobody here orders anything, and the right to enforce is let go. The rest comes after that: to take
//! programs out of the kernel alone may take longer than the next agent needs.
//!
//! Whoever writes may hang on a disk that does not answer. So each is waited for so long and no longer before the right is let go: what
//! is not written down by then is lost to the next agent, which is less than a node without anybody.

use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use tracing::warn;

use super::{CLERK, COLLECTOR, DISK_KEEPER, GUARD, KUBE, Running, SENTRY};
use crate::guard::ports::{Command, Report};

/// How often a thread that is waited for is looked at.
const STEP: Duration = Duration::from_millis(1);
/// What is found out of the last orders is kept for the next agent by the enforcer alone, and the next agent waits for it no longer.
const FINDINGS: Duration = Duration::from_millis(100);
/// The clerk writes down what the guard has told, once that has ended, in so long.
const WRITTEN_DOWN: Duration = Duration::from_secs(1);
/// The cluster's last words are over after four seconds, unless their thread hangs on something else than the server.
const LEAVE: Duration = Duration::from_secs(5);

impl Running {
    /// Has the cluster told the last words, if there is one; the guard goes on.
    pub fn take_leave(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.stop();
        }
        self.leaving.get_or_init(Instant::now);
    }

    /// Whether they are told, never will be, or have been waited for long enough.
    pub fn has_taken_leave(&self) -> bool {
        let since = self.leaving.get();
        self.is_over(KUBE) || since.is_some_and(|since| since.elapsed() >= LEAVE)
    }

    /// Ends everything. Of an agent that somebody still holds the threads are not joined; the node has the next one all the same.
    pub fn end(self: Arc<Self>) {
        match Arc::try_unwrap(self) {
            Ok(running) => running.stop(),
            Err(held) => {
                warn!("something still holds the agent; the kernel takes its programs back");
                held.hand_over();
            }
        }
    }

    /// Ends everything; nothing is left in the kernel.
    pub fn stop(mut self) {
        self.hand_over();
        self.stop_collector();
        let sentry = self.thread(SENTRY);
        self.ports.evicted.send_last(None, sentry);
        let keeper = self.disk_keeper.lock().map(|mut keeper| keeper.take());
        if let Ok(Some(keeper)) = keeper {
            self.threads.push((DISK_KEEPER, keeper));
        }
        for (name, thread) in self.threads.drain(..) {
            join(name, thread);
        }
    }

    /// All that is owed to the node: the last words, the end of the guard, what it told written down, and the right to enforce.
    fn hand_over(&self) {
        self.take_leave();
        while !self.has_taken_leave() {
            sleep(STEP);
        }
        self.stop_keeper.stop(&self.disks);
        self.bell.stop();
        let guard = self.thread(GUARD);
        self.ports.commands.send_last(Command::Stop, guard);
        self.end_clerk();
        self.end_collector();
        self.enforcement.let_go();
    }

    /// Waits until the clerk has taken everything that the guard told, and its end.
    fn end_clerk(&self) {
        while !self.is_over(GUARD) {
            sleep(STEP);
        }
        let until = Instant::now() + WRITTEN_DOWN;
        // A guard that died has not told its end, and one whose queue was full has told it in vain.
        let has_room = |running: &Self| running.is_over(CLERK) || !running.ports.reports.is_full();
        self.wait_until(until, has_room);
        if !self.is_over(CLERK) {
            let _no_room_still = self.ports.reports.send(Report::Stopped);
        }
        self.wait_until(until, |running| running.is_over(CLERK));
        if !self.is_over(CLERK) {
            warn!(
                "what was decided last cannot be written down; enforcement is let go all the same"
            );
        }
    }

    /// Lets the collector tell what is open as it is: what the guard told at its end is for it too.
    fn end_collector(&self) {
        let until = Instant::now() + FINDINGS;
        self.wait_until(until, |running| running.collector.stop());
        self.wait_until(until, |running| running.is_over(COLLECTOR));
    }

    /// One that had no room to hear of it has, sooner or later.
    fn stop_collector(&self) {
        while !self.is_over(COLLECTOR) && !self.collector.stop() {
            sleep(STEP);
        }
    }

    fn wait_until(&self, until: Instant, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) && Instant::now() < until {
            sleep(STEP);
        }
    }

    fn thread(&self, wanted: &str) -> Option<&JoinHandle<()>> {
        let mut threads = self.threads.iter();
        threads.find_map(|(name, thread)| (*name == wanted).then_some(thread))
    }

    /// Whether a thread has ended, or there is none of that name.
    fn is_over(&self, name: &str) -> bool {
        self.thread(name).is_none_or(JoinHandle::is_finished)
    }
}

fn join(name: &'static str, thread: JoinHandle<()>) {
    if thread.join().is_err() {
        warn!(thread = name, "a thread had died");
    }
}
