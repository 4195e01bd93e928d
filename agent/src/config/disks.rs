//! `filesystems` and `runtime`: what is measured as which filesystem, and what the container runtime may be asked for.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use brink_host::disk::{DiskError, Filesystem};

use super::document::{Fields, Node, Origins, Reader};
use super::finding::Finding;
use super::schema::{absolute, section};
use super::settings::{Filesystems, ReclaimPolicy, RuntimeConfig};
use crate::disks::discover::below;

/// The keys of `filesystems`.
const ROLES: [&str; 3] = ["nodefs", "imagefs", "containerfs"];
/// For an answer of a filesystem; one that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads `filesystems`.
pub(super) fn read_filesystems<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Filesystems {
    let fields = section(reader, fields, "filesystems", &ROLES);
    let mut path = |key| absolute(reader, fields, key);
    Filesystems {
        nodefs: path("nodefs"),
        imagefs: path("imagefs"),
        containerfs: path("containerfs"),
    }
}

/// Reads `runtime`.
pub(super) fn read_runtime<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> RuntimeConfig {
    let fields = section(reader, fields, "runtime", &["endpoint", "reclaim"]);
    let words = ReclaimPolicy::ALL.map(|policy| (policy.word(), policy));
    let reclaim = fields
        .get("reclaim")
        .and_then(|node| reader.word(node, &words));
    RuntimeConfig {
        endpoint: fields
            .get("endpoint")
            .and_then(|node| read_endpoint(reader, node)),
        reclaim: reclaim.unwrap_or_default(),
    }
}

/// `unix:///PATH`, as a kubelet's configuration has it, or `/PATH`.
fn read_endpoint<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Option<PathBuf> {
    let text = reader.name(node)?;
    let path = text.strip_prefix("unix://").unwrap_or(text);
    if path.starts_with('/') && path.len() > 1 {
        return Some(PathBuf::from(path));
    }
    let accepted = "the path of a socket, such as unix:///run/containerd/containerd.sock";
    reader.fault(node, "no socket of this machine", accepted);
    None
}

/// What is said of folders that cannot be measured, and of a runtime's socket that is not there.
pub(super) fn findings(tree: &Node, root: &Path, origins: &Origins) -> Vec<Finding> {
    let mut found = Vec::new();
    let folders = tree.get("filesystems");
    for role in ROLES {
        let Some(node) = folders.and_then(|folders| folders.get(role)) else {
            continue;
        };
        let Some(path) = node.scalar().filter(|path| path.starts_with('/')) else {
            continue;
        };
        if let Some(problem) = measured(below(root, Path::new(path))) {
            let finding = Finding::at(origins, node.site, format!("filesystems.{role}"), problem);
            found.push(finding.written(format!("{path:?}")));
        }
    }
    let runtime = tree.get("runtime");
    let endpoint = runtime.and_then(|runtime| runtime.get("endpoint"));
    found.extend(endpoint.and_then(|node| socket(node, origins)));
    found
}

/// What is said of a socket that is not there.
fn socket(node: &Node, origins: &Origins) -> Option<Finding> {
    let text = node.scalar()?;
    let path = Path::new(text.strip_prefix("unix://").unwrap_or(text));
    let problem = "there is no such socket; without the container runtime nothing is reclaimed before pods go";
    let finding = Finding::at(origins, node.site, "runtime.endpoint".to_owned(), problem);
    let is_missing = path.is_absolute() && !path.exists();
    is_missing.then(|| finding.written(format!("{text:?}")))
}

/// What is wrong with a folder that is to be measured, if anything is.
fn measured(path: PathBuf) -> Option<String> {
    let never = "thresholds on it are never met";
    let seen = asked(move || Filesystem::read(&path).map(|found| (found, path.is_dir())));
    match seen {
        None => Some(format!("its filesystem does not answer within 1 s; until it does, {never}")),
        Some(Ok((found, _))) if found.read_only => Some(format!("its filesystem is read-only: nothing can be freed there, so {never}")),
        Some(Ok((found, _))) if found.kind.is_memory() => Some("its files are in memory: what is freed there is memory, which has thresholds of its own".to_owned()),
        Some(Ok((_, false))) => Some("this is no folder; the filesystem that it lies on is measured".to_owned()),
        Some(Ok((_, true))) => None,
        Some(Err(DiskError::Missing { .. })) => Some(format!("there is no such folder; until it is there, {never}")),
        Some(Err(error)) => Some(format!("it cannot be measured ({error}): {never}")),
    }
}

/// Measures once, and waits for a moment; none without an answer by then.
pub(super) fn look(path: PathBuf) -> Option<Result<Filesystem, DiskError>> {
    asked(move || Filesystem::read(&path))
}

/// Asks a filesystem, and waits for a moment; none without an answer by then. Whoever asked is held by the filesystem for as long as
/// that likes.
pub(super) fn asked<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, answer) = mpsc::channel();
    let asking = std::thread::Builder::new().name("brink-look".to_owned());
    let started = asking.spawn(move || {
        let _nobody_waits = sender.send(ask());
    });
    started.ok()?;
    answer.recv_timeout(PATIENCE).ok()
}
