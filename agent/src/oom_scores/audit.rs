//! Looking: round after round through all that should have a value, telling what differs once for each change.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use brink_core::node::oom_score::Score;
use brink_host::HostError;
use brink_host::cgroup::Layout;
use brink_host::process::oom_scores::{Done, Refused, Scores, look, set};
use tracing::{debug, info, warn};

use super::expect::Audited;
use crate::config::OomScores;
use crate::guard;
use crate::telling::Telling;

/// From the end of one round to the next.
const PERIOD: Duration = Duration::from_mins(1);
/// A runtime sets the value after it has made the group.
const SETTLE: Duration = Duration::from_secs(2);

/// What one container has, where that is not what it should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What its processes have.
    pub seen: Scores,
    /// What came of setting it; none where that was not asked for.
    pub done: Option<Done>,
}

/// What the auditor goes by; its other half is [`Rounds`].
pub struct Auditor {
    root: PathBuf,
    layout: Layout,
    telling: Telling,
    setting: Mutex<Setting>,
}

/// What is in force.
#[derive(Clone, Copy, Debug)]
struct Setting {
    scores: OomScores,
    /// Whether orders are carried out; not before the guard has said so.
    enforces: bool,
}

/// How far the auditor is, and what it has told.
#[derive(Default)]
pub struct Rounds {
    list: Option<Arc<[Audited]>>,
    at: usize,
    next: Option<Instant>,
    /// By the ids of control groups, which are never given twice.
    told: HashMap<u64, Told>,
}

/// What was told of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    value: i64,
    score: Score,
    refused: Option<Refused>,
}

/// What one audited container has; none where it is right, and where nobody is in it.
///
/// # Errors
/// [`HostError`] when it cannot be read.
pub fn look_at(root: &Path, one: &Audited) -> Result<Option<Scores>, HostError> {
    let Some(target) = one.target() else {
        return Ok(None);
    };
    let seen = look(root, target)?;
    Ok(seen.filter(|seen| !one.score.admits(seen.value)))
}

impl Auditor {
    /// Sets nothing before it is told that orders are carried out.
    pub fn new(root: &Path, layout: Layout, (scores, telling): (OomScores, Telling)) -> Self {
        Self {
            root: root.to_path_buf(),
            layout,
            telling,
            setting: Mutex::new(Setting {
                scores,
                enforces: false,
            }),
        }
    }

    /// Takes another setting over.
    pub fn take(&self, scores: OomScores) {
        self.with(|setting| setting.scores = scores);
    }

    /// Tells whether orders are carried out.
    pub fn enforce(&self, enforces: bool) {
        self.with(|setting| setting.enforces = enforces);
    }

    fn with<T>(&self, see: impl FnOnce(&mut Setting) -> T) -> T {
        see(&mut self.setting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether anybody would be told, or anything done.
    fn is_of_use(&self) -> bool {
        let setting = self.with(|setting| *setting);
        match setting.scores {
            OomScores::Off => false,
            OomScores::Audit => self.telling.hub().is_some(),
            OomScores::Set => true,
        }
    }

    /// One container; tells how many of its processes were looked at.
    fn audit(&self, one: &Audited, told: &mut HashMap<u64, Told>) -> usize {
        let setting = self.with(|setting| *setting);
        let Some(target) = one.target().filter(|_| setting.scores.looks_at(one.runner)) else {
            return 0;
        };
        let id = target.id().0;
        let seen = match look(&self.root, target) {
            Ok(Some(seen)) => seen,
            Ok(None) => {
                told.remove(&id);
                return 1;
            }
            Err(error) => {
                debug!(%error, "the oom_score_adj of a container cannot be read");
                return 1;
            }
        };
        let looked_at = seen.seen;
        if one.score.admits(seen.value) {
            told.remove(&id);
            return looked_at;
        }
        let sets = setting.enforces && setting.scores.sets(one.runner);
        let done = sets.then(|| {
            let place = (self.root.as_path(), &self.layout);
            set(place, target, seen.value, one.score.plain)
        });
        let now = Told {
            value: seen.value,
            score: one.score,
            refused: done.as_ref().and_then(|done| done.why),
        };
        let is_act = done.as_ref().is_some_and(|done| done.set > 0);
        if told.insert(id, now) != Some(now) || is_act {
            let difference = Difference { seen, done };
            say(one, &difference);
            self.telling.oom_score_adj(guard::now(), one, &difference);
        }
        looked_at
    }
}

fn say(one: &Audited, Difference { seen, done }: &Difference) {
    let cgroup = one.target().map_or("", |target| target.dir().group());
    let (value, expected) = (seen.value, one.score.plain);
    match done {
        Some(Done { why: Some(why), .. }) => {
            warn!(cgroup, value, expected, %why, "oom_score_adj cannot be set");
        }
        Some(Done { set, .. }) => info!(cgroup, value, expected, set, "oom_score_adj was set"),
        None => info!(cgroup, value, expected, "oom_score_adj differs"),
    }
}

impl Rounds {
    /// How long to wait for the next turn; none where there is nothing to look at.
    pub fn patience(&self, now: Instant) -> Option<Duration> {
        Some(self.next?.saturating_duration_since(now))
    }

    /// Goes on through a list, if it is time; no further once so many processes were looked at.
    pub fn turn(
        &mut self,
        auditor: &Auditor,
        (list, most): (&Arc<[Audited]>, usize),
        now: Instant,
    ) {
        self.follow(list, now);
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        self.next = Some(now);
        if !auditor.is_of_use() {
            self.end_round(now);
            return;
        }
        let mut looked_at = 0;
        while looked_at < most {
            let Some(one) = list.get(self.at) else {
                self.end_round(now);
                return;
            };
            self.at += 1;
            looked_at += auditor.audit(one, &mut self.told);
        }
    }

    /// Another list begins anew, a moment later: what is in it may just be starting.
    fn follow(&mut self, list: &Arc<[Audited]>, now: Instant) {
        if self
            .list
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, list))
        {
            return;
        }
        let ids: HashSet<u64> = list
            .iter()
            .filter_map(|one| Some(one.target()?.id().0))
            .collect();
        self.told.retain(|id, _| ids.contains(id));
        (self.list, self.at) = (Some(Arc::clone(list)), 0);
        self.next = (!list.is_empty()).then_some(now + SETTLE);
    }

    fn end_round(&mut self, now: Instant) {
        (self.at, self.next) = (0, Some(now + PERIOD));
    }
}
