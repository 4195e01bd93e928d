//! Loads that are page cache. The file has no name once it is open, so that it goes with the process however that ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::error::HostError;
use crate::hog::HogError;
use crate::hog::pace::{Pacer, Stop};
use crate::hog::spec::{HogSpec, Load};

const STEP: usize = 256 << 10;

/// Reads a file of nothing but holes (the kernel makes a page of zeroes for each), or writes one; once, or until the
/// deadline.
pub(super) fn page_cache(spec: &HogSpec, pacer: &mut Pacer) -> Result<Stop, HogError> {
    let (file, path) = nameless(spec)?;
    let failed = |source: io::Error| {
        HogError::Host(HostError::Read {
            path: path.clone(),
            source,
        })
    };
    let reads = matches!(spec.load, Load::CacheRead | Load::CacheChurn);
    let again = matches!(spec.load, Load::CacheChurn | Load::CacheWriteChurn) && spec.bytes > 0;
    if reads {
        file.set_len(spec.bytes).map_err(failed)?;
    }
    let mut contents = vec![0x5au8; STEP];
    let mut at = 0;
    while at < spec.bytes {
        let amount = usize::try_from(spec.bytes - at).unwrap_or(STEP).min(STEP);
        let part = &mut contents[..amount];
        let done = if reads {
            file.read_exact_at(part, at)
        } else {
            file.write_all_at(part, at)
        };
        done.map_err(failed)?;
        at += amount as u64;
        if again && at == spec.bytes {
            at = 0;
        }
        if let Some(stop) = pacer.took(amount as u64) {
            return Ok(pacer.stopped(stop));
        }
    }
    Ok(pacer.finish(spec))
}

/// A new file in the load's folder that is gone from it already, and where it was.
pub(super) fn nameless(spec: &HogSpec) -> Result<(File, PathBuf), HogError> {
    let folder = spec.folder.as_deref().ok_or(HogError::Needs {
        load: spec.load,
        what: "a folder",
    })?;
    let path = folder.join(format!("hog-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path).map_err(|source| HostError::Create {
        path: path.clone(),
        source,
    })?;
    fs::remove_file(&path).map_err(|source| HostError::Remove {
        path: path.clone(),
        source,
    })?;
    Ok((file, path))
}
