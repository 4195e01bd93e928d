//! The herald: keeps the node's conditions and its taint as they are wanted, and takes them away when nobody keeps them right.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brink_core::node::condition::{Condition, ConditionSet};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::again::Again;
use super::answer::Reply;
use super::conditions::{self, patch, removal, standings};
use super::conflict::Conflict;
use super::door::{Door, read};
use super::kept::{self, Kept};
use super::{conflict, request, taint};
use crate::retry::Backoff;

/// How often a taint is tried again at once, when somebody else changes the node at the same time.
const RACES: u32 = 5;
/// While a right is missing it is looked so often whether it is another account by now.
const LOOK: Duration = Duration::from_mins(1);
/// How long taking everything away may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What the node is to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing is known yet: all stays as it is.
    #[default]
    Unknown,
    /// Nothing: what we have said before is taken away.
    Nothing,
    /// Whether each of the conditions that are measured holds.
    Says {
        /// Those that are measured.
        measured: ConditionSet,
        /// Those that hold.
        held: ConditionSet,
        /// Who acts first, we or the kubelet; where nothing is to be said of that, what was said of it stays.
        beside: Option<Conflict>,
    },
}

/// Why something was not told.
struct Untold {
    why: String,
    /// How long the server wants to be left alone.
    after: Option<Duration>,
    /// The code of the server's answer; none where it gave none.
    code: Option<u16>,
}

impl Untold {
    /// Whether the account may not do that, or the server does not know it: that stays so until somebody changes something.
    const fn is_refused(&self) -> bool {
        matches!(self.code, Some(401 | 403))
    }
}

impl From<String> for Untold {
    fn from(why: String) -> Self {
        Self {
            why,
            after: None,
            code: None,
        }
    }
}

/// Tells the node's conditions.
pub struct Herald {
    /// The way to the server.
    pub door: Door,
    /// Name of this node.
    pub node: String,
    /// Anything that differs from run to run: no two wait alike.
    pub seed: u64,
    /// Whether the taint is wanted while memory is short.
    pub taints: bool,
    /// What is to be told.
    pub wanted: watch::Receiver<Wanted>,
    /// Where what was told is kept.
    pub file: PathBuf,
}

impl Herald {
    /// Tells until nobody wants anything any more; then takes away what was told.
    pub async fn run(mut self) {
        let mut kept = Kept::default();
        let mut again = Again::No;
        let mut before = Wanted::Unknown;
        let mut backoff = Backoff::new(&self.node, self.seed);
        let mut refusals = Backoff::new(&self.node, self.seed);
        let mut is_said = false;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            // Until now another agent may have told it.
            if std::mem::replace(&mut before, wanted.clone()) == Wanted::Unknown {
                kept = self.recall();
                again = Again::after(&kept);
            }
            kept.tainted |= again.may_be_tainted();
            let wait = match self.tell(&wanted, &mut kept).await {
                Ok(()) => {
                    backoff.succeeded();
                    refusals.succeeded();
                    is_said = false;
                    match wanted {
                        Wanted::Says { .. } => again.told(Instant::now()),
                        Wanted::Unknown | Wanted::Nothing => None,
                    }
                }
                Err(untold) => {
                    if !std::mem::replace(&mut is_said, true) {
                        warn!(why = untold.why, "the node's conditions cannot be told yet");
                    }
                    Some(if untold.is_refused() {
                        backoff.succeeded();
                        refusals.refused()
                    } else {
                        backoff.failed(untold.after)
                    })
                }
            };
            let changed = tokio::select! {
                changed = self.wanted.changed() => changed,
                () = rest(wait, &mut self.door) => Ok(()),
            };
            if changed.is_err() {
                break;
            }
        }
        // Whoever never knew what to say leaves what another one said.
        if *self.wanted.borrow() == Wanted::Unknown {
            return;
        }
        self.take_leave(&mut kept).await;
    }

    /// The last words. A server that is busy with those of others is asked again while there is time; one that is away is not, nor
    /// one that refuses, unless the files by which it knows us are others by now.
    async fn take_leave(&mut self, kept: &mut Kept) {
        let mut backoff = Backoff::new(&self.node, self.seed);
        let mut last = "no answer in time".to_owned();
        let leave = async {
            while let Err(untold) = self.tell(&Wanted::Nothing, kept).await {
                let is_over =
                    untold.code.is_none() || untold.is_refused() && !self.door.has_changed().await;
                last = untold.why;
                if is_over {
                    return false;
                }
                sleep(backoff.failed(untold.after)).await;
            }
            true
        };
        if !timeout(LAST_WORDS, leave).await.unwrap_or(false) {
            warn!(why = last, "the node's conditions stay as they were");
        }
    }

    /// Makes the node say what is wanted; nothing is asked where it does already.
    async fn tell(&mut self, wanted: &Wanted, kept: &mut Kept) -> Result<(), Untold> {
        match wanted {
            Wanted::Unknown => Ok(()),
            Wanted::Nothing => self.take_away(kept).await,
            Wanted::Says {
                measured,
                held,
                beside,
            } => {
                let conditions = (*measured, *held);
                self.say(conditions, beside.as_ref(), kept).await
            }
        }
    }

    async fn say(
        &mut self,
        (measured, held): (ConditionSet, ConditionSet),
        beside: Option<&Conflict>,
        kept: &mut Kept,
    ) -> Result<(), Untold> {
        let now = now();
        let new = standings(measured, held, &kept.conditions, &now);
        let gone: Vec<Condition> = kept
            .conditions
            .iter()
            .map(|standing| standing.of)
            .filter(|of| !measured.contains(*of))
            .collect();
        let mut patch = patch(&new, &now);
        extend(&mut patch, conditions_of(&removal(gone)));
        if let Some(beside) = beside {
            let told = conflict::told(beside, kept.conflict.as_ref(), &now);
            extend(&mut patch, [conflict::condition(beside, &told, &now)]);
            kept.conflict = Some(told);
        }
        // Before it is sent: whoever ends now has told it perhaps.
        kept.conditions = new;
        self.remember(kept);
        taken(
            &self
                .door
                .ask(request::node_status(&self.node, &patch))
                .await,
        )?;
        let news = kept.conditions.iter_mut();
        for standing in news.filter(|standing| !standing.is_logged) {
            standing.is_logged = true;
            info!(
                condition = conditions::type_of(standing.of),
                holds = standing.holds,
                "told the node's condition"
            );
        }
        let news = kept.conflict.as_mut().filter(|told| !told.is_logged);
        if let Some(told) = news.filter(|_| beside.is_some()) {
            told.is_logged = true;
            info!(
                condition = conflict::TYPE,
                status = told.status(),
                "told the node's condition"
            );
        }
        let is_wanted = self.taints && taint::is_wanted(held);
        if is_wanted || kept.tainted {
            self.taint(is_wanted, kept).await?;
        }
        Ok(())
    }

    async fn take_away(&mut self, kept: &mut Kept) -> Result<(), Untold> {
        if kept.tainted {
            self.taint(false, kept).await?;
        }
        if !kept.conditions.is_empty() || kept.conflict.is_some() {
            let mut patch = removal(kept.conditions.iter().map(|standing| standing.of));
            extend(
                &mut patch,
                kept.conflict.iter().map(|_| conflict::removal()),
            );
            let reply = self
                .door
                .ask(request::node_status(&self.node, &patch))
                .await;
            taken(&reply)?;
            kept.conditions.clear();
            kept.conflict = None;
            self.remember(kept);
        }
        Ok(())
    }

    /// Puts the taint on or takes it off.
    async fn taint(&mut self, wanted: bool, kept: &mut Kept) -> Result<(), Untold> {
        if wanted && !kept.tainted {
            kept.tainted = true;
            self.remember(kept);
        }
        let mut last = String::new();
        for _ in 0..RACES {
            let (parts, body) = self.door.ask_whole(request::node(&self.node)).await?;
            if !parts.status.is_success() {
                return taken(&read(Ok((parts, body))));
            }
            let node = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
            let Some(steps) = taint::steps(&node, wanted) else {
                kept.tainted = wanted;
                self.remember(kept);
                return Ok(());
            };
            let reply = self.door.ask(request::node_steps(&self.node, &steps)).await;
            match taken(&reply) {
                Ok(()) => {
                    kept.tainted = wanted;
                    self.remember(kept);
                    return Ok(());
                }
                // Somebody else was faster.
                Err(untold) if is_race(&reply) => last = untold.why,
                Err(untold) => return Err(untold),
            }
        }
        Err(last.into())
    }

    fn recall(&self) -> Kept {
        let text = match bounded(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Kept::default(),
            Err(error) => {
                warn!(%error, file = %self.file.display(), "what was told of the node cannot be read");
                return Kept::default();
            }
        };
        kept::read(&text, Timestamp::now()).unwrap_or_else(|error| {
            warn!(%error, file = %self.file.display(), "what was told of the node cannot be understood");
            Kept::default()
        })
    }

    fn remember(&self, kept: &Kept) {
        let aside = self.file.with_extension("new");
        let written = serde_json::to_vec(kept)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&aside, text))
            .and_then(|()| std::fs::rename(&aside, &self.file));
        if let Err(error) = written {
            warn!(%error, file = %self.file.display(), "what is told of the node cannot be kept for a restart");
        }
    }
}

/// The conditions in a patch of the node's status.
fn conditions_of(patch: &Value) -> Vec<Value> {
    let conditions = patch["status"]["conditions"].as_array();
    conditions.cloned().unwrap_or_default()
}

/// Puts more conditions into one.
fn extend(patch: &mut Value, more: impl IntoIterator<Item = Value>) {
    if let Some(all) = patch["status"]["conditions"].as_array_mut() {
        all.extend(more);
    }
}

/// Whether the server has taken it.
fn taken(reply: &Reply) -> Result<(), Untold> {
    match reply {
        Reply::Away(why) => Err(why.clone().into()),
        Reply::Answer(answer) if (200..=299).contains(&answer.code) => Ok(()),
        Reply::Answer(answer) => Err(Untold {
            why: format!("{} {}", answer.code, answer.message),
            after: answer.retry_after,
            code: Some(answer.code),
        }),
    }
}

/// Whether the node was not as it was read: a test among the steps failed.
fn is_race(reply: &Reply) -> bool {
    matches!(reply, Reply::Answer(answer) if matches!(answer.code, 409 | 422))
}

/// Until the wait is over, or the door leads to another account.
async fn rest(wait: Option<Duration>, door: &mut Door) {
    let Some(mut left) = wait else {
        return std::future::pending().await;
    };
    while !left.is_zero() {
        let part = left.min(LOOK);
        sleep(part).await;
        left = left.saturating_sub(part);
        if door.has_changed().await {
            return;
        }
    }
}

/// Now, RFC 3339 to the second.
fn now() -> String {
    kept::to_the_second(Timestamp::now())
}

/// What a file says; what is behind the largest that anybody writes makes it none that is understood.
fn bounded(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let opened = std::fs::File::open(file)?;
    opened.take(kept::LARGEST).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
#[path = "herald_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "herald_token_tests.rs"]
mod token_tests;
