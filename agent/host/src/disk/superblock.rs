//! Whether a filesystem takes writes where the mount that it is reached by does not.

use std::fs;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

use crate::scan;

/// Of this thread, which may have mounts of its own.
const MOUNTS: &str = "/proc/thread-self/mountinfo";

/// Whether the filesystem of an open file takes writes, whatever its mount says; false where that is not told (before Linux 5.8,
/// or without `/proc`).
pub(super) fn takes_writes(place: BorrowedFd<'_>) -> bool {
    let found = statx(place, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok();
    let found = found.filter(|found| found.stx_mask & StatxFlags::MNT_ID.bits() != 0);
    let mount = found.map(|found| found.stx_mnt_id);
    let told = mount.and_then(|mount| options_tell(&fs::read(MOUNTS).ok()?, mount));
    told == Some(true)
}

/// Whether the filesystem of this mount takes writes, by its own options; none where there is no such mount.
///
/// `36 25 8:1 / /mnt ro,noatime shared:9 - ext4 /dev/sda1 rw,errors=continue` (`proc(5)`).
fn options_tell(mountinfo: &[u8], mount: u64) -> Option<bool> {
    let mut lines = scan::lines(mountinfo);
    let is_it = |line: &&[u8]| scan::words(line).next().and_then(scan::number) == Some(mount);
    let line = lines.find(is_it)?;
    let mut words = scan::words(line).skip_while(|word| *word != b"-");
    let options = words.nth(3)?;
    match options.split(|byte| *byte == b',').next()? {
        b"rw" => Some(true),
        b"ro" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filesystems_own_options_count_and_not_the_mounts() {
        let text =
            b"36 25 8:1 /a /mnt ro,noatime shared:9 master:2 - ext4 /dev/sda1 rw,errors=continue\n\
            37 25 8:2 / /old rw,noatime - ext4 /dev/sdb1 ro\n\
            38 25 0:5 / /odd rw - odd none nothing\n\
            39 25 0:5 / /cut rw - odd\n";
        for (mount, expected) in [
            (36, Some(true)),
            (37, Some(false)),
            (38, None),
            (39, None),
            (3, None),
        ] {
            assert_eq!(options_tell(text, mount), expected, "{mount}");
        }
    }
}
