//! Nodes that are followed: several at once, line by line, each line with its node; or one, whose values come bare.

use std::ffi::OsStr;
use std::io::{self, BufReader};
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::agents::Agent;
use super::ask::{Kubectl, exit_of, higher, odd_end, uncalled};
use super::asked::weighed;
use super::lines::{Line, hand_on, write_line, write_value};
use super::wait::LOOK;
use crate::cli::exit::{CliError, Exit};
use crate::cli::output::Talk;

/// Those that are followed; whoever still runs is ended with them.
#[derive(Default)]
struct Followed {
    children: Vec<Mutex<Child>>,
    /// Nobody reads what they say any more.
    is_over: AtomicBool,
}

impl Followed {
    fn begin(
        &mut self,
        kubectl: &Kubectl,
        pod: &str,
        words: &[&OsStr],
    ) -> Result<ChildStdout, CliError> {
        let mut command = kubectl.exec(pod, words, false);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(uncalled)?;
        let output = child.stdout.take();
        self.children.push(Mutex::new(child));
        output.ok_or_else(|| anyhow::anyhow!("kubectl has no standard output").into())
    }

    fn child(&self, index: usize) -> MutexGuard<'_, Child> {
        self.children[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all of them, so that nobody waits for a line that nobody reads.
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for index in 0..self.children.len() {
            // It may have ended already.
            let _ended = self.child(index).kill();
        }
    }

    /// Hands on what one says, to its end, and how it has ended. `write` says whether a line was as it should be.
    fn tell(
        &self,
        index: usize,
        output: ChildStdout,
        write: impl FnMut(&Line) -> io::Result<bool>,
    ) -> io::Result<(ExitStatus, Option<String>)> {
        let told = hand_on(BufReader::new(output), write);
        let fault = told.inspect_err(|_| self.end())?;
        // Looked at again and again, so that it can be killed meanwhile: it may close its output and go on.
        loop {
            if let Some(status) = self.child(index).try_wait()? {
                return Ok((status, fault));
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.end();
        for index in 0..self.children.len() {
            let _status = self.child(index).wait();
        }
    }
}

/// Follows all of them until each has ended, which is told of each as it does.
///
/// # Errors
/// When kubectl cannot be called, or the output not be written.
pub(super) fn follow(
    kubectl: &Kubectl,
    agents: &[Agent],
    words: &[&OsStr],
    is_json: bool,
) -> Result<Exit, CliError> {
    let mut followed = Followed::default();
    let outputs = agents
        .iter()
        .map(|agent| followed.begin(kubectl, &agent.pod, words));
    let outputs = outputs.collect::<Result<Vec<_>, CliError>>()?;
    let names = agents.iter().map(|agent| agent.node.len());
    let width = if is_json { 0 } else { names.max().unwrap_or(0) };
    let followed = &followed;
    thread::scope(|scope| {
        let follow = |(index, (agent, output)): (usize, (&Agent, ChildStdout))| {
            let node = agent.node.clone();
            scope.spawn(move || {
                let label = format!("{node:width$}");
                let write =
                    |line: &Line| write_line(&mut io::stdout().lock(), &label, line, is_json);
                let (status, fault) = followed.tell(index, output, write)?;
                if followed.is_over.load(Ordering::Relaxed) {
                    return Ok(Exit::Success);
                }
                let exit = exit_of(status);
                let end =
                    odd_end(status).unwrap_or_else(|| format!("it ended with {}", exit.code()));
                Talk::new().say(&format!("{node} is not followed any more ({end})"));
                Ok(weighed(&node, exit, fault.as_deref()))
            })
        };
        let followers: Vec<_> = agents.iter().zip(outputs).enumerate().map(follow).collect();
        let ends = followers.into_iter().map(|follower| {
            let ended = "a thread that followed a node has ended";
            let told: io::Result<Exit> = follower.join().map_err(|_| anyhow::anyhow!(ended))?;
            told.map_err(CliError::from)
        });
        ends.reduce(|one, other| Ok(higher(one?, other?)))
            .unwrap_or(Ok(Exit::Success))
    })
}

/// Follows one whose values come bare: how it has ended, and what is said of lines that were none, which are kept from whoever reads.
///
/// # Errors
/// When kubectl cannot be called, or the output not be written.
pub(super) fn values(
    kubectl: &Kubectl,
    pod: &str,
    words: &[&OsStr],
) -> Result<(ExitStatus, Option<String>), CliError> {
    let mut followed = Followed::default();
    let output = followed.begin(kubectl, pod, words)?;
    let write = |line: &Line| write_value(&mut io::stdout().lock(), line);
    Ok(followed.tell(0, output, write)?)
}
