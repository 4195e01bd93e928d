//! The files of a container lie on an overlay: it is full when the filesystem below it is, to the last block or the last inode.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use brink_core::node::observe::{self, Observation};
use brink_host::disk::filesystem::{Filesystem, FilesystemKind};
use brink_host::disk::{Folder, Method, Usage};
use brink_tests::{OwnDisk, lacks_disk, skip};
use tempfile::TempDir;

use crate::usage::{folder, measure, meter};

/// More than the folder itself takes, and what says where the blocks of a file are.
const BESIDE: u64 = 64 << 10;

/// An overlay on a small ext4. What is mounted last goes first.
struct Ground {
    overlay: OwnDisk,
    disk: OwnDisk,
    _place: TempDir,
}

impl Ground {
    fn new() -> Result<Self, String> {
        let place = tempfile::tempdir().map_err(|error| error.to_string())?;
        let disk = OwnDisk::ext4(place.path(), 32, &["-N", "128"])?;
        Ok(Self {
            overlay: OwnDisk::overlay(disk.place())?,
            disk,
            _place: place,
        })
    }

    /// What there is of bytes and of inodes, which the overlay and the filesystem below it must agree on.
    fn left(&self) -> (i64, i64) {
        let [seen, below] = [&self.overlay, &self.disk].map(|disk| signals(disk.place()));
        assert_eq!(seen, below);
        let [bytes, inodes] = seen.map(|signal| signal.unwrap().available);
        (bytes, inodes)
    }

    /// What the writable layer uses, as it is measured where its quota does not count.
    fn used(&self) -> Usage {
        let layer = Folder {
            quota: false,
            written_directly: false,
            ..folder(&self.disk.place().join("upper"))
        };
        let mut meter = meter(Duration::from_mins(1));
        let used = measure(&mut meter, &layer, Instant::now()).unwrap();
        assert!(
            used.method == Method::Walk && used.gaps.is_exact(),
            "{used:?}"
        );
        used
    }
}

/// The signals of available bytes and of free inodes of the filesystem that a folder lies on.
fn signals(place: &Path) -> [Option<Observation>; 2] {
    let found = Filesystem::read(place).unwrap();
    let inodes = found.inodes.unwrap();
    [
        observe::filesystem(Some(found.available), Some(found.capacity), None),
        observe::filesystem(Some(inodes.free), Some(inodes.total), None),
    ]
}

/// Goes on until there is no room, and for no other reason.
fn until_full(mut step: impl FnMut() -> io::Result<()>) {
    let refused = loop {
        if let Err(error) = step() {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
}

#[test]
fn an_overlay_that_is_filled_to_the_last_block_has_none_and_its_layer_what_was_written() {
    if let Err(why) = OwnDisk::own_mounts() {
        skip!("{why}");
    }
    let ground = match Ground::new() {
        Ok(ground) => ground,
        Err(why) => lacks_disk!("{why}"),
    };
    let found = Filesystem::read(ground.overlay.place()).unwrap();
    assert_eq!(found.kind, FilesystemKind::OVERLAY);
    let (bytes, inodes) = ground.left();
    assert!(bytes > 16 << 20, "{bytes}");

    let path = ground.overlay.place().join("filler");
    let mut file = File::create(&path).unwrap();
    let block = vec![1; 1 << 16];
    until_full(|| file.write_all(&block));
    // What was left of the last one, a byte at a time.
    until_full(|| file.write_all(&[1]));
    file.sync_all().unwrap();
    assert_eq!(ground.left(), (0, inodes - 1));
    let written = file.metadata().unwrap().len();
    // Root may write what is kept from others.
    assert!(written >= bytes.cast_unsigned(), "{written} of {bytes}");
    let used = ground.used();
    assert_eq!(used.inodes, 2, "the folder and the file");
    assert!(
        (written..written + BESIDE).contains(&used.bytes),
        "{written} {used:?}"
    );

    drop(file);
    fs::remove_file(&path).unwrap();
    let (again, _) = ground.left();
    assert!(again.abs_diff(bytes) < BESIDE, "{again} of {bytes}");
    assert!(ground.used().bytes < BESIDE);
}

#[test]
fn an_overlay_whose_inodes_are_used_up_has_none_and_its_layer_all_that_were_made() {
    if let Err(why) = OwnDisk::own_mounts() {
        skip!("{why}");
    }
    let ground = match Ground::new() {
        Ok(ground) => ground,
        Err(why) => lacks_disk!("{why}"),
    };
    let (bytes, inodes) = ground.left();
    let mut made = 0_i64;
    until_full(|| {
        File::create(ground.overlay.place().join(made.to_string()))?;
        made += 1;
        Ok(())
    });
    assert_eq!(made, inodes);
    let (left, none) = ground.left();
    assert_eq!(none, 0);
    assert!(
        left.abs_diff(bytes) < BESIDE,
        "empty files: {left} of {bytes}"
    );
    let used = ground.used();
    assert_eq!(used.inodes, made.cast_unsigned() + 1);
    assert!(used.bytes < BESIDE, "{used:?}");
}
