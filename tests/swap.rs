//! An area of swap for tests that may change what the machine has.
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An area of swap that is in use until dropped.
pub struct Swap {
    device: PathBuf,
    is_zram: bool,
}

fn run(program: &str, area: &Path) -> Result<(), String> {
    let output = Command::new(program).arg(area).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let talk = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {talk}", area.display()))
}

impl Swap {
    /// So many MiB in a file on a disk.
    ///
    /// # Errors
    /// In words, when there is no room or the kernel does not take it.
    pub fn on_disk(mib: u64) -> Result<Self, String> {
        let file = std::env::temp_dir().join("swap");
        // The kernel takes no file with holes.
        let filled = fs::File::create(&file).and_then(|mut file| {
            let block = vec![0; 1 << 20];
            (0..mib).try_for_each(|_| file.write_all(&block))?;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.sync_all()
        });
        filled.map_err(|error| format!("{}: {error}", file.display()))?;
        Self::begin(file, false)
    }

    /// So many MiB in compressed memory, which takes up only what is put there.
    ///
    /// # Errors
    /// In words, when the kernel has none or does not take it.
    pub fn in_zram(mib: u64) -> Result<Self, String> {
        let block = Path::new("/sys/block/zram0");
        if !block.exists() {
            return Err("the kernel has no zram".to_owned());
        }
        fs::write(block.join("disksize"), format!("{mib}M")).map_err(|error| error.to_string())?;
        Self::begin(PathBuf::from("/dev/zram0"), true)
    }

    fn begin(device: PathBuf, is_zram: bool) -> Result<Self, String> {
        run("mkswap", &device)?;
        run("swapon", &device)?;
        Ok(Self { device, is_zram })
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let given_back = run("swapoff", &self.device).and_then(|()| {
            let cleared = if self.is_zram {
                fs::write("/sys/block/zram0/reset", "1")
            } else {
                fs::remove_file(&self.device)
            };
            cleared.map_err(|error| error.to_string())
        });
        // A test that fails already says why; two panics at once would end all of them.
        assert!(
            given_back.is_ok() || std::thread::panicking(),
            "{given_back:?}"
        );
    }
}
