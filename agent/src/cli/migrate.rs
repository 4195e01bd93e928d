//! `brink config migrate`: files of an older version of the configuration, printed or written in the newest.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use super::exit::{CliError, Exit};
use super::output::{Data, Talk};
use crate::config::document::Origin;
use crate::config::finding::{Faults, Finding};
use crate::config::{API_VERSION, Migrated, migrate};

/// Options of `brink config migrate`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink config migrate /etc/brink/config.yaml
  brink config migrate --write /etc/brink/config.yaml /etc/brink/conf.d/*
  brink config migrate --write overlay/90-ours.yaml   a drop-in of an overlay on deploy/kubernetes
  kubectl -n brink-system get cm -l app.kubernetes.io/name=brink -o name
  kubectl -n brink-system get NAME -o jsonpath='{.data.10-brink\\.yaml}' | brink config migrate -

In a cluster the configuration is a ConfigMap whose NAME ends in a digest, and each of its keys is a drop-in.

Only words that changed are replaced, so comments and form stay. A file of the newest version stays as it is. An older \
brink does not read the newest version: keep a copy where the agent may be rolled back.")]
pub struct MigrateArgs {
    /// Write each file in place of the one that is there, instead of printing it
    #[arg(long)]
    pub write: bool,
    /// A configuration or a drop-in; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// Migrates all files, or none where one of them cannot be. They are written one after the other, each as a whole.
///
/// # Errors
/// Everything that is wrong with the files, or one that cannot be written.
pub(super) fn run_migrate(args: &MigrateArgs) -> Result<Exit, CliError> {
    let migrated = migrate_all(args)?;
    let talk = Talk::new();
    let mut data = Data::new();
    for (at, (path, file)) in migrated.iter().enumerate() {
        if args.write {
            if !file.changes.is_empty() {
                replace(path, &file.text).map_err(|error| unwritten(path, error))?;
            }
        } else {
            if at > 0 {
                data.print("---\n")?;
            }
            data.print(&file.text)?;
            if !file.text.is_empty() && !file.text.ends_with('\n') {
                data.print("\n")?;
            }
        }
        tell(talk, path, file, args.write);
    }
    data.flush()?;
    Ok(Exit::Success)
}

fn migrate_all(args: &MigrateArgs) -> Result<Vec<(&Path, Migrated)>, CliError> {
    let mut all = Vec::with_capacity(args.files.len());
    let mut faults: Option<Faults> = None;
    for path in &args.files {
        let outcome = migrate(path).and_then(|file| check_writable(args.write, path, file));
        match (outcome, &mut faults) {
            (Ok(file), _) => all.push((path.as_path(), file)),
            (Err(more), Some(faults)) => faults.append(more),
            (Err(more), None) => faults = Some(more),
        }
    }
    match faults {
        Some(faults) => Err(faults.into()),
        None => Ok(all),
    }
}

/// Nobody's comments are lost on a disk.
fn check_writable(write: bool, path: &Path, file: Migrated) -> Result<Migrated, Faults> {
    let fault = |problem: &str, accepted: &str| {
        let fault = Finding::of_source(named(path), None, problem);
        Err(Faults::one(fault.accepted(accepted)))
    };
    if write && path.as_os_str() == "-" {
        return fault("standard input cannot be written", "- without --write");
    }
    if write && !file.keeps_comments {
        let problem = "in the newest version it would lose its comments";
        return fault(
            problem,
            "what is printed without --write, taken over by hand",
        );
    }
    Ok(file)
}

fn named(path: &Path) -> String {
    Origin::File(path.display().to_string()).to_string()
}

fn tell(talk: Talk, path: &Path, file: &Migrated, written: bool) {
    let name = named(path);
    if file.changes.is_empty() {
        talk.say(&format!("{name}: nothing to change, {API_VERSION}"));
        return;
    }
    for change in &file.changes {
        talk.say(&change.to_string());
    }
    if !file.keeps_comments {
        talk.say(&format!("{name}: printed without its comments"));
    }
    if written {
        talk.say(&format!("{name}: written in {API_VERSION}"));
    }
}

fn unwritten(path: &Path, error: io::Error) -> CliError {
    let exit = match error.kind() {
        io::ErrorKind::PermissionDenied => Exit::Denied,
        _ => Exit::Failure,
    };
    let error = anyhow::Error::new(error).context(format!("cannot write {}", path.display()));
    CliError::new(exit, error)
        .advise("no file was left half written, and those named before it are in the newest version; write it as its owner, or print it without --write")
}

/// Puts a file in the place of the one before, with its owner and mode, so that whoever reads it meets the one or the other.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link goes on being one.
    let path = fs::canonicalize(path)?;
    let before = fs::metadata(&path)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    let mut file = tempfile::Builder::new()
        .prefix(".brink-")
        .tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    let made = file.as_file().metadata()?;
    if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
        fchown(file.as_file(), Some(before.uid()), Some(before.gid()))?;
    }
    file.as_file().set_permissions(before.permissions())?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}
