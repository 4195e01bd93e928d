//! Starting the flight recorder, where somebody is told of incidents.

use std::path::Path;
use std::sync::Arc;

use brink_host::cgroup::Layout;
use brink_host::probe::Wishes;
use tracing::warn;

use super::equipment::Equipment;
use crate::guard;
use crate::guard::files::NodePlan;
use crate::recorder::tracked::Warning;
use crate::recorder::{NODE_PERIOD_NS, Recorder};
use crate::telling::Telling;

/// Starts the recorder, unless events are switched off. Where it cannot run, incidents go without.
pub(super) fn start(
    root: &Path,
    layout: &Layout,
    node: &NodePlan,
    telling: &Telling,
) -> Option<Arc<Recorder>> {
    telling.hub()?;
    let tells = telling.clone();
    let told = move |warning: Warning| {
        tells.limit_imminent(guard::now(), &warning);
    };
    match Recorder::start(root, layout, node, told) {
        Ok(recorder) => {
            let recorder = Arc::new(recorder);
            telling.record_with(&recorder);
            Some(recorder)
        }
        Err(error) => {
            warn!(%error, "the flight recorder cannot run: incidents go without the minute before");
            None
        }
    }
}

/// What the kernel's programs are asked to do.
pub(super) fn wishes(is_recorded: bool) -> Wishes {
    if is_recorded {
        Wishes::default().recording(NODE_PERIOD_NS)
    } else {
        Wishes::default()
    }
}

/// Hands the recorder what the loaded programs record.
pub(super) fn attach(recorder: Option<&Recorder>, equipment: &mut Equipment) {
    let meters = equipment.meters.clone();
    if let (Some(recorder), Some(survey)) = (recorder, equipment.survey.take()) {
        recorder.survey_with(survey);
    }
    if let (Some(recorder), Some(meters)) = (recorder, meters)
        && let Some(flight) = equipment.flight.take()
    {
        recorder.attach(flight, meters);
    }
}
