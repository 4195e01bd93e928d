//! The herald before a server on loopback that wants to know who asks, while the token by which it knows is replaced.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use crate::client::Access;

use super::*;

/// Takes requests for ever, and knows one token at a time; which token each came with is sent on.
fn server(known: Arc<Mutex<&'static str>>) -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (came, with) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut token, mut length) = (String::new(), 0);
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                let (name, value) = line.trim().split_once(": ").unwrap_or((&line, ""));
                match name.to_ascii_lowercase().as_str() {
                    "authorization" => value.trim_start_matches("Bearer ").clone_into(&mut token),
                    "content-length" => length = value.parse().unwrap(),
                    _ => {}
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let status = if token == *known.lock().unwrap() {
                "200 OK"
            } else {
                "401 Unauthorized"
            };
            let mut stream = reader.into_inner();
            let answer =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}");
            stream.write_all(answer.as_bytes()).unwrap();
            if came.send(token).is_err() {
                return;
            }
        }
    });
    (port, with)
}

/// A kubeconfig with this token, put in the place of the one before at once.
fn kubeconfig(folder: &Path, port: u16, token: &str) -> PathBuf {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
         users: [{{name: u, user: {{token: {token}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    let (aside, path) = (folder.join("new"), folder.join("kubeconfig"));
    std::fs::write(&aside, text).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    path
}

/// With which tokens the last words were said, where the server knows only `second` by then.
async fn last_words(is_replaced: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let known = Arc::new(Mutex::new("first"));
    let (port, with) = server(Arc::clone(&known));
    let access = Access::new(Some(kubeconfig(folder.path(), port, "first")), None, None);
    let (wanted, receiver) = watch::channel(Wanted::Nothing);
    let herald = Herald {
        door: Door::new(access),
        node: "node-a".to_owned(),
        seed: 7,
        taints: false,
        wanted: receiver,
        file: folder.path().join("node.json"),
    };
    let says = Wanted::Says {
        measured: [Condition::MemoryPressure].into_iter().collect(),
        held: ConditionSet::default(),
        beside: None,
    };
    wanted.send_replace(says);
    let task = tokio::spawn(herald.run());
    let told = tokio::task::spawn_blocking(move || (with.recv().unwrap(), with));
    let (first, with) = told.await.unwrap();
    assert_eq!(first, "first");
    *known.lock().unwrap() = "second";
    if is_replaced {
        kubeconfig(folder.path(), port, "second");
    }
    drop(wanted);
    task.await.unwrap();
    with.try_iter().collect()
}

#[tokio::test]
async fn a_token_that_was_replaced_at_the_end_is_taken_for_the_last_words() {
    assert_eq!(last_words(true).await, ["first", "second"]);
    assert_eq!(last_words(false).await, ["first"]);
}
