//! What became of a guest: only one that ended in good order and left its answer has said anything.
use std::{fmt, process::ExitStatus, time::Duration};

use super::{
    cpio::{self, Data, Entry},
    job::{ANSWER, Answer},
    machine::Accelerator,
};

/// What the kernel says when emulation has tripped over code that was patched while it ran.
const TRIPPED: &str = "Oops: int3";
const PANIC: &str = "Kernel panic";

/// Why a guest has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It did not end, and was ended.
    Hung(Duration),
    /// The emulator ended as a guest that switches itself off makes it end, and there is no answer.
    Died(String),
    /// The emulator itself has failed.
    Emulator(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hung(after) => write!(f, "hung: ended from outside after {after:.0?}"),
            Self::Died(why) => write!(f, "died without a verdict: {why}"),
            Self::Emulator(why) => write!(f, "QEMU failed: {why}"),
        }
    }
}

/// How the emulator came to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    /// Nothing if it was killed: at the deadline, or when it had been silent for too long.
    pub(super) status: Option<ExitStatus>,
    pub(super) elapsed: Duration,
}

/// The answer of a guest and the other files it sends, from how its emulator ended and what is on its disk.
///
/// # Errors
/// The reason why there is none.
pub(super) fn judge(ended: Ended, disk: &[u8], nonce: &str) -> Result<(Answer, Vec<Entry>), Fault> {
    match ended.status {
        None => return Err(Fault::Hung(ended.elapsed)),
        Some(status) if !status.success() => return Err(Fault::Emulator(status.to_string())),
        Some(_) => {}
    }
    let files = cpio::read(disk).map_err(|error| Fault::Died(format!("{error:#}")))?;
    // It is written last: where it is, everything is.
    let answer = match files.last() {
        Some(Entry {
            path,
            data: Data::Bytes(bytes),
            ..
        }) if path == ANSWER => serde_json::from_slice::<Answer>(bytes),
        _ => return Err(Fault::Died("its files are without an answer".to_owned())),
    };
    let answer = answer.map_err(|error| Fault::Died(format!("its answer: {error}")))?;
    if answer.nonce != nonce {
        let why = format!("the answer is to `{}`, not to `{nonce}`", answer.nonce);
        return Err(Fault::Died(why));
    }
    Ok((answer, files))
}

/// Whether emulation has tripped, and the kernel ended by it.
pub(super) fn has_tripped(console: &str) -> bool {
    console.contains(TRIPPED) && console.contains(PANIC)
}

/// Whether the same may go well next time: only emulation fails like this, and on a processor it is the kernel that did.
pub(super) fn is_of_emulation(accelerator: Accelerator, fault: &Fault, console: &str) -> bool {
    let is_emulated = accelerator == Accelerator::Emulation;
    is_emulated && matches!(fault, Fault::Died(_)) && has_tripped(console)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;
    use crate::test::Report;

    const DONE: Option<i32> = Some(0);

    fn answer(nonce: &str) -> Vec<u8> {
        let answer = Answer {
            nonce: nonce.to_owned(),
            kernel: "6.1.176".to_owned(),
            skipped: None,
            report: Report::default(),
            programs: Vec::new(),
        };
        serde_json::to_vec(&answer).unwrap()
    }

    /// A disk with these files on it, and something older behind them.
    fn disk(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let entry =
            |(path, bytes): &(&str, Vec<u8>)| Entry::new(path, 0o644, Data::Bytes(bytes.clone()));
        let entries: Vec<Entry> = files.iter().map(entry).collect();
        let mut disk = Vec::new();
        cpio::write(&mut disk, &entries).unwrap();
        disk.extend([7; 64]);
        disk
    }

    fn check(status: Option<i32>, disk: &[u8], expected: Result<&str, &str>) {
        let ended = Ended {
            status: status.map(ExitStatus::from_raw),
            elapsed: Duration::from_secs(9),
        };
        match (judge(ended, disk, "run-1"), expected) {
            (Ok((answer, _)), Ok(kernel)) => assert_eq!(answer.kernel, kernel),
            (Err(fault), Err(part)) => {
                assert!(fault.to_string().contains(part), "{fault}, expected {part}");
            }
            (found, _) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn only_an_answer_of_this_run_is_a_verdict() {
        let good = disk(&[("doctor.json", b"{}".to_vec()), (ANSWER, answer("run-1"))]);
        check(DONE, &good, Ok("6.1.176"));
        check(None, &good, Err("hung"));
        check(Some(1 << 8), &good, Err("QEMU failed: exit status: 1"));
        check(Some(9), &good, Err("QEMU failed: signal: 9"));
        check(DONE, &[0; 4096], Err("died"));
        check(DONE, &[], Err("died"));
        check(DONE, &good[..good.len() - 100], Err("died"));
        check(
            DONE,
            &disk(&[("doctor.json", Vec::new())]),
            Err("without an answer"),
        );
        check(DONE, &disk(&[(ANSWER, b"{}".to_vec())]), Err("its answer"));
        check(DONE, &disk(&[(ANSWER, answer("run-0"))]), Err("`run-0`"));
        let followed = disk(&[(ANSWER, answer("run-1")), ("late", Vec::new())]);
        check(DONE, &followed, Err("without an answer"));
    }

    #[test]
    fn only_what_emulation_has_tripped_over_is_tried_again() {
        const EMULATED: Accelerator = Accelerator::Emulation;
        let died = Fault::Died(String::new());
        let tripped = format!("{TRIPPED}: 0000 [#1]\n{PANIC} - not syncing: Fatal exception");
        assert!(is_of_emulation(EMULATED, &died, &tripped));
        assert!(!is_of_emulation(Accelerator::Kvm, &died, &tripped));
        let general = "Kernel panic - not syncing: Oops: general";
        for console in [TRIPPED, general] {
            assert!(!is_of_emulation(EMULATED, &died, console), "{console}");
        }
        let hung = Fault::Hung(Duration::from_secs(1));
        for fault in [hung, Fault::Emulator(String::new())] {
            assert!(!is_of_emulation(EMULATED, &fault, &tripped), "{fault}");
        }
    }
}
