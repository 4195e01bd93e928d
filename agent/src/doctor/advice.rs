//! How to get what is missing.

use std::path::Path;

use brink_host::capabilities::Capability;

use super::check::Step;
use super::facts::process::Process;

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
