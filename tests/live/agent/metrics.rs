//! Metrics and health of a real agent, asked for over its event socket.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use brink::control::protocol::RefusedView;
use brink_host::hog::Load;
use brink_tests::{skip, slowed, wait_until};
use rustix::process::Signal;

use crate::support::{MIB, Node, PATIENCE, gone_after};

const HARD: &str = "evictionHard: {memory.available: 60Mi}";

/// Head and body of what is answered; none while nobody answers.
fn get(node: &Node, target: &str, accept: &str) -> Option<(String, String)> {
    let mut stream = UnixStream::connect(node.path("state/events.sock")).ok()?;
    let patience = Some(slowed(Duration::from_secs(15)));
    stream.set_read_timeout(patience).ok()?;
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

/// The value of one series, once the page has it.
fn value(node: &Node, series: &str) -> Option<f64> {
    let (_, page) = get(node, "/metrics", "text/plain")?;
    let line = page.lines().find(|line| {
        line.rsplit_once(' ')
            .is_some_and(|(name, _)| name == series)
    })?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[track_caller]
fn awaited(node: &Node, series: &str, wanted: f64) {
    let is_so = || value(node, series).filter(|found| (found - wanted).abs() < f64::EPSILON);
    let found = wait_until(PATIENCE, is_so);
    assert!(
        found.is_some(),
        "{series} is {:?}, not {wanted}: {}",
        value(node, series),
        node.log()
    );
}

#[test]
fn a_kill_is_on_the_page_with_its_stages() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", HARD);
    node.start(&[]);
    let evictions = "brink_evictions_total{eviction_signal=\"memory.available\",mode=\"enforce\"}";
    awaited(&node, evictions, 0.0);
    awaited(&node, "brink_mode{mode=\"enforcing\"}", 1.0);
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&leak);
    node.finished(1);
    awaited(&node, evictions, 1.0);
    awaited(&node, "brink_signal_to_kill_seconds_count", 1.0);
    for stage in ["wake", "decide", "record", "first_signal", "last_signal"] {
        awaited(
            &node,
            &format!("brink_eviction_stage_seconds_count{{stage=\"{stage}\"}}"),
            1.0,
        );
    }
    awaited(
        &node,
        "brink_eviction_stats_age_seconds_count{eviction_signal=\"memory.available\"}",
        1.0,
    );
    awaited(&node, "brink_events_total{type=\"eviction-ordered\"}", 1.0);
    awaited(
        &node,
        "brink_signal_capacity{eviction_signal=\"memory.available\"}",
        314_572_800.0,
    );
    assert!(value(&node, "process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6));
}

#[test]
fn promtool_and_the_alerts_take_the_page_of_a_real_agent() {
    let promtool = PathBuf::from(env::var_os("BRINK_PROMTOOL").unwrap_or_default());
    if !promtool.is_absolute() && promtool.as_os_str() != "promtool" {
        skip!("no promtool: {}", promtool.display());
    }
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", HARD);
    node.start(&[]);
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&leak);
    node.finished(1);
    awaited(&node, "brink_signal_to_kill_seconds_count", 1.0);
    let (_, page) = get(&node, "/metrics", "text/plain").unwrap();

    let mut asked = Command::new(promtool);
    asked.args(["check", "metrics"]).stdin(Stdio::piped());
    asked.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut asked = asked.spawn().unwrap();
    let mut stdin = asked.stdin.take().unwrap();
    stdin.write_all(page.as_bytes()).unwrap();
    drop(stdin);
    let answer = asked.wait_with_output().unwrap();
    let said = [answer.stdout, answer.stderr].concat();
    assert!(
        answer.status.success(),
        "{}\n{page}",
        String::from_utf8_lossy(&said)
    );

    let missing: Vec<&str> = DEPLOYED
        .iter()
        .flat_map(|file| names_in(file))
        .filter(|name| !is_on(&page, name))
        .collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}\n{page}");
}

/// What asks for metrics by name.
const DEPLOYED: [&str; 2] = [
    include_str!("../../../deploy/alerts/brink.rules.yaml"),
    include_str!("../../../deploy/dashboards/brink.json"),
];

/// The metrics that a file of alerts or panels asks for.
fn names_in(file: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let words = file.split(|letter| !is_part(letter));
    words.filter(|word| word.starts_with("brink_")).collect()
}

/// Whether a page in the text format has the metric, or the histogram that it is a part of.
fn is_on(page: &str, name: &str) -> bool {
    let parts = ["_bucket", "_count", "_sum"];
    let whole = parts.iter().find_map(|part| name.strip_suffix(part));
    [Some(name), whole].into_iter().flatten().any(|name| {
        let head = format!("# TYPE {name} ");
        page.lines().any(|line| line.starts_with(&head))
    })
}

#[test]
fn both_formats_are_spoken_and_health_is_told() {
    let mut node = Node::new(300);
    node.workload("anybody", "containers: [{name: c}]");
    node.configure("observe", HARD);
    node.start(&[]);
    let wish = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let answer = wait_until(PATIENCE, || get(&node, "/metrics", wish));
    let (head, page) = answer.unwrap_or_else(|| panic!("{}", node.log()));
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("application/openmetrics-text"),
        "{head}"
    );
    assert!(page.ends_with("# EOF\n"), "{page}");
    let ready = wait_until(PATIENCE, || {
        get(&node, "/readyz?verbose", "*/*").filter(|(head, _)| head.starts_with("HTTP/1.1 200 "))
    });
    let (_, text) = ready.unwrap_or_else(|| panic!("{:?}", get(&node, "/readyz", "*/*")));
    assert_eq!(
        text,
        "[+]guard ok\n[+]rung ok\n[+]figures ok\nreadyz check passed\n"
    );
    for path in ["/livez", "/healthz"] {
        let (head, text) = get(&node, path, "*/*").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(text, "ok");
    }
}

/// Head and body of what a port answers; none while nobody does.
fn ask_port(address: std::net::SocketAddr, target: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let patience = Some(slowed(Duration::from_secs(15)));
    stream.set_read_timeout(patience).ok()?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: 192.0.2.7\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

#[test]
fn a_port_of_the_network_has_metrics_and_health_and_nothing_else() {
    let mut node = Node::new(300);
    node.workload("anybody", "containers: [{name: c}]");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    node.configure(
        "observe",
        &format!("{HARD}\nmetrics: {{listen: '{address}'}}"),
    );
    node.start(&[]);
    let live = wait_until(PATIENCE, || ask_port(address, "/livez"));
    let (head, text) = live.unwrap_or_else(|| panic!("{}", node.log()));
    assert!(
        head.starts_with("HTTP/1.1 200 ") && text == "ok",
        "{head} {text}"
    );
    let (_, page) = ask_port(address, "/metrics").unwrap();
    assert!(page.contains("brink_mode"), "{page}");
    for path in ["/v1/events", "/v1/incidents", "/"] {
        let (head, _) = ask_port(address, path).unwrap();
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
    }
}

/// The configuration that was not taken over, as the agent's status has it.
fn refused(node: &Node) -> Option<RefusedView> {
    let status = node.status().unwrap_or_else(|| panic!("{}", node.log()));
    status.refused_configuration
}

#[test]
fn a_refused_configuration_is_on_the_page() {
    let mut node = Node::new(300);
    node.workload("anybody", "containers: [{name: c}]");
    node.configure("observe", HARD);
    node.start(&[]);
    let taken = "brink_config_last_reload_successful";
    awaited(&node, taken, 1.0);
    assert_eq!(refused(&node), None);
    fs::write(node.path("config.yaml"), "no configuration: [").unwrap();
    node.signal(Signal::HUP);
    awaited(&node, taken, 0.0);
    let why = refused(&node).expect("the status says so too").why;
    assert!(why.contains("config.yaml:1:"), "{why}");
    node.configure("observe", HARD);
    node.signal(Signal::HUP);
    awaited(&node, taken, 1.0);
    assert_eq!(refused(&node), None);
}

#[test]
fn a_manifest_that_is_not_in_order_is_in_the_status_and_on_the_page() {
    let mut node = Node::new(300);
    node.workload("anybody", "containers: [{name: c}]");
    let file = node.path("manifests").join("broken.yaml");
    fs::write(&file, "kind: Pod\nmetadata: {nam: web}\n").unwrap();
    node.configure("observe", HARD);
    node.start(&[]);
    let count = "brink_manifests_broken";
    awaited(&node, count, 1.0);
    let status = node.status().unwrap_or_else(|| panic!("{}", node.log()));
    let [broken] = &status.broken_manifests[..] else {
        panic!("{:?}", status.broken_manifests);
    };
    assert_eq!(broken.file, file.display().to_string());
    assert!(
        broken.why.contains("the pod has no name") && !broken.pods_stand,
        "{broken:?}"
    );
    assert_eq!((status.workloads, status.more_broken_manifests), (1, 0));
    let page = node.said(&["status"]);
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(
        page.contains("broken.yaml is not in order: its pods are unknown"),
        "{page}"
    );
    // In order, and then not any more: what it said stands.
    fs::write(&file, "kind: Pod\nmetadata: {name: web}\n").unwrap();
    awaited(&node, count, 0.0);
    fs::write(&file, "kind: [").unwrap();
    awaited(&node, count, 1.0);
    let status = node.status().unwrap();
    assert!(
        status.broken_manifests[0].pods_stand && status.workloads == 2,
        "{status:#?}"
    );
}
