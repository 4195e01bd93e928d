//! Cargo tools of one exact version: the installed one, else the cached one, else built into the cache.
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use crate::workspace;

/// A tool that `cargo install` builds, named as its package.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// The package, and its binary.
    pub name: &'static str,
    /// The one version that is used.
    pub version: &'static str,
}

impl Tool {
    /// The tool's binary, built first where it is missing.
    ///
    /// # Errors
    /// When it has to be built and cannot be.
    pub fn path(self) -> anyhow::Result<PathBuf> {
        let installed = PathBuf::from(self.name);
        if self.is_at(&installed) {
            return Ok(installed);
        }
        let folder = workspace::cache()?
            .join("tools")
            .join(format!("{}-{}", self.name, self.version));
        let cached = folder.join("bin").join(self.name);
        if !self.is_at(&cached) {
            self.install(&folder)?;
        }
        Ok(cached)
    }

    /// Whether the binary there runs and says that it is this version.
    fn is_at(self, binary: &Path) -> bool {
        let answer = Command::new(binary)
            .arg("--version")
            .stderr(Stdio::null())
            .output();
        answer.is_ok_and(|answer| self.is_named_by(&String::from_utf8_lossy(&answer.stdout)))
    }

    fn is_named_by(self, answer: &str) -> bool {
        answer
            .split_whitespace()
            .take(2)
            .eq([self.name, self.version])
    }

    fn install(self, folder: &Path) -> anyhow::Result<()> {
        let Self { name, version } = self;
        eprintln!("building {name} {version} into {}", folder.display());
        let mut cargo = workspace::cargo();
        cargo.args([
            "install",
            "--locked",
            "--quiet",
            "--force",
            "--version",
            version,
            name,
            "--root",
        ]);
        cargo.arg(folder);
        // In a folder of its own that Cargo removes, and no better than it has to be.
        cargo.env_remove("CARGO_TARGET_DIR");
        cargo.envs([
            ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
            ("CARGO_PROFILE_RELEASE_LTO", "off"),
            ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
            ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
        ]);
        if !workspace::succeeds(&mut cargo).with_context(|| format!("installing {name}"))? {
            bail!(
                "{name} {version} cannot be built; install it by hand: cargo install --locked {name}@{version}"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_version_serves() {
        let tool = Tool {
            name: "cargo-deny",
            version: "0.20.2",
        };
        assert!(tool.is_named_by("cargo-deny 0.20.2\n"));
        for other in [
            "cargo-deny 0.20.21\n",
            "cargo-deny 0.20\n",
            "other 0.20.2\n",
            "",
        ] {
            assert!(!tool.is_named_by(other), "{other}");
        }
    }
}
