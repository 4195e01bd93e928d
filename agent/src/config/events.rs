//! `events` and `metrics`: whether events are told, and where they and the figures are served.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use brink_stream::serve::door::LONGEST_PATH;

use super::document::{Fields, Node, Reader};
use super::outlets::{Outlets, read_journal, read_outlets};
use super::schema::{absolute, section};
use super::settings::{Events, Paths};

/// Every key of the section.
const KEYS: [&str; 10] = [
    "enabled",
    "socket",
    "listen",
    "page",
    "commandLines",
    "journal",
    "file",
    "stdout",
    "journald",
    "otlp",
];
/// The word for no address.
const NONE: &str = "none";
/// What `listen` takes.
const LISTEN: &str =
    "none, or an address of this machine alone with a port: 127.0.0.1:9753 or [::1]:9753";

/// What is written is no address, which has been said.
struct Wrong;

/// What `metrics.listen` takes.
const METRICS_LISTEN: &str = "none, or an address with a port: 0.0.0.0:9820 or [::]:9820";

/// Reads `events`; where it says nothing of the socket, that is in the state directory.
pub(super) fn read<'a>(reader: &mut Reader<'a>, fields: Fields<'a>, paths: &Paths) -> Events {
    let section = section(reader, fields, "events", &KEYS);
    let enabled = section.get("enabled");
    let listen = section.get("listen");
    let page = section.get("page");
    let command_lines = section.get("commandLines");
    let mut is_listen_wrong = false;
    let events = Events {
        enabled: enabled
            .and_then(|node| reader.boolean(node))
            .unwrap_or(true),
        socket: absolute(reader, section, "socket")
            .unwrap_or_else(|| paths.state_dir.join("events.sock")),
        listen: listen.and_then(|node| {
            let address = read_listen(reader, node);
            is_listen_wrong = address.is_err();
            address.unwrap_or_default()
        }),
        page: page.and_then(|node| reader.boolean(node)).unwrap_or(false),
        command_lines: command_lines
            .and_then(|node| reader.boolean(node))
            .unwrap_or(true),
        journal: read_journal(reader, section, paths),
        outlets: read_outlets(reader, section),
    };
    check_sockets(reader, fields, &events, paths);
    check_file(reader, section, &events);
    if !events.enabled {
        doubt_ways_out(reader, section, &events);
    }
    // Where an address is given and is wrong, nothing more is to be done for the page.
    let is_unreachable = events.page && events.listen.is_none() && !is_listen_wrong;
    if let Some(node) = page.filter(|_| is_unreachable) {
        let problem = "without events.listen no browser can open it";
        reader.fault(
            node,
            problem,
            "false, or true with an address in events.listen",
        );
    }
    events
}

/// Reads `metrics.listen`. What is served there is public; it goes with the events, whose server it is.
pub(super) fn read_metrics<'a>(
    reader: &mut Reader<'a>,
    fields: Fields<'a>,
    events: &Events,
) -> Option<SocketAddr> {
    let node = section(reader, fields, "metrics", &["listen"]).get("listen")?;
    let address = read_address(reader, node, METRICS_LISTEN).ok().flatten()?;
    if !events.enabled {
        let problem = "with events.enabled: false nothing is served";
        reader.fault(
            node,
            problem,
            "none, or an address with events.enabled: true",
        );
        return None;
    }
    if events.listen.is_some_and(|other| meet(other, address)) {
        reader.fault(
            node,
            "metrics.listen and events.listen have one port of one address",
            "two addresses",
        );
        return None;
    }
    Some(address)
}

/// Whether nobody can listen at both: one takes all addresses, or they are one, in whatever way they are written.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let [one_ip, other_ip] = [one, other].map(|address| address.ip().to_canonical());
    let takes = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    let is_one = one_ip == other_ip || takes(one_ip, other_ip) || takes(other_ip, one_ip);
    is_one && one.port() == other.port()
}

fn read_listen<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Result<Option<SocketAddr>, Wrong> {
    let address = read_address(reader, node, LISTEN)?;
    if address.is_some_and(|address| !address.ip().is_loopback()) {
        let problem = "not on loopback: whoever can reach it could read every event";
        reader.fault(node, problem, LISTEN);
        return Err(Wrong);
    }
    Ok(address)
}

/// The address, or none where that is what is written.
fn read_address<'a>(
    reader: &mut Reader<'a>,
    node: &'a Node,
    accepted: &str,
) -> Result<Option<SocketAddr>, Wrong> {
    let text = reader.name(node).ok_or(Wrong)?;
    if text == NONE {
        return Ok(None);
    }
    let Ok(address) = text.parse::<SocketAddr>() else {
        reader.fault(node, "no address with a port", accepted);
        return Err(Wrong);
    };
    if address.port() == 0 {
        reader.fault(node, "without a port nobody would find it", accepted);
        return Err(Wrong);
    }
    Ok(Some(address))
}

/// A file of lines among the segments of the journal would be in the way of both.
fn check_file<'a>(reader: &mut Reader<'a>, section: Fields<'a>, events: &Events) {
    let Some(file) = &events.outlets.file else {
        return;
    };
    let is_among = events.journal.enabled && file.path.starts_with(&events.journal.path);
    let written = section.get("file").and_then(|node| node.get("path"));
    if let Some(node) = written.filter(|_| is_among) {
        let problem = "it is in the folder of the event journal";
        reader.fault(node, problem, "a file elsewhere");
    }
}

/// What is asked for beside `enabled: false` is kept for later, and does nothing meanwhile.
fn doubt_ways_out<'a>(reader: &mut Reader<'a>, section: Fields<'a>, events: &Events) {
    let Outlets {
        file,
        stdout,
        journald,
        otlp,
    } = &events.outlets;
    for (key, is_asked_for) in [
        ("listen", events.listen.is_some()),
        ("file", file.is_some()),
        ("stdout", stdout.is_some()),
        ("journald", *journald),
        ("otlp", otlp.is_some()),
    ] {
        if let Some(node) = section.get(key).filter(|_| is_asked_for) {
            reader.warn(node, "with events.enabled: false no event goes there");
        }
    }
}

/// Both sockets must fit into the kernel's address of a socket, and be two.
fn check_sockets<'a>(reader: &mut Reader<'a>, fields: Fields<'a>, events: &Events, paths: &Paths) {
    let written = |section: &str, key: &str| fields.get(section).and_then(|node| node.get(key));
    let state_dir = written("paths", "stateDir");
    let ours = written("events", "socket").or(state_dir);
    let theirs = written("paths", "socket").or(state_dir);
    for (node, socket) in [(ours, &events.socket), (theirs, &paths.socket)] {
        check_length(reader, node, socket);
    }
    if events.enabled
        && events.socket == paths.socket
        && let Some(node) = written("events", "socket").or(theirs)
    {
        let problem = "events.socket and paths.socket are the same";
        reader.fault(node, problem, "two paths");
    }
}

fn check_length<'a>(reader: &mut Reader<'a>, node: Option<&'a Node>, socket: &Path) {
    let bytes = socket.as_os_str().as_bytes().len();
    if let Some(node) = node.filter(|_| bytes > LONGEST_PATH) {
        let problem = format!("the path of a socket in it has {bytes} bytes");
        let accepted = format!("a path with which the socket's has at most {LONGEST_PATH} bytes");
        reader.fault(node, problem, &accepted);
    }
}
