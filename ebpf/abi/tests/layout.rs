//! The layout of everything shared, pinned by numbers: a checked-in object may be older than the agent that loads it.

use std::mem::{align_of, offset_of, size_of};

use brink_abi::births::{Birth, BirthPage};
use brink_abi::command::{Command, Knobs, Mailbox, Reply, Terms};
use brink_abi::flight::{FlightPage, FlightPoint};
use brink_abi::forensics::{
    Actor, Decision, EndRecord, Figures, KillRecord, OomRecord, ReleasedRecord, StackedKillRecord,
    Stacks, UserFrame,
};
use brink_abi::layout::{ABSENT, Formats, Layout};
use brink_abi::meter::{CgroupMeter, Loss, Process, ProcessMeter, SamplerMeter};
use brink_abi::record::{
    CgroupRecord, EmptyRecord, ExecRecord, ExitRecord, Head, ReclaimRecord, RetryRecord,
    ThreadsRecord, VictimRecord,
};
use brink_abi::sample::{Published, Sample, SampleRecord, Usage, UsageTable, Watch};
use brink_abi::survey::{Follower, Surveyed, Trace, TracePage};
use brink_abi::truth::{Crossing, TruthOrder, TruthResult, TruthWatch};
use brink_abi::{Plain, VERSION, plain};

/// A change here is a change of [`VERSION`].
#[test]
fn sizes() {
    let check = |name: &str, size: usize, expected: usize| assert_eq!(size, expected, "{name}");
    assert_eq!(VERSION, 8);
    check("Head", size_of::<Head>(), 24);
    check("VictimRecord", size_of::<VictimRecord>(), 160);
    check("RetryRecord", size_of::<RetryRecord>(), 80);
    check("ExitRecord", size_of::<ExitRecord>(), 72);
    check("EmptyRecord", size_of::<EmptyRecord>(), 32);
    check("ThreadsRecord", size_of::<ThreadsRecord>(), 48);
    check("ReclaimRecord", size_of::<ReclaimRecord>(), 80);
    check("CgroupRecord", size_of::<CgroupRecord>(), 432);
    check("ExecRecord", size_of::<ExecRecord>(), 56);
    check("Figures", size_of::<Figures>(), 112);
    check("Actor", size_of::<Actor>(), 48);
    check("Decision", size_of::<Decision>(), 64);
    check("UserFrame", size_of::<UserFrame>(), 32);
    check("OomRecord", size_of::<OomRecord>(), 1672);
    check("Stacks", size_of::<Stacks>(), 1416);
    check("StackedKillRecord", size_of::<StackedKillRecord>(), 1608);
    check("KillRecord", size_of::<KillRecord>(), 192);
    check("EndRecord", size_of::<EndRecord>(), 40);
    check("ReleasedRecord", size_of::<ReleasedRecord>(), 40);
    check("Watch", size_of::<Watch>(), 16);
    check("Sample", size_of::<Sample>(), 424);
    check("SampleRecord", size_of::<SampleRecord>(), 448);
    check("Published", size_of::<Published>(), 464);
    check("Usage", size_of::<Usage>(), 16);
    check("UsageTable", size_of::<UsageTable>(), 8224);
    check("Knobs", size_of::<Knobs>(), 80);
    check("Terms", size_of::<Terms>(), 24);
    check("Command", size_of::<Command>(), 936);
    check("Reply", size_of::<Reply>(), 48);
    check("Mailbox", size_of::<Mailbox>(), 984);
    check("Loss", size_of::<Loss>(), 32);
    check("SamplerMeter", size_of::<SamplerMeter>(), 128);
    check("FlightPoint", size_of::<FlightPoint>(), 32);
    check("FlightPage", size_of::<FlightPage>(), 2048);
    check("ProcessMeter", size_of::<ProcessMeter>(), 112);
    check("Birth", size_of::<Birth>(), 56);
    check("BirthPage", size_of::<BirthPage>(), 1792);
    check("CgroupMeter", size_of::<CgroupMeter>(), 88);
    check("Process", size_of::<Process>(), 16);
    check("Layout", size_of::<Layout>(), 340);
    check("Formats", size_of::<Formats>(), 68);
    check("Surveyed", size_of::<Surveyed>(), 4096);
    check("Trace", size_of::<Trace>(), 136);
    check("TracePage", size_of::<TracePage>(), 2176);
    check("Follower", size_of::<Follower>(), 32);
    check("TruthOrder", size_of::<TruthOrder>(), 1576);
    check("TruthWatch", size_of::<TruthWatch>(), 40);
    check("Crossing", size_of::<Crossing>(), 72);
    check("TruthResult", size_of::<TruthResult>(), 40);
}

#[test]
fn places() {
    // The usage table's writer stores generation and state of an entry as one word.
    assert_eq!(offset_of!(Usage, generation), 8);
    assert_eq!(offset_of!(Usage, state), 12);
    assert_eq!(offset_of!(UsageTable, entries) % 8, 0);
    // A copy from front to back reads the guard that is written last first.
    assert_eq!(offset_of!(Published, finished), 0);
    assert_eq!(offset_of!(Published, started), size_of::<Published>() - 8);
    assert_eq!(offset_of!(UsageTable, finished), 0);
    assert_eq!(offset_of!(UsageTable, started), size_of::<UsageTable>() - 8);
    // Every record begins with its head.
    assert_eq!(offset_of!(SampleRecord, head), 0);
    assert_eq!(offset_of!(CgroupRecord, head), 0);
    // Where the kernel's helper puts frames of eight bytes and of `bpf_stack_build_id`.
    assert_eq!(offset_of!(OomRecord, stacks) % 8, 0);
    assert_eq!(offset_of!(StackedKillRecord, stacks) % 8, 0);
    assert_eq!(offset_of!(Stacks, kernel) % 8, 0);
    assert_eq!(offset_of!(UserFrame, build_id), 4);
    assert_eq!(offset_of!(UserFrame, offset), 24);
    assert_eq!(offset_of!(OomRecord, head), 0);
    assert_eq!(offset_of!(KillRecord, head), 0);
    assert_eq!(offset_of!(StackedKillRecord, kill), 0);
    assert_eq!(offset_of!(Sample, values), 168);
    assert_eq!(align_of::<SampleRecord>(), 8);
}

#[test]
fn unknown_means_every_field_absent() {
    for bytes in plain::bytes_of(&Layout::UNKNOWN).chunks(4) {
        assert_eq!(bytes, ABSENT.to_ne_bytes());
    }
    assert_eq!(Formats::UNKNOWN.victim_pid, ABSENT);
}

#[test]
fn bytes_and_back() {
    let watch = Watch {
        source: 3,
        slot: 500,
        limit: -7,
    };
    let bytes = plain::bytes_of(&watch).to_vec();
    assert_eq!(plain::read::<Watch>(&bytes), Some(watch));
    // From any address, and never from too few bytes.
    let mut shifted = vec![0];
    shifted.extend(&bytes);
    assert_eq!(plain::read::<Watch>(&shifted[1..]), Some(watch));
    assert_eq!(plain::read::<Watch>(&bytes[1..]), None);
    assert_eq!(plain::read::<Watch>(&[0; 16]), Some(Watch::ZERO));
}
