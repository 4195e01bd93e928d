//! What the log says of the guard's answers, and of decisions.

use brink_core::base::Reason;
use brink_core::node::action::Action;
use brink_core::node::policy::Policy;
use tracing::{info, warn};

use crate::guard::step::Step;
use crate::record::DecisionRecord;
use crate::record::text::{amount, end_words, held_words, unsigned};
use crate::record::words::mode_word;

/// Tells the log of an answer; orders are told with their record.
pub(super) fn say(policy: &Policy, step: &Step, action: &Action) {
    match *action {
        Action::Crossed { threshold } => {
            say_threshold(policy, step, threshold, "threshold crossed");
        }
        Action::Cleared { threshold } => {
            say_threshold(policy, step, threshold, "threshold cleared");
        }
        Action::Held { threshold, reason } => {
            if !matches!(reason, Reason::Waiting | Reason::Stale) {
                let threshold = policy.thresholds().get(threshold);
                info!(
                    signal = threshold.map_or("", |threshold| threshold.signal.name()),
                    reason = reason.word(),
                    why = held_words(reason.word()),
                    "a threshold is due and not acted on"
                );
            }
        }
        Action::Conditions(conditions) => info!(conditions = %conditions, "node conditions"),
        Action::Mode(mode) => warn!(
            mode = mode_word(mode),
            "whether orders are carried out changed"
        ),
        Action::Kill { .. }
        | Action::Ask { .. }
        | Action::WouldEvict { .. }
        | Action::Ended { .. }
        | Action::Reclaim { .. } => {}
    }
}

fn say_threshold(policy: &Policy, step: &Step, threshold: usize, what: &str) {
    let Some(threshold) = policy.thresholds().get(threshold) else {
        return;
    };
    let name = threshold.signal.name();
    let seen = step.observations[threshold.signal];
    let available = seen
        .map(|seen| amount(name, seen.available))
        .unwrap_or_default();
    let quantity = seen.map(|seen| amount(name, threshold.quantity(seen.capacity).value()));
    let hard = threshold.is_hard();
    info!(
        signal = name,
        hard,
        available,
        quantity = quantity.unwrap_or_default(),
        "{what}"
    );
}

/// Tells the log of an order, or of its end.
pub(super) fn log_decision(record: &DecisionRecord) {
    let order = record.order;
    let victim = record.victim_name();
    let signal = record.threshold.signal.as_str();
    #[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
    let millis = |stage: &str| record.since_sample(stage).map(|nanos| nanos as f64 / 1e6);
    let Some(end) = &record.end else {
        info!(
            order,
            victim,
            signal,
            mode = record.mode,
            "eviction ordered"
        );
        return;
    };
    info!(
        order,
        victim,
        signal,
        mode = record.mode,
        signalled_ms = millis("firstSignal"),
        freed = unsigned(record.freed_bytes),
        end = end_words(end),
        "eviction over"
    );
}
