//! Who acts first where memory runs short: Brink or the kubelet beside it.

use super::signal::Signal;

/// The hard thresholds of both on a signal of memory, in bytes; none where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The signal.
    pub signal: Signal,
    /// Brink's.
    pub ours: Option<i64>,
    /// The kubelet's.
    pub kubelets: Option<i64>,
    /// How far Brink's is to be above the kubelet's, in bytes.
    pub margin: i64,
    /// Whether Brink waits below its own until headroom is short too; who acts first goes by the amounts alone.
    pub is_confirmed: bool,
}

/// What follows from the two, from the mildest to what leaves Brink least to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum First {
    /// Brink alone acts: the kubelet has no threshold.
    KubeletNever,
    /// Brink, and by the margin at least.
    Brink,
    /// Brink, by less than the margin.
    BrinkNarrowly,
    /// The kubelet, or both at once.
    Kubelet,
    /// The kubelet alone acts: Brink has no threshold.
    BrinkNever,
}

impl Lead {
    /// The same while Brink carries no orders out.
    #[must_use]
    pub const fn while_idle(self) -> Self {
        Self { ours: None, ..self }
    }

    /// The one of two by which Brink has less to do; `self` where that is the same.
    #[must_use]
    pub fn or_worse(self, other: Self) -> Self {
        if other.first() > self.first() {
            other
        } else {
            self
        }
    }

    /// Who acts first.
    pub const fn first(self) -> First {
        match (self.ours, self.kubelets) {
            (_, None) => First::KubeletNever,
            (None, Some(_)) => First::BrinkNever,
            (Some(ours), Some(kubelets)) if ours <= kubelets => First::Kubelet,
            (Some(ours), Some(kubelets)) if ours.saturating_sub(kubelets) < self.margin => {
                First::BrinkNarrowly
            }
            (Some(_), Some(_)) => First::Brink,
        }
    }
}

impl First {
    /// Whether the kubelet may evict for a shortage that is Brink's to end.
    pub const fn is_conflict(self) -> bool {
        match self {
            Self::KubeletNever | Self::Brink => false,
            Self::BrinkNarrowly | Self::Kubelet | Self::BrinkNever => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brink_leads_by_the_margin_or_both_may_act() {
        let check = |ours, kubelets, first: First, is_conflict| {
            let lead = Lead {
                signal: Signal::MemoryAvailable,
                ours,
                kubelets,
                margin: 64,
                is_confirmed: false,
            };
            assert_eq!((lead.first(), first.is_conflict()), (first, is_conflict));
        };
        check(Some(164), Some(100), First::Brink, false);
        check(Some(163), Some(100), First::BrinkNarrowly, true);
        check(Some(100), Some(100), First::Kubelet, true);
        check(Some(50), Some(100), First::Kubelet, true);
        check(None, Some(100), First::BrinkNever, true);
        check(Some(50), None, First::KubeletNever, false);
        check(None, None, First::KubeletNever, false);
        check(Some(i64::MAX), Some(i64::MIN), First::Brink, false);
    }

    #[test]
    fn of_two_signals_the_one_counts_by_which_the_kubelet_comes_sooner() {
        let lead = |signal, ours, kubelets| Lead {
            signal,
            ours,
            kubelets,
            margin: 64,
            is_confirmed: false,
        };
        let check = |node: (i64, i64), pods: (i64, i64), expected: Signal| {
            let node = lead(Signal::MemoryAvailable, Some(node.0), Some(node.1));
            let of_pods = Signal::AllocatableMemoryAvailable;
            let pods = lead(of_pods, Some(pods.0), Some(pods.1));
            assert_eq!(node.or_worse(pods).signal, expected);
        };
        check((164, 100), (164, 100), Signal::MemoryAvailable);
        check((164, 100), (122, 100), Signal::AllocatableMemoryAvailable);
        check((100, 100), (122, 100), Signal::MemoryAvailable);
    }

    #[test]
    fn who_carries_no_orders_out_never_acts() {
        let lead = Lead {
            signal: Signal::MemoryAvailable,
            ours: Some(200),
            kubelets: Some(100),
            margin: 64,
            is_confirmed: false,
        };
        assert_eq!(lead.while_idle().first(), First::BrinkNever);
    }

    #[test]
    fn without_a_margin_any_lead_is_enough_and_none_is_none() {
        let first = |ours| {
            let lead = Lead {
                signal: Signal::MemoryAvailable,
                ours: Some(ours),
                kubelets: Some(100),
                margin: 0,
                is_confirmed: false,
            };
            lead.first()
        };
        assert_eq!((first(101), first(100)), (First::Brink, First::Kubelet));
    }
}
