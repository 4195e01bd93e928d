//! Names of kernel functions, from `/proc/kallsyms`, for the few addresses of a stack.
//!
//! The file has some hundred thousand lines and takes the kernel tens of milliseconds to write, so it is streamed past the
//! addresses that are asked for, and what was found is kept. For a thread that may wait.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::scan::words;

/// Addresses whose names are kept: stacks differ little from each other.
const KEPT: usize = 4096;
/// Farther behind its start no function reaches: what is farther is in none that is listed.
const LONGEST: u64 = 1 << 18;
/// Longest name that is kept, in bytes.
const LONGEST_NAME: usize = 256;

/// Why no names are known.
#[derive(Debug, Error)]
pub enum SymbolError {
    /// the file cannot be read
    #[error("{path}: {error}")]
    File {
        /// which
        path: PathBuf,
        /// why
        error: std::io::Error,
    },
    /// the kernel hides its addresses from us (`kernel.kptr_restrict`)
    #[error("{path}: the kernel hides its addresses")]
    Hidden {
        /// which
        path: PathBuf,
    },
}

/// Where an address is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// the function
    pub name: String,
    /// bytes behind its start
    pub offset: u64,
    /// the module it is in
    pub module: Option<String>,
}

impl std::fmt::Display for Symbol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{:#x}", self.name, self.offset)?;
        match &self.module {
            Some(module) => write!(f, " [{module}]"),
            None => Ok(()),
        }
    }
}

/// Names of kernel functions, found as they are asked for.
#[derive(Debug)]
pub struct KernelSymbols {
    path: PathBuf,
    kept: HashMap<u64, Option<Symbol>>,
}

impl KernelSymbols {
    /// Reads nothing yet. `path` is `/proc/kallsyms`.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            kept: HashMap::new(),
        }
    }

    /// The function of each return address, in their order; none where no function is listed. Streams the file once if
    /// one of them was not asked for before.
    ///
    /// # Errors
    /// [`SymbolError`] when the file cannot be read or hides its addresses.
    pub fn find(&mut self, addresses: &[u64]) -> Result<Vec<Option<Symbol>>, SymbolError> {
        let is_new = |address: &&u64| !self.kept.contains_key(address);
        let mut missing: Vec<u64> = addresses.iter().filter(is_new).copied().collect();
        if !missing.is_empty() {
            missing.sort_unstable();
            missing.dedup();
            let failed = |error| SymbolError::File {
                path: self.path.clone(),
                error,
            };
            let file = BufReader::new(File::open(&self.path).map_err(failed)?);
            let found = look_up(file, &missing).map_err(failed)?;
            let Some(found) = found else {
                return Err(SymbolError::Hidden {
                    path: self.path.clone(),
                });
            };
            if self.kept.len() + found.len() > KEPT {
                self.kept.clear();
            }
            self.kept.extend(missing.into_iter().zip(found));
        }
        let known = |address| self.kept.get(address).cloned().flatten();
        Ok(addresses.iter().map(known).collect())
    }

    /// A stack as text, innermost first: functions with offsets, and `?` where none is listed, for where the kernel's text lies is
    /// nobody's to know. The frames of our own program, which a stack taken by it begins with, are left out.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn stack(&mut self, addresses: &[u64]) -> Result<Vec<String>, SymbolError> {
        let found = self.find(addresses)?;
        let own = own_frames(&found);
        let text = found.iter().skip(own).map(|symbol| match symbol {
            Some(symbol) => symbol.to_string(),
            None => "?".to_owned(),
        });
        Ok(text.collect())
    }
}

/// How many frames at the inner end are the program's and those of the hook it is called from.
fn own_frames(stack: &[Option<Symbol>]) -> usize {
    /// A program and its hook take fewer.
    const MOST: usize = 8;
    let is_hook = |symbol: &Option<Symbol>| {
        symbol.as_ref().is_some_and(|symbol| {
            ["bpf_", "__bpf_", "__traceiter_"]
                .iter()
                .any(|start| symbol.name.starts_with(start))
        })
    };
    let inner = stack.iter().take(MOST);
    inner
        .rev()
        .position(is_hook)
        .map_or(0, |outside| stack.len().min(MOST) - outside)
}

/// The function of each return address of a sorted list, from lines such as `ffffffff81000000 T name [module]`. None when
/// the lines have no addresses.
///
/// # Errors
/// As reading does.
pub fn look_up(
    mut lines: impl BufRead,
    sorted: &[u64],
) -> std::io::Result<Option<Vec<Option<Symbol>>>> {
    // For each address the nearest function that starts between it and the one before.
    let mut nearest: Vec<Option<Listed>> = vec![None; sorted.len()];
    let mut line = Vec::new();
    let mut has_addresses = false;
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Some(listed) = function(&line) else {
            continue;
        };
        let start = listed.start;
        has_addresses |= start != 0;
        // A return address is behind the call: one at the start of a function belongs to the one before.
        let at = sorted.partition_point(|address| *address <= start);
        let Some(place) = nearest.get_mut(at) else {
            continue;
        };
        let is_near = sorted
            .get(at)
            .is_some_and(|address| address - start <= LONGEST);
        if is_near && place.as_ref().is_none_or(|held| held.start < start) {
            *place = Some(listed);
        }
    }
    if !has_addresses {
        return Ok(None);
    }
    let mut last: Option<Listed> = None;
    let found = sorted.iter().zip(nearest).map(|(address, place)| {
        last = place.or_else(|| last.take());
        let listed = last.as_ref()?;
        let offset = address.checked_sub(listed.start)?;
        (offset <= LONGEST).then(|| Symbol {
            name: listed.name.clone(),
            offset,
            module: listed.module.clone(),
        })
    });
    Ok(Some(found.collect()))
}

/// A function of the list.
#[derive(Clone, Debug)]
struct Listed {
    start: u64,
    name: String,
    module: Option<String>,
}

/// The function of a line; none for data and for what is no such line.
fn function(line: &[u8]) -> Option<Listed> {
    let mut words = words(line);
    let start = std::str::from_utf8(words.next()?).ok()?;
    let start = u64::from_str_radix(start, 16).ok()?;
    if !matches!(words.next()?, b"t" | b"T" | b"w" | b"W") {
        return None;
    }
    let text = |bytes: &[u8]| {
        let bytes = bytes.get(..LONGEST_NAME).unwrap_or(bytes);
        String::from_utf8_lossy(bytes).into_owned()
    };
    let name = text(words.next()?);
    let module = words.next().and_then(|word| {
        let inside = word.strip_prefix(b"[")?.strip_suffix(b"]")?;
        Some(text(inside))
    });
    Some(Listed {
        start,
        name,
        module,
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
ffffffff81001000 T out_of_memory
ffffffff81002000 t oom_kill_process
ffffffff81003000 D oom_lock
ffffffff81003000 t bpf_trace_run2
ffffffffc0001000 t fill [hog]
ffffffffc0001000 bad line
nonsense
";

    fn names(addresses: &[u64]) -> Vec<String> {
        let found = look_up(TEXT.as_bytes(), addresses).unwrap().unwrap();
        let text = |symbol: Option<Symbol>| symbol.map_or("-".to_owned(), |s| s.to_string());
        found.into_iter().map(text).collect()
    }

    #[test]
    fn an_address_is_in_the_function_that_starts_before_it() {
        assert_eq!(
            names(&[
                0x1000,
                0xffff_ffff_8100_1000,
                0xffff_ffff_8100_1fff,
                // The function ends by a call: the address it would return to is that of the next one.
                0xffff_ffff_8100_2000,
                0xffff_ffff_8100_2001,
                0xffff_ffff_8100_3010,
                0xffff_ffff_9100_3010,
                0xffff_ffff_c000_1001,
            ]),
            [
                "-",
                "-",
                "out_of_memory+0xfff",
                "out_of_memory+0x1000",
                "oom_kill_process+0x1",
                "bpf_trace_run2+0x10",
                "-",
                "fill+0x1 [hog]",
            ]
        );
    }

    #[test]
    fn hidden_addresses_are_told_from_unknown_ones() {
        let hidden = "0000000000000000 T out_of_memory\n";
        assert_eq!(look_up(hidden.as_bytes(), &[5]).unwrap(), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kallsyms");
        std::fs::write(&path, hidden).unwrap();
        let error = KernelSymbols::new(&path).find(&[5]).unwrap_err();
        assert!(matches!(error, SymbolError::Hidden { .. }), "{error}");
        let error = KernelSymbols::new(&folder.path().join("no")).find(&[5]);
        assert!(matches!(error, Err(SymbolError::File { .. })), "{error:?}");
    }

    #[test]
    fn the_file_is_read_for_new_addresses_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kallsyms");
        std::fs::write(&path, TEXT).unwrap();
        let mut symbols = KernelSymbols::new(&path);
        let (known, unknown) = (0xffff_ffff_8100_1004, 0x77);
        let first = symbols.find(&[known, unknown, known]).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(symbols.find(&[known, unknown, known]).unwrap(), first);
        assert_eq!(first[0].as_ref().unwrap().to_string(), "out_of_memory+0x4");
        assert!(symbols.find(&[known + 1]).is_err());
        assert_eq!(symbols.find(&[]).unwrap(), []);
    }

    #[test]
    fn a_stack_begins_outside_our_own_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kallsyms");
        std::fs::write(&path, TEXT).unwrap();
        let mut symbols = KernelSymbols::new(&path);
        let (program, hook) = (0xffff_ffff_a000_0000, 0xffff_ffff_8100_3010);
        let (kill, oom) = (0xffff_ffff_8100_2001, 0xffff_ffff_8100_1fff);
        let expected = ["oom_kill_process+0x1", "out_of_memory+0xfff"];
        assert_eq!(
            symbols.stack(&[program, hook, kill, oom]).unwrap(),
            expected
        );
        assert_eq!(symbols.stack(&[kill, oom]).unwrap(), expected);
        assert_eq!(symbols.stack(&[0x10]).unwrap(), ["?"]);
        assert_eq!(symbols.stack(&[]).unwrap(), Vec::<String>::new());
    }

    proptest! {
        /// Each address has the greatest start below it, whatever the order of the lines.
        #[test]
        fn the_nearest_start_wins(
            starts in proptest::collection::vec(1u64..3_000_000, 1..40),
            mut asked in proptest::collection::vec(1u64..3_000_000, 0..20),
        ) {
            let mut text = String::new();
            for start in &starts {
                writeln!(text, "{start:x} t at_{start}").unwrap();
            }
            asked.sort_unstable();
            asked.dedup();
            let found = look_up(text.as_bytes(), &asked).unwrap().unwrap();
            for (address, symbol) in asked.iter().zip(found) {
                let nearest = starts.iter().filter(|start| *start < address).max();
                let expected = nearest.filter(|start| address - *start <= LONGEST).map(|start| Symbol {
                    name: format!("at_{start}"),
                    offset: address - start,
                    module: None,
                });
                prop_assert_eq!(symbol, expected);
            }
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = look_up(bytes.as_slice(), &[1, 2, u64::MAX]);
        }
    }
}
