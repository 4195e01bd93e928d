//! Every right, mount and setting has a row with its reason on the page, and every row is of something that is there.

use std::collections::BTreeSet;

use brink_host::capabilities::{Ability, Capabilities};
use serde_json::Value;

use crate::manifests::{VARIANTS, all, container, documents, list, pod, rendered, text, texts};

/// The rows of the table below a heading: what stands before the table is prose.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = text("README.md");
    let heading = format!("\n## {heading}\n");
    let (_, below) = page
        .split_once(&heading)
        .unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = below.split("\n## ").next().unwrap_or_default();
    rows(section)
}

/// The rows of all tables of a text, without their heads.
fn rows(text: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_head = lines.peek().is_some_and(|next| next.starts_with("|---"));
        if is_head {
            lines.next();
        } else if let Some(row) = line.strip_prefix('|') {
            let cells = row.trim_end_matches('|').split('|');
            rows.push(cells.map(|cell| cell.trim().replace('`', "")).collect());
        }
    }
    rows
}

/// Objects of every variant and of every component, those too that no variant has.
fn every_object() -> Vec<Value> {
    let mut objects: Vec<Value> = VARIANTS
        .iter()
        .flat_map(|(name, _)| rendered(name))
        .collect();
    for component in ["taint", "kubelet-configz"] {
        let rights = text(&format!("components/{component}/rights.yaml"));
        objects.extend(documents(&rights));
    }
    objects
}

/// Role, resource and verb.
type Right = (String, String, String);

fn rights_of(role: &Value) -> Vec<Right> {
    let name = role["metadata"]["name"].as_str().unwrap();
    let mut rights = Vec::new();
    for rule in list(&role["rules"]) {
        assert_eq!(texts(&rule["apiGroups"]), [""], "{name}");
        for resource in texts(&rule["resources"]) {
            for verb in texts(&rule["verbs"]) {
                rights.push((name.to_owned(), resource.clone(), verb));
            }
        }
    }
    rights
}

#[test]
fn every_right_has_its_reason_and_no_reason_is_left_over() {
    let objects = every_object();
    let rights = all(&objects, "ClusterRole").into_iter().flat_map(rights_of);
    let rights: BTreeSet<Right> = rights.collect();
    let mut told = BTreeSet::new();
    for row in table("Rights") {
        let [role, resource, verbs, why] = row.try_into().unwrap();
        assert!(why.len() > 20, "{resource}: {why:?} is no reason");
        for verb in verbs.split(", ") {
            told.insert((role.clone(), resource.clone(), verb.to_owned()));
        }
    }
    assert_eq!(rights, told);
    assert!(rights.iter().all(|(_, resource, verb)| {
        resource != "*" && verb != "*" && !resource.contains("secret")
    }));
}

/// No right outlives the mode or component that it was for: the base alone is applied over all of them.
#[test]
fn back_to_observing_no_role_but_the_bases_stays() {
    let (every, base) = (every_object(), rendered("observe"));
    let names = |objects: &[Value]| -> BTreeSet<String> {
        let roles = ["ClusterRole", "ClusterRoleBinding"].map(|kind| all(objects, kind));
        let names = roles.concat().into_iter();
        names
            .map(|role| role["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let page = text("README.md");
    let command = "\nkubectl delete clusterrole,clusterrolebinding ";
    let (_, words) = page.split_once(command).unwrap();
    let words = words.lines().next().unwrap_or_default().split(' ');
    let deleted: BTreeSet<String> = words
        .filter(|word| !word.starts_with("--"))
        .map(str::to_owned)
        .collect();
    let base = names(&base);
    let left: BTreeSet<String> = names(&every).difference(&base).cloned().collect();
    assert_eq!(deleted, left);
}

/// Observing changes no object: it makes Events, and nothing else.
#[test]
fn who_observes_may_change_nothing() {
    for variant in ["observe", "least-capability"] {
        let objects = rendered(variant);
        let roles = all(&objects, "ClusterRole");
        let rights = roles.into_iter().flat_map(rights_of);
        let writes = rights.filter(|(_, _, verb)| !["list", "watch"].contains(&verb.as_str()));
        let writes: Vec<(String, String)> = writes.map(|(_, what, verb)| (what, verb)).collect();
        assert_eq!(
            writes,
            [("events".to_owned(), "create".to_owned())],
            "{variant}"
        );
    }
}

#[test]
fn roles_are_the_accounts_alone() {
    let objects = every_object();
    for binding in all(&objects, "ClusterRoleBinding") {
        let name = &binding["metadata"]["name"];
        assert_eq!(&binding["roleRef"]["name"], name);
        let roles = all(&objects, "ClusterRole");
        assert!(
            roles.iter().any(|role| role["metadata"]["name"] == *name),
            "{name}"
        );
        let subjects = list(&binding["subjects"]);
        assert_eq!(subjects.len(), 1);
        let subject = (
            &subjects[0]["kind"],
            &subjects[0]["name"],
            &subjects[0]["namespace"],
        );
        let account = &all(&objects, "ServiceAccount")[0]["metadata"];
        assert_eq!(
            subject,
            (
                &"ServiceAccount".into(),
                &account["name"],
                &account["namespace"]
            )
        );
    }
}

/// Path of the machine, place in the pod, and whether it is written to.
type Mount = (String, String, String);

fn mounts_of(pod: &Value) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for volume in list(&pod["volumes"]) {
        let Some(path) = volume["hostPath"]["path"].as_str() else {
            continue;
        };
        let kind = volume["hostPath"]["type"].as_str();
        assert!(
            kind.is_some(),
            "{path} has no type: the runtime would make whatever is missing"
        );
        let places = pod["containers"].as_array().unwrap().iter();
        let places = places.flat_map(|container| list(&container["volumeMounts"]));
        let place = places.filter(|place| place["name"] == volume["name"]);
        let place: Vec<&Value> = place.collect();
        assert_eq!(place.len(), 1, "{path}");
        let access = if place[0]["readOnly"] == true {
            "read"
        } else {
            "write"
        };
        let inside = place[0]["mountPath"].as_str().unwrap().to_owned();
        mounts.push((path.to_owned(), inside, access.to_owned()));
    }
    mounts
}

#[test]
fn every_path_of_the_machine_has_its_reason_and_no_reason_is_left_over() {
    let mut mounts = BTreeSet::new();
    for (variant, _) in VARIANTS {
        mounts.extend(mounts_of(pod(&rendered(variant))));
    }
    for file in ["kubelet-config/mount.yaml", "disks/mounts.yaml"] {
        let component = documents(&text(&format!("components/{file}")));
        mounts.extend(mounts_of(pod(&component)));
    }
    let mut told = BTreeSet::new();
    for row in table("Mounts") {
        let [path, inside, access, why] = row.try_into().unwrap();
        assert!(why.len() > 20, "{path}: {why:?} is no reason");
        told.insert((path, inside, access));
    }
    assert_eq!(mounts, told);
}

#[test]
fn every_setting_of_the_security_context_has_its_reason() {
    let (settings, capabilities): (Vec<_>, Vec<_>) = table("Security context")
        .into_iter()
        .partition(|row| row.len() == 4);
    let told: BTreeSet<String> = settings.iter().map(|row| row[0].clone()).collect();
    let mut set = BTreeSet::from(["hostPID".to_owned(), "hostNetwork".to_owned()]);
    for (variant, _) in VARIANTS {
        let objects = rendered(variant);
        assert_eq!(pod(&objects)["hostPID"], true, "{variant}");
        assert_eq!(pod(&objects)["hostNetwork"], Value::Null, "{variant}");
        let context = container(&objects)["securityContext"].as_object().unwrap();
        set.extend(context.keys().cloned());
    }
    assert_eq!(set, told);
    let told: BTreeSet<String> = capabilities.iter().map(|row| row[0].clone()).collect();
    assert_eq!(least_capabilities(), told);
    for row in &capabilities {
        assert!(
            row.len() == 3 && row[1..].iter().all(|cell| cell.len() > 4),
            "{row:?}"
        );
    }
}

fn least_capabilities() -> BTreeSet<String> {
    let objects = rendered("least-capability");
    let context = &container(&objects)["securityContext"];
    assert_eq!(context["privileged"], false);
    assert_eq!(texts(&context["capabilities"]["drop"]), ["ALL"]);
    texts(&context["capabilities"]["add"]).into_iter().collect()
}

/// What `/proc/self/status` would say of a process with these capabilities.
fn held(names: &BTreeSet<String>) -> Capabilities {
    let root = tempfile::tempdir().unwrap();
    let read = |set: u64| {
        let folder = root.path().join("proc/self");
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!("CapEff:\t{set:016x}\nCapBnd:\t{set:016x}\n");
        std::fs::write(folder.join("status"), text).unwrap();
        Capabilities::of_self(root.path()).unwrap()
    };
    let all = read(u64::MAX).effective;
    let bits = all.iter().enumerate().filter(|(_, capability)| {
        let name = capability.to_string();
        name.strip_prefix("CAP_")
            .is_some_and(|name| names.contains(name))
    });
    read(bits.fold(0, |set, (bit, _)| set | 1 << bit))
}

#[test]
fn the_least_capabilities_are_enough_for_all_but_what_the_page_names() {
    let held = held(&least_capabilities());
    let lacking = Ability::ALL
        .into_iter()
        .flat_map(|ability| held.missing(ability));
    let lacking: BTreeSet<String> = lacking.map(|capability| capability.to_string()).collect();
    let named = ["CAP_DAC_OVERRIDE", "CAP_SYS_RESOURCE"];
    assert_eq!(lacking, named.map(str::to_owned).into());
    let page = text("README.md");
    for name in named {
        let name = name.trim_start_matches("CAP_");
        assert!(
            page.contains(&format!("`{name}` would")),
            "{name} is not on the page"
        );
    }
}

#[test]
fn the_unit_of_systemd_has_what_a_pod_has() {
    let unit = include_str!("../../deploy/systemd/brink.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let unit: BTreeSet<&str> = line.unwrap().split(' ').collect();
    for name in least_capabilities() {
        assert!(unit.contains(format!("CAP_{name}").as_str()), "{name}");
    }
}
