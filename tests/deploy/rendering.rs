//! What is committed as rendered is what kustomize makes of the sources, and every component goes with every other.

use std::collections::BTreeSet;
use std::path::{Component, Path};
use std::process::Command;
use std::{env, fs};

use brink_tests::skip;
use serde_json::Value;

use crate::manifests::{COMPONENTS, VARIANTS, all, documents, folder, pod, text};
use crate::schema;

/// What stands above the rendered files.
const HEAD: &str = "# Made of deploy/kubernetes by `kubectl kustomize`: change it there, and see CONTRIBUTING.md.\n";
/// Another `kubectl` than that of the path.
const KUBECTL: &str = "BRINK_KUBECTL";
/// Components are older, yet this major version is what the files are written for.
const KUSTOMIZE: u64 = 5;

/// What kustomize makes of a folder, or why it cannot be asked here.
fn kustomize(folder: &Path) -> Result<String, String> {
    let program = env::var_os(KUBECTL).unwrap_or_else(|| "kubectl".into());
    let version = Command::new(&program)
        .args(["version", "--client", "--output=json"])
        .output();
    let version = version.map_err(|error| format!("needs kubectl: {error}"))?;
    let version: Value = serde_json::from_slice(&version.stdout).unwrap_or_default();
    if !is_new_enough(&version) {
        return Err(format!(
            "needs a kubectl with kustomize {KUSTOMIZE}, which Kubernetes 1.27 was the first to have ({KUBECTL} names one)"
        ));
    }
    let made = Command::new(&program)
        .arg("kustomize")
        .arg(folder)
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    // A warning is of a word that will go one day.
    assert!(made.status.success() && said.is_empty(), "{said}");
    Ok(String::from_utf8(made.stdout).unwrap())
}

fn is_new_enough(version: &Value) -> bool {
    let own = version["kustomizeVersion"].as_str().unwrap_or_default();
    let major = own.trim_start_matches('v').split('.').next();
    major
        .and_then(|major| major.parse::<u64>().ok())
        .is_some_and(|major| major >= KUSTOMIZE)
}

#[test]
fn versions_of_kustomize_are_told_apart() {
    for (version, expected) in [
        (r#"{"kustomizeVersion": "v5.5.0"}"#, true),
        (r#"{"kustomizeVersion": "v4.5.7"}"#, false),
        (r#"{"clientVersion": {}}"#, false),
    ] {
        let version = serde_json::from_str(version).unwrap();
        assert_eq!(is_new_enough(&version), expected, "{version}");
    }
}

/// Objects in an order that is no kustomize's own.
fn sorted(text: &str) -> Vec<String> {
    let mut objects: Vec<String> = documents(text).iter().map(Value::to_string).collect();
    objects.sort();
    objects
}

#[test]
fn what_is_rendered_is_what_the_sources_make() {
    for (variant, source) in VARIANTS {
        let made = match kustomize(&folder().join(source)) {
            Ok(made) => made,
            Err(reason) => skip!("{reason}"),
        };
        let path = format!("rendered/{variant}.yaml");
        if env::var("BRINK_BLESS").is_ok_and(|word| word == "1") {
            fs::write(folder().join(&path), format!("{HEAD}{made}")).unwrap();
        }
        assert_eq!(
            sorted(&made),
            sorted(&text(&path)),
            "{path} is stale: BRINK_BLESS=1 writes it anew"
        );
    }
}

#[test]
fn every_component_goes_with_every_other() {
    let overlay = tempfile::tempdir().unwrap();
    let folder = folder().canonicalize().unwrap();
    let place = overlay.path().canonicalize().unwrap();
    // Kustomize takes no absolute path.
    let names = place.components();
    let up = names.filter(|name| matches!(name, Component::Normal(_)));
    let back = "../".repeat(up.count()) + folder.strip_prefix("/").unwrap().to_str().unwrap();
    let components = COMPONENTS.map(|name| format!("- {back}/components/{name}"));
    let components = components.join("\n");
    let text = format!("resources:\n- {back}/base\ncomponents:\n{components}\n");
    fs::write(place.join("kustomization.yaml"), text).unwrap();
    let made = match kustomize(&place) {
        Ok(made) => documents(&made),
        Err(reason) => skip!("{reason}"),
    };
    made.iter().for_each(schema::check);
    for kind in [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ] {
        assert!(all(&made, kind).is_empty(), "{kind}");
    }
    assert_eq!(all(&made, "ClusterRole").len(), 4);
    assert_eq!(pod(&made)["volumes"].as_array().unwrap().len(), 11);
}

#[test]
fn every_component_and_overlay_is_known_to_these_tests() {
    let names = |below: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(folder().join(below)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    };
    assert_eq!(names("components"), COMPONENTS.map(str::to_owned).into());
    let overlays = VARIANTS.map(|(_, source)| source);
    let overlays = overlays
        .iter()
        .filter_map(|source| source.strip_prefix("overlays/"));
    assert_eq!(names("overlays"), overlays.map(str::to_owned).collect());
    let files = VARIANTS.map(|(variant, _)| format!("{variant}.yaml"));
    assert_eq!(names("rendered"), files.into());
}
