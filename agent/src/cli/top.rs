//! `brink top`: the node's room, who would go first and what has happened, live.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::asking::{failed, refused, unexpected};
use super::exit::{CliError, Exit};
use super::options::{SocketArgs, signal};
use super::output::Data;
use crate::control::protocol::RefusalReason;
use crate::terminal::{is_coloured, is_dumb, is_unicode};
use crate::top::live::{self, Where};
use crate::top::look::Look;
use crate::top::once;
use crate::top::source::{LookError, look, newest};
use crate::top::state::{Manner, News, State};

/// Options of `brink top`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink top
  brink top --signal pid.available
  brink top --once | head -20           one page of text, as scripts and pipes get it

Keys: ? tells them, q ends. Without a terminal --once is understood. It takes two looks, --interval apart, of which growth \
is the difference. Incidents are there where the agent tells events.")]
pub struct Args {
    /// Print one page of text, and end
    #[arg(long)]
    pub once: bool,
    /// The signal to rank for
    #[arg(long, default_value = "memory.available", value_name = "SIGNAL", value_parser = signal)]
    pub signal: String,
    /// From one look to the next: 500ms, 1s, up to 1m
    #[arg(
        short,
        long,
        default_value = "1s",
        value_name = "TIME",
        value_parser = interval,
        allow_hyphen_values = true
    )]
    pub interval: Duration,
    /// Only ASCII in the bars
    #[arg(long)]
    pub ascii: bool,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Socket of the agent's events; events.sock beside its socket if not given
    #[arg(
        long,
        env = "BRINK_EVENTS_SOCKET",
        value_name = "PATH",
        hide_env_values = true
    )]
    pub events_socket: Option<PathBuf>,
}

/// The shortest and the longest interval.
const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_mins(1);

/// Looks at the agent, once or until it is told to end.
///
/// # Errors
/// When no agent answers, or the terminal cannot be had.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let socket = args.socket.socket.as_path();
    let first = take_look(socket, &args.signal)?;
    if let Err(refusal) = &first.ranking
        && refusal.reason != RefusalReason::NotPossible
    {
        return Err(refused(refusal));
    }
    let stdout = io::stdout();
    let manner = Manner {
        colour: is_coloured(&stdout),
        unicode: is_unicode() && !args.ascii,
    };
    let state = State::new(first, manner);
    let events = args.events_socket.clone();
    let place = Where {
        socket: socket.to_path_buf(),
        events: events.unwrap_or_else(|| socket.with_file_name("events.sock")),
        interval: args.interval,
    };
    if args.once || !stdout.is_terminal() || is_dumb() {
        return print(state, &place);
    }
    live::run(state, &place).map_err(|error| {
        CliError::new(Exit::Failure, error).advise("`brink top --once` needs no terminal")
    })?;
    Ok(Exit::Success)
}

/// One page, after a second look.
fn print(mut state: State, place: &Where) -> Result<Exit, CliError> {
    thread::sleep(place.interval);
    let second = take_look(&place.socket, state.signal())?;
    state.hear(News::Look(Box::new(second)));
    state.hear(match newest(&place.events) {
        Ok(rows) => News::Incidents(rows),
        Err(why) => News::Deaf(why),
    });
    let mut data = Data::new();
    data.print(&once::page(&state, data.style().width))?;
    data.flush()?;
    Ok(Exit::Success)
}

fn take_look(socket: &Path, signal: &str) -> Result<Look, CliError> {
    look(socket, signal).map_err(|error| match error {
        LookError::Ask(error) => failed(socket, error),
        LookError::Other => unexpected(),
    })
}

fn interval(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => 0,
    };
    let number: Option<u64> = number.parse().ok();
    let found = number.and_then(|number| number.checked_mul(millis));
    let found = found.map(Duration::from_millis);
    found
        .filter(|found| (SHORTEST..=LONGEST).contains(found))
        .ok_or_else(|| "give a time from 200ms to 1m, such as 500ms or 2s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_time_within_its_bounds() {
        for (text, millis) in [
            ("200ms", 200),
            ("1s", 1000),
            ("60s", 60_000),
            ("1m", 60_000),
        ] {
            assert_eq!(interval(text), Ok(Duration::from_millis(millis)));
        }
        for bad in [
            "",
            "s",
            "1",
            "0s",
            "199ms",
            "61s",
            "2m",
            "-1s",
            "1.5s",
            "1h",
            "99999999999999999999m",
            "18446744073709551615m",
        ] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
