//! Several nodes asked at once, one answer after the other.

use std::ffi::OsStr;
use std::io::{self, BufReader, Seek as _, Write, copy};

use super::agents::Agent;
use super::ask::{Kubectl, higher};
use super::asked::{Asked, SILENCE, conclude, room, silent};
use super::lines::{hand_on, next_line, write_line};
use super::shape::{Manner, Shape};
use crate::cli::exit::{CliError, Exit};
use crate::cli::output::Talk;

/// So many nodes are asked at the same time.
const AT_ONCE: usize = 16;

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
        let asked = some
            .iter()
            .map(|agent| Asked::begin(kubectl, agent, words, Some(room()?)));
        let asked = asked.collect::<Result<Vec<Asked<'_>>, CliError>>()?;
        for asked in asked {
            let exit = print(asked, shape, std::mem::take(&mut is_first))?;
            worst = higher(worst, exit);
        }
    }
    Ok(worst)
}

fn print(mut asked: Asked<'_>, shape: Shape, is_first: bool) -> Result<Exit, CliError> {
    let ended = asked.ended(SILENCE, |_said| Ok(()))?;
    let agent = asked.agent;
    let node = &agent.node;
    let mut out = io::stdout().lock();
    asked.said.rewind()?;
    let fault = if !shape.is_json {
        let gap = if is_first { "" } else { "\n" };
        writeln!(out, "{gap}== {node}")?;
        copy(&mut asked.said, &mut out)?;
        None
    } else if shape.manner == Manner::Lines {
        let is_whole = ended.is_some_and(|status| status.success());
        print_lines(&mut out, &asked, is_whole)?
    } else {
        let (value, fault) = asked.value(ended)?;
        let value = value.as_deref().map_or("null", str::trim);
        write_line(&mut out, node, &value.into(), true)?;
        fault
    };
    out.flush()?;
    drop(out);
    if let Some(mut talked) = asked.talked {
        talked.rewind()?;
        let mut talked = BufReader::new(talked);
        while let Some(line) = next_line(&mut talked)? {
            Talk::new().say(&format!("{node}: {}", line.text));
        }
    }
    Ok(conclude(agent, ended, &silent(), fault.as_deref()))
}

/// Prints the values of a node, a line each; a last one that is none where more may have been to come. What is wrong with them.
fn print_lines(
    out: &mut impl Write,
    asked: &Asked<'_>,
    is_whole: bool,
) -> io::Result<Option<String>> {
    let node = &asked.agent.node;
    let lines = BufReader::new(&asked.said);
    let fault = hand_on(lines, |line| write_line(out, node, line, true))?;
    if !is_whole {
        write_line(out, node, &"null".into(), true)?;
    }
    Ok(fault)
}
