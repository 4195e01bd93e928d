//! `brink config`: layers as the process sees them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use super::{brink, run, stderr, stdout};

const HEAD: &str = "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\n";

#[test]
fn flags_win_over_the_environment_and_both_over_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.yaml");
    fs::write(
        &file,
        format!(
            "{HEAD}mode: enforce\nlog: {{level: debug}}\nevictionHard: {{pid.available: 5%}}\n"
        ),
    )
    .unwrap();
    let shown = |command: &mut std::process::Command| -> Value {
        let output = command
            .args(["config", "show", "-o", "json", "--origin"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let found = shown(
        brink()
            .env("BRINK_CONFIG", &file)
            .env("BRINK_LOG_LEVEL", "warn")
            .env("BRINK_MODE", "")
            .env(
                "BRINK_EVICTION_HARD",
                "memory.available<1Gi,nodefs.available<3%",
            ),
    );
    assert_eq!(
        found["config"]["mode"], "enforce",
        "a variable set to nothing is not set"
    );
    assert_eq!(found["config"]["log"]["level"], "warn");
    assert_eq!(found["origins"]["log.level"], "$BRINK_LOG_LEVEL");
    assert_eq!(
        found["config"]["evictionHard"],
        json!({"memory.available": "1Gi", "nodefs.available": "3%"})
    );
    let mut command = brink();
    command
        .env("BRINK_CONFIG", &file)
        .env("BRINK_LOG_LEVEL", "warn");
    let output = command
        .args([
            "config",
            "show",
            "--origin",
            "--log-level",
            "error",
            "--eviction-hard",
            "",
        ])
        .output()
        .unwrap();
    let text = stdout(&output);
    assert!(
        text.contains("level: error") && text.contains("# --log-level"),
        "{text}"
    );
    assert!(text.contains("evictionHard: {}"), "{text}");
}

#[test]
fn a_file_is_checked_alone() {
    let folder = tempfile::tempdir().unwrap();
    let drop_ins = folder.path().join("conf.d");
    fs::create_dir(&drop_ins).unwrap();
    fs::write(
        drop_ins.join("1.conf"),
        "evictionHard: {pid.available: 7}\n",
    )
    .unwrap();
    let file = folder.path().join("c.yaml");
    fs::write(&file, format!("{HEAD}evictionHard: {{}}\n")).unwrap();
    let check = |args: &[&str]| -> Value {
        let output = brink()
            .env("BRINK_EVICTION_HARD", "memory.available<1Gi")
            .env("BRINK_CONFIG_DIR", &drop_ins)
            .args(["config", "check", "-o", "json"])
            .args(args)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stderr(&output), "", "with -o json warnings are data");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (file, drop_ins) = (file.to_str().unwrap(), drop_ins.to_str().unwrap());
    assert_eq!(check(&[file]), json!({"thresholds": [], "warnings": []}));
    let with_drop_ins = check(&[file, "--config-dir", drop_ins]);
    assert_eq!(
        with_drop_ins["thresholds"][0]["value"],
        json!({"bytes_or_count": 7})
    );
    let with_flag = check(&[
        file,
        "--eviction-hard",
        "memory.available<2Gi",
        "--enforce-node-allocatable=",
    ]);
    assert_eq!(with_flag["thresholds"].as_array().unwrap().len(), 1);
}

#[test]
fn a_kubelets_file_is_known_by_its_kind() {
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nport: 10250\nevictionHard:\n  memory.available: 3%\n";
    let output = run(&["config", "check", "-o", "json", "-"], text);
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let signals: Vec<_> = found["thresholds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["signal"])
        .collect();
    assert_eq!(signals, ["allocatableMemory.available", "memory.available"]);
    assert!(stdout(&output).contains("{\"fraction_f32\":0.029999999329447746}"));
    let output = run(&["config", "show", "--config", "-"], text);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("this is the kubelet's file"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn pages_and_completions_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["man", "--dir", folder.path().to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for name in [
        "brink.1",
        "brink-simulate.1",
        "brink-config-check.1",
        "brink-doctor.1",
    ] {
        let page = fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page.contains(".TH"), "{name}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(
            stdout(&run(&["completion", shell], "")).contains("simulate"),
            "{shell}"
        );
    }
}

#[test]
fn an_amount_beyond_all_counting_is_no_number() {
    let text = format!("{HEAD}evictionHard: {{memory.available: 1e999}}\n");
    let output = run(&["config", "check", "-"], &text);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = stdout(&output);
    let row = table.lines().find(|row| row.contains("  memory.available"));
    let words: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert_eq!(words, ["memory.available", "capped", "hard"], "{table}");
}

#[test]
fn what_is_more_than_a_disk_has_is_told() {
    let text = format!(
        "{HEAD}filesystems: {{nodefs: /}}\nevictionHard: {{nodefs.available: 500Pi, memory.available: 100m}}\n"
    );
    let output = run(&["config", "check", "-"], &text);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stderr(&output);
    for part in [
        "evictionHard.nodefs.available: \"500Pi\": the threshold is above the capacity",
        "evictionHard.memory.available: \"100m\": less than one byte, inode or process",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn a_misspelt_variable_is_warned_of() {
    let check = |args: &[&str]| {
        let mut command = brink();
        command.env("BRINK_LOG_LEVL", "debug");
        command.env("BRINK_CONFIG", "/dev/null");
        let output = command.args(["config", "check"]).args(args).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output).contains("$BRINK_LOG_LEVL: ")
    };
    assert!(check(&[]));
    assert!(!check(&["/dev/null"]), "a file is checked alone");
}

#[test]
fn files_are_migrated_in_their_place_all_or_none() {
    const OLD: &str = "apiVersion: brink.dev/v1alpha1\nkind: AgentConfiguration\n";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (file, link, drop_in, newer) = (path("a"), path("link.yaml"), path("b"), path("c"));
    let old = format!("{OLD}limits: {{most: 7}} # few\n");
    fs::write(&file, &old).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("a", &link).unwrap();
    fs::write(&drop_in, "limits: {maxKills: 8}\n").unwrap();
    fs::write(&newer, "apiVersion: brink.dev/v2\n").unwrap();
    let migrate = |files: &[&std::path::Path]| {
        let mut command = brink();
        let command = command.args(["config", "migrate", "--write"]).args(files);
        command.output().unwrap()
    };

    let output = migrate(&[&link, &drop_in, &newer]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), old);

    let output = migrate(&[&link, &drop_in]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    let expected = format!("{HEAD}limits: {{maxKills: 7}} # few\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(
        stderr(&output).contains("nothing to change"),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        4,
        "nothing is left behind"
    );

    let spelt = format!("{OLD}limits: {{\"mo\\x73t\": 7}} # few\n");
    fs::write(&file, &spelt).unwrap();
    let output = migrate(&[&file]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        spelt,
        "comments are kept"
    );
}

#[test]
fn an_empty_pipe_is_no_configuration_to_migrate_and_an_empty_file_is_one() {
    for input in ["", " \n"] {
        let output = run(&["config", "migrate", "-"], input);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
        let said = stderr(&output);
        assert!(said.contains("<stdin>: nothing was given"), "{said}");
    }
    for args in [["config", "migrate", "/dev/null"], ["config", "check", "-"]] {
        let output = run(&args, "");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}
