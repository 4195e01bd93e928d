//! `brink doctor`: what this machine offers, which rung follows from it, and what to do about it.

use super::exit::{CliError, Exit};
use super::options::{ConfigArgs, FormatArgs};
use super::output::{Data, Format};
use crate::config::{Checked, Sources, load};
use crate::doctor::{Page, examine_asked};
use crate::runtime::cluster::{Obstacle, Unsaid, ask_kubelet};

/// Options of `brink doctor`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink doctor --all
  sudo brink doctor               what an agent that runs as root would have
  brink doctor --mode enforce --kubelet-config /var/lib/kubelet/config.yaml
  brink doctor -o json | jq '.rung'
  brink doctor -o json | jq -r '.checks[] | select(.state == \"failed\") | .id'

Nothing on the machine is changed. As root the kernel programs are loaded on trial and unloaded again. The exit code \
is 3 if a check has failed, 2 if the configuration is wrong, and otherwise 0.")]
pub struct Args {
    /// Say what was found of the checks that are well, too
    #[arg(short, long)]
    pub all: bool,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Columns of an output that is no terminal.
const COLUMNS: usize = 80;
/// Faults of an answer that are told.
const MOST: usize = 5;

/// Looks and tells.
///
/// # Errors
/// Everything that is wrong with the configuration, or output that cannot be written.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let sources = args.config.sources();
    let (checked, configz) = ask(load(&sources)?, sources);
    let report = examine_asked(&checked, configz);
    let mut data = Data::new();
    match args.format.output {
        Format::Json => data.json(&report)?,
        Format::Text => {
            let page = Page {
                report: &report,
                width: data.style().width.unwrap_or(COLUMNS),
                colour: data.style().colour,
                all: args.all,
            };
            data.print(&page.to_string())?;
        }
    }
    data.flush()?;
    Ok(if report.has_failed() {
        Exit::Crossed
    } else {
        Exit::Success
    })
}

/// The configuration as it is once the kubelet has been asked what it goes by, and whether it has said so; nobody is asked unless it is
/// configured.
fn ask(checked: Checked, sources: Sources) -> (Checked, Option<Result<(), Unsaid>>) {
    if !checked.config.kubernetes.asks_kubelet() {
        return (checked, None);
    }
    let asked = ask_kubelet(&checked.config);
    let taken = asked.and_then(|said| take(said, sources));
    match taken {
        Ok(checked) => (checked, Some(Ok(()))),
        Err(unsaid) => (checked, Some(Err(unsaid))),
    }
}

/// The configuration by what the kubelet has said, or what is wrong with it: without it all was in order.
fn take(said: String, sources: Sources) -> Result<Checked, Unsaid> {
    let sources = Sources {
        configz: Some(said.into()),
        ..sources
    };
    load(&sources).map_err(|faults| {
        let all = faults.to_string();
        let all: Vec<&str> = all.lines().take(MOST).collect();
        Unsaid {
            why: format!("its answer cannot be taken: {}", all.join("; ")),
            obstacle: Obstacle::Refused,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_cannot_be_taken_is_a_reason_and_no_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        let text = "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\n";
        std::fs::write(&file, text).unwrap();
        let sources = Sources {
            config: Some(file),
            asks_kubelet: Some(true),
            ..Sources::default()
        };
        let said = |answer: &str| take(answer.to_owned(), sources.clone());
        let wrong = r#"{"evictionHard": {"memory.available": "lots"}}"#;
        let unsaid = said(wrong).unwrap_err();
        let why = &unsaid.why;
        assert!(
            why.starts_with("its answer cannot be taken: the kubelet's /configz"),
            "{why}"
        );
        assert_eq!(unsaid.obstacle, Obstacle::Refused);
        let right = r#"{"evictionHard": {"memory.available": "500Mi"}}"#;
        assert_eq!(said(right).unwrap().config.configz.as_deref(), Some(right));
    }
}
