//! An incident on the live page: full, almost empty, told anew, unknown, and with names that are attacks.

use brink_stream::model::kind::Kind;
use serde_json::json;

use crate::recorded::Recorded;
use crate::samples::{HOSTILE, HOSTILE_SHOWN, bare, full, hostile};
use crate::{check_fits, check_quiet, check_requests};
use brink_tests::Browser;
use brink_tests::browser::LIVE;

const LEFT: &str = "\u{e012}";

fn shows(text: &str) -> String {
    format!(
        "document.querySelector('#story').innerText.includes({})",
        json!(text)
    )
}

#[test]
fn an_incident_is_shown_whole_and_told_anew_in_place() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    agent.tell_incident(Kind::OomKill, &full());
    agent.tell_incident(Kind::OomKill, &bare());
    browser.open(&format!("{}/#/incident/3f2a-17", agent.origin()));
    for text in [
        "The kernel killed java (4121) and 1 process more of shop/cart-7d9f",
        "the kernel’s own oom_control; exact",
        "First signal sent\t+0.031 ms",
        "java -Xmx200m -jar /srv/shop/cart.jar '--greeting=hello world'",
        "inactive_anon\t253Mi",
        "node 0, Normal\t15\u{202f}900",
        "mem_cgroup_out_of_memory+0x13a",
        "6a1f0c2be75d0f1de1f1a0c5d9f17b9b0a2d4c11 + 0x9d3f10",
        "left out by configuration\tvictims[1].argv",
        "1\tshop/search-5c\t96.0Mi\t0B\t0\t\t4.2 s\tBestEffort\tprefer (annotation)",
        "3\tkube-system/proxy\tlost\t64.0Mi\t2000001000\tcritical",
        "2 workloads more found no room",
        "Capacity\n23.5Gi",
        "Usable swap\n1.5Gi",
        "Memory policy\nconfirmed",
        "Pressure transition period\n5m0s",
        "Longest grace of a soft eviction, in seconds\n45",
        "memory.available<256Mi\t64Mi",
        "memory.available<512Mi for 1m30s",
        "cart-helper (4188)\t+0.25 ms\t2026-11-21 12:00:04.000250 UTC\truntime-shim (990)\t-6",
        "3 processes more found no room",
        "Started\n7384.001250 s after boot",
        "Arguments\nsh -c ':(){ :|:& };: # <b>bomb</b>'",
        "Forked by\njava (4121)",
        "Which was started\n7000.000000 s after boot",
        "1\u{202f}990 of the 2\u{202f}048 that were forked last descend from it",
    ] {
        browser.wait_for(&shows(text));
    }
    // Memory of the cgroup; memory, pressure, reclaims and forks of the node.
    browser.wait_for("document.querySelectorAll('#recorder .panel').length === 5");
    browser.wait_for("[...document.querySelectorAll('#recorder path')].every((path) => path.getAttribute('d').length > 100)");
    browser.wait_for("document.querySelectorAll('#cgroup-table tbody tr').length === 61");

    browser.run("document.querySelector('#recorder input').focus()");
    let moment = "document.querySelector('#recorder output').textContent.startsWith";
    browser.wait_for(&format!("{moment}('0.00 s · in use 256Mi')"));
    browser.press(&[LEFT, LEFT]);
    browser.wait_for(&format!("{moment}('-0.02 s')"));
    browser.wait_for("document.querySelector('#recorder input').getAttribute('aria-valuetext').includes('in use 256Mi')");

    browser.open(&format!("{}/#/incident/3f2a-18", agent.origin()));
    browser.wait_for(&shows("the kernel program that tells it is not loaded"));
    browser.wait_for(&shows("it is still open"));
    browser.wait_for("!document.querySelector('#fork-root, #other-kills')");
    let mut closed = full();
    closed["id"] = json!("3f2a-18");
    closed["revision"] = json!(2);
    agent.tell_incident(Kind::IncidentClosed, &closed);
    browser.wait_for(&shows("closed, revision 2"));
    browser.run("document.querySelector('#meminfo').open = true");
    closed["revision"] = json!(3);
    agent.tell_incident(Kind::IncidentClosed, &closed);
    browser.wait_for(&shows("closed, revision 3"));
    browser.wait_for("document.querySelector('#meminfo').open");
    check_fits(&browser, 360);

    browser.open(&format!("{}/#/incident/3f2a-99", agent.origin()));
    browser.wait_for(&shows("there is no incident"));
    // The browser notes the answer by itself.
    let said = browser.log("browser");
    assert!(said.iter().all(|line| line.contains("404")), "{said:#?}");
}

/// A cut link leads to an incident that nobody knows, and keeps the page from nothing else.
#[test]
fn an_address_that_is_none_names_an_unknown_incident() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    browser.open(&format!("{}/#/incident/%", agent.origin()));
    browser.wait_for(LIVE);
    browser.wait_for(&shows("Incident %"));
    browser.wait_for(&shows("there is no incident"));
    // The browser notes the answer by itself.
    let said = browser.log("browser");
    assert!(said.iter().all(|line| line.contains("404")), "{said:#?}");
    browser.run("document.querySelector('#back').click()");
    browser.wait_for("document.querySelector('#gauges').innerText.includes('20.0Gi of 23.5Gi')");
    check_quiet(&browser);
}

#[test]
fn of_a_cgroup_that_was_not_recorded_it_is_said_why() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    let mut incident = full();
    incident["recording"]["value"]["cgroup"] = json!([]);
    incident["recording"]["value"]["cgroupMissing"] = json!("lost");
    agent.tell_incident(Kind::OomKill, &incident);
    browser.open(&format!("{}/#/incident/3f2a-17", agent.origin()));
    browser.wait_for(&shows(
        "The victim’s cgroup was not recorded: no time or room to take it.",
    ));
    check_quiet(&browser);
}

/// Neither a zero nor an empty cell, and the reason in full at the end.
#[test]
fn what_is_not_known_is_shown_as_unknown() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    let mut incident = full();
    let recording = &mut incident["recording"]["value"];
    (recording["node"], recording["nodeMissing"]) = (json!([]), json!("notPermitted"));
    let line = &mut incident["topOfNode"]["value"][0];
    (line["swap"], line["swapMissing"]) = (json!(null), json!("processGone"));
    let pressure = &mut incident["node"]["value"]["pressure"]["value"];
    (pressure["full"], pressure["fullMissing"]) = (json!(null), json!("kernelLacksIt"));
    agent.tell_incident(Kind::OomKill, &incident);
    browser.open(&format!("{}/#/incident/3f2a-17", agent.origin()));
    for text in [
        "The node was not recorded: the agent may not read it.",
        "prometheus (900)\t1.4Gi\tprocess gone\t900",
        "some 12.5 %, full unknown",
        "the agent may not read it\trecording.node",
        "topOfNode[0].swap",
        "node.pressure.full",
    ] {
        browser.wait_for(&shows(text));
    }
    check_quiet(&browser);
}

#[test]
fn what_was_short_and_a_limit_that_is_none_are_told_as_what_they_are() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    let mut incident = full();
    incident["cause"] = json!("eviction");
    incident["memoryStat"]["value"]["hierarchical_memsw_limit"] =
        json!(9_223_372_036_854_771_712_u64);
    incident["decision"] = json!({"value": {
        "threshold": {"signal": "memory.available", "available": 104_845_312, "quantity": 104_857_600},
    }});
    agent.tell_incident(Kind::EvictionCompleted, &incident);
    browser.open(&format!("{}/#/incident/3f2a-17", agent.origin()));
    browser.wait_for(&shows("memory.available was 12.0Ki less than 100Mi."));
    browser.wait_for(&shows("hierarchical_memsw_limit\tnone"));
    check_quiet(&browser);
}

#[test]
fn a_hostile_name_is_text_and_nothing_else() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    {
        let mut known = agent.known();
        known.ranking["workloads"][0]["name"] = json!(HOSTILE);
        known.ranking["why"][0]["sentence"] = json!(HOSTILE);
        known.status["conditions"] = json!([HOSTILE]);
    }
    agent.tell_incident(Kind::OomKill, &hostile());
    agent.tell(
        Kind::WorkloadStarted,
        Some((HOSTILE, HOSTILE)),
        &json!({"cgroups": [HOSTILE]}),
    );
    let unharmed = |browser: &Browser| {
        browser.wait_for(
            "window.attacked === undefined && document.querySelectorAll('img').length === 0",
        );
        // Not one letter of what is seen turns the direction of writing or is a control character.
        browser.wait_for("!/[\\u202e\\u0007]/.test(document.documentElement.textContent)");
        check_quiet(browser);
    };
    let seen = |place: &str| {
        format!(
            "document.querySelector('{place}')?.textContent.includes({})",
            json!(HOSTILE_SHOWN)
        )
    };
    browser.open(&agent.origin());
    for place in [
        "#ranking",
        "#incident-list",
        "#event-list",
        "#orders",
        "#namespace",
    ] {
        browser.wait_for(&seen(place));
    }
    unharmed(&browser);
    check_fits(&browser, 360);
    browser.open(&format!("{}/#/incident/3f2a-66", agent.origin()));
    for place in [
        "#victims",
        "#other-kills",
        "#fork-root",
        "#cgroups",
        "#trigger",
        "#overview",
        "#memory-stat",
        "#top-of-node",
        "#ranked",
        "#configuration",
        "#decision",
        "#track",
    ] {
        browser.wait_for(&seen(place));
    }
    // Its quotes at the end are written as a shell would want them.
    let argument = HOSTILE_SHOWN.trim_end_matches(['\'', '"']);
    browser.wait_for(&format!(
        "document.querySelector('#fork-root code').textContent.split({}).length === 3",
        json!(argument)
    ));
    unharmed(&browser);
    check_fits(&browser, 360);
    check_requests(&browser, &agent.origin());
}
