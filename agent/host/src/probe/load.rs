//! Loading: the embedded object, the settings as frozen globals, each program on its own.

use aya::maps::Map;
use aya::programs::{
    BtfTracePoint, FEntry, Iter, Program as Loaded, ProgramError, RawTracePoint, SocketFilter,
    TracePoint,
};
use aya::{Btf, Ebpf, EbpfLoader, Endianness};
use brink_abi::births::PAGES;

use super::coverage::{Absence, Coverage, Settings, Wishes};
use super::error::ProbeError;
use super::facts::{Facts, Target};
use super::flight;
use super::pod::Pod;
use super::programs::{Family, Hook, PROGRAMS, Program};
use super::thin;

/// The object as it was built and checked in; see `cargo xtask ebpf --check`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!("../../../../ebpf/prebuilt/brink-programs.bpf.o");

/// Creates the maps, then loads and attaches every program the coverage allows. What fails is noted there with the
/// kernel's reason; only an object that cannot be loaded at all is an error.
pub(super) fn load(
    facts: &Facts,
    settings: &Settings,
    coverage: &mut Coverage,
) -> Result<Ebpf, ProbeError> {
    let mut object = create(settings)?;
    let targets = facts
        .types
        .as_ref()
        .map(|types| types.targets.as_slice())
        .unwrap_or_default();
    let types = describe(targets)?;
    for program in PROGRAMS {
        // The recorder's have an object of their own.
        if program.family != Family::Recorder
            && coverage.has(program.name)
            && let Err(absence) = start(&mut object, program, &types)
        {
            coverage.lose(program.name, &absence);
        }
    }
    Ok(object)
}

/// Parses the object and creates its maps.
fn create(settings: &Settings) -> Result<Ebpf, ProbeError> {
    let (layout, formats) = (Pod(settings.layout), Pod(settings.formats));
    let wishes = &settings.wishes;
    let (ring, killed) = (
        kills(wishes, wishes.forensics_ring, 4096),
        kills(wishes, KILLED, 1),
    );
    EbpfLoader::new()
        .btf(None)
        .override_global("LAYOUT", &layout, true)
        .override_global("FORMATS", &formats, true)
        .override_global("READER", &std::process::id(), true)
        .map_max_entries("SIGNALS", settings.wishes.signal_ring)
        .map_max_entries("EVIDENCE", settings.wishes.evidence_ring)
        .map_max_entries("PROCESSES", settings.wishes.processes)
        .map_max_entries("CGROUPS", settings.wishes.cgroups)
        .map_max_entries("FORENSICS", ring)
        .map_max_entries("KILLED", killed)
        .map_max_entries("SPACES", killed)
        .map_max_entries("BIRTHS", kills(wishes, PAGES, 1))
        .map_max_entries("FLIGHT", flight::pages(&settings.wishes))
        .load(&bytes()?)
        .map_err(|error| ProbeError::Object(chain(&error)))
}

/// Parses an object that shares nothing with the probe's, and creates its maps.
pub(super) fn alone(object: &[u8], settings: &Settings) -> Result<Ebpf, ProbeError> {
    EbpfLoader::new()
        .btf(None)
        .override_global("LAYOUT", &Pod(settings.layout), true)
        .load(object)
        .map_err(|error| ProbeError::Object(chain(&error)))
}

/// What the programs on kills remember: as many as may be told as killed and have not ended.
const KILLED: u32 = 1024;

/// Room for the programs on kills: the least there can be where they are not wanted.
fn kills(wishes: &Wishes, wanted: u32, least: u32) -> u32 {
    if wishes.forensics { wanted } else { least }
}

/// The embedded object.
#[cfg(not(feature = "probe-log"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build reads a file")]
fn bytes() -> Result<std::borrow::Cow<'static, [u8]>, ProbeError> {
    Ok(OBJECT.into())
}

/// The object a developer names, else the embedded one.
#[cfg(feature = "probe-log")]
fn bytes() -> Result<std::borrow::Cow<'static, [u8]>, ProbeError> {
    super::log::object(OBJECT)
}

fn describe(targets: &[Result<Target, String>]) -> Result<Btf, ProbeError> {
    Btf::parse(&thin::description(targets), Endianness::default())
        .map_err(|error| ProbeError::Object(chain(&error)))
}

fn start(object: &mut Ebpf, program: &Program, types: &Btf) -> Result<(), Absence> {
    let loaded = object
        .program_mut(program.name)
        .ok_or_else(|| Absence::Refused("not in the object".into()))?;
    let refused = |error: ProgramError| Absence::Refused(chain(&error));
    let unattached = |error: ProgramError| Absence::NotAttached(chain(&error));
    match program.hook {
        Hook::TestRun => {
            let filter: &mut SocketFilter = typed(loaded)?;
            filter.load().map_err(refused)
        }
        Hook::Call => {
            let called: &mut RawTracePoint = typed(loaded)?;
            called.load().map_err(refused)
        }
        Hook::Typed(tracepoint, _) => {
            let hook: &mut BtfTracePoint = typed(loaded)?;
            hook.load(tracepoint, types).map_err(refused)?;
            hook.attach().map(drop).map_err(unattached)
        }
        Hook::Classic(category, name) => {
            let hook: &mut TracePoint = typed(loaded)?;
            hook.load().map_err(refused)?;
            hook.attach(category, name).map(drop).map_err(unattached)
        }
        Hook::Entry(function) => {
            let hook: &mut FEntry = typed(loaded)?;
            hook.load(function, types).map_err(refused)?;
            hook.attach().map(drop).map_err(unattached)
        }
        Hook::Tasks => {
            let iterator: &mut Iter = typed(loaded)?;
            iterator.load("task", types).map_err(refused)
        }
    }
}

fn typed<'a, T>(loaded: &'a mut Loaded) -> Result<&'a mut T, Absence>
where
    &'a mut T: TryFrom<&'a mut Loaded, Error = ProgramError>,
{
    loaded
        .try_into()
        .map_err(|error: ProgramError| Absence::Refused(chain(&error)))
}

/// Takes a map out of the object as the type it has.
pub(super) fn take<T>(object: &mut Ebpf, name: &'static str) -> Result<T, ProbeError>
where
    T: TryFrom<Map, Error = aya::maps::MapError>,
{
    let map = object.take_map(name).ok_or(ProbeError::NoMap(name))?;
    T::try_from(map).map_err(|error| ProbeError::Map { name, error })
}

/// The error with its causes, in one line of bounded length: a verifier's log ends with what matters.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    const LONGEST: usize = 600;
    const EMPTY_LOG: &str = ". Verifier output:";
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // A kernel that refuses a program before it is verified leaves the log empty.
    if text.ends_with(EMPTY_LOG) {
        text.truncate(text.len() - EMPTY_LOG.len());
    }
    let skip = text.chars().count().saturating_sub(LONGEST);
    if skip == 0 {
        text
    } else {
        format!("… {}", text.chars().skip(skip).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// As aya words it.
    #[derive(Debug, thiserror::Error)]
    #[error("the BPF_PROG_LOAD syscall returned {errno}. Verifier output: {log}")]
    struct LoadError {
        #[source]
        errno: io::Error,
        log: &'static str,
    }

    #[test]
    fn a_log_is_told_only_where_there_is_one_and_a_cause_only_once() {
        let returned = "the BPF_PROG_LOAD syscall returned Invalid argument (os error 22)";
        for (log, more) in [("", ""), ("R1 is\n bad\n", ". Verifier output: R1 is bad")] {
            let errno = io::Error::from_raw_os_error(22);
            let text = chain(&LoadError { errno, log });
            assert_eq!(text, format!("{returned}{more}"));
        }
    }
}
