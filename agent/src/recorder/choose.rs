//! Which cgroups are recorded closely: those that are nearest to their own limit, or will be.

use super::book::NEAR;

/// Growth counts for so many seconds ahead.
const AHEAD: u64 = 10;
/// Who has a lane loses it to those that are nearer by more than this, in thousandths: with the lane goes its past.
const HOLD: u32 = 100;

/// How near a cgroup is to its limit, in thousandths of it: what it holds, and what it is going to.
pub fn nearness(held: u64, growth: u64, limit: Option<u64>) -> u32 {
    let Some(limit) = limit else {
        return 0;
    };
    let expected = held.saturating_add(growth.saturating_mul(AHEAD));
    let share = u128::from(expected) * 1_000 / u128::from(limit.max(1));
    u32::try_from(share).unwrap_or(u32::MAX)
}

/// One cgroup that may be recorded closely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its slot.
    pub slot: usize,
    /// How near it is to its limit.
    pub nearness: u32,
    /// The lane it has.
    pub lane: Option<usize>,
}

impl Candidate {
    fn weight(&self) -> u32 {
        // Who is at none of his limit, or has none, holds nothing against those that are.
        let hold = if self.lane.is_some() && self.nearness > 0 {
            HOLD
        } else {
            0
        };
        self.nearness.saturating_add(hold)
    }
}

/// Puts the nearest in front, and gives each of those a lane: who had one keeps it, and the others lose theirs.
pub fn choose(candidates: &mut [Candidate]) {
    candidates.sort_unstable_by_key(|one| (std::cmp::Reverse(one.weight()), one.slot));
    let (near, far) = candidates.split_at_mut(candidates.len().min(NEAR));
    let mut taken = [false; NEAR];
    for one in &*near {
        if let Some(taken) = one.lane.and_then(|lane| taken.get_mut(lane)) {
            *taken = true;
        }
    }
    let mut free = (0..NEAR).filter(|lane| !taken[*lane]);
    for one in near {
        if one.lane.is_none() {
            one.lane = free.next();
        }
    }
    for one in far {
        one.lane = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn growth_brings_a_limit_nearer() {
        let check = |held, growth, limit, expected| {
            assert_eq!(
                nearness(held, growth, limit),
                expected,
                "{held} {growth} {limit:?}"
            );
        };
        check(500, 0, Some(1_000), 500);
        check(500, 10, Some(1_000), 600);
        check(u64::MAX, u64::MAX, Some(1), u32::MAX);
        check(500, 10, None, 0);
        check(0, 0, Some(0), 0);
    }

    #[test]
    fn who_has_no_limit_keeps_nobody_out() {
        let one = |slot: usize, nearness, lane| Candidate {
            slot,
            nearness,
            lane,
        };
        let unlimited = (0..NEAR).map(|slot| one(slot, 0, Some(slot)));
        let limited = (NEAR..NEAR + 3).map(|slot| one(slot, 5, None));
        let mut candidates: Vec<Candidate> = unlimited.chain(limited).collect();
        choose(&mut candidates);
        let near = candidates.iter().filter(|one| one.lane.is_some());
        let with_limit = near.filter(|one| one.nearness > 0).count();
        assert_eq!(with_limit, 3);
    }

    proptest! {
        #[test]
        fn the_nearest_have_a_lane_each_and_keep_it(
            shares in proptest::collection::vec((0..300_u32, any::<bool>()), 0..80),
        ) {
            let mut lanes = 0..NEAR;
            let mut candidates: Vec<Candidate> = shares
                .into_iter()
                .enumerate()
                .map(|(slot, (nearness, had))| Candidate {
                    slot,
                    nearness,
                    lane: had.then(|| lanes.next()).flatten(),
                })
                .collect();
            let before = candidates.clone();
            choose(&mut candidates);
            let with = candidates.iter().filter(|one| one.lane.is_some()).count();
            prop_assert_eq!(with, candidates.len().min(NEAR));
            let mut lanes: Vec<usize> = candidates.iter().filter_map(|one| one.lane).collect();
            lanes.sort_unstable();
            lanes.dedup();
            prop_assert_eq!(lanes.len(), with);
            for one in &candidates {
                let had = before[one.slot].lane;
                if let (Some(had), Some(has)) = (had, one.lane) {
                    prop_assert_eq!(had, has);
                }
            }
            let weight = |one: &Candidate| before[one.slot].weight();
            let (near, far): (Vec<_>, Vec<_>) = candidates.iter().partition(|one| one.lane.is_some());
            let (lowest, highest) = (near.into_iter().map(weight).min(), far.into_iter().map(weight).max());
            prop_assert!(highest.is_none_or(|highest| Some(highest) <= lowest));
            let mut again = candidates.clone();
            choose(&mut again);
            for list in [&mut again, &mut candidates] {
                list.sort_unstable_by_key(|one| one.slot);
            }
            prop_assert_eq!(again, candidates);
        }
    }
}
