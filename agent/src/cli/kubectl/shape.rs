//! What the answers of several nodes look like, by what each of them was asked.

use std::ffi::OsString;

use crate::cli::output::Format;
use crate::cli::{Cli, Command, events};

/// How answers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Each at once, as one value.
    Whole,
    /// Each at once, a value a line.
    Lines,
    /// They go on, a value a line.
    Followed,
    /// It wants a terminal for itself.
    Screen,
}

/// What answers look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) manner: Manner,
    pub(super) is_json: bool,
}

/// What the command would print with these arguments here.
///
/// # Errors
/// What it says of them.
pub(super) fn shape(command: &str, arguments: &[OsString]) -> Result<Shape, clap::Error> {
    let words = ["brink", command].map(OsString::from);
    let words = words.into_iter().chain(arguments.iter().cloned());
    let (manner, is_json) = match Cli::read(words)?.command {
        Command::Events(args) if args.follow => {
            (Manner::Followed, args.output == events::Form::Json)
        }
        Command::Events(args) => (Manner::Lines, args.output == events::Form::Json),
        Command::Status(args) if args.watch => {
            (Manner::Followed, args.format.output == Format::Json)
        }
        Command::Status(args) => (Manner::Whole, args.format.output == Format::Json),
        Command::Rank(args) => (Manner::Whole, args.format.output == Format::Json),
        Command::Explain(args) => (Manner::Whole, args.format.output == Format::Json),
        Command::Incident(args) => (Manner::Whole, args.format.output == Format::Json),
        Command::Doctor(args) => (Manner::Whole, args.format.output == Format::Json),
        Command::Top(args) if !args.once => (Manner::Screen, false),
        _ => (Manner::Whole, false),
    };
    Ok(Shape { manner, is_json })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[&str], manner: Manner, is_json: bool) {
        let words: Vec<OsString> = line[1..].iter().map(OsString::from).collect();
        let found = shape(line[0], &words).unwrap();
        assert_eq!(found, Shape { manner, is_json }, "{line:?}");
    }

    #[test]
    fn what_a_command_prints_is_known_from_its_arguments() {
        use Manner::{Followed, Lines, Screen, Whole};
        check(&["events"], Lines, false);
        check(&["events", "-fo", "json"], Followed, true);
        check(&["status", "--watch"], Followed, false);
        check(&["rank", "-o=json", "-n", "3"], Whole, true);
        check(&["incident", "1234", "--scenario"], Whole, false);
        check(&["top"], Screen, false);
        check(&["top", "--once"], Whole, false);
        assert!(shape("rank", &["--nodes".into()]).is_err());
    }
}
