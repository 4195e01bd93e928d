//! What to do about what is not well: what to run or change, and never to become root for who is root.

use brink::doctor::State::{self, Failed, Unknown, Warning};
use brink::doctor::facts::kubelet::Unsettled;
use brink::doctor::facts::state::{SocketState, Unwritable};
use brink::doctor::{Check, Facts, checks};
use brink_host::capabilities::{Capabilities, CapabilitySet};
use brink_host::probe::facts::FactError;
use rustix::io::Errno;

use crate::machine::{Machine, expect};
use crate::node::kubelet;

fn refused(path: &str, errno: Errno) -> Unwritable {
    Unwritable::Refused(path.into(), errno)
}

/// The check of an id, by facts.
fn check(facts: &Facts, id: &str) -> Check {
    let found = checks(facts).into_iter().find(|check| check.id == id);
    found.expect("a check of that id")
}

#[test]
fn what_is_closed_to_an_ordinary_user_is_looked_at_as_root() {
    const CLOSED: [&str; 4] = [
        "state.ledger",
        "state.enforcer",
        "state.stop-button",
        "state.socket",
    ];
    let mut facts = Machine::whole().facts();
    let denied = || "/run/brink: Permission denied".to_owned();
    facts.state.folder.writable = Err(refused("/run/brink", Errno::ACCESS));
    facts.state.socket.state = SocketState::Impossible(denied());
    facts.state.ledger = Err(denied());
    facts.state.enforcer = Err(denied());
    facts.state.button = Err(denied());
    facts.process.user = 65_534;
    for id in CLOSED {
        let step = match id {
            "state.socket" => "do what state.folder says",
            _ => "sudo brink doctor",
        };
        expect(&check(&facts, id), Unknown, &[step]);
    }
    facts.process.user = 0;
    let ledger = check(&facts, "state.ledger");
    assert!(ledger.next.is_empty(), "root has looked: {ledger:?}");
}

/// Everything denied that an ordinary user may not look at, and how each check ends by that.
fn denied() -> (Facts, [(&'static str, State); 6]) {
    let machine = Machine::whole().configured("evictionHard: {nodefs.available: 1}");
    let mut facts = machine.facts();
    facts.state.folder.writable = Err(refused("/run/brink", Errno::ACCESS));
    facts.state.journal = Some(("/j/inputs".into(), Err(refused("/j", Errno::PERM))));
    facts.state.socket.state = SocketState::Forbidden;
    let unread = Unsettled::Unread("/var/lib/kubelet/config.yaml".into(), Errno::ACCESS);
    facts.kubelet.settings = Some(Err(unread));
    facts.kernel.probe.tracefs = Ok("/sys/kernel/tracing".into());
    facts.kernel.probe.formats = Err(FactError::File {
        path: "/sys/kernel/tracing/events".into(),
        error: std::io::ErrorKind::PermissionDenied.into(),
    });
    let disks = facts.disks.as_mut().expect("there is a threshold on one");
    disks.runtime.trouble = Some("Permission denied".to_owned());
    disks.runtime.fault = Some("denied");
    let ends = [
        ("state.folder", Failed),
        ("state.journal", Failed),
        ("state.socket", Unknown),
        ("kubelet.configuration", Unknown),
        ("kernel.tracefs", Unknown),
        ("disks.runtime", Warning),
    ];
    (facts, ends)
}

#[test]
fn who_is_denied_is_told_to_be_root_and_root_what_keeps_it_from_its_rights() {
    let (mut facts, ends) = denied();
    let told = |facts: &Facts, words: &str| {
        for (id, state) in ends {
            expect(&check(facts, id), state, &[words]);
        }
        let all = checks(facts);
        let steps = all.iter().flat_map(|check| &check.next);
        let to_become_root = steps.filter(|step| step.text.contains("as root"));
        let expected = if facts.process.user == 0 {
            0
        } else {
            ends.len()
        };
        assert_eq!(to_become_root.count(), expected, "{all:?}");
    };
    facts.process.user = 1000;
    told(&facts, "as root");
    facts.process.user = 0;
    told(&facts, "look for what denies it to root");
    let nothing = CapabilitySet::default();
    facts.process.capabilities = Ok(Capabilities {
        effective: nothing,
        bounding: nothing,
    });
    told(&facts, "give it CAP_DAC_");
    facts.process.namespaces.user = Ok(false);
    told(&facts, "outside of its user namespace");
}

#[test]
fn a_place_that_cannot_be_written_to_has_what_would_open_it_and_another() {
    const ELSEWHERE: &str = "set paths.decisionJournal to a file";
    let mut facts = Machine::whole().facts();
    for (why, opens) in [
        (Unwritable::Nowhere("j".into()), None),
        (Unwritable::Folder("/j".into()), None),
        (Unwritable::NoFolder("/n".into()), Some("make /n a folder")),
        (
            refused("/r", Errno::ROFS),
            Some("mount the file system of /r"),
        ),
        (refused("/r", Errno::IO), None),
    ] {
        facts.state.journal = Some(("/n/j".into(), Err(why)));
        let check = check(&facts, "state.journal");
        expect(&check, Failed, &[opens.unwrap_or(ELSEWHERE), ELSEWHERE]);
        let steps = 1 + usize::from(opens.is_some());
        assert_eq!(check.next.len(), steps, "{check:?}");
    }
}

#[test]
fn memory_and_control_groups_that_cannot_be_read_say_what_to_mount_or_where_to_look() {
    let without = |file: &str| {
        let machine = Machine::whole();
        std::fs::remove_file(machine.path(file)).unwrap();
        machine
    };
    let words = ["mount the kernel's own /proc", "head -n 3", "proc/zoneinfo"];
    let signals = |machine: Machine| machine.check("memory.signals");
    expect(&signals(without("proc/meminfo")), Failed, &words);
    let node = Machine::whole().configured("node: {cgroup: /elsewhere}");
    expect(&signals(node), Failed, &["see cgroups.node"]);
    let pods = Machine::whole().configured("podsCgroup: /elsewhere");
    expect(&signals(pods), Failed, &["see cgroups.pods"]);

    let layout = |machine: Machine| machine.check("cgroups.layout");
    let words = ["proc/self/mountinfo", "make readable"];
    expect(&layout(without("proc/self/mountinfo")), Failed, &words);
    let words = ["mount the machine's /proc"];
    expect(&layout(Machine::empty()), Failed, &words);
    let inside = Machine::whole().with(
        "proc/self/mountinfo",
        "32 30 0:30 /../.. /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    );
    let words = ["run it in the machine's cgroup namespace"];
    expect(&layout(inside), Failed, &words);
    let old = without("sys/fs/cgroup/system.slice/cgroup.kill");
    expect(&old.check("cgroups.kill"), Warning, &["5.15 or newer"]);
}

#[test]
fn what_is_named_and_wrong_says_what_to_put_in_its_place() {
    const MANIFESTS: &str = "workloads.manifests";
    let none = Machine::whole().configured("workloads: {manifests: /nonexistent/pods}");
    let words = ["workloads: {manifests: FOLDER}"];
    expect(&none.check(MANIFESTS), Failed, &words);
    let broken = Machine::whole().with("pods/a.yaml", "metadata: [\n");
    let folder = broken.path("pods");
    let broken = broken.configured(&format!("workloads: {{manifests: {}}}", folder.display()));
    let words = ["a.yaml", "take them out of the folder"];
    expect(&broken.check(MANIFESTS), Failed, &words);
    let hooks = Machine::whole().configured("hooks: {beforeKill: /nonexistent/hook}");
    expect(&hooks.check("state.hooks"), Failed, &["may be executed"]);
    let file = |text: &str| kubelet("", text, "").check("kubelet.configuration");
    let refused = file("evictionSoft: {memory.available: 1Gi}");
    expect(&refused, Failed, &["put right what is named there"]);
    let doubtful = "evictionHard: {memory.available: 2Gi}\nevictionSoft: {memory.available: 1Gi}\n\
                    evictionSoftGracePeriod: {memory.available: 1m}";
    expect(&file(doubtful), Warning, &["write what is meant"]);
}
