//! What the kernel's programs offer on this machine, taken apart for the threads that use it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use brink_host::probe::forensics::ForensicsRing;
use brink_host::probe::programs::Program;
use brink_host::probe::{
    Absence, BirthReader, EvidenceReader, FlightReader, GfpNames, Meters, Probe, Row, Survey,
    Wishes,
};
use tracing::warn;

use crate::equip;
use crate::guard::kernel::Kernel;

/// The programs that tell who is started, and who comes into a cgroup.
const TELL: [&str; 2] = ["exec", "cgroup_attach"];

/// The programs that tell which cgroups come and go.
const TELL_OF_GROUPS: [&str; 2] = ["cgroup_mkdir", "cgroup_rmdir"];

/// The program that tells of the OOM killer's victims on the ring of kills.
const OOM_VICTIM: &str = "oom_victim";

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
pub struct Equipment {
    /// The guard's part, or why there is none.
    pub sampler: Result<Box<Kernel>, String>,
    /// Counters, for whoever exports them.
    pub meters: Option<Arc<Meters>>,
    /// Changes of cgroups, for the watcher.
    pub evidence: Option<EvidenceReader>,
    /// The node as the sampler records it, for the flight recorder.
    pub flight: Option<FlightReader>,
    /// The usage of many cgroups at once, for the flight recorder too.
    pub survey: Option<Survey>,
    /// Kills, for the collector.
    pub forensics: Option<ForensicsRing>,
    /// Who forked whom, for the collector too.
    pub births: Option<BirthReader>,
    /// The kernel's names of allocation flags, for the collector as well.
    pub gfp_names: Option<GfpNames>,
    /// Each program, and why it does not run if so.
    pub programs: Vec<ProgramState>,
}

impl Equipment {
    /// Loads what there is of what is wished.
    pub fn load(root: &Path, wishes: Wishes) -> Self {
        let mut probe = equip::probe(root, wishes);
        if let Err(why) = &probe {
            warn!(why, "no kernel program can run; the guard polls");
        }
        let loaded = probe.as_mut().ok();
        let programs = loaded.as_ref().map_or_else(Vec::new, |probe| {
            let state = |(program, state): (&Program, &Result<(), Absence>)| ProgramState {
                name: program.name.to_owned(),
                family: program.family.word().to_owned(),
                absent: state.as_ref().err().map(ToString::to_string),
            };
            probe.coverage().programs().map(state).collect()
        });
        let (meters, evidence, forensics) = loaded.map_or((None, None, None), |probe| {
            let meters = probe.take_meters().map(Arc::new);
            (meters, probe.take_evidence(), probe.take_forensics())
        });
        let flight = probe.as_mut().ok().and_then(Probe::take_flight);
        let survey = probe.as_mut().ok().and_then(Probe::take_survey);
        let births = probe.as_mut().ok().and_then(Probe::take_births);
        let gfp_names = probe.as_mut().ok().and_then(Probe::take_gfp_names);
        let sampler = probe.map(|probe| Box::new(Kernel::new(probe, meters.clone())));
        if sampler
            .as_ref()
            .is_ok_and(|kernel| !kernel.counts_processes())
        {
            warn!("the kernel does not count processes a cgroup here; they are counted from files");
        }
        Self {
            sampler,
            meters,
            evidence,
            flight,
            survey,
            forensics,
            births,
            gfp_names,
            programs,
        }
    }
}

/// What of the equipment others look at, once it is loaded.
#[derive(Default)]
pub struct Loaded(Mutex<Parts>);

#[derive(Default)]
struct Parts {
    meters: Option<Arc<Meters>>,
    evidence: Option<EvidenceReader>,
    forensics: Option<ForensicsRing>,
    births: Option<BirthReader>,
    gfp_names: Option<GfpNames>,
    programs: Vec<ProgramState>,
}

impl Parts {
    /// Whether all these programs run.
    fn runs_all(&self, names: &[&str]) -> bool {
        names.iter().all(|name| {
            let mut programs = self.programs.iter();
            programs.any(|program| program.name == *name && program.absent.is_none())
        })
    }
}

impl Loaded {
    /// Leaves the parts that are not the guard's.
    pub fn fill(&self, equipment: &mut Equipment) {
        let parts = Parts {
            meters: equipment.meters.clone(),
            evidence: equipment.evidence.take(),
            forensics: equipment.forensics.take(),
            births: equipment.births.take(),
            gfp_names: equipment.gfp_names.take(),
            programs: equipment.programs.clone(),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// Counters of the programs.
    pub fn meters(&self) -> Option<Arc<Meters>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .meters
            .clone()
    }

    /// Whether the kernel tells of all cgroups that come and go, of who comes into them, and of who is started.
    pub fn tells_of_all(&self) -> bool {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.runs_all(&TELL) && parts.runs_all(&TELL_OF_GROUPS)
    }

    /// How often the kernel left those programs out together: nobody told of what happened then.
    pub fn untold(&self) -> u64 {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tells = |name: &str| TELL.contains(&name) || TELL_OF_GROUPS.contains(&name);
        let counts = parts.meters.iter().flat_map(|meters| meters.skipped(tells));
        counts.map(|(_, count)| count).sum()
    }

    /// Starts of programs and changes of cgroups, in every hierarchy, since our programs were loaded; none where they are not
    /// all counted.
    pub fn starts(&self) -> Option<u64> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let meters = parts.meters.as_ref().filter(|_| parts.runs_all(&TELL))?;
        let seen = |row: Row| Some(meters.loss(row).ok()?.seen);
        Some(seen(Row::ProcessEvidence)? + seen(Row::CgroupEvidence)?)
    }

    /// The programs.
    pub fn programs(&self) -> Vec<ProgramState> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .programs
            .clone()
    }

    /// The ring of kills; once, and only if the OOM killer's victims are told on it.
    pub fn take_forensics(&self) -> Option<ForensicsRing> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = |program: &ProgramState| program.name == OOM_VICTIM && program.absent.is_none();
        let runs = parts.programs.iter().any(marks);
        parts.forensics.take().filter(|_| runs)
    }

    /// Who forked whom; once.
    pub fn take_births(&self) -> Option<BirthReader> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.births.take()
    }

    /// The kernel's names of allocation flags; once.
    pub fn take_gfp_names(&self) -> Option<GfpNames> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.gfp_names.take()
    }

    /// The reader of evidence; once.
    pub fn take_evidence(&self) -> Option<EvidenceReader> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .evidence
            .take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_told_only_where_each_program_that_tells_runs() {
        let loaded = |absent: Option<&str>| {
            let state = |name: &&str| ProgramState {
                name: (*name).to_owned(),
                family: String::new(),
                absent: (Some(*name) == absent).then(|| "refused".to_owned()),
            };
            let programs = TELL.iter().chain(&TELL_OF_GROUPS).map(state).collect();
            Loaded(Mutex::new(Parts {
                programs,
                ..Parts::default()
            }))
        };
        assert!(loaded(None).tells_of_all());
        assert!(!Loaded::default().tells_of_all());
        for name in TELL.into_iter().chain(TELL_OF_GROUPS) {
            assert!(!loaded(Some(name)).tells_of_all(), "{name}");
        }
    }
}
