//! What a kubeconfig or a service account says of the server and of who asks, as the client's library takes it.
//!
//! That library panics at some of what may stand there, reads the files that are named without a bound, and runs a credential
//! plugin up to three times and waits for it as long as it likes. So whatever it would read or run is read and run here, and
//! what it would not stand is refused.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderValue, Uri};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use kube::Config;
use kube::config::{AuthInfo, AuthProviderConfig, Cluster, ExecAuthCluster, Kubeconfig};
use secrecy::ExposeSecret as _;

use super::file::{self, FileError};
use super::plugin::{self, Credential, PluginError};
use super::{Access, ConnectError};

/// The longest address of a server, in bytes. With the path of a request behind it it has to be one still.
const LONGEST_SERVER: usize = 4096;
/// Groups and other things of somebody whom a client acts as: each is a header, of which a request has a limited number.
const MOST_HEADERS: usize = 1024;

/// A token of a file that is given to the library itself is taken from there again, once a minute of this is left.
const SETTLED: SignedDuration = SignedDuration::from_mins(2);

/// What is wrong with what is said of the server or of who asks.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The kubeconfig itself cannot be read.
    #[error(transparent)]
    Itself(FileError),
    /// A file that it names cannot be read.
    #[error("{field} {}: {source}", .path.display())]
    File {
        /// Which of them.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: FileError,
    },
    /// The server has no address.
    #[error("{field}: {server:?} is no address of an API server; write https://HOST:PORT")]
    Server {
        /// What says it.
        field: &'static str,
        /// What it says.
        server: String,
    },
    /// A token cannot be sent.
    #[error(
        "{0} cannot be sent: there is a line break or another control character in the middle of it; write it anew"
    )]
    Token(String),
    /// There is no token in its file.
    #[error("tokenFile {}: it is empty", .0.display())]
    NoToken(PathBuf),
    /// Too much is to be sent with each request.
    #[error("as-groups and as-user-extra name {0} things; at most {MOST_HEADERS} can be sent")]
    Headers(usize),
    /// Kubernetes has no such way any more.
    #[error(
        "auth-provider {0}: programs and tokens of it are no longer asked for, by kubectl neither; name a credential plugin in exec"
    )]
    Provider(String),
    /// A certificate or its key cannot be handed on.
    #[error("a certificate cannot be written in base64: {0}")]
    Base64(#[from] serde_json::Error),
    /// A plugin does not say who asks.
    #[error("the credential plugin {command} {source}")]
    Plugin {
        /// The program.
        command: String,
        /// Why.
        source: PluginError,
    },
}

/// A configuration that the library takes without a wait.
pub(super) struct Prepared {
    pub(super) config: Config,
    /// Until when the credentials hold, where a plugin has said so.
    pub(super) valid_until: Option<Timestamp>,
}

/// Reads and runs what says how the server is reached and who asks. It waits: for files, and for a plugin within the bound.
pub(super) fn prepare(access: &Access, bound: Duration) -> Result<Prepared, ConnectError> {
    let refused = |fault| ConnectError::Unusable {
        by: access.in_words(),
        fault,
    };
    let (mut config, mut valid_until, field) =
        if let Some((path, mut kubeconfig)) = access.kubeconfig()? {
            if access.context.is_some() {
                kubeconfig.current_context.clone_from(&access.context);
            }
            let valid_until = settle(&mut kubeconfig, bound).map_err(refused)?;
            let config = Config::try_from(kubeconfig);
            let config = config.map_err(|source| ConnectError::Kubeconfig { path, source })?;
            (config, valid_until, "server")
        } else {
            let config = Config::incluster().map_err(ConnectError::NoCluster)?;
            let field = "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT";
            (config, None, field)
        };
    check_server(&config.cluster_url, field).map_err(refused)?;
    if settle_token_file(&mut config.auth_info).map_err(refused)? {
        valid_until = Some(Timestamp::now() + SETTLED);
    }
    Ok(Prepared {
        config,
        valid_until,
    })
}

/// Settles what the context that counts says; one that is not there is told of by the library.
fn settle(kubeconfig: &mut Kubeconfig, bound: Duration) -> Result<Option<Timestamp>, Fault> {
    let name = kubeconfig.current_context.as_ref();
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|context| Some(&context.name) == name);
    let Some(context) = context.and_then(|context| context.context.as_ref()) else {
        return Ok(None);
    };
    let mut clusters = kubeconfig.clusters.iter_mut();
    let cluster = clusters.find(|cluster| cluster.name == context.cluster);
    let Some(cluster) = cluster.and_then(|cluster| cluster.cluster.as_mut()) else {
        return Ok(None);
    };
    settle_cluster(cluster)?;
    let mut users = kubeconfig.auth_infos.iter_mut();
    let user = users.find(|user| Some(&user.name) == context.user.as_ref());
    match user.and_then(|user| user.auth_info.as_mut()) {
        Some(user) => settle_user(user, cluster, bound),
        None => Ok(None),
    }
}

fn settle_cluster(cluster: &mut Cluster) -> Result<(), Fault> {
    if cluster.certificate_authority_data.is_none() {
        let path = cluster.certificate_authority.as_deref();
        cluster.certificate_authority_data = content(path, "certificate-authority")?;
    }
    Ok(())
}

fn settle_user(
    user: &mut AuthInfo,
    cluster: &Cluster,
    bound: Duration,
) -> Result<Option<Timestamp>, Fault> {
    check_headers(user)?;
    if let Some(provider) = user
        .auth_provider
        .take_if(|provider| is_taken_over(provider))
    {
        user.token = Some(token_of(&provider)?.into());
        // It counted before a name with a password.
        (user.username, user.password) = (None, None);
    }
    if let Some(token) = user.token.take() {
        let token = sendable(token.expose_secret(), "token")?;
        user.token = token.map(Into::into);
    }
    if user.client_certificate_data.is_none() {
        let path = user.client_certificate.as_deref();
        user.client_certificate_data = content(path, "client-certificate")?;
    }
    if user.client_key_data.is_none() {
        let path = user.client_key.as_deref();
        user.client_key_data = content(path, "client-key")?.map(Into::into);
    }
    let Some(exec) = user.exec.take() else {
        return Ok(None);
    };
    // As the library would have it: everything else counts before a plugin.
    if user.token.is_some() || user.token_file.is_some() || !takes_token(user) {
        return Ok(None);
    }
    let failed = |source| Fault::Plugin {
        command: exec.command.clone().unwrap_or_default(),
        source,
    };
    let is_told = exec.provide_cluster_info;
    let about = is_told
        .then(|| ExecAuthCluster::try_from(cluster))
        .transpose();
    let about = about.map_err(|error| failed(io::Error::other(error.to_string()).into()))?;
    let said = plugin::ask(&exec, about.as_ref(), bound).map_err(failed)?;
    take(user, said)
}

/// Who asks is whom a plugin says.
fn take(user: &mut AuthInfo, said: Credential) -> Result<Option<Timestamp>, Fault> {
    if let Some(token) = said.token {
        user.token = sendable(&token, "the credential plugin's token")?.map(Into::into);
    }
    if let (Some(certificate), Some(key)) = (said.client_certificate_data, said.client_key_data) {
        user.client_certificate_data = Some(base64(certificate.into_bytes())?);
        user.client_key_data = Some(base64(key.into_bytes())?.into());
    }
    Ok(said.valid_until)
}

/// Whether a token counts: a provider and a name with a password come before it.
const fn takes_token(user: &AuthInfo) -> bool {
    user.auth_provider.is_none() && (user.username.is_none() || user.password.is_none())
}

/// Whether it is known what a provider would say; others the library refuses.
fn is_taken_over(provider: &AuthProviderConfig) -> bool {
    matches!(provider.name.as_str(), "oidc" | "gcp")
}

/// The token that a provider has in the kubeconfig. What else it may say is a program to be run.
fn token_of(provider: &AuthProviderConfig) -> Result<String, Fault> {
    let token = provider.config.get("id-token").cloned();
    token.ok_or_else(|| Fault::Provider(provider.name.clone()))
}

/// A token without the blanks around it, as an editor or `echo` leaves them behind it; none if that is all.
fn sendable(token: &str, what: &str) -> Result<Option<String>, Fault> {
    let token = token.trim();
    match HeaderValue::try_from(format!("Bearer {token}")) {
        Ok(_) => Ok(Some(token.to_owned()).filter(|token| !token.is_empty())),
        Err(_) => Err(Fault::Token(what.to_owned())),
    }
}

/// Looks at the token in a file. The library reads it every minute, as it stands: where there are blanks around it, it is
/// given the token alone, which counts for a while then: true.
fn settle_token_file(user: &mut AuthInfo) -> Result<bool, Fault> {
    if user.token.is_some() || !takes_token(user) {
        return Ok(false);
    }
    let Some(path) = user.token_file.as_deref().map(Path::new) else {
        return Ok(false);
    };
    let unread = |source| unread("tokenFile", path, source);
    let bytes = file::bytes_of(path).map_err(unread)?;
    let text = file::text(&bytes).map_err(unread)?;
    let what = format!("the token in tokenFile {}", path.display());
    let token = sendable(&text, &what)?.ok_or_else(|| Fault::NoToken(path.to_path_buf()))?;
    let has_blanks = token.as_bytes() != bytes;
    if has_blanks {
        user.token = Some(token.into());
        user.token_file = None;
    }
    Ok(has_blanks)
}

/// What a file has, as a kubeconfig would have it in itself.
fn content(path: Option<&str>, field: &'static str) -> Result<Option<String>, Fault> {
    let Some(path) = path.map(Path::new) else {
        return Ok(None);
    };
    let bytes = file::bytes_of(path).map_err(|source| unread(field, path, source))?;
    Ok(Some(base64(bytes)?))
}

fn unread(field: &'static str, path: &Path, source: FileError) -> Fault {
    Fault::File {
        field,
        path: path.to_path_buf(),
        source,
    }
}

/// As Kubernetes writes bytes.
fn base64(bytes: Vec<u8>) -> Result<String, serde_json::Error> {
    serde_json::from_value(serde_json::to_value(ByteString(bytes))?)
}

fn check_server(server: &Uri, field: &'static str) -> Result<(), Fault> {
    let is_known = matches!(server.scheme_str(), Some("http" | "https"));
    let has_host = server.host().is_some_and(|host| !host.is_empty());
    let text = server.to_string();
    if is_known && has_host && text.len() <= LONGEST_SERVER {
        return Ok(());
    }
    let server = text.chars().take(LONGEST_SERVER / 16).collect();
    Err(Fault::Server { field, server })
}

fn check_headers(user: &AuthInfo) -> Result<(), Fault> {
    let groups = user.impersonate_groups.iter().flatten().count();
    let extra = user.impersonate_user_extra.iter().flatten();
    let extra: usize = extra.map(|(_, values)| values.len()).sum();
    let headers = groups.saturating_add(extra);
    if headers > MOST_HEADERS {
        return Err(Fault::Headers(headers));
    }
    Ok(())
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
