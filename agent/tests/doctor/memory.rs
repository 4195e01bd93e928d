//! Memory: both signals, what the first does not see, swap, and settings of the kernel for shortage.

use brink::doctor::State::{Failed, Note, Ok, Unknown, Warning};

use crate::machine::{Machine, expect};

#[test]
fn both_signals_and_what_the_first_does_not_see() {
    // available: 8192 − (1664 + 2112 − 1024) = 5440 MiB; headroom: 4096 − 64 + 2048 + 192 = 6272 MiB.
    expect(
        &Machine::whole().check("memory.signals"),
        Ok,
        &["5.3Gi", "6.1Gi of 8.0Gi", "832Mi too pessimistic"],
    );
    let full = std::fs::read_to_string(Machine::whole().path("proc/meminfo")).unwrap();
    let full = full
        .replace("4194304 kB", "1048576 kB")
        .replace("2097152 kB", "65536 kB")
        .replace("(file):    1048576", "(file):          0")
        .replace("(file):  1048576", "(file):        0");
    // available: 8192 − (1664 + 128); headroom: 1024 − 64 + 192.
    expect(
        &Machine::whole()
            .with("proc/meminfo", &full)
            .check("memory.signals"),
        Note,
        &["6.2Gi", "1.1Gi of 8.0Gi", "5.1Gi too optimistic"],
    );
    // Not seen: 8192 − 1664 − 2112 − (4096 − 64) − 192 = 192 MiB, above the threshold of 100 MiB.
    expect(
        &Machine::whole().check("memory.unseen"),
        Note,
        &["192Mi", "memory.headroom (below 50.0Mi)"],
    );
    let off = Machine::whole().configured("headroomHard: 0%");
    expect(&off.check("memory.unseen"), Failed, &["headroomHard: 50Mi"]);
    let high = Machine::whole().configured("evictionHard: {memory.available: 200Mi}");
    expect(&high.check("memory.unseen"), Ok, &["above that"]);
    let zoneinfo = std::fs::read_to_string(Machine::whole().path("proc/zoneinfo")).unwrap();
    let cached = format!("{zoneinfo}  pagesets\n    cpu: 0\n              count: 25600\n");
    let machine = Machine::whole().with("proc/zoneinfo", &cached);
    expect(&machine.check("memory.unseen"), Ok, &["92.0Mi"]);
    let met = Machine::whole().configured("evictionHard: {memory.available: 6Gi}");
    expect(
        &met.check("memory.signals"),
        Warning,
        &["met now: ", "memory.available<6Gi"],
    );
}

#[test]
fn thresholds_under_the_kernels_watermarks_come_too_late() {
    // low is at 80 MiB; headroom counts from min, 64 MiB.
    let check = |config: &str| {
        Machine::whole()
            .configured(config)
            .check("memory.watermarks")
    };
    expect(&check(""), Ok, &["80.0Mi", "64.0Mi", "114Mi"]);
    expect(
        &check("evictionHard: {memory.available: 60Mi}\nheadroomHard: 0%"),
        Warning,
        &["60.0Mi", "above 96.0Mi"],
    );
    expect(
        &check("evictionHard: {memory.available: 60Mi}\nheadroomHard: 10Mi"),
        Warning,
        &["74.0Mi"],
    );
    expect(
        &check("evictionHard: {memory.available: 81Mi}\nheadroomHard: 0%"),
        Ok,
        &["81.0Mi"],
    );
    expect(
        &check("evictionHard: {pid.available: 5%}\nheadroomHard: 0%"),
        Warning,
        &["no hard memory threshold"],
    );
}

#[test]
fn swap_and_what_follows_for_decisions() {
    let swaps = |areas: &str, policy: &str| {
        let text = format!("Filename Type Size Used Priority\n{areas}");
        let machine = Machine::whole().with("proc/swaps", &text);
        machine
            .configured(&format!("memoryPolicy: {policy}"))
            .check("memory.swap")
    };
    let (disk, zram) = (
        "/dev/sda2 partition 1048576 0 -2\n",
        "/dev/zram0 partition 1048576 0 100\n",
    );
    expect(&swaps("", "kubelet"), Ok, &["none"]);
    expect(
        &swaps(disk, "confirmed"),
        Note,
        &["1.0Gi free of 1.0Gi", "on disk"],
    );
    expect(
        &swaps(zram, "confirmed"),
        Note,
        &["zram", "512Mi of it count"],
    );
    expect(
        &swaps(&format!("{disk}{zram}"), "confirmed"),
        Note,
        &["2 areas, 1 of them zram", "1.5Gi of it count"],
    );
    expect(
        &swaps(disk, "kubelet"),
        Warning,
        &["memoryPolicy: confirmed"],
    );
    expect(&swaps("broken\n", "confirmed"), Unknown, &["swap area"]);
}

#[test]
fn settings_of_the_kernel_for_shortage() {
    let with = |path: &str, text: &str, id: &str| Machine::whole().with(path, text).check(id);
    expect(
        &with("proc/sys/vm/overcommit_memory", "2", "memory.overcommit"),
        Note,
        &["CommitLimit", ""][1..],
    );
    expect(
        &with("proc/sys/vm/panic_on_oom", "1", "memory.panic-on-oom"),
        Warning,
        &["vm.panic_on_oom=0"],
    );
    let huge = "sys/kernel/mm/transparent_hugepage/enabled";
    expect(
        &with(huge, "[always] madvise never", "memory.huge-pages"),
        Note,
        &["20 GiB"],
    );
    expect(&Machine::whole().check("memory.pressure"), Ok, &["1.50 %"]);
    let blind = Machine::whole();
    std::fs::remove_file(blind.path("proc/pressure/memory")).unwrap();
    expect(&blind.check("memory.pressure"), Note, &["psi=1"]);
}
