//! Keeps the kernel's messages off the console while something is measured.
//!
//! On a serial console a line takes a millisecond or more, printed with interrupts off by the processor whose event
//! is measured. Whether it appears there is the machine's setting, not a stage of the agent.
use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;

/// The first of its numbers is the level below which messages reach the console.
const LEVELS: &str = "/proc/sys/kernel/printk";
/// Nothing but the end of the system.
const QUIET: &str = "1";
/// Waits for the end of its standard input, which comes whatever ends us, and puts the level back.
const KEEPER: &str = r#"trap "" HUP INT TERM; read -r end; echo "$1" > "$2""#;

/// A console that is quiet. Dropping it makes it as it was; so does our death, however it comes.
pub(super) struct Quiet(Child);

impl Quiet {
    /// Makes it quiet.
    pub(super) fn start() -> anyhow::Result<Self> {
        let before = level(Path::new(LEVELS))?;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "sh", &before, LEVELS]);
        keeper.stdin(Stdio::piped()).stdout(Stdio::null());
        // What is typed at the terminal must not end it before us.
        keeper.process_group(0);
        let quiet = Self(keeper.spawn().context("starting the console's keeper")?);
        fs::write(LEVELS, QUIET).with_context(|| format!("writing {LEVELS}"))?;
        Ok(quiet)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Without it there is nobody to tell.
        let _restored = self.0.wait();
    }
}

fn level(file: &Path) -> anyhow::Result<String> {
    let context = || format!("reading {}", file.display());
    let text = fs::read_to_string(file).with_context(context)?;
    let first = text.split_whitespace().next();
    let level: u8 = first.unwrap_or_default().parse().with_context(context)?;
    Ok(level.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_the_first_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("printk");
        let check = |text: &str, expected: Option<&str>| {
            fs::write(&file, text).unwrap();
            assert_eq!(level(&file).ok().as_deref(), expected, "{text:?}");
        };
        check("4\t4\t1\t7\n", Some("4"));
        check("\n", None);
        check("loud\n", None);
    }

    #[test]
    fn the_keeper_writes_when_its_standard_input_ends() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("printk");
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "sh", "7"]).arg(&file);
        let quiet = Quiet(keeper.stdin(Stdio::piped()).spawn().unwrap());
        assert!(!file.exists());
        drop(quiet);
        assert_eq!(fs::read_to_string(&file).unwrap(), "7\n");
    }
}
