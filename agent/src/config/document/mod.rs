//! A YAML or JSON document as a tree in which every node knows where it was written.

mod emit;
mod parse;
mod reader;
mod scalar;
#[cfg(test)]
mod tests;
mod walk;

use std::fmt;

pub use emit::{Annotate, to_json, to_yaml};
pub use parse::{Limits, SyntaxError, parse};
pub use reader::{Fields, Keys, Reader};
pub use walk::path_to;

/// What a text stands for if it is written in YAML without quotes.
pub fn plain(text: &str) -> Value {
    scalar::resolve(text, false)
}

/// Where something was written: a source, and a position in it if it has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The source, by its number in the [`Origins`].
    pub source: SourceId,
    /// Line and column; defaults, flags and variables have none.
    pub position: Option<Position>,
}

/// A position in a text, both counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

/// The number of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(u16);

/// What a value can come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody wrote it.
    Default,
    /// A file, by the name it was given by; `-` is standard input.
    File(String),
    /// An environment variable.
    Environment(&'static str),
    /// A flag of the command line, dashes included.
    Flag(String),
}

/// All sources of one run, by number.
#[derive(Clone, Debug)]
pub struct Origins(Vec<Origin>);

/// One value of a document and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it begins.
    pub site: Site,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing, `null` or `~`.
    Null,
    /// A truth value and the word it was written with.
    Bool(bool, String),
    /// A number, as JSON would carry it.
    Number(String),
    /// Any other text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map in the order it was written, repeated keys included.
    Map(Vec<Entry>),
}

/// One key of a map with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key, always a text.
    pub key: String,
    /// Where the key stands.
    pub site: Site,
    /// Its value.
    pub node: Node,
}

impl Default for Origins {
    fn default() -> Self {
        Self(Vec::from([Origin::Default]))
    }
}

impl Origins {
    /// The source of what nobody wrote.
    pub const DEFAULT: SourceId = SourceId(0);

    /// Adds a source. Beyond 65535 of them the last number stands for all others.
    pub fn add(&mut self, origin: Origin) -> SourceId {
        match u16::try_from(self.0.len()) {
            Ok(number) => {
                self.0.push(origin);
                SourceId(number)
            }
            Err(_) => SourceId(u16::MAX),
        }
    }

    /// The source added last.
    pub fn newest(&self) -> SourceId {
        let last = self.0.len().saturating_sub(1);
        SourceId(u16::try_from(last).unwrap_or(u16::MAX))
    }

    /// The source behind a number.
    pub fn get(&self, id: SourceId) -> &Origin {
        self.0.get(usize::from(id.0)).unwrap_or(&Origin::Default)
    }

    /// The place in words: `FILE:LINE:COLUMN`, `--flag`, `$VARIABLE` or `default`.
    pub fn describe(&self, site: Site) -> String {
        let origin = self.get(site.source);
        match site.position {
            Some(position) => format!("{origin}:{position}"),
            None => origin.to_string(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(name) if name == "-" => f.write_str("<stdin>"),
            Self::File(name) | Self::Flag(name) => f.write_str(name),
            Self::Environment(name) => write!(f, "${name}"),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl Site {
    /// The site of what nobody wrote.
    pub const DEFAULT: Self = Self {
        source: Origins::DEFAULT,
        position: None,
    };

    /// A source without positions.
    pub const fn whole(source: SourceId) -> Self {
        Self {
            source,
            position: None,
        }
    }
}

impl Node {
    /// A text that stands at `site`.
    pub fn text(text: impl Into<String>, site: Site) -> Self {
        Self {
            value: Value::Text(text.into()),
            site,
        }
    }

    /// A map of texts that all stand at `site`.
    pub fn texts(pairs: impl IntoIterator<Item = (String, String)>, site: Site) -> Self {
        let entry = |(key, text)| Entry {
            key,
            site,
            node: Self::text(text, site),
        };
        let entries = pairs.into_iter().map(entry).collect();
        Self {
            value: Value::Map(entries),
            site,
        }
    }

    /// The value of a key of a map: the last one where it is repeated, as Kubernetes takes it.
    /// A null counts as left out.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let node = &self.entry(key)?.node;
        (node.value != Value::Null).then_some(node)
    }

    /// The same, to be changed; a null too.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Value::Map(entries) = &mut self.value else {
            return None;
        };
        let entry = entries.iter_mut().rfind(|entry| entry.key == key)?;
        Some(&mut entry.node)
    }

    /// The entry of a key, whatever its value.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().rfind(|entry| entry.key == key)
    }

    /// The entries of a map; none of anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// What it is, in a word or two.
    pub const fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(..) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// A scalar as it was written; nothing for null, lists and maps.
    pub fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Bool(_, text) | Value::Number(text) | Value::Text(text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// A scalar as it was written, short enough for a line.
    pub fn preview(&self) -> Option<String> {
        const MOST: usize = 60;
        let text = self.scalar()?;
        let mut shown: String = text.chars().take(MOST).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Some(format!("{shown:?}"))
    }
}
