//! What is wrong with a configuration: every fault at once, each with its place and what would do.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::base::duration::DurationError;
use crate::base::float::FloatError;
use crate::base::quantity::QuantityError;

/// Everything that is wrong with a draft; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key, from the root of the configuration: `evictionHard["memory.available"]`.
    pub path: String,
    /// What was written there.
    pub written: String,
    /// What is wrong with it.
    pub kind: FaultKind,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// The key is no eviction signal.
    #[error("unknown eviction signal")]
    UnknownSignal,
    /// The value is no quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// The value before the percent sign is no number.
    #[error("not a percentage: {0}")]
    Percentage(#[from] FloatError),
    /// The value is no duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// A threshold of zero or less.
    #[error("a threshold must be positive")]
    NotPositive,
    /// More than any machine has.
    #[error("no machine has so much: the threshold would always be met")]
    Boundless,
    /// A percentage below zero.
    #[error("a percentage must not be negative")]
    NegativePercentage,
    /// A percentage above one hundred.
    #[error("a percentage must not be above 100%")]
    OverHundred,
    /// A grace below zero.
    #[error("a grace period must not be negative")]
    NegativeGrace,
    /// A minimum reclaim below zero.
    #[error("a minimum reclaim must not be negative")]
    NegativeReclaim,
    /// A minimum reclaim of zero percent or less.
    #[error("a minimum reclaim in percent must be positive")]
    ReclaimNotPositive,
    /// A soft threshold without a grace period.
    #[error("a soft threshold needs a grace period")]
    GraceMissing,
    /// A number that does not fit 32 bits.
    #[error("number out of range")]
    OutOfRange,
}

impl FaultKind {
    /// What would be accepted instead.
    pub const fn accepted(self) -> &'static str {
        match self {
            Self::UnknownSignal => {
                "memory.available, allocatableMemory.available, nodefs.available, \
                 nodefs.inodesFree, imagefs.available, imagefs.inodesFree, containerfs.available, \
                 containerfs.inodesFree, pid.available"
            }
            Self::Quantity(_) | Self::NotPositive | Self::Boundless => {
                "a positive quantity such as 100Mi or 1.5Gi, or a percentage from 0% to 100%"
            }
            Self::Percentage(_) | Self::NegativePercentage | Self::OverHundred => {
                "a percentage from 0% to 100%; 0% and 100% switch the threshold off"
            }
            Self::Duration(_) | Self::NegativeGrace | Self::GraceMissing => {
                "a duration of 0s or more, such as 90s or 1m30s"
            }
            Self::NegativeReclaim | Self::ReclaimNotPositive => {
                "a quantity of 0 or more, or a percentage above 0%"
            }
            Self::OutOfRange => "a whole number from -2147483648 to 2147483647",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            written,
            kind,
        } = self;
        write!(
            f,
            "{path}: {written:?}: {kind}; accepted: {}",
            kind.accepted()
        )
    }
}

impl core::error::Error for Fault {}

impl Faults {
    /// The faults as an error, or nothing if there is none.
    pub(super) fn unless_empty(faults: Vec<Fault>) -> Result<(), Self> {
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Self(faults))
        }
    }

    /// Each of them, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl core::error::Error for Faults {}
