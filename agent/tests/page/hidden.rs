//! A page that nobody looks at: it asks for nothing, holds no connection, and misses nothing; its lists keep to what there is.

use std::thread;
use std::time::Duration;

use brink_stream::model::kind::Kind;
use brink_tests::browser::{LIVE, shows};
use brink_tests::{Browser, slowed};
use serde_json::json;

use crate::check_quiet;
use crate::recorded::Recorded;
use crate::samples::about;

/// One more than the connections that a browser has to one host.
const TABS: usize = 7;

/// Has the page believe that it is hidden, or in sight; what the browser itself thinks of a tab differs by version.
fn hide(browser: &Browser, is_hidden: bool) {
    browser.run(&format!(
        "Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {is_hidden}}}); \
         document.dispatchEvent(new Event('visibilitychange'))"
    ));
}

#[test]
fn a_hidden_page_asks_for_nothing_and_goes_on_from_where_it_was() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    let tell =
        |id: &str| agent.tell_incident(Kind::OomKill, &about(id, "memcgOom", "shop", "cart"));
    tell("3f2a-20");
    browser.open(&agent.origin());
    browser.wait_for(LIVE);
    browser.wait_for(&shows("#incident-list tbody", "3f2a-20"));

    hide(&browser, true);
    // What was under way comes to its end.
    thread::sleep(slowed(Duration::from_secs(1)));
    drop(browser.requests());
    tell("3f2a-21");
    // Three polls would come.
    thread::sleep(slowed(Duration::from_secs(3)));
    assert_eq!(browser.requests(), Vec::<String>::new());
    browser.wait_for("!incidents.has('3f2a-21')");

    hide(&browser, false);
    browser.wait_for(&shows("#incident-list tbody", "3f2a-21"));
    browser.wait_for(LIVE);
    let polled = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/v1/status')).length";
    let before = browser.run(&format!("return {polled}"));
    browser.wait_for(&format!("{polled} > {before} + 1"));
    let requests = browser.requests();
    let streams = requests.iter().filter(|url| url.contains("/v1/events?"));
    let streams: Vec<_> = streams.collect();
    assert_eq!(streams.len(), 1, "{streams:#?}");
    // From the last event that it had, and not from ten minutes ago.
    assert!(!streams[0].contains("since=10m"), "{streams:#?}");
    check_quiet(&browser);
}

#[test]
fn more_tabs_than_a_browser_has_connections_do_not_stop_each_other() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    for tab in 0..TABS {
        if tab > 0 {
            hide(&browser, true);
            browser.open_tab();
        }
        browser.open(&agent.origin());
        hide(&browser, false);
        browser.wait_for(LIVE);
    }
    agent.tell_incident(Kind::OomKill, &about("3f2a-30", "memcgOom", "shop", "cart"));
    // A tab in the background may not be drawn.
    browser.wait_for("incidents.has('3f2a-30')");
    check_quiet(&browser);
}

#[test]
fn a_namespace_is_offered_as_long_as_anything_is_of_it() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let agent = Recorded::start();
    let tell = |namespace: &str| {
        let data = json!({"cgroups": []});
        agent.tell(Kind::WorkloadStarted, Some((namespace, "one")), &data);
    };
    let offers = |namespaces: &[&str]| {
        format!(
            "JSON.stringify([...document.querySelectorAll('#namespace option')].map((each) => each.value).sort()) === {}",
            json!(json!(namespaces).to_string())
        )
    };
    let choose = |value: &str| {
        browser.run(&format!(
            "const it = document.querySelector('#namespace'); it.value = {}; it.dispatchEvent(new Event('input', {{bubbles: true}}))",
            json!(value)
        ));
    };
    tell("early");
    tell("chosen");
    browser.open(&agent.origin());
    browser.wait_for(&offers(&["", "=chosen", "=early"]));
    choose("=chosen");
    // As many as the page keeps: the first ones go.
    for _ in 0..200 {
        tell("late");
    }
    browser.wait_for(&offers(&["", "=chosen", "=late"]));
    browser.wait_for("document.querySelector('#namespace').value === '=chosen'");
    choose("");
    browser.wait_for(&offers(&["", "=late"]));
    check_quiet(&browser);
}
