//! `kubectl brink`: the commands that ask an agent, asked of the agents of a cluster.
//!
//! Everything goes through `kubectl exec`: its configuration, its rights, no port and no service of ours. The program is this
//! one under the name that kubectl looks for.

mod agents;
mod ask;
mod asked;
mod follow;
mod gather;
mod lines;
mod shape;
mod single;
mod standby;
mod wait;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use self::agents::Agent;
use self::ask::Kubectl;
use self::shape::{Manner, shape};
use super::exit::{CliError, Exit};
use super::output::Talk;

/// The name of a program that kubectl calls for `kubectl brink`.
const PROGRAM: &str = "kubectl-brink";
/// The commands that only ask.
const COMMANDS: [&str; 7] = [
    "status", "top", "rank", "explain", "events", "incident", "doctor",
];
/// Nodes that are followed at once: each is a process of kubectl's.
const MOST_FOLLOWED: usize = 64;

/// Asks the agents of a cluster what `brink` asks the one of a machine.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kubectl brink",
    bin_name = "kubectl brink",
    version,
    arg_required_else_help = true,
    styles = super::STYLES,
    max_term_width = 100,
    after_help = "\
Examples:
  kubectl brink status                      every node's signals, thresholds and mode
  kubectl brink --node worker-1 top         one node, live
  kubectl brink rank --signal pid.available
  kubectl brink events -f -o json           what happens anywhere, each event with its node
  kubectl brink incident                    the incidents of all nodes
  kubectl brink --node worker-1 explain shop/web

After the command stands what the same command of brink takes: `brink rank --help`. With -o json \
the values of several nodes have their nodes beside them, {\"node\": …, \"value\": …}, and null where \
there is none; that of one node comes bare, as on the machine itself. A script that needs one form \
however many nodes there are asks each of them by --node. The exit code is that of the node with \
the highest one. It takes the rights to get and list pods and to create pods/exec where the agents run."
)]
struct Cli {
    /// Only this node (may be given several times); all that have an agent if not given
    #[arg(long, value_name = "NODE")]
    node: Vec<String>,
    /// Namespace of the agents
    #[arg(long, value_name = "NAMESPACE", default_value = "brink-system")]
    agents_in: String,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// What to ask
    #[arg(value_name = "COMMAND", value_parser = COMMANDS)]
    command: String,
    /// What the command takes
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

/// Whether a program of that name was asked for a cluster.
pub(super) fn is_called(program: Option<&OsStr>) -> bool {
    program.and_then(|program| Path::new(program).file_name()) == Some(OsStr::new(PROGRAM))
}

/// Runs what the process was started with.
pub(super) fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => super::finish(run(&cli)),
        Err(error) => super::refused(&error),
    }
}

fn run(cli: &Cli) -> Result<Exit, CliError> {
    let shape = match shape(&cli.command, &cli.arguments) {
        Ok(shape) => shape,
        Err(error) => {
            if cli.arguments.iter().any(|word| is_own(word)) {
                Talk::new().say("what is for `kubectl brink` itself stands before the command: `kubectl brink --node NODE rank`");
            }
            // What the command itself says of its arguments, before anybody is asked.
            super::printed(&error)?;
            return Ok(super::exit_of(&error));
        }
    };
    let kubectl = Kubectl::new(cli);
    let mut agents = chosen(kubectl.agents()?, &cli.node, &cli.agents_in)?;
    standby::settle(&kubectl, &mut agents)?;
    let words: Vec<&OsStr> = std::iter::once(OsStr::new(&cli.command))
        .chain(cli.arguments.iter().map(OsString::as_os_str))
        .collect();
    match (&agents[..], shape.manner) {
        ([agent], _) => single::ask(&kubectl, agent, &words, shape),
        (several, Manner::Screen) => {
            let count = several.len();
            let error = anyhow::anyhow!("{} shows one node, and there are {count}", cli.command);
            Err(CliError::new(Exit::Usage, error)
                .advise(format!("name one with --node: {}", names(several))))
        }
        (several, Manner::Followed) if several.len() > MOST_FOLLOWED => {
            let count = several.len();
            let error = anyhow::anyhow!(
                "{count} nodes are more than can be followed at once ({MOST_FOLLOWED})"
            );
            Err(CliError::new(Exit::Usage, error).advise("name some with --node"))
        }
        (several, Manner::Followed) => follow::follow(&kubectl, several, &words, shape.is_json),
        (several, _) => gather::ask(&kubectl, several, &words, shape),
    }
}

/// Those that are meant.
///
/// # Errors
/// When there is none, or none on a node that was named.
fn chosen(found: Vec<Agent>, wanted: &[String], namespace: &str) -> Result<Vec<Agent>, CliError> {
    if found.is_empty() {
        let error = anyhow::anyhow!("no agent runs in the namespace {namespace}");
        return Err(CliError::new(Exit::NoAgent, error)
            .advise("install it (deploy/kubernetes), or name its namespace with --agents-in"));
    }
    let missing: Vec<&str> = wanted
        .iter()
        .map(String::as_str)
        .filter(|node| found.iter().all(|agent| agent.node != *node))
        .collect();
    if !missing.is_empty() {
        let error = anyhow::anyhow!("no agent runs on {}", missing.join(", "));
        return Err(
            CliError::new(Exit::NoAgent, error).advise(format!("agents run on {}", names(&found)))
        );
    }
    let is_meant = |agent: &Agent| wanted.is_empty() || wanted.contains(&agent.node);
    Ok(found.into_iter().filter(is_meant).collect())
}

/// The first nodes by name, and how many more there are.
fn names(agents: &[Agent]) -> String {
    const SHOWN: usize = 10;
    let names: Vec<&str> = agents.iter().map(|agent| agent.node.as_str()).collect();
    match names.split_at_checked(SHOWN) {
        Some((shown, more)) if !more.is_empty() => {
            format!("{} and {} more", shown.join(", "), more.len())
        }
        _ => names.join(", "),
    }
}

/// Whether an argument is one of ours that stands too late.
fn is_own(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    let name = word.split('=').next().unwrap_or_default();
    ["--node", "--agents-in", "--context", "--kubeconfig"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(node: &str) -> Agent {
        Agent {
            node: node.to_owned(),
            pod: format!("brink-{node}"),
            others: Vec::new(),
        }
    }

    #[test]
    fn the_commands_are_brinks_own() {
        let known = super::super::command();
        for name in COMMANDS {
            assert!(known.find_subcommand(name).is_some(), "{name}");
        }
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_program_is_known_by_its_name() {
        let is = |name: &str| is_called(Some(OsStr::new(name)));
        assert!(is("kubectl-brink") && is("/usr/local/bin/kubectl-brink"));
        assert!(!is("brink") && !is("/kubectl-brink/brink") && !is_called(None));
    }

    #[test]
    fn a_node_without_an_agent_is_told_with_those_that_have_one() {
        let all = || Vec::from(["a", "b", "c"].map(agent));
        let wanted =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&n| n.to_owned()).collect() };
        assert_eq!(chosen(all(), &[], "ns").unwrap(), all());
        assert_eq!(chosen(all(), &wanted(&["b"]), "ns").unwrap(), [agent("b")]);
        let error = chosen(all(), &wanted(&["b", "z"]), "ns").unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.exit()),
            ("no agent runs on z", Exit::NoAgent)
        );
        assert_eq!(
            chosen(Vec::new(), &[], "ns").unwrap_err().exit(),
            Exit::NoAgent
        );
        let many: Vec<Agent> = (0..12).map(|n| agent(&format!("n{n:02}"))).collect();
        assert!(names(&many).ends_with("n09 and 2 more"), "{}", names(&many));
    }

    #[test]
    fn options_of_ours_that_stand_too_late_are_known() {
        assert!(is_own(OsStr::new("--node")) && is_own(OsStr::new("--context=x")));
        assert!(!is_own(OsStr::new("--nodes")) && !is_own(OsStr::new("-n")));
    }
}
