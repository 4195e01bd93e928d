//! The agent enforcing on the real kernel: the right one dies, at once, with a record, and everything above that can stop it.
use std::fs;
use std::time::Duration;

use crate::support::{MIB, Node, PATIENCE, gone_after, lives, runs};
use brink::control::protocol::Question;
use brink::record::DecisionRecord;
use brink_host::hog::{HogSpec, Load};
use brink_tests::{Hog, slowed, wait_until};
use rustix::process::Signal;

const HARD: &str = "evictionHard: {memory.available: 60Mi}";

fn requests(memory: &str) -> String {
    format!("containers: [{{name: c, resources: {{requests: {{memory: {memory}}}}}}}]")
}

/// A node of 300 MiB with two workloads within their requests and one that requests nothing.
fn three(node: &mut Node) -> [usize; 3] {
    [
        node.workload("first", &requests("80Mi")),
        node.workload("second", &requests("80Mi")),
        node.workload("leaker", "containers: [{name: c}]"),
    ]
}

#[test]
fn the_leaker_dies_and_the_record_explains_it() {
    let mut node = Node::new(300);
    let [first, second, leaker] = three(&mut node);
    node.configure("enforce", HARD);
    let status = node.start(&[]);
    assert_eq!(status.mode, "enforcing", "{}", node.log());
    let peaceful = [node.holding(first, 60), node.holding(second, 40)];
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    assert_eq!(record.mode, "enforcing");
    assert!(record.threshold.hard && record.threshold.available < record.threshold.quantity);
    assert_eq!(record.threshold.quantity, 60 << 20);
    assert_eq!(record.ranking.len(), 3);
    // The order is over when the memory is back or the process is gone, whichever is first.
    for last in ["gone", "ended"] {
        let order = ["woke", "decided", "recorded", "firstSignal", last];
        let times: Vec<i64> = order
            .iter()
            .map(|stage| record.since_sample(stage).unwrap())
            .collect();
        assert!(times.is_sorted(), "{times:?}");
        // The sample that woke the guard, or a newer one of its own.
        assert!(times[1] >= 0, "{times:?}");
    }
    assert!(record.freed_bytes > 100 * MIB, "{}", record.freed_bytes);
    let kubelet = record.kubelet.expect("what the kubelet would have done");
    assert_eq!(kubelet.phases.len(), 10);
    assert!(peaceful.iter().all(lives));
    assert_eq!(node.decisions().len(), 1, "one kill was enough");
}

/// Brink's own signal serves alone: nothing of the kubelet's is set.
#[test]
fn headroom_alone_is_enforced() {
    let mut node = Node::new(300);
    let [first, second, leaker] = three(&mut node);
    node.configure("enforce", "evictionHard: {}");
    node.start(&["--headroom-hard", "60Mi"]);
    let peaceful = [node.holding(first, 60), node.holding(second, 40)];
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    let crossed = &record.threshold;
    assert_eq!(
        (crossed.signal.as_str(), crossed.quantity, crossed.hard),
        ("memory.headroom", 60 << 20, true)
    );
    assert!(crossed.available < crossed.quantity, "{crossed:?}");
    assert_eq!(record.memory.headroom_bytes, Some(crossed.available));
    assert_eq!(record.memory.usable_swap_bytes, 0, "the node may not swap");
    assert!(peaceful.iter().all(lives));
    assert_eq!(node.decisions().len(), 1, "one kill was enough");
}

/// An agent that is started again and again has no more kills than one that is not.
#[test]
fn kills_of_the_run_before_count_for_the_limits() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    // The window is over at the restart, and the bucket is still empty.
    let limits = format!("{HARD}\nlimits: {{burst: 1, refillInterval: 10m, window: 1s}}");
    node.configure("enforce", &limits);
    node.start(&[]);
    let first = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&first);
    assert_eq!(node.finished(1).mode, "enforcing");
    node.stop(Signal::KILL);
    std::thread::sleep(Duration::from_secs(1));
    node.start(&[]);
    let second = node.holding(leaker, 260);
    let told = wait_until(PATIENCE, || {
        let records = node.decisions();
        records.into_iter().find(|record| record.order == 2)
    });
    let told = told.unwrap_or_else(|| panic!("{}", node.log()));
    assert!(told.mode.contains("throttled"), "{}", told.mode);
    assert!(lives(&second), "{}", node.log());
}

#[test]
fn whoever_is_started_again_after_a_kill_and_leaks_again_goes_again() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    let bystander = node.workload("bystander", "containers: [{name: c}]");
    node.configure("enforce", HARD);
    node.start(&[]);
    let bystander = node.holding(bystander, 10);
    for round in 1..=3 {
        // Huge pages are back, and the order over, before the process is gone.
        let leak = node.load(leaker, Load::AnonHuge, 280 * MIB);
        gone_after(&leak);
        let record = node.finished(round);
        assert_eq!(
            (record.order, record.victim_name().as_str()),
            (round, "test/leaker")
        );
        assert!(record.since_sample("gone").is_some(), "{record:?}");
    }
    assert!(lives(&bystander));
}

/// On cgroup v2 a group with groups of its own below it holds no process: both sit in leaves.
#[test]
fn every_process_of_the_victim_dies_wherever_it_is_below() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    let deep = node.groups[leaker].child("deep").unwrap();
    let (nested, beside) = (deep.child("deeper").unwrap(), deep.child("beside").unwrap());
    node.configure("enforce", HARD);
    node.start(&[]);
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let start = |group, bytes| {
        let spec = HogSpec::new(Load::Anon, bytes, Duration::from_mins(1));
        Hog::spawn(program, Some(group), &spec).unwrap()
    };
    let hidden = start(&nested, 4 * MIB);
    let leak = start(&beside, 290 * MIB);
    gone_after(&leak);
    gone_after(&hidden);
    let record = node.finished(1);
    assert!(record.kill.unwrap().signalled >= 2);
}

#[test]
fn a_lower_priority_goes_first_and_a_request_protects() {
    let mut node = Node::new(300);
    let keeps = node.workload("keeps", &requests("200Mi"));
    let low = node.workload("low", "priority: -5, containers: [{name: c}]");
    let high = node.workload("high", "priority: 5, containers: [{name: c}]");
    node.configure("enforce", HARD);
    node.start(&[]);
    let kept = node.holding(keeps, 150);
    let low = node.holding(low, 10);
    let high = node.load(high, Load::Anon, 100 * MIB);
    gone_after(&low);
    assert_eq!(node.finished(1).victim_name(), "test/low");
    gone_after(&high);
    assert!(lives(&kept));
}

#[test]
fn a_soft_threshold_asks_and_then_kills() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    let soft = "evictionHard: {memory.available: 20Mi}\nevictionSoft: {memory.available: 150Mi}\nevictionSoftGracePeriod: {memory.available: 1s}\nevictionMaxPodGracePeriod: 1";
    node.configure("enforce", soft);
    node.start(&[]);
    // A shell that will not listen, and whose memory is small: another one holds it.
    let deaf = std::process::Command::new("sh")
        .args([
            "-c",
            "trap '' TERM; echo 0 > \"$1\"; while :; do sleep 0.05; done",
            "sh",
        ])
        .arg(&node.groups[leaker].entrances()[0])
        .spawn()
        .unwrap();
    let mut deaf = deaf;
    let leak = node.load(leaker, Load::Anon, 200 * MIB);
    gone_after(&leak);
    let record = node.finished(1);
    assert!(!record.threshold.hard);
    assert_eq!(record.victim_name(), "test/leaker");
    let asked = record.since_sample("asked").expect("SIGTERM first");
    let killed = record
        .since_sample("firstSignal")
        .expect("SIGKILL for the deaf");
    let grace = Duration::from_nanos((killed - asked).unsigned_abs());
    assert!(
        grace > Duration::from_millis(900) && grace < slowed(Duration::from_millis(1500)),
        "{grace:?}"
    );
    assert!(!deaf.wait().unwrap().success());
}

#[test]
fn a_hard_crossing_does_not_wait_for_a_soft_order() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    let both = "evictionHard: {memory.available: 60Mi}\nevictionSoft: {memory.available: 200Mi}\nevictionSoftGracePeriod: {memory.available: 500ms}\nevictionMaxPodGracePeriod: 300";
    node.configure("enforce", both);
    node.start(&[]);
    let script = "trap '' TERM; echo 0 > \"$1\"; exec \"$2\" --load anon --bytes 290000000 --rate 120000000 --deadline-ms 20000 --hold";
    let mut deaf = std::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&node.groups[leaker].entrances()[0])
        .arg(env!("CARGO_BIN_EXE_brink-hog"))
        .spawn()
        .unwrap();
    let record = node.finished(1);
    assert!(!deaf.wait().unwrap().success());
    let asked = record
        .since_sample("asked")
        .expect("the soft order was open");
    let killed = record.since_sample("firstSignal").expect("and turned hard");
    let after = Duration::from_nanos((killed - asked).unsigned_abs());
    assert!(
        after < slowed(Duration::from_secs(5)),
        "not after the grace of 300 s: {after:?}"
    );
    assert_eq!(node.decisions().len(), 1, "the same order");
}

#[test]
fn observing_kills_nobody_and_tells_what_it_would_have_done() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    node.configure("observe", HARD);
    node.start(&[]);
    let leak = node.holding(leaker, 260);
    let record = wait_until(PATIENCE, || node.decisions().pop()).unwrap();
    assert_eq!(record.victim_name(), "test/leaker");
    assert_eq!((record.mode.as_str(), &record.kill), ("observing", &None));
    std::thread::sleep(Duration::from_millis(300));
    assert!(lives(&leak));
    assert_eq!(node.status().unwrap().mode, "observing");
}

#[test]
fn the_stop_button_stops_within_a_tenth_of_a_second() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    node.configure("enforce", HARD);
    node.start(&[]);
    fs::write(node.path("state/pause"), "").unwrap();
    std::thread::sleep(slowed(Duration::from_millis(100)));
    let leak = node.holding(leaker, 260);
    std::thread::sleep(Duration::from_millis(300));
    assert!(lives(&leak), "the button was pressed before the crossing");
    assert_eq!(node.status().unwrap().mode, "paused");
    assert_eq!(node.decisions().last().unwrap().mode, "paused");
    assert_eq!(node.resumed(), "enforcing");
    gone_after(&leak);
    assert!(!node.path("state/pause").exists());
}

#[test]
fn a_pause_can_end_by_itself() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    node.configure("enforce", HARD);
    node.start(&[]);
    let seconds = Some(slowed(Duration::from_secs(3)).as_secs());
    node.ask(&Question::Pause { seconds }).unwrap();
    let leak = node.load(leaker, Load::Anon, 260 * MIB);
    let told = wait_until(PATIENCE, || node.decisions().pop()).unwrap();
    assert_eq!((told.mode.as_str(), lives(&leak)), ("paused", true));
    gone_after(&leak);
    let last = node.decisions().pop().unwrap();
    assert_eq!(last.mode, "enforcing");
}

#[test]
fn whoever_the_configuration_ignores_is_ranked_and_refuses() {
    let mut node = Node::new(300);
    let [first, _, leaker] = three(&mut node);
    node.configure("enforce", &format!("{HARD}\nignore: ['/leaker$']"));
    node.start(&[]);
    let innocent = node.holding(first, 60);
    let leak = node.load(leaker, Load::Anon, 180 * MIB);
    gone_after(&innocent);
    let record = node.finished(1);
    assert_eq!(
        record.victim_name(),
        "test/first",
        "it is second, and the first refuses"
    );
    assert_eq!(record.ranking[0].refusal.as_deref(), Some("protected"));
    assert!(lives(&leak));
}

#[test]
fn a_pattern_meets_the_commands_in_the_cgroups_of_a_pods_containers() {
    let mut node = Node::new(300);
    let [first, _, leaker] = three(&mut node);
    node.configure("enforce", &format!("{HARD}\nignore: ['^postgres$']"));
    let container = node.groups[leaker].child("container").unwrap();
    let program = node.path("postgres");
    fs::copy(env!("CARGO_BIN_EXE_brink-hog"), &program).unwrap();
    let spec = HogSpec::new(Load::Anon, 180 * MIB, Duration::from_mins(1));
    let mut database = Hog::spawn(&program, Some(&container), &spec).unwrap();
    database.wait_touched(180 * MIB, PATIENCE).unwrap();
    node.start(&[]);
    let innocent = node.load(first, Load::Anon, 80 * MIB);
    gone_after(&innocent);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/first");
    assert_eq!(record.ranking[0].refusal.as_deref(), Some("protected"));
    assert!(lives(&database));
}

#[test]
fn an_essential_process_that_came_into_the_victim_is_spared() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    node.configure("enforce", HARD);
    // Root's own, outside every container, by a name that makes it essential.
    let program = node.path("sshd");
    fs::copy(env!("CARGO_BIN_EXE_brink-hog"), &program).unwrap();
    let spec = HogSpec::new(Load::Anon, MIB, Duration::from_mins(1));
    let mut essential = Hog::spawn(&program, None, &spec).unwrap();
    essential.wait_touched(MIB, PATIENCE).unwrap();
    node.start(&[]);
    let leak = node.holding(leaker, 225);
    let spec = HogSpec {
        wait: true,
        ..HogSpec::new(Load::Anon, 45 * MIB, Duration::from_mins(1))
    };
    let mut last = node.hog(leaker, &spec);
    last.wait_in(&node.groups[leaker], PATIENCE).unwrap();
    // The roster after this is a second away: until then the cgroup is a workload like any other, and little is missing.
    let pid = u32::try_from(essential.pid()).unwrap();
    node.groups[leaker].add_process(pid).unwrap();
    last.start();
    gone_after(&leak);
    gone_after(&last);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    assert_eq!(record.kill.unwrap().spared, 1);
    assert!(lives(&essential), "it is never signalled");
}

/// All of them have exited, part of their memory is back, and somebody has hold of the rest for a moment: what a reader of
/// their files in `/proc` does when it gets no processor. There is enough once it is back, so nobody else goes.
#[test]
fn nobody_else_goes_while_memory_of_the_dead_is_still_held() {
    let (_node, record) = held_by_a_reader(false);
    assert!(record.freed_bytes > 100 * MIB, "{}", record.freed_bytes);
    let [killed, ended] = ["lastSignal", "ended"].map(|stage| record.since_sample(stage).unwrap());
    let waited = Duration::from_nanos((ended - killed).unsigned_abs());
    assert!(waited >= Duration::from_millis(50), "{waited:?}");
}

/// The same where their cgroup is removed at once, as systemd does it: nothing is charged to it any more then.
#[test]
fn nobody_else_goes_while_memory_of_the_dead_is_held_and_their_cgroup_is_removed() {
    let (mut node, record) = held_by_a_reader(true);
    assert!(record.freed_bytes < 100 * MIB, "{}", record.freed_bytes);
    node.stop(Signal::TERM);
    let replay = node.replay();
    assert!(replay.contains("(credited)"), "{replay}");
}

/// How a leak of 280 MiB ends beside 100 MiB that are held for a moment more.
fn held_by_a_reader(is_removed: bool) -> (Node, DecisionRecord) {
    let mut node = Node::new(300);
    let [first, second, leaker] = three(&mut node);
    let more = "evictionMinimumReclaim: {memory.available: 80Mi}";
    node.configure("enforce", &format!("{HARD}\n{more}"));
    node.start(&[]);
    let peaceful = [node.holding(first, 60), node.holding(second, 40)];
    let mut held = node.load(leaker, Load::AnonHeld, 100 * MIB);
    held.wait_touched(100 * MIB, PATIENCE).unwrap();
    let members = node.groups[leaker].processes().unwrap();
    let holder = members.into_iter().find(|pid| *pid != held.pid()).unwrap();
    node.groups[first]
        .add_process(holder.unsigned_abs())
        .unwrap();
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    let group = is_removed.then(|| node.groups.pop().unwrap());
    let removal = std::thread::spawn(move || {
        let Some(group) = group else { return };
        while !group.processes().unwrap().is_empty() {}
        group.remove().unwrap();
    });
    gone_after(&leak);
    gone_after(&held);
    removal.join().unwrap();
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    wait_until(PATIENCE, || (!runs(holder)).then_some(())).expect("it was to end by itself");
    assert!(peaceful.iter().all(lives), "{}", node.log());
    assert_eq!(node.decisions().len(), 1, "{}", node.log());
    (node, record)
}

#[test]
fn too_many_kills_end_in_observing() {
    let mut node = Node::new(300);
    let [first, second, leaker] = three(&mut node);
    let limits = "evictionHard: {memory.available: 250Mi}\nlimits: {burst: 1, refillInterval: 1h}";
    node.configure("enforce", limits);
    node.start(&[]);
    let hogs = [
        node.holding(first, 30),
        node.holding(second, 30),
        node.load(leaker, Load::Anon, 30 * MIB),
    ];
    let tripped = wait_until(PATIENCE, || {
        node.status().filter(|status| status.mode == "throttled")
    });
    assert!(tripped.is_some(), "{}", node.log());
    assert_eq!(
        hogs.iter().filter(|hog| lives(hog)).count(),
        2,
        "one kill, and no more"
    );
    assert_eq!(node.resumed(), "enforcing");
}

#[test]
fn a_second_agent_only_observes_until_the_first_is_gone() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    node.configure("enforce", HARD);
    let first = node.launch(&[]);
    wait_until(PATIENCE, || node.status()).unwrap();
    let refused = std::process::Command::new(brink_tests::agent_binary().unwrap())
        .args([
            "run",
            "--config",
            node.path("config.yaml").to_str().unwrap(),
        ])
        .output()
        .unwrap();
    assert!(!refused.status.success(), "its socket is taken");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another agent"));
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&leak);
    assert_eq!(node.status().unwrap().pid, first);
    node.stop(Signal::KILL);
    node.start(&[]);
    assert_eq!(node.status().unwrap().mode, "enforcing");
    assert_eq!(node.decisions().len(), 1, "the ledger remembers");
}

#[test]
fn the_journal_replays_to_the_same_answers() {
    let mut node = Node::new(300);
    let [.., leaker] = three(&mut node);
    node.configure("enforce", HARD);
    node.start(&[]);
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&leak);
    node.finished(1);
    node.stop(Signal::TERM);
    let why = r#""message":"brink is stopping","signal":"SIGTERM""#;
    assert!(node.log().contains(why), "{}", node.log());
    let text = node.replay();
    assert!(
        text.contains("the same answers") && text.contains("kill test/leaker"),
        "{text}"
    );
}

#[test]
fn a_bad_file_at_a_reload_changes_nothing_and_a_good_one_does() {
    let mut node = Node::new(300);
    three(&mut node);
    node.configure("enforce", HARD);
    node.start(&[]);
    node.configure("enforce", "evictionHard: {memory.available: lots}");
    node.signal(Signal::HUP);
    wait_until(PATIENCE, || {
        node.log().contains("the old one stays").then_some(())
    })
    .unwrap();
    assert!(
        node.log().contains("evictionHard.memory.available"),
        "{}",
        node.log()
    );
    assert_eq!(node.status().unwrap().thresholds[0].value, "60Mi");
    // Always met on this node: neither taken over nor started with.
    let config = node.path("config.yaml");
    node.configure("enforce", HARD);
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("headroomHard: 0%", "headroomHard: 50Gi");
    fs::write(&config, text).unwrap();
    node.signal(Signal::HUP);
    let refused = || {
        let status = node.status()?;
        let why = status.refused_configuration?.why;
        why.contains("headroomHard").then_some(why)
    };
    let why = wait_until(PATIENCE, refused).unwrap_or_else(|| panic!("{}", node.log()));
    assert!(why.contains("a quantity below 300Mi"), "{why}");
    let start = std::process::Command::new(brink_tests::agent_binary().unwrap())
        .args(["run", "--config", config.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(start.status.code(), Some(2), "{start:?}");
    assert_eq!(node.decisions().len(), 0, "{}", node.log());
    node.configure("observe", "evictionHard: {memory.available: 70Mi}");
    node.signal(Signal::HUP);
    let changed = wait_until(PATIENCE, || {
        node.status()
            .filter(|status| status.thresholds[0].value == "70Mi" && status.mode == "observing")
    });
    assert!(changed.is_some(), "{}", node.log());
}
