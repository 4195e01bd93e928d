//! The kubelet's own configuration files, read and merged as the kubelet does it.
//!
//! Defaults are filled in when the base file is loaded; drop-ins are laid over it afterwards as JSON
//! merge patches, so that one which sets a single hard threshold leaves the default ones standing. On
//! the way through JSON empty maps and lists are lost. (`cmd/kubelet/app/server.go`.)

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use brink_core::base::Span;
use brink_core::node::policy::{
    DEFAULT_ENFORCEMENT, DEFAULT_PRESSURE_TRANSITION, Draft, Policy, default_hard,
};

use super::access;
use super::document::{Fields, Limits, Node, Origin, Origins, Reader, Site, Value};
use super::eviction::{self, Dialect, KUBELET_KEYS};
use super::finding::Report;
use super::layers::{empty, fill, merge_patch, only_map, put, read_bytes, read_one};
use super::settings::KubeletFiles;

/// `apiVersion` of the kubelet's configuration.
pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";

/// Its `kind`.
pub const KIND: &str = "KubeletConfiguration";

/// What the kubelet says of itself, as a source of values.
const CONFIGZ: &str = "the kubelet's /configz";

/// The eviction keys in force by what the kubelet says of itself. Defaults, drop-ins and flags are in it, and what is empty is left
/// out.
pub fn of_configz(text: &str, origins: &mut Origins, report: &mut Report) -> Node {
    let source = origins.add(Origin::File(CONFIGZ.to_owned()));
    let mut tree = empty(source);
    if let Some(document) = only_map(text.as_bytes(), Limits::WRITTEN, origins, report) {
        merge_patch(&mut tree, &document);
        tree.site = document.site;
    }
    if let Value::Map(entries) = &mut tree.value {
        entries.retain(|entry| entry.key != "mergeDefaultEvictionSettings");
    }
    for (key, value) in [
        ("evictionHard", Value::Map(Vec::new())),
        ("enforceNodeAllocatable", Value::List(Vec::new())),
    ] {
        if tree.get(key).is_none() {
            let site = Site::whole(source);
            put(&mut tree, &[key], Node { value, site });
        }
    }
    read_keys(&mut Reader::new(&tree, origins, report));
    tree
}

/// The eviction keys in force after the base file and all drop-ins, each with its place.
pub fn load(
    file: Option<&Path>,
    folder: Option<&Path>,
    origins: &mut Origins,
    report: &mut Report,
) -> Node {
    let document = file.and_then(|file| read_one(file, Limits::WRITTEN, origins, report));
    merge(document.as_ref(), folder, origins, report)
}

/// The same of the files that a configuration names: what keeps one from being read is told at the key that names it.
pub(super) fn load_named(
    files: &KubeletFiles,
    config: &Node,
    origins: &mut Origins,
    report: &mut Report,
) -> Node {
    let mut document = None;
    if let Some(file) = &files.file {
        match read_bytes(file, Limits::WRITTEN.bytes) {
            Ok(bytes) => {
                origins.add(Origin::File(file.display().to_string()));
                document = only_map(&bytes, Limits::WRITTEN, origins, report);
            }
            Err(error) => {
                let fault = access::unread(file, &error);
                report.fault(access::named(fault, (config, "kubeletConfig"), origins));
            }
        }
    }
    let mut folder = files.folder.as_deref();
    if let Some((named, Err(error))) = folder.map(|named| (named, fs::read_dir(named))) {
        let fault = access::unlisted(named, &error);
        report.fault(access::named(fault, (config, "kubeletConfigDir"), origins));
        folder = None;
    }
    merge(document.as_ref(), folder, origins, report)
}

/// The same with a base file that has been read.
pub fn merge(
    document: Option<&Node>,
    folder: Option<&Path>,
    origins: &mut Origins,
    report: &mut Report,
) -> Node {
    let mut tree = with_defaults(&empty(Origins::DEFAULT));
    if let Some(document) = document {
        check_document(document, false, origins, report);
        eviction::refuse_nulls(&mut Reader::new(document, origins, report));
        tree = with_defaults(document);
    }
    match folder {
        Some(folder) => with_drop_ins(tree, folder, origins, report),
        None => tree,
    }
}

/// A base file with the kubelet's defaults.
pub fn with_defaults(document: &Node) -> Node {
    // Onto nothing: repeated keys are reduced to the last one, and nulls are gone.
    let mut tree = empty(document.site.source);
    merge_patch(&mut tree, document);
    tree.site = document.site;
    let default = Node::texts(default_hard(), Site::DEFAULT);
    let merge = matches!(
        tree.get("mergeDefaultEvictionSettings"),
        Some(node) if matches!(node.value, Value::Bool(true, _))
    );
    match tree.get("evictionHard").cloned() {
        None => put(&mut tree, &["evictionHard"], default),
        Some(mut hard) if merge => {
            fill(&mut hard, &default, &[]);
            put(&mut tree, &["evictionHard"], hard);
        }
        Some(_) => {}
    }
    with_versioned_defaults(tree)
}

/// The defaults that belong to the version of the file and are filled in again after drop-ins.
fn with_versioned_defaults(mut tree: Node) -> Node {
    let period = "evictionPressureTransitionPeriod";
    let is_zero = tree
        .get(period)
        .and_then(Node::scalar)
        .is_none_or(|text| text.parse().is_ok_and(Span::is_zero));
    if is_zero {
        let node = Node::text(DEFAULT_PRESSURE_TRANSITION, Site::DEFAULT);
        put(&mut tree, &[period], node);
    }
    if tree.get("enforceNodeAllocatable").is_none() {
        let pods = Node::text(DEFAULT_ENFORCEMENT, Site::DEFAULT);
        let node = Node {
            value: Value::List(Vec::from([pods])),
            site: Site::DEFAULT,
        };
        put(&mut tree, &["enforceNodeAllocatable"], node);
    }
    tree
}

fn with_drop_ins(
    mut tree: Node,
    folder: &Path,
    origins: &mut Origins,
    report: &mut Report,
) -> Node {
    let mut paths = Vec::new();
    if let Err(error) = walk(folder, &mut paths) {
        report.fault(access::unlisted(folder, &error));
    }
    // Marshalled and read again, what is empty has never been there.
    if let Value::Map(entries) = &mut tree.value {
        entries.retain(|entry| !is_empty(&entry.node));
    }
    for path in paths {
        if let Some(document) = read_one(&path, Limits::WRITTEN, origins, report) {
            check_document(&document, true, origins, report);
            merge_patch(&mut tree, &document);
        }
    }
    with_versioned_defaults(tree)
}

fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Map(entries) => entries.is_empty(),
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}

/// Every `*.conf` below a folder in lexical order, a subfolder in the place of its name.
fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            walk(&path, paths)?;
        } else if path.extension().is_some_and(|ending| ending == "conf") {
            paths.push(path);
        }
    }
    Ok(())
}

/// Reports what is wrong with one file on its own. The kubelet requires the version in drop-ins.
fn check_document(document: &Node, drop_in: bool, origins: &Origins, report: &mut Report) {
    let mut reader = Reader::new(document, origins, report);
    for (key, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match document.get(key) {
            None if drop_in => reader.fault(document, format!("{key} is missing"), wanted),
            None => reader.warn(
                document,
                format!("{key} is missing; the kubelet needs {wanted}"),
            ),
            Some(node) if node.scalar() == Some(wanted) => {}
            Some(node) => reader.fault(node, format!("unknown {key}"), wanted),
        }
    }
    read_keys(&mut reader);
}

/// The policy that follows from keys in force, which have been reported on; none if the kubelet would not take them.
pub(super) fn policy(tree: &Node, origins: &Origins) -> Option<Policy> {
    let mut reported = Report::default();
    let draft = read_keys(&mut Reader::new(tree, origins, &mut reported));
    draft.check().ok()
}

/// For how long an image stays at least; none where that is not written. Zero stands for the default, and what is no duration is the
/// kubelet's business.
pub(super) fn image_min_age(tree: &Node) -> Option<Span> {
    let written = tree.get("imageMinimumGCAge").and_then(Node::scalar)?;
    let age: Span = written.parse().ok()?;
    (!age.is_zero()).then_some(age)
}

/// The eviction keys as written. Other keys are the kubelet's business, unless they look like a
/// misspelled one.
pub fn read_keys(reader: &mut Reader<'_>) -> Draft {
    let root = reader.root();
    reader.entries(root, Dialect::Kubelet.keys());
    eviction::warn_of_near_misses(reader, root, &KUBELET_KEYS);
    let fields: Fields<'_> = reader.fields(root, &[], super::document::Keys::Open);
    eviction::read_kubelet_keys(reader, fields, Dialect::Kubelet)
}
