//! The disk of a guest that has a serial number: disks come in any order.
use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// Longest wait for a disk: its controller is looked for while we run already.
const DEADLINE: Duration = Duration::from_mins(1);

/// Waits for the disk, and says what its device is called.
///
/// # Errors
/// When there is none in a minute.
pub(crate) fn by_serial(serial: &str) -> anyhow::Result<PathBuf> {
    let began = Instant::now();
    while began.elapsed() < DEADLINE {
        if let Some(device) = find(Path::new("/"), serial)? {
            return Ok(device);
        }
        sleep(Duration::from_millis(50));
    }
    bail!("no disk with the serial number `{serial}`");
}

fn find(root: &Path, serial: &str) -> anyhow::Result<Option<PathBuf>> {
    let disks = root.join("sys/block");
    let entries = fs::read_dir(&disks).with_context(|| disks.display().to_string())?;
    for entry in entries.flatten() {
        let device = root.join("dev").join(entry.file_name());
        let told = fs::read_to_string(entry.path().join("device/serial")).unwrap_or_default();
        // The field of an NVMe controller has 20 characters, and the kernel shows it with the blanks that fill it up.
        // With more than one path to a disk a second entry has its number, and no device.
        if told.trim() == serial && device.exists() {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_found_by_all_of_its_number_without_the_blanks_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("dev")).unwrap();
        let padded = |serial: &str| format!("{serial:<20}\n");
        for (name, serial, has_device) in [
            ("nvme0n1", padded("output"), true),
            ("nvme1n1", padded("out"), true),
            ("nvme2c2n1", padded("scratch"), false),
            ("nvme3n1", "peers\n".to_owned(), true),
        ] {
            let device = root.join("sys/block").join(name).join("device");
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("serial"), serial).unwrap();
            if has_device {
                fs::write(root.join("dev").join(name), "").unwrap();
            }
        }
        fs::create_dir_all(root.join("sys/block/loop0")).unwrap();
        fs::write(root.join("dev/loop0"), "").unwrap();
        for (serial, expected) in [
            ("out", Some("nvme1n1")),
            ("output", Some("nvme0n1")),
            ("outpu", None),
            ("scratch", None),
            ("peers", Some("nvme3n1")),
        ] {
            let expected = expected.map(|name| root.join("dev").join(name));
            assert_eq!(find(root, serial).unwrap(), expected, "{serial}");
        }
    }
}
