//! The kubelet: does it run, by which thresholds, and do we act before it? Are its reserves enough?

use std::io;
use std::path::Path;

use brink_core::node::lead::{First, Lead};
use brink_core::node::signal::Signal;

use rustix::io::Errno;

use super::{coverage, some};
use crate::config::RunMode;
use crate::doctor::advice::{Denied, past_denial, quoted};
use crate::doctor::check::{Check, State, Step, Subject, Trouble};
use crate::doctor::facts::Facts;
use crate::doctor::facts::kubelet::{self, Files, FilesOrigin, Settings, Unsettled};
use crate::doctor::rules::reserves::Kept;
use crate::record::text::bytes;
use crate::runtime::cluster::Obstacle;

/// Findings that are told; the rest is counted.
const MOST: usize = 5;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::from([presence(facts)]);
    checks.extend(configz(facts));
    match &facts.kubelet.settings {
        Some(Ok(settings)) => {
            checks.push(configuration(facts, settings));
            checks.push(lead(facts, settings));
            checks.push(reserves(facts, settings));
            checks.push(coverage::check(settings, facts));
            checks.extend(notification(facts, settings));
        }
        Some(Err(Unsettled::Refused(faults))) => {
            let check = CONFIGURATION
                .failed(some(faults, MOST))
                .follows("a kubelet does not start with this, and nothing can be inherited from it")
                .next("put right what is named there, in the kubelet's file or flags");
            checks.push(check);
        }
        Some(Err(Unsettled::Unread(path, errno))) => checks.push(unread(facts, path, *errno)),
        None => {}
    }
    checks
}

/// A file or folder of the kubelet's that we cannot read: it may be closed to us, or be in a file system that is not ours.
fn unread(facts: &Facts, path: &Path, errno: Errno) -> Check {
    let as_root = Step::words("run it as root");
    let process = &facts.process;
    let closed = match errno {
        Errno::ACCESS | Errno::PERM => Some(past_denial(process, Denied::Reading, as_root)),
        // Root finds it by way of the kubelet's process.
        _ => (process.user != 0).then_some(as_root),
    };
    let why = io::Error::from(errno);
    CONFIGURATION
        .unknown(format!("{}: {why}", path.display()))
        .follows(UNKNOWN)
        .steps(closed)
        .next("in a container, mount the file and say where: kubeletConfig: FILE")
}

const UNKNOWN: &str = "its thresholds are not known, so it may act before Brink";

const CONFIGURATION: Subject = Subject("kubelet.configuration", "configuration of the kubelet");

fn presence(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("kubelet.process", "kubelet");
    let running = match &facts.kubelet.process {
        Ok(running) => running,
        Err(why) => return SUBJECT.unknown(why.clone()),
    };
    match (running, &facts.kubelet.files) {
        (None, None) => SUBJECT.ok("none runs here"),
        (None, Some(files)) => SUBJECT.note(format!(
            "none runs here, though {} is there",
            name_of(files)
        )),
        (Some(running), Some(_)) => {
            SUBJECT.ok(format!("runs ({}, pid {})", running.name, running.pid))
        }
        (Some(running), None) => SUBJECT
            .warning(format!(
                "runs ({}, pid {}), and no configuration file of it was found",
                running.name, running.pid
            ))
            .follows(UNKNOWN)
            .next("say where they are: kubeletConfig: FILE"),
    }
}

/// Whether the kubelet said what it goes by, where it is to be asked.
fn configz(facts: &Facts) -> Option<Check> {
    const SUBJECT: Subject = Subject("kubelet.configz", "what the kubelet says of itself");
    let check = match facts.trials.configz.as_ref()? {
        Ok(()) => SUBJECT.ok("asked by way of the API server"),
        Err(unsaid) => SUBJECT
            .warning(unsaid.why.clone())
            .follows(
                "until it is known Brink goes by kubeletConfig, or else by a kubelet's defaults, raised by leadMargin",
            )
            .next(past(unsaid.obstacle))
            .next("or mount its file and say where: kubeletConfig: FILE"),
    };
    Some(check)
}

/// What takes an obstacle out of the way.
const fn past(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::NoWay => {
            "say how the API server is reached and what this node is called: kubernetes: {kubeconfig: FILE, nodeName: NAME}"
        }
        Obstacle::Unusable => {
            "put right what is named there; `brink doctor` says so of the API server itself too (kubernetes.api)"
        }
        Obstacle::Stranger => {
            "give the agent a token or certificate that this API server takes, in the kubeconfig; a service account's token is read \
             again every minute"
        }
        Obstacle::NoRight => {
            "grant get on nodes/proxy, as the component kubelet-configz of deploy/kubernetes does"
        }
        Obstacle::NotServed => {
            "say what this node is called: kubernetes: {nodeName: NAME}; or have its kubelet serve /configz \
             (enableDebuggingHandlers: true)"
        }
        Obstacle::Away => {
            "look whether the API server answers (kubernetes.api), and whether it reaches port 10250 of this node's kubelet"
        }
        Obstacle::Strange => {
            "look at what answers there: kubectl get --raw /api/v1/nodes/NODE/proxy/configz"
        }
        Obstacle::Refused => {
            "put right what it names, in the kubelet's configuration, or in Brink's where the two do not fit together"
        }
    }
}

fn name_of(files: &Files) -> String {
    if files.origin == FilesOrigin::Asked {
        return "/configz".to_owned();
    }
    let path = files.file.as_ref().or(files.folder.as_ref());
    path.map_or_else(String::new, |path| path.display().to_string())
}

fn configuration(facts: &Facts, settings: &Settings) -> Check {
    let Some(files) = &facts.kubelet.files else {
        return CONFIGURATION.ok(format!(
            "on its command line: {}",
            settings.flags.join(", ")
        ));
    };
    let origin = match files.origin {
        FilesOrigin::Configured | FilesOrigin::Asked => "thresholds are inherited from it",
        FilesOrigin::CommandLine => "named on its command line",
        FilesOrigin::ThroughProcess => {
            "named on its command line, in a file system that is not ours"
        }
        FilesOrigin::UsualPlace => "found in its usual place",
    };
    let mut found = format!("{}, {origin}", name_of(files));
    if !settings.flags.is_empty() {
        found = format!("{found}; overruled by {}", settings.flags.join(", "));
    }
    if settings.doubts.is_empty() {
        let overruled = files.origin == FilesOrigin::Configured && !settings.flags.is_empty();
        return if overruled {
            CONFIGURATION
                .warning(found)
                .follows(
                    "flags are not inherited: Brink goes by the file, and the kubelet by the flags",
                )
                .next("move those flags of the kubelet into its file")
        } else {
            CONFIGURATION.ok(found)
        };
    }
    CONFIGURATION
        .warning(format!("{found}; {}", some(&settings.doubts, MOST)))
        .follows("the kubelet accepts this without a word, and it is hardly meant")
        .next("write what is meant in the kubelet's file or flags, and start it again")
}

fn lead(facts: &Facts, settings: &Settings) -> Check {
    const SUBJECT: Subject = Subject("kubelet.lead", "who acts first");
    let Some(capacity) = capacity(facts) else {
        return SUBJECT.unknown("/proc/meminfo cannot be read");
    };
    let lead = kubelet::lead::lead(&facts.config, settings, capacity, pods_capacity(facts));
    let signal = lead.signal;
    let Some(theirs) = lead.kubelets else {
        return SUBJECT.ok(format!("the kubelet has no hard threshold on {signal}"));
    };
    let Some(ours) = lead.ours else {
        let found = format!("the kubelet below {}, Brink never", bytes(theirs));
        let alone = SUBJECT.warning(format!("{signal}: {found}"));
        let alone = alone.follows("the kubelet acts alone, at its next look at the node");
        return inherit(facts, alone);
    };
    let found = format!(
        "{signal}: Brink below {}, the kubelet below {}",
        bytes(ours),
        bytes(theirs)
    );
    let leads_by = bytes(ours.saturating_sub(theirs));
    let doubts = doubts(lead, facts.config.mode);
    match lead.first() {
        First::Brink | First::KubeletNever => {
            SUBJECT.ok(format!("{found}: Brink leads by {leads_by}{doubts}"))
        }
        First::BrinkNarrowly => {
            let narrow = SUBJECT.trouble(State::Note, found + &doubts);
            let narrow = narrow.follows(format!(
                "Brink leads by {leads_by}, less than leadMargin ({})",
                bytes(lead.margin)
            ));
            inherit(facts, narrow)
        }
        First::Kubelet | First::BrinkNever => {
            let second = SUBJECT
                .warning(found + &doubts)
                .follows("the kubelet may act first, and both may evict for one shortage");
            inherit(facts, second)
        }
    }
}

/// Why Brink may not act below its threshold all the same.
fn doubts(lead: Lead, mode: RunMode) -> String {
    let confirmed = lead
        .is_confirmed
        .then_some("; Brink waits until headroom is short too (memoryPolicy: confirmed)");
    let observes = (mode == RunMode::Observe)
        .then_some("; Brink only observes, so the kubelet acts alone (mode)");
    [confirmed, observes].into_iter().flatten().collect()
}

/// Inheriting the kubelet's thresholds makes Brink lead.
fn inherit(facts: &Facts, trouble: Trouble) -> Check {
    match &facts.kubelet.files {
        Some(Files {
            file: Some(file),
            origin: FilesOrigin::CommandLine | FilesOrigin::UsualPlace,
            ..
        }) => trouble.run(
            "inherit its thresholds, raised by leadMargin (kubeletConfig); to see them:",
            format!("brink config show --kubelet-config {}", quoted(file)),
        ),
        Some(Files {
            origin: FilesOrigin::ThroughProcess,
            ..
        }) => trouble.next(
            "inherit its thresholds, raised by leadMargin: mount the file and say where (kubeletConfig), as the component \
             kubelet-config of deploy/kubernetes does",
        ),
        _ => trouble.next("set evictionHard memory.available above the kubelet's"),
    }
}

fn capacity(facts: &Facts) -> Option<i64> {
    i64::try_from(facts.memory.meminfo.as_ref().ok()?.total).ok()
}

/// What the pods may use, if their group is measured.
fn pods_capacity(facts: &Facts) -> Option<i64> {
    let (figures, _) = facts.memory.figures.as_ref().ok()?;
    Some(figures.pods?.capacity)
}

/// What is kept from pods: `kubeReserved + systemReserved + evictionHard`. Pods may request all the rest.
fn reserves(facts: &Facts, settings: &Settings) -> Check {
    const SUBJECT: Subject = Subject("kubelet.reserves", "memory reserved for the system");
    let Some(capacity) = capacity(facts) else {
        return SUBJECT.unknown("/proc/meminfo cannot be read");
    };
    let ours = kubelet::lead::ours(&facts.config, Signal::MemoryAvailable, capacity);
    let kept = Kept::of(settings, ours, capacity);
    let used = used_by_system(facts, capacity);
    let in_use = used.map_or_else(String::new, |used| {
        format!("; {} in use by what is no pod", bytes(used))
    });
    let found = format!("{}{in_use}", kept.in_words());
    if kept.is_enough(used) {
        return SUBJECT.ok(found);
    }
    let follows = kept.short().unwrap_or_else(|| {
        "pods that all keep to their requests can still cross the threshold, since the system uses memory that nobody \
         reserved; one of them is evicted for it"
            .to_owned()
    });
    let trouble = SUBJECT.warning(found).follows(follows);
    trouble.next(kept.next(used))
}

/// The node's working set without that of all pods.
fn used_by_system(facts: &Facts, capacity: i64) -> Option<i64> {
    let (figures, _) = facts.memory.figures.as_ref().ok()?;
    let pods = i64::try_from(facts.kubelet.pods_working_set?).ok()?;
    let node = capacity.saturating_sub(figures.memory?.available);
    Some(node.saturating_sub(pods).max(0))
}

/// Only said where it is set: on v2 it does nothing.
fn notification(facts: &Facts, settings: &Settings) -> Option<Check> {
    const SUBJECT: Subject = Subject("kubelet.notification", "kernelMemcgNotification");
    if !settings.memcg_notification {
        return None;
    }
    Some(if facts.cgroups.memory_is_v2() {
        SUBJECT
            .note("set, and without effect on cgroup v2")
            .follows("the kubelet looks at the node every 10 s and at no other time")
    } else {
        SUBJECT
            .ok("set: the kubelet is woken at its thresholds (cgroup v1), with statistics that may be old")
    })
}
