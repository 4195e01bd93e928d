//! `brink replay`: a journal again, input by input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::asking::unreadable;
use super::exit::{CliError, Exit};
use super::options::FormatArgs;
use super::output::{Data, Format, Talk};
use crate::config::document::Origin;
use crate::config::refuse_what_waits;
use crate::replay::{self, Replay, ReplayedStep, Summary};

/// Options of `brink replay`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink replay /var/log/brink/journal
  brink replay -o json journal | jq -c 'select(.differs)'
  zcat journal.gz | brink replay -

The same inputs give the same actions; steps that lead to nothing are not shown. The exit code is 3 if an answer \
differs, or steps have been taken out or moved. With -o json there is a line for each step, and one with the sums at the end.")]
pub struct Args {
    /// The journal; - is standard input
    #[arg(value_name = "JOURNAL")]
    pub journal: PathBuf,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The longest line that is read.
const LONGEST: u64 = 64 << 20;

/// Replays the journal and compares.
///
/// # Errors
/// When it is no journal.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let wrong = |error: anyhow::Error| {
        let advice = "name a file that `brink run` of this version wrote, with paths.decisionJournal or --journal";
        unreadable("file", &args.journal, error, advice)
    };
    let name = Origin::File(args.journal.display().to_string());
    let mut lines = open(&args.journal)
        .with_context(|| format!("cannot read {name}"))
        .map_err(wrong)?;
    let mut data = Data::new();
    let mut replay = Replay::default();
    for number in 1.. {
        let mut line = Vec::new();
        let read = lines.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        read.with_context(|| format!("cannot read {name}"))
            .map_err(wrong)?;
        if line.is_empty() {
            break;
        }
        if line.len() as u64 == LONGEST {
            let error = anyhow::anyhow!("{name}:{number}: the line is too long for a journal");
            return Err(wrong(error));
        }
        let parsed = match serde_json::from_slice(&line) {
            Ok(parsed) => parsed,
            // An agent that was ended while it wrote: what came before is whole.
            Err(_) if number > 1 && !line.ends_with(b"\n") => {
                Talk::new().say(&format!("{name}:{number}: the last line is not finished"));
                break;
            }
            Err(error) => {
                let text = format!("{name}:{number}: not a line of a journal");
                return Err(wrong(anyhow::Error::new(error).context(text)));
            }
        };
        let step = replay
            .take(parsed, number)
            .with_context(|| format!("{name}:{number}"))
            .map_err(wrong)?;
        if let Some(step) = step {
            show(&mut data, &step, args.format.output)?;
        }
    }
    let summary = replay.summary();
    if summary.steps == 0 {
        return Err(wrong(anyhow::anyhow!(
            "{name}: there is no step in it to replay"
        )));
    }
    end(&mut data, &summary, args.format.output)
}

/// The journal; `-` is standard input.
fn open(journal: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(if journal.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        refuse_what_waits(journal)?;
        Box::new(BufReader::new(File::open(journal)?))
    })
}

fn show(data: &mut Data, step: &ReplayedStep, format: Format) -> Result<(), CliError> {
    let is_told = step.differs || !step.actions.is_empty();
    match format {
        Format::Json => data.json_line(step),
        Format::Text if is_told => data.print(&replay::step(step, data.style())),
        Format::Text => Ok(()),
    }
}

fn end(data: &mut Data, summary: &Summary, format: Format) -> Result<Exit, CliError> {
    match format {
        Format::Json => data.json_line(summary)?,
        Format::Text => data.print(&replay::summary(summary, data.style()))?,
    }
    data.flush()?;
    Ok(if summary.differing > 0 || summary.damaged_line.is_some() {
        Exit::Crossed
    } else {
        Exit::Success
    })
}
