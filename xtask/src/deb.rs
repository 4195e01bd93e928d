//! `cargo xtask deb`: the agent as a package of Debian's, for machines without Kubernetes.
//!
//! What goes into it lies under deploy/ and docs/ as it is; `dpkg-deb` puts it together, and the same files make the same bytes.
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    Verdict,
    static_program::{self, Profile},
    workspace::{self, succeeds},
};

/// Files as they are, and where they go.
const FILES: [(&str, &str); 6] = [
    ("deploy/deb/config.yaml", CONFIG),
    (
        "deploy/completions/brink.bash",
        "usr/share/bash-completion/completions/brink",
    ),
    (
        "deploy/completions/_brink",
        "usr/share/zsh/vendor-completions/_brink",
    ),
    (
        "deploy/completions/brink.fish",
        "usr/share/fish/vendor_completions.d/brink.fish",
    ),
    (
        "deploy/examples/node.yaml",
        "usr/share/doc/brink/examples/node.yaml",
    ),
    (
        "deploy/examples/workstation.yaml",
        "usr/share/doc/brink/examples/workstation.yaml",
    ),
];
/// The one file that is its owner's once it is there.
const CONFIG: &str = "etc/brink/config.yaml";
/// The folder of drop-ins, which is empty.
const DROP_INS: &str = "etc/brink/conf.d";
const UNIT: (&str, &str) = (
    "deploy/systemd/brink.service",
    "usr/lib/systemd/system/brink.service",
);
/// Where the unit says that the program is when it was installed by hand, and where a package puts it.
const PLACES: [&str; 2] = ["/usr/local/bin/brink", "/usr/bin/brink"];
/// The name under which kubectl finds the program as a plugin, beside it.
const PLUGIN: &str = "usr/bin/kubectl-brink";
const MANUAL: (&str, &str) = ("docs/man", "usr/share/man/man1");
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// What every file's time is said to be, in seconds since 1970: the first of January 2026.
const TIME: &str = "1767225600";

/// Options of `cargo xtask deb`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The folder that the package is written to [default: the target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A static program that was built before, instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Makes the package, and says where it is.
///
/// # Errors
/// When the program cannot be built, or `dpkg-deb` is missing or fails.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let metadata = workspace::metadata()?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => static_program::build(&metadata, Profile::Release)?,
    };
    let out = args.out.as_ref().unwrap_or(&metadata.target_directory);
    let package = write(&program, out)?;
    println!("{}", package.display());
    println!("  sudo dpkg --install {}", package.display());
    println!("  sudo systemctl enable --now brink");
    Ok(Verdict::Passed)
}

/// Writes the package of a program into a folder.
///
/// # Errors
/// When it is no static program, something cannot be written, or `dpkg-deb` is missing or fails.
pub fn write(program: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let bytes = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let architecture = static_program::architecture(&bytes).with_context(|| {
        format!(
            "{} would depend on the libraries of one release",
            program.display()
        )
    })?;
    let work = tempfile::tempdir().context("a folder for the package")?;
    let tree = Tree(work.path().join("brink"));
    tree.put(PLACES[1], &bytes, 0o755)?;
    symlink("brink", tree.0.join(PLUGIN)).with_context(|| format!("making {PLUGIN}"))?;
    for (from, to) in FILES {
        tree.put(to, &read(from)?, 0o644)?;
    }
    tree.folder(DROP_INS)?;
    tree.put(UNIT.1, unit()?.as_bytes(), 0o644)?;
    tree.manual()?;
    tree.put(
        "usr/share/doc/brink/copyright",
        copyright()?.as_bytes(),
        0o644,
    )?;
    tree.put_packed("usr/share/doc/brink/changelog", &read("CHANGELOG.md")?)?;
    tree.describe(architecture)?;
    let version = env!("CARGO_PKG_VERSION");
    let package = folder.join(format!("brink_{version}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--build", "--root-owner-group", "-Zxz"]);
    build
        .arg(&tree.0)
        .arg(&package)
        .env("SOURCE_DATE_EPOCH", TIME);
    build.stdout(std::process::Stdio::null());
    if !succeeds(&mut build).context("making a package needs Debian's dpkg")? {
        bail!("dpkg-deb cannot make {}", package.display());
    }
    Ok(package)
}

fn read(path: &str) -> anyhow::Result<Vec<u8>> {
    fs::read(workspace::root().join(path)).with_context(|| format!("reading {path}"))
}

fn text(path: &str) -> anyhow::Result<String> {
    String::from_utf8(read(path)?).with_context(|| path.to_owned())
}

/// The unit, for a program that a package has put in its place.
fn unit() -> anyhow::Result<String> {
    let text = text(UNIT.0)?;
    if !text.contains(PLACES[0]) {
        bail!("{} does not start {}", UNIT.0, PLACES[0]);
    }
    Ok(text.replace(PLACES[0], PLACES[1]))
}

/// Both licences, of which one may be chosen.
fn copyright() -> anyhow::Result<String> {
    let mut all =
        "Brink may be used under either of these licences, Apache-2.0 or MIT.\n".to_owned();
    for name in LICENCES {
        all.push('\n');
        all.push_str(&text(name)?);
    }
    Ok(all)
}

/// The files of the package, as they will lie on a machine.
struct Tree(PathBuf);

impl Tree {
    fn put(&self, path: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        let path = self.0.join(path.trim_start_matches('/'));
        let put = || -> std::io::Result<()> {
            if let Some(folder) = path.parent() {
                make_folder(folder)?;
            }
            fs::write(&path, bytes)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
        };
        put().with_context(|| format!("writing {}", path.display()))
    }

    fn folder(&self, path: &str) -> anyhow::Result<()> {
        make_folder(&self.0.join(path)).with_context(|| format!("making {path}"))
    }

    /// Packs a text with `gzip`, as manual pages and changelogs are, without its time.
    fn put_packed(&self, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.put(path, bytes, 0o644)?;
        let mut gzip = Command::new("gzip");
        gzip.args(["-9", "--no-name"]).arg(self.0.join(path));
        if !succeeds(&mut gzip)? {
            bail!("gzip cannot pack {path}");
        }
        Ok(())
    }

    fn manual(&self) -> anyhow::Result<()> {
        let (from, to) = MANUAL;
        for page in workspace::files_below(&workspace::root().join(from))? {
            let name = page
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let bytes = fs::read(&page).with_context(|| page.display().to_string())?;
            self.put_packed(&format!("{to}/{name}"), &bytes)?;
        }
        Ok(())
    }

    /// What dpkg asks a package for.
    fn describe(&self, architecture: &str) -> anyhow::Result<()> {
        let mut bytes = 0;
        for file in workspace::files_below(&self.0)? {
            bytes += fs::symlink_metadata(&file)?.len();
        }
        let control = text("deploy/deb/control")?
            .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
            .replace("@ARCHITECTURE@", architecture)
            .replace("@SIZE@", &bytes.div_ceil(1024).to_string());
        self.put("DEBIAN/control", control.as_bytes(), 0o644)?;
        self.put("DEBIAN/conffiles", format!("/{CONFIG}\n").as_bytes(), 0o644)?;
        for script in SCRIPTS {
            let bytes = read(&format!("deploy/deb/{script}"))?;
            self.put(&format!("DEBIAN/{script}"), &bytes, 0o755)?;
        }
        Ok(())
    }
}

/// A folder that everybody may look into, whatever our umask is.
fn make_folder(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_folder(parent)?;
    }
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
