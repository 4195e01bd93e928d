//! The two formats that metrics are read in: `OpenMetrics` 1.0, and the text format 0.0.4 of Prometheus.

use std::fmt::{self, Display, Write as _};

use super::histogram::Histogram;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0; the page ends with `# EOF`.
    OpenMetrics,
    /// The text format 0.0.4.
    Text,
}

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, and begins at zero with the agent unless its help says otherwise; its samples end in `_total`.
    Counter,
    /// A value of the moment.
    Gauge,
    /// How many observations were at most so large, bucket by bucket.
    Histogram,
    /// Always one: its labels are what it tells. Its sample ends in `_info`.
    Info,
}

/// One family: everything about it that does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name without the ending of its samples.
    pub name: &'static str,
    /// What its samples are.
    pub kind: Kind,
    /// Its labels; each of them has few values.
    pub labels: &'static [&'static str],
    /// What it tells, in one sentence without quotes, backslashes and line ends.
    pub help: &'static str,
}

/// A page in the making.
#[derive(Debug)]
pub struct Exposition {
    format: Format,
    text: String,
}

/// The samples of one family.
#[derive(Debug)]
pub struct Samples<'a> {
    page: &'a mut Exposition,
    family: &'static Family,
}

/// Nanoseconds, written as seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub u64);

impl Format {
    /// The format that a client wants, by its `Accept` header: `OpenMetrics` if it is wanted at least as much as text.
    pub fn accepted(accept: Option<&str>) -> Self {
        let accept = accept.unwrap_or_default();
        let wish = |of: &str| {
            accept
                .split(',')
                .filter_map(|range| weight(range, of))
                .max()
        };
        match wish("application/openmetrics-text") {
            Some(wanted @ 1..) if wanted >= wish("text/plain").unwrap_or(0) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    /// The value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// How much a media range of an `Accept` header wants `kind`, in thousandths; none if it is about something else, or about a
/// version that is not spoken here.
fn weight(range: &str, kind: &str) -> Option<u32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    let mut weight = 1000;
    for part in parts {
        let (name, value) = part.split_once('=')?;
        match (name.trim(), value.trim()) {
            ("version", "1.0.0" | "0.0.1" | "0.0.4") => {}
            ("version", _) => return None,
            ("q", value) => weight = thousandths(value)?,
            _ => {}
        }
    }
    Some(weight)
}

/// `0.5` → 500; at most 1000.
fn thousandths(value: &str) -> Option<u32> {
    let value: f64 = value.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0…1000; not a number becomes 0"
    )]
    Some((value * 1000.0).clamp(0.0, 1000.0) as u32)
}

impl Family {
    /// The name of its samples; of a histogram the name that its buckets begin with.
    pub fn sample_name(&self) -> String {
        let ending = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        [self.name, ending].concat()
    }

    /// The unit in its name, if there is one.
    fn unit(&self) -> Option<&'static str> {
        let units = ["seconds", "bytes"].into_iter();
        let mut found = units.filter(|unit| {
            let rest = self.name.strip_suffix(unit);
            rest.is_some_and(|rest| rest.ends_with('_'))
        });
        found.next()
    }
}

impl Kind {
    /// The word for it. The text format knows no info.
    pub const fn word(self, format: Format) -> &'static str {
        match (self, format) {
            (Self::Counter, _) => "counter",
            (Self::Gauge, _) | (Self::Info, Format::Text) => "gauge",
            (Self::Histogram, _) => "histogram",
            (Self::Info, Format::OpenMetrics) => "info",
        }
    }
}

impl Exposition {
    /// An empty page.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            text: String::with_capacity(32 << 10),
        }
    }

    /// Begins a family. Each is begun once, and stands on the page even without a sample.
    pub fn family(&mut self, family: &'static Family) -> Samples<'_> {
        let name = match self.format {
            Format::OpenMetrics => family.name.to_owned(),
            Format::Text => family.sample_name(),
        };
        let word = family.kind.word(self.format);
        self.line(format_args!("# HELP {name} {}", family.help));
        self.line(format_args!("# TYPE {name} {word}"));
        if let (Format::OpenMetrics, Some(unit)) = (self.format, family.unit()) {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
        Samples { page: self, family }
    }

    /// The finished page.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // A string takes whatever is written to it.
        let _written = self.text.write_fmt(line);
        self.text.push('\n');
    }
}

impl Samples<'_> {
    /// One sample: the values of the family's labels in their order, and its own.
    pub fn add(&mut self, labels: &[&str], value: impl Display) {
        let name = self.family.sample_name();
        self.sample(&name, labels, None, value);
    }

    /// The same for a value that may be unknown: then there is no sample.
    pub fn add_known(&mut self, labels: &[&str], value: Option<impl Display>) {
        if let Some(value) = value {
            self.add(labels, value);
        }
    }

    /// All samples of a histogram.
    pub fn add_histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        let name = self.family.name;
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.cumulated() {
            self.sample(&bucket, labels, Some(bound), count);
        }
        self.sample(
            &format!("{name}_sum"),
            labels,
            None,
            Seconds(histogram.sum()),
        );
        self.sample(&format!("{name}_count"), labels, None, histogram.count());
    }

    fn sample(&mut self, name: &str, labels: &[&str], bound: Option<&str>, value: impl Display) {
        let text = &mut self.page.text;
        text.push_str(name);
        let named = self
            .family
            .labels
            .iter()
            .copied()
            .zip(labels.iter().copied());
        let mut opening = '{';
        for (label, value) in named.chain(bound.map(|bound| ("le", bound))) {
            text.push(std::mem::replace(&mut opening, ','));
            text.push_str(label);
            text.push_str("=\"");
            escape_into(text, value);
            text.push('"');
        }
        if opening == ',' {
            text.push('}');
        }
        self.page.line(format_args!(" {value}"));
    }
}

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(nanos) = self;
        write!(f, "{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
    }
}

/// The same in both formats.
fn escape_into(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::histogram::AGES;

    const KILLS: Family = Family {
        name: "x_kills",
        kind: Kind::Counter,
        labels: &["by"],
        help: "Kills.",
    };
    const AGE: Family = Family {
        name: "x_age_seconds",
        kind: Kind::Histogram,
        labels: &[],
        help: "Ages.",
    };
    const BUILD: Family = Family {
        name: "x_build",
        kind: Kind::Info,
        labels: &["version"],
        help: "Build.",
    };

    fn page(format: Format) -> String {
        let mut page = Exposition::new(format);
        page.family(&KILLS).add(&["a\"b\\c\nd"], 7);
        page.family(&BUILD).add(&["1"], 1);
        let mut ages = Histogram::new(AGES);
        ages.observe(7_000_000);
        ages.observe(60_000_000_000);
        page.family(&AGE).add_histogram(&[], &ages);
        page.finish()
    }

    #[test]
    fn openmetrics_names_families_without_their_ending_and_has_an_end() {
        let page = page(Format::OpenMetrics);
        let head = "# HELP x_kills Kills.\n# TYPE x_kills counter\nx_kills_total{by=\"a\\\"b\\\\c\\nd\"} 7\n";
        assert!(page.starts_with(head), "{page}");
        assert!(page.contains("# TYPE x_build info\nx_build_info{version=\"1\"} 1\n"));
        assert!(page.contains("# TYPE x_age_seconds histogram\n# UNIT x_age_seconds seconds\n"));
        assert!(page.ends_with("x_age_seconds_count 2\n# EOF\n"), "{page}");
    }

    #[test]
    fn text_names_families_as_their_samples() {
        let page = page(Format::Text);
        assert!(page.contains("# TYPE x_kills_total counter\nx_kills_total{by="));
        assert!(page.contains("# TYPE x_build_info gauge\nx_build_info{version=\"1\"} 1\n"));
        assert!(!page.contains("# UNIT") && !page.contains("# EOF"));
        assert!(page.contains(
            "x_age_seconds_bucket{le=\"0.005\"} 0\nx_age_seconds_bucket{le=\"0.01\"} 1\n"
        ));
        let end = "x_age_seconds_bucket{le=\"+Inf\"} 2\nx_age_seconds_sum 60.007000000\nx_age_seconds_count 2\n";
        assert!(page.ends_with(end), "{page}");
    }

    fn check(accept: &str, expected: Format) {
        assert_eq!(Format::accepted(Some(accept)), expected, "{accept}");
    }

    #[test]
    fn the_format_is_the_one_that_is_wanted_more() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        check(prometheus, Format::OpenMetrics);
        check("application/openmetrics-text", Format::OpenMetrics);
        check("application/openmetrics-text; version=2.0.0", Format::Text);
        check("application/openmetrics-text;q=0", Format::Text);
        check(
            "application/openmetrics-text;q=0.2, text/plain;q=0.7",
            Format::Text,
        );
        check("application/openmetrics-text;q=nonsense", Format::Text);
        check(
            "application/vnd.google.protobuf;encoding=delimited",
            Format::Text,
        );
        check("*/*", Format::Text);
        check(";;==,,q", Format::Text);
        assert_eq!(Format::accepted(None), Format::Text);
    }
}
