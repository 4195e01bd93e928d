//! Rights: which capabilities are missing and for what, and whether we see the machine or a container.

use brink_host::capabilities::{Ability, Capabilities, Capability};

use crate::config::RunMode;
use crate::doctor::advice::obtain;
use crate::doctor::check::{Check, State, Step, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::process::{Namespaces, Process};

/// Abilities that no other check tries.
const UNTRIED: [Ability; 3] = [
    Ability::Kill,
    Ability::InspectProcesses,
    Ability::ManageCgroups,
];

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut capabilities = capabilities(&facts.process, facts.config.mode);
    if !matches!(capabilities.state, State::Ok | State::Unknown) {
        capabilities =
            capabilities.follows("everything below is what an agent with these rights would have");
    }
    Vec::from([capabilities, namespaces(facts)])
}

/// Which capabilities a process lacks, for what, and how to get them.
pub(in crate::doctor) fn capabilities(process: &Process, mode: RunMode) -> Check {
    const SUBJECT: Subject = Subject("rights.capabilities", "capabilities");
    let held = match &process.capabilities {
        Ok(held) => held,
        Err(why) => return SUBJECT.unknown(why.clone()),
    };
    let lacking = lacking(held);
    let user = match process.user {
        0 => "root".to_owned(),
        user => format!("user {user}"),
    };
    if lacking.is_empty() {
        return SUBJECT.ok(format!("{user} with all that Brink can use"));
    }
    let lacks = |ability| lacking.iter().any(|(lacked, _)| *lacked == ability);
    let state = if lacks(Ability::Kill) && mode == RunMode::Enforce {
        State::Failed
    } else if UNTRIED.into_iter().any(lacks) {
        State::Warning
    } else {
        // A check of its own has tried what is missing, and warns if it was refused.
        State::Note
    };
    let found = format!("{user} lacks {}", in_words(&lacking));
    let names: Vec<Capability> = lacking.into_iter().flat_map(|(_, names)| names).collect();
    let (ways, last) = obtain(process, &names);
    let as_root = Step::with_command("see what root has here", "sudo brink doctor");
    let as_root = (process.user != 0).then_some(as_root);
    SUBJECT
        .trouble(state, found)
        .steps(as_root.into_iter().chain(ways), last)
}

fn in_words(lacking: &[(Ability, Vec<Capability>)]) -> String {
    let words = lacking.iter().map(|(ability, capabilities)| {
        let names: Vec<String> = capabilities.iter().map(ToString::to_string).collect();
        format!("{} for {}", names.join(" and "), ability.purpose())
    });
    words.collect::<Vec<_>>().join(", ")
}

/// What is lacking for each ability that cannot be had.
fn lacking(held: &Capabilities) -> Vec<(Ability, Vec<Capability>)> {
    let all = Ability::ALL.into_iter();
    all.map(|ability| (ability, held.missing(ability)))
        .filter(|(_, missing)| !missing.is_empty())
        .collect()
}

/// What a namespace is of, what is lost in a container's own, and what to do about that.
struct Kind {
    name: &'static str,
    lost: &'static str,
    remedy: &'static str,
}

const PIDS: Kind = Kind {
    name: "process ids",
    lost: "processes outside are not seen, so neither are other killers, the kubelet, or who must be spared",
    remedy: "share the machine's process ids: hostPID: true, or docker run --pid=host",
};
const GROUPS: Kind = Kind {
    name: "control groups",
    lost: "control groups outside are not seen: the workloads of the node are not there to be watched over",
    remedy: "run it in the machine's own: a pod as privileged, with docker by --cgroupns=host",
};
const USERS: Kind = Kind {
    name: "users",
    lost: "root and capabilities count inside only: no kernel programs, no real time, no lower OOM score",
    remedy: "run it without a user namespace of its own (hostUsers: true)",
};

fn namespaces(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("rights.namespaces", "namespaces");
    let Namespaces { pid, cgroup, user } = &facts.process.namespaces;
    // The machine's groups are mounted, and which of them is ours was found: those outside are seen all the same.
    let layout = facts.cgroups.layout.as_ref();
    let sees_out =
        layout.is_ok_and(|layout| layout.home().path().is_some() && layout.partial().is_empty());
    let seen = Ok(true);
    let cgroup = if sees_out { &seen } else { cgroup };
    let kinds = [(PIDS, pid), (GROUPS, cgroup), (USERS, user)];
    let of = |wanted: &dyn Fn(&Result<bool, String>) -> bool| -> Vec<&Kind> {
        let found = kinds.iter().filter(|(_, namespace)| wanted(namespace));
        found.map(|(kind, _)| kind).collect()
    };
    let names = |kinds: &[&Kind]| {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
        names.join(", ")
    };
    let (own, unread) = (of(&|one| *one == Ok(false)), of(&|one| one.is_err()));
    let Some((end, before)) = own.split_last() else {
        return match unread.as_slice() {
            [] if sees_out => SUBJECT.ok(
                "the machine's own, and a container's for control groups, from which those outside are seen",
            ),
            [] => SUBJECT.ok("the machine's own"),
            unread => SUBJECT.unknown(format!("cannot be read for {}", names(unread))),
        };
    };
    let lost: Vec<&str> = own.iter().map(|kind| kind.lost).collect();
    let remedies = before.iter().map(|kind| Step::words(kind.remedy));
    SUBJECT
        .warning(format!("a container's own for {}", names(&own)))
        .follows(lost.join("; "))
        .steps(remedies, Step::words(end.remedy))
}
