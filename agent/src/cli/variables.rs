//! Variables of the environment: one set to nothing is as good as not set, and one that is nearly called like ours is told.

use std::ffi::OsStr;

use clap::Command;

use crate::config::SETTINGS;
use crate::config::finding::{Finding, nearest};

/// What all of them begin with.
const PREFIX: &str = "BRINK_";
/// Those that stand for no setting.
const OTHERS: [&str; 4] = [
    "BRINK_CONFIG",
    "BRINK_CONFIG_DIR",
    "BRINK_SOCKET",
    "BRINK_EVENTS_SOCKET",
];

/// The same command, which does not ask for variables that are set to nothing: no value is read from them.
pub(super) fn without_empty(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| match arg.get_env() {
            Some(name) if is_empty(name) => arg.env(None::<&'static str>),
            _ => arg,
        })
        .mut_subcommands(without_empty)
}

/// What is said of this process's own.
pub(super) fn misspelt() -> Vec<Finding> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter_map(|name| doubt(&name)).collect()
}

/// A name that is far from all of ours may be anybody's: what a hook is told, or a service of that name in Kubernetes.
fn doubt(name: &str) -> Option<Finding> {
    let known = || {
        let settings = SETTINGS.iter().map(|setting| setting.variable);
        let names = settings.chain(OTHERS);
        names.filter_map(|name| name.strip_prefix(PREFIX))
    };
    let written = name.strip_prefix(PREFIX)?;
    if known().any(|known| known == written) {
        return None;
    }
    let meant = nearest(written, known())?;
    let problem = "there is no such variable, and nothing follows from it";
    Some(Finding {
        hint: Some(format!("did you mean {PREFIX}{meant}?")),
        ..Finding::of_source(format!("${name}"), None, problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_nearly_ours_is_doubted() {
        for (name, meant) in [
            ("BRINK_MODE", None),
            ("BRINK_EVENTS_SOCKET", None),
            ("BRINK_MOED", Some("did you mean BRINK_MODE?")),
            ("BRINK_STATEDIR", Some("did you mean BRINK_STATE_DIR?")),
            ("BRINK_LOG_LEVL", Some("did you mean BRINK_LOG_LEVEL?")),
            ("BRINK_SERVICE_HOST", None),
            ("BRINK_PORT", None),
            ("BRINK_NAME", None),
            ("MODE", None),
        ] {
            let hint = doubt(name).and_then(|found| found.hint);
            assert_eq!(hint.as_deref(), meant, "{name}");
        }
    }
}
