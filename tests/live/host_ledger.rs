//! The ledger after its writer was killed: what was recorded is there, what was being recorded is not.
#![cfg(test)]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use brink_host::clock::BootId;
use brink_host::ledger::{Ledger, LedgerShape, Opening};
use brink_tests::wait_until;

const SHAPE: LedgerShape = LedgerShape {
    slots: 8,
    record: 256,
    completion: 64,
    format: 1,
};
const PATH: &str = "BRINK_TEST_LEDGER";

fn boot() -> BootId {
    BootId::read(Path::new("/")).expect("this boot")
}

/// Writes one whole record, one without completion, and dies, or is killed, in the middle of a third.
fn write(path: &Path, in_the_middle: impl FnOnce()) {
    let (mut ledger, _) = Ledger::open(path, SHAPE, boot()).expect("open");
    let first = ledger.record(|record| record.fill(1));
    assert!(ledger.complete(first, |completion| completion.fill(11)));
    ledger.record(|record| record.fill(2));
    ledger.record(|record| {
        record[..100].fill(3);
        in_the_middle();
    });
}

/// The writer. Started by the test below in a process of its own; by itself it writes to a file of its own and ends.
#[test]
fn a_writer_to_be_killed() {
    if let Some(path) = std::env::var_os(PATH).map(PathBuf::from) {
        write(&path, || {
            fs::write(path.with_extension("ready"), "").expect("writable");
            sleep(Duration::from_mins(1));
        });
        return;
    }
    let path = std::env::temp_dir().join(format!("brink-test-ledger-{}", std::process::id()));
    write(&path, || {});
    let (ledger, opening) = Ledger::open(&path, SHAPE, boot()).expect("open");
    fs::remove_file(&path).expect("removable");
    assert_eq!(
        (opening, ledger.entries().count()),
        (Opening::Resumed { records: 3 }, 3)
    );
}

#[test]
fn a_kill_in_the_middle_of_a_record_loses_that_one_alone() {
    // Where the agent keeps it, if we may write there.
    let run = Path::new("/run");
    let folder = if fs::metadata(run).is_ok_and(|run| !run.permissions().readonly()) {
        run
    } else {
        Path::new("/tmp")
    };
    let path = folder.join(format!("brink-test-ledger-{}", std::process::id()));
    let ready = path.with_extension("ready");
    let mut child = Command::new(std::env::current_exe().expect("ourselves"))
        .args(["--exact", "a_writer_to_be_killed", "--test-threads=1"])
        .env(PATH, &path)
        .stdout(Stdio::null())
        .spawn()
        .expect("ourselves again");
    let is_ready = wait_until(Duration::from_secs(10), || ready.exists().then_some(()));
    child.kill().expect("ours");
    let status = child.wait().expect("ours");
    let opened = Ledger::open(&path, SHAPE, boot());
    let removed = fs::remove_file(&path).and(fs::remove_file(&ready));
    assert!(is_ready.is_some() && removed.is_ok(), "{removed:?}");
    assert_eq!(status.signal(), Some(9));
    let (mut ledger, opening) = opened.expect("open");
    assert_eq!(opening, Opening::Resumed { records: 2 });
    let mut found: Vec<_> = ledger
        .entries()
        .map(|entry| (entry.slot.sequence, entry.record, entry.completion))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            (1, &[1u8; 256][..], Some(&[11u8; 64][..])),
            (2, &[2u8; 256][..], None)
        ]
    );
    assert_eq!(ledger.record(|_| {}).sequence, 3);
}
