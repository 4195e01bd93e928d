//! What is answered: views of the shared state, and the few things that can be asked to happen.

mod advice;
mod names;
mod ranked;
mod ranking;
mod reach;
mod status;
mod storage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brink_core::base::{Moment, Span};
use brink_core::node::input::Control;
use tokio::sync::Semaphore;

use super::protocol::{Answer, ModeView, PauseView, Question, RefusalReason, Status};
use super::server::refused;
use crate::guard;
use crate::guard::ports::Command;
use crate::page::routes::Asked;
use crate::record::DecisionRecord;
use crate::record::wire::{API_VERSION, Time, wall_clock};
use crate::record::words::mode_word;
use crate::runtime::prepare::Running;
use crate::runtime::state::State;
use crate::runtime::stop_button::Pressed;
use crate::runtime::streaming::DoorState;

/// How long to wait for fresh figures before older ones are shown.
const FRESH: Duration = Duration::from_millis(200);
/// How long to wait for the guard to hear of a pause or its end.
const HEARD: Duration = Duration::from_secs(2);

/// Everything that answers are made from.
pub struct Views {
    running: Arc<Running>,
    /// Where events are to be served.
    doors: Vec<Arc<DoorState>>,
    /// Tickets given to requests so far.
    tickets: AtomicU64,
    /// One look at files for advice at a time.
    looking: Arc<Semaphore>,
}

impl Views {
    /// Views of a running agent.
    pub fn new(running: Arc<Running>, doors: Vec<Arc<DoorState>>) -> Self {
        Self {
            running,
            doors,
            tickets: AtomicU64::new(0),
            looking: Arc::new(Semaphore::new(1)),
        }
    }

    /// Answers one question.
    pub async fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Status => {
                self.refresh().await;
                Answer::Status(Box::new(self.status()))
            }
            Question::Rank { signal } => {
                self.refresh().await;
                self.ranking(signal.as_deref())
            }
            Question::ExplainWorkload {
                workload,
                signal,
                against,
            } => {
                // Before the figures, which are to be fresh.
                let advice = self.advice(signal.as_deref()).await;
                self.refresh().await;
                self.explanation(&workload, signal.as_deref(), against.as_deref(), advice)
            }
            Question::Decision { order } => self.decision(order),
            Question::Decisions => {
                let state = self.running.shared.lock();
                Answer::Decisions(state.decisions.iter().cloned().collect())
            }
            Question::Pause { seconds } => self.pause(seconds).await,
            Question::Resume => self.resume().await,
        }
    }

    /// What is known, for whoever asks again and again and must not wait: a reading is asked for, and the next answer has it.
    fn inquire(&self) {
        // A queue that is full has an inquiry in it, as a rule; figures carry their age.
        let _too_busy = self.running.ports.commands.send(Command::Inquire);
    }

    /// Asks the guard for a full reading, and waits a moment for it.
    async fn refresh(&self) {
        let before = self.running.shared.lock().closely;
        if self.running.ports.commands.send(Command::Inquire).is_err() {
            return;
        }
        // Older figures carry their age.
        let _too_busy = self.settled(FRESH, |state| state.closely != before).await;
    }

    /// Whether the state becomes so within a time.
    async fn settled(&self, within: Duration, is_so: impl Fn(&State) -> bool) -> bool {
        let settling = async {
            while !is_so(&self.running.shared.lock()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(within, settling).await.is_ok()
    }

    async fn pause(&self, seconds: Option<u64>) -> Answer {
        if let Err(error) = self.running.button.press(seconds.map(Duration::from_secs)) {
            return refused(
                RefusalReason::NotPossible,
                &format!("the stop button cannot be pressed: {error}"),
                "stop the agent to stop enforcement",
            );
        }
        let pressed = self.running.button.read();
        self.control(pressed.control()).await
    }

    async fn resume(&self) -> Answer {
        if let Err(error) = self.running.button.lift() {
            return refused(
                RefusalReason::NotPossible,
                &format!("the stop button cannot be lifted: {error}"),
                &format!("remove {}", self.running.button.path().display()),
            );
        }
        if self.running.button.read() != Pressed::No {
            return refused(
                RefusalReason::NotPossible,
                "the node's annotation brink.dev/pause stops enforcement",
                "take it away: kubectl annotate node NODE brink.dev/pause-",
            );
        }
        self.control(Control::Resume).await
    }

    /// Sends a command and tells the mode that came of it.
    async fn control(&self, control: Control) -> Answer {
        // Everybody waits for his own: another one's may be heard first.
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        let request = Command::Request(control, ticket);
        if self.running.ports.commands.send(request).is_err() {
            return refused(
                RefusalReason::NotPossible,
                "the guard's queue is full; it hears of the stop button as soon as there is room",
                "see the mode with `brink status`",
            );
        }
        let heard = self.settled(HEARD, |state| state.heard >= ticket).await;
        if !heard {
            return refused(
                RefusalReason::NotPossible,
                "the guard has not answered yet",
                "see what it does with `brink status`",
            );
        }
        Answer::Mode(Box::new(ModeView {
            api_version: API_VERSION.to_owned(),
            kind: "Mode".to_owned(),
            now: self.time(guard::now()),
            mode: mode_word(self.running.shared.lock().mode).to_owned(),
            pause: self.pressed(),
        }))
    }

    /// The stop button, if it is pressed.
    fn pressed(&self) -> Option<PauseView> {
        let button = &self.running.button;
        let until = match button.read() {
            Pressed::No => return None,
            Pressed::Forever => None,
            Pressed::For(length) => {
                let nanos = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
                Some(self.time(guard::now() + Span::from_nanos(nanos)))
            }
        };
        let pressers = button.pressers().into_iter();
        Some(PauseView {
            until,
            pressed_by: pressers.map(|one| one.word().to_owned()).collect(),
        })
    }

    fn decision(&self, order: Option<u64>) -> Answer {
        let state = self.running.shared.lock();
        let found = match order {
            Some(order) => state.decision(order),
            None => state.decisions.back(),
        };
        match (found, order) {
            (Some(record), _) => Answer::Decision(Box::new(record.clone())),
            (None, Some(order)) => refused(
                RefusalReason::NotFound,
                &format!("decision {order} is not known"),
                &known_decisions(&state),
            ),
            (None, None) => refused(
                RefusalReason::NotFound,
                "nothing has been decided since the machine was started",
                "`brink rank` shows who would go now",
            ),
        }
    }

    fn time(&self, at: Moment) -> Time {
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(0);
        Time {
            wall: wall_clock(self.running.started.current().realtime_of(nanos)),
            monotonic_ns: at.as_nanos(),
        }
    }
}

impl Asked for Views {
    fn status(&self) -> Status {
        self.inquire();
        Self::status(self)
    }

    fn ranking(&self, signal: Option<&str>) -> Answer {
        self.inquire();
        Self::ranking(self, signal)
    }
}

/// Which decisions can be asked for.
fn known_decisions(state: &State) -> String {
    let number = |record: &DecisionRecord| record.order;
    match (
        state.decisions.front().map(number),
        state.decisions.back().map(number),
    ) {
        (Some(first), Some(last)) if first == last => {
            format!("decision {first} is the only one known since the machine was started")
        }
        (Some(first), Some(last)) => {
            format!("decisions {first} to {last} are known; `brink explain --list` shows them")
        }
        _ => "nothing has been decided since the machine was started".to_owned(),
    }
}
