//! `brink incident`: lists, pages, scenarios and files of incidents that an agent told.

use std::fs;
use std::path::Path;
use std::process::Output;

use brink_stream::hub::{self, Hub, Identity};
use brink_stream::journal::{self, Journal, Surroundings};
use brink_stream::model::event::{Draft, Event};
use serde_json::Value;

use super::events::{Agent, answer};
use super::{run, stderr, stdout, tests_folder};

/// What an agent tells that has seen an eviction and a kill of the kernel's.
fn told() -> String {
    let kinds = [
        "eviction-ordered",
        "eviction-completed",
        "oom-kill",
        "incident-closed",
    ];
    let events = kinds.map(|kind| {
        let path = tests_folder("events/v1alpha1").join(format!("{kind}.json"));
        fs::read_to_string(path).unwrap()
    });
    events.concat()
}

/// One of them as it was told last; none if there is none of that id.
fn last_of(id: &str) -> Option<String> {
    let told = told();
    let data = told.lines().map(|line| {
        let mut event: Value = serde_json::from_str(line).unwrap();
        event["data"].take()
    });
    let mut of_it = data.filter(|data| data["id"] == id);
    of_it.next_back().map(|data| data.to_string())
}

/// Who gives a whole id asks for that one first.
fn incident(args: &[&str]) -> Output {
    let events = answer("200 OK", &told());
    let (mut answers, mut questions) = (Vec::new(), Vec::new());
    let id = args.first().filter(|id| id.contains("3f2a-"));
    let whole = id.and_then(|id| last_of(id));
    if let Some(id) = id {
        questions.push(format!("GET /v1/incidents/{id} HTTP/1.1\r\n"));
        let refusal = || answer("404 Not Found", "{\"error\":\"no such incident\"}");
        let found = whole.as_ref().map(|whole| answer("200 OK", whole));
        answers.push(found.unwrap_or_else(refusal));
    }
    if whole.is_none() {
        let kinds = "eviction-ordered,eviction-completed,oom-kill,kill-observed,incident-closed";
        questions.push(format!("GET /v1/events?kind={kinds} HTTP/1.1\r\n"));
        answers.push(events);
    }
    let agent = Agent::of(&answers);
    let output = ask(&agent, args);
    assert_eq!(agent.asked(), questions.concat());
    output
}

fn ask(agent: &Agent, args: &[&str]) -> Output {
    let socket = agent.socket();
    let socket = ["incident", "--socket", socket.to_str().unwrap()];
    run(&[&socket, args].concat(), "")
}

#[track_caller]
fn good(args: &[&str]) -> String {
    let output = incident(args);
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(0), "")
    );
    stdout(&output)
}

#[test]
fn each_incident_is_listed_once_as_it_was_told_last() {
    assert_eq!(
        good(&[]),
        "  ID       WHEN                 WHAT     WHO                            HOW IT ENDED\n  \
           3f2a-21  2026-11-20T09:36:31  evicted  jobs/batch-1                   its memory came back\n  \
           3f2a-23  2026-11-20T09:36:31  limit    shop/web-5d9c7, container app  its memory came back\n"
    );
    let list: Value = serde_json::from_str(&good(&["-o", "json"])).unwrap();
    assert_eq!(list["kind"], "IncidentList");
    let items = list["items"].as_array().unwrap().iter();
    let told: Vec<_> = items
        .map(|one| (one["id"].as_str(), one["revision"].as_u64()))
        .collect();
    assert_eq!(
        told,
        [(Some("3f2a-23"), Some(2)), (Some("3f2a-21"), Some(2))],
        "the newest first"
    );
}

#[test]
fn the_beginning_of_an_id_is_enough_where_it_says_which() {
    assert!(good(&["3f2a-23"]).starts_with(
        "Incident 3f2a-23: the kernel killed shop/web-5d9c7, container app (java, pid 4711)"
    ));
    let whole: Value = serde_json::from_str(&good(&["3f2a-21", "-o", "json"])).unwrap();
    assert_eq!(
        (&whole["id"], &whole["isFinal"]),
        (&"3f2a-21".into(), &true.into())
    );
    for (id, says) in [
        ("3f", "3f2a-21, 3f2a-23"),
        ("3f2a-2", "3f2a-21, 3f2a-23"),
        ("9", "no incident 9"),
    ] {
        let output = incident(&[id]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn an_id_without_an_end_is_not_repeated_whole() {
    for id in ["9".repeat(20_000), format!("{}-1", "a".repeat(20_000))] {
        let output = incident(&[&id]);
        let says = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{says}");
        assert!(says.contains("no incident ") && says.len() < 400, "{says}");
    }
}

#[test]
fn a_journal_that_was_cut_is_spoken_of() {
    let loss = tests_folder("events/v1alpha1").join("loss.json");
    let events = fs::read_to_string(loss).unwrap() + &told();
    let agent = Agent::new(&answer("200 OK", &events));
    let output = ask(&agent, &[]);
    drop(agent.asked());
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("3f2a-23"));
    let says = stderr(&output);
    assert!(says.contains("incidents may be missing"), "{says}");
}

#[test]
fn a_scenario_knows_workloads_by_a_pattern_whose_names_begin_with_a_slash() {
    let told = told().replace(
        r#""namespace":"jobs","name":"batch-1""#,
        r#""namespace":"cgroup","name":"/batch/1""#,
    );
    let ours: Vec<&str> = told
        .split_inclusive('\n')
        .filter(|line| line.contains("/batch/1"))
        .collect();
    let agent = Agent::new(&answer("200 OK", &ours.concat()));
    let socket = agent.socket();
    // The beginning of its id, of which there is only this one.
    let made = run(
        &[
            "incident",
            "3f2a",
            "--scenario",
            "--socket",
            socket.to_str().unwrap(),
        ],
        "",
    );
    drop(agent.asked());
    let simulated = run(&["simulate", "-"], &stdout(&made));
    assert_eq!(
        (simulated.status.code(), stderr(&simulated).as_str()),
        (Some(0), "")
    );
    let text = stdout(&simulated);
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["evict"]["pod"], "cgroup/batch/1", "{last:#}");
}

#[test]
fn a_page_tells_the_whole_story() {
    let page = good(&["3f2a-23", "--ascii"]);
    for part in [
        "/kubepods.slice/pod0e1f was at its limit of 512Mi (exact: read from the kernel as it decided)",
        "Timeline, in ms after the victim was chosen",
        "  11.000  09:36:31.262000  last victim gone",
        "C2 CompilerThre, pid 4711, thread 4733",
        "mem_cgroup_out_of_memory+0x13a",
        "9f2c41d0aa17 +0x1f3a0",
        "memory.stat of its cgroup, largest first",
        "The node's workloads, in the order of memory.available",
        "  shop/web-5d9c7     Burstable            0    256Mi   508Mi  killed",
        "refuses: protected",
        "and 3 more",
        "  mode       enforcing, memory policy confirmed",
        "  memory.available<300Mi for 1m30s ",
        "what they used was read up to 2.1 s before",
        "-60 s",
        "postgres",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(page.contains('#') && page.is_ascii(), "{page}");
    let ours = good(&["3f2a-21", "--ascii"]);
    for part in [
        "Brink evicted jobs/batch-1 (3 processes): hard memory.available was at 97.0Mi, below 100Mi",
        "first SIGKILL sent",
        "jobs/batch-1 goes before shop/web",
        "the kernel program that tells it is not loaded: node.reclaimNs",
        "no time or room to take it: node.meminfo, node.zones",
    ] {
        assert!(ours.contains(part), "{part}\n{ours}");
    }
}

#[test]
fn a_scenario_of_our_eviction_chooses_the_same_victim() {
    let output = incident(&["3f2a-21", "--scenario"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let says = stderr(&output);
    assert!(says.contains("as of the decision alone"), "{says}");
    let file = stdout(&output);
    for flags in [&["simulate", "-"][..], &["simulate", "--live", "-"]] {
        let output = run(flags, &file);
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (Some(0), ""),
            "{file}"
        );
        let text = stdout(&output);
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let (last, before) = lines.split_last().unwrap();
        assert_eq!(last["evict"]["pod"], "jobs/batch-1", "{last:#}");
        assert_eq!(
            last["ranking"][0], "kube-system/agent",
            "who refused is ranked too"
        );
        assert!(
            before.len() > 20 && before.iter().all(|line| line["evict"].is_null()),
            "{text}"
        );
    }
    // Another threshold would have acted earlier on the same node.
    let threshold = |amount: &str| format!("\"memory.available\": \"{amount}\"");
    let higher = file.replace(&threshold(&(100 << 20).to_string()), &threshold("1Gi"));
    assert_ne!(higher, file);
    let output = run(&["simulate", "-"], &higher);
    assert_eq!(stderr(&output), "", "{higher}");
    let text = stdout(&output);
    let evictions = text
        .lines()
        .filter(|line| line.contains("\"pod\":\"jobs/batch-1\""))
        .count();
    assert!(evictions > 1, "{text}");
}

#[test]
fn a_scenario_of_a_kill_by_the_kernel_shows_what_a_threshold_would_have_done() {
    let output = incident(&["3f2a-23", "--scenario"]);
    let says = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{says}");
    for part in [
        "its thresholds are those that were configured (allocatableMemory.available<100Mi, memory.available<100Mi, \
         memory.available<300Mi for 1m30s, memory.headroom<50Mi); change them in config to try others",
        "it was the limit of /kubepods.slice/pod0e1f that was hit",
        "infra/keeper refused (protected), which a scenario cannot say",
        "the first 5 of 8 workloads",
        "used was recorded of these of its cgroups alone, and the rest is that of the kill: /kubepods.slice/pod0e1f/app",
        "what 2 workloads of 4 used is known as of the kill alone (read up to 2.1 s before)",
    ] {
        assert!(says.contains(part), "{part}\n{says}");
    }
    let file = stdout(&output);
    let configured = "\"memory.available\": \"100Mi\"";
    let simulated = |file: &str, flags: &[&str]| -> Vec<Value> {
        let output = run(&[&["simulate"], flags, &["-"]].concat(), file);
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (Some(0), ""),
            "{file}"
        );
        let text = stdout(&output);
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    };
    for flags in [&[][..], &["--live"]] {
        let lines = simulated(&file, flags);
        let (last, before) = lines.split_last().unwrap();
        assert!(before.len() > 20 && before.iter().all(|line| line["evict"].is_null()));
        let evicted = &last["evict"]["pod"];
        assert_eq!(evicted, "jobs/batch-2", "97 MiB are left of 100");
        let another = "\"memory.available\": \"1Gi\"";
        assert!(file.contains(configured), "{file}");
        let lines = simulated(&file.replace(configured, another), flags);
        let first = lines.iter().position(|line| !line["evict"].is_null());
        let first = first.expect("the node had less than that");
        assert!(first > 10 && first + 5 < lines.len(), "{first}");
        assert_eq!(lines[first]["evict"]["pod"], "jobs/batch-2");
        let ranking = [
            "jobs/batch-2",
            "shop/web-5d9c7",
            "kube-system/agent",
            "data/db",
        ];
        let ranked = lines[first]["ranking"].as_array().unwrap();
        assert!(ranked.iter().eq(ranking), "{ranked:?}");
    }
}

#[test]
fn where_no_threshold_is_known_simulate_says_what_to_add() {
    let whole = last_of("3f2a-23").unwrap();
    let mut older: Value = serde_json::from_str(&whole).unwrap();
    older.as_object_mut().unwrap().remove("configuration");
    let agent = Agent::new(&answer("200 OK", &older.to_string()));
    let made = ask(&agent, &["3f2a-23", "--scenario"]);
    drop(agent.asked());
    let says = stderr(&made);
    assert!(says.contains("and none is set: write one to try"), "{says}");
    let file = stdout(&made);
    assert!(file.contains("and none is set: write one to try"), "{file}");
    for flags in [&["simulate", "-"][..], &["simulate", "--live", "-"]] {
        let output = run(flags, &file);
        assert_eq!(output.status.code(), Some(0));
        let says = stderr(&output);
        let part = "-: nothing can be decided, for no threshold is set of what its steps have (memory.available";
        assert!(
            says.contains(part) && says.contains("evictionHard: {memory.available: 1Gi}"),
            "{says}"
        );
    }
}

#[test]
fn of_what_is_open_or_has_no_table_of_workloads_there_is_no_scenario() {
    let told = |name: &str, is_final: bool| {
        let path = tests_folder("events/v1alpha1").join(name);
        let text = fs::read_to_string(path).unwrap();
        let mut event: Value = serde_json::from_str(&text).unwrap();
        event["data"]["isFinal"] = is_final.into();
        format!("{event}\n")
    };
    let check = |event: &str, parts: [&str; 2]| {
        let agent = Agent::new(&answer("200 OK", event));
        let output = ask(&agent, &["3f2a", "--scenario"]);
        drop(agent.asked());
        assert_eq!(
            (output.status.code(), stdout(&output).as_str()),
            (Some(1), "")
        );
        let says = stderr(&output);
        for part in parts {
            assert!(says.contains(part), "{part}\n{says}");
        }
    };
    check(
        &told("kill-observed.json", true),
        [
            "no scenario of incident 3f2a-25: its record has no table of the node's workloads",
            "shows what its record has",
        ],
    );
    let is_open = "it is still open";
    check(
        &told("kill-observed.json", false),
        [is_open, "ask again then"],
    );
    check(
        &told("eviction-ordered.json", false),
        [is_open, "ask again then"],
    );
}

#[test]
fn one_file_has_everything() {
    let html = good(&["3f2a-23", "--html"]);
    assert!(
        html.starts_with("<!")
            && html.contains("3f2a-23")
            && html.contains("oom_kill_process+0x118")
    );
}

#[test]
fn no_id_at_all_is_refused_before_anybody_is_asked() {
    let output = run(&["incident", ""], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("a value is required for '[ID]'"),
        "{}",
        stderr(&output)
    );
}

/// A journal of a kill by the kernel and its end.
fn journal(path: &Path) {
    const BOOT: &str = "3f2a9d0c-5b1e-4c7a-9d55-0a1b2c3d4e5f";
    let around = Surroundings {
        boot_id: BOOT,
        clock: || 0,
        on_loss: Box::new(|_, _| ()),
    };
    let (journal, _) = Journal::open(path, journal::Limits::default(), around).unwrap();
    let identity = Identity {
        node: "node-7".to_owned(),
        boot_id: BOOT.to_owned(),
    };
    let hub = Hub::new(identity, 20, hub::Limits::default());
    journal.attach(&hub);
    for line in told().lines().filter(|line| line.contains("3f2a-23")) {
        let event: Event = serde_json::from_str(line).unwrap();
        hub.tell(Draft::new(event.of, event.at, event.subject, &event.data).unwrap());
    }
}

#[test]
fn what_of_a_journal_cannot_be_read_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    journal(path);
    let read = |args: &[&str]| {
        let output = run(
            &[&["incident", "--journal", path.to_str().unwrap()], args].concat(),
            "",
        );
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (stdout(&output), stderr(&output))
    };
    let (list, says) = read(&[]);
    assert!(list.contains("its memory came back"), "{list}");
    assert_eq!(says, "");
    // One byte of the end of the incident.
    let segment = path.join("events-000000000001.log");
    let mut bytes = fs::read(&segment).unwrap();
    let hit = bytes.len() - 100;
    bytes[hit] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let (list, says) = read(&[]);
    let is_damaged = "events-000000000001.log is damaged: ";
    assert!(says.contains(is_damaged), "{says}");
    assert!(
        !list.contains("still open") && list.contains("its end is not in this journal"),
        "{list}"
    );
    assert!(
        read(&["3f2a-23"])
            .0
            .contains("its end is not in this journal")
    );
    let told: Value = serde_json::from_str(&read(&["3f2a-23", "-o", "json"]).0).unwrap();
    assert_eq!(told["course"]["end"], Value::Null, "as it was told");
    // What is none.
    fs::write(path.join("events-000000000002.log"), "").unwrap();
    fs::write(path.join("events-000000000003.log"), [7; 4096]).unwrap();
    fs::create_dir(path.join("events-000000000004.log")).unwrap();
    let (_, says) = read(&[]);
    for number in 2..=4 {
        let none = format!("events-00000000000{number}.log is no part of an event journal");
        assert!(says.contains(&none), "{says}");
    }
}

#[test]
fn a_journal_that_is_none_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("events.log"), "x").unwrap();
    let other = folder.path().to_str().unwrap();
    let nothing = format!("there is no event journal in {other}");
    for (path, says) in [
        ("/nonexistent", "no such folder"),
        (other, nothing.as_str()),
    ] {
        let output = run(&["incident", "--journal", path], "");
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stdout(&output), "");
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn where_no_agent_answers_its_journal_is_named() {
    let output = run(&["incident", "--socket", "/nonexistent/events.sock"], "");
    assert_eq!(output.status.code(), Some(4));
    let said = stderr(&output);
    for part in [
        "no agent",
        "`brink run`",
        "`--journal DIR`",
        "/var/lib/brink/events",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
