//! How often the recorder reads, and when that is too dear.

/// From one point of the cgroups near their limit to the next when nothing is too dear, in milliseconds.
pub const BEAT_MS: u32 = 100;
/// Points of those in a round.
pub(super) const BEATS: u32 = 10;
/// The most that beats may be stretched.
const LONGEST_STRETCH: u32 = 10;
/// What beats may cost of a processor before they are stretched, in parts of a hundred thousand; and what they would have to cost at
/// the next shorter stretch to come back to that. Where nothing happens the whole agent is to stay below 200, which is measured, and
/// is no reason to record less when something does: this is for machines on which a look at a file takes many times as long.
const DEAR: u64 = 1_000;
const CHEAP: u64 = 750;

/// The stretch of the next round, from that of the last one and what its beats took of a processor, in nanoseconds.
pub(super) fn stretched(stretch: u32, spent_ns: u64) -> u32 {
    let round_ns = |stretch: u32| u64::from(BEAT_MS * stretch * BEATS) * 1_000_000;
    let parts = |stretch| spent_ns.saturating_mul(100_000) / round_ns(stretch);
    let shorter = (stretch - 1).max(1);
    if parts(stretch) >= DEAR {
        (stretch * 2).min(LONGEST_STRETCH)
    } else if parts(shorter) < CHEAP {
        shorter
    } else {
        stretch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_stretched_by_what_they_cost_and_no_longer_than_that() {
        let check = |stretch, percent_of_a_core: f64, expected: u32| {
            let round_ns = f64::from(stretch) * 1e9;
            let spent = round_ns * percent_of_a_core / 100.0;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a few seconds"
            )]
            let spent = spent as u64;
            assert_eq!(
                stretched(stretch, spent),
                expected,
                "{stretch}, {percent_of_a_core} %"
            );
        };
        check(1, 0.0, 1);
        check(1, 0.2, 1);
        check(1, 0.9, 1);
        check(1, 1.1, 2);
        check(6, 1.1, 10);
        check(10, 5.0, 10);
        // At half the pace it costs half: 0.3 % there are 0.6 % at the whole one, which is borne; 0.4 % are not yet.
        check(2, 0.3, 1);
        check(2, 0.4, 2);
        check(10, 0.6, 9);
        check(10, 0.7, 10);
    }
}
