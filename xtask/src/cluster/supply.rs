//! Where the programs of a cluster are: in the cache under their version, built first where they are not there or not whole.
use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use rustix::io::{FdFlags, fcntl_setfd};

use super::{
    build,
    state::{FOLDER, PROGRAMS},
};
use crate::{listing, lock, workspace};

/// The newest Kubernetes whose whole source Debian ships.
pub(super) const KUBERNETES: &str = "1.20.2";
/// How it is built. Whoever changes that, or what is packed beside it, counts on: what is in the cache is then built anew.
const RECIPE: u32 = 1;
/// The list of a bundle's files.
const FILES: &str = "files";
/// What building takes at its peak, in bytes.
const ROOM: u64 = 4 << 30;

/// Everything that a cluster is made of, in one folder.
#[derive(Debug, Clone)]
pub(super) struct Bundle {
    folder: PathBuf,
}

impl Bundle {
    fn of(cache: &Path) -> Self {
        Self {
            folder: cache.join(format!("kubernetes-{KUBERNETES}-{RECIPE}")),
        }
    }

    /// The folder of the programs.
    pub(super) fn programs(&self) -> PathBuf {
        self.root().join("bin")
    }

    /// One of the programs.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.programs().join(name)
    }

    /// The folder of the plugins that give pods their network.
    pub(super) fn network_plugins(&self) -> PathBuf {
        self.root().join("cni")
    }

    /// The archives of images.
    pub(super) fn images(&self) -> PathBuf {
        self.root().join("images")
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    fn is_whole(&self) -> bool {
        listing::is_whole(&self.folder.join(FILES), &self.root())
    }
}

fn cache() -> anyhow::Result<PathBuf> {
    Ok(workspace::cache()?.join("cluster"))
}

/// Whether what a cluster is made of is in the cache.
///
/// # Errors
/// When there is no place for a cache.
pub(super) fn is_there() -> anyhow::Result<bool> {
    Ok(Bundle::of(&cache()?).is_whole())
}

/// What a cluster is made of, out of the cache, or built into it.
///
/// # Errors
/// When it is not there and cannot be built.
pub(super) fn obtain() -> anyhow::Result<Bundle> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the cluster is made of packages for x86_64, and this is another machine");
    }
    let cache = cache()?;
    let bundle = Bundle::of(&cache);
    if bundle.is_whole() {
        return Ok(bundle);
    }
    let _lock = lock(&cache)?;
    // Whoever had the lock may have built it.
    if !bundle.is_whole() {
        make(&cache, &bundle).with_context(|| {
            format!("Kubernetes {KUBERNETES} is not in the cache, and cannot be built")
        })?;
    }
    Ok(bundle)
}

/// Waits until nobody else builds.
fn lock(cache: &Path) -> anyhow::Result<fs::File> {
    let lock = lock::folder(cache, "builds a cluster's programs")?;
    // Whatever we start holds it too: a compiler that outlives us is waited for, not built beside.
    fcntl_setfd(&lock, FdFlags::empty())
        .with_context(|| format!("keeping {} locked", cache.display()))?;
    Ok(lock)
}

/// Builds it beside its place and moves it there, so that no half is ever taken for whole.
fn make(cache: &Path, bundle: &Bundle) -> anyhow::Result<()> {
    let work = build::Work::begin(&cache.join("building"))?;
    require_room(cache)?;
    eprintln!(
        "cluster: building Kubernetes {KUBERNETES} from Debian's source into {}: some minutes, once",
        bundle.folder.display()
    );
    let beside = tempfile::tempdir_in(cache).context("a folder in the cache")?;
    let root = beside.path().join("root");
    work.build(&root)?;
    fs::write(beside.path().join(FILES), listing::list(&root)?)?;
    let place = || -> std::io::Result<()> {
        if bundle.folder.exists() {
            fs::remove_dir_all(&bundle.folder)?;
        }
        fs::rename(beside.path(), &bundle.folder)
    };
    place().with_context(|| format!("placing {}", bundle.folder.display()))?;
    work.end()?;
    let used = fs::read_link(Path::new(FOLDER).join(PROGRAMS)).ok();
    remove_others(cache, bundle, used.as_deref())
}

/// Removes what other recipes have made, and what a build that was killed has left, but for what a cluster runs from.
fn remove_others(cache: &Path, bundle: &Bundle, used: Option<&Path>) -> anyhow::Result<()> {
    for entry in fs::read_dir(cache)?.flatten() {
        let path = entry.path();
        let is_used = used.is_some_and(|used| used.starts_with(&path));
        if path != bundle.folder && !is_used {
            fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

fn require_room(cache: &Path) -> anyhow::Result<()> {
    let found = rustix::fs::statvfs(cache).context("the free space of the cache")?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free < ROOM {
        bail!(
            "{} has {} MiB free, and building takes {}: make room, or set XDG_CACHE_HOME to another disk",
            cache.display(),
            free >> 20,
            ROOM >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;

    fn check(harm: impl Fn(&Path), whole: bool) {
        let folder = tempfile::tempdir().unwrap();
        let bundle = Bundle {
            folder: folder.path().to_owned(),
        };
        fs::create_dir_all(bundle.programs()).unwrap();
        fs::write(bundle.program("kubelet"), "program").unwrap();
        let files = listing::list(&bundle.root()).unwrap();
        fs::write(folder.path().join(FILES), files).unwrap();
        harm(folder.path());
        assert_eq!(bundle.is_whole(), whole);
    }

    #[test]
    fn what_is_half_there_is_built_anew() {
        check(|_| {}, true);
        check(
            |folder| fs::write(folder.join("root/bin/kubelet"), "half").unwrap(),
            false,
        );
        check(
            |folder| fs::remove_dir_all(folder.join("root")).unwrap(),
            false,
        );
        check(
            |folder| fs::write(folder.join(FILES), "7 bin/kub").unwrap(),
            false,
        );
        check(|folder| fs::remove_file(folder.join(FILES)).unwrap(), false);
    }

    #[test]
    fn a_build_is_not_over_before_what_it_started() {
        let cache = tempfile::tempdir().unwrap();
        let own = lock(cache.path()).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        drop(own);
        let other = fs::File::open(cache.path()).unwrap();
        assert!(other.try_lock().is_err(), "somebody still builds");
        child.kill().unwrap();
        child.wait().unwrap();
        // What another test of this process has started just then holds it too.
        let until = Instant::now() + Duration::from_secs(5);
        while let Err(held) = other.try_lock() {
            assert!(Instant::now() < until, "{held}");
            sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_other_recipes_made_goes_unless_it_runs() {
        let cache = tempfile::tempdir().unwrap();
        let bundle = Bundle {
            folder: cache.path().join("kubernetes-1-2"),
        };
        for name in [
            "kubernetes-1-0",
            "kubernetes-1-1",
            "kubernetes-1-2",
            ".tmpab",
            "building",
        ] {
            fs::create_dir_all(cache.path().join(name).join("below")).unwrap();
        }
        let used = cache.path().join("kubernetes-1-1/root/bin");
        remove_others(cache.path(), &bundle, Some(&used)).unwrap();
        let left = fs::read_dir(cache.path()).unwrap().flatten();
        let mut left: Vec<PathBuf> = left.map(|entry| entry.path()).collect();
        left.sort();
        assert_eq!(left, [cache.path().join("kubernetes-1-1"), bundle.folder]);
    }
}
