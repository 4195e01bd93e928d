//! Clients that not every machine lets a test be: a thousand at once, and another user.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use brink_tests::skip;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::thread::{Uid, set_thread_res_uid};

use super::*;

/// Lets this process open so many files; the most it may have where that is less.
fn raise_open_files(wanted: u64) -> Result<(), u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        let current = Some(maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    }
    match maximum {
        Some(maximum) if maximum < wanted => Err(maximum),
        _ => Ok(()),
    }
}

/// At the socket, where only root and our own user are let in: idle connections make room for the others, and those who follow already
/// go on meanwhile. Fewer of both, and what anybody can do to a port, are tested with the hostile clients.
#[test]
fn a_thousand_idle_connections_keep_nobody_from_the_socket() {
    // Those let in are open at both ends in this one process, and other tests' beside them.
    if let Err(most) = raise_open_files(3072) {
        skip!("needs 3,072 open files in one process, which may have {most}");
    }
    run(async {
        let hub = hub_of(0, 10);
        tell(&hub, Kind::Pressure, None);
        let served = Served::new(service(&hub));
        let mut following = served.follow("/v1/events?follow=1", "").await;
        let mut idle = Vec::new();
        for _ in 0..1000 {
            idle.push(served.connect().await);
            tokio::task::yield_now().await;
        }
        tell(&hub, Kind::OomKill, None);
        following.until("oom-kill").await;
        let answer = served.get("/v1/events").await;
        assert_eq!((answer.status, answer.numbers()), (200, vec![1, 2]));
        drop(idle);
    });
}

/// Asks as another user, from a thread that has become that one; the kernel tells the server so.
fn asked_by(uid: Uid, path: &Path) -> String {
    set_thread_res_uid(uid, uid, uid).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    let request = b"GET /v1/events HTTP/1.1\r\nConnection: close\r\n\r\n";
    // Who is refused early may not take everything.
    let _written = stream.write_all(request);
    let mut answer = String::new();
    let _reset = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn another_user_is_refused_even_where_the_socket_is_open_to_all() {
    if !geteuid().is_root() {
        skip!("needs root, to ask as another user");
    }
    run(async {
        let hub = hub_of(0, 10);
        tell(&hub, Kind::Pressure, None);
        let served = Served::new(service(&hub));
        let path = served.path();
        for (place, mode) in [(served.folder.path(), 0o755), (path.as_path(), 0o666)] {
            let open = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(place, open).unwrap();
        }
        let stranger = Uid::from_raw(65_534);
        let asked = tokio::task::spawn_blocking({
            let path = path.clone();
            move || std::thread::spawn(move || asked_by(stranger, &path)).join()
        });
        let answer = Answer::parse(asked.await.unwrap().unwrap().as_bytes());
        assert_eq!(answer.status, 403, "{answer:?}");
        let error = answer.json()["error"].to_string();
        assert!(error.contains("uid 65534 asked"), "{error}");
        let ours = served.get("/v1/events").await;
        assert_eq!((ours.status, ours.numbers()), (200, vec![1]));
    });
}
