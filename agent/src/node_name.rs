//! What this node is called: by its kernel, and in the cluster.

use std::fs;
use std::path::Path;

use crate::dns::is_subdomain;

/// A text that is no name of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?}, from {origin}, is no name of a node: lower-case letters, digits, - and . make one; set kubernetes.nodeName"
)]
pub struct NodeNameError {
    /// The text.
    pub name: String,
    /// Where it is from.
    pub origin: &'static str,
}

/// The machine's name, as the kernel has it; empty where it cannot be read.
pub fn of_machine(root: &Path) -> String {
    let name = fs::read_to_string(root.join("proc/sys/kernel/hostname"));
    name.map_or_else(|_| String::new(), |name| name.trim().to_owned())
}

/// Its name in the cluster: as configured, or else the variable `NODE_NAME`, or else the machine's own name as the kubelet takes it.
///
/// # Errors
/// [`NodeNameError`], as the name becomes part of what the API server is asked.
pub fn of_cluster(
    configured: Option<&str>,
    variable: Option<&str>,
    hostname: &str,
) -> Result<String, NodeNameError> {
    let given = |text: Option<&str>, origin| {
        let text = text.map(str::trim).filter(|text| !text.is_empty())?;
        Some((text.to_owned(), origin))
    };
    let (name, origin) = given(configured, "kubernetes.nodeName")
        .or_else(|| given(variable, "NODE_NAME"))
        .unwrap_or_else(|| (hostname.trim().to_lowercase(), "the machine's name"));
    if is_subdomain(&name) {
        Ok(name)
    } else {
        Err(NodeNameError { name, origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_given_counts() {
        let check = |configured, variable, hostname, expected| {
            assert_eq!(
                of_cluster(configured, variable, hostname).as_deref(),
                Ok(expected)
            );
        };
        check(Some("a"), Some("b"), "c", "a");
        check(Some(""), Some(" b "), "c", "b");
        check(None, Some(""), "Host.Example\n", "host.example");
        check(None, None, "ip-10-0-0-1", "ip-10-0-0-1");
    }

    #[test]
    fn what_is_no_name_is_refused_with_its_origin() {
        let check = |configured, variable, hostname, origin| {
            let error = of_cluster(configured, variable, hostname).unwrap_err();
            assert_eq!(error.origin, origin);
        };
        check(Some("a,b"), None, "c", "kubernetes.nodeName");
        check(None, Some("Upper"), "c", "NODE_NAME");
        check(None, None, "(none)", "the machine's name");
        check(None, None, "", "the machine's name");
        check(Some("-a"), None, "c", "kubernetes.nodeName");
        check(Some("a..b"), None, "c", "kubernetes.nodeName");
        let long = "a".repeat(254);
        check(Some(&long), None, "c", "kubernetes.nodeName");
    }
}
