//! Whole configurations: layers, origins, faults all at once.

mod events;
mod kubelet_files;
mod kubernetes;
mod names;
mod unread;
mod versions;

use std::fs;
use std::path::{Path, PathBuf};

use brink_core::node::engine::MemoryPolicy;
use brink_core::node::policy::Capacities;
use brink_core::node::signal::Signal;
use proptest::prelude::*;
use serde_json::json;

use super::document::{Origin, to_json};
use super::*;

/// A folder with the given files, and sources that say nothing about the machine.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn sources(&self) -> Sources {
        let existing = |name: &str| Some(self.path(name)).filter(|path| path.exists());
        Sources {
            config: existing("config.yaml"),
            config_dir: existing("conf.d"),
            capacities: Some(Capacities::from_fn(|_| None)),
            ..Sources::default()
        }
    }

    /// A message without the folder's name.
    fn plain(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }

    #[track_caller]
    fn load(&self) -> Checked {
        load(&self.sources()).unwrap_or_else(|faults| panic!("{faults}"))
    }

    fn faults(&self) -> Vec<String> {
        let faults = load(&self.sources()).unwrap_err();
        faults
            .list
            .iter()
            .map(|fault| self.plain(&fault.to_string()))
            .collect()
    }
}

fn given(flag: &'static str, texts: &[&str], origin: Origin) -> Override {
    let setting = SETTINGS.iter().find(|setting| setting.flag == flag);
    Override {
        setting: setting.unwrap(),
        texts: texts.iter().map(ToString::to_string).collect(),
        origin,
    }
}

const HEAD: &str = "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\n";
const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

#[test]
fn a_drop_in_that_is_not_read_is_named() {
    let folder = Folder::new(&[
        ("config.yaml", HEAD),
        ("conf.d/a.yml", "mode: enforce"),
        ("conf.d/b.conf", "mode: observe"),
        ("conf.d/README", "nobody takes this for one"),
    ]);
    let warnings: Vec<String> = folder
        .load()
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    let warnings: Vec<String> = warnings.iter().map(|text| folder.plain(text)).collect();
    let expected = "conf.d/a.yml: not read: the name of a drop-in ends in .yaml or .conf";
    assert_eq!(warnings, [expected]);
}

fn hard(checked: &Checked) -> serde_json::Value {
    to_json(&checked.tree)["evictionHard"].clone()
}

#[test]
fn standard_input_says_the_same_however_often_it_is_loaded() {
    let sources = Sources {
        config: Some("-".into()),
        ..Folder::new(&[]).sources()
    };
    let text = format!("{HEAD}mode: enforce\n");
    sources.input.set(text.into_bytes()).unwrap();
    for sources in [&sources, &sources.clone()] {
        assert_eq!(load(sources).unwrap().config.mode, RunMode::Enforce);
    }
}

#[test]
fn nothing_written_is_the_default_everywhere() {
    let checked = Folder::new(&[]).load();
    assert_eq!(checked.warnings, []);
    let config = &checked.config;
    assert_eq!(config.mode, RunMode::Observe);
    assert_eq!(config.memory_policy, MemoryPolicy::Confirmed);
    assert_eq!(config.limits, brink_core::node::safety::Limits::default());
    assert_eq!(config.lead_margin, LeadMargin::default());
    assert_eq!(config.paths.socket, Path::new("/run/brink/brink.sock"));
    assert_eq!(config.events.socket, Path::new("/run/brink/events.sock"));
    assert!(config.events.enabled && config.events.listen.is_none());
    assert_eq!(config.realtime.priority, Some(49));
    let signals: Vec<_> = config
        .policy
        .thresholds()
        .iter()
        .map(|t| t.signal.name())
        .collect();
    assert_eq!(
        signals,
        [
            "allocatableMemory.available",
            "imagefs.available",
            "imagefs.inodesFree",
            "memory.available",
            "memory.headroom",
            "nodefs.available",
            "nodefs.inodesFree",
        ]
    );
    // What is shown can be written into a file and gives the same again, without a warning.
    let shown = checked.to_yaml(true);
    let again = Folder::new(&[("config.yaml", &shown)]).load();
    assert_eq!(to_json(&again.tree), to_json(&checked.tree));
    assert_eq!(again.warnings, []);
    assert!(
        shown.contains("evictionHard:\n  imagefs.available: 15%"),
        "{shown}"
    );
}

#[test]
fn every_fault_is_told_at_once_with_its_place() {
    let folder = Folder::new(&[
        (
            "config.yaml",
            "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\nmode: enforced\nevictionhard: {}\n\
             evictionHard:\n  mem.available: 1Gi\n  memory.available: 150%\n  pid.available: -5\n\
             evictionSoft:\n  nodefs.available: 10%\nheadroomSoft: 5x\nlimits: {burst: 0, refilInterval: 1s}\n\
             workloads:\n  cgroups:\n  - {glob: 'a**b'}\n  - {name: x}\nprefer: ['(']\n\
             node: {cgroup: /sys/fs/cgroup/a}\nhooks: {beforeKill: [logger]}\nrealtime: fast\n",
        ),
        ("conf.d/10.yaml", "log: {level: loud}\nmode: 7\n"),
        ("conf.d/20.conf", "a: [\n"),
        ("conf.d/30.txt", "not: looked at\n"),
    ]);
    let said = folder.faults();
    let expected = [
        "config.yaml:4:1: evictionhard: unknown key; did you mean evictionHard?",
        "config.yaml:3:7: mode: \"enforced\": unknown word; did you mean enforce?; accepted: one of observe, enforce",
        "config.yaml:18:16: node.cgroup: \"/sys/fs/cgroup/a\": no path below the cgroup root",
        "config.yaml:15:12: workloads.cgroups[0].glob: \"a**b\": in \"a**b\" ** stands beside",
        "config.yaml:16:5: workloads.cgroups[1]: glob is missing",
        "config.yaml:17:10: prefer[0]: \"(\": ",
        "config.yaml:12:20: limits.refilInterval: unknown key; did you mean refillInterval?",
        "config.yaml:12:17: limits.burst: \"0\": not in range; accepted: a whole number from 1 to 10000",
        "config.yaml:20:11: realtime: \"fast\": this is a text; accepted: a map",
        "config.yaml:19:21: hooks.beforeKill: the program is no absolute path",
        "conf.d/10.yaml:2:7: mode: \"7\": this is a number",
        "conf.d/10.yaml:1:14: log.level: \"loud\": unknown word",
        "conf.d/20.conf:1:4: not YAML or JSON",
        "config.yaml:6:3: evictionHard.mem.available: unknown eviction signal; did you mean memory.available?",
        "config.yaml:7:21: evictionHard.memory.available: \"150%\": a percentage must not be above 100%",
        "config.yaml:8:18: evictionHard.pid.available: \"-5\": a threshold must be positive",
        "config.yaml:10:3: evictionSoftGracePeriod.nodefs.available: a soft threshold needs a grace period",
        "config.yaml:11:15: headroomSoft: \"5x\": a quantity is",
    ];
    for part in expected {
        let times = said.iter().filter(|fault| fault.starts_with(part)).count();
        assert_eq!(times, 1, "{part}\n{said:#?}");
    }
    assert_eq!(said.len(), expected.len(), "{said:#?}");
}

#[test]
fn what_would_depend_on_where_the_agent_is_started_is_a_fault() {
    for (text, key) in [
        ("node: {cgroup: batch.slice}", "node.cgroup"),
        ("podsCgroup: kubepods", "podsCgroup"),
        (
            "workloads: {cgroups: [{glob: batch.slice/*}]}",
            "workloads.cgroups[0].glob",
        ),
        (
            "workloads: {cgroups: [{glob: /a, directories: [srv/a]}]}",
            "workloads.cgroups[0].directories[0]",
        ),
        ("storage: {rootDir: kubelet}", "storage.rootDir"),
        ("paths: {root: host}", "paths.root"),
        ("paths: {stateDir: run/brink}", "paths.stateDir"),
        ("paths: {socket: ./brink.sock}", "paths.socket"),
        ("paths: {decisionJournal: journal}", "paths.decisionJournal"),
        ("events: {socket: events.sock}", "events.socket"),
        ("events: {journal: {path: events}}", "events.journal.path"),
        ("events: {file: {path: events.log}}", "events.file.path"),
    ] {
        let said = Folder::new(&[("config.yaml", &format!("{HEAD}{text}\n"))]).faults();
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].contains(&format!(" {key}: ")), "{said:#?}");
    }
}

#[test]
fn a_glob_that_takes_a_whole_branch_is_doubted() {
    fn check(glob: &str, outer: Option<&str>) {
        let text = format!("{HEAD}workloads: {{cgroups: [{{glob: '{glob}'}}]}}\n");
        let warnings = Folder::new(&[("config.yaml", &text)]).load().warnings;
        let said: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        match (outer, said.as_slice()) {
            (None, []) => {}
            (Some(outer), [said]) => {
                let expected = format!("this is {outer} with everything below it");
                assert!(said.contains(&expected), "{said}");
                assert!(
                    said.contains("config.yaml:3:30: workloads.cgroups[0].glob: "),
                    "{said}"
                );
            }
            _ => panic!("{glob}: {said:#?}"),
        }
    }
    check("/user.slice/**", Some("/user.slice"));
    check("/user.slice/*/**/", Some("/user.slice/*"));
    check("/**", Some("/"));
    check("/user.slice", None);
    check("/user.slice/*/session-*.scope", None);
    check("/kubepods/**/pod*", None);
}

#[test]
fn layers_override_by_the_kubelets_rules_and_remember_where() {
    let folder = Folder::new(&[
        (
            "config.yaml",
            "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\nmode: enforce\n\
             evictionHard: {memory.available: 1Gi, pid.available: 1k}\nlimits: {burst: 3}\n",
        ),
        (
            "conf.d/20.conf",
            "evictionHard: {memory.available: 3Gi}\nprefer: [b]\n",
        ),
        (
            "conf.d/10.yaml",
            "evictionHard: {memory.available: 2Gi, nodefs.available: 5%}\nprefer: [a]\nmode: null\n",
        ),
    ]);
    let checked = folder.load();
    assert_eq!(
        hard(&checked),
        json!({"memory.available": "3Gi", "nodefs.available": "5%", "pid.available": "1k"})
    );
    assert_eq!(checked.config.limits.burst, 3);
    assert_eq!(checked.config.limits.most, 30);
    assert_eq!(checked.config.selection.prefer[0].as_str(), "b");
    assert_eq!(
        checked.config.mode,
        RunMode::Observe,
        "null takes a key back to its default"
    );
    let shown = checked.to_json_with_origins();
    let origin = |path: &str| folder.plain(shown.origins[path].as_str().unwrap());
    assert_eq!(
        origin("evictionHard.memory.available"),
        "conf.d/20.conf:1:34"
    );
    assert_eq!(
        origin("evictionHard.nodefs.available"),
        "conf.d/10.yaml:1:57"
    );
    assert_eq!(origin("evictionHard.pid.available"), "config.yaml:4:54");
    assert_eq!(origin("limits.window"), "default");

    let mut sources = folder.sources();
    let flag = |name: &str| Origin::Flag(name.to_string());
    sources.overrides = vec![
        given("mode", &["observe"], Origin::Environment("BRINK_MODE")),
        given(
            "eviction-hard",
            &["memory.available<5%,, pid.available < 7"],
            flag("--eviction-hard"),
        ),
        given("eviction-pressure-transition-period", &["0s"], flag("--e")),
        given("prefer", &["x{1,2}", "y"], flag("--prefer")),
        given("realtime-priority", &["0"], flag("--realtime-priority")),
        given("node-cgroup", &["/user.slice/"], flag("--node-cgroup")),
    ];
    let checked = load(&sources).unwrap();
    assert_eq!(
        hard(&checked),
        json!({"memory.available": "5%", "pid.available": "7"})
    );
    assert_eq!(
        checked
            .config
            .policy
            .settings
            .pressure_transition
            .as_nanos(),
        0
    );
    assert_eq!(checked.config.selection.prefer.len(), 2);
    assert_eq!(checked.config.realtime.priority, None);
    assert_eq!(checked.config.node, NodeScope::Cgroup("/user.slice".into()));
    let shown = checked.to_json_with_origins();
    assert_eq!(shown.origins["mode"], "$BRINK_MODE");
    assert_eq!(
        shown.origins["evictionHard.pid.available"],
        "--eviction-hard"
    );

    sources.overrides = vec![
        given(
            "eviction-hard",
            &["memory.available"],
            flag("--eviction-hard"),
        ),
        given("mode", &["off"], Origin::Environment("BRINK_MODE")),
    ];
    let said = load(&sources).unwrap_err().to_string();
    assert!(
        said.contains("--eviction-hard: evictionHard: \"memory.available\": malformed pair"),
        "{said}"
    );
    assert!(
        said.contains("$BRINK_MODE: mode: \"off\": unknown word"),
        "{said}"
    );
}

#[test]
fn doubts_are_warnings() {
    let folder = Folder::new(&[(
        "config.yaml",
        "mode: observe\nevictionHard: {memory.available: 2Gi, pid.available: 50k, nodefs.available: 60%}\n\
         evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m, imagefs.available: 1m}\n\
         evictionMinimumReclaim: {nodefs.available: 50%}\nrealtime: {priority: 80}\n\
         limits: {burst: 64, maxKills: 65}\nheadroomHard: 4Gi\n",
    )]);
    let mut sources = folder.sources();
    sources.capacities = Some(Capacities::from_fn(|signal| match signal {
        Signal::PidAvailable => Some(32768),
        Signal::MemoryHeadroom => Some(3 << 30),
        _ => None,
    }));
    let checked = load(&sources).unwrap();
    let said: Vec<_> = checked
        .warnings
        .iter()
        .map(|w| folder.plain(&w.to_string()))
        .collect();
    for part in [
        "config.yaml:1:1: apiVersion is missing; taken for brink.dev/v1alpha2",
        "config.yaml:1:1: kind is missing; taken for AgentConfiguration",
        "config.yaml:6:22: realtime.priority: \"80\": above the kernel's interrupt threads",
        "config.yaml:7:31: limits.maxKills: \"65\": the ledger carries the last 64 kills over a restart",
        "config.yaml:2:34: evictionHard.memory.available: \"2Gi\": the hard threshold is not below",
        "config.yaml:2:54: evictionHard.pid.available: \"50k\": the threshold is above the capacity",
        "config.yaml:5:44: evictionMinimumReclaim.nodefs.available: \"50%\": threshold and minimum reclaim",
        "config.yaml:8:15: headroomHard: \"4Gi\": not below the node's capacity, so always met",
        "config.yaml:4:68: evictionSoftGracePeriod.imagefs.available: \"1m\": there is no soft threshold",
    ] {
        assert!(
            said.iter().any(|w| w.starts_with(part)),
            "{part}\n{said:#?}"
        );
    }
    assert_eq!(said.len(), 9, "{said:#?}");
}

#[test]
fn no_length_of_time_switches_a_guard_off() {
    fn check(text: &str, expected: Result<&[&str], &[&str]>) {
        let folder = Folder::new(&[("config.yaml", &format!("{HEAD}{text}\n"))]);
        let loaded = load(&folder.sources());
        let (found, expected, is_right) = match (loaded, expected) {
            (Ok(checked), Ok(expected)) => (checked.warnings, expected, true),
            (Err(faults), Err(expected)) => (faults.list, expected, true),
            (Ok(checked), Err(expected)) => (checked.warnings, expected, false),
            (Err(faults), Ok(expected)) => (faults.list, expected, false),
        };
        let found: Vec<_> = found.iter().map(|f| folder.plain(&f.to_string())).collect();
        assert!(is_right, "{text}: {found:?}");
        assert_eq!(found, expected, "{text}");
    }
    check("housekeepingInterval: 100ms", Ok(&[]));
    check("housekeepingInterval: 1h", Ok(&[]));
    let accepted = "accepted: a duration from 100ms to 1h0m0s, such as 500ms, 30s or 1m30s";
    for (value, problem) in [
        ("99ms", "too short"),
        ("999999h", "too long"),
        ("60m0.1s", "too long"),
    ] {
        let place = "config.yaml:3:23: housekeepingInterval:";
        let fault = format!("{place} \"{value}\": {problem}; {accepted}");
        check(&format!("housekeepingInterval: {value}"), Err(&[&fault]));
    }
    check("limits: {refillInterval: 100ms}", Ok(&[]));
    let accepted = "accepted: a duration of 100ms or more, such as 500ms, 30s or 1m30s";
    for value in ["1ns", "0s", "99.9ms"] {
        let place = "config.yaml:3:26: limits.refillInterval:";
        let fault = format!("{place} \"{value}\": too short; {accepted}");
        let text = format!("limits: {{refillInterval: {value}}}");
        check(&text, Err(&[&fault]));
    }
    let fault = "config.yaml:3:28: events.journal.maxAge: \"500ms\": too short; accepted: a duration of 1m0s or more, such as 1m30s \
                 or 36h";
    check("events: {journal: {maxAge: 500ms}}", Err(&[fault]));
    let doubt = "config.yaml:3:28: evictionMaxPodGracePeriod: \"-5\": below zero, so a soft eviction grants one second, \
                 with the kubelet too; 0 grants the pod's own grace";
    check("evictionMaxPodGracePeriod: -5", Ok(&[doubt]));
}

#[test]
fn headroom_that_is_always_met_is_not_enforced() {
    let with = |mode: &str, thresholds: &str| {
        let text = format!("{HEAD}mode: {mode}\n{thresholds}\n");
        let folder = Folder::new(&[("config.yaml", &text)]);
        let mut sources = folder.sources();
        sources.capacities = Some(Capacities::from_fn(|_| Some(300 << 20)));
        let told = |list: &[finding::Finding]| -> Vec<String> {
            let list = list.iter();
            list.map(|found| folder.plain(&found.to_string())).collect()
        };
        match load(&sources) {
            Ok(checked) => Ok(told(&checked.warnings)),
            Err(faults) => Err(told(&faults.list)),
        }
    };
    let refused = |key: &str, value: &str| {
        let problem =
            "not below the node's capacity, so always met: every workload would be evicted";
        let accepted = "a quantity below 300Mi, a percentage below 100%, or 0% for none";
        Err(vec![format!(
            "config.yaml:4:15: {key}: \"{value}\": {problem}; accepted: {accepted}"
        )])
    };
    assert_eq!(
        with("enforce", "headroomHard: 50Gi"),
        refused("headroomHard", "50Gi")
    );
    assert_eq!(
        with("enforce", "headroomHard: 300Mi"),
        refused("headroomHard", "300Mi")
    );
    let soft = "headroomSoft: 1Gi\nheadroomSoftGracePeriod: 1m";
    assert_eq!(with("enforce", soft), refused("headroomSoft", "1Gi"));
    assert_eq!(with("enforce", "headroomHard: 299Mi"), Ok(vec![]));
    // Who only observes may see what would come of it; and the kubelet's keys mean what they mean to the kubelet.
    for (mode, text) in [
        ("observe", "headroomHard: 50Gi"),
        ("enforce", "evictionHard: {memory.available: 50Gi}"),
    ] {
        let warnings = with(mode, text).unwrap();
        assert!(
            warnings.iter().any(|told| told.contains("always met")),
            "{warnings:?}"
        );
    }
    for mode in ["observe", "enforce"] {
        let faults = with(mode, "headroomHard: 9e99").unwrap_err();
        assert!(faults[0].contains("no machine has so much"), "{faults:?}");
    }
}

proptest! {
    #[test]
    fn any_file_is_loaded_or_refused(text in "\\PC{0,80}", value in "[-+.0-9a-zA-Z%{}\\[\\],: ]{0,20}", key in 0..schema::KEYS.len()) {
        for text in [text.clone(), format!("{}: {value}\n", schema::KEYS[key])] {
            let folder = Folder::new(&[("config.yaml", &text)]);
            match load(&folder.sources()) {
                Ok(checked) => {
                    let again = Folder::new(&[("config.yaml", &checked.to_yaml(true))]).load();
                    prop_assert_eq!(to_json(&again.tree), to_json(&checked.tree), "{}", text);
                }
                Err(faults) => prop_assert!(!faults.list.is_empty()),
            }
        }
    }
}

#[test]
fn what_run_does_not_do_yet_is_told_of_keys_that_somebody_wrote() {
    fn check(text: &str, expected: &[&str]) {
        let folder = Folder::new(&[
            ("config.yaml", &format!("{HEAD}{text}\n")),
            (
                "kubelet.yaml",
                &format!("{KUBELET}evictionHard: {{nodefs.available: 20%}}\n"),
            ),
        ]);
        let text = text.replace(
            "KUBELET",
            &folder.path("kubelet.yaml").display().to_string(),
        );
        fs::write(folder.path("config.yaml"), format!("{HEAD}{text}\n")).unwrap();
        let idle = folder.load().idle;
        let paths: Vec<&str> = idle.iter().map(|found| found.path.as_str()).collect();
        assert_eq!(paths, expected, "{text}");
    }
    check("mode: enforce", &["mode"]);
    check("mode: enforce\nworkloads: {cgroups: []}", &["mode"]);
    check("mode: enforce\nworkloads: {cgroups: [{glob: /a}]}", &[]);
    check("mode: enforce\nworkloads: {manifests: /etc}", &[]);
    check(
        "mode: enforce\nworkloads: {manifests: /nonexistent/pods}",
        &["workloads.manifests"],
    );
    check("mode: observe", &[]);
    check("evictionHard: {memory.available: 1Gi}", &[]);
    check("evictionHard: {nodefs.available: 10%}", &[]);
    check("localStorageCapacityIsolation: true", &[]);
    check("filesystems: {nodefs: /}", &[]);
    check(
        "filesystems: {nodefs: /etc/passwd}",
        &["filesystems.nodefs"],
    );
    check(
        "filesystems: {imagefs: /nonexistent/images}\nruntime: {endpoint: 'unix:///nonexistent/a.sock'}",
        &["filesystems.imagefs", "runtime.endpoint"],
    );
    check("hooks: {beforeKill: [/bin/sh, -c, x]}", &[]);
    check(
        "hooks: {beforeKill: /nonexistent/hook, afterKill: [/etc/passwd, x]}",
        &["hooks.beforeKill", "hooks.afterKill"],
    );
    check("hooks: {afterKill: /}", &["hooks.afterKill"]);
    check("kubeletConfig: KUBELET", &[]);
    check(
        "kubeletConfig: KUBELET\nevictionHard: {nodefs.available: 20%}",
        &[],
    );
}

#[test]
fn what_is_shown_is_the_same_policy_even_where_a_default_was_taken_out() {
    let base =
        format!("{HEAD}mergeDefaultEvictionSettings: true\nevictionHard: {{pid.available: 5%}}\n");
    let folder = Folder::new(&[
        ("config.yaml", &base),
        ("conf.d/1.yaml", "evictionHard: {memory.available: null}\n"),
    ]);
    let checked = folder.load();
    let again = Folder::new(&[("config.yaml", &checked.to_yaml(true))]).load();
    let thresholds = |checked: &Checked| -> Vec<String> {
        let all = checked.config.policy.thresholds().iter();
        all.map(ToString::to_string).collect()
    };
    assert_eq!(thresholds(&again), thresholds(&checked));
    let memory = |text: &String| text.starts_with("memory.available");
    assert!(!thresholds(&checked).iter().any(memory));
}
