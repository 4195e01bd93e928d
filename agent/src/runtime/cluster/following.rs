//! The thread that follows the pods of this node, and how it stands.

use std::env;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use brink_kube::client::{Access, ConnectError};
use brink_kube::configz::{ConfigzError, ask};
use brink_kube::pods::follow::{self, Follow};
use brink_kube::pods::{Pods, Standing};
use brink_kube::watch::Streaming;
use brink_kube::write::plan::Seen;
use jiff::Timestamp;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use super::configz::Configz;
use super::source::{ClusterPods, manifest_of};
use super::{Answered, Answers, Obstacle, Unsaid, Voice};
use crate::backend::source::PodSource;
use crate::bell::Bell;
use crate::config::{AgentConfig, Kubernetes, StreamingLists};
use crate::control::protocol::KubernetesView;
use crate::disks::answer::{AsksApi, PodIs};
use crate::guard::ports::{Evicted, Ports};
use crate::node_name;
use crate::runtime::deliver::speaker::Speaker;
use crate::runtime::deliver::tasks::Tasks;
use crate::runtime::deliver::{self, Deliver, Tell as _};
use crate::runtime::process::{hurried, spawn};

/// How long the last words to the cluster may take.
const LAST_WORDS: Duration = Duration::from_secs(4);
/// Whoever tries the API out waits no longer.
const TRIAL: Duration = Duration::from_secs(10);

/// The cluster this node is part of.
pub struct Cluster {
    /// The pods of this node as they are known.
    pub pods: Arc<Pods>,
    /// What the node is called.
    pub node: String,
    follow: Follow,
    stopped: Arc<Notify>,
    /// The kubelet, where it is asked what it goes by.
    configz: Option<Arc<Configz>>,
    /// Who tells the cluster what happens here, and what is to be done for that.
    speaker: Option<Arc<Speaker>>,
    tasks: Mutex<Option<Tasks>>,
}

impl Cluster {
    /// Begins with the pods that the last run knew, if a cluster is configured. Nothing is asked yet.
    ///
    /// # Errors
    /// When nobody can say what this node is called.
    pub fn begin(
        config: &AgentConfig,
        bell: &Arc<Bell>,
    ) -> anyhow::Result<Option<(Self, Box<dyn PodSource>)>> {
        let kubernetes = &config.kubernetes;
        if !kubernetes.enabled {
            return Ok(None);
        }
        let node = node_name(kubernetes, &config.paths.root)?;
        let bell = Arc::clone(bell);
        let pods = Arc::new(Pods::new(move || bell.ring()));
        let source = ClusterPods::recall(Arc::clone(&pods), &node, &config.paths.state_dir);
        let follow = Follow {
            access: access(kubernetes),
            node: node.clone(),
            streaming: streaming(kubernetes.streaming_lists),
            seed: (u64::from(std::process::id()) << 32)
                ^ u64::from(Timestamp::now().subsec_nanosecond().unsigned_abs()),
        };
        let asked = || {
            let (access, node) = (follow.access.clone(), node.clone());
            Arc::new(Configz::new(access, node, follow.seed))
        };
        let cluster = Self {
            configz: kubernetes.asks_kubelet().then(asked),
            pods,
            node,
            follow,
            stopped: Arc::default(),
            speaker: None,
            tasks: Mutex::default(),
        };
        Ok(Some((cluster, Box::new(source))))
    }

    /// Has what happens here told to the cluster, once the thread is started.
    ///
    /// # Errors
    /// When there is no room for what is to be told after a restart.
    pub fn speak(&mut self, config: &AgentConfig, of: Voice) -> anyhow::Result<Deliver> {
        let (speaker, tasks) = Speaker::open(deliver::speaker::Plan {
            config: &config.kubernetes,
            access: self.follow.access.clone(),
            node: self.node.clone(),
            seed: self.follow.seed,
            folder: &config.paths.state_dir,
            pods: Arc::clone(&self.pods),
            asked_in_vain: self.configz.as_ref().map(|configz| configz.in_vain()),
            of,
        })?;
        self.speaker = Some(Arc::clone(&speaker));
        self.tasks = Mutex::new(Some(tasks));
        Ok(Deliver::to(speaker))
    }

    /// Starts the thread; it waits until the guard has looked at the node.
    ///
    /// # Errors
    /// When there is no room for a thread or its runtime.
    pub fn start(&self, ports: Arc<Ports>) -> anyhow::Result<JoinHandle<()>> {
        let runtime = runtime()?;
        let (follow, pods, stopped) = (
            self.follow.clone(),
            Arc::clone(&self.pods),
            Arc::clone(&self.stopped),
        );
        let configz = self.configz.clone();
        let tasks = self
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let body = move || {
            ports.wait_for_first_look();
            runtime.block_on(async {
                let telling = async {
                    match tasks {
                        Some(tasks) => tasks.run().await,
                        None => std::future::pending().await,
                    }
                };
                let asking = async {
                    match configz {
                        Some(configz) => configz.run().await,
                        None => std::future::pending().await,
                    }
                };
                let following = async {
                    follow.run(&pods).await;
                    std::future::pending::<()>().await;
                };
                tokio::pin!(telling, following);
                tokio::select! {
                    () = stopped.notified() => {}
                    () = &mut following => {}
                    () = asking => {}
                    () = &mut telling => return,
                }
                // The guard goes on meanwhile, by the pods that there are. They end by themselves when the speaker has been closed.
                let last_words = tokio::time::timeout(LAST_WORDS, telling);
                tokio::select! {
                    _too_late = last_words => {}
                    () = following => {}
                }
            });
            // A name that is being looked up must not keep the agent from its end; a credential plugin has a thread of its own.
            runtime.shutdown_background();
        };
        // A kubelet that has not heard of an eviction starts again who was killed.
        spawn("brink-kube", move || hurried(body))
    }

    /// This agent enforces now, and tells what the one before it left, and of those it `evicted` lately.
    pub fn take_up(&self, evicted: &[Evicted]) {
        if let Some(speaker) = &self.speaker {
            speaker.take_up(evicted);
        }
    }

    /// What the kubelet says of itself; none where it is not asked.
    pub fn answers(&self) -> Option<Answers> {
        let configz = self.configz.as_ref();
        configz.map(|configz| configz.answers())
    }

    /// Whether the kubelet said what it goes by when it was asked last; none where it is not asked.
    pub fn knows_kubelet(&self) -> Option<bool> {
        let configz = self.configz.as_ref();
        configz.map(|configz| configz.is_known())
    }

    /// Has the kubelet asked again at once, where it is asked.
    pub fn ask_again(&self) {
        if let Some(configz) = &self.configz {
            configz.ask_again();
        }
    }

    /// What is known of each pod.
    pub fn pods_are(&self) -> Arc<AsksApi> {
        let pods = Arc::clone(&self.pods);
        Arc::new(move |uid| pod_is(&pods, uid))
    }

    /// How it stands.
    pub fn view(&self) -> KubernetesView {
        let now = Timestamp::now();
        let untold = self.speaker.as_ref().map_or(0, |speaker| speaker.owed());
        KubernetesView {
            untold: u32::try_from(untold).unwrap_or(u32::MAX),
            configz_why: self.configz.as_ref().and_then(|configz| configz.why()),
            ..view(self.node.clone(), self.pods.standing(now), now)
        }
    }

    /// Has the thread say its last words and end; what is told here meanwhile is kept in the outbox at least.
    pub fn stop(&self) {
        if let Some(speaker) = &self.speaker {
            speaker.close();
        }
        self.stopped.notify_one();
    }
}

fn pod_is(pods: &Pods, uid: &str) -> PodIs {
    match pods.seen(uid) {
        Seen::There {
            is_terminal: true, ..
        } => PodIs::Over,
        Seen::There { .. } => PodIs::Wanted,
        Seen::Gone if pods.standing(Timestamp::now()).left_out == 0 => PodIs::Missing,
        Seen::Gone | Seen::Unknown => PodIs::Unknown,
    }
}

fn view(node: String, standing: Standing, now: Timestamp) -> KubernetesView {
    let Standing {
        connected,
        since,
        why,
        pods,
        as_of,
        left_out,
        failures,
    } = standing;
    // A clock that was set back makes nothing younger than new.
    let age = |as_of: Timestamp| now.duration_since(as_of).as_millis().max(0);
    KubernetesView {
        node,
        connected,
        since: since.map(|since| since.to_string()),
        why,
        pods: u32::try_from(pods).unwrap_or(u32::MAX),
        state_age_ms: as_of.map(|as_of| i64::try_from(age(as_of)).unwrap_or(i64::MAX)),
        left_out,
        failures,
        untold: 0,
        configz_why: None,
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    // Names are looked up and disks are waited for beside it, by a few threads.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build();
    runtime.context("no runtime for what is asked of the Kubernetes API")
}

/// How the API server is reached.
fn access(kubernetes: &Kubernetes) -> Access {
    let variable = env::var_os("KUBECONFIG");
    Access::new(
        kubernetes.kubeconfig.clone(),
        variable.as_deref(),
        kubernetes.context.clone(),
    )
}

/// What this node is called in the cluster.
fn node_name(kubernetes: &Kubernetes, root: &Path) -> anyhow::Result<String> {
    let variable = env::var("NODE_NAME").ok();
    // One that cannot be read is no name, and only told where none is given.
    let hostname = node_name::of_machine(root);
    Ok(node_name::of_cluster(
        kubernetes.node_name.as_deref(),
        variable.as_deref(),
        &hostname,
    )?)
}

/// Asks the API server once for the pods of this node.
///
/// # Errors
/// A sentence that says what keeps it from being asked, or what it says.
pub fn try_out(config: &AgentConfig) -> Result<Answered, String> {
    let kubernetes = &config.kubernetes;
    let node = node_name(kubernetes, &config.paths.root).map_err(|error| error.to_string())?;
    let runtime = runtime().map_err(|error| format!("{error:#}"))?;
    let access = access(kubernetes);
    let asked = async { tokio::time::timeout(TRIAL, follow::try_out(&access, &node)).await };
    let asked = runtime.block_on(asked);
    runtime.shutdown_background();
    let late = |_| {
        Err(format!(
            "the API server has not answered for {} s",
            TRIAL.as_secs()
        ))
    };
    let by = access.in_words();
    match asked.unwrap_or_else(late) {
        Ok(pods) => Ok(Answered {
            pods: pods.iter().filter_map(manifest_of).collect(),
            node,
            by,
        }),
        Err(why) => Err(said_by(&by, &why)),
    }
}

/// What is wrong, after what the server is reached by; that may say so itself.
fn said_by(by: &str, why: &str) -> String {
    if why.starts_with(by) {
        return why.to_owned();
    }
    format!("by {by}: {why}")
}

/// Asks the kubelet of this node once what it goes by.
///
/// # Errors
/// What keeps it from being asked, or what is said instead.
pub fn ask_kubelet(config: &AgentConfig) -> Result<String, Unsaid> {
    let kubernetes = &config.kubernetes;
    let nobody = |error: anyhow::Error| Unsaid {
        why: format!("{error:#}"),
        obstacle: Obstacle::NoWay,
    };
    let node = node_name(kubernetes, &config.paths.root).map_err(nobody)?;
    let runtime = runtime().map_err(nobody)?;
    let access = access(kubernetes);
    let asked = runtime.block_on(ask(&access, &node));
    runtime.shutdown_background();
    asked.map_err(|error| Unsaid {
        why: said_by(&access.in_words(), &error.to_string()),
        obstacle: obstacle(&error),
    })
}

const fn obstacle(error: &ConfigzError) -> Obstacle {
    match error {
        ConfigzError::Connect(ConnectError::NoCluster(_)) => Obstacle::NoWay,
        ConfigzError::Connect(_) => Obstacle::Unusable,
        ConfigzError::Refused { code: 401, .. } => Obstacle::Stranger,
        ConfigzError::Refused { code: 403, .. } => Obstacle::NoRight,
        ConfigzError::Refused {
            code: 404 | 405, ..
        } => Obstacle::NotServed,
        ConfigzError::Request(_)
        | ConfigzError::Refused { .. }
        | ConfigzError::Broken(_)
        | ConfigzError::Slow => Obstacle::Away,
        ConfigzError::TooLarge | ConfigzError::NotUnderstood(_) => Obstacle::Strange,
    }
}

const fn streaming(lists: StreamingLists) -> Streaming {
    match lists {
        StreamingLists::Auto => Streaming::Auto,
        StreamingLists::Always => Streaming::Always,
        StreamingLists::Never => Streaming::Never,
    }
}

#[cfg(test)]
mod tests {
    use brink_kube::pods::Pod;
    use brink_kube::watch::Change;

    use super::*;

    #[test]
    fn what_the_server_is_reached_by_is_said_once() {
        let by = "the kubeconfig /k";
        for (why, expected) in [
            ("away", "by the kubeconfig /k: away"),
            ("the kubeconfig /k: no text", "the kubeconfig /k: no text"),
        ] {
            assert_eq!(said_by(by, why), expected);
        }
    }

    #[test]
    fn what_keeps_a_kubelet_from_answering_is_told_apart() {
        let refused = |code: u16| ConfigzError::Refused {
            code,
            reason: String::new(),
            message: String::new(),
            after: None,
        };
        let late = ConnectError::Late {
            by: "the kubeconfig /k".to_owned(),
            within: Duration::from_secs(1),
        };
        for (error, expected) in [
            (ConfigzError::Connect(late), Obstacle::Unusable),
            (refused(401), Obstacle::Stranger),
            (refused(403), Obstacle::NoRight),
            (refused(404), Obstacle::NotServed),
            (refused(405), Obstacle::NotServed),
            (refused(503), Obstacle::Away),
            (ConfigzError::Slow, Obstacle::Away),
            (ConfigzError::TooLarge, Obstacle::Strange),
            (
                ConfigzError::NotUnderstood(String::new()),
                Obstacle::Strange,
            ),
        ] {
            assert_eq!(obstacle(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn a_pod_is_missing_only_from_a_list_that_is_whole() {
        let pod = |uid: &str, phase: &str| -> Pod {
            let text = format!(
                r#"{{"metadata":{{"name":"{uid}","namespace":"shop","uid":"{uid}","resourceVersion":"7"}},
                    "status":{{"phase":"{phase}"}}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let pods = Pods::new(|| {});
        let all = |pods: &Pods| ["web", "job", "gone"].map(|uid| pod_is(pods, uid));
        assert_eq!(all(&pods), [PodIs::Unknown; 3]);
        pods.take(Change::Began, Timestamp::now());
        for found in [pod("web", "Running"), pod("job", "Succeeded")] {
            pods.take(Change::Found(found), Timestamp::now());
        }
        assert_eq!(pod_is(&pods, "gone"), PodIs::Unknown, "it arrives");
        pods.take(Change::Complete, Timestamp::now());
        assert_eq!(all(&pods), [PodIs::Wanted, PodIs::Over, PodIs::Missing]);
        pods.lost("away".to_owned(), Timestamp::now());
        assert_eq!(all(&pods), [PodIs::Wanted, PodIs::Over, PodIs::Unknown]);
    }

    #[test]
    fn a_state_is_as_old_as_the_last_moment_it_was_known_to_hold() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let standing = Standing {
            since: Some(at(5)),
            as_of: Some(at(3)),
            pods: 2,
            ..Standing::default()
        };
        let age = |now| view("a".to_owned(), standing.clone(), at(now)).state_age_ms;
        assert_eq!((age(10), age(1)), (Some(7000), Some(0)));
        let seen = view("a".to_owned(), standing.clone(), at(10));
        assert_eq!(seen.since.as_deref(), Some("1970-01-01T00:00:05Z"));
        assert_eq!(
            view("a".to_owned(), Standing::default(), at(10)).state_age_ms,
            None
        );
    }
}
