//! /proc/zoneinfo: what each zone keeps back from user allocations, summed over all memory nodes.

use std::path::Path;

use crate::error::{HostError, HotError};
use crate::hot_file::read_bytes;
use crate::scan;

/// One zone of one memory node, in pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// The memory node, as numbered by the kernel.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable`, …
    pub name: String,
    /// Free pages.
    pub free: u64,
    /// The watermark below which only the kernel's reserves serve, any boost included.
    pub min: u64,
    /// What of each watermark is a boost: the kernel adds it when a request of one kind had to be served from the blocks
    /// of another, and takes it back as soon as kswapd has looked, whether that found anything to reclaim or not. 0 before
    /// Linux 5.16, which does not tell it apart: [`ZoneTotals::without_boost_since`].
    pub boost: u64,
    /// The watermark that wakes kswapd.
    pub low: u64,
    /// The watermark at which kswapd sleeps.
    pub high: u64,
    /// Pages the allocator manages.
    pub managed: u64,
    /// What this zone keeps back from user allocations, which may use every zone above it: the last (and
    /// largest) value of `protection`.
    pub protection: u64,
    /// Free pages that CPUs hold in lists of their own, which are not in `free`. The kernel takes them back before it
    /// kills anybody.
    pub on_cpus: u64,
}

/// The sums over all zones of all nodes, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneTotals {
    /// Free pages.
    pub free: u64,
    /// Pages the allocator manages.
    pub managed: u64,
    /// Σ min watermarks, as the other two without any boost: nobody has to die for what is taken back by itself.
    pub min: u64,
    /// Σ low watermarks.
    pub low: u64,
    /// Σ high watermarks.
    pub high: u64,
    /// Σ max(0, free − min − protection): what user processes can be given without reclaim.
    pub usable: u64,
    /// Σ min(managed, min + protection): what user processes are never given.
    pub reserved: u64,
    /// Σ what zones lack of the pages they never give: free pages of other zones do not fill it, so
    /// `usable` is `free − reserved + lacking`.
    pub lacking: u64,
    /// Σ free pages in lists of CPUs, which are not in `free`.
    pub on_cpus: u64,
}

impl ZoneTotals {
    /// These totals with the reserve of an earlier reading where all that has risen since is a boost. Linux tells boosts
    /// apart since 5.16; before, each watermark of a zone has it in it, and so their distance stays what it was.
    #[must_use]
    pub const fn without_boost_since(self, before: &Self) -> Self {
        let is_as_far = self.low.saturating_sub(self.min) == before.low.saturating_sub(before.min);
        if !is_as_far || before.min == 0 || self.min <= before.min {
            return self;
        }
        Self {
            min: before.min,
            reserved: before.reserved,
            ..self
        }
    }
}

/// All zones that have pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Zoneinfo {
    /// In the order of the file.
    pub zones: Vec<Zone>,
}

impl Zoneinfo {
    /// Reads `proc/zoneinfo` under a root. 20 µs and more: for arming and cross-checks.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn read(root: &Path) -> Result<Self, HostError> {
        let path = root.join("proc/zoneinfo");
        Self::parse(&read_bytes(&path)?).map_err(|error| error.at(&path))
    }

    /// Understands the text of /proc/zoneinfo.
    ///
    /// # Errors
    /// [`HotError::Missing`] when there is no zone at all or a zone lacks a watermark, [`HotError::Malformed`] otherwise.
    pub fn parse(text: &[u8]) -> Result<Self, HotError> {
        let mut zones = Vec::new();
        let mut draft: Option<Draft> = None;
        for line in scan::lines(text) {
            if let Some(header) = line.strip_prefix(b"Node ") {
                zones.extend(draft.take().map(Draft::checked).transpose()?);
                draft = Some(Draft::new(header)?);
            } else if let Some(draft) = &mut draft {
                draft.take(line)?;
            }
        }
        zones.extend(draft.map(Draft::checked).transpose()?);
        if zones.is_empty() {
            return Err(HotError::Missing("Node"));
        }
        // A zone without memory is printed without its counters on old kernels and with zeroes on new ones.
        zones.retain(|zone| zone.managed > 0);
        Ok(Self { zones })
    }

    /// The sums over all zones of all nodes.
    pub fn totals(&self) -> ZoneTotals {
        self.zones.iter().fold(ZoneTotals::default(), |sum, zone| {
            let steady = |watermark: u64| watermark.saturating_sub(zone.boost);
            let kept = steady(zone.min).saturating_add(zone.protection);
            let reserved = kept.min(zone.managed);
            ZoneTotals {
                free: sum.free.saturating_add(zone.free),
                managed: sum.managed.saturating_add(zone.managed),
                min: sum.min.saturating_add(steady(zone.min)),
                low: sum.low.saturating_add(steady(zone.low)),
                high: sum.high.saturating_add(steady(zone.high)),
                usable: sum.usable.saturating_add(zone.free.saturating_sub(kept)),
                reserved: sum.reserved.saturating_add(reserved),
                lacking: sum
                    .lacking
                    .saturating_add(reserved.saturating_sub(zone.free)),
                on_cpus: sum.on_cpus.saturating_add(zone.on_cpus),
            }
        })
    }

    /// The memory nodes that have memory, in ascending order.
    pub fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.zones.iter().map(|zone| zone.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// A zone while its lines come in.
struct Draft {
    node: u32,
    name: String,
    free: Option<u64>,
    min: Option<u64>,
    low: Option<u64>,
    high: Option<u64>,
    boost: Option<u64>,
    managed: Option<u64>,
    protection: Option<u64>,
    on_cpus: u64,
}

impl Draft {
    /// From what follows `Node `: `0, zone   Normal`.
    fn new(header: &[u8]) -> Result<Self, HotError> {
        let malformed = HotError::Malformed("Node");
        let mut words = scan::words(header);
        let node = words
            .next()
            .and_then(|word| word.strip_suffix(b","))
            .and_then(scan::number);
        let node = node
            .and_then(|node| u32::try_from(node).ok())
            .ok_or(malformed)?;
        let (Some(b"zone"), Some(name)) = (words.next(), words.next()) else {
            return Err(malformed);
        };
        let name = String::from_utf8_lossy(name).into_owned();
        Ok(Self {
            node,
            name,
            free: None,
            min: None,
            low: None,
            high: None,
            boost: None,
            managed: None,
            protection: None,
            on_cpus: 0,
        })
    }

    fn take(&mut self, line: &[u8]) -> Result<(), HotError> {
        let mut words = scan::words(line);
        let (first, second) = (words.next(), words.next());
        let (slot, value, name) = match (first, second) {
            (Some(b"pages"), Some(b"free")) => (&mut self.free, words.next(), "free"),
            (Some(b"boost"), value) => (&mut self.boost, value, "boost"),
            (Some(b"min"), value) => (&mut self.min, value, "min"),
            (Some(b"low"), value) => (&mut self.low, value, "low"),
            // Each per-cpu page set has a `high:` of its own; the colon tells them apart.
            (Some(b"high"), value) => (&mut self.high, value, "high"),
            (Some(b"managed"), value) => (&mut self.managed, value, "managed"),
            (Some(b"protection:"), _) => {
                self.protection =
                    Some(largest_protection(line).ok_or(HotError::Malformed("protection"))?);
                return Ok(());
            }
            (Some(b"count:"), value) => {
                let pages = value
                    .and_then(scan::number)
                    .ok_or(HotError::Malformed("count"))?;
                self.on_cpus = self.on_cpus.saturating_add(pages);
                return Ok(());
            }
            _ => return Ok(()),
        };
        *slot = Some(
            value
                .and_then(scan::number)
                .ok_or(HotError::Malformed(name))?,
        );
        Ok(())
    }

    fn checked(self) -> Result<Zone, HotError> {
        Ok(Zone {
            node: self.node,
            name: self.name,
            free: self.free.ok_or(HotError::Missing("free"))?,
            min: self.min.ok_or(HotError::Missing("min"))?,
            low: self.low.ok_or(HotError::Missing("low"))?,
            high: self.high.ok_or(HotError::Missing("high"))?,
            boost: self.boost.unwrap_or(0),
            managed: self.managed.ok_or(HotError::Missing("managed"))?,
            protection: self.protection.ok_or(HotError::Missing("protection"))?,
            on_cpus: self.on_cpus,
        })
    }
}

/// The largest of `protection: (0, 3019, 5195)`.
fn largest_protection(line: &[u8]) -> Option<u64> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let inner = line[open + 1..].trim_ascii_end().strip_suffix(b")")?;
    inner
        .split(|byte| *byte == b',')
        .map(|value| scan::number(value.trim_ascii()))
        .try_fold(0, |largest, value| Some(value?.max(largest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO_NODES: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 1650
  pages free     3840
        boost    0
        min      48
        low      60
        high     72
        promo    84
        spanned  4095
        present  3998
        managed  3840
        cma      0
        protection: (0, 3019, 5195, 5195, 5195)
      nr_free_pages 3840
Node 0, zone   Normal
  pages free     1000
        min      400
        low      500
        high     600
        managed  100000
        protection: (0, 0, 0, 0, 0)
  pagesets
    cpu: 0
              count: 378
              high:  378
              high_max: 378
              batch: 63
    cpu: 1
              count: 22
              high:  378
Node 1, zone   Normal
  pages free     100
        min      400
        low      500
        high     600
        managed  100000
        protection: (0, 0, 0, 0, 0)
Node 1, zone  Movable
  pages free     0
        boost    0
        min      0
        low      0
        high     0
        managed  0
        protection: (0, 0, 0, 0, 0)
";

    #[test]
    fn zones_of_all_nodes_are_summed_and_no_reserve_goes_below_zero() {
        let info = Zoneinfo::parse(TWO_NODES.as_bytes()).expect("a real file");
        let names: Vec<(u32, &str)> = info
            .zones
            .iter()
            .map(|zone| (zone.node, zone.name.as_str()))
            .collect();
        assert_eq!(names, [(0, "DMA"), (0, "Normal"), (1, "Normal")]);
        assert_eq!(info.zones[0].protection, 5195);
        assert_eq!(info.zones[1].high, 600);
        assert_eq!(info.nodes(), [0, 1]);
        let expected = ZoneTotals {
            free: 4940,
            managed: 203_840,
            min: 848,
            low: 1060,
            high: 1272,
            usable: 600,
            reserved: 3840 + 400 + 400,
            lacking: 300,
            on_cpus: 400,
        };
        assert_eq!(info.totals(), expected);
        let from_sums = expected.free + expected.lacking - expected.reserved;
        assert_eq!(expected.usable, from_sums);
    }

    #[test]
    fn a_boost_is_no_reserve() {
        let calm = Zoneinfo::parse(TWO_NODES.as_bytes()).expect("a real file");
        let boosted = TWO_NODES
            .replace(
                "boost    0\n        min      48",
                "boost    512\n        min      560",
            )
            .replace("low      60\n", "low      572\n")
            .replace("high     72\n", "high     584\n");
        let boosted = Zoneinfo::parse(boosted.as_bytes()).expect("what it looks like then");
        assert_eq!((boosted.zones[0].min, boosted.zones[0].boost), (560, 512));
        assert_eq!(boosted.totals(), calm.totals());
    }

    #[test]
    fn a_boost_that_is_not_told_apart_shows_in_all_watermarks_alike() {
        let calm = ZoneTotals {
            min: 400,
            low: 500,
            high: 600,
            reserved: 700,
            ..ZoneTotals::default()
        };
        let by = |min, low| ZoneTotals {
            min: calm.min + min,
            low: calm.low + low,
            reserved: calm.reserved + min,
            ..calm
        };
        for (now, reserved, why) in [
            (by(300, 300), 700, "a boost"),
            (by(300, 375), 1000, "vm.min_free_kbytes was raised"),
            (calm, 700, "nothing has changed"),
        ] {
            assert_eq!(now.without_boost_since(&calm).reserved, reserved, "{why}");
        }
        let less = calm.without_boost_since(&by(300, 300));
        assert_eq!(less, calm, "the first reading had it");
    }

    #[test]
    fn what_is_missing_is_named() {
        fn check(from: &str, to: &str, expected: HotError) {
            assert_eq!(
                Zoneinfo::parse(TWO_NODES.replace(from, to).as_bytes()),
                Err(expected),
                "{from:?}"
            );
        }
        check("        min      48\n", "", HotError::Missing("min"));
        check(
            "free     3840",
            "free     many",
            HotError::Malformed("free"),
        );
        check("boost    0", "boost    on", HotError::Malformed("boost"));
        check("count: 378", "count: all", HotError::Malformed("count"));
        check("(0, 3019", "(0; 3019", HotError::Malformed("protection"));
        check("Node 0,", "Node x,", HotError::Malformed("Node"));
        assert_eq!(Zoneinfo::parse(b""), Err(HotError::Missing("Node")));
    }

    #[test]
    fn this_machine_agrees_with_its_meminfo() {
        let totals = Zoneinfo::read(Path::new("/")).expect("read").totals();
        assert!(
            totals.managed > 0 && totals.free <= totals.managed,
            "{totals:?}"
        );
        assert!(totals.reserved < totals.managed, "{totals:?}");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = Zoneinfo::parse(&text);
        }

        #[test]
        fn a_damaged_file_never_panics(at in 0..TWO_NODES.len(), byte: u8) {
            let mut text = TWO_NODES.as_bytes().to_vec();
            text[at] = byte;
            let _ = Zoneinfo::parse(&text);
        }
    }
}
