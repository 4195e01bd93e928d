//! What `brink top` knows and what was pressed: changed by news and keys alone, and by nothing else.

use super::growth::Growth;
use super::look::{IncidentRow, Look};
use crate::record::wire::RankedWorkload;

/// Incidents that are kept.
const MOST: usize = 100;
/// Places that a page of the keyboard goes on.
const PAGE: usize = 10;

/// What came from the agent, or from outside.
#[derive(Clone, Debug)]
pub enum News {
    /// A look.
    Look(Box<Look>),
    /// There was none, and why.
    Lost(String),
    /// The newest incidents, newest first.
    Incidents(Vec<IncidentRow>),
    /// One that is told, or told anew.
    Incident(Box<IncidentRow>),
    /// No incidents are heard of, and why.
    Deaf(String),
    /// A signal told us to end.
    End,
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// One place up.
    Up,
    /// One place down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first place.
    First,
    /// To the last place.
    Last,
    /// To the other list.
    Pane,
    /// To the next signal.
    Signal,
    /// Stop, or go on.
    Freeze,
    /// Help, or back from it.
    Help,
    /// Back from help, or the end.
    Back,
    /// The end.
    Quit,
}

/// What a key asks of the terminal's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing but another picture.
    Draw,
    /// A look for this signal, now.
    Ask(String),
    /// The end.
    Quit,
}

/// The list that the keys move in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pane {
    /// Workloads in eviction order.
    #[default]
    Workloads,
    /// The last incidents.
    Incidents,
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Colours.
    pub colour: bool,
    /// More than ASCII.
    pub unicode: bool,
}

impl Manner {
    /// What stands for what is not shown.
    pub(super) const fn mark(self) -> char {
        if self.unicode { '…' } else { '~' }
    }
}

/// Everything that a picture is made from.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) manner: Manner,
    pub(super) look: Look,
    pub(super) incidents: Vec<IncidentRow>,
    /// Why no incidents are heard of.
    pub(super) deaf: Option<String>,
    /// Why there are no newer figures.
    pub(super) lost: Option<String>,
    pub(super) pane: Pane,
    pub(super) is_help: bool,
    pub(super) is_frozen: bool,
    growth: Growth,
    signal: String,
    places: [usize; 2],
}

impl State {
    /// After a first look.
    pub fn new(look: Look, manner: Manner) -> Self {
        let signal = look.signal.clone();
        let mut state = Self {
            manner,
            look,
            incidents: Vec::new(),
            deaf: None,
            lost: None,
            pane: Pane::default(),
            is_help: false,
            is_frozen: false,
            growth: Growth::default(),
            signal,
            places: [0; 2],
        };
        state.measure();
        state
    }

    /// Takes news.
    pub fn hear(&mut self, news: News) {
        match news {
            News::Look(look) => self.see(*look),
            News::Lost(why) => self.lost = Some(why),
            News::Incidents(rows) => {
                self.deaf = None;
                self.incidents = rows;
                self.incidents.truncate(MOST);
            }
            News::Incident(row) => self.take(*row),
            News::Deaf(why) => self.deaf = Some(why),
            News::End => {}
        }
    }

    /// Does what a key means.
    pub fn press(&mut self, key: Key) -> Act {
        match key {
            Key::Back if self.is_help => self.is_help = false,
            Key::Quit | Key::Back => return Act::Quit,
            Key::Help => self.is_help = !self.is_help,
            Key::Freeze => self.is_frozen = !self.is_frozen,
            Key::Pane => {
                self.pane = match self.pane {
                    Pane::Workloads => Pane::Incidents,
                    Pane::Incidents => Pane::Workloads,
                }
            }
            Key::Signal => return self.next_signal(),
            Key::Up => self.go(|place| place.saturating_sub(1)),
            Key::Down => self.go(|place| place.saturating_add(1)),
            Key::PageUp => self.go(|place| place.saturating_sub(PAGE)),
            Key::PageDown => self.go(|place| place.saturating_add(PAGE)),
            Key::First => self.go(|_| 0),
            Key::Last => self.go(|_| usize::MAX),
        }
        Act::Draw
    }

    /// The signal that is wanted.
    pub fn signal(&self) -> &str {
        &self.signal
    }

    /// The place that is chosen in a list.
    pub(super) fn place(&self, pane: Pane) -> usize {
        let last = self.length(pane).saturating_sub(1);
        self.places[pane as usize].min(last)
    }

    /// The workloads in eviction order.
    pub(super) fn workloads(&self) -> &[RankedWorkload] {
        let ranking = self.look.ranking.as_ref();
        ranking.map_or(&[], |ranking| &ranking.workloads)
    }

    /// How fast a workload's use grows in one second.
    pub(super) fn growth(&self, workload: &RankedWorkload) -> Option<i64> {
        self.growth.of(workload)
    }

    fn see(&mut self, look: Look) {
        self.lost = None;
        // One that was on its way when another signal was chosen, or when everything was told to stop.
        if self.is_frozen || look.signal != self.signal {
            return;
        }
        self.look = look;
        self.measure();
    }

    fn measure(&mut self) {
        if let Ok(ranking) = &self.look.ranking {
            self.growth.see(ranking);
        }
    }

    fn take(&mut self, row: IncidentRow) {
        match self.incidents.iter_mut().find(|known| known.id == row.id) {
            Some(known) if known.revision > row.revision => {}
            Some(known) => *known = row,
            // It is the newest, whatever the wall clock says: that may have been set back.
            None => self.incidents.insert(0, row),
        }
        self.incidents.truncate(MOST);
    }

    fn length(&self, pane: Pane) -> usize {
        match pane {
            Pane::Workloads => self.workloads().len(),
            Pane::Incidents => self.incidents.len(),
        }
    }

    fn go(&mut self, to: impl Fn(usize) -> usize) {
        let last = self.length(self.pane).saturating_sub(1);
        self.places[self.pane as usize] = to(self.place(self.pane)).min(last);
    }

    fn next_signal(&mut self) -> Act {
        let known = &self.look.status.signals;
        let at = known.iter().position(|one| one.signal == self.signal);
        let next = at.map_or(0, |at| (at + 1) % known.len());
        let Some(next) = known.get(next) else {
            return Act::Draw;
        };
        self.signal.clone_from(&next.signal);
        self.is_frozen = false;
        Act::Ask(self.signal.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = include_str!("../../tests/page/status.json");
    const RANKING: &str = include_str!("../../tests/page/ranking.json");

    fn look() -> Look {
        Look {
            signal: "memory.available".to_owned(),
            status: serde_json::from_str(STATUS).unwrap(),
            ranking: Ok(serde_json::from_str(RANKING).unwrap()),
        }
    }

    fn state() -> State {
        let manner = Manner {
            colour: false,
            unicode: false,
        };
        State::new(look(), manner)
    }

    fn incident(id: &str, revision: u32, wall: &str) -> IncidentRow {
        let row = serde_json::json!({"id": id, "cause": "memcgOom", "revision": revision, "isFinal": revision > 1,
            "at": {"wall": wall, "monotonicNs": 1}, "victims": [], "moreVictims": 0});
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn keys_move_within_the_list_that_has_them() {
        let mut state = state();
        for (key, expected) in [
            (Key::Up, 0),
            (Key::Down, 1),
            (Key::PageDown, 3),
            (Key::Down, 3),
            (Key::PageUp, 0),
            (Key::Last, 3),
            (Key::Pane, 3),
            (Key::First, 3),
            (Key::Pane, 3),
            (Key::First, 0),
        ] {
            assert_eq!(state.press(key), Act::Draw);
            assert_eq!(state.place(Pane::Workloads), expected, "{key:?}");
        }
        // Whoever stood at the end of a list that became shorter stands at its end.
        state.press(Key::Last);
        let mut shorter = look();
        shorter.ranking.as_mut().unwrap().workloads.truncate(2);
        state.hear(News::Look(Box::new(shorter)));
        assert_eq!(state.place(Pane::Workloads), 1);
    }

    #[test]
    fn help_is_left_before_the_program_is() {
        let mut state = state();
        state.press(Key::Help);
        assert!(state.is_help);
        assert_eq!(state.press(Key::Back), Act::Draw);
        assert!(!state.is_help);
        assert_eq!(state.press(Key::Back), Act::Quit);
        state.press(Key::Help);
        assert_eq!(state.press(Key::Quit), Act::Quit);
    }

    #[test]
    fn another_signal_is_asked_for_and_answers_to_the_last_one_are_too_late() {
        let mut state = state();
        let asked = Act::Ask("pid.available".to_owned());
        assert_eq!(state.press(Key::Signal), asked);
        let mut late = look();
        late.status.mode = "late".to_owned();
        state.hear(News::Look(Box::new(late.clone())));
        assert_ne!(state.look.status.mode, "late");
        late.signal = state.signal().to_owned();
        state.hear(News::Look(Box::new(late)));
        assert_eq!(state.look.status.mode, "late");
        assert_eq!(
            state.press(Key::Signal),
            Act::Ask("memory.headroom".to_owned())
        );
        assert_eq!(
            state.press(Key::Signal),
            Act::Ask("memory.available".to_owned())
        );
        state.look.status.signals.clear();
        assert_eq!(state.press(Key::Signal), Act::Draw);
    }

    #[test]
    fn what_is_frozen_stays_and_what_is_lost_comes_back() {
        let mut state = state();
        state.hear(News::Lost("gone".to_owned()));
        assert_eq!(state.lost.as_deref(), Some("gone"));
        state.press(Key::Freeze);
        let mut other = look();
        other.status.pid = 7;
        state.hear(News::Look(Box::new(other.clone())));
        assert_eq!((state.lost.as_deref(), state.look.status.pid), (None, 4000));
        state.press(Key::Freeze);
        state.hear(News::Look(Box::new(other)));
        assert_eq!(state.look.status.pid, 7);
    }

    #[test]
    fn incidents_are_the_newest_first_each_as_it_was_told_last() {
        let mut state = state();
        state.hear(News::Deaf("off".to_owned()));
        state.hear(News::Incidents(vec![
            incident("b", 2, "0002"),
            incident("a", 1, "0001"),
        ]));
        assert_eq!(state.deaf, None);
        state.hear(News::Incident(Box::new(incident("c", 1, "0003"))));
        state.hear(News::Incident(Box::new(incident("a", 2, "0001"))));
        state.hear(News::Incident(Box::new(incident("b", 1, "0002"))));
        let found: Vec<_> = state
            .incidents
            .iter()
            .map(|row| (row.id.as_str(), row.revision))
            .collect();
        assert_eq!(found, [("c", 1), ("b", 2), ("a", 2)]);
        for number in 0..300 {
            let row = incident(&number.to_string(), 1, &(1000 + number).to_string());
            state.hear(News::Incident(Box::new(row)));
        }
        assert_eq!((state.incidents.len(), MOST), (100, 100));
        assert_eq!(state.incidents[0].id, "299");
    }
}
