//! What is wrong or doubtful in what was written, with its place and with what would do instead.

use std::fmt;

use serde::Serialize;

use super::document::{Origins, Position, Site};

/// One thing that is wrong (a fault) or doubtful (a warning).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file, flag or variable it stands in.
    pub source: String,
    /// Its line, if it is in a file.
    pub line: Option<u32>,
    /// Its column.
    pub column: Option<u32>,
    /// The way to it from the root, such as `evictionHard.memory.available`.
    pub path: String,
    /// What was written there.
    pub written: Option<String>,
    /// What is wrong with it.
    pub problem: String,
    /// What would be accepted.
    pub accepted: Option<String>,
    /// What was probably meant, or what to do about it.
    pub hint: Option<String>,
    /// Whether only a right is missing.
    #[serde(skip)]
    pub is_denied: bool,
}

/// Everything found in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub faults: Vec<Finding>,
    /// What is doubtful.
    pub warnings: Vec<Finding>,
    /// Faults and warnings that found no room.
    pub dropped: usize,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Wrong.
    Fault,
    /// Doubtful.
    Warning,
}

/// Everything that is wrong; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Each of them, in the order of the sources.
    pub list: Vec<Finding>,
    /// Warnings that were found beside them.
    pub warnings: Vec<Finding>,
    /// How many more there were.
    pub dropped: usize,
}

impl Finding {
    /// Something at `site` under `path`.
    pub fn at(origins: &Origins, site: Site, path: String, problem: impl Into<String>) -> Self {
        let source = origins.get(site.source).to_string();
        Self {
            path,
            ..Self::of_source(source, site.position, problem)
        }
    }

    /// Something about a source as a whole, or a place in it that has no path.
    pub fn of_source(
        source: String,
        position: Option<Position>,
        problem: impl Into<String>,
    ) -> Self {
        Self {
            source,
            line: position.map(|position| position.line),
            column: position.map(|position| position.column),
            path: String::new(),
            written: None,
            problem: problem.into(),
            accepted: None,
            hint: None,
            is_denied: false,
        }
    }

    /// The same with what was written.
    #[must_use]
    pub fn written(self, written: impl Into<String>) -> Self {
        Self {
            written: Some(written.into()),
            ..self
        }
    }

    /// The same with what would do.
    #[must_use]
    pub fn accepted(self, accepted: impl Into<String>) -> Self {
        Self {
            accepted: Some(accepted.into()),
            ..self
        }
    }

    /// The same with the name that was probably meant, if one is near.
    #[must_use]
    pub fn nearest<'a>(self, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            hint: nearest(name, known).map(|known| format!("did you mean {known}?")),
            ..self
        }
    }

    /// The place alone: `FILE:LINE:COLUMN`.
    pub fn place(&self) -> String {
        match (self.line, self.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}", self.source),
            _ => self.source.clone(),
        }
    }

    /// What is said about it, without its place.
    pub fn statement(&self) -> String {
        let mut text = String::new();
        for part in [Some(&self.path), self.written.as_ref()]
            .into_iter()
            .flatten()
        {
            if !part.is_empty() {
                text.push_str(part);
                text.push_str(": ");
            }
        }
        text.push_str(&self.problem);
        text
    }
}

impl fmt::Display for Finding {
    /// On one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.statement())?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        match &self.accepted {
            Some(accepted) => write!(f, "; accepted: {accepted}"),
            None => Ok(()),
        }
    }
}

impl Report {
    /// Findings that are kept; a file that is wrong throughout tells no more after that.
    const MOST: usize = 500;

    /// Adds something wrong.
    pub fn fault(&mut self, fault: Finding) {
        self.dropped += push(&mut self.faults, fault);
    }

    /// Adds something doubtful.
    pub fn warn(&mut self, warning: Finding) {
        self.dropped += push(&mut self.warnings, warning);
    }

    /// Whether there is room for another one; where there is none it is counted. To be asked before one is described:
    /// a description looks for its place from the root of the document, and would do so for nothing.
    pub const fn has_room(&mut self, severity: Severity) -> bool {
        let kept = match severity {
            Severity::Fault => self.faults.len(),
            Severity::Warning => self.warnings.len(),
        };
        let has_room = kept < Self::MOST;
        if !has_room {
            self.dropped += 1;
        }
        has_room
    }

    /// The warnings, if nothing is wrong.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn into_result(mut self) -> Result<Vec<Finding>, Faults> {
        in_order(&mut self.faults);
        in_order(&mut self.warnings);
        if self.faults.is_empty() {
            return Ok(self.warnings);
        }
        Err(Faults {
            list: self.faults,
            warnings: self.warnings,
            dropped: self.dropped,
        })
    }
}

/// Source by source as they were read, and from top to bottom in each.
fn in_order(list: &mut [Finding]) {
    let mut sources: Vec<String> = Vec::new();
    for finding in &*list {
        if !sources.contains(&finding.source) {
            sources.push(finding.source.clone());
        }
    }
    list.sort_by_key(|finding| {
        let source = sources.iter().position(|source| *source == finding.source);
        (source, finding.line, finding.column)
    });
}

/// The same thing is said once: two layers can show the same value.
fn push(list: &mut Vec<Finding>, finding: Finding) -> usize {
    if list.contains(&finding) {
        return 0;
    }
    if list.len() >= Report::MOST {
        return 1;
    }
    list.push(finding);
    0
}

impl Faults {
    /// One single fault.
    pub fn one(fault: Finding) -> Self {
        Self {
            list: Vec::from([fault]),
            warnings: Vec::new(),
            dropped: 0,
        }
    }

    /// Whether a right is missing for any of them: what it hides is not known.
    pub fn is_denied(&self) -> bool {
        self.list.iter().any(|fault| fault.is_denied)
    }

    /// Those of another source behind these.
    pub fn append(&mut self, mut others: Self) {
        self.list.append(&mut others.list);
        self.warnings.append(&mut others.warnings);
        self.dropped += others.dropped;
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.list.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        if self.dropped > 0 {
            write!(f, "\nand {} more", self.dropped)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// The known name nearest to one that is not known, unless all are far.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = name.to_lowercase().chars().collect();
    if wanted.len() > 64 {
        return None;
    }
    let far = 1 + wanted.len() / 5;
    known
        .into_iter()
        .map(|known| (distance(&wanted, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Letters to put in, take out or replace; two neighbours in the wrong order count once.
fn distance(one: &[char], other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    // Rows of the table: the one before the last, the last, and the next.
    let mut older = Vec::new();
    let mut last: Vec<usize> = (0..=one.len()).collect();
    for (row, &letter) in other.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, &wanted) in one.iter().enumerate() {
            let replaced = last[column] + usize::from(wanted != letter);
            let mut cost = replaced.min(last[column + 1] + 1).min(next[column] + 1);
            let is_swapped =
                row > 0 && column > 0 && (wanted, one[column - 1]) == (other[row - 1], letter);
            if is_swapped {
                cost = cost.min(older[column - 1] + 1);
            }
            next.push(cost);
        }
        older = std::mem::replace(&mut last, next);
    }
    last[one.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_strangers_are_not() {
        let known = ["evictionHard", "evictionSoft", "mode", "memory.available"];
        for (name, expected) in [
            ("evictionhard", Some("evictionHard")),
            ("evicionSoft", Some("evictionSoft")),
            ("mod", Some("mode")),
            ("memory.avaliable", Some("memory.available")),
            ("mdoe", Some("mode")),
            ("moed", Some("mode")),
            ("oedm", None),
            ("port", None),
            ("pods", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }

    #[test]
    fn a_report_keeps_each_thing_once_and_counts_what_it_drops() {
        let mut report = Report::default();
        let fault = |number: usize| Finding::of_source("f".into(), None, number.to_string());
        for number in 0..Report::MOST + 7 {
            report.fault(fault(number));
            report.fault(fault(number.min(3)));
        }
        assert!(!report.has_room(Severity::Fault));
        let faults = report.into_result().unwrap_err();
        assert_eq!((faults.list.len(), faults.dropped), (Report::MOST, 8));
        assert!(faults.to_string().ends_with("and 8 more"));
    }
}
