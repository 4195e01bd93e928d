//! Containers whose `oom_score_adj` is not what it should be, as events.

use brink_core::base::Moment;
use brink_host::process::oom_scores::Done;
use brink_stream::model::data::{OomScoreAdj, ScoreResult};
use brink_stream::model::kind::Kind;

use super::Telling;
use super::workloads::subject;
use crate::oom_scores::{Audited, Difference};

impl Telling {
    /// Tells what a container has, and what came of setting it.
    pub fn oom_score_adj(&self, at: Moment, one: &Audited, difference: &Difference) {
        let Some(target) = one.target().filter(|_| self.hub().is_some()) else {
            return;
        };
        let Difference { seen, done } = difference;
        let result = match done {
            Some(Done { why: Some(_), .. }) => ScoreResult::Refused,
            Some(Done { set: 1.., .. }) => ScoreResult::Set,
            Some(_) | None => ScoreResult::Differs,
        };
        let data = OomScoreAdj {
            container: one.container.clone(),
            cgroup: target.dir().group().to_owned(),
            pid: seen.first.pid,
            process: seen.name.clone(),
            value: seen.value,
            expected: one.score.plain,
            others: count(seen.others),
            result,
            set: done.as_ref().map_or(0, |done| count(done.set)),
            why: done
                .as_ref()
                .and_then(|done| done.why)
                .map(|why| why.to_string()),
        };
        let of = subject(&one.workload);
        self.say(Kind::OomScoreAdjDiffers, at, Some(of), &data);
    }
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}
