//! Settings that flags and environment variables can give: one table for both, and for their help.

use super::document::{Limits, Node, Origin, Origins, Site, Value, parse, plain};
use super::finding::{Finding, Report};
use super::layers::place;

/// A setting outside of files.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// The way of keys to it.
    pub way: &'static [&'static str],
    /// The flag, without its dashes.
    pub flag: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// How its text is read.
    pub form: Form,
    /// What the value is called in the help.
    pub value_name: &'static str,
    /// The help.
    pub help: &'static str,
}

/// How the text of a setting is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Text,
    /// The same, or in braces a map of YAML.
    Braced,
    /// As a value of YAML: a number, a truth value or a text.
    Scalar,
    /// Names and values with this between them, separated by commas, as the kubelet's flags have it.
    Pairs(char),
    /// Texts separated by commas.
    Words,
    /// One text each time it is given; commas belong to it.
    Repeated,
}

/// A setting that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Which.
    pub setting: &'static Setting,
    /// Its texts, one for each time it was given.
    pub texts: Vec<String>,
    /// Where it came from.
    pub origin: Origin,
}

const fn setting(
    way: &'static [&'static str],
    (flag, variable): (&'static str, &'static str),
    form: Form,
    (value_name, help): (&'static str, &'static str),
) -> Setting {
    Setting {
        way,
        flag,
        variable,
        form,
        value_name,
        help,
    }
}

/// Every setting, in the order of the help.
pub const SETTINGS: &[Setting] = &[
    setting(
        &["mode"],
        ("mode", "BRINK_MODE"),
        Form::Text,
        (
            "MODE",
            "observe: decide and tell, change nothing; enforce: carry it out",
        ),
    ),
    setting(
        &["memoryPolicy"],
        ("memory-policy", "BRINK_MEMORY_POLICY"),
        Form::Text,
        (
            "POLICY",
            "kubelet: memory.available alone; confirmed: headroom must be short too",
        ),
    ),
    setting(
        &["evictionHard"],
        ("eviction-hard", "BRINK_EVICTION_HARD"),
        Form::Pairs('<'),
        (
            "SIGNAL<VALUE,…",
            "Hard thresholds; replaces the whole map, as the kubelet's flag does",
        ),
    ),
    setting(
        &["evictionSoft"],
        ("eviction-soft", "BRINK_EVICTION_SOFT"),
        Form::Pairs('<'),
        ("SIGNAL<VALUE,…", "Soft thresholds; replaces the whole map"),
    ),
    setting(
        &["evictionSoftGracePeriod"],
        (
            "eviction-soft-grace-period",
            "BRINK_EVICTION_SOFT_GRACE_PERIOD",
        ),
        Form::Pairs('='),
        (
            "SIGNAL=DURATION,…",
            "Graces of soft thresholds; replaces the whole map",
        ),
    ),
    setting(
        &["evictionMinimumReclaim"],
        ("eviction-minimum-reclaim", "BRINK_EVICTION_MINIMUM_RECLAIM"),
        Form::Pairs('='),
        ("SIGNAL=VALUE,…", "Minimum reclaims; replaces the whole map"),
    ),
    setting(
        &["evictionPressureTransitionPeriod"],
        (
            "eviction-pressure-transition-period",
            "BRINK_EVICTION_PRESSURE_TRANSITION_PERIOD",
        ),
        Form::Text,
        (
            "DURATION",
            "How long a condition outlives its cause; 0 is possible only here",
        ),
    ),
    setting(
        &["evictionMaxPodGracePeriod"],
        (
            "eviction-max-pod-grace-period",
            "BRINK_EVICTION_MAX_POD_GRACE_PERIOD",
        ),
        Form::Scalar,
        ("SECONDS", "Longest grace of a soft eviction"),
    ),
    setting(
        &["enforceNodeAllocatable"],
        ("enforce-node-allocatable", "BRINK_ENFORCE_NODE_ALLOCATABLE"),
        Form::Words,
        (
            "WORD,…",
            "With pods, hard memory thresholds hold for allocatable memory too",
        ),
    ),
    setting(
        &["headroomHard"],
        ("headroom-hard", "BRINK_HEADROOM_HARD"),
        Form::Text,
        (
            "VALUE",
            "Brink's own hard threshold on what can still be allocated; 0% for none",
        ),
    ),
    setting(
        &["headroomSoft"],
        ("headroom-soft", "BRINK_HEADROOM_SOFT"),
        Form::Text,
        ("VALUE", "Brink's own soft threshold"),
    ),
    setting(
        &["headroomSoftGracePeriod"],
        (
            "headroom-soft-grace-period",
            "BRINK_HEADROOM_SOFT_GRACE_PERIOD",
        ),
        Form::Text,
        ("DURATION", "Its grace"),
    ),
    setting(
        &["kubeletConfig"],
        ("kubelet-config", "BRINK_KUBELET_CONFIG"),
        Form::Text,
        (
            "FILE",
            "Inherit the kubelet's thresholds from its configuration file",
        ),
    ),
    setting(
        &["kubeletConfigDir"],
        ("kubelet-config-dir", "BRINK_KUBELET_CONFIG_DIR"),
        Form::Text,
        ("DIR", "The kubelet's folder of drop-ins"),
    ),
    setting(
        &["leadMargin"],
        ("lead-margin", "BRINK_LEAD_MARGIN"),
        Form::Braced,
        (
            "VALUE",
            "By how much inherited memory thresholds are raised: 64Mi, 1% for percentages, or \
             {quantity: 64Mi, percentage: 1%}",
        ),
    ),
    setting(
        &["node", "cgroup"],
        ("node-cgroup", "BRINK_NODE_CGROUP"),
        Form::Text,
        (
            "PATH",
            "Take this control group for the node; its limit is the capacity",
        ),
    ),
    setting(
        &["podsCgroup"],
        ("pods-cgroup", "BRINK_PODS_CGROUP"),
        Form::Text,
        (
            "PATH",
            "The control group all pods live in, for allocatable memory",
        ),
    ),
    setting(
        &["workloads", "manifests"],
        ("manifests", "BRINK_MANIFESTS"),
        Form::Text,
        ("DIR", "A folder of pod manifests that are the workloads"),
    ),
    setting(
        &["prefer"],
        ("prefer", "BRINK_PREFER"),
        Form::Repeated,
        (
            "REGEX",
            "Evict first what matches, by command name or cgroup path (repeatable)",
        ),
    ),
    setting(
        &["avoid"],
        ("avoid", "BRINK_AVOID"),
        Form::Repeated,
        ("REGEX", "Evict last what matches (repeatable)"),
    ),
    setting(
        &["ignore"],
        ("ignore", "BRINK_IGNORE"),
        Form::Repeated,
        ("REGEX", "Never evict what matches (repeatable)"),
    ),
    setting(
        &["housekeepingInterval"],
        ("housekeeping-interval", "BRINK_HOUSEKEEPING_INTERVAL"),
        Form::Text,
        (
            "DURATION",
            "How often everything is read again and cross-checked",
        ),
    ),
    setting(
        &["realtime", "priority"],
        ("realtime-priority", "BRINK_REALTIME_PRIORITY"),
        Form::Scalar,
        (
            "0-99",
            "SCHED_FIFO priority of the guard thread; 0 for none",
        ),
    ),
    setting(
        &["realtime", "moveGuardToRootCpuGroup"],
        (
            "move-guard-to-root-cpu-group",
            "BRINK_MOVE_GUARD_TO_ROOT_CPU_GROUP",
        ),
        Form::Scalar,
        (
            "BOOL",
            "Leave a cpu group that grants no real time, with the guard thread alone",
        ),
    ),
    setting(
        &["kernelPrograms"],
        ("kernel-programs", "BRINK_KERNEL_PROGRAMS"),
        Form::Scalar,
        (
            "BOOL",
            "Load programs into the kernel; without them the guard polls",
        ),
    ),
    setting(
        &["events", "enabled"],
        ("events", "BRINK_EVENTS"),
        Form::Scalar,
        (
            "BOOL",
            "Tell events, and serve them on the socket events.sock in the state directory",
        ),
    ),
    setting(
        &["events", "listen"],
        ("events-listen", "BRINK_EVENTS_LISTEN"),
        Form::Text,
        (
            "ADDRESS",
            "Serve events on a port of loopback too: 127.0.0.1:9753; none for none",
        ),
    ),
    setting(
        &["paths", "root"],
        ("host-root", "BRINK_HOST_ROOT"),
        Form::Text,
        ("DIR", "Where the machine's root file system is mounted"),
    ),
    setting(
        &["paths", "stateDir"],
        ("state-dir", "BRINK_STATE_DIR"),
        Form::Text,
        ("DIR", "Ledger, lock, stop button and socket"),
    ),
    setting(
        &["paths", "decisionJournal"],
        ("journal", "BRINK_JOURNAL"),
        Form::Text,
        ("FILE", "Journal every input to this file, for brink replay"),
    ),
    setting(
        &["log", "level"],
        ("log-level", "BRINK_LOG_LEVEL"),
        Form::Text,
        ("LEVEL", "error, warn, info, debug or trace"),
    ),
    setting(
        &["log", "format"],
        ("log-format", "BRINK_LOG_FORMAT"),
        Form::Text,
        ("FORMAT", "auto, text or json"),
    ),
];

impl Override {
    /// A setting given by a flag, or by another flag that stands for it. Nothing if there is no such
    /// setting.
    pub fn of_flag(flag: &str, text: &str, given_as: &str) -> Option<Self> {
        let setting = SETTINGS.iter().find(|setting| setting.flag == flag)?;
        Some(Self {
            setting,
            texts: Vec::from([text.to_string()]),
            origin: Origin::Flag(given_as.to_string()),
        })
    }

    /// The value as a node; what is malformed is reported.
    pub(super) fn node(&self, origins: &mut Origins, report: &mut Report) -> Option<Node> {
        let site = Site::whole(origins.add(self.origin.clone()));
        let last = self.texts.last().map_or("", String::as_str);
        let mut fault = |written: &str, problem: &str, accepted: &str| {
            let path = self.setting.way.join(".");
            let fault = Finding::at(origins, site, path, problem);
            report.fault(fault.written(format!("{written:?}")).accepted(accepted));
        };
        let value = match self.setting.form {
            Form::Braced if last.trim_start().starts_with('{') => match braced(last, site) {
                Ok(map) => map,
                Err(problem) => {
                    fault(last, &problem, BRACED);
                    return None;
                }
            },
            Form::Text | Form::Braced => Value::Text(last.to_string()),
            Form::Scalar => plain(last),
            Form::Repeated => list(self.texts.iter().map(String::as_str), site),
            Form::Words => {
                let words = self.texts.iter().flat_map(|text| text.split(','));
                list(words.map(str::trim).filter(|word| !word.is_empty()), site)
            }
            Form::Pairs(between) => match pairs(&self.texts, between) {
                Ok(pairs) => Node::texts(pairs, site).value,
                Err(pair) => {
                    fault(&pair, "malformed pair", self.setting.value_name);
                    return None;
                }
            },
        };
        Some(Node { value, site })
    }
}

/// What is accepted in braces.
const BRACED: &str = "one map of YAML, such as {quantity: 64Mi, percentage: 1%}";

/// A map of YAML on one line, all of which stands at `site`; or what is wrong with it.
fn braced(text: &str, site: Site) -> Result<Value, String> {
    let documents = parse(text.as_bytes(), site.source, Limits::WRITTEN)
        .map_err(|error| format!("not YAML: {}", error.message))?;
    let [mut map] = <[Node; 1]>::try_from(documents)
        .map_err(|documents| format!("these are {} documents", documents.len()))?;
    place(&mut map, site);
    Ok(map.value)
}

fn list<'a>(texts: impl Iterator<Item = &'a str>, site: Site) -> Value {
    Value::List(texts.map(|text| Node::text(text, site)).collect())
}

/// The kubelet's grammar: empty pairs are skipped, the last of equal names counts, and an empty
/// text is the empty map. The error is the pair that is none.
fn pairs(texts: &[String], between: char) -> Result<Vec<(String, String)>, String> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in texts.iter().flat_map(|text| text.split(',')) {
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_once(between).ok_or_else(|| pair.to_string())?;
        let (name, value) = (name.trim().to_string(), value.trim().to_string());
        pairs.retain(|(earlier, _)| *earlier != name);
        pairs.push((name, value));
    }
    Ok(pairs)
}
