//! kubectl, called.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, ExitStatus, Stdio};

use super::Cli;
use super::agents::{self, Agent, LABELS};
use crate::cli::exit::{CliError, Exit};

/// The program.
const KUBECTL: &str = "kubectl";
/// The container of the agent in its pod, and the program in it.
const CONTAINER: &str = "brink";

/// How it is called.
pub(super) struct Kubectl {
    program: OsString,
    options: Vec<OsString>,
}

impl Kubectl {
    /// By the options that it was given through us.
    pub(super) fn new(cli: &Cli) -> Self {
        let mut options = vec![
            OsString::from("--namespace"),
            OsString::from(&cli.agents_in),
        ];
        if let Some(context) = &cli.context {
            options.extend(["--context".into(), context.into()]);
        }
        if let Some(kubeconfig) = &cli.kubeconfig {
            options.extend(["--kubeconfig".into(), kubeconfig.into()]);
        }
        Self {
            program: KUBECTL.into(),
            options,
        }
    }

    /// A script of the shell in its place: of a call to ask an agent, `$1` is the pod.
    #[cfg(test)]
    pub(super) fn played_by(script: &str) -> Self {
        Self {
            program: "sh".into(),
            options: ["-c", script].map(OsString::from).into(),
        }
    }

    /// The agents of the cluster.
    ///
    /// # Errors
    /// When kubectl cannot be called, or cannot list them; what it says itself is on standard error by then.
    pub(super) fn agents(&self) -> Result<Vec<Agent>, CliError> {
        let mut command = self.command();
        command.args(["get", "pods", "--selector", LABELS, "--output", "json"]);
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(uncalled)?;
        if !output.status.success() {
            let error = anyhow::anyhow!("kubectl cannot list the agents ({})", output.status);
            return Err(CliError::new(Exit::Failure, error).advise(
                "it takes a cluster that answers, and the right to list pods in their namespace",
            ));
        }
        agents::read(&output.stdout).map_err(|error| {
            anyhow::Error::new(error)
                .context("kubectl's list of pods")
                .into()
        })
    }

    /// Asks one agent, which has our own input and output.
    ///
    /// # Errors
    /// When kubectl cannot be called.
    pub(super) fn hand_over(
        &self,
        agent: &Agent,
        words: &[&OsStr],
        is_terminal: bool,
    ) -> Result<Exit, CliError> {
        let status = self.exec(&agent.pod, words, is_terminal).status();
        Ok(exit_of(status.map_err(uncalled)?))
    }

    /// The call that asks the agent in a pod.
    pub(super) fn exec(&self, pod: &str, words: &[&OsStr], is_terminal: bool) -> Command {
        let mut command = self.command();
        command.arg("exec");
        if is_terminal {
            command.args(["--stdin", "--tty"]);
        } else {
            command.stdin(Stdio::null());
        }
        command.args([pod, "--container", CONTAINER, "--", CONTAINER]);
        command.args(words);
        command
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options);
        command
    }
}

/// The exit code of the agent's program, which kubectl hands on.
pub(super) fn exit_of(status: ExitStatus) -> Exit {
    let known = Exit::ALL.into_iter().map(|(exit, _)| exit);
    let code = status.code();
    let mut same = known.filter(|exit| Some(i32::from(exit.code())) == code);
    same.next().unwrap_or(Exit::Failure)
}

/// Why kubectl could not be called.
pub(super) fn uncalled(error: io::Error) -> CliError {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let error = CliError::new(
        Exit::Failure,
        anyhow::Error::new(error).context("kubectl cannot be called"),
    );
    if is_missing {
        error.advise("install kubectl, or put the folder it is in into PATH")
    } else {
        error
    }
}

/// The one of two that says more: codes grow with what went wrong.
pub(super) const fn higher(one: Exit, other: Exit) -> Exit {
    if other.code() > one.code() {
        other
    } else {
        one
    }
}
