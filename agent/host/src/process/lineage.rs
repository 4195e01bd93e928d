//! Where this process comes from: its ancestors, and the session that started it.

use std::path::Path;

use crate::cgroup::Home;
use crate::cgroup::membership::Membership;
use crate::error::HostError;
use crate::process::ProcessInfo;

/// Deeper chains are cut.
const LONGEST: usize = 64;

/// Where a process comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// Its ancestors, the parent first, up to PID 1 or to where our pid namespace ends.
    pub ancestors: Vec<i32>,
    /// The leader of its session, if that is another process that still lives.
    pub session_leader: Option<i32>,
    /// The group of the login session it is in (`/user.slice/user-0.slice/session-3.scope`), if it is in one.
    pub login_group: Option<String>,
}

impl Lineage {
    /// Follows a process back under a root; groups are named from `home`.
    ///
    /// # Errors
    /// [`HostError`] when the process itself cannot be read.
    pub fn of(root: &Path, home: &Home, pid: i32) -> Result<Self, HostError> {
        let start = ProcessInfo::read(root, pid)?.ok_or_else(|| HostError::Missing {
            path: root.join("proc").join(pid.to_string()),
            what: "process",
        })?;
        let mut ancestors = Vec::new();
        let mut next = start.parent;
        while next > 0 && ancestors.len() < LONGEST && !ancestors.contains(&next) {
            ancestors.push(next);
            next = ProcessInfo::read(root, next)?.map_or(0, |info| info.parent);
        }
        let leader = Some(start.session).filter(|leader| *leader > 0 && *leader != pid);
        let session_leader = match leader {
            Some(leader) => ProcessInfo::read(root, leader)?.map(|info| info.pid),
            None => None,
        };
        let login_group = Membership::read(root, home, &pid.to_string())?
            .service()
            .and_then(login_group);
        Ok(Self {
            ancestors,
            session_leader,
            login_group,
        })
    }
}

/// The part of a path up to logind's scope for a session.
fn login_group(group: &str) -> Option<String> {
    let mut path = String::new();
    for name in group.split('/').filter(|name| !name.is_empty()) {
        path.push('/');
        path.push_str(name);
        if name
            .strip_suffix(".scope")
            .is_some_and(|name| name.starts_with("session-"))
        {
            return path.starts_with("/user.slice/").then_some(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::fake::{self, FakeProcess};

    fn machine(parents: &[(i32, i32)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("temporary folder");
        for (pid, parent) in parents {
            let group = "/user.slice/user-0.slice/session-3.scope";
            let process = FakeProcess {
                pid: *pid,
                parent: *parent,
                session: 20,
                name: "x",
                user: 0,
                group,
                is_contained: false,
            };
            fake::add(root.path(), &process);
        }
        root
    }

    #[test]
    fn the_chain_ends_at_the_first_process() {
        let root = machine(&[(1, 0), (10, 1), (20, 10), (30, 20)]);
        let lineage = Lineage::of(root.path(), &Home::default(), 30).expect("readable");
        assert_eq!(
            (lineage.ancestors, lineage.session_leader),
            (vec![20, 10, 1], Some(20))
        );
        assert_eq!(
            lineage.login_group.as_deref(),
            Some("/user.slice/user-0.slice/session-3.scope")
        );
    }

    #[test]
    fn a_gap_or_a_loop_ends_it_too() {
        assert_eq!(
            Lineage::of(machine(&[(30, 20)]).path(), &Home::default(), 30)
                .expect("readable")
                .ancestors,
            [20]
        );
        assert_eq!(
            Lineage::of(machine(&[(30, 20), (20, 30)]).path(), &Home::default(), 30)
                .expect("readable")
                .ancestors,
            [20, 30]
        );
        assert!(matches!(
            Lineage::of(machine(&[]).path(), &Home::default(), 30),
            Err(HostError::Missing { .. })
        ));
    }

    #[test]
    fn only_logins_scopes_are_sessions() {
        fn check(group: &str, expected: Option<&str>) {
            assert_eq!(login_group(group).as_deref(), expected, "{group}");
        }
        check(
            "/user.slice/user-0.slice/session-c1.scope/deeper",
            Some("/user.slice/user-0.slice/session-c1.scope"),
        );
        check("/system.slice/session-3.scope", None);
        check("/user.slice/user-0.slice/user@0.service/app.slice", None);
    }

    #[test]
    fn we_descend_from_the_first_process() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let lineage = Lineage::of(Path::new("/"), &Home::default(), own).expect("readable");
        assert!(
            !lineage.ancestors.is_empty() && !lineage.ancestors.contains(&own),
            "{lineage:?}"
        );
    }
}
