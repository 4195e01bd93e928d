//! Tests of the BTF reader on small blobs built here, on damaged ones, and on the running kernel's own.

use proptest::prelude::*;

use super::*;

/// Builds a BTF blob type by type.
#[derive(Default)]
struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Builder {
    fn new() -> Self {
        Self {
            strings: vec![0],
            ..Self::default()
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn add(&mut self, name: &str, kind: u32, flag: bool, size: u32, tail: &[u32]) -> u32 {
        let words_each = match kind {
            4 | 5 | 19 => 3,
            6 | 13 => 2,
            _ => 1,
        };
        let count = u32::try_from(tail.len() / words_each).unwrap();
        let info = u32::from(flag) << 31 | kind << 24 | if kind == 3 { 0 } else { count };
        let words = [self.name(name), info, size];
        for word in words.iter().chain(tail) {
            self.types.extend(word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    fn int(&mut self, name: &str, size: u32) -> u32 {
        let id = self.add(name, 1, false, size, &[]);
        self.types.extend((size * 8).to_le_bytes());
        id
    }

    /// Members as (name, type, offset in bits).
    fn structure(
        &mut self,
        name: &str,
        size: u32,
        packed: bool,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        let mut tail = Vec::new();
        for (member, kind, bits) in members {
            tail.extend([self.name(member), *kind, *bits]);
        }
        self.add(name, 4, packed, size, &tail)
    }

    fn finish(self) -> Vec<u8> {
        let (types, strings) = (self.types.len(), self.strings.len());
        let mut raw = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types, types, strings] {
            raw.extend(u32::try_from(word).unwrap().to_le_bytes());
        }
        raw.extend(self.types);
        raw.extend(self.strings);
        raw
    }
}

/// `task { int pid; union/struct { int tgid; }; css self: { cgroup, serial }; flag: 1 bit; long stat[5]; }`
fn sample() -> Vec<u8> {
    let mut b = Builder::new();
    let int = b.int("int", 4);
    let long = b.int("long", 8);
    let typedef = b.add("long_t", 8, false, long, &[]);
    let array = b.add("", 3, false, 0, &[typedef, int, 5]);
    let anonymous = b.structure("", 8, false, &[("tgid", int, 0), ("live", int, 32)]);
    let css = b.structure(
        "css",
        16,
        false,
        &[("cgroup", long, 0), ("serial_nr", long, 64)],
    );
    b.structure(
        "task",
        88,
        true,
        &[
            ("pid", int, 0),
            ("", anonymous, 32),
            ("self", css, 96),
            ("flag", int, 1 << 24 | 0xe0),
            ("stat", array, 256),
        ],
    );
    b.structure("task", 4, false, &[("other", int, 0)]);
    let (a, c) = (b.name("NR_FREE"), b.name("NR_NEGATIVE"));
    b.add("items", 6, true, 4, &[a, 7, c, u32::MAX]);
    let wide = b.name("WIDE");
    b.add("", 19, false, 8, &[wide, 1, 2]);
    let (data, reclaimed) = (b.name("__data"), b.name("nr_reclaimed"));
    let proto = b.add("", 13, false, 0, &[data, 0, reclaimed, long]);
    b.add("traced", 12, false, proto, &[]);
    b.finish()
}

fn check(path: &str, expected: Option<u32>) {
    let raw = sample();
    let btf = Btf::parse(&raw).unwrap();
    let task = btf.ids(Kind::Struct, "task").next().unwrap();
    assert_eq!(
        btf.member(task, path).map(|member| member.offset),
        expected,
        "{path}"
    );
}

#[test]
fn members_direct_anonymous_and_nested() {
    check("pid", Some(0));
    check("tgid", Some(4));
    check("live", Some(8));
    check("self.serial_nr", Some(20));
    check("stat", Some(32));
    check("flag", None);
    check("missing", None);
    check("pid.deeper", None);
    check("", None);
}

#[test]
fn names_that_repeat_are_all_found() {
    let raw = sample();
    let btf = Btf::parse(&raw).unwrap();
    assert_eq!(btf.ids(Kind::Struct, "task").count(), 2);
    assert_eq!(btf.ids(Kind::Union, "task").count(), 0);
    assert_eq!(btf.ids(Kind::Struct, "tas").count(), 0);
}

#[test]
fn enumerators_arrays_sizes_arguments() {
    let raw = sample();
    let btf = Btf::parse(&raw).unwrap();
    assert_eq!(btf.enumerator("items", "NR_FREE"), Some(7));
    assert_eq!(btf.enumerator("", "NR_NEGATIVE"), Some(-1));
    assert_eq!(btf.enumerator("", "WIDE"), Some(2 << 32 | 1));
    assert_eq!(btf.enumerator("items", "WIDE"), None);
    let task = btf.ids(Kind::Struct, "task").next().unwrap();
    let stat = btf.member(task, "stat").unwrap();
    assert_eq!(btf.array_length(stat.type_id), Some(5));
    assert_eq!(btf.size(task), Some(88));
    assert_eq!(btf.argument("traced", "nr_reclaimed"), Some(1));
    assert_eq!(btf.argument("traced", "memcg"), None);
}

#[test]
fn damage_is_named() {
    let raw = sample();
    let parse = |bytes: &[u8]| Btf::parse(bytes).err();
    assert_eq!(parse(&[]), Some(BtfError::NotBtf));
    assert_eq!(
        parse(b"not a type description at all"),
        Some(BtfError::NotBtf)
    );
    assert_eq!(parse(&raw[..60]), Some(BtfError::Truncated { at: 24 }));
    let mut foreign = raw.clone();
    foreign.swap(0, 1);
    assert_eq!(parse(&foreign), Some(BtfError::ForeignByteOrder));
    let mut unknown = raw;
    unknown[24 + 7] = 31;
    assert_eq!(
        parse(&unknown),
        Some(BtfError::UnknownKind { kind: 31, at: 0 })
    );
}

#[test]
fn a_structure_inside_itself_ends() {
    let mut b = Builder::new();
    // Its two anonymous members are itself: 2^n paths without a bound.
    b.structure("loop", 8, false, &[("", 1, 0), ("", 1, 32)]);
    b.add("turn", 8, false, 2, &[]);
    let raw = b.finish();
    let btf = Btf::parse(&raw).unwrap();
    assert_eq!(btf.member(1, "absent"), None);
    assert_eq!(btf.resolve(2), None);
}

#[test]
fn the_running_kernel() {
    let Ok(raw) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        eprintln!("skipped: this kernel has no /sys/kernel/btf/vmlinux");
        return;
    };
    let btf = Btf::parse(&raw).unwrap();
    let task = btf.ids(Kind::Struct, "task_struct").next().unwrap();
    let pid = btf.member(task, "pid").unwrap().offset;
    assert_eq!(btf.member(task, "tgid").unwrap().offset, pid + 4);
    assert!(btf.member(task, "no_such_member").is_none());
    assert!(btf.enumerator("node_stat_item", "NR_FILE_PAGES").unwrap() > 0);
}

/// Asks everything of whatever parsed; the answers do not matter, coming back does.
fn interrogate(raw: &[u8]) {
    let Ok(btf) = Btf::parse(raw) else { return };
    for id in (0..btf.len().min(40)).chain([u32::MAX]) {
        let _ = (btf.size(id), btf.array_length(id), btf.resolve(id));
        let _ = (btf.member(id, "tgid"), btf.member(id, "self.serial_nr"));
    }
    let _ = (
        btf.enumerator("", "NR_FREE"),
        btf.argument("traced", "nr_reclaimed"),
    );
    let _ = btf.ids(Kind::Struct, "task").count();
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        interrogate(&bytes);
    }

    #[test]
    fn damaged_blobs_are_answered(flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut raw = sample();
        for (place, value) in flips {
            let at = place.index(raw.len());
            raw[at] = value;
        }
        interrogate(&raw);
    }
}
