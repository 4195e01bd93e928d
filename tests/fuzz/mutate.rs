//! Inputs that are nearly right: seeds with a few changes, and now and then bytes that nobody chose.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// No input is longer, in bytes; long ones are libFuzzer's.
const LONGEST: usize = 16 << 10;
/// Changes of one seed.
const MOST_CHANGES: usize = 5;
/// What numbers are apt to go wrong at.
static NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "010",
    "0.1",
    "1e400",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
];
/// What separates, quotes or repeats in one of the formats.
static WORDS: [&str; 22] = [
    "\n", "\n\n", " ", "\t", ":", ": ", ",", "=", "/", "..", "\"", "'", "[", "]", "{", "}", "&a ",
    "*a", "<<: ", "%", "\u{0}", "\u{2028}",
];

/// One change. Places are shares of the length, so that they mean something whatever came before.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    Truncate(Index),
    /// A stretch once more, elsewhere.
    Repeat(Index, u8, Index),
    /// The end of another seed from somewhere on.
    Splice(Index, Index, Index),
    /// One of the numbers is another.
    Number(Index, &'static str),
    /// A line more, less, or elsewhere.
    Line(Index, Index, bool),
}

/// Inputs made of these seeds, of which there must be one.
pub(crate) fn inputs(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let seeds = Arc::new(seeds);
    let mutated =
        (any::<Index>(), vec(change(), 0..=MOST_CHANGES)).prop_map(move |(seed, changes)| {
            let mut bytes = seed.get(&seeds).clone();
            for change in &changes {
                change.apply(&mut bytes, &seeds);
                bytes.truncate(LONGEST);
            }
            bytes
        });
    prop_oneof![1 => vec(any::<u8>(), 0..400), 9 => mutated]
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let word = select(&WORDS[..]).prop_map(|word| word.as_bytes().to_vec());
    prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (at(), word).prop_map(|(at, word)| Change::Insert(at, word)),
        (at(), vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (at(), any::<u8>()).prop_map(|(at, length)| Change::Remove(at, length)),
        at().prop_map(Change::Truncate),
        (at(), any::<u8>(), at()).prop_map(|(from, length, to)| Change::Repeat(from, length, to)),
        (at(), at(), at()).prop_map(|(seed, from, to)| Change::Splice(seed, from, to)),
        (at(), select(&NUMBERS[..])).prop_map(|(at, number)| Change::Number(at, number)),
        (at(), at(), any::<bool>()).prop_map(|(from, to, stays)| Change::Line(from, to, stays)),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        match self {
            Self::Insert(at, more) => insert(bytes, *at, more),
            Self::Splice(seed, from, to) => {
                let other = seed.get(seeds);
                bytes.truncate(to.index(bytes.len() + 1));
                bytes.extend_from_slice(&other[from.index(other.len() + 1)..]);
            }
            // All others need something to change.
            _ if bytes.is_empty() => {}
            Self::Flip(at, bit) => *at.get_mut(bytes) ^= 1u8 << *bit,
            Self::Set(at, byte) => *at.get_mut(bytes) = *byte,
            Self::Remove(at, length) => drop(bytes.drain(stretch(bytes.len(), *at, *length))),
            Self::Truncate(at) => bytes.truncate(at.index(bytes.len())),
            Self::Repeat(from, length, to) => {
                let more = bytes[stretch(bytes.len(), *from, *length)].to_vec();
                insert(bytes, *to, &more);
            }
            Self::Number(at, number) => {
                let found = numbers(bytes);
                if !found.is_empty() {
                    drop(bytes.splice(at.get(&found).clone(), number.bytes()));
                }
            }
            Self::Line(from, to, stays) => move_line(bytes, *from, *to, *stays),
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: Index, more: &[u8]) {
    let at = at.index(bytes.len() + 1);
    drop(bytes.splice(at..at, more.iter().copied()));
}

fn stretch(length: usize, at: Index, most: u8) -> std::ops::Range<usize> {
    let start = at.index(length);
    start..length.min(start + usize::from(most))
}

/// Where digits stand together.
fn numbers(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| byte.is_ascii_digit())
    {
        match found.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => found.push(at..at + 1),
        }
    }
    found
}

fn move_line(bytes: &mut Vec<u8>, from: Index, to: Index, stays: bool) {
    let mut lines: Vec<Vec<u8>> = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let at = from.index(lines.len());
    let line = if stays {
        lines[at].clone()
    } else {
        lines.remove(at)
    };
    lines.insert(to.index(lines.len() + 1), line);
    *bytes = lines.concat();
}
