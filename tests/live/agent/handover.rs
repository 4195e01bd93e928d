//! An agent that is asked to end beside one that stands by: the node has one that enforces at every moment, and never two.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use brink::config::{Sources, load};
use brink::control::client::ask;
use brink::control::protocol::{Answer, Question};
use brink::record::DecisionRecord;
use brink::runtime::prepare;
use brink_host::hog::Load;
use brink_tests::{Hog, Never, skip, slowed, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::standby::{in_mode, status_at, two_agents};
use crate::support::{MIB, Node, PATIENCE, gone_after, lives};

/// Too little is available once a leak is there, and no second opinion is asked for.
const HARD: &str = "memoryPolicy: kubelet\nevictionHard: {memory.available: 60Mi}";
/// What the leaker holds before anybody ends, and takes then, in MiB of a node of [`NODE`].
const HELD: u64 = 200;
const LEAK: u64 = 80;
const NODE: u64 = 300;
/// From when the leak has certainly crossed the threshold to its end, over the end of an agent. Who stands by has the node 50 ms after
/// that at the latest.
const AT_ONCE: Duration = Duration::from_millis(500);
/// What it has taken by then, in MiB: of the node more than the threshold leaves.
const CROSSED: u64 = NODE - 60 - HELD;
/// An agent that stands by and looks now and then is in time now and then.
const ROUNDS: usize = 4;
/// What a pod of the agent's is given to end in.
const GRACE: Duration = Duration::from_secs(10);
/// What the cluster of these tests calls the node.
const NAME: &str = "node-a";

fn enforces(socket: &Path) -> bool {
    match ask(socket, &Question::Status) {
        Ok(Answer::Status(status)) => status.mode == "enforcing",
        _ => false,
    }
}

/// Looks whether both agents ever say that they enforce. The second is asked first: the other, which does not get the right back, was
/// then still to have it after the second had got it.
fn both_enforce(node: &Node) -> Never {
    let sockets: [PathBuf; 2] = [node.path("other.sock"), node.socket()];
    Never::begin(move || sockets.iter().all(|socket| enforces(socket)))
}

/// How long a leak lived that had crossed the threshold; nothing of one that had not come so far. It may take its time until then: where
/// processors are emulated, those of an agent that loads its programs are all there is.
fn lived_on(mut leak: Hog) -> Duration {
    match leak.wait_touched(CROSSED * MIB, PATIENCE) {
        Ok(_) => gone_after(&leak),
        Err(_) if !lives(&leak) => Duration::ZERO,
        Err(error) => panic!("{error}"),
    }
}

/// The orders that are carried out by the journals of both agents; that of the first was put aside by the second.
fn carried_out(node: &Node) -> BTreeSet<u64> {
    let texts = ["journal", "journal.1"].map(|name| fs::read_to_string(node.path(name)).unwrap());
    let lines = texts.iter().flat_map(|text| text.lines());
    // The last line of one that runs may be half of it.
    let lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let orders = lines.filter(|line| line["line"] == "decision" && line["mode"] == "enforcing");
    orders.map(|line| line["order"].as_u64().unwrap()).collect()
}

/// The second agent has taken over, and one order was carried out by both together.
fn check_one_order(node: &Node) {
    in_mode(node, "enforcing");
    let is_calm = || status_at(node, "other.sock").filter(|status| status.open_order.is_none());
    assert!(wait_until(PATIENCE, is_calm).is_some(), "{}", node.log());
    let Ok(Answer::Decisions(mut told)) = ask(&node.path("other.sock"), &Question::Decisions)
    else {
        panic!("{}", node.log());
    };
    told.retain(|record| record.mode == "enforcing");
    let victims: Vec<String> = told.iter().map(DecisionRecord::victim_name).collect();
    assert_eq!(victims, ["test/leaker"], "{told:#?}\n{}", node.log());
    assert_eq!(carried_out(node), [told[0].order].into(), "{}", node.log());
}

#[test]
fn a_crossing_while_one_agent_follows_another_is_acted_on_at_once_and_once() {
    for _ in 0..ROUNDS {
        let mut node = Node::new(NODE);
        let leaker = node.workload("leaker", "containers: [{name: c}]");
        two_agents(&mut node, HARD);
        let _held = node.holding(leaker, HELD);
        let both = both_enforce(&node);
        node.signal_first(Signal::TERM);
        let leak = node.load(leaker, Load::Anon, LEAK * MIB);
        let after = lived_on(leak);
        assert!(after < slowed(AT_ONCE), "{after:?}\n{}", node.log());
        node.stop_first(Signal::TERM);
        check_one_order(&node);
        assert!(!both.has_held(), "two enforce: {}", node.log());
    }
}

/// Nothing does so as far as is known; whatever does must not keep the node from the next agent.
#[test]
fn an_agent_that_something_still_holds_lets_the_next_one_have_the_node() {
    let mut node = Node::new(NODE);
    node.configure("enforce", HARD);
    let sources = Sources {
        config: Some(node.path("config.yaml")),
        ..Sources::default()
    };
    let config = load(&sources).unwrap().config;
    let running = Arc::new(prepare::start(&config).unwrap());
    let held = Arc::clone(&running);
    assert!(!held.enforcement.is_elsewhere());
    running.end();
    held.telling.end_ways();
    assert!(held.enforcement.is_elsewhere());
    let next = node.start(&[]);
    assert_eq!(next.mode, "enforcing", "{}", node.log());
}

/// An API server that takes every request, and answers none.
struct Mute {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<u8>>>,
}

impl Mute {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<u8>>>::default();
        let heard = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, heard) = (stream.unwrap(), Arc::clone(&heard));
                thread::spawn(move || hear(stream, &heard));
            }
        });
        Self { address, asked }
    }

    /// The settings of an agent in its cluster.
    fn settings(&self, folder: &Path) -> String {
        let path = folder.join("kubeconfig");
        let server = format!("http://{}", self.address);
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "c", "cluster": { "server": server } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "x",
        });
        fs::write(&path, text.to_string()).unwrap();
        format!(
            "kubernetes: {{enabled: true, kubeconfig: '{}', nodeName: {NAME}}}",
            path.display()
        )
    }

    fn was_asked(&self, what: &str) -> bool {
        let asked = self.asked.lock().unwrap();
        String::from_utf8_lossy(&asked).contains(what)
    }
}

/// Until the other end has waited for long enough.
fn hear(mut stream: TcpStream, heard: &Mutex<Vec<u8>>) {
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut part) {
        heard.lock().unwrap().extend(&part[..count]);
    }
}

/// Whether no agent here can be part of a cluster: that may be left out of a build.
fn is_left_out() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let text = "kubernetes: {enabled: true}\n";
    fs::write(folder.path().join("a.yaml"), text).unwrap();
    let sources = Sources {
        config_dir: Some(folder.path().to_path_buf()),
        ..Sources::default()
    };
    let faults = load(&sources).err();
    faults.is_some_and(|faults| faults.to_string().contains("--features kubernetes"))
}

/// It is told to end twice, which shortens nothing and lengthens nothing.
#[test]
fn an_agent_enforces_until_its_last_words_are_told_however_slow_the_server_is() {
    if is_left_out() {
        skip!("this build knows no Kubernetes");
    }
    let server = Mute::start();
    let mut node = Node::new(NODE);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let settings = format!("{HARD}\n{}", server.settings(&node.path("")));
    two_agents(&mut node, &settings);
    // How the node stands has to be taken back at the end.
    let words = format!("PATCH /api/v1/nodes/{NAME}/status");
    let is_told = || server.was_asked(&words).then_some(());
    assert!(wait_until(PATIENCE, is_told).is_some(), "{}", node.log());
    let _held = node.holding(leaker, HELD);
    let both = both_enforce(&node);
    let told = Instant::now();
    node.signal_first(Signal::TERM);
    let leak = node.load(leaker, Load::Anon, LEAK * MIB);
    let after = lived_on(leak);
    assert!(after < slowed(AT_ONCE), "{after:?}\n{}", node.log());
    assert!(enforces(&node.socket()), "still: {}", node.log());
    in_mode(&node, "standby");
    node.stop_first(Signal::TERM);
    assert!(told.elapsed() < slowed(GRACE), "{:?}", told.elapsed());
    check_one_order(&node);
    assert!(!both.has_held(), "two enforce: {}", node.log());
}
