//! Locks between commands of ours: who comes second waits, and says for whom.
use std::{fs::File, path::Path};

use anyhow::Context as _;

/// Locks a file or folder that is there until the result is dropped, after whoever has it locked; `whom` is said of them.
///
/// # Errors
/// When it cannot be opened or locked.
pub(crate) fn wait_for(path: &Path, whom: &str) -> anyhow::Result<File> {
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
