//! A real browser that does what it is told: headless Chromium behind its driver, which speaks `WebDriver` over HTTP.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test stops at what it does not expect"
)]

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::slowed;

/// What is true of the agent's page once it follows the agent.
pub const LIVE: &str = "document.querySelector('#connection').textContent === 'live'";

/// What is true of a page that has a text in a place, which is a selector.
pub fn shows(place: &str, text: &str) -> String {
    format!(
        "document.querySelector({})?.innerText.includes({})",
        json!(place),
        json!(text)
    )
}

/// How long anything may take that the page does by itself.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long the driver may take to answer.
const DRIVER: Duration = Duration::from_mins(2);

/// One browser at a time: two on a small machine are slower than one after the other.
static TURN: Mutex<()> = Mutex::new(());

/// A session of the browser, which ends with it.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    process: Option<Pid>,
    profile: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// The driver and the browser, or what is missing.
fn installed() -> Result<(PathBuf, PathBuf), String> {
    let find = |names: &[&str]| {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<_> = std::env::split_paths(&folders).collect();
        let mut paths = names
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        paths.find(|path| path.is_file())
    };
    let driver = find(&["chromedriver"]).ok_or("needs chromedriver (Debian: chromium-driver)")?;
    let browser = find(&["chromium", "chromium-browser"]).ok_or("needs chromium")?;
    Ok((driver, browser))
}

impl Browser {
    /// Starts one.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn start() -> Result<Self, String> {
        let (driver, browser) = installed()?;
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = tempfile::tempdir().unwrap();
        let (child, port) = start_driver(&driver);
        let mut started = Self {
            driver: child,
            port,
            session: String::new(),
            process: None,
            profile,
            _turn: turn,
        };
        started.open_session(&browser);
        Ok(started)
    }

    fn open_session(&mut self, browser: &Path) {
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1200,900",
            &profile,
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": browser, "args": arguments},
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        }}});
        let session = self.command("POST", "/session", Some(&capabilities));
        self.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        let pid = session["capabilities"]["goog:processID"].as_i64();
        self.process = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    }

    fn command(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = exchange(self.port, method, path, body);
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let value = answer["value"].clone();
        assert!(value.get("error").is_none(), "{method} {path}: {value:#}");
        value
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.command("POST", &format!("{}{path}", self.session), Some(body))
    }

    /// Opens an address and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// Opens one more tab, which is the one that is driven from now on.
    pub fn open_tab(&self) {
        let made = self.post("/window/new", &json!({"type": "tab"}));
        self.post("/window", &json!({"handle": made["handle"]}));
    }

    /// What a function's body returns.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait_for(&self, expression: &str) {
        let end = Instant::now() + slowed(PATIENCE);
        let script = format!("return Boolean({expression})");
        while self.run(&script) != Value::Bool(true) {
            if Instant::now() > end {
                let text = self.run("return document.body.innerText");
                panic!(
                    "never came: {expression}\n{}\n{:#?}",
                    text.as_str().unwrap_or_default(),
                    self.log("browser")
                );
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// A command of the browser's own protocol.
    pub fn devtools(&self, command: &str, parameters: &Value) {
        self.post(
            "/goog/cdp/execute",
            &json!({"cmd": command, "params": parameters}),
        );
    }

    /// Presses and releases one key after the other, as a keyboard would.
    pub fn press(&self, keys: &[&str]) {
        let strokes = keys.iter().flat_map(|key| {
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        });
        let strokes: Vec<Value> = strokes.collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": strokes});
        self.post("/actions", &json!({"actions": [keyboard]}));
    }

    /// Types a text where the focus is.
    pub fn type_text(&self, text: &str) {
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        self.press(&letters);
    }

    /// The messages of a log since it was last asked for.
    pub fn log(&self, kind: &str) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": kind}));
        let entries = entries.as_array().cloned().unwrap_or_default();
        let message = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        entries.iter().map(message).collect()
    }

    /// Every address that pages asked for since this was last asked; the browser's own pages are left out.
    pub fn requests(&self) -> Vec<String> {
        let messages = self.log("performance");
        let addresses = messages.iter().filter_map(|message| {
            let message: Value = serde_json::from_str(message).unwrap();
            let event = &message["message"];
            let is_request = event["method"] == "Network.requestWillBeSent";
            let page = event["params"]["documentURL"].as_str()?;
            let of_browser = ["chrome://", "chrome-untrusted://"];
            let is_pages = !of_browser.iter().any(|scheme| page.starts_with(scheme));
            let url = event["params"]["request"]["url"].as_str()?;
            (is_request && is_pages).then(|| url.to_owned())
        });
        addresses.collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ended = exchange(self.port, "DELETE", &self.session, None);
        }
        if let Some(process) = self.process {
            // Gone already, as a rule.
            let _gone = kill_process(process, Signal::KILL);
        }
        let _gone = self.driver.kill();
        let _gone = self.driver.wait();
    }
}

/// Starts the driver on a port that the kernel chooses.
fn start_driver(driver: &Path) -> (Child, u16) {
    let mut command = Command::new(driver);
    command.arg("--port=0").stdin(Stdio::null());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    // Whoever writes into a pipe that nobody reads stands still in the end.
    thread::spawn(move || lines.for_each(drop));
    let Some(port) = port else {
        let _gone = child.kill();
        let _gone = child.wait();
        panic!("the driver did not say its port");
    };
    (child, port)
}

/// One request to the driver.
fn exchange(port: u16, method: &str, path: &str, body: Option<&Value>) -> io::Result<Value> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(slowed(DRIVER)))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut length = None;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut answer = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}
