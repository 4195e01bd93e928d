//! Names by which Kubernetes calls things: those that nothing can be called are faults, where they stand.

use super::*;

fn folder(text: &str) -> Folder {
    Folder::new(&[("config.yaml", &format!("{HEAD}{text}\n"))])
}

#[test]
fn annotations_count_in_namespaces_by_name_or_in_all() {
    let folder = |list: &str| folder(&format!("annotationNamespaces: {list}"));
    for (list, expected) in [
        ("[]", [false, false]),
        ("[shop, team-7]", [true, false]),
        ("[team-7, '*']", [true, true]),
    ] {
        let selection = folder(list).load().config.selection;
        let heeded = ["shop", "shop-2"].map(|namespace| selection.heeds(namespace));
        assert_eq!(heeded, expected, "{list}");
    }
    let longest = format!("[{}]", "a".repeat(63));
    assert_eq!(
        folder(&longest)
            .load()
            .config
            .selection
            .annotation_namespaces,
        ["a".repeat(63)]
    );
    let longer = format!("[{}]", "a".repeat(64));
    for list in [
        "['team-*']",
        "[Shop]",
        "[a/b]",
        "shop",
        "['']",
        "[7]",
        "['-x']",
        "[a-]",
        "[a.b]",
        "[null]",
        "[shop, ~]",
        longer.as_str(),
    ] {
        let said = folder(list).faults();
        assert!(
            said.len() == 1 && said[0].contains(" annotationNamespaces"),
            "{said:#?}"
        );
    }
}

#[test]
fn a_namespace_beside_all_of_them_changes_nothing_and_is_doubted() {
    let warnings = |list: &str| {
        let folder = folder(&format!("annotationNamespaces: {list}"));
        let warnings = folder.load().warnings;
        let said = warnings.iter().map(|told| folder.plain(&told.to_string()));
        said.collect::<Vec<String>>()
    };
    let told = warnings("[shop, '*']");
    let expected = "config.yaml:3:24: annotationNamespaces[0]: \"shop\": a name beside \"*\", which stands for all";
    assert!(
        told.len() == 1 && told[0].starts_with(expected),
        "{told:#?}"
    );
    for list in ["['*']", "[shop, team-7]", "[]"] {
        assert_eq!(warnings(list), [""; 0], "{list}");
    }
}

#[test]
fn what_no_node_can_be_called_is_a_fault_before_an_agent_starts() {
    let long = "a".repeat(300);
    for name in [
        "'Not A Name!/../x'",
        "Worker_1",
        "a..b",
        "' '",
        long.as_str(),
    ] {
        let said = folder(&format!("kubernetes: {{nodeName: {name}}}")).faults();
        assert_eq!(said.len(), 1, "{name}: {said:#?}");
        assert!(
            said[0].starts_with("config.yaml:3:24: kubernetes.nodeName: ")
                && said[0].contains("no name of a node; accepted: a name as kubectl get nodes"),
            "{name}: {said:#?}"
        );
    }
    for name in ["ip-10-0-0-1.example", "' node-7 '"] {
        let text = format!("kubernetes: {{nodeName: {name}}}");
        let config = folder(&text).load().config;
        let named = config.kubernetes.node_name.unwrap();
        let taken = crate::node_name::of_cluster(Some(&named), None, "");
        assert_eq!(taken.as_deref(), Ok(named.trim()));
    }
}
