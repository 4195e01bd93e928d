//! The points of the node that the sampler leaves in the kernel, for whoever cuts a recording.

use aya::Ebpf;
use aya::maps::{Array, MapData};
use brink_abi::flight::{FlightPage, FlightPoint, PAGE_POINTS, PAGES};

use super::coverage::{Coverage, Settings, Wishes};
use super::error::ProbeError;
use super::load::take;
use super::pages::{Shape, in_map};
use super::pod::Pod;
use super::programs::Family;

const RING: Shape = Shape {
    page: PAGE_POINTS,
    pages: PAGES,
};

/// The reading end of the ring. A reading takes one look-up a page.
pub struct FlightReader {
    pages: Array<MapData, Pod<FlightPage>>,
    every_ns: u64,
    tells: Tells,
}

/// Which of the counters mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tells {
    /// Direct reclaims are counted.
    pub reclaims: bool,
    /// Forks are.
    pub forks: bool,
    /// So are changes of cgroups, which no point has.
    pub cgroups: bool,
}

impl FlightReader {
    pub(super) fn take(
        object: &mut Ebpf,
        settings: &Settings,
        coverage: &Coverage,
    ) -> Result<Option<Self>, ProbeError> {
        let every_ns = settings.wishes.knobs.flight_ns;
        let pages = take(object, "FLIGHT")?;
        let tells = Tells {
            reclaims: coverage.whole(Family::Reclaim),
            forks: coverage.whole(Family::Process),
            cgroups: coverage.whole(Family::Cgroup),
        };
        let is_on = every_ns != 0 && coverage.whole(Family::Sampler);
        Ok(is_on.then_some(Self {
            pages,
            every_ns,
            tells,
        }))
    }

    /// Which counters mean something.
    pub const fn tells(&self) -> Tells {
        self.tells
    }

    /// From one point to the next, in nanoseconds.
    pub const fn every_ns(&self) -> u64 {
        self.every_ns
    }

    /// Hands over every point from `from_ns` up to `to_ns` (`CLOCK_MONOTONIC`, nanoseconds), oldest first, of which
    /// `written` were ever left ([`SamplerMeter::flights`](brink_abi::meter::SamplerMeter)). A page that the kernel
    /// may be writing over is left out but for what is newer.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when the map cannot be read.
    pub fn read(
        &self,
        written: u64,
        (from_ns, to_ns): (u64, u64),
        mut each: impl FnMut(&FlightPoint),
    ) -> Result<(), ProbeError> {
        let page = in_map(&self.pages, "FLIGHT");
        RING.read(page, (0, written), |first, page| {
            let count = usize::try_from(written.saturating_sub(first)).unwrap_or(PAGE_POINTS);
            for point in page.points.iter().take(count) {
                if (from_ns..=to_ns).contains(&point.at_ns) {
                    each(point);
                }
            }
        })
    }
}

/// Pages that these wishes call for.
pub(super) const fn pages(wishes: &Wishes) -> u32 {
    if wishes.knobs.flight_ns == 0 {
        1
    } else {
        PAGES
    }
}
