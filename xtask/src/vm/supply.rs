//! What a guest is made of and this machine lacks: QEMU, busybox and kernels, fetched into the cache and never installed.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::{
    cache::{Cache, InUse},
    filesystems,
    packages::{self, Package},
    series::Series,
};
use crate::{
    apt::{Apt, Suites},
    workspace::{self, stdout_of},
};

/// What the host runs. QEMU before 10 corrupts guests that it emulates.
const TOOLS: [&str; 5] = [
    "qemu-system-x86",
    "qemu-system-common",
    "qemu-system-data",
    "seabios",
    "busybox-static",
];
/// Depends on the newest kernel of a suite, in the flavour for virtual machines.
const NEWEST_KERNEL: &str = "linux-image-cloud-amd64";

/// What users install against running out of memory, all from one suite.
const PEERS: [&str; 4] = ["earlyoom", "nohang", "oomd", "systemd-oomd"];
const SUITE_OF_PEERS: &str = "trixie";

/// The tools that Brink is compared with, unpacked.
#[derive(Debug)]
pub(crate) struct Peers {
    /// Where they are unpacked, with everything they need.
    pub(crate) root: PathBuf,
    /// Names and versions of their packages.
    pub(crate) versions: Vec<(String, String)>,
}

/// The programs that a guest needs, unpacked.
#[derive(Debug)]
pub(super) struct Tools {
    /// Where the packages of QEMU are unpacked.
    pub(super) root: PathBuf,
    /// A busybox that needs nothing else.
    pub(super) busybox: PathBuf,
    /// What makes filesystems that it cannot make: where a guest has it, and the file. Nothing until it was asked for.
    pub(super) filesystems: Vec<(String, PathBuf)>,
}

/// Swap in compressed memory and what it compresses with, and filesystems in files with their quotas; by folder and name.
const MODULES: [(&str, &str); 12] = [
    ("crypto", "lzo-rle"),
    ("lib/lz4", "lz4_compress"),
    ("lib/lz4", "lz4hc_compress"),
    ("mm", "zsmalloc"),
    ("drivers/block/zram", "zram"),
    ("drivers/block", "loop"),
    ("fs/quota", "quota_tree"),
    ("fs/quota", "quota_v2"),
    ("lib", "libcrc32c"),
    ("fs/xfs", "xfs"),
    ("fs/overlayfs", "overlay"),
    ("fs/fuse", "fuse"),
];

/// A kernel, unpacked.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) series: Series,
    /// What is booted.
    pub(super) image: PathBuf,
    /// Modules that tests need, each behind those it needs itself.
    pub(super) modules: Vec<PathBuf>,
}

/// Debian's archive, and what of it is in the cache.
pub(super) struct Supply {
    cache: Cache,
    apt: Apt,
    /// The archive's failures that were told already.
    told: Vec<String>,
}

impl Supply {
    /// Opens the cache.
    ///
    /// # Errors
    /// When there is no place for it.
    pub(super) fn open() -> anyhow::Result<Self> {
        let cache = Cache::open(&workspace::cache()?.join("vm"))?;
        let apt = Apt::new(&cache.apt())?;
        Ok(Self {
            cache,
            apt,
            told: Vec::new(),
        })
    }

    /// QEMU 10 or newer, with the libraries that this system lacks, and busybox.
    ///
    /// # Errors
    /// When neither the archive nor the cache has them.
    pub(super) fn tools(&mut self) -> anyhow::Result<Tools> {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let root = self.obtain("tools", suites_of_system(&release)?, choose_tools)?;
        let busybox = first_file(&root, &["usr/bin", "bin"], "busybox");
        Ok(Tools {
            busybox: busybox.context("the package busybox-static has no busybox")?,
            root,
            filesystems: Vec::new(),
        })
    }

    /// What makes filesystems that busybox cannot make. Where neither the archive nor the cache has it that is told, and there
    /// is nothing.
    pub(super) fn filesystems(&mut self) -> Vec<(String, PathBuf)> {
        let root = self.obtain("filesystems", &[filesystems::SUITE], choose_filesystems);
        let files = root.and_then(|root| filesystems::files(&root));
        files.unwrap_or_else(|error| {
            eprintln!("vm: {error:#}; tests that make filesystems with it are skipped");
            Vec::new()
        })
    }

    /// The newest kernel of a series.
    ///
    /// # Errors
    /// When neither the archive nor the cache has one.
    pub(super) fn kernel(&mut self, series: Series) -> anyhow::Result<Kernel> {
        let root = self.obtain(&series.to_string(), &[series.suite()], choose_kernel)?;
        let modules = fs::read_dir(root.join("usr/lib/modules")).into_iter();
        let mut folders = modules.flatten().flatten().map(|entry| entry.path());
        // Since 7.0 it lies beside its modules.
        let image = first_file(&root, &["boot"], "vmlinuz-")
            .or_else(|| folders.find_map(|folder| first_file(&folder, &[""], "vmlinuz")));
        Ok(Kernel {
            series,
            image: image.with_context(|| format!("no kernel in {}", root.display()))?,
            modules: modules_of(&root),
        })
    }

    /// Lets others fetch, while what was obtained stays where it is.
    ///
    /// # Errors
    /// When the cache cannot be locked.
    pub(super) fn into_use(self) -> anyhow::Result<InUse> {
        self.cache.into_use()
    }

    /// The tools that Brink is compared with.
    ///
    /// # Errors
    /// When neither the archive nor the cache has them.
    pub(super) fn peers(&mut self) -> anyhow::Result<Peers> {
        const PURPOSE: &str = "peers";
        let root = self.obtain(PURPOSE, &[SUITE_OF_PEERS], choose_peers)?;
        let packages = self.cache.chosen(PURPOSE).unwrap_or_default();
        let versions = packages
            .into_iter()
            .filter(|package| PEERS.contains(&package.name.as_str()))
            .map(|package| (package.name, package.version))
            .collect();
        Ok(Peers { root, versions })
    }

    /// The folder with the newest packages for `purpose`; those in the cache, if the archive does not give them.
    fn obtain(
        &mut self,
        purpose: &str,
        suites: &[&str],
        choose: fn(&Suites) -> anyhow::Result<Vec<Package>>,
    ) -> anyhow::Result<PathBuf> {
        let error = match self.obtain_fresh(purpose, suites, choose) {
            Ok(root) => return Ok(root),
            Err(error) => error,
        };
        let last = self.cache.chosen(purpose);
        let Some(root) = last.and_then(|packages| self.cache.find(&packages)) else {
            return Err(error);
        };
        let reason = format!("{error:#}");
        if !self.told.contains(&reason) {
            eprintln!("vm: {reason}; what is in the cache serves");
            self.told.push(reason);
        }
        Ok(root)
    }

    fn obtain_fresh(
        &self,
        purpose: &str,
        suites: &[&str],
        choose: fn(&Suites) -> anyhow::Result<Vec<Package>>,
    ) -> anyhow::Result<PathBuf> {
        let suites = self.apt.suites(suites)?;
        suites.update()?;
        let packages = choose(&suites)?;
        let root = if let Some(root) = self.cache.find(&packages) {
            root
        } else {
            let names: Vec<String> = packages.iter().map(Package::exact).collect();
            eprintln!("vm: fetching for {purpose}: {}", names.join(" "));
            let fetch = |folder: &Path| suites.download(&names, folder);
            self.cache.add(&packages, fetch)?
        };
        self.cache.choose(purpose, &packages)?;
        Ok(root)
    }
}

/// The modules that tests need, as far as the kernel has not got them built in.
fn modules_of(root: &Path) -> Vec<PathBuf> {
    let folders = ["usr/lib/modules", "lib/modules"].map(|folder| root.join(folder));
    let releases = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    let kernels: Vec<PathBuf> = releases.map(|entry| entry.path().join("kernel")).collect();
    let found = MODULES.iter().filter_map(|(folder, name)| {
        let prefix = format!("{name}.ko");
        kernels
            .iter()
            .find_map(|kernel| first_file(&kernel.join(folder), &[""], &prefix))
    });
    found.collect()
}

/// The suites that have a QEMU for this system, the one it is taken from last.
fn suites_of_system(os_release: &str) -> anyhow::Result<&'static [&'static str]> {
    let mut values = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(match values.next().map(|name| name.trim_matches('"')) {
        Some("bookworm") => &["bookworm", "bookworm-backports"],
        Some("trixie") => &["trixie"],
        other => bail!(
            "QEMU 10 is taken from Debian 12 or 13, and this is {}",
            other.unwrap_or("another system")
        ),
    })
}

/// What this system would have to install for QEMU to run.
fn choose_tools(suites: &Suites) -> anyhow::Result<Vec<Package>> {
    would_install(suites, suites.command_on_system("apt-get"), &TOOLS)
}

/// The peers and all they need, on a system with nothing installed.
fn choose_peers(suites: &Suites) -> anyhow::Result<Vec<Package>> {
    would_install(suites, suites.command("apt-get"), &PEERS)
}

/// What makes filesystems, by name.
fn choose_filesystems(suites: &Suites) -> anyhow::Result<Vec<Package>> {
    let found = show(suites, &filesystems::PACKAGES.map(str::to_owned))?;
    let is_found = |name: &str| found.iter().any(|each| each.name == name);
    match filesystems::PACKAGES.iter().find(|name| !is_found(name)) {
        None => Ok(found),
        Some(missing) => bail!("{suites} has no package {missing}"),
    }
}

fn would_install(
    suites: &Suites,
    mut apt: Command,
    names: &[&str],
) -> anyhow::Result<Vec<Package>> {
    apt.args(["--simulate", "--no-install-recommends", "--reinstall"]);
    apt.args(["--target-release", suites.last(), "install"]);
    let simulation = stdout_of(apt.args(names))?;
    let exact = packages::to_install(&simulation);
    let found = show(suites, &exact)?;
    match exact
        .iter()
        .find(|name| !found.iter().any(|each| each.exact() == **name))
    {
        None if !found.is_empty() => Ok(found),
        missing => bail!("apt would install {missing:?}, and does not know its digest"),
    }
}

/// The newest kernel that is there with everything it needs: what the meta package leads to, or if that leads nowhere the highest
/// version.
fn choose_kernel(suites: &Suites) -> anyhow::Result<Vec<Package>> {
    if let Some(mut led) = follow(suites, NEWEST_KERNEL)? {
        led.retain(|package| package.name != NEWEST_KERNEL);
        if !led.is_empty() {
            return Ok(led);
        }
    }
    let mut apt = suites.command("apt-cache");
    let names = stdout_of(apt.args(["pkgnames", "linux-image-"]))?;
    let names = names
        .lines()
        .filter(|name| is_of_kernel(name) && *name != NEWEST_KERNEL);
    for name in packages::newest_first(names) {
        if let Some(whole) = follow(suites, name)? {
            return Ok(whole);
        }
    }
    bail!("{suites} has no whole kernel of the cloud flavour")
}

/// A package and those of a kernel that it depends on, near or far; nothing if one of them is not there.
fn follow(suites: &Suites, name: &str) -> anyhow::Result<Option<Vec<Package>>> {
    let mut found: Vec<Package> = Vec::new();
    let mut names = vec![name.to_owned()];
    while let Some(next) = names.pop() {
        let Some(package) = show(suites, &[next])?.into_iter().next() else {
            return Ok(None);
        };
        let depends = package.depends.iter();
        let is_new = |name: &&String| !found.iter().any(|each| each.name == **name);
        names.extend(
            depends
                .filter(|name| is_of_kernel(name))
                .filter(is_new)
                .cloned(),
        );
        found.push(package);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup_by(|a, b| a.name == b.name);
    Ok(Some(found))
}

/// Kernels are split over several packages since 7.0: image, binary, modules, base.
fn is_of_kernel(name: &str) -> bool {
    name.starts_with("linux-") && name.contains("cloud-amd64") && !name.contains("-dbg")
}

/// What the lists say of these packages, `name` or `name=version`; one that is not in them is left out.
fn show(suites: &Suites, names: &[String]) -> anyhow::Result<Vec<Package>> {
    let mut apt = suites.command("apt-cache");
    let answer = apt.args(["show", "--no-all-versions"]).args(names);
    let answer = answer.output().context("starting apt-cache")?;
    let mut found = packages::parse(&String::from_utf8_lossy(&answer.stdout));
    found.sort_by_key(Package::exact);
    // The same version may be in two suites.
    found.dedup_by_key(|each| each.exact());
    Ok(found)
}

/// The first file whose name begins like that, in the first folder that has one.
fn first_file(root: &Path, folders: &[&str], prefix: &str) -> Option<PathBuf> {
    let in_folder = |folder: &&str| {
        let entries = fs::read_dir(root.join(folder))
            .into_iter()
            .flatten()
            .flatten();
        let mut named: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .map(|entry| entry.path())
            .collect();
        named.sort();
        named.into_iter().find(|path| path.is_file())
    };
    folders.iter().find_map(in_folder)
}

#[cfg(test)]
#[path = "supply_tests.rs"]
mod tests;
