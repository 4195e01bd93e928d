//! The layers as the manifests have them, and the few dependencies of the core.
use super::{
    super::{Problem, Tree},
    allowed, is_ours, may_test_with, wrong_edge,
};
use crate::workspace::{Dependency, Package};

/// Everything the core may depend on, and whether a feature has to switch it on.
const CORE_DEPENDENCIES: [(&str, bool); 2] = [("thiserror", false), ("serde", true)];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (folder, package) in &tree.packages {
        let manifest = format!("{folder}/Cargo.toml");
        problems.extend(edges(&manifest, package));
        if package.name == "brink-core" {
            problems.extend(core_dependencies(&manifest, package));
        }
    }
    problems
}

fn edges(manifest: &str, package: &Package) -> Vec<Problem> {
    let Some(may) = allowed(&package.name) else {
        let message = format!("package `{}` has no place in the layers", package.name);
        let remedy = "add it to EDGES in xtask/src/tidy/layering/mod.rs and to ARCHITECTURE.md";
        return vec![Problem::fault(manifest, 0, message, remedy)];
    };
    let mut problems = Vec::new();
    for dependency in &package.dependencies {
        let name = dependency.name.as_str();
        let is_for_tests = dependency.kind.as_deref() == Some("dev");
        if is_for_tests && may_test_with(&package.name, name) {
            continue;
        }
        if is_ours(name) && !may.contains(&name) && name != package.name {
            problems.push(wrong_edge(manifest, 0, &package.name, name));
        }
        if let Some((owner, what)) = owner_of(name)
            && ![owner, "brink-tests", "xtask"].contains(&package.name.as_str())
        {
            let message = format!("`{}` names `{name}`", package.name);
            let remedy = format!("only {owner} knows {what}; move the code there");
            problems.push(Problem::fault(manifest, 0, message, remedy));
        }
    }
    problems
}

/// The one crate of the agent that may depend on a client, and what the client is for.
fn owner_of(name: &str) -> Option<(&'static str, &'static str)> {
    let is = |word: &str| name == word || name.starts_with(&format!("{word}-"));
    if name == "k8s-openapi" || is("kube") {
        Some(("brink-kube", "the Kubernetes client"))
    } else if is("tonic") || is("prost") {
        Some(("brink-cri", "the container runtime's interface"))
    } else {
        None
    }
}

fn core_dependencies(manifest: &str, package: &Package) -> Vec<Problem> {
    let shipped = package
        .dependencies
        .iter()
        .filter(|each| each.kind.as_deref() != Some("dev"));
    shipped
        .filter_map(|dependency| core_dependency(manifest, dependency))
        .collect()
}

fn core_dependency(manifest: &str, dependency: &Dependency) -> Option<Problem> {
    let Dependency {
        name,
        kind,
        optional,
        uses_default_features,
        features,
    } = dependency;
    let known = CORE_DEPENDENCIES.iter().find(|(own, _)| own == name);
    let fault = |message: String, remedy: &str| Problem::fault(manifest, 0, message, remedy);
    let Some((_, must_be_optional)) = known.filter(|_| kind.is_none()) else {
        let remedy =
            "the core depends on thiserror and optional serde alone; pass in what it needs";
        return Some(fault(format!("the core depends on `{name}`"), remedy));
    };
    if *must_be_optional && !optional {
        return Some(fault(
            format!("the core needs `{name}` always"),
            "make it `optional = true`",
        ));
    }
    if *uses_default_features || features.iter().any(|feature| feature == "std") {
        let message = format!("the core's `{name}` brings the standard library");
        return Some(fault(
            message,
            "use `default-features = false`, without `std`",
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::samples::{Expect, check_rule, package, tree_of};

    const MANIFEST: &str = "a/Cargo.toml";

    fn check_manifest(name: &str, dependencies: &[Dependency], expected: &Expect) {
        check_rule(
            check,
            &tree_of(&[], [("a", package(name, dependencies))]),
            expected,
        );
    }

    fn dependency(name: &str) -> Dependency {
        Dependency {
            name: name.to_owned(),
            ..Dependency::default()
        }
    }

    #[test]
    fn manifests_keep_to_the_edges() {
        let names = |name| vec![dependency(name)];
        check_manifest("brink-host", &names("brink-core"), &[]);
        check_manifest("brink-host", &names("aya"), &[]);
        check_manifest(
            "brink-abi",
            &names("brink-core"),
            &[(MANIFEST, 0, "`brink-core`")],
        );
        check_manifest(
            "brink",
            &names("brink-abi"),
            &[(MANIFEST, 0, "`brink-abi`")],
        );
        check_manifest("brink", &names("kube"), &[(MANIFEST, 0, "`kube`")]);
        check_manifest("brink-kube", &names("kube-runtime"), &[]);
        check_manifest("brink-cri", &names("tonic-prost"), &[]);
        check_manifest("brink-kube", &names("prost"), &[(MANIFEST, 0, "`prost`")]);
        check_manifest("brink-extra", &[], &[(MANIFEST, 0, "no place")]);
        let dev = Dependency {
            kind: Some("dev".to_owned()),
            ..dependency("brink-host")
        };
        check_manifest("brink-core", &[dev], &[(MANIFEST, 0, "`brink-host`")]);
        let shared = "brink-tests";
        let for_tests = Dependency {
            kind: Some("dev".to_owned()),
            ..dependency(shared)
        };
        check_manifest("brink", &[for_tests], &[]);
        check_manifest("brink", &names(shared), &[(MANIFEST, 0, "`brink-tests`")]);
    }

    #[test]
    fn the_core_has_two_dependencies() {
        let serde = Dependency {
            optional: true,
            ..dependency("serde")
        };
        let proptest = Dependency {
            kind: Some("dev".to_owned()),
            ..dependency("proptest")
        };
        check_manifest(
            "brink-core",
            &[dependency("thiserror"), serde, proptest],
            &[],
        );
        check_manifest(
            "brink-core",
            &[dependency("libc")],
            &[(MANIFEST, 0, "`libc`")],
        );
        check_manifest(
            "brink-core",
            &[dependency("serde")],
            &[(MANIFEST, 0, "always")],
        );
    }

    #[test]
    fn the_dependencies_of_the_core_bring_no_std() {
        let std = Dependency {
            features: vec!["std".to_owned()],
            ..dependency("thiserror")
        };
        check_manifest("brink-core", &[std], &[(MANIFEST, 0, "standard library")]);
        let default = Dependency {
            uses_default_features: true,
            ..dependency("thiserror")
        };
        check_manifest(
            "brink-core",
            &[default],
            &[(MANIFEST, 0, "standard library")],
        );
        let built = Dependency {
            kind: Some("build".to_owned()),
            ..dependency("thiserror")
        };
        check_manifest("brink-core", &[built], &[(MANIFEST, 0, "depends on")]);
    }
}
