//! The export against a real receiver of OpenTelemetry: it is started for the test, and says what it has understood.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use brink_tests::skip;

use super::*;
use crate::outlet::samples::{line, odd_line};

/// Where the receiver's program is, or why there is none: `cargo xtask test` says it.
const RECEIVER: &str = "BRINK_OTLP_RECEIVER";
/// Longest wait for anything that should take milliseconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// A receiver that runs; it ends with this.
struct Running {
    program: Child,
    address: SocketAddr,
    lines: Receiver<String>,
}

/// A port that nobody has at this moment.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

impl Running {
    /// Starts one. Somebody else may take one of its ports first: then it ends by itself, and the next one is tried.
    fn start(program: &Path) -> Self {
        let tried = (0..5).find_map(|_| Self::try_at(program, free_port(), free_port()));
        tried.expect("a receiver that listens")
    }

    fn try_at(program: &Path, http: SocketAddr, grpc: SocketAddr) -> Option<Self> {
        let mut child = Command::new(program)
            .args(["start", "--exporter", "blackhole", "--debug-log", "logs"])
            .args(["--debug-log-verbosity", "detailed"])
            .args(["--otlp-http-endpoint", &http.to_string()])
            .args(["--otlp-grpc-endpoint", &grpc.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || {
            for line in said.map_while(Result::ok) {
                // Whoever has heard enough no longer listens.
                let _ended = sender.send(line);
            }
        });
        let mut running = Self {
            program: child,
            address: http,
            lines,
        };
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && running.program.try_wait().unwrap().is_none() {
            if TcpStream::connect(http).is_ok() {
                return Some(running);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// What it says up to the last line of the record with that number.
    fn said_of(&self, last: usize) -> String {
        let head = format!("LogRecord #{last}");
        let (mut said, mut is_last) = (String::new(), false);
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no end of {head}:\n{said}"));
            is_last = is_last || line.starts_with(&head);
            said.push_str(&line);
            said.push('\n');
            if is_last && line.starts_with("Flags:") {
                return said;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.program.kill();
        let _gone = self.program.wait();
    }
}

#[test]
fn a_real_receiver_understands_every_record() {
    let Some(program) = env::var_os(RECEIVER) else {
        skip!("needs a receiver of OpenTelemetry; `cargo xtask test` fetches one");
    };
    let program = Path::new(&program);
    if !program.is_file() {
        skip!("needs a receiver of OpenTelemetry: {}", program.display());
    }
    let receiver = Running::start(program);
    let endpoint = Endpoint::parse(&format!("http://{}", receiver.address)).unwrap();
    let identity = Identity {
        node: "node-1".to_owned(),
        boot_id: "boot".to_owned(),
    };
    let mut otlp = Otlp::new(endpoint, identity, "1.2.3");
    let told = [line(17), odd_line(18)];
    otlp.put(&told).unwrap();
    let said = receiver.said_of(1);
    let whole = String::from_utf8_lossy(told[0].text.trim_ascii_end()).into_owned();
    for part in [
        "-> service.name: Str(brink)",
        "-> host.name: Str(node-1)",
        "-> brink.boot_id: Str(boot)",
        "InstrumentationScope brink.events 1.2.3",
        "Timestamp: 1700000000000001000",
        "SeverityText: WARN",
        "SEVERITY_NUMBER_WARN(13)",
        "SEVERITY_NUMBER_INFO(9)",
        "EventName: brink.oom-kill",
        "EventName: brink.pressure",
        "-> brink.seq: Int(17)",
        "-> k8s.namespace.name: Str(shop)",
        "-> k8s.pod.name: Str(cart)",
        "-> brink.incident: Str(3f2a-17)",
        &format!("Body: Str({whole})"),
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    // It looks at what it is sent: a word where the protocol has a number is refused.
    let odd = request(&told, &otlp.identity, "1").to_string();
    let odd = odd.replace("\"severityNumber\":13", "\"severityNumber\":\"loud\"");
    let answer = otlp.post(odd.as_bytes()).unwrap();
    assert!((400..500).contains(&answer.status), "{answer:?}");
}
