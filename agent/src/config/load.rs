//! Loading: all layers into one checked configuration, or everything that is wrong with any of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use brink_core::node::engine::MemoryPolicy;
use brink_core::node::policy::{Capacities, Policy, default_hard};

use super::access;
use super::document::{Entry, Limits, Node, Origins, Reader, Site, Value, parse};
use super::eviction::{self, KUBELET_KEYS, MAPS};
use super::finding::{Faults, Finding, Report};
use super::kubelet;
use super::kubernetes::Kubernetes;
use super::layers::{
    drop_ins, empty, fill, has_ending, in_order, merge_patch, place, put, read_kept, read_one,
};
use super::margin::Raised;
use super::overrides::Override;
use super::schema::{self, KEYS, Written};
use super::settings::AgentConfig;
use super::version::{self, API_VERSION, KIND};
use super::{capacity, disks, folders, idle, lead};
use crate::disks::plan::{Laid, laid_out};
use crate::guard::pods::PodsGroup;

/// How the names of drop-ins end.
const READ: [&str; 2] = ["yaml", "conf"];
/// How those of others' files do: whoever is used to these would see nothing happen.
const MISTAKEN: [&str; 2] = ["yml", "json"];

/// What a configuration is loaded from, lowest layer first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file; `-` is standard input.
    pub config: Option<PathBuf>,
    /// What standard input said when it was read first, where it is the configuration: another time it would say nothing.
    pub input: Arc<OnceLock<Vec<u8>>>,
    /// The folder of its drop-ins, `*.yaml` and `*.conf` in the order of their names.
    pub config_dir: Option<PathBuf>,
    /// Variables of the environment and flags; later ones win.
    pub overrides: Vec<Override>,
    /// What the kubelet says of itself, where it has been asked; it counts with `kubernetes.configz` alone.
    pub configz: Option<Arc<str>>,
    /// Whether the kubelet is asked, whatever is written: an agent that runs begins and ceases to ask by a restart alone.
    pub asks_kubelet: Option<bool>,
    /// Capacities that thresholds are compared with; asked from the machine where not given.
    pub capacities: Option<Capacities>,
    /// Whether filesystems that thresholds have amounts for are measured even where capacities are given.
    pub measures_disks: bool,
}

impl Sources {
    /// Whether the kubelet is asked by this configuration.
    fn ask_kubelet(&self, written: &Kubernetes) -> bool {
        self.asks_kubelet.unwrap_or_else(|| written.asks_kubelet())
    }
}

/// A configuration that can be acted on.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Every setting.
    pub config: AgentConfig,
    /// What is doubtful about it.
    pub warnings: Vec<Finding>,
    /// What it asks for and `brink run` cannot do.
    pub idle: Vec<Finding>,
    /// The same as a tree in which every value knows where it came from.
    pub tree: Node,
    /// The places that the tree speaks of.
    pub origins: Origins,
    /// What it was loaded from.
    pub sources: Sources,
}

/// Loads all layers. A caller that reloads keeps what it has when this fails.
///
/// # Errors
/// Everything that is wrong, in all layers at once.
pub fn load(sources: &Sources) -> Result<Checked, Faults> {
    let mut loader = Loader::default();
    let base = loader.read_base(sources);
    load_onto(loader, base, sources)
}

/// Loads all layers onto a base file that has been read.
pub(super) fn load_onto(
    mut loader: Loader,
    base: Option<Node>,
    sources: &Sources,
) -> Result<Checked, Faults> {
    let layers = loader.read_layers(base, sources);
    let defaults = loader.defaults(&layers, sources);
    let tree = layers.effective(&defaults.tree);
    let written = loader.read_tree(&tree);
    let policy = loader.judge(&written, &tree, &defaults, sources);
    let kubelets = defaults.kubelets.as_ref();
    let image_min_age = kubelets.and_then(kubelet::image_min_age);
    let kubelets = kubelets.and_then(|tree| kubelet::policy(tree, &loader.origins));
    let Loader { origins, report } = loader;
    let warnings = report.into_result()?;
    let policy = policy.ok_or_else(|| {
        // A policy is missing only beside faults, which have been returned; this says so all the same.
        let problem = "no policy follows from it";
        Faults::one(Finding::at(&origins, tree.site, String::new(), problem))
    })?;
    let root = written.paths.root.as_path();
    let mut idle = idle::findings(&tree, &origins);
    idle.extend(disks::findings(&tree, root, &origins));
    idle.extend(folders::findings(&tree, root, &origins));
    let in_force = |raised: &Raised| {
        let node = tree.get(raised.key).and_then(|map| map.get(&raised.signal));
        node.is_some_and(|node| node.site == raised.site)
    };
    let raised = defaults.raised.into_iter().filter(in_force).collect();
    let asks_kubelet = sources.ask_kubelet(&written.kubernetes);
    let config = AgentConfig {
        kubelets_policy: kubelets,
        image_min_age,
        configz: sources.configz.clone().filter(|_| asks_kubelet),
        ..agent_config(written, &policy, raised)
    };
    Ok(Checked {
        tree: with_paths(tree, &config),
        config,
        warnings,
        idle,
        origins,
        sources: sources.clone(),
    })
}

/// The tree with the paths in force that nobody wrote: most of them follow from another one.
fn with_paths(mut tree: Node, config: &AgentConfig) -> Node {
    let paths: [(&[&str], &Path); 4] = [
        (&["storage", "podLogsDir"], &config.storage.pod_logs),
        (&["events", "socket"], &config.events.socket),
        (&["events", "journal", "path"], &config.events.journal.path),
        (&["paths", "socket"], &config.paths.socket),
    ];
    for (way, path) in paths {
        let written = way.iter().try_fold(&tree, |node, key| node.get(key));
        if written.is_none() {
            let text = path.display().to_string();
            put(&mut tree, way, Node::text(text, Site::DEFAULT));
        }
    }
    tree
}

fn agent_config(written: Written, policy: &Policy, raised: Vec<Raised>) -> AgentConfig {
    AgentConfig {
        mode: written.mode,
        memory_policy: written.memory_policy.unwrap_or(MemoryPolicy::Confirmed),
        policy: laid_out(policy, Laid::default()),
        draft: written.draft,
        kubelet: written.kubelet,
        configz: None,
        kubelets_policy: None,
        lead_margin: written.lead_margin,
        raised,
        node: written.node,
        pods_cgroup: written.pods_cgroup,
        workloads: written.workloads,
        storage: written.storage,
        filesystems: written.filesystems,
        runtime: written.runtime,
        image_min_age: None,
        kubernetes: written.kubernetes,
        selection: written.selection,
        limits: written.limits,
        housekeeping_interval: written.housekeeping_interval,
        realtime: written.realtime,
        kernel_programs: written.kernel_programs,
        hooks: written.hooks,
        events: written.events,
        metrics_listen: written.metrics_listen,
        paths: written.paths,
        log: written.log,
    }
}

/// What has been read so far.
#[derive(Default)]
pub(super) struct Loader {
    pub(super) origins: Origins,
    pub(super) report: Report,
}

/// What was written, layer by layer.
struct Layers {
    base: Node,
    drop_ins: Vec<Node>,
    overrides: Vec<(&'static [&'static str], Node)>,
}

/// What holds where nothing is written.
struct Defaults {
    tree: Node,
    /// The kubelet's own effective keys, where they are inherited and known.
    kubelets: Option<Node>,
    raised: Vec<Raised>,
}

impl Loader {
    /// The base file, if there is one.
    pub(super) fn read_base(&mut self, sources: &Sources) -> Option<Node> {
        let path = sources.config.as_ref()?;
        let told = (&mut self.origins, &mut self.report);
        read_kept(path, &sources.input, Limits::WRITTEN, told)
    }

    fn read_layers(&mut self, base: Option<Node>, sources: &Sources) -> Layers {
        let base = base.map(|base| self.read_layer(base, false));
        if let Some(base) = &base {
            let mut reader = Reader::new(base, &self.origins, &mut self.report);
            eviction::refuse_nulls(&mut reader);
        }
        let mut layers = Layers {
            base: base.unwrap_or_else(|| empty(Origins::DEFAULT)),
            drop_ins: Vec::new(),
            overrides: Vec::new(),
        };
        if let Some(folder) = &sources.config_dir {
            let endings = [READ, MISTAKEN].concat();
            let paths = drop_ins(folder, &endings).unwrap_or_else(|error| {
                self.report.fault(access::unlisted(folder, &error));
                Vec::new()
            });
            for path in paths {
                if has_ending(&path, &MISTAKEN) {
                    let problem = "not read: the name of a drop-in ends in .yaml or .conf";
                    let name = path.display().to_string();
                    self.report.warn(Finding::of_source(name, None, problem));
                    continue;
                }
                let (origins, report) = (&mut self.origins, &mut self.report);
                if let Some(tree) = read_one(&path, Limits::WRITTEN, origins, report) {
                    let tree = self.read_layer(tree, true);
                    layers.drop_ins.push(tree);
                }
            }
        }
        for given in &sources.overrides {
            if let Some(node) = given.node(&mut self.origins, &mut self.report) {
                layers.overrides.push((given.setting.way, node));
            }
        }
        layers
    }

    /// The policy that follows, with everything that is wrong or doubtful about it.
    fn judge(
        &mut self,
        written: &Written,
        tree: &Node,
        defaults: &Defaults,
        sources: &Sources,
    ) -> Option<Policy> {
        let source = eviction::Source {
            tree,
            prefix: "",
            origins: &self.origins,
        };
        let policy = eviction::check(&written.draft, source, &mut self.report);
        let (draft, mode) = (&written.draft, written.mode);
        let root = written.paths.root.as_path();
        let mut capacities = sources.capacities.unwrap_or_else(|| {
            let named = written.pods_cgroup.as_deref();
            let pods = PodsGroup::of(named, written.kubernetes.enabled);
            capacity::of_node(root, &written.node, &pods)
        });
        if sources.capacities.is_none() || sources.measures_disks {
            capacity::add_disks(&mut capacities, draft, root, &written.filesystems);
        }
        eviction::add_agents_doubts(draft, mode, source, &capacities, &mut self.report);
        if let Some(kubelets) = &defaults.kubelets {
            lead::add_doubts(kubelets, tree, &self.origins, &mut self.report);
        }
        policy
    }

    /// A layer in the newest version, everything that is wrong with it told; an empty one where its version is not known.
    fn read_layer(&mut self, mut tree: Node, drop_in: bool) -> Node {
        let taken = version::take(&mut tree, drop_in, &self.origins, &mut self.report);
        if taken.is_none() {
            return empty(tree.site.source);
        }
        self.read_tree(&tree);
        tree
    }

    fn read_tree(&mut self, tree: &Node) -> Written {
        schema::read(&mut Reader::new(tree, &self.origins, &mut self.report))
    }

    /// Brink's defaults, with the kubelet's thresholds in place of the built-in ones where a layer
    /// says to inherit them.
    fn defaults(&mut self, layers: &Layers, sources: &Sources) -> Defaults {
        let mut tree = built_in(&mut self.report);
        let mut scratch = Report::default();
        let effective = layers.effective(&tree);
        let written = schema::read(&mut Reader::new(&effective, &self.origins, &mut scratch));
        let files = &written.kubelet;
        let has_files = files.file.is_some() || files.folder.is_some();
        let asks = sources.ask_kubelet(&written.kubernetes);
        if !has_files && !asks {
            return Defaults {
                tree,
                kubelets: None,
                raised: Vec::new(),
            };
        }
        let configz = sources.configz.as_deref().filter(|_| asks);
        // Until it has been asked, without files, a kubelet's defaults stand for what is not known.
        let is_known = has_files || configz.is_some();
        let kubelets = match configz {
            Some(text) => kubelet::of_configz(text, &mut self.origins, &mut self.report),
            None => kubelet::load_named(files, &effective, &mut self.origins, &mut self.report),
        };
        let mut inherited = kubelets.clone();
        let raised = written.lead_margin.apply(&mut inherited);
        for key in KUBELET_KEYS {
            if let Some(node) = inherited.get(key) {
                put(&mut tree, &[key], node.clone());
            }
        }
        put(
            &mut tree,
            &["memoryPolicy"],
            Node::text("kubelet", Site::DEFAULT),
        );
        Defaults {
            tree,
            kubelets: is_known.then_some(kubelets),
            raised,
        }
    }
}

/// The built-in defaults as a tree whose values nobody wrote.
fn built_in(report: &mut Report) -> Node {
    let text = include_bytes!("defaults.yaml");
    let mut tree = match parse(text, Origins::DEFAULT, Limits::WRITTEN) {
        Ok(mut documents) if !documents.is_empty() => documents.swap_remove(0),
        Ok(_) => empty(Origins::DEFAULT),
        Err(error) => {
            let problem = format!("the built-in defaults are broken: {}", error.message);
            report.fault(Finding::of_source("default".into(), None, problem));
            empty(Origins::DEFAULT)
        }
    };
    place(&mut tree, Site::DEFAULT);
    for (key, text) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        put(&mut tree, &[key], Node::text(text, Site::DEFAULT));
    }
    let hard = Node::texts(default_hard(), Site::DEFAULT);
    put(&mut tree, &["evictionHard"], hard);
    tree
}

impl Layers {
    /// All layers over the defaults, by the kubelet's rules: a map of the base file replaces the
    /// default one unless merging is asked for, drop-ins merge key by key, flags replace.
    fn effective(&self, defaults: &Node) -> Node {
        let mut tree = empty(self.base.site.source);
        merge_patch(&mut tree, &self.base);
        tree.site = self.base.site;
        let merge = tree
            .get("mergeDefaultEvictionSettings")
            .is_some_and(|node| matches!(node.value, Value::Bool(true, _)));
        let whole: &[&str] = if merge { &[] } else { &MAPS };
        fill(&mut tree, defaults, whole);
        for over in &self.drop_ins {
            merge_patch(&mut tree, over);
        }
        fill(&mut tree, defaults, &MAPS);
        restore_period(&mut tree, defaults);
        for (way, node) in &self.overrides {
            put(&mut tree, way, node.clone());
        }
        if merge {
            switch_off(&mut tree, defaults);
        }
        in_order(tree, &KEYS)
    }
}

/// Says of each default hard threshold that a later layer took out that it is off: a reader of the whole, which asks
/// for merging with the defaults, would put it in again.
fn switch_off(tree: &mut Node, defaults: &Node) {
    const KEY: &str = "evictionHard";
    const OFF: &str = "0%";
    let Some(default) = defaults.get(KEY) else {
        return;
    };
    let hard = tree.get(KEY);
    let site = hard.map_or(tree.site, |hard| hard.site);
    let is_missing = |entry: &&Entry| hard.is_none_or(|hard| hard.entry(&entry.key).is_none());
    let missing = default.entries().iter().filter(is_missing);
    let missing: Vec<String> = missing.map(|entry| entry.key.clone()).collect();
    for key in missing {
        put(tree, &[KEY, key.as_str()], Node::text(OFF, site));
    }
}

/// A transition period of zero stands for the default in files; only a flag can say zero.
fn restore_period(tree: &mut Node, defaults: &Node) {
    const KEY: &str = "evictionPressureTransitionPeriod";
    let is_zero = tree.get(KEY).and_then(Node::scalar).is_some_and(|text| {
        text.parse::<brink_core::base::Span>()
            .is_ok_and(brink_core::base::Span::is_zero)
    });
    if is_zero && let Some(default) = defaults.get(KEY) {
        put(tree, &[KEY], default.clone());
    }
}
