//! A node that is being asked: how long it is waited for, what it has said, and how it has ended.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use super::agents::Agent;
use super::ask::{Kubectl, exit_of, higher, odd_end, uncalled};
use super::lines::value;
use super::wait::wait;
use crate::cli::exit::{CliError, Exit};
use crate::cli::output::Talk;

/// Who has said nothing for so long is not waited for any more. Even a doctor whose every trial is in vain is silent for less.
pub(super) const SILENCE: Duration = Duration::from_mins(2);
/// From one look to the next no more than this counts as silence.
const STEP: Duration = Duration::from_secs(1);

/// A node that is being asked. What it says goes into files: it may be megabytes.
pub(super) struct Asked<'a> {
    pub(super) agent: &'a Agent,
    child: Child,
    pub(super) said: File,
    /// What it says on standard error; none where that is our own.
    pub(super) talked: Option<File>,
}

/// A value, and what is wrong with an answer that is none.
pub(super) type Value = (Option<String>, Option<String>);

impl<'a> Asked<'a> {
    /// Asks it; with a file for what it says on standard error, or none if it may say so on ours.
    ///
    /// # Errors
    /// When kubectl cannot be called, or there is no room for what it says.
    pub(super) fn begin(
        kubectl: &Kubectl,
        agent: &'a Agent,
        words: &[&OsStr],
        talked: Option<File>,
    ) -> Result<Self, CliError> {
        let said = room()?;
        let mut command = kubectl.exec(&agent.pod, words, false);
        command.stdout(said.try_clone()?);
        if let Some(talked) = &talked {
            command.stderr(talked.try_clone()?);
        }
        let child = command.spawn().map_err(uncalled)?;
        Ok(Self {
            agent,
            child,
            said,
            talked,
        })
    }

    /// How it has ended; none where it had said nothing for so long, and was ended for that. `heard` is called when it has said more.
    ///
    /// # Errors
    /// Those of `heard`, or when nobody can say how it stands. It is ended then too.
    pub(super) fn ended(
        &mut self,
        silence: Duration,
        mut heard: impl FnMut(&File) -> io::Result<()>,
    ) -> io::Result<Option<ExitStatus>> {
        let (said, talked) = (&self.said, self.talked.as_ref());
        let length = || -> io::Result<u64> {
            let talked = talked.map(File::metadata).transpose()?;
            Ok(said.metadata()?.len() + talked.map_or(0, |talked| talked.len()))
        };
        // What it has been silent while others were waited for counts, but for the last part: a clock may have been set.
        let before = said.metadata()?.modified()?.elapsed();
        let mut silent = before.unwrap_or_default().min(silence / 12 * 11);
        let (mut known, mut told, mut looked) = (length()?, 0, Instant::now());
        wait(&mut self.child, || {
            let now = Instant::now();
            // Whoever was stopped himself has not been waiting.
            silent += now.duration_since(looked).min(STEP);
            looked = now;
            let length = length()?;
            if std::mem::replace(&mut known, length) != length {
                silent = Duration::ZERO;
            }
            if std::mem::replace(&mut told, length) != length {
                heard(said)?;
            }
            Ok(silent >= silence)
        })
    }

    /// What it has said, where that is to be one value.
    ///
    /// # Errors
    /// When it cannot be read again.
    pub(super) fn value(&mut self, ended: Option<ExitStatus>) -> io::Result<Value> {
        // Whoever was cut off has left no value, and that he was is told.
        let Some(status) = ended else {
            return Ok((None, None));
        };
        let mut answer = Vec::new();
        self.said.rewind()?;
        self.said.read_to_end(&mut answer)?;
        // Who has failed has said why on standard error.
        if !status.success() && answer.trim_ascii().is_empty() {
            return Ok((None, None));
        }
        Ok(match value(answer) {
            Ok(value) => (Some(value), None),
            Err(fault) => (None, Some(fault)),
        })
    }
}

/// A file without a name for what somebody says.
///
/// # Errors
/// When none can be made, with the folder it would lie in.
pub(super) fn room() -> Result<File, CliError> {
    tempfile::tempfile().map_err(|error| {
        let exit = match error.kind() {
            io::ErrorKind::PermissionDenied => Exit::Denied,
            _ => Exit::Failure,
        };
        let what = format!("no file can be made in {}", env::temp_dir().display());
        CliError::new(exit, anyhow::Error::new(error).context(what)).advise(
            "answers are kept there until they are printed: have TMPDIR name a folder that can be written to",
        )
    })
}

/// Says how it has ended where its own words do not, and what is wrong with its answer; the exit code that follows. `late` is what
/// is said of one that was not waited for.
pub(super) fn conclude(
    agent: &Agent,
    ended: Option<ExitStatus>,
    late: &str,
    fault: Option<&str>,
) -> Exit {
    let Agent { node, pod, .. } = agent;
    let exit = match ended {
        None => {
            Talk::new().say(&format!("{node}: {late}; it is not waited for any more"));
            Exit::NoAgent
        }
        Some(status) => {
            if let Some(end) = odd_end(status) {
                Talk::new().say(&format!(
                    "{node}: {end}; `kubectl describe pod {pod}` in the agents' namespace tells how its agent is"
                ));
            }
            exit_of(status)
        }
    };
    weighed(node, exit, fault)
}

/// Says what is wrong with a node's answer, if anything; the exit code that follows from both.
pub(super) fn weighed(node: &str, exit: Exit, fault: Option<&str>) -> Exit {
    let Some(fault) = fault else {
        return exit;
    };
    Talk::new().say(&format!("{node}: {fault}"));
    higher(exit, Exit::Failure)
}

/// What is said of one that has been silent for too long.
pub(super) fn silent() -> String {
    format!("nothing has come for {} s", SILENCE.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(pod: &str) -> Agent {
        Agent {
            node: "node".to_owned(),
            pod: pod.to_owned(),
            others: Vec::new(),
        }
    }

    #[test]
    fn who_says_nothing_more_is_ended_and_who_goes_on_is_waited_for() {
        let script = r#"case "$1" in
            hangs) echo 0; exec sleep 600 ;;
            *) for line in 1 2 3 4 5 6; do echo $line; sleep 0.5; done ;;
        esac"#;
        let kubectl = Kubectl::played_by(script);
        let agents = ["hangs", "goes-on"].map(agent);
        let asked = agents.each_ref();
        let asked =
            asked.map(|agent| Asked::begin(&kubectl, agent, &[], Some(room().unwrap())).unwrap());
        let said = asked.map(|mut asked| {
            let mut heard = 0;
            let ended = asked.ended(Duration::from_secs(2), |_said| {
                heard += 1;
                Ok(())
            });
            assert!(heard > 0, "it is told that it has said something");
            let mut said = String::new();
            asked.said.rewind().unwrap();
            asked.said.read_to_string(&mut said).unwrap();
            (ended.unwrap().is_some_and(|status| status.success()), said)
        });
        let [hung, went_on] = said;
        assert_eq!(hung, (false, "0\n".to_owned()));
        assert_eq!(went_on, (true, "1\n2\n3\n4\n5\n6\n".to_owned()));
    }

    #[test]
    fn nobody_runs_on_whose_words_cannot_be_written() {
        let kubectl = Kubectl::played_by("echo 0; exec sleep 600");
        let agent = agent("talks");
        let mut asked = Asked::begin(&kubectl, &agent, &[], None).unwrap();
        let gone = |_: &File| Err(io::Error::from(io::ErrorKind::BrokenPipe));
        let error = asked.ended(Duration::from_mins(1), gone).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let ended = asked.child.try_wait().unwrap();
        assert!(ended.is_some_and(|status| !status.success()), "{ended:?}");
    }
}
