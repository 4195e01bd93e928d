//! The kernel's other signals: its own OOM killer, fork bombs, and the machine itself as the node.
use std::fs;
use std::time::Duration;

use crate::kinds::told;
use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink::control::protocol::{ProgramView, Status};
use brink_host::cgroup::Controller;
use brink_host::hog::{HogSpec, Load};
use brink_stream::model::incident::{Incident, OtherKill};
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, is_slow, lacks, skip, wait_until};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_kill_by_the_kernel_is_seen_and_its_memory_is_waited_for() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.groups[leaker]
        .limit_memory(&node.sandbox.layout, 32 * MIB)
        .unwrap();
    node.configure("enforce", "evictionHard: {memory.available: 60Mi}");
    let status = node.start(&[]);
    if !status
        .programs
        .iter()
        .any(|program| program.family == "oom" && program.running)
    {
        lacks!(
            "the OOM programs do not run here: {:?}",
            status.rung_reasons
        );
    }
    let leak = node.load(leaker, Load::Anon, 100 * MIB);
    gone_after(&leak);
    let seen = wait_until(PATIENCE, || {
        node.status().filter(|status| status.oom_kills == 1)
    });
    assert!(seen.is_some(), "{}", node.log());
    assert!(
        node.decisions().is_empty(),
        "the node itself was never short"
    );
    let journal = fs::read_to_string(node.path("journal")).unwrap();
    assert!(
        journal.contains("\"dying\""),
        "the engine knows of the memory on its way back"
    );
}

/// Whether a family has programs, and every one of them runs.
fn family_runs(status: &Status, family: &str) -> bool {
    let programs = status.programs.iter();
    let of_it: Vec<&ProgramView> = programs
        .filter(|program| program.family == family)
        .collect();
    !of_it.is_empty() && of_it.iter().all(|program| program.running)
}

/// For how long memory of the dead counts as being on its way back.
const CREDITED: Duration = Duration::from_millis(200);

/// Memory of those whom the kernel killed is on its way back: a crossing meanwhile is first held for it. Who else is in the
/// group keeps more than the killed one had, so that its memory is owed for as long as anybody believes in that.
#[test]
fn a_crossing_beside_a_kill_by_the_kernel_is_held_as_credited() {
    if is_slow() {
        skip!("processors are emulated: no load crosses within {CREDITED:?} of another's death");
    }
    let mut node = Node::new(300);
    let bounded = node.workload("bounded", "containers: [{name: c}]");
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.groups[bounded]
        .limit_memory(&node.sandbox.layout, 120 * MIB)
        .unwrap();
    node.configure("enforce", "evictionHard: {memory.available: 60Mi}");
    let status = node.start(&[]);
    if !family_runs(&status, "oom") {
        lacks!(
            "the OOM programs do not run here: {:?}",
            status.rung_reasons
        );
    }
    let calm = [(); 3].map(|()| node.holding(bounded, 25));
    // A busy machine may take longer to cross than the credit lasts.
    let credited = (1..=5).any(|order| {
        let base = node.holding(leaker, 100);
        let killed = node.load(bounded, Load::Anon, 60 * MIB);
        gone_after(&killed);
        let leak = node.load(leaker, Load::Anon, 150 * MIB);
        gone_after(&leak);
        gone_after(&base);
        let record = node.finished(order);
        assert_eq!(record.victim_name(), "test/leaker");
        held_as_credited(&node)
    });
    assert!(credited, "{}\n{:#?}", node.log(), node.decisions());
    assert!(calm.iter().all(lives), "{}", node.log());
}

/// Whether a threshold was held so between the kernel's last kill and our own next one.
fn held_as_credited(node: &Node) -> bool {
    let journal = fs::read_to_string(node.path("journal")).unwrap();
    let (_, since) = journal.rsplit_once("\"dying\"").unwrap_or_default();
    let (before, _) = since.split_once("\"kill\"").unwrap_or((since, ""));
    before.contains("\"reason\":\"credited\"")
}

/// The kernel's number of tmpfs.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A load that has read 600 MiB of page cache and keeps it, or why there can be none.
fn streaming(node: &Node, workload: usize) -> Result<Hog, String> {
    let folder = node.path("files");
    fs::create_dir(&folder).unwrap();
    if rustix::fs::statfs(&folder).unwrap().f_type == TMPFS {
        let folder = folder.display();
        return Err(format!(
            "{folder} is on tmpfs, which reads holes without page cache"
        ));
    }
    let mut spec = HogSpec::new(Load::CacheRead, 600 * MIB, Duration::from_secs(30));
    spec.folder = Some(folder);
    let mut stream = node.hog(workload, &spec);
    stream.wait_touched(600 * MIB, PATIENCE).unwrap();
    Ok(stream)
}

/// A limit of its own makes the victim reclaim its page cache again and again: its record says what that cost.
#[test]
fn what_reclaim_cost_the_victim_is_in_its_record() {
    let mut node = Node::new(300);
    let victim = node.workload("victim", "containers: [{name: c}]");
    node.groups[victim]
        .limit_memory(&node.sandbox.layout, 220 * MIB)
        .unwrap();
    node.configure("enforce", "evictionHard: {memory.available: 120Mi}");
    let status = node.start(&[]);
    if !family_runs(&status, "reclaim") {
        lacks!(
            "the reclaim programs do not run here: {:?}",
            status.rung_reasons
        );
    }
    let _stream = match streaming(&node, victim) {
        Ok(stream) => stream,
        Err(why) => lacks!("{why}"),
    };
    let leak = node.load(victim, Load::Anon, 200 * MIB);
    gone_after(&leak);
    let record = node.finished(1);
    let cost = record.reclaim.expect("the programs run");
    assert!(cost.cgroup > 10 && cost.cgroup_ns > 10_000, "{cost:?}");
    assert!(cost.pages > 50_000, "{cost:?}: 400 MiB had to go");
}

/// Process ids that are available to the machine now.
fn process_ids_left() -> u64 {
    let limit = |name: &str| -> u64 {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
        text.trim().parse().unwrap()
    };
    let loadavg = fs::read_to_string("/proc/loadavg").unwrap();
    let tasks = loadavg.split_whitespace().nth(3).unwrap();
    let threads: u64 = tasks.split('/').nth(1).unwrap().parse().unwrap();
    limit("pid_max").min(limit("threads-max")) - threads
}

/// The same once nobody is left to be reaped of what ran before: an init may take its time.
fn process_ids_left_at_rest() -> u64 {
    let is_zombie = |entry: fs::DirEntry| {
        fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| stat.contains(") Z "))
    };
    let none_left = || !fs::read_dir("/proc").unwrap().flatten().any(is_zombie);
    wait_until(PATIENCE, || none_left().then(process_ids_left)).expect("somebody is never reaped")
}

/// Each bomb is stopped, whoever is still to be reaped of the one before.
#[test]
fn fork_bombs_are_stopped_by_the_count_of_threads() {
    let mut node = Node::new(1500);
    let innocent = node.workload("innocent", "containers: [{name: c}]");
    let bomb = node.workload("bomb", "containers: [{name: c}]");
    let group = &node.groups[bomb];
    // The next bomb is one beside all the dead of the others.
    group.limit_tasks(&node.sandbox.layout, 3600).unwrap();
    let left = process_ids_left_at_rest() - 600;
    let hard = format!("evictionHard: {{pid.available: \"{left}\"}}");
    node.configure_machine("enforce", &hard);
    node.start(&[]);
    let calm = node.holding(innocent, 8);
    for round in 1..=3 {
        let spec = HogSpec::new(Load::ForkStorm, 1200, Duration::from_mins(1));
        let storm = node.hog(bomb, &spec);
        let gone = wait_until(PATIENCE, || (!lives(&storm)).then_some(()));
        assert!(
            gone.is_some(),
            "bomb {round} with {left} as the threshold and {} left: {:#?}\n{}",
            process_ids_left(),
            node.decisions(),
            node.log()
        );
        let record = node.finished(round);
        let orders = node.decisions();
        assert_eq!(record.victim_name(), "test/bomb", "{orders:#?}");
        assert_eq!(record.threshold.signal, "pid.available");
        assert!(record.kill.unwrap().signalled > 100, "{orders:#?}");
        let group = node.groups[bomb].dir(&node.sandbox.layout, Controller::Memory);
        let group = group.unwrap();
        let empty = wait_until(PATIENCE, || {
            group.processes().unwrap().is_empty().then_some(())
        });
        assert!(empty.is_some(), "nothing escapes");
        assert!(lives(&calm), "{orders:#?}");
    }
}

/// Thresholds are chosen from what the machine has at that moment; the leak takes what lies between the two signals
/// and so much more that others may give some back meanwhile.
#[test]
fn the_machine_as_the_node_page_cache_kills_nobody_and_a_leak_does() {
    const MOST: i64 = 6144 * MIB.cast_signed();
    let mut node = Node::new(MOST.cast_unsigned() / MIB);
    let reader = node.workload("reader", "containers: [{name: c}]");
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure_machine("observe", "evictionHard: {memory.available: 1Mi}");
    let look = node.start(&[]);
    node.stop(Signal::TERM);
    let seen = |name: &str| {
        look.signals
            .iter()
            .find(|seen| seen.signal == name)
            .map(|seen| seen.available)
    };
    let available = seen("memory.available").unwrap();
    let headroom = look.headroom_bytes.unwrap();
    let threshold = available.min(headroom) - 400 * MIB.cast_signed();
    let leak = available.max(headroom) - threshold + 1500 * MIB.cast_signed();
    if leak + 800 * MIB.cast_signed() > MOST || threshold < 1024 * MIB.cast_signed() {
        skip!(
            "{available} available and {headroom} of headroom: too little, or too far apart for a bounded leak"
        );
    }
    node.configure_machine(
        "enforce",
        &format!("evictionHard: {{memory.available: \"{threshold}\"}}"),
    );
    node.start(&[]);
    let stream = match streaming(&node, reader) {
        Ok(stream) => stream,
        Err(why) => lacks!("{why}"),
    };
    let leak = node.load(leaker, Load::Anon, leak.cast_unsigned());
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    assert_eq!(record.threshold.signal, "memory.available");
    assert!(record.memory.headroom_bytes.unwrap() > 0);
    assert!(lives(&stream));
    assert_eq!(node.decisions().len(), 1);
}

/// Who kills in a workload that we have asked to go stands in the record of our order, and opens none beside it.
#[test]
fn a_kill_by_somebody_else_while_an_order_is_open_is_in_its_record() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let soft = "evictionHard: {memory.available: 20Mi}\nevictionSoft: {memory.available: 150Mi}\nevictionSoftGracePeriod: {memory.available: 500ms}\nevictionMaxPodGracePeriod: 3\nevents: {enabled: true}";
    node.configure("enforce", soft);
    let status = node.start(&[]);
    let mut programs = status.programs.iter();
    if !programs.any(|program| program.name == "sigkill_sent" && program.running) {
        lacks!("sigkill_sent does not run: {:?}", status.rung_reasons);
    }
    let other = node.deaf(leaker, Load::Anon, 8);
    // On a slow machine the grace may be over before it has taken all.
    let deaf = node.going_deaf(leaker, Load::Anon, 200);
    let incident = |of: Kind| {
        let told = told(&node)?.into_iter().find(|event| event.of == of)?;
        serde_json::from_str::<Incident>(told.data.get()).ok()
    };
    let ordered = wait_until(PATIENCE, || incident(Kind::EvictionOrdered));
    assert!(ordered.is_some(), "{}", node.log());
    // The order is told before what is seen of it.
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_raw(other.pid()).unwrap(), Signal::KILL).unwrap();
    gone_after(&deaf);
    let closed = wait_until(PATIENCE, || incident(Kind::EvictionCompleted));
    let closed = closed.unwrap_or_else(|| panic!("{}", node.log()));
    let pids = |kill: &OtherKill| (kill.pid, kill.sender_pid);
    let others: Vec<(u32, u32)> = closed.other_kills.iter().map(pids).collect();
    let expected = (other.pid().unsigned_abs(), std::process::id());
    assert_eq!(others, [expected], "{closed:#?}");
    let words = format!("process {} (", std::process::id());
    let said = |line: &String| line.contains(&words) && line.contains("SIGKILL to 1 process");
    assert!(closed.evidence.iter().any(said), "{:?}", closed.evidence);
    assert!(incident(Kind::KillObserved).is_none());
}
