//! Which parts of our own program stay in memory.
#![expect(unsafe_code, reason = "madvise has no safe wrapper")]

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use rustix::mm::Advice;

use crate::error::HostError;
use crate::hot_file::read_bytes;
use crate::scan;

/// Code within so many bytes of a function belongs to the same layer, and may be called by it: a layer's functions lie
/// together in the program, and the largest has 300 KiB.
const REACH: usize = 256 << 10;

/// Keeps of our own program what a kill needs, so that the first one does not wait for a disk to find its code; with locked
/// memory it stays. That is all constants but the tables for unwinding, which a panic alone reads, and the code around each of
/// the functions `around`. Commands, parsers and servers are several times that; what start-up has used of them is let go,
/// and comes back when it is used. Returns how many bytes were read in.
///
/// # Errors
/// [`HostError`] when our own mappings cannot be read; a kernel before 5.14 cannot read in, and 0 is returned.
pub fn prefault(root: &Path, around: &[*const ()]) -> Result<usize, HostError> {
    let maps = read_bytes(&root.join("proc/self/maps"))?;
    let program = std::env::current_exe().unwrap_or_default();
    let unwinding = unwinding(&root.join("proc/self/exe"));
    let page = rustix::param::page_size();
    let mut read = 0;
    for mapping in scan::lines(&maps).filter_map(|line| Mapping::parse(line, &program)) {
        if mapping.is_code {
            // Locked pages stay; there is nothing to be done about them.
            let _refused = advise(&mapping.whole(), Advice::LinuxDontNeed);
        }
        for part in mapping.parts((around, unwinding), page) {
            let is_read = advise(&part, Advice::LinuxPopulateRead).is_ok();
            read += if is_read { part.len() } else { 0 };
        }
    }
    Ok(read)
}

/// Reads pages in or lets them go, of a mapping that [`Mapping::parse`] has found.
fn advise(part: &Range<usize>, advice: Advice) -> rustix::io::Result<()> {
    let address = std::ptr::with_exposed_provenance_mut(part.start);
    // SAFETY: needed because no safe wrapper exists. The range lies in a file mapping of our own program that nobody writes to:
    // what is let go is the same when it is read again, and the address is used for nothing else.
    unsafe { rustix::mm::madvise(address, part.len(), advice) }
}

/// A readable mapping of a file.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    length: usize,
    /// Where in the file it begins.
    offset: usize,
    is_code: bool,
}

impl Mapping {
    /// Understands a line of maps, if it is of that file: `55d0-55e0 r-xp 00001000 08:01 1234 /usr/bin/brink`.
    fn parse(line: &[u8], file: &Path) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let offset = number(words.next()?)?;
        let path = words.nth(2)?;
        let (start, end) = (number(start)?, number(end)?);
        let length = end.checked_sub(start)?;
        (rights.starts_with('r') && Path::new(path) == file).then_some(Self {
            start,
            length,
            offset,
            is_code: rights.contains('x'),
        })
    }

    const fn whole(&self) -> Range<usize> {
        self.start..self.start + self.length
    }

    /// What of it is read in: of code whole pages within [`REACH`] of a function, of constants those before the tables for
    /// unwinding, which begin there in the file. Parts may overlap.
    fn parts(
        &self,
        (around, unwinding): (&[*const ()], Option<usize>),
        page: usize,
    ) -> Vec<Range<usize>> {
        let whole = self.whole();
        if !self.is_code {
            let before = unwinding.and_then(|tables| tables.checked_sub(self.offset));
            let before = before.map_or(self.length, |before| before.next_multiple_of(page));
            return std::iter::once(self.start..self.start + before.min(self.length)).collect();
        }
        let near = |function: &*const ()| {
            let address = function.addr();
            let first = (address.saturating_sub(REACH) / page * page).max(whole.start);
            let last = (address.saturating_add(REACH) / page * page).min(whole.end);
            whole.contains(&address).then_some(first..last)
        };
        around.iter().filter_map(near).collect()
    }
}

/// Where in the file of a program the tables for unwinding begin, which linkers put behind all other constants; none where the
/// file says nothing of them.
fn unwinding(program: &Path) -> Option<usize> {
    /// All program headers of any program are within so many bytes.
    const HEADERS: u64 = 4096;
    let mut bytes = Vec::new();
    let file = File::open(program).ok()?;
    file.take(HEADERS).read_to_end(&mut bytes).ok()?;
    unwinding_by(&bytes)
}

/// The same by the first bytes of a file: a 64-bit ELF of our own byte order, after the System V ABI.
fn unwinding_by(file: &[u8]) -> Option<usize> {
    const KIND: u32 = 0x6474_e550; // PT_GNU_EH_FRAME
    let half = |at: usize| Some(u16::from_ne_bytes(*file.get(at..)?.first_chunk()?).into());
    let word =
        |at: usize| usize::try_from(u64::from_ne_bytes(*file.get(at..)?.first_chunk()?)).ok();
    if !file.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let (first, size, count): (usize, usize, usize) = (word(32)?, half(54)?, half(56)?);
    let mut headers = (0..count).map_while(|index| first.checked_add(index * size));
    let is_it = |at: &usize| {
        file.get(*at..)
            .is_some_and(|rest| rest.starts_with(&KIND.to_ne_bytes()))
    };
    word(headers.find(is_it)?.checked_add(8)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_the_program_are_read_in() {
        let program = Path::new("/usr/bin/brink");
        let line = |text: &str| Mapping::parse(text.as_bytes(), program);
        assert_eq!(
            line("1000-3000 r-xp 00005000 08:01 1234    /usr/bin/brink"),
            Some(Mapping {
                start: 0x1000,
                length: 0x2000,
                offset: 0x5000,
                is_code: true
            })
        );
        for other in [
            "1000-3000 ---p 00001000 08:01 1234 /usr/bin/brink",
            "1000-3000 r-xp 00001000 08:01 1234 /usr/lib/libc.so.6",
            "1000-3000 rw-p 00000000 00:00 0",
            "3000-1000 r-xp 00001000 08:01 1234 /usr/bin/brink",
            "",
        ] {
            assert_eq!(line(other), None, "{other:?}");
        }
    }

    const MIB: usize = 1 << 20;

    const fn mapping(is_code: bool) -> Mapping {
        Mapping {
            start: MIB,
            length: 4 * MIB,
            offset: 2 * MIB,
            is_code,
        }
    }

    #[test]
    fn of_code_what_lies_near_a_function_is_read_in() {
        let at = |address: usize| std::ptr::without_provenance::<()>(address);
        let around = [at(MIB + 5), at(3 * MIB + 5), at(9 * MIB)];
        assert_eq!(
            mapping(true).parts((&around, Some(3 * MIB)), 4096),
            [MIB..MIB + REACH, 3 * MIB - REACH..3 * MIB + REACH]
        );
        let own = [prefault as *const ()];
        let whole = prefault(Path::new("/"), &own).expect("our own mappings");
        let constants = prefault(Path::new("/"), &[]).expect("our own mappings");
        assert!(whole > constants && constants > 0, "{whole} {constants}");
    }

    #[test]
    fn of_constants_what_lies_before_the_tables_for_unwinding_is_read_in() {
        for (tables, last) in [
            (None, 5 * MIB),
            // In the mapping, which begins 2 MiB into the file.
            (Some(3 * MIB + 5), 2 * MIB + 4096),
            // Before it, and behind it: of another one.
            (Some(MIB), 5 * MIB),
            (Some(9 * MIB), 5 * MIB),
        ] {
            let parts = mapping(false).parts((&[], tables), 4096);
            assert_eq!(parts.first(), Some(&(MIB..last)), "{tables:?}");
        }
    }

    #[test]
    fn where_unwinding_begins_is_found_in_our_own_program() {
        let tables = unwinding(Path::new("/proc/self/exe")).expect("a test has tables");
        let length = std::fs::metadata("/proc/self/exe").expect("there").len();
        assert!(tables > 0 && (tables as u64) < length, "{tables} {length}");
        for damaged in [
            &b""[..],
            b"\x7fELF",
            b"\x7fELF\x02",
            b"#!/bin/sh",
            &[0xff; 4096],
        ] {
            assert_eq!(unwinding_by(damaged), None, "{damaged:?}");
        }
    }
}
