//! Small files that others write: read whole, no further than they may be, and only where reading them cannot wait.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// The largest file that is read, in bytes: a kubeconfig of some hundred clusters, or a bundle of certificates.
const LARGEST: usize = 1 << 20;

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a pipe, a socket, a device or a folder.
    #[error("it is no regular file; a pipe or a device is not read")]
    NotRegular,
    /// There is too much of it.
    #[error("it is larger than {} KiB", LARGEST >> 10)]
    TooLarge,
    /// It is no text.
    #[error("it is no text in {0}; write it anew in UTF-8")]
    NotText(&'static str),
}

/// What a file has.
pub(super) fn bytes_of(path: &Path) -> Result<Vec<u8>, FileError> {
    // Looked at before it is opened too: to open a pipe waits for whoever writes into it.
    if !fs::metadata(path)?.is_file() {
        return Err(FileError::NotRegular);
    }
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileError::NotRegular);
    }
    let mut bytes = Vec::new();
    // One byte more than allowed is enough to see that it is too much.
    file.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > LARGEST {
        return Err(FileError::TooLarge);
    }
    Ok(bytes)
}

/// What a file has as a text: in UTF-8, or in UTF-16 with a mark of its order at the start.
///
/// # Errors
/// When it is none.
pub fn text(bytes: &[u8]) -> Result<String, FileError> {
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => {
            let rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            let text = str::from_utf8(rest).map_err(|_| FileError::NotText("UTF-8"))?;
            Ok(text.to_owned())
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, FileError> {
    let (pairs, left) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|&pair| unit(pair)).collect();
    match String::from_utf16(&units) {
        Ok(text) if left.is_empty() => Ok(text),
        _ => Err(FileError::NotText("UTF-16, as its first two bytes say")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_in_either_order_of_utf_16_and_never_by_half() {
        let check = |bytes: &[u8], expected: Option<&str>| {
            assert_eq!(text(bytes).ok().as_deref(), expected, "{bytes:?}");
        };
        check(b"a: \xc3\xa4", Some("a: \u{e4}"));
        check(b"\xef\xbb\xbfa", Some("a"));
        check(b"\xff\xfea\0", Some("a"));
        check(b"\xfe\xff\0a", Some("a"));
        check(b"", Some(""));
        check(b"\xff\xfe", Some(""));
        check(b"\xff\xfe\0", None);
        check(b"\xfe\xff\0", None);
        check(b"\xff\xfea\0b", None);
        // The first half of a pair.
        check(b"\xff\xfe\0\xd8", None);
        check(b"\xff", None);
    }

    #[test]
    fn only_a_regular_file_of_a_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let said = || bytes_of(&path).unwrap_err().to_string();
        assert!(said().contains("No such file"), "{}", said());
        fs::write(&path, vec![b'#'; LARGEST]).unwrap();
        assert_eq!(bytes_of(&path).unwrap().len(), LARGEST);
        fs::write(&path, vec![b'#'; LARGEST + 1]).unwrap();
        assert_eq!(said(), "it is larger than 1024 KiB");
        for special in [folder.path(), Path::new("/dev/zero")] {
            let found = bytes_of(special);
            assert!(matches!(found, Err(FileError::NotRegular)), "{special:?}");
        }
    }
}
