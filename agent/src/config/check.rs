//! Checking one file: Brink's own or the kubelet's, whichever it says it is.

use std::path::Path;

use brink_core::node::policy::{Capacities, Draft};
use brink_core::node::threshold::Threshold;

use super::document::{Node, Reader};
use super::finding::{Faults, Finding, Report};
use super::load::{Loader, Sources, load_onto};
use super::settings::{Filesystems, NodeScope};
use super::{capacity, eviction, kubelet};
use crate::guard::pods::PodsGroup;

/// What a file comes to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its thresholds, by name of the signal and then by grace; Brink's own included.
    pub thresholds: Vec<Threshold>,
    /// What is doubtful about it.
    pub warnings: Vec<Finding>,
}

/// Checks what `sources` add up to. A base file of the kubelet's is checked as the kubelet reads it,
/// with its drop-ins; anything else is an agent's configuration.
///
/// # Errors
/// Everything that is wrong.
pub fn check(sources: &Sources) -> Result<Outcome, Faults> {
    let mut loader = Loader::default();
    let base = loader.read_base(sources);
    match base {
        Some(document) if is_kubelets(&document) => check_kubelets(loader, &document, sources),
        base => load_onto(loader, base, sources).map(|checked| Outcome {
            thresholds: checked.config.policy.thresholds().to_vec(),
            warnings: [checked.warnings, checked.idle].concat(),
        }),
    }
}

/// Whether a document says that it is the kubelet's.
fn is_kubelets(document: &Node) -> bool {
    let says = |key, wanted: &str| document.get(key).and_then(Node::scalar) == Some(wanted);
    says("kind", kubelet::KIND)
        || (document.get("kind").is_none() && says("apiVersion", kubelet::API_VERSION))
}

fn check_kubelets(loader: Loader, document: &Node, sources: &Sources) -> Result<Outcome, Faults> {
    let Loader {
        mut origins,
        mut report,
    } = loader;
    let folder = sources.config_dir.as_deref();
    let tree = kubelet::merge(Some(document), folder, &mut origins, &mut report);
    let mut scratch = Report::default();
    let draft = kubelet::read_keys(&mut Reader::new(&tree, &origins, &mut scratch));
    let source = eviction::Source {
        tree: &tree,
        prefix: "",
        origins: &origins,
    };
    let policy = eviction::check(&draft, source, &mut report);
    let capacities: Capacities = sources
        .capacities
        .unwrap_or_else(|| of_this_machine(&draft));
    eviction::add_doubts(&draft, source, &capacities, &mut report);
    let warnings = report.into_result()?;
    Ok(Outcome {
        thresholds: policy.map_or_else(Vec::new, |policy| policy.thresholds().to_vec()),
        warnings,
    })
}

fn of_this_machine(draft: &Draft) -> Capacities {
    let root = Path::new("/");
    let mut capacities = capacity::of_node(root, &NodeScope::Machine, &PodsGroup::None);
    capacity::add_disks(&mut capacities, draft, root, &Filesystems::default());
    capacities
}
