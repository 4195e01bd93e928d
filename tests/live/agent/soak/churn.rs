//! Cgroups that appear and vanish, a thousand a second and more, with a process that is in each of them for a moment.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, panicking, sleep};
use std::time::{Duration, Instant};

use brink_host::cgroup::Controller;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::hog::{HogSpec, Load};
use brink_tests::{Hog, in_guest, report_left_out, slowed};

use super::scene::Scene;
use crate::support::{MIB, Node};

/// The cgroup where whoever visits them lives.
pub(super) const VISITORS_HOME: &str = "visitor";
/// So many make them side by side.
const MAKERS: usize = 2;
/// How often a cgroup comes from each; who is late catches up.
const EVERY: Duration = Duration::from_micros(1600);
/// So many a second are asked for; a machine that makes fewer has shown less, and says so.
const WANTED: u128 = 1000;
/// Fewer show nothing; emulated processors have enough to do with some.
const LEAST: [u128; 2] = [500, 5];

/// Cgroups that come and go in a node until this is dropped.
pub(super) struct Churn {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
    /// Who visit them, and where they live.
    _visitors: Vec<Hog>,
    _home: OwnedCgroup,
}

impl Churn {
    pub(super) fn start(node: &Node) -> Self {
        let home = node.sandbox.group.child(VISITORS_HOME).unwrap();
        let spec = HogSpec::new(Load::Anon, MIB, HogSpec::LONGEST);
        let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
        let visitor = |_| Hog::spawn(program, Some(&home), &spec).unwrap();
        let visitors: Vec<Hog> = (0..MAKERS).map(visitor).collect();
        let path = |group: &OwnedCgroup| -> PathBuf {
            let dir = group.dir(&node.sandbox.layout, Controller::Memory);
            dir.unwrap().path().to_path_buf()
        };
        let (top, back) = (path(&node.sandbox.group), path(&home));
        let (stop, made): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let maker = |visitor: &Hog| {
            let (top, back, pid) = (top.clone(), back.clone(), visitor.pid());
            let (stopped, count) = (Arc::clone(&stop), Arc::clone(&made));
            std::thread::spawn(move || {
                let mut due = Instant::now();
                while !stopped.load(Ordering::Relaxed) {
                    let number = count.fetch_add(1, Ordering::Relaxed);
                    visit(&top.join(format!("churn-{number}")), &back, pid);
                    due += EVERY;
                    sleep(due.saturating_duration_since(Instant::now()));
                }
            })
        };
        Self {
            threads: visitors.iter().map(maker).collect(),
            stop,
            made,
            _visitors: visitors,
            _home: home,
        }
    }

    /// How many there have been.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Fewer cgroups than the test believes in; where it is failing already, one panic is enough.
            if let Err(panic) = thread.join()
                && !panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

/// A cgroup's whole life: made, entered, left, removed.
fn visit(group: &Path, back: &Path, pid: i32) {
    fs::create_dir(group).unwrap();
    for place in [group, back] {
        fs::write(place.join("cgroup.procs"), pid.to_string()).unwrap();
    }
    // On some kernels it is busy for another moment.
    let deadline = Instant::now() + slowed(Duration::from_secs(5));
    while let Err(error) = fs::remove_dir(group) {
        assert!(Instant::now() < deadline, "{}: {error}", group.display());
        sleep(Duration::from_micros(100));
    }
}

#[test]
fn a_thousand_cgroups_a_second_hide_neither_a_leak_nor_a_new_workload() {
    let mut scene = Scene::begin();
    let churn = Churn::start(&scene.node);
    let began = Instant::now();
    sleep(Duration::from_secs(2));
    scene.leak(Load::Anon);
    scene.audit(&["test/leaker"]);
    // It appears in the middle of the crowd, and its first leak is seen to be its own.
    let late = scene.welcome("late");
    let before = std::mem::replace(&mut scene.leaker, late);
    scene.wait_for_workloads();
    scene.leak_of("test/late", Load::Anon);
    scene.audit(&["test/late"]);
    scene.leaker = before;
    scene.leak(Load::Anon);
    scene.audit(&["test/leaker"]);
    let rate = 1000 * u128::from(churn.made()) / began.elapsed().as_millis();
    println!("{rate} cgroups a second");
    assert!(
        rate >= LEAST[usize::from(in_guest())],
        "no more than {rate} cgroups a second"
    );
    drop(churn);
    scene.dismiss("late");
    scene.close();
    if rate < WANTED {
        report_left_out(&format!("{rate} cgroups a second instead of {WANTED}"));
    }
}
