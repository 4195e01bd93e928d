//! The few type ids the loader needs, dressed as the type description aya asks for.
//!
//! aya finds a tracepoint's id by name in the kernel's whole description: 40 ms and 16 MiB. We found the ids already,
//! so aya gets a description that holds only them, each under its own id, between nameless pointers.

use super::btf::Kind;
use super::facts::Target;
use super::programs::{Hook, PROGRAMS};

const HEADER: u32 = 24;

/// Raw BTF in which every target of [`PROGRAMS`] has the id it has in the kernel.
pub(super) fn description(targets: &[Result<Target, String>]) -> Vec<u8> {
    let mut named: Vec<(u32, Kind, String)> = PROGRAMS
        .iter()
        .zip(targets)
        .filter_map(|(program, target)| {
            let id = target.as_ref().ok()?.type_id;
            match program.hook {
                Hook::Typed(tracepoint, _) => {
                    Some((id, Kind::Typedef, format!("btf_trace_{tracepoint}")))
                }
                Hook::Tasks => Some((id, Kind::Func, "bpf_iter_task".to_owned())),
                Hook::Entry(function) => Some((id, Kind::Func, function.to_owned())),
                Hook::TestRun | Hook::Call | Hook::Classic(..) => None,
            }
        })
        .collect();
    named.sort_unstable_by_key(|(id, ..)| *id);
    named.dedup_by_key(|(id, ..)| *id);
    let mut types = Vec::new();
    let mut strings = vec![0];
    let mut next = 1;
    for (id, kind, name) in named {
        while next < id {
            types.extend(record(0, Kind::Ptr));
            next += 1;
        }
        types.extend(record(length(&strings), kind));
        strings.extend(name.as_bytes());
        strings.push(0);
        next += 1;
    }
    let mut raw = vec![0x9f, 0xeb, 1, 0];
    for word in [HEADER, 0, length(&types), length(&types), length(&strings)] {
        raw.extend(word.to_le_bytes());
    }
    raw.extend(types);
    raw.extend(strings);
    raw
}

/// A type without members: name, kind, `void`.
fn record(name: u32, kind: Kind) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&name.to_le_bytes());
    bytes[4..8].copy_from_slice(&((kind as u32) << 24).to_le_bytes());
    bytes
}

/// Kernels number some hundred thousand types; twelve bytes each stay far below four gigabytes.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bounded as the comment says"
)]
fn length(bytes: &[u8]) -> u32 {
    bytes.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::btf::Btf;

    #[test]
    fn every_target_keeps_its_id() {
        let targets: Vec<Result<Target, String>> = PROGRAMS
            .iter()
            .enumerate()
            .map(|(index, program)| match program.hook {
                Hook::TestRun | Hook::Call | Hook::Classic(..) => Ok(Target { type_id: 0 }),
                _ if program.name == "kswapd_end" => Err("absent".into()),
                // Programs that share a tracepoint share its id.
                Hook::Typed("cgroup_attach_task", _) => Ok(Target { type_id: 999 }),
                Hook::Typed("sched_process_exit", _) => Ok(Target { type_id: 998 }),
                Hook::Typed("task_newtask", _) => Ok(Target { type_id: 997 }),
                _ => Ok(Target {
                    type_id: 7 + 13 * u32::try_from(index).unwrap(),
                }),
            })
            .collect();
        let raw = description(&targets);
        let btf = Btf::parse(&raw).unwrap();
        for (program, target) in PROGRAMS.iter().zip(&targets) {
            let Hook::Typed(tracepoint, _) = program.hook else {
                continue;
            };
            let found = btf
                .ids(Kind::Typedef, &format!("btf_trace_{tracepoint}"))
                .next();
            assert_eq!(
                found,
                target.as_ref().ok().map(|t| t.type_id),
                "{tracepoint}"
            );
        }
        assert_eq!(btf.ids(Kind::Func, "bpf_iter_task").count(), 1);
    }
}
