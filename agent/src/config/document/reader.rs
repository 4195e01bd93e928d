//! Reading a tree against a schema: every wrong type, unknown key and repeated key becomes a finding.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use brink_core::base::{Quantity, Span};

use super::super::finding::{Finding, Report, Severity};
use super::{Entry, Node, Origins, Value, path_to};

/// Reads the nodes under one root; what does not fit is reported and read as left out.
#[derive(Debug)]
pub struct Reader<'a> {
    root: &'a Node,
    origins: &'a Origins,
    report: &'a mut Report,
}

/// What becomes of keys that the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// They are faults, and so are repeated ones.
    Closed,
    /// They are warnings, and so are repeated ones: the last one counts.
    Warned,
    /// They are nobody's business; repeated ones are warnings.
    Open,
}

impl Keys {
    /// What an unknown or repeated key is.
    const fn severity(self) -> Severity {
        match self {
            Self::Closed => Severity::Fault,
            Self::Warned | Self::Open => Severity::Warning,
        }
    }
}

/// The fields of a map; without any where there is none.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(Option<&'a Node>);

impl<'a> Fields<'a> {
    /// The fields of nothing.
    pub const NONE: Self = Self(None);

    /// The value of a field; null counts as left out.
    pub fn get(self, key: &str) -> Option<&'a Node> {
        self.0?.get(key)
    }

    /// The node the fields belong to.
    pub const fn node(self) -> Option<&'a Node> {
        self.0
    }
}

impl<'a> Reader<'a> {
    /// Reads what stands under `root`, whose sources are `origins`.
    pub const fn new(root: &'a Node, origins: &'a Origins, report: &'a mut Report) -> Self {
        Self {
            root,
            origins,
            report,
        }
    }

    /// The root.
    pub const fn root(&self) -> &'a Node {
        self.root
    }

    /// Reports a fault of a node.
    pub fn fault(&mut self, node: &Node, problem: impl Into<String>, accepted: &str) {
        if !self.report.has_room(Severity::Fault) {
            return;
        }
        let fault = self.finding(node, problem).accepted(accepted);
        self.report.fault(fault);
    }

    /// Reports a warning about a node.
    pub fn warn(&mut self, node: &Node, problem: impl Into<String>) {
        if !self.report.has_room(Severity::Warning) {
            return;
        }
        let warning = self.finding(node, problem);
        self.report.warn(warning);
    }

    /// A finding about a node, not reported yet.
    pub fn finding(&self, node: &Node, problem: impl Into<String>) -> Finding {
        let path = path_to(self.root, node);
        let finding = Finding::at(self.origins, node.site, path, problem);
        match node.preview() {
            Some(written) => finding.written(written),
            None => finding,
        }
    }

    /// A finding about a key, which stands there and not at its value; not reported yet.
    pub fn key_finding(&self, entry: &Entry, problem: &str) -> Finding {
        let mut finding = self.finding(&entry.node, problem);
        finding.line = entry.site.position.map(|position| position.line);
        finding.column = entry.site.position.map(|position| position.column);
        finding.written = None;
        finding
    }

    /// Adds a finding that is no node's alone.
    pub fn report(&mut self) -> &mut Report {
        self.report
    }

    fn wrong_type(&mut self, node: &Node, wanted: &str) {
        self.fault(node, format!("this is {}", node.kind()), wanted);
    }

    /// The fields of a map of known keys.
    pub fn fields(&mut self, node: &'a Node, known: &[&str], keys: Keys) -> Fields<'a> {
        let entries = self.entries(node, keys);
        if keys != Keys::Open {
            for entry in entries {
                if known.contains(&entry.key.as_str()) || !self.report.has_room(keys.severity()) {
                    continue;
                }
                let mut unknown = self
                    .key_finding(entry, "unknown key")
                    .nearest(&entry.key, known.iter().copied());
                if unknown.hint.is_none() {
                    unknown = unknown.accepted(format!("one of {}", known.join(", ")));
                }
                if keys == Keys::Closed {
                    self.report.fault(unknown);
                } else {
                    self.report.warn(unknown);
                }
            }
        }
        Fields(matches!(node.value, Value::Map(_)).then_some(node))
    }

    /// The entries of a map of free keys. Where a key is repeated all of them are there; the last
    /// one counts.
    pub fn entries(&mut self, node: &'a Node, keys: Keys) -> &'a [Entry] {
        match &node.value {
            Value::Null => return &[],
            Value::Map(_) => {}
            _ => {
                self.wrong_type(node, "a map");
                return &[];
            }
        }
        let entries = node.entries();
        let mut seen = HashSet::new();
        for entry in entries {
            if seen.insert(entry.key.as_str()) || !self.report.has_room(keys.severity()) {
                continue;
            }
            let mut twice = self.key_finding(entry, "the key is there twice");
            if keys == Keys::Closed {
                self.report.fault(twice.accepted("each key once"));
            } else {
                twice.problem.push_str("; the last one counts");
                self.report.warn(twice);
            }
        }
        entries
    }

    /// The items of a list; none of a null.
    pub fn list(&mut self, node: &'a Node) -> &'a [Node] {
        match &node.value {
            Value::List(items) => items,
            Value::Null => &[],
            _ => {
                self.wrong_type(node, "a list");
                &[]
            }
        }
    }

    /// A text. What YAML 1.1 takes for a truth value is text unless it is spelled true or false.
    pub fn text(&mut self, node: &'a Node) -> Option<&'a str> {
        match &node.value {
            Value::Text(text) => Some(text),
            Value::Bool(_, word) if !is_true_or_false(word) => Some(word),
            Value::Null => None,
            _ => {
                self.wrong_type(node, "a text; quote it if it looks like something else");
                None
            }
        }
    }

    /// A text that is not empty.
    pub fn name(&mut self, node: &'a Node) -> Option<&'a str> {
        let text = self.text(node)?;
        if text.is_empty() {
            self.fault(node, "empty", "a text of at least one character");
            return None;
        }
        Some(text)
    }

    /// The texts of a list.
    pub fn texts(&mut self, node: &'a Node) -> Vec<&'a str> {
        let items = self.list(node).iter();
        items.filter_map(|item| self.text(item)).collect()
    }

    /// A text or a plain number, as text: what a grammar of its own takes apart.
    pub fn scalar(&mut self, node: &'a Node, wanted: &str) -> Option<&'a str> {
        match &node.value {
            Value::Text(text) | Value::Number(text) => Some(text),
            Value::Null => None,
            _ => {
                self.wrong_type(node, wanted);
                None
            }
        }
    }

    /// One of a few words.
    pub fn word<T: Copy>(&mut self, node: &'a Node, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(node)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        if !self.report.has_room(Severity::Fault) {
            return None;
        }
        let known = words.iter().map(|(word, _)| *word);
        let accepted = format!("one of {}", known.clone().collect::<Vec<_>>().join(", "));
        let fault = self.finding(node, "unknown word").nearest(text, known);
        self.report.fault(fault.accepted(accepted));
        None
    }

    /// A truth value.
    pub fn boolean(&mut self, node: &Node) -> Option<bool> {
        match node.value {
            Value::Bool(value, _) => Some(value),
            Value::Null => None,
            _ => {
                self.wrong_type(node, "true or false");
                None
            }
        }
    }

    /// A whole number from `least` to `most`.
    pub fn integer(&mut self, node: &Node, least: i64, most: i64) -> Option<i64> {
        let accepted = || format!("a whole number from {least} to {most}, without quotes");
        let text = match &node.value {
            Value::Number(text) => text,
            Value::Null => return None,
            _ => {
                self.wrong_type(node, &accepted());
                return None;
            }
        };
        let value = whole(text).filter(|value| (least..=most).contains(value));
        if value.is_none() {
            self.fault(node, "not in range", &accepted());
        }
        value
    }

    /// A quantity, as text or as a plain number; spaces around it are allowed, as in Kubernetes.
    pub fn quantity(&mut self, node: &'a Node) -> Option<Quantity> {
        const WANTED: &str = "a quantity such as 100Mi, 1.5Gi, 250m or 1073741824";
        let text = self.scalar(node, WANTED)?;
        match text.trim().parse() {
            Ok(quantity) => Some(quantity),
            Err(error) => {
                let error: brink_core::base::quantity::QuantityError = error;
                self.fault(node, error.to_string(), WANTED);
                None
            }
        }
    }

    /// A quantity that is not negative.
    pub fn amount(&mut self, node: &'a Node) -> Option<Quantity> {
        let quantity = self.quantity(node)?;
        if quantity < Quantity::ZERO {
            self.fault(node, "negative", "a quantity of 0 or more");
            return None;
        }
        Some(quantity)
    }

    /// A duration in Go's grammar of at least `least`.
    pub fn span(&mut self, node: &'a Node, least: Span) -> Option<Span> {
        let accepted = format!("a duration of {least} or more");
        self.span_in(node, least..=Span::MAX, accepted)
    }

    /// The same of at most `most`.
    pub fn bounded_span(&mut self, node: &'a Node, least: Span, most: Span) -> Option<Span> {
        let accepted = format!("a duration from {least} to {most}");
        self.span_in(node, least..=most, accepted)
    }

    fn span_in(
        &mut self,
        node: &'a Node,
        range: RangeInclusive<Span>,
        bounds: String,
    ) -> Option<Span> {
        let accepted = &(bounds + &examples(&range));
        let text = self.scalar(node, accepted)?;
        match text.parse::<Span>() {
            Ok(span) if range.contains(&span) => Some(span),
            Ok(span) => {
                let is_short = span < *range.start();
                self.fault(
                    node,
                    if is_short { "too short" } else { "too long" },
                    accepted,
                );
                None
            }
            Err(error) => {
                self.fault(node, error.to_string(), accepted);
                None
            }
        }
    }
}

/// How durations within these bounds are written.
fn examples(range: &RangeInclusive<Span>) -> String {
    let all = ["500ms", "30s", "1m30s", "36h"];
    let fits = |text: &&str| text.parse().is_ok_and(|span: Span| range.contains(&span));
    let fitting: Vec<&str> = all.into_iter().filter(fits).take(3).collect();
    match fitting.as_slice() {
        [] => String::new(),
        [one] => format!(", such as {one}"),
        [others @ .., last] => format!(", such as {} or {last}", others.join(", ")),
    }
}

fn is_true_or_false(word: &str) -> bool {
    word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("false")
}

/// A number without a fraction; `5.0` and `1e3` have none.
fn whole(text: &str) -> Option<i64> {
    if let Ok(value) = text.parse() {
        return Some(value);
    }
    let quantity: Quantity = text.parse().ok()?;
    let value = quantity.value();
    (Quantity::from_count(value) == quantity).then_some(value)
}
