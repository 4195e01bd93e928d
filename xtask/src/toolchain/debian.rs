//! The standard library's source out of Debian's archive, without a change to the system's own apt.
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::workspace::stdout_of;

/// The suites that may carry a compiler newer than the stable release's, in the order they are asked.
const SUITES: [&str; 4] = ["trixie-backports", "trixie", "forky", "sid"];
/// Packages that hold `/usr/src/rustc…/library`.
const PACKAGES: [&str; 2] = ["rust-src", "rust-web-src"];
/// The mirror when the system names none.
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Puts the `library` folder of exactly that version into `folder`.
pub(super) fn fetch(version: &str, folder: &Path) -> anyhow::Result<()> {
    let mirror = mirror(&system_sources());
    for suite in SUITES {
        let apt = Apt::new(&mirror, suite)?;
        // A mirror need not carry every suite.
        if apt.update()
            && let Some(package) = apt.find(version)?
        {
            eprintln!("{package} from {suite}");
            return apt.extract(&package, folder);
        }
    }
    bail!("{mirror}: no rust-src {version} in {}", SUITES.join(", "))
}

/// Every sources file of the system, one after the other.
fn system_sources() -> String {
    let more = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten();
    let files = more
        .map(|entry| entry.path())
        .chain([PathBuf::from("/etc/apt/sources.list")]);
    // What is missing or unreadable names no mirror.
    files
        .filter_map(|file| fs::read_to_string(file).ok())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The first mirror of Debian itself, from either form: `URIs: …` or `deb [options] … suite`.
fn mirror(sources: &str) -> String {
    let uris = sources
        .lines()
        .filter(|line| line.starts_with("URIs:") || line.starts_with("deb "));
    let words = uris.flat_map(str::split_whitespace);
    let is_mirror =
        |word: &&str| word.contains("://") && word.trim_end_matches('/').ends_with("/debian");
    words
        .into_iter()
        .find(is_mirror)
        .unwrap_or(MIRROR)
        .to_owned()
}

/// An apt with sources, lists and cache of its own for one suite.
struct Apt {
    folder: TempDir,
}

impl Apt {
    fn new(mirror: &str, suite: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("a folder for apt")?;
        let prepare = || -> std::io::Result<()> {
            fs::create_dir_all(folder.path().join("lists/partial"))?;
            fs::create_dir_all(folder.path().join("cache/archives/partial"))?;
            fs::write(folder.path().join("status"), "")?;
            let source = format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
            fs::write(folder.path().join("sources.list"), source)
        };
        prepare().with_context(|| format!("preparing {}", folder.path().display()))?;
        Ok(Self { folder })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, path) in [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ] {
            let mut option = OsString::from(format!("{name}="));
            option.push(self.folder.path().join(path));
            command.arg("-o").arg(option);
        }
        for option in [
            "Dir::Etc::SourceParts=/dev/null",
            "Acquire::Languages=none",
            "APT::Sandbox::User=root",
        ] {
            command.args(["-o", option]);
        }
        command.arg("-qq").current_dir(self.folder.path());
        command
    }

    fn update(&self) -> bool {
        let answer = self.command("apt-get").arg("update").output();
        answer.is_ok_and(|answer| answer.status.success())
    }

    fn find(&self, version: &str) -> anyhow::Result<Option<String>> {
        let mut madison = self.command("apt-cache");
        Ok(package_of(
            version,
            &stdout_of(madison.arg("madison").args(PACKAGES))?,
        ))
    }

    fn extract(&self, package: &str, folder: &Path) -> anyhow::Result<()> {
        stdout_of(self.command("apt-get").args(["download", package]))?;
        let files = fs::read_dir(self.folder.path()).context("listing what apt fetched")?;
        let mut files = files.flatten().map(|entry| entry.path());
        let is_package = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "deb");
        let file = files.find(is_package).context("apt fetched no package")?;
        unpack(&file, folder).with_context(|| format!("unpacking {package}"))
    }
}

/// The first of the packages in `madison`'s list (`name | version | source`) with that upstream version.
fn package_of(version: &str, madison: &str) -> Option<String> {
    madison.lines().find_map(|line| {
        let mut fields = line.split('|').map(str::trim);
        let (name, full) = (fields.next()?, fields.next()?);
        let upstream = full.split(['+', '~', '-']).next()?;
        (upstream == version).then(|| format!("{name}={full}"))
    })
}

/// Takes `library` out of the package, next to its place and then into it, so that no half is ever seen.
fn unpack(package: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let beside = tempfile::tempdir_in(folder)?;
    let mut archive = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()?;
    let pipe = archive.stdout.take().context("dpkg-deb without output")?;
    let mut tar = Command::new("tar");
    // The folder comes first: tar applies it to what follows.
    tar.arg("--directory")
        .arg(beside.path())
        .args(["--extract", "--strip-components=4"]);
    // The package has other folders of that name deeper down.
    tar.args([
        "--wildcards",
        "--no-wildcards-match-slash",
        "./usr/src/rustc*/library",
    ]);
    let unpacked = tar.stdin(pipe).status()?;
    let read = archive.wait()?;
    if !(unpacked.success() && read.success()) {
        bail!("dpkg-deb: {read}, tar: {unpacked}");
    }
    Ok(fs::rename(
        beside.path().join("library"),
        folder.join("library"),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_mirror(sources: &str, expected: &str) {
        assert_eq!(mirror(sources), expected, "{sources}");
    }

    #[test]
    fn the_systems_mirror_is_used() {
        let both = "Types: deb\nURIs: http://security.example/debian-security\n\n\
                    Types: deb\nURIs: http://near.example/debian\nSuites: bookworm\n";
        check_mirror(both, "http://near.example/debian");
        let line =
            "deb-src http://a.example/debian x\ndeb [arch=amd64] http://b.example/debian/ x main\n";
        check_mirror(line, "http://b.example/debian/");
        check_mirror("# deb http://c.example/debian x main\n", MIRROR);
        check_mirror("", MIRROR);
    }

    #[test]
    fn only_the_exact_upstream_version_serves() {
        let list = "  rust-src | 1.94.1+dfsg1-1 | http://a sid/main\n  \
                    rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://a sid/main\n";
        let found = package_of("1.95.0", list);
        assert_eq!(found.as_deref(), Some("rust-src=1.95.0+dfsg1-2~bpo13+1"));
        assert_eq!(package_of("1.95", list), None);
        assert_eq!(package_of("1.96.0", list), None);
    }

    #[test]
    #[ignore = "slow: fetches a package from Debian's archive"]
    fn the_archive_has_the_source_of_this_compiler() {
        let answer = stdout_of(Command::new("rustc").arg("--version")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fetch(&super::super::version_of(&answer).unwrap(), folder.path()).unwrap();
        assert!(super::super::is_present(folder.path()));
        assert!(folder.path().join("library/core/src/lib.rs").is_file());
    }
}
