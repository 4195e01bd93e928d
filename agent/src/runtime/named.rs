//! What of the configuration keeps the agent from starting, told by its key, and what of its node it has to start without.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use brink_host::cgroup::{Controller, Layout};
use tracing::warn;

use crate::config::{AgentConfig, NodeScope};

/// The context of an error that a setting has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its key.
    pub key: &'static str,
    /// Its flag, if it has one.
    pub flag: Option<&'static str>,
}

impl Named {
    /// Where the machine's root file system is.
    pub const ROOT: Self = Self::new("paths.root", Some("--host-root"));
    /// The folder of the agent's own files.
    pub const STATE_DIR: Self = Self::new("paths.stateDir", Some("--state-dir"));
    /// The socket of the command line.
    pub const SOCKET: Self = Self::new("paths.socket", None);
    /// The journal of inputs.
    pub const JOURNAL: Self = Self::new("paths.decisionJournal", Some("--journal"));
    /// The cgroup that all pods live in.
    pub const PODS: Self = Self::new("podsCgroup", Some("--pods-cgroup"));
    /// The cgroup that is the node.
    pub const NODE: Self = Self::new("node.cgroup", Some("--node-cgroup"));

    const fn new(key: &'static str, flag: Option<&'static str>) -> Self {
        Self { key, flag }
    }

    /// The setting that the socket's place comes from.
    pub fn of_socket(config: &AgentConfig) -> Self {
        let paths = &config.paths;
        if paths.socket.parent() == Some(paths.state_dir.as_path()) {
            Self::STATE_DIR
        } else {
            Self::SOCKET
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flag {
            Some(flag) => write!(f, "{} ({flag})", self.key),
            None => f.write_str(self.key),
        }
    }
}

/// What was looked for under a root. The usual one is nobody's setting.
///
/// # Errors
/// The same, with the setting where it is one.
pub fn of_root<T>(root: &Path, found: anyhow::Result<T>) -> anyhow::Result<T> {
    if root == Path::new("/") {
        found
    } else {
        found.context(Named::ROOT)
    }
}

/// Looks whether the cgroups that are to be the node and all pods' are there: whoever opens them later cannot say why they were to
/// be opened.
///
/// # Errors
/// When one is not.
pub fn look_for_groups(config: &AgentConfig, layout: &Layout) -> anyhow::Result<()> {
    if let NodeScope::Cgroup(group) = &config.node {
        look_for(group, layout, Named::NODE)?;
    }
    let pods = config.pods_cgroup.as_deref();
    pods.map_or(Ok(()), |group| look_for(group, layout, Named::PODS))
}

fn look_for(group: &str, layout: &Layout, setting: Named) -> anyhow::Result<()> {
    let memory = layout.hierarchy(Controller::Memory);
    let Some(folder) = memory.and_then(|hierarchy| hierarchy.folder(group)) else {
        return Ok(());
    };
    let found = fs::metadata(&folder).and_then(|found| {
        let no_group = || io::Error::from(io::ErrorKind::NotADirectory);
        found.is_dir().then_some(()).ok_or_else(no_group)
    });
    found
        .with_context(|| format!("there is no control group {group}: {}", folder.display()))
        .context(setting)
}

/// Warns where the node is to be the machine, and its groups are mounted in part alone.
pub fn warn_of_parts(config: &AgentConfig, layout: &Layout) {
    if config.node != NodeScope::Machine {
        return;
    }
    for part in layout.partial() {
        warn!(
            %part,
            "not all control groups of the machine are mounted: nobody outside of these is watched over, and whoever is in them goes for \
             all that the machine is short of; brink doctor (cgroups.layout) says what to do"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn a_control_group_is_a_folder_that_is_there() {
        let machine = tempfile::tempdir().unwrap();
        let root = machine.path();
        fake::mount_unified(root);
        fs::create_dir(root.join("sys/fs/cgroup/there")).unwrap();
        let layout = Layout::detect(root).unwrap();
        look_for("/there", &layout, Named::PODS).unwrap();
        for (group, kind) in [
            ("/none", io::ErrorKind::NotFound),
            ("/cgroup.controllers", io::ErrorKind::NotADirectory),
        ] {
            let error = look_for(group, &layout, Named::NODE).unwrap_err();
            assert_eq!(error.downcast_ref::<Named>(), Some(&Named::NODE));
            let cause = error.root_cause().downcast_ref::<io::Error>();
            assert_eq!(cause.map(io::Error::kind), Some(kind), "{error:#}");
        }
    }
}
