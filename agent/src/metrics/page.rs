//! The page of `/metrics`: every family with its samples, from facts alone.

use brink_core::node::condition::Condition;
use brink_core::node::limits::LimitKind;
use brink_core::node::signal::Signal;
use brink_stream::model::kind::Kind;

use super::catalogue as of;
use super::counters::{CHAIN, ENDS, Tally};
use super::events::{CAUSES, PLACES};
use super::exposition::{Exposition, Family, Format, Seconds};
use super::facts::{Facts, QUEUES};
use crate::control::protocol::{RecorderView, RingView, Status, ThresholdState};
use crate::disks::view::DisksView;
use crate::guard::rung::Rung;
use crate::record::words::word_of;

/// What orders are carried out by, and every reason why they are not.
pub(super) const MODES: [&str; 6] = [
    "enforcing",
    "observing",
    "standby",
    "paused",
    "throttled",
    "exhausted",
];
/// How an event journal stands, in the words of the status.
pub(super) const JOURNAL_STATES: [&str; 4] = ["writing", "full", "failed", "unopened"];
/// What the flight recorder records.
pub(super) const RECORDED: [&str; 3] = ["node", "near", "others"];
/// What carries the signals.
pub(super) const RUNGS: [Rung; 3] = [Rung::KernelSampler, Rung::RealtimePoll, Rung::Poll];
/// What came of asking the container runtime, in the order of their counts.
pub(super) const RESULTS: [&str; 2] = ["sufficient", "insufficient"];
/// What the container runtime removed, likewise.
pub(super) const REMOVED: [&str; 2] = ["container", "image"];
/// What was short of memory when the kernel killed, likewise.
pub(super) const SCOPES: [&str; 3] = ["system", "cgroup", "unknown"];

/// One figure of a ring.
type Count = fn(&RingView) -> u64;

/// The page in a format.
pub fn page(facts: &Facts, format: Format) -> String {
    let mut page = Exposition::new(format);
    add_signals(&mut page, &facts.status);
    add_thresholds(&mut page, facts);
    add_node(&mut page, facts);
    add_disks(&mut page, facts.status.disks.as_ref());
    add_evictions(&mut page, facts);
    add_chain(&mut page, &facts.tally);
    add_agent(&mut page, facts);
    add_programs(&mut page, facts);
    add_events(&mut page, facts);
    add_event_journal(&mut page, &facts.status);
    add_recorder(&mut page, facts.status.recorder, facts.recorder_busy);
    add_kubernetes(&mut page, facts);
    add_process(&mut page, facts);
    page.finish()
}

fn add_signals(page: &mut Exposition, status: &Status) {
    let mut samples = page.family(&of::AVAILABLE);
    for signal in &status.signals {
        samples.add(&[&signal.signal], signal.available);
    }
    let mut samples = page.family(&of::CAPACITY);
    for signal in &status.signals {
        samples.add(&[&signal.signal], signal.capacity);
    }
}

fn add_thresholds(page: &mut Exposition, facts: &Facts) {
    let all = distinct(&facts.status.thresholds);
    let mut samples = page.family(&of::QUANTITY);
    for one in &all {
        samples.add_known(&[&one.signal, type_of(one)], one.quantity);
    }
    let mut samples = page.family(&of::OBSERVED);
    for one in &all {
        samples.add(&[&one.signal, type_of(one)], u8::from(one.observed));
    }
    let mut samples = page.family(&of::MET);
    for one in &all {
        samples.add(&[&one.signal, type_of(one)], u8::from(one.met));
    }
    let mut samples = page.family(&of::HELD);
    for one in &all {
        if let Some(reason) = &one.held {
            samples.add(&[&one.signal, type_of(one), reason], 1);
        }
    }
    let mut samples = page.family(&of::CROSSED);
    for one in &all {
        let counts = Signal::named(&one.signal)
            .map(|signal| facts.tally.crossings[signal as usize][usize::from(!one.hard)]);
        samples.add_known(&[&one.signal, type_of(one)], counts);
    }
}

/// The first threshold of each signal and type: a configuration has no two, and no sample may stand on the page twice.
fn distinct(thresholds: &[ThresholdState]) -> Vec<&ThresholdState> {
    let mut all: Vec<&ThresholdState> = Vec::with_capacity(thresholds.len());
    for one in thresholds {
        let is_known =
            |known: &&ThresholdState| known.signal == one.signal && known.hard == one.hard;
        if !all.iter().any(is_known) {
            all.push(one);
        }
    }
    all
}

fn type_of(threshold: &ThresholdState) -> &'static str {
    if threshold.hard { "hard" } else { "soft" }
}

fn add_disks(page: &mut Exposition, view: Option<&DisksView>) {
    let mut samples = page.family(&of::FILESYSTEM);
    for one in view.iter().flat_map(|view| &view.filesystems) {
        let is_known = one.why.is_none() && one.age_ms.is_some();
        samples.add(&[&one.role], u8::from(is_known));
    }
    let runtime = view.map(|view| &view.runtime);
    let found = runtime.filter(|runtime| runtime.endpoint.is_some());
    let answers = found.map(|runtime| u8::from(runtime.name.is_some() && runtime.why.is_none()));
    page.family(&of::RUNTIME).add_known(&[], answers);
    let mut samples = page.family(&of::RECLAIMS);
    if let Some(runtime) = runtime {
        let insufficient = runtime.reclaims - runtime.sufficient.min(runtime.reclaims);
        let counts = [runtime.sufficient, insufficient];
        for (result, count) in RESULTS.iter().zip(counts) {
            samples.add(&[result], count);
        }
    }
    let mut samples = page.family(&of::RECLAIMED);
    if let Some(runtime) = runtime {
        let counts = [runtime.containers, runtime.images];
        for (kind, count) in REMOVED.iter().zip(counts) {
            samples.add(&[kind], count);
        }
    }
    let freed = runtime.map(|runtime| runtime.freed_bytes);
    page.family(&of::RECLAIMED_BYTES).add_known(&[], freed);
}

fn add_node(page: &mut Exposition, facts: &Facts) {
    let status = &facts.status;
    let mut samples = page.family(&of::CONDITION);
    for condition in Condition::ALL {
        let holds = status
            .conditions
            .iter()
            .any(|name| name == condition.name());
        samples.add(&[condition.name()], u8::from(holds));
    }
    page.family(&of::HEADROOM)
        .add_known(&[], status.headroom_bytes);
    let swap = status.figures_age_ms.map(|_| status.usable_swap_bytes);
    page.family(&of::SWAP).add_known(&[], swap);
    let age = status
        .figures_age_ms
        .and_then(|age| u64::try_from(age).ok());
    let age = age.map(|millis| Seconds(millis.saturating_mul(1_000_000)));
    page.family(&of::AGE).add_known(&[], age);
    let mut samples = page.family(&of::STALLED);
    if let Some(pressure) = facts.pressure {
        let stalled = |micros: u64| Seconds(micros.saturating_mul(1_000));
        samples.add(&["some"], stalled(pressure.some.total_us));
        samples.add_known(&["full"], pressure.full.map(|full| stalled(full.total_us)));
    }
    page.family(&of::WORKLOADS).add(&[], status.workloads);
    page.family(&of::PROTECTED).add(&[], status.protected);
    let broken = u32::try_from(status.broken_manifests.len()).unwrap_or(u32::MAX);
    let broken = broken.saturating_add(status.more_broken_manifests);
    page.family(&of::BROKEN).add(&[], broken);
    add_storage(page, status);
}

fn add_storage(page: &mut Exposition, status: &Status) {
    let view = status.storage.as_ref();
    let folders = view.map(|view| view.folders);
    page.family(&of::STORAGE).add_known(&[], folders);
    let unknown = view.map(|view| u32::try_from(view.troubles.len()).unwrap_or(u32::MAX));
    page.family(&of::STORAGE_UNKNOWN).add_known(&[], unknown);
    let age = view.and_then(|view| u64::try_from(view.round_age_ms?).ok());
    let age = age.map(|millis| Seconds(millis.saturating_mul(1_000_000)));
    page.family(&of::STORAGE_AGE).add_known(&[], age);
}

fn add_evictions(page: &mut Exposition, facts: &Facts) {
    let tally = &facts.tally;
    let watched = |signal: Signal| {
        let mut thresholds = facts.status.thresholds.iter();
        thresholds.any(|one| one.signal == signal.name())
    };
    let mut samples = page.family(&of::EVICTIONS);
    for signal in Signal::ALL {
        let [done, would] = tally.evictions[signal as usize];
        // A counter that is there before its first increase shows the increase.
        if watched(signal) || done + would > 0 {
            samples.add(&[signal.name(), "enforce"], done);
            samples.add(&[signal.name(), "observe"], would);
        }
    }
    for kind in LimitKind::ALL {
        let [done, would] = tally.limits[kind as usize];
        if facts.status.storage.is_some() || done + would > 0 {
            samples.add(&[kind.name(), "enforce"], done);
            samples.add(&[kind.name(), "observe"], would);
        }
    }
    let mut samples = page.family(&of::STATS_AGE);
    for signal in Signal::ALL {
        let ages = &tally.ages[signal as usize];
        if watched(signal) || ages.count() > 0 {
            samples.add_histogram(&[signal.name()], ages);
        }
    }
}

fn add_chain(page: &mut Exposition, tally: &Tally) {
    let mut samples = page.family(&of::STAGE);
    for ((stage, _), histogram) in CHAIN.iter().zip(&tally.stages) {
        samples.add_histogram(&[stage], histogram);
    }
    page.family(&of::WAY).add_histogram(&[], &tally.way);
    let mut samples = page.family(&of::ENDS);
    for (end, count) in ENDS.iter().zip(tally.ends) {
        samples.add(&[&word_of(end)], count);
    }
}

fn add_agent(page: &mut Exposition, facts: &Facts) {
    let (status, tally) = (&facts.status, &facts.tally);
    page.family(&of::OPEN)
        .add(&[], u8::from(status.open_order.is_some()));
    page.family(&of::FREED).add(&[], tally.freed);
    let mut samples = page.family(&of::OOM_KILLS);
    let is_counted = status.counts_oom_kills();
    for (scope, count) in SCOPES.iter().zip(tally.oom_kills) {
        samples.add_known(&[scope], is_counted.then_some(count));
    }
    let mut samples = page.family(&of::MODE);
    for mode in MODES {
        samples.add(&[mode], u8::from(mode == status.mode));
    }
    let mut samples = page.family(&of::RUNG);
    for rung in RUNGS {
        let stands = status.rung.as_deref() == Some(rung.word());
        samples.add(&[rung.word()], u8::from(stands));
    }
    page.family(&of::TURNED)
        .add_known(&[], facts.turned.map(Seconds));
    let mut samples = page.family(&of::LOST);
    for (queue, lost) in QUEUES.iter().zip(facts.lost) {
        samples.add(&[queue], lost);
    }
}

fn add_programs(page: &mut Exposition, facts: &Facts) {
    let status = &facts.status;
    let mut samples = page.family(&of::PROGRAM);
    for program in &status.programs {
        samples.add(&[&program.name, &program.family], u8::from(program.running));
    }
    let mut samples = page.family(&of::SKIPPED);
    for program in &status.programs {
        samples.add_known(&[&program.name, &program.family], program.skipped);
    }
    let rings: [(&'static Family, Count); 4] = [
        (&of::SEEN, |ring| ring.seen),
        (&of::SENT, |ring| ring.sent),
        (&of::DROPPED, |ring| ring.dropped),
        (&of::FILTERED, |ring| ring.filtered),
    ];
    for (family, count) in rings {
        let mut samples = page.family(family);
        for ring in &status.rings {
            samples.add(&[&ring.row], count(ring));
        }
    }
    let meter = status.sampler.as_ref();
    page.family(&of::TICKS)
        .add_known(&[], meter.map(|meter| meter.ticks));
    page.family(&of::BUSY)
        .add_known(&[], facts.sampler_busy.map(Seconds));
    let longest = meter.map(|meter| Seconds(meter.max_ns));
    page.family(&of::LONGEST).add_known(&[], longest);
    page.family(&of::MAPS).add_known(&[], facts.map_bytes);
}

fn add_events(page: &mut Exposition, facts: &Facts) {
    let events = facts.events.as_ref();
    let mut samples = page.family(&of::EVENTS);
    for (kind, count) in events
        .iter()
        .flat_map(|told| Kind::ALL.iter().zip(told.kinds))
    {
        samples.add(&[kind.word()], count);
    }
    let mut samples = page.family(&of::INCIDENTS);
    for (cause, count) in events
        .iter()
        .flat_map(|told| CAUSES.iter().zip(told.causes))
    {
        samples.add(&[&word_of(cause)], count);
    }
    let mut samples = page.family(&of::EVENTS_LOST);
    for (place, count) in events
        .iter()
        .flat_map(|told| PLACES.iter().zip(told.losses))
    {
        samples.add(&[place], count);
    }
}

fn add_event_journal(page: &mut Exposition, status: &Status) {
    let told = status.events.as_ref();
    let journal = told.and_then(|told| told.journal.as_ref());
    let mut samples = page.family(&of::EVENT_JOURNAL);
    for state in JOURNAL_STATES {
        let stands = journal.map(|journal| u8::from(journal.state == state));
        samples.add_known(&[state], stands);
    }
    page.family(&of::EVENT_JOURNAL_BYTES)
        .add_known(&[], journal.map(|journal| journal.size));
    page.family(&of::EVENT_JOURNAL_WAITING)
        .add_known(&[], journal.map(|journal| journal.waiting));
    let mut samples = page.family(&of::OUTLET);
    for outlet in told.iter().flat_map(|told| &told.outlets) {
        samples.add(&[&outlet.name], u8::from(outlet.why.is_some()));
    }
}

fn add_recorder(page: &mut Exposition, view: Option<RecorderView>, busy: Option<u64>) {
    page.family(&of::RECORDER_BUSY)
        .add_known(&[], busy.map(Seconds));
    let periods = view.map(|view| {
        [
            view.node_period_ms,
            view.near_period_ms,
            view.others_period_ms,
        ]
    });
    let mut samples = page.family(&of::RECORDER);
    for (what, millis) in RECORDED.into_iter().zip(periods.into_iter().flatten()) {
        samples.add(&[what], Seconds(u64::from(millis) * 1_000_000));
    }
    page.family(&of::RECORDER_OVERWRITTEN)
        .add_known(&[], view.map(|view| view.overwritten));
    page.family(&of::RECORDER_LEFT_OUT)
        .add_known(&[], view.map(|view| view.left_out));
}

fn add_kubernetes(page: &mut Exposition, facts: &Facts) {
    let known = facts.status.kubernetes.as_ref();
    page.family(&of::KUBERNETES)
        .add_known(&[], known.map(|known| u8::from(known.connected)));
    page.family(&of::KUBERNETES_PODS)
        .add_known(&[], known.map(|known| known.pods));
    let age = known.and_then(|known| u64::try_from(known.state_age_ms?).ok());
    let age = age.map(|millis| Seconds(millis.saturating_mul(1_000_000)));
    page.family(&of::KUBERNETES_AGE).add_known(&[], age);
    page.family(&of::KUBERNETES_FAILURES)
        .add_known(&[], known.map(|known| known.failures));
    page.family(&of::KUBERNETES_UNTOLD)
        .add_known(&[], known.map(|known| known.untold));
    page.family(&of::KUBELET_CONFIGZ)
        .add_known(&[], facts.knows_kubelet.map(u8::from));
}

fn add_process(page: &mut Exposition, facts: &Facts) {
    let own = facts.own;
    page.family(&of::BUILD).add(&[&facts.status.version], 1);
    // The configuration of the start was taken over, or there would be no page.
    let started = i64::try_from(own.started).unwrap_or(0);
    let (taken, at) = facts.tally.reloaded.unwrap_or((true, started));
    page.family(&of::RELOADED).add(&[], u8::from(taken));
    let at = u64::try_from(at).unwrap_or(0);
    page.family(&of::RELOADED_AT).add(&[], Seconds(at));
    page.family(&of::CPU).add(&[], Seconds(own.cpu));
    page.family(&of::RESIDENT).add_known(&[], own.resident);
    page.family(&of::STARTED).add(&[], Seconds(own.started));
    page.family(&of::FILES).add_known(&[], own.files);
}
