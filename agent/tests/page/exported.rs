//! An incident as one file: opened from the disk, it draws itself and asks for nothing.

use brink::page::export;

use crate::samples::{HOSTILE_SHOWN, bare, full, hostile, typed};
use crate::{check_fits, check_quiet, check_requests};
use brink_tests::Browser;

#[test]
fn an_exported_file_draws_itself_and_asks_for_nothing() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => brink_tests::skip!("{missing}"),
    };
    let folder = tempfile::tempdir().unwrap();
    for (name, incident, text, panels) in [
        ("full.html", full(), "The kernel killed java (4121)", 5),
        ("bare.html", bare(), "from before the agent’s start", 0),
        ("hostile.html", hostile(), HOSTILE_SHOWN, 5),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, export(&typed(&incident)).unwrap()).unwrap();
        let address = format!("file://{}", path.display());
        browser.open(&address);
        let text = serde_json::json!(text);
        browser.wait_for(&format!(
            "document.querySelector('#main').textContent.includes({text})"
        ));
        browser.wait_for(&format!(
            "document.querySelectorAll('.panel').length === {panels}"
        ));
        // A recording is drawn of those of which everything else is known, too.
        browser.wait_for(&format!(
            "document.querySelectorAll('#fork-root code, #other-kills tbody tr').length === {}",
            if panels > 0 { 2 } else { 0 }
        ));
        browser.wait_for(
            "window.attacked === undefined && document.querySelectorAll('img').length === 0",
        );
        check_fits(&browser, 360);
        check_quiet(&browser);
        check_requests(&browser, &address);
    }
}
