//! When soft thresholds were met and left, as far as the journal of events has it.

use std::collections::BTreeMap;
use std::path::Path;

use brink_core::base::Moment;
use brink_stream::hub::{Line, Past as _, Position};
use brink_stream::journal::JournalError;
use brink_stream::journal::past::JournalPast;
use brink_stream::model::data::Threshold;
use brink_stream::model::event::Event;
use brink_stream::model::kind::Kind;

use super::source::Known;
use crate::config::AgentConfig;

/// So far back, microseconds.
const BACK: i64 = 6 * 3600 * 1_000_000;
/// Events that are read at a time.
const PAGE: usize = 512;
/// Pages that are read at most: a journal holds no more events of six hours unless something floods it.
const MOST_PAGES: usize = 256;

/// Changes of soft thresholds in the last six hours, the oldest first, by signal and grace in seconds. The times are of the wall clock,
/// since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crossings {
    /// When each was met, and when no longer.
    pub soft: BTreeMap<(String, i64), Vec<(Moment, bool)>>,
    /// Whether more was there than was read.
    pub is_cut: bool,
}

impl Crossings {
    /// What the journal that is configured has of the time before `now`, microseconds since 1970; none where none is kept.
    pub fn of(config: &AgentConfig, now: i64) -> Option<Known<Self>> {
        let events = &config.events;
        (events.enabled && events.journal.enabled).then(|| Self::read(&events.journal.path, now))
    }

    /// Reads what a journal has of the time before `now`, microseconds since 1970. There may be none yet.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(path: &Path, now: i64) -> Known<Self> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let journal = match JournalPast::open(path) {
            Ok(journal) => journal,
            Err(JournalError::Missing { .. } | JournalError::Nothing { .. }) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(failed(&error)),
        };
        let since = now.saturating_sub(BACK);
        let mut position = journal.before(since).map_err(|error| failed(&error))?;
        let mut crossings = Self::default();
        for _ in 0..MOST_PAGES {
            let page = journal
                .after(position.as_ref(), PAGE)
                .map_err(|error| failed(&error))?;
            let Some(last) = page.lines.last() else {
                return Ok(crossings);
            };
            position = Some(Position {
                boot: last.boot.clone(),
                seq: last.seq,
            });
            let recent = page.lines.iter().filter(|line| line.wall_us >= since);
            recent.for_each(|line| crossings.take(line));
        }
        crossings.is_cut = true;
        Ok(crossings)
    }

    fn take(&mut self, line: &Line) {
        let is_met = match line.of {
            Kind::ThresholdCrossed => true,
            Kind::ThresholdCleared => false,
            _ => return,
        };
        let event = serde_json::from_slice::<Event>(&line.text);
        let data = event.and_then(|event| serde_json::from_str::<Threshold>(event.data.get()));
        // What this version does not understand is no crossing of its own.
        if let Ok(data) = data
            && !data.hard
        {
            let at = Moment::from_nanos(line.wall_us.saturating_mul(1000));
            let changes = self.soft.entry((data.signal, data.grace_seconds));
            changes.or_default().push((at, is_met));
        }
    }
}
