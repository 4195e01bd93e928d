//! The whole page from known facts, and what the clerk's reports add up to.

use std::collections::{BTreeMap, BTreeSet};

use brink_core::base::{Moment, Reason};
use brink_core::node::decision::{PLACES, Standing};
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::input::Confirmation;
use brink_core::node::order::End;
use brink_core::node::rank::Excess;
use brink_core::node::safety::Mode;
use brink_core::node::signal::{PerSignal, Signal};
use brink_core::node::workload::{Preference, PreferenceBy};
use brink_host::probe::shortage::Shortage;
use brink_host::psi::{Pressure, Stall};
use brink_stream::model::kind::Kind as EventKind;
use serde_json::json;

use super::catalogue::ALL;
use super::counters::{CHAIN, Counters, Tally};
use super::events::{self, CAUSES, EventTally};
use super::exposition::{Format, Kind};
use super::facts::{Facts, Own};
use super::page::page;
use crate::control::protocol::Status;
use crate::ledger::Rung;
use crate::ledger::entry::{Completion, Crossed, Kill, Place, Record, Seen, Stages};

#[expect(
    clippy::unnecessary_wraps,
    reason = "every stage is one that may not be reached"
)]
fn at(micros: i64) -> Option<Moment> {
    Some(Moment::from_nanos(micros * 1000))
}

fn victim() -> Place<'static> {
    Place {
        namespace: "a",
        name: "b",
        uid: "c",
        standing: Standing {
            preference: Preference::Normal,
            preference_by: PreferenceBy::Node,
            excess: Excess::Over,
            priority: 0,
            usage: None,
            request: 0,
        },
        refusal: None,
    }
}

fn record(order: u64, mode: Mode) -> Record<'static> {
    Record {
        order,
        boot: [0; 16],
        wall_of_zero: 0,
        rung: Rung::KernelSampler,
        reason: Reason::Hard,
        mode,
        policy: MemoryPolicy::Confirmed,
        crossed: Crossed {
            signal: Signal::MemoryAvailable,
            grace: 0,
            quantity: 100,
            seen: Seen {
                available: 90,
                capacity: 1000,
                at: at(1_000),
            },
        },
        limit: None,
        signals: PerSignal::default(),
        confirmation: Confirmation::default(),
        credit: 0,
        candidates: 1,
        victim: victim(),
        ranking: [const { None }; PLACES],
        stages: to_decision(),
        until: None,
    }
}

fn to_decision() -> Stages {
    Stages {
        above: at(900),
        sampled: at(1_000),
        submitted: at(1_010),
        woke: at(1_100),
        decided: at(1_120),
        recorded: at(1_130),
        ..Stages::default()
    }
}

fn killed() -> Completion {
    Completion {
        stages: Stages {
            first_signal: at(1_500),
            last_signal: at(1_600),
            ..to_decision()
        },
        kill: Some(Kill {
            signalled: 3,
            ..Kill::default()
        }),
        ..Completion::default()
    }
}

fn over(completion: &Completion, end: End) -> Completion {
    Completion {
        stages: Stages {
            first_back: at(4_000),
            gone: at(9_000),
            ended: at(9_000),
            ..completion.stages
        },
        freed: 4096,
        end: Some(end),
        ..*completion
    }
}

fn stage(tally: &Tally, name: &str) -> (u64, u64) {
    let place = CHAIN.iter().position(|(stage, _)| *stage == name).unwrap();
    (tally.stages[place].count(), tally.stages[place].sum())
}

#[test]
fn each_stage_is_counted_once_however_often_it_is_told() {
    let counters = Counters::default();
    let decision = record(7, Mode::Enforcing);
    counters.decision(&decision, Some(&killed()));
    counters.decision(&decision, Some(&over(&killed(), End::MemoryBack)));
    counters.decision(&decision, Some(&over(&killed(), End::MemoryBack)));
    let tally = counters.read();
    let expected = [
        ("crossing", 100),
        ("submit", 10),
        ("wake", 90),
        ("decide", 20),
        ("record", 10),
        ("first_signal", 370),
        ("last_signal", 100),
        ("memory_back", 2_500),
        ("gone", 7_500),
    ];
    for (name, micros) in expected {
        assert_eq!(stage(&tally, name), (1, micros * 1000), "{name}");
    }
    assert_eq!(
        (stage(&tally, "ask"), stage(&tally, "relief")),
        ((0, 0), (0, 0))
    );
    assert_eq!((tally.way.count(), tally.way.sum()), (1, 500_000));
    assert_eq!(tally.evictions[Signal::MemoryAvailable as usize], [1, 0]);
    let age = &tally.ages[Signal::MemoryAvailable as usize];
    assert_eq!((age.count(), age.sum()), (1, 120_000));
    assert_eq!(
        (tally.ends, tally.freed),
        ([1, 0, 0, 0, 0, 0, 0, 0, 0], 4096)
    );
}

#[test]
fn an_eviction_is_counted_when_somebody_was_signalled_or_left_when_asked() {
    let check = |mode: Mode, completion: Option<Completion>, expected: [u64; 2]| {
        let counters = Counters::default();
        counters.decision(&record(1, mode), completion.as_ref());
        let found = counters.read().evictions[Signal::MemoryAvailable as usize];
        assert_eq!(found, expected, "{mode:?} {completion:?}");
    };
    let asked = Completion {
        stages: Stages {
            asked: at(1_200),
            ..to_decision()
        },
        ..Completion::default()
    };
    check(Mode::Enforcing, None, [0, 0]);
    check(Mode::Enforcing, Some(killed()), [1, 0]);
    check(Mode::Enforcing, Some(asked), [0, 0]);
    check(Mode::Enforcing, Some(over(&asked, End::Gone)), [1, 0]);
    check(Mode::Enforcing, Some(over(&asked, End::Stopped)), [0, 0]);
    check(
        Mode::Enforcing,
        Some(over(&Completion::default(), End::Failed)),
        [0, 0],
    );
    check(Mode::Observing(Reason::Paused), None, [0, 1]);
}

#[test]
fn a_grace_is_no_latency() {
    let counters = Counters::default();
    let mut soft = killed();
    soft.stages.asked = at(1_200);
    counters.decision(&record(1, Mode::Enforcing), Some(&soft));
    let tally = counters.read();
    assert_eq!(stage(&tally, "ask"), (1, 70_000));
    assert_eq!(
        (stage(&tally, "first_signal"), tally.way.count()),
        ((0, 0), 0)
    );
}

#[test]
fn orders_that_are_long_over_are_forgotten() {
    let counters = Counters::default();
    for order in 0..1_000 {
        counters.decision(&record(order, Mode::Enforcing), Some(&killed()));
    }
    assert_eq!(counters.read().way.count(), 1_000);
    counters.decision(&record(999, Mode::Enforcing), Some(&killed()));
    assert_eq!(counters.read().way.count(), 1_000);
}

/// A status in which everything is known.
fn status() -> Status {
    let time = json!({"wall": "2026-11-20T10:00:00.000000Z", "monotonicNs": 1});
    let threshold = |signal: &str, hard: bool| {
        json!({"signal": signal, "value": "100Mi", "hard": hard, "graceSeconds": 0, "quantity": 100, "observed": true,
            "met": hard, "metForMs": 5, "held": if hard { json!("unconfirmed") } else { json!(null) }})
    };
    let mut status = json!({
        "apiVersion": "brink.dev/v1alpha1", "kind": "Status", "version": "0.1.0", "pid": 1, "started": time, "now": time,
        "mode": "paused", "pause": null, "otherEnforcer": null, "memoryPolicy": "confirmed", "rung": "realtime-poll",
        "scheduling": "SCHED_FIFO 49", "rungReasons": ["no BTF"],
        "signals": [{"signal": "memory.available", "available": 90, "capacity": 1000}],
        "headroomBytes": 80, "usableSwapBytes": 0, "figuresAgeMs": 1500,
        "thresholds": [threshold("memory.available", true), threshold("memory.available", false),
            threshold("memory.available", true)],
        "conditions": ["MemoryPressure"], "workloads": 3, "protected": 1, "openOrder": null, "decisions": 0,
        "lastOrder": null, "oomKills": 0, "oom": {"node": 0, "cgroup": 0, "unknown": 0, "groups": 0},
        "programs": [{"name": "sampler", "family": "sampler", "running": false, "why": "no BTF"}],
        "rings": [{"row": "oom", "seen": 6, "sent": 3, "dropped": 2, "filtered": 1}],
        "reportsLost": 0, "sampler": {"ticks": 4, "meanNs": 10, "maxNs": 20},
        "events": {"last": 17, "numbers": null, "outlets": [{"name": "file", "why": "No space left", "sent": 9, "lost": 0}, {"name": "otlp", "why": null, "sent": 9, "lost": 0}],
            "journal": {"state": "full", "why": "No space left", "size": 4096, "written": 9, "waiting": 2, "lost": 1}},
        "kubernetes": {"node": "n", "connected": true, "since": null, "why": null, "pods": 12, "stateAgeMs": 0, "leftOut": 0, "failures": 3}
    });
    status["events"]["doors"] = json!([]);
    let killed =
        json!({"name": "mark_victim", "family": "oom", "running": true, "why": null, "skipped": 5});
    if let Some(programs) = status["programs"].as_array_mut() {
        programs.push(killed);
    }
    status["storage"] = json!({"folders": 3, "roundAgeMs": 500, "roundMs": 4, "feeds": 1, "changes": 9, "changesLost": 0, "withoutFeed": [],
            "troubles": ["a/b, volume /x: /x is not there"], "workloads": []});
    status["recorder"] = json!({"nodePeriodMs": 10, "nearPeriodMs": 100, "othersPeriodMs": 1000, "near": 2, "others": 3,
            "leftOut": 37, "overwritten": 4, "timer": {"ticks": 5, "meanNs": 4, "maxNs": 9}});
    serde_json::from_value(status).unwrap()
}

fn facts() -> Facts {
    let counters = Counters::default();
    counters.decision(
        &record(1, Mode::Enforcing),
        Some(&over(&killed(), End::MemoryBack)),
    );
    counters.oom_kill(Shortage::Node);
    counters.reloaded(false, 1_000_000_000);
    let stall = Stall {
        total_us: 1_500_000,
        ..Stall::default()
    };
    Facts {
        status: status(),
        tally: counters.read(),
        events: Some(EventTally {
            kinds: [1; EventKind::ALL.len()],
            causes: [2; CAUSES.len()],
            losses: [3; events::PLACES.len()],
        }),
        turned: Some(2_000_000_000),
        lost: [0, 1, 2, 3, 4],
        pressure: Some(Pressure {
            some: stall,
            full: Some(stall),
        }),
        sampler_busy: Some(47),
        recorder_busy: Some(20),
        knows_kubelet: Some(true),
        map_bytes: Some(4096),
        own: Own {
            cpu: 1,
            resident: Some(2),
            files: Some(3),
            started: 4,
        },
    }
}

/// `cargo xtask monitoring` asks for the page in both formats, to show it to `promtool`.
#[test]
fn the_page_can_be_left_in_a_folder() {
    let folder = std::env::var_os("BRINK_METRICS_PAGES").map(std::path::PathBuf::from);
    for (name, format) in [("text", Format::Text), ("openmetrics", Format::OpenMetrics)] {
        let page = page(&facts(), format);
        assert!(page.lines().count() > ALL.len() * 3, "{name} is short");
        if let Some(folder) = &folder {
            std::fs::write(folder.join(name), page).unwrap();
        }
    }
}

#[test]
fn the_page_tells_what_is_known() {
    let page = page(&facts(), Format::Text);
    let expected = [
        "brink_signal_available{eviction_signal=\"memory.available\"} 90",
        "brink_threshold_met{eviction_signal=\"memory.available\",type=\"hard\"} 1",
        "brink_threshold_held{eviction_signal=\"memory.available\",type=\"hard\",reason=\"unconfirmed\"} 1",
        "brink_condition{condition=\"MemoryPressure\"} 1",
        "brink_condition{condition=\"PIDPressure\"} 0",
        "brink_figures_age_seconds 1.500000000",
        "brink_memory_pressure_stall_seconds_total{kind=\"full\"} 1.500000000",
        "brink_evictions_total{eviction_signal=\"memory.available\",mode=\"enforce\"} 1",
        "brink_evictions_total{eviction_signal=\"memory.available\",mode=\"observe\"} 0",
        "brink_storage_folders 3",
        "brink_kubelet_configz_known 1",
        "brink_storage_folders_unknown 1",
        "brink_storage_round_age_seconds 0.500000000",
        "brink_evictions_total{eviction_signal=\"emptydirfs.limit\",mode=\"enforce\"} 0",
        "brink_eviction_stats_age_seconds_count{eviction_signal=\"memory.available\"} 1",
        "brink_eviction_stage_seconds_bucket{stage=\"wake\",le=\"0.0001\"} 1",
        "brink_signal_to_kill_seconds_sum 0.000500000",
        "brink_orders_ended_total{end=\"memory-back\"} 1",
        "brink_oom_kills_total{scope=\"system\"} 1",
        "brink_mode{mode=\"paused\"} 1",
        "brink_mode{mode=\"enforcing\"} 0",
        "brink_rung{rung=\"realtime-poll\"} 1",
        "brink_guard_queue_lost_total{queue=\"pages\"} 3",
        "brink_guard_queue_lost_total{queue=\"evicted\"} 4",
        "brink_kernel_program_running{program=\"sampler\",family=\"sampler\"} 0",
        "brink_kernel_program_skipped_total{program=\"mark_victim\",family=\"oom\"} 5",
        "brink_ring_events_dropped_total{ring=\"oom\"} 2",
        "brink_sampler_busy_seconds_total 0.000000047",
        "brink_events_total{type=\"oom-kill\"} 1",
        "brink_incidents_total{cause=\"memcgOom\"} 2",
        "brink_event_losses_total{place=\"reader\"} 3",
        "brink_event_journal{state=\"full\"} 1",
        "brink_event_journal{state=\"writing\"} 0",
        "brink_event_journal_bytes 4096",
        "brink_event_journal_waiting 2",
        "brink_event_outlet_failing{outlet=\"file\"} 1",
        "brink_event_outlet_failing{outlet=\"otlp\"} 0",
        "brink_recorder_timer_busy_seconds_total 0.000000020",
        "brink_recorder_period_seconds{of=\"node\"} 0.010000000",
        "brink_recorder_period_seconds{of=\"near\"} 0.100000000",
        "brink_recorder_period_seconds{of=\"others\"} 1.000000000",
        "brink_recorder_points_overwritten_total 4",
        "brink_recorder_cgroups_left_out 37",
        "brink_config_last_reload_successful 0",
        "brink_build_info{version=\"0.1.0\"} 1",
        "process_resident_memory_bytes 2",
    ];
    for line in expected {
        assert!(
            page.lines().any(|found| found == line),
            "{line} is not in\n{page}"
        );
    }
}

/// Before the first reading of the node nothing is known of it, and nothing is made up.
#[test]
fn what_no_reading_has_told_has_no_sample() {
    let of_the_node = [
        "brink_memory_headroom_bytes ",
        "brink_usable_swap_bytes ",
        "brink_figures_age_seconds ",
    ];
    let told = |facts: &Facts| {
        let page = page(facts, Format::Text);
        let has = |name: &str| page.lines().any(|line| line.starts_with(name));
        of_the_node.map(has)
    };
    let mut facts = facts();
    facts.status.usable_swap_bytes = 0;
    assert_eq!(told(&facts), [true; 3], "an empty swap is known");
    (facts.status.figures_age_ms, facts.status.headroom_bytes) = (None, None);
    assert_eq!(told(&facts), [false; 3]);
}

/// The samples of a page: name and labels as they are written, and the value.
fn samples(page: &str) -> Vec<(&str, f64)> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series, value.parse().unwrap())
        })
        .collect()
}

#[test]
fn no_series_stands_twice_and_each_is_of_the_family_above_it() {
    for format in [Format::Text, Format::OpenMetrics] {
        let page = page(&facts(), format);
        let mut known = BTreeSet::new();
        for (series, _) in samples(&page) {
            assert!(known.insert(series), "{series} stands twice");
        }
        let mut family = "";
        for line in page.lines() {
            if let Some(head) = line.strip_prefix("# HELP ") {
                family = head.split(' ').next().unwrap();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(family), "{line} under {family}");
            }
        }
    }
}

#[test]
fn every_family_is_on_the_page_once_and_in_its_order() {
    let page = page(&facts(), Format::OpenMetrics);
    let heads = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let heads: Vec<&str> = heads.collect();
    let expected = ALL.iter().map(|family| {
        let word = family.kind.word(Format::OpenMetrics);
        format!("{} {word}", family.name)
    });
    assert_eq!(heads, expected.collect::<Vec<_>>());
}

#[test]
fn buckets_rise_to_the_count() {
    let page = page(&facts(), Format::Text);
    let mut last: BTreeMap<&str, f64> = BTreeMap::new();
    let samples = samples(&page);
    let buckets = samples.iter().filter_map(|(series, value)| {
        let (series, _) = series.split_once("le=\"")?;
        Some((series, *value))
    });
    for (series, value) in buckets {
        let before = last.insert(series, value).unwrap_or(0.0);
        assert!(value >= before, "{series}");
    }
    let histograms = ALL.iter().filter(|family| family.kind == Kind::Histogram);
    for family in histograms {
        let counts = samples
            .iter()
            .filter(|(series, _)| series.starts_with(&format!("{}_count", family.name)));
        let counts: f64 = counts.map(|(_, count)| count).sum();
        let prefix = format!("{}_bucket", family.name);
        let most: f64 = last
            .iter()
            .filter(|(series, _)| series.starts_with(&prefix))
            .map(|(_, most)| most)
            .sum();
        assert!((counts - most).abs() < f64::EPSILON, "{}", family.name);
    }
}
