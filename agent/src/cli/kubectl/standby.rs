//! Of several agents on a node, which is rolled over, the one that does not stand by.
//!
//! The API has no word for that: both are ready, and an old one that is asked to end acts until it has. So each is asked.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::agents::Agent;
use super::ask::{Kubectl, uncalled};
use super::asked::room;
use super::wait::wait;
use crate::cli::exit::CliError;
use crate::cli::output::Talk;

/// So many nodes are asked about at the same time.
const AT_ONCE: usize = 16;
/// Who has not said by then how it stands is taken for silent. All that is lost by it is the better choice of two.
const ANSWER: Duration = Duration::from_secs(30);
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

/// One that is asked for its status.
struct Asked {
    pod: String,
    child: Child,
    /// What it says. In a pipe there may be no room for all of it, and nobody reads before it has ended.
    said: File,
}

/// Has the agent of each node be the one that does not stand by. Nobody is asked where only one runs.
///
/// # Errors
/// When kubectl cannot be called, or there is no room for what it says.
pub(super) fn settle(kubectl: &Kubectl, agents: &mut [Agent]) -> Result<(), CliError> {
    settle_within(kubectl, agents, ANSWER)
}

/// The same with so much time for those that are asked together.
fn settle_within(
    kubectl: &Kubectl,
    agents: &mut [Agent],
    patience: Duration,
) -> Result<(), CliError> {
    let several = agents.iter_mut().filter(|agent| !agent.others.is_empty());
    let mut several: Vec<&mut Agent> = several.collect();
    for some in several.chunks_mut(AT_ONCE) {
        let asked = some.iter().map(|agent| begin(kubectl, agent));
        let asked = asked.collect::<Result<Vec<Vec<Asked>>, CliError>>()?;
        let until = Instant::now() + patience;
        for (agent, asked) in some.iter_mut().zip(asked) {
            let mut standings = Vec::with_capacity(asked.len());
            for mut one in asked {
                let standing = one.standing(until)?;
                if standing.is_none() {
                    let (node, pod, seconds) = (&agent.node, &one.pod, patience.as_secs());
                    Talk::new().say(&format!(
                        "{node}: {pod} has not said within {seconds} s whether it stands by"
                    ));
                }
                standings.push(standing.unwrap_or(Standing::Silent));
            }
            choose(agent, &standings);
        }
    }
    Ok(())
}

/// Asks all that run on a node for their status.
fn begin(kubectl: &Kubectl, agent: &Agent) -> Result<Vec<Asked>, CliError> {
    let pods = std::iter::once(&agent.pod).chain(&agent.others);
    pods.map(|pod| ask(kubectl, pod)).collect()
}

fn ask(kubectl: &Kubectl, pod: &str) -> Result<Asked, CliError> {
    let words = ["status", "-o", "json"].map(OsStr::new);
    let said = room()?;
    let mut command = kubectl.exec(pod, &words, false);
    command.stdout(said.try_clone()?).stderr(Stdio::null());
    let child = command.spawn().map_err(uncalled)?;
    Ok(Asked {
        pod: pod.to_owned(),
        child,
        said,
    })
}

impl Asked {
    /// How it stands; none where it has not said so by then.
    fn standing(&mut self, until: Instant) -> io::Result<Option<Standing>> {
        let Some(status) = wait(&mut self.child, || Ok(Instant::now() >= until))? else {
            return Ok(None);
        };
        if !status.success() {
            return Ok(Some(Standing::Silent));
        }
        let mut text = Vec::new();
        self.said.rewind()?;
        self.said.read_to_end(&mut text)?;
        Ok(Some(read(&text)))
    }
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
    fn one_that_never_answers_is_taken_for_silent_in_good_time() {
        let script = r#"case "$1" in
            hangs*) exec sleep 600 ;;
            acts*) echo '{"mode":"observing"}' ;;
            *) echo '{"mode":"standby"}' ;;
        esac"#;
        let kubectl = Kubectl::played_by(script);
        let pods = [
            ["hangs", "acts"],
            ["waits", "hangs"],
            ["hangs", "hangs-too"],
            ["waits", "acts"],
        ];
        let mut agents = pods.map(|[pod, other]| Agent {
            node: "node".to_owned(),
            pod: pod.to_owned(),
            others: [other.to_owned()].into(),
        });
        let begun = Instant::now();
        settle_within(&kubectl, &mut agents, Duration::from_secs(2)).unwrap();
        assert!(begun.elapsed() < Duration::from_mins(1));
        let asked = agents.each_ref().map(|agent| &*agent.pod);
        assert_eq!(asked, ["acts", "waits", "hangs", "acts"]);
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
