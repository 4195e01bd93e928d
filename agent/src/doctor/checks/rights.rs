//! Rights: which capabilities are missing and for what, and whether we see the machine or a container.

use brink_host::capabilities::{Ability, Capabilities, Capability};

use crate::config::RunMode;
use crate::doctor::advice::obtain;
use crate::doctor::check::{Check, State, Subject};
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
    let mut check = SUBJECT.check(state, format!("{user} lacks {}", in_words(&lacking)));
    if process.user != 0 {
        check = check.run("see what root has here", "sudo brink doctor");
    }
    let names: Vec<Capability> = lacking.into_iter().flat_map(|(_, names)| names).collect();
    check.steps(obtain(process, &names))
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

fn namespaces(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("rights.namespaces", "namespaces");
    let Namespaces { pid, cgroup, user } = &facts.process.namespaces;
    // The machine's groups are mounted, and which of them is ours was found: those outside are seen all the same.
    let layout = facts.cgroups.layout.as_ref();
    let sees_out =
        layout.is_ok_and(|layout| layout.home().path().is_some() && layout.partial().is_empty());
    let seen = Ok(true);
    let cgroup = if sees_out { &seen } else { cgroup };
    let named = [
        ("process ids", pid),
        ("control groups", cgroup),
        ("users", user),
    ];
    let of = |wanted: &dyn Fn(&Result<bool, String>) -> bool| -> Vec<&str> {
        let found = named.iter().filter(|(_, namespace)| wanted(namespace));
        found.map(|(name, _)| *name).collect()
    };
    let (own, unread) = (of(&|one| *one == Ok(false)), of(&|one| one.is_err()));
    if own.is_empty() && unread.is_empty() {
        return SUBJECT.ok(if sees_out {
            "the machine's own, and a container's for control groups, from which those outside are seen"
        } else {
            "the machine's own"
        });
    }
    if own.is_empty() {
        return SUBJECT.unknown(format!("cannot be read for {}", unread.join(", ")));
    }
    let mut check = SUBJECT.warning(format!("a container's own for {}", own.join(", ")));
    let mut lost = Vec::new();
    if *pid == Ok(false) {
        lost.push("processes outside are not seen, so neither are other killers, the kubelet, or who must be spared");
        check =
            check.next("share the machine's process ids: hostPID: true, or docker run --pid=host");
    }
    if *cgroup == Ok(false) {
        lost.push("control groups outside are not seen: the workloads of the node are not there to be watched over");
        check = check.next(
            "run it in the machine's own: a pod as privileged, with docker by --cgroupns=host",
        );
    }
    if *user == Ok(false) {
        lost.push("root and capabilities count inside only: no kernel programs, no real time, no lower OOM score");
        check = check.next("run it without a user namespace of its own (hostUsers: true)");
    }
    check.follows(lost.join("; "))
}
