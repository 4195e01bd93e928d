//! The live page: figures, rankings, incidents and filters, by mouse and by keyboard, in light and in dark, and over a restart.

use brink_stream::model::kind::Kind;
use serde_json::json;

use crate::recorded::Recorded;
use crate::samples::{about, bare, full};
use crate::{check_fits, check_quiet, check_requests};
use brink_tests::Browser;
use brink_tests::browser::{LIVE, shows};

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

fn three_incidents(agent: &Recorded) {
    agent.tell_incident(Kind::OomKill, &about("3f2a-20", "memcgOom", "shop", "cart"));
    agent.tell_incident(
        Kind::EvictionOrdered,
        &about("3f2a-21", "eviction", "shop", "search"),
    );
    agent.tell_incident(
        Kind::KillObserved,
        &about("3f2a-22", "foreignKill", "bank", "ledger"),
    );
}

#[test]
fn figures_rankings_and_incidents_change_without_a_reload() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    browser.open(&agent.origin());
    browser.wait_for(LIVE);
    browser.wait_for(&shows("#gauges", "20.0Gi of 23.5Gi (84 %)"));
    browser.wait_for(&shows("#gauges", "below 256Mi (hard): clear"));
    browser.wait_for(&shows("#ranking tbody tr:first-child", "1. shop/cart"));
    browser.wait_for(&shows("#verdict", "shop/cart would go first. 4 candidates"));
    browser.wait_for("document.querySelectorAll('#trend path').length === 2");
    browser.run("window.unchanged = document.querySelector('#ranking tbody tr')");

    let mib = 1_u64 << 20;
    {
        let mut known = agent.known();
        known.status["signals"][0]["available"] = json!(200 * mib);
        known.status["thresholds"][1]["met"] = json!(true);
        known.status["thresholds"][1]["metForMs"] = json!(2500);
        known.status["conditions"] = json!(["MemoryPressure"]);
        known.ranking["workloads"]
            .as_array_mut()
            .unwrap()
            .swap(0, 1);
    }
    browser.wait_for(&shows("#gauges", "200Mi of 23.5Gi (0 %)"));
    browser.wait_for(&shows(
        "#gauges .gauge[data-state=met]",
        "below 256Mi (hard): MET for 2.5 s",
    ));
    browser.wait_for(&shows("#orders", "Conditions: MemoryPressure"));
    {
        let mut known = agent.known();
        let mut threshold = known.status["thresholds"][1].clone();
        threshold["signal"] = json!("imagefs.available");
        threshold["observed"] = json!(false);
        threshold["met"] = json!(false);
        let thresholds = known.status["thresholds"].as_array_mut().unwrap();
        thresholds.push(threshold);
        known.status["disks"] = json!({
            "layout": "dedicatedImagefs",
            "filesystems": [{"role": "imagefs", "path": "/images", "device": null, "kind": null, "ageMs": null, "why": "it does not answer"}],
            "runtime": {
                "endpoint": null, "name": null, "byKubelet": null, "why": null, "reclaims": 0, "sufficient": 0, "containers": 0,
                "images": 0, "freedBytes": 0,
            },
        });
    }
    browser.wait_for(&shows(
        "#gauges",
        "not measured here (it does not answer), so its thresholds are never met",
    ));
    browser.wait_for("[...document.querySelector('#signal').options].some((one) => one.value === 'imagefs.inodesFree')");
    browser.wait_for(&shows("#ranking tbody tr:first-child", "1. shop/search"));
    // The row moved: a screen reader that stands in it is not thrown out.
    browser.wait_for("window.unchanged === document.querySelectorAll('#ranking tbody tr')[1]");

    agent.tell_incident(Kind::OomKill, &about("3f2a-30", "memcgOom", "shop", "cart"));
    browser.wait_for(&shows("#incident-list tbody", "3f2a-30"));
    browser.wait_for(&shows(
        "#news",
        "New incident. The kernel killed java (4121)",
    ));
    agent.tell(
        Kind::LimitImminent,
        Some(("shop", "cart")),
        &json!({"cgroup": "/x", "timeToLimitMs": 400}),
    );
    browser.wait_for(&shows("#event-list tbody", "limit-imminent"));

    check_fits(&browser, 360);
    check_quiet(&browser);
    check_requests(&browser, &agent.origin());
}

#[test]
fn filters_choose_by_cause_namespace_and_text() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    three_incidents(&agent);
    browser.open(&agent.origin());
    let rows = |expected: &[&str]| {
        format!(
            "JSON.stringify([...document.querySelectorAll('#incident-list tbody a')].map((each) => each.textContent).sort()) === {}",
            json!(json!(expected).to_string())
        )
    };
    let choose = |select: &str, value: &str| {
        browser.run(&format!(
            "const it = document.querySelector({}); it.value = {}; it.dispatchEvent(new Event('input', {{bubbles: true}}))",
            json!(select),
            json!(value)
        ));
    };
    browser.wait_for(&rows(&["3f2a-20", "3f2a-21", "3f2a-22"]));
    choose("#cause", "eviction");
    browser.wait_for(&rows(&["3f2a-21"]));
    browser.wait_for(&shows("#found", "1 of 3 incidents"));
    choose("#cause", "");
    choose("#namespace", "=bank");
    browser.wait_for(&rows(&["3f2a-22"]));
    choose("#namespace", "");
    browser.run("document.querySelector('#text').focus()");
    browser.type_text("SEARCH");
    browser.wait_for(&rows(&["3f2a-21"]));
    // What comes in later goes through the same filter.
    agent.tell_incident(Kind::OomKill, &about("3f2a-23", "memcgOom", "shop", "cart"));
    agent.tell_incident(
        Kind::OomKill,
        &about("3f2a-24", "memcgOom", "shop", "search-2"),
    );
    browser.wait_for(&rows(&["3f2a-21", "3f2a-24"]));
    choose("#cause", "agent-started");
    browser.wait_for(&rows(&[]));
    check_quiet(&browser);
}

#[test]
fn everything_is_reached_by_keyboard_in_light_and_in_dark() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    agent.tell_incident(Kind::OomKill, &full());
    let dark = |scheme: &str| {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.devtools("Emulation.setEmulatedMedia", &features);
    };
    let paper = |colour: &str| {
        format!("getComputedStyle(document.documentElement).backgroundColor === '{colour}'")
    };
    let (light_paper, dark_paper) = (paper("rgb(255, 255, 255)"), paper("rgb(20, 23, 26)"));
    dark("light");
    browser.open(&agent.origin());
    browser.wait_for(&shows("#incident-list tbody", "3f2a-17"));
    browser.wait_for(&light_paper);
    dark("dark");
    browser.wait_for(&dark_paper);

    browser.press(&[TAB]);
    browser.wait_for("document.activeElement.className === 'skip'");
    browser.press(&[ENTER]);
    browser.wait_for("document.activeElement.id === 'main'");
    let is_link = "document.activeElement.closest('#incident-list') && document.activeElement.tagName === 'A'";
    for _ in 0..40 {
        browser.press(&[TAB]);
        if browser.run(&format!("return Boolean({is_link})")) == json!(true) {
            break;
        }
    }
    browser.press(&[ENTER]);
    browser.wait_for("document.activeElement.id === 'incident-title'");
    browser.wait_for(&shows("#story", "The kernel killed java (4121)"));
    browser.press(&["\u{e008}", TAB]);
    browser.run("document.querySelector('#back').focus()");
    browser.press(&["\u{e008}"]);
    browser.press(&[ENTER]);
    // Whoever comes back stands where he left.
    browser.wait_for(is_link);

    browser.run("document.querySelector('#theme').focus()");
    browser.press(&[ENTER]);
    browser.wait_for(&light_paper);
    browser.open(&agent.origin());
    browser.wait_for(&light_paper);
    check_quiet(&browser);
}

#[test]
fn a_crowd_of_losses_has_the_incidents_asked_for_once() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    three_incidents(&agent);
    browser.open(&agent.origin());
    browser.wait_for(LIVE);
    browser.wait_for(&shows("#incident-list tbody", "3f2a-22"));
    let lists = |count: u32| {
        let each = "performance.getEntriesByType('resource').map((one) => one.name)";
        format!("{each}.filter((name) => name.includes('/v1/incidents?')).length === {count}")
    };
    browser.wait_for(&lists(1));
    for place in ["kernel-ring/oom", "reader"] {
        for total in 1..=30 {
            let loss = json!({"place": place, "count": 1, "total": total});
            agent.tell(Kind::Loss, None, &loss);
        }
    }
    browser.wait_for("document.querySelectorAll('#event-list tbody tr').length > 60");
    browser.wait_for(&lists(2));
    // A list that was asked for meanwhile would have come before this one.
    browser.run("loadIncidents()");
    browser.wait_for(&lists(3));
    check_quiet(&browser);
}

#[test]
fn a_restarted_agent_is_found_again_and_nothing_is_missed() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let mut agent = Recorded::start();
    three_incidents(&agent);
    browser.open(&agent.origin());
    browser.wait_for(LIVE);
    browser.wait_for(&shows("#incident-list tbody", "3f2a-22"));
    browser.run("window.same = true");

    agent.stop();
    browser.wait_for(&shows("#connection", "disconnected, retrying"));
    browser.wait_for("document.body.classList.contains('stale')");
    // It stays what it was.
    browser.wait_for(&shows("#incident-list tbody", "3f2a-22"));
    agent.restart();
    agent.tell_incident(Kind::OomKill, &bare());
    browser.wait_for(LIVE);
    browser.wait_for("!document.body.classList.contains('stale')");
    browser.wait_for(&shows("#incident-list tbody", "3f2a-18"));
    browser.wait_for("document.querySelectorAll('#incident-list tbody tr').length === 4");
    // One start of each run, and no event twice.
    browser.wait_for("document.querySelectorAll('#event-list tbody tr').length === 2");
    browser.wait_for("window.same === true");
    check_quiet(&browser);
}
