//! Kills: the victims of the OOM killer with its decision, SIGKILL with its sender, the end of both; and who forked whom.

mod births;
mod ends;
mod figures;
mod oom;
mod search;
mod sent;
mod stacks;

use brink_abi::Plain;
use brink_abi::layout::ABSENT;
use brink_abi::record::UNKNOWN;

use crate::kernel::read;

/// Who was told as killed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Killed {
    /// `start_boottime` of the first thread: who has the same id later has another
    pub start_ns: u64,
    pub tgid: u64,
}

/// A SIGKILL of the kernel's own.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Signalled {
    /// process and thread in whose context it was sent, as the helper gives them
    pub sender: u64,
    /// the task it was sent to; valid as long as the sender has not gone on
    pub task: u64,
}

/// Somebody whose stacks were taken as he sent SIGKILL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Stacked {
    /// process and thread, as the helper gives them
    pub sender: u64,
    pub at_ns: u64,
}

/// What the OOM killer decides.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Deciding {
    /// process and thread that decides, as the helper gives them
    pub decider: u64,
    /// address of its `oom_control`
    pub control: u64,
    pub at_ns: u64,
    /// the chosen task, once it is known
    pub chosen: u64,
    /// told as it began, and not found later
    pub entered: u64,
}

/// The `T` at `address + offset` as 64 bits, [`UNKNOWN`] where there is none. Address 0 is none.
#[inline(always)]
pub fn number<T: Plain + Into<i64>>(address: u64, offset: u32) -> u64 {
    if offset == ABSENT || address == 0 {
        return UNKNOWN;
    }
    read::<T>(address, offset).map_or(UNKNOWN, |found| found.into() as u64)
}

/// The pointer at `address + offset`, 0 where there is none. Numbers and no Options: before 6.3 the verifier refuses to have
/// what is in a None read, even for nothing.
#[inline(always)]
pub fn at(address: u64, offset: u32) -> u64 {
    if offset == ABSENT || address == 0 {
        return 0;
    }
    read::<u64>(address, offset).unwrap_or(0)
}
