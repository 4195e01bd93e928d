//! Which folders are measured for what, and how filesystems are laid out: the kubelet's rules, by devices alone.

use brink_core::node::observe::{Devices, FilesystemStats, Layout};
use brink_core::node::policy::Policy;
use brink_host::disk::Filesystem;
use brink_host::disk::filesystem::FilesystemKind;

use crate::guard::disks::Role;

/// What was measured at the folders of the three roles; none where no such folder is known, or it has not answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// The kubelet's.
    pub nodefs: Option<Filesystem>,
    /// Images.
    pub images: Option<Filesystem>,
    /// Writable layers, where the runtime tells them apart.
    pub layers: Option<Filesystem>,
}

/// How the filesystems of a node are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Laid {
    /// By the kubelet's names.
    pub layout: Layout,
    /// Whether writable layers have a filesystem that is neither that of images nor the kubelet's own: the kubelet knows none such.
    pub layers_apart: bool,
}

impl Laid {
    /// The layout that pods are ranked by: the kubelet's, but what lies on a filesystem of its own counts there alone.
    pub const fn ranked(self) -> Layout {
        if self.layers_apart {
            Layout::LayersApart
        } else {
            self.layout
        }
    }
}

/// Where a role's figures come from.
pub type Sources = [Option<Role>; Role::ALL.len()];

/// The layout, and whose folder each role is measured by. What cannot be measured now tells no layout: the `last` one stays.
pub fn plan(known: [bool; 3], measured: &Measured, last: Laid) -> (Laid, Sources) {
    let is_missing = |is_known: bool, found: Option<Filesystem>| is_known && found.is_none();
    let [has_nodefs, has_images, has_layers] = known;
    let is_unknown = is_missing(has_nodefs, measured.nodefs)
        || is_missing(has_images, measured.images)
        || is_missing(has_layers, measured.layers);
    let (layout, sources) = of_devices((has_images, has_layers), measured);
    let laid = Laid {
        layout,
        layers_apart: sources[Role::Containerfs as usize] == Some(Role::Containerfs),
    };
    (if is_unknown { last } else { laid }, sources)
}

fn of_devices((has_images, has_layers): (bool, bool), measured: &Measured) -> (Layout, Sources) {
    let Measured {
        nodefs,
        images,
        layers,
    } = measured;
    let are_apart = has_images && !are_same(nodefs.as_ref(), images.as_ref());
    let images_by = if are_apart {
        Role::Imagefs
    } else {
        Role::Nodefs
    };
    let of_images = if are_apart { images } else { nodefs };
    let layers_are_apart = has_layers && !are_same(of_images.as_ref(), layers.as_ref());
    let layers_by = if !layers_are_apart {
        images_by
    } else if are_same(nodefs.as_ref(), layers.as_ref()) {
        Role::Nodefs
    } else {
        Role::Containerfs
    };
    let word = |is_first: bool| if is_first { "first" } else { "second" };
    let same = FilesystemStats::default();
    let other = FilesystemStats {
        available: Some(1),
        ..same
    };
    let devices = Devices {
        nodefs: word(true),
        images: word(!are_apart),
        containers: Some(if layers_are_apart {
            "layers"
        } else {
            word(!are_apart)
        }),
    };
    let stats = if layers_are_apart { other } else { same };
    let layout = Layout::detect(devices, same, stats);
    (layout, [Role::Nodefs, images_by, layers_by].map(Some))
}

/// Whether two folders lie on one filesystem. Of btrfs every subvolume has a device of its own, and all have the same room. One
/// that has not answered is another one: nobody is to wait for it.
pub fn are_same(one: Option<&Filesystem>, other: Option<&Filesystem>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return false;
    };
    let is_btrfs = |of: &Filesystem| of.kind == FilesystemKind::BTRFS;
    one.device == other.device || is_btrfs(one) && is_btrfs(other) && one.capacity == other.capacity
}

/// A policy on a node that is laid out so. Where writable layers share a filesystem with images or pods, containerfs is that one
/// under another name, and the kubelet's copy of its thresholds would say everything twice.
pub fn laid_out(policy: &Policy, laid: Laid) -> Policy {
    if laid.layers_apart {
        return policy.on_layout(laid.ranked());
    }
    let thresholds = policy.thresholds().iter();
    let others = thresholds.filter(|one| Role::of(one.signal) != Some(Role::Containerfs));
    Policy::new(others.copied().collect(), laid.layout, policy.settings)
}

#[cfg(test)]
mod tests {
    use brink_core::base::Span;
    use brink_core::node::policy::Settings;
    use brink_core::node::signal::Signal;
    use brink_core::node::threshold::{Threshold, Value};
    use brink_host::disk::filesystem::Device;

    use super::*;

    fn on(minor: u32) -> Filesystem {
        Filesystem {
            device: Device { major: 8, minor },
            kind: FilesystemKind::EXT4,
            capacity: 1 << 30,
            available: 1 << 29,
            free: 1 << 29,
            inodes: None,
            read_only: false,
        }
    }

    fn laid(layout: Layout, layers_apart: bool) -> Laid {
        Laid {
            layout,
            layers_apart,
        }
    }

    #[test]
    fn layouts_follow_devices() {
        use Role::{Containerfs, Imagefs, Nodefs};
        for (images, layers, layout, sources) in [
            (None, None, Layout::Single, [Nodefs; 3]),
            (Some(1), None, Layout::Single, [Nodefs; 3]),
            (Some(1), Some(1), Layout::Single, [Nodefs; 3]),
            (
                Some(2),
                None,
                Layout::DedicatedImagefs,
                [Nodefs, Imagefs, Imagefs],
            ),
            (
                Some(2),
                Some(2),
                Layout::DedicatedImagefs,
                [Nodefs, Imagefs, Imagefs],
            ),
            (Some(2), Some(1), Layout::Split, [Nodefs, Imagefs, Nodefs]),
            (
                Some(2),
                Some(3),
                Layout::Split,
                [Nodefs, Imagefs, Containerfs],
            ),
            // The kubelet takes any difference between the two for a filesystem of images' own.
            (
                Some(1),
                Some(3),
                Layout::Split,
                [Nodefs, Nodefs, Containerfs],
            ),
        ] {
            let measured = Measured {
                nodefs: Some(on(1)),
                images: images.map(on),
                layers: layers.map(on),
            };
            let known = [true, images.is_some(), layers.is_some()];
            let found = plan(known, &measured, laid(Layout::Split, true));
            let expected = laid(layout, layers == Some(3));
            assert_eq!(
                found,
                (expected, sources.map(Some)),
                "{images:?} {layers:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_measured_has_figures_of_its_own_and_changes_no_layout() {
        let all = [Some(on(1)), Some(on(2)), Some(on(3))];
        for last in [
            laid(Layout::Single, false),
            laid(Layout::Split, false),
            laid(Layout::Split, true),
        ] {
            for missing in Role::ALL {
                let mut found = all;
                found[missing as usize] = None;
                let [nodefs, images, layers] = found;
                let measured = Measured {
                    nodefs,
                    images,
                    layers,
                };
                let (layout, sources) = plan([true; 3], &measured, last);
                assert_eq!(
                    (layout, sources),
                    (last, Role::ALL.map(Some)),
                    "{missing:?}"
                );
            }
        }
        let without_images = Measured {
            nodefs: Some(on(1)),
            ..Measured::default()
        };
        let (found, _) = plan(
            [true, false, false],
            &without_images,
            laid(Layout::Split, true),
        );
        assert_eq!(found, Laid::default(), "nobody says that there are any");
    }

    #[test]
    fn subvolumes_of_btrfs_share_their_room() {
        let of = |minor, capacity| Filesystem {
            kind: FilesystemKind::BTRFS,
            capacity,
            ..on(minor)
        };
        let plan_of = |capacity| {
            let measured = Measured {
                nodefs: Some(of(31, 1 << 30)),
                images: Some(of(32, capacity)),
                layers: None,
            };
            plan([true, true, false], &measured, Laid::default())
                .0
                .layout
        };
        assert_eq!(plan_of(1 << 30), Layout::Single);
        assert_eq!(plan_of(1 << 31), Layout::DedicatedImagefs);
    }

    #[test]
    fn containerfs_has_thresholds_only_where_it_is_told_apart() {
        let threshold = |signal| Threshold {
            signal,
            grace: Span::ZERO,
            value: Value::Fraction(0.1),
            min_reclaim: None,
        };
        let signals = [Signal::NodefsAvailable, Signal::ContainerfsAvailable];
        let policy = Policy::new(
            signals.map(threshold).to_vec(),
            Layout::Single,
            Settings::default(),
        );
        let count = |layout, layers_apart| {
            let laid_out = laid_out(&policy, laid(layout, layers_apart));
            let is_ranked_apart = laid_out.layout() == Layout::LayersApart;
            assert_eq!(is_ranked_apart, layers_apart);
            assert_eq!(laid_out.layout().of_kubelet(), layout);
            laid_out.thresholds().len()
        };
        assert_eq!(count(Layout::Single, false), 1);
        assert_eq!(count(Layout::DedicatedImagefs, false), 1);
        // Layers on the kubelet's own filesystem: nobody is to go for the same missing bytes under another name.
        assert_eq!(count(Layout::Split, false), 1);
        assert_eq!(count(Layout::Split, true), 2);
    }
}
