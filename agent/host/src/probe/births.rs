//! Who forked whom lately, as the kernel programs keep it, for whoever looks for the root of a fork bomb.

use aya::Ebpf;
use aya::maps::{Array, MapData};
use brink_abi::births::{BIRTHS, Birth, BirthPage, PAGES};

use super::coverage::Coverage;
use super::error::ProbeError;
use super::load::take;
use super::pod::Pod;
use super::skipped::Handles;

/// The program that writes them.
const PROGRAM: &str = "birth";
/// The program that takes processes out of the counts.
const ENDING: &str = "exit";
const MAP: &str = "BIRTHS";

/// The reading end of the ring. A reading takes one look-up a page.
pub struct BirthReader {
    pages: Array<MapData, Pod<BirthPage>>,
    handles: Handles,
    /// Whether the programs see ends at all; where they do not, nobody counts processes by them.
    sees_ends: bool,
}

/// The newest births.
#[derive(Clone, Debug, Default)]
pub struct Births {
    /// Oldest first.
    pub births: Vec<Birth>,
    /// Older ones have been overwritten.
    pub is_cut: bool,
    /// The kernel has left the program out at some birth since it was loaded: a parent may be missing between two that are here.
    pub has_gaps: bool,
    /// The kernel has left the program out that sees ends: of a workload's processes, as the programs count them, some may have
    /// ended.
    pub has_unseen_ends: bool,
}

impl BirthReader {
    pub(super) fn take(object: &mut Ebpf, coverage: &Coverage) -> Result<Option<Self>, ProbeError> {
        if !coverage.has(PROGRAM) {
            return Ok(None);
        }
        let handles = Handles::of(object, coverage, |name| [PROGRAM, ENDING].contains(&name));
        let pages = take(object, MAP)?;
        Ok(Some(Self {
            pages,
            handles,
            sees_ends: coverage.has(ENDING),
        }))
    }

    /// Whether the kernel may have left a program out. Where it does not tell, it may have.
    fn may_lack(&self, program: &str) -> bool {
        let mut skipped = self.handles.skipped(|name| name == program);
        skipped.next().is_none_or(|(_, count)| count > 0)
    }

    /// All that are kept. One that is written meanwhile may be left out.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when the map cannot be read.
    pub fn read(&self) -> Result<Births, ProbeError> {
        let failed = |error| ProbeError::Map { name: MAP, error };
        let mut births: Vec<Birth> = Vec::with_capacity(BIRTHS);
        for index in 0..PAGES {
            let Pod(page) = self.pages.get(&index, 0).map_err(failed)?;
            births.extend(page.births.iter().filter(|birth| birth.at_ns != 0));
        }
        births.sort_unstable_by_key(|birth| birth.at_ns);
        Ok(Births {
            // A few may be under way on other processors.
            is_cut: births.len() >= BIRTHS - BIRTHS / 16,
            has_gaps: self.may_lack(PROGRAM),
            has_unseen_ends: self.sees_ends && self.may_lack(ENDING),
            births,
        })
    }
}
