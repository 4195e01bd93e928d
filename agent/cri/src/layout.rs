//! Where images and writable layers lie. What layout that makes of the node's filesystems follows from what is measured there.

use std::path::PathBuf;

use crate::generated::{FilesystemUsage, ImageFsInfoResponse};

/// Folders, as the runtime sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Images: of several filesystems the first, as for the kubelet.
    pub images: PathBuf,
    /// Writable layers; `None` where the runtime does not tell them apart.
    pub layers: Option<PathBuf>,
}

/// Reads an answer; `None` if it names no image filesystem, as from a runtime that has just started.
pub fn read(answer: ImageFsInfoResponse) -> Option<Places> {
    let images = answer.image_filesystems.into_iter().find_map(folder)?;
    let layers = answer.container_filesystems.into_iter().find_map(folder);
    Some(Places { images, layers })
}

fn folder(usage: FilesystemUsage) -> Option<PathBuf> {
    let folder = usage.fs_id?.mountpoint;
    (!folder.is_empty()).then(|| PathBuf::from(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::FilesystemIdentifier;

    fn usage(folder: &str) -> FilesystemUsage {
        FilesystemUsage {
            fs_id: Some(FilesystemIdentifier {
                mountpoint: folder.to_owned(),
            }),
            ..FilesystemUsage::default()
        }
    }

    #[test]
    fn the_first_image_filesystem_counts_and_what_is_missing_is_nowhere() {
        assert_eq!(read(ImageFsInfoResponse::default()), None);
        let answer = ImageFsInfoResponse {
            image_filesystems: vec![usage("/a"), usage("/b")],
            container_filesystems: vec![FilesystemUsage::default(), usage("/c")],
        };
        let expected = Places {
            images: PathBuf::from("/a"),
            layers: Some(PathBuf::from("/c")),
        };
        assert_eq!(read(answer), Some(expected));
        let nowhere = ImageFsInfoResponse {
            image_filesystems: vec![usage("")],
            ..ImageFsInfoResponse::default()
        };
        assert_eq!(read(nowhere), None);
    }
}
