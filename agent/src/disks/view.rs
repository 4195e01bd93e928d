//! Filesystems and the container runtime, as `brink status` shows them.

use brink_core::base::{Moment, Span};
use brink_core::node::observe::Layout;
use serde::{Deserialize, Serialize};

use super::measure::{READ_ONLY, Spot};
use super::{Disks, Known};
use crate::guard::disks::{Role, UNANSWERED};

/// What is measured, and whom the node asks before pods go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisksView {
    /// How the filesystems are laid out: `single`, `dedicatedImagefs` or `split`.
    pub layout: String,
    /// What is measured for each role.
    pub filesystems: Vec<FilesystemView>,
    /// The container runtime.
    pub runtime: RuntimeView,
    /// Why every order for a filesystem is held: `kubelet`, which keeps them; `unknown`, as long as nobody knows whether one does.
    /// None where they are not.
    #[serde(default)]
    pub held: Option<String>,
}

/// A filesystem that is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemView {
    /// `nodefs`, `imagefs` or `containerfs`.
    pub role: String,
    /// The folder that it is measured by, as the agent sees it.
    pub path: String,
    /// Its device, such as `8:1`.
    pub device: Option<String>,
    /// What it is, such as `ext4`.
    pub kind: Option<String>,
    /// Age of its figures, in milliseconds; none before the first.
    pub age_ms: Option<i64>,
    /// After how many milliseconds at most it is looked at again, by what is left and the pace of whoever fills it; none before the
    /// first look.
    #[serde(default)]
    pub period_ms: Option<i64>,
    /// Why nothing is known of it, or nothing is done for it.
    pub why: Option<String>,
}

/// The container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeView {
    /// Its socket; none where none was found.
    pub endpoint: Option<String>,
    /// What it calls itself, with its version; none while it does not answer.
    pub name: Option<String>,
    /// Whether a kubelet owns it; none while that is not known.
    pub by_kubelet: Option<bool>,
    /// Why it cannot be asked.
    pub why: Option<String>,
    /// Reclaims since the start of the agent.
    pub reclaims: u64,
    /// Those after which no threshold on a filesystem was met.
    pub sufficient: u64,
    /// Dead containers removed.
    pub containers: u64,
    /// Unused images removed.
    pub images: u64,
    /// Bytes that filesystems had more afterwards.
    pub freed_bytes: u64,
}

impl Disks {
    /// What there is to show; none where no threshold is on a filesystem.
    pub fn view(&self, now: Moment) -> Option<DisksView> {
        let known = self.lock().clone();
        if !super::concerns(&known.thresholds) {
            return None;
        }
        let measured = known.measured.iter();
        let filesystems = measured.map(|(role, spot)| filesystem(*role, spot, now));
        Some(DisksView {
            layout: word(known.laid.layout).to_owned(),
            filesystems: filesystems.collect(),
            runtime: runtime(&known),
            held: held(known.left_to_kubelet).map(str::to_owned),
        })
    }

    /// What keeps a filesystem from being known, one sentence each; empty if all are. One that is read-only may be so by design.
    pub fn troubles(&self, now: Moment) -> Vec<String> {
        let spots = self.lock().spots();
        let trouble = |spot: &std::sync::Arc<Spot>| {
            let is_by_design = spot
                .seen()
                .trouble
                .is_some_and(|(label, _)| label == READ_ONLY);
            let why = why(spot, now).filter(|_| !is_by_design)?;
            Some(format!("{}: {why}", spot.path.display()))
        };
        spots.iter().filter_map(trouble).collect()
    }
}

fn filesystem(role: Role, spot: &Spot, now: Moment) -> FilesystemView {
    let seen = spot.seen();
    FilesystemView {
        role: role.word().to_owned(),
        path: spot.path.display().to_string(),
        device: seen.filesystem.map(|found| found.device.to_string()),
        kind: seen.filesystem.map(|found| found.kind.to_string()),
        age_ms: seen.at.map(|at| now.since(at).as_nanos() / 1_000_000),
        period_ms: spot.period().map(millis_up),
        why: why(spot, now),
    }
}

/// Milliseconds, a part of one as a whole one.
const fn millis_up(span: Span) -> i64 {
    span.as_nanos().saturating_add(999_999) / 1_000_000
}

/// Why nothing is known of it now.
fn why(spot: &Spot, now: Moment) -> Option<String> {
    let silent = spot.silent_for(now).filter(|silent| *silent > UNANSWERED);
    let silent = silent.map(|silent| format!("it has not answered for {} s", silent.as_secs()));
    silent.or_else(|| spot.seen().trouble.map(|(_, why)| why))
}

fn runtime(known: &Known) -> RuntimeView {
    let (state, reclaims) = (&known.runtime, known.reclaims);
    let endpoint = state.endpoint.as_ref();
    RuntimeView {
        endpoint: endpoint.map(|path| path.display().to_string()),
        name: state.name.clone(),
        by_kubelet: state.is_kubelets,
        why: state.trouble.clone(),
        reclaims: reclaims.asked,
        sufficient: reclaims.sufficient,
        containers: reclaims.containers,
        images: reclaims.images,
        freed_bytes: reclaims.bytes,
    }
}

const fn held(left_to_kubelet: Option<bool>) -> Option<&'static str> {
    match left_to_kubelet {
        Some(false) => None,
        Some(true) => Some("kubelet"),
        None => Some("unknown"),
    }
}

const fn word(layout: Layout) -> &'static str {
    match layout {
        Layout::Single => "single",
        Layout::DedicatedImagefs => "dedicatedImagefs",
        Layout::Split | Layout::LayersApart => "split",
    }
}
