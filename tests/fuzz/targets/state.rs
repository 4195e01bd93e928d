//! The small files that the agent keeps for its next run, and those that others leave for it.

use std::fs;

use brink::runtime::foretold::Foretold;
use brink::runtime::graces::{Graces, seal};
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

/// What `graces.json` has between its version and its checksum (`graces`), or all of it; `foretold.json`, and `pause`, the stop button.
pub(crate) fn state_files(bytes: &[u8]) -> Taken {
    FOLDER.with(|folder| {
        folder.clear();
        let files = Bundle::split("graces", bytes);
        for name in ["graces.json", "foretold.json", "pause"] {
            if let Some(bytes) = files.get(name) {
                folder.write(name, bytes);
            }
        }
        // Nobody comes upon its checksum.
        if let Some(says) = files.get("graces") {
            folder.write("graces.json", &seal(says));
        }
        let recalled = check_graces(folder) | check_foretold(folder);
        let written = check_button(folder, files.get("pause").is_some());
        Taken::from_accepted(recalled || matches!(written, Written::Until(_)))
    })
}

/// What goes on is a threshold's grace that began in this boot and not in the future; of a file that is damaged nothing does.
fn check_graces(folder: &Scratch) -> bool {
    let policy = policy();
    let graces = Graces::new(folder.path(), BootId([7; 16]), Span::from_secs(60));
    let now = Moment::from_secs(1000);
    let recalled = graces.recall(&policy, now);
    for one in &recalled {
        let can_be = matches!(
            one,
            Recalled::Met { threshold, since }
                if *threshold < policy.thresholds().len() && (Moment::START..=now).contains(since)
        );
        assert!(can_be, "{one:?}");
    }
    if !recalled.is_empty() {
        let mut file = fs::read(folder.join("graces.json")).unwrap_or_default();
        let at = file.iter().copied().map(usize::from).sum::<usize>() % file.len().max(1);
        if let Some(byte) = file.get_mut(at) {
            *byte ^= 1;
        }
        folder.write("graces.json", &file);
        let damaged = graces.recall(&policy, now);
        assert_eq!(damaged, [], "byte {at}: {recalled:?}");
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
