//! The room of filesystems that fill, refuse writes, or do not count inodes.

use std::fs::{self, File};
use std::io::Write as _;

use brink_host::disk::filesystem::Filesystem;
use brink_tests::{OwnDisk, lacks_disk, skip};
use rustix::mount::{MountFlags, mount_remount};

#[test]
fn a_filesystem_that_fills_has_less_and_then_none() {
    if let Err(why) = OwnDisk::own_mounts() {
        skip!("{why}");
    }
    let place = tempfile::tempdir().unwrap();
    let disk = match OwnDisk::ext4(place.path(), 32, &["-N", "128"]) {
        Ok(disk) => disk,
        Err(why) => lacks_disk!("{why}"),
    };
    let empty = Filesystem::read(disk.place()).unwrap();
    assert_eq!(empty.kind.to_string(), "ext4");
    assert!(
        !empty.read_only && empty.available < empty.free,
        "{empty:?}"
    );
    let inodes = empty.inodes.unwrap();
    assert_eq!(inodes.total, 128);

    let mut file = File::create(disk.place().join("filler")).unwrap();
    file.write_all(&vec![1; 8 << 20]).unwrap();
    let filled = Filesystem::read(disk.place()).unwrap();
    let less = empty.available - filled.available;
    assert!((8 << 20..9 << 20).contains(&less), "{less}");
    let block = vec![1; 1 << 16];
    while file.write_all(&block).is_ok() {}
    while file.write_all(&[1]).is_ok() {}
    let full = Filesystem::read(disk.place()).unwrap();
    assert_eq!(full.available, 0);
    drop(file);
    fs::remove_file(disk.place().join("filler")).unwrap();

    for number in 0.. {
        if File::create(disk.place().join(number.to_string())).is_err() {
            break;
        }
    }
    assert_eq!(
        Filesystem::read(disk.place()).unwrap().inodes.unwrap().free,
        0
    );

    // The mount alone, as a container has it, and then the filesystem.
    mount_remount(disk.place(), MountFlags::BIND | MountFlags::RDONLY, c"").unwrap();
    assert!(File::create(disk.place().join("refused")).is_err());
    assert!(!Filesystem::read(disk.place()).unwrap().read_only);
    mount_remount(disk.place(), MountFlags::RDONLY, c"").unwrap();
    assert!(Filesystem::read(disk.place()).unwrap().read_only);
}

#[test]
fn files_in_memory_without_a_limit_of_inodes_have_none_known() {
    if let Err(why) = OwnDisk::own_mounts() {
        skip!("{why}");
    }
    let place = tempfile::tempdir().unwrap();
    let disk = OwnDisk::mount("tmpfs", place.path(), "size=1m,nr_inodes=0,mode=0700").unwrap();
    let found = Filesystem::read(disk.place()).unwrap();
    assert_eq!((found.inodes, found.kind.is_memory()), (None, true));
    assert_eq!((found.capacity, found.available), (1 << 20, 1 << 20));
}
