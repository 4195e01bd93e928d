//! Of several agents on a node, which is rolled over, the one that does not stand by.
//!
//! The API has no word for that: both are ready, and an old one that is asked to end acts until it has. So each is asked.

use std::ffi::OsStr;
use std::process::{Child, Stdio};

use serde::Deserialize;

use super::agents::Agent;
use super::ask::{Kubectl, uncalled};
use crate::cli::exit::CliError;

/// So many nodes are asked about at the same time.
const AT_ONCE: usize = 16;
/// The mode of an agent that stands by, in its status.
const STANDBY: &str = "standby";

/// How an agent stands; the one that is asked for the rest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It is the one of its node.
    Acts,
    /// Another one is.
    StandsBy,
    /// It does not say.
    Silent,
}

/// A status, as far as it is looked at.
#[derive(Deserialize)]
struct Status {
    mode: String,
}

/// Has the agent of each node be the one that does not stand by. Nobody is asked where only one runs.
///
/// # Errors
/// When kubectl cannot be called.
pub(super) fn settle(kubectl: &Kubectl, agents: &mut [Agent]) -> Result<(), CliError> {
    let several = agents.iter_mut().filter(|agent| !agent.others.is_empty());
    let mut several: Vec<&mut Agent> = several.collect();
    for some in several.chunks_mut(AT_ONCE) {
        let asked = some.iter().map(|agent| begin(kubectl, agent));
        let asked = asked.collect::<Result<Vec<Vec<Child>>, CliError>>()?;
        for (agent, children) in some.iter_mut().zip(asked) {
            let standings: Vec<Standing> = children.into_iter().map(standing).collect();
            choose(agent, &standings);
        }
    }
    Ok(())
}

/// Asks all that run on a node for their status.
fn begin(kubectl: &Kubectl, agent: &Agent) -> Result<Vec<Child>, CliError> {
    let words = ["status", "-o", "json"].map(OsStr::new);
    let pods = std::iter::once(&agent.pod).chain(&agent.others);
    let children = pods.map(|pod| {
        let mut command = kubectl.exec(pod, &words, false);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(uncalled)
    });
    children.collect()
}

fn standing(child: Child) -> Standing {
    let output = child.wait_with_output().ok();
    let output = output.filter(|output| output.status.success());
    output.map_or(Standing::Silent, |output| read(&output.stdout))
}

fn read(status: &[u8]) -> Standing {
    match serde_json::from_slice::<Status>(status) {
        Ok(status) if status.mode == STANDBY => Standing::StandsBy,
        Ok(_) => Standing::Acts,
        Err(_) => Standing::Silent,
    }
}

/// Has it be the first of those that stand best: `standings` are those of its pod and of the others.
fn choose(agent: &mut Agent, standings: &[Standing]) {
    let best = standings.iter().enumerate().min_by_key(|(_, of)| **of);
    let place = best.and_then(|(place, _)| place.checked_sub(1));
    if let Some(other) = place.and_then(|place| agent.others.get_mut(place)) {
        std::mem::swap(&mut agent.pod, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_who_stands_by() {
        assert_eq!(
            read(br#"{"mode":"standby","rung":"x"}"#),
            Standing::StandsBy
        );
        assert_eq!(read(br#"{"mode":"observing"}"#), Standing::Acts);
        assert_eq!(read(b"{}"), Standing::Silent);
        assert_eq!(read(b"error: no agent"), Standing::Silent);
    }

    #[test]
    fn the_first_that_acts_is_asked_and_who_stands_by_comes_before_who_is_silent() {
        use Standing::{Acts, Silent, StandsBy};
        for (standings, expected) in [
            ([StandsBy, Acts, Silent], "b"),
            ([Acts, Acts, StandsBy], "a"),
            ([Silent, StandsBy, Acts], "c"),
            ([Silent, StandsBy, StandsBy], "b"),
            ([Silent, Silent, Silent], "a"),
        ] {
            let mut agent = Agent {
                node: "node".to_owned(),
                pod: "a".to_owned(),
                others: ["b", "c"].map(str::to_owned).into(),
            };
            choose(&mut agent, &standings);
            assert_eq!(agent.pod, expected, "{standings:?}");
        }
    }
}
