//! The page in a real browser: what is seen, what keys do, what a restart of the agent does, and what hostile names do not.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it does not expect"
)]

mod accessible;
mod colours;
mod exported;
mod guarded;
mod hidden;
mod incident;
mod live;
mod recorded;
mod samples;

use brink_tests::Browser;

/// What the browser says itself was wrong: errors of scripts, and everything that a policy has stopped.
#[track_caller]
fn check_quiet(browser: &Browser) {
    let said = browser.log("browser");
    // That an agent which was stopped does not answer is no fault of the page.
    let faults = said.iter().filter(|line| !line.contains("net::ERR_"));
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Everything that was asked for is at `origin`, or lies in the page itself.
#[track_caller]
fn check_requests(browser: &Browser, origin: &str) {
    let requests = browser.requests();
    assert!(!requests.is_empty());
    for request in requests {
        let is_own =
            request.starts_with(origin) || request.starts_with("data:") || request == "about:blank";
        assert!(is_own, "{request}");
    }
}

/// The page is not wider than the window, and nothing made an element out of a name.
#[track_caller]
fn check_fits(browser: &Browser, width: u32) {
    browser.devtools(
        "Emulation.setDeviceMetricsOverride",
        &serde_json::json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false}),
    );
    browser.wait_for(&format!(
        "innerWidth === {width} && document.documentElement.scrollWidth <= {width}"
    ));
}
