//! The journal's thread from its start to its end, which waits for no disk that does not answer.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::STACK;
use super::disk::Disk;
use super::queue::Queue;
use super::writer::Writer;

/// At the end its thread is given so long to write what there is: nobody is protected meanwhile.
const LAST: Duration = Duration::from_secs(5);

/// A thread that writes. It ends with this: what is left is written first, if the disk answers soon enough, and told in the log if not.
#[derive(Debug)]
pub(super) struct Writing {
    queue: Arc<Queue>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Writing {
    /// Starts it.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) fn start<D>(writer: Writer<D>) -> io::Result<Self>
    where
        D: Disk + Send + 'static,
        D::File: Send,
    {
        let queue = Arc::clone(&writer.queue);
        let (over, ended) = channel();
        let thread = std::thread::Builder::new()
            .name("brink-journal".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                writer.run();
                drop(over);
            })?;
        Ok(Self {
            queue,
            ended,
            thread: Some(thread),
        })
    }

    /// Takes no more events, and waits so long until those that there are have been written. Whether the thread has ended.
    fn end_within(&mut self, span: Duration) -> bool {
        self.queue.close();
        let is_over = self.ended.recv_timeout(span) == Err(RecvTimeoutError::Disconnected);
        if is_over && let Some(thread) = self.thread.take() {
            // A panic of it was printed, and what it had not written is lost already.
            let _ = thread.join();
        }
        is_over
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.end_within(LAST) {
            return;
        }
        let (waiting, untold) = (self.queue.status().waiting, self.queue.untold());
        tracing::error!(
            waiting,
            untold,
            "the event journal's disk is hung or too slow, and the end is not waited for: of the events that wait none is in it, or only the first ones"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::queue::{HUNG, JournalSink};
    use super::super::simulated::Simulated;
    use super::super::store::Store;
    use super::super::unwritten::Unwritten;
    use super::super::{JournalState, Limits};
    use super::*;
    use crate::hub::Sink as _;
    use crate::outlet::samples::line;

    const PATIENCE: Duration = Duration::from_mins(1);
    const BOOT: &str = "3f2a0000-0000-4000-8000-000000000000";

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "it never came: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A writer to that disk, with its queue.
    fn writer(disk: &Simulated) -> (Writer<Simulated>, Arc<Queue>) {
        let (store, _) = Store::open(disk.clone(), Limits::default(), BOOT, 1).unwrap();
        let (unwritten, _) = Unwritten::open(disk);
        let queue = Arc::new(Queue::default());
        let writer = Writer {
            store,
            unwritten,
            queue: Arc::clone(&queue),
            clock: || 1,
            on_loss: Box::new(|_, _| ()),
        };
        (writer, queue)
    }

    /// Why it counts at that moment as one that fails, if nothing has come of what is asked for now by then.
    fn failed_at(queue: &Queue, at: Instant) -> Option<String> {
        match queue.status_at(at).state {
            JournalState::Failed(why) => Some(why),
            _ => None,
        }
    }

    #[test]
    fn a_disk_that_does_not_answer_fails_until_it_does() {
        let disk = Simulated::default();
        let (writer, queue) = writer(&disk);
        let _writing = Writing::start(writer).unwrap();
        let later = |span: Duration| failed_at(&queue, Instant::now() + span);
        disk.set_hung(true);
        let before = Instant::now();
        JournalSink(Arc::clone(&queue)).take(&line(1));
        until("it is asked", || disk.syncs() > 0);
        assert_eq!(failed_at(&queue, before + HUNG / 2), None);
        let why = later(HUNG).unwrap_or_default();
        assert!(why.starts_with("no answer for "), "{why}");
        let status = queue.status_at(Instant::now() + HUNG);
        assert_eq!((status.written, status.waiting), (0, 1));
        disk.set_hung(false);
        until("it is written", || queue.status().written == 1);
        until("it rests", || later(HUNG * 2).is_none());
    }

    #[test]
    fn a_disk_that_does_not_answer_is_not_waited_for_at_the_end() {
        let disk = Simulated::default();
        let (writer, queue) = writer(&disk);
        let mut writing = Writing::start(writer).unwrap();
        disk.set_hung(true);
        let mut sink = JournalSink(Arc::clone(&queue));
        for seq in 1..4 {
            sink.take(&line(seq));
        }
        until("it is asked", || disk.syncs() > 0);
        assert!(!writing.end_within(Duration::from_millis(10)));
        assert_eq!(queue.status().waiting, 3);
        // It answers after all, and the rest goes too.
        disk.set_hung(false);
        assert!(writing.end_within(PATIENCE));
        let status = queue.status();
        assert_eq!((status.written, status.lost), (3, 0));
    }

    /// The process is gone before a disk that is slow at the end has taken everything.
    #[test]
    fn what_is_not_written_yet_at_the_end_is_left_to_the_next_run() {
        let disk = Simulated::default();
        let (writer, queue) = writer(&disk);
        let mut sink = JournalSink(Arc::clone(&queue));
        for seq in 1..4 {
            sink.take(&line(seq));
        }
        queue.close();
        disk.set_hung(true);
        let mut writing = Writing::start(writer).unwrap();
        until("it is asked", || disk.syncs() > 0);
        let left = || Unwritten::open(&disk).1;
        assert_eq!(left(), 3);
        disk.set_hung(false);
        assert!(writing.end_within(PATIENCE));
        assert_eq!(left(), 0, "all is written");
    }
}
