//! The page of a real agent in a real browser: room, order and an eviction as they happen, and the agent found again.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use brink_host::hog::Load;
use brink_tests::browser::{LIVE, shows};
use brink_tests::{Browser, skip, wait_until};
use rustix::process::Signal;

use crate::support::{MIB, Node, PATIENCE, gone_after, lives};

/// That the page says that so many MiB of memory are available, or more, or fewer.
fn has(comparison: &str, mib: u32) -> String {
    format!(
        "Number(/([\\d.]+)Mi of 300Mi/.exec(document.querySelector('#gauges').innerText)?.[1]) {comparison} {mib}"
    )
}

/// A port that nobody has at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_port_that_somebody_has_keeps_no_agent_from_starting() {
    let mut node = Node::new(300);
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = other.local_addr().unwrap();
    let hard = "evictionHard: {memory.available: 60Mi}";
    let events = format!("{hard}\nevents: {{listen: \"{address}\"}}");
    node.configure("enforce", &events);
    assert_eq!(node.start(&[]).mode, "enforcing", "{}", node.log());
    assert!(node.log().contains("events.listen"), "{}", node.log());
    drop(other);
    let served = wait_until(PATIENCE, || TcpStream::connect(address).ok());
    assert!(served.is_some(), "{}", node.log());
}

#[test]
fn the_page_shows_a_real_eviction_as_it_happens_and_finds_the_agent_again() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => skip!("{missing}"),
    };
    let mut node = Node::new(300);
    let calm = "containers: [{name: c, resources: {requests: {memory: 64Mi}}}]";
    let calm = node.workload("calm", calm);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let origin = format!("http://127.0.0.1:{}", free_port());
    let address = origin.trim_start_matches("http://");
    let events = format!("events: {{enabled: true, listen: \"{address}\", page: true}}");
    let hard = "evictionHard: {memory.available: 60Mi}";
    node.configure("enforce", &format!("{hard}\n{events}"));
    node.start(&[]);
    let idle = node.holding(calm, 10);
    let small = node.holding(leaker, 20);

    browser.open(&origin);
    browser.wait_for(LIVE);
    browser.wait_for(&has(">", 200));
    browser.wait_for(&shows("#gauges", "below 60Mi (hard): clear"));
    // It uses more than it asked for, and the other one does not.
    browser.wait_for(&shows("#ranking tbody tr:first-child", "1. test/leaker"));
    browser.run("window.same = true");
    let more = node.holding(leaker, 100);
    browser.wait_for(&has("<", 200));

    gone_after(&node.load(leaker, Load::Anon, 250 * MIB));
    let incidents = "#incident-list tbody";
    browser.wait_for(&shows(incidents, "test/leaker"));
    browser.wait_for(&shows("#news", "Brink evicted"));
    gone_after(&small);
    gone_after(&more);
    browser.wait_for(&has(">", 200));
    assert!(lives(&idle), "{}", node.log());
    browser.run("document.querySelector('#incident-list tbody a').click()");
    browser.wait_for(&shows("#story", "Brink evicted"));
    browser.wait_for(&shows("#story", "memory.available was"));
    browser.run("document.querySelector('#back').click()");

    node.stop(Signal::TERM);
    browser.wait_for(&shows("#connection", "disconnected, retrying"));
    browser.wait_for("document.body.classList.contains('stale')");
    node.start(&[]);
    browser.wait_for(LIVE);
    browser.wait_for("!document.body.classList.contains('stale')");
    browser.wait_for("document.querySelectorAll('#incident-list tbody tr').length === 1");
    // What the next run does comes to the page that was never loaded again.
    gone_after(&node.load(leaker, Load::Anon, 270 * MIB));
    browser.wait_for("document.querySelectorAll('#incident-list tbody tr').length === 2");
    browser.wait_for("window.same === true");
    let said = browser.log("browser");
    // That an agent which was stopped does not answer is no fault of the page.
    let faults = said.iter().filter(|line| !line.contains("net::ERR_"));
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "{faults:#?}");
}
