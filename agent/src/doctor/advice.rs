//! How to get what is missing.

use std::path::Path;

use brink_host::capabilities::Capability;

use super::check::Step;
use super::facts::process::Process;
use crate::config::Sources;
use crate::config::document::Origin;

/// How to give this program capabilities: any one of the steps is enough.
pub(super) fn obtain(process: &Process, missing: &[Capability]) -> Vec<Step> {
    let bounded = |capability: &&Capability| {
        let held = process.capabilities.as_ref();
        held.is_ok_and(|held| !held.bounding.has(**capability))
    };
    let (barred, free): (Vec<&Capability>, Vec<&Capability>) = missing.iter().partition(bounded);
    let mut steps = Vec::new();
    if !free.is_empty() {
        let program = process.program.as_deref().unwrap_or(Path::new("brink"));
        let names = joined(&free, ",").to_lowercase();
        steps.push(Step {
            text: "give them to the program".to_owned(),
            command: Some(format!("sudo setcap {names}+ep {}", quoted(program))),
        });
    }
    if !barred.is_empty() {
        steps.push(in_words(format!(
            "{} {} outside the bounding set: only who starts this process can grant that (the container runtime, or \
             CapabilityBoundingSet= of a unit)",
            joined(&barred, ", "),
            if barred.len() == 1 { "is" } else { "are" }
        )));
    }
    let all: Vec<&Capability> = missing.iter().collect();
    steps.push(in_words(format!(
        "for a systemd unit: AmbientCapabilities={}",
        joined(&all, " ")
    )));
    steps.push(in_words(format!(
        "for a container: securityContext: {{capabilities: {{add: [{}]}}}}, or privileged: true",
        joined(&all, ", ").replace("CAP_", "")
    )));
    steps
}

fn joined(capabilities: &[&Capability], between: &str) -> String {
    let names: Vec<String> = capabilities.iter().map(ToString::to_string).collect();
    names.join(between)
}

/// A step without a command.
pub(super) fn in_words(text: impl Into<String>) -> Step {
    Step {
        text: text.into(),
        command: None,
    }
}

/// The command that checks a configuration of these sources: their files and flags. Variables of the environment count again.
pub(super) fn check_command(sources: &Sources) -> String {
    let files = [
        ("config", &sources.config),
        ("config-dir", &sources.config_dir),
    ];
    let files = files
        .into_iter()
        .filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
    let flags = sources.overrides.iter();
    let flags = flags.filter(|given| matches!(given.origin, Origin::Flag(_)));
    let flags = flags.flat_map(|given| {
        let texts = given.texts.iter();
        texts.map(move |text| (given.setting.flag, Path::new(text)))
    });
    let mut command = "brink config check".to_owned();
    for (flag, text) in files.chain(flags) {
        command = format!("{command} --{flag} {}", quoted(text));
    }
    command
}

/// A path as a word of the shell.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Override, SETTINGS};

    #[test]
    fn the_check_is_of_the_same_files_and_flags() {
        let given = |flag: &str, text: &str, origin: Origin| Override {
            setting: SETTINGS.iter().find(|one| one.flag == flag).unwrap(),
            texts: vec![text.to_owned()],
            origin,
        };
        let none = Sources::default();
        assert_eq!(check_command(&none), "brink config check");
        let sources = Sources {
            config: Some("/my etc/a.yaml".into()),
            overrides: vec![
                given("log-level", "warn", Origin::Environment("BRINK_LOG_LEVEL")),
                given("mode", "enforce", Origin::Flag("--mode".to_owned())),
                given(
                    "eviction-hard",
                    "pid.available<9",
                    Origin::Flag("--eviction-hard".to_owned()),
                ),
            ],
            ..none
        };
        assert_eq!(
            check_command(&sources),
            "brink config check --config '/my etc/a.yaml' --mode enforce --eviction-hard 'pid.available<9'"
        );
    }

    #[test]
    fn paths_are_one_word_of_the_shell() {
        for (path, expected) in [
            ("/usr/bin/brink", "/usr/bin/brink"),
            ("/opt/my tools/brink", "'/opt/my tools/brink'"),
            ("/a'b;c", r"'/a'\''b;c'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
