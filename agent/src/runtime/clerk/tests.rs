//! What the clerk still tells when the guard has ended.

use std::path::Path;
use std::time::Duration;

use brink_core::base::Span;
use brink_core::node::observe::Layout as DiskLayout;
use brink_core::node::policy::Settings;
use brink_host::cgroup::Layout;
use brink_host::clock::BootId;
use brink_stream::hub::{Hub, Identity, Limits, Next, Reader};
use brink_stream::model::data::Loss;
use brink_stream::model::event::Event;
use brink_stream::model::kind::Kind as EventKind;

use super::*;
use crate::config::OomScores;
use crate::oom_scores::Auditor;

fn telling() -> (Telling, Reader) {
    let identity = Identity {
        node: "here".to_owned(),
        boot_id: "3f2a".to_owned(),
    };
    let hub = Hub::new(identity, 0, Limits::default());
    let reader = hub.reader(None);
    (Telling::new(hub, ClockPair::now()), reader)
}

/// A clerk of a node without workloads, which keeps its files in this folder.
fn clerk(folder: &Path, telling: Telling) -> Clerk {
    let root = Path::new("/");
    let layout = Layout::detect(root).unwrap();
    let auditor = Auditor::new(root, layout, (OomScores::Off, Telling::off()));
    let policy = Policy::new(Vec::new(), DiskLayout::Single, Settings::default());
    let state = State::new(policy, MemoryPolicy::Kubelet, Mode::Enforcing);
    let boot = BootId([7; 16]);
    Clerk {
        ports: Arc::new(Ports::new(4, 1).unwrap()),
        shared: Arc::new(Shared::new(state)),
        warmer: Arc::new(Warmer::start(false, auditor).unwrap()),
        keeper: Arc::default(),
        hooks: Hooks::new(None, None, Duration::from_secs(1)).unwrap(),
        journal: None,
        board: Arc::default(),
        graces: Graces::new(folder, boot, Span::from_secs(10)),
        foretold: Foretold::new(folder, boot),
        enforces: Arc::default(),
        steps_lost: 0,
        is_taken_over: false,
        telling,
        collector: Collector::default(),
        deliver: Deliver::default(),
        loaded: Arc::default(),
        ring_losses: RingLosses::default(),
    }
}

#[test]
fn what_was_lost_in_the_last_moments_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (telling, mut reader) = telling();
    let clerk = clerk(folder.path(), telling.clone());
    let shared = Arc::clone(&clerk.shared);
    clerk.ports.pages_lost.store(2, Ordering::Relaxed);
    assert!(clerk.ports.reports.send(Report::Stopped).is_ok());
    clerk.run();
    assert_eq!(shared.lock().lost, 2);
    let Some(Next::Line(line)) = reader.next() else {
        panic!("it is told");
    };
    let event: Event = serde_json::from_slice(&line.text).unwrap();
    assert_eq!(event.of, EventKind::Loss);
    let loss: Loss = serde_json::from_str(event.data.get()).unwrap();
    assert_eq!((loss.place.as_str(), loss.count), ("guard-queue", 2));
}
