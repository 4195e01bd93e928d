//! A file of an older version as one of the newest: the same words but for those that changed, comments and all.
//!
//! The words are replaced where they stand. What comes of it is read again and has to say what was read before; where it does
//! not, as with a name behind an alias, the file is written anew from its tree, without comments.

use std::path::Path;

use super::super::access;
use super::super::document::{Limits, Node, Origin, Origins, Site, Value, to_yaml};
use super::super::finding::{Faults, Finding, Report};
use super::super::layers::{only_map, read_bytes};
use super::{Change, take};

/// A file in the newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// What it says now.
    pub text: String,
    /// What was another word before; nothing where the file was in the newest version already.
    pub changes: Vec<Finding>,
    /// Whether comments and form are what they were. Without comments none are lost.
    pub keeps_comments: bool,
}

/// Migrates a file; `-` is standard input.
///
/// # Errors
/// Why it cannot be, of which nothing is guessed: it cannot be read, is of another kind or an unknown version, or is standard
/// input that says nothing.
pub fn migrate(path: &Path) -> Result<Migrated, Faults> {
    let bytes = read_bytes(path, Limits::WRITTEN.bytes)
        .map_err(|error| Faults::one(access::unread(path, &error)))?;
    // An empty file is a configuration that leaves all as it is. An empty pipe is a command before it that found nothing.
    if path.as_os_str() == "-" && bytes.trim_ascii().is_empty() {
        let name = Origin::File("-".to_owned()).to_string();
        let fault = Finding::of_source(name, None, "nothing was given");
        let hint = "look at what the command before the pipe prints: it found nothing";
        return Err(Faults::one(Finding {
            hint: Some(hint.to_owned()),
            ..fault.accepted("a configuration or a drop-in")
        }));
    }
    migrate_text(&path.display().to_string(), &bytes)
}

/// Migrates what a file of that name says.
///
/// # Errors
/// As [`migrate`].
pub fn migrate_text(name: &str, bytes: &[u8]) -> Result<Migrated, Faults> {
    let (document, report) = read(name, bytes);
    let changes = report.into_result()?;
    let Some(document) = document else {
        let fault = Finding::of_source(name.to_owned(), None, "it is no configuration");
        return Err(Faults::one(fault));
    };
    let (text, keeps_comments) = document
        .in_the_newest(name)
        .ok_or_else(|| Faults::one(unwritable(name)))?;
    // Whoever migrates need not be told how to.
    let told = |change: Finding| Finding {
        hint: None,
        ..change
    };
    Ok(Migrated {
        text,
        changes: changes.into_iter().map(told).collect(),
        keeps_comments,
    })
}

fn unwritable(name: &str) -> Finding {
    let problem = "cannot be rewritten without changing what it says";
    Finding::of_source(name.to_owned(), None, problem).accepted("the new words, put in by hand")
}

/// A document that has been taken into the newest version.
struct Document {
    tree: Node,
    changes: Vec<Change>,
    text: String,
}

impl Document {
    /// The text that says so, and whether it has the comments of the old one; none where no text says the same.
    fn in_the_newest(self, name: &str) -> Option<(String, bool)> {
        if self.changes.is_empty() {
            return Some((self.text, true));
        }
        let says_the_same = |text: &String| {
            let (again, report) = read(name, text.as_bytes());
            let newest = again.filter(|_| report.faults.is_empty());
            newest.is_some_and(|again| again.changes.is_empty() && is_same(&again.tree, &self.tree))
        };
        if let Some(text) = replace(&self.text, &self.changes).filter(says_the_same) {
            return Some((text, true));
        }
        let text = Some(to_yaml(&self.tree, &|_| None)).filter(says_the_same)?;
        Some((text, !self.text.contains('#')))
    }
}

/// A file may be a drop-in, so that nothing is wrong with one that does not say what it is.
fn read(name: &str, bytes: &[u8]) -> (Option<Document>, Report) {
    let (mut origins, mut report) = (Origins::default(), Report::default());
    origins.add(Origin::File(name.to_owned()));
    let Some(mut tree) = only_map(bytes, Limits::WRITTEN, &origins, &mut report) else {
        return (None, report);
    };
    let changes = take(&mut tree, true, &origins, &mut report);
    let document = changes.map(|changes| Document {
        tree,
        changes,
        text: String::from_utf8_lossy(bytes).into_owned(),
    });
    (document, report)
}

/// The text with other words where they stand; none where a word does not stand there as it is read.
fn replace(text: &str, changes: &[Change]) -> Option<String> {
    let mut places = Vec::with_capacity(changes.len());
    for change in changes {
        places.push((offset(text, change.site)?, change));
    }
    // A value behind an alias is read more than once.
    places.sort_by_key(|(at, _)| *at);
    places.dedup();
    let mut replaced = String::with_capacity(text.len() + 64);
    let mut done = 0;
    for (at, change) in places {
        let at = at + usize::from(text[at..].starts_with(['"', '\'']));
        let rest = text.get(at..)?.strip_prefix(change.old)?;
        replaced.push_str(text.get(done..at)?);
        replaced.push_str(change.new);
        done = text.len() - rest.len();
    }
    replaced.push_str(&text[done..]);
    Some(replaced)
}

/// Where in the text a place is.
fn offset(text: &str, site: Site) -> Option<usize> {
    const MARK: char = '\u{feff}';
    let position = site.position?;
    let body = text.strip_prefix(MARK).unwrap_or(text);
    let mut rest = body;
    for _ in 1..position.line {
        let end = rest.find(['\n', '\r'])?;
        let long = if rest[end..].starts_with("\r\n") {
            2
        } else {
            1
        };
        rest = &rest[end + long..];
    }
    let before = usize::try_from(position.column.checked_sub(1)?).ok()?;
    let (column, _) = rest.char_indices().nth(before)?;
    Some(text.len() - rest.len() + column)
}

/// Whether two trees say the same, wherever it stands.
fn is_same(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (Value::Map(one), Value::Map(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len()
                && pairs.all(|(one, other)| one.key == other.key && is_same(&one.node, &other.node))
        }
        (one, other) => one == other,
    }
}
