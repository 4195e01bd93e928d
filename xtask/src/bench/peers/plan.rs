//! Which runs there are, and in which order.
use super::{contender::Contender, wire::Run, workload::Workload};
use crate::bench::random::SplitMix64;

/// `rounds` runs of each contender under each load, round by round, each in an order of its own.
pub(super) fn plan(
    contenders: &[Contender],
    workloads: &[Workload],
    rounds: usize,
    seed: u64,
) -> Vec<Run> {
    let cells: Vec<(Contender, Workload)> = contenders
        .iter()
        .flat_map(|contender| workloads.iter().map(|workload| (*contender, *workload)))
        .collect();
    let mut random = SplitMix64::new(seed);
    let order = random.rounds(cells.len(), rounds);
    let mut runs = Vec::new();
    for place in order {
        let Some((contender, workload)) = cells.get(place).copied() else {
            continue;
        };
        // Nobody to kill wrongly.
        if contender == Contender::Nothing && workload.is_quiet() {
            continue;
        }
        runs.push(Run {
            number: runs.len(),
            contender,
            workload,
            seed: random.next_u64(),
        });
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_runs() {
        let plan = |seed| plan(&Contender::ALL, &Workload::FULL, 2, seed);
        let runs = plan(1);
        assert_eq!(runs, plan(1));
        assert_ne!(runs, plan(2));
        let quiet = Workload::FULL.iter().filter(|load| load.is_quiet()).count();
        let all = Contender::ALL.len() * Workload::FULL.len() * 2;
        assert_eq!(runs.len(), all - 2 * quiet);
        assert!(runs.iter().enumerate().all(|(at, run)| run.number == at));
    }
}
