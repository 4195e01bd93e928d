//! Evictions by the dozen: how fast they are, what is told of them, and what stays of the pods.

use std::env;
use std::time::Instant;

use brink::record::DecisionRecord;

use crate::figures::{Spread, hold, share};
use crate::leak::{Kind, MIB, Waiting, leaker, wait_for_room};
use crate::running::{Agent, MANY};
use crate::support::{available, holds_in_time};
use crate::told::{PHASES, is_failed, is_shown_running_again, is_started_again};
use crate::watch::Watch;
use crate::{LAST_WORD, sleeper, wait_running};

/// Another number of evictions.
const COUNT: &str = "BRINK_EVICTIONS";
/// Evictions where nobody asks for another number: what one of a hundred is allowed then means something.
const EVICTIONS: usize = 200;
/// Pods that are started together, and taken apart together: a kubelet takes seconds for either, however few they are.
const ROUND: usize = 5;
/// What each of them takes: more than there is room for.
const LEAK: u64 = 250 * MIB;
const LABEL: &str = "dozens";
const MS: f64 = 1e6;

/// An evicted pod, and what was measured.
struct Evicted<'a> {
    waited: Waiting<'a>,
    record: DecisionRecord,
}

impl Evicted<'_> {
    /// From the sample that showed the crossing to a stage, in milliseconds.
    fn after(&self, stage: &str) -> f64 {
        let nanos = self.record.since_sample(stage);
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds in nanoseconds, shown in milliseconds"
        )]
        let millis = nanos.unwrap_or_else(|| panic!("no {stage}: {:#?}", self.record)) as f64 / MS;
        millis
    }
}

/// Pods that leak, one after the other, each evicted and told; the kubelet takes them all apart.
#[test]
#[ignore = "slow: eleven minutes for two hundred evictions"]
fn evictions_by_the_dozen_are_fast_and_leave_nothing() {
    let cluster = cluster!(with_pods_here);
    let kinds = Kind::here();
    let count = env::var(COUNT).map_or(EVICTIONS, |text| text.parse().expect(COUNT));
    assert!(
        count >= kinds.len(),
        "{COUNT}: one of each kind at the least"
    );
    let bystander = cluster.pod(&sleeper(&format!("bystander-{}", std::process::id())));
    wait_running(&bystander);
    let selector = format!("brink-test={LABEL}");
    let phases = Watch::of(&cluster, ("labelSelector", selector.as_str()), &PHASES);
    let before = available();
    let (_line, agent) = Agent::on_pods(&cluster, "enforce", "", MANY);
    let mut all = Vec::new();
    for first in (0..count).step_by(ROUND) {
        let numbers = first..count.min(first + ROUND);
        let manifests = numbers.map(|number| {
            let kind = kinds[number % kinds.len()];
            let name = format!("dozen-{}-{number}", std::process::id());
            (kind, leaker(&name, LABEL, kind, LEAK))
        });
        let mut evicted = Vec::new();
        for waiting in Waiting::start(&cluster, manifests) {
            wait_for_room(before, &agent);
            evicted.push(evict(&agent, waiting));
        }
        for one in evicted {
            let pod = &one.waited.pod;
            assert!(holds_in_time(|| is_failed(pod)), "{}", pod.described());
            one.waited.wait_until_apart();
            all.push(one);
        }
    }
    let end = Instant::now() + LAST_WORD;
    assert!(holds_in_time(|| Instant::now() > end));
    assert_eq!(bystander.status()["phase"], "Running", "nobody else dies");
    all.iter().for_each(check);
    let told = phases.told();
    let shown = all
        .iter()
        .filter(|one| is_shown_running_again(&one.waited.pod, &told))
        .count();
    println!("{count} evictions, {shown} shown as Running once more");
    report(&all, &kinds, (shown, phases.gaps()));
}

/// Has one pod evicted, and waits until that is told.
fn evict<'a>(agent: &Agent, waited: Waiting<'a>) -> Evicted<'a> {
    waited.begin();
    assert!(
        holds_in_time(|| agent.has_told(&waited.uid)),
        "{}\n{}",
        waited.pod.described(),
        agent.log()
    );
    Evicted {
        record: agent.decision(&waited.uid).unwrap(),
        waited,
    }
}

/// It has failed for good and as a disruption.
fn check(evicted: &Evicted<'_>) {
    let Evicted { waited, record } = evicted;
    assert_eq!(record.victim.uid, waited.uid);
    assert!(is_failed(&waited.pod), "{}", waited.pod.described());
}

/// The figures, each held to what it must reach. So many were shown as running once more by a watch with so many gaps.
fn report(all: &[Evicted<'_>], kinds: &[Kind], (shown, gaps): (usize, u32)) {
    let of = |kind: Option<Kind>, stage: &str| {
        let chosen = all
            .iter()
            .filter(|one| kind.is_none_or(|kind| one.waited.kind == kind));
        Spread::of(chosen.map(|one| one.after(stage)))
    };
    for kind in kinds {
        for stage in ["lastSignal", "gone"] {
            let found = of(Some(*kind), stage);
            println!("{}: sample to {stage}: {found}", kind.name());
        }
    }
    let [signals, gone] = ["lastSignal", "gone"].map(|stage| of(None, stage));
    println!("all: sample to lastSignal: {signals}");
    println!("all: sample to gone: {gone}");
    let restarts = all.iter().filter(|one| is_started_again(&one.waited.pod));
    let restarts = restarts.count();
    println!("{restarts} with a container started again");
    hold(&[
        ("sample to lastSignal, median, ms", signals.median(), 5.0),
        ("sample to lastSignal, 99 of 100, ms", signals.of_99(), 20.0),
        // Nobody has held more than half a gibibyte.
        ("sample to gone, median, ms", gone.median(), 70.0),
        ("started again, of 100", share(restarts, all.len()), 3.0),
        (
            "shown as Running again, of 100",
            share(shown, all.len()),
            0.0,
        ),
        // What is in one nobody has seen.
        ("gaps in the watch of that", f64::from(gaps), 0.0),
    ]);
}
