//! A collector of OpenTelemetry's logs that keeps what it is sent, and is not ready at first.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use serde_json::Value;

/// A collector that listens as long as the test runs.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    records: Receiver<Value>,
}

impl Collector {
    /// Starts one on the loopback interface. It asks the first who comes to come again.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, records) = channel();
        thread::spawn(move || {
            let mut is_ready = false;
            for stream in listener.incoming() {
                serve(&stream.unwrap(), is_ready, &sender);
                is_ready = true;
            }
        });
        Self { address, records }
    }

    /// Every record so far, in the order in which they came.
    pub(crate) fn taken(&self) -> Vec<Value> {
        self.records.try_iter().collect()
    }
}

/// Takes one request, or refuses it for the moment.
fn serve(stream: &TcpStream, is_ready: bool, sender: &Sender<Value>) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "POST /v1/logs HTTP/1.1\r\n");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let header = line.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let status = if is_ready {
        let request: Value = serde_json::from_slice(&body).unwrap();
        let records = &request["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
        for record in records.as_array().unwrap() {
            // Whoever has heard enough no longer listens.
            let _ended = sender.send(record.clone());
        }
        "200 OK"
    } else {
        "503 Service Unavailable"
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
    (&*stream).write_all(answer.as_bytes()).unwrap();
}
