//! `brink events`: what the agent tells, as it is told or as far as it is remembered.

use brink_stream::model::event::Event;
use brink_stream::model::kind::Kind;
use brink_stream::serve::query::Since;

use super::exit::{CliError, Exit};
use super::output::Data;
use super::progress::Progress;
use super::stream::{self, StreamArgs, Told};
use crate::story;
use crate::terminal::{Paint, Screen, Style};

/// Options of `brink events`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink events                          everything that is remembered, oldest first
  brink events -f                       what happens from now on
  brink events -f --since 10m           the last ten minutes, and what happens then
  brink events --kind oom-kill,loss -o json | jq .data
  brink events -n shop -p web           what happened to one workload
  brink incident                        the incidents among them, and the whole story of each

--since takes an age (90s, 10m, 2h, 1d), the number of the last event that you have seen (17), the same with its boot \
(BOOT:17, which -o json has as bootId), or now. Times are in UTC.")]
pub struct Args {
    /// Stay, and show what happens from now on
    #[arg(short, long)]
    pub follow: bool,
    /// Where to begin: an age such as 10m, a number, BOOT:NUMBER, or now
    #[arg(long, value_name = "WHEN", value_parser = since, allow_hyphen_values = true)]
    pub since: Option<String>,
    /// Only these kinds, separated by commas
    #[arg(
        short,
        long,
        value_name = "KIND",
        value_delimiter = ',',
        value_parser = stream::kinds(),
        hide_possible_values = true
    )]
    pub kind: Vec<Kind>,
    /// Only what is about workloads of this namespace
    #[arg(short, long, value_parser = name)]
    pub namespace: Option<String>,
    /// Only what is about the pod or workload of this name
    #[arg(short, long, value_name = "NAME", value_parser = name)]
    pub pod: Option<String>,
    /// No more than so many events
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = limit,
        allow_hyphen_values = true
    )]
    pub limit: Option<u64>,
    /// Form of the output: compact, wide or json (a line for each event)
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    pub output: Form,
    /// The agent.
    #[command(flatten)]
    pub socket: StreamArgs,
}

/// As wide as a number in the wide form, and the gap behind it.
const BEHIND_NUMBER: &str = "       ";

/// In which form events are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Time, kind and a sentence.
    #[default]
    Compact,
    /// With number, node, uid and incident.
    Wide,
    /// The events themselves.
    Json,
}

/// Asks the agent and prints each event as it comes.
///
/// # Errors
/// When no agent answers, or it says no, or it ends while it is followed.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    // What goes on without an end is no export.
    let progress = if args.follow {
        Progress::default()
    } else {
        Progress::of_export()
    };
    let mut events = stream::events(&args.socket.socket, &query(args))?;
    let mut data = Data::new();
    let mut day = Day::default();
    let (mut count, mut last) = (0, None::<(String, u64)>);
    loop {
        let Told { line, event } = match events.next() {
            Ok(Some(told)) => told,
            Ok(None) => break,
            Err(error) if args.follow && error.exit() == Exit::NoAgent => {
                return Err(error.advise(going_on(last)));
            }
            Err(error) => return Err(error),
        };
        progress.step(line.len());
        count += 1;
        let text = match args.output {
            Form::Json => format!("{}\n", String::from_utf8_lossy(&line)),
            form => shown(&event, form, data.style(), &mut day),
        };
        data.print(&text)?;
        // Whoever follows wants each at once; otherwise a reader that leaves is noticed soon enough.
        if args.follow {
            data.flush()?;
        }
        // What was lost before this agent ran has no number.
        if event.seq > 0 {
            last = Some((event.boot_id, event.seq));
        }
    }
    data.flush()?;
    drop(progress);
    if args.follow && args.limit.is_none_or(|limit| count < limit) {
        let error = anyhow::anyhow!("the agent has ended");
        return Err(CliError::new(Exit::NoAgent, error).advise(going_on(last)));
    }
    if count == 0 && args.output != Form::Json {
        super::Talk::new().say("no such event is remembered; `brink events -f` waits for the next");
    }
    Ok(Exit::Success)
}

/// What to do when what was followed has ended. Without a place to go on from, what is told until then may be some minutes old.
fn going_on(last: Option<(String, u64)>) -> String {
    let since = last.map_or_else(|| "10m".to_owned(), |(boot, seq)| format!("{boot}:{seq}"));
    format!("`brink events -f --since {since}` goes on when an agent runs again")
}

fn query(args: &Args) -> Vec<(&'static str, String)> {
    let kinds: Vec<&str> = args.kind.iter().map(|kind| kind.word()).collect();
    let pairs = [
        ("since", args.since.clone()),
        ("follow", args.follow.then(|| "1".to_owned())),
        ("kind", (!kinds.is_empty()).then(|| kinds.join(","))),
        ("namespace", args.namespace.clone()),
        ("pod", args.pod.clone()),
        ("limit", args.limit.map(|limit| limit.to_string())),
    ];
    let given = pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    given.collect()
}

fn limit(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "give a number of events, 1 or more".to_owned())
}

/// Whether anything can have that name: of what nothing can have, the agent would say it in the words of an address.
fn name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("give a name, or leave the option out for all".to_owned());
    }
    if text.contains(char::is_control) {
        return Err("a name has no control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// Whether it is one of the forms that `--since` takes, as the agent reads them.
fn since(text: &str) -> Result<String, String> {
    Since::parse(text).map(|_| text.to_owned()).ok_or_else(|| {
        "give an age of at most a century (90s, 10m, 2h, 1d), a number (17), BOOT:NUMBER with a whole bootId, or now".to_owned()
    })
}

/// The day of the last event: on a terminal it is said once.
#[derive(Debug, Default)]
struct Day(Option<String>);

impl Day {
    /// Whether this is another day than that of the event before.
    fn turns(&mut self, day: &str) -> bool {
        let is_other = self.0.as_deref() != Some(day);
        if is_other {
            self.0 = Some(day.to_owned());
        }
        is_other
    }
}

fn shown(event: &Event, form: Form, style: Style, day: &mut Day) -> String {
    let mut screen = Screen::fitting(style);
    let (date, time) = moments(&event.at.wall);
    let turns = day.turns(date);
    let is_terminal = style.width.is_some();
    if turns && is_terminal && form == Form::Compact {
        screen.paragraph("", &format!("{date} (UTC)"), Some(Paint::Faint));
    }
    let kind = event.of.word();
    let text = story::sentence_of_whom(event);
    let label = match (form, is_terminal) {
        (Form::Wide, _) => format!("{:>6} {date}T{time}Z {kind:<21}", event.seq),
        (_, true) => format!("{time} {kind:<21}"),
        (_, false) => format!("{date}T{time}Z {kind:<21}"),
    };
    let more = (form == Form::Wide).then(|| more(event));
    let text = match &more {
        Some(more) if !is_terminal => format!("{text} {more}"),
        _ => text,
    };
    match paint(event.of) {
        Some(paint) => screen.labelled(&label, paint, &text),
        None => screen.line(&format!("{label} "), &text),
    }
    // On a line of their own ids have room.
    if let Some(more) = more.filter(|_| is_terminal) {
        screen.paragraph(BEHIND_NUMBER, &more, Some(Paint::Faint));
    }
    screen.into_text()
}

/// What only programs and detectives need.
fn more(event: &Event) -> String {
    let mut parts = vec![format!("node={}", event.node)];
    if let Some(subject) = &event.subject {
        if !subject.uid.is_empty() {
            parts.push(format!("uid={}", subject.uid));
        }
        parts.extend(subject.incident.as_ref().map(|id| format!("incident={id}")));
    }
    parts.join(" ")
}

const fn paint(kind: Kind) -> Option<Paint> {
    match kind {
        Kind::OomKill | Kind::KillObserved | Kind::EvictionOrdered => Some(Paint::Error),
        Kind::ThresholdCrossed | Kind::LimitImminent | Kind::OomScoreAdjDiffers | Kind::Loss => {
            Some(Paint::Warning)
        }
        _ => None,
    }
}

/// `2026-11-20` and `09:36:31.250` of `2026-11-20T09:36:31.250877Z`.
fn moments(wall: &str) -> (&str, &str) {
    let (date, time) = wall.split_once('T').unwrap_or(("", wall));
    let time = time.strip_suffix('Z').unwrap_or(time);
    (date, time.get(..12).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_begin_is_checked_before_anybody_is_asked() {
        for good in [
            "now",
            "17",
            "0",
            "3f2a0b1c-5d6e-4f70-8192-a3b4c5d6e7f8:17",
            "90s",
            "10m",
            "1h30m",
            "2d",
            "5ms",
        ] {
            assert_eq!(since(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "yesterday",
            "10",
            "-1",
            "10x",
            "m10",
            "1h30",
            ":17",
            "3f2a:1",
            "3f2a0b1c-5d6e-4f70-8192-a3b4c5d6e7f8:",
            "3f2a0b1c-5d6e-4f70-8192-a3b4c5d6e7f8:x",
            "zz2a0b1c-5d6e-4f70-8192-a3b4c5d6e7f8:1",
            "99999999999999999999999",
            "99999999999d",
        ] {
            assert_eq!(since(bad).is_err(), bad != "10", "{bad}");
        }
    }

    #[test]
    fn a_moment_has_a_day_and_a_time() {
        assert_eq!(
            moments("2026-11-20T09:36:31.250877Z"),
            ("2026-11-20", "09:36:31.250")
        );
        assert_eq!(moments("09:36"), ("", "09:36"));
        assert_eq!(moments("größer"), ("", "größer"));
    }

    #[test]
    fn an_event_is_a_line_in_a_pipe_and_fits_a_terminal() {
        let text = r#"{"apiVersion":"brink.dev/v1alpha1","kind":"Event","type":"workload-started","node":"n","bootId":"b","seq":17,"at":{"wall":"2026-11-20T09:36:31.250877Z","monotonicNs":1},"subject":{"namespace":"shop","name":"w\u001b[2Jb","uid":"u"},"data":{"qos":"Burstable","priority":0,"cgroups":["/a"]}}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        let mut day = Day::default();
        let pipe = shown(&event, Form::Compact, Style::default(), &mut day);
        assert_eq!(
            pipe,
            "2026-11-20T09:36:31.250Z workload-started      shop/w\\u{1b}[2Jb: appeared: Burstable, priority 0, /a\n"
        );
        let wide = shown(&event, Form::Wide, Style::default(), &mut day);
        assert!(
            wide.ends_with("/a node=n uid=u\n") && wide.starts_with("    17 2026-"),
            "{wide}"
        );
        let style = Style {
            width: Some(80),
            colour: false,
        };
        let lines = shown(&event, Form::Compact, style, &mut Day::default());
        assert!(
            lines.starts_with("2026-11-20 (UTC)\n09:36:31.250 workload-started"),
            "{lines}"
        );
        assert!(
            lines.lines().all(|line| line.chars().count() <= 80),
            "{lines}"
        );
    }

    #[test]
    fn a_long_name_loses_its_middle_on_a_terminal_alone() {
        const UID: &str = "3f2a0b1c-5d6e-4f70-8192-a3b4c5d6e7f8";
        let name = format!("web-{}-end", "x".repeat(150));
        let text = format!(
            r#"{{"apiVersion":"brink.dev/v1alpha1","kind":"Event","type":"workload-started","node":"n","bootId":"b","seq":17,"at":{{"wall":"2026-11-20T09:36:31.250877Z","monotonicNs":1}},"subject":{{"namespace":"shop","name":"{name}","uid":"{UID}"}},"data":{{"qos":"Burstable","priority":0,"cgroups":["/{name}"]}}}}"#
        );
        let event: Event = serde_json::from_str(&text).unwrap();
        let told = |form, width| {
            let colour = false;
            shown(&event, form, Style { width, colour }, &mut Day::default())
        };
        for form in [Form::Compact, Form::Wide] {
            let lines = told(form, Some(80));
            let fits = |line: &str| line.chars().count() <= 80;
            assert!(lines.lines().all(fits), "{lines}");
            assert!(lines.contains("shop/web-") && lines.contains("-end:"));
            assert_eq!(lines.contains(UID), form == Form::Wide, "{lines}");
            let pipe = told(form, None);
            let whole = format!(" shop/{name}: appeared: Burstable, priority 0, /{name}");
            assert!(pipe.contains(&whole) && pipe.lines().count() == 1, "{pipe}");
        }
    }
}
