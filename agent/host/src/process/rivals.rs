//! Other killers that are active: two of them shoot twice for one shortage.

use std::path::Path;

use crate::error::HostError;
use crate::process::{ProcessInfo, Processes};

/// Which killer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RivalKind {
    /// earlyoom.
    Earlyoom,
    /// nohang.
    Nohang,
    /// systemd-oomd.
    SystemdOomd,
    /// Meta's oomd.
    Oomd,
    /// bustd.
    Bustd,
    /// Android's lmkd.
    Lmkd,
}

impl RivalKind {
    /// The name of its program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Earlyoom => "earlyoom",
            Self::Nohang => "nohang",
            Self::SystemdOomd => "systemd-oomd",
            Self::Oomd => "oomd",
            Self::Bustd => "bustd",
            Self::Lmkd => "lmkd",
        }
    }

    const ALL: [Self; 6] = [
        Self::Earlyoom,
        Self::Nohang,
        Self::SystemdOomd,
        Self::Oomd,
        Self::Bustd,
        Self::Lmkd,
    ];
}

/// A killer that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rival {
    /// Its process.
    pub pid: i32,
    /// Which it is.
    pub kind: RivalKind,
    /// Whether it runs in a container, and so probably minds only that.
    pub is_contained: Option<bool>,
}

/// Finds the killers that run under a root, by the name of the process or the program its command line begins with
/// (nohang is a script). systemd-oomd acts only on units that ask for it; that it runs is still worth saying.
///
/// # Errors
/// [`HostError`] when the processes cannot be read.
pub fn find(root: &Path) -> Result<Vec<Rival>, HostError> {
    let rivals = Processes::read(root)?.known.into_iter().filter_map(|info| {
        let kind = kind(&info)?;
        Some(Rival {
            pid: info.pid,
            kind,
            is_contained: info.is_contained,
        })
    });
    Ok(rivals.collect())
}

fn kind(info: &ProcessInfo) -> Option<RivalKind> {
    // The first word is the program, or the interpreter with the script behind it.
    let words = info
        .command_line
        .iter()
        .take(2)
        .map(|word| word.rsplit('/').next().unwrap_or(word));
    let mut names = words.chain([info.name.as_str()]);
    names.find_map(|name| {
        RivalKind::ALL
            .into_iter()
            .find(|kind| kind.program() == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::fake::{self, FakeProcess};

    #[test]
    fn killers_are_found_by_name_or_script() {
        fn check(name: &str, command_line: &str, expected: Option<RivalKind>) {
            let root = tempfile::tempdir().expect("temporary folder");
            let process = FakeProcess {
                pid: 9,
                parent: 1,
                session: 9,
                name,
                user: 0,
                group: "/",
                is_contained: false,
            };
            fake::add(root.path(), &process);
            std::fs::write(root.path().join("proc/9/cmdline"), command_line).expect("fake file");
            let found = find(root.path()).expect("readable");
            assert_eq!(
                found.first().map(|rival| rival.kind),
                expected,
                "{name} {command_line:?}"
            );
        }
        check(
            "earlyoom",
            "/usr/bin/earlyoom\0-r\0",
            Some(RivalKind::Earlyoom),
        );
        check(
            "nohang",
            "/usr/bin/python3\0/usr/sbin/nohang\0--monitor\0",
            Some(RivalKind::Nohang),
        );
        check(
            "python3",
            "python3\0/usr/sbin/nohang\0",
            Some(RivalKind::Nohang),
        );
        check(
            "systemd-oomd",
            "/lib/systemd/systemd-oomd\0",
            Some(RivalKind::SystemdOomd),
        );
        check("oomd", "", Some(RivalKind::Oomd));
        check("vim", "vim\0notes\0earlyoom\0", None);
        check("bash", "bash\0", None);
    }
}
