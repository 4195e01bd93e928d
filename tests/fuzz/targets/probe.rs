//! What comes from the kernel programs, and what they are loaded by: ring records, type description, tracepoint formats.

use brink_host::probe::abi::MAX_PATH;
use brink_host::probe::abi::forensics::{KERNEL_FRAMES, USER_FRAMES};
use brink_host::probe::abi::layout::{ABSENT, Layout};
use brink_host::probe::abi::plain::bytes_of;
use brink_host::probe::btf::{Btf, Kind};
use brink_host::probe::decode::{self, DecodeError, Evidence, Signal};
use brink_host::probe::forensics::{self, Stack, Told};
use brink_host::probe::format::{Field, Format};
use brink_host::probe::gfp::GfpNames;
use brink_host::probe::layout;
use brink_host::symbols::look_up;

use crate::Taken;

/// A record of either ring: what is read is what was there, and no record is of both.
pub(crate) fn records(bytes: &[u8]) -> Taken {
    let (signal, evidence) = (decode::signal(bytes), decode::evidence(bytes));
    assert!(
        signal.is_err() || evidence.is_err(),
        "a record of both rings"
    );
    match &signal {
        Ok(signal) => assert!(bytes.starts_with(bytes_of_signal(signal)), "{signal:?}"),
        Err(error) => check_error(*error, bytes),
    }
    match &evidence {
        Ok(evidence) => check_evidence(evidence, bytes),
        Err(error) => check_error(*error, bytes),
    }
    let told = forensics::told(bytes);
    assert!(
        told.is_err() || signal.is_err() && evidence.is_err(),
        "a record of several rings"
    );
    match &told {
        Ok(told) => check_told(told),
        Err(error) => check_error(*error, bytes),
    }
    let name = decode::name(bytes);
    assert!(!name.contains('\0') && name.len() <= 3 * bytes.len());
    Taken::from_accepted(signal.is_ok() || evidence.is_ok() || told.is_ok())
}

/// What is made of a record is bounded by what a record holds.
fn check_told(told: &Told) {
    let stacks = match told {
        Told::Oom(oom) => Some(&oom.stacks),
        Told::Kill(kill) => kill.stacks.as_ref(),
        Told::End(_) | Told::Released(_) => None,
    };
    let Some(stacks) = stacks else { return };
    if let Stack::Frames(frames) = &stacks.kernel {
        assert!(frames.len() <= KERNEL_FRAMES && !frames.contains(&0));
    }
    if let Stack::Frames(frames) = &stacks.user {
        assert!(frames.len() <= USER_FRAMES);
    }
}

/// A list of the kernel's functions: every address has at most one, which starts before it.
pub(crate) fn symbols(bytes: &[u8]) -> Taken {
    const ASKED: [u64; 5] = [
        1,
        0x1004,
        0xffff_ffff_8100_1004,
        0xffff_ffff_c000_0008,
        u64::MAX,
    ];
    let Ok(Some(found)) = look_up(bytes, &ASKED) else {
        return Taken::Refused;
    };
    assert_eq!(found.len(), ASKED.len());
    for (address, symbol) in ASKED.iter().zip(found) {
        assert!(symbol.is_none_or(|symbol| symbol.offset <= *address));
    }
    Taken::Accepted
}

fn check_error(error: DecodeError, bytes: &[u8]) {
    assert_eq!(error.length, bytes.len());
    assert!(!error.to_string().is_empty());
}

fn bytes_of_signal(signal: &Signal) -> &[u8] {
    match signal {
        Signal::Crossing(record) | Signal::Band(record) | Signal::Heartbeat(record) => {
            bytes_of(record)
        }
        Signal::Victim(record) => bytes_of(record),
        Signal::Retry(record) => bytes_of(record),
        Signal::Exit(record) => bytes_of(record),
        Signal::Empty(record) => bytes_of(record),
        Signal::Threads(record) => bytes_of(record),
    }
}

fn check_evidence(evidence: &Evidence<'_>, bytes: &[u8]) {
    match evidence {
        Evidence::Reclaim(record) => assert!(bytes.starts_with(bytes_of(record))),
        Evidence::Exec(record) => assert!(bytes.starts_with(bytes_of(record))),
        Evidence::Cgroup(change) => {
            assert!(bytes.starts_with(bytes_of(&change.head)));
            assert!(change.path.len() <= MAX_PATH, "{}", change.path.len());
            let inside = bytes.as_ptr_range();
            let path = change.path.as_ptr_range();
            assert!(inside.start <= path.start && path.end <= inside.end);
        }
    }
}

/// A type description: the offsets found are the same each time, and what the programs copy holds every counter.
pub(crate) fn btf(bytes: &[u8]) -> Taken {
    let btf = match Btf::parse(bytes) {
        Ok(btf) => btf,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Taken::Refused;
        }
    };
    assert!(
        btf.len() as usize <= 1 + bytes.len() / 12,
        "more types than bytes"
    );
    let resolved = layout::resolve(&btf);
    assert_eq!(resolved, layout::resolve(&btf));
    check_layout(&resolved.layout);
    for id in 0..btf.len().min(300) {
        let resolved = btf.resolve(id);
        assert!(resolved.is_none_or(|id| id < btf.len()));
        let _answers = (btf.size(id), btf.array_length(id));
        let (member, deeper) = (btf.member(id, "pid"), btf.member(id, "memory.usage"));
        for member in [member, deeper].into_iter().flatten() {
            let _answers = (btf.size(member.type_id), btf.array_length(member.type_id));
        }
    }
    let _answers = (
        btf.enumerator("", "CSS_ONLINE"),
        btf.argument("__traceiter_sched_process_exit", "group_dead"),
        btf.ids(Kind::Typedef, "btf_trace_mark_victim").count(),
    );
    Taken::Accepted
}

/// The programs copy so many bytes and read so many places in them.
fn check_layout(layout: &Layout) {
    let holds = |bytes: u32, at: u32| at == ABSENT || u64::from(at) + 8 <= u64::from(bytes);
    let counters = [
        layout.stat_anon,
        layout.stat_file,
        layout.stat_inactive_file,
        layout.stat_active_file,
        layout.stat_dirty,
        layout.stat_writeback,
        layout.stat_slab,
        layout.stat_misc,
    ];
    let all = counters.iter().all(|&at| holds(layout.stat_bytes, at));
    assert!(all, "a counter beyond the {} bytes read", layout.stat_bytes);
    let members = [layout.css_cgroup, layout.css_flags, layout.css_serial];
    if layout.css_bytes != ABSENT {
        let all = members.iter().all(|&at| holds(layout.css_bytes, at));
        assert!(all, "a member beyond the {} bytes read", layout.css_bytes);
    }
}

/// A tracepoint's format: what was read can be written as the kernel does, and is read back alike. The names of flags in it are
/// read whether anything else is.
pub(crate) fn format(bytes: &[u8]) -> Taken {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Taken::Refused;
    };
    if let Some(flags) = GfpNames::of_format(text) {
        assert_eq!(flags.names(0), [""; 0]);
        let all = flags.names(u32::MAX);
        assert!(!all.is_empty() && all.iter().all(|name| !name.is_empty()));
    }
    let format = match Format::parse(text) {
        Ok(format) => format,
        Err(error) => {
            assert!(error.to_string().len() <= 4000, "a long error");
            return Taken::Refused;
        }
    };
    assert!(!format.fields.is_empty());
    let written: String = format.fields.iter().map(described).collect();
    assert_eq!(Format::parse(&written).as_ref(), Ok(&format), "{written}");
    let _placed = layout::formats(Some(&format), Some(&format));
    Taken::Accepted
}

fn described(field: &Field) -> String {
    let kind = if field.data_loc {
        "__data_loc char[]"
    } else {
        "int"
    };
    let signed = u8::from(field.signed);
    let Field {
        name, offset, size, ..
    } = field;
    format!("\tfield:{kind} {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
}
