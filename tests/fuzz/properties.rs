//! Every entry point over its seeds, their mutations, and bytes at random: the part of fuzzing that is quick and repeatable.
//!
//! The inputs follow from one number, `BRINK_FUZZ_SEED`; `BRINK_FUZZ_SECONDS` gives each entry point more time.
#![cfg(test)]

mod mutate;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brink_fuzz::{TARGETS, Taken, Target};
use brink_host::HostError;
use brink_host::zoneinfo::Zoneinfo;
use brink_tests::counting_allocator::{CountingAllocator, peak_during};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Where nobody asks for another one.
const SEED: u64 = 20_261_120;
/// Inputs for each entry point; where there is no time for all of them, it is told how many were run.
const CASES: u32 = 400;
/// Time for each entry point where nobody gives more.
const TIME: Duration = Duration::from_millis(900);
/// So many of them are run whatever time that takes, up to a time in which fewer are a fault of the entry point or of its test.
const LEAST: u32 = 50;
const LONGEST: Duration = Duration::from_mins(1);

macro_rules! each {
    ($($test:ident: $name:literal,)*) => {
        /// The entry points that have a test.
        const NAMES: &[&str] = &[$($name,)*];
        $(
            #[test]
            fn $test() {
                run($name);
            }
        )*
    };
}

each! {
    records: "records",
    btf: "btf",
    format: "format",
    symbols: "symbols",
    traces: "traces",
    node_files: "node-files",
    process_files: "process-files",
    cgroup_files: "cgroup-files",
    host_facts: "host-facts",
    paths: "paths",
    quantities: "quantities",
    documents: "documents",
    config: "config",
    pods: "pods",
    scenario: "scenario",
    ledger: "ledger",
    journal: "journal",
    event_journal: "event-journal",
    state_files: "state-files",
    outbox: "outbox",
    cluster_files: "cluster-files",
    kubeconfig: "kubeconfig",
    plugin_answer: "plugin-answer",
    questions: "questions",
    answers: "answers",
    requests: "requests",
    kept_events: "kept-events",
    runtime: "runtime",
    changes: "changes",
}

#[test]
fn every_entry_point_has_a_test_and_a_folder_of_seeds() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, NAMES);
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders = fs::read_dir(corpus).unwrap();
    let folders: BTreeSet<String> = folders
        .map(|folder| folder.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
    assert_eq!(folders, expected);
}

#[test]
fn memory_is_seen() {
    let (length, peak) = peak_during(|| {
        let held = vec![0u8; 1 << 20];
        drop(vec![1u8; 3 << 20]);
        held.len()
    });
    assert!((4 << 20..5 << 20).contains(&peak), "{peak}");
    assert!(peak_during(|| length).1 < 1 << 10);
}

#[test]
fn a_file_that_is_too_long_is_not_read_to_its_end() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("proc")).unwrap();
    let file = fs::File::create(root.path().join("proc/zoneinfo")).unwrap();
    file.set_len(64 << 20).unwrap();
    let (read, peak) = peak_during(|| Zoneinfo::read(root.path()));
    assert!(matches!(read, Err(HostError::TooMany { .. })), "{read:?}");
    assert!(peak < 16 << 20, "{peak}");
}

/// A number of the environment, or what stands for it.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text:?} is no number")),
    )
}

fn run(name: &str) {
    let target = Target::find(name).unwrap();
    let seeds = corpus(target);
    let seed = number("BRINK_FUZZ_SEED").unwrap_or(SEED);
    let more = number("BRINK_FUZZ_SECONDS").map(Duration::from_secs);
    println!("{name}: BRINK_FUZZ_SEED={seed}");
    let cases = if more.is_some() { u32::MAX } else { CASES };
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 4000,
        // The first input that is turned down ends the run.
        max_global_rejects: 0,
        ..Config::default()
    };
    let began = Instant::now();
    let time = more.unwrap_or(TIME);
    let ran = Cell::new(0_u32);
    let mut runner = TestRunner::new_with_rng(config, rng(seed));
    let result = runner.run(&mutate::inputs(seeds), |bytes| {
        let most = if ran.get() < LEAST {
            time.max(LONGEST)
        } else {
            time
        };
        if began.elapsed() >= most {
            return Err(TestCaseError::reject("the time is over"));
        }
        target.check(&bytes);
        ran.set(ran.get() + 1);
        Ok(())
    });
    if let Err(TestError::Fail(reason, bytes)) = &result {
        let kept = keep(name, bytes);
        panic!(
            "{name} fails with seed {seed}: {reason}\n{} bytes: {}\nmove {} to {} when it is mended",
            bytes.len(),
            bytes.escape_ascii(),
            kept.display(),
            target.corpus().display()
        );
    }
    let ran = ran.get();
    let is_over = ran < cases && began.elapsed() >= time;
    if is_over {
        tell_cut_short(name, ran, cases);
    }
    let took = began.elapsed();
    assert!(
        ran >= LEAST,
        "{name}: no more than {ran} inputs in {took:?}"
    );
    let is_ended = is_over && matches!(result, Err(TestError::Abort(_)));
    assert!(result.is_ok() || is_ended, "{result:?}");
}

/// Past libtest, which keeps what a passing test prints to itself.
fn tell_cut_short(name: &str, ran: u32, cases: u32) {
    let of = if cases == u32::MAX {
        String::new()
    } else {
        format!(" of {cases}")
    };
    let line = format!("{name}: {ran}{of} inputs were run when the time was over\n");
    // A test whose stderr is closed has nobody to tell.
    drop(io::stderr().write_all(line.as_bytes()));
}

/// The seeds, each of which passes as it is.
fn corpus(target: Target) -> Vec<Vec<u8>> {
    let folder = target.corpus();
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    paths.sort();
    let mut seeds = Vec::new();
    for path in paths {
        println!("{}", path.display());
        let bytes = fs::read(&path).unwrap();
        let _taken = target.check(&bytes);
        seeds.push(bytes);
    }
    assert!(!seeds.is_empty(), "{}: no seed", folder.display());
    seeds
}

/// Seeds that are refused at the door, and are there for what is made of that. Any other would show nothing if a later format did.
const REFUSED_SEEDS: &[(&str, &str)] = &[
    ("changes", "overflow"),
    ("event-journal", "foreign"),
    ("event-journal", "head-cut-off"),
    ("kubeconfig", "anchor-of-nothing"),
    ("kubeconfig", "cluster-a-text"),
    ("kubeconfig", "cluster-without-name"),
    ("kubeconfig", "clusters-a-number"),
    ("kubeconfig", "context-without-cluster"),
    ("kubeconfig", "cut-off-in-a-list"),
    ("kubeconfig", "cut-off-in-a-text"),
    ("kubeconfig", "deep"),
    ("kubeconfig", "interactive-sometimes"),
    ("kubeconfig", "key-twice"),
    ("kubeconfig", "key-twice-in-a-user"),
    ("kubeconfig", "kinds-mixed"),
    ("kubeconfig", "latin-1"),
    ("kubeconfig", "list-at-the-top"),
    ("kubeconfig", "provider-without-name"),
    ("kubeconfig", "server-a-list"),
    ("kubeconfig", "text-at-the-top"),
    ("kubeconfig", "token-a-map"),
    ("kubeconfig", "utf-16-half-a-pair"),
    ("kubeconfig", "utf-16-odd"),
    ("kubeconfig", "utf-16-other-mark"),
    ("kubeconfig", "utf-16-without-mark"),
    ("kubeconfig", "verify-perhaps"),
    ("kubeconfig", "versions-mixed"),
    ("outbox", "foreign"),
    ("plugin-answer", "certificate-alone"),
    ("plugin-answer", "cut-off"),
    ("plugin-answer", "cut-off-in-the-token"),
    ("plugin-answer", "deep"),
    ("plugin-answer", "empty"),
    ("plugin-answer", "expiry-a-day"),
    ("plugin-answer", "expiry-a-number"),
    ("plugin-answer", "expiry-empty"),
    ("plugin-answer", "expiry-in-month-13"),
    ("plugin-answer", "expiry-of-10000"),
    ("plugin-answer", "expiry-on-no-leap-day"),
    ("plugin-answer", "expiry-soon"),
    ("plugin-answer", "expiry-without-zone"),
    ("plugin-answer", "key-alone"),
    ("plugin-answer", "kinds-mixed"),
    ("plugin-answer", "latin-1"),
    ("plugin-answer", "list-at-the-top"),
    ("plugin-answer", "names-of-another-form"),
    ("plugin-answer", "no-status"),
    ("plugin-answer", "null"),
    ("plugin-answer", "page"),
    ("plugin-answer", "status-a-number"),
    ("plugin-answer", "status-a-text"),
    ("plugin-answer", "status-empty"),
    ("plugin-answer", "status-null"),
    ("plugin-answer", "status-of-a-failure"),
    ("plugin-answer", "status-twice"),
    ("plugin-answer", "token-a-list"),
    ("plugin-answer", "token-a-map"),
    ("plugin-answer", "token-blank"),
    ("plugin-answer", "token-false"),
    ("plugin-answer", "token-null"),
    ("plugin-answer", "token-of-digits"),
    ("plugin-answer", "token-twice"),
    ("plugin-answer", "users-a-number"),
    ("plugin-answer", "utf-16"),
    ("plugin-answer", "words-before"),
    ("requests", "post"),
    ("requests", "refused"),
    ("state-files", "graces-before-the-boot"),
    ("state-files", "until-further-notice"),
    ("symbols", "hidden"),
];

#[test]
fn every_seed_is_read_but_for_those_that_are_there_to_be_refused() {
    let mut refused = Vec::new();
    for target in TARGETS {
        for (name, taken) in taken(&target) {
            if taken == Taken::Refused && !name.starts_with(REGRESSION) {
                refused.push((target.name, name));
            }
        }
    }
    refused.sort();
    let expected = REFUSED_SEEDS.iter();
    let expected: Vec<_> = expected
        .map(|(target, name)| (*target, (*name).to_owned()))
        .collect();
    assert_eq!(refused, expected);
}

/// The names of an entry point's seeds, and what becomes of each.
fn taken(target: &Target) -> Vec<(String, Taken)> {
    let files = fs::read_dir(target.corpus()).unwrap();
    let one = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, target.check(&fs::read(&path).unwrap()))
    };
    files.map(|file| one(file.unwrap().path())).collect()
}

/// Before the names of what was once found.
const REGRESSION: &str = "regression-";

/// What was once found, and what becomes of it since: one that a later format refuses at its door would show nothing any more.
const REGRESSIONS: &[(&str, &str, Taken)] = &[
    ("answers", "order-from-long-before", Taken::Accepted),
    ("answers", "reclaims-beyond-count", Taken::Accepted),
    ("btf", "counter-at-the-end", Taken::Accepted),
    (
        "documents",
        "number-with-a-leading-zero.json",
        Taken::Accepted,
    ),
    ("documents", "text-by-aliases.yaml", Taken::Refused),
    ("journal", "lost-beyond-count", Taken::Accepted),
    ("journal", "order-after-the-last", Taken::Accepted),
    ("journal", "pause-of-292-years", Taken::Accepted),
    ("journal", "room-for-any-number-of-kills", Taken::Refused),
    ("ledger", "last-number", Taken::Refused),
    ("ledger", "reclaims-beyond-count", Taken::Accepted),
    ("outbox", "long-name-not-ascii", Taken::Refused),
    ("outbox", "name-with-query", Taken::Refused),
    ("outbox", "no-status-owed", Taken::Refused),
    ("runtime", "one-id-dead-and-alive", Taken::Accepted),
];

#[test]
fn what_was_found_once_is_read_as_far_as_it_was_when_it_was_mended() {
    let mut found = Vec::new();
    for target in TARGETS {
        for (name, taken) in taken(&target) {
            if let Some(name) = name.strip_prefix(REGRESSION) {
                found.push((target.name, name.to_owned(), taken));
            }
        }
    }
    found.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    let expected = REGRESSIONS.iter();
    let expected: Vec<_> = expected
        .map(|(target, name, taken)| (*target, (*name).to_owned(), *taken))
        .collect();
    assert_eq!(found, expected);
}

fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

fn keep(name: &str, bytes: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("finding-{name}"));
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn large_inputs_are_answered_in_time_and_within_memory() {
    let inputs = [
        large_documents(),
        large_configurations(),
        large_manifests(),
        large_files(),
    ];
    for (name, input) in inputs.into_iter().flatten() {
        println!("{name}: {} bytes, {:.40}", input.len(), input);
        Target::find(name).unwrap().check(input.as_bytes());
    }
}

/// So many lines, each made from its number.
fn lines(count: u32, line: impl Fn(u32) -> String) -> String {
    (0..count).map(|number| line(number) + "\n").collect()
}

/// A large input and the entry point it is for.
type Large = (&'static str, String);

fn large_documents() -> Vec<Large> {
    let long = "x".repeat(100_000);
    let once = "*a, ".repeat(3_000);
    let twice = "*b, ".repeat(1_500);
    vec![
        ("documents", format!("a: &a {long}\nb: [{once}]\n")),
        (
            "documents",
            format!("&a {long}: &b [*a, *a]\nc: [{twice}]\n"),
        ),
        ("documents", "[".repeat(100_000)),
        ("documents", "- &a [&b [&c {d: e}]]\n".repeat(30_000)),
    ]
}

fn large_configurations() -> Vec<Large> {
    let near = lines(2_000, |number| format!("evictionHar{number}: 1"));
    vec![
        ("config", lines(2_000, |number| format!("k{number}: 1"))),
        ("config", lines(30_000, |number| format!("k{number}: 1"))),
        ("config", "mode: observe\n".repeat(2_000)),
        ("config", format!("prefer: [{}]\n", "1, ".repeat(30_000))),
        ("config", format!("kind: KubeletConfiguration\n{near}")),
    ]
}

fn large_manifests() -> Vec<Large> {
    let items = "{kind: a}, ".repeat(30_000);
    let steps = "{at: x}, ".repeat(30_000);
    let usage = lines(30_000, |number| format!("p{number}: , "));
    vec![
        ("pods", "---\nkind: Service\n".repeat(30_000)),
        ("pods", format!("kind: List\nitems: [{items}]")),
        ("scenario", format!("steps: [{steps}]")),
        (
            "scenario",
            format!("steps: [{{at: 0s, usage: {{{usage}}}}}]"),
        ),
    ]
}

fn large_files() -> Vec<Large> {
    let stars = format!("{}\n{}", "*a".repeat(2_000), "a".repeat(8_000));
    let folders = format!("{}\n{}", "**/a/".repeat(500), "a/".repeat(4_000));
    let nodes = "0-1023,".repeat(10_000);
    vec![
        (
            "node-files",
            lines(30_000, |number| format!("MemTotal: {number} kB")),
        ),
        ("paths", stars),
        ("paths", folders),
        ("host-facts", format!("=== has_memory\n{nodes}\n")),
    ]
}
