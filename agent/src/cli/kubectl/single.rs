//! One node asked: it answers as on its own machine, and is waited for no longer than several are.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Seek as _, Write, stdin, stdout};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::agents::Agent;
use super::ask::{Kubectl, exit_of, uncalled};
use super::asked::{Asked, SILENCE, conclude, silent};
use super::follow;
use super::lines::{hand_on, write_value};
use super::shape::{Manner, Shape};
use super::wait::wait;
use crate::cli::exit::{CliError, Exit};

/// An answer on a terminal goes past us, so that nobody sees it fall silent: all of it may take so long.
const ON_TERMINAL: Duration = Duration::from_mins(10);

/// Asks it, and hands on what it says.
///
/// # Errors
/// When kubectl cannot be called, or the output not be written.
pub(super) fn ask(
    kubectl: &Kubectl,
    agent: &Agent,
    words: &[&OsStr],
    shape: Shape,
) -> Result<Exit, CliError> {
    let is_terminal = stdin().is_terminal() && stdout().is_terminal();
    let goes_on = matches!(shape.manner, Manner::Followed | Manner::Screen);
    if goes_on && shape.is_json && !is_terminal {
        let (ended, fault) = follow::values(kubectl, &agent.pod, words)?;
        return Ok(went_on(agent, ended, fault.as_deref()));
    }
    if goes_on || (is_terminal && !shape.is_json) {
        let mut command = kubectl.exec(&agent.pod, words, is_terminal);
        let mut child = command.spawn().map_err(uncalled)?;
        if goes_on {
            return Ok(went_on(agent, child.wait()?, None));
        }
        let ended = within(&mut child, ON_TERMINAL)?;
        let late = format!("it has not ended within {} s", ON_TERMINAL.as_secs());
        return Ok(conclude(agent, ended, &late, None));
    }
    let mut asked = Asked::begin(kubectl, agent, words, None)?;
    let (ended, fault) = if shape.is_json {
        checked(&mut asked, shape.manner)?
    } else {
        (passed(&mut asked)?, None)
    };
    Ok(conclude(agent, ended, &silent(), fault.as_deref()))
}

/// Says how one that goes on has ended, but to its own reader who ended it.
fn went_on(agent: &Agent, ended: ExitStatus, fault: Option<&str>) -> Exit {
    if is_interrupted(ended) {
        exit_of(ended)
    } else {
        conclude(agent, Some(ended), "", fault)
    }
}

/// Whether its reader has ended it, by a key: on a terminal of its own in the pod that is a code.
fn is_interrupted(status: ExitStatus) -> bool {
    const INTERRUPT: i32 = 2;
    status.signal() == Some(INTERRUPT) || status.code() == Some(128 + INTERRUPT)
}

/// How one that has our own terminal has ended; none where it was late before that, and was killed for it.
fn within(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    // Who is killed leaves the terminal as he needed it: it echoes nothing, and no key ends anything.
    let before = tcgetattr(stdin()).ok();
    let until = Instant::now() + patience;
    let ended = wait(child, || Ok(Instant::now() >= until))?;
    if let (None, Some(before)) = (ended, before) {
        let _may_be_gone = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
    Ok(ended)
}

/// Hands on a text while it comes.
fn passed(asked: &mut Asked<'_>) -> io::Result<Option<ExitStatus>> {
    let (mut out, mut at) = (stdout().lock(), 0);
    let ended = asked.ended(SILENCE, |said| pass(said, &mut at, &mut out))?;
    pass(&asked.said, &mut at, &mut out)?;
    Ok(ended)
}

/// Hands on what has come since. The file's own place is where kubectl goes on writing, and stays.
fn pass(said: &File, at: &mut u64, out: &mut impl Write) -> io::Result<()> {
    let mut some = [0; 8 << 10];
    loop {
        let read = said.read_at(&mut some, *at)?;
        if read == 0 {
            return out.flush();
        }
        out.write_all(&some[..read])?;
        *at += read as u64;
    }
}

/// Hands on values once all have come: what is none is told, and kept from whoever reads them.
fn checked(
    asked: &mut Asked<'_>,
    manner: Manner,
) -> io::Result<(Option<ExitStatus>, Option<String>)> {
    let ended = asked.ended(SILENCE, |_said| Ok(()))?;
    let mut out = stdout().lock();
    let fault = if manner == Manner::Lines {
        asked.said.rewind()?;
        hand_on(BufReader::new(&asked.said), |line| {
            write_value(&mut out, line)
        })?
    } else {
        let (value, fault) = asked.value(ended)?;
        out.write_all(value.unwrap_or_default().as_bytes())?;
        fault
    };
    out.flush()?;
    Ok((ended, fault))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_has_come_is_handed_on_once() {
        let mut said = tempfile::tempfile().unwrap();
        let (mut out, mut at) = (Vec::new(), 0);
        pass(&said, &mut at, &mut out).unwrap();
        assert_eq!((out.len(), at), (0, 0));
        let more = "x".repeat(10_000);
        for part in ["one\n", more.as_str(), "half"] {
            // As kubectl does: where the last one ended.
            said.write_all(part.as_bytes()).unwrap();
            pass(&said, &mut at, &mut out).unwrap();
        }
        assert_eq!(String::from_utf8(out).unwrap(), format!("one\n{more}half"));
    }

    #[test]
    fn who_ends_what_goes_on_by_a_key_knows_why_it_has_ended() {
        for (raw, expected) in [
            (2, true),
            (130 << 8, true),
            (9, false),
            (0, false),
            (2 << 8, false),
        ] {
            let found = is_interrupted(ExitStatus::from_raw(raw));
            assert_eq!(found, expected, "{raw}");
        }
    }

    #[test]
    fn who_has_the_terminal_is_waited_for_so_long_and_no_longer() {
        let play = |script: &str, patience| {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            within(&mut child, patience).unwrap()
        };
        let code = |ended: Option<ExitStatus>| ended.map(|status| status.code());
        assert_eq!(code(play("exit 3", Duration::from_mins(1))), Some(Some(3)));
        let begun = Instant::now();
        assert_eq!(code(play("exec sleep 600", Duration::from_secs(1))), None);
        assert!(begun.elapsed() < Duration::from_mins(1));
    }
}
