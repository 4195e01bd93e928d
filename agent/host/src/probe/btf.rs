//! Reader of the kernel's type description (BTF): member offsets, enumerators, sizes, ids, arguments of functions.
//!
//! aya parses the same data but keeps members to itself. This reader borrows the bytes, keeps one `u32` a type, checks
//! every access against the bounds, and answers damaged input with an error or with "not there", never with a panic.

use thiserror::Error;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
/// Bytes every type record begins with: name, info, size or type.
const RECORD: usize = 12;
/// How long chains of typedefs and nests of anonymous members are followed; kernels need about five.
const DEPTH: u32 = 24;
/// Members one query may look at. `task_struct` has some hundreds; damaged input may nest without end.
const MEMBERS: u32 = 20_000;

/// Kinds of types, as numbered by the kernel's `enum` of BTF kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// integer
    Int = 1,
    /// pointer
    Ptr = 2,
    /// array
    Array = 3,
    /// structure
    Struct = 4,
    /// union
    Union = 5,
    /// enumeration
    Enum = 6,
    /// typedef
    Typedef = 8,
    /// function
    Func = 12,
    /// arguments of a function
    FuncProto = 13,
    /// enumeration of 64-bit values
    Enum64 = 19,
}

/// What is wrong with the bytes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BtfError {
    /// too short, or the magic number is missing
    #[error("not BTF")]
    NotBtf,
    /// written for the other byte order
    #[error("BTF of the other byte order")]
    ForeignByteOrder,
    /// a section or record reaches past the end
    #[error("BTF cut off at byte {at}")]
    Truncated {
        /// offset of the record
        at: usize,
    },
    /// a record of a kind this reader does not know, so its length is unknown too
    #[error("unknown BTF kind {kind} at byte {at}")]
    UnknownKind {
        /// its number
        kind: u32,
        /// offset of the record
        at: usize,
    },
}

/// A parsed type description, borrowing its bytes.
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// offset of each record in `types`; the id is the index, 0 being `void`
    index: Vec<u32>,
}

/// Number of a type.
pub type TypeId = u32;

/// Where a member lies and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// bytes from the start of the structure asked
    pub offset: u32,
    /// its type
    pub type_id: TypeId,
}

impl<'a> Btf<'a> {
    /// Checks the header and walks the records once.
    ///
    /// # Errors
    /// [`BtfError`] when the bytes are no BTF of this machine's byte order, cut off, or hold an unknown kind.
    pub fn parse(raw: &'a [u8]) -> Result<Self, BtfError> {
        let magic = raw.get(..2).ok_or(BtfError::NotBtf)?;
        match u16::from_le_bytes([magic[0], magic[1]]) {
            MAGIC => {}
            other if other.swap_bytes() == MAGIC => return Err(BtfError::ForeignByteOrder),
            _ => return Err(BtfError::NotBtf),
        }
        let header = |at: usize| {
            word(raw, at)
                .ok_or(BtfError::NotBtf)
                .map(|value| value as usize)
        };
        let length = header(4)?;
        if length < HEADER {
            return Err(BtfError::NotBtf);
        }
        let section = |offset: usize, size: usize| {
            let start = length.checked_add(offset)?;
            raw.get(start..start.checked_add(size)?)
        };
        let cut = BtfError::Truncated { at: length };
        let types = section(header(8)?, header(12)?).ok_or(cut.clone())?;
        let strings = section(header(16)?, header(20)?).ok_or(cut)?;
        let mut found = Self {
            types,
            strings,
            index: vec![u32::MAX],
        };
        let mut at = 0;
        while at < types.len() {
            found
                .index
                .push(u32::try_from(at).map_err(|_| BtfError::Truncated { at })?);
            at += found.length(at)?;
        }
        if at > types.len() {
            return Err(BtfError::Truncated { at: types.len() });
        }
        Ok(found)
    }

    /// Bytes of the record at `at`.
    fn length(&self, at: usize) -> Result<usize, BtfError> {
        let info = word(self.types, at + 4).ok_or(BtfError::Truncated { at })?;
        let count = (info & 0xffff) as usize;
        let tail = match kind_number(info) {
            1 | 14 | 17 => 4,
            3 => 12,
            4 | 5 | 15 | 19 => count * 12,
            6 | 13 => count * 8,
            2 | 7..=12 | 16 | 18 => 0,
            kind => return Err(BtfError::UnknownKind { kind, at }),
        };
        Ok(RECORD + tail)
    }

    /// The `position`th word of the record of `id`, counted from its name.
    fn field(&self, id: TypeId, position: usize) -> Option<u32> {
        let at = *self.index.get(id as usize)?;
        word(
            self.types,
            (at as usize).checked_add(position.checked_mul(4)?)?,
        )
    }

    fn is(&self, id: TypeId, kind: Kind) -> bool {
        self.field(id, 1)
            .is_some_and(|info| kind_number(info) == kind as u32)
    }

    fn count(&self, id: TypeId) -> usize {
        self.field(id, 1).map_or(0, |info| (info & 0xffff) as usize)
    }

    fn name_at(&self, offset: u32) -> &'a [u8] {
        let text = self.strings.get(offset as usize..).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        &text[..end]
    }

    /// Whether the string at `offset` is `name`; looks at no more bytes than it needs.
    fn named(&self, offset: u32, name: &str) -> bool {
        let text = self.strings.get(offset as usize..).unwrap_or_default();
        let fits =
            text.get(..name.len()) == Some(name.as_bytes()) && text.get(name.len()) == Some(&0);
        // What has no name is not found by one.
        fits && !name.is_empty()
    }

    /// Every type of that kind and name. Names repeat, so callers must be ready for several.
    pub fn ids(&self, kind: Kind, name: &str) -> impl Iterator<Item = TypeId> {
        (1..self.len()).filter(move |id| {
            self.is(*id, kind)
                && self
                    .field(*id, 0)
                    .is_some_and(|offset| self.named(offset, name))
        })
    }

    /// Number of types, `void` included.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "parse gave every type a u32 offset"
    )]
    pub fn len(&self) -> u32 {
        self.index.len() as u32
    }

    /// No type but `void`.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Follows typedefs and qualifiers to the type they stand for.
    pub fn resolve(&self, mut id: TypeId) -> Option<TypeId> {
        for _ in 0..DEPTH {
            // TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG
            match kind_number(self.field(id, 1)?) {
                8..=11 | 18 => id = self.field(id, 2)?,
                _ => return Some(id),
            }
        }
        None
    }

    /// Bytes of a structure, union, integer or enumeration.
    pub fn size(&self, id: TypeId) -> Option<u32> {
        let id = self.resolve(id)?;
        match kind_number(self.field(id, 1)?) {
            1 | 4..=6 | 19 => self.field(id, 2),
            _ => None,
        }
    }

    /// Elements of an array.
    pub fn array_length(&self, id: TypeId) -> Option<u32> {
        let id = self.resolve(id)?;
        if self.is(id, Kind::Array) {
            self.field(id, 5)
        } else {
            None
        }
    }

    /// The member a dotted path leads to, through named members and, unnamed in the path, anonymous ones.
    /// `None` when it is not there or is a bit-field.
    pub fn member(&self, structure: TypeId, path: &str) -> Option<Member> {
        let mut found = Member {
            offset: 0,
            type_id: structure,
        };
        let mut budget = MEMBERS;
        for name in path.split('.') {
            let (bits, type_id) =
                self.search(self.resolve(found.type_id)?, name, DEPTH, &mut budget)?;
            if bits % 8 != 0 {
                return None;
            }
            found = Member {
                offset: found.offset.checked_add(bits / 8)?,
                type_id,
            };
        }
        Some(found)
    }

    /// Offset in bits and type of a direct or anonymous member.
    fn search(
        &self,
        id: TypeId,
        name: &str,
        depth: u32,
        budget: &mut u32,
    ) -> Option<(u32, TypeId)> {
        let depth = depth.checked_sub(1)?;
        if !self.is(id, Kind::Struct) && !self.is(id, Kind::Union) {
            return None;
        }
        let packed = self.field(id, 1)? >> 31 == 1;
        for member in 0..self.count(id) {
            *budget = budget.checked_sub(1)?;
            let at = 3 + member * 3;
            let (label, type_id) = (self.field(id, at)?, self.field(id, at + 1)?);
            let place = self.field(id, at + 2)?;
            let bits = if packed { place & 0x00ff_ffff } else { place };
            if self.named(label, name) {
                let bit_field = packed && place >> 24 != 0;
                return (!bit_field).then_some((bits, type_id));
            }
            if self.name_at(label).is_empty()
                && let Some(inner) = self.resolve(type_id)
                && let Some((more, type_id)) = self.search(inner, name, depth, budget)
            {
                return Some((bits.checked_add(more)?, type_id));
            }
        }
        None
    }

    /// Value of an enumerator: the first of that name among the enumerations called `enumeration`, or among all of
    /// them when that is empty (some are anonymous).
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Option<i64> {
        (1..self.len())
            .filter(|id| {
                enumeration.is_empty()
                    || self
                        .field(*id, 0)
                        .is_some_and(|offset| self.named(offset, enumeration))
            })
            .find_map(|id| self.enumerator_of(id, name))
    }

    /// Every enumerator of the enumeration that has the one called `name`, in their order.
    pub fn enumerators_beside(&self, name: &str) -> impl Iterator<Item = (&'a str, i64)> {
        let id = (1..self.len()).find(|id| self.enumerator_of(*id, name).is_some());
        let elements = id.into_iter().flat_map(move |id| {
            let count = self.count(id);
            (0..count).map(move |element| (id, element))
        });
        elements.filter_map(move |(id, element)| {
            let at = 3 + element * self.enumerator_width(id)?;
            let label = std::str::from_utf8(self.name_at(self.field(id, at)?)).ok()?;
            Some((label, self.enumerator_at(id, at)?))
        })
    }

    /// Words of each enumerator of an enumeration.
    fn enumerator_width(&self, id: TypeId) -> Option<usize> {
        match kind_number(self.field(id, 1)?) {
            6 => Some(2),
            19 => Some(3),
            _ => None,
        }
    }

    fn enumerator_of(&self, id: TypeId, name: &str) -> Option<i64> {
        let width = self.enumerator_width(id)?;
        let at = (0..self.count(id))
            .map(|element| 3 + element * width)
            .find(|at| {
                self.field(id, *at)
                    .is_some_and(|label| self.named(label, name))
            })?;
        self.enumerator_at(id, at)
    }

    /// Value of the enumerator whose first word is the `at`th.
    fn enumerator_at(&self, id: TypeId, at: usize) -> Option<i64> {
        let info = self.field(id, 1)?;
        let low = self.field(id, at + 1)?;
        Some(match kind_number(info) {
            6 if info >> 31 == 1 => i64::from(low.cast_signed()),
            6 => i64::from(low),
            _ => (u64::from(self.field(id, at + 2)?) << 32 | u64::from(low)).cast_signed(),
        })
    }

    /// Position of a named argument of a function, counted from 0.
    pub fn argument(&self, function: &str, name: &str) -> Option<usize> {
        self.ids(Kind::Func, function).find_map(|id| {
            let prototype = self.field(id, 2)?;
            if !self.is(prototype, Kind::FuncProto) {
                return None;
            }
            (0..self.count(prototype)).find(|argument| {
                self.field(prototype, 3 + argument * 2)
                    .is_some_and(|label| self.named(label, name))
            })
        })
    }
}

fn kind_number(info: u32) -> u32 {
    (info >> 24) & 0x1f
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([found[0], found[1], found[2], found[3]]))
}

#[cfg(test)]
#[path = "btf_tests.rs"]
mod tests;
