//! kubectl, called.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Cli;
use super::agents::{self, Agent, LABELS};
use super::wait::wait;
use crate::cli::exit::{CliError, Exit};

/// The program.
const KUBECTL: &str = "kubectl";
/// The container of the agent in its pod, and the program in it.
const CONTAINER: &str = "brink";
/// What kubectl is told to wait for each answer of the API server's.
const REQUEST: &str = "--request-timeout=30s";
/// By then it has listed the agents: a few such answers, and somebody who logs in meanwhile.
const LIST: Duration = Duration::from_mins(2);

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
        let pods = self.pods(LIST)?;
        agents::read(&pods).map_err(|error| {
            let error = anyhow::Error::new(error).context("kubectl's list of pods cannot be read");
            CliError::new(Exit::Failure, error).advise(
                "look at what `kubectl get pods --output json` prints: one list and nothing else, if the kubectl in PATH is the right one",
            )
        })
    }

    /// The list of their pods, as kubectl prints it within that time.
    fn pods(&self, patience: Duration) -> Result<Vec<u8>, CliError> {
        let mut command = self.command();
        command.args(["get", "pods", "--selector", LABELS, "--output", "json"]);
        command
            .arg(REQUEST)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(uncalled)?;
        // A pipe has no room for a long list, and this thread watches the time.
        let output = child.stdout.take();
        let reader = thread::spawn(move || -> io::Result<Vec<u8>> {
            let mut pods = Vec::new();
            output.map_or(Ok(0), |mut output| output.read_to_end(&mut pods))?;
            Ok(pods)
        });
        let until = Instant::now() + patience;
        let Some(status) = wait(&mut child, || Ok(Instant::now() >= until))? else {
            let seconds = patience.as_secs();
            let error = anyhow::anyhow!("kubectl has not listed the agents within {seconds} s");
            return Err(CliError::new(Exit::Failure, error).advise(
                "see whether the cluster answers: `kubectl get --raw /readyz`; --context names another one",
            ));
        };
        if !status.success() {
            let error = anyhow::anyhow!("kubectl cannot list the agents ({status})");
            return Err(CliError::new(Exit::Failure, error).advise(
                "it takes a cluster that answers, and the right to list pods in their namespace",
            ));
        }
        let read = reader.join();
        let read = read.map_err(|_| anyhow::anyhow!("a thread that read a list has ended"))?;
        Ok(read?)
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

/// How kubectl has ended, where that is no way in which the agent's program ends.
pub(super) fn odd_end(status: ExitStatus) -> Option<String> {
    if let Some(signal) = status.signal() {
        return Some(format!("kubectl was killed by signal {signal}"));
    }
    let code = status.code()?;
    let mut known = Exit::ALL.into_iter().map(|(exit, _)| exit);
    if known.any(|exit| i32::from(exit.code()) == code) {
        return None;
    }
    // So a container's own program says of one that it ran.
    let signal = code
        .checked_sub(128)
        .filter(|signal| (1..=64).contains(signal));
    Some(match signal {
        Some(signal) => format!(
            "kubectl has ended with code {code}, as what it ran in the pod was killed by signal {signal}"
        ),
        None => format!("kubectl has ended with code {code}, which is none of brink's"),
    })
}

/// Why kubectl could not be called.
pub(super) fn uncalled(error: io::Error) -> CliError {
    let (exit, advice) = match error.kind() {
        io::ErrorKind::NotFound => (
            Exit::Failure,
            "install kubectl, or put the folder it is in into PATH",
        ),
        io::ErrorKind::PermissionDenied => (
            Exit::Denied,
            "the kubectl in PATH may not be run: make it executable, or put the folder of another one into PATH",
        ),
        _ => (
            Exit::Failure,
            "see whether `kubectl version --client` runs: the kubectl in PATH is to be a program for this machine",
        ),
    };
    let error = anyhow::Error::new(error).context("kubectl cannot be called");
    CliError::new(exit, error).advise(advice)
}

/// The one of two that says more: codes grow with what went wrong.
pub(super) const fn higher(one: Exit, other: Exit) -> Exit {
    if other.code() > one.code() {
        other
    } else {
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_never_comes_is_waited_for_so_long_and_no_longer() {
        let kubectl = Kubectl::played_by("echo '{\"items\":['; exec sleep 600");
        let begun = Instant::now();
        let error = kubectl.pods(Duration::from_secs(1)).unwrap_err();
        assert!(begun.elapsed() < Duration::from_mins(1));
        assert_eq!(
            (error.exit(), error.to_string().as_str()),
            (
                Exit::Failure,
                "kubectl has not listed the agents within 1 s"
            )
        );
    }

    #[test]
    fn a_list_longer_than_a_pipe_is_read_whole() {
        let kubectl = Kubectl::played_by("head -c 300000 /dev/zero");
        let pods = kubectl.pods(Duration::from_mins(1)).unwrap();
        assert_eq!(pods.len(), 300_000);
    }

    #[test]
    fn an_end_that_is_none_of_the_programs_own_is_told() {
        for (raw, expected) in [
            (0, None),
            (3 << 8, None),
            (9, Some("kubectl was killed by signal 9")),
            (
                137 << 8,
                Some(
                    "kubectl has ended with code 137, as what it ran in the pod was killed by signal 9",
                ),
            ),
            (
                126 << 8,
                Some("kubectl has ended with code 126, which is none of brink's"),
            ),
        ] {
            let told = odd_end(ExitStatus::from_raw(raw));
            assert_eq!(told.as_deref(), expected, "{raw}");
        }
    }

    #[test]
    fn a_kubectl_that_cannot_be_called_is_told_with_what_to_do() {
        for (kind, exit, beginning) in [
            (io::ErrorKind::NotFound, Exit::Failure, "install kubectl"),
            (
                io::ErrorKind::PermissionDenied,
                Exit::Denied,
                "the kubectl in PATH may not be run",
            ),
            (io::ErrorKind::Other, Exit::Failure, "see whether `kubectl"),
        ] {
            let error = uncalled(kind.into());
            assert_eq!(error.exit(), exit, "{kind}");
            let CliError::Other { advice, .. } = error else {
                panic!("{error}");
            };
            assert!(
                advice.is_some_and(|advice| advice.starts_with(beginning)),
                "{kind}"
            );
        }
    }
}
