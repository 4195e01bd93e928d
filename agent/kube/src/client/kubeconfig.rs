//! One kubeconfig as it stands in a file, with what it names made absolute.

use std::path::{MAIN_SEPARATOR, Path};

use kube::config::Kubeconfig;

use super::ConnectError;
use super::credentials::Fault;
use super::file::{self, FileError};

/// Reads a kubeconfig. What it names by a relative path is looked for beside it, as kubectl does.
pub(super) fn read(path: &Path) -> Result<Kubeconfig, ConnectError> {
    let bytes = file::bytes_of(path).map_err(|error| unusable(path, error))?;
    parse(&bytes, path)
}

/// A kubeconfig as its file has it: no file is looked at, and no program is run, whatever it names.
///
/// # Errors
/// [`ConnectError`], with the path.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Kubeconfig, ConnectError> {
    let text = file::text(bytes).map_err(|error| unusable(path, error))?;
    // Documents of one file count like files one after another.
    let parsed = Kubeconfig::from_yaml(&text);
    let mut kubeconfig = parsed.map_err(|source| ConnectError::Kubeconfig {
        path: path.to_path_buf(),
        source,
    })?;
    if let Some(folder) = path.parent() {
        make_absolute(&mut kubeconfig, folder);
    }
    Ok(kubeconfig)
}

fn unusable(path: &Path, error: FileError) -> ConnectError {
    ConnectError::Unusable {
        by: format!("the kubeconfig {}", path.display()),
        fault: Fault::Itself(error),
    }
}

fn make_absolute(kubeconfig: &mut Kubeconfig, folder: &Path) {
    let clusters = kubeconfig.clusters.iter_mut();
    for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
        settle(&mut cluster.certificate_authority, folder);
    }
    let users = kubeconfig.auth_infos.iter_mut();
    for user in users.filter_map(|named| named.auth_info.as_mut()) {
        settle(&mut user.client_certificate, folder);
        settle(&mut user.client_key, folder);
        settle(&mut user.token_file, folder);
        if let Some(exec) = &mut user.exec {
            // A bare name is looked for in PATH.
            let command = exec.command.as_deref();
            if command.is_some_and(|command| command.contains(MAIN_SEPARATOR)) {
                settle(&mut exec.command, folder);
            }
        }
    }
}

/// Makes one path absolute. One that is no text stays as it is, since a kubeconfig cannot say it.
fn settle(path: &mut Option<String>, folder: &Path) {
    if let Some(relative) = path.as_deref()
        && Path::new(relative).is_relative()
        && let Some(absolute) = folder.join(relative).to_str()
    {
        *path = Some(absolute.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_by_a_relative_path_is_beside_the_kubeconfig() {
        let text = "
clusters: [{name: a, cluster: {certificate-authority: ca.crt}}]
users:
- name: a
  user: {client-certificate: a.crt, client-key: /etc/a.key, tokenFile: sub/token, exec: {command: bin/plugin}}
- {name: b, user: {exec: {command: plugin}}}
- {name: c}
---
current-context: a
contexts: [{name: a, context: {cluster: a, user: b}}]
";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, text).unwrap();
        let found = read(&path).unwrap();
        let beside = |name: &str| Some(folder.path().join(name).to_str().unwrap().to_owned());
        let cluster = found.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.certificate_authority, beside("ca.crt"));
        let user = found.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!(user.client_certificate, beside("a.crt"));
        assert_eq!(user.client_key.as_deref(), Some("/etc/a.key"));
        assert_eq!(user.token_file, beside("sub/token"));
        assert_eq!(user.exec.as_ref().unwrap().command, beside("bin/plugin"));
        let bare = found.auth_infos[1].auth_info.as_ref().unwrap();
        let bare = bare.exec.as_ref().unwrap();
        assert_eq!(bare.command.as_deref(), Some("plugin"));
        assert_eq!(
            found.current_context.as_deref(),
            Some("a"),
            "the second document's"
        );
        // As the library reads it itself.
        let library = Kubeconfig::read_from(&path).unwrap();
        let value = |of: &Kubeconfig| serde_json::to_value(of).unwrap();
        assert_eq!(value(&found), value(&library));
    }
}
