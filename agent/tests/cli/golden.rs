//! Output that others build on, word for word.
//!
//! `BRINK_BLESS=1` writes what is found instead, to be read before it is committed.

use std::fs;
use std::path::Path;

use super::{run, stderr, stdout};

#[track_caller]
fn check(name: &str, args: &[&str], input: &str) {
    let output = run(args, input);
    let code = output.status.code().unwrap();
    let found = format!(
        "$ brink {}\n{}--- stderr\n{}--- exit {code}\n",
        args.join(" "),
        stdout(&output),
        stderr(&output)
    );
    // Help has blanks on its empty lines; files do not.
    let found: String = found
        .lines()
        .flat_map(|line| [line.trim_end(), "\n"])
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/golden/{name}.txt"));
    if std::env::var_os("BRINK_BLESS").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let mut pairs = found.lines().zip(expected.lines()).zip(1..);
    if let Some(((found, expected), line)) = pairs.find(|((found, expected), _)| found != expected)
    {
        panic!(
            "{}:{line}\n found    {found}\n expected {expected}",
            path.display()
        );
    }
    assert_eq!(
        found.lines().count(),
        expected.lines().count(),
        "{}",
        path.display()
    );
}

const BAD: &str = "apiVersion: brink.dev/v1alpha2
kind: AgentConfiguration
mode: enforced
evictionHard:
  mem.available: 1Gi
  memory.available: 150%
evictionSoft:
  nodefs.available: 10%
limits: {burst: 0}
workloads: {cgroup: []}
";

const GOOD: &str = "apiVersion: brink.dev/v1alpha2
kind: AgentConfiguration
mode: enforce
evictionHard: {memory.available: 10%, nodefs.inodesFree: 100k}
evictionSoft: {memory.available: 20%}
evictionSoftGracePeriod: {memory.available: 1m30s, pid.available: 1s}
evictionMinimumReclaim: {memory.available: 500Mi}
workloads:
  cgroups:
  - {glob: '/system.slice/*.service', priority: 5, requests: {memory: 64Mi}}
  - {glob: /user.slice, name: users}
";

const SCENARIO: &str = "apiVersion: brink.dev/v1alpha1
kind: Scenario
config: {evictionHard: {memory.available: 1Gi}, evictionSoft: {nodefs.available: 10%}, evictionSoftGracePeriod: {nodefs.available: 500ms}, evictionMinimumReclaim: {nodefs.available: 5%}}
pods:
- {metadata: {name: a, uid: [1]}, spec: {containers: [{name: c}]}}
- {metadata: {name: b, uid: '2'}, spec: {volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]}}
steps:
- {at: 0, signals: {memory.available: {available: 2Gi, capacity: 4Gi}, memory.headroom: {available: 1Gi, capacity: 4Gi}}}
- {at: 10s, signals: {nodefs.available: {available: 1Gi, capacity: 20Gi}, memory.headroom: {available: 1Gi, capacity: 4Gi}}, afterReclaim: {nodefs.available: {available: 2Gi, capacity: 20Gi}}, usage: {a: {rootfs: {bytes: 1Gi}}, b: {}}}
- {at: 20s, signals: {nodefs.available: {available: 1Gi, capacity: 20Gi}, memory.headroom: {available: 1Gi, capacity: 4Gi}}, usage: {a: {containers: {c: {memory: 1.5Gi, rootfs: {bytes: 1Mi}}}}, b: {rootfs: {bytes: 1Mi}}}}
- {at: 30s, signals: {memory.available: {available: 10Mi, capacity: 4Gi}, memory.headroom: {available: 10Mi, capacity: 4Gi}}, usage: {a: {containers: {c: {memory: 1.5Gi}}}}}
- {at: 40s, usage: {b: {volumes: {v: {bytes: 2Mi}}}}}
";

#[test]
fn faults_for_people() {
    check("faults", &["config", "check", "-"], BAD);
}

#[test]
fn faults_for_programs() {
    check("faults-json", &["config", "check", "-o", "json", "-"], BAD);
}

#[test]
fn a_checked_configuration_for_people() {
    check("check", &["config", "check", "-"], GOOD);
}

#[test]
fn a_checked_configuration_for_programs() {
    check("check-json", &["config", "check", "-o", "json", "-"], GOOD);
}

#[test]
fn a_configuration_in_force() {
    check(
        "show",
        &[
            "config", "show", "--origin", "--config", "-", "--mode", "observe",
        ],
        GOOD,
    );
    check(
        "show-json",
        &["config", "show", "--origin", "-o", "json", "--config", "-"],
        GOOD,
    );
}

const OLDER: &str = "# A file of the first version.
apiVersion: brink.dev/v1alpha1
kind: AgentConfiguration
limits: {burst: 3, refill: 30s}   # few
paths:
  journal: /var/log/brink/journal
";

#[test]
fn a_configuration_of_an_older_version() {
    check("check-older", &["config", "check", "-"], OLDER);
    check("migrate", &["config", "migrate", "-"], OLDER);
    let newest = OLDER
        .replace("v1alpha1", "v1alpha2")
        .replace("refill:", "refillInterval:")
        .replace("journal:", "decisionJournal:");
    check("migrate-newest", &["config", "migrate", "-"], &newest);
}

#[test]
fn a_configuration_of_a_version_to_come() {
    let newer = OLDER.replace("v1alpha1", "v1");
    check("check-newer", &["config", "check", "-"], &newer);
    check("migrate-newer", &["config", "migrate", "-"], &newer);
    check(
        "migrate-write",
        &["config", "migrate", "--write", "-"],
        OLDER,
    );
}

#[test]
fn the_steps_of_a_scenario() {
    let text = SCENARIO.replace("uid: [1]}", "uid: '1'}");
    check("simulate", &["simulate", "-"], &text);
    check("simulate-live", &["simulate", "--live", "-"], &text);
    check("simulate-faults", &["simulate", "-"], SCENARIO);
}

#[test]
fn help() {
    check("help", &["--help"], "");
    check("help-simulate", &["simulate", "--help"], "");
    check("help-config-check", &["config", "check", "-h"], "");
    check("help-config-migrate", &["config", "migrate", "-h"], "");
    check("help-top", &["top", "--help"], "");
}

#[test]
fn a_live_view_without_an_agent_or_with_a_wrong_interval() {
    let socket = ["--socket", "/nonexistent/brink.sock"];
    check("top-no-agent", &[&["top"][..], &socket].concat(), "");
    check(
        "top-once-no-agent",
        &[&["top", "--once"][..], &socket].concat(),
        "",
    );
    check("top-interval", &["top", "--interval", "1h"], "");
}
