//! A line to the API server that can be cut: a relay on loopback, and a kubeconfig that leads through it.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Cluster;

/// The line. Whoever connects while it is cut is refused.
pub(crate) struct Line {
    server: SocketAddr,
    address: SocketAddr,
    open: Option<Open>,
    /// Of the kubeconfig.
    folder: tempfile::TempDir,
}

/// A relay that takes connections.
struct Open {
    stopped: Arc<Mutex<bool>>,
    taking: thread::JoinHandle<()>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Line {
    /// A line to the cluster's server, open, and a kubeconfig of its administrator's that leads through it.
    pub(crate) fn to(cluster: &Cluster) -> Self {
        let text = cluster.kubectl(
            &[
                "config",
                "view",
                "--raw",
                "--flatten",
                "--minify",
                "-o",
                "json",
            ],
            "",
        );
        let mut config: Value = serde_json::from_str(&text).unwrap();
        let there = &mut config["clusters"][0]["cluster"];
        let server = there["server"]
            .as_str()
            .unwrap()
            .trim_start_matches("https://")
            .to_owned();
        let with_port = if server.contains(':') {
            server.clone()
        } else {
            format!("{server}:443")
        };
        let host = with_port.rsplit_once(':').unwrap().0.to_owned();
        let mut line = Self {
            server: with_port.parse().unwrap(),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            open: None,
            folder: tempfile::tempdir().unwrap(),
        };
        line.mend();
        there["server"] = json!(format!("https://{}", line.address));
        there["tls-server-name"] = json!(host);
        std::fs::write(line.kubeconfig(), config.to_string()).unwrap();
        line
    }

    /// Where the kubeconfig is.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Ends every connection, and takes no more.
    pub(crate) fn cut(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        *open.stopped.lock().unwrap() = true;
        // Wakes whoever waits for the next one.
        drop(TcpStream::connect(self.address));
        open.taking.join().unwrap();
        for stream in open.streams.lock().unwrap().drain(..) {
            let _ended_already = stream.shutdown(Shutdown::Both);
        }
    }

    /// Takes connections, at the same address as before.
    pub(crate) fn mend(&mut self) {
        let listener = listen(self.address);
        self.address = listener.local_addr().unwrap();
        let (stopped, streams) = (
            Arc::new(Mutex::new(false)),
            Arc::new(Mutex::new(Vec::new())),
        );
        let (server, is_over, kept) = (self.server, Arc::clone(&stopped), Arc::clone(&streams));
        let taking = thread::spawn(move || {
            for taken in listener.incoming() {
                if *is_over.lock().unwrap() {
                    return;
                }
                if let Err(error) = taken.and_then(|taken| relay(taken, server, &kept)) {
                    eprintln!("a connection to the API server: {error}");
                }
            }
        });
        self.open = Some(Open {
            stopped,
            taking,
            streams,
        });
    }

    /// Connections that were made since the line was open.
    pub(crate) fn connections(&self) -> usize {
        self.open
            .as_ref()
            .map_or(0, |open| open.streams.lock().unwrap().len() / 2)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.cut();
    }
}

/// The port of before may still be on its way out.
fn listen(address: SocketAddr) -> TcpListener {
    for _ in 0..100 {
        if let Ok(listener) = TcpListener::bind(address) {
            return listener;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{address} cannot be had again");
}

fn relay(from: TcpStream, server: SocketAddr, kept: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let to = TcpStream::connect(server)?;
    kept.lock()
        .unwrap()
        .extend([from.try_clone()?, to.try_clone()?]);
    for (mut here, mut there) in [(from.try_clone()?, to.try_clone()?), (to, from)] {
        thread::spawn(move || {
            let _ends_with_either = io::copy(&mut here, &mut there);
            let _ended_already = there.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
