//! `cargo xtask fuzz`: the entry points of brink-fuzz under libFuzzer, one after the other.
mod kept;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail};

use self::kept::{Figures, Run};
use crate::{
    Verdict,
    process::{self, Ended},
    tools::Tool,
    when::When,
    workspace::{self, stdout_of, succeeds},
};

/// It knows the flags that make the compiler count which way the program went.
const CARGO_FUZZ: Tool = Tool {
    name: "cargo-fuzz",
    version: "0.13.2",
};
/// Where the seeds are, from the workspace's directory.
const CORPUS: &str = "tests/fuzz/corpus";
/// The package that is built, which is outside the workspace.
const PACKAGE: &str = "tests/fuzz/libfuzzer";
/// Its program for all entry points; a variable says which.
const PROGRAM: &str = "entry";
/// One input may take so long, in seconds: twice what the entry points themselves allow a debug build.
const SLOWEST: u64 = 20;
/// Memory of the program, in MiB.
const MEMORY: u64 = 3072;
/// The longest input, in bytes.
const LONGEST: u64 = 8192;
/// Beside the time that was asked for: start, seeds, the last input.
const SPARE: Duration = Duration::from_mins(2);

/// What CI gives each entry point, in seconds.
const IN_CI: u64 = 20;

/// Options of `cargo xtask fuzz`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Entry points to run, by the names of the folders under tests/fuzz/corpus; all if none is given
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Time for each of them
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// What watches over memory: address, or none where the compiler has no runtime for it
    #[arg(long, default_value = "address", value_parser = ["address", "none"])]
    sanitizer: String,
    /// Keep what it came to in the repository, and write the table of docs/fuzzing.md from it
    #[arg(long)]
    publish: bool,
}

/// Builds the program and runs it.
///
/// # Errors
/// When a prerequisite is missing, the program does not build, or a target is not known.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let known = targets()?;
    if let Some(unknown) = args.targets.iter().find(|name| !known.contains(name)) {
        bail!("no target `{unknown}`; targets: {}", known.join(", "));
    }
    require_compiler()?;
    let folder = folder()?;
    let program = build(&folder, &args.sanitizer)?;
    let chosen = if args.targets.is_empty() {
        &known
    } else {
        &args.targets
    };
    let when = args.publish.then(When::now).transpose()?;
    let mut runs = BTreeMap::new();
    for name in chosen {
        println!("{name}: {} s", args.seconds);
        let place = folder.join("findings").join(name);
        let before = findings_in(&place)?;
        let ended = fuzz(&program, name, args.seconds, &place)?;
        let figures = Figures::of(&ended.output);
        let mut findings = 0;
        match ended.fault() {
            None => println!("{name}: {}", line(figures)),
            Some(fault) => {
                print!("{}", ended.quoted());
                println!("{name}: {fault}");
                // One that ran out of memory or time may leave none.
                findings = tell_findings(&place, &before)?.max(1);
                println!(
                    "  mend it, and keep the input as {CORPUS}/{name}/regression-WHAT: `cargo test -p brink-fuzz` runs it"
                );
            }
        }
        runs.insert(name.clone(), (figures, findings));
    }
    let holds = runs.values().all(|(_, findings)| *findings == 0);
    if let Some(when) = when {
        let built_by = builders(&args.sanitizer)?;
        let run = |(figures, findings)| Run {
            when: when.clone(),
            built_by: built_by.clone(),
            seconds: args.seconds,
            figures,
            findings,
        };
        let runs = runs.into_iter().map(|(name, came_to)| (name, run(came_to)));
        kept::keep(workspace::root(), runs.collect(), &known)?;
    }
    Ok(Verdict::from_holds(holds))
}

/// Every entry point for a little while, without a sanitizer. `Err` within says why nothing can be built on this machine.
///
/// # Errors
/// When the program does not build, or cannot be run.
pub(crate) fn check() -> anyhow::Result<Result<Verdict, String>> {
    if let Err(reason) = require_compiler() {
        return Ok(Err(format!("{reason:#}")));
    }
    let args = Args {
        targets: Vec::new(),
        seconds: IN_CI,
        sanitizer: "none".to_owned(),
        publish: false,
    };
    run(&args).map(Ok)
}

/// Who builds the program, in words.
fn builders(sanitizer: &str) -> anyhow::Result<String> {
    let compiler = stdout_of(Command::new("rustc").arg("--version"))?;
    Ok(format!(
        "{} and {} {}, sanitizer: {sanitizer}",
        compiler.trim(),
        CARGO_FUZZ.name,
        CARGO_FUZZ.version
    ))
}

/// The entry points, which have a folder of seeds each.
fn targets() -> anyhow::Result<Vec<String>> {
    let corpus = workspace::root().join(CORPUS);
    let folders = fs::read_dir(&corpus).with_context(|| corpus.display().to_string())?;
    let mut names = Vec::new();
    for folder in folders {
        names.push(folder?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// libFuzzer is compiled from C++.
fn require_compiler() -> anyhow::Result<()> {
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut command = Command::new(&compiler);
    let command = command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !command.status().is_ok_and(|status| status.success()) {
        bail!(
            "no C++ compiler ({}): install one, on Debian by apt-get install g++",
            compiler.display()
        );
    }
    Ok(())
}

/// Builds and findings, apart from other builds: every crate is instrumented.
fn folder() -> anyhow::Result<PathBuf> {
    let target = match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => workspace::root().join("target"),
    };
    Ok(std::path::absolute(target)
        .context("the target folder")?
        .join("fuzz"))
}

fn build(folder: &Path, sanitizer: &str) -> anyhow::Result<PathBuf> {
    let tool = CARGO_FUZZ.path().context("the builder of fuzz targets")?;
    let mut command = Command::new(tool);
    command.current_dir(workspace::root());
    command.args(["build", "--fuzz-dir", PACKAGE]);
    command
        .args(["--sanitizer", sanitizer, "--target-dir"])
        .arg(folder);
    command.arg(PROGRAM);
    // Sanitizers are asked of a stable compiler.
    command.env("RUSTC_BOOTSTRAP", "1");
    for ours in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR"] {
        command.env_remove(ours);
    }
    if !succeeds(&mut command)? {
        bail!(
            "the program does not build; without the sanitizer's runtime, --sanitizer none may do"
        );
    }
    Ok(folder.join(host()?).join("release").join(PROGRAM))
}

/// What the compiler compiles for, which is where it runs.
fn host() -> anyhow::Result<String> {
    let answer = stdout_of(Command::new("rustc").arg("-vV"))?;
    let host = answer.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host
        .with_context(|| format!("rustc says `{}`", answer.trim()))?
        .to_owned())
}

/// One entry point for a while. What it finds new in its seeds' neighbourhood is kept for the next time.
fn fuzz(program: &Path, name: &str, seconds: u64, findings: &Path) -> anyhow::Result<Ended> {
    let grown = workspace::cache()?.join("fuzz").join(name);
    let scratch = tempfile::Builder::new()
        .prefix("brink-fuzz-")
        .tempdir()
        .context("a temporary folder")?;
    for made in [grown.as_path(), findings] {
        fs::create_dir_all(made).with_context(|| made.display().to_string())?;
    }
    let mut command = Command::new(program);
    command
        .arg(&grown)
        .arg(workspace::root().join(CORPUS).join(name));
    command.args([
        format!("-max_total_time={seconds}"),
        format!("-timeout={SLOWEST}"),
        format!("-rss_limit_mb={MEMORY}"),
        format!("-max_len={LONGEST}"),
        format!("-artifact_prefix={}/", findings.display()),
        "-print_final_stats=1".to_owned(),
        "-detect_leaks=0".to_owned(),
        "-verbosity=0".to_owned(),
    ]);
    command
        .env("BRINK_FUZZ", name)
        .env("TMPDIR", scratch.path());
    // A program that is ended at once leaves its own folders behind; they are all in this one.
    process::run(&mut command, Duration::from_secs(seconds) + SPARE)
}

/// What libFuzzer says at its end, in a line.
fn line(figures: Figures) -> String {
    let [inputs, new, peak] = [figures.inputs, figures.new, figures.peak_mib].map(kept::word);
    format!("{inputs} inputs, {new} new, {peak} MiB at most")
}

/// The inputs at fault that lie in a folder, each with when it was written: one that is found again is written again.
type Findings = BTreeSet<(PathBuf, SystemTime)>;

fn findings_in(folder: &Path) -> anyhow::Result<Findings> {
    let mut found = Findings::new();
    // The first run makes it.
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let entry = entry.with_context(|| folder.display().to_string())?;
        let written = entry.metadata().and_then(|file| file.modified());
        let path = entry.path();
        let written = written.with_context(|| path.display().to_string())?;
        found.insert((path, written));
    }
    Ok(found)
}

/// Tells the inputs at fault that were not there before, and not those of earlier runs: how many there are.
fn tell_findings(folder: &Path, before: &Findings) -> anyhow::Result<usize> {
    let found = findings_in(folder)?;
    let mut count = 0;
    for (path, _) in found.difference(before) {
        println!("  found {}", path.display());
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_point_is_found_by_its_seeds() {
        let names = targets().unwrap();
        assert!(names.iter().any(|name| name == "ledger"), "{names:?}");
    }

    #[test]
    fn what_earlier_runs_have_found_is_not_counted_again() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("ledger");
        assert!(findings_in(&place).unwrap().is_empty(), "no folder yet");
        fs::create_dir(&place).unwrap();
        for name in ["crash-1", "crash-2"] {
            fs::write(place.join(name), "x").unwrap();
        }
        let before = findings_in(&place).unwrap();
        assert_eq!(tell_findings(&place, &before).unwrap(), 0);
        fs::write(place.join("crash-3"), "x").unwrap();
        assert_eq!(tell_findings(&place, &before).unwrap(), 1);
        let again = fs::File::options().write(true).open(place.join("crash-1"));
        again.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(tell_findings(&place, &before).unwrap(), 2);
    }
}
