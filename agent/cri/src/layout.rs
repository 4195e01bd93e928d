//! Where images and writable layers lie, and which of the kubelet's layouts that is.

use std::path::PathBuf;

use brink_core::base::Moment;
use brink_core::node::observe::{Devices, FilesystemStats, Layout};

use crate::generated::{FilesystemUsage, ImageFsInfoResponse};

/// What a runtime says of one of its filesystems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A folder on it, as the runtime sees it.
    pub folder: PathBuf,
    /// Bytes that images, or writable layers, take there; not what else lies on it.
    pub used_bytes: Option<u64>,
    /// Inodes, likewise.
    pub used_inodes: Option<u64>,
    /// When the runtime measured that, by the wall clock; `None` where it does not say. The kubelet takes this for the time of
    /// everything it observes of the filesystem, also of what it measures itself at another time.
    pub at: Option<Moment>,
}

/// Where images and writable layers lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Images: of several filesystems the first, as for the kubelet.
    pub images: Place,
    /// Writable layers; `None` where the runtime does not tell them apart.
    pub layers: Option<Place>,
}

/// What was measured at a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// What tells the filesystem from others, such as `8:1`.
    pub device: String,
    /// What is left and what there is.
    pub stats: FilesystemStats,
}

/// Reads an answer; `None` if it names no image filesystem, as from a runtime that has just started.
pub fn read(answer: ImageFsInfoResponse) -> Option<Places> {
    let images = answer.image_filesystems.into_iter().find_map(place)?;
    let layers = answer.container_filesystems.into_iter().find_map(place);
    Some(Places { images, layers })
}

fn place(usage: FilesystemUsage) -> Option<Place> {
    let folder = usage.fs_id?.mountpoint;
    (!folder.is_empty()).then(|| Place {
        folder: PathBuf::from(folder),
        used_bytes: usage.used_bytes.map(|figure| figure.value),
        used_inodes: usage.inodes_used.map(|figure| figure.value),
        at: (usage.timestamp > 0).then(|| Moment::from_nanos(usage.timestamp)),
    })
}

/// The layout, from what was measured at the kubelet's folder, at [`Places::images`] and at [`Places::layers`], where there are
/// any. Several folders of one filesystem count as one, as for the kubelet.
pub fn detect(nodefs: &str, images: &Measured, layers: Option<&Measured>) -> Layout {
    let apart = layers.filter(|layers| layers.device != images.device);
    let devices = Devices {
        nodefs,
        images: &images.device,
        containers: layers.map(|layers| layers.device.as_str()),
    };
    let stats = apart.map_or(images.stats, |layers| layers.stats);
    Layout::detect(devices, images.stats, stats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::{FilesystemIdentifier, UInt64Value};

    fn usage(folder: &str, timestamp: i64, used: Option<u64>) -> FilesystemUsage {
        FilesystemUsage {
            timestamp,
            fs_id: Some(FilesystemIdentifier {
                mountpoint: folder.to_owned(),
            }),
            used_bytes: used.map(|value| UInt64Value { value }),
            inodes_used: None,
        }
    }

    #[test]
    fn the_first_image_filesystem_counts_and_what_is_missing_is_not_zero() {
        assert_eq!(read(ImageFsInfoResponse::default()), None);
        let answer = ImageFsInfoResponse {
            image_filesystems: vec![usage("/a", 7, Some(0)), usage("/b", 8, Some(1))],
            container_filesystems: vec![FilesystemUsage::default(), usage("/c", 0, None)],
        };
        let places = read(answer).unwrap();
        let place = |folder: &str, at: Option<i64>, used_bytes| Place {
            folder: PathBuf::from(folder),
            used_bytes,
            used_inodes: None,
            at: at.map(Moment::from_nanos),
        };
        assert_eq!(places.images, place("/a", Some(7), Some(0)));
        assert_eq!(places.layers, Some(place("/c", None, None)));
        let nowhere = ImageFsInfoResponse {
            image_filesystems: vec![usage("", 7, None)],
            ..ImageFsInfoResponse::default()
        };
        assert_eq!(read(nowhere), None);
    }

    #[test]
    fn layouts_are_the_kubelets() {
        let measured = |device: &str, bytes: u64| Measured {
            device: device.to_owned(),
            stats: FilesystemStats {
                available: Some(bytes),
                ..FilesystemStats::default()
            },
        };
        let check = |images: &str, layers: Option<&str>, expected| {
            let layers = layers.map(|device| measured(device, 2));
            let found = detect("8:1", &measured(images, 1), layers.as_ref());
            assert_eq!(found, expected, "{images} {layers:?}");
        };
        check("8:1", None, Layout::Single);
        check("8:1", Some("8:1"), Layout::Single);
        check("8:2", None, Layout::DedicatedImagefs);
        check("8:2", Some("8:2"), Layout::DedicatedImagefs);
        check("8:2", Some("8:1"), Layout::Split);
        // The kubelet takes any difference between the two for a filesystem of images' own.
        check("8:1", Some("8:2"), Layout::Split);
    }
}
