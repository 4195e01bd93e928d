//! The certificates of a cluster and the kubeconfigs of everybody in it, by `openssl`.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use serde_json::json;

use super::machine::ADDRESS;

/// The node's name.
pub(super) const NODE: &str = "brink-node";
/// Whose certificates are served and shown: the file, the subject and the names it is served under.
const CERTIFICATES: [(&str, &str, &str); 6] = [
    (
        "apiserver",
        "/CN=kube-apiserver",
        "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc",
    ),
    (
        "apiserver-to-kubelet",
        "/O=system:masters/CN=kube-apiserver-to-kubelet",
        "",
    ),
    (ADMIN, "/O=system:masters/CN=kubernetes-admin", ""),
    (
        "controller-manager",
        "/CN=system:kube-controller-manager",
        "",
    ),
    ("scheduler", "/CN=system:kube-scheduler", ""),
    (
        NODE,
        "/O=system:nodes/CN=system:node:brink-node",
        "DNS:brink-node",
    ),
];
const ADMIN: &str = "admin";
const DAYS: &str = "3650";

/// The folder with all of it.
#[derive(Debug)]
pub(super) struct Pki {
    folder: PathBuf,
}

impl Pki {
    /// The one of the cluster in this folder.
    pub(super) fn of(folder: &Path) -> Self {
        Self {
            folder: folder.join("pki"),
        }
    }

    /// Makes everything.
    ///
    /// # Errors
    /// When `openssl` fails.
    pub(super) fn make(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("making {}", self.folder.display()))?;
        self.authority()?;
        for (name, subject, names) in CERTIFICATES {
            self.certificate(name, subject, names)?;
        }
        self.openssl(&["genrsa", "-out", "accounts.key", "2048"])?;
        self.openssl(&[
            "rsa",
            "-in",
            "accounts.key",
            "-pubout",
            "-out",
            "accounts.pub",
        ])?;
        for name in [ADMIN, "controller-manager", "scheduler", NODE] {
            self.kubeconfig(name)?;
        }
        Ok(())
    }

    /// A file of it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The kubeconfig of whoever may do everything.
    pub(super) fn admin(&self) -> PathBuf {
        self.file(&kubeconfig_of(ADMIN))
    }

    fn authority(&self) -> anyhow::Result<()> {
        let [usage, basic] = [
            "keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign",
            "basicConstraints=critical,CA:TRUE",
        ];
        let new = [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            DAYS,
        ];
        let named = [
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
            "-subj",
            "/CN=brink-cluster",
        ];
        self.openssl(&[&new[..], &named, &["-addext", basic, "-addext", usage]].concat())
    }

    fn certificate(&self, name: &str, subject: &str, names: &str) -> anyhow::Result<()> {
        let [key, request, extensions, certificate] =
            ["key", "csr", "ext", "crt"].map(|end| format!("{name}.{end}"));
        let served = if names.is_empty() {
            String::new()
        } else {
            format!("subjectAltName={names},IP:{ADDRESS},IP:127.0.0.1\n")
        };
        let text = format!(
            "basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n\
             extendedKeyUsage=clientAuth,serverAuth\n{served}"
        );
        let path = self.file(&extensions);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        let new = [
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ];
        self.openssl(
            &[
                &new[..],
                &["-keyout", &key, "-out", &request, "-subj", subject],
            ]
            .concat(),
        )?;
        let sign = [
            "x509",
            "-req",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            DAYS,
        ];
        let files = [
            "-in",
            &request,
            "-extfile",
            &extensions,
            "-out",
            &certificate,
        ];
        self.openssl(&[&sign[..], &files].concat())
    }

    fn kubeconfig(&self, name: &str) -> anyhow::Result<()> {
        let path = |end: &str| self.file(&format!("{name}.{end}")).display().to_string();
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "brink-cluster", "cluster": {
                "server": format!("https://{ADDRESS}:443"),
                "certificate-authority": self.file("ca.crt"),
            }}],
            "users": [{ "name": name, "user": { "client-certificate": path("crt"), "client-key": path("key") } }],
            "contexts": [{ "name": name, "context": { "cluster": "brink-cluster", "user": name } }],
            "current-context": name,
        });
        // Every YAML reader takes JSON.
        let file = self.file(&kubeconfig_of(name));
        let write = || {
            fs::write(&file, format!("{config:#}\n"))?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))
        };
        write().with_context(|| format!("writing {}", file.display()))
    }

    fn openssl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new("openssl");
        let answer = command.current_dir(&self.folder).args(arguments).output();
        let answer = answer.context("starting openssl")?;
        if !answer.status.success() {
            let said = String::from_utf8_lossy(&answer.stderr);
            bail!("openssl {}: {}", arguments.join(" "), said.trim());
        }
        Ok(())
    }
}

/// The name of somebody's kubeconfig.
pub(super) fn kubeconfig_of(name: &str) -> String {
    format!("{name}.kubeconfig")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_certificate_is_of_the_one_authority() {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::of(folder.path());
        if Command::new("openssl").arg("version").output().is_err() {
            brink_tests::skip!("needs openssl");
        }
        pki.make().unwrap();
        for (name, ..) in CERTIFICATES {
            let certificate = format!("{name}.crt");
            pki.openssl(&["verify", "-CAfile", "ca.crt", &certificate])
                .unwrap();
        }
        let config = fs::read_to_string(pki.admin()).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        let key = config["users"][0]["user"]["client-key"].as_str().unwrap();
        assert!(Path::new(key).is_file(), "{key}");
        let mode = fs::metadata(pki.admin()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
