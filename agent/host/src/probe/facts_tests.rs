//! Tests of the facts on small trees that stand for other hosts.

use std::fs;

use tempfile::TempDir;

use super::*;

/// A host whose files are those given, by path below `proc` or `sys`.
fn host(files: &[(&str, &str)]) -> (TempDir, Roots) {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let roots = Roots {
        proc: folder.path().join("proc"),
        sys: folder.path().join("sys"),
    };
    (folder, roots)
}

fn check_lockdown(text: &str, expected: Option<Lockdown>) {
    let (_folder, roots) = host(&[("sys/kernel/security/lockdown", text)]);
    assert_eq!(Facts::gather(&roots).lockdown.ok(), expected, "{text}");
}

#[test]
fn lockdown_is_the_mode_in_brackets() {
    check_lockdown("[none] integrity confidentiality\n", Some(Lockdown::None));
    check_lockdown(
        "none [integrity] confidentiality\n",
        Some(Lockdown::Integrity),
    );
    check_lockdown(
        "none integrity [confidentiality]\n",
        Some(Lockdown::Confidentiality),
    );
    check_lockdown("none integrity confidentiality\n", None);
    check_lockdown("[something new]\n", None);
}

fn check_memory(rows: &str, expected: Option<MemoryController>) {
    let table = format!("#subsys_name\thierarchy\tnum_cgroups\tenabled\n{rows}");
    let (_folder, roots) = host(&[("proc/cgroups", &table)]);
    assert_eq!(Facts::gather(&roots).memory.ok(), expected, "{rows}");
}

#[test]
fn the_memory_controller_is_found_on_either_version() {
    check_memory(
        "cpu\t1\t1\t1\nmemory\t4\t10\t1\n",
        Some(MemoryController::V1 { hierarchy: 4 }),
    );
    check_memory("memory\t0\t120\t1\n", Some(MemoryController::V2));
    check_memory("memory\t0\t1\t0\n", Some(MemoryController::Disabled));
    check_memory("memory\tx\t1\t1\n", None);
    check_memory("cpu\t1\t1\t1\n", None);
}

#[test]
fn a_kernel_without_the_v1_controller_lists_it_on_v2_only() {
    for (controllers, expected) in [
        ("cpu memory pids\n", MemoryController::V2),
        ("cpu pids\n", MemoryController::Disabled),
    ] {
        let files = [
            ("proc/cgroups", "cpu\t1\t1\t1\n"),
            ("unified/cgroup.controllers", controllers),
        ];
        let (folder, roots) = host(&files);
        let mounts = format!(
            "cgroup2 {}/unified cgroup2 rw 0 0\n",
            folder.path().display()
        );
        fs::create_dir_all(roots.proc.join("self")).unwrap();
        fs::write(roots.proc.join("self/mounts"), mounts).unwrap();
        assert_eq!(Facts::gather(&roots).memory.ok(), Some(expected));
    }
}

fn check_nodes(text: Option<&str>, expected: Option<&[u32]>) {
    let files: Vec<_> = text
        .map(|text| ("sys/devices/system/node/has_memory", text))
        .into_iter()
        .collect();
    let (_folder, roots) = host(&files);
    assert_eq!(
        Facts::gather(&roots).nodes.ok().as_deref(),
        expected,
        "{text:?}"
    );
}

#[test]
fn nodes_are_a_list_of_ranges() {
    check_nodes(Some("0\n"), Some(&[0]));
    check_nodes(Some("0-2,8\n"), Some(&[0, 1, 2, 8]));
    check_nodes(None, Some(&[0]));
    check_nodes(Some("\n"), None);
    check_nodes(Some("3-1\n"), None);
    check_nodes(Some("0-2,2\n"), None);
    check_nodes(Some("0-4294967295\n"), None);
}

#[test]
fn capabilities_are_the_effective_ones() {
    let status = "Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t0000004000200000\n";
    let (_folder, roots) = host(&[("proc/self/status", status)]);
    let found = Facts::gather(&roots).capabilities.unwrap();
    let expected = Capabilities {
        bpf: false,
        perfmon: true,
        sys_admin: true,
        sys_resource: false,
    };
    assert_eq!(found, expected);
}

#[test]
fn what_is_missing_is_unknown_and_names_its_file() {
    let (_folder, roots) = host(&[("proc/self/mounts", "proc /proc proc rw 0 0\n")]);
    let facts = Facts::gather(&roots);
    // Said once, also where one rests on the other.
    let mounts = roots.proc.join("self/mounts");
    let why = format!("{}: no tracefs is mounted", mounts.display());
    assert_eq!(facts.tracefs.as_ref().unwrap_err().to_string(), why);
    assert_eq!(facts.formats.as_ref().unwrap_err().to_string(), why);
    let texts = [
        facts.release.unwrap_err().to_string(),
        facts.types.unwrap_err().to_string(),
        facts.tracefs.unwrap_err().to_string(),
        facts.formats.unwrap_err().to_string(),
        facts.lockdown.unwrap_err().to_string(),
        facts.capabilities.unwrap_err().to_string(),
        facts.memory.unwrap_err().to_string(),
    ];
    let names = [
        "osrelease",
        "btf/vmlinux",
        "mounts",
        "mounts",
        "lockdown",
        "self/status",
        "cgroups",
    ];
    for (text, name) in texts.iter().zip(names) {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn formats_come_from_wherever_tracefs_is_mounted() {
    let field =
        |name, offset| format!("\tfield:int {name};\toffset:{offset};\tsize:4;\tsigned:1;\n");
    let (folder, roots) = host(&[("traces/events/oom/mark_victim/format", &field("pid", 8))]);
    let mounts = format!(
        "tracefs {}/traces tracefs rw 0 0\n",
        folder.path().display()
    );
    fs::create_dir_all(roots.proc.join("self")).unwrap();
    fs::write(roots.proc.join("self/mounts"), mounts).unwrap();
    let formats = Facts::gather(&roots).formats.unwrap();
    assert_eq!(formats.victim_pid, 8);
    // A field of another size than the program reads is as good as absent.
    assert_eq!(formats.victim_total_vm, brink_abi::layout::ABSENT);
    assert_eq!(formats.retry_node, brink_abi::layout::ABSENT);
}
