//! The first file system of a guest: busybox and what makes filesystems, our programs where the host has them, and the job.
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    cpio::{self, Data, Entry},
    job::{JOB, Job},
    static_build::Programs,
    supply::{Kernel, Tools},
};
use crate::workspace;

/// What the live tests read of the repository, from the workspace's directory.
const READ_BY_TESTS: &str = "docs/schemas";
/// Where the modules of each kernel are, by its release, under names that are in the order of loading.
pub(super) const MODULES: &str = "modules";
/// Folders that have to be there before anything can be mounted or made in them.
pub(super) const EMPTY: [&str; 7] = ["proc", "sys", "dev", "run", "scratch", "var", "etc"];

/// Writes the file system to `image`.
///
/// # Errors
/// When something that belongs into it cannot be read, or it cannot be written.
pub(super) fn write(
    image: &Path,
    (job, programs, tools): (&Job, &Programs, &Tools),
    kernels: &[Kernel],
) -> anyhow::Result<()> {
    let context = || format!("writing {}", image.display());
    if let Some(folder) = image.parent() {
        fs::create_dir_all(folder).with_context(context)?;
    }
    let mut out = BufWriter::new(File::create(image).with_context(context)?);
    let mut wanted = entries(job, programs, tools)?;
    wanted.extend(kernels.iter().flat_map(modules));
    cpio::write(&mut out, &with_folders(wanted))?;
    out.flush().with_context(context)
}

fn entries(job: &Job, programs: &Programs, tools: &Tools) -> anyhow::Result<Vec<Entry>> {
    let program = |path: &str, from: &Path| Entry::new(path, 0o755, Data::CopyOf(from.to_owned()));
    let mut wanted = vec![
        program("init", &programs.guest),
        program("bin/busybox", &tools.busybox),
        Entry::new("bin/sh", 0o777, Data::Link("busybox".to_owned())),
        Entry::new(JOB, 0o644, Data::Bytes(serde_json::to_vec(job)?)),
        // Everybody's, as on any system.
        Entry::new("tmp", 0o1777, Data::Folder),
    ];
    // The tests know some of them by their place on the host.
    let suites = || job.tests.iter().flat_map(|(_, suites)| suites);
    let tests = suites().map(|suite| &suite.binary.executable);
    let others = [&programs.agent, &programs.hog, &programs.coverage];
    for path in tests.chain(others) {
        wanted.push(program(&path.to_string_lossy(), path));
    }
    for (place, file) in &tools.filesystems {
        wanted.push(program(place, file));
    }
    for folder in suites().map(|suite| &suite.binary.folder) {
        wanted.push(Entry::folder(&folder.to_string_lossy()));
    }
    let read = workspace::root().join(READ_BY_TESTS);
    for path in workspace::files_below(&read)? {
        let data = Data::CopyOf(path.clone());
        wanted.push(Entry::new(&path.to_string_lossy(), 0o644, data));
    }
    wanted.extend(EMPTY.map(Entry::folder));
    Ok(wanted)
}

fn modules(kernel: &Kernel) -> Vec<Entry> {
    let entry = |(number, module): (usize, &PathBuf)| {
        // …/modules/RELEASE/kernel/…
        let mut above = module.ancestors();
        let release = above.find(|folder| folder.ends_with("kernel"))?.parent()?;
        let (release, file) = (release.file_name()?, module.file_name()?);
        let (release, file) = (release.to_string_lossy(), file.to_string_lossy());
        let path = format!("{MODULES}/{release}/{number:02}-{file}");
        Some(Entry::new(&path, 0o644, Data::CopyOf(module.clone())))
    };
    let modules = kernel.modules.iter().enumerate();
    modules.filter_map(entry).collect()
}

/// The entries once each, every one behind the folders it is in.
pub(super) fn with_folders(wanted: Vec<Entry>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let explicit: BTreeSet<String> = wanted.iter().map(|entry| entry.path.clone()).collect();
    let mut made = BTreeSet::new();
    let mut wanted = wanted;
    wanted.sort_by(|a, b| a.path.cmp(&b.path));
    for entry in wanted {
        let parts = entry
            .path
            .match_indices('/')
            .map(|(at, _)| &entry.path[..at]);
        for folder in parts {
            if !explicit.contains(folder) && made.insert(folder.to_owned()) {
                entries.push(Entry::folder(folder));
            }
        }
        if made.insert(entry.path.clone()) {
            entries.push(entry);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wanted: &[Entry], expected: &[&str]) {
        let made = with_folders(wanted.to_vec());
        let paths: Vec<&str> = made.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, expected);
    }

    #[test]
    fn folders_come_before_what_is_in_them_and_once() {
        let file = |path: &str| Entry::new(path, 0o644, Data::Bytes(Vec::new()));
        check(
            &[file("/a/b/c"), file("a/d")],
            &["a", "a/b", "a/b/c", "a/d"],
        );
        check(&[file("a/b"), Entry::folder("a")], &["a", "a/b"]);
        check(&[file("a"), file("a")], &["a"]);
        let own = Entry::new("tmp", 0o1777, Data::Folder);
        let made = with_folders(vec![file("tmp/x"), own.clone()]);
        assert_eq!(
            made.first(),
            Some(&own),
            "with the permissions that were asked for"
        );
    }
}
