//! From the kernel's event to the kill the guard thread allocates nothing, frees nothing and meets no page for the first time.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use brink::config::{Sources, load};
use brink::guard::ports::Command;
use brink::guard::rung::LOADING;
use brink::runtime::prepare;
use brink_host::cgroup::Controller;
use brink_host::hog::{HogSpec, Load};
use brink_tests::counting_allocator::{CountingAllocator, of_watched, watch};
use brink_tests::{Hog, Sandbox, wait_until};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// What a kill cost the guard thread.
#[derive(Debug)]
struct Cost {
    allocations: u64,
    page_faults: u64,
}

/// Who leaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaker {
    /// A group that a manifest names.
    Group,
    /// A container of a pod as a kubelet makes it.
    PodOfAKubelet,
}

/// The agent in this process, a leak in a node of 300 MiB, and the guard's counts around its kill.
fn cost_of_a_kill(extra: &str, leaker: Leaker) -> Cost {
    let sandbox = Sandbox::new(&[Controller::Memory], 300 * MIB).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("manifests")).unwrap();
    let groups: Vec<_> = (0..8)
        .map(|n| sandbox.group.child(&format!("w{n}")).unwrap())
        .collect();
    let id = "ab".repeat(32);
    let pods = sandbox.group.child("kubepods").unwrap();
    let pod = pods.child("pod0123abcd").unwrap();
    let container = pod.child(&id).unwrap();
    for (n, group) in groups.iter().enumerate() {
        let manifest = if n == 3 && leaker == Leaker::PodOfAKubelet {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: w{n}, uid: 0123abcd}}, spec: {{containers: [{{name: c}}]}}, status: {{phase: Running, containerStatuses: [{{name: c, containerID: 'containerd://{id}'}}]}}}}"
            )
        } else {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: w{n}, annotations: {{brink.dev/cgroup: '{}'}}}}, spec: {{containers: [{{name: c}}]}}}}",
                group.group()
            )
        };
        fs::write(path("manifests").join(format!("{n}.yaml")), manifest).unwrap();
    }
    let text = format!(
        "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\nmode: enforce\nnode: {{cgroup: '{}'}}\nenforceNodeAllocatable: []\nheadroomHard: 0%\nhousekeepingInterval: 1h\nevictionHard: {{memory.available: 60Mi}}\nworkloads: {{manifests: '{}'}}\npaths: {{stateDir: '{}'}}\n{extra}\n",
        sandbox.group.group(),
        path("manifests").display(),
        path("state").display(),
    );
    fs::write(path("config.yaml"), text).unwrap();
    let sources = Sources {
        config: Some(path("config.yaml")),
        ..Sources::default()
    };
    let config = load(&sources).unwrap().config;
    let running = prepare::start(&config).unwrap();
    let settled = wait_until(PATIENCE, || {
        let standing = running.shared.lock().standing.clone()?;
        (!standing.reasons.iter().any(|why| why == LOADING)).then_some(())
    });
    settled.expect("the guard takes its place");
    // Everything that happens once has happened: a full look, and the slots of all workloads.
    running.ports.commands.send(Command::Inquire).ok().unwrap();
    std::thread::sleep(Duration::from_millis(500));

    let guard = thread_named("brink-guard");
    watch(guard);
    let before = (of_watched(), page_faults(guard));
    let spec = HogSpec::new(Load::Anon, 280 * MIB, Duration::from_secs(20));
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let group = match leaker {
        Leaker::Group => &groups[3],
        Leaker::PodOfAKubelet => &container,
    };
    let _leak = Hog::spawn(program, Some(group), &spec).unwrap();
    let ended = wait_until(PATIENCE, || {
        running
            .shared
            .lock()
            .decision(1)
            .filter(|record| record.end.is_some())
            .map(brink::record::DecisionRecord::victim_name)
    });
    let after = (of_watched(), page_faults(guard));
    running.stop();
    assert_eq!(ended.as_deref(), Some("default/w3"));
    Cost {
        allocations: after.0 - before.0,
        page_faults: after.1 - before.1,
    }
}

/// Page faults of a thread of this process so far, without and with reading from a disk.
fn page_faults(id: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/self/task/{id}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let field = |number: usize| fields.split(' ').nth(number - 3).unwrap().parse::<u64>();
    field(10).unwrap() + field(12).unwrap()
}

/// Pages of the ledger, which lies on a disk here and not under /run: written back they are met again.
const LEDGER_PAGES: u64 = 8;
/// Pages of this program's text that nothing before the decision has met: it is not optimised, so that even a step of an
/// iterator is a function on a page of its own, and the machine may have taken back what was not used for a while.
const TEXT_PAGES: u64 = 16;

/// The id of the thread of this process with this name.
fn thread_named(name: &str) -> i32 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let mut ids = tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap());
    let named = |id: &i32| {
        let comm = fs::read_to_string(format!("/proc/self/task/{id}/comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    };
    ids.find(named).expect("the thread runs")
}

#[test]
fn with_the_sampler_a_kill_allocates_nothing() {
    let cost = cost_of_a_kill("", Leaker::Group);
    assert_eq!(cost.allocations, 0, "{cost:?}");
    assert!(cost.page_faults <= LEDGER_PAGES + TEXT_PAGES, "{cost:?}");
}

#[test]
fn polling_a_kill_allocates_nothing() {
    let cost = cost_of_a_kill("kernelPrograms: false", Leaker::Group);
    assert_eq!(cost.allocations, 0, "{cost:?}");
    assert!(cost.page_faults <= LEDGER_PAGES + TEXT_PAGES, "{cost:?}");
}

#[test]
fn a_kill_of_a_kubelets_pod_allocates_nothing() {
    let cost = cost_of_a_kill("", Leaker::PodOfAKubelet);
    assert_eq!(cost.allocations, 0, "{cost:?}");
    assert!(cost.page_faults <= LEDGER_PAGES + TEXT_PAGES, "{cost:?}");
}

#[test]
fn another_thread_is_counted() {
    let id = rustix::thread::gettid().as_raw_nonzero().get();
    watch(id);
    let before = of_watched();
    drop(String::from("on the heap"));
    assert_eq!(of_watched() - before, 2);
}
