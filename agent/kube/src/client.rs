//! From configuration to a client of the API server.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::config::{InClusterError, Kubeconfig, KubeconfigError};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

mod credentials;
pub mod file;
pub mod kubeconfig;
pub mod plugin;

pub use credentials::Fault;
use credentials::Prepared;

/// A server that does not take the connection within this is away.
const CONNECT: Duration = Duration::from_secs(5);
/// The same for a request that it does not take.
const WRITE: Duration = Duration::from_secs(10);
/// A connection on which nothing has come for so long is dead. On a watch the server marks every minute that it is there.
const READ: Duration = Duration::from_secs(150);

/// A credential plugin that has not answered within this is given up.
const PLUGIN: Duration = Duration::from_secs(20);
/// The same for whoever waits ten seconds in all, as for a kubelet's answer, so that he hears what it is that hangs.
pub(crate) const SOON: Duration = Duration::from_secs(8);
/// What reading files may take beside that.
const FILES: Duration = Duration::from_secs(1);
/// So many may read them at a time, and no more may hang at files that do not come.
static READERS: Semaphore = Semaphore::const_new(16);
/// Credentials that hold no longer than so are renewed.
const RENEWAL: SignedDuration = SignedDuration::from_mins(1);

/// The token of the service account of a pod, for all processes in it.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// How the API server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Kubeconfigs, of which the first to say something wins; without any, the service account of the pod this runs in.
    pub kubeconfigs: Vec<PathBuf>,
    /// The context of theirs that counts; without it the one they call current.
    pub context: Option<String>,
}

/// The files that say who asks, as they were at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(Vec<Option<Stamp>>);

impl Origin {
    /// None at all.
    pub const NONE: Self = Self(Vec::new());
}

/// What tells a file from the one that was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    written: (i64, i64),
}

impl Stamp {
    /// None where there is no such file, or it cannot be looked at.
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self {
            inode: found.ino(),
            size: found.size(),
            written: (found.mtime(), found.mtime_nsec()),
        })
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A kubeconfig is not in order.
    #[error("the kubeconfig {}: {}", .path.display(), told(.source))]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: KubeconfigError,
    },
    /// No kubeconfig is named, and this is no pod.
    #[error(
        "no kubeconfig is named, and this is no pod with a service account: {}; set kubernetes.kubeconfig or KUBECONFIG",
        told(.0)
    )]
    NoCluster(#[source] InClusterError),
    /// What is said there of the server or of who asks cannot be used.
    #[error("{by}: {fault}")]
    Unusable {
        /// What says it.
        by: String,
        /// What is wrong.
        fault: Fault,
    },
    /// Files do not come.
    #[error(
        "{by}: what it names has not been read within {} s; see whether its filesystem answers",
        within.as_secs_f32()
    )]
    Late {
        /// What is read.
        by: String,
        /// How long was waited.
        within: Duration,
    },
    /// There is nobody to read them.
    #[error("{by}: no thread reads it: {source}")]
    Thread {
        /// What is to be read.
        by: String,
        /// Why.
        source: io::Error,
    },
    /// Certificates or the token cannot be used.
    #[error("{}", in_words(.0))]
    Client(#[from] kube::Error),
}

impl Access {
    /// As configured, or else as the variable `KUBECONFIG` says: paths with colons between them.
    pub fn new(
        kubeconfig: Option<PathBuf>,
        variable: Option<&OsStr>,
        context: Option<String>,
    ) -> Self {
        let from_variable = || {
            let paths = variable.into_iter().flat_map(std::env::split_paths);
            paths.filter(|path| !path.as_os_str().is_empty()).collect()
        };
        Self {
            kubeconfigs: kubeconfig.map_or_else(from_variable, |path| Vec::from([path])),
            context,
        }
    }

    /// Where the client gets its server and its rights from, for a sentence.
    pub fn in_words(&self) -> String {
        let paths: Vec<String> = self
            .kubeconfigs
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        if paths.is_empty() {
            "the pod's service account".to_owned()
        } else {
            format!("the kubeconfig {}", paths.join(", "))
        }
    }

    /// How the files are now that say who asks: the kubeconfigs and what they name, or without any the token of the service account.
    ///
    /// # Errors
    /// [`ConnectError`], where they cannot be looked at in time.
    pub async fn origin(&self) -> Result<Origin, ConnectError> {
        self.apart(FILES, Self::look).await
    }

    fn look(&self) -> Origin {
        let mut files = self.kubeconfigs.clone();
        if files.is_empty() {
            files.push(PathBuf::from(TOKEN));
        }
        // One that cannot be read names nothing, and is another when it can be.
        if let Ok(Some((_, kubeconfig))) = self.kubeconfig() {
            files.extend(named_by(&kubeconfig));
        }
        Origin(files.iter().map(|file| Stamp::of(file)).collect())
    }

    /// Reads what there is and makes a client. No request is made; the runtime of tokio must be there.
    ///
    /// A token that a file names is read again every minute, and so is the authority of a service account, by the client
    /// itself. A certificate in a kubeconfig is not, nor is a credential plugin asked again: whoever is refused should connect
    /// anew, and whoever holds a client for long before what a plugin has said runs out.
    ///
    /// # Errors
    /// [`ConnectError`], with what to do about it.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        self.connect_within(PLUGIN).await
    }

    /// The same, with a bound for a credential plugin.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn connect_within(&self, bound: Duration) -> Result<Client, ConnectError> {
        let Prepared {
            mut config,
            valid_until,
        } = self
            .apart(bound + FILES, move |access| {
                credentials::prepare(access, bound)
            })
            .await??;
        config.connect_timeout = Some(CONNECT);
        config.write_timeout = Some(WRITE);
        config.read_timeout = Some(READ);
        // The time between two requests is none of an answer's.
        config.reset_reader_on_write = true;
        // Whoever asks waits by himself, says so meanwhile, and knows when it is no use.
        config.default_retry = false;
        let agent = HeaderValue::from_static(concat!("brink/", env!("CARGO_PKG_VERSION")));
        config.headers.push((USER_AGENT, agent));
        Ok(Client::try_from(config)?.with_valid_until(valid_until))
    }

    /// Has files read, and a plugin run, by a thread that nobody has to wait for: neither the others on this runtime, nor the
    /// runtime's end.
    async fn apart<T: Send + 'static>(
        &self,
        within: Duration,
        reads: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ConnectError> {
        let late = || ConnectError::Late {
            by: self.in_words(),
            within,
        };
        let read = async {
            let place = READERS.acquire().await.map_err(|_| late())?;
            let (sender, read) = oneshot::channel();
            let access = self.clone();
            let reads = move || {
                let _nobody_waits = sender.send(reads(&access));
                drop(place);
            };
            let thread = thread::Builder::new().name("brink-connect".to_owned());
            let started = thread.spawn(reads);
            started.map_err(|source| ConnectError::Thread {
                by: self.in_words(),
                source,
            })?;
            read.await.map_err(|_| late())
        };
        timeout(within, read).await.unwrap_or_else(|_| Err(late()))
    }

    /// All kubeconfigs as one, with the first of their paths.
    fn kubeconfig(&self) -> Result<Option<(PathBuf, Kubeconfig)>, ConnectError> {
        let mut merged: Option<(PathBuf, Kubeconfig)> = None;
        for path in &self.kubeconfigs {
            let fault = |source| ConnectError::Kubeconfig {
                path: path.clone(),
                source,
            };
            let next = kubeconfig::read(path)?;
            merged = Some(match merged {
                Some((first, before)) => (first, before.merge(next).map_err(fault)?),
                None => (path.clone(), next),
            });
        }
        Ok(merged)
    }
}

/// Whether credentials hold no longer, or for a moment only.
pub(crate) fn has_run_out(valid_until: Option<Timestamp>, now: Timestamp) -> bool {
    valid_until.is_some_and(|until| until.duration_since(now) <= RENEWAL)
}

/// The files that a kubeconfig names: certificates, keys and tokens.
fn named_by(kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let users = kubeconfig.auth_infos.iter();
    let users = users.filter_map(|user| user.auth_info.as_ref());
    let of_users =
        users.flat_map(|user| [&user.client_certificate, &user.client_key, &user.token_file]);
    let clusters = kubeconfig.clusters.iter();
    let clusters = clusters.filter_map(|cluster| cluster.cluster.as_ref());
    let of_clusters = clusters.map(|cluster| &cluster.certificate_authority);
    let files = of_users.chain(of_clusters).flatten();
    files.map(PathBuf::from).collect()
}

/// The release of an API server, such as 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// 1, so far.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

impl Release {
    /// From the two texts of `/version`; some providers write `20+`.
    pub fn parse(major: &str, minor: &str) -> Option<Self> {
        let digits = |text: &str| {
            let end = text
                .find(|one: char| !one.is_ascii_digit())
                .unwrap_or(text.len());
            text[..end].parse().ok()
        };
        Some(Self {
            major: digits(major)?,
            minor: digits(minor)?,
        })
    }

    /// Asks the server; nothing if its answer is no release.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub async fn of(client: &Client) -> Result<Option<Self>, kube::Error> {
        let info = client.apiserver_version().await?;
        Ok(Self::parse(&info.major, &info.minor))
    }
}

/// An error of the client in a sentence: what the server said, or what kept it from being asked.
pub fn in_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 0 => status.message.clone(),
        kube::Error::Api(status) => format!("{} (HTTP {})", status.message, status.code),
        kube::Error::Service(error) => told(&**error),
        other => told(other),
    }
}

/// An error with its causes, each once: those below a connection's say what went wrong and are seldom in its own words.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn configuration_comes_before_the_variable() {
        let check = |configured: Option<&str>, variable: Option<&str>, expected: &[&str]| {
            let access = Access::new(
                configured.map(PathBuf::from),
                variable.map(OsStr::new),
                None,
            );
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(access.kubeconfigs, expected);
        };
        check(Some("/a"), Some("/b"), &["/a"]);
        check(None, Some("/b::/c"), &["/b", "/c"]);
        check(None, Some(""), &[]);
        check(None, None, &[]);
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_kubeconfig_is_said_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let said = async || {
            let access = Access::new(Some(path.clone()), None, Some("here".to_owned()));
            let error = access.connect().await.err().unwrap().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
            error
        };
        assert!(said().await.contains("No such file"));
        fs::write(&path, "apiVersion: v1\nkind: Config\nclusters: 7\n").unwrap();
        assert!(said().await.contains("parse"));
        fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();
        assert!(said().await.contains("here"), "no such context");
    }

    #[test]
    fn credentials_are_renewed_before_they_run_out() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let check = |until: Option<i64>, expected| {
            assert_eq!(has_run_out(until.map(at), at(1000)), expected, "{until:?}");
        };
        check(None, false);
        check(Some(1061), false);
        check(Some(1060), true);
        check(Some(0), true);
    }

    #[test]
    fn releases_are_read_as_providers_write_them() {
        let check = |major, minor, expected: Option<(u32, u32)>| {
            let found = Release::parse(major, minor);
            assert_eq!(found.map(|found| (found.major, found.minor)), expected);
        };
        check("1", "20", Some((1, 20)));
        check("1", "31+", Some((1, 31)));
        check("1", "", None);
        check("v1", "20", None);
    }

    #[test]
    fn what_the_server_said_is_told_with_its_code() {
        let status = Status::failure("pods is forbidden", "Forbidden").with_code(403);
        let error = kube::Error::Api(status.boxed());
        assert_eq!(in_words(&error), "pods is forbidden (HTTP 403)");
        let refused = io::Error::other("connection refused");
        let error = kube::Error::Service(Box::new(refused));
        assert_eq!(in_words(&error), "connection refused");
    }
}
