//! Locks between commands of ours: who comes second waits, and says for whom.
use std::{
    fs::{self, File},
    path::Path,
};

use anyhow::Context as _;

/// Makes a folder where there is none, and locks it as [`wait_for`] does.
///
/// # Errors
/// When it cannot be made, opened or locked.
pub(crate) fn folder(path: &Path, whom: &str) -> anyhow::Result<File> {
    fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
    wait_for(path, whom)
}

/// Locks a file or folder that is there until the result is dropped, after whoever has it locked; `whom` is said of them.
///
/// # Errors
/// When it cannot be opened or locked.
fn wait_for(path: &Path, whom: &str) -> anyhow::Result<File> {
    let wait = || {
        let lock = File::open(path)?;
        if lock.try_lock().is_err() {
            eprintln!(
                "waiting for another command that {whom} ({})",
                path.display()
            );
            lock.lock()?;
        }
        Ok::<_, std::io::Error>(lock)
    };
    wait().with_context(|| format!("locking {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn the_second_waits_for_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = wait_for(folder.path(), "tries").expect("free");
        let (sender, told) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let second = wait_for(folder.path(), "tries");
                sender.send(second.is_ok()).expect("somebody listens");
            });
            let early = told.recv_timeout(Duration::from_millis(200));
            assert!(early.is_err(), "both have it");
            drop(first);
            assert_eq!(told.recv_timeout(Duration::from_secs(30)), Ok(true));
        });
        let gone = wait_for(&folder.path().join("gone"), "tries");
        assert!(gone.is_err(), "nothing is there to lock");
    }
}
