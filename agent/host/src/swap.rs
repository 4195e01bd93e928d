//! /proc/swaps: how much swap there is, how much is free, and which of it is memory again (zram).

use std::path::{Path, PathBuf};

use crate::error::{HostError, HotError};
use crate::hot_file::read_bytes;
use crate::scan;

/// One swap area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapArea {
    /// The device or file.
    pub path: PathBuf,
    /// Size, bytes.
    pub total: u64,
    /// In use, bytes.
    pub used: u64,
    /// Higher is used first.
    pub priority: i64,
}

impl SwapArea {
    /// Whether the area is compressed memory: swapping to it frees less than it takes.
    pub fn is_zram(&self) -> bool {
        self.path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("zram"))
    }

    /// What can still be written to it, bytes.
    pub fn free(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }
}

/// All swap areas, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swaps {
    /// Empty when the machine has no swap.
    pub areas: Vec<SwapArea>,
}

impl Swaps {
    /// Reads `proc/swaps` under a root. A kernel without swap has no such file: no areas.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn read(root: &Path) -> Result<Self, HostError> {
        let path = root.join("proc/swaps");
        match read_bytes(&path) {
            Ok(text) => Self::parse(&text).map_err(|error| error.at(&path)),
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Understands the text of /proc/swaps: a header, then one area a line, sizes in KiB.
    ///
    /// # Errors
    /// [`HotError::Malformed`] when a line is not an area.
    pub fn parse(text: &[u8]) -> Result<Self, HotError> {
        let areas = scan::lines(text)
            .skip(1)
            .map(|line| area(line).ok_or(HotError::Malformed("swap area")));
        Ok(Self {
            areas: areas.collect::<Result<_, _>>()?,
        })
    }

    /// Size of all areas, bytes.
    pub fn total(&self) -> u64 {
        self.areas
            .iter()
            .fold(0, |sum, area| sum.saturating_add(area.total))
    }

    /// Free in all areas, bytes.
    pub fn free(&self) -> u64 {
        self.areas
            .iter()
            .fold(0, |sum, area| sum.saturating_add(area.free()))
    }

    /// Free in the areas that are not zram, bytes.
    pub fn free_outside_memory(&self) -> u64 {
        let real = self.areas.iter().filter(|area| !area.is_zram());
        real.fold(0, |sum, area| sum.saturating_add(area.free()))
    }
}

/// `/dev/dm-1  partition  1000444  0  -2`; the path escapes blanks, and a removed file has ` (deleted)` glued on as `\040`.
fn area(line: &[u8]) -> Option<SwapArea> {
    use std::os::unix::ffi::OsStringExt;

    let mut words = scan::words(line);
    let path = std::ffi::OsString::from_vec(scan::unescape_octal(words.next()?));
    let _kind = words.next()?;
    let total = scan::number(words.next()?)?.checked_mul(1024)?;
    let used = scan::number(words.next()?)?.checked_mul(1024)?;
    let priority = scan::signed_number(words.next()?)?;
    Some(SwapArea {
        path: path.into(),
        total,
        used,
        priority,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AREAS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/zram0                              partition\t1024\t\t1000\t\t100
/swap\\040file                           file\t\t2048\t\t48\t\t-2
";

    #[test]
    fn zram_is_told_from_real_swap() {
        let swaps = Swaps::parse(AREAS.as_bytes()).expect("a real file");
        assert_eq!(swaps.areas[1].path, Path::new("/swap file"));
        assert_eq!(
            swaps
                .areas
                .iter()
                .map(SwapArea::is_zram)
                .collect::<Vec<_>>(),
            [true, false]
        );
        assert_eq!(swaps.total(), 3072 * 1024);
        assert_eq!(swaps.free(), 2024 * 1024);
        assert_eq!(swaps.free_outside_memory(), 2000 * 1024);
        assert_eq!(swaps.areas[1].priority, -2);
    }

    #[test]
    fn no_swap_is_no_area_and_a_broken_line_is_an_error() {
        assert_eq!(Swaps::parse(b"Filename\tType\n"), Ok(Swaps::default()));
        assert_eq!(Swaps::parse(b"").expect("empty").total(), 0);
        assert_eq!(
            Swaps::parse(b"Filename\n/dev/sda1 partition x 0 -2\n"),
            Err(HotError::Malformed("swap area"))
        );
        let empty = tempfile::tempdir().expect("temporary folder");
        assert_eq!(
            Swaps::read(empty.path()).expect("a kernel without swap"),
            Swaps::default()
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..500)) {
            let _ = Swaps::parse(&text);
        }
    }
}
