//! `cargo xtask image`: the agent as an image of a container, from nothing but its one static program.
//!
//! An OCI layout in one archive of tar, which containerd, podman and skopeo take; the manifest that `docker load` looks for lies in it
//! too. Neither a registry nor a base image takes part.
use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    Verdict,
    archive::{digest, pack},
    static_program::{self, Profile},
    workspace,
};

/// What the manifests under deploy/kubernetes call it, before the version.
const NAME: &str = "localhost/brink";
/// Where the program lies in the image. A folder of its own is what PATH names, so that `kubectl exec … -- brink` finds it.
const PROGRAM: &str = "usr/bin/brink";
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Options of `cargo xtask image`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The archive [default: brink-image.tar in the target directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The image's name and tag [default: localhost/brink and this version]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A static program that was built before, instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// How it is built: release, or guest, which is quicker to build and slower to run
    #[arg(long, default_value = "release")]
    profile: Profile,
}

/// The name by which the manifests ask for the image of this version.
pub(crate) fn default_name() -> String {
    format!("{NAME}:{}", env!("CARGO_PKG_VERSION"))
}

/// Makes the image, and says where it is.
///
/// # Errors
/// When the program cannot be built, is no static one, or the archive cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let metadata = workspace::metadata()?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => static_program::build(&metadata, args.profile)?,
    };
    let beside = || metadata.target_directory.join("brink-image.tar");
    let out = args.out.clone().unwrap_or_else(beside);
    let name = args.name.clone().unwrap_or_else(default_name);
    write(&program, &name, &out)?;
    println!(
        "{}: {name}, {} MiB",
        out.display(),
        fs::metadata(&out)?.len() >> 20
    );
    println!("  ctr --namespace k8s.io images import {}", out.display());
    println!("  podman load --input {}", out.display());
    println!(
        "  skopeo copy oci-archive:{} docker://registry.example/brink:{}",
        out.display(),
        env!("CARGO_PKG_VERSION")
    );
    Ok(Verdict::Passed)
}

/// Writes the image of a program.
///
/// # Errors
/// When it is no static program, or something cannot be written.
pub(crate) fn write(program: &Path, name: &str, out: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let architecture = static_program::architecture(&bytes)
        .with_context(|| format!("{} cannot stand alone in an image", program.display()))?;
    let work = tempfile::tempdir().context("a folder for the image")?;
    let layer = work.path().join("layer.tar");
    pack(&root_of(work.path(), &bytes)?, &layer)?;
    let layout = Layout::new(&work.path().join("layout"))?;
    let layer = layout.blob(LAYER, &fs::read(&layer)?)?;
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": [format!("/{PROGRAM}")],
            "Cmd": ["run"],
            "Env": ["PATH=/usr/bin"],
            "User": "0:0",
            "Labels": labels(),
        },
        "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] },
    });
    let config = layout.blob(CONFIG, config.to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
        "annotations": labels(),
    });
    let manifest = layout.blob(MANIFEST, manifest.to_string().as_bytes())?;
    layout.index(&manifest, name)?;
    layout.for_docker(&config, &layer, name)?;
    pack(&layout.folder, out)
}

/// The root file system.
fn root_of(work: &Path, program: &[u8]) -> anyhow::Result<PathBuf> {
    let root = work.join("root");
    let place = root.join(PROGRAM);
    let licences = root.join("usr/share/doc/brink");
    let make = || -> std::io::Result<()> {
        for folder in [place.parent().unwrap_or(&root), &licences] {
            fs::create_dir_all(folder)?;
        }
        fs::write(&place, program)?;
        fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        for name in LICENCES {
            fs::copy(workspace::root().join(name), licences.join(name))?;
        }
        Ok(())
    };
    make().context("laying out the image")?;
    Ok(root)
}

/// What the image says of itself.
fn labels() -> Value {
    json!({
        "org.opencontainers.image.title": "brink",
        "org.opencontainers.image.description": "The node monitor that acts before a Linux node goes over the brink",
        "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
    })
}

/// A folder laid out as OCI has it: every part under its digest.
struct Layout {
    folder: PathBuf,
}

impl Layout {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let layout = Self {
            folder: folder.to_owned(),
        };
        fs::create_dir_all(folder.join("blobs/sha256")).context("making the layout")?;
        layout.write("oci-layout", &json!({ "imageLayoutVersion": "1.0.0" }))?;
        Ok(layout)
    }

    fn write(&self, name: &str, value: &Value) -> anyhow::Result<()> {
        fs::write(self.folder.join(name), value.to_string()).with_context(|| name.to_owned())
    }

    /// Adds a part, and says by what it is found.
    fn blob(&self, kind: &str, bytes: &[u8]) -> anyhow::Result<Value> {
        let digest = digest(bytes);
        let path = self.folder.join("blobs/sha256").join(&digest);
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        Ok(json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len() }))
    }

    /// The one image, by the names that containerd and the others look for.
    fn index(&self, manifest: &Value, name: &str) -> anyhow::Result<()> {
        let mut entry = manifest.clone();
        let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        entry["annotations"] = json!({
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": tag,
        });
        self.write(
            "index.json",
            &json!({ "schemaVersion": 2, "manifests": [entry] }),
        )
    }

    /// What `docker load` reads, of the same parts.
    fn for_docker(&self, config: &Value, layer: &Value, name: &str) -> anyhow::Result<()> {
        let path = |part: &Value| {
            let digest = part["digest"].as_str().unwrap_or_default();
            digest.replacen("sha256:", "blobs/sha256/", 1)
        };
        let image = json!({ "Config": path(config), "RepoTags": [name], "Layers": [path(layer)] });
        self.write("manifest.json", &json!([image]))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::workspace::stdout_of;

    fn read(archive: &Path, name: &str) -> Vec<u8> {
        let output = Command::new("tar")
            .arg("-xOf")
            .arg(archive)
            .arg(name)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{name}");
        output.stdout
    }

    fn value(archive: &Path, name: &str) -> Value {
        serde_json::from_slice(&read(archive, name)).unwrap()
    }

    /// The part that a descriptor leads to, which has the size and digest that are told of it.
    fn part(archive: &Path, descriptor: &Value) -> Vec<u8> {
        let digest_told = descriptor["digest"].as_str().unwrap();
        let bytes = read(archive, &digest_told.replace("sha256:", "blobs/sha256/"));
        assert_eq!(digest_told, format!("sha256:{}", digest(&bytes)));
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    #[test]
    fn every_part_is_found_by_its_digest_and_the_image_is_the_same_again() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("any-name");
        fs::write(&program, static_program::sample(false)).unwrap();
        let archives = ["a.tar", "b.tar"].map(|name| folder.path().join(name));
        for archive in &archives {
            write(&program, "localhost/brink:1", archive).unwrap();
        }
        let [archive, again] = archives;
        assert_eq!(fs::read(&archive).unwrap(), fs::read(again).unwrap());
        assert_eq!(value(&archive, "oci-layout")["imageLayoutVersion"], "1.0.0");
        let index = value(&archive, "index.json");
        let entry = &index["manifests"][0];
        assert_eq!(
            entry["annotations"]["io.containerd.image.name"],
            "localhost/brink:1"
        );
        assert_eq!(
            entry["annotations"]["org.opencontainers.image.ref.name"],
            "1"
        );
        let manifest: Value = serde_json::from_slice(&part(&archive, entry)).unwrap();
        let config: Value = serde_json::from_slice(&part(&archive, &manifest["config"])).unwrap();
        let layer = part(&archive, &manifest["layers"][0]);
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            format!("sha256:{}", digest(&layer))
        );
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/brink"]));
        assert_eq!(config["config"]["Cmd"], json!(["run"]));
        assert_eq!(config["architecture"], "amd64");
        let docker = value(&archive, "manifest.json");
        assert_eq!(docker[0]["RepoTags"], json!(["localhost/brink:1"]));
        assert_eq!(
            read(&archive, docker[0]["Layers"][0].as_str().unwrap()),
            layer
        );
        let inside = folder.path().join("layer.tar");
        fs::write(&inside, layer).unwrap();
        let listed = stdout_of(Command::new("tar").arg("-tvf").arg(&inside)).unwrap();
        let line = listed.lines().find(|line| line.ends_with(" usr/bin/brink"));
        assert!(line.unwrap().starts_with("-rwxr-xr-x 0/0 "), "{listed}");
        assert!(listed.contains("LICENSE-MIT"), "{listed}");
    }

    #[test]
    fn what_needs_a_loader_stands_in_no_image() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("brink");
        fs::write(&program, static_program::sample(true)).unwrap();
        let refused = write(&program, "localhost/brink:1", &folder.path().join("a.tar"));
        let said = format!("{:#}", refused.unwrap_err());
        assert!(said.contains("shared libraries"), "{said}");
    }
}
