//! Layer over layer: how a file, its drop-ins, the environment and flags become one tree.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::access;
use super::document::{Entry, Limits, Node, Origin, Origins, Site, SourceId, Value, parse};
use super::finding::{Finding, Report};

/// The documents of a file; `-` is standard input. What cannot be read is a fault.
pub fn read_documents(
    path: &Path,
    limits: Limits,
    origins: &mut Origins,
    report: &mut Report,
) -> Vec<Node> {
    match read_file(path, limits, origins, report) {
        Some(bytes) => documents(&bytes, limits, origins, report),
        None => Vec::new(),
    }
}

/// What a file says, which is the newest source then; nothing if it cannot be read, which is reported.
fn read_file(
    path: &Path,
    limits: Limits,
    origins: &mut Origins,
    report: &mut Report,
) -> Option<Vec<u8>> {
    origins.add(Origin::File(path.display().to_string()));
    match read_bytes(path, limits.bytes) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            report.fault(access::unread(path, &error));
            None
        }
    }
}

/// The documents of the newest source.
fn documents(bytes: &[u8], limits: Limits, origins: &Origins, report: &mut Report) -> Vec<Node> {
    let source = origins.newest();
    match parse(bytes, source, limits) {
        Ok(documents) => documents,
        Err(error) => {
            let source = origins.get(source).to_string();
            let problem = format!("not YAML or JSON: {}", error.message);
            report.fault(Finding::of_source(source, error.position, problem));
            Vec::new()
        }
    }
}

/// One byte more than allowed is enough to see that it is too much.
pub(super) fn read_bytes(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    if path.as_os_str() == "-" {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        refuse_what_waits(path)?;
        fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Refuses a pipe, a socket and a device: whoever opens or reads one may wait for ever. Those that a shell hands over for
/// `<(COMMAND)` have somebody at their other end, as standard input has, and nobody waits for the null device.
///
/// # Errors
/// With what it is instead, or when nothing is there.
pub(crate) fn refuse_what_waits(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let kind = found.file_type();
    let mut handed = ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter();
    let is_handed = kind.is_fifo() && handed.any(|place| path.starts_with(place));
    let is_null = kind.is_char_device() && found.rdev() == rustix::fs::makedev(1, 3);
    // That a folder is none says whoever reads it.
    if kind.is_file() || kind.is_dir() || is_handed || is_null {
        return Ok(());
    }
    let what = if kind.is_fifo() {
        "a pipe"
    } else {
        "a device or a socket"
    };
    let problem = format!("this is {what}, on which a reader may wait for ever");
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

/// The one document of a file, which must be a map; an empty file is an empty map. Nothing if it cannot
/// be read, which is reported.
pub fn read_one(
    path: &Path,
    limits: Limits,
    origins: &mut Origins,
    report: &mut Report,
) -> Option<Node> {
    let bytes = read_file(path, limits, origins, report)?;
    only_map(&bytes, limits, origins, report)
}

/// The same of what is loaded again and again: standard input, which can be read once, is kept, and says the same every time.
pub(super) fn read_kept(
    path: &Path,
    kept: &OnceLock<Vec<u8>>,
    limits: Limits,
    (origins, report): (&mut Origins, &mut Report),
) -> Option<Node> {
    if path.as_os_str() != "-" {
        return read_one(path, limits, origins, report);
    }
    if let Some(bytes) = kept.get() {
        origins.add(Origin::File(path.display().to_string()));
        return only_map(bytes, limits, origins, report);
    }
    let bytes = read_file(path, limits, origins, report)?;
    only_map(kept.get_or_init(|| bytes), limits, origins, report)
}

/// The one document of the newest source, as [`read_one`] has it.
pub(super) fn only_map(
    bytes: &[u8],
    limits: Limits,
    origins: &Origins,
    report: &mut Report,
) -> Option<Node> {
    let before = report.faults.len() + report.dropped;
    let mut documents = documents(bytes, limits, origins, report);
    if report.faults.len() + report.dropped > before {
        return None;
    }
    if let Some(second) = documents.get(1) {
        let problem = "a second document; only one is expected here";
        report.fault(Finding::at(origins, second.site, String::new(), problem));
    }
    if documents.is_empty() {
        return Some(empty(origins.newest()));
    }
    let document = documents.swap_remove(0);
    if matches!(document.value, Value::Map(_)) {
        return Some(document);
    }
    let problem = format!("the document is {}", document.kind());
    let fault = Finding::at(origins, document.site, String::new(), problem);
    report.fault(fault.accepted("a map of keys"));
    None
}

/// What a folder has with one of the endings, in the order of the names. That something is no file says whoever reads it.
///
/// # Errors
/// When the folder cannot be listed.
pub fn drop_ins(folder: &Path, endings: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if has_ending(&path, endings) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether the name of a file has one of the endings.
pub(super) fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension();
    ending.is_some_and(|ending| endings.iter().any(|known| ending == *known))
}

/// Lays `over` on `base` as a JSON merge patch: maps merge key by key, null takes a key out,
/// everything else replaces.
pub(super) fn merge_patch(base: &mut Node, over: &Node) {
    let Value::Map(changes) = &over.value else {
        *base = over.clone();
        return;
    };
    if !matches!(base.value, Value::Map(_)) {
        *base = Node {
            value: Value::Map(Vec::new()),
            site: over.site,
        };
    }
    let Value::Map(entries) = &mut base.value else {
        return;
    };
    for change in changes {
        let at = entries.iter().rposition(|entry| entry.key == change.key);
        match (at, &change.node.value) {
            (Some(at), Value::Null) => drop(entries.remove(at)),
            (None, Value::Null) => {}
            (Some(at), _) => merge_patch(&mut entries[at].node, &change.node),
            (None, _) => {
                let mut node = Node {
                    value: Value::Null,
                    site: change.node.site,
                };
                merge_patch(&mut node, &change.node);
                entries.push(Entry {
                    node,
                    ..change.clone()
                });
            }
        }
    }
}

/// Puts `node` at the end of a way of keys, in place of what is there.
pub(super) fn put(base: &mut Node, way: &[&str], node: Node) {
    let Some((key, rest)) = way.split_first() else {
        *base = node;
        return;
    };
    if !matches!(base.value, Value::Map(_)) {
        base.value = Value::Map(Vec::new());
    }
    let Value::Map(entries) = &mut base.value else {
        return;
    };
    let at = entries.iter().rposition(|entry| entry.key == *key);
    let at = at.unwrap_or_else(|| {
        entries.push(Entry {
            key: (*key).to_string(),
            site: node.site,
            node: Node {
                value: Value::Null,
                site: node.site,
            },
        });
        entries.len() - 1
    });
    put(&mut entries[at].node, rest, node);
}

/// Fills in what `tree` lacks from `defaults`, deeply. Keys in `whole` are taken as a whole: a map
/// that is there is left as it is.
pub(super) fn fill(tree: &mut Node, defaults: &Node, whole: &[&str]) {
    let Value::Map(entries) = &mut tree.value else {
        return;
    };
    for default in defaults.entries() {
        match entries.iter_mut().rfind(|entry| entry.key == default.key) {
            None => entries.push(default.clone()),
            Some(entry) if entry.node.value == Value::Null => entry.node = default.node.clone(),
            Some(_) if whole.contains(&default.key.as_str()) => {}
            Some(entry) => fill(&mut entry.node, &default.node, &[]),
        }
    }
}

/// The tree with the keys of `order` first, in that order, so that it reads the same whoever wrote it.
#[must_use]
pub(super) fn in_order(mut tree: Node, order: &[&str]) -> Node {
    if let Value::Map(entries) = &mut tree.value {
        entries.sort_by_key(|entry| {
            let place = order.iter().position(|key| *key == entry.key);
            place.unwrap_or(order.len())
        });
    }
    tree
}

/// Says of everything in a tree that it stands at `site`.
pub(super) fn place(node: &mut Node, site: Site) {
    node.site = site;
    match &mut node.value {
        Value::Map(entries) => {
            for entry in entries {
                entry.site = site;
                place(&mut entry.node, site);
            }
        }
        Value::List(items) => items.iter_mut().for_each(|item| place(item, site)),
        _ => {}
    }
}

/// A tree of nothing.
pub(super) const fn empty(source: SourceId) -> Node {
    Node {
        value: Value::Map(Vec::new()),
        site: Site::whole(source),
    }
}
