//! `cargo xtask gen`: files made from others and committed, so that readers need no build and builds no generator.
mod cli_pages;
mod config_maps;
mod event_fields;
mod event_schemas;
mod ordered;
mod runtime_interface;

use std::{collections::BTreeMap, fmt, fs, path::Path};

use anyhow::Context as _;

use crate::{Verdict, workspace};

/// The files of one folder, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Makes all files of one folder, and owns it: anything else in there is stale.
pub struct Generator {
    /// The folder, from the workspace's directory.
    pub folder: &'static str,
    /// Makes the files, the same bytes each time.
    pub make: fn() -> anyhow::Result<Files>,
}

/// Every generator of the project.
const GENERATORS: &[Generator] = &[
    // Before those that ask the agent, which is built with it.
    Generator {
        folder: "agent/cri/src/generated",
        make: runtime_interface::make,
    },
    Generator {
        folder: "docs/man",
        make: cli_pages::man,
    },
    Generator {
        folder: "deploy/completions",
        make: cli_pages::completions,
    },
    Generator {
        folder: "deploy/alerts/kubernetes",
        make: config_maps::alerts,
    },
    Generator {
        folder: "deploy/dashboards/kubernetes",
        make: config_maps::dashboards,
    },
    Generator {
        folder: "docs/events",
        make: event_fields::make,
    },
    Generator {
        folder: "docs/schemas/events",
        make: event_schemas::make,
    },
];

/// Options of `cargo xtask gen`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Write nothing; fail if a file is not what would be written
    #[arg(long)]
    pub check: bool,
}

/// Writes or checks every generated file.
///
/// # Errors
/// When a generator fails or a file cannot be read or written.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    run_in(workspace::root(), GENERATORS, args.check)
}

fn run_in(root: &Path, generators: &[Generator], check: bool) -> anyhow::Result<Verdict> {
    let mut stale = 0;
    for Generator { folder, make } in generators {
        let wanted = make().with_context(|| format!("making the files of {folder}"))?;
        let differences = compare(&root.join(folder), &wanted)?;
        for (name, difference) in &differences {
            println!("{folder}/{name}: {difference}");
        }
        if !check {
            write(&root.join(folder), &wanted, &differences)?;
        }
        stale += differences.len();
    }
    let hint = if check && stale > 0 {
        "; run `cargo xtask gen` and commit"
    } else {
        ""
    };
    println!(
        "gen: {} generators, {stale} stale files{hint}",
        generators.len()
    );
    Ok(Verdict::from_holds(!check || stale == 0))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    Missing,
    Stale,
    Unwanted,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "is missing",
            Self::Stale => "is stale",
            Self::Unwanted => "is made by nothing",
        })
    }
}

fn compare(folder: &Path, wanted: &Files) -> anyhow::Result<BTreeMap<String, Difference>> {
    let present = if folder.exists() {
        read_below(folder)?
    } else {
        Files::new()
    };
    let unwanted = present.keys().filter(|name| !wanted.contains_key(*name));
    let mut differences: BTreeMap<_, _> = unwanted
        .map(|name| (name.clone(), Difference::Unwanted))
        .collect();
    for (name, bytes) in wanted {
        match present.get(name) {
            None => drop(differences.insert(name.clone(), Difference::Missing)),
            Some(old) if old != bytes => drop(differences.insert(name.clone(), Difference::Stale)),
            Some(_) => {}
        }
    }
    Ok(differences)
}

fn read_below(folder: &Path) -> anyhow::Result<Files> {
    let mut files = Files::new();
    for path in workspace::files_below(folder)? {
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let name = path.strip_prefix(folder)?;
        files.insert(name.to_string_lossy().into_owned(), bytes);
    }
    Ok(files)
}

fn write(
    folder: &Path,
    wanted: &Files,
    differences: &BTreeMap<String, Difference>,
) -> anyhow::Result<()> {
    for name in differences.keys() {
        let path = folder.join(name);
        let done = match (wanted.get(name), path.parent()) {
            (None, _) => fs::remove_file(&path),
            (Some(bytes), Some(parent)) => {
                fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes))
            }
            (Some(bytes), None) => fs::write(&path, bytes),
        };
        done.with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "the form of every generator")]
    fn two_files() -> anyhow::Result<Files> {
        let file = |name: &str| (name.to_owned(), format!("{name}\n").into_bytes());
        Ok(Files::from([file("brink.1"), file("sub/brink-run.1")]))
    }

    const MAN: Generator = Generator {
        folder: "docs/man",
        make: two_files,
    };

    fn check(prepare: impl Fn(&Path), expected: &[(&str, Difference)]) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(MAN.folder);
        assert!(run_in(root.path(), &[MAN], false).unwrap().holds());
        prepare(&folder);
        let found = compare(&folder, &two_files().unwrap()).unwrap();
        let expected: BTreeMap<_, _> = expected
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), *kind))
            .collect();
        assert_eq!(found, expected);
        let verdict = run_in(root.path(), &[MAN], true).unwrap();
        assert_eq!(verdict.holds(), expected.is_empty());
        // Writing mends whatever it was.
        assert!(run_in(root.path(), &[MAN], false).unwrap().holds());
        assert!(run_in(root.path(), &[MAN], true).unwrap().holds());
    }

    #[test]
    fn every_way_to_be_stale_is_named_and_mended() {
        check(|_| {}, &[]);
        let edit = |folder: &Path| fs::write(folder.join("brink.1"), "edited").unwrap();
        check(edit, &[("brink.1", Difference::Stale)]);
        let remove = |folder: &Path| fs::remove_file(folder.join("sub/brink-run.1")).unwrap();
        check(remove, &[("sub/brink-run.1", Difference::Missing)]);
        let add = |folder: &Path| fs::write(folder.join("sub/old.1"), "").unwrap();
        check(add, &[("sub/old.1", Difference::Unwanted)]);
    }

    #[test]
    fn nothing_made_is_all_missing() {
        let root = tempfile::tempdir().unwrap();
        assert!(!run_in(root.path(), &[MAN], true).unwrap().holds());
    }
}
