//! What is served to whom: the policy goes with every file, other sites and other names are refused, and nothing can be changed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::recorded::Recorded;

/// The head and the body of what is answered to this method and target with these further headers.
fn asked(agent: &Recorded, request: &str, headers: &str) -> (String, String) {
    let origin = agent.origin();
    let address = origin.strip_prefix("http://").unwrap();
    let host = if headers.contains("Host:") {
        String::new()
    } else {
        format!("Host: {address}\r\n")
    };
    let mut stream = TcpStream::connect(address).unwrap();
    let text = format!("{request} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[track_caller]
fn check(agent: &Recorded, request: &str, headers: &str, status: u16) {
    let (head, _) = asked(agent, request, headers);
    let expected = format!("HTTP/1.1 {status} ");
    assert!(head.starts_with(&expected), "{request} {headers}: {head}");
}

#[test]
fn other_names_and_other_sites_are_refused_and_nothing_can_be_changed() {
    let agent = Recorded::start();
    let own = format!(
        "Origin: {}\r\nSec-Fetch-Site: same-origin\r\n",
        agent.origin()
    );
    for path in [
        "/",
        "/assets/live.js",
        "/v1/status",
        "/v1/rank",
        "/v1/incidents",
    ] {
        let get = format!("GET {path}");
        check(&agent, &get, "", 200);
        check(&agent, &get, &own, 200);
        check(&agent, &get, "Host: brink.evil.example\r\n", 421);
        check(&agent, &get, "Origin: http://evil.example\r\n", 403);
        check(&agent, &get, "Origin: null\r\n", 403);
        // Another server on this machine is another site too.
        check(&agent, &get, "Origin: http://127.0.0.1:1\r\n", 403);
        check(
            &agent,
            &get,
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
            403,
        );
        check(
            &agent,
            &get,
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n",
            200,
        );
        check(&agent, &format!("POST {path}"), "", 405);
        check(&agent, &format!("DELETE {path}"), "", 405);
    }
    let events = "GET /v1/events?follow=0";
    check(&agent, events, &own, 200);
    check(&agent, events, "Origin: http://evil.example\r\n", 403);
}

/// What is not understood would be answered as if it had not been asked.
#[test]
fn a_ranking_is_asked_for_by_its_signal_alone() {
    let agent = Recorded::start();
    for (query, status, says) in [
        ("", 200, "\"kind\":\"Ranking\""),
        ("?signal=pid.available", 200, "\"kind\":\"Ranking\""),
        (
            "?signals=pid.available",
            400,
            "there is no key \\\"signals\\\"",
        ),
        (
            "?Signal=pid.available",
            400,
            "there is no key \\\"Signal\\\"",
        ),
        (
            "?signal=pid.available&limit=3",
            400,
            "the only key is signal",
        ),
        (
            "?signal=pid.available&signal=memory.available",
            400,
            "signal is given twice",
        ),
    ] {
        let request = format!("GET /v1/rank{query}");
        check(&agent, &request, "", status);
        let (_, body) = asked(&agent, &request, "");
        assert!(body.contains(says), "{query}: {body}");
    }
}

#[test]
fn the_policy_goes_with_every_file_and_known_ones_are_not_sent_again() {
    let agent = Recorded::start();
    for path in ["/", "/assets/page.css", "/assets/words.js"] {
        let (head, body) = asked(&agent, &format!("GET {path}"), "");
        for header in [
            "Content-Security-Policy: default-src 'none'; script-src 'self'; ",
            "frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "Cross-Origin-Resource-Policy: same-origin",
            "Cache-Control: no-cache",
        ] {
            assert!(head.contains(header), "{header} in {head}");
        }
        assert!(!body.is_empty());
        let tag = head
            .lines()
            .find_map(|line| line.strip_prefix("ETag: "))
            .unwrap();
        let (head, body) = asked(
            &agent,
            &format!("GET {path}"),
            &format!("If-None-Match: {tag}\r\n"),
        );
        assert!(head.starts_with("HTTP/1.1 304 "), "{head}");
        assert_eq!(body, "");
        check(
            &agent,
            &format!("GET {path}"),
            "If-None-Match: \"other\"\r\n",
            200,
        );
    }
    let (head, _) = asked(&agent, "GET /v1/status", "");
    assert!(
        head.contains("Cross-Origin-Resource-Policy: same-origin"),
        "{head}"
    );
    assert!(head.contains("Cache-Control: no-store"), "{head}");
}
