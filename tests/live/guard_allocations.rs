//! From the kernel's event to the kill the guard thread allocates and frees nothing, counted by the allocator.
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

/// The agent in this process, a leak in a node of 300 MiB, and the guard's count around its kill.
fn allocations_of_a_kill(extra: &str) -> u64 {
    let sandbox = Sandbox::new(&[Controller::Memory], 300 * MIB).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("manifests")).unwrap();
    let groups: Vec<_> = (0..8)
        .map(|n| sandbox.group.child(&format!("w{n}")).unwrap())
        .collect();
    for (n, group) in groups.iter().enumerate() {
        let manifest = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: w{n}, annotations: {{brink.dev/cgroup: '{}'}}}}, spec: {{containers: [{{name: c}}]}}}}",
            group.group()
        );
        fs::write(path("manifests").join(format!("{n}.yaml")), manifest).unwrap();
    }
    let text = format!(
        "apiVersion: brink.dev/v1alpha1\nkind: AgentConfiguration\nmode: enforce\nnode: {{cgroup: '{}'}}\nenforceNodeAllocatable: []\nheadroomHard: 0%\nhousekeepingInterval: 1h\nevictionHard: {{memory.available: 60Mi}}\nworkloads: {{manifests: '{}'}}\npaths: {{stateDir: '{}'}}\n{extra}\n",
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

    watch(thread_named("brink-guard"));
    let before = of_watched();
    let spec = HogSpec::new(Load::Anon, 280 * MIB, Duration::from_secs(20));
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let _leak = Hog::spawn(program, Some(&groups[3]), &spec).unwrap();
    let ended = wait_until(PATIENCE, || {
        running
            .shared
            .lock()
            .decision(1)
            .filter(|record| record.end.is_some())
            .map(brink::record::DecisionRecord::victim_name)
    });
    let after = of_watched();
    running.stop();
    assert_eq!(ended.as_deref(), Some("default/w3"));
    after - before
}

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
    assert_eq!(allocations_of_a_kill(""), 0);
}

#[test]
fn polling_a_kill_allocates_nothing() {
    assert_eq!(allocations_of_a_kill("kernelPrograms: false"), 0);
}

#[test]
fn another_thread_is_counted() {
    let id = rustix::thread::gettid().as_raw_nonzero().get();
    watch(id);
    let before = of_watched();
    drop(String::from("on the heap"));
    assert_eq!(of_watched() - before, 2);
}
