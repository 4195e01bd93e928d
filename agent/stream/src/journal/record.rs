//! The journal's bytes: the head of a segment, the records behind it, and what a reader makes of any bytes at all.
//!
//! A segment is one file of one boot. Numbers are little-endian.
//!
//! ```text
//! head    magic (8) | version (2) | length of boot id (2) | boot id (64) | begun (8) | CRC-32 of all that (4)
//! record  mark (4) | what (1) | version (1) | 0 (2) | length (4) | CRC-32 of the text (4) | number (8) | written (8)
//!         | CRC-32 of all that (4) | text
//! ```
//!
//! A record's mark has two bytes that no UTF-8 text contains, so no event can imitate one. Where a record cannot be read,
//! reading goes on at the next mark behind which the sums are right: one bad byte costs one record.

use super::crc::crc32;

const MAGIC: [u8; 8] = *b"BRINKEVJ";
const VERSION: u16 = 1;
/// Bytes of a segment's head.
pub const HEAD: usize = 8 + 2 + 2 + LONGEST_BOOT_ID + 8 + 4;
/// Bytes of the longest boot id.
pub const LONGEST_BOOT_ID: usize = 64;
const MARK: [u8; 4] = [0xFF, b'B', b'J', 0xFE];
/// Bytes of a record before its text.
pub const RECORD_HEAD: usize = 4 + 4 + 4 + 4 + 8 + 8 + 4;
/// The version of a record's text: one line of JSON by `model::API_VERSION`.
const TEXT_VERSION: u8 = 1;
/// Bytes of the longest text: an incident with its recording has about one MiB.
pub const LONGEST_TEXT: usize = 4 << 20;

/// What a segment begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The boot that the numbers in it belong to.
    pub boot_id: String,
    /// When it was begun: microseconds since 1970.
    pub begun: i64,
}

impl Head {
    /// As bytes; none where the boot id is too long.
    pub fn encode(&self) -> Option<[u8; HEAD]> {
        let id = self.boot_id.as_bytes();
        let length = u16::try_from(id.len()).ok()?;
        let mut out = [0; HEAD];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&length.to_le_bytes());
        out.get_mut(12..12 + LONGEST_BOOT_ID)?
            .get_mut(..id.len())?
            .copy_from_slice(id);
        out[76..84].copy_from_slice(&self.begun.to_le_bytes());
        let sum = crc32(&out[..84]);
        out[84..].copy_from_slice(&sum.to_le_bytes());
        Some(out)
    }

    /// Whether a file that is shorter than a head may be the beginning of one.
    pub(super) fn is_begun(bytes: &[u8]) -> bool {
        let shown = bytes.len().min(MAGIC.len());
        bytes[..shown] == MAGIC[..shown]
    }

    /// Out of a file's first bytes; none where they are no head of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEAD)?;
        let is_ours = bytes.starts_with(&MAGIC)
            && array(bytes, 84).map(u32::from_le_bytes) == Some(crc32(&bytes[..84]))
            && array(bytes, 8).map(u16::from_le_bytes) == Some(VERSION);
        let length = usize::from(u16::from_le_bytes(array(bytes, 10)?));
        let id = bytes.get(12..12 + LONGEST_BOOT_ID)?.get(..length)?;
        is_ours.then_some(Self {
            boot_id: String::from_utf8(id.to_vec()).ok()?,
            begun: i64::from_le_bytes(array(bytes, 76)?),
        })
    }
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An event: one line of JSON.
    Line,
    /// Of a later version; passed over.
    Unknown,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it holds.
    pub what: What,
    /// The event's number.
    pub seq: u64,
    /// When it was written: microseconds since 1970.
    pub written: i64,
    /// The event.
    pub text: &'a [u8],
}

impl Record<'_> {
    /// Bytes that it takes.
    pub const fn size(&self) -> usize {
        RECORD_HEAD + self.text.len()
    }

    /// Puts it behind `out`. `false` where the text is too long, and nothing is put there.
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        let Ok(length) = u32::try_from(self.text.len()) else {
            return false;
        };
        if self.text.len() > LONGEST_TEXT {
            return false;
        }
        let begin = out.len();
        let what = match self.what {
            What::Line => 1,
            What::Unknown => 0,
        };
        out.extend_from_slice(&MARK);
        out.extend_from_slice(&[what, TEXT_VERSION, 0, 0]);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&crc32(self.text).to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.written.to_le_bytes());
        let sum = crc32(&out[begin..]);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(self.text);
        true
    }
}

/// What stands at the front of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A record.
    Record(Record<'a>),
    /// So many bytes that are no record, at least one.
    Unreadable(usize),
    /// Perhaps the beginning of a record: more bytes are needed, so many from here.
    Short(usize),
    /// Nothing is left.
    End,
}

/// What stands at the front of `bytes`.
pub fn first(bytes: &[u8]) -> Piece<'_> {
    if bytes.is_empty() {
        return Piece::End;
    }
    match plan(bytes) {
        Plan::Short(needed) => Piece::Short(needed),
        Plan::Whole(record, sum) if crc32(record.text) == sum => Piece::Record(record),
        // Its own sum holds its length, but that a text follows is not certain: its last bytes may never have been written.
        Plan::No | Plan::Whole(..) => Piece::Unreadable(to_next_mark(bytes)),
    }
}

enum Plan<'a> {
    Whole(Record<'a>, u32),
    Short(usize),
    No,
}

fn plan(bytes: &[u8]) -> Plan<'_> {
    let shown = bytes.len().min(MARK.len());
    if bytes[..shown] != MARK[..shown] {
        return Plan::No;
    }
    let Some(head) = bytes.get(..RECORD_HEAD) else {
        return Plan::Short(RECORD_HEAD);
    };
    let (Some(length), Some(text_sum), Some(seq), Some(written), Some(sum)) = (
        array(head, 8).map(u32::from_le_bytes),
        array(head, 12).map(u32::from_le_bytes),
        array(head, 16).map(u64::from_le_bytes),
        array(head, 24).map(i64::from_le_bytes),
        array(head, 32).map(u32::from_le_bytes),
    ) else {
        return Plan::No;
    };
    let length = length as usize;
    if sum != crc32(&head[..32]) || length > LONGEST_TEXT {
        return Plan::No;
    }
    let Some(text) = bytes.get(RECORD_HEAD..RECORD_HEAD + length) else {
        return Plan::Short(RECORD_HEAD + length);
    };
    let what = match (head[4], head[5]) {
        (1, TEXT_VERSION) => What::Line,
        _ => What::Unknown,
    };
    let record = Record {
        what,
        seq,
        written,
        text,
    };
    Plan::Whole(record, text_sum)
}

/// How many bytes to pass over, at least one, to where a record may begin.
fn to_next_mark(bytes: &[u8]) -> usize {
    let marks = bytes.iter().enumerate().skip(1);
    let mut found = marks.filter(|(_, byte)| **byte == MARK[0]);
    found
        .find(|(at, _)| {
            let rest = &bytes[*at..];
            let shown = rest.len().min(MARK.len());
            rest[..shown] == MARK[..shown]
        })
        .map_or(bytes.len(), |(at, _)| at)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(mut bytes: &[u8]) -> (Vec<u64>, usize) {
        let (mut numbers, mut bad) = (Vec::new(), 0);
        loop {
            let passed = match first(bytes) {
                Piece::Record(record) => {
                    numbers.push(record.seq);
                    record.size()
                }
                Piece::Unreadable(length) => {
                    bad += length;
                    length
                }
                Piece::Short(needed) => {
                    assert!(needed > bytes.len());
                    bad += bytes.len();
                    bytes.len()
                }
                Piece::End => return (numbers, bad),
            };
            assert!(passed > 0);
            bytes = &bytes[passed..];
        }
    }

    fn ten() -> Vec<u8> {
        let mut bytes = Vec::new();
        for seq in 1..=10 {
            let text = format!("{{\"seq\":{seq}}}\n");
            let record = Record {
                what: What::Line,
                seq,
                written: 7,
                text: text.as_bytes(),
            };
            assert!(record.encode(&mut bytes));
        }
        bytes
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let bytes = ten();
        let Piece::Record(record) = first(&bytes) else {
            panic!("no record");
        };
        assert_eq!(
            (record.what, record.seq, record.written),
            (What::Line, 1, 7)
        );
        assert_eq!(record.text, b"{\"seq\":1}\n");
        assert_eq!(pieces(&bytes), ((1..=10).collect(), 0));
    }

    #[test]
    fn one_bad_byte_costs_one_record_wherever_it_is() {
        let bytes = ten();
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xFF] {
                let mut bad = bytes.clone();
                bad[at] ^= change;
                let (numbers, unreadable) = pieces(&bad);
                assert_eq!(numbers.len(), 9, "byte {at}");
                assert!(unreadable > 0, "byte {at}");
            }
        }
    }

    #[test]
    fn what_is_cut_off_costs_the_last_record_alone() {
        let bytes = ten();
        for length in 0..bytes.len() {
            let (numbers, _) = pieces(&bytes[..length]);
            let whole = numbers.len();
            assert_eq!(numbers, (1..=whole as u64).collect::<Vec<_>>());
            assert!(whole >= length / (bytes.len() / 10 + 1));
        }
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_no_other_is_taken() {
        let head = Head {
            boot_id: "a".repeat(36),
            begun: -5,
        };
        let bytes = head.encode().unwrap();
        assert_eq!(Head::decode(&bytes), Some(head));
        for at in 0..HEAD {
            let mut bad = bytes;
            bad[at] ^= 0x10;
            assert_eq!(Head::decode(&bad), None, "byte {at}");
        }
        assert_eq!(Head::decode(&bytes[..HEAD - 1]), None);
        let long = Head {
            boot_id: "a".repeat(LONGEST_BOOT_ID + 1),
            begun: 0,
        };
        assert_eq!(long.encode(), None);
    }
}
