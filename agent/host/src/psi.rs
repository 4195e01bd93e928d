//! Pressure stall information of the node and of a cgroup: how much time tasks lost waiting for memory.
//!
//! Pressure confirms a decision; it never takes one alone.

use std::path::Path;

use crate::error::{HostError, HotError};
use crate::hot_file::HotFile;
use crate::scan;

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stall {
    /// Share of the last 10 s, hundredths of a percent (0 to 10 000).
    pub avg10: u32,
    /// Share of the last 60 s, hundredths of a percent.
    pub avg60: u32,
    /// Share of the last 300 s, hundredths of a percent.
    pub avg300: u32,
    /// All time lost since boot, microseconds.
    pub total_us: u64,
}

/// A pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Stall,
    /// All tasks that could have run waited. `cpu` has none on kernels before 5.13.
    pub full: Option<Stall>,
}

impl Pressure {
    /// Understands the text of a pressure file.
    ///
    /// # Errors
    /// [`HotError::Missing`] without a `some` line, [`HotError::Malformed`] when a line is not understood.
    pub fn parse(text: &[u8]) -> Result<Self, HotError> {
        let (mut some, mut full) = (None, None);
        for line in scan::lines(text) {
            let slot = match scan::words(line).next() {
                Some(b"some") => &mut some,
                Some(b"full") => &mut full,
                _ => continue,
            };
            *slot = Some(stall(line).ok_or(HotError::Malformed("pressure line"))?);
        }
        Ok(Self {
            some: some.ok_or(HotError::Missing("some"))?,
            full,
        })
    }
}

/// A pressure file held open.
#[derive(Debug)]
pub struct PressureReader {
    file: HotFile,
}

impl PressureReader {
    /// Opens the node's `proc/pressure/<resource>` (`memory`, `io`, `cpu`) under a root.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] when the kernel was built or booted without pressure accounting.
    pub fn node(root: &Path, resource: &str) -> Result<Self, HostError> {
        Self::open(&root.join("proc/pressure").join(resource))
    }

    /// Opens a cgroup's `memory.pressure` or the like.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] when the kernel was built or booted without pressure accounting.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let absent = |error: HostError| match error.errno() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) => HostError::Unsupported {
                what: "pressure stall information",
                why: format!(
                    "{}: the kernel has CONFIG_PSI off, or psi=1 is not on its command line",
                    path.display()
                ),
            },
            _ => error,
        };
        let reader = Self {
            file: HotFile::open(path).map_err(absent)?,
        };
        // With psi=0 the files of /proc/pressure exist and refuse to be read.
        reader.read().map_err(|error| absent(error.at(path)))?;
        Ok(reader)
    }

    /// Reads the pressure now. Allocates nothing.
    ///
    /// # Errors
    /// What the read or [`Pressure::parse`] fails with.
    pub fn read(&self) -> Result<Pressure, HotError> {
        let mut buffer = [0; 512];
        Pressure::parse(self.file.read_record(&mut buffer)?)
    }
}

/// `some avg10=0.12 avg60=0.00 avg300=0.00 total=1234`
fn stall(line: &[u8]) -> Option<Stall> {
    let mut stall = Stall::default();
    let mut found = 0u8;
    for word in scan::words(line).skip(1) {
        let equals = word.iter().position(|byte| *byte == b'=')?;
        let value = &word[equals + 1..];
        match &word[..equals] {
            b"avg10" => stall.avg10 = hundredths(value)?,
            b"avg60" => stall.avg60 = hundredths(value)?,
            b"avg300" => stall.avg300 = hundredths(value)?,
            b"total" => stall.total_us = scan::number(value)?,
            _ => continue,
        }
        found += 1;
    }
    (found == 4).then_some(stall)
}

/// `12.34` as 1234; the kernel always prints two decimals.
fn hundredths(value: &[u8]) -> Option<u32> {
    let (whole, cents) = value.split_at_checked(value.len().checked_sub(3)?)?;
    let cents = scan::number(cents.strip_prefix(b".")?)?;
    u32::try_from(scan::number(whole)?.checked_mul(100)?.checked_add(cents)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pressure_file_is_read() {
        let text = b"some avg10=12.34 avg60=0.05 avg300=100.00 total=987654321\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=7\n";
        let pressure = Pressure::parse(text).expect("a real file");
        let some = Stall {
            avg10: 1234,
            avg60: 5,
            avg300: 10_000,
            total_us: 987_654_321,
        };
        assert_eq!(pressure.some, some);
        assert_eq!(
            pressure.full.map(|full| (full.avg10, full.total_us)),
            Some((100, 7))
        );
    }

    #[test]
    fn half_a_line_is_no_pressure() {
        fn check(text: &str, expected: HotError) {
            assert_eq!(Pressure::parse(text.as_bytes()), Err(expected), "{text:?}");
        }
        check("", HotError::Missing("some"));
        check(
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=0",
            HotError::Missing("some"),
        );
        check(
            "some avg10=0.00 avg60=0.00 total=0",
            HotError::Malformed("pressure line"),
        );
        check(
            "some avg10=0.0 avg60=0.00 avg300=0.00 total=0",
            HotError::Malformed("pressure line"),
        );
        check(
            "some avg10=0,00 avg60=0.00 avg300=0.00 total=0",
            HotError::Malformed("pressure line"),
        );
    }

    #[test]
    fn a_kernel_without_pressure_says_so() {
        let empty = tempfile::tempdir().expect("temporary folder");
        let error = PressureReader::node(empty.path(), "memory").expect_err("no such file");
        assert!(matches!(error, HostError::Unsupported { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Pressure::parse(&text);
        }

        #[test]
        fn every_share_is_read_back(whole in 0u32..=100, cents in 0u32..100) {
            let value = format!("{whole}.{cents:02}");
            prop_assert_eq!(hundredths(value.as_bytes()), Some(whole * 100 + cents));
        }
    }
}
