//! An apt with sources, lists and cache of its own, which leaves the system's alone.
use std::{
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::workspace::stdout_of;

/// The mirror when the system names none.
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// What is installed on the system, as dpkg keeps it.
const INSTALLED: &str = "/var/lib/dpkg/status";

/// The archive as the system's own mirror has it, and a folder for what is fetched from it.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    mirror: String,
}

impl Apt {
    /// An apt that keeps everything in `folder`.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        Self::of_mirror(folder, mirror(&system_sources()))
    }

    /// The same that fetches from this mirror, and not from the system's.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn of_mirror(folder: &Path, mirror: String) -> anyhow::Result<Self> {
        let prepare = || -> std::io::Result<()> {
            fs::create_dir_all(folder.join("lists/partial"))?;
            fs::write(folder.join("nothing-installed"), "")
        };
        prepare().with_context(|| format!("preparing {}", folder.display()))?;
        Ok(Self {
            folder: folder.to_owned(),
            mirror,
        })
    }

    /// Where packages come from.
    pub fn mirror(&self) -> &str {
        &self.mirror
    }

    /// The packages of these suites and no others.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn suites(&self, suites: &[&str]) -> anyhow::Result<Suites> {
        self.suites_of(suites, &["deb"])
    }

    /// The same with their source packages.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn suites_with_sources(&self, suites: &[&str]) -> anyhow::Result<Suites> {
        self.suites_of(suites, &["deb", "deb-src"])
    }

    fn suites_of(&self, suites: &[&str], kinds: &[&str]) -> anyhow::Result<Suites> {
        let name = suites.join("+");
        let lists = self.folder.join("lists");
        let own = self.folder.join(&name);
        let line = |kind: &&str, suite: &&str| {
            format!(
                "{kind} [signed-by={KEYRING}] {} {suite} main\n",
                self.mirror
            )
        };
        let of_kind = |kind| suites.iter().map(move |suite| line(kind, suite));
        let sources: Vec<String> = kinds.iter().flat_map(of_kind).collect();
        let prepare = || -> std::io::Result<()> {
            fs::create_dir_all(own.join("archives/partial"))?;
            fs::write(own.join("sources.list"), sources.concat())
        };
        prepare().with_context(|| format!("preparing {}", own.display()))?;
        Ok(Suites {
            name,
            own,
            lists,
            nothing_installed: self.folder.join("nothing-installed"),
        })
    }
}

/// Some suites of the archive, with apt's lists of what is in them.
#[derive(Debug)]
pub struct Suites {
    name: String,
    own: PathBuf,
    /// Shared by all suites, so that none is fetched twice.
    lists: PathBuf,
    nothing_installed: PathBuf,
}

impl Suites {
    /// The suite that was named last.
    pub fn last(&self) -> &str {
        self.name.rsplit('+').next().unwrap_or_default()
    }

    /// Brings the lists up to date.
    ///
    /// # Errors
    /// With apt's last word, when a suite cannot be had.
    pub fn update(&self) -> anyhow::Result<()> {
        let mut apt = self.command("apt-get");
        // Without cleaning up, which would remove the lists of other suites.
        apt.args(["-o", "APT::Get::List-Cleanup=false"]);
        apt.args(["-o", "APT::Update::Error-Mode=any", "update"]);
        self.run_quietly(&mut apt)
    }

    /// Runs apt to its end; where it fails, its last word is the error.
    fn run_quietly(&self, apt: &mut Command) -> anyhow::Result<()> {
        let answer = apt.output().context("starting apt-get")?;
        if !answer.status.success() {
            let said = String::from_utf8_lossy(&answer.stderr).into_owned();
            let word = said.lines().find(|line| line.starts_with("E: "));
            let word = word.unwrap_or("E: apt-get failed without a word");
            bail!("{}: {}", self.name, word.trim_start_matches("E: "));
        }
        Ok(())
    }

    /// apt or one of its siblings, to which nothing is installed.
    pub fn command(&self, program: &str) -> Command {
        self.command_knowing(program, &self.nothing_installed)
    }

    /// The same, knowing what the system has.
    pub fn command_on_system(&self, program: &str) -> Command {
        self.command_knowing(program, Path::new(INSTALLED))
    }

    fn command_knowing(&self, program: &str, installed: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, path) in [
            (
                "Dir::Etc::SourceList",
                self.own.join("sources.list").as_path(),
            ),
            ("Dir::State::Lists", self.lists.as_path()),
            ("Dir::State::status", installed),
            ("Dir::Cache", self.own.as_path()),
        ] {
            let mut option = OsString::from(format!("{name}="));
            option.push(path);
            command.arg("-o").arg(option);
        }
        for option in [
            "Dir::Etc::SourceParts=/dev/null",
            "Dir::Etc::Preferences=/dev/null",
            "Dir::Etc::PreferencesParts=/dev/null",
            "Acquire::Languages=none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::Retries=2",
            "APT::Sandbox::User=root",
        ] {
            command.args(["-o", option]);
        }
        command.env("LC_ALL", "C");
        command.arg("-qq").current_dir(&self.own);
        command
    }

    /// Fetches packages, each named as `name` or `name=version`, into `folder`. apt checks their digests.
    ///
    /// # Errors
    /// When one of them cannot be had.
    pub fn download(&self, packages: &[String], folder: &Path) -> anyhow::Result<()> {
        let mut apt = self.command("apt-get");
        apt.current_dir(folder).arg("download").args(packages);
        stdout_of(&mut apt).map(drop)
    }

    /// Fetches the files of a source package into `folder`. apt checks their digests.
    ///
    /// # Errors
    /// With apt's last word, when it cannot be had.
    pub fn download_source(&self, name: &str, folder: &Path) -> anyhow::Result<()> {
        let mut apt = self.command("apt-get");
        apt.current_dir(folder);
        self.run_quietly(apt.args(["source", "--download-only", name]))
    }
}

impl fmt::Display for Suites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
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
    fn every_command_keeps_to_its_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        let apt = Apt::new(folder.path()).unwrap();
        let suites = apt.suites(&["trixie", "trixie-backports"]).unwrap();
        let said = format!("{:?}", suites.command("apt-get"));
        for option in ["Dir::Etc::SourceList=", "Dir::State::Lists=", "Dir::Cache="] {
            let own = format!("{option}{}", folder.path().display());
            assert!(said.contains(&own), "{option} is not in {said}");
        }
        let list = folder.path().join("trixie+trixie-backports/sources.list");
        let list = fs::read_to_string(list).unwrap();
        assert_eq!(list.lines().count(), 2, "{list}");
        assert!(format!("{:?}", suites.command_on_system("apt-get")).contains(INSTALLED));
    }
}
