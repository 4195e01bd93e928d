//! Starting the flight recorder, where somebody is told of incidents.

use std::path::Path;
use std::sync::Arc;

use brink_host::cgroup::Layout;
use brink_host::probe::Wishes;
use brink_stream::model::field::Missing;
use tracing::warn;

use super::equipment::Equipment;
use crate::forensics::gather::why;
use crate::guard;
use crate::guard::files::NodePlan;
use crate::recorder::tracked::Warning;
use crate::recorder::{NODE_PERIOD_NS, Recorder};
use crate::telling::Telling;

/// Starts the recorder, unless events are switched off. Where it cannot run, incidents go without and say why.
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
            telling.record_nothing(why(&error, Missing::Lost));
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

#[cfg(test)]
mod tests {
    use brink_host::clock::ClockPair;
    use brink_stream::hub::{Hub, Identity, Limits, Next};
    use brink_stream::model::event::Event;
    use brink_stream::model::field::Field;
    use brink_stream::model::incident::Incident;

    use super::*;
    use crate::fake;
    use crate::record::DecisionRecord;

    /// A machine whose kernel has no memory controller.
    fn machine() -> (tempfile::TempDir, Layout) {
        let root = tempfile::tempdir().unwrap();
        fake::mount_unified(root.path());
        fake::write(root.path(), "sys/fs/cgroup/cgroup.controllers", "pids\n");
        let layout = Layout::detect(root.path()).unwrap();
        (root, layout)
    }

    #[test]
    fn where_no_recorder_can_run_incidents_say_why() {
        let identity = Identity {
            node: "here".to_owned(),
            boot_id: "3f2a".to_owned(),
        };
        let hub = Hub::new(identity, 0, Limits::default());
        let mut reader = hub.reader(None);
        let telling = Telling::new(hub, ClockPair::now());
        let (root, layout) = machine();
        assert!(start(root.path(), &layout, &NodePlan::default(), &telling).is_none());
        let sample = include_str!("../../../tests/events/v1alpha1/eviction-completed.json");
        let sample: serde_json::Value = serde_json::from_str(sample).unwrap();
        let record: DecisionRecord =
            serde_json::from_value(sample["data"]["decision"]["value"].clone()).unwrap();
        telling.completed(&record, None);
        let Some(Next::Line(line)) = reader.next() else {
            panic!("it is told");
        };
        let event: Event = serde_json::from_slice(&line.text).unwrap();
        let incident: Incident = serde_json::from_str(event.data.get()).unwrap();
        let why = Field::Missing(Missing::KernelLacksIt);
        assert_eq!(incident.recording, why);
    }
}
