//! Output: data on stdout, talk on stderr, colour only on terminals.

use std::io::{self, BufWriter, Stdout, Write};

use serde::Serialize;

use super::exit::{CliError, Exit};
use crate::config::finding::{Faults, Finding};
use crate::terminal::{Paint, Screen, Style};

/// In which form data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs; the schemas are published.
    Json,
}

/// Buffered data for stdout.
#[derive(Debug)]
pub struct Data {
    writer: BufWriter<Stdout>,
    style: Style,
}

/// Talk for stderr, one statement at a time.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    style: Style,
}

/// Warnings printed at most; the rest is counted.
const MOST_WARNINGS: usize = 20;

const ERROR: &str = "error:";
const WARNING: &str = "warning:";

impl Data {
    /// Data for stdout.
    pub fn new() -> Self {
        Self {
            style: Style::of_stdout(),
            writer: BufWriter::new(io::stdout()),
        }
    }

    /// How it is written.
    pub const fn style(&self) -> Style {
        self.style
    }

    /// Prints a text as it is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn print(&mut self, text: &str) -> Result<(), CliError> {
        self.writer.write_all(text.as_bytes()).map_err(unwritten)
    }

    /// Prints a value as one line of JSON.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        serde_json::to_writer(&mut self.writer, value).map_err(unwritten_json)?;
        self.print("\n")
    }

    /// Prints a value as JSON for readers and programs alike.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        serde_json::to_writer_pretty(&mut self.writer, value).map_err(unwritten_json)?;
        self.print("\n")
    }

    /// Hands on everything that is still buffered.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<(), CliError> {
        self.writer.flush().map_err(unwritten)
    }
}

/// A reader that has left is no error; of anything else it is said where the output went.
pub(super) fn unwritten(error: io::Error) -> CliError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return CliError::ReaderGone;
    }
    let error = anyhow::Error::new(error).context("cannot write to standard output");
    CliError::new(Exit::Failure, error).advise("make room where it goes to, or send it elsewhere")
}

fn unwritten_json(error: serde_json::Error) -> CliError {
    if error.is_io() {
        unwritten(error.into())
    } else {
        error.into()
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::new()
    }
}

impl Talk {
    /// Talk for stderr.
    pub fn new() -> Self {
        Self {
            style: Style::of_stderr(),
        }
    }

    /// Says a sentence. That nobody listens is no error.
    pub fn say(self, text: &str) {
        self.show(|screen| screen.line("", text));
    }

    fn show(self, fill: impl FnOnce(&mut Screen)) {
        let mut screen = Screen::new(self.style);
        fill(&mut screen);
        let _ = io::stderr().lock().write_all(screen.into_text().as_bytes());
    }

    /// Says what went wrong, and what to do about it.
    pub fn error(self, error: &CliError) {
        match error {
            CliError::ReaderGone => {}
            CliError::Faults(faults) => self.faults(faults),
            CliError::Other { advice, .. } => self.show(|screen| {
                screen.labelled(ERROR, Paint::Error, &error.to_string());
                if let Some(advice) = advice {
                    screen.line(&" ".repeat(ERROR.len() + 1), advice);
                }
            }),
        }
    }

    /// Says everything that is wrong, warnings first.
    pub fn faults(self, faults: &Faults) {
        self.warnings(&faults.warnings);
        for fault in &faults.list {
            self.finding(ERROR, Paint::Error, fault);
        }
        let count = faults.list.len() + faults.dropped;
        let noun = if count == 1 { "fault" } else { "faults" };
        let shown = if faults.dropped > 0 {
            format!(", the first {} of them above", faults.list.len())
        } else {
            String::new()
        };
        self.say(&format!("{count} {noun}{shown}"));
    }

    /// Says what is doubtful.
    pub fn warnings(self, warnings: &[Finding]) {
        for warning in warnings.iter().take(MOST_WARNINGS) {
            self.finding(WARNING, Paint::Warning, warning);
        }
        if let Some(more) = warnings.len().checked_sub(MOST_WARNINGS).filter(|&n| n > 0) {
            self.say(&format!("and {more} more warnings"));
        }
    }

    fn finding(self, label: &str, paint: Paint, finding: &Finding) {
        let statement = format!("{}: {}", finding.place(), finding.statement());
        let accepted = finding.accepted.as_ref();
        let accepted = accepted.map(|accepted| format!("accepted: {accepted}"));
        let indent = " ".repeat(label.len() + 1);
        self.show(|screen| {
            screen.labelled(label, paint, &statement);
            for more in [&finding.hint, &accepted].into_iter().flatten() {
                screen.paragraph(&indent, more, Some(Paint::Faint));
            }
        });
    }
}

impl Default for Talk {
    fn default() -> Self {
        Self::new()
    }
}
