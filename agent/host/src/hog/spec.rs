//! What a hog is to do, and its form as program arguments.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The kind of memory that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Load {
    /// Anonymous memory in 4K pages.
    Anon,
    /// The same, shared with a second process that does nothing.
    AnonTwin,
    /// The same, and the second process goes on for 60 ms when the first is killed, if it is in another group: for so long nothing
    /// comes back, as when a reader of a file in `/proc/PID` has hold of the memory.
    AnonHeld,
    /// Anonymous memory in huge pages (`MADV_HUGEPAGE`).
    AnonHuge,
    /// Anonymous memory in 4K pages, mapped, filled and unmapped over and over: a storm of faults that takes nothing
    /// for good. The amount is that of one mapping.
    AnonChurn,
    /// Anonymous memory in 4K pages, locked.
    Locked,
    /// Shared memory (a memfd, which is tmpfs).
    Shmem,
    /// Memory of three kinds at once, all of it mapped: half of the amount is anonymous, a quarter shared, and a quarter a
    /// locked file of holes. Needs a folder that is not on tmpfs.
    Parts,
    /// Clean page cache: a sparse file, read. Takes no disk space.
    CacheRead,
    /// The same file read again and again: what fits into memory becomes active.
    CacheChurn,
    /// Dirty page cache: a file, written. Takes disk space until it ends.
    CacheWrite,
    /// The same file written again and again.
    CacheWriteChurn,
    /// Reclaimable slab: names that are looked up and not there. Needs a folder that is not on tmpfs.
    Dentries,
    /// Kernel memory that is neither cache nor slab the kubelet's formula sees: full pipes.
    Pipes,
    /// Processes that fork until their group's task limit, and again when some die. Needs a group with `pids.max`.
    ForkStorm,
    /// One process after another, each of which ends at once.
    ForkChurn,
    /// The same with processes that share the memory of who makes them: nothing is copied, so many more come and go in the same time.
    SpawnChurn,
}

impl Load {
    /// All kinds.
    pub const ALL: [Self; 17] = [
        Self::Anon,
        Self::AnonTwin,
        Self::AnonHeld,
        Self::AnonHuge,
        Self::AnonChurn,
        Self::Locked,
        Self::Shmem,
        Self::Parts,
        Self::CacheRead,
        Self::CacheChurn,
        Self::CacheWrite,
        Self::CacheWriteChurn,
        Self::Dentries,
        Self::Pipes,
        Self::ForkStorm,
        Self::ForkChurn,
        Self::SpawnChurn,
    ];

    /// Its name as an argument.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anon => "anon",
            Self::AnonTwin => "anon-twin",
            Self::AnonHeld => "anon-held",
            Self::AnonHuge => "anon-huge",
            Self::AnonChurn => "anon-churn",
            Self::Locked => "locked",
            Self::Shmem => "shmem",
            Self::Parts => "parts",
            Self::CacheRead => "cache-read",
            Self::CacheChurn => "cache-churn",
            Self::CacheWrite => "cache-write",
            Self::CacheWriteChurn => "cache-write-churn",
            Self::Dentries => "dentries",
            Self::Pipes => "pipes",
            Self::ForkStorm => "fork-storm",
            Self::ForkChurn => "fork-churn",
            Self::SpawnChurn => "spawn-churn",
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// What a hog is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HogSpec {
    /// The kind of memory.
    pub load: Load,
    /// How much in all, bytes (of `ForkChurn` and `SpawnChurn`: processes; `ForkStorm` is bounded by its group).
    pub bytes: u64,
    /// How much a second; `None` is full speed.
    pub rate: Option<u64>,
    /// It ends so long after its start, whatever happens.
    pub deadline: Duration,
    /// Whether it keeps what it took until the deadline, or ends when it has taken all.
    pub hold: bool,
    /// Whether it waits for a byte (or the end) of standard input before it takes anything.
    pub wait: bool,
    /// The process it ends with: its parent, when that starts it with its own id.
    pub parent: Option<u32>,
    /// It stops when the node's free and reclaimable memory falls under this, bytes.
    pub floor: u64,
    /// Files it writes `0` to first: `cgroup.procs` of the groups it joins.
    pub join: Vec<PathBuf>,
    /// The file it keeps its [`super::Progress`] in.
    pub progress: Option<PathBuf>,
    /// The file in which each birth is noted, for the loads that fork; see [`super::Births`].
    pub births: Option<PathBuf>,
    /// A folder of its own for the loads that need files.
    pub folder: Option<PathBuf>,
    /// The user it becomes before it takes anything; not for the loads that need a folder.
    pub user: Option<u32>,
}

/// Why arguments are no specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// An argument nobody knows.
    #[error("unknown argument {0:?}")]
    Unknown(OsString),
    /// An argument without its value.
    #[error("{0} needs a value")]
    NoValue(&'static str),
    /// A value that is none.
    #[error("{name}: {value:?} is not {expected}")]
    BadValue {
        /// The argument.
        name: &'static str,
        /// What was given.
        value: OsString,
        /// What it should be.
        expected: &'static str,
    },
    /// An argument that must be given.
    #[error("{0} is missing")]
    Missing(&'static str),
}

const WHOLE: &str = "a whole number";

impl HogSpec {
    /// The floor when none is given: 1 GiB.
    pub const FLOOR: u64 = 1 << 30;

    /// The longest deadline: 10 minutes.
    pub const LONGEST: Duration = Duration::from_mins(10);

    /// The arguments of a process that does this, without the program's name.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: &OsStr| arguments.extend([name.into(), value.to_owned()]);
        let number = |value: u64| OsString::from(value.to_string());
        add("--load", self.load.name().as_ref());
        add("--bytes", &number(self.bytes));
        add(
            "--deadline-ms",
            &number(u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX)),
        );
        add("--floor", &number(self.floor));
        if let Some(rate) = self.rate {
            add("--rate", &number(rate));
        }
        if let Some(parent) = self.parent {
            add("--parent", &number(parent.into()));
        }
        for entrance in &self.join {
            add("--join", entrance.as_ref());
        }
        if let Some(path) = &self.progress {
            add("--progress", path.as_ref());
        }
        if let Some(path) = &self.births {
            add("--births", path.as_ref());
        }
        if let Some(path) = &self.folder {
            add("--folder", path.as_ref());
        }
        if let Some(user) = self.user {
            add("--user", &number(user.into()));
        }
        arguments.extend(self.hold.then(|| "--hold".into()));
        arguments.extend(self.wait.then(|| "--wait".into()));
        arguments
    }

    /// The specification these arguments are.
    ///
    /// # Errors
    /// [`SpecError`] with the argument.
    pub fn from_args(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, SpecError> {
        let mut arguments = arguments.into_iter();
        let mut spec = Self {
            hold: false,
            ..Self::new(Load::Anon, 0, Duration::ZERO)
        };
        let (mut load, mut bytes, mut deadline) = (None, None, None);
        while let Some(argument) = arguments.next() {
            let mut value = |name| arguments.next().ok_or(SpecError::NoValue(name));
            match argument.to_str() {
                Some("--load") => load = Some(parse_load(value("--load")?)?),
                Some("--bytes") => bytes = Some(parse_number("--bytes", value("--bytes")?)?),
                Some("--deadline-ms") => deadline = Some(parse_deadline(value("--deadline-ms")?)?),
                Some("--rate") => spec.rate = Some(parse_rate(value("--rate")?)?),
                Some("--parent") => {
                    spec.parent = Some(parse_id("--parent", value("--parent")?, "a process")?);
                }
                Some("--user") => {
                    spec.user = Some(parse_id("--user", value("--user")?, "a user")?);
                }
                Some("--floor") => spec.floor = parse_number("--floor", value("--floor")?)?,
                Some("--join") => spec.join.push(value("--join")?.into()),
                Some("--progress") => spec.progress = Some(value("--progress")?.into()),
                Some("--births") => spec.births = Some(value("--births")?.into()),
                Some("--folder") => spec.folder = Some(value("--folder")?.into()),
                Some("--hold") => spec.hold = true,
                Some("--wait") => spec.wait = true,
                _ => return Err(SpecError::Unknown(argument)),
            }
        }
        spec.load = load.ok_or(SpecError::Missing("--load"))?;
        spec.bytes = bytes.ok_or(SpecError::Missing("--bytes"))?;
        spec.deadline = deadline.ok_or(SpecError::Missing("--deadline-ms"))?;
        Ok(spec)
    }
}

fn parse_load(value: OsString) -> Result<Load, SpecError> {
    let known = Load::ALL
        .into_iter()
        .find(|load| value.to_str() == Some(load.name()));
    known.ok_or(SpecError::BadValue {
        name: "--load",
        value,
        expected: "a kind of load",
    })
}

fn parse_number(name: &'static str, value: OsString) -> Result<u64, SpecError> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or(SpecError::BadValue {
        name,
        value,
        expected: WHOLE,
    })
}

fn parse_id(name: &'static str, value: OsString, expected: &'static str) -> Result<u32, SpecError> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or(SpecError::BadValue {
        name,
        value,
        expected,
    })
}

fn parse_rate(value: OsString) -> Result<u64, SpecError> {
    match parse_number("--rate", value.clone())? {
        0 => Err(SpecError::BadValue {
            name: "--rate",
            value,
            expected: "above 0",
        }),
        rate => Ok(rate),
    }
}

fn parse_deadline(value: OsString) -> Result<Duration, SpecError> {
    let deadline = Duration::from_millis(parse_number("--deadline-ms", value.clone())?);
    if deadline.is_zero() || deadline > HogSpec::LONGEST {
        return Err(SpecError::BadValue {
            name: "--deadline-ms",
            value,
            expected: "between 1 and 600000",
        });
    }
    Ok(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bad_arguments_are_named() {
        fn check(arguments: &str, expected: &str) {
            let arguments = arguments.split_whitespace().map(OsString::from);
            assert_eq!(
                HogSpec::from_args(arguments).expect_err("bad").to_string(),
                expected
            );
        }
        check("", "--load is missing");
        check("--load anon --bytes 1", "--deadline-ms is missing");
        check("--load fat", "--load: \"fat\" is not a kind of load");
        check("--bytes -1", "--bytes: \"-1\" is not a whole number");
        check("--bytes", "--bytes needs a value");
        check("--rate 0", "--rate: \"0\" is not above 0");
        check(
            "--deadline-ms 600001",
            "--deadline-ms: \"600001\" is not between 1 and 600000",
        );
        check(
            "--deadline-ms 0",
            "--deadline-ms: \"0\" is not between 1 and 600000",
        );
        check("--forever", "unknown argument \"--forever\"");
    }

    proptest! {
        #[test]
        fn arguments_round_trip(
            load in proptest::sample::select(Load::ALL.to_vec()),
            bytes: u64,
            rate in proptest::option::of(1..=u64::MAX),
            milliseconds in 1..=600_000u64,
            (hold, wait) in any::<(bool, bool)>(),
            (floor, parent, user) in any::<(u64, Option<u32>, Option<u32>)>(),
            join in proptest::collection::vec("/[a-z/]{1,9}", 0..3),
            progress in proptest::option::of("/[a-z -]{1,9}"),
            births in proptest::option::of("/[a-z -]{1,9}"),
            folder in proptest::option::of("/[a-z -]{1,9}"),
        ) {
            let spec = HogSpec {
                load, bytes, rate, deadline: Duration::from_millis(milliseconds), hold, wait, floor, parent, user,
                join: join.into_iter().map(PathBuf::from).collect(),
                progress: progress.map(PathBuf::from),
                births: births.map(PathBuf::from),
                folder: folder.map(PathBuf::from),
            };
            prop_assert_eq!(HogSpec::from_args(spec.to_args()), Ok(spec));
        }
    }
}
