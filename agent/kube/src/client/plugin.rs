//! Credential plugins: programs that a kubeconfig names, which say who asks. Each is given a bound, and is killed after it.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::fmt::temporal::Pieces;
use kube::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode, Kubeconfig};
use rustix::process::{Pid, Signal, kill_process_group, setpriority_process};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tracing::debug;

/// The longest answer that is read, in bytes: certificates and their keys have a few thousand.
const LARGEST: u64 = 256 << 10;
/// Whether one that has said everything has ended is looked at so often.
const LOOK: Duration = Duration::from_millis(5);

/// What a plugin says of who asks.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Credential {
    /// The bearer's token.
    pub token: Option<String>,
    /// A certificate, as PEM.
    pub client_certificate_data: Option<String>,
    /// Its key, as PEM.
    pub client_key_data: Option<String>,
    /// Until when they hold, where it says so.
    #[serde(rename = "expirationTimestamp", deserialize_with = "expiry")]
    pub valid_until: Option<Timestamp>,
}

/// What stands for never: its last day is later than can be counted with.
const NEVER: i16 = 9999;

fn expiry<'de, D: Deserializer<'de>>(said: D) -> Result<Option<Timestamp>, D::Error> {
    let Some(text) = Option::<String>::deserialize(said)? else {
        return Ok(None);
    };
    let is_never = || {
        let found = Pieces::parse(&text);
        found.is_ok_and(|found| found.date().year() == NEVER && found.offset().is_some())
    };
    match text.parse() {
        Ok(at) => Ok(Some(at)),
        Err(_) if is_never() => Ok(None),
        Err(error) => Err(D::Error::custom(error)),
    }
}

/// Why a plugin has said nothing of use.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The kubeconfig does not say which program it is.
    #[error("has no command; name its program in exec.command")]
    NoCommand,
    /// It would ask a person.
    #[error("asks a person (interactiveMode: Always), and here is none; use one that does not")]
    Interactive,
    /// Others have not ended, or left too little time.
    #[error(
        "is not started: others have had the turn for {:.1} s, and none is started beside another",
        .0.as_secs_f32()
    )]
    Busy(Duration),
    /// It cannot be started, or what it says cannot be read.
    #[error("cannot be run: {0}; exec.command is a path, or a name that is found in PATH")]
    Io(#[from] io::Error),
    /// It hangs.
    #[error(
        "has not answered within {:.0} s and was killed; run it by hand to see what it waits for",
        .0.as_secs_f32()
    )]
    Late(Duration),
    /// It says too much.
    #[error("has answered with more than {} KiB", LARGEST >> 10)]
    TooLarge,
    /// It says that it has failed.
    #[error("has failed ({0}); what it says of that is on the standard error of this program")]
    Failed(ExitStatus),
    /// It says something else. What it has said may be secret.
    #[error("has answered with something else than an ExecCredential whose status can be read")]
    NotUnderstood,
    /// It says nothing of who asks.
    #[error("has answered without a token and without a certificate with its key")]
    Empty,
}

/// What a plugin is told.
#[derive(Serialize)]
struct Question<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion", skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ExecAuthCluster>,
}

/// Runs a plugin and hears what it says, within the bound.
pub(super) fn ask(
    exec: &ExecConfig,
    cluster: Option<&ExecAuthCluster>,
    bound: Duration,
) -> Result<Credential, PluginError> {
    let deadline = Instant::now() + bound;
    let mut command = command(exec, cluster)?;
    let turn = Turn::wait(bound).ok_or(PluginError::Busy(bound))?;
    // What others have left of the time has to be enough for one that answers.
    let left = deadline.saturating_duration_since(Instant::now());
    if left < bound / 2 {
        return Err(PluginError::Busy(bound.saturating_sub(left)));
    }
    let turn = Arc::new(turn);
    let mut child = command.spawn()?;
    make_ordinary(&child);
    let said = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("it has no standard output"))
        .and_then(|output| listen(output, Arc::clone(&turn)));
    let heard = said
        .map_err(PluginError::from)
        .and_then(|said| hear(&mut child, &said, (left, deadline)));
    // One that has said itself that it failed has been waited for: its number may be somebody else's by now.
    if heard
        .as_ref()
        .is_err_and(|error| !matches!(error, PluginError::Failed(_)))
    {
        end(&mut child);
    }
    understand(&heard?)
}

fn command(exec: &ExecConfig, cluster: Option<&ExecAuthCluster>) -> Result<Command, PluginError> {
    let program = exec
        .command
        .as_deref()
        .filter(|program| !program.is_empty());
    let mut command = Command::new(program.ok_or(PluginError::NoCommand)?);
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(PluginError::Interactive);
    }
    let question = Question {
        kind: "ExecCredential",
        version: exec.api_version.as_deref(),
        spec: Spec {
            interactive: false,
            cluster,
        },
    };
    let question = serde_json::to_string(&question).map_err(io::Error::other)?;
    let variables = exec.env.iter().flatten();
    let variables = variables.filter_map(|one| Some((one.get("name")?, one.get("value")?)));
    command
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", question)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A group of its own: what it starts is killed with it.
        .process_group(0);
    Ok(command)
}

/// Takes from a plugin what it has inherited and only an agent is to have: its place before others, and the protection from the
/// kernel's killer. Where that is refused it has no more than it came with.
fn make_ordinary(child: &Child) {
    let _kept = setpriority_process(Some(Pid::from_child(child)), 0);
    let _kept = fs::write(format!("/proc/{}/oom_score_adj", child.id()), "0");
}

/// One plugin at a time: those that cannot even be killed must not pile up.
struct Turn;

static RUNS: Mutex<bool> = Mutex::new(false);
static ENDED: Condvar = Condvar::new();

impl Turn {
    /// None when the one before has not ended within the bound.
    fn wait(bound: Duration) -> Option<Self> {
        let runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = ENDED.wait_timeout_while(runs, bound, |runs| *runs);
        let (mut runs, _) = waited.unwrap_or_else(PoisonError::into_inner);
        // Not made for nothing: it gives the turn away when it is dropped.
        if std::mem::replace(&mut *runs, true) {
            None
        } else {
            Some(Self)
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNS.lock().unwrap_or_else(PoisonError::into_inner) = false;
        ENDED.notify_one();
    }
}

/// Reads by a thread of its own what a plugin says, as something that it has started may keep its output open for ever.
fn listen(output: ChildStdout, turn: Arc<Turn>) -> io::Result<Receiver<io::Result<Vec<u8>>>> {
    let (sender, said) = channel();
    let reads = move || {
        let mut text = Vec::new();
        let read = output.take(LARGEST + 1).read_to_end(&mut text);
        let _nobody_waits = sender.send(read.map(|_| text));
        drop(turn);
    };
    let thread = thread::Builder::new().name("brink-plugin".to_owned());
    thread.stack_size(64 << 10).spawn(reads)?;
    Ok(said)
}

/// All that a plugin says, once it has ended well.
fn hear(
    child: &mut Child,
    said: &Receiver<io::Result<Vec<u8>>>,
    (bound, deadline): (Duration, Instant),
) -> Result<Vec<u8>, PluginError> {
    let left = || deadline.saturating_duration_since(Instant::now());
    let heard = said.recv_timeout(left());
    let text = heard.map_err(|_| PluginError::Late(bound))??;
    if u64::try_from(text.len()).is_ok_and(|length| length > LARGEST) {
        return Err(PluginError::TooLarge);
    }
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(text),
            Some(status) => return Err(PluginError::Failed(status)),
            None if left().is_zero() => return Err(PluginError::Late(bound)),
            None => thread::sleep(LOOK),
        }
    }
}

/// Kills a plugin that has not been waited for, with all that it has started, which may be there longer than itself.
fn end(child: &mut Child) {
    if let Err(error) = kill_process_group(Pid::from_child(child), Signal::KILL) {
        debug!(%error, "a credential plugin cannot be killed");
    }
    // One that has gone into another group is none of those.
    let _ended_already = child.kill();
    let _status = child.wait();
}

/// Who asks, as a plugin that has ended well says.
///
/// # Errors
/// When it says something else, or nothing of use.
pub fn understand(said: &[u8]) -> Result<Credential, PluginError> {
    let text = str::from_utf8(said).map_err(|_| PluginError::NotUnderstood)?;
    // It may be YAML, as for kubectl. What is none of a kubeconfig's stays as it is when one is read.
    let answer = Kubeconfig::from_yaml(text).map_err(|_| PluginError::NotUnderstood)?;
    let status = answer
        .other
        .get("status")
        .ok_or(PluginError::NotUnderstood)?;
    let credential = Credential::deserialize(status).map_err(|_| PluginError::NotUnderstood)?;
    let is_said = |text: Option<&str>| text.is_some_and(|text| !text.trim().is_empty());
    let has_certificate = is_said(credential.client_certificate_data.as_deref())
        && is_said(credential.client_key_data.as_deref());
    if has_certificate || is_said(credential.token.as_deref()) {
        Ok(credential)
    } else {
        Err(PluginError::Empty)
    }
}

/// Tests with a short bound wait for one another, and not for their turn.
#[cfg(test)]
pub(super) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[cfg(test)]
#[path = "plugin_tests.rs"]
mod tests;
