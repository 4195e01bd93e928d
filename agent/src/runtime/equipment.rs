//! What the kernel's programs offer on this machine, taken apart for the threads that use it.

use std::path::Path;
use std::sync::Arc;

use brink_host::probe::programs::Program;
use brink_host::probe::{Absence, EvidenceReader, Meters, Probe, Wishes};
use tracing::warn;

use crate::equip;

/// A program of the kernel's, for doctor and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramState {
    /// Its name.
    pub name: String,
    /// Its family.
    pub family: String,
    /// Why it does not run; none if it does.
    pub absent: Option<String>,
}

/// What the kernel's programs offer here.
pub(super) struct Equipment {
    pub(super) probe: Result<Probe, String>,
    pub(super) meters: Option<Arc<Meters>>,
    pub(super) evidence: Option<EvidenceReader>,
    pub(super) programs: Vec<ProgramState>,
}

impl Equipment {
    /// Loads what there is.
    pub(super) fn load(root: &Path) -> Self {
        let mut probe = equip::probe(root, Wishes::default());
        if let Err(why) = &probe {
            warn!(why, "the kernel sampler cannot serve; the guard polls");
        }
        let loaded = probe.as_mut().ok();
        let programs = loaded.as_ref().map_or_else(Vec::new, |probe| {
            let state = |(program, state): (&Program, &Result<(), Absence>)| ProgramState {
                name: program.name.to_owned(),
                family: format!("{:?}", program.family).to_lowercase(),
                absent: state.as_ref().err().map(ToString::to_string),
            };
            probe.coverage().programs().map(state).collect()
        });
        let (meters, evidence) = loaded.map_or((None, None), |probe| {
            (probe.take_meters().map(Arc::new), probe.take_evidence())
        });
        Self {
            probe,
            meters,
            evidence,
            programs,
        }
    }
}
