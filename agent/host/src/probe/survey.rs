//! The survey, from user space: what up to 512 cgroups use, asked of the kernel in one call instead of a file each.
//!
//! An object of its own beside the probe's: whoever asks owns all of it, and the guard has no part in it.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _};
use brink_abi::survey::{
    FOLLOW, LEAVE, LIMITS, LOOK, MAX_SURVEYED, NOBODY, SEAT, Surveyed, Trace, UNKNOWN, UNLIMITED,
    WORDS,
};

use super::call::{done, failed, program};
use super::coverage::{Absence, Coverage, Settings};
use super::error::ProbeError;
use super::follow::{Follow, Followed};
use super::load::{alone, chain, take};
use super::meters::memlock;
use super::pod::Pod;
use super::programs::{FOLLOW as FOLLOWING, SURVEY as NAME};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../ebpf/prebuilt/brink-survey.bpf.o");

const USAGES: &str = "SURVEYED";
const LIMITED: &str = "LIMITED";

/// The program and what it found. Dropping it unloads it.
pub struct Survey {
    object: Ebpf,
    usages: Array<MapData, Pod<Surveyed>>,
    limits: Array<MapData, Pod<Surveyed>>,
    found: Box<[u64; MAX_SURVEYED]>,
    /// What was found last could not be taken over.
    is_behind: bool,
    /// None where the kernel has no such timer.
    follow: Option<Follow>,
    map_bytes: Option<u64>,
}

/// A set of places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places([u64; WORDS]);

impl Places {
    /// Adds a place; one that a survey does not have is none.
    pub fn add(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    fn has(self, place: usize) -> bool {
        let word = self.0.get(place / 64);
        word.is_some_and(|word| (word >> (place % 64)) & 1 == 1)
    }
}

impl Survey {
    /// Loads it where the coverage has it; a kernel that refuses it is noted there.
    pub(super) fn load(settings: &Settings, coverage: &mut Coverage) -> Option<Self> {
        if !coverage.has(NAME) {
            return None;
        }
        let refused = |error: ProbeError| Absence::Refused(error.to_string());
        let mut survey = match Self::create(settings) {
            Ok(survey) => survey,
            Err(error) => {
                let absence = refused(error);
                coverage.lose(NAME, &absence);
                coverage.lose(FOLLOWING, &absence);
                return None;
            }
        };
        if coverage.has(FOLLOWING) {
            survey.follow = Follow::load(&mut survey.object)
                .map_err(|error| coverage.lose(FOLLOWING, &refused(error)))
                .ok();
        }
        Some(survey)
    }

    fn create(settings: &Settings) -> Result<Self, ProbeError> {
        let mut object = alone(OBJECT, settings)?;
        program::<RawTracePoint>(&mut object, NAME)?
            .load()
            .map_err(|error| ProbeError::Object(chain(&error)))?;
        let map_bytes = object.maps().map(|(_, map)| memlock(map)).sum();
        let (mut usages, mut limits) = (take(&mut object, USAGES)?, take(&mut object, LIMITED)?);
        forget(&mut usages, USAGES)?;
        forget(&mut limits, LIMITED)?;
        let mut survey = Self {
            usages,
            limits,
            object,
            found: Box::new([UNKNOWN; MAX_SURVEYED]),
            is_behind: true,
            follow: None,
            map_bytes,
        };
        // A kernel may take the program and not let it be called.
        survey.look(Places::default())?;
        Ok(survey)
    }

    /// Takes a cgroup in, by its open directory, at a place below [`MAX_SURVEYED`]; whoever had it is out.
    ///
    /// # Errors
    /// [`ProbeError::Refused`]: not a cgroup, no memory controller, or no such place.
    pub fn seat(&mut self, place: usize, cgroup: BorrowedFd<'_>) -> Result<(), ProbeError> {
        self.change(SEAT, place, cgroup.as_raw_fd())
    }

    /// Lets go of a cgroup. An empty place is no error.
    ///
    /// # Errors
    /// [`ProbeError::Refused`] when there is no such place.
    pub fn leave(&mut self, place: usize) -> Result<(), ProbeError> {
        self.change(LEAVE, place, -1)
    }

    fn change(&mut self, what: u64, place: usize, fd: i32) -> Result<(), ProbeError> {
        if let Some(usage) = self.found.get_mut(place) {
            *usage = UNKNOWN;
        }
        let mut args = [0; 12];
        // A descriptor is not negative, and what is none is refused.
        args[..3].copy_from_slice(&[what, place as u64, i64::from(fd).cast_unsigned()]);
        self.obey(args)
    }

    /// Looks at these cgroups now. Some microseconds, and as much again where any of them uses another amount than before.
    ///
    /// # Errors
    /// [`ProbeError`] when the program cannot run or its map not be read; then nothing is known of anybody until the next look.
    pub fn look(&mut self, wanted: Places) -> Result<(), ProbeError> {
        let mut args = [0; 12];
        args[0] = LOOK;
        args[1..=WORDS].copy_from_slice(&wanted.0);
        let was_behind = std::mem::replace(&mut self.is_behind, true);
        if self.run(args)? > 0 || was_behind {
            *self.found = column(&self.usages, USAGES)?;
        }
        self.is_behind = false;
        Ok(())
    }

    /// What the cgroup at this place used at the last look that wanted it, in bytes; none where that is not known.
    pub fn usage(&self, wanted: Places, place: usize) -> Option<u64> {
        let usage = self.found.get(place).copied()?;
        let is_known = !self.is_behind && wanted.has(place) && usage != UNKNOWN;
        is_known.then_some(usage)
    }

    /// Reads the limits of all that have a place.
    ///
    /// # Errors
    /// [`ProbeError::Refused`] where this kernel's limits are not found.
    pub fn limits(&mut self) -> Result<Limits, ProbeError> {
        let mut args = [0; 12];
        args[0] = LIMITS;
        self.obey(args)?;
        column(&self.limits, LIMITED).map(|bytes| Limits(Box::new(bytes)))
    }

    /// Begins to follow, or goes on at another pace: from then on a trace is left once in a period.
    ///
    /// # Errors
    /// [`ProbeError`] where the timer does not run. It does not where the program is absent.
    pub fn follow_every(&mut self, period: Duration) -> Result<(), ProbeError> {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let follow = self.follow.as_mut();
        let follow = follow.ok_or(ProbeError::NotLoaded(FOLLOWING))?;
        follow.start(&mut self.object, nanos)
    }

    /// Follows the cgroup at this place in a lane from now on, or nobody. Whoever waits for a movement is woken when its usage moves
    /// by [`movement`](brink_abi::survey::movement), or at all with `is_close`; and when it is gone.
    ///
    /// # Errors
    /// [`ProbeError::Refused`] when there is no such lane.
    pub fn follow(
        &mut self,
        lane: usize,
        place: Option<usize>,
        is_close: bool,
    ) -> Result<(), ProbeError> {
        let mut args = [0; 12];
        let place = place.map_or(NOBODY, |place| place as u64);
        args[..4].copy_from_slice(&[FOLLOW, lane as u64, place, u64::from(is_close)]);
        self.obey(args)
    }

    /// Hands over the traces that were left since the last time, oldest first, and takes notice of every movement up to them.
    ///
    /// # Errors
    /// [`ProbeError`] when they cannot be read, or nobody is followed.
    pub fn traces(&mut self, each: impl FnMut(&Trace)) -> Result<(), ProbeError> {
        let follow = self.follow.as_mut();
        follow.ok_or(ProbeError::NotLoaded(FOLLOWING))?.read(each)
    }

    /// Readable when one of those that are followed has moved; none where nobody can be.
    pub fn moved(&self) -> Option<Arc<OwnedFd>> {
        self.follow.as_ref().map(Follow::moved)
    }

    /// How following stood when its traces were read last; none where nobody can be followed.
    pub fn followed(&self) -> Option<Followed> {
        self.follow.as_ref().map(Follow::followed)
    }

    /// Bytes of kernel memory its maps occupy; none where the kernel does not tell.
    pub fn map_bytes(&self) -> Option<u64> {
        self.map_bytes
    }

    fn obey(&mut self, args: [u64; 12]) -> Result<(), ProbeError> {
        done(NAME, self.run(args)?)
    }

    fn run(&mut self, args: [u64; 12]) -> Result<u32, ProbeError> {
        let options = RawTracePointRunOptions { args, cpu: None };
        let program: &mut RawTracePoint = program(&mut self.object, NAME)?;
        let result = program.test_run(options).map_err(failed(NAME))?;
        Ok(result.return_value)
    }
}

/// Limits as they were read, by place.
pub struct Limits(Box<[u64; MAX_SURVEYED]>);

impl Limits {
    /// The own limit of the cgroup at this place, in bytes: `Some(None)` if it has none, and none where that is not known.
    pub fn of(&self, place: usize) -> Option<Option<u64>> {
        match self.0.get(place).copied()? {
            UNKNOWN => None,
            UNLIMITED => Some(None),
            bytes => Some(Some(bytes)),
        }
    }
}

/// Nothing is known of anybody.
fn forget(table: &mut Array<MapData, Pod<Surveyed>>, name: &'static str) -> Result<(), ProbeError> {
    let nothing = Surveyed {
        bytes: [UNKNOWN; MAX_SURVEYED],
    };
    table
        .set(0, Pod(nothing), 0)
        .map_err(|error| ProbeError::Map { name, error })
}

fn column(
    table: &Array<MapData, Pod<Surveyed>>,
    name: &'static str,
) -> Result<[u64; MAX_SURVEYED], ProbeError> {
    let Pod(found) = table
        .get(&0, 0)
        .map_err(|error| ProbeError::Map { name, error })?;
    Ok(found.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_its_places_and_none_beyond_a_survey() {
        let mut places = Places::default();
        for place in [0, 63, 64, MAX_SURVEYED - 1, MAX_SURVEYED] {
            places.add(place);
        }
        let held: Vec<usize> = (0..2 * MAX_SURVEYED).filter(|at| places.has(*at)).collect();
        assert_eq!(held, [0, 63, 64, MAX_SURVEYED - 1]);
    }
}
