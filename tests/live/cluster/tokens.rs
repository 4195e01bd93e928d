//! A service account's token in a file, which a kubelet renews: an agent goes on by the new one once the old one is refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use brink_tests::wait_until;
use serde_json::{Value, json};

use crate::agent::knows;
use crate::installed::documents;
use crate::line::Line;
use crate::manifest::{GO, leaking};
use crate::running::{Agent, pods_as_node};
use crate::support::{Cluster, NODE, Pod, holds_in_time, write_inside};
use crate::told::{condition, events, is_failed};
use crate::{group_of, sleeper, wait_running};

/// The Secrets that the tokens are bound to: a token ends with its Secret.
const SECRETS: [&str; 2] = ["first", "second"];
/// Whoever is refused reads the file anew before the next attempt. A client that nobody refuses does so after a minute.
const RENEWED: Duration = Duration::from_secs(20);

/// A service account with the rights of an agent that enforces, and its tokens; all of it goes with this.
struct Account<'a> {
    cluster: &'a Cluster,
    /// Of the account, of its namespace and of its role.
    name: String,
    /// Where its token is for an agent.
    folder: tempfile::TempDir,
    tokens: Vec<String>,
}

impl<'a> Account<'a> {
    /// One whose file has the first token.
    fn new(cluster: &'a Cluster) -> Self {
        let mut account = Self {
            cluster,
            name: format!("brink-token-{}", std::process::id()),
            folder: tempfile::tempdir().unwrap(),
            tokens: Vec::new(),
        };
        cluster.kubectl(&["create", "-f", "-"], &account.objects().to_string());
        account.tokens = SECRETS.map(|secret| account.token(secret)).into();
        for token in &account.tokens {
            let answered = account.answered(token);
            assert!(answered.contains("200 OK"), "{answered}");
        }
        symlink("..data/token", account.file()).unwrap();
        account.put(0);
        account
    }

    fn objects(&self) -> Value {
        let (name, rbac) = (&self.name, "rbac.authorization.k8s.io");
        let objects = documents("rendered/enforce.yaml").into_iter();
        let rights = objects
            .filter(|object| object["kind"] == "ClusterRole")
            .flat_map(|role| role["rules"].as_array().cloned().unwrap());
        let rules: Vec<Value> = rights.collect();
        let inside = |kind: &str, own: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": own, "namespace": name } });
        let [first, second] = SECRETS.map(|secret| inside("Secret", secret));
        json!({
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } },
                inside("ServiceAccount", name),
                first,
                second,
                {
                    "apiVersion": format!("{rbac}/v1"),
                    "kind": "ClusterRole",
                    "metadata": { "name": name },
                    "rules": rules,
                },
                {
                    "apiVersion": format!("{rbac}/v1"),
                    "kind": "ClusterRoleBinding",
                    "metadata": { "name": name },
                    "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": name },
                    "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": name }],
                },
            ],
        })
    }

    /// A token that is bound to a Secret.
    fn token(&self, secret: &str) -> String {
        let name = &self.name;
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/{name}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [],
                "expirationSeconds": 3600,
                "boundObjectRef": { "apiVersion": "v1", "kind": "Secret", "name": secret },
            },
        });
        let words = ["create", "--raw", path.as_str(), "-f", "-"];
        let answer = self.cluster.kubectl(&words, &request.to_string());
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The file with the token.
    fn file(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// Has the file say that token as a kubelet does: in a folder of its own, to which a link leads that is renamed over the one before.
    fn put(&self, which: usize) {
        let folder = self.folder.path();
        let version = format!("..{}", SECRETS[which]);
        fs::create_dir(folder.join(&version)).unwrap();
        let file = folder.join(&version).join("token");
        fs::write(file, &self.tokens[which]).unwrap();
        let aside = folder.join("..data_tmp");
        symlink(&version, &aside).unwrap();
        fs::rename(aside, folder.join("..data")).unwrap();
    }

    /// What `kubectl` says of the server's answer to whoever has that token and nothing else.
    fn answered(&self, token: &str) -> String {
        let words = ["config", "view", "--raw", "--flatten", "--minify"];
        let words = [&words[..], &["-o", "json"]].concat();
        let mut config: Value = serde_json::from_str(&self.cluster.kubectl(&words, "")).unwrap();
        config["users"][0]["user"] = json!({ "token": token });
        let path = self.folder.path().join("kubeconfig");
        fs::write(&path, config.to_string()).unwrap();
        let by = format!("--kubeconfig={}", path.display());
        let words = [by.as_str(), "-v=6", "get", "--raw", "/api"];
        self.cluster.answer(&words)
    }

    /// Ends that token, and waits until the server refuses it: what it has found of one it goes by for ten seconds.
    #[track_caller]
    fn end(&self, which: usize) {
        let (secret, token) = (SECRETS[which], &self.tokens[which]);
        let words = ["delete", "secret", secret, "--namespace", &self.name];
        self.cluster.kubectl(&words, "");
        let is_refused = || self.answered(token).contains("401 Unauthorized");
        assert!(holds_in_time(is_refused), "{}", self.answered(token));
    }

    /// An agent that enforces by that file, with the group of all pods as its node, and its line to the server.
    #[track_caller]
    fn agent(&self) -> (Line, Agent) {
        let (line, mut agent) = Agent::with_line(self.cluster, &pods_as_node("enforce"), "");
        let path = line.kubeconfig();
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["users"][0]["user"] = json!({ "tokenFile": self.file() });
        fs::write(path, config.to_string()).unwrap();
        agent.start();
        assert!(holds_in_time(|| agent.is_connected()), "{}", agent.log());
        (line, agent)
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        // A test that fails leaves nothing either. The account and the Secrets go with their namespace.
        for kind in ["clusterrolebinding", "clusterrole", "namespace"] {
            let words = ["delete", kind, &self.name, "--ignore-not-found"];
            let words = [&words[..], &["--wait=false"]].concat();
            self.cluster.answer(&words);
        }
    }
}

/// Has a pod leak, and waits until the server is told of its eviction, once.
#[track_caller]
fn check_evicted(cluster: &Cluster, agent: &Agent, pod: &Pod<'_>) {
    let found = wait_running(pod);
    let uid = found["metadata"]["uid"].as_str().unwrap();
    assert!(holds_in_time(|| knows(agent, pod)), "{}", agent.log());
    let begun = Instant::now();
    write_inside(&group_of(&found), GO, "go");
    agent.wait_told(uid);
    println!("told {:.1?} after it was to leak", begun.elapsed());
    assert!(holds_in_time(|| is_failed(pod)), "{}", pod.described());
    assert_eq!(events(cluster, uid, "Evicted").len(), 1, "once");
}

/// When the node was told last how its memory stands.
fn told_last(cluster: &Cluster) -> String {
    let node = cluster.get("node", NODE).unwrap();
    let said = condition(&node, "brink.dev/MemoryPressure").unwrap_or_default();
    said["lastHeartbeatTime"].to_string()
}

/// All that asks the server goes on: the watch of the pods, and who tells of evictions and of the node.
#[test]
fn an_agent_goes_on_by_the_token_that_has_been_put_in_place_of_its_first() {
    let cluster = cluster!(with_pods_here);
    let account = Account::new(&cluster);
    let [before, after] = ["before", "after"].map(|name| cluster.pod(&leaking(name)));
    wait_running(&before);
    wait_running(&after);
    let (mut line, agent) = account.agent();
    // By the first one: all have a client that keeps it.
    check_evicted(&cluster, &agent, &before);
    account.put(1);
    account.end(0);
    let told_before = told_last(&cluster);
    // A watch that is open is not asked again whose it is.
    line.cut();
    line.mend();
    let new = cluster.pod(&sleeper(&format!("new-{}", std::process::id())));
    wait_running(&new);
    let is_known = wait_until(RENEWED, || knows(&agent, &new).then_some(()));
    assert!(is_known.is_some(), "{}\n{}", new.described(), agent.log());
    assert!(agent.is_connected(), "{}", agent.log());
    check_evicted(&cluster, &agent, &after);
    // Memory was short once more, or is no longer.
    let is_told = || told_last(&cluster) != told_before;
    assert!(holds_in_time(is_told), "{}", agent.log());
}

#[test]
fn an_agent_whose_token_is_refused_protects_all_the_same_and_tells_it_by_the_next_one() {
    let cluster = cluster!(with_pods_here);
    let account = Account::new(&cluster);
    let pod = cluster.pod(&leaking("refused"));
    let found = wait_running(&pod);
    let uid = found["metadata"]["uid"].as_str().unwrap();
    let (mut line, agent) = account.agent();
    assert!(holds_in_time(|| knows(&agent, &pod)), "{}", agent.log());
    account.end(0);
    line.cut();
    line.mend();
    let is_refused = || {
        let why = agent.kubernetes().why;
        why.is_some_and(|why| why.contains("401"))
    };
    assert!(holds_in_time(is_refused), "{}", agent.log());

    write_inside(&group_of(&found), GO, "go");
    let told = || format!("{}\n{}", pod.described(), agent.log());
    assert!(holds_in_time(|| agent.waits(uid)), "{}", told());
    let record = agent.decision(uid).unwrap();
    assert_eq!(record.mode, "enforcing");
    let is_killed = || {
        let kill = agent.decision(uid).and_then(|record| record.kill);
        kill.is_some_and(|kill| kill.signalled >= 1)
    };
    assert!(holds_in_time(is_killed), "{}", told());
    assert!(!agent.is_connected(), "{}", agent.log());
    assert!(events(&cluster, uid, "Evicted").is_empty());

    // Who waits for a right looks at the file once a minute, and at once when the server is heard of.
    account.put(1);
    let put = Instant::now();
    agent.wait_told(uid);
    println!("told {:.1?} after the next token was there", put.elapsed());
    assert!(holds_in_time(|| is_failed(&pod)), "{}", told());
    assert!(holds_in_time(|| agent.is_connected()), "{}", agent.log());
    assert_eq!(events(&cluster, uid, "Evicted").len(), 1, "once");
}
