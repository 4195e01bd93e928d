//! Builds a cluster's programs from nothing but Debian's packages; nothing is installed on the system.
//!
//! The package `kubernetes` builds `kubectl` alone, yet its source is the whole tree with everything it needs, so that
//! Debian's own Go makes the rest of it without a network.
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::{image, supply::KUBERNETES};
use crate::{
    apt::Apt,
    workspace::{stdout_of, succeeds},
};

/// The suite with the last Kubernetes that has its whole source. Its programs run on later ones too.
const SUITE: &str = "bookworm";
const SOURCE: &str = "kubernetes";
/// The compiler that this Kubernetes is built with, and where its package puts it.
const GO: [&str; 2] = ["golang-1.19-go", "golang-1.19-src"];
const GOROOT: &str = "usr/lib/go-1.19";
/// What runs beside Kubernetes, as Debian built it.
const PROGRAMS: [&str; 6] = [
    "etcd-server",
    "kubernetes-client",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
];
/// What is taken out of these packages, and where it goes.
const TAKEN: [(&str, &str); 10] = [
    ("usr/bin/etcd", "bin"),
    ("usr/bin/kubectl", "bin"),
    ("usr/bin/containerd", "bin"),
    ("usr/bin/containerd-shim-runc-v2", "bin"),
    ("usr/bin/ctr", "bin"),
    ("usr/sbin/runc", "bin"),
    ("usr/lib/cni/ptp", "cni"),
    ("usr/lib/cni/host-local", "cni"),
    ("usr/lib/cni/loopback", "cni"),
    ("bin/busybox", "bin"),
];
/// What is built.
const BUILT: [&str; 4] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
];
/// Cloud providers and Docker are left out: they take long to build, and a node with containerd needs neither.
const TAGS: &str = "providerless dockerless";
/// The packages that tell a program its version.
const VERSIONS: [&str; 2] = ["component-base/version", "client-go/pkg/version"];
/// Of the tree, what has types that the API server describes.
const STAGING: [&str; 13] = [
    "api",
    "apimachinery",
    "apiserver",
    "apiextensions-apiserver",
    "kube-aggregator",
    "client-go",
    "component-base",
    "metrics",
    "cloud-provider",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
];
/// Marks these types.
const DESCRIBED: &str = "+k8s:openapi-gen=";

/// The folder that is built in.
#[derive(Debug)]
pub(super) struct Work {
    folder: PathBuf,
}

impl Work {
    /// Takes the folder; what a build that was killed has compiled serves again.
    ///
    /// # Errors
    /// When it cannot be emptied or written to.
    pub(super) fn begin(folder: &Path) -> anyhow::Result<Self> {
        let begin = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path == folder.join(COMPILED) {
                    continue;
                }
                if path.is_dir() {
                    fs::remove_dir_all(&path)?;
                } else {
                    fs::remove_file(&path)?;
                }
            }
            Ok(())
        };
        begin().with_context(|| format!("preparing {}", folder.display()))?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Puts everything that a cluster needs into `root`.
    ///
    /// # Errors
    /// When a package cannot be had, or something cannot be built.
    pub(super) fn build(&self, root: &Path) -> anyhow::Result<()> {
        for folder in ["bin", "cni", "images"] {
            fs::create_dir_all(root.join(folder))?;
        }
        let fetched = self.fetch()?;
        let programs = self.unpack(&fetched, "programs", &PROGRAMS)?;
        for (inside, place) in TAKEN {
            let name = Path::new(inside).file_name().unwrap_or_default();
            fs::copy(programs.join(inside), root.join(place).join(name))
                .with_context(|| format!("Debian's packages have no {inside} any more"))?;
        }
        self.unpack(&fetched, "go", &GO)?;
        let tree = self.unpack_source(&fetched)?;
        self.describe_types(&tree)?;
        eprintln!("cluster: compiling {}", BUILT.join(", "));
        self.compile(&tree, &root.join("bin"))?;
        make_images(&tree, root)
    }

    /// Removes the folder.
    ///
    /// # Errors
    /// When something in it cannot be removed.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.folder)
            .with_context(|| format!("removing {}", self.folder.display()))
    }

    fn fetch(&self) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join("fetched");
        fs::create_dir(&folder)?;
        let apt = Apt::new(&self.folder.join("apt"))?;
        let suites = apt.suites_with_sources(&[SUITE])?;
        eprintln!("cluster: fetching 170 MB from {}", apt.mirror());
        let fetch = || {
            suites.update()?;
            let packages: Vec<String> = GO
                .iter()
                .chain(&PROGRAMS)
                .map(ToString::to_string)
                .collect();
            suites.download(&packages, &folder)?;
            suites.download_source(SOURCE, &folder)
        };
        fetch().with_context(|| {
            let mirror = apt.mirror();
            format!(
                "{mirror} does not give the packages of {SUITE} (the source `{SOURCE}`, {} and {}); is the network there, and \
                 does this mirror still carry {SUITE}?",
                GO.join(", "),
                PROGRAMS.join(", ")
            )
        })?;
        Ok(folder)
    }

    /// Unpacks packages into one folder.
    fn unpack(&self, fetched: &Path, name: &str, packages: &[&str]) -> anyhow::Result<PathBuf> {
        let root = self.folder.join(name);
        for package in packages {
            let file = find(fetched, &format!("{package}_"), ".deb")?;
            let mut unpack = Command::new("dpkg-deb");
            if !succeeds(unpack.arg("--extract").arg(&file).arg(&root))? {
                bail!("{} cannot be unpacked", file.display());
            }
        }
        Ok(root)
    }

    /// Unpacks the source where Go wants it: it is from before modules.
    fn unpack_source(&self, fetched: &Path) -> anyhow::Result<PathBuf> {
        let archive = find(fetched, "kubernetes_", ".orig.tar.gz")?;
        let name = archive
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !is_of_version(&name) {
            bail!("{SUITE} has {name} now, and {KUBERNETES} is what is known to work");
        }
        let tree = self.folder.join(GOPATH).join("src/k8s.io/kubernetes");
        fs::create_dir_all(&tree)?;
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--gzip", "--strip-components=1", "--file"])
            .arg(&archive);
        if !succeeds(tar.arg("--directory").arg(&tree))? {
            bail!("{} cannot be unpacked", archive.display());
        }
        Ok(tree)
    }

    /// Writes the one file that the source lacks: what the API server says of its types.
    fn describe_types(&self, tree: &Path) -> anyhow::Result<()> {
        let generator = self.folder.join("openapi-gen");
        let package = "./vendor/k8s.io/kube-openapi/cmd/openapi-gen";
        self.go(
            tree,
            &["build", "-o", &generator.to_string_lossy(), package],
        )?;
        let mut grep = Command::new("grep");
        grep.current_dir(tree)
            .args(["-rl", "--include=*.go", DESCRIBED]);
        grep.args(STAGING.map(|name| format!("staging/src/k8s.io/{name}/")))
            .args(["pkg", "cmd"]);
        let packages = packages_of(&stdout_of(&mut grep)?);
        let mut command = self.with_go(&generator, tree);
        command.args([
            "--logtostderr",
            "--go-header-file",
            "hack/boilerplate/boilerplate.generatego.txt",
        ]);
        command.args([
            "-i",
            &packages.join(","),
            "-p",
            "k8s.io/kubernetes/pkg/generated/openapi",
        ]);
        command
            .args(["-O", "zz_generated.openapi", "-r"])
            .arg(self.folder.join("violations"));
        let answer = command.output().context("starting openapi-gen")?;
        let made = tree.join("pkg/generated/openapi/zz_generated.openapi.go");
        // It fails where types break its own rules, which this Kubernetes does, and has made the file all the same.
        if !fs::metadata(&made).is_ok_and(|made| made.len() > 0) {
            let said = String::from_utf8_lossy(&answer.stderr).into_owned();
            bail!("openapi-gen has made nothing: {}", said.trim());
        }
        Ok(())
    }

    fn compile(&self, tree: &Path, into: &Path) -> anyhow::Result<()> {
        let (major, minor) = ("1", "20");
        let set = |package: &str| {
            let package = format!("k8s.io/kubernetes/vendor/k8s.io/{package}");
            format!(
                " -X {package}.gitMajor={major} -X {package}.gitMinor={minor} -X {package}.gitVersion=v{KUBERNETES}"
            )
        };
        let flags = format!("-s -w{}", VERSIONS.map(set).concat());
        let into = format!("{}/", into.display());
        let packages = BUILT.map(|name| format!("./cmd/{name}"));
        let mut arguments = vec![
            "build",
            "-tags",
            TAGS,
            "-trimpath",
            "-ldflags",
            &flags,
            "-o",
            &into,
        ];
        arguments.extend(packages.iter().map(String::as_str));
        self.go(tree, &arguments)
    }

    fn go(&self, tree: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        let go = self.folder.join("go").join(GOROOT).join("bin/go");
        if !succeeds(self.with_go(&go, tree).args(arguments))? {
            bail!(
                "`go {}` failed; what it said stands above",
                arguments.join(" ")
            );
        }
        Ok(())
    }

    /// A program that finds this Go and no other, and no network.
    fn with_go(&self, program: &Path, tree: &Path) -> Command {
        let root = self.folder.join("go").join(GOROOT);
        let path = env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.current_dir(tree);
        command.env("PATH", format!("{}:{path}", root.join("bin").display()));
        command
            .env("GOROOT", &root)
            .env("GOPATH", self.folder.join(GOPATH));
        command
            .env("GOCACHE", self.folder.join(COMPILED))
            .env("GOTMPDIR", &self.folder);
        command
            .env("GOENV", "off")
            .env("GO111MODULE", "off")
            .env("GOPROXY", "off");
        // The working directory is otherwise named with its links resolved, and then lies outside GOPATH.
        command
            .env("GOFLAGS", "")
            .env("CGO_ENABLED", "0")
            .env("PWD", tree);
        command
    }
}

/// What was compiled so far, by Go's own digests: a build that was killed goes on from there.
const COMPILED: &str = "compiled";
const GOPATH: &str = "gopath";

/// The images that a node has from its start: what holds a pod together, and what tests run.
fn make_images(tree: &Path, root: &Path) -> anyhow::Result<()> {
    let pause = root.join("bin/pause");
    let mut gcc = Command::new("gcc");
    gcc.args(["-Os", "-static", &format!("-DVERSION=v{KUBERNETES}"), "-o"])
        .arg(&pause);
    if !succeeds(gcc.arg(tree.join("build/pause/linux/pause.c")))? {
        bail!("gcc cannot build `pause`: a static libc is needed (apt-get install gcc libc6-dev)");
    }
    for (image, program) in [(&image::PAUSE, "pause"), (&image::TEST, "busybox")] {
        let program = root.join("bin").join(program);
        image.write(&program, &root.join("images"))?;
    }
    Ok(())
}

/// The one file in the folder with that begin and end.
fn find(folder: &Path, begin: &str, end: &str) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    let found = entries.flatten().find(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(begin) && name.ends_with(end)
    });
    let found = found.with_context(|| format!("apt fetched no {begin}…{end}"))?;
    Ok(found.path())
}

/// Whether the archive's name (`kubernetes_1.20.5+really1.20.2.orig.tar.gz`) says that it is our version.
fn is_of_version(archive: &str) -> bool {
    let version = archive
        .trim_start_matches("kubernetes_")
        .trim_end_matches(".orig.tar.gz");
    let upstream = version.rsplit("really").next().unwrap_or(version);
    upstream.split(['+', '~', '-']).next() == Some(KUBERNETES)
}

/// The packages of files as the generator wants them named.
fn packages_of(files: &str) -> Vec<String> {
    let folders = files.lines().filter(|file| !file.contains("/_examples/"));
    let mut folders: Vec<&str> = folders
        .filter_map(|file| Some(file.rsplit_once('/')?.0))
        .collect();
    folders.sort_unstable();
    folders.dedup();
    let name = |folder: &str| match folder.strip_prefix("staging/src/") {
        Some(staged) => format!("k8s.io/kubernetes/vendor/{staged}"),
        None => format!("k8s.io/kubernetes/{folder}"),
    };
    folders.into_iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_behind_really_counts() {
        for name in [
            "kubernetes_1.20.5+really1.20.2.orig.tar.gz",
            "kubernetes_1.20.2+dfsg.orig.tar.gz",
        ] {
            assert!(is_of_version(name), "{name}");
        }
        for name in [
            "kubernetes_1.20.2+really1.20.5.orig.tar.gz",
            "kubernetes_1.33.4.orig.tar.gz",
        ] {
            assert!(!is_of_version(name), "{name}");
        }
    }

    #[test]
    fn packages_are_named_once_each() {
        let files = "pkg/a/doc.go\nstaging/src/k8s.io/api/core/v1/doc.go\nstaging/src/k8s.io/api/core/v1/types.go\n\
                     staging/src/k8s.io/apiserver/_examples/a.go\n";
        let expected = [
            "k8s.io/kubernetes/pkg/a",
            "k8s.io/kubernetes/vendor/k8s.io/api/core/v1",
        ];
        assert_eq!(packages_of(files), expected);
    }

    #[test]
    fn what_a_killed_build_left_goes_but_for_what_it_compiled() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["fetched", COMPILED] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let work = Work::begin(folder.path()).unwrap();
        assert!(folder.path().join(COMPILED).exists());
        assert!(!folder.path().join("fetched").exists());
        work.end().unwrap();
        assert!(!folder.path().exists());
    }
}
