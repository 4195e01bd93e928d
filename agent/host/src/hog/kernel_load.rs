//! Loads that are the kernel's own memory: names it remembers not to exist, and what is stuck in pipes.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::error::HostError;
use crate::hog::HogError;
use crate::hog::pace::{Pacer, Stop};
use crate::hog::spec::HogSpec;
use crate::open_files::raise_limit;

/// `struct dentry` on 64-bit kernels; short names are inside it.
const DENTRY: u64 = 192;
/// A pipe's default capacity: 16 pages.
const PIPE: usize = 64 << 10;

/// Looks up names that are not there, in a folder of its own: the kernel keeps each answer in reclaimable slab. They go
/// with the folder, which whoever gave it removes if the hog is killed.
pub(super) fn dentries(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    let folder = spec.folder.as_deref().ok_or(HogError::Needs {
        load: spec.load,
        what: "a folder",
    })?;
    let path = folder.join(format!("names-{}", std::process::id()));
    fs::create_dir(&path).map_err(|source| HostError::Create {
        path: path.clone(),
        source,
    })?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let outcome = rustix::fs::open(&path, flags, Mode::empty())
        .map_err(|errno| HogError::Call {
            what: "opening the folder of names",
            errno,
        })
        .and_then(|dir| look_up(&dir, spec, pacer));
    match fs::remove_dir(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(HostError::Remove { path, source }.into())
        }
        _ => outcome,
    }
}

fn look_up(dir: &OwnedFd, spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    const BATCH: u64 = 256;
    let mut number = 0u64;
    while number * DENTRY < spec.bytes {
        for next in number..number + BATCH {
            match rustix::fs::statat(dir, format!("{next:x}"), AtFlags::empty()) {
                Ok(_) | Err(Errno::NOENT) => {}
                Err(Errno::NOMEM) => return Ok(pacer.stopped(Stop::Refused)),
                Err(errno) => {
                    return Err(HogError::Call {
                        what: "looking up a name",
                        errno,
                    });
                }
            }
        }
        number += BATCH;
        if let Some(stop) = pacer.took(BATCH * DENTRY) {
            return Ok(pacer.stopped(stop));
        }
    }
    Ok(pacer.finish(spec))
}

/// Fills pipe after pipe and reads none.
pub(super) fn pipes(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    raise_limit()?;
    let contents = vec![0x3cu8; PIPE];
    let mut kept = Vec::new();
    let mut taken = 0;
    while taken < spec.bytes {
        let Some(pipe) = FullPipe::new(&contents)? else {
            return Ok(pacer.stopped(Stop::Refused));
        };
        let written = pipe.written;
        kept.push(pipe);
        taken += written;
        if let Some(stop) = pacer.took(written) {
            return Ok(pacer.stopped(stop));
        }
    }
    Ok(pacer.finish(spec))
}

/// A pipe with as much in it as it takes.
struct FullPipe {
    /// Kept open, and with them what is in between.
    _ends: (OwnedFd, OwnedFd),
    written: u64,
}

impl FullPipe {
    /// `None` when the kernel has no more to give.
    fn new(contents: &[u8]) -> Result<Option<Self>, HogError> {
        let made = rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC);
        let filled = made.and_then(|ends| {
            let written = rustix::io::write(&ends.1, contents)? as u64;
            Ok(Self {
                _ends: ends,
                written,
            })
        });
        match filled {
            Ok(pipe) => Ok(Some(pipe)),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => Ok(None),
            Err(errno) => Err(HogError::Call {
                what: "filling a pipe",
                errno,
            }),
        }
    }
}
