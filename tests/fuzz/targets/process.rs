//! The files of one process in a /proc of its own.

use brink_host::capabilities::{Ability, Capabilities};
use brink_host::cgroup::Home;
use brink_host::cgroup::membership::Membership;
use brink_host::process::lineage::Lineage;
use brink_host::process::{ProcessInfo, Processes, command_name, essential, rivals};

use crate::Taken;
use crate::bundle::Bundle;
use crate::scratch::Scratch;

/// The process.
const PID: i32 = 42;
/// Its files; `status` is that of our own process too.
const FILES: [&str; 6] = [
    "stat",
    "status",
    "cmdline",
    "comm",
    "cgroup",
    "oom_score_adj",
];

thread_local! {
    static ROOT: Scratch = Scratch::new();
}

/// stat, status, cmdline, comm, cgroup and `oom_score_adj`.
pub(crate) fn process_files(bytes: &[u8]) -> Taken {
    ROOT.with(|root| {
        root.clear();
        let files = Bundle::split("stat", bytes);
        for name in FILES {
            if let Some(bytes) = files.get(name) {
                root.write(&format!("proc/{PID}/{name}"), bytes);
            }
        }
        root.write("proc/self/status", files.get("status").unwrap_or_default());
        check(root, &files)
    })
}

fn check(root: &Scratch, files: &Bundle<'_>) -> Taken {
    let root = root.path();
    let info = ProcessInfo::read(root, PID);
    let Ok(all) = Processes::read(root) else {
        return Taken::Refused;
    };
    match &info {
        Ok(Some(info)) => {
            assert_eq!(all.known.as_slice(), std::slice::from_ref(info));
            let written: usize = info.command_line.iter().map(String::len).sum();
            let read = files.get("cmdline").unwrap_or_default().len();
            assert!(written <= 3 * read, "{written} letters of {read} bytes");
        }
        Ok(None) => assert!(all.known.is_empty()),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(all.unreadable, [PID]);
        }
    }
    let name = command_name(root, PID);
    assert_eq!(name.ok().flatten().is_some(), files.get("comm").is_some());
    let home = Home::default();
    let groups = Membership::read(root, &home, &PID.to_string());
    assert_eq!(groups.is_ok(), files.get("cgroup").is_some());
    if let Ok(lineage) = Lineage::of(root, &home, PID) {
        assert!(lineage.ancestors.len() <= 64);
    }
    if let Ok(found) = essential::find(root, &home, PID) {
        assert!(found.len() <= 1 && found.iter().all(|one| one.identity.pid == PID));
    }
    assert!(rivals::find(root).is_ok_and(|rivals| rivals.len() <= 1));
    if let Ok(rights) = Capabilities::of_self(root) {
        assert!(
            Ability::ALL
                .iter()
                .all(|one| rights.missing(*one).len() <= 2)
        );
        assert!(
            rights
                .effective
                .iter()
                .all(|one| !one.to_string().is_empty())
        );
    }
    Taken::from_accepted(info.is_ok_and(|info| info.is_some()))
}
