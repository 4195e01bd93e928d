//! Documentation and examples: what they show works, and what there is they name.

use std::fs;
use std::path::{Path, PathBuf};

use brink_host::cgroup::glob::Glob;

use super::{run, stderr, stdout};

fn workspace(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn page(name: &str) -> String {
    fs::read_to_string(workspace("docs").join(name)).unwrap()
}

/// The blocks of YAML on a page that are whole files.
fn files_of(page: &str) -> Vec<String> {
    let blocks = page.split("```yaml\n").skip(1);
    blocks
        .filter_map(|rest| rest.split("```").next())
        .filter(|block| block.starts_with("apiVersion"))
        .map(str::to_string)
        .collect()
}

#[test]
fn every_setting_is_on_its_page() {
    let page = page("configuration.md");
    for setting in brink::config::SETTINGS {
        assert!(
            page.contains(&format!("`--{}`", setting.flag)),
            "{}",
            setting.flag
        );
        assert!(
            page.contains(&format!("`{}`", setting.variable)),
            "{}",
            setting.variable
        );
    }
    let output = stdout(&run(
        &["config", "show", "-o", "json", "--config", "/dev/null"],
        "",
    ));
    let shown: serde_json::Value = serde_json::from_str(&output).unwrap();
    for (key, value) in shown.as_object().unwrap() {
        let keys: Vec<String> = match value.as_object() {
            Some(map) if !key.starts_with("eviction") && key != "leadMargin" => {
                map.keys().map(|inner| format!("{key}.{inner}")).collect()
            }
            _ => vec![key.clone()],
        };
        let header = ["apiVersion", "kind"].contains(&key.as_str());
        for key in keys {
            assert!(header || page.contains(&format!("`{key}`")), "{key}");
        }
    }
}

#[test]
fn every_command_and_exit_code_is_on_its_page() {
    let page = page("cli.md");
    for command in brink::cli::command()
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        assert!(
            page.contains(&format!("`brink {}", command.get_name())),
            "{}",
            command.get_name()
        );
    }
    let help = stdout(&run(&["--help"], ""));
    for (exit, meaning) in brink::cli::Exit::ALL {
        assert!(page.contains(&format!("| {} | ", exit.code())), "{exit:?}");
        assert!(
            help.contains(&format!("  {}  {meaning}\n", exit.code())),
            "{exit:?}"
        );
    }
}

#[test]
fn what_the_pages_show_is_accepted() {
    for file in files_of(&page("configuration.md")) {
        let output = run(&["config", "check", "-"], &file);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{said}\n{file}");
        assert!(!said.contains("workloads"), "{said}\n{file}");
    }
    let scenarios = files_of(&page("scenario.md"));
    assert_eq!(scenarios.len(), 1);
    for args in [&["simulate", "-"][..], &["simulate", "--live", "-"]] {
        let output = run(args, &scenarios[0]);
        let said = stderr(&output);
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
    }
}

#[test]
fn every_example_is_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let kubelet = folder.path().join("kubelet.yaml");
    fs::write(
        &kubelet,
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
    )
    .unwrap();
    let mut checked = 0;
    let examples = fs::read_dir(workspace("deploy/examples")).unwrap();
    let paths = examples.map(|entry| entry.unwrap().path());
    // What the package for Debian ships is one that everybody gets.
    for path in paths.chain([workspace("deploy/deb/config.yaml")]) {
        if path.is_dir() {
            continue;
        }
        let name = path.to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let output = if text.contains("kind: Scenario") {
            run(&["simulate", name], "")
        } else if text.contains("kubeletConfig:") {
            run(
                &[
                    "config",
                    "check",
                    "--kubelet-config",
                    kubelet.to_str().unwrap(),
                    name,
                ],
                "",
            )
        } else {
            run(&["config", "check", name], "")
        };
        // What an example names need not be on this machine.
        let is_elsewhere = |line: &str| {
            let mut kinds = ["folder", "control group"].into_iter();
            kinds.any(|kind| line.contains(&format!("there is no such {kind};")))
        };
        let said = stderr(&output);
        let said: Vec<&str> = said.lines().filter(|line| !is_elsewhere(line)).collect();
        assert_eq!((output.status.code(), said), (Some(0), vec![]), "{name}");
        checked += 1;
    }
    assert!(checked >= 5, "{checked}");
    let manifests = brink::pod::read_folder(&workspace("deploy/examples/manifests")).unwrap();
    assert!(
        manifests.faults.is_empty() && manifests.warnings.is_empty(),
        "{manifests:?}"
    );
    assert_eq!(manifests.pods.len(), 1);
}

#[test]
fn the_example_for_nodes_makes_each_pod_a_workload_and_nothing_more() {
    let text = fs::read_to_string(workspace("deploy/examples/node.yaml")).unwrap();
    let rules = text.split("{glob: \"").skip(1);
    let globs: Vec<Glob> = rules
        .map(|rule| Glob::new(rule.split('"').next().unwrap()).unwrap())
        .collect();
    assert_eq!(globs.len(), 4);
    let check = |group: &str, expected: Option<usize>| {
        let first = globs.iter().position(|glob| glob.matches(group));
        assert_eq!(first, expected, "{group}");
    };
    let systemd = "/kubepods.slice";
    check(systemd, None);
    check(&format!("{systemd}/kubepods-burstable.slice"), None);
    check(&format!("{systemd}/kubepods-pod0e1f_2a.slice"), Some(0));
    for class in ["besteffort", "burstable"] {
        let class = format!("{systemd}/kubepods-{class}.slice/kubepods-{class}");
        check(&format!("{class}-pod0e1f_2a.slice"), Some(1));
        check(
            &format!("{class}-pod0e1f_2a.slice/cri-containerd-0a.scope"),
            None,
        );
    }
    check("/kubepods/pod0e1f-2a", Some(2));
    check("/kubepods/burstable/pod0e1f-2a", Some(3));
    for group in [
        "/kubepods",
        "/kubepods/burstable",
        "/kubepods/burstable/pod0e1f-2a/0a",
    ] {
        check(group, None);
    }
}
