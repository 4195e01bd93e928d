//! Whose turn it is in which beat of a round.
//!
//! A beat that went through all groups to find its own would take as long for that as for reading them: what it touches lies in
//! no cache after 100 ms.

use super::book::{GROUPS, Into};

/// Beats in which every group has its turn once.
pub const BEATS: usize = 10;

/// The turns of a round, by the slots of the groups.
#[derive(Debug)]
pub struct Turns {
    of: [Vec<(usize, Into)>; BEATS],
    /// Somebody came, went, or came near since they were given.
    pub are_stale: bool,
}

impl Default for Turns {
    /// Nobody's. Takes all the memory it ever will.
    fn default() -> Self {
        Self {
            of: std::array::from_fn(|_| Vec::with_capacity(GROUPS)),
            are_stale: true,
        }
    }
}

impl Turns {
    /// Gives a turn to each of these groups, or one in every beat if it is near its limit. Who had one has none any more.
    pub fn give(&mut self, groups: impl Iterator<Item = (usize, bool)>) {
        self.are_stale = false;
        self.of.iter_mut().for_each(Vec::clear);
        for (slot, near) in groups {
            for (turn, slots) in self.of.iter_mut().enumerate() {
                let all = slot % BEATS == turn;
                if near || all {
                    slots.push((slot, Into { near, all }));
                }
            }
        }
    }

    /// Whose turn it is, in the order of slots, and what a reading goes into.
    pub fn of(&self, turn: usize) -> &[(usize, Into)] {
        self.of.get(turn).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_near_has_every_turn_and_everybody_else_one() {
        let mut turns = Turns::default();
        turns.give([(3, true), (13, false), (4, false)].into_iter());
        let of = |turns: &Turns, turn| -> Vec<(usize, bool, bool)> {
            let slots = turns.of(turn).iter();
            slots
                .map(|(slot, into)| (*slot, into.near, into.all))
                .collect()
        };
        assert_eq!(of(&turns, 3), [(3, true, true), (13, false, true)]);
        assert_eq!(of(&turns, 4), [(3, true, false), (4, false, true)]);
        assert_eq!(of(&turns, 5), [(3, true, false)]);
        turns.give([(5, false)].into_iter());
        assert_eq!(of(&turns, 3), []);
        assert_eq!(of(&turns, 5), [(5, false, true)]);
        assert_eq!(of(&turns, BEATS), []);
    }
}
