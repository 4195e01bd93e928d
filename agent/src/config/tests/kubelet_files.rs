//! The kubelet's files: read as it reads them, inherited, and raised.

use std::fs;

use brink_core::base::{Quantity, Span};
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::policy::Policy;
use brink_core::node::signal::Signal;
use serde_json::json;

use super::super::document::{Origin, to_json};
use super::super::thresholds::ThresholdLine;
use super::super::*;
use super::{Folder, HEAD, KUBELET, given, hard};

#[test]
fn defaults_merge_as_on_the_kubelet() {
    let full = json!({
        "memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
        "imagefs.available": "15%", "imagefs.inodesFree": "5%",
    });
    let with = |signal: &str, value: &str| {
        let mut map = full.clone();
        map[signal] = json!(value);
        map
    };
    for head in [HEAD, KUBELET] {
        let check = |base: &str, drop_in: &str, expected: &serde_json::Value| {
            let mut files = vec![("config.yaml", format!("{head}{base}"))];
            if !drop_in.is_empty() {
                files.push(("conf.d/1.conf", format!("{head}{drop_in}")));
            }
            let files: Vec<_> = files
                .iter()
                .map(|(name, text)| (*name, text.as_str()))
                .collect();
            let folder = Folder::new(&files);
            let found: Vec<_> = check::check(&folder.sources()).unwrap().thresholds;
            let kubelets = serde_json::to_value(ThresholdLine::kubelets(&found)).unwrap();
            let names = kubelets.as_array().unwrap().iter();
            let hard: Vec<_> = names
                .filter(|line| line["signal"] != "allocatableMemory.available")
                .collect();
            assert_eq!(
                hard.len(),
                expected.as_object().unwrap().len(),
                "{head}{base}{drop_in}"
            );
            for line in hard {
                let signal = line["signal"].as_str().unwrap();
                let text = expected[signal].as_str().unwrap();
                let value = brink_core::node::policy::read_threshold(text)
                    .unwrap()
                    .unwrap();
                let threshold = found.iter().find(|t| t.signal.name() == signal).unwrap();
                assert_eq!(threshold.value, value, "{signal} of {head}{base}{drop_in}");
            }
        };
        check("", "", &full);
        check("evictionHard: null\n", "", &full);
        check("evictionHard: {}\n", "", &json!({}));
        let one = "evictionHard: {memory.available: 500Mi}\n";
        check(one, "", &json!({"memory.available": "500Mi"}));
        check(
            &format!("{one}mergeDefaultEvictionSettings: true\n"),
            "",
            &with("memory.available", "500Mi"),
        );
        check("", one, &with("memory.available", "500Mi"));
        check(
            "evictionHard: {pid.available: 1k}\n",
            one,
            &json!({"memory.available": "500Mi", "pid.available": "1k"}),
        );
    }
}

#[test]
fn a_threshold_without_a_value_is_no_threshold_left_out() {
    let null = "evictionHard: {memory.available: null}\n";
    for head in [HEAD, KUBELET] {
        let folder = Folder::new(&[("config.yaml", &format!("{head}{null}"))]);
        let said = check::check(&folder.sources()).unwrap_err().to_string();
        let said = folder.plain(&said);
        assert!(
            said.contains("config.yaml:3:34: evictionHard.memory.available: there is no value"),
            "{said}"
        );
        let folder = Folder::new(&[
            ("config.yaml", head),
            ("conf.d/1.conf", &format!("{head}{null}")),
        ]);
        let found = check::check(&folder.sources()).unwrap().thresholds;
        let taken_out = |signal: Signal| found.iter().all(|threshold| threshold.signal != signal);
        assert!(taken_out(Signal::MemoryAvailable));
        assert!(!taken_out(Signal::NodefsAvailable));
    }
}

#[test]
fn images_stay_as_long_as_the_kubelets_files_say() {
    const KEY: &str = "imageMinimumGCAge";
    let check = |base: &str, drop_in: &str, expected: Option<i64>| {
        let folder = Folder::new(&[
            ("kubelet.yaml", &format!("{KUBELET}{base}")),
            ("kubelet.d/1.conf", &format!("{KUBELET}{drop_in}")),
        ]);
        let text = format!(
            "{HEAD}kubeletConfig: {}\nkubeletConfigDir: {}\n",
            folder.path("kubelet.yaml").display(),
            folder.path("kubelet.d").display()
        );
        fs::write(folder.path("config.yaml"), &text).unwrap();
        let found = folder.load().config.image_min_age;
        assert_eq!(found, expected.map(Span::from_secs), "{base}{drop_in}");
    };
    check("", "", None);
    check(&format!("{KEY}: 10m\n"), "", Some(600));
    check(&format!("{KEY}: 10m\n"), &format!("{KEY}: 90s\n"), Some(90));
    // It stands for the default.
    check(&format!("{KEY}: 0s\n"), "", None);
}

#[test]
fn the_kubelets_thresholds_are_inherited_and_raised() {
    let kubelet = format!(
        "{KUBELET}port: 10250\nevictionSoft: {{memory.available: 10.5%, nodefs.available: 20%}}\n\
         evictionSoftGracePeriod: {{memory.available: 90s, nodefs.available: 1m}}\n\
         evictionPressureTransitionPeriod: 0s\nevictionMaxPodGracePeriod: 60\n"
    );
    let folder = Folder::new(&[
        ("kubelet.yaml", &kubelet),
        (
            "kubelet.d/sub/5.conf",
            &format!("{KUBELET}evictionHard: {{pid.available: 5%}}\n"),
        ),
        ("kubelet.d/6.yaml", "not: looked at"),
    ]);
    let text = format!(
        "{HEAD}kubeletConfig: {}\nkubeletConfigDir: {}\n",
        folder.path("kubelet.yaml").display(),
        folder.path("kubelet.d").display()
    );
    fs::write(folder.path("config.yaml"), &text).unwrap();
    let checked = folder.load();
    assert_eq!(
        hard(&checked),
        json!({
            "memory.available": "164Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
            "imagefs.available": "15%", "imagefs.inodesFree": "5%", "pid.available": "5%",
        })
    );
    let shown = to_json(&checked.tree);
    assert_eq!(shown["evictionSoft"]["memory.available"], "11.5%");
    assert_eq!(shown["evictionMaxPodGracePeriod"], 60);
    assert_eq!(shown["evictionPressureTransitionPeriod"], "5m");
    assert_eq!(checked.config.memory_policy, MemoryPolicy::Kubelet);
    let raised: Vec<_> = checked
        .config
        .raised
        .iter()
        .map(|r| (r.kubelet.as_str(), r.ours.as_str()))
        .collect();
    assert_eq!(raised, [("100Mi", "164Mi"), ("10.5%", "11.5%")]);
    let yaml = folder.plain(&checked.to_yaml(false));
    assert!(
        yaml.contains("memory.available: 164Mi  # the kubelet's 100Mi, raised"),
        "{yaml}"
    );
    let kubelets_hard = |checked: &Checked| {
        let policy = checked.config.kubelets_policy.as_ref().unwrap();
        let hard = policy
            .thresholds()
            .iter()
            .find(|threshold| threshold.signal == Signal::MemoryAvailable && threshold.is_hard());
        hard.unwrap().quantity(0).to_string()
    };
    assert_eq!(kubelets_hard(&checked), "100Mi");
    let kubelets = checked.config.kubelets_policy.as_ref().unwrap();
    assert_eq!(kubelets.settings.max_pod_grace, 60);
    let own_signal = |policy: &Policy| {
        let mut thresholds = policy.thresholds().iter();
        thresholds.any(|threshold| threshold.signal == Signal::MemoryHeadroom)
    };
    assert!(own_signal(&checked.config.policy) && !own_signal(kubelets));
    let allocatable = checked.config.policy.thresholds()[0];
    assert_eq!(allocatable.signal, Signal::AllocatableMemoryAvailable);
    assert_eq!(allocatable.quantity(0).to_string(), "164Mi");

    let own = format!(
        "{text}leadMargin: 100Mi\nevictionSoft: {{}}\nevictionSoftGracePeriod: {{}}\nmemoryPolicy: confirmed\n"
    );
    fs::write(folder.path("config.yaml"), &own).unwrap();
    let checked = folder.load();
    assert_eq!(hard(&checked)["memory.available"], "200Mi");
    assert_eq!(checked.config.raised.len(), 1);
    assert_eq!(checked.config.memory_policy, MemoryPolicy::Confirmed);

    fs::write(
        folder.path("config.yaml"),
        format!("{text}evictionHard: {{memory.available: 50Mi}}\n"),
    )
    .unwrap();
    let checked = folder.load();
    assert_eq!(kubelets_hard(&checked), "100Mi");
    let warnings: Vec<_> = checked.warnings.iter().map(ToString::to_string).collect();
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("not above the kubelet's 100Mi")),
        "{warnings:?}"
    );
}

#[test]
fn the_kubelets_own_file_is_read_as_the_kubelet_reads_it() {
    let text = format!(
        "{KUBELET}evictionHrad: {{}}\nport: 1\nport: 2\nevictionHard:\n  memory.available: 1\n  \
         memory.available: 2Gi\n  pid.available: 100\n"
    );
    let folder = Folder::new(&[("config.yaml", &text)]);
    let outcome = check::check(&folder.sources()).unwrap();
    let said: Vec<_> = outcome
        .warnings
        .iter()
        .map(|w| folder.plain(&w.to_string()))
        .collect();
    assert!(
        said.iter()
            .any(|w| w.contains("evictionHrad: unknown key; did you mean evictionHard?")),
        "{said:#?}"
    );
    assert!(
        said.iter()
            .any(|w| w.starts_with("config.yaml:5:1: port: the key is there twice")),
        "{said:#?}"
    );
    assert!(
        said.iter()
            .any(|w| w.contains("pid.available: \"100\": a number where the kubelet wants a text")),
        "{said:#?}"
    );
    assert_eq!(outcome.thresholds.len(), 3);

    let folder = Folder::new(&[
        ("config.yaml", KUBELET),
        ("conf.d/1.conf", "evictionHard: {memory.available: 5x}\n"),
    ]);
    let said = check::check(&folder.sources()).unwrap_err().to_string();
    let said = folder.plain(&said);
    assert!(
        said.contains("conf.d/1.conf:1:1: apiVersion is missing"),
        "{said}"
    );
    assert!(
        said.contains("conf.d/1.conf:1:34: evictionHard.memory.available: \"5x\""),
        "{said}"
    );
}

/// A configuration that has the kubelet asked, and what comes of it by this answer.
fn asked(text: &str, answer: Option<&str>) -> Checked {
    let text = format!("{HEAD}kubernetes: {{enabled: true, configz: true}}\n{text}");
    let folder = Folder::new(&[("config.yaml", &text)]);
    let mut sources = folder.sources();
    sources.configz = answer.map(Into::into);
    load(&sources).unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn what_the_kubelet_says_of_itself_is_inherited_as_it_is_and_raised() {
    let answer = r#"{"port": 10250, "evictionHard": {"memory.available": "200Mi", "pid.available": "5%"},
        "evictionPressureTransitionPeriod": "5m0s", "mergeDefaultEvictionSettings": true, "enforceNodeAllocatable": ["pods"],
        "imageMinimumGCAge": "10m0s"}"#;
    let checked = asked("", Some(answer));
    assert_eq!(
        hard(&checked),
        json!({"memory.available": "264Mi", "pid.available": "5%"}),
        "its defaults are in it already"
    );
    assert_eq!(checked.config.memory_policy, MemoryPolicy::Kubelet);
    assert_eq!(checked.config.configz.as_deref(), Some(answer));
    assert_eq!(checked.config.image_min_age, Some(Span::from_secs(600)));
    let kubelets = checked.config.kubelets_policy.as_ref().unwrap();
    let quantity = |policy: &Policy| {
        let memory = policy.thresholds().iter();
        let mut memory = memory.filter(|one| one.signal == Signal::MemoryAvailable);
        memory.next().unwrap().quantity(0).to_string()
    };
    assert_eq!(quantity(kubelets), "200Mi");
    // Where it is left out there is none: a kubelet that has no thresholds says nothing of them.
    let checked = asked("", Some("{}"));
    assert_eq!(hard(&checked), json!({}));
    assert_eq!(
        to_json(&checked.tree)["enforceNodeAllocatable"],
        json!([]),
        "nor pods"
    );
    // What is written here counts before it, as before a file.
    let own = "evictionHard: {memory.available: 150Mi}\n";
    let checked = asked(own, Some(answer));
    assert_eq!(hard(&checked), json!({"memory.available": "150Mi"}));
    let warnings: Vec<_> = checked.warnings.iter().map(ToString::to_string).collect();
    assert!(
        warnings
            .iter()
            .any(|told| told.contains("not above the kubelet's 200Mi")),
        "{warnings:?}"
    );
}

#[test]
fn until_the_kubelet_was_asked_its_defaults_are_raised_and_nobody_knows_its_own() {
    let checked = asked("", None);
    assert_eq!(hard(&checked)["memory.available"], "164Mi");
    assert_eq!(hard(&checked)["nodefs.available"], "10%");
    assert!(checked.config.kubelets_policy.is_none());
    let doubts: Vec<_> = checked.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(doubts, [""; 0]);
    // A file that is named stands in until then, and no longer.
    let kubelet = Folder::new(&[(
        "kubelet.yaml",
        &format!("{KUBELET}evictionHard: {{memory.available: 300Mi}}\n"),
    )]);
    let file = format!(
        "kubeletConfig: {}\n",
        kubelet.path("kubelet.yaml").display()
    );
    let hard = |answer| hard(&asked(&file, answer))["memory.available"].clone();
    assert_eq!(hard(None), "364Mi");
    let answer = r#"{"evictionHard": {"memory.available": "500Mi"}}"#;
    assert_eq!(hard(Some(answer)), "564Mi");
}

#[test]
fn an_agent_goes_by_whether_it_asks_and_not_by_what_takes_a_restart() {
    let running = |configz: bool, asks: bool, answer: Option<&str>| {
        let text = format!("{HEAD}kubernetes: {{enabled: true, configz: {configz}}}\n");
        let folder = Folder::new(&[("config.yaml", &text)]);
        let sources = Sources {
            asks_kubelet: Some(asks),
            configz: answer.map(Into::into),
            ..folder.sources()
        };
        let checked = load(&sources).unwrap();
        let memory = hard(&checked)["memory.available"].clone();
        (memory, checked.config.memory_policy)
    };
    let own = (json!("100Mi"), MemoryPolicy::Confirmed);
    assert_eq!(running(true, false, None), own);
    let answer = r#"{"evictionHard": {"memory.available": "500Mi"}}"#;
    let asked = (json!("564Mi"), MemoryPolicy::Kubelet);
    assert_eq!(running(false, true, Some(answer)), asked);
}

#[test]
fn an_answer_counts_only_where_it_is_asked_for_and_is_refused_where_it_is_none() {
    let answer = r#"{"evictionHard": {"memory.available": "lots"}}"#;
    let folder = Folder::new(&[("config.yaml", HEAD)]);
    let mut sources = folder.sources();
    sources.configz = Some(answer.into());
    let checked = load(&sources).unwrap();
    assert_eq!(checked.config.configz, None);
    assert_eq!(hard(&checked)["memory.available"], "100Mi");
    let text = format!("{HEAD}kubernetes: {{enabled: true, configz: true}}\n");
    let folder = Folder::new(&[("config.yaml", &text)]);
    for (answer, expected) in [
        (
            answer,
            "the kubelet's /configz:1:39: evictionHard.memory.available: \"lots\"",
        ),
        ("[]", "the kubelet's /configz:1:1: the document is a list"),
        ("{", "the kubelet's /configz"),
    ] {
        let mut sources = folder.sources();
        sources.configz = Some(answer.into());
        let said = load(&sources).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_lead_margin_by_a_flag_is_one_part_or_a_map_of_one_or_both() {
    let by_flag = |text: &str| {
        let origin = Origin::Flag("--lead-margin".to_owned());
        load(&Sources {
            overrides: vec![given("lead-margin", &[text], origin)],
            ..Folder::new(&[]).sources()
        })
    };
    for (text, mebibytes, points) in [
        ("100Mi", 100, 1.0),
        ("2%", 64, 2.0),
        ("{quantity: 100Mi}", 100, 1.0),
        (" {\"percentage\": \"2%\"}", 64, 2.0),
        ("{quantity: 100Mi, percentage: 2%}", 100, 2.0),
    ] {
        let checked = by_flag(text).unwrap_or_else(|faults| panic!("{text}: {faults}"));
        let expected = LeadMargin {
            quantity: Quantity::from_bytes(mebibytes << 20),
            points,
        };
        assert_eq!(checked.config.lead_margin, expected, "{text}");
        let shown = checked.to_json_with_origins();
        let places = shown.origins.iter();
        let mut places = places.filter(|(path, _)| path.starts_with("leadMargin"));
        assert!(places.all(|(_, place)| place == "--lead-margin"), "{text}");
    }
    for (text, expected) in [
        ("{quantity: 100Mi", ": not YAML: "),
        (
            "{quantity: 1Mi}\n---\n{quantity: 2Mi}",
            ": these are 2 documents",
        ),
        ("{quantity: 1%}", ".quantity: \"1%\": this is no quantity"),
        ("{amount: 1Mi}", ".amount: unknown key"),
        ("much", ": \"much\": "),
    ] {
        let said = by_flag(text).unwrap_err().to_string();
        let starts = said.starts_with("--lead-margin: leadMargin");
        assert!(starts && said.contains(expected), "{text}: {said}");
    }
}
