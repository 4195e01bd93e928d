//! Files and folders that cannot be read: where only a right is missing, which one, and how to get it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::document::{Node, Origins};
use super::finding::Finding;

/// Which right is missing for a socket, file or folder, and how to get it.
pub fn missing(what: &str, path: &Path) -> String {
    let user = rustix::process::geteuid().as_raw();
    match fs::metadata(path) {
        Ok(found) => format!(
            "the {what} is of uid {} with mode {:04o}, and this is uid {user}: put sudo in front of the command",
            found.uid(),
            found.mode() & 0o7777
        ),
        Err(_) => {
            format!("uid {user} may not look into its folder: put sudo in front of the command")
        }
    }
}

/// A file that cannot be read.
pub(super) fn unread(file: &Path, error: &io::Error) -> Finding {
    let finding = finding("file", file, "cannot be read", error);
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => {
            finding.accepted("a regular file")
        }
        _ => finding,
    }
}

/// A folder that cannot be listed.
pub(super) fn unlisted(folder: &Path, error: &io::Error) -> Finding {
    finding("folder", folder, "cannot be listed", error)
}

/// The same of what a key of a configuration names: told where it is named.
pub(super) fn named(unread: Finding, (config, key): (&Node, &str), origins: &Origins) -> Finding {
    let Some(node) = config.get(key) else {
        return unread;
    };
    let text = node.scalar().unwrap_or_default();
    let is_relative = Path::new(text).is_relative();
    let from_where = "a relative path counts from the folder in which brink is started".to_owned();
    Finding {
        hint: unread.hint.or(is_relative.then_some(from_where)),
        accepted: unread.accepted,
        is_denied: unread.is_denied,
        ..Finding::at(origins, node.site, key.to_owned(), unread.problem)
    }
    .written(format!("{text:?}"))
}

fn finding(what: &str, path: &Path, problem: &str, error: &io::Error) -> Finding {
    let name = path.display().to_string();
    let finding = Finding::of_source(name, None, format!("{problem}: {error}"));
    if error.kind() != io::ErrorKind::PermissionDenied {
        return finding;
    }
    Finding {
        hint: Some(missing(what, path)),
        is_denied: true,
        ..finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::finding::Faults;

    #[test]
    fn a_missing_right_is_told_as_one_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, is_denied) in [
            (io::ErrorKind::PermissionDenied, true),
            (io::ErrorKind::NotFound, false),
        ] {
            let error = io::Error::from(kind);
            for (found, problem) in [
                (unread(folder.path(), &error), "cannot be read: "),
                (unlisted(folder.path(), &error), "cannot be listed: "),
            ] {
                assert!(found.problem.starts_with(problem), "{found}");
                let advises = found
                    .hint
                    .as_ref()
                    .is_some_and(|hint| hint.contains("sudo"));
                assert_eq!(advises, is_denied, "{found}");
                assert_eq!(Faults::one(found).is_denied(), is_denied);
            }
        }
    }
}
