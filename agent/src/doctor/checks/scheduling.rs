//! What the guard thread gets: real time, nice, locked memory, a lower OOM score, open files.

use brink_host::capabilities::Ability;
use brink_host::realtime::FifoRefusal;
use brink_host::realtime::oom_score::OomScore;

use crate::doctor::check::{Check, Subject, Trouble};
use crate::doctor::facts::Facts;
use crate::doctor::facts::trials::{Fifo, OOM_SCORE};
use crate::record::text::unsigned;

/// Files the agent holds open for itself, and for each workload.
const OWN_FILES: u64 = 128;
const FILES_A_WORKLOAD: u64 = 8;
/// Workloads there must be room for at least.
const LEAST_WORKLOADS: u64 = 110;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    Vec::from([
        fifo(facts),
        throttle(facts),
        nice(facts),
        memory_lock(facts),
        oom_score(facts),
        open_files(facts),
    ])
}

fn fifo(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("scheduling.fifo", "real time for the guard (SCHED_FIFO)");
    const LATE: &str =
        "the guard runs at nice -20 at best, and wakes milliseconds late when all CPUs are busy";
    let Some(priority) = facts.config.realtime.priority else {
        return SUBJECT
            .note("switched off in the configuration (realtime.priority: 0)")
            .follows("on a busy machine the guard waits for its turn like everybody else");
    };
    let tried = match &facts.trials.fifo {
        Ok(tried) => tried,
        Err(why) => return SUBJECT.unknown(why.clone()),
    };
    let Some(refusal) = &tried.refused else {
        return SUBJECT.ok(format!("granted on trial, priority {priority}"));
    };
    let may_move = facts.config.realtime.move_guard_to_root_cpu_group;
    if may_move && tried.after_move == Some(Ok(())) {
        return SUBJECT.ok(format!(
            "granted on trial, priority {priority}, once the thread has moved to the root cpu group"
        ));
    }
    if matches!(refusal, FifoRefusal::Unknown { .. }) && in_user_namespace(facts) {
        return SUBJECT
            .warning("refused: CAP_SYS_NICE of a user namespace does not count for it")
            .follows(LATE)
            .next("see rights.namespaces");
    }
    advise(
        SUBJECT.warning(refusal.to_string()).follows(LATE),
        refusal,
        tried,
        may_move,
    )
}

const RUN_TIME: &str =
    "give the group run time: cpu.rt_runtime_us of it and of every group above it";

fn advise(trouble: Trouble, refusal: &FifoRefusal, tried: &Fifo, may_move: bool) -> Check {
    match refusal {
        FifoRefusal::MissingCapability => trouble
            .next("give it CAP_SYS_NICE (see rights.capabilities)")
            .next(format!("or in the unit: LimitRTPRIO={}", tried.priority)),
        FifoRefusal::PriorityLimit { limit, asked } => trouble
            .next(format!("in the unit: LimitRTPRIO={asked}"))
            .next(format!("or ask for no more than is allowed: realtime.priority: {limit}")),
        FifoRefusal::NoGroupRuntime { .. } => match &tried.after_move {
            Some(Ok(())) => trouble.run(
                "let the guard thread, and no other, move to the root cpu group: it was tried and helps",
                "brink run --move-guard-to-root-cpu-group true",
            ),
            Some(Err(why)) if may_move => trouble
                .next(format!("moving to the root cpu group was tried and does not help: {why}"))
                .next(RUN_TIME),
            Some(Err(why)) => trouble
                .next(format!("realtime.moveGuardToRootCpuGroup would not help: {why}"))
                .next(RUN_TIME),
            None => trouble.next(RUN_TIME),
        },
        FifoRefusal::UnifiedGroup { .. } => trouble
            .next("boot with rt_group_sched=0")
            .next("or start the agent in the root group of cgroup v2"),
        _ => trouble.next("look for a seccomp filter or a security module that forbids sched_setscheduler"),
    }
}

fn throttle(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("scheduling.throttle", "throttle on real time");
    let (runtime, period) = match (&facts.kernel.rt_runtime_us, &facts.kernel.rt_period_us) {
        (Ok(runtime), Ok(period)) => (*runtime, *period),
        (Err(why), _) | (_, Err(why)) => return SUBJECT.unknown(why.clone()),
    };
    if runtime < 0 || period <= 0 {
        return SUBJECT.ok("none: real-time threads may use all time");
    }
    let share = runtime.saturating_mul(100) / period;
    let found = format!("real-time threads together get {share} % of the time");
    if share >= 10 {
        return SUBJECT.ok(found);
    }
    SUBJECT
        .warning(found)
        .follows("when they have used it up, the guard waits until the period is over")
        .run(
            "give them more",
            "sudo sysctl kernel.sched_rt_runtime_us=950000",
        )
}

fn nice(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("scheduling.nice", "nice -20");
    let tried = match &facts.trials.nice {
        Ok(tried) => tried,
        Err(why) => return SUBJECT.unknown(why.clone()),
    };
    let Some(why) = &tried.refused else {
        return SUBJECT.ok("granted on trial");
    };
    let (reason, remedy) = if in_user_namespace(facts) {
        (
            "CAP_SYS_NICE of a user namespace does not count for it",
            "see rights.namespaces",
        )
    } else if lacks(facts, Ability::RealTime) {
        (
            "CAP_SYS_NICE is missing, and RLIMIT_NICE does not allow it",
            "give it CAP_SYS_NICE (see rights.capabilities)",
        )
    } else {
        (
            why.as_str(),
            "look for a seccomp filter or a security module that forbids setpriority",
        )
    };
    SUBJECT
        .warning(format!("refused, so nice stays {}: {reason}", tried.value))
        .follows("without real time and without this, the guard is one of many")
        .next(remedy)
        .next("or in the unit: Nice=-20")
}

fn memory_lock(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("scheduling.memory-lock", "locked memory");
    if !facts.config.realtime.lock_memory {
        return SUBJECT
            .note("switched off in the configuration (realtime.lockMemory: false)")
            .follows(
                "under pressure the guard may have to wait for its own pages to be read back",
            );
    }
    let limit = facts.process.limits.locked_memory;
    match (&facts.process.capabilities, limit) {
        (Ok(_), _) if !lacks(facts, Ability::LockMemory) => SUBJECT.ok("allowed (CAP_IPC_LOCK)"),
        (_, None) => SUBJECT.ok("allowed (RLIMIT_MEMLOCK is unlimited)"),
        (Err(why), _) => SUBJECT.unknown(why.clone()),
        (Ok(_), Some(limit)) => {
            let size = match &facts.process.address_space {
                Ok(size) => unsigned(*size),
                Err(_) => "its size".to_owned(),
            };
            SUBJECT
                .warning(format!(
                    "CAP_IPC_LOCK is missing, and RLIMIT_MEMLOCK is {}; the address space alone is {size} already",
                    unsigned(limit)
                ))
                .follows("under pressure the guard may have to wait for its own pages to be read back")
                .next("give it CAP_IPC_LOCK (see rights.capabilities)")
                .next("or in the unit: LimitMEMLOCK=infinity")
        }
    }
}

fn oom_score(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("scheduling.oom-score", "OOM score of the agent itself");
    match &facts.trials.oom_score {
        Ok(OomScore::Set(value)) => SUBJECT.ok(format!("oom_score_adj {value} granted on trial")),
        Ok(OomScore::Kept { current, why }) => {
            let (reason, other) = if in_user_namespace(facts) {
                (
                    "CAP_SYS_RESOURCE of a user namespace does not count for it",
                    "see rights.namespaces",
                )
            } else if lacks(facts, Ability::OomScore) {
                (
                    "CAP_SYS_RESOURCE is missing",
                    "or give it CAP_SYS_RESOURCE (see rights.capabilities)",
                )
            } else {
                (
                    why.as_str(),
                    "or look for a security module that forbids it",
                )
            };
            SUBJECT
                .warning(format!("oom_score_adj stays {current}: {reason}"))
                .follows("when it comes to the worst, the kernel's killer may choose the agent")
                .next(format!("in the unit: OOMScoreAdjust={OOM_SCORE}"))
                .next(other)
        }
        Err(why) => SUBJECT.unknown(why.clone()),
    }
}

fn open_files(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("scheduling.open-files", "limit of open files");
    let workloads = facts.workloads.bound.as_ref().map_or(0, Vec::len) as u64;
    let needed = OWN_FILES + FILES_A_WORKLOAD * workloads.max(LEAST_WORKLOADS);
    match facts.process.limits.open_files {
        None => SUBJECT.ok("none"),
        Some(limit) if limit >= needed => SUBJECT.ok(format!("{limit}; about {needed} are needed")),
        Some(limit) => SUBJECT
            .warning(format!("{limit}, and about {needed} are needed"))
            .follows("some workloads could not be held open, so they would not be watched over")
            .next("in the unit: LimitNOFILE=65536"),
    }
}

fn in_user_namespace(facts: &Facts) -> bool {
    facts.process.namespaces.user == Ok(false)
}

fn lacks(facts: &Facts, ability: Ability) -> bool {
    let held = facts.process.capabilities.as_ref();
    held.is_ok_and(|held| !held.missing(ability).is_empty())
}
