//! Programs that user space runs itself, by the name they have in their object.

use aya::Ebpf;
use aya::programs::{Program, ProgramError, SocketFilter, TestRun as _, TestRunOptions};

use super::error::{ProbeError, Refusal};

/// A packet for the test run; no program looks at it, the kernel wants an Ethernet header's worth.
const PACKET: [u8; 32] = [0; 32];

/// The program of this name.
pub(super) fn program<'a, P>(
    object: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut P, ProbeError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let loaded = object
        .program_mut(name)
        .ok_or(ProbeError::NotLoaded(name))?;
    loaded.try_into().map_err(failed(name))
}

/// Runs a socket filter once, and returns its result.
pub(super) fn run(filter: &SocketFilter, name: &'static str) -> Result<u32, ProbeError> {
    let options = TestRunOptions {
        data_in: Some(&PACKET),
        ..TestRunOptions::default()
    };
    let result = filter.test_run(options).map_err(failed(name))?;
    Ok(result.return_value)
}

/// What a program's result says of what was asked of it.
pub(super) fn done(what: &'static str, result: u32) -> Result<(), ProbeError> {
    match Refusal::from_result(result) {
        None => Ok(()),
        Some(why) => Err(ProbeError::Refused { what, why }),
    }
}

/// The kernel would not have a program of this name run.
pub(super) fn failed(name: &'static str) -> impl Fn(ProgramError) -> ProbeError {
    move |error| ProbeError::Program { name, error }
}
