//! Manifest files: single pods, lists, several documents, and whole folders of them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Manifest, Reading, read_pod};
use crate::config::document::{Keys, Limits, Node, Origins, Reader};
use crate::config::finding::{Faults, Finding, Report};
use crate::config::{drop_ins, read_documents};

/// What a file describes.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Its pods, in the order of the file.
    pub pods: Vec<Manifest>,
    /// What is doubtful about it.
    pub warnings: Vec<Finding>,
}

/// What a folder describes.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    /// The pods of all files that are in order, file by file.
    pub pods: Vec<Manifest>,
    /// What is doubtful about them.
    pub warnings: Vec<Finding>,
    /// What is wrong with the other files, one by one. None of their pods is known.
    pub faults: Vec<Faults>,
}

/// Reads a file of pods, lists of pods, and other objects, which are left alone.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read_file(path: &Path) -> Result<Manifests, Faults> {
    let (mut origins, mut report) = (Origins::default(), Report::default());
    let documents = read_documents(path, Limits::WRITTEN, &mut origins, &mut report);
    let mut pods = Vec::new();
    for document in &documents {
        let mut reader = Reader::new(document, &origins, &mut report);
        read_object(&mut reader, document, &mut pods);
    }
    report
        .into_result()
        .map(|warnings| Manifests { pods, warnings })
}

fn read_object<'a>(reader: &mut Reader<'a>, node: &'a Node, pods: &mut Vec<Manifest>) {
    let fields = reader.fields(node, &[], Keys::Open);
    if fields.node().is_none() {
        return;
    }
    match fields.get("kind").and_then(Node::scalar) {
        Some("List" | "PodList") => {
            for item in fields
                .get("items")
                .map_or(&[][..], |node| reader.list(node))
            {
                read_object(reader, item, pods);
            }
        }
        Some("Pod") | None => pods.extend(read_pod(reader, node, Reading::AsAdmitted)),
        Some(kind) => reader.warn(node, format!("{kind} is no pod; left alone")),
    }
}

/// Reads every `*.yaml`, `*.yml` and `*.json` of a folder. Of two pods with the same namespace and name
/// the first counts, and so it is with the same uid.
///
/// # Errors
/// When the folder cannot be listed.
pub fn read_folder(path: &Path) -> io::Result<Folder> {
    let mut folder = Folder::default();
    let mut names: HashMap<String, String> = HashMap::new();
    for path in drop_ins(path, &["yaml", "yml", "json"])? {
        let file = path.display().to_string();
        match read_file(&path) {
            Ok(Manifests { pods, warnings }) => {
                folder.warnings.extend(warnings);
                for pod in pods {
                    folder.add(pod, &file, &mut names);
                }
            }
            Err(faults) => folder.faults.push(faults),
        }
    }
    Ok(folder)
}

/// Files of a folder that are not in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Broken {
    /// The first of them, [`MOST_BROKEN`] at most.
    pub files: Vec<BrokenFile>,
    /// How many more there are.
    pub more: u32,
}

/// One that is not in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenFile {
    /// The file, or the folder where that cannot be listed.
    pub path: PathBuf,
    /// What is wrong with it, one finding a line; only the first of them.
    pub why: String,
    /// Whether the pods that it had stand.
    pub is_remembered: bool,
}

/// Files that are told of as not in order.
pub const MOST_BROKEN: usize = 16;
/// Findings that are told of each.
const MOST_FINDINGS: usize = 4;
/// Characters of each of these.
const LONGEST_FINDING: usize = 400;

impl Broken {
    fn add(&mut self, path: &Path, why: &str, is_remembered: bool) {
        if self.files.len() == MOST_BROKEN {
            self.more = self.more.saturating_add(1);
            return;
        }
        self.files.push(BrokenFile {
            path: path.to_path_buf(),
            why: shortened(why),
            is_remembered,
        });
    }
}

/// The first findings, each cut to what a page has room for.
fn shortened(why: &str) -> String {
    let cut = |line: &str| match line.char_indices().nth(LONGEST_FINDING) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    };
    let mut lines: Vec<String> = why.lines().take(MOST_FINDINGS).map(cut).collect();
    let more = why.lines().count().saturating_sub(MOST_FINDINGS);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

/// A folder that is read again and again. What a file said when it was last in order stands until it is in order again
/// or gone: a file that is just being written must not make its pods unknown.
#[derive(Debug, Default)]
pub struct LastGood {
    folder: Option<PathBuf>,
    files: BTreeMap<PathBuf, Vec<Manifest>>,
    broken: Broken,
}

impl LastGood {
    /// Reads the folder, and tells the pods and what is wrong, one sentence each. Pods of files that are in order come
    /// before those that are only remembered.
    pub fn read(&mut self, folder: Option<&Path>) -> (Vec<Manifest>, Vec<String>) {
        if self.folder.as_deref() != folder {
            self.folder = folder.map(Path::to_path_buf);
            self.files.clear();
        }
        self.broken = Broken::default();
        let Some(folder) = folder else {
            return (Vec::new(), Vec::new());
        };
        let mut troubles = Vec::new();
        let mut now = BTreeMap::new();
        let mut stale = Vec::new();
        match drop_ins(folder, &["yaml", "yml", "json"]) {
            Ok(paths) => {
                for path in paths {
                    let before = self.files.remove(&path);
                    match read_whole(&path, before.as_ref()) {
                        Ok(pods) => drop(now.insert(path, pods)),
                        Err(why) => {
                            self.broken.add(&path, &why, before.is_some());
                            troubles.push(told(&why, before.is_some()));
                            stale.extend(before.map(|pods| (path, pods)));
                        }
                    }
                }
            }
            Err(error) => {
                let why = format!("{}: {error}", folder.display());
                self.broken.add(folder, &why, !self.files.is_empty());
                troubles.push(told(&why, !self.files.is_empty()));
                stale.extend(std::mem::take(&mut self.files));
            }
        }
        let mut all = Folder::default();
        let mut names = HashMap::new();
        let mut add = |all: &mut Folder, path: &Path, pods: &[Manifest]| {
            let file = path.display().to_string();
            for pod in pods {
                all.add(pod.clone(), &file, &mut names);
            }
        };
        for (path, pods) in &now {
            add(&mut all, path, pods);
        }
        // One that is in two files is known by the first alone. That it has come from one that is remembered is no trouble.
        troubles.extend(all.warnings.iter().map(ToString::to_string));
        for (path, pods) in &stale {
            add(&mut all, path, pods);
        }
        now.extend(stale);
        self.files = now;
        (all.pods, troubles)
    }

    /// The files that were not in order when they were read last.
    pub const fn broken(&self) -> &Broken {
        &self.broken
    }
}

/// The pods of a file, unless it is not in order; nor is it when it had pods and there is nothing in it now.
fn read_whole(path: &Path, before: Option<&Vec<Manifest>>) -> Result<Vec<Manifest>, String> {
    let Manifests { pods, .. } = read_file(path).map_err(|faults| faults.to_string())?;
    let had_pods = before.is_some_and(|pods| !pods.is_empty());
    let is_blank = || fs::read(path).is_ok_and(|text| text.trim_ascii().is_empty());
    if pods.is_empty() && had_pods && is_blank() {
        return Err(format!("{}: there is nothing in it", path.display()));
    }
    Ok(pods)
}

fn told(why: &str, is_remembered: bool) -> String {
    if is_remembered {
        format!("{why}; the pods it had stand until it is in order again or gone")
    } else {
        format!("{why}; its pods are unknown")
    }
}

impl Folder {
    fn add(&mut self, pod: Manifest, file: &str, names: &mut HashMap<String, String>) {
        let workload = &pod.workload;
        let name = format!("{}/{}", workload.namespace, workload.name);
        for key in [format!("uid {}", workload.uid), name.clone()] {
            if let Some(first) = names.get(&key) {
                let problem = format!("{key} is in {first} already; this one is left alone");
                let finding = Finding::of_source(file.to_string(), pod.site.position, problem);
                self.warnings.push(finding);
                return;
            }
        }
        names.insert(format!("uid {}", workload.uid), file.to_string());
        names.insert(name, file.to_string());
        self.pods.push(pod);
    }
}
