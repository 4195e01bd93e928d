//! Clients that mean harm or know no better.

use super::*;

fn bounded(connections: usize, hearing: Duration) -> Bounds {
    Bounds {
        connections,
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
        let connect = || tokio::net::TcpStream::connect(address);
        let crowd = [connect().await.unwrap(), connect().await.unwrap()];
        let mut raw = Vec::new();
        let mut third = connect().await.unwrap();
        third.read_to_end(&mut raw).await.unwrap();
        assert_eq!(Answer::parse(&raw).status, 503);
        let request = b"GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let answer = say(&path, request).await;
        assert_eq!((answer.status, answer.numbers()), (200, vec![1]));
        drop(crowd);
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
