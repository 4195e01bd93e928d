//! The flight recorder on a real kernel: the sampler's points, a leak that is warned of before its OOM, and its recording.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use brink::config::{Sources, load};
use brink::guard::files::NodePlan;
use brink::guard::now;
use brink::guard::rung::LOADING;
use brink::recorder::book::Wanted;
use brink::recorder::tracked::Warning;
use brink::recorder::{NODE_PERIOD_NS, Recorder};
use brink::runtime::equipment::ProgramState;
use brink::runtime::prepare::{self, Running};
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{Controller, Layout};
use brink_host::clock::monotonic_ns;
use brink_host::hog::{HogSpec, Load};
use brink_host::probe::abi::flight::FlightPoint;
use brink_host::probe::programs::is_spare;
use brink_host::probe::{Facts, Probe, Roots, Wishes, coverage};
use brink_stream::hub::{Line, Next};
use brink_stream::model::field::Missing;
use brink_stream::model::incident::{CgroupPoint, Recording};
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, Sandbox, files_are_in_memory, lacks, slowed, wait_until};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_mins(1);
/// Processes that are forked while it is looked at.
const FORKS: u64 = 200;
/// Reclaims in a group at the least while a file of twice its limit is read: one gives back 2 MiB at the most, as a rule.
const RECLAIMS: u64 = 16;

fn megabytes(spec: HogSpec, rate: u64) -> HogSpec {
    HogSpec {
        rate: Some(rate * MIB),
        ..spec
    }
}

/// The cgroup that has this path now.
fn wanted(path: &str) -> Wanted<'_> {
    Wanted { path, id: None }
}

fn recorder(layout: &Layout) -> (Recorder, Receiver<Warning>) {
    let (tell, told) = channel();
    let warn = move |warning| {
        // Whoever listened may have seen enough.
        let _gone = tell.send(warning);
    };
    let plan = NodePlan::default();
    let recorder = Recorder::start(Path::new("/"), layout, &plan, warn).unwrap();
    (recorder, told)
}

/// The programs with the node armed and recorded, or what this host lacks for it.
fn recording_probe() -> Result<Probe, String> {
    let facts = Facts::gather(&Roots::default());
    let wishes = Wishes::default().recording(NODE_PERIOD_NS);
    let settings = coverage::settings(&facts, wishes);
    let mut probe = Probe::load(&facts, &settings).map_err(|error| error.to_string())?;
    if let Some(why) = brink::equip::without_sampler(&probe) {
        return Err(why);
    }
    let meminfo = brink_host::meminfo::MeminfoReader::open(Path::new("/")).unwrap();
    let total = meminfo.read().unwrap().total;
    let free = || Ok(meminfo.read().unwrap().free);
    probe.arm_node(total, free).unwrap();
    probe.start().unwrap();
    Ok(probe)
}

/// That the middle one of the distances between points is not much more than the period that is told.
#[track_caller]
fn check_pace(mut gaps: Vec<u64>, period: Duration) {
    gaps.sort_unstable();
    let middle = Duration::from_nanos(gaps[gaps.len() / 2]);
    let most = slowed(period * 3 / 2);
    assert!(middle <= most, "{middle:?} apart, not {period:?}: {gaps:?}");
}

#[test]
fn the_sampler_leaves_points_of_the_node() {
    let mut probe = match recording_probe() {
        Ok(probe) => probe,
        Err(why) => lacks!("needs the sampler: {why}"),
    };
    let meters = probe.take_meters().unwrap();
    let flight = probe.take_flight().expect("it was asked for");
    let began = meters.sampler().unwrap().flights;
    let left = |count| {
        let enough = wait_until(PATIENCE, || {
            let flights = meters.sampler().unwrap().flights;
            (flights >= began + count).then_some(flights)
        });
        enough.expect("points are left")
    };
    left(20);
    do_all_of(Load::ForkChurn, FORKS, None);
    // A point of after that.
    let next = meters.sampler().unwrap().flights - began + 1;
    let written = left(next.max(220));
    let mut points = Vec::<FlightPoint>::new();
    flight
        .read(written, (0, monotonic_ns()), |point| points.push(*point))
        .unwrap();
    assert!(points.len() >= 200, "{}", points.len());
    let mut gaps = Vec::new();
    for pair in points.windows(2) {
        let apart = pair[1].at_ns.checked_sub(pair[0].at_ns).expect("in order");
        assert!(apart >= NODE_PERIOD_NS * 3 / 4, "{apart} ns apart");
        gaps.push(apart);
        assert!(pair[1].forks.wrapping_sub(pair[0].forks) < 1 << 20);
    }
    check_pace(gaps, Duration::from_nanos(NODE_PERIOD_NS));
    if flight.tells().forks {
        let rise = points[points.len() - 1].forks.wrapping_sub(points[0].forks);
        assert!(u64::from(rise) >= FORKS, "{rise} forks");
    }
    let total = brink_host::meminfo::MeminfoReader::open(Path::new("/"));
    let total = i64::try_from(total.unwrap().read().unwrap().total).unwrap();
    for point in &points {
        let available = FlightPoint::bytes(point.available.into());
        assert!((1..=total).contains(&available), "{point:?} of {total}");
        let used = FlightPoint::bytes(i64::from(point.anon) + i64::from(point.file));
        assert!((1..=total).contains(&used), "{point:?} of {total}");
    }
}

/// A sampler that falls silent takes nothing with it that it has left: files go on from there.
#[test]
fn what_a_sampler_left_before_it_fell_silent_is_recorded() {
    let mut probe = match recording_probe() {
        Ok(probe) => probe,
        Err(why) => lacks!("needs the sampler: {why}"),
    };
    let flight = probe.take_flight().expect("it was asked for");
    if !flight.tells().forks {
        lacks!("needs the programs that count forks");
    }
    let (recorder, _told) = recorder(&Layout::detect(Path::new("/")).unwrap());
    recorder.attach(flight, Arc::new(probe.take_meters().unwrap()));
    let cut = || recorder.cut(now(), None);
    let until = |what: &str, is_so: &dyn Fn(&Recording) -> bool| {
        let found = wait_until(PATIENCE, || Some(cut()).filter(|cut| is_so(cut)));
        found.unwrap_or_else(|| panic!("{what}: {:?}", cut().node))
    };
    let of_sampler = |cut: &Recording| cut.node.iter().any(|point| point.forks.is_some());
    until("the sampler leaves points", &|cut| {
        of_sampler(cut) && cut.node_period_ms == 10
    });
    drop(probe);
    let told = until("files tell", &|cut| cut.node_period_ms >= 100);
    assert!(of_sampler(&told), "{:?}", told.node);
    assert_eq!(told.node_forks_missing, Some(Missing::Lost));
}

#[test]
fn without_the_wish_no_point_is_left() {
    let facts = Facts::gather(&Roots::default());
    let settings = coverage::settings(&facts, Wishes::default());
    match Probe::load(&facts, &settings) {
        Ok(mut probe) => assert!(probe.take_flight().is_none()),
        Err(error) => lacks!("needs kernel programs: {error}"),
    }
}

#[test]
fn what_cgroups_use_is_told_by_the_survey_whoever_comes_and_goes() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 200 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("needs a memory cgroup: {error}"),
    };
    let mut probe = match recording_probe() {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let Some(survey) = probe.take_survey() else {
        lacks!("needs the survey");
    };
    let (recorder, _told) = recorder(&Layout::detect(Path::new("/")).unwrap());
    // Others' cgroups come and go as well.
    let all_are_surveyed = || {
        let pace = recorder.pace(now())?;
        let all = pace.near + pace.others;
        (all > 0 && pace.surveyed == all).then_some(all)
    };
    let files = wait_until(PATIENCE, || recorder.pace(now()));
    assert_eq!(files.expect("a first round").surveyed, 0);
    recorder.survey_with(survey);
    wait_until(PATIENCE, all_are_surveyed).expect("the survey tells of all");
    let child = sandbox.group.child("short").unwrap();
    let path = child.group().to_owned();
    let is_seen = |above: u64| {
        let recording = recorder.cut(now(), Some(wanted(&path)));
        recording.cgroup.iter().any(|point| point.usage > above)
    };
    let spec = HogSpec::new(Load::Anon, 64 * MIB, PATIENCE);
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let mut hog = Hog::spawn(program, Some(&child), &spec).unwrap();
    hog.start();
    wait_until(PATIENCE, || is_seen(60 * MIB).then_some(())).expect("its usage is recorded");
    wait_until(PATIENCE, all_are_surveyed).expect("by the survey");
    drop(hog);
    drop(child);
    wait_until(PATIENCE, all_are_surveyed).expect("and so are all after it has gone");
}

/// How often the recorder's thread of this process has gone to sleep.
fn sleeps_of_the_recorder() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let recorders = texts.filter(|text| text.starts_with("Name:\tbrink-recorder\n"));
    let sleeps = recorders.filter_map(|text| {
        let line = text
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    sleeps.sum()
}

#[test]
fn who_does_not_move_is_recorded_closely_and_nobody_wakes_for_it() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 200 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("needs a memory cgroup: {error}"),
    };
    let mut probe = match recording_probe() {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let Some(survey) = probe
        .take_survey()
        .filter(|survey| survey.moved().is_some())
    else {
        lacks!("needs the survey's timer");
    };
    let (recorder, _told) = recorder(&Layout::detect(Path::new("/")).unwrap());
    let (flight, meters) = (probe.take_flight().unwrap(), probe.take_meters().unwrap());
    recorder.attach(flight, Arc::new(meters));
    recorder.survey_with(survey);
    let spec = HogSpec::new(Load::Anon, 64 * MIB, PATIENCE);
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let mut hog = Hog::spawn(program, Some(&sandbox.group), &spec).unwrap();
    let followed = || {
        recorder
            .pace(now())?
            .followed
            .filter(|followed| followed.counted.traces > 0)
    };
    wait_until(PATIENCE, followed).expect("it is followed");
    let path = sandbox.group.group().to_owned();
    let track = || recorder.cut(now(), Some(wanted(&path))).cgroup;
    wait_until(PATIENCE, || track().last().copied()).expect("it is recorded");
    hog.start();
    let is_held = || {
        track()
            .last()
            .filter(|point| point.anon >= 60 * MIB)
            .copied()
    };
    wait_until(PATIENCE, is_held).expect("what it holds is recorded");
    let points = track();
    // What it grew by was told apart at once, not when a second was over.
    let first = |held: fn(&CgroupPoint) -> u64| {
        let found = points.iter().find(|point| held(point) >= 48 * MIB);
        Duration::from_millis(found.expect("it grew").before_ms.into())
    };
    let late = first(|point| point.usage).saturating_sub(first(|point| point.anon));
    assert!(
        late <= slowed(Duration::from_millis(300)),
        "{late:?} late: {points:?}"
    );
    let (before, told) = (sleeps_of_the_recorder(), followed().unwrap().counted.told);
    let rest = Duration::from_secs(6);
    std::thread::sleep(rest);
    let (after, told_after) = (sleeps_of_the_recorder(), followed().unwrap().counted.told);
    let points = track();
    // Others may move meanwhile, and have somebody woken.
    let most = told_after - told + 2 * rest.as_secs();
    assert!(
        after - before <= most,
        "{} times, not {most}",
        after - before
    );
    let lately = points.iter().map(|point| u64::from(point.before_ms));
    let lately: Vec<u64> = lately.filter(|before| *before < 5_000).collect();
    let gaps = lately
        .windows(2)
        .map(|pair| (pair[0] - pair[1]) * 1_000_000);
    check_pace(gaps.collect(), Duration::from_millis(100));
    assert!(
        lately.last().is_some_and(|last| *last <= 300),
        "up to now: {lately:?}"
    );
}

#[test]
fn a_leak_is_warned_of_before_its_oom_and_has_its_recording() {
    let limit = 160 * MIB;
    let sandbox = match Sandbox::new(&[Controller::Memory], limit) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("needs a memory cgroup: {error}"),
    };
    let (recorder, told) = recorder(&Layout::detect(Path::new("/")).unwrap());
    let group = sandbox.group.group().to_owned();
    // Known before it begins: a new cgroup is looked for every few seconds where the kernel does not tell of it.
    let known = wait_until(PATIENCE, || {
        let recording = recorder.cut(now(), Some(wanted(&group)));
        (!recording.cgroup.is_empty()).then_some(())
    });
    known.expect("the cgroup is recorded");
    let spec = HogSpec::new(Load::Anon, 2 * limit, Duration::from_mins(2));
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let mut leak = Hog::spawn(program, Some(&sandbox.group), &megabytes(spec, 8)).unwrap();
    leak.start();
    let warning = loop {
        let warning = told.recv_timeout(slowed(PATIENCE)).expect("a warning");
        if *warning.cgroup == *group {
            break warning;
        }
    };
    assert_eq!(warning.limit, limit);
    // Told before the OOM: what was in use then is less than the limit.
    assert!((limit / 2..limit).contains(&warning.usage), "{warning:?}");
    assert!(warning.forecast.time_to_limit_ms <= 10_000, "{warning:?}");
    assert!(warning.forecast.growth >= MIB, "{warning:?}");
    let ended = leak.wait(slowed(PATIENCE)).expect("the kernel kills it");
    assert!(!ended.success());
    let recording = recorder.cut(now(), Some(wanted(&group)));
    let usages = recording.cgroup.iter().map(|point| point.usage);
    let most = usages.clone().max().unwrap_or(0);
    assert!(most > limit * 3 / 4, "{most}");
    assert!(usages.clone().min().unwrap_or(u64::MAX) < limit / 4);
    assert!(
        recording
            .cgroup
            .windows(2)
            .all(|pair| pair[0].before_ms > pair[1].before_ms)
    );
    let near = recording
        .cgroup
        .windows(2)
        .any(|pair| pair[0].before_ms - pair[1].before_ms < 500);
    assert!(near, "it was recorded closely: {:?}", recording.cgroup);
    // No kernel program records here, so files do.
    assert!(!recording.node.is_empty() && recording.node_period_ms >= 100);
    assert!(recording.near_period_ms >= 100);
}

/// An agent in this process that only observes: its node is the sandbox, with one workload.
fn agent(sandbox: &Sandbox, group: &str, folder: &Path) -> Running {
    let path = |name: &str| folder.join(name);
    fs::create_dir(path("manifests")).unwrap();
    let manifest = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: leak, annotations: {{brink.dev/cgroup: '{group}'}}}}, spec: {{containers: [{{name: c}}]}}}}"
    );
    fs::write(path("manifests/leak.yaml"), manifest).unwrap();
    let text = format!(
        "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\nmode: observe\nnode: {{cgroup: '{}'}}\nenforceNodeAllocatable: []\nheadroomHard: 0%\nevictionHard: {{memory.available: 20Mi}}\nworkloads: {{manifests: '{}'}}\npaths: {{stateDir: '{}'}}\n",
        sandbox.group.group(),
        path("manifests").display(),
        path("state").display(),
    );
    fs::write(path("config.yaml"), text).unwrap();
    let sources = Sources {
        config: Some(path("config.yaml")),
        ..Sources::default()
    };
    let running = prepare::start(&load(&sources).unwrap().config).unwrap();
    let settled = wait_until(PATIENCE, || {
        let standing = running.shared.lock().standing.clone()?;
        (!standing.reasons.iter().any(|why| why == LOADING)).then_some(())
    });
    settled.expect("the guard takes its place");
    running
}

/// What is told up to the first event of that kind about that workload, or until patience ends.
fn told_until(running: &Running, of: Kind, name: &str) -> Vec<Arc<Line>> {
    let mut reader = running.telling.hub().unwrap().reader(Some(0));
    let (end, mut told) = (Instant::now() + slowed(PATIENCE), Vec::new());
    while Instant::now() < end {
        while let Some(next) = reader.next() {
            let Next::Line(line) = next else { continue };
            let is_last = line.of == of && is_about(&line, name);
            told.push(line);
            if is_last {
                return told;
            }
        }
        reader.wait(Duration::from_millis(200));
    }
    told
}

fn is_about(line: &Line, name: &str) -> bool {
    line.subject
        .as_ref()
        .is_some_and(|subject| subject.name == name)
}

/// Lets a load do all that it is to do, and end.
fn do_all_of(load: Load, amount: u64, group: Option<&OwnedCgroup>) {
    let spec = HogSpec {
        hold: false,
        ..HogSpec::new(load, amount, PATIENCE)
    };
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let mut hog = Hog::spawn(program, group, &spec).unwrap();
    hog.start();
    assert!(hog.wait(PATIENCE).unwrap().success(), "{load}");
}

#[test]
fn an_incident_comes_after_its_warning_and_closes_with_its_minute() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 400 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("needs a memory cgroup: {error}"),
    };
    let group = sandbox.group.child("leak").unwrap();
    group.limit_memory(&sandbox.layout, 160 * MIB).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let running = agent(&sandbox, group.group(), folder.path());
    let programs = running.loaded.programs();
    let mut absent = programs.iter().filter(|program| program.absent.is_some());
    if let Some(program) = absent.find(|program| program.family == "oom") {
        let why = format!("{}: {:?}", program.name, program.absent);
        running.stop();
        lacks!("needs the OOM programs: {why}");
    }
    do_all_of(Load::ForkChurn, FORKS, Some(&group));
    // Twice what fits.
    do_all_of(Load::CacheRead, 320 * MIB, Some(&group));
    let spec = HogSpec::new(Load::Anon, 320 * MIB, Duration::from_mins(2));
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let mut leak = Hog::spawn(program, Some(&group), &megabytes(spec, 8)).unwrap();
    leak.start();
    let told = told_until(&running, Kind::IncidentClosed, "leak");
    // Nothing depends on the one that some kernels refuse.
    let runs = |program: &ProgramState| program.absent.is_none() || is_spare(&program.name);
    let is_whole = running.loaded.programs().iter().all(runs);
    let recorder = running.recorder.get();
    let pace = recorder.and_then(|recorder| recorder.pace(now()));
    running.stop();
    let pace = pace.expect("the recorder runs");
    let periods = pace.periods;
    assert!(pace.near > 0 && periods.near_ms >= 100, "{pace:?}");
    // This node is a cgroup, so files tell of it as well.
    assert_eq!(
        [periods.node_ms, periods.others_ms],
        [1, 10].map(|times| times * periods.near_ms)
    );
    let first = |of| {
        told.iter()
            .position(|line| line.of == of && is_about(line, "leak"))
    };
    let (warned, killed) = (first(Kind::LimitImminent), first(Kind::OomKill));
    assert!(warned.is_some() && warned < killed, "{warned:?} {killed:?}");
    let closed = first(Kind::IncidentClosed).expect("it closes");
    let event: serde_json::Value = serde_json::from_slice(&told[closed].text).unwrap();
    let recording = &event["data"]["recording"]["value"];
    let told = |of: &str, what: &str| -> Vec<u64> {
        let points = recording[of].as_array().into_iter().flatten();
        points.filter_map(|point| point[what].as_u64()).collect()
    };
    // The node of this agent is a cgroup, so files tell of it as well.
    for (of, period) in [("node", "nodePeriodMs"), ("cgroup", "nearPeriodMs")] {
        let period = recording[period].as_u64().unwrap();
        // Rounds come more seldom only where a look at a file takes many times as long as on a processor.
        let most = slowed(Duration::from_millis(100)).as_millis();
        assert!(
            (100..=most).contains(&u128::from(period)),
            "{of}: {period} ms"
        );
        // Not thinned yet, and the period may just have become shorter.
        let mut lately = told(of, "beforeMs");
        lately.retain(|before| *before < 10_000);
        let gaps = lately
            .windows(2)
            .map(|pair| (pair[0] - pair[1]) * 1_000_000);
        check_pace(gaps.collect(), Duration::from_millis(2 * period));
    }
    if is_whole {
        // A cgroup's are its own since it was made, and so many that nobody else's pass for them.
        let forks = told("cgroup", "forks").into_iter().max();
        let known = FORKS..FORKS + FORKS / 8;
        assert!(
            forks.is_some_and(|forks| known.contains(&forks)),
            "{forks:?}"
        );
        let reclaims = told("cgroup", "reclaims").into_iter().max();
        let least = if files_are_in_memory() { 0 } else { RECLAIMS };
        assert!(reclaims >= Some(least), "{reclaims:?} reclaims");
    }
    if Path::new("/proc/pressure/memory").exists() {
        assert!(!told("node", "stallUs").is_empty(), "{recording}");
    }
}
