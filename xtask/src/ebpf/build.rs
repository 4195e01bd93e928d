//! One reproducible build of the kernel programs: no path of the machine, no setting of its user.
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    tools::Tool,
    workspace::{self, stdout_of, succeeds},
};

/// The linker of kernel programs. Later versions want an LLVM of the system; this one takes the compiler's own.
const LINKER: Tool = Tool {
    name: "bpf-linker",
    version: "0.10.4",
};
/// The binaries of the package, each one object.
const OBJECTS: [&str; 3] = ["brink-programs", "brink-survey", "brink-truth"];
const TARGET: &str = "bpfel-unknown-none";

/// Builds every object and returns its name and bytes, as the linker left them.
pub(super) fn objects() -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
    let folder = target_folder()?;
    build(&folder, &[])?;
    OBJECTS
        .into_iter()
        .map(|name| Ok((name, read(&folder, name)?)))
        .collect()
}

/// Builds the programs with their text for developers.
pub(super) fn with_log() -> anyhow::Result<Vec<u8>> {
    let folder = target_folder()?.join("log");
    build(&folder, &["--features", "debug-log"])?;
    read(&folder, OBJECTS[0])
}

fn read(folder: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    let path = folder.join(TARGET).join("release").join(name);
    fs::read(&path).with_context(|| format!("reading {}", path.display()))
}

fn build(folder: &Path, more: &[&str]) -> anyhow::Result<()> {
    let linker = LINKER.path().context("the linker of kernel programs")?;
    let mut cargo = workspace::cargo();
    cargo.args([
        "build",
        "--locked",
        "--release",
        "--package",
        "brink-ebpf",
        "--bins",
    ]);
    cargo
        .args(["--target", TARGET, "-Z", "build-std=core", "--target-dir"])
        .arg(folder);
    cargo.args(more);
    // The workspace's release profile is the agent's: stripped, and optimised while it is linked.
    for setting in [
        "strip=false",
        "lto=false",
        "codegen-units=1",
        "panic='abort'",
    ] {
        cargo.args(["--config", &format!("profile.release.{setting}")]);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags()?);
    // `build-std` is asked of a stable compiler.
    cargo.env("RUSTC_BOOTSTRAP", "1");
    for ours in ["RUSTFLAGS", "RUSTC", "RUSTC_WRAPPER", "CARGO_INCREMENTAL"] {
        cargo.env_remove(ours);
    }
    if let Some(beside) = linker
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        cargo.env("PATH", with_first(beside)?);
    }
    if !succeeds(&mut cargo)? {
        bail!("the kernel programs do not build");
    }
    Ok(())
}

/// Beside the host's own artifacts, so that neither build throws the other's away.
pub(crate) fn target_folder() -> anyhow::Result<PathBuf> {
    let target = match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => workspace::root().join("target"),
    };
    let target = std::path::absolute(target).context("the target folder")?;
    Ok(target.join("ebpf"))
}

fn with_first(folder: &Path) -> anyhow::Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(folder.to_owned()).chain(env::split_paths(&path));
    env::join_paths(all).context("PATH")
}

/// The compiler's flags, separated as Cargo wants them.
fn flags() -> anyhow::Result<OsString> {
    let sysroot = stdout_of(Command::new("rustc").args(["--print", "sysroot"]))?;
    let home = match (env::var_os("CARGO_HOME"), env::var_os("HOME")) {
        (Some(home), _) => PathBuf::from(home),
        (None, Some(home)) => PathBuf::from(home).join(".cargo"),
        (None, None) => bail!("neither CARGO_HOME nor HOME is set"),
    };
    // The folder of a registry is named after where it was fetched from. The last prefix that fits is taken.
    let registries = fs::read_dir(home.join("registry/src"))
        .into_iter()
        .flatten()
        .flatten();
    let mut remapped = vec![
        (workspace::root().to_owned(), "/brink"),
        (home, "/cargo"),
        (PathBuf::from(sysroot.trim()), "/rust"),
        (target_folder()?, "/target"),
    ];
    remapped.extend(registries.map(|registry| (registry.path(), "/crates")));
    // The kernel's types are made of full debug information; atomic operations that return a value are of the third
    // instruction set, which kernels have since 5.12. The bindings do not differ between processors, but ask.
    let fixed = [
        "-Cdebuginfo=2",
        "-Clink-arg=--btf",
        "-Ctarget-cpu=v3",
        "--cfg=bpf_target_arch=\"x86_64\"",
    ];
    let mut flags: Vec<OsString> = fixed.into_iter().map(OsString::from).collect();
    for (from, to) in remapped {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(from);
        flag.push("=");
        flag.push(to);
        flags.push(flag);
    }
    Ok(flags.join(&OsString::from("\x1f")))
}
