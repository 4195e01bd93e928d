//! The archive a kernel unpacks as its first file system (cpio, form `newc`), which also carries a guest's files home.
//!
//! The form is Documentation/driver-api/early-userspace/buffer-format.rst of the kernel: for each entry a header of
//! hexadecimal text, the name and the data, each padded to four bytes; an entry named `TRAILER!!!` is the last.
use std::{fs, io, io::Write, path::PathBuf};

use anyhow::{Context as _, bail};

const MAGIC: &[u8] = b"070701";
/// Of the magic and thirteen fields of eight digits.
const HEADER: usize = 6 + 13 * 8;
const TRAILER: &str = "TRAILER!!!";
/// The fields of a header that are read back.
const MODE: usize = 1;
const SIZE: usize = 6;
const NAME_SIZE: usize = 11;

/// The type bits of a mode.
const KIND: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// One file, folder or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Path without a slash at its beginning.
    pub(super) path: String,
    /// Permission bits.
    pub(super) permissions: u32,
    pub(super) data: Data,
}

/// What an entry is, with what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Data {
    Folder,
    /// A symbolic link and where it leads.
    Link(String),
    Bytes(Vec<u8>),
    /// A file whose bytes are those of another.
    CopyOf(PathBuf),
}

impl Entry {
    /// A folder that everybody may look into.
    pub(super) fn folder(path: &str) -> Self {
        Self::new(path, 0o755, Data::Folder)
    }

    pub(super) fn new(path: &str, permissions: u32, data: Data) -> Self {
        let path = path.trim_start_matches('/').to_owned();
        Self {
            path,
            permissions,
            data,
        }
    }

    fn mode(&self) -> u32 {
        let kind = match self.data {
            Data::Folder => FOLDER,
            Data::Link(_) => LINK,
            Data::Bytes(_) | Data::CopyOf(_) => FILE,
        };
        kind | self.permissions
    }
}

/// Writes the entries, owned by root and from the beginning of time, so that the same make the same bytes. A folder
/// comes before what is in it: nothing is made that was not asked for.
///
/// # Errors
/// When a file cannot be read, is too large for the form, or the archive cannot be written.
pub(super) fn write(out: &mut impl Write, entries: &[Entry]) -> anyhow::Result<()> {
    for (index, entry) in (1..).zip(entries) {
        let read;
        let bytes: &[u8] = match &entry.data {
            Data::Folder => &[],
            Data::Link(target) => target.as_bytes(),
            Data::Bytes(bytes) => bytes,
            Data::CopyOf(path) => {
                read = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
                &read
            }
        };
        write_one(out, index, (entry.path.as_str(), entry.mode()), bytes)
            .with_context(|| format!("packing {}", entry.path))?;
    }
    write_one(out, 0, (TRAILER, 0), &[]).context("closing the archive")
}

fn write_one(
    out: &mut impl Write,
    inode: u32,
    (name, mode): (&str, u32),
    bytes: &[u8],
) -> io::Result<()> {
    let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
    let links = if mode & KIND == FOLDER { 2 } else { 1 };
    let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
    out.write_all(MAGIC)?;
    for field in fields {
        write!(out, "{field:08X}")?;
    }
    out.write_all(name.as_bytes())?;
    out.write_all(&[0])?;
    out.write_all(padding(HEADER + name.len() + 1))?;
    out.write_all(bytes)?;
    out.write_all(padding(bytes.len()))
}

fn padding(length: usize) -> &'static [u8] {
    &[0; 3][..length.next_multiple_of(4) - length]
}

/// Reads an archive to its trailer; what follows is nobody's.
///
/// # Errors
/// When it is none, breaks off before its trailer, or holds what these archives do not.
pub(super) fn read(archive: &[u8]) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut rest = archive;
    loop {
        let at = archive.len() - rest.len();
        let (name, mode, bytes) = read_one(&mut rest).with_context(|| {
            format!(
                "no entry at byte {at} of {}: cut off, or no archive",
                archive.len()
            )
        })?;
        if name == TRAILER {
            return Ok(entries);
        }
        let data = match mode & KIND {
            FOLDER => Data::Folder,
            FILE => Data::Bytes(bytes.to_vec()),
            LINK => Data::Link(String::from_utf8_lossy(bytes).into_owned()),
            _ => bail!("{name} is neither file, folder nor link: mode {mode:o}"),
        };
        entries.push(Entry::new(name, mode & !KIND, data));
    }
}

/// Takes one entry off the front: name, mode and data.
fn read_one<'a>(rest: &mut &'a [u8]) -> Option<(&'a str, u32, &'a [u8])> {
    let all = *rest;
    let header = all.get(..HEADER)?;
    let field = |number: usize| {
        let digits = header.get(MAGIC.len() + 8 * number..)?.get(..8)?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    header.starts_with(MAGIC).then_some(())?;
    let name_end = HEADER.checked_add(usize::try_from(field(NAME_SIZE)?).ok()?)?;
    let name = all.get(HEADER..name_end)?.strip_suffix(&[0])?;
    let begin = name_end.checked_next_multiple_of(4)?;
    let end = begin.checked_add(usize::try_from(field(SIZE)?).ok()?)?;
    let bytes = all.get(begin..end)?;
    *rest = all.get(end.checked_next_multiple_of(4)?..)?;
    Some((std::str::from_utf8(name).ok()?, field(MODE)?, bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Made by busybox 1.37: `printf 'sub\nsub/a\nlink\nempty\n' | busybox cpio -o -H newc`, in a folder where `sub/a`
    /// holds `hello`, `link` leads to `sub/a`, and everything is from the beginning of time and root's.
    const BUSYBOX: &[u8] = include_bytes!("busybox.cpio");

    fn sample() -> Vec<Entry> {
        let file = |path, bytes: &[u8]| Entry::new(path, 0o644, Data::Bytes(bytes.to_vec()));
        vec![
            Entry::folder("/sub"),
            file("sub/a", b"hello\n"),
            Entry::new("link", 0o777, Data::Link("sub/a".to_owned())),
            file("empty", b""),
        ]
    }

    fn written(entries: &[Entry]) -> Vec<u8> {
        let mut archive = Vec::new();
        write(&mut archive, entries).unwrap();
        archive
    }

    /// Without what depends on the file system it was made on: inode and device numbers; and links of folders.
    fn without_numbers(archive: &[u8]) -> Vec<u8> {
        let mut archive = archive.to_vec();
        let is_header = |at: &usize| archive[*at..].starts_with(MAGIC);
        let headers: Vec<usize> = (0..archive.len()).step_by(4).filter(is_header).collect();
        for at in headers {
            for number in [0, 4, 7, 8] {
                let field = at + MAGIC.len() + 8 * number;
                archive[field..field + 8].fill(b'0');
            }
        }
        archive
    }

    #[test]
    fn the_bytes_are_those_of_busybox() {
        let ours = without_numbers(&written(&sample()));
        let theirs = without_numbers(BUSYBOX);
        assert_eq!(String::from_utf8(ours), String::from_utf8(theirs));
    }

    #[test]
    fn what_busybox_packs_is_read() {
        assert_eq!(read(BUSYBOX).unwrap(), sample());
    }

    #[test]
    fn a_copy_has_the_bytes_of_its_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "text").unwrap();
        let copy = Entry::new("a", 0o755, Data::CopyOf(file.path().to_owned()));
        let expected = Entry::new("a", 0o755, Data::Bytes(b"text".to_vec()));
        assert_eq!(read(&written(&[copy])).unwrap(), [expected]);
        let missing = Entry::new("a", 0o755, Data::CopyOf("/nowhere/at-all".into()));
        let error = write(&mut Vec::new(), &[missing]).unwrap_err();
        assert!(
            format!("{error:#}").contains("/nowhere/at-all"),
            "{error:#}"
        );
    }

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let data = prop_oneof![
            Just(Data::Folder),
            "[a-z/.]{1,9}".prop_map(Data::Link),
            prop::collection::vec(any::<u8>(), 0..50).prop_map(Data::Bytes),
        ];
        let entry = ("[a-z]{1,9}(/[a-z]{1,9})?", 0_u32..0o1000, data)
            .prop_map(|(path, permissions, data)| Entry::new(&path, permissions, data));
        prop::collection::vec(entry, 0..5)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(entries in entries()) {
            prop_assert_eq!(read(&written(&entries)).unwrap(), entries);
        }

        #[test]
        fn what_is_cut_off_is_no_archive(entries in entries(), end in any::<prop::sample::Index>()) {
            let archive = written(&entries);
            prop_assert!(read(&archive[..end.index(archive.len())]).is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _answer = read(&bytes);
        }
    }
}
