//! A file mapped into memory, pre-faulted and locked: what is stored in it survives our death without a system call.
#![expect(
    unsafe_code,
    reason = "a shared file mapping and atomic access to it have no safe form"
)]

use std::fs::File;
use std::io::{self, Seek, Write};
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::HostError;

/// A whole file as memory. The caller holds the lock that keeps other writers away.
#[derive(Debug)]
pub struct MappedFile {
    /// Page-aligned, so that every multiple of 8 is a whole word.
    start: NonNull<u64>,
    length: usize,
    locked: bool,
}

// SAFETY: needed to hand the mapping to the guard thread. The memory belongs to this value alone and is not bound to a
// thread; `&self` only reads, `&mut self` writes.
unsafe impl Send for MappedFile {}

impl MappedFile {
    /// Gives the file this length, with every page really there, and maps it.
    ///
    /// # Errors
    /// [`HostError::Create`] when there is no room for the pages, [`HostError::Call`] when they cannot be mapped.
    pub fn map(file: &File, path: &Path, length: usize) -> Result<Self, HostError> {
        let failed = |source: io::Error| HostError::Create {
            path: path.to_path_buf(),
            source,
        };
        reserve(file, length).map_err(failed)?;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: needed because no safe wrapper exists. The kernel chooses the address, so no other memory is touched;
        // the pages are there, so that an access can fail only if somebody truncates the file, which the lock and the
        // file's mode keep to ourselves.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                file,
                0,
            )
        };
        let failed = |errno: Errno| HostError::Call {
            what: "mapping the ledger",
            source: errno.into(),
        };
        let start = NonNull::new(mapped.map_err(failed)?.cast::<u64>())
            .ok_or_else(|| failed(Errno::FAULT))?;
        // SAFETY: needed because no safe wrapper exists. The range is exactly the mapping made above.
        let locked = unsafe { rustix::mm::mlock(start.as_ptr().cast(), length) }.is_ok();
        Ok(Self {
            start,
            length,
            locked,
        })
    }

    /// Whether the kernel promised to keep it in memory. tmpfs pages can otherwise go to swap.
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A part of it; empty when the range is not inside.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: needed to see the mapping as bytes. It is `length` initialised bytes (a file's pages always are), and
        // lives as long as `self`; writers need `&mut self`.
        let whole =
            unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<u8>(), self.length) };
        whole.get(range).unwrap_or(&[])
    }

    /// A part of it, to write to; empty when the range is not inside.
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes the borrow exclusive.
        let whole = unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr().cast::<u8>(), self.length)
        };
        whole.get_mut(range).unwrap_or(&mut [])
    }

    /// The number at an offset that is a multiple of 8: all writes before its [`MappedFile::store`] are seen.
    pub fn load(&self, offset: usize) -> u64 {
        self.word(offset)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Sets the number at an offset that is a multiple of 8, after all earlier writes.
    pub fn store(&mut self, offset: usize, value: u64) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let fits = offset.is_multiple_of(8) && offset.checked_add(8)? <= self.length;
        let address = self.start.as_ptr().wrapping_add(offset / 8);
        // SAFETY: needed for ordered access to memory that another process may read after our death. The address is
        // inside the mapping and aligned (both just checked) and lives as long as `self`; plain writes to the same bytes
        // need `&mut self` and so never run at the same time.
        fits.then(|| unsafe { AtomicU64::from_ptr(address) })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: needed because no safe wrapper exists. The range is the mapping of this value, and nothing borrows from
        // it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Makes the file's pages, so that a full /run is found out now and not by a fault in the middle of a kill.
fn reserve(mut file: &File, length: usize) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length as u64) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) => {
            let missing =
                length.saturating_sub(usize::try_from(file.metadata()?.len()).unwrap_or(length));
            file.seek(io::SeekFrom::End(0))?;
            file.write_all(&vec![0; missing])
        }
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn mapped(length: usize) -> (tempfile::NamedTempFile, MappedFile) {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        let map = MappedFile::map(file.as_file(), file.path(), length).expect("mapping");
        (file, map)
    }

    #[test]
    fn what_is_stored_is_in_the_file() {
        let (mut file, mut map) = mapped(8192);
        map.bytes_mut(100..104).copy_from_slice(b"kill");
        map.store(4096, 0x0102_0304_0506_0708);
        assert_eq!((map.len(), map.load(4096)), (8192, 0x0102_0304_0506_0708));
        let mut text = Vec::new();
        file.read_to_end(&mut text).expect("read");
        assert_eq!((text.len(), &text[100..104]), (8192, &b"kill"[..]));
        assert_eq!(text[4096..4104], 0x0102_0304_0506_0708u64.to_ne_bytes());
    }

    #[test]
    fn nothing_outside_can_be_reached() {
        let (_file, mut map) = mapped(4096);
        assert!(map.bytes(4090..4097).is_empty() && map.bytes_mut(4096..4097).is_empty());
        map.store(4, 1);
        map.store(4096, 1);
        map.store(usize::MAX - 7, 1);
        assert_eq!((map.load(4), map.load(4096), map.load(0)), (0, 0, 0));
    }
}
