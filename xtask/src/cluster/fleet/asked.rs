//! What the simulated agents ask, counted as they ask it: the client opens a span around each request.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};

/// What the client calls the span around a request.
const SPAN: &str = "HTTP";
/// Warnings of different words that are kept.
const WARNINGS: usize = 64;
/// Marks what the scene asks for itself.
pub(super) const OURS: &str = "fieldManager=brink-fleet";

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Version,
    ListPods,
    WatchPods,
    ListNode,
    WatchNode,
    PodStatus,
    Pod,
    Event,
    NodeStatus,
    Node,
    Other,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Version,
        Self::ListPods,
        Self::WatchPods,
        Self::ListNode,
        Self::WatchNode,
        Self::PodStatus,
        Self::Pod,
        Self::Event,
        Self::NodeStatus,
        Self::Node,
        Self::Other,
    ];

    /// In the words of the API.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Version => "GET /version",
            Self::ListPods => "LIST pods",
            Self::WatchPods => "WATCH pods",
            Self::ListNode => "LIST nodes",
            Self::WatchNode => "WATCH nodes",
            Self::PodStatus => "PATCH pods/status",
            Self::Pod => "GET pods",
            Self::Event => "POST events",
            Self::NodeStatus => "PATCH nodes/status",
            Self::Node => "GET or PATCH nodes",
            Self::Other => "other",
        }
    }

    fn of(method: &str, url: &str) -> Self {
        let path = url
            .split_once("://")
            .map_or(url, |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if query.contains(OURS) {
            return Self::Other;
        }
        let is_of_one = query.contains("fieldSelector=");
        let is_watch = query.contains("watch=");
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            ("GET", ["version"]) => Self::Version,
            ("GET", ["api", "v1", "pods"]) if is_watch => Self::WatchPods,
            ("GET", ["api", "v1", "pods"]) if is_of_one => Self::ListPods,
            ("GET", ["api", "v1", "nodes"]) if is_watch => Self::WatchNode,
            ("GET", ["api", "v1", "nodes"]) if is_of_one => Self::ListNode,
            ("PATCH", ["api", "v1", "namespaces", _, "pods", _, "status"]) => Self::PodStatus,
            ("GET", ["api", "v1", "namespaces", _, "pods", _]) => Self::Pod,
            ("POST", ["api", "v1", "namespaces", _, "events"]) => Self::Event,
            ("PATCH", ["api", "v1", "nodes", _, "status"]) => Self::NodeStatus,
            ("GET" | "PATCH", ["api", "v1", "nodes", _]) => Self::Node,
            _ => Self::Other,
        }
    }
}

/// What was asked and answered so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// Requests that were begun, those that met nobody too; without what the scene asks, here and below.
    pub(super) asked: BTreeMap<Kind, u64>,
    /// Answers, by code.
    pub(super) answered: BTreeMap<(Kind, u16), u64>,
    /// Answers by the second since the counter was made.
    pub(super) seconds: BTreeMap<u64, u64>,
    /// Warnings of the agents, and how often.
    pub(super) warnings: BTreeMap<String, u64>,
    /// Answers that are errors come in two words.
    failed: BTreeSet<u64>,
}

impl Counts {
    /// What came after an earlier count; the warnings are those of all time.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        fn less<K: Ord + Copy>(new: &BTreeMap<K, u64>, old: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
            let each = new.iter().map(|(key, new)| {
                let old = old.get(key).copied().unwrap_or_default();
                (*key, new - old)
            });
            each.filter(|(_, count)| *count > 0).collect()
        }
        Self {
            asked: less(&self.asked, &earlier.asked),
            answered: less(&self.answered, &earlier.answered),
            seconds: less(&self.seconds, &earlier.seconds),
            warnings: self.warnings.clone(),
            failed: BTreeSet::new(),
        }
    }

    /// How often a kind was answered with success.
    pub(super) fn taken(&self, kind: Kind) -> u64 {
        let each = self.answered.iter();
        let taken = each.filter(|((of, code), _)| *of == kind && (200..300).contains(code));
        taken.map(|(_, count)| count).sum()
    }
}

/// Hears of requests, and of the agents' warnings.
#[derive(Debug, Clone)]
pub(super) struct Counter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    next: AtomicU64,
    counts: Mutex<Counts>,
}

impl Counter {
    /// One that has heard nothing.
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            began: Instant::now(),
            next: AtomicU64::new(1),
            counts: Mutex::default(),
        }))
    }

    /// What was heard so far.
    pub(super) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// A number is whole whoever died holding it.
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kind lies in the lowest bits of a span's number.
const BITS: u32 = 4;

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        if metadata.is_span() {
            metadata.name() == SPAN
        } else {
            *metadata.level() <= Level::WARN && metadata.target().starts_with("brink")
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut words = Words::default();
        span.record(&mut words);
        let kind = Kind::of(words.get("http.method"), words.get("http.url"));
        if kind != Kind::Other {
            *self.lock().asked.entry(kind).or_default() += 1;
        }
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        Id::from_u64((number << BITS) | kind as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut words = Words::default();
        values.record(&mut words);
        let Ok(code) = words.get("http.status_code").parse::<u16>() else {
            return;
        };
        let number = span.into_u64();
        let kind = usize::try_from(number & ((1 << BITS) - 1)).unwrap_or(usize::MAX);
        let kind = Kind::ALL.get(kind).copied().unwrap_or(Kind::Other);
        let mut counts = self.lock();
        if kind == Kind::Other || (code >= 500 && !counts.failed.insert(number)) {
            return;
        }
        *counts.answered.entry((kind, code)).or_default() += 1;
        let second = self.0.began.elapsed().as_secs();
        *counts.seconds.entry(second).or_default() += 1;
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let why = ["why", "error"].map(|name| words.get(name));
        let line = format!("{}: {}", words.get("message"), why.concat());
        let mut counts = self.lock();
        if counts.warnings.len() < WARNINGS || counts.warnings.contains_key(&line) {
            *counts.warnings.entry(line).or_default() += 1;
        }
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Fields as text.
#[derive(Default)]
struct Words(Vec<(&'static str, String)>);

impl Words {
    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(own, _)| *own == name);
        found.map_or("", |(_, text)| text)
    }
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_kind() {
        let pods = "https://198.18.0.1/api/v1/pods?&fieldSelector=spec.nodeName%3Da";
        for (method, url, expected) in [
            ("GET", "https://a:443/version", Kind::Version),
            ("GET", pods, Kind::ListPods),
            ("GET", &format!("{pods}&watch=true"), Kind::WatchPods),
            (
                "GET",
                "/api/v1/nodes?watch=true&fieldSelector=a",
                Kind::WatchNode,
            ),
            ("GET", "/api/v1/nodes?fieldSelector=a", Kind::ListNode),
            ("GET", "/api/v1/nodes?labelSelector=a", Kind::Other),
            (
                "PATCH",
                "/api/v1/namespaces/a/pods/b/status",
                Kind::PodStatus,
            ),
            (
                "PATCH",
                "/api/v1/namespaces/a/pods/b/status?fieldManager=brink-fleet",
                Kind::Other,
            ),
            ("POST", "/api/v1/namespaces/a/events", Kind::Event),
            ("POST", "/api/v1/namespaces/a/pods", Kind::Other),
            ("PATCH", "/api/v1/nodes/a/status", Kind::NodeStatus),
            ("GET", "https://a/metrics", Kind::Other),
        ] {
            assert_eq!(Kind::of(method, url), expected, "{method} {url}");
        }
    }

    #[test]
    fn requests_and_answers_are_counted_once() {
        let counter = Counter::new();
        tracing::subscriber::with_default(counter.clone(), || {
            let ask = |url: &str| {
                tracing::debug_span!(
                    "HTTP",
                    http.method = %"GET",
                    http.url = %url,
                    http.status_code = tracing::field::Empty,
                )
            };
            ask("https://a/version").record("http.status_code", 200_u16);
            let failed = ask("https://a/version");
            failed.record("http.status_code", 503_u16);
            failed.record("http.status_code", 503_u16);
            let _nobody_was_there = ask("https://a/version");
            ask("https://a/metrics").record("http.status_code", 200_u16);
        });
        let counts = counter.counts();
        assert_eq!(counts.asked[&Kind::Version], 3);
        let answers = counts.answered.get(&(Kind::Version, 503));
        assert_eq!((counts.taken(Kind::Version), answers), (1, Some(&1)));
        assert_eq!(counts.seconds.values().sum::<u64>(), 2);
        assert_eq!(counts.asked.len(), 1, "what is nobody's is not counted");
        assert_eq!(counts.since(&counts).asked, BTreeMap::new());
    }
}
