//! The arguments of a process that is being killed, without holding on to its memory.
//!
//! `/proc/<pid>/cmdline` takes hold of the memory of its process and allocates a page after that. On a node without memory the reader
//! then waits in the kernel's killer, and all the while the victim's memory cannot come back: the kernel kills somebody else. Through
//! `/proc/<pid>/mem` the page is allocated first (`mem_rw` of the kernel's `fs/proc/base.c`, against `get_mm_cmdline` there).

use std::fs::File;
use std::io;
use std::path::Path;

use super::{behind_name, parse_command_line};
use crate::error::HostError;
use crate::hot_file::read_bytes;
use crate::scan;

/// Bytes of a command line that are kept.
pub const LONGEST_COMMAND_LINE: usize = 4096;

/// The arguments of a process, at most [`LONGEST_COMMAND_LINE`] bytes of them: if there are more, the last one ends with `…`. None of a
/// zombie and a kernel thread. Where its memory may not be read (that takes `CAP_SYS_PTRACE`) they are read as `cmdline` has them.
/// They are those of whoever has the id.
///
/// # Errors
/// [`HostError`] with the path.
pub fn command_line(root: &Path, pid: i32) -> Result<Vec<String>, HostError> {
    let folder = root.join("proc").join(pid.to_string());
    let mut text = match from_memory(&folder) {
        Some(text) => text.map_err(|source| HostError::Read {
            path: folder.join("mem"),
            source,
        })?,
        None => read_bytes(&folder.join("cmdline"))?,
    };
    let is_cut = text.len() > LONGEST_COMMAND_LINE;
    text.truncate(LONGEST_COMMAND_LINE);
    let mut arguments = parse_command_line(&text);
    if let Some(last) = arguments.last_mut().filter(|_| is_cut) {
        last.push('…');
    }
    Ok(arguments)
}

/// The bytes of the arguments out of the memory of a process; nothing where that cannot be read.
fn from_memory(folder: &Path) -> Option<io::Result<Vec<u8>>> {
    // Before its place is read. While this is open the memory stays the same one, and the id may become somebody else's: whoever asks
    // for a certain process compares when it was started, once all is read.
    let memory = File::open(folder.join("mem")).ok()?;
    let place = Place::parse(&read_bytes(&folder.join("stat")).ok()?)?;
    Some(place.read(&memory))
}

/// Where in the memory of a process its arguments are, and the environment that they may have grown into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    arguments: [u64; 2],
    environment: [u64; 2],
}

impl Place {
    /// By its `stat`; nothing where the kernel does not tell, as of a process without memory.
    fn parse(stat: &[u8]) -> Option<Self> {
        // The 48th to the 51st field; the third is the first behind the name.
        const BEFORE: usize = 48 - 3;
        let mut words = behind_name(stat)?.skip(BEFORE);
        let mut next = || scan::number(words.next()?);
        let place = Self {
            arguments: [next()?, next()?],
            environment: [next()?, next()?],
        };
        let [first, end] = place.arguments;
        (first > 0 && first < end).then_some(place)
    }

    /// As the kernel has it in `cmdline`: who has written a title over the end of its arguments has all of it, up to its zero.
    fn read(self, memory: &impl ReadAt) -> io::Result<Vec<u8>> {
        let [start, end] = self.arguments;
        let text = read(memory, start, end)?;
        let is_whole = text.len() as u64 == end - start;
        if !is_whole || text.last() == Some(&0) {
            return Ok(text);
        }
        let [next, last] = self.environment;
        let last = if next == end { last.max(end) } else { end };
        let mut text = read(memory, start, last)?;
        if let Some(zero) = text.iter().position(|byte| *byte == 0) {
            text.truncate(zero);
        }
        Ok(text)
    }
}

/// What can be read from a place on.
trait ReadAt {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, bytes, at)
    }
}

/// What is between two places, at most one byte more than is kept.
fn read(memory: &impl ReadAt, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(end - start).unwrap_or(usize::MAX);
    let mut text = vec![0; length.min(LONGEST_COMMAND_LINE + 1)];
    let length = memory.read_at(&mut text, start)?;
    text.truncate(length);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    struct Bytes(&'static [u8]);

    impl ReadAt for Bytes {
        fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
            let from = self.0.get(usize::try_from(at).unwrap()..).unwrap();
            let length = bytes.len().min(from.len());
            bytes[..length].copy_from_slice(&from[..length]);
            Ok(length)
        }
    }

    #[track_caller]
    fn check(memory: &'static [u8], arguments: [u64; 2], environment: [u64; 2], expected: &[&str]) {
        let place = Place {
            arguments,
            environment,
        };
        let text = place.read(&Bytes(memory)).unwrap();
        assert_eq!(parse_command_line(&text), expected);
    }

    #[test]
    fn a_title_goes_on_where_the_environment_was() {
        check(b"..a\0bc\0E=1\0", [2, 7], [7, 11], &["a", "bc"]);
        check(b"..a: the title\0", [2, 6], [6, 15], &["a: the title"]);
        check(b"..a: the title", [2, 6], [6, 14], &["a: the title"]);
        // Whose environment is elsewhere has nothing to grow into.
        check(b"..a: the title\0", [2, 6], [8, 15], &["a: t"]);
        check(b"..a", [2, 9], [9, 9], &["a"]);
    }

    #[test]
    fn the_place_is_where_stat_says() {
        let mut words = vec!["0"; 49];
        let stat =
            |words: &[&str]| Place::parse(format!("7 (a) b) {}", words.join(" ")).as_bytes());
        assert_eq!(stat(&words), None, "not permitted");
        words.splice(45..49, ["100", "120", "120", "140"]);
        let expected = Place {
            arguments: [100, 120],
            environment: [120, 140],
        };
        assert_eq!(stat(&words), Some(expected));
        assert_eq!(stat(&words[..47]), None);
        words[46] = "99";
        assert_eq!(stat(&words), None);
    }

    #[test]
    fn the_memory_of_a_process_says_what_its_file_does() {
        let long = "x".repeat(2 * LONGEST_COMMAND_LINE);
        for arguments in [&["a b", ""][..], &[&long]] {
            let mut child = Command::new("sh")
                .args(["-c", "echo; read -r _", "sh"])
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            // It has its arguments only a moment after it was started.
            let mut line = [0];
            let out = child.stdout.as_mut().expect("piped");
            out.read_exact(&mut line).unwrap();
            let folder = Path::new("/proc").join(child.id().to_string());
            let mut file = read_bytes(&folder.join("cmdline")).unwrap();
            file.truncate(LONGEST_COMMAND_LINE + 1);
            let memory = from_memory(&folder).expect("our own child's").unwrap();
            let told = command_line(Path::new("/"), i32::try_from(child.id()).unwrap());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(memory, file);
            let kept = &file[..file.len().min(LONGEST_COMMAND_LINE)];
            let mut expected = parse_command_line(kept);
            if kept.len() < file.len() {
                expected.last_mut().unwrap().push('…');
            }
            assert_eq!(told.unwrap(), expected);
        }
    }
}
