//! What a fleet needs in the API server: a node and pods for each agent, and an account with the rights of the agent; gone at the end.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use brink_kube::{
    client::{Access, in_words},
    outbox::PodRef,
    pause::ANNOTATION,
    write::conditions::PREFIX,
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::{Method, Request, header::CONTENT_TYPE};
use kube::{
    Client,
    config::{AuthInfo, Context, Kubeconfig, NamedAuthInfo, NamedContext},
};
use serde_json::{Value, json};

use super::{
    asked::OURS,
    metrics::Sample,
    objects::{ACCOUNT, LABEL, node, pod_of, running},
    report::Books,
};

/// The namespace of the pods and the account, and the name of its role.
const NAME: &str = "brink-fleet";
/// Requests of ours that are under way at once.
const AT_ONCE: usize = 16;
/// How often a server that is not there, or busy, is asked again, and after how long.
const TRIES: usize = 40;
const PAUSE: Duration = Duration::from_millis(500);
/// How long a namespace may take to be gone.
const GOING: Duration = Duration::from_mins(2);

/// A node of the fleet, and its pods.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) pods: Vec<PodRef>,
}

/// The server, as its administrator sees it.
#[derive(Clone)]
pub(super) struct Scene {
    client: Client,
    kubeconfig: Kubeconfig,
}

impl Scene {
    /// Reaches the server by a kubeconfig of somebody who may do everything.
    ///
    /// # Errors
    /// When the file is not in order.
    pub(super) async fn reach(kubeconfig: &Path) -> anyhow::Result<Self> {
        let access = Access::new(Some(kubeconfig.to_owned()), None, None);
        Ok(Self {
            client: access.connect().await?,
            kubeconfig: Kubeconfig::read_from(kubeconfig)
                .with_context(|| format!("reading {}", kubeconfig.display()))?,
        })
    }

    /// What the server calls its version.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) async fn version(&self) -> anyhow::Result<String> {
        let version = self.ask(Method::GET, "/version", None).await?;
        Ok(text(&version["gitVersion"]))
    }

    /// A look at its metrics.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) async fn sample(&self) -> anyhow::Result<Sample> {
        let request = Request::get("/metrics").body(Vec::new())?;
        let page = self.client.request_text(request).await;
        Ok(Sample::of(
            &page
                .map_err(|error| told(&error))
                .context("the API server's metrics")?,
        ))
    }

    /// Makes everything: first what an earlier run has left goes.
    ///
    /// # Errors
    /// When the server refuses.
    pub(super) async fn make(&self, nodes: usize, pods: usize) -> anyhow::Result<Vec<Node>> {
        self.remove()
            .await
            .context("removing what an earlier fleet has left")?;
        self.make_account().await?;
        let made = stream::iter(0..nodes).map(|index| self.make_node(index, pods));
        let mut made: Vec<Node> = made.buffer_unordered(AT_ONCE).try_collect().await?;
        made.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(made)
    }

    async fn make_account(&self) -> anyhow::Result<()> {
        let rule = |resource: &str, verbs: &[&str]| json!({ "apiGroups": [""], "resources": [resource], "verbs": verbs });
        // Those of deploy/kubernetes for an agent that enforces.
        let rules = [
            rule("pods", &["list", "watch", "get"]),
            rule("nodes", &["list", "watch"]),
            rule("events", &["create"]),
            rule("pods/status", &["patch"]),
            rule("nodes/status", &["patch"]),
        ];
        let rbac = "rbac.authorization.k8s.io";
        let metadata = json!({ "name": NAME });
        for (path, object) in [
            (
                "/api/v1/namespaces".to_owned(),
                json!({ "metadata": metadata }),
            ),
            (
                format!("/api/v1/namespaces/{NAME}/serviceaccounts"),
                json!({ "metadata": { "name": ACCOUNT } }),
            ),
            (
                format!("/apis/{rbac}/v1/clusterroles"),
                json!({ "metadata": metadata, "rules": rules }),
            ),
            (
                format!("/apis/{rbac}/v1/clusterrolebindings"),
                json!({
                    "metadata": metadata,
                    "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": NAME },
                    "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAME }],
                }),
            ),
        ] {
            self.create(&path, &object).await?;
        }
        Ok(())
    }

    async fn make_node(&self, index: usize, pods: usize) -> anyhow::Result<Node> {
        let name = format!("sim-{:04}", index + 1);
        self.create("/api/v1/nodes", &node(&name)).await?;
        let mut made = Vec::new();
        for number in 0..pods {
            let pod = format!("{name}-{number}");
            let path = format!("/api/v1/namespaces/{NAME}/pods");
            let object = self.create(&path, &pod_of(&pod, &name)).await?;
            let status = running(&pod);
            let path = format!("{path}/{pod}/status");
            self.ask(Method::PATCH, &path, Some(&status)).await?;
            made.push(PodRef {
                namespace: NAME.to_owned(),
                name: pod,
                uid: text(&object["metadata"]["uid"]),
            });
        }
        Ok(Node { name, pods: made })
    }

    /// A kubeconfig of the account, with its token in a file beside it, as a pod has it.
    ///
    /// # Errors
    /// When the server gives no token, or a file cannot be written.
    pub(super) async fn account(&self, folder: &Path) -> anyhow::Result<Access> {
        let path = format!("/api/v1/namespaces/{NAME}/serviceaccounts/{ACCOUNT}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 7200, "audiences": [] },
        });
        let answer = self.ask(Method::POST, &path, Some(&request)).await?;
        let [token, config] = ["token", "kubeconfig"].map(|name| folder.join(name));
        fs::write(&token, text(&answer["status"]["token"])).context("writing a token")?;
        let mut kubeconfig = self.kubeconfig.clone();
        let current = kubeconfig.current_context.clone().unwrap_or_default();
        let named = kubeconfig.contexts.iter().find(|each| each.name == current);
        let cluster = named.and_then(|named| Some(named.context.as_ref()?.cluster.clone()));
        kubeconfig.auth_infos = vec![NamedAuthInfo {
            name: ACCOUNT.to_owned(),
            auth_info: Some(AuthInfo {
                token_file: Some(token.display().to_string()),
                ..AuthInfo::default()
            }),
            ..NamedAuthInfo::default()
        }];
        kubeconfig.contexts = vec![NamedContext {
            name: ACCOUNT.to_owned(),
            context: Some(Context {
                cluster: cluster.context("the kubeconfig has no current context")?,
                user: Some(ACCOUNT.to_owned()),
                ..Context::default()
            }),
            ..NamedContext::default()
        }];
        kubeconfig.current_context = Some(ACCOUNT.to_owned());
        fs::write(&config, serde_json::to_vec(&kubeconfig)?).context("writing a kubeconfig")?;
        Ok(Access::new(Some(config), None, None))
    }

    /// Puts the annotation that stops enforcement on all nodes, or takes it away.
    ///
    /// # Errors
    /// When the server refuses.
    pub(super) async fn annotate(&self, nodes: &[Node], is_paused: bool) -> anyhow::Result<()> {
        let value = is_paused.then_some("true");
        let change = json!({ "metadata": { "annotations": { (ANNOTATION): value } } });
        let each = stream::iter(nodes).map(Ok::<_, anyhow::Error>);
        each.try_for_each_concurrent(AT_ONCE, |node| {
            let path = format!("/api/v1/nodes/{}", node.name);
            let change = &change;
            async move { self.ask(Method::PATCH, &path, Some(change)).await.map(drop) }
        })
        .await
    }

    /// What the server has of so many evictions.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) async fn books(&self, evicted: &BTreeSet<String>) -> anyhow::Result<Books> {
        let path = |kind: &str| format!("/api/v1/namespaces/{NAME}/{kind}");
        let events = self.ask(Method::GET, &path("events"), None).await?;
        let mut told: BTreeMap<String, u64> = BTreeMap::new();
        for event in list(&events).filter(|event| event["source"]["component"] == "brink") {
            let uid = text(&event["involvedObject"]["uid"]);
            *told.entry(uid).or_default() += event["count"].as_u64().unwrap_or(1);
        }
        let pods = self.ask(Method::GET, &path("pods"), None).await?;
        let is_failed = |pod: &&Value| {
            pod["status"]["phase"] == "Failed" && pod["status"]["reason"] == "Evicted"
        };
        let failed: BTreeSet<String> = list(&pods)
            .filter(is_failed)
            .map(|pod| text(&pod["metadata"]["uid"]))
            .collect();
        Ok(Books::of(evicted, &told, &failed))
    }

    /// How many nodes of the fleet say something of ours.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(super) async fn nodes_with_conditions(&self) -> anyhow::Result<usize> {
        let nodes = self.ask(Method::GET, &nodes(), None).await?;
        let is_ours = |condition: &Value| text(&condition["type"]).starts_with(PREFIX);
        let speaks = list(&nodes).filter(|node| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(is_ours))
        });
        Ok(speaks.count())
    }

    /// Takes everything away, whatever is there of it, and waits until it is gone.
    ///
    /// # Errors
    /// When something stays, with its name.
    pub(super) async fn remove(&self) -> anyhow::Result<()> {
        let namespace = format!("/api/v1/namespaces/{NAME}");
        // Pods before their nodes: a controller would look for those without one.
        for (all, one) in [
            (format!("{namespace}/pods"), format!("{namespace}/pods")),
            (nodes(), "/api/v1/nodes".to_owned()),
        ] {
            let found = self.ask(Method::GET, &all, None).await?;
            let names: Vec<String> = list(&found)
                .map(|each| text(&each["metadata"]["name"]))
                .collect();
            let each = stream::iter(names).map(Ok::<_, anyhow::Error>);
            each.try_for_each_concurrent(AT_ONCE, |name| self.delete(format!("{one}/{name}")))
                .await?;
        }
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        for kind in ["clusterrolebindings", "clusterroles"] {
            self.delete(format!("{rbac}/{kind}/{NAME}")).await?;
        }
        self.delete(namespace.clone()).await?;
        let until = Instant::now() + GOING;
        while self.find(&namespace).await?.is_some() {
            if Instant::now() > until {
                bail!(
                    "the namespace {NAME} is still there after {} s",
                    GOING.as_secs()
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Makes an object, or finds it where an answer was lost.
    async fn create(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        match self.request(Method::POST, path, Some(object)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let name = text(&object["metadata"]["name"]);
                self.ask(Method::GET, &format!("{path}/{name}"), None).await
            }
            answer => answer
                .map_err(|error| told(&error))
                .with_context(|| format!("making one of {path}")),
        }
    }

    async fn delete(&self, path: String) -> anyhow::Result<()> {
        let now = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        match self.request(Method::DELETE, &path, Some(&now)).await {
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            answer => answer
                .map(drop)
                .map_err(|error| told(&error))
                .with_context(|| format!("deleting {path}")),
        }
    }

    async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.request(Method::GET, path, None).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            answer => answer
                .map(Some)
                .map_err(|error| told(&error))
                .with_context(|| format!("asking for {path}")),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let context = || format!("{method} {path}");
        let answer = self.request(method.clone(), path, body).await;
        answer.map_err(|error| told(&error)).with_context(context)
    }

    /// Asks until there is an answer; one that says that the server is busy is none.
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let request = ready(&method, path, body).map_err(kube::Error::HttpError)?;
            let answer = self.client.request::<Value>(request).await;
            let is_for_now = match &answer {
                Ok(_) => false,
                Err(kube::Error::Api(status)) => status.code == 429 || status.code >= 500,
                Err(_) => true,
            };
            if !is_for_now || tries >= TRIES {
                return answer;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn ready(method: &Method, path: &str, body: Option<&Value>) -> http::Result<Request<Vec<u8>>> {
    let mark = if path.contains('?') { '&' } else { '?' };
    let path = if *method == Method::PATCH || *method == Method::POST {
        format!("{path}{mark}{OURS}")
    } else {
        path.to_owned()
    };
    let kind = if *method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = Request::builder().method(method).uri(path);
    let body = body.map(|body| body.to_string().into_bytes());
    request
        .header(CONTENT_TYPE, kind)
        .body(body.unwrap_or_default())
}

fn told(error: &kube::Error) -> anyhow::Error {
    anyhow::anyhow!("{}", in_words(error))
}

fn nodes() -> String {
    format!("/api/v1/nodes?labelSelector={LABEL}")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(all: &Value) -> impl Iterator<Item = &Value> {
    all["items"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_scene_writes_is_marked_as_its_own() {
        for (method, path, expected) in [
            (Method::PATCH, "/a/b", "/a/b?fieldManager=brink-fleet"),
            (Method::POST, "/a?b=c", "/a?b=c&fieldManager=brink-fleet"),
            (Method::GET, "/a", "/a"),
        ] {
            let found = ready(&method, path, None).unwrap();
            assert_eq!(found.uri().to_string(), expected);
        }
    }
}
