//! What a machine must have for a cluster: everything that is missing is told at once, with what to do.
use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::bail;

use super::{control_plane::ETCD, groups};

/// What the command calls, each with Debian's package.
const PROGRAMS: [(&str, &str); 8] = [
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("openssl", "openssl"),
    ("gcc", "gcc libc6-dev"),
    ("tar", "tar"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setsid", "util-linux"),
];
/// The least that the machine must have free, in KiB, as the kernel says it.
const MEMORY: u64 = 2 << 20;

/// Says everything that is missing.
///
/// # Errors
/// When something is.
pub(super) fn check() -> anyhow::Result<()> {
    let lacks: Vec<String> = [
        root(),
        programs(),
        namespaces(),
        groups::lacking(),
        overlay(),
        memory(),
        ports(),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !lacks.is_empty() {
        bail!(
            "a cluster cannot run on this machine:\n  - {}",
            lacks.join("\n  - ")
        );
    }
    Ok(())
}

fn root() -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| "it needs root: run the command as root".to_owned())
}

fn programs() -> Option<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    let has = |name: &str| folders.iter().any(|folder| folder.join(name).is_file());
    let missing: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|(name, _)| !has(name))
        .collect();
    advice(&missing)
}

/// What to install, once each.
fn advice(missing: &[(&str, &str)]) -> Option<String> {
    let [names, mut packages]: [Vec<&str>; 2] = [
        missing.iter().map(|(name, _)| *name).collect(),
        missing.iter().map(|(_, package)| *package).collect(),
    ];
    packages.dedup();
    (!missing.is_empty()).then(|| {
        format!(
            "{} cannot be found: apt-get install --no-install-recommends {}",
            names.join(", "),
            packages.join(" ")
        )
    })
}

/// Tries it: a machine that is a container itself is often not allowed to.
fn namespaces() -> Option<String> {
    let mut unshare = Command::new("unshare");
    let tried = unshare
        .args(["--mount", "true"])
        .stderr(Stdio::null())
        .status();
    (!tried.is_ok_and(|status| status.success())).then(|| {
        "no mount namespace can be made (CAP_SYS_ADMIN is needed, which containers lack unless they are privileged)".to_owned()
    })
}

fn overlay() -> Option<String> {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_known = known
        .lines()
        .any(|line| line.split_whitespace().last() == Some("overlay"));
    // A module that is not loaded is loaded by whoever mounts it.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let module = Path::new("/lib/modules")
        .join(release.trim())
        .join("kernel/fs/overlayfs");
    (!is_known && !module.is_dir()).then(|| {
        "this kernel has no overlayfs, which the images of containers are mounted by".to_owned()
    })
}

fn memory() -> Option<String> {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = available?.split_whitespace().next()?.parse::<u64>().ok()?;
    (available < MEMORY).then(|| {
        format!(
            "{} MiB of memory are available, and the cluster with its first pods takes {}",
            available >> 10,
            MEMORY >> 10
        )
    })
}

/// The ports on the usual loopback address: the others are on an address of the cluster's own.
fn ports() -> Option<String> {
    let taken = ETCD.into_iter().find_map(|port| {
        let error = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).err()?;
        Some((port, error))
    });
    taken.map(|(port, error)| {
        format!(
            "port {port} of 127.0.0.1 cannot be had ({error}): end what listens there (ss -ltnp)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_in_one_line() {
        assert_eq!(advice(&[]), None);
        let told = advice(&[
            ("openssl", "openssl"),
            ("unshare", "util-linux"),
            ("setsid", "util-linux"),
        ]);
        let told = told.unwrap();
        assert!(
            told.starts_with("openssl, unshare, setsid cannot be found"),
            "{told}"
        );
        assert!(told.ends_with(" openssl util-linux"), "{told}");
    }
}
