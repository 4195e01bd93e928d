//! A pseudo-terminal that keeps what is written to it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A terminal. What was written ends when everybody has closed its side.
#[derive(Debug)]
pub struct Terminal {
    keys: File,
    side: File,
    written: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// A new one.
    ///
    /// # Errors
    /// When the machine has none to give.
    pub fn open() -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let path = name.to_str().map_err(io::Error::other)?;
        let side = File::options().read(true).write(true).open(path)?;
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let keys = File::from(master);
        let (mut from, into) = (keys.try_clone()?, Arc::clone(&written));
        let read = move || {
            let mut some = [0; 4096];
            // With its last writer gone it fails.
            while let Ok(count @ 1..) = from.read(&mut some) {
                lock(&into).extend(&some[..count]);
            }
        };
        let reader = thread::spawn(read);
        Ok(Self {
            keys,
            side,
            written,
            reader,
        })
    }

    /// Its side, for a process.
    ///
    /// # Errors
    /// When there are too many files.
    pub fn side(&self) -> io::Result<File> {
        self.side.try_clone()
    }

    /// Presses keys on it.
    ///
    /// # Errors
    /// When it takes none.
    pub fn press(&mut self, keys: &str) -> io::Result<()> {
        self.keys.write_all(keys.as_bytes())
    }

    /// What was written so far.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&lock(&self.written)).into_owned()
    }

    /// All that was written, once every process with its side has ended.
    pub fn end(self) -> String {
        drop(self.side);
        // A panic of it was printed.
        let _read = self.reader.join();
        String::from_utf8_lossy(&lock(&self.written)).into_owned()
    }
}

fn lock(written: &Mutex<Vec<u8>>) -> std::sync::MutexGuard<'_, Vec<u8>> {
    written.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lines that are to be seen after all that was written: `\r` begins a line anew, over what stands there.
pub fn seen(written: &str) -> Vec<String> {
    let line = |written: &str| {
        let mut cells: Vec<char> = Vec::new();
        for part in written.split('\r') {
            let length = part.chars().count();
            let rest = cells.split_off(length.min(cells.len()));
            cells = part.chars().chain(rest).collect();
        }
        let text: String = cells.into_iter().collect();
        text.trim_end().to_owned()
    };
    written.split('\n').map(line).collect()
}
