//! `events`: where they are served, and what is no place for that.

use super::*;

/// Faults of a configuration that has these lines.
fn faults(text: &str) -> Vec<String> {
    Folder::new(&[("config.yaml", &format!("{HEAD}{text}\n"))]).faults()
}

fn events(text: &str) -> Events {
    let folder = Folder::new(&[("config.yaml", &format!("{HEAD}{text}\n"))]);
    folder.load().config.events
}

#[test]
fn the_socket_follows_the_state_directory_and_the_port_is_asked_for() {
    let told = events("paths: {stateDir: /run/other}");
    assert_eq!(told.socket, Path::new("/run/other/events.sock"));
    let told = events("events: {enabled: false, socket: /tmp/e, listen: '[::1]:80'}");
    assert_eq!(
        (told.enabled, told.socket.to_str()),
        (false, Some("/tmp/e"))
    );
    assert_eq!(told.listen, "[::1]:80".parse().ok());
    assert_eq!(events("events: {listen: none}").listen, None);
}

#[test]
fn a_way_out_of_events_that_are_off_is_doubted() {
    let doubts = |text: &str| {
        let folder = Folder::new(&[("config.yaml", &format!("{HEAD}{text}\n"))]);
        let warnings = folder.load().warnings.into_iter();
        warnings.map(|each| each.path).collect::<Vec<_>>()
    };
    let asked =
        "listen: '127.0.0.1:9753', page: true, file: {path: /tmp/e}, stdout: json, journald: true";
    assert_eq!(
        doubts(&format!("events: {{enabled: false, {asked}}}")),
        ["listen", "file", "stdout", "journald"].map(|key| format!("events.{key}"))
    );
    let none = "listen: none, file: none, stdout: none, journald: false";
    for quiet in [format!("enabled: false, {none}"), asked.to_owned()] {
        assert_eq!(doubts(&format!("events: {{{quiet}}}")), [""; 0], "{quiet}");
    }
}

#[test]
fn what_is_no_place_is_a_fault_with_its_own() {
    let long = format!("/{}", "x".repeat(107));
    for (text, expected) in [
        (
            "events: {listen: '0.0.0.0:80'}",
            "config.yaml:3:18: events.listen: \"0.0.0.0:80\": not on loopback",
        ),
        ("events: {listen: '192.0.2.7:80'}", "not on loopback"),
        ("events: {listen: '[::]:80'}", "not on loopback"),
        ("events: {listen: 'localhost:80'}", "no address with a port"),
        ("events: {listen: 127.0.0.1}", "no address with a port"),
        ("events: {listen: '127.0.0.1:0'}", "without a port"),
        (
            "events: {listen: '127.0.0.1:70000'}",
            "no address with a port",
        ),
        ("events: {listen: ''}", "empty"),
        ("events: {listen: '', page: true}", "empty"),
        (
            "events: {listen: '0.0.0.0:80', page: true}",
            "not on loopback",
        ),
        (
            "events: {listen: localhost, page: true}",
            "no address with a port",
        ),
        (
            "events: {listen: none, page: true}",
            "without events.listen no browser can open it",
        ),
        ("events: {enable: true}", "did you mean enabled?"),
        ("events: {enabled: 1}", "events.enabled"),
        ("events: yes", "accepted: a map"),
        (
            &format!("events:\n  socket: {long}"),
            "config.yaml:4:11: events.socket: ",
        ),
        (&format!("events: {{socket: {long}}}"), "has 108 bytes"),
        (&format!("paths: {{socket: {long}}}"), "paths.socket: "),
        (
            "events: {socket: /tmp/a}\npaths: {socket: /tmp/a}",
            "config.yaml:3:18: events.socket: \"/tmp/a\": events.socket and paths.socket are the same",
        ),
        (
            "paths: {socket: /run/brink/events.sock}",
            "config.yaml:3:17: paths.socket: ",
        ),
    ] {
        let said = faults(text);
        assert_eq!(said.len(), 1, "{text}: {said:#?}");
        assert!(said[0].contains(expected), "{text}: {said:#?}");
    }
    for file in ["/var/lib/brink/events/lines.json", "/j/a/b"] {
        let journal = "journal: {path: /j}, ".repeat(usize::from(file.starts_with("/j")));
        let said = faults(&format!("events: {{{journal}file: {{path: {file}}}}}"));
        assert_eq!(said.len(), 1, "{file}: {said:#?}");
        assert!(said[0].contains("events.file.path: "), "{said:#?}");
    }
    let apart = "events: {journal: {enabled: false}, file: {path: /var/lib/brink/events/lines}}";
    assert!(events(apart).outlets.file.is_some());
    let state = format!("paths: {{stateDir: /{}}}", "x".repeat(100));
    let said = faults(&state);
    assert!(said[0].contains("paths.stateDir: "), "{said:#?}");
}

#[test]
fn metrics_are_served_where_they_are_asked_for_and_not_beside_nothing() {
    let listen = |text: &str| {
        let folder = Folder::new(&[("config.yaml", &format!("{HEAD}{text}\n"))]);
        folder.load().config.metrics_listen
    };
    assert_eq!(listen("mode: observe"), None);
    assert_eq!(listen("metrics: {listen: none}"), None);
    for address in ["0.0.0.0:9820", "[::]:9820", "192.0.2.7:80"] {
        let text = format!("metrics: {{listen: '{address}'}}");
        assert_eq!(listen(&text), address.parse().ok(), "{address}");
    }
    for (text, expected) in [
        ("metrics: {listen: '0.0.0.0'}", "no address with a port"),
        ("metrics: {listen: '0.0.0.0:0'}", "without a port"),
        ("metrics: {port: 9820}", "metrics.port"),
        (
            "events: {enabled: false}\nmetrics: {listen: '0.0.0.0:9820'}",
            "nothing is served",
        ),
        (
            "events: {listen: '127.0.0.1:9820'}\nmetrics: {listen: '127.0.0.1:9820'}",
            "one port of one address",
        ),
        (
            "events: {listen: '127.0.0.1:9820'}\nmetrics: {listen: '[::ffff:127.0.0.1]:9820'}",
            "one port of one address",
        ),
        (
            "events: {listen: '127.0.0.1:9820'}\nmetrics: {listen: '[::]:9820'}",
            "one port of one address",
        ),
        (
            "events: {listen: '127.0.0.1:9820'}\nmetrics: {listen: '0.0.0.0:9820'}",
            "one port of one address",
        ),
    ] {
        let said = faults(text);
        assert_eq!(said.len(), 1, "{text}: {said:#?}");
        assert!(said[0].contains(expected), "{text}: {said:#?}");
    }
}

#[test]
fn what_can_listen_side_by_side_may() {
    for metrics in ["127.0.0.2:9820", "127.0.0.1:9821", "[::1]:9820"] {
        let text = format!(
            "{HEAD}events: {{listen: '127.0.0.1:9820'}}\nmetrics: {{listen: '{metrics}'}}\n"
        );
        let folder = Folder::new(&[("config.yaml", &text)]);
        let told = folder.load().config;
        assert!(told.metrics_listen.is_some(), "{metrics}");
    }
}

#[test]
fn paths_that_follow_from_others_are_shown_where_nobody_wrote_them() {
    let text = format!("{HEAD}paths: {{stateDir: /run/other, socket: /run/b.sock}}\n");
    let checked = Folder::new(&[("config.yaml", &text)]).load();
    let shown = to_json(&checked.tree);
    assert_eq!(shown["paths"]["socket"], "/run/b.sock");
    assert_eq!(shown["events"]["socket"], "/run/other/events.sock");
    assert_eq!(shown["events"]["journal"]["path"], "/run/other/events");
    let storage = json!({"volumeStatsAggPeriod": "1m", "podLogsDir": "/var/log/pods"});
    assert_eq!(shown["storage"], storage);
    let origins = checked.to_json_with_origins().origins;
    assert_eq!(origins["events.journal.path"], "default");
    let again = Folder::new(&[("config.yaml", &checked.to_yaml(true))]).load();
    assert_eq!(to_json(&again.tree), shown);
    assert_eq!(again.config.events, checked.config.events);
    assert_eq!(again.config.storage, checked.config.storage);
}

#[test]
fn all_that_is_wrong_with_a_file_of_events_is_told_at_once() {
    let said = faults("events: {file: {path: rel, format: xml, maxFiles: -1, maxSize: 1}}");
    assert_eq!(said.len(), 4, "{said:#?}");
    for key in ["path", "format", "maxFiles", "maxSize"] {
        let key = format!("events.file.{key}");
        assert!(
            said.iter().any(|each| each.contains(&key)),
            "{key}: {said:#?}"
        );
    }
}
