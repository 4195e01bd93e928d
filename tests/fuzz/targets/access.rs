//! How the API server is reached: a kubeconfig, and what a credential plugin answers. No file is read, and no program is run.

use std::fmt::Write as _;
use std::path::Path;

use brink_kube::client::file;
use brink_kube::client::kubeconfig::parse;
use brink_kube::client::plugin::{Credential, PluginError, understand};
use serde_json::json;

use crate::Taken;

/// Where the kubeconfig is said to be.
const PATH: &str = "/etc/kubernetes/admin.conf";

/// A kubeconfig, in any of its encodings.
pub(crate) fn kubeconfig(bytes: &[u8]) -> Taken {
    let text = file::text(bytes);
    if let Ok(text) = &text {
        check_text(text, bytes);
    }
    let found = match parse(bytes, Path::new(PATH)) {
        Ok(found) => found,
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains(PATH), "{said}");
            return Taken::Refused;
        }
    };
    assert!(text.is_ok());
    // The agent is started elsewhere: a path that is not absolute would be another file there.
    let users = found.auth_infos.iter();
    let users = users.filter_map(|user| user.auth_info.as_ref());
    let commands = users
        .clone()
        .filter_map(|user| user.exec.as_ref()?.command.as_ref());
    let commands = commands.filter(|command| command.contains('/'));
    let of_users =
        users.flat_map(|user| [&user.client_certificate, &user.client_key, &user.token_file]);
    let clusters = found.clusters.iter();
    let clusters = clusters.filter_map(|cluster| cluster.cluster.as_ref());
    let of_clusters = clusters.map(|cluster| &cluster.certificate_authority);
    let files = of_users.chain(of_clusters).flatten();
    for path in files.chain(commands) {
        assert!(Path::new(path).is_absolute(), "{path}");
    }
    Taken::Accepted
}

/// Nothing of a file is lost in its text, and the text is the same in every encoding.
fn check_text(text: &str, bytes: &[u8]) {
    let little = text.encode_utf16().flat_map(u16::to_le_bytes);
    let big = text.encode_utf16().flat_map(u16::to_be_bytes);
    let encoded: [Vec<u8>; 3] = [
        [0xef, 0xbb, 0xbf].into_iter().chain(text.bytes()).collect(),
        [0xff, 0xfe].into_iter().chain(little).collect(),
        [0xfe, 0xff].into_iter().chain(big).collect(),
    ];
    assert!(text.as_bytes() == bytes || encoded.iter().any(|one| one == bytes));
    for one in &encoded {
        let again = file::text(one);
        assert!(again.is_ok_and(|again| again == text));
    }
}

/// What a credential plugin writes.
pub(crate) fn plugin_answer(bytes: &[u8]) -> Taken {
    match understand(bytes) {
        Ok(said) => {
            check_credential(&said);
            Taken::Accepted
        }
        Err(error) => {
            // Neither of them repeats what was said, which may be secret.
            let is_known = matches!(error, PluginError::NotUnderstood | PluginError::Empty);
            assert!(is_known, "{error}");
            Taken::Refused
        }
    }
}

/// It says who asks, and says the same when it is told again.
fn check_credential(said: &Credential) {
    let is_said = |text: Option<&str>| text.is_some_and(|text| !text.trim().is_empty());
    let has_certificate = is_said(said.client_certificate_data.as_deref())
        && is_said(said.client_key_data.as_deref());
    assert!(has_certificate || is_said(said.token.as_deref()));
    let answer = json!({
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1",
        "status": {
            "token": said.token,
            "clientCertificateData": said.client_certificate_data,
            "clientKeyData": said.client_key_data,
            "expirationTimestamp": said.valid_until.map(|until| until.to_string()),
        },
    });
    let again = understand(in_ascii(&answer.to_string()).as_bytes());
    assert!(again.is_ok_and(|again| again == *said));
}

/// JSON that is YAML too: of what may stand in JSON as it is, YAML refuses some.
fn in_ascii(json: &str) -> String {
    let mut text = String::new();
    for unit in json.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte @ b' '..=b'~') => text.push(char::from(byte)),
            _ => {
                // Writing to a `String` cannot fail.
                let _written = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}
