//! Several nodes asked at once, one answer after the other.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, Write as _, copy};
use std::process::Child;

use super::agents::Agent;
use super::ask::{Kubectl, exit_of, higher, uncalled};
use super::lines::{next_line, write_line};
use super::shape::{Manner, Shape};
use crate::cli::exit::{CliError, Exit};
use crate::cli::output::Talk;

/// So many nodes are asked at the same time.
const AT_ONCE: usize = 16;

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

fn print(mut asked: Asked<'_>, shape: Shape, is_first: bool) -> Result<Exit, CliError> {
    let exit = exit_of(asked.child.wait()?);
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
        asked.said.read_to_string(&mut text)?;
        write_line(&mut out, node, text.trim(), true)?;
    }
    out.flush()?;
    drop(out);
    asked.talked.rewind()?;
    let mut talked = BufReader::new(asked.talked);
    while let Some(line) = next_line(&mut talked)? {
        Talk::new().say(&format!("{node}: {line}"));
    }
    Ok(exit)
}
