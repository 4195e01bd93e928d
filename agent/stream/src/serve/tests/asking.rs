//! What can be asked for, and how a mistake is answered.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// Ten events: workloads of two namespaces, and the node.
fn told() -> Hub {
    let hub = hub_of(0, 100);
    tell(&hub, Kind::AgentStarted, None);
    tell(&hub, Kind::OomKill, Some(("prod", "web")));
    tell(&hub, Kind::OomKill, Some(("prod", "db")));
    tell(&hub, Kind::WorkloadEnded, Some(("test", "web")));
    tell(&hub, Kind::Pressure, None);
    tell(&hub, Kind::IncidentClosed, Some(("prod", "web")));
    tell(&hub, Kind::WorkloadStarted, Some(("", "cron")));
    tell(&hub, Kind::Loss, None);
    tell(&hub, Kind::Pressure, None);
    tell(&hub, Kind::ThresholdCleared, None);
    hub
}

#[test]
fn events_are_found_by_place_kind_and_workload() {
    run(async {
        let served = Served::new(service(&told()));
        for (query, expected) in [
            ("", vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            ("?since=0", vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            ("?since=8", vec![9, 10]),
            (&format!("?since={BOOT}:9"), vec![10]),
            (&format!("?since={BOOT}%3a9&follow=false"), vec![10]),
            ("?since=10", vec![]),
            ("?since=now", vec![]),
            ("?since=1s", vec![9, 10]),
            ("?since=3s500ms", vec![7, 8, 9, 10]),
            ("?since=100d", vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            ("?kind=oom-kill,incident-closed", vec![2, 3, 6]),
            ("?kind=oom-kill&limit=1", vec![2]),
            ("?limit=3&follow=1&since=0", vec![1, 2, 3]),
            ("?namespace=prod", vec![2, 3, 6]),
            ("?namespace=", vec![7]),
            ("?pod=web", vec![2, 4, 6]),
            ("?pod=web&namespace=test&", vec![4]),
            ("?pod=none", vec![]),
        ] {
            let answer = served.get(&format!("/v1/events{query}")).await;
            assert!(
                answer.status == 200 && answer.is_whole,
                "{query}: {answer:?}"
            );
            assert!(answer.head.contains("Content-Type: application/x-ndjson"));
            assert_eq!(answer.numbers(), expected, "{query}");
        }
    });
}

#[test]
fn what_cannot_be_asked_is_refused_with_what_to_do() {
    let cases = [
        ("/v1/events?since=11", 400, "the last one is 10"),
        ("/v1/events?since=-1", 400, "BOOT:17"),
        ("/v1/events?since=+1", 400, "BOOT:17"),
        ("/v1/events?since=", 400, "BOOT:17"),
        ("/v1/events?since=:3", 400, "BOOT:17"),
        ("/v1/events?since=1:2:3", 400, "BOOT:17"),
        ("/v1/events?since=3f2a:3", 400, "BOOT:17"),
        (
            "/v1/events?since=3f2a00000-000-4000-8000-000000000000:3",
            400,
            "BOOT:17",
        ),
        (
            "/v1/events?since=3f2a0000-0000-4000-8000-00000000000g:3",
            400,
            "BOOT:17",
        ),
        ("/v1/events?since=99999999999999999999", 400, "BOOT:17"),
        ("/v1/events?since=99999999999999999d", 400, "BOOT:17"),
        ("/v1/events?since=10m5", 400, "BOOT:17"),
        ("/v1/events?follow=maybe", 400, "1 or 0"),
        ("/v1/events?kind=oomkill", 400, "threshold-crossed"),
        ("/v1/events?kind=loss,", 400, "threshold-crossed"),
        ("/v1/events?kind=loss&kind=pressure", 400, "commas"),
        ("/v1/events?limit=0", 400, "1 or more"),
        ("/v1/events?limit=many", 400, "1 or more"),
        ("/v1/events?pod=", 400, "leave the key out"),
        ("/v1/events?format=xml", 400, "cloudevents"),
        ("/v1/events?format=cloudevents", 400, "format=json"),
        ("/v1/events?colour=red", 400, "the keys are since, follow"),
        ("/v1/events?pod=%zz", 400, "hexadecimal"),
        ("/v1/events?pod=%ff", 400, "hexadecimal"),
        ("/v1/events?pod=%00", 400, "hexadecimal"),
        ("v1/events", 400, "hexadecimal"),
        (
            "/v1/event",
            404,
            "the paths are /v1/events, /v1/incidents, /v1/incidents/ID, /page",
        ),
        (
            "/",
            404,
            "the paths are /v1/events, /v1/incidents, /v1/incidents/ID, /page",
        ),
        ("http://else.where/nothing", 404, "the paths are"),
    ];
    run(async {
        let mut routes = Routes::default();
        routes.add("/page", Arc::new(|_| Reply::new(200, "text/plain", "page")));
        let served = Served::new(service(&told()).with_routes(routes));
        for (target, status, next) in cases {
            let answer = served.get(target).await;
            assert_eq!(answer.status, status, "{target}: {answer:?}");
            let body = answer.json();
            assert!(body["error"].as_str().is_some_and(|text| !text.is_empty()));
            assert!(body["next"].as_str().is_some_and(|text| !text.is_empty()));
            assert!(answer.body.contains(next), "{target}: {body}");
        }
    });
}

#[test]
fn pages_of_other_parts_are_served_beside() {
    run(async {
        let mut routes = Routes::default();
        routes.add(
            "/page",
            Arc::new(|request: &Request| {
                let body = format!("{} {:?}", request.path, request.query);
                let reply = Reply::new(200, "text/plain", body);
                reply.with("X-Odd", "a\r\nInjected: yes")
            }),
        );
        routes.add(
            "/below/*",
            Arc::new(|request: &Request| Reply::json(200, &request.path)),
        );
        let served = Served::new(service(&told()).with_routes(routes));
        let answer = served.get("/page?a=b%20c&d").await;
        assert_eq!(answer.body, "/page [(\"a\", \"b c\"), (\"d\", \"\")]");
        assert!(
            answer.head.contains("\r\nX-Odd: aInjected: yes"),
            "{}",
            answer.head
        );
        assert!(answer.head.contains("X-Content-Type-Options: nosniff"));
        assert_eq!(served.get("/below/1/2").await.json(), "/below/1/2");
        assert_eq!(served.get("/below/").await.status, 404);
        assert_eq!(served.get("/pages").await.status, 404);
    });
}

#[test]
fn one_connection_takes_one_request_after_the_other() {
    run(async {
        let mut routes = Routes::default();
        routes.add(
            "/page",
            Arc::new(|_| Reply::new(200, "text/plain", "12345")),
        );
        let served = Served::new(service(&told()).with_routes(routes));
        let bytes = b"HEAD /page HTTP/1.1\r\nHost: x\r\n\r\nGET /page HTTP/1.1\r\nHost: x\r\n\r\nGET /page HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n";
        let answer = served.say(bytes).await;
        let parts: Vec<_> = answer.body.split("HTTP/1.1 200 OK").collect();
        assert!(parts[0].is_empty() && answer.head.contains("Content-Length: 5"));
        assert_eq!(parts.len(), 3, "{answer:?}");
        assert!(parts[1].ends_with("\r\n\r\n12345") && parts[2].ends_with("\r\n\r\n12345"));
        assert!(parts[2].contains("Connection: close"));

        let answer = served
            .say(b"HEAD /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
            .await;
        assert!(answer.status == 200 && answer.body.is_empty(), "{answer:?}");
        let old = served.say(b"GET /v1/events?since=9 HTTP/1.0\r\n\r\n").await;
        assert!(
            !old.head.contains("chunked") && old.numbers() == [10],
            "{old:?}"
        );
    });
}

#[test]
fn the_socket_is_private_and_goes_with_the_server() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below").join("events.sock");
        let door = Door::unix(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let taken = Door::unix(&path).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        drop(door);
        assert!(!path.exists());
    });
}

#[test]
fn a_port_answers_to_names_of_this_machine_alone() {
    run(async {
        let hub = told();
        let door = Door::loopback("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = door.address().unwrap();
        tokio::spawn(Arc::new(service(&hub)).serve(vec![door]));
        let elsewhere = "http://brink.evil.example/v1/events";
        for (target, hosts, status) in [
            ("/v1/events", &["127.0.0.1:9"][..], 200),
            ("/v1/events", &["localhost"], 200),
            ("/v1/events", &["[::1]:80"], 200),
            ("/v1/events", &["brink.evil.example"], 421),
            ("/v1/events", &["127.0.0.1.evil.example:80"], 421),
            ("/v1/events", &["192.0.2.1"], 421),
            ("/v1/events", &[""], 421),
            ("/v1/events", &[], 400),
            ("/v1/events", &["localhost", "brink.evil.example"], 400),
            ("/v1/events", &["localhost", "localhost"], 400),
            (elsewhere, &["localhost"], 421),
            ("http://localhost:80/v1/events", &["localhost:80"], 200),
        ] {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let host = |host: &&str| format!("Host: {host}\r\n");
            let named: String = hosts.iter().map(host).collect();
            let head = format!("GET {target} HTTP/1.1\r\n{named}Connection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut raw = Vec::new();
            stream.read_to_end(&mut raw).await.unwrap();
            let answer = Answer::parse(&raw);
            assert_eq!(answer.status, status, "{target} {hosts:?}: {answer:?}");
        }
    });
}

#[test]
fn a_public_port_has_the_public_pages_and_nothing_else() {
    run(async {
        let page = |text: &'static str| -> Handler {
            Arc::new(move |_: &Request| Reply::new(200, "text/plain", text))
        };
        let (mut all, mut public) = (Routes::default(), Routes::default());
        all.add("/private", page("secret"));
        public.add("/livez", page("ok"));
        let service = service(&told()).with_routes(all).with_public(public);
        let door = Door::public("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = door.address().unwrap();
        tokio::spawn(Arc::new(service).serve(vec![door]));
        for (target, status) in [
            ("/livez", 200),
            ("/livez?verbose", 200),
            ("/private", 404),
            ("/v1/events", 404),
            ("/v1/incidents", 404),
            ("/", 404),
        ] {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            // A kubelet asks by the pod's address, which is no name of this machine.
            let head = format!(
                "GET {target} HTTP/1.1\r\nHost: 192.0.2.7:9820\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut raw = Vec::new();
            stream.read_to_end(&mut raw).await.unwrap();
            let answer = Answer::parse(&raw);
            assert_eq!(answer.status, status, "{target}: {answer:?}");
            assert!(!answer.body.contains("secret"), "{answer:?}");
        }
    });
}
