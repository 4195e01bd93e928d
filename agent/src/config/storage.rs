//! `storage`: where the pods of a kubelet keep their files, and how often all folders of workloads are measured.

use std::path::PathBuf;

use brink_core::base::Span;

use super::document::{Fields, Node, Reader};
use super::schema::{absolute, section};

/// Every key of the section; the kubelet's names for the same.
const KEYS: [&str; 3] = ["volumeStatsAggPeriod", "rootDir", "podLogsDir"];
/// What is measured more often costs more than it tells.
const SHORTEST: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_secs(3600);

/// Local storage of workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Folders are measured so often while no threshold or limit is near.
    pub period: Span,
    /// The kubelet's own folder; none to go by the kubelet that runs.
    pub kubelet_root: Option<PathBuf>,
    /// Where the logs of its pods are.
    pub pod_logs: PathBuf,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            period: Span::from_secs(60),
            kubelet_root: None,
            pod_logs: PathBuf::from("/var/log/pods"),
        }
    }
}

/// Reads `storage`.
pub(super) fn read<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Storage {
    let default = Storage::default();
    let fields = section(reader, fields, "storage", &KEYS);
    let period = fields.get("volumeStatsAggPeriod");
    Storage {
        period: period
            .and_then(|node| reader.bounded_span(node, SHORTEST, LONGEST))
            .unwrap_or(default.period),
        kubelet_root: absolute(reader, fields, "rootDir"),
        pod_logs: absolute(reader, fields, "podLogsDir").unwrap_or(default.pod_logs),
    }
}

/// Reads folders of a workload: absolute ones, each once.
pub(super) fn read_directories<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Vec<PathBuf> {
    const ACCEPTED: &str = "an absolute path such as /srv/data, without . and ..";
    let mut found: Vec<PathBuf> = Vec::new();
    for item in reader.list(node) {
        let Some(text) = reader.name(item) else {
            continue;
        };
        match directory(text) {
            Some(path) if !found.contains(&path) => found.push(path),
            Some(_) => reader.warn(item, "it is in the list already"),
            None => reader.fault(item, "no folder that a workload can have", ACCEPTED),
        }
    }
    found
}

/// A folder that can be a workload's own: an absolute path that is not the root and has no `.` or `..` in it.
pub(crate) fn directory(text: &str) -> Option<PathBuf> {
    let is_plain = |part: &str| part != "." && part != "..";
    let trimmed = text.trim_end_matches('/');
    let is_one = trimmed.starts_with('/') && trimmed.split('/').all(is_plain);
    is_one.then(|| PathBuf::from(trimmed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workloads_folder_is_an_absolute_path_that_leads_nowhere_else() {
        for (text, expected) in [
            ("/srv/a", Some("/srv/a")),
            ("/srv/a//", Some("/srv/a")),
            ("srv/a", None),
            ("/", None),
            ("", None),
            ("/srv/../etc", None),
            ("/srv/./a", None),
        ] {
            assert_eq!(directory(text), expected.map(PathBuf::from), "{text}");
        }
    }
}
