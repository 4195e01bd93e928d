//! Kills are told with who, by whom, for which limit, and when it was over.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed; only the functions marked as tests are known as such"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, Stdio};

use brink_host::probe::forensics::{ForensicsRing, Kill, Limit, Oom, SignalCode, Stack, Told};
use brink_host::probe::{Family, Meters, Probe, Row, Wishes};
use brink_host::symbols::KernelSymbols;
use brink_tests::{lacks, skip};
use probe_support::{Group, MIB, probe, until};
use rustix::fs::OFlags;

mod probe_support;

/// A probe that tells kills and does nothing else, with its readers.
fn telling() -> Result<(Probe, ForensicsRing, Meters), String> {
    let mut probe = probe(Wishes {
        forensics: true,
        without: vec![
            Family::Sampler,
            Family::Reclaim,
            Family::Oom,
            Family::Process,
            Family::Cgroup,
        ],
        ..Wishes::default()
    })?;
    let ring = probe.take_forensics().ok_or("no ring of kills")?;
    let meters = probe.take_meters().ok_or("no counters")?;
    Ok((probe, ring, meters))
}

/// Waits for the first record that `wanted` takes. All records, those of other tests too, stay in `seen`.
fn wait<T>(
    ring: &mut ForensicsRing,
    seen: &mut Vec<Told>,
    what: &str,
    wanted: impl Fn(&Told) -> Option<T>,
) -> T {
    until(what, || {
        seen.extend(ring.drain());
        seen.iter().find_map(&wanted)
    })
}

fn oom_of(told: &Told, tgid: u32) -> Option<Oom> {
    match told {
        Told::Oom(oom) if oom.victim.tgid == tgid => Some((**oom).clone()),
        _ => None,
    }
}

fn kill_of(told: &Told, tgid: u32) -> Option<Kill> {
    match told {
        Told::Kill(kill) if kill.target.tgid == tgid => Some((**kill).clone()),
        _ => None,
    }
}

/// Field `number` of `/proc/PID/stat`, counted as its manual page does.
fn stat(pid: u32, number: usize) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit(") ").next().unwrap_or_default();
    let field = rest.split_whitespace().nth(number - 3);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Nothing was lost without being counted: for every row, seen = sent + dropped + filtered.
fn assert_counted(meters: &Meters) {
    for row in [Row::OomKills, Row::SignalKills, Row::KillEnds] {
        until("a quiet moment", || {
            let loss = meters.loss(row).ok()?;
            (loss.seen == loss.sent + loss.dropped + loss.filtered).then_some(())
        });
    }
}

/// The stacks lead from the allocation to the OOM killer, and the kernel's has names.
fn assert_stacks(oom: &Oom) {
    let (Stack::Frames(kernel), Stack::Frames(user)) = (&oom.stacks.kernel, &oom.stacks.user)
    else {
        panic!("{:?}", oom.stacks)
    };
    let mut symbols = KernelSymbols::new("/proc/kallsyms".as_ref());
    let names = symbols.stack(kernel).unwrap();
    let has = |name: &str| names.iter().any(|frame| frame.starts_with(name));
    assert!(
        has("out_of_memory+") && has("mem_cgroup_out_of_memory+"),
        "{names:#?}"
    );
    assert!(names.len() > 8 && !names[0].contains("bpf"), "{names:#?}");
    assert!(
        !user.is_empty(),
        "the innermost frame needs no frame pointer"
    );
}

/// The path of the cgroup whose limit was hit, from the kernel's log; none where it was not written there.
fn told_by_the_log(pid: u32) -> Option<String> {
    let file = fs::File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open("/dev/kmsg")
        .ok()?;
    // Each reading gives one message, and an error at their end or for one that was overwritten.
    let mut buffer = [0; 8192];
    let mut found = None;
    loop {
        match (&file).read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if text.contains(&format!(",pid={pid},")) {
                    let rest = text.split("oom_memcg=").nth(1);
                    let path = rest.and_then(|rest| rest.split(',').next());
                    found = path.map(str::to_owned).or(found);
                }
            }
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(_) => break,
        }
    }
    found
}

/// A process that waits on its input, named after its program.
fn idle() -> std::io::Result<Child> {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let child = command.spawn()?;
    // The kernel lets go of who starts a program before it has its name.
    let name = format!("/proc/{}/comm", child.id());
    until("its name", || {
        fs::read_to_string(&name)
            .ok()
            .filter(|comm| comm == "cat\n")
    });
    Ok(child)
}

#[test]
fn a_victim_is_told_with_the_limit_that_was_hit() {
    let ((_probe, mut ring, meters), group) = match (telling(), Group::new("forensics")) {
        (Ok(telling), Ok(group)) => (telling, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    // The limit is that of a group above the victim's own.
    let inner = group.child("inner");
    group.set_limit(32 * MIB);
    let mut glutton = inner.run("exec tail /dev/zero");
    let pid = glutton.id();
    let ticks = until("the start of the victim", || {
        Some(stat(pid, 22)).filter(|ticks| *ticks > 0)
    });
    let mut seen = Vec::new();
    let oom = wait(&mut ring, &mut seen, "the victim", |told| oom_of(told, pid));
    assert!(!glutton.wait().unwrap().success());
    let victim = &oom.victim;
    assert_eq!((victim.comm.as_str(), victim.uid), ("tail", Some(0)));
    assert_eq!(
        (victim.cgroup, oom.trigger.cgroup),
        (Some(inner.id()), Some(inner.id()))
    );
    assert_eq!((oom.trigger.tgid, oom.trigger.comm.as_str()), (pid, "tail"));
    assert!(oom.is_signalled);
    // The same moment in other units: a tick is 10 ms.
    assert_eq!(victim.start_ns.unwrap() / 10_000_000, ticks);
    let anon = victim.anon.unwrap();
    assert!((20 * MIB..33 * MIB).contains(&anon), "{anon}");
    assert!(victim.page_tables.unwrap() > 0 && victim.total_vm.unwrap() > anon);
    // Its program counts as file, or as shared memory where it lies on a tmpfs.
    let program = victim.file.unwrap() + victim.shmem.unwrap();
    assert!(program < 16 * MIB, "{program}");
    let decision = oom.decision.clone().unwrap();
    let Limit::Cgroup { id, usage, max } = decision.limit else {
        panic!("{decision:?}")
    };
    assert_eq!((id, max), (group.id(), Some(32 * MIB)), "{decision:?}");
    assert!(usage.unwrap() > 20 * MIB, "{decision:?}");
    assert!(decision.gfp != 0 && decision.points > 0, "{decision:?}");
    assert!(decision.at_ns <= oom.at_ns);
    assert_stacks(&oom);
    if let Some(limit) = told_by_the_log(pid) {
        let name = group.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(limit.rsplit('/').next(), Some(name), "the kernel's own log");
    }
    // The signal came before the mark, from the same context, and was the kernel's own.
    let kill = wait(&mut ring, &mut seen, "the signal", |told| {
        kill_of(told, pid)
    });
    assert_eq!((kill.code, kill.is_group), (SignalCode::Kernel, true));
    assert_eq!(
        (kill.sender.tgid, kill.target.start_ns),
        (pid, victim.start_ns)
    );
    let exited = wait(&mut ring, &mut seen, "its exit", |told| match told {
        Told::End(end) if end.tgid == pid => Some(*end),
        _ => None,
    });
    assert_eq!((exited.exit_code, exited.start_ns), (9, victim.start_ns));
    wait(
        &mut ring,
        &mut seen,
        "the end of its memory",
        |told| match told {
            Told::Released(released) if released.tgid == pid => Some(()),
            _ => None,
        },
    );
    // In the order that this kernel is taken to have.
    let place = |is: &dyn Fn(&Told) -> bool| seen.iter().position(is);
    let end = place(&|told| matches!(told, Told::End(end) if end.tgid == pid));
    let back = place(&|told| matches!(told, Told::Released(back) if back.tgid == pid));
    assert_eq!(end < back, ring.ends_early(), "{seen:?}");
    assert_counted(&meters);
    assert_eq!(ring.undecoded(), 0);
}

#[test]
fn a_kill_by_somebody_else_is_told_with_its_sender() {
    let (_probe, mut ring, meters) = match telling() {
        Ok(telling) => telling,
        Err(why) => lacks!("{why}"),
    };
    let mut target = idle().unwrap();
    let pid = target.id();
    let script = format!("kill -9 {pid}; exit 7");
    let mut sender = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    assert_eq!(sender.wait().unwrap().code(), Some(7));
    assert!(!target.wait().unwrap().success());
    let mut seen = Vec::new();
    let kill = wait(&mut ring, &mut seen, "the kill", |told| kill_of(told, pid));
    assert_eq!(
        (kill.sender.tgid, kill.sender.comm.as_str()),
        (sender.id(), "sh")
    );
    assert_eq!((kill.code, kill.is_group), (SignalCode::User, true));
    assert_eq!((kill.target.comm.as_str(), kill.sender.uid), ("cat", 0));
    // What is resident of a young process may not be added up yet.
    assert!(
        kill.target.total_vm.unwrap() > 0 && kill.target.page_tables.unwrap() > 0,
        "{kill:?}"
    );
    assert!(!seen.iter().any(|told| oom_of(told, pid).is_some()));
    let exited = wait(&mut ring, &mut seen, "its exit", |told| match told {
        Told::End(end) if end.tgid == pid => Some(*end),
        _ => None,
    });
    assert_eq!(
        (exited.exit_code, exited.start_ns),
        (9, kill.target.start_ns)
    );
    assert_counted(&meters);
}

#[test]
fn nobody_who_ends_by_himself_is_told() {
    let (_probe, mut ring, meters) = match telling() {
        Ok(telling) => telling,
        Err(why) => lacks!("{why}"),
    };
    let mut gone = idle().unwrap();
    let (ended, mut killed) = (gone.id(), idle().unwrap());
    drop(gone.stdin.take().map(|mut input| input.flush()));
    assert!(gone.wait().unwrap().success());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut seen = Vec::new();
    let pid = killed.id();
    wait(&mut ring, &mut seen, "the end of the other", |told| {
        matches!(told, Told::End(end) if end.tgid == pid).then_some(())
    });
    let of_ended = |told: &&Told| match told {
        Told::Oom(oom) => oom.victim.tgid == ended,
        Told::Kill(kill) => kill.target.tgid == ended,
        Told::End(end) => end.tgid == ended,
        Told::Released(released) => released.tgid == ended,
    };
    assert_eq!(seen.iter().find(of_ended), None);
    assert_counted(&meters);
}

#[test]
fn a_group_that_falls_together_is_one_decision() {
    let ((_probe, mut ring, meters), group) = match (telling(), Group::new("together")) {
        (Ok(telling), Ok(group)) => (telling, group),
        (Err(why), _) | (_, Err(why)) => lacks!("{why}"),
    };
    let whole = group.path().join("memory.oom.group");
    if !whole.exists() {
        skip!("cgroup v1 has no memory.oom.group");
    }
    group.set_limit(32 * MIB);
    fs::write(whole, "1").unwrap();
    let mut beside = [(); 2].map(|()| group.run("exec sleep 600"));
    until("the others to be in", || {
        (group.processes() == 2).then_some(())
    });
    let mut glutton = group.run("exec tail /dev/zero");
    let expected: BTreeSet<u32> = [&beside[0], &beside[1], &glutton].map(Child::id).into();
    let mut victims: Vec<Oom> = Vec::new();
    until("three victims", || {
        victims.extend(ring.drain().filter_map(|told| match told {
            Told::Oom(oom) if expected.contains(&oom.victim.tgid) => Some(*oom),
            _ => None,
        }));
        let pids: BTreeSet<u32> = victims.iter().map(|oom| oom.victim.tgid).collect();
        (pids == expected).then_some(())
    });
    for child in beside.iter_mut().chain([&mut glutton]) {
        assert!(!child.wait().unwrap().success());
    }
    let decisions: Vec<_> = victims.iter().map(|oom| oom.decision.clone()).collect();
    let first = decisions[0].clone().unwrap();
    assert!(
        matches!(first.limit, Limit::Cgroup { id, .. } if id == group.id()),
        "{first:?}"
    );
    for decision in decisions {
        assert_eq!(decision.map(|decision| decision.at_ns), Some(first.at_ns));
    }
    assert_counted(&meters);
}
