//! Several files in one input: a line `=== NAME` begins the next one.

/// Files that one input can hold.
const MOST: usize = 8;

/// The files of an input, in their order.
#[derive(Debug)]
pub(crate) struct Bundle<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> Bundle<'a> {
    /// Takes an input apart. What stands before the first name is the file `first`.
    pub(crate) fn split(first: &'static str, bytes: &'a [u8]) -> Self {
        let mut files = Vec::new();
        let (mut name, mut start, mut at) = (first, 0, 0);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let next = at + line.len();
            if let Some(found) = header(line).filter(|_| files.len() < MOST) {
                if at > 0 {
                    files.push((name, &bytes[start..at]));
                }
                (name, start) = (found, next);
            }
            at = next;
        }
        files.push((name, &bytes[start..]));
        Self(files)
    }

    /// The last file of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&'a [u8]> {
        let file = self.0.iter().rfind(|(own, _)| *own == name);
        file.map(|(_, bytes)| *bytes)
    }

    /// Every file whose name begins so, by the rest of its name.
    pub(crate) fn below(&self, prefix: &str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let files = self.0.iter();
        files.filter_map(move |(name, bytes)| Some((name.strip_prefix(prefix)?, *bytes)))
    }
}

/// The name in a header. It is part of a path, and leads nowhere else.
fn header(line: &[u8]) -> Option<&str> {
    let name = line.strip_prefix(b"=== ")?.strip_suffix(b"\n")?;
    let name = std::str::from_utf8(name).ok()?;
    let is_plain = |part: &str| {
        (1..=40).contains(&part.len())
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let mut parts = name.split('/');
    (parts.by_ref().take(2).all(is_plain) && parts.next().is_none()).then_some(name)
}
