//! How many descriptors a fleet in one process takes, and whether it may have them.
use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::report::whole;

/// Of one agent: two watches, two connections for what it tells, and now and then a file of its outbox, of a token or a folder; after
/// an outage an old connection may still be there beside the new one.
const OF_AN_AGENT: u64 = 8;
/// Everything else.
const OF_ALL: u64 = 256;

/// Descriptors that so many agents may need.
pub(super) fn needed(agents: usize) -> u64 {
    u64::try_from(agents).unwrap_or(u64::MAX) * OF_AN_AGENT + OF_ALL
}

/// Descriptors of the server's that so many agents may need: their connections.
pub(super) fn of_server(agents: usize) -> f64 {
    whole(needed(agents)) / 2.0
}

/// Raises our own limit to what is needed, and looks whether it was.
///
/// # Errors
/// With the limit and what to do about it.
pub(super) fn raise(agents: usize) -> anyhow::Result<()> {
    let needed = needed(agents);
    let limit = getrlimit(Resource::Nofile);
    let Some(raised) = raised(&limit, needed) else {
        return Ok(());
    };
    if setrlimit(Resource::Nofile, raised).is_err() {
        bail!("{}", refusal(agents, &limit));
    }
    let now = getrlimit(Resource::Nofile).current;
    let is_enough = now.is_none_or(|now| now >= needed);
    is_enough
        .then_some(())
        .with_context(|| refusal(agents, &limit))
}

/// What to ask for; nothing if there is enough. Above the hard limit only a privileged process comes.
fn raised(limit: &Rlimit, needed: u64) -> Option<Rlimit> {
    limit.current.filter(|current| *current < needed)?;
    Some(Rlimit {
        current: Some(needed),
        maximum: limit.maximum.map(|most| most.max(needed)),
    })
}

fn refusal(agents: usize, limit: &Rlimit) -> String {
    let most = limit
        .maximum
        .map_or_else(|| "none".to_owned(), |most| most.to_string());
    format!(
        "{agents} agents may take {} descriptors, and the hard limit is {most}: `ulimit -Hn {0}` before, or fewer --agents",
        needed(agents)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(current: Option<u64>, maximum: Option<u64>) -> Rlimit {
        Rlimit { current, maximum }
    }

    #[test]
    fn only_what_is_missing_is_asked_for() {
        for (limit, expected) in [
            (limit(None, None), None),
            (limit(Some(9_000), Some(9_000)), None),
            (limit(Some(1_024), Some(20_000)), Some((8_256, 20_000))),
            (limit(Some(1_024), Some(4_096)), Some((8_256, 8_256))),
        ] {
            let found = raised(&limit, needed(1_000));
            let found = found.map(|found| (found.current.unwrap(), found.maximum.unwrap()));
            assert_eq!(found, expected, "{limit:?}");
        }
    }

    #[test]
    fn a_refusal_says_how_much_is_missing_and_what_to_do() {
        let told = refusal(1_000, &limit(Some(1_024), Some(4_096)));
        for part in ["8256 descriptors", "limit is 4096", "ulimit -Hn 8256"] {
            assert!(told.contains(part), "{told}");
        }
    }
}
