//! Unpacked packages outside the checkout, by digest, and which of them were used last.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use super::packages::Package;
use crate::{
    listing::{self, list},
    lock,
    workspace::succeeds,
};

/// The file that says which packages serve what.
const CHOSEN: &str = "chosen.json";
/// The file that is locked by whoever has guests running.
const USED: &str = "used";

/// Length of a key: a digest in hexadecimal digits.
const KEY: usize = 64;

/// The packages of everything that is needed, by what they are for.
type Chosen = BTreeMap<String, Vec<Package>>;

/// A cache that nobody else writes to meanwhile.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    /// Held as long as this lives.
    _lock: fs::File,
}

/// Keeps what is in the cache from being removed, while others may add to it.
#[derive(Debug)]
pub(crate) struct InUse {
    _lock: fs::File,
}

impl Cache {
    /// Opens it, and waits for whoever else has it open.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            _lock: lock::folder(folder, "fetches what guests are made of")?,
            folder: folder.to_owned(),
        })
    }

    /// Lets others add to it, but not remove what is in it now.
    pub(super) fn into_use(self) -> anyhow::Result<InUse> {
        let path = self.folder.join(USED);
        let open = || {
            let lock = fs::File::create(&path)?;
            lock.lock_shared()?;
            Ok::<_, std::io::Error>(lock)
        };
        Ok(InUse {
            _lock: open().with_context(|| format!("locking {}", path.display()))?,
        })
    }

    /// Whether nobody uses what is in it.
    fn is_unused(&self) -> anyhow::Result<bool> {
        let path = self.folder.join(USED);
        let lock =
            fs::File::create(&path).with_context(|| format!("opening {}", path.display()))?;
        Ok(lock.try_lock().is_ok())
    }

    /// The folder for apt's own lists.
    pub(super) fn apt(&self) -> PathBuf {
        self.folder.join("apt")
    }

    /// Where these packages are unpacked, if they are, and whole.
    pub(super) fn find(&self, packages: &[Package]) -> Option<PathBuf> {
        let folder = self.bundle(packages);
        is_whole(&folder).then(|| folder.join("root"))
    }

    /// Unpacks what `fetch` puts into the folder it is given, in place of whatever is left of these packages.
    pub(super) fn add(
        &self,
        packages: &[Package],
        fetch: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let beside = tempfile::tempdir_in(&self.folder).context("a folder in the cache")?;
        let fetched = beside.path().join("fetched");
        fs::create_dir(&fetched)?;
        fetch(&fetched)?;
        let root = beside.path().join("root");
        for entry in fs::read_dir(&fetched).context("listing what was fetched")? {
            let file = entry.context("listing what was fetched")?.path();
            let mut unpack = Command::new("dpkg-deb");
            if !succeeds(unpack.arg("--extract").arg(&file).arg(&root))? {
                bail!("{} cannot be unpacked", file.display());
            }
        }
        fs::remove_dir_all(&fetched)?;
        fs::write(beside.path().join("files"), list(&root)?)?;
        let folder = self.bundle(packages);
        let place = || -> std::io::Result<()> {
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
            // Only what is whole gets its name.
            fs::rename(beside.path(), &folder)
        };
        place().with_context(|| format!("placing {}", folder.display()))?;
        Ok(folder.join("root"))
    }

    /// The packages that served `purpose` when they were last chosen; none if there is no telling.
    pub(super) fn chosen(&self, purpose: &str) -> Option<Vec<Package>> {
        self.all_chosen().remove(purpose)
    }

    /// Notes what serves `purpose` from now on, and removes what serves nothing any more, unless somebody has guests running
    /// that may be made of it.
    pub(super) fn choose(&self, purpose: &str, packages: &[Package]) -> anyhow::Result<()> {
        let mut chosen = self.all_chosen();
        chosen.insert(purpose.to_owned(), packages.to_vec());
        let text = serde_json::to_string_pretty(&chosen)?;
        let path = self.folder.join(CHOSEN);
        let fresh = path.with_extension("fresh");
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &path))
            .with_context(|| format!("writing {}", path.display()))?;
        if !self.is_unused()? {
            return Ok(());
        }
        let used: Vec<PathBuf> = chosen.values().map(|each| self.bundle(each)).collect();
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let name = entry.file_name();
            // Whoever was killed while it unpacked has left a temporary folder.
            let is_ours = name.len() == KEY || name.to_string_lossy().starts_with(".tmp");
            if is_ours && !used.contains(&entry.path()) {
                fs::remove_dir_all(entry.path())
                    .with_context(|| format!("removing {}", entry.path().display()))?;
            }
        }
        Ok(())
    }

    fn all_chosen(&self) -> Chosen {
        // What is missing or garbled is chosen anew.
        let text = fs::read_to_string(self.folder.join(CHOSEN)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn bundle(&self, packages: &[Package]) -> PathBuf {
        self.folder.join(key(packages))
    }
}

/// The name of some packages together: the digest of their digests, in whatever order they come.
fn key(packages: &[Package]) -> String {
    let mut digests: Vec<&str> = packages.iter().map(|each| each.sha256.as_str()).collect();
    digests.sort_unstable();
    digests.dedup();
    let digest = Sha256::digest(digests.join("\n"));
    let bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.concat()
}

/// Whether every file that was unpacked into `bundle` is there in its full size.
fn is_whole(bundle: &Path) -> bool {
    listing::is_whole(&bundle.join("files"), &bundle.join("root"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, digit: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: "1".to_owned(),
            sha256: digit.repeat(64),
            depends: Vec::new(),
        }
    }

    #[test]
    fn the_key_is_of_the_digests_alone() {
        let [a, b] = [package("a", "1"), package("b", "2")];
        let both = key(&[a.clone(), b.clone()]);
        assert_eq!(both.len(), KEY);
        assert_eq!(both, key(&[b.clone(), a.clone()]));
        assert_eq!(
            key(&[package("renamed", "1")]),
            key(std::slice::from_ref(&a))
        );
        assert_ne!(both, key(&[a]));
        assert_ne!(key(&[b]), key(&[]));
    }

    /// A cache with one bundle of one file, made without dpkg.
    fn cache_with(folder: &Path, packages: &[Package]) -> Cache {
        let cache = Cache::open(folder).unwrap();
        let bundle = cache.bundle(packages);
        fs::create_dir_all(bundle.join("root/boot")).unwrap();
        fs::write(bundle.join("root/boot/vmlinuz"), "kernel").unwrap();
        fs::write(bundle.join("files"), list(&bundle.join("root")).unwrap()).unwrap();
        cache
    }

    fn check(harm: impl Fn(&Path), is_found: bool) {
        let folder = tempfile::tempdir().unwrap();
        let packages = [package("linux", "3")];
        let cache = cache_with(folder.path(), &packages);
        harm(&cache.bundle(&packages));
        assert_eq!(cache.find(&packages).is_some(), is_found);
    }

    #[test]
    fn what_is_not_whole_is_not_found() {
        check(|_| {}, true);
        check(|bundle| fs::remove_dir_all(bundle).unwrap(), false);
        check(
            |bundle| fs::write(bundle.join("root/boot/vmlinuz"), "k").unwrap(),
            false,
        );
        check(
            |bundle| fs::remove_file(bundle.join("root/boot/vmlinuz")).unwrap(),
            false,
        );
        check(
            |bundle| fs::write(bundle.join("files"), "6 boot").unwrap(),
            false,
        );
        check(|bundle| fs::write(bundle.join("files"), "").unwrap(), false);
        check(
            |bundle| fs::write(bundle.join("files"), "garbled\nend").unwrap(),
            false,
        );
    }

    #[test]
    fn a_choice_is_kept_and_what_it_replaces_goes() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = [[package("linux", "3")], [package("linux", "4")]];
        drop(cache_with(folder.path(), &old));
        let cache = cache_with(folder.path(), &new);
        cache.choose("6.1", &old).unwrap();
        assert!(cache.find(&old).is_some() && cache.find(&new).is_none());
        assert_eq!(cache.chosen("6.1").as_deref(), Some(&old[..]));
        assert_eq!(cache.chosen("6.12"), None);
        fs::write(folder.path().join(CHOSEN), "{garbled").unwrap();
        assert_eq!(cache.chosen("6.1"), None);
        let in_use = cache.into_use().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        cache.choose("6.1", &new).unwrap();
        assert!(cache.find(&old).is_some(), "somebody uses it");
        drop(in_use);
        cache.choose("6.1", &new).unwrap();
        assert!(cache.find(&old).is_none());
    }
}
