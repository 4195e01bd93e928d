//! The tree under check: every file that is, or could be, committed, and Cargo's view of the packages.
use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;

use super::{
    Problem,
    tokens::{Token, flatten},
};
use crate::workspace::{self, Package};

/// The tree under check.
pub struct Tree {
    /// Every file, by path.
    pub files: Vec<SourceFile>,
    /// The workspace's packages by their folder, from the workspace's directory.
    pub packages: BTreeMap<String, Package>,
}

/// One file of the tree.
pub struct SourceFile {
    /// Path from the workspace's directory, with `/`.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its meaning, if it is Rust; the fault, if it is Rust that cannot be parsed.
    rust: Option<Result<Rust, Problem>>,
}

/// A parsed Rust file.
pub(super) struct Rust {
    pub(super) tokens: Vec<Token>,
    pub(super) syntax: syn::File,
}

impl Tree {
    /// Reads what git tracks under `root`, and what it would add.
    ///
    /// # Errors
    /// When git or Cargo fails, or a file cannot be read.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let listing = [
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ];
        let names = workspace::stdout_of(workspace::git(root).args(listing))
            .context("listing the files with git")?;
        let mut files = Vec::new();
        for name in names.split_terminator('\0') {
            let path = root.join(name);
            // A file that is tracked but deleted in the work tree is on its way out.
            if path.symlink_metadata().is_ok_and(|entry| entry.is_file()) {
                let bytes = fs::read(&path).with_context(|| format!("reading {name}"))?;
                files.push(SourceFile::new(name, bytes));
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        let packages = workspace::metadata()?.packages.into_iter();
        let packages = packages
            .map(|package| (folder_name(root, &package), package))
            .collect();
        Ok(Self { files, packages })
    }

    /// The file of that path.
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The package that holds `path`: the one with the longest folder.
    pub fn package_of(&self, path: &str) -> Option<(&str, &Package)> {
        let holds = |folder: &str| {
            path.strip_prefix(folder)
                .is_some_and(|rest| folder.is_empty() || rest.starts_with('/'))
        };
        self.packages
            .iter()
            .filter(|(folder, _)| holds(folder))
            .max_by_key(|(folder, _)| folder.len())
            .map(|(folder, package)| (folder.as_str(), package))
    }

    /// Every Rust file that can be parsed.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&SourceFile, &Rust)> {
        self.files.iter().filter_map(|file| match &file.rust {
            Some(Ok(rust)) => Some((file, rust)),
            _ => None,
        })
    }
}

fn folder_name(root: &Path, package: &Package) -> String {
    let folder = package.folder();
    let folder = folder.strip_prefix(root).unwrap_or(folder);
    folder.to_string_lossy().into_owned()
}

impl SourceFile {
    /// A file, parsed if its name says that it is Rust.
    pub fn new(path: &str, bytes: Vec<u8>) -> Self {
        let rust = has_extension(path, "rs").then(|| parse(path, &bytes));
        Self {
            path: path.to_owned(),
            bytes,
            rust,
        }
    }

    /// The text, unless the file is binary.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes)
            .ok()
            .filter(|text| !text.contains('\0'))
    }

    /// Whether the name ends with that extension.
    pub fn has_extension(&self, extension: &str) -> bool {
        has_extension(&self.path, extension)
    }

    /// The file's name without its folders.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether the file is Rust, parsed or not.
    pub fn is_rust(&self) -> bool {
        self.rust.is_some()
    }
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|own| own == extension)
}

fn parse(path: &str, bytes: &[u8]) -> Result<Rust, Problem> {
    let refuse = |line, why: String| {
        let message = format!("cannot be parsed, so no rule was checked: {why}");
        Problem::fault(
            path,
            line,
            message,
            "make it valid Rust; `cargo check` says more",
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|error| refuse(1, error.to_string()))?;
    let stream = text.parse().map_err(|error: proc_macro2::LexError| {
        refuse(error.span().start().line, error.to_string())
    })?;
    let syntax = syn::parse_file(text)
        .map_err(|error| refuse(error.span().start().line, error.to_string()))?;
    Ok(Rust {
        tokens: flatten(stream),
        syntax,
    })
}

/// Rust files that no rule could read.
pub(super) fn unreadable(tree: &Tree) -> Vec<Problem> {
    let refused = tree
        .files
        .iter()
        .filter_map(|file| file.rust.as_ref()?.as_ref().err());
    refused.cloned().collect()
}
