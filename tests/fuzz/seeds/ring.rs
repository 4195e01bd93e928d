//! Records of the rings, as the kernel programs send them.

use brink_host::probe::abi::forensics::{
    DECISION_ENTERED, Decision, END, EndRecord, FRAME_ADDRESS, FRAME_BUILD_ID, KILL, KillRecord,
    OOM, OomRecord, RELEASED, ReleasedRecord, STACKED_KILL, StackedKillRecord, Stacks,
};
use brink_host::probe::abi::plain::bytes_of;
use brink_host::probe::abi::record::{
    BAND, CGROUP, CROSSING, CgroupRecord, EMPTY, EXEC, EXIT, EmptyRecord, ExecRecord, ExitRecord,
    HEARTBEAT, Head, RECLAIM, RETRY, ReclaimRecord, RetryRecord, THREADS, ThreadsRecord, VICTIM,
    VictimRecord,
};
use brink_host::probe::abi::sample::SampleRecord;
use brink_host::probe::abi::{COMM, Plain};

use super::write;

fn head<T: Plain>(kind: u32) -> Head {
    Head {
        kind,
        size: u32::try_from(size_of::<T>()).unwrap_or(0),
        at_ns: 9_956_458_758_556,
        submit_ns: 9_956_458_760_012,
    }
}

fn comm(name: &str) -> [u8; COMM] {
    let mut comm = [0; COMM];
    for (place, byte) in comm.iter_mut().zip(name.bytes()) {
        *place = byte;
    }
    comm
}

pub(super) fn records() {
    for (name, kind) in [
        ("crossing", CROSSING),
        ("band", BAND),
        ("heartbeat", HEARTBEAT),
    ] {
        let mut sample = SampleRecord::ZERO;
        sample.head = head::<SampleRecord>(kind);
        sample.sample.available = -4096;
        sample.sample.headroom = 50 << 20;
        write("records", name, bytes_of(&sample));
    }
    let victim = VictimRecord {
        head: head::<VictimRecord>(VICTIM),
        pid: 4242,
        trigger_tgid: 4243,
        oom_score_adj: -998,
        total_vm: 1 << 20,
        anon_rss: 1 << 18,
        comm: comm("hog"),
        trigger_comm: comm("a-longer-name-x"),
        ..Plain::ZERO
    };
    write("records", "victim", bytes_of(&victim));
    let retry = RetryRecord {
        head: head::<RetryRecord>(RETRY),
        order: 3,
        loops: 16,
        available: 100,
        min_wmark: 11_000,
        ..Plain::ZERO
    };
    write("records", "retry", bytes_of(&retry));
    let exit = ExitRecord {
        head: head::<ExitRecord>(EXIT),
        tgid: 4242,
        exit_code: 9,
        cgroup: 8711,
        comm: comm("hog"),
        ..Plain::ZERO
    };
    write("records", "exit", bytes_of(&exit));
    let empty = EmptyRecord {
        head: head::<EmptyRecord>(EMPTY),
        cgroup: 8711,
    };
    write("records", "empty", bytes_of(&empty));
    let threads = ThreadsRecord {
        head: head::<ThreadsRecord>(THREADS),
        threads: 30_001,
        limit: 30_000,
        over: 1,
    };
    write("records", "threads", bytes_of(&threads));
    evidence();
}

fn evidence() {
    let reclaim = ReclaimRecord {
        head: head::<ReclaimRecord>(RECLAIM),
        gear: 2,
        tid: 4244,
        tgid: 4242,
        stall_ns: 12_000_000,
        reclaimed: 32,
        cgroup: 8711,
        comm: comm("hog"),
        ..Plain::ZERO
    };
    write("records", "reclaim", bytes_of(&reclaim));
    let mut cgroup = CgroupRecord {
        head: head::<CgroupRecord>(CGROUP),
        change: 3,
        level: 3,
        id: 8711,
        value: 4242,
        length: 24,
        ..Plain::ZERO
    };
    for (place, byte) in cgroup.path.iter_mut().zip(b"/kubepods/burstable/pod1") {
        *place = *byte;
    }
    write("records", "cgroup", bytes_of(&cgroup));
    let exec = ExecRecord {
        head: head::<ExecRecord>(EXEC),
        tgid: 4242,
        cgroup: 8711,
        comm: comm("sh"),
        ..Plain::ZERO
    };
    write("records", "exec", bytes_of(&exec));
}

/// Two frames in the kernel, and two in a program.
fn stacks() -> Stacks {
    let mut stacks = Stacks {
        kernel_bytes: 16,
        user_bytes: 64,
        ..Plain::ZERO
    };
    stacks.kernel[..2].copy_from_slice(&[0xffff_ffff_8100_1234, 0xffff_ffff_8100_5678]);
    stacks.user[0].status = FRAME_BUILD_ID;
    stacks.user[0].build_id = [7; 20];
    stacks.user[1].status = FRAME_ADDRESS;
    stacks.user[1].offset = 0x7f00_1234_5678;
    stacks
}

/// Records of the ring of kills.
pub(super) fn kills() {
    let mut oom = OomRecord {
        head: head::<OomRecord>(OOM),
        method: DECISION_ENTERED,
        signalled: 1,
        decision: Decision {
            cgroup: 4711,
            max: 32 << 20,
            gfp: 0xcc0,
            ..Plain::ZERO
        },
        ..Plain::ZERO
    };
    oom.victim.tgid = 4242;
    oom.victim.anon = 31 << 20;
    oom.victim.comm = comm("hog");
    oom.trigger.comm = comm("hog");
    oom.stacks = stacks();
    write("records", "oom", bytes_of(&oom));
    let mut kill = KillRecord {
        head: head::<KillRecord>(KILL),
        code: -6,
        group: 1,
        ..Plain::ZERO
    };
    kill.target.tgid = 4242;
    kill.sender.comm = comm("bash");
    write("records", "kill", bytes_of(&kill));
    kill.head = head::<StackedKillRecord>(STACKED_KILL);
    let stacked = StackedKillRecord {
        kill,
        stacks: stacks(),
    };
    write("records", "kill-with-stacks", bytes_of(&stacked));
    let end = EndRecord {
        head: head::<EndRecord>(END),
        tgid: 4242,
        exit_code: 9,
        ..Plain::ZERO
    };
    write("records", "end", bytes_of(&end));
    let released = ReleasedRecord {
        head: head::<ReleasedRecord>(RELEASED),
        tgid: 4242,
        ..Plain::ZERO
    };
    write("records", "released", bytes_of(&released));
}
