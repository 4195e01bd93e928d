//! Manifests read literally and as admitted.

use std::fs;

use brink_core::base::Quantity;
use brink_core::node::requests::{memory_request, qos_class, storage_request};
use brink_core::node::workload::{
    ContainerKind, Origin, QosClass, Stage, TolerationOperator, VolumeSource, Workload,
};
use proptest::prelude::*;
use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;
use crate::config::document::{Limits, Origin as Source, Origins, Reader, parse};
use crate::config::finding::Report;

fn read(text: &str, reading: Reading) -> (Option<Manifest>, Report) {
    let mut origins = Origins::default();
    let source = origins.add(Source::File("pod.yaml".into()));
    let documents = parse(text.as_bytes(), source, Limits::WRITTEN).unwrap();
    let mut report = Report::default();
    let mut reader = Reader::new(&documents[0], &origins, &mut report);
    let pod = read_pod(&mut reader, &documents[0], reading);
    (pod, report)
}

#[track_caller]
fn pod(text: &str, reading: Reading) -> Workload {
    let (pod, report) = read(text, reading);
    assert_eq!(report.faults, [], "{text}");
    pod.unwrap().workload
}

#[track_caller]
fn check_memory(spec: &str, written: &str, admitted: &str) {
    let text = format!("metadata: {{name: a}}\nspec:\n{spec}");
    for (reading, expected) in [
        (Reading::AsWritten, written),
        (Reading::AsAdmitted, admitted),
    ] {
        let expected: Quantity = expected.parse().unwrap();
        let request = memory_request(&pod(&text, reading));
        assert_eq!(request, expected, "{reading:?} {spec}");
    }
}

#[test]
fn a_static_pod_has_the_uid_of_its_groups() {
    fn check(annotation: &str, reading: Reading, uid: &str, origin: Origin) {
        let text =
            format!("metadata: {{name: etcd, uid: of-the-api, annotations: {{{annotation}}}}}");
        let pod = pod(&text, reading);
        assert_eq!((pod.uid.as_str(), pod.origin), (uid, origin), "{text}");
    }
    let mirror = "kubernetes.io/config.mirror: 0123abcd";
    check(mirror, Reading::AsAdmitted, "0123abcd", Origin::Mirror);
    check(mirror, Reading::AsWritten, "of-the-api", Origin::Mirror);
    let none = "kubernetes.io/config.mirror: ''";
    check(none, Reading::AsAdmitted, "of-the-api", Origin::Mirror);
    check("", Reading::AsAdmitted, "of-the-api", Origin::Api);
}

#[test]
fn containers_are_known_by_the_ids_of_the_status() {
    let text = "
metadata: {name: web}
status:
  phase: Running
  containerStatuses:
  - {name: app, containerID: 'containerd://aa', ready: true}
  - {name: new}
  - {name: odd, containerID: ''}
  initContainerStatuses: [{name: init, containerID: 'cri-o://bb'}]
  ephemeralContainerStatuses: [{name: debug, containerID: 'docker://cc'}]
";
    let (pod, report) = read(text, Reading::AsAdmitted);
    assert_eq!(report.faults, []);
    let pod = pod.unwrap();
    let ids: Vec<_> = pod
        .container_ids
        .iter()
        .map(|(name, id)| (&name[..], &id[..]))
        .collect();
    assert_eq!(ids, [("app", "aa"), ("init", "bb"), ("debug", "cc")]);
    assert!(pod.is_observed);
    let (written, _) = read("metadata: {name: web}", Reading::AsAdmitted);
    let written = written.unwrap();
    assert!(written.container_ids.is_empty() && !written.is_observed);
}

const FULL: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  uid: 1-2-3
  generation: 7
  labels: {anything: goes}
  ownerReferences:
  - {kind: Job, name: migrate}
  - {kind: ReplicaSet, name: web-5d, controller: true}
  annotations: {brink.dev/cgroup: '/shop.slice/web*', other: x}
spec:
  priority: -5
  terminationGracePeriodSeconds: 15
  containers:
  - {name: a, image: x, resources: {requests: {memory: 1Gi, cpu: 0.5, nvidia.com/gpu: 1}, limits: {ephemeral-storage: ' 2Gi '}}}
  - {name: n}
  initContainers:
  - {name: i, resources: {requests: {memory: 1073741825}}}
  - {name: s, restartPolicy: Always, resources: {requests: {memory: null, hugepages-2Mi: 4Mi}}}
  overhead: {memory: 1Mi}
  volumes:
  - {name: d, emptyDir: {sizeLimit: 1Gi}}
  - {name: m, emptyDir: {medium: Memory}}
  - {name: h, hostPath: {path: /x}}
  - {name: c, configMap: {name: x}}
  - {name: p, projected: {}}
  tolerations:
  - {key: k, operator: Exists, effect: NoSchedule}
  - {key: k, value: v}
status: {phase: Running, qosClass: Burstable}
";

#[test]
fn owners_that_are_odd_are_none_and_no_fault() {
    let check = |owners: &str, expected: Option<&str>| {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: a, ownerReferences: {owners}}}}}"
        );
        let (manifest, report) = read(&text, Reading::AsWritten);
        assert_eq!(report, Report::default(), "{owners}");
        assert_eq!(manifest.unwrap().owner.as_deref(), expected, "{owners}");
    };
    check(
        "[{kind: Job, name: a}, {kind: Job, name: b}]",
        Some("Job/a"),
    );
    check("[{kind: Job}]", None);
    check("[]", None);
    check("[7, [a]]", None);
    check("web", None);
}

#[test]
fn everything_that_eviction_looks_at_is_read() {
    let (manifest, report) = read(FULL, Reading::AsWritten);
    assert_eq!(report, Report::default());
    let manifest = manifest.unwrap();
    let glob = manifest.cgroup.unwrap();
    assert!(glob.matches("/shop.slice/web-1") && !glob.matches("/shop.slice"));
    assert_eq!(manifest.owner.as_deref(), Some("ReplicaSet/web-5d"));
    let pod = manifest.workload;
    assert_eq!(
        (pod.namespace.as_str(), pod.name.as_str(), pod.uid.as_str()),
        ("shop", "web", "1-2-3")
    );
    assert_eq!(
        (pod.generation, pod.priority, pod.termination_grace),
        (7, Some(-5), Some(15))
    );
    let kinds: Vec<_> = pod
        .containers
        .iter()
        .map(|c| (c.name.as_str(), c.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("a", ContainerKind::Regular),
            ("n", ContainerKind::Regular),
            ("i", ContainerKind::Init),
            ("s", ContainerKind::Sidecar)
        ]
    );
    assert_eq!(
        pod.containers[0].resources.limits.ephemeral_storage,
        Some("2Gi".parse().unwrap())
    );
    assert_eq!(
        pod.containers[3].resources.requests.memory,
        Some(Quantity::ZERO)
    );
    assert!(pod.containers[3].resources.requests.hugepages);
    assert_eq!(memory_request(&pod).to_string(), "1074790401");
    assert_eq!(qos_class(&pod), QosClass::Burstable);
    let sources: Vec<_> = pod.volumes.iter().map(|v| v.source).collect();
    assert_eq!(
        sources,
        [
            VolumeSource::EmptyDir {
                on_disk: true,
                size_limit: Some("1Gi".parse().unwrap())
            },
            VolumeSource::EmptyDir {
                on_disk: false,
                size_limit: None
            },
            VolumeSource::HostPath,
            VolumeSource::ConfigMap,
            VolumeSource::Other,
        ]
    );
    assert_eq!(pod.tolerations[0].operator, TolerationOperator::Exists);
    assert_eq!(pod.tolerations[1].value, "v");
    assert_eq!(pod.stage, Stage::Active);
}

#[test]
fn what_is_left_out_is_filled_in_only_where_a_server_would_have() {
    let text = "metadata: {name: a}\nspec: {priorityClassName: system-node-critical, containers: [{name: c, resources: {limits: {memory: 1Gi, cpu: 1, ephemeral-storage: 5Gi}}}]}\n";
    let written = pod(text, Reading::AsWritten);
    assert_eq!(
        (written.namespace.as_str(), written.uid.as_str()),
        ("default", "")
    );
    assert_eq!((written.priority, written.termination_grace), (None, None));
    assert!(storage_request(&written).is_zero());
    let admitted = pod(text, Reading::AsAdmitted);
    assert_eq!(admitted.uid, "default/a");
    assert_eq!(
        (admitted.priority, admitted.termination_grace),
        (Some(2_000_001_000), Some(30))
    );
    assert!(admitted.is_critical() && !written.is_critical());
    assert!(admitted.node_critical && written.node_critical);
    assert_eq!(storage_request(&admitted).to_string(), "5Gi");
    assert_eq!(qos_class(&admitted), QosClass::Guaranteed);
    let cluster = "metadata: {name: a}\nspec: {priorityClassName: system-cluster-critical}";
    assert!(!pod(cluster, Reading::AsAdmitted).node_critical);
    let (_, report) = read(
        "metadata: {name: a}\nspec: {priorityClassName: gold}",
        Reading::AsAdmitted,
    );
    assert!(
        report.warnings[0]
            .to_string()
            .contains("only a cluster knows")
    );
}

#[test]
fn requests_follow_limits_as_admitted() {
    check_memory(
        "  containers: [{name: c, resources: {limits: {memory: 1Gi}}}]",
        "0",
        "1Gi",
    );
    check_memory(
        "  containers: [{name: c, resources: {limits: {memory: 1Gi}, requests: {memory: 0}}}]",
        "0",
        "0",
    );
    check_memory(
        "  initContainers: [{name: i, resources: {limits: {memory: 3Gi}}}]\n  containers: [{name: c, resources: {requests: {memory: 1Gi}}}]",
        "1Gi",
        "3Gi",
    );
    check_memory(
        "  resources: {limits: {memory: 2Gi}}\n  containers: [{name: c}]",
        "0",
        "2Gi",
    );
    check_memory(
        "  resources: {limits: {memory: 2Gi}}\n  containers: [{name: c, resources: {requests: {memory: 1Gi}}}]",
        "0",
        "1Gi",
    );
    check_memory(
        "  resources: {requests: {memory: 2Gi}}\n  containers: [{name: c, resources: {requests: {memory: 1Gi}}}]",
        "2Gi",
        "2Gi",
    );
    check_memory(
        "  resources: null\n  containers: [{name: c, resources: {requests: {memory: 1Gi}}}]",
        "1Gi",
        "1Gi",
    );
}

#[test]
fn annotations_and_phases_are_read_as_kubernetes_reads_them() {
    for (annotations, origin) in [
        ("{}", Origin::Api),
        ("{kubernetes.io/config.source: api}", Origin::Api),
        ("{kubernetes.io/config.source: file}", Origin::Static),
        ("{kubernetes.io/config.source: ''}", Origin::Static),
        (
            "{kubernetes.io/config.source: file, kubernetes.io/config.mirror: abc}",
            Origin::Mirror,
        ),
    ] {
        let text = format!("metadata: {{name: a, annotations: {annotations}}}");
        assert_eq!(
            pod(&text, Reading::AsWritten).origin,
            origin,
            "{annotations}"
        );
    }
    for (deleted, phase, stage) in [
        ("null", "Pending", Stage::Active),
        ("null", "Failed", Stage::Terminal),
        ("null", "Succeeded", Stage::Terminal),
        ("'2026-01-01T00:00:00Z'", "Failed", Stage::Terminating),
        ("2026-01-01T00:00:00Z", "Running", Stage::Terminating),
    ] {
        let text = format!(
            "metadata: {{name: a, deletionTimestamp: {deleted}}}\nstatus: {{phase: {phase}}}"
        );
        assert_eq!(pod(&text, Reading::AsWritten).stage, stage, "{text}");
    }
}

#[test]
fn a_reported_class_counts_if_it_is_one() {
    for (written, class) in [
        ("Guaranteed", Some(QosClass::Guaranteed)),
        ("BestEffort", Some(QosClass::BestEffort)),
        ("''", None),
        ("Unheard", None),
    ] {
        let text = format!("metadata: {{name: a}}\nstatus: {{qosClass: {written}}}");
        let reported = pod(&text, Reading::AsWritten).reported_qos;
        assert_eq!(reported, class, "{written}");
    }
}

#[test]
fn a_scenario_may_number_its_pods() {
    let text = "metadata: {name: 7, namespace: 010, uid: 1_000}\n";
    let (manifest, report) = read(text, Reading::AsWritten);
    let pod = manifest.unwrap().workload;
    assert_eq!(
        [pod.name, pod.namespace, pod.uid],
        ["7", "8", "1000"].map(String::from)
    );
    assert_eq!((report.faults.len(), report.warnings.len()), (0, 3));
    let (manifest, report) = read(text, Reading::AsAdmitted);
    assert!(manifest.is_none());
    assert!(report.faults[0].to_string().contains("this is a number"));
}

#[test]
fn wrong_types_are_faults_with_their_places() {
    let text = "kind: Deployment\nmetadata: {name: [5]}\nspec: 7\n";
    let said: Vec<_> = read(text, Reading::AsWritten)
        .1
        .faults
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        said,
        [
            "pod.yaml:1:7: kind: \"Deployment\": not a pod; accepted: Pod",
            "pod.yaml:3:7: spec: \"7\": this is a number; accepted: a map",
            "pod.yaml:2:18: metadata.name: this is a list; accepted: a text; quote it if it looks like something else",
        ]
    );
    let text = "metadata: {name: n}\nspec:\n  priority: '5'\n  containers: [{resources: {requests: {memory: 1x, gpu: []}}}, 3]\n  volumes: {}\n";
    let said: Vec<_> = read(text, Reading::AsWritten)
        .1
        .faults
        .iter()
        .map(|f| (f.line, f.path.clone()))
        .collect();
    assert_eq!(
        said,
        [
            (Some(3), "spec.priority".to_string()),
            (
                Some(4),
                "spec.containers[0].resources.requests.memory".to_string()
            ),
            (
                Some(4),
                "spec.containers[0].resources.requests.gpu".to_string()
            ),
            (Some(4), "spec.containers[1]".to_string()),
            (Some(5), "spec.volumes".to_string()),
        ]
    );
}

#[test]
fn folders_keep_what_is_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        (
            "1.yaml",
            "kind: Pod\nmetadata: {name: a}\n---\nkind: Service\n---\nkind: Pod\nmetadata: {name: b}\n",
        ),
        (
            "2.json",
            "{\"kind\": \"List\", \"items\": [{\"kind\": \"Pod\", \"metadata\": {\"name\": \"c\"}}]}",
        ),
        ("3.yml", "kind: Pod\nmetadata: {}\n"),
        ("4.yaml", "kind: Pod\nmetadata: {name: a}\n"),
        ("5.txt", "not looked at"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let mode = Mode::RUSR | Mode::WUSR;
    mkfifoat(CWD, folder.path().join("6.yaml"), mode).unwrap();
    let read = read_folder(folder.path()).unwrap();
    let names: Vec<_> = read
        .pods
        .iter()
        .map(|pod| pod.workload.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    let faults: Vec<_> = read.faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].contains("3.yml:2:11: metadata: the pod has no name"));
    assert!(faults[1].contains("6.yaml: cannot be read: this is a pipe"));
    let said: Vec<_> = read.warnings.iter().map(ToString::to_string).collect();
    assert!(
        said[0].contains("Service is no pod")
            && said[1].contains("4.yaml:1:1: uid default/a is in"),
        "{said:?}"
    );
}

#[test]
fn the_last_good_pods_of_a_file_stand_until_it_is_good_again_or_gone() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let pod = |name: &str| format!("kind: Pod\nmetadata: {{name: {name}}}\n");
    let mut memory = LastGood::default();
    let mut check = |path: &std::path::Path, expected: &[&str], troubles: &[&str]| {
        let (pods, said) = memory.read(Some(path));
        let names: Vec<_> = pods.iter().map(|pod| pod.workload.name.as_str()).collect();
        assert_eq!(names, expected);
        assert_eq!(said.len(), troubles.len(), "{said:?}");
        for (said, words) in said.iter().zip(troubles) {
            assert!(said.contains(words), "{said}");
        }
    };
    let path = folder.path();
    write("1.yaml", "metadata: {name: a\n");
    write("2.yaml", &pod("b"));
    check(path, &["b"], &["its pods are unknown"]);
    write("1.yaml", &pod("a"));
    check(path, &["a", "b"], &[]);
    write("3.yaml", &pod("b"));
    check(path, &["a", "b"], &["is in"]);
    fs::remove_file(path.join("3.yaml")).unwrap();
    // Half written, then blank, then for good.
    write("1.yaml", "kind: Pod\nmetadata: {na");
    check(path, &["b", "a"], &["the pods it had stand"]);
    write("1.yaml", "\n");
    check(
        path,
        &["b", "a"],
        &["there is nothing in it; the pods it had stand"],
    );
    write("1.yaml", &pod("c"));
    check(path, &["c", "b"], &[]);
    // What is in order comes before what is only remembered.
    write("1.yaml", "kind: [");
    write("3.yaml", "kind: Pod\nmetadata: {name: c, uid: new}\n");
    check(path, &["b", "c"], &["the pods it had stand"]);
    // A file of other objects has no pod, and is in order.
    write("1.yaml", "kind: Service\n");
    fs::remove_file(path.join("3.yaml")).unwrap();
    check(path, &["b"], &[]);
    fs::remove_file(path.join("2.yaml")).unwrap();
    check(path, &[], &[]);
    write("2.yaml", &pod("b"));
    check(path, &["b"], &[]);
    let away = tempfile::tempdir().unwrap();
    let moved = away.path().join("moved");
    fs::rename(path, &moved).unwrap();
    check(path, &["b"], &["the pods it had stand"]);
    check(&moved, &["b"], &[]);
    check(away.path(), &[], &[]);
    fs::rename(&moved, path).unwrap();
}

#[test]
fn files_that_are_not_in_order_are_told_in_few_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| folder.path().join(format!("{number:02}.yaml"));
    let mut memory = LastGood::default();
    for number in 0..MOST_BROKEN + 3 {
        fs::write(path(number), "kind: [").unwrap();
    }
    fs::write(
        path(1),
        format!("kind: Pod\nmetadata: {{name: {}}}\n", "a".repeat(9_000)),
    )
    .unwrap();
    fs::write(path(2), "kind: Pod\nmetadata: {name: b}\n").unwrap();
    let _first = memory.read(Some(folder.path()));
    let many = "- resources: {requests: {memory: x}}\n  name: c\n".repeat(9);
    let text = format!("kind: Pod\nmetadata: {{name: b}}\nspec:\n  containers:\n{many}");
    fs::write(
        path(2),
        text.replace("\n- ", "\n  - ")
            .replace("\n  name", "\n    name"),
    )
    .unwrap();
    let (_, troubles) = memory.read(Some(folder.path()));
    let Broken { files, more } = memory.broken();
    assert_eq!(
        (files.len(), *more as usize),
        (MOST_BROKEN, troubles.len() - MOST_BROKEN)
    );
    assert_eq!((&files[0].path, files[0].is_remembered), (&path(0), false));
    assert!(files[0].why.contains("00.yaml:1:"), "{}", files[0].why);
    let known = files.iter().find(|file| file.path == path(2)).unwrap();
    assert!(known.is_remembered, "{known:?}");
    let lines: Vec<&str> = known.why.lines().collect();
    assert!(
        lines.len() == 5 && lines[4].starts_with("and "),
        "{known:?}"
    );
    assert!(
        files.iter().all(|file| file.why.len() < 2_100),
        "{files:#?}"
    );
    // In order again: nothing is said of them.
    for number in 0..MOST_BROKEN + 3 {
        fs::remove_file(path(number)).unwrap();
    }
    let _none = memory.read(Some(folder.path()));
    assert_eq!(*memory.broken(), Broken::default());
}

proptest! {
    #[test]
    fn any_document_is_read_or_refused(text in "[a-z]{0,3}: ?[-0-9a-zA-Z{}\\[\\],: '\"]{0,40}") {
        let mut origins = Origins::default();
        let source = origins.add(Source::File("f".into()));
        let text = format!("metadata: {{name: a}}\nspec:\n  {text}\n  containers: [{{{text}}}]\n");
        for document in parse(text.as_bytes(), source, Limits::WRITTEN).unwrap_or_default() {
            let mut report = Report::default();
            let mut reader = Reader::new(&document, &origins, &mut report);
            let _ = read_pod(&mut reader, &document, Reading::AsAdmitted);
        }
    }
}

#[test]
fn a_pod_asks_for_one_of_three_things_and_a_wrong_word_is_a_doubt() {
    for (written, expected, warnings) in [
        ("first", Some(Wish::First), 0),
        ("last", Some(Wish::Last), 0),
        ("'never'", Some(Wish::Never), 0),
        ("null", None, 0),
        ("Never", Some(Wish::Unknown), 1),
        ("''", Some(Wish::Unknown), 1),
        ("7", Some(Wish::Unknown), 1),
        ("[never]", Some(Wish::Unknown), 1),
    ] {
        let text = format!("metadata: {{name: a, annotations: {{brink.dev/eviction: {written}}}}}");
        for reading in [Reading::AsAdmitted, Reading::AsWritten] {
            let (pod, report) = read(&text, reading);
            assert_eq!(pod.unwrap().wish, expected, "{text}");
            let said = (report.faults.len(), report.warnings.len());
            assert_eq!(said, (0, warnings), "{text}");
        }
    }
}

#[test]
fn folders_of_a_pod_are_absolute_ones_each_once() {
    let files = |text: &str| {
        let (pod, report) = read(text, Reading::AsAdmitted);
        (pod.map(|pod| pod.files), report.faults.len())
    };
    let with = |folders: &str| {
        format!("metadata: {{name: a, annotations: {{brink.dev/directories: '{folders}'}}}}")
    };
    let (found, faults) = files(&with("/srv/a, /srv/b/,/srv/a"));
    let expected = ["/srv/a", "/srv/b"].map(PathBuf::from);
    assert_eq!((found.unwrap().directories, faults), (expected.to_vec(), 0));
    for wrong in ["srv/a", "/", "/srv/../etc", "/srv/a,,/srv/b"] {
        assert_eq!(files(&with(wrong)).1, 1, "{wrong}");
    }
    let (found, _) = files("metadata: {name: a}\nspec: {hostUsers: false}");
    assert!(found.unwrap().has_user_namespace);
    let (found, _) = files("metadata: {name: a}\nspec: {hostUsers: true}");
    assert_eq!(found.unwrap(), PodFiles::default());
}
