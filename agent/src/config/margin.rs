//! The lead over the kubelet: its memory thresholds, raised so that we act first.

use brink_core::base::Quantity;
use brink_core::node::threshold::{self, Threshold};

use super::document::{Fields, Node, Reader, Site, Value};
use super::layers::put;

/// By how much inherited memory thresholds are raised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeadMargin {
    /// Added to thresholds that are quantities, in bytes.
    pub quantity: Quantity,
    /// Added to thresholds that are percentages, in percentage points.
    pub points: f64,
}

/// One threshold of the kubelet's and what we made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// `evictionHard` or `evictionSoft`.
    pub key: &'static str,
    /// The signal.
    pub signal: String,
    /// The kubelet's value.
    pub kubelet: String,
    /// Ours.
    pub ours: String,
    /// Where the kubelet's stands.
    pub site: Site,
}

/// Signals whose thresholds are raised.
const SIGNALS: [&str; 2] = ["allocatableMemory.available", "memory.available"];

const ACCEPTED: &str = "a quantity such as 64Mi, a percentage such as 1%, or a map of one or both: \
                        {quantity: 64Mi, percentage: 1%}";

impl Default for LeadMargin {
    fn default() -> Self {
        Self {
            quantity: Quantity::from_bytes(64 << 20),
            points: 1.0,
        }
    }
}

impl LeadMargin {
    /// Reads `leadMargin`: one of its parts alone, or a map of one or both. A part left out keeps its default.
    pub fn read<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Self {
        let mut margin = Self::default();
        if !matches!(node.value, Value::Map(_)) {
            margin.read_part(reader, node);
            return margin;
        }
        let keys = super::document::Keys::Closed;
        let fields: Fields<'a> = reader.fields(node, &["quantity", "percentage"], keys);
        for part in ["quantity", "percentage"] {
            if let Some(node) = fields.get(part) {
                let is_percentage = node.scalar().is_some_and(|text| text.ends_with('%'));
                if is_percentage == (part == "percentage") {
                    margin.read_part(reader, node);
                } else {
                    reader.fault(node, format!("this is no {part}"), ACCEPTED);
                }
            }
        }
        margin
    }

    fn read_part<'a>(&mut self, reader: &mut Reader<'a>, node: &'a Node) {
        let Some(text) = reader.scalar(node, ACCEPTED) else {
            return;
        };
        if let Some(number) = text.strip_suffix('%') {
            match number.parse::<f64>() {
                Ok(points) if (0.0..=100.0).contains(&points) => self.points = points,
                _ => reader.fault(node, "no percentage from 0% to 100%", ACCEPTED),
            }
            return;
        }
        match text.parse::<Quantity>() {
            Ok(quantity) if quantity.signum() >= 0 => self.quantity = quantity,
            Ok(_) => reader.fault(node, "negative", ACCEPTED),
            Err(error) => reader.fault(node, error.to_string(), ACCEPTED),
        }
    }

    /// A threshold raised; nothing where it is off, cannot be raised, or is none at all.
    fn raise(self, text: &str) -> Option<String> {
        let Some(number) = text.strip_suffix('%') else {
            let quantity: Quantity = text.parse().ok()?;
            let raised = quantity.plus(self.quantity);
            return (quantity.signum() > 0 && raised > quantity).then(|| raised.to_string());
        };
        let percent: f64 = number.trim_end_matches('%').parse().ok()?;
        let raised = percent + self.points;
        // 0% and 100% switch a threshold off, and 0.0% can hardly ever be met: none of them leads.
        let is_on = percent > 0.0 && percent < 100.0 && raised < 100.0;
        (is_on && self.points > 0.0).then(|| format!("{}%", decimal(raised)))
    }

    /// By how much a threshold of the kubelet's is raised where there is so much memory, in bytes.
    pub fn over(self, kubelets: &Threshold, capacity: i64) -> i64 {
        match kubelets.value {
            threshold::Value::Quantity(_) => self.quantity.value(),
            threshold::Value::Fraction(_) => points_of(capacity, self.points),
        }
    }

    /// Raises the memory thresholds of a tree of the kubelet's keys.
    pub fn apply(self, tree: &mut Node) -> Vec<Raised> {
        let mut raised = Vec::new();
        for key in ["evictionHard", "evictionSoft"] {
            for signal in SIGNALS {
                let Some(node) = tree.get(key).and_then(|map| map.get(signal)) else {
                    continue;
                };
                let Some(kubelet) = node.scalar().map(str::to_string) else {
                    continue;
                };
                let site = node.site;
                if let Some(ours) = self.raise(&kubelet) {
                    put(tree, &[key, signal], Node::text(ours.clone(), site));
                    raised.push(Raised {
                        key,
                        signal: signal.to_string(),
                        kubelet,
                        ours,
                        site,
                    });
                }
            }
        }
        raised
    }
}

/// So many percentage points of a capacity, less a millionth of it: percentages are read in single precision, which is no more exact.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "no more exact than what it is compared with"
)]
fn points_of(capacity: i64, points: f64) -> i64 {
    let exact = capacity as f64 * points / 100.0;
    (exact as i64).saturating_sub(capacity >> 20).max(0)
}

/// With as many decimals as it needs, six at most: 10.1 and 1 are 11.1, not 11.100000000000001.
fn decimal(number: f64) -> String {
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use brink_core::base::Span;
    use brink_core::node::signal::Signal;

    use super::*;

    #[test]
    fn quantities_and_percentages_are_raised_and_switches_left_alone() {
        let margin = LeadMargin::default();
        for (kubelet, ours) in [
            ("100Mi", Some("164Mi")),
            ("1.5Gi", Some("1600Mi")),
            ("1G", Some("1067108864")),
            ("10%", Some("11%")),
            ("10.1%", Some("11.1%")),
            ("10%%", Some("11%")),
            ("0%", None),
            ("0.0%", None),
            ("100%", None),
            ("99.5%", None),
            ("0", None),
            ("junk", None),
        ] {
            assert_eq!(margin.raise(kubelet).as_deref(), ours, "{kubelet}");
        }
    }

    #[test]
    fn what_is_raised_is_over_by_the_margin() {
        let margin = LeadMargin::default();
        let threshold = |text: &str| {
            let value = brink_core::node::policy::read_threshold(text);
            Threshold {
                signal: Signal::MemoryAvailable,
                grace: Span::ZERO,
                value: value.unwrap().unwrap(),
                min_reclaim: None,
            }
        };
        for capacity in [1 << 30, 8_589_934_592, 1_048_576_000, 540_431_955_284] {
            for text in ["100Mi", "1%", "5.5%", "10%", "95.5%", "0.3%"] {
                let kubelets = threshold(text);
                let ours = threshold(&margin.raise(text).unwrap());
                let bytes = |threshold: &Threshold| threshold.quantity(capacity).value();
                let lead = bytes(&ours) - bytes(&kubelets);
                let wanted = margin.over(&kubelets, capacity);
                assert!(lead >= wanted, "{text} of {capacity}: {lead}, {wanted}");
                assert!(wanted > capacity / 200 || wanted == 64 << 20, "{wanted}");
            }
        }
    }
}
