//! From text to tree: the one place that knows the YAML parser.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::{Entry, Node, Position, Site, SourceId, Value, scalar};

/// How much of a document is read before it counts as an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the text, and of all texts of the tree, those of aliases counted each time.
    pub bytes: usize,
    /// Nodes of the tree, those of aliases counted each time.
    pub nodes: usize,
    /// Levels of nesting.
    pub depth: usize,
    /// Keys of one map: layers are laid over each other key by key, which takes the square of their number.
    pub keys: usize,
}

impl Limits {
    /// For files that somebody wrote.
    pub const WRITTEN: Self = Self {
        bytes: 4 << 20,
        nodes: 200_000,
        depth: 64,
        keys: 10_000,
    };

    /// For files that a program may have written.
    pub const GENERATED: Self = Self {
        bytes: 256 << 20,
        nodes: 8_000_000,
        depth: 64,
        keys: 1_000_000,
    };
}

/// Why a text is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where, unless it is the whole of it.
    pub position: Option<Position>,
    /// What is wrong.
    pub message: String,
}

/// The documents of a text, empty ones left out.
///
/// # Errors
/// The first thing that is no YAML, or a limit that is passed.
pub fn parse(bytes: &[u8], source: SourceId, limits: Limits) -> Result<Vec<Node>, SyntaxError> {
    if bytes.len() > limits.bytes {
        let message = format!("larger than {} bytes", limits.bytes);
        return Err(SyntaxError {
            position: None,
            message,
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| not_utf8(bytes, error.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder {
        source,
        limits,
        json: text.trim_start().starts_with(['{', '[']),
        documents: Vec::new(),
        open: Vec::new(),
        anchors: HashMap::new(),
        kept: Kept::default(),
    };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| SyntaxError {
            position: Some(position(error.marker())),
            message: error.info(),
        })?;
        builder.take(event, span.start)?;
    }
    Ok(builder.documents)
}

fn not_utf8(bytes: &[u8], valid: usize) -> SyntaxError {
    let before = &bytes[..valid];
    let line = before.split(|&byte| byte == b'\n').count();
    let start = before
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    SyntaxError {
        position: Some(Position {
            line: saturated(line),
            column: saturated(column),
        }),
        message: "not UTF-8".to_string(),
    }
}

fn position(marker: &Marker) -> Position {
    Position {
        line: saturated(marker.line()),
        column: saturated(marker.col() + 1),
    }
}

fn saturated(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A collection whose end has not come yet.
struct Open {
    anchor: usize,
    site: Site,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        /// A key that waits for its value.
        key: Option<Key>,
        /// What `<<` brings in.
        merged: Vec<Node>,
    },
}

impl Content {
    /// Adds a node: an item, a key, or the value of the key before it.
    fn push(
        &mut self,
        node: Node,
        text: Option<Cow<'_, str>>,
        merge: bool,
    ) -> Result<(), SyntaxError> {
        let site = node.site;
        match self {
            Self::List(items) => items.push(node),
            Self::Map {
                entries,
                key,
                merged,
            } => match (key.take(), text) {
                (Some(Key::Merge), _) => merged.push(node),
                (Some(Key::Named(key, site)), _) => entries.push(Entry { key, site, node }),
                (None, Some(_)) if merge => *key = Some(Key::Merge),
                (None, Some(text)) => *key = Some(Key::Named(text.into_owned(), site)),
                (None, None) => {
                    return Err(error_at(site, "a key must be a text, not a collection"));
                }
            },
        }
        Ok(())
    }
}

enum Key {
    /// `<<`: the value is merged in.
    Merge,
    Named(String, Site),
}

struct Builder {
    source: SourceId,
    limits: Limits,
    json: bool,
    documents: Vec<Node>,
    open: Vec<Open>,
    /// Anchored nodes, with what they hold.
    anchors: HashMap<usize, (Node, Extent)>,
    kept: Kept,
}

/// How much is kept so far, copies included.
#[derive(Default)]
struct Kept {
    nodes: usize,
    bytes: usize,
}

impl Kept {
    /// Counts what is about to be kept, before it is.
    fn count(&mut self, more: Extent, limits: Limits, site: Site) -> Result<(), SyntaxError> {
        let Limits { nodes, bytes, .. } = limits;
        self.nodes = self.nodes.saturating_add(more.nodes);
        self.bytes = self.bytes.saturating_add(more.bytes);
        if self.nodes > nodes {
            return Err(error_at(site, &format!("more than {nodes} values")));
        }
        if self.bytes > bytes {
            let message =
                format!("more than {bytes} bytes of text, those of aliases counted each time");
            return Err(error_at(site, &message));
        }
        Ok(())
    }
}

/// What a node holds, itself included.
#[derive(Clone, Copy)]
struct Extent {
    nodes: usize,
    /// Of keys and scalars.
    bytes: usize,
    depth: usize,
}

impl Extent {
    /// A node without what is in it.
    fn of_one(node: &Node) -> Self {
        Self {
            nodes: 1,
            bytes: node.scalar().map_or(0, str::len),
            depth: 0,
        }
    }
}

impl Builder {
    fn take(&mut self, event: Event<'_>, start: Marker) -> Result<(), SyntaxError> {
        let site = Site {
            source: self.source,
            position: Some(position(&start)),
        };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let value = self.scalar(&text, plain, tag.as_deref());
                let merge = plain && tag.is_none() && text == "<<";
                self.complete(Node { value, site }, Some(text), anchor, merge)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.begin(anchor, site, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, _) => {
                let content = Content::Map {
                    entries: Vec::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.begin(anchor, site, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, site),
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn scalar(&self, text: &str, plain: bool, tag: Option<&Tag>) -> Value {
        match tag.map(Tag::core_suffix) {
            None if plain => scalar::resolve(text, self.json),
            // A tag of the core schema asks for a meaning; `!!str`, and every other tag, for text.
            Some(Some("int" | "float" | "bool" | "null")) => scalar::resolve(text, self.json),
            _ => Value::Text(text.to_string()),
        }
    }

    fn begin(&mut self, anchor: usize, site: Site, content: Content) -> Result<(), SyntaxError> {
        self.open.push(Open {
            anchor,
            site,
            content,
        });
        self.check_depth(0, site)
    }

    fn end(&mut self) -> Result<(), SyntaxError> {
        let Some(Open {
            anchor,
            site,
            content,
        }) = self.open.pop()
        else {
            return Ok(());
        };
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Map {
                entries, merged, ..
            } => Value::Map(with_merged(entries, merged)),
        };
        if matches!(&value, Value::Map(entries) if entries.len() > self.limits.keys) {
            let message = format!("a map of more than {} keys", self.limits.keys);
            return Err(error_at(site, &message));
        }
        self.complete(Node { value, site }, None, anchor, false)
    }

    fn alias(&mut self, anchor: usize, site: Site) -> Result<(), SyntaxError> {
        let Some((node, extent)) = self.anchors.get(&anchor) else {
            return Err(error_at(site, "an alias to a value that is not complete"));
        };
        self.check_depth(extent.depth, site)?;
        self.kept.count(*extent, self.limits, site)?;
        let node = node.clone();
        let text = node.scalar().map(|text| Cow::Owned(text.to_string()));
        // The value stands where it was anchored; that is where it has to be mended.
        self.complete(node, text, 0, false)
    }

    /// Puts a complete node into the collection that is open, or ends the document.
    fn complete(
        &mut self,
        node: Node,
        text: Option<Cow<'_, str>>,
        anchor: usize,
        merge: bool,
    ) -> Result<(), SyntaxError> {
        let site = node.site;
        let extent = if anchor == 0 {
            Extent::of_one(&node)
        } else {
            extent_of(&node)
        };
        self.kept.count(extent, self.limits, site)?;
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), extent));
        }
        let Some(open) = self.open.last_mut() else {
            if node.value != Value::Null {
                self.documents.push(node);
            }
            return Ok(());
        };
        open.content.push(node, text, merge)
    }

    fn check_depth(&self, more: usize, site: Site) -> Result<(), SyntaxError> {
        if self.open.len() + more > self.limits.depth {
            let message = format!("nested deeper than {} levels", self.limits.depth);
            return Err(error_at(site, &message));
        }
        Ok(())
    }
}

/// What `<<` names is put in unless the map has the key itself; the first that has it wins.
fn with_merged(mut entries: Vec<Entry>, merged: Vec<Node>) -> Vec<Entry> {
    if merged.is_empty() {
        return entries;
    }
    let mut taken: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    let maps = merged.into_iter().flat_map(|node| match node.value {
        Value::List(items) => items,
        _ => Vec::from([node]),
    });
    for node in maps {
        let Value::Map(more) = node.value else {
            continue;
        };
        for entry in more {
            if taken.insert(entry.key.clone()) {
                entries.push(entry);
            }
        }
    }
    entries
}

fn extent_of(node: &Node) -> Extent {
    let mut extent = Extent::of_one(node);
    let mut add = |key: &str, child: &Node| {
        let of_child = extent_of(child);
        extent.nodes = extent.nodes.saturating_add(of_child.nodes);
        extent.bytes = extent.bytes.saturating_add(of_child.bytes + key.len());
        extent.depth = extent.depth.max(of_child.depth + 1);
    };
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| add("", item)),
        Value::Map(entries) => entries
            .iter()
            .for_each(|entry| add(&entry.key, &entry.node)),
        _ => {}
    }
    extent
}

fn error_at(site: Site, message: &str) -> SyntaxError {
    SyntaxError {
        position: site.position,
        message: message.to_string(),
    }
}
