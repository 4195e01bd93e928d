//! How to get what is missing.

use std::path::Path;

use brink_host::capabilities::Capability;

use super::check::Step;
use super::facts::process::Process;
use crate::config::Sources;
use crate::config::document::Origin;

/// How to give this program capabilities, the last way apart: any one of the steps is enough.
pub(super) fn obtain(process: &Process, missing: &[Capability]) -> (Vec<Step>, Step) {
    let bounded = |capability: &&Capability| {
        let held = process.capabilities.as_ref();
        held.is_ok_and(|held| !held.bounding.has(**capability))
    };
    let (barred, free): (Vec<&Capability>, Vec<&Capability>) = missing.iter().partition(bounded);
    let mut steps = Vec::new();
    if !free.is_empty() {
        let program = process.program.as_deref().unwrap_or(Path::new("brink"));
        let names = joined(&free, ",").to_lowercase();
        let command = format!("sudo setcap {names}+ep {}", quoted(program));
        steps.push(Step::with_command("give them to the program", command));
    }
    if !barred.is_empty() {
        steps.push(Step::words(format!(
            "{} {} outside the bounding set: only who starts this process can grant that (the container runtime, or \
             CapabilityBoundingSet= of a unit)",
            joined(&barred, ", "),
            if barred.len() == 1 { "is" } else { "are" }
        )));
    }
    let all: Vec<&Capability> = missing.iter().collect();
    steps.push(Step::words(format!(
        "for a systemd unit: AmbientCapabilities={}",
        joined(&all, " ")
    )));
    let container = Step::words(format!(
        "for a container: securityContext: {{capabilities: {{add: [{}]}}}}, or privileged: true",
        joined(&all, ", ").replace("CAP_", "")
    ));
    (steps, container)
}

/// What this process was denied of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// To read it.
    Reading,
    /// To write to it, or to connect to it.
    Writing,
}

impl Denied {
    /// The capabilities of which one is enough, the least first.
    const fn needed(self) -> &'static [Capability] {
        match self {
            Self::Reading => &[Capability::DAC_READ_SEARCH, Capability::DAC_OVERRIDE],
            Self::Writing => &[Capability::DAC_OVERRIDE],
        }
    }
}

/// What helps against that: to be root, by this step, or for root what keeps it from root's rights.
pub(super) fn past_denial(process: &Process, denied: Denied, as_root: Step) -> Step {
    let needed = denied.needed();
    if process.user != 0 {
        return as_root;
    }
    let held = process.capabilities.as_ref();
    if process.namespaces.user == Ok(false) {
        Step::words(
            "run it outside of its user namespace, in which root has no right over the machine's files (see rights.namespaces)",
        )
    } else if held.is_ok_and(|held| !needed.iter().any(|one| held.effective.has(*one))) {
        Step::words(format!(
            "give it {}, without which root has no right over files of others (`brink doctor` says how: \
             rights.capabilities)",
            needed[0]
        ))
    } else {
        Step::words(
            "look for what denies it to root: a security module (AppArmor, SELinux), a seccomp filter, or a file system with \
             rules of its own (NFS, FUSE)",
        )
    }
}

fn joined(capabilities: &[&Capability], between: &str) -> String {
    let names: Vec<String> = capabilities.iter().map(ToString::to_string).collect();
    names.join(between)
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
    use brink_host::capabilities::{Capabilities, CapabilitySet};

    use super::*;
    use crate::config::{Override, SETTINGS};

    #[test]
    fn root_is_told_what_keeps_it_from_roots_rights_and_nobody_else_is() {
        let as_root = Step::with_command("look as root", "sudo brink doctor");
        let check = |user, held: Option<&[Capability]>, is_machines: bool, expected: [&str; 2]| {
            let mut process = Process::read(Path::new("/nonexistent"));
            process.user = user;
            process.namespaces.user = Ok(is_machines);
            if let Some(held) = held {
                process.capabilities = Ok(Capabilities {
                    effective: held.iter().copied().collect(),
                    bounding: CapabilitySet::default(),
                });
            }
            for (denied, words) in [Denied::Reading, Denied::Writing].into_iter().zip(expected) {
                let step = past_denial(&process, denied, as_root.clone());
                assert!(step.text.contains(words), "{step:?}");
                assert_eq!(step == as_root, user != 0, "{step:?}");
                assert_eq!(step.text.contains("as root"), user != 0, "{step:?}");
            }
        };
        let nothing: Option<&[Capability]> = Some(&[]);
        check(1000, nothing, true, ["look as root"; 2]);
        check(1000, None, false, ["look as root"; 2]);
        check(
            0,
            nothing,
            true,
            ["CAP_DAC_READ_SEARCH", "CAP_DAC_OVERRIDE"],
        );
        check(0, nothing, false, ["user namespace"; 2]);
        let reads = Some(&[Capability::DAC_READ_SEARCH][..]);
        check(0, reads, true, ["security module", "CAP_DAC_OVERRIDE"]);
        // It has the right, or nobody knows what it has.
        let all = Some(&[Capability::DAC_OVERRIDE][..]);
        check(0, all, true, ["security module"; 2]);
        check(0, None, true, ["security module"; 2]);
    }

    #[test]
    fn every_way_to_a_capability_ends_with_a_containers() {
        let process = Process::read(Path::new("/nonexistent"));
        let (ways, last) = obtain(&process, &[Capability::KILL]);
        assert!(
            ways.iter()
                .any(|way| way.text.contains("AmbientCapabilities=CAP_KILL"))
        );
        assert!(last.text.contains("add: [KILL]"), "{last:?}");
    }

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
