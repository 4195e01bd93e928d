//! Facts that may be missing, and small files as facts.

use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A fact, or the reason why it is not known.
pub type Known<T> = Result<T, String>;

/// No file that is read here is larger.
const LARGEST: u64 = 64 << 10;

/// The fact of a reader.
pub(super) fn known<T, E: Display>(read: Result<T, E>) -> Known<T> {
    read.map_err(|error| error.to_string())
}

/// A path of the machine, under the root that it is mounted at for us.
pub(super) fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The text of a small file, without the blanks around it.
pub(super) fn text(root: &Path, path: &str) -> Known<String> {
    let path = under(root, Path::new(path));
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The number a small file holds, its first where there are several.
pub(super) fn number<T: FromStr>(root: &Path, path: &str) -> Known<T> {
    let text = text(root, path)?;
    let word = text.split_whitespace().next().unwrap_or_default();
    word.parse()
        .map_err(|_| format!("{path}: {word:?} is not the number it should be"))
}

/// The choice in brackets: `always [madvise] never`.
pub(super) fn choice(root: &Path, path: &str) -> Known<String> {
    let text = text(root, path)?;
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match chosen {
        Some((word, _)) => Ok(word.to_owned()),
        None => Err(format!("{path}: no choice in {text:?}")),
    }
}

/// How many numbers a list such as `0-2,4` holds.
pub(super) fn list_length(text: &str) -> Option<u32> {
    let mut sum = 0_u32;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        sum = sum.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted_and_nonsense_is_none() {
        fn check(text: &str, expected: Option<u32>) {
            assert_eq!(list_length(text), expected, "{text:?}");
        }
        check("0", Some(1));
        check("0-1", Some(2));
        check("0-2,4,8-9", Some(6));
        check("", None);
        check("3-1", None);
        check("0-4294967295", None);
        check("a-b", None);
    }

    #[test]
    fn files_become_facts_or_reasons() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("mode"), "always [madvise] never\n").unwrap();
        std::fs::write(root.path().join("count"), "42 43\n").unwrap();
        assert_eq!(choice(root.path(), "/mode"), Ok("madvise".to_owned()));
        assert_eq!(number::<u64>(root.path(), "/count"), Ok(42));
        assert!(number::<u64>(root.path(), "/mode").is_err());
        assert!(choice(root.path(), "/count").is_err());
        let missing = text(root.path(), "/none").unwrap_err();
        assert!(missing.contains("none: No such file"), "{missing}");
    }
}
