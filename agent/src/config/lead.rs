//! Whether we lead: doubts about thresholds under which the kubelet acts before us.

use brink_core::node::policy::read_threshold;
use brink_core::node::threshold::Value;

use super::document::{Node, Origins};
use super::finding::{Finding, Report};

/// Warns where a memory threshold in force is not above the kubelet's own.
pub(super) fn add_doubts(kubelets: &Node, tree: &Node, origins: &Origins, report: &mut Report) {
    let signal = "memory.available";
    let threshold = |tree: &Node| {
        let node = tree.get("evictionHard")?.get(signal)?;
        let text = node.scalar()?.to_string();
        let value = read_threshold(&text).ok()??;
        Some((value, text, node.site))
    };
    let Some((theirs, kubelet, _)) = threshold(kubelets) else {
        return;
    };
    let path = format!("evictionHard.{signal}");
    match threshold(tree) {
        None => {
            let problem = format!("off, while the kubelet's is {kubelet}: the kubelet acts alone");
            report.warn(Finding::at(origins, tree.site, path, problem));
        }
        Some((ours, text, site)) if is_at_most(ours, theirs) => {
            let problem = format!("not above the kubelet's {kubelet}: the kubelet acts first");
            let found = Finding::at(origins, site, path, problem);
            report.warn(found.written(format!("{text:?}")));
        }
        Some(_) => {}
    }
}

/// Whether one value is surely not above the other; an amount and a fraction say nothing.
fn is_at_most(one: Value, other: Value) -> bool {
    match (one, other) {
        (Value::Quantity(one), Value::Quantity(other)) => one <= other,
        (Value::Fraction(one), Value::Fraction(other)) => one <= other,
        _ => false,
    }
}
