//! What of the events is asked for: place, kinds, workload, how many, and in which form.

use std::time::Duration;

use super::{Reply, Request};
use crate::hub::Line;
use crate::model::kind::Kind;

/// Every key that is understood.
pub const KEYS: [&str; 7] = [
    "since",
    "follow",
    "kind",
    "namespace",
    "pod",
    "limit",
    "format",
];
/// What `since` takes.
const SINCE: &str = "since is now, a number (17), a boot and a number (BOOT:17), or an age of at most a century (90s, 10m, 2h, 1d)";

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// With what is told from now on.
    Now,
    /// With the oldest that is kept.
    Oldest,
    /// After a number of this boot.
    Number(u64),
    /// After a number of a boot.
    Place(String, u64),
    /// With the first that was told in the last so much time.
    Age(Duration),
}

impl Since {
    /// What `since` takes: `now`, a number, a boot and a number, or an age; none if it is nothing of that.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "now" {
            return Some(Self::Now);
        }
        let place = place_of(text).ok();
        place.or_else(|| age_of(text).map(Self::Age))
    }
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As they are.
    Json,
    /// In the envelope of `CloudEvents` 1.0.
    CloudEvents,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Where to begin.
    pub since: Since,
    /// Whether to stay for what is to come.
    pub follow: bool,
    /// Only these kinds; all if there are none.
    pub kinds: Vec<Kind>,
    /// Only what is about this namespace.
    pub namespace: Option<String>,
    /// Only what is about a pod or workload of this name.
    pub pod: Option<String>,
    /// The end after so many events.
    pub limit: Option<u64>,
    /// How they are written.
    pub format: Format,
    /// As server-sent events.
    pub is_sse: bool,
}

impl Query {
    /// Reads a request's query and headers.
    ///
    /// # Errors
    /// The answer that says what is wrong.
    pub fn read(request: &Request) -> Result<Self, Reply> {
        let is_sse = accepts_sse(request);
        request.only(
            &KEYS,
            &format!("the keys are {}", KEYS.join(", ")),
            "give each key once; kinds are separated by commas: kind=oom-kill,loss",
        )?;
        let get = |key: &str| request.value(key);
        let follow = get("follow").map(follow_of).transpose()?.unwrap_or(is_sse);
        // A browser that reconnects asks for the same address again, and says here how far it came.
        let since = match request.header("last-event-id") {
            Some(id) if !id.is_empty() => {
                place_of(id).map_err(|()| bad("Last-Event-ID", id, SINCE))?
            }
            _ => match get("since") {
                Some(text) => Since::parse(text).ok_or_else(|| bad("since", text, SINCE))?,
                None if follow => Since::Now,
                None => Since::Oldest,
            },
        };
        Ok(Self {
            since,
            follow,
            kinds: get("kind").map(kinds_of).transpose()?.unwrap_or_default(),
            namespace: get("namespace").map(str::to_owned),
            pod: get("pod").map(|pod| name_of("pod", pod)).transpose()?,
            limit: get("limit").map(limit_of).transpose()?,
            format: get("format").map_or(Ok(Format::Json), format_of)?,
            is_sse,
        })
    }

    /// Whether a line is wanted.
    pub fn takes(&self, line: &Line) -> bool {
        let subject = line.subject.as_ref();
        let is = |wanted: &Option<String>, of: Option<&String>| {
            wanted.as_ref().is_none_or(|wanted| of == Some(wanted))
        };
        (self.kinds.is_empty() || self.kinds.contains(&line.of))
            && is(&self.namespace, subject.map(|subject| &subject.namespace))
            && (self.pod.as_deref()).is_none_or(|pod| subject.is_some_and(|of| of.is_named(pod)))
    }
}

fn accepts_sse(request: &Request) -> bool {
    let accept = request.header("accept").unwrap_or_default();
    accept.split(',').any(|part| {
        let mut words = part.split(';').map(str::trim);
        let is_it = words
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("text/event-stream"));
        // A weight of nothing refuses it.
        let mut weights = words.filter_map(|word| word.strip_prefix("q="));
        is_it && !weights.any(|weight| weight.parse() == Ok(0.0))
    })
}

fn refuse(error: &str, next: &str) -> Reply {
    Reply::refusal(400, error, next)
}

fn bad(key: &str, value: &str, next: &str) -> Reply {
    refuse(&format!("{key} cannot be {value:?}"), next)
}

fn follow_of(text: &str) -> Result<bool, Reply> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(bad("follow", text, "follow is 1 or 0")),
    }
}

fn kinds_of(text: &str) -> Result<Vec<Kind>, Reply> {
    let known = || {
        let words: Vec<_> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        format!("the kinds are {}", words.join(", "))
    };
    let one = |word: &str| Kind::from_word(word).ok_or_else(|| bad("kind", word, &known()));
    text.split(',').map(one).collect()
}

fn name_of(key: &str, text: &str) -> Result<String, Reply> {
    if text.is_empty() {
        return Err(bad(key, text, "give a name, or leave the key out for all"));
    }
    Ok(text.to_owned())
}

fn limit_of(text: &str) -> Result<u64, Reply> {
    match text.parse() {
        Ok(limit) if limit > 0 => Ok(limit),
        _ => Err(bad("limit", text, "limit is a number of events, 1 or more")),
    }
}

fn format_of(text: &str) -> Result<Format, Reply> {
    match text {
        "json" => Ok(Format::Json),
        "cloudevents" => Ok(Format::CloudEvents),
        _ => Err(bad("format", text, "format is json or cloudevents")),
    }
}

/// `SEQ` or `BOOT:SEQ`. What is no boot's id would be taken for an earlier boot that is no longer kept.
fn place_of(text: &str) -> Result<Since, ()> {
    let number = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse().ok()).flatten().ok_or(())
    };
    match text.split_once(':') {
        Some((boot, seq)) if is_boot_id(boot) => Ok(Since::Place(boot.to_owned(), number(seq)?)),
        Some(_) => Err(()),
        None => number(text).map(Since::Number),
    }
}

/// Whether it is written as the kernel writes `/proc/sys/kernel/random/boot_id`.
fn is_boot_id(text: &str) -> bool {
    let is_hexadecimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = text.split('-');
    parts.clone().map(str::len).eq([8, 4, 4, 4, 12]) && parts.clone().all(is_hexadecimal)
}

/// `90s`, `1h30m`: whole numbers with units. At most a century.
fn age_of(text: &str) -> Option<Duration> {
    const LONGEST: u64 = 100 * 366 * 86_400_000;
    let (mut sum, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|letter: char| letter.is_ascii_digit());
        let (unit, behind) = behind.split_at(end.unwrap_or(behind.len()));
        let millis = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        sum = sum.checked_add(number.checked_mul(millis)?)?;
        rest = behind;
    }
    (!text.is_empty() && sum <= LONGEST).then(|| Duration::from_millis(sum))
}
