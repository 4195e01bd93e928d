//! The loaded probe, as the guard holds it: signals, samples, usage. Nothing here allocates once it is loaded.

use std::os::fd::{AsFd, BorrowedFd};

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, RingBuf};
use brink_abi::command::Mailbox;
use brink_abi::layout::ABSENT;
use brink_abi::meter::ProcessMeter;
use brink_abi::sample::{Published, Sample, Usage, UsageTable};
use brink_abi::{COMM, MAX_SLOTS, Plain};

use super::births::BirthReader;
use super::coverage::{Coverage, Settings, decide};
use super::decode::{DecodeError, Signal, signal};
use super::error::ProbeError;
use super::evidence::EvidenceReader;
use super::facts::Facts;
use super::flight::FlightReader;
use super::forensics::ForensicsRing;
use super::gfp::GfpNames;
use super::load::{load, take};
use super::meters::Meters;
use super::pod::Pod;
use super::processes::Excess;
use super::survey::Survey;
use crate::realtime::trim_heap;

/// Tries of a copy that a tick may be rewriting.
const COPIES: usize = 16;

/// The programs in the kernel, and the guard's ends of their maps. Dropping it unloads everything.
pub struct Probe {
    pub(super) object: Ebpf,
    pub(super) coverage: Coverage,
    pub(super) nodes: Vec<u32>,
    pub(super) mailbox: Array<MapData, Pod<Mailbox>>,
    pub(super) process: Array<MapData, Pod<ProcessMeter>>,
    pub(super) victims: HashMap<MapData, u64, u64>,
    /// entries of `victims`
    pub(super) watched: u64,
    /// by how much the count of threads was too high at the last look, negative; zero when it was not
    pub(super) threads_excess: Excess,
    /// the sampler was told of memory that no zone manages yet
    pub(super) is_deferred: bool,
    signals: RingBuf<MapData>,
    evidence: Option<EvidenceReader>,
    forensics: Option<ForensicsRing>,
    flight: Option<FlightReader>,
    survey: Option<Survey>,
    births: Option<BirthReader>,
    gfp_names: Option<GfpNames>,
    meters: Option<Meters>,
    latest: Array<MapData, Pod<Published>>,
    usage: Array<MapData, Pod<UsageTable>>,
    undecoded: u64,
    #[cfg(feature = "probe-log")]
    log: Option<super::log::Flush>,
}

impl Probe {
    /// Loads what the facts and settings allow. The sampler stands still until it is armed and started.
    ///
    /// # Errors
    /// [`ProbeError`] when the object or its maps cannot be loaded at all. A program that is refused is no error: its
    /// absence and the reason are in [`Probe::coverage`].
    pub fn load(facts: &Facts, settings: &Settings) -> Result<Self, ProbeError> {
        let mut coverage = decide(facts, &settings.wishes);
        let mut object = load(facts, settings, &mut coverage)?;
        let survey = Survey::load(settings, &mut coverage);
        // The type description was parsed in many small pieces; what is left of them is a multiple of what we need.
        trim_heap();
        tell_starts_of(&settings.wishes.names, &mut object)?;
        let mut meters = Meters::take(&mut object, &coverage)?;
        if let Some(survey) = &survey {
            meters.add_maps(survey.map_bytes());
        }
        let mut probe = Self {
            meters: Some(meters),
            signals: take(&mut object, "SIGNALS")?,
            evidence: Some(EvidenceReader::new(take(&mut object, "EVIDENCE")?)),
            forensics: settings
                .wishes
                .forensics
                .then(|| {
                    // The argument came with the change.
                    let ends_early = settings.layout.arg_group_dead != ABSENT;
                    take(&mut object, "FORENSICS").map(|ring| ForensicsRing::new(ring, ends_early))
                })
                .transpose()?,
            flight: FlightReader::take(&mut object, settings, &coverage)?,
            survey,
            births: BirthReader::take(&mut object, &coverage)?,
            gfp_names: facts.gfp_names().cloned(),
            mailbox: take(&mut object, "MAILBOX")?,
            latest: take(&mut object, "LATEST")?,
            usage: take(&mut object, "USAGE")?,
            process: take(&mut object, "PROCESS")?,
            victims: take(&mut object, "VICTIMS")?,
            nodes: settings.nodes.clone(),
            #[cfg(feature = "probe-log")]
            log: super::log::open(&mut object),
            object,
            coverage,
            watched: 0,
            threads_excess: Excess::default(),
            is_deferred: false,
            undecoded: 0,
        };
        if probe.coverage.has("command") {
            probe.set_knobs(settings.wishes.knobs)?;
        }
        Ok(probe)
    }

    /// What runs, and why the rest does not.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The reader of evidence, for another thread; once.
    pub fn take_evidence(&mut self) -> Option<EvidenceReader> {
        self.evidence.take()
    }

    /// The reader of kills, for another thread; once, and only if [`Wishes::forensics`] asked for it.
    ///
    /// [`Wishes::forensics`]: super::Wishes::forensics
    pub fn take_forensics(&mut self) -> Option<ForensicsRing> {
        self.forensics.take()
    }

    /// The reader of the recorded points of the node, for another thread; once, and none where none are left.
    pub fn take_flight(&mut self) -> Option<FlightReader> {
        self.flight.take()
    }

    /// What tells the usage of many cgroups at once, for another thread; once, and none where it is not wanted or not possible.
    pub fn take_survey(&mut self) -> Option<Survey> {
        self.survey.take()
    }

    /// The reader of who forked whom, for another thread; once, and none where nobody keeps it.
    pub fn take_births(&mut self) -> Option<BirthReader> {
        self.births.take()
    }

    /// The kernel's names of allocation flags; once, and none where it tells none.
    pub fn take_gfp_names(&mut self) -> Option<GfpNames> {
        self.gfp_names.take()
    }

    /// The counters, for another thread; once.
    pub fn take_meters(&mut self) -> Option<Meters> {
        self.meters.take()
    }

    /// What flushes the programs' text, if they have any; once.
    #[cfg(feature = "probe-log")]
    pub fn take_log(&mut self) -> Option<super::log::Flush> {
        self.log.take()
    }

    /// Readable when a signal waits.
    pub fn signal_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Hands over every signal that waits, at most `bound` of them, and returns how many were taken from the ring.
    pub fn drain_signals(&mut self, bound: usize, mut each: impl FnMut(&Signal)) -> usize {
        for taken in 0..bound {
            let Some(item) = self.signals.next() else {
                return taken;
            };
            match signal(&item) {
                Ok(found) => each(&found),
                Err(DecodeError { .. }) => self.undecoded += 1,
            }
        }
        bound
    }

    /// Records of the small ring that could not be understood: above zero, object and agent do not fit.
    pub fn undecoded(&self) -> u64 {
        self.undecoded
    }

    /// The latest sample; `None` when none was taken or ticks kept rewriting it.
    pub fn sample(&self) -> Option<Sample> {
        let Pod(published) = copy(&self.latest, |Pod(p)| (p.finished, p.started))?;
        Some(published.record.sample)
    }

    /// Copies the usage of every slot, in the order of slots, and returns when the table was last read as a whole
    /// (monotonic nanoseconds, 0 for never). `None` when ticks kept rewriting it.
    pub fn usages(&self, into: &mut [Usage; MAX_SLOTS]) -> Option<u64> {
        let Pod(table) = copy(&self.usage, |Pod(table)| (table.finished, table.started))?;
        into.copy_from_slice(&table.entries);
        Some(table.swept_ns)
    }
}

/// Gives the programs the names whose start they tell.
fn tell_starts_of(names: &[[u8; COMM]], object: &mut Ebpf) -> Result<(), ProbeError> {
    const MAP: &str = "NAMES";
    let mut told: HashMap<MapData, [u8; COMM], u32> = take(object, MAP)?;
    let failed = |error| ProbeError::Map { name: MAP, error };
    names
        .iter()
        .try_for_each(|name| told.insert(name, 1, 0).map_err(failed))
}

/// A copy of a value whose guards agree: the writer sets the second before it writes and the first after.
fn copy<T: Plain>(
    map: &Array<MapData, Pod<T>>,
    guards: impl Fn(&Pod<T>) -> (u64, u64),
) -> Option<Pod<T>> {
    (0..COPIES).find_map(|_| {
        let found = map.get(&0, 0).ok()?;
        let (finished, started) = guards(&found);
        (finished == started && started != 0).then_some(found)
    })
}
