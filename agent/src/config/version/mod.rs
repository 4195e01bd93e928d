//! Versions of `AgentConfiguration`: which there are, and how a document of an older one becomes one of the newest.
//!
//! What a version says is never changed. A newer one may call a key by another name, and that name never belongs to
//! another key: so a document that leaves its version out, as a drop-in may, can be read too, whichever it was written for.

mod migrate;

use super::document::{Node, Origin, Origins, Reader, Site, Value};
use super::finding::{Finding, Report, Severity};
use super::kubelet;

pub use migrate::{Migrated, migrate, migrate_text};

/// Every `apiVersion` that is read, oldest first.
pub const VERSIONS: [&str; 2] = ["brink.dev/v1alpha1", "brink.dev/v1alpha2"];

/// The newest, which is the one that is written.
pub const API_VERSION: &str = VERSIONS[VERSIONS.len() - 1];

/// `kind` of the agent's configuration.
pub const KIND: &str = "AgentConfiguration";

/// A key that got another name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rename {
    /// The first version that has the new name, by its place in [`VERSIONS`].
    pub(super) since: usize,
    /// The section that it is a key of.
    pub(super) section: &'static str,
    /// What it was called before.
    pub(super) old: &'static str,
    /// What it is called.
    pub(super) new: &'static str,
}

/// Every key that got another name, the oldest first.
pub(super) const RENAMES: [Rename; 3] = [
    // An interval, like the one of housekeeping.
    renamed_in_v1alpha2("limits", "refill", "refillInterval"),
    // What is not to be exceeded is called max everywhere else, with what it counts.
    renamed_in_v1alpha2("limits", "most", "maxKills"),
    // `events.journal` is another journal.
    renamed_in_v1alpha2("paths", "journal", "decisionJournal"),
];

const fn renamed_in_v1alpha2(
    section: &'static str,
    old: &'static str,
    new: &'static str,
) -> Rename {
    Rename {
        since: 1,
        section,
        old,
        new,
    }
}

/// A word of a document that is another one in the newest version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Where it stands.
    pub(super) site: Site,
    /// The word.
    pub(super) old: &'static str,
    /// What it is now.
    pub(super) new: &'static str,
}

/// Takes a document into the newest version, and tells what was another one before. None if it is no configuration of the
/// agent's, or of a version that nobody here knows: then nothing can be said of its keys.
pub(super) fn take(
    tree: &mut Node,
    drop_in: bool,
    origins: &Origins,
    report: &mut Report,
) -> Option<Vec<Change>> {
    let said = check_version(tree, drop_in, origins, report);
    let is_ours = check_kind(tree, drop_in, origins, report);
    let said = said.filter(|_| is_ours)?;
    let mut changes = Vec::new();
    if let Said::Version(version) = said
        && version + 1 < VERSIONS.len()
    {
        let old = VERSIONS[version];
        changes.extend(take_version(tree, old, origins, report));
    }
    let mut taker = Taker {
        prefix: "",
        said,
        origins,
        report,
        changes,
    };
    taker.take(tree);
    Some(taker.changes)
}

/// Takes keys that another kind of document has under `prefix`, a way with a dot at its end, into the newest version. Such a
/// document has a version of its own, so both names count.
pub(crate) fn take_keys(tree: &mut Node, prefix: &str, origins: &Origins, report: &mut Report) {
    let said = Said::Nothing;
    let mut taker = Taker {
        prefix,
        said,
        origins,
        report,
        changes: Vec::new(),
    };
    taker.take(tree);
}

/// What a document says of its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    /// One that is known, by its place in [`VERSIONS`].
    Version(usize),
}

/// A file says what it is; a drop-in may leave that out.
fn check_kind(tree: &Node, drop_in: bool, origins: &Origins, report: &mut Report) -> bool {
    let mut reader = Reader::new(tree, origins, report);
    match tree.get("kind") {
        None if drop_in => true,
        None => {
            reader.warn(tree, format!("kind is missing; taken for {KIND}"));
            true
        }
        Some(node) if node.scalar() == Some(KIND) => true,
        Some(node) if node.scalar() == Some(kubelet::KIND) => {
            let problem = "this is the kubelet's file; inherit it by kubeletConfig";
            reader.fault(node, problem, KIND);
            false
        }
        Some(node) => {
            reader.fault(node, "unknown kind", KIND);
            false
        }
    }
}

fn check_version(
    tree: &Node,
    drop_in: bool,
    origins: &Origins,
    report: &mut Report,
) -> Option<Said> {
    let mut reader = Reader::new(tree, origins, report);
    let Some(node) = tree.get("apiVersion") else {
        if !drop_in {
            let problem = format!("apiVersion is missing; taken for {API_VERSION}");
            reader.warn(tree, problem);
        }
        return Some(Said::Nothing);
    };
    let known = VERSIONS
        .iter()
        .position(|&known| node.scalar() == Some(known));
    if known.is_none() && reader.report().has_room(Severity::Fault) {
        let is_ours = node
            .scalar()
            .is_some_and(|text| text.starts_with("brink.dev/"));
        let problem = if is_ours {
            "a version that this brink does not know"
        } else {
            "unknown apiVersion"
        };
        let fault = reader.finding(node, problem);
        let fault = fault.accepted(format!("one of {}", VERSIONS.join(", ")));
        reader.report().fault(Finding {
            hint: is_ours.then(|| {
                "nothing else of it was read; if it was written for a newer brink, install that one, or put back the file from before".to_owned()
            }),
            ..fault
        });
    }
    known.map(Said::Version)
}

/// Says the newest version where an older one was said.
fn take_version(
    tree: &mut Node,
    old: &'static str,
    origins: &Origins,
    report: &mut Report,
) -> Option<Change> {
    let mut reader = Reader::new(tree, origins, report);
    let node = tree.get("apiVersion")?;
    let site = node.site;
    if reader.report().has_room(Severity::Warning) {
        let warning = reader.finding(node, "an older version, still read");
        reader.report().warn(Finding {
            hint: Some(command(origins, site)),
            ..warning.accepted(API_VERSION)
        });
    }
    tree.get_mut("apiVersion")?.value = Value::Text(API_VERSION.to_owned());
    let new = API_VERSION;
    Some(Change { site, old, new })
}

/// How the newest version of a file is had.
fn command(origins: &Origins, site: Site) -> String {
    match origins.get(site.source) {
        Origin::File(name) if name != "-" => {
            format!("brink config migrate --write {name} writes it so")
        }
        _ => "brink config migrate FILE prints it so".to_owned(),
    }
}

/// Gives the keys of one document their newest names.
struct Taker<'a> {
    prefix: &'a str,
    said: Said,
    origins: &'a Origins,
    report: &'a mut Report,
    changes: Vec<Change>,
}

impl Taker<'_> {
    fn take(&mut self, tree: &mut Node) {
        let Value::Map(entries) = &mut tree.value else {
            return;
        };
        for rename in &RENAMES {
            // A section that is there twice is a fault, and its keys are told of all the same.
            for entry in entries.iter_mut() {
                if entry.key == rename.section {
                    self.take_in(&mut entry.node, rename);
                }
            }
        }
    }

    fn take_in(&mut self, section: &mut Node, rename: &Rename) {
        let Value::Map(entries) = &mut section.value else {
            return;
        };
        let has_new = entries.iter().any(|entry| entry.key == rename.new);
        if let Some(strange) = self.strange(rename, has_new) {
            for entry in entries.iter().filter(|entry| entry.key == strange.key) {
                self.fault(entry.site, rename, &strange);
            }
            entries.retain(|entry| entry.key != strange.key);
        }
        for entry in entries.iter_mut().filter(|entry| entry.key == rename.old) {
            self.warn(entry.site, rename);
            rename.new.clone_into(&mut entry.key);
            self.changes.push(Change {
                site: entry.site,
                old: rename.old,
                new: rename.new,
            });
        }
    }

    /// Which of the two names has no place in this document, and why.
    fn strange(&self, rename: &Rename, has_new: bool) -> Option<Strange> {
        let Rename { old, new, .. } = *rename;
        let since = VERSIONS[rename.since];
        match self.said {
            Said::Version(version) if version < rename.since => Some(Strange {
                key: new,
                problem: format!("unknown key in {}", VERSIONS[version]),
                accepted: format!("{old}, or apiVersion: {since}"),
            }),
            Said::Version(_) => Some(Strange {
                key: old,
                problem: format!("called {new} since {since}"),
                accepted: new.to_owned(),
            }),
            Said::Nothing if has_new => Some(Strange {
                key: old,
                problem: format!("the older name of {new}, which is there too"),
                accepted: format!("{new} alone"),
            }),
            Said::Nothing => None,
        }
    }

    fn fault(&mut self, site: Site, rename: &Rename, strange: &Strange) {
        if !self.report.has_room(Severity::Fault) {
            return;
        }
        let path = format!("{}{}.{}", self.prefix, rename.section, strange.key);
        let fault = Finding::at(self.origins, site, path, strange.problem.as_str());
        self.report.fault(fault.accepted(strange.accepted.as_str()));
    }

    fn warn(&mut self, site: Site, rename: &Rename) {
        if !self.report.has_room(Severity::Warning) {
            return;
        }
        let path = format!("{}{}.{}", self.prefix, rename.section, rename.old);
        let problem = format!("called {} since {}", rename.new, VERSIONS[rename.since]);
        let warning = Finding::at(self.origins, site, path, problem);
        self.report.warn(warning.accepted(rename.new));
    }
}

/// A name that has no place in a document.
struct Strange {
    key: &'static str,
    problem: String,
    accepted: String,
}
