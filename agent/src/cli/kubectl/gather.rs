//! Several nodes asked at once, one answer after the other.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, Write as _, copy};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use super::agents::Agent;
use super::ask::{Kubectl, exit_of, higher, uncalled};
use super::lines::{next_line, write_line};
use super::shape::{Manner, Shape};
use super::wait::wait;
use crate::cli::exit::{CliError, Exit};
use crate::cli::output::Talk;

/// So many nodes are asked at the same time.
const AT_ONCE: usize = 16;
/// Who has said nothing for so long is not waited for any more. Even a doctor whose every trial is in vain is silent for less.
const SILENCE: Duration = Duration::from_mins(2);
/// From one look to the next no more than this counts as silence.
const STEP: Duration = Duration::from_secs(1);

/// A node that is being asked. What it says goes into files: it may be megabytes.
struct Asked<'a> {
    agent: &'a Agent,
    child: Child,
    said: File,
    talked: File,
}

/// Asks all of them, and prints their answers in the order of the nodes.
///
/// # Errors
/// When kubectl cannot be called, or the output not be written.
pub(super) fn ask(
    kubectl: &Kubectl,
    agents: &[Agent],
    words: &[&OsStr],
    shape: Shape,
) -> Result<Exit, CliError> {
    let mut worst = Exit::Success;
    let mut is_first = true;
    for some in agents.chunks(AT_ONCE) {
        let asked = some.iter().map(|agent| begin(kubectl, agent, words));
        let asked = asked.collect::<Result<Vec<Asked<'_>>, CliError>>()?;
        for asked in asked {
            let exit = print(asked, shape, std::mem::take(&mut is_first))?;
            worst = higher(worst, exit);
        }
    }
    Ok(worst)
}

fn begin<'a>(kubectl: &Kubectl, agent: &'a Agent, words: &[&OsStr]) -> Result<Asked<'a>, CliError> {
    let (said, talked) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut command = kubectl.exec(&agent.pod, words, false);
    command
        .stdout(said.try_clone()?)
        .stderr(talked.try_clone()?);
    let child = command.spawn().map_err(uncalled)?;
    Ok(Asked {
        agent,
        child,
        said,
        talked,
    })
}

impl Asked<'_> {
    /// How it has ended; none where it had said nothing for so long, and was ended for that.
    fn ended(&mut self, silence: Duration) -> io::Result<Option<ExitStatus>> {
        let files = [&self.said, &self.talked];
        let length = || -> io::Result<u64> {
            let [said, talked] = files.map(File::metadata);
            Ok(said?.len() + talked?.len())
        };
        // What it has been silent while others were waited for counts, but for the last part: a clock may have been set.
        let before = self.said.metadata()?.modified()?.elapsed();
        let mut silent = before.unwrap_or_default().min(silence / 12 * 11);
        let (mut known, mut looked) = (length()?, Instant::now());
        wait(&mut self.child, || {
            let now = Instant::now();
            // Whoever was stopped himself has not been waiting.
            silent += now.duration_since(looked).min(STEP);
            looked = now;
            let length = length()?;
            if std::mem::replace(&mut known, length) != length {
                silent = Duration::ZERO;
            }
            Ok(silent >= silence)
        })
    }
}

fn print(mut asked: Asked<'_>, shape: Shape, is_first: bool) -> Result<Exit, CliError> {
    let ended = asked.ended(SILENCE)?;
    let exit = ended.map_or(Exit::NoAgent, exit_of);
    let node = &asked.agent.node;
    asked.said.rewind()?;
    let mut out = io::stdout().lock();
    if !shape.is_json {
        let gap = if is_first { "" } else { "\n" };
        writeln!(out, "{gap}== {node}")?;
        copy(&mut asked.said, &mut out)?;
    } else if shape.manner == Manner::Lines && exit == Exit::Success {
        let mut lines = BufReader::new(asked.said);
        while let Some(line) = next_line(&mut lines)? {
            write_line(&mut out, node, &line, true)?;
        }
    } else {
        let mut text = String::new();
        // Whoever was cut off has left no value, and perhaps half a letter.
        if ended.is_some() {
            asked.said.read_to_string(&mut text)?;
        }
        write_line(&mut out, node, text.trim(), true)?;
    }
    out.flush()?;
    drop(out);
    asked.talked.rewind()?;
    let mut talked = BufReader::new(asked.talked);
    while let Some(line) = next_line(&mut talked)? {
        Talk::new().say(&format!("{node}: {line}"));
    }
    if ended.is_none() {
        let seconds = SILENCE.as_secs();
        Talk::new().say(&format!(
            "{node}: nothing has come for {seconds} s; it is not waited for any more"
        ));
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_more_is_ended_and_who_goes_on_is_waited_for() {
        let script = r#"case "$1" in
            hangs) echo 0; exec sleep 600 ;;
            *) for line in 1 2 3 4 5 6; do echo $line; sleep 0.5; done ;;
        esac"#;
        let kubectl = Kubectl::played_by(script);
        let agents = ["hangs", "goes-on"].map(|pod| Agent {
            node: "node".to_owned(),
            pod: pod.to_owned(),
            others: Vec::new(),
        });
        let asked = agents.each_ref();
        let asked = asked.map(|agent| begin(&kubectl, agent, &[]).unwrap());
        let said = asked.map(|mut asked| {
            let ended = asked.ended(Duration::from_secs(2)).unwrap();
            let mut said = String::new();
            asked.said.rewind().unwrap();
            asked.said.read_to_string(&mut said).unwrap();
            (ended.is_some_and(|status| status.success()), said)
        });
        let [hung, went_on] = said;
        assert_eq!(hung, (false, "0\n".to_owned()));
        assert_eq!(went_on, (true, "1\n2\n3\n4\n5\n6\n".to_owned()));
    }
}
