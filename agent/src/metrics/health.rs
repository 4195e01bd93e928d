//! `/livez` and `/readyz`: is the guard alive, and is it ready to protect; with `?verbose` a line for each check.

use std::fmt::Write as _;

use super::facts;
use crate::control::protocol::KubernetesView;
use crate::guard;
use crate::runtime::prepare::Running;

/// A guard that has begun no housekeeping pass for so many intervals is stuck.
const MISSED: u64 = 3;
/// However short the interval is, a busy machine may keep the guard waiting for so long, in nanoseconds.
const LENIENCE: u64 = 30_000_000_000;

/// What the checks look at, as of one moment; times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Since the guard began its latest housekeeping pass; none before the first.
    pub turned: Option<u64>,
    /// Since the agent was started.
    pub running: u64,
    /// From one housekeeping pass to the next.
    pub interval: u64,
    /// The rung, and whether it is only that of the start; none before the guard told it.
    pub rung: Option<(&'static str, bool)>,
    /// Age of the latest reading of the node; none before the first.
    pub figures: Option<u64>,
    /// Where pods come from the Kubernetes API, why none are known; empty if some are.
    pub pods: Option<String>,
    /// Filesystems that were named in the configuration and are not known, and why.
    pub filesystems: Vec<String>,
}

/// One check, and why it failed if so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// Why it failed.
    pub fault: Option<String>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether every check that counts has passed.
    pub passed: bool,
    /// The page.
    pub text: String,
}

impl Health {
    /// Looks at a running agent.
    pub fn gather(running: &Running) -> Self {
        let state = running.shared.lock();
        let now = guard::now();
        let since = |moment| u64::try_from(now.since(moment).as_nanos()).unwrap_or(0);
        let started = i64::try_from(running.started.monotonic_ns).unwrap_or(0);
        let standing = state.standing.as_ref();
        Self {
            turned: facts::turned(running),
            running: since(brink_core::base::Moment::from_nanos(started)),
            interval: u64::try_from(running.housekeeping.as_nanos()).unwrap_or(0),
            rung: standing.map(|standing| (standing.rung.word(), standing.is_passing())),
            figures: state.reading.as_ref().map(|reading| since(reading.at)),
            pods: running
                .cluster
                .as_ref()
                .map(|cluster| unknown(&cluster.view())),
            filesystems: running.disks.troubles(now),
        }
    }

    /// What must hold for the agent to be left running.
    pub fn live(&self) -> Vec<Check> {
        vec![self.guard()]
    }

    /// What must hold for the agent to protect its node.
    pub fn ready(&self) -> Vec<Check> {
        let always = [self.guard(), self.rung(), self.figures()];
        let others = self.pods().into_iter().chain(self.disks());
        always.into_iter().chain(others).collect()
    }

    fn patience(&self) -> u64 {
        self.interval.saturating_mul(MISSED).max(LENIENCE)
    }

    fn guard(&self) -> Check {
        // Before its first pass it may take as long as between two of them.
        let silence = self.turned.unwrap_or(self.running);
        let fault = (silence > self.patience()).then(|| {
            let seconds = silence / 1_000_000_000;
            format!("the guard has begun no housekeeping pass for {seconds} s")
        });
        Check {
            name: "guard",
            fault,
        }
    }

    fn rung(&self) -> Check {
        let fault = match self.rung {
            Some((_, false)) => None,
            Some((rung, true)) => Some(format!(
                "the kernel programs are still being loaded; the guard stands on {rung}"
            )),
            None => Some("the guard has not told its rung yet".to_owned()),
        };
        Check {
            name: "rung",
            fault,
        }
    }

    /// Only said where something is wrong.
    fn disks(&self) -> Option<Check> {
        let fault = self.filesystems.join("; ");
        (!fault.is_empty()).then_some(Check {
            name: "filesystems",
            fault: Some(fault),
        })
    }

    fn pods(&self) -> Option<Check> {
        let why = self.pods.clone()?;
        Some(Check {
            name: "pods",
            fault: (!why.is_empty()).then_some(why),
        })
    }

    fn figures(&self) -> Check {
        let fault = match self.figures {
            None => Some("the node has not been read yet".to_owned()),
            Some(age) if age > self.patience() => {
                let seconds = age / 1_000_000_000;
                Some(format!("the latest reading of the node is {seconds} s old"))
            }
            Some(_) => None,
        };
        Check {
            name: "figures",
            fault,
        }
    }
}

/// Why the pods of the API are not known; nothing if they are, be it from an earlier run: an agent without an API protects
/// its node as long as it knows whom it has.
fn unknown(view: &KubernetesView) -> String {
    match (view.state_age_ms, &view.why) {
        (Some(_), _) => String::new(),
        (None, Some(why)) => format!("no pod is known: {why}"),
        (None, None) => "the API server has not answered yet".to_owned(),
    }
}

/// The answer of `endpoint`, in the words of Kubernetes' own: `ok`, or with `verbose` in the query or a failure a line for
/// each check. `query` has keys and values, decoded; `exclude=NAME` leaves a check out.
pub fn verdict(endpoint: &str, checks: &[Check], query: &[(String, String)]) -> Verdict {
    let excluding = query.iter().filter(|(key, _)| key == "exclude");
    let excluded: Vec<&str> = excluding.map(|(_, name)| name.as_str()).collect();
    let is_verbose = query.iter().any(|(key, _)| key == "verbose");
    let mut text = String::new();
    let mut passed = true;
    for Check { name, fault } in checks {
        // A string takes whatever is written to it.
        let _written = match fault {
            _ if excluded.contains(name) => writeln!(text, "[+]{name} excluded: ok"),
            None => writeln!(text, "[+]{name} ok"),
            Some(fault) => {
                passed = false;
                writeln!(text, "[-]{name} failed: {fault}")
            }
        };
    }
    let is_unknown = |name: &&str| !checks.iter().any(|check| check.name == *name);
    if excluded.iter().any(is_unknown) {
        text.push_str("warn: some health checks cannot be excluded: no check has that name\n");
    }
    let end = if passed { "passed" } else { "failed" };
    let _written = writeln!(text, "{endpoint} check {end}");
    if passed && !is_verbose {
        "ok".clone_into(&mut text);
    }
    Verdict { passed, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn healthy() -> Health {
        Health {
            turned: Some(2 * SECOND),
            running: 500 * SECOND,
            interval: 20 * SECOND,
            rung: Some(("kernel-sampler", false)),
            figures: Some(SECOND),
            pods: None,
            filesystems: Vec::new(),
        }
    }

    fn asked(query: &str) -> Vec<(String, String)> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let owned = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        owned.collect()
    }

    fn live(health: &Health) -> Verdict {
        verdict("livez", &health.live(), &[])
    }

    #[test]
    fn a_guard_that_does_not_turn_is_dead() {
        assert!(live(&healthy()).passed);
        let at = |turned, running| Health {
            turned,
            running,
            ..healthy()
        };
        assert!(live(&at(Some(60 * SECOND), 500 * SECOND)).passed);
        let stuck = live(&at(Some(61 * SECOND), 500 * SECOND));
        let text = "[-]guard failed: the guard has begun no housekeeping pass for 61 s\nlivez check failed\n";
        assert_eq!((stuck.passed, stuck.text.as_str()), (false, text));
        // One that never began.
        assert!(live(&at(None, 60 * SECOND)).passed);
        assert!(!live(&at(None, 61 * SECOND)).passed);
        // An interval of a second does not make a busy machine a dead one.
        let short = Health {
            interval: SECOND,
            ..at(Some(29 * SECOND), 500 * SECOND)
        };
        assert!(live(&short).passed);
    }

    #[test]
    fn ready_is_who_reads_the_node_from_the_rung_it_stays_on() {
        let check = |health: Health, expected: &str| {
            let found = verdict("readyz", &health.ready(), &asked("verbose"));
            assert!(found.text.contains(expected), "{}", found.text);
            assert_eq!(found.passed, !expected.starts_with("[-]"));
        };
        check(
            healthy(),
            "[+]guard ok\n[+]rung ok\n[+]figures ok\nreadyz check passed\n",
        );
        let rung = Some(("realtime-poll", true));
        check(
            Health { rung, ..healthy() },
            "[-]rung failed: the kernel programs are still",
        );
        let (rung, figures) = (None, None);
        check(
            Health { rung, ..healthy() },
            "[-]rung failed: the guard has not told",
        );
        check(
            Health {
                figures,
                ..healthy()
            },
            "[-]figures failed: the node has not been read",
        );
        let figures = Some(61 * SECOND);
        check(
            Health {
                figures,
                ..healthy()
            },
            "[-]figures failed: the latest reading of the node is 61 s old",
        );
    }

    #[test]
    fn whoever_knows_its_pods_is_ready_without_an_api() {
        let view = |state_age_ms, why: Option<&str>| KubernetesView {
            node: "a".to_owned(),
            connected: false,
            since: None,
            why: why.map(str::to_owned),
            pods: 0,
            state_age_ms,
            left_out: 0,
            untold: 0,
            configz_why: None,
            failures: 0,
        };
        let check = |view: KubernetesView, expected: &str| {
            let health = Health {
                pods: Some(unknown(&view)),
                ..healthy()
            };
            let found = verdict("readyz", &health.ready(), &asked("verbose"));
            assert!(found.text.contains(expected), "{}", found.text);
        };
        check(
            view(Some(90_000), Some("refused")),
            "[+]pods ok\nreadyz check passed",
        );
        check(
            view(None, Some("refused")),
            "[-]pods failed: no pod is known: refused",
        );
        check(
            view(None, None),
            "[-]pods failed: the API server has not answered yet",
        );
    }

    #[track_caller]
    fn check_words(checks: &[Check], query: &str, passed: bool, text: &str) {
        let text = text.to_owned();
        let expected = Verdict { passed, text };
        assert_eq!(
            verdict("readyz", checks, &asked(query)),
            expected,
            "{query}"
        );
    }

    #[test]
    fn words_are_those_of_kubernetes() {
        let check = |name, fault: Option<&str>| Check {
            name,
            fault: fault.map(str::to_owned),
        };
        let sound = [check("ping", None)];
        let both = [check("ping", None), check("disk", Some("full"))];
        check_words(&sound, "", true, "ok");
        let text = "[+]ping ok\nreadyz check passed\n";
        check_words(&sound, "verbose", true, text);
        let text = "[+]ping ok\n[-]disk failed: full\nreadyz check failed\n";
        check_words(&both, "", false, text);
        check_words(&both, "exclude=disk", true, "ok");
        let text = "[+]ping ok\n[+]disk excluded: ok\nreadyz check passed\n";
        check_words(&both, "exclude=disk&verbose=1", true, text);
        let text = "[+]ping ok\nwarn: some health checks cannot be excluded: no check has that name\nreadyz check passed\n";
        check_words(&sound, "verbose&exclude=nothing", true, text);
    }
}
