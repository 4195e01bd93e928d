//! Rings of pages that the kernel's programs write without end, oldest overwritten.

use std::ops::Range;

use aya::maps::{Array, MapData};
use brink_abi::Plain;

use super::error::ProbeError;
use super::pod::Pod;

/// The shape of a ring: records of a page, and pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// records of one page
    pub(super) page: usize,
    /// how many there are
    pub(super) pages: u32,
}

impl Shape {
    /// The pages to be read, by their number since the start, oldest first, of which `written` records were ever left and `read` are
    /// known: all but the one that comes next, which the kernel may begin while they are read.
    fn unread(self, read: u64, written: u64) -> Range<u64> {
        let page = self.page as u64;
        let end = written.div_ceil(page);
        let oldest = end.saturating_sub(u64::from(self.pages) - 1);
        (read / page).max(oldest)..end
    }

    /// Hands over those pages, each with the number of its first record. `page` finds one by its place in the ring.
    pub(super) fn read<P, E>(
        self,
        mut page: impl FnMut(u32) -> Result<P, E>,
        (read, written): (u64, u64),
        mut each: impl FnMut(u64, &P),
    ) -> Result<(), E> {
        for number in self.unread(read, written) {
            let index = u32::try_from(number % u64::from(self.pages)).unwrap_or(0);
            each(number * self.page as u64, &page(index)?);
        }
        Ok(())
    }
}

/// Finds pages in the map of this name.
pub(super) fn in_map<P: Plain>(
    map: &Array<MapData, Pod<P>>,
    name: &'static str,
) -> impl Fn(u32) -> Result<P, ProbeError> {
    move |index| {
        let found = map.get(&index, 0);
        let Pod(page) = found.map_err(|error| ProbeError::Map { name, error })?;
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use brink_abi::flight;
    use brink_abi::survey;

    use super::*;

    #[test]
    fn the_page_that_comes_next_is_not_read() {
        let shape = Shape {
            page: flight::PAGE_POINTS,
            pages: flight::PAGES,
        };
        let check =
            |written: u64, expected| assert_eq!(shape.unread(0, written), expected, "{written}");
        let (points, pages) = (flight::PAGE_POINTS as u64, u64::from(flight::PAGES));
        check(0, 0..0);
        check(1, 0..1);
        check(points, 0..1);
        check(points + 1, 0..2);
        check((pages - 1) * points, 0..pages - 1);
        check(pages * points, 1..pages);
        check(pages * points + 1, 2..pages + 1);
    }

    #[test]
    fn what_was_not_read_is_read_but_for_the_page_that_comes_next() {
        let shape = Shape {
            page: survey::PAGE_TRACES,
            pages: survey::TRACE_PAGES,
        };
        let check = |read, left, expected| {
            assert_eq!(shape.unread(read, left), expected, "{read} {left}");
        };
        let (page, pages) = (survey::PAGE_TRACES as u64, u64::from(survey::TRACE_PAGES));
        check(0, 0, 0..0);
        check(0, 1, 0..1);
        check(1, 1, 0..1);
        check(page - 1, page + 1, 0..2);
        check(page, page + 1, 1..2);
        check(0, pages * page, 1..pages);
        check(0, pages * page + 1, 2..pages + 1);
        check(5 * page, pages * page + 1, 5..pages + 1);
    }
}
