//! Loads that are a process's own or shared memory.

use std::fs::File;

use rustix::fs::MemfdFlags;

use crate::hog::HogError;
use crate::hog::file_load::nameless;
use crate::hog::pace::{Pacer, Stop};
use crate::hog::raw::{Ends, Pages, Region, Twin};
use crate::hog::spec::{HogSpec, Load};

/// What is taken between two looks at the clock: 64 pages of 4K, as the pace is defined in the method of the benches.
const STEP: usize = 64 * 4096;
/// A huge page comes whole.
const HUGE_STEP: usize = 2 << 20;

/// Anonymous memory, page by page.
pub(super) fn anonymous(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    let failed = |errno| HogError::Call {
        what: "mapping the memory to take",
        errno,
    };
    let length = usize::try_from(spec.bytes).unwrap_or(usize::MAX).max(1);
    let (pages, step) = match spec.load {
        Load::AnonHuge => (Pages::Huge, HUGE_STEP),
        _ => (Pages::Base, STEP),
    };
    let mut region = Region::new(length, pages).map_err(failed)?;
    let page = rustix::param::page_size();
    for from in (0..length).step_by(step) {
        let amount = step.min(length - from);
        if spec.load == Load::Locked {
            region.lock(from, amount).map_err(|errno| HogError::Call {
                what: "locking memory",
                errno,
            })?;
        }
        for byte in region.as_mut_slice()[from..from + amount]
            .iter_mut()
            .step_by(page)
        {
            // Not all the same, so that no compression makes it vanish.
            *byte = u8::try_from((from / page) % 251).unwrap_or(0) + 1;
        }
        std::hint::black_box(region.as_mut_slice()[from]);
        if let Some(stop) = pacer.took(amount as u64) {
            return Ok(pacer.stopped(stop));
        }
    }
    Ok(pacer.finish(spec))
}

/// The same beside a second process with the same memory.
pub(super) fn twin(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    let ends = match spec.load {
        Load::AnonHeld => Ends::AfterUs,
        _ => Ends::WithUs,
    };
    let twin = Twin::bear(ends).map_err(|errno| HogError::Call {
        what: "making a process with the same memory",
        errno,
    })?;
    let stop = anonymous(spec, pacer);
    drop(twin);
    stop
}

/// Maps, fills and unmaps until the deadline.
pub(super) fn churn(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    let failed = |errno| HogError::Call {
        what: "mapping the memory to fill",
        errno,
    };
    let length = usize::try_from(spec.bytes).unwrap_or(usize::MAX).max(1);
    let page = rustix::param::page_size();
    loop {
        let mut region = Region::new(length, Pages::Base).map_err(failed)?;
        for byte in region.as_mut_slice().iter_mut().step_by(page) {
            *byte = 1;
        }
        std::hint::black_box(region.as_mut_slice());
        drop(region);
        if let Some(stop) = pacer.took(spec.bytes) {
            return Ok(pacer.stopped(stop));
        }
    }
}

/// Shared memory: a file that lives in memory alone.
pub(super) fn shared(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    let failed = |errno| HogError::Call {
        what: "taking shared memory",
        errno,
    };
    let file = rustix::fs::memfd_create(c"brink-hog", MemfdFlags::CLOEXEC).map_err(failed)?;
    let contents = vec![0xa5u8; STEP];
    let mut taken = 0;
    while taken < spec.bytes {
        let amount = usize::try_from(spec.bytes - taken)
            .unwrap_or(STEP)
            .min(STEP);
        let written = match rustix::io::pwrite(&file, &contents[..amount], taken) {
            Ok(written) => written as u64,
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM) => {
                return Ok(pacer.stopped(Stop::Refused));
            }
            Err(errno) => return Err(failed(errno)),
        };
        taken += written;
        if let Some(stop) = pacer.took(written) {
            return Ok(pacer.stopped(stop));
        }
    }
    Ok(pacer.finish(spec))
}

/// Half of it anonymous, a quarter shared and a quarter of a file, every page of it mapped.
pub(super) fn parts(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    const MAPPING: &str = "mapping a part of the memory to take";
    let failed = |what: &'static str| move |errno| HogError::Call { what, errno };
    let quarter = usize::try_from(spec.bytes / 4).unwrap_or(usize::MAX).max(1);
    let mut own = Region::new(2 * quarter, Pages::Base).map_err(failed(MAPPING))?;
    let mut shared = Region::of(memfd(quarter)?, quarter).map_err(failed(MAPPING))?;
    let mut of_file = Region::of(holes(spec, quarter)?, quarter).map_err(failed(MAPPING))?;
    for region in [&mut own, &mut shared] {
        if let Some(stop) = fill(region, pacer) {
            return Ok(pacer.stopped(stop));
        }
    }
    // Its pages are found by reading: nothing is ever written to the disk. Locked, because they are clean.
    of_file.lock(0, quarter).map_err(failed("locking a file"))?;
    if let Some(stop) = pacer.took(quarter as u64) {
        return Ok(pacer.stopped(stop));
    }
    Ok(pacer.finish(spec))
}

fn memfd(length: usize) -> Result<File, HogError> {
    let made = rustix::fs::memfd_create(c"brink-hog", MemfdFlags::CLOEXEC);
    let made = made.and_then(|made| rustix::fs::ftruncate(&made, length as u64).map(|()| made));
    made.map(File::from).map_err(|errno| HogError::Call {
        what: "making shared memory",
        errno,
    })
}

fn holes(spec: &HogSpec, length: usize) -> Result<File, HogError> {
    let (file, _) = nameless(spec)?;
    match rustix::fs::ftruncate(&file, length as u64) {
        Ok(()) => Ok(file),
        Err(errno) => Err(HogError::Call {
            what: "making a file of holes",
            errno,
        }),
    }
}

/// Writes to every page of a region; `Some` where it is to stop before.
fn fill(region: &mut Region, pacer: &mut Pacer) -> Option<Stop> {
    let page = rustix::param::page_size();
    for part in region.as_mut_slice().chunks_mut(STEP) {
        for byte in part.iter_mut().step_by(page) {
            *byte = 1;
        }
        std::hint::black_box(&mut *part);
        if let Some(stop) = pacer.took(part.len() as u64) {
            return Some(stop);
        }
    }
    None
}
