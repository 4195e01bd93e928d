//! Where it is all from: the agent's sockets, asked and listened to by threads of their own, so that keys are never waited for.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use brink_stream::model::event::Event;

use super::look::{IncidentRow, IncidentRows, Look};
use super::state::News;
use crate::control::client::{AskError, ask};
use crate::control::http;
use crate::control::protocol::{Answer, Question};

/// The newest incidents.
const LISTED: &str = "/v1/incidents?limit=100";
/// What becomes of incidents from now on.
const TOLD: &str = "/v1/events?follow=1&since=now&kind=eviction-ordered,eviction-completed,oom-kill,kill-observed,incident-closed";
/// From one try to hear of incidents to the next.
const AGAIN: Duration = Duration::from_secs(2);

/// Why there is nothing to look at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// No answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// An answer to something else.
    #[error("the agent answered another question")]
    Other,
}

/// Asks for everything that one look shows.
///
/// # Errors
/// When no agent answers. That there is no ranking yet is none.
pub fn look(socket: &Path, signal: &str) -> Result<Look, LookError> {
    let Answer::Status(status) = ask(socket, &Question::Status)? else {
        return Err(LookError::Other);
    };
    let question = Question::Rank {
        signal: Some(signal.to_owned()),
    };
    let ranking = match ask(socket, &question) {
        Ok(Answer::Ranking(ranking)) => Ok(*ranking),
        Ok(_) => return Err(LookError::Other),
        Err(AskError::Refused(refusal)) => Err(refusal),
        Err(error) => return Err(error.into()),
    };
    Ok(Look {
        signal: signal.to_owned(),
        status: *status,
        ranking,
    })
}

/// The newest incidents, newest first.
///
/// # Errors
/// Why there are none to be had, in words.
pub fn newest(socket: &Path) -> Result<Vec<IncidentRow>, String> {
    let answer = http::get(socket, LISTED).map_err(|error| silent(socket, &error))?;
    let status = answer.status;
    let text = answer.text().map_err(|error| silent(socket, &error))?;
    if status != 200 {
        return Err(refused(socket, status));
    }
    let rows: Result<IncidentRows, _> = serde_json::from_str(&text);
    rows.map(|rows| rows.items)
        .map_err(|error| format!("{} speaks another language: {error}", socket.display()))
}

/// What the next look is to be for, and a bell for having it at once.
#[derive(Debug)]
pub(super) struct Wish {
    signal: Mutex<String>,
    bell: SyncSender<()>,
}

impl Wish {
    /// A wish, and what hears its bell.
    pub(super) fn new(signal: &str) -> (Self, Receiver<()>) {
        let (bell, heard) = sync_channel(1);
        let signal = Mutex::new(signal.to_owned());
        (Self { signal, bell }, heard)
    }

    /// Wants another signal. A bell that has rung and was not heard yet is as good as two.
    pub(super) fn change(&self, signal: String) {
        *self.signal.lock().unwrap_or_else(PoisonError::into_inner) = signal;
        let _rung_already = self.bell.try_send(());
    }

    fn signal(&self) -> String {
        let signal = self.signal.lock();
        signal.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Looks again and again, at once when another signal is wanted, until nobody wants to know any more.
pub(super) fn keep_looking(
    (socket, interval): (&Path, Duration),
    wish: &Wish,
    bell: &Receiver<()>,
    news: &SyncSender<News>,
) {
    loop {
        let found = match look(socket, &wish.signal()) {
            Ok(look) => News::Look(Box::new(look)),
            Err(error) => News::Lost(error.to_string()),
        };
        if news.send(found).is_err() {
            return;
        }
        if bell.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Listens for incidents, and begins anew whenever it breaks off.
pub(super) fn keep_hearing(socket: &Path, news: &SyncSender<News>) {
    loop {
        let why = match hear(socket, news) {
            Ok(()) => format!("the agent on {} has broken off", socket.display()),
            Err(why) => why,
        };
        if news.send(News::Deaf(why)).is_err() {
            return;
        }
        thread::sleep(AGAIN);
    }
}

fn hear(socket: &Path, news: &SyncSender<News>) -> Result<(), String> {
    // Before the list is asked for, so that nothing is missed between it and what is told.
    let mut told = http::get(socket, TOLD).map_err(|error| silent(socket, &error))?;
    if told.status != 200 {
        return Err(refused(socket, told.status));
    }
    if news.send(News::Incidents(newest(socket)?)).is_err() {
        return Ok(());
    }
    while let Some(line) = told.next_line().map_err(|error| silent(socket, &error))? {
        let event: Result<Event, _> = serde_json::from_slice(&line);
        let row = event.ok().and_then(|event| IncidentRow::of(&event));
        if let Some(row) = row
            && news.send(News::Incident(Box::new(row))).is_err()
        {
            return Ok(());
        }
    }
    Ok(())
}

fn silent(socket: &Path, error: &io::Error) -> String {
    let path = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
            "no agent tells events on {path}; `events: {{enabled: true}}` switches them on, --events-socket names another"
        ),
        io::ErrorKind::PermissionDenied => format!("{path} may not be read by this user"),
        _ => format!("{path}: {error}"),
    }
}

fn refused(socket: &Path, status: u16) -> String {
    format!("{} answered with status {status}", socket.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_wish_counts_however_many_were_not_heard() {
        let (wish, bell) = Wish::new("a");
        for signal in ["b", "c", "d"] {
            wish.change(signal.to_owned());
        }
        assert_eq!(wish.signal(), "d");
        assert_eq!(bell.try_iter().count(), 1);
    }
}
