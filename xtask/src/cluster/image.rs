//! Images made by hand, without a registry and without a network: an archive of one static program.
use std::{fs, path::Path};

use anyhow::Context as _;
use serde_json::json;

use crate::archive::{digest, pack};

/// What holds a pod's namespaces.
pub(super) const PAUSE: Image = Image {
    name: "localhost/pause:1",
    file: "pause.tar",
    user: "65535:65535",
};
/// What tests run: a busybox.
pub(super) const TEST: Image = Image {
    name: "localhost/brink-test:1",
    file: "brink-test.tar",
    user: "0:0",
};

/// An image and its archive.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    user: &'static str,
}

impl Image {
    /// Writes the archive of an image that has nothing but this program, at its root, as entry point.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn write(&self, program: &Path, folder: &Path) -> anyhow::Result<()> {
        let name = program.file_name().context("a program without a name")?;
        let work = tempfile::tempdir().context("a folder for an image")?;
        let root = work.path().join("root");
        fs::create_dir(&root)?;
        fs::copy(program, root.join(name)).with_context(|| program.display().to_string())?;
        let layer = work.path().join("layer.tar");
        pack(&root, &layer)?;
        let whole = work.path().join("whole");
        fs::create_dir(&whole)?;
        let config = json!({
            "architecture": "amd64",
            "os": "linux",
            "config": { "Entrypoint": [format!("/{}", name.to_string_lossy())], "User": self.user },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&fs::read(&layer)?))] },
        })
        .to_string();
        let config_name = format!("{}.json", digest(config.as_bytes()));
        fs::write(whole.join(&config_name), config)?;
        fs::rename(&layer, whole.join("layer.tar"))?;
        let manifest =
            json!([{ "Config": config_name, "RepoTags": [self.name], "Layers": ["layer.tar"] }]);
        fs::write(whole.join("manifest.json"), manifest.to_string())?;
        pack(&whole, &folder.join(self.file))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::workspace::stdout_of;

    #[test]
    fn the_archive_holds_what_its_digests_say_and_is_the_same_again() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("pause");
        fs::write(&program, "program").unwrap();
        let [first, second] = ["a", "b"].map(|name| {
            let into = folder.path().join(name);
            fs::create_dir(&into).unwrap();
            PAUSE.write(&program, &into).unwrap();
            into.join(PAUSE.file)
        });
        assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
        let read =
            |name: &str| stdout_of(Command::new("tar").arg("-xOf").arg(&first).arg(name)).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&read("manifest.json")).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], PAUSE.name);
        let config = read(manifest[0]["Config"].as_str().unwrap());
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        let layer = read("layer.tar");
        let expected = format!("sha256:{}", digest(layer.as_bytes()));
        assert_eq!(config["rootfs"]["diff_ids"][0], expected.as_str());
        assert_eq!(config["config"]["Entrypoint"][0], "/pause");
    }
}
