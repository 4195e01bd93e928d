//! Output: data on stdout, talk on stderr, colour only on terminals.

use std::io::{self, BufWriter, Stdout, Write};

use serde::Serialize;

use super::exit::CliError;
use crate::config::finding::{Faults, Finding};
use crate::terminal::{Paint, Style, is_coloured, painted, wrapped};

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

/// Talk for stderr, one line at a time.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    colour: bool,
}

/// Warnings printed at most; the rest is counted.
const MOST_WARNINGS: usize = 20;

/// Width of what explains a finding.
const WIDTH: usize = 100;

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
        Ok(self.writer.write_all(text.as_bytes())?)
    }

    /// Prints a value as one line of JSON.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        serde_json::to_writer(&mut self.writer, value)?;
        self.print("\n")
    }

    /// Prints a value as JSON for readers and programs alike.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        serde_json::to_writer_pretty(&mut self.writer, value)?;
        self.print("\n")
    }

    /// Prints rows under a head in columns as wide as they need to be.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> Result<(), CliError> {
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(head.get(column).map_or(0, |name| name.len()))
        };
        let line = |cells: &[String]| {
            let mut text = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let gap = width(column).saturating_sub(cell.chars().count()) + 2;
                text.push_str(cell);
                if column + 1 < cells.len() {
                    text.extend(std::iter::repeat_n(' ', gap));
                }
            }
            text
        };
        let head: Vec<String> = head.iter().map(ToString::to_string).collect();
        let head = painted(&line(&head), Paint::Strong, self.style.colour);
        self.print(&format!("{head}\n"))?;
        rows.iter()
            .try_for_each(|row| self.print(&format!("{}\n", line(row))))
    }

    /// Hands on everything that is still buffered.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<(), CliError> {
        Ok(self.writer.flush()?)
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
            colour: is_coloured(&io::stderr()),
        }
    }

    /// Says a line. That nobody listens is no error.
    pub fn say(self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    /// Says what went wrong, and what to do about it.
    pub fn error(self, error: &CliError) {
        match error {
            CliError::ReaderGone => {}
            CliError::Faults(faults) => self.faults(faults),
            CliError::Other { advice, .. } => {
                let label = painted("error:", Paint::Error, self.colour);
                self.say(&format!("{label} {error}"));
                if let Some(advice) = advice {
                    self.say(&format!("       {advice}"));
                }
            }
        }
    }

    /// Says everything that is wrong, warnings first.
    pub fn faults(self, faults: &Faults) {
        self.warnings(&faults.warnings);
        for fault in &faults.list {
            self.finding("error:", Paint::Error, fault);
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
            self.finding("warning:", Paint::Warning, warning);
        }
        if let Some(more) = warnings.len().checked_sub(MOST_WARNINGS).filter(|&n| n > 0) {
            self.say(&format!("and {more} more warnings"));
        }
    }

    fn finding(self, label: &str, paint: Paint, finding: &Finding) {
        let indent = " ".repeat(label.len() + 1);
        let label = painted(label, paint, self.colour);
        let place = painted(&finding.place(), Paint::Strong, self.colour);
        self.say(&format!("{label} {place}: {}", finding.statement()));
        let accepted = finding
            .accepted
            .as_ref()
            .map(|accepted| format!("accepted: {accepted}"));
        for more in [&finding.hint, &accepted].into_iter().flatten() {
            for line in wrapped(more, WIDTH.saturating_sub(indent.len())) {
                let line = painted(&line, Paint::Faint, self.colour);
                self.say(&format!("{indent}{line}"));
            }
        }
    }
}

impl Default for Talk {
    fn default() -> Self {
        Self::new()
    }
}
