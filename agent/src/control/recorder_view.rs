//! The flight recorder's part of the status: from one point to the next, for now.

use brink_host::probe::Followed;
use serde::{Deserialize, Serialize};

use super::protocol::SamplerView;
use crate::recorder::Pace;

/// How often the flight recorder records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecorderView {
    /// From one point of the node to the next, in milliseconds: 10 by the kernel's sampler, 100 by files.
    pub node_period_ms: u32,
    /// The same of the cgroups nearest to their own limit: 100, unless that takes too much of a processor.
    pub near_period_ms: u32,
    /// The same of all other cgroups: 1000, unless that takes too much of a processor.
    pub others_period_ms: u32,
    /// Cgroups that are recorded as near their limit.
    pub near: u32,
    /// The other cgroups that are recorded.
    pub others: u32,
    /// Of both, those whose usage a program of the kernel's tells; the files of the others do.
    #[serde(default)]
    pub surveyed: u32,
    /// Cgroups that are not recorded: there is room for 512, and one without a limit makes way for one that has one.
    #[serde(default)]
    pub left_out: u32,
    /// Points of those near their limit, of all of them together, that were overwritten before they were read.
    #[serde(default)]
    pub overwritten: u64,
    /// Cost of the kernel's timer that follows those near their limit; none where files or calls tell.
    #[serde(default)]
    pub timer: Option<SamplerView>,
}

impl RecorderView {
    /// As the recorder tells it.
    pub fn of(pace: Pace) -> Self {
        let Pace {
            periods,
            near,
            others,
            surveyed,
            left_out,
            followed,
        } = pace;
        Self {
            node_period_ms: periods.node_ms,
            near_period_ms: periods.near_ms,
            others_period_ms: periods.others_ms,
            near,
            others,
            surveyed,
            left_out,
            overwritten: followed.map_or(0, |followed| followed.overwritten),
            timer: followed.map(|Followed { counted, .. }| {
                SamplerView::of(counted.traces, counted.cost_ns, counted.cost_max_ns)
            }),
        }
    }
}
