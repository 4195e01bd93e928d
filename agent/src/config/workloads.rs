//! What is watched over, and who goes sooner, later or never: manifests, groups and patterns.

use std::path::PathBuf;

use brink_core::node::workload::ResourceList;
use brink_host::cgroup::glob::Glob;

use super::document::{Fields, Keys, Node, Reader, Value};
use super::settings::{CgroupRule, OomScores, Pattern, Selection, Workloads};
use super::storage::read_directories;
use crate::dns::is_label;

const GLOB: &str = "a path below the cgroup root such as /system.slice/*.service or \
                    /user.slice/*/session-*.scope";

/// Reads `workloads`.
pub(super) fn read<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Workloads {
    let Some(node) = fields.get("workloads") else {
        return Workloads::default();
    };
    let fields = reader.fields(node, &["manifests", "cgroups", "oomScoreAdj"], Keys::Closed);
    let manifests = fields.get("manifests").and_then(|node| reader.name(node));
    let rules = fields
        .get("cgroups")
        .map_or(&[][..], |node| reader.list(node));
    let words = [
        ("off", OomScores::Off),
        ("audit", OomScores::Audit),
        ("set", OomScores::Set),
    ];
    let oom_scores = fields
        .get("oomScoreAdj")
        .and_then(|node| reader.word(node, &words));
    Workloads {
        manifests: manifests.map(PathBuf::from),
        cgroups: rules
            .iter()
            .filter_map(|node| read_rule(reader, node))
            .collect(),
        oom_scores: oom_scores.unwrap_or_default(),
    }
}

fn read_rule<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Option<CgroupRule> {
    const KEYS: [&str; 7] = [
        "glob",
        "name",
        "namespace",
        "priority",
        "terminationGracePeriodSeconds",
        "requests",
        "directories",
    ];
    let fields = reader.fields(node, &KEYS, Keys::Closed);
    let Some(written) = fields.get("glob") else {
        reader.fault(node, "glob is missing", GLOB);
        return None;
    };
    let glob = read_glob(reader, written);
    if glob
        .as_ref()
        .is_some_and(|glob| !glob.as_str().starts_with('/'))
    {
        reader.fault(written, "it does not begin with a slash", GLOB);
    }
    if let Some(outer) = glob.as_ref().and_then(whole_branch) {
        let problem = format!(
            "the outermost group that matches is the workload: this is {outer} with everything below it, evicted as \
             one; name single groups, such as /system.slice/*.service, or write {outer}"
        );
        reader.warn(written, problem);
    }
    let name = fields.get("name").and_then(|node| reader.name(node));
    if let (Some(glob), Some(name)) = (&glob, fields.get("name"))
        && glob.as_str().contains(['*', '?', '['])
    {
        let problem = "one name for every group that the glob matches";
        reader.fault(name, problem, "no name where the glob has *, ? or []");
    }
    let namespace = fields.get("namespace").and_then(|node| reader.name(node));
    let mut integer = |key, least, most| reader.integer(fields.get(key)?, least, most);
    let priority = integer("priority", i64::from(i32::MIN), i64::from(i32::MAX));
    let grace = integer("terminationGracePeriodSeconds", 0, i64::from(i32::MAX));
    let requests = fields.get("requests");
    let directories = fields.get("directories");
    let directories = directories.map_or_else(Vec::new, |node| read_directories(reader, node));
    if let (Some(glob), Some(node), false) =
        (&glob, fields.get("directories"), directories.is_empty())
        && glob.as_str().contains(['*', '?', '['])
    {
        let problem = "the same folders for every group that the glob matches, and each counts all of their files";
        reader.warn(node, problem);
    }
    Some(CgroupRule {
        glob: glob?,
        name: name.map(str::to_string),
        namespace: namespace.map(str::to_string),
        priority: priority.and_then(|priority| i32::try_from(priority).ok()),
        termination_grace: grace,
        requests: requests.map_or_else(ResourceList::default, |node| read_requests(reader, node)),
        directories,
    })
}

/// The group that a glob means as a whole, because it ends in `**`, which no name at all matches too.
fn whole_branch(glob: &Glob) -> Option<&str> {
    let outer = glob.as_str().trim_end_matches('/').strip_suffix("**")?;
    let outer = outer.trim_end_matches('/');
    Some(if outer.is_empty() { "/" } else { outer })
}

fn read_requests<'a>(reader: &mut Reader<'a>, node: &'a Node) -> ResourceList {
    let fields = reader.fields(node, &["cpu", "memory", "ephemeral-storage"], Keys::Closed);
    let mut quantity = |key| {
        let node = fields.get(key)?;
        let quantity = reader.quantity(node)?;
        if quantity.signum() < 0 {
            reader.fault(node, "negative", "a quantity of 0 or more");
            return None;
        }
        Some(quantity)
    };
    ResourceList {
        cpu: quantity("cpu"),
        memory: quantity("memory"),
        ephemeral_storage: quantity("ephemeral-storage"),
        hugepages: false,
    }
}

/// Reads `prefer`, `avoid`, `ignore`, `protect` and `annotationNamespaces`.
pub(super) fn read_selection<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Selection {
    let mut patterns = |key| match fields.get(key) {
        Some(node) => read_patterns(reader, node),
        None => Vec::new(),
    };
    let (prefer, avoid, ignore) = (patterns("prefer"), patterns("avoid"), patterns("ignore"));
    let protect = fields
        .get("protect")
        .map_or(&[][..], |node| reader.list(node));
    Selection {
        prefer,
        avoid,
        ignore,
        protect: protect
            .iter()
            .filter_map(|node| read_glob(reader, node))
            .collect(),
        annotation_namespaces: match fields.get("annotationNamespaces") {
            Some(node) => read_namespaces(reader, node),
            None => Vec::new(),
        },
    }
}

/// Names, as Kubernetes takes them for namespaces: a pattern, and whatever else none can be called, would silently be nobody's.
fn read_namespaces<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Vec<String> {
    const ALL: &str = "*";
    const ACCEPTED: &str = "the name of a namespace such as shop (at most 63 lower-case letters, digits and -, with a letter or digit at \
                            both ends), or \"*\" for all of them";
    let items = reader.list(node);
    let are_all = items.iter().any(|item| item.scalar() == Some(ALL));
    let mut names = Vec::new();
    for item in items {
        if item.value == Value::Null {
            reader.fault(item, "there is no name", ACCEPTED);
            continue;
        }
        let Some(text) = reader.name(item) else {
            continue;
        };
        if text != ALL && !is_label(text) {
            reader.fault(item, "no name of a namespace", ACCEPTED);
            continue;
        }
        if text != ALL && are_all {
            let problem =
                "a name beside \"*\", which stands for all namespaces: it changes nothing";
            reader.warn(item, problem);
        }
        names.push(text.to_owned());
    }
    names
}

fn read_patterns<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for item in reader.list(node) {
        let Some(text) = reader.name(item) else {
            continue;
        };
        match Pattern::new(text) {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => {
                let accepted = "a regular expression over command names and cgroup paths, such \
                                as ^(java|node)$ or ^/user\\.slice/";
                reader.fault(item, error.to_string(), accepted);
            }
        }
    }
    patterns
}

fn read_glob<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Option<Glob> {
    let text = reader.text(node)?;
    match Glob::new(text) {
        Ok(glob) => Some(glob),
        Err(error) => {
            reader.fault(node, error.to_string(), GLOB);
            None
        }
    }
}

/// The path of one control group below the root of its hierarchy.
pub(super) fn read_group<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Option<String> {
    const ACCEPTED: &str = "a path below the cgroup root such as /kubepods or /user.slice";
    let text = reader.name(node)?;
    let is_under = |part: &str| part != "." && part != "..";
    let is_below = text.starts_with('/') && text.split('/').all(is_under);
    if !is_below || text.starts_with("/sys/fs/cgroup") {
        reader.fault(node, "no path below the cgroup root", ACCEPTED);
        return None;
    }
    Some(format!("/{}", text.trim_matches('/')))
}
