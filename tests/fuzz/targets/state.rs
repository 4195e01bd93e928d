//! The small files that the agent keeps for its next run, and those that others leave for it.

use brink::runtime::foretold::Foretold;
use brink::runtime::graces::Graces;
use brink::runtime::stop_button::{Pressed, StopButton, Written};
use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::input::Recalled;
use brink_core::node::observe::Layout;
use brink_core::node::policy::{Policy, Settings};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value};
use brink_host::clock::BootId;

use crate::Taken;
use crate::bundle::Bundle;
use crate::scratch::Scratch;

thread_local! {
    static FOLDER: Scratch = Scratch::new();
}

/// `graces.json`, `foretold.json`, and `pause`, the stop button.
pub(crate) fn state_files(bytes: &[u8]) -> Taken {
    FOLDER.with(|folder| {
        folder.clear();
        let files = Bundle::split("graces.json", bytes);
        for name in ["graces.json", "foretold.json", "pause"] {
            if let Some(bytes) = files.get(name) {
                folder.write(name, bytes);
            }
        }
        let recalled = check_graces(folder) | check_foretold(folder);
        let written = check_button(folder, files.get("pause").is_some());
        Taken::from_accepted(recalled || matches!(written, Written::Until(_)))
    })
}

fn check_graces(folder: &Scratch) -> bool {
    let policy = policy();
    let graces = Graces::new(folder.path(), BootId([7; 16]), Span::from_secs(60));
    let recalled = graces.recall(&policy, Moment::from_secs(1000));
    for one in &recalled {
        let is_known = matches!(one, Recalled::Met { threshold, .. } if *threshold < policy.thresholds().len());
        assert!(is_known, "{one:?}");
    }
    !recalled.is_empty()
}

/// What is known of a past decision can be told.
fn check_foretold(folder: &Scratch) -> bool {
    let found = Foretold::new(folder.path(), BootId([7; 16])).recall();
    assert!(found.views.values().all(|view| !view.sentence().is_empty()));
    // Whoever may not tell arguments has none.
    for root in found.roots.values().filter_map(|root| root.root.value()) {
        assert_eq!(root.argv.value(), None);
    }
    !(found.views.is_empty() && found.roots.is_empty())
}

/// One soft threshold and one hard one.
fn policy() -> Policy {
    let threshold = |grace| Threshold {
        signal: Signal::MemoryAvailable,
        grace,
        value: Value::Quantity(Quantity::from_bytes(100 << 20)),
        min_reclaim: None,
    };
    let thresholds = vec![threshold(Span::from_secs(90)), threshold(Span::ZERO)];
    Policy::new(thresholds, Layout::Single, Settings::default())
}

/// A file that is there presses the button, whatever it says, unless it says that the time is over.
fn check_button(folder: &Scratch, is_there: bool) -> Written {
    let button = StopButton::new(folder.path());
    let written = button.look();
    assert_eq!(written != Written::Nothing, is_there);
    let pressed = button.read();
    assert!(written != Written::Forever || pressed == Pressed::Forever);
    let _told = pressed.control();
    written
}
