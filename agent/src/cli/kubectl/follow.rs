//! Several nodes followed at once, line by line, each line with its node.

use std::ffi::OsStr;
use std::io::{self, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::agents::Agent;
use super::ask::{Kubectl, exit_of, higher, odd_end, uncalled};
use super::lines::{faulty, next_line, write_line};
use crate::cli::exit::{CliError, Exit};
use crate::cli::output::Talk;

/// Those that are followed; whoever still runs is ended with them.
struct Followed(Vec<Mutex<Child>>);

impl Followed {
    /// Ends all of them, so that nobody waits for a line that nobody reads.
    fn end(&self) {
        for child in &self.0 {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            // It may have ended already.
            let _ended = child.kill();
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.end();
        for child in &self.0 {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            let _status = child.wait();
        }
    }
}

/// Follows all of them until each has ended.
///
/// # Errors
/// When kubectl cannot be called, or the output not be written.
pub(super) fn follow(
    kubectl: &Kubectl,
    agents: &[Agent],
    words: &[&OsStr],
    is_json: bool,
) -> Result<Exit, CliError> {
    let mut followed = Followed(Vec::with_capacity(agents.len()));
    let mut outputs = Vec::with_capacity(agents.len());
    for agent in agents {
        let mut command = kubectl.exec(&agent.pod, words, false);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(uncalled)?;
        outputs.push(child.stdout.take());
        followed.0.push(Mutex::new(child));
    }
    let names = agents.iter().map(|agent| agent.node.len());
    let width = if is_json { 0 } else { names.max().unwrap_or(0) };
    let followed = &followed;
    let broken = thread::scope(|scope| {
        let followers: Vec<_> = outputs
            .into_iter()
            .enumerate()
            .map(|(index, output)| {
                let label = format!("{:width$}", agents[index].node);
                scope.spawn(move || {
                    let told = output.map_or(Ok(0), |output| tell(output, &label, is_json));
                    if told.is_err() {
                        followed.end();
                    }
                    told
                })
            })
            .collect();
        let told = followers.into_iter().map(|follower| {
            let ended = "a thread that followed a node has ended";
            let told = follower.join().map_err(|_| anyhow::anyhow!(ended))?;
            told.map_err(CliError::from)
        });
        told.collect::<Result<Vec<_>, CliError>>()
    })?;
    let mut worst = Exit::Success;
    for ((agent, child), broken) in agents.iter().zip(&followed.0).zip(broken) {
        let status = child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wait()?;
        let exit = exit_of(status);
        worst = higher(worst, exit);
        let end = odd_end(status).unwrap_or_else(|| format!("it ended with {}", exit.code()));
        Talk::new().say(&format!("{} is not followed any more ({end})", agent.node));
        if let Some(fault) = faulty(broken) {
            Talk::new().say(&format!("{}: {fault}", agent.node));
            worst = higher(worst, Exit::Failure);
        }
    }
    Ok(worst)
}

/// Writes what a node says, to its end. How many of its lines should have been values and were none.
fn tell(output: ChildStdout, label: &str, is_json: bool) -> io::Result<u64> {
    let (mut lines, mut broken) = (BufReader::new(output), 0);
    while let Some(line) = next_line(&mut lines)? {
        let is_right = write_line(&mut io::stdout().lock(), label, &line, is_json)?;
        broken += u64::from(!is_right);
    }
    Ok(broken)
}
