//! `brink incident`: the last incidents in a table, and the whole story of one.

use std::path::{Path, PathBuf};

use brink_stream::hub::{Past as _, Position};
use brink_stream::journal::past::JournalPast;
use brink_stream::journal::read::Damage;
use brink_stream::model::API_VERSION;
use brink_stream::model::event::Event;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use clap::builder::NonEmptyStringValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, value_parser};
use serde::Serialize;

use super::asking::unreadable;
use super::exit::{CliError, Exit};
use super::options::FormatArgs;
use super::output::{Data, Format, Talk};
use super::progress::Progress;
use super::stream::{self, StreamArgs};
use crate::page::export;
use crate::scenario;
use crate::story;
use crate::story::headline::{cause_words, decision, short_subject, subject};
use crate::terminal::{Column, Screen, Style, cut, is_unicode, plain};

/// Options of `brink incident`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink incident                        the last incidents
  brink incident 3f2a-17                the whole story of one
  brink incident 3f2a-17 --html > 17.html
  brink incident 3f2a-17 --scenario > 17.json && brink simulate 17.json
  brink incident --journal /var/lib/brink/events

The beginning of an id is enough where only one begins so. --scenario: try another threshold on what really happened. That of an \
eviction has the threshold that was crossed; that of another kill has those that were configured: change them in its config. \
--journal reads what an agent has left, whether or not it runs.")]
pub struct Args {
    /// An incident, or the beginning of its id; a list of all that are remembered if not given
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub id: Option<String>,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// One file of HTML with everything in it
    #[arg(long, requires = "id", conflicts_with_all = ["output", "scenario"])]
    pub html: bool,
    /// A scenario for `brink simulate`
    #[arg(long, requires = "id", conflicts_with = "output")]
    pub scenario: bool,
    /// Only ASCII in the chart
    #[arg(long)]
    pub ascii: bool,
    /// A journal instead of the agent.
    #[command(flatten)]
    pub journal: JournalArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: StreamArgs,
}

/// `--journal`, which goes with no `--socket`. A variable that names the socket is for those who ask one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalArgs {
    /// The folder of the journal.
    pub folder: Option<PathBuf>,
}

impl clap::Args for JournalArgs {
    fn augment_args(command: Command) -> Command {
        let journal = Arg::new("journal")
            .long("journal")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .help("Read this event journal, without an agent");
        command.arg(journal)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for JournalArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.folder = matches.get_one("journal").cloned();
        let is_flag = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        if self.folder.is_none() || !is_flag("socket") {
            return Ok(());
        }
        let mut error = clap::Error::new(ErrorKind::ArgumentConflict);
        for (kind, text) in [
            (ContextKind::InvalidArg, "--journal <DIR>"),
            (ContextKind::PriorArg, "--socket <PATH>"),
        ] {
            error.insert(kind, ContextValue::String(text.to_owned()));
        }
        Err(error)
    }
}

/// Kinds of events that carry an incident.
const KINDS: [Kind; 5] = [
    Kind::EvictionOrdered,
    Kind::EvictionCompleted,
    Kind::OomKill,
    Kind::KillObserved,
    Kind::IncidentClosed,
];
/// Characters of an id that is none which are repeated.
const LONGEST_ID: usize = 60;
/// Characters of a whole boot's id.
const LONGEST_BOOT: usize = 36;
/// Columns from which on the list has room for everything.
const WIDE: usize = 100;
/// Events of a journal that are read at a time.
const PAGE: usize = 64;

/// `-o json` without an id.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IncidentList<'a> {
    api_version: &'static str,
    kind: &'static str,
    /// The newest first, as `/v1/incidents` has them.
    items: Vec<&'a Incident>,
}

/// Asks the agent, or reads a journal, and prints what was asked for.
///
/// # Errors
/// When no agent answers, the journal cannot be read, or there is no such incident.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let mut known = Known::new(args);
    match &args.journal.folder {
        Some(path) => known.read(path)?,
        None => known.ask(&args.socket.socket).map_err(or_journal)?,
    }
    if known.is_cut {
        Talk::new().say(
            "incidents may be missing here: not everything that was told is kept, or can be read",
        );
    }
    let mut data = Data::new();
    if let Some(id) = &args.id {
        let incident = known.only(id)?;
        show(&mut data, args, incident)?;
    } else if args.format.output == Format::Json {
        data.json(&IncidentList {
            api_version: API_VERSION,
            kind: "IncidentList",
            items: known.incidents.iter().rev().collect(),
        })?;
    } else {
        data.print(&list(&known.incidents, data.style()))?;
    }
    data.flush()?;
    Ok(Exit::Success)
}

/// Where no agent answers, what one has left can be read.
fn or_journal(error: CliError) -> CliError {
    const OR: &str = "`--journal DIR` reads what an agent has left: events.journal.path, /var/lib/brink/events if nothing else is set";
    match error {
        CliError::Other {
            exit: Exit::NoAgent,
            error,
            advice: Some(advice),
        } => CliError::new(Exit::NoAgent, error).advise(format!("{advice}. {OR}")),
        other => other,
    }
}

fn show(data: &mut Data, args: &Args, incident: &Incident) -> Result<(), CliError> {
    if args.html {
        return data.print(&export(incident)?);
    }
    if args.scenario {
        return as_scenario(data, incident);
    }
    match args.format.output {
        Format::Json => data.json(incident),
        Format::Text => {
            let is_ascii = args.ascii || !is_unicode();
            data.print(&story::page(incident, data.style(), is_ascii))
        }
    }
}

fn as_scenario(data: &mut Data, incident: &Incident) -> Result<(), CliError> {
    let of = || format!("no scenario of incident {}", plain(&incident.id));
    if !incident.is_final {
        let error = anyhow::anyhow!("{}: it is still open", of());
        return Err(CliError::new(Exit::Failure, error)
            .advise("its record is whole when it closes: ask again then"));
    }
    let written = match decision(incident) {
        Some(decision) => scenario::of_decision(&decision, incident.recording.value()),
        None => scenario::of_incident(incident),
    };
    let written = written.map_err(|problem| {
        CliError::new(Exit::Failure, anyhow::anyhow!("{}: {problem}", of()))
            .advise("`brink incident ID` shows what its record has")
    })?;
    for note in &written.notes {
        Talk::new().say(note);
    }
    data.json(&written.file)
}

/// The incidents that are wanted, each as it was told last, in the order in which they began.
struct Known<'a> {
    id: Option<&'a str>,
    /// Whether recordings are left out: a list has no use for them.
    is_brief: bool,
    is_for_people: bool,
    incidents: Vec<Incident>,
    /// Whether something that was told could not be read.
    is_cut: bool,
}

impl<'a> Known<'a> {
    fn new(args: &'a Args) -> Self {
        Self {
            id: args.id.as_deref(),
            is_brief: args.id.is_none() && args.format.output == Format::Text,
            is_for_people: args.format.output == Format::Text && !args.scenario,
            incidents: Vec::new(),
            is_cut: false,
        }
    }

    fn ask(&mut self, socket: &Path) -> Result<(), CliError> {
        let progress = Progress::of_export();
        if let Some(id) = self.id.filter(|id| is_whole(id))
            && let Some(incident) = stream::incident(socket, id)?
        {
            self.incidents.push(incident);
            return Ok(());
        }
        let kinds = KINDS.map(Kind::word).join(",");
        let mut events = stream::events(socket, &[("kind", kinds)])?;
        while let Some(told) = events.next()? {
            progress.step(told.line.len());
            // Of no other kind that was asked for: what this reader was not given.
            self.is_cut |= told.event.of == Kind::Loss;
            self.take(&told.event);
        }
        Ok(())
    }

    fn read(&mut self, path: &Path) -> Result<(), CliError> {
        let wrong = |error: anyhow::Error| {
            let advice = "name the folder of events.journal.path; `brink config show` has it";
            unreadable("folder", path, error, advice)
        };
        let journal = JournalPast::open(path).map_err(|error| wrong(error.into()))?;
        let progress = Progress::of_export();
        let mut position: Option<Position> = None;
        loop {
            let page = journal
                .after(position.as_ref(), PAGE)
                .map_err(|error| wrong(error.into()))?;
            self.is_cut |= page.is_cut;
            let Some(last) = page.lines.last() else {
                break;
            };
            position = Some(Position {
                boot: last.boot.clone(),
                seq: last.seq,
            });
            for line in &page.lines {
                progress.step(line.text.len());
            }
            for line in page.lines.iter().filter(|line| line.of.is_incident()) {
                if let Ok(event) = serde_json::from_slice(&line.text) {
                    self.take(&event);
                }
            }
        }
        // What is said next has a line of its own.
        drop(progress);
        for damage in journal.damage().map_err(|error| wrong(error.into()))? {
            Talk::new().say(&damage_words(&damage));
        }
        // Whether they are still open is not to be seen here.
        for incident in self.incidents.iter_mut().filter(|_| self.is_for_people) {
            if !incident.is_final {
                let end = &mut incident.course.end;
                end.get_or_insert_with(|| "its end is not in this journal".to_owned());
            }
        }
        Ok(())
    }

    /// Takes what an event says of an incident, in place of what was said of it before.
    fn take(&mut self, event: &Event) {
        let Ok(mut incident) = serde_json::from_str::<Incident>(event.data.get()) else {
            return;
        };
        if self.id.is_some_and(|id| !incident.id.starts_with(id)) {
            return;
        }
        if self.is_brief {
            incident.recording = Field::Missing(Missing::NotApplicable);
        }
        match self
            .incidents
            .iter_mut()
            .find(|known| known.id == incident.id)
        {
            Some(known) if known.revision > incident.revision => {}
            Some(known) => *known = incident,
            None => self.incidents.push(incident),
        }
    }

    /// The one that is meant.
    fn only(&self, id: &str) -> Result<&Incident, CliError> {
        let shown = || cut(&plain(id), LONGEST_ID);
        let exact = self.incidents.iter().find(|incident| incident.id == id);
        match (exact, self.incidents.as_slice()) {
            (Some(incident), _) | (None, [incident]) => Ok(incident),
            (None, []) => {
                let error = anyhow::anyhow!("no incident {} is remembered", shown());
                Err(CliError::new(Exit::Failure, error)
                    .advise("the same command without an id lists those that are"))
            }
            (None, several) => {
                let ids: Vec<String> = several.iter().map(|incident| plain(&incident.id)).collect();
                let error = anyhow::anyhow!("{} incidents begin with {}", several.len(), shown());
                Err(CliError::new(Exit::Failure, error)
                    .advise(format!("say which: {}", ids.join(", "))))
            }
        }
    }
}

/// Whether it may be all of an id, and not only the beginning: the start of a boot's, and a number.
fn is_whole(id: &str) -> bool {
    id.split_once('-').is_some_and(|(boot, number)| {
        boot.len() <= LONGEST_BOOT
            && boot.bytes().all(|byte| byte.is_ascii_hexdigit())
            && number.parse::<u64>().is_ok()
    })
}

fn damage_words(damage: &Damage) -> String {
    let file = plain(&damage.file);
    damage.bytes.map_or_else(
        || format!("{file} is no part of an event journal: what was told in it cannot be read"),
        |bytes| format!("{file} is damaged: {bytes} bytes in it cannot be read"),
    )
}

/// The incidents for people, newest last.
fn list(incidents: &[Incident], style: Style) -> String {
    let mut screen = Screen::new(style);
    if incidents.is_empty() {
        screen.line("", "No incident is remembered.");
        return screen.into_text();
    }
    let is_narrow = style.width.is_some_and(|width| width < WIDE);
    let rows = incidents.iter().map(|incident| row(incident, is_narrow));
    let rows: Vec<Vec<String>> = rows.collect();
    let columns = [
        Column::Left("ID"),
        Column::Left("WHEN"),
        Column::Left("WHAT"),
        Column::Name("WHO"),
        Column::Text("HOW IT ENDED"),
    ];
    screen.table(&columns, &rows);
    screen.into_text()
}

/// On a narrow terminal the year is left out, so that names and ends need not be cut or broken.
fn row(incident: &Incident, is_narrow: bool) -> Vec<String> {
    let end = match (&incident.course.end, incident.is_final) {
        (Some(end), _) => end.clone(),
        (None, true) => "over".to_owned(),
        (None, false) => "still open".to_owned(),
    };
    let wall = incident.at.wall.as_str();
    let (when, who) = if is_narrow {
        let when = wall.get(5..19).unwrap_or(wall).replace('T', " ");
        (when, short_subject(incident))
    } else {
        (wall.get(..19).unwrap_or(wall).to_owned(), subject(incident))
    };
    let what = cause_words(incident.cause).to_owned();
    vec![incident.id.clone(), when, what, who, end]
}

#[cfg(test)]
mod tests {
    use brink_stream::model::incident::Cause;

    use super::*;

    #[test]
    fn a_process_and_its_end_fit_a_terminal_of_80_columns() {
        let text = include_str!("../../tests/page/incident-bare.json");
        let mut incident: Incident = serde_json::from_str(text).unwrap();
        incident.cause = Cause::ForeignKill;
        incident.victims[0].comm = "brink-hog".to_owned();
        incident.victims[0].pid = 12721;
        incident.course.end = Some("every victim has exited".to_owned());
        let style = |width| Style {
            width,
            colour: false,
        };
        let narrow = list(std::slice::from_ref(&incident), style(Some(80)));
        assert_eq!(
            narrow,
            "  ID       WHEN            WHAT     WHO                HOW IT ENDED\n  \
               3f2a-18  11-21 12:00:04  SIGKILL  brink-hog (12721)  every victim has exited\n"
        );
        let pipe = list(&[incident], style(None));
        assert!(pipe.contains("2026-11-21T12:00:04"), "{pipe}");
        assert!(pipe.contains("brink-hog, pid 12721"), "{pipe}");
    }
}
