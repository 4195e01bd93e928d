//! The way of a cgroup to its own limit: when it will be there at its pace, and whether that is worth a warning.
//!
//! What counts is what reclaim cannot give back without swap: page cache that grows to the limit is no news. The pace is
//! the smaller one of the last seconds and of their last third, so that growth that has ended is none. One step that makes
//! up most of the growth is an allocation, and no leak.

use super::point::{Stamp, bytes, units};

/// A limit is near when it is reached within so long, in milliseconds.
pub const HORIZON_MS: u64 = 10_000;
/// What the pace is taken from: the notes of so long, in milliseconds, and at least [`LEAST`] of them.
const WINDOW_MS: u32 = 3_000;
/// Notes are no closer than this, in milliseconds.
const SPACING_MS: u32 = 200;
/// Notes without which there is no pace.
const LEAST: usize = 4;
/// Notes that are kept.
const NOTES: usize = 16;
/// Growth that is none, in bytes a second; and the same as a part of the limit.
const LEAST_PACE: u64 = 256 << 10;
const LEAST_PACE_OF_LIMIT: u64 = 500;
/// A single step may make up so many of a hundred of the growth.
const LARGEST_STEP: u64 = 60;
/// An approach is over when the limit was not near for so long, in milliseconds; or a quarter of what was held is gone.
const REST_MS: u32 = 30_000;

/// What a cgroup held at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// When.
    pub at: Stamp,
    /// What it held, in units of 4 KiB.
    pub held: u32,
}

/// When a limit will be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Growth of what cannot be reclaimed, in bytes a second.
    pub growth: u64,
    /// Until the limit is reached, in milliseconds.
    pub time_to_limit_ms: u64,
}

/// One cgroup's way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Approach {
    notes: [Note; NOTES],
    count: usize,
    told: Option<Told>,
}

/// The warning that stands.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// The most that was held since, in bytes.
    most: u64,
    /// When the limit was near last.
    near: Stamp,
}

impl Approach {
    /// Bytes of the notes.
    #[cfg(test)]
    pub const NOTES_BYTES: usize = NOTES * size_of::<Note>();

    /// Takes what the cgroup holds now, in bytes, and says when its limit is near, once for each approach.
    pub fn note(&mut self, at: Stamp, held: u64, limit: Option<u64>) -> Option<Forecast> {
        if !self.push(at, held) {
            return None;
        }
        let forecast = imminent(self.notes(), limit?);
        let Some(told) = &mut self.told else {
            let (most, near) = (held, at);
            self.told = forecast.map(|_| Told { most, near });
            return forecast;
        };
        told.most = told.most.max(held);
        if forecast.is_some() {
            told.near = at;
        }
        let rested = told.near.before(at).is_none_or(|rest| rest >= REST_MS);
        if rested || held < told.most / 4 * 3 {
            self.told = None;
        }
        None
    }

    /// Growth over the latest notes, steady or not, in bytes a second; zero where there is none or it is not known yet.
    pub fn growth(&self) -> u64 {
        let ends = self.notes().first().zip(self.notes().last());
        ends.and_then(|(first, last)| rate(*first, *last))
            .unwrap_or(0)
    }

    fn notes(&self) -> &[Note] {
        self.notes.get(..self.count).unwrap_or_default()
    }

    /// False when it is too early for another note.
    fn push(&mut self, at: Stamp, held: u64) -> bool {
        let last = self.notes().last().map(|last| last.at.before(at));
        match last {
            // The clock went back, or stood still for weeks.
            Some(None) => self.count = 0,
            Some(Some(apart)) if apart < SPACING_MS => return false,
            _ => {}
        }
        if self.count == NOTES {
            self.notes.rotate_left(1);
            self.count -= 1;
        }
        if let Some(place) = self.notes.get_mut(self.count) {
            let held = units(held);
            *place = Note { at, held };
            self.count += 1;
        }
        true
    }
}

/// When the limit, in bytes, will be reached at the pace of these notes, oldest first; none if that is not soon, or
/// nothing to go by.
pub fn imminent(notes: &[Note], limit: u64) -> Option<Forecast> {
    let held = bytes(notes.last()?.held);
    let growth = pace(notes)?;
    if held < limit / 2 || growth < LEAST_PACE.max(limit / LEAST_PACE_OF_LIMIT) {
        return None;
    }
    let left = limit.saturating_sub(held);
    let time_to_limit_ms = left.saturating_mul(1_000).checked_div(growth)?;
    (time_to_limit_ms <= HORIZON_MS).then_some(Forecast {
        growth,
        time_to_limit_ms,
    })
}

/// Steady growth at the end of these notes, in bytes a second.
fn pace(notes: &[Note]) -> Option<u64> {
    let last = *notes.last()?;
    let recent = |note: &Note| note.at.before(last.at).is_some_and(|age| age <= WINDOW_MS);
    let inside = notes.iter().rev().take_while(|note| recent(note)).count();
    let window = notes.get(notes.len().checked_sub(inside.max(LEAST))?..)?;
    let first = *window.first()?;
    let total = grown(first, last)?;
    let mut steps = window.iter().zip(window.iter().skip(1));
    let is_jump = steps.any(|(before, after)| {
        let step = grown(*before, *after).unwrap_or(0);
        step.saturating_mul(100) > total.saturating_mul(LARGEST_STEP)
    });
    let third = window.len() - 1 - (window.len() - 1).div_ceil(3);
    let whole = rate(first, last)?;
    let latest = rate(*window.get(third)?, last)?;
    (!is_jump).then_some(whole.min(latest))
}

/// Growth from one note to a later one, in bytes; none if there is none.
fn grown(before: Note, after: Note) -> Option<u64> {
    let grown = after
        .held
        .checked_sub(before.held)
        .filter(|grown| *grown > 0);
    grown.map(bytes)
}

fn rate(before: Note, after: Note) -> Option<u64> {
    let apart = before.at.before(after.at)?;
    let grown = grown(before, after)?;
    grown.saturating_mul(1_000).checked_div(apart.into())
}

#[cfg(test)]
#[path = "approach_tests.rs"]
mod tests;
