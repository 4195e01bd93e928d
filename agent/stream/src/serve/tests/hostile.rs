//! Clients that mean harm or know no better.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::TcpStream;

use super::*;

fn bounded(connections: usize, hearing: Duration) -> Bounds {
    Bounds {
        connections,
        at_port: connections,
        hearing,
        ..Bounds::default()
    }
}

#[test]
fn what_is_no_request_is_refused_with_a_body() {
    let long = |bytes: usize| format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(bytes));
    let many = "X: 1\r\n".repeat(65);
    let many = format!("GET / HTTP/1.1\r\n{many}\r\n");
    let header = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
    let (longer, longest) = (long(20_000), long(2_000_000));
    let cases: [(&[u8], u16); 13] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n: x\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"{\"question\":\"status\"}\n", 400),
        (b"POST /v1/events HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (
            b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (longer.as_bytes(), 431),
        (longest.as_bytes(), 431),
        (many.as_bytes(), 431),
        (header.as_bytes(), 431),
    ];
    run(async {
        let hub = hub_of(0, 10);
        let served = Served::new(service(&hub));
        for (bytes, status) in cases {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
            let answer = served.say(bytes).await;
            assert_eq!(answer.status, status, "{shown}: {answer:?}");
            let body = answer.json();
            assert!(
                body["error"].is_string() && body["next"].is_string(),
                "{shown}"
            );
            assert!(answer.head.contains("Connection: close"), "{shown}");
        }
        assert_eq!(served.get("/v1/events").await.status, 200);
    });
}

#[test]
fn a_head_may_come_byte_by_byte_but_not_for_ever() {
    run(async {
        let hub = hub_of(0, 10);
        let served = Served::new(service(&hub));
        let mut stream = served.connect().await;
        for byte in b"GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" {
            stream.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut raw = Vec::new();
        stream.read_to_end(&mut raw).await.unwrap();
        assert_eq!(Answer::parse(&raw).status, 200);

        let hasty = bounded(4, Duration::from_millis(50));
        let served = Served::new(service(&hub).with_bounds(hasty));
        let late = served.say(b"GET /v1/events HT").await;
        assert_eq!(late.status, 408, "{late:?}");
        assert!(
            served.say(b"").await.head.is_empty(),
            "who says nothing is told nothing"
        );
    });
}

#[test]
fn one_connection_too_many_is_refused_until_there_is_room() {
    run(async {
        let hub = hub_of(0, 10);
        let served = Served::new(service(&hub).with_bounds(bounded(2, PATIENCE)));
        let first = served.follow("/v1/events?follow=1", "").await;
        let _second = served.follow("/v1/events?follow=1", "").await;
        let third = served.get("/v1/events").await;
        assert_eq!(third.status, 503, "{third:?}");
        assert!(
            third.json()["error"]
                .to_string()
                .contains("all 2 connections")
        );
        // In the middle of its stream.
        drop(first);
        while served.get("/v1/events").await.status != 200 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn whoever_fills_the_port_keeps_nobody_from_the_socket() {
    run(async {
        let hub = hub_of(0, 10);
        tell(&hub, Kind::Pressure, None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.sock");
        let port = Door::loopback("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = port.address().unwrap();
        let doors = vec![Door::unix(&path).unwrap(), port];
        let served = service(&hub).with_bounds(bounded(2, PATIENCE));
        tokio::spawn(Arc::new(served).serve(doors));
        // Who follows keeps its place; who only waits does not.
        let follow = b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let mut crowd = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(follow).await.unwrap();
            stream.read_u8().await.unwrap();
            crowd.push(stream);
        }
        let mut raw = Vec::new();
        let mut third = TcpStream::connect(address).await.unwrap();
        third.read_to_end(&mut raw).await.unwrap();
        assert_eq!(Answer::parse(&raw).status, 503);
        let request = b"GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let answer = say(&path, request).await;
        assert_eq!((answer.status, answer.numbers()), (200, vec![1]));
        drop(crowd);
    });
}

#[test]
fn connections_that_say_nothing_keep_nobody_from_the_socket() {
    run(async {
        let hub = hub_of(0, 10);
        let served = Served::new(service(&hub).with_bounds(bounded(2, PATIENCE)));
        let mut following = served.follow("/v1/events?follow=1", "").await;
        let mut idle = served.connect().await;
        assert_eq!(served.get("/v1/events").await.status, 200);
        // Its wait has ended for that one; whoever follows goes on.
        assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
        tell(&hub, Kind::OomKill, None);
        following.until("oom-kill").await;
    });
}

/// More than are listened to at a time. None of them reads before all of them are there, or goes before all have read.
const CROWD: usize = 150;

#[test]
fn each_of_a_crowd_that_finds_no_room_is_told_so() {
    const REQUEST: &[u8] = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    run(async {
        let hub = hub_of(0, 10);
        let served = Served::new(service(&hub).with_bounds(bounded(1, PATIENCE)));
        let _first = served.follow("/v1/events?follow=1", "").await;
        let mut crowd = Vec::new();
        for at in 0..CROWD {
            let mut stream = served.connect().await;
            // Some ask nothing.
            if at % 3 > 0 {
                // One that had to go by then has its answer already.
                let _written = stream.write_all(REQUEST).await;
            }
            crowd.push(stream);
        }
        for (at, stream) in crowd.iter_mut().enumerate() {
            let mut raw = Vec::new();
            let _reset = stream.read_to_end(&mut raw).await;
            assert_eq!(Answer::parse(&raw).status, 503, "client {at}");
        }
    });
}

#[test]
fn what_is_no_request_is_answered_without_an_address_that_may_be_another() {
    run(async {
        let address = public(Bounds::default(), Bytes::from_static(b"ok"));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"nonsense\r\n\r\n").await.unwrap();
        let mut raw = Vec::new();
        stream.read_to_end(&mut raw).await.unwrap();
        let answer = Answer::parse(&raw);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains("http://ADDRESS/PATH"), "{answer:?}");
        assert!(!answer.body.contains("/run/"), "{answer:?}");
    });
}

/// A public port, and what is served there.
fn public(bounds: Bounds, body: Bytes) -> SocketAddr {
    let mut routes = Routes::default();
    let page = move |_: &Request| Reply::new(200, "text/plain", body.clone());
    routes.add("/livez", Arc::new(page));
    let service = service(&hub_of(0, 10)).with_public(routes);
    let door = Door::public("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = door.address().unwrap();
    tokio::spawn(Arc::new(service.with_bounds(bounds)).serve(vec![door]));
    address
}

const PROBE: &[u8] = b"GET /livez HTTP/1.1\r\nHost: 192.0.2.7:9820\r\n\r\n";

/// Asks as a kubelet does, and reads the head of the answer.
async fn probe(stream: &mut TcpStream) -> Answer {
    stream.write_all(PROBE).await.unwrap();
    let mut raw = Vec::new();
    while !raw.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = stream.read_buf(&mut raw).await.unwrap();
        assert!(read > 0, "the head of the answer");
    }
    Answer::parse(&raw)
}

#[test]
fn connections_that_say_nothing_keep_no_probe_from_its_answer() {
    run(async {
        let bounds = Bounds::default();
        let address = public(bounds, Bytes::from_static(b"ok"));
        let mut silent = Vec::new();
        for place in 0..bounds.connections {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // Some have asked once and stay, as a client does that asks every nine seconds.
            if place % 4 == 1 {
                assert_eq!(probe(&mut stream).await.status, 200);
            }
            silent.push(stream);
        }
        let mut kubelet = TcpStream::connect(address).await.unwrap();
        assert_eq!(probe(&mut kubelet).await.status, 200);
        // The longest wait has ended for it, and no other.
        assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0);
        let last = silent.last_mut().unwrap();
        assert_eq!(probe(last).await.status, 200);
    });
}

#[test]
fn who_does_not_take_a_public_answer_keeps_no_probe_from_its_own() {
    run(async {
        // More than the kernel takes for a client that reads nothing.
        let long = Bytes::from(vec![b'x'; 32 << 20]);
        let address = public(bounded(2, PATIENCE), long);
        let mut crowd = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            assert_eq!(probe(&mut stream).await.status, 200);
            crowd.push(stream);
        }
        let mut kubelet = TcpStream::connect(address).await.unwrap();
        assert_eq!(probe(&mut kubelet).await.status, 200);
    });
}

#[test]
fn who_takes_nothing_for_too_long_is_given_up() {
    run(async {
        let hub = hub_of(0, 10);
        let bounds = Bounds {
            connections: 1,
            stall: Duration::from_millis(50),
            ..Bounds::default()
        };
        let served = Served::new(service(&hub).with_bounds(bounds));
        let stalled = served.follow("/v1/events?follow=1", "").await;
        let filler = "x".repeat(1 << 20);
        let at = Time::new(START_US, 0);
        hub.tell(Draft::new(Kind::Pressure, at, None, &json!({"filler": filler})).unwrap());
        while served.get("/v1/events?since=now").await.status != 200 {
            tokio::task::yield_now().await;
        }
        assert!(!stalled.rest().await.is_whole);
    });
}

#[test]
fn the_port_on_loopback_has_fewer_places_than_the_socket() {
    run(async {
        let hub = hub_of(0, 10);
        let bounds = Bounds {
            connections: 3,
            at_port: 1,
            ..Bounds::default()
        };
        let door = Door::loopback("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = door.address().unwrap();
        let service = Arc::new(service(&hub).with_bounds(bounds));
        tokio::spawn(service.serve(vec![door]));
        let follow = b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut streams = Vec::new();
        for status in ["200", "503"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(follow).await.unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, format!("HTTP/1.1 {status}").as_bytes());
            streams.push(stream);
        }
    });
}
