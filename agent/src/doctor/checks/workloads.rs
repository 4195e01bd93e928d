//! Who could be evicted: what is bound to cgroups now, manifests, and `DaemonSet` pods without a priority that keeps them.

use brink_core::node::workload::{PreferenceBy, Protection, Workload};

use super::{count, some};
use crate::config::{NodeScope, RunMode};
use crate::doctor::check::{Check, State, Step, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::workloads::{Bound, Daemon, Manifests};

/// Names that are told; the rest is counted.
const MOST: usize = 5;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::from([bound(facts)]);
    checks.extend(annotations(facts));
    match &facts.workloads.manifests {
        Some(Ok(read)) => checks.push(manifests(read)),
        Some(Err(why)) => checks.push(
            MANIFESTS
                .failed(why.clone())
                .follows("no pod of it is known")
                .next(
                    "name a folder that is there and may be read: workloads: {manifests: FOLDER}",
                ),
        ),
        None => {}
    }
    let daemons = facts.workloads.daemons.as_deref().map(daemons);
    checks.extend(daemons);
    checks
}

const MANIFESTS: Subject = Subject("workloads.manifests", "manifests");

fn bound(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("workloads.bound", "workloads watched over now");
    let all = match &facts.workloads.bound {
        Ok(all) => all,
        Err(why) => return SUBJECT.unknown(why.clone()),
    };
    let crowd = Crowd::of(all);
    let troubles = &facts.workloads.troubles;
    let found = if troubles.is_empty() {
        crowd.in_words()
    } else {
        format!("{}; {}", crowd.in_words(), some(troubles, MOST))
    };
    if crowd.open > 0 {
        return if troubles.is_empty() {
            SUBJECT.ok(found)
        } else {
            SUBJECT
                .warning(found)
                .follows("what cannot be opened is not watched over")
                .next("where it is the memory controller that a group lacks, hand it on: see cgroups.memory")
                .next("where files run out, see scheduling.open-files")
                .run("see what runs in the others", "systemd-cgls")
        };
    }
    let missed = missed(facts).filter(|_| all.is_empty());
    let found = match &missed {
        Some(missed) => format!("{found}: {missed}"),
        None => found,
    };
    let state = match facts.config.mode {
        RunMode::Enforce => State::Warning,
        RunMode::Observe => State::Note,
    };
    let nobody = SUBJECT.trouble(state, found).follows(
        "when a threshold is met there is nobody to evict, and the kernel's OOM killer is left",
    );
    let has_folder = facts.config.workloads.manifests.is_some();
    let folder = (!has_folder).then(|| {
        Step::words("name a folder of pod manifests: workloads: {manifests: /etc/brink/manifests}")
    });
    if missed.is_some() {
        nobody
            .next("correct the globs, or start what they name")
            .run("see which groups there are", "systemd-cgls")
            .steps(folder)
    } else {
        let groups = "name control groups: workloads: {cgroups: [{glob: /system.slice/*.service}]}";
        nobody.steps(folder, Step::words(groups))
    }
}

/// What is said of control groups that are named where none of them is there; nothing where none is named.
fn missed(facts: &Facts) -> Option<String> {
    let rules = facts.config.workloads.cgroups.iter();
    let globs: Vec<String> = rules.map(|rule| rule.glob.as_str().to_owned()).collect();
    let entries = match globs.len() {
        0 => return None,
        1 => "1 entry".to_owned(),
        many => format!("{many} entries"),
    };
    let scope = match &facts.config.node {
        NodeScope::Machine => String::new(),
        NodeScope::Cgroup(group) => format!(" below {group}"),
    };
    let globs = some(&globs, MOST);
    Some(format!(
        "{entries} of workloads.cgroups, and no group{scope} matches {globs}"
    ))
}

/// What pods ask for by annotation; nothing where none asks for anything.
fn annotations(facts: &Facts) -> Option<Check> {
    const SUBJECT: Subject = Subject("workloads.annotations", "what pods ask for by annotation");
    let unheard = &facts.workloads.unheard;
    if !unheard.is_empty() {
        let check = SUBJECT.note(format!("counts for nothing: {}", some(unheard, MOST)));
        let text = "name the namespaces whose pods may ask: annotationNamespaces: [shop]; what they may ask for is first, \
                    last and never";
        return Some(check.next(text));
    }
    let all = facts.workloads.bound.as_ref().ok()?.iter();
    let is_heard = |workload: &Workload| {
        workload.protection == Some(Protection::Annotated)
            || workload.preference_by == PreferenceBy::Annotation
    };
    let heard = all.filter(|one| is_heard(&one.workload)).count();
    (heard > 0).then(|| SUBJECT.ok(format!("{} heard", count(heard, "workload"))))
}

/// Workloads by what may become of them.
#[derive(Clone, Copy, Debug, Default)]
struct Crowd {
    /// May be evicted.
    open: usize,
    /// Critical or protected.
    kept: usize,
    /// Nothing runs in them.
    idle: usize,
}

impl Crowd {
    fn of(all: &[Bound]) -> Self {
        let mut crowd = Self::default();
        for Bound { workload, runs, .. } in all {
            if !runs {
                crowd.idle += 1;
            } else if workload.spared().is_some() {
                crowd.kept += 1;
            } else {
                crowd.open += 1;
            }
        }
        crowd
    }

    fn in_words(self) -> String {
        let Self { open, kept, idle } = self;
        let all = open + kept + idle;
        let mut words = match all {
            0 => return "none".to_owned(),
            _ => format!("{}: {open} may be evicted", count(all, "workload")),
        };
        if kept > 0 {
            words = format!("{words}, {kept} never");
        }
        if idle > 0 {
            words = format!("{words}, nothing runs in {idle}");
        }
        words
    }
}

fn manifests(read: &Manifests) -> Check {
    let pods = count(read.pods, "pod");
    if !read.faults.is_empty() {
        return MANIFESTS
            .failed(format!("{pods} read; {}", some(&read.faults, MOST)))
            .follows("the pods of those files are not watched over")
            .next("correct these files, or take them out of the folder");
    }
    if !read.doubts.is_empty() {
        return MANIFESTS.note(format!("{pods} read; {}", some(&read.doubts, MOST)));
    }
    MANIFESTS.ok(format!("{pods} read"))
}

fn daemons(known: &[Daemon]) -> Check {
    const SUBJECT: Subject = Subject("workloads.daemonsets", "pods of DaemonSets");
    let loose: Vec<String> = known
        .iter()
        .filter(|daemon| !daemon.is_kept)
        .map(in_words)
        .collect();
    if loose.is_empty() {
        let all = known.len();
        return SUBJECT.ok(if all == 0 {
            "none among the pods that are known".to_owned()
        } else {
            format!("{all}, all with a priority that keeps them")
        });
    }
    SUBJECT
        .warning(format!("may be evicted: {}", some(&loose, MOST)))
        .follows(
            "an evicted pod of a DaemonSet is made again on the same node at once, so its memory is back before it \
             helped; and the node loses its network or its logs for that time",
        )
        .next("priorityClassName: system-node-critical in the DaemonSet (in namespaces other than kube-system that \
               takes a ResourceQuota for the class)")
        .next("or protect its groups in Brink's configuration: protect, ignore or avoid")
}

fn in_words(daemon: &Daemon) -> String {
    let Daemon {
        pod,
        owner,
        priority,
        ..
    } = daemon;
    match priority {
        Some(priority) => format!("{pod} (of {owner}, priority {priority})"),
        None => format!("{pod} (of {owner}, no priority)"),
    }
}
