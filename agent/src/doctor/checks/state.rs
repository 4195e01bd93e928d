//! The agent's own files: can it start here, and may it enforce?

use std::io::ErrorKind;

use brink_host::ledger::Found;
use rustix::io::Errno;

use crate::config::RunMode;
use crate::doctor::advice::{Denied, past_denial, quoted};
use crate::doctor::check::{Check, State, Step, Subject, Trouble};
use crate::doctor::facts::Facts;
use crate::doctor::facts::process::Process;
use crate::doctor::facts::state::{SocketState, Unwritable};
use crate::runtime::stop_button::Pressed;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::from([
        folder(facts),
        socket(facts),
        ledger(facts),
        enforcer(facts),
        button(facts),
    ]);
    checks.extend(journal(facts));
    checks.extend(event_journal(facts));
    checks.extend(event_port(facts));
    checks.extend(hooks(facts));
    checks
}

fn folder(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("state.folder", "folder of the agent");
    let folder = &facts.state.folder;
    let path = folder.path.display();
    if let Err(why) = &folder.writable {
        let closed = SUBJECT
            .failed(format!("{path} cannot be written to ({why})"))
            .follows("the agent does not start");
        let elsewhere = "set paths.stateDir to a folder of the agent's user";
        return opened(closed, why, &facts.process, elsewhere);
    }
    if let Some(strangers) = folder.strangers {
        let remedy = strangers.remedy(&folder.path, facts.process.user);
        return SUBJECT
            .warning(format!("{strangers} may write to {path}"))
            .follows("whoever may can press the stop button, or replace the agent's files")
            .next(format!(
                "{remedy}, or set paths.stateDir to a folder of the agent's user"
            ));
    }
    let made = if folder.exists {
        ""
    } else {
        ", to be made at the start"
    };
    match folder.in_memory {
        Ok(false) => SUBJECT
            .note(format!("{path}{made}, on a disk"))
            .follows("the ledger is written before each kill: on a disk that may have to wait, in memory never")
            .next("put paths.stateDir on a tmpfs, which /run is on most machines"),
        _ => SUBJECT.ok(format!("{path}{made}")),
    }
}

/// With what would let it be written to, and another place in its stead.
fn opened(closed: Trouble, why: &Unwritable, process: &Process, elsewhere: &str) -> Check {
    let opens = match why {
        Unwritable::Refused(_, Errno::ACCESS | Errno::PERM) => Some(past_denial(
            process,
            Denied::Writing,
            Step::words("run it as root"),
        )),
        Unwritable::Refused(path, Errno::ROFS) => Some(Step::words(format!(
            "mount the file system of {} so that it can be written",
            path.display()
        ))),
        Unwritable::NoFolder(path) => {
            Some(Step::words(format!("make {} a folder", path.display())))
        }
        Unwritable::Refused(..)
        | Unwritable::Folder(_)
        | Unwritable::NoFile(_)
        | Unwritable::Nowhere(_) => None,
    };
    closed.steps(opens, Step::words(elsewhere))
}

fn socket(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("state.socket", "socket of the agent");
    let path = facts.state.socket.path.display();
    match &facts.state.socket.state {
        SocketState::Absent => SUBJECT.ok(format!("{path}, not there yet: no agent runs")),
        SocketState::Answers => SUBJECT.ok(format!("{path}: an agent answers")),
        SocketState::Silent(why) => SUBJECT
            .failed(format!("{path}: its agent does not answer ({why})"))
            .follows("it may hang, and protect nobody")
            .run("see what it says", "journalctl -u brink")
            .next("stop it and start it again"),
        SocketState::Left => SUBJECT.note(format!(
            "{path}: nobody listens; an agent ended without removing it"
        )),
        SocketState::Forbidden => {
            let as_root = Step::with_command("ask as root", "sudo brink status");
            SUBJECT
                .unknown(format!("{path}: closed to user {}", facts.process.user))
                .steps([past_denial(&facts.process, Denied::Writing, as_root)])
        }
        SocketState::NoSocket => SUBJECT
            .failed(format!("{path}: something else has this name"))
            .follows("the agent cannot listen there")
            .run(
                "see what it is",
                format!("ls -l {}", quoted(&facts.state.socket.path)),
            ),
        SocketState::Impossible(_) if follows_folder(facts) => {
            let check = SUBJECT.unknown(format!("{path}: see state.folder"));
            check.next("do what state.folder says: it is to be made in that folder")
        }
        SocketState::Impossible(why) => SUBJECT
            .failed(format!("{path}: {why}"))
            .follows("the agent cannot listen there")
            .next("set paths.socket to a place that it can make"),
    }
}

/// Whether it cannot be made because the folder it is in cannot.
fn follows_folder(facts: &Facts) -> bool {
    let folder = &facts.state.folder;
    folder.writable.is_err() && facts.state.socket.path.starts_with(&folder.path)
}

/// What could not be looked at, with what to do for anybody but root.
fn for_root(check: Check, facts: &Facts) -> Check {
    match facts.process.user {
        0 => check,
        _ => check.run("look as root, with the same options", "sudo brink doctor"),
    }
}

fn ledger(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("state.ledger", "ledger of decisions");
    if let Some(owner) = facts.state.ledger_owner {
        return for_root(
            SUBJECT.unknown(format!("it belongs to user {owner}")),
            facts,
        );
    }
    match &facts.state.ledger {
        Ok(Found::Nothing) => SUBJECT.ok("none yet"),
        Ok(Found::Ours) => SUBJECT.ok("of this boot: graces and decisions are taken up again"),
        Ok(Found::Other(why)) => SUBJECT
            .note(format!("not to be continued: {why}"))
            .follows("an agent that starts puts it aside as ledger.aside and begins a new one"),
        Err(why) => for_root(SUBJECT.unknown(why.clone()), facts),
    }
}

fn enforcer(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("state.enforcer", "enforcer of this node");
    match &facts.state.enforcer {
        Ok(None) if facts.process.namespaces.pid == Ok(false) => {
            SUBJECT.unknown("nobody in this container; outside cannot be seen from here")
        }
        Ok(None) => SUBJECT.ok("nobody yet: the next agent becomes it"),
        Ok(Some(pid)) => SUBJECT
            .note(format!("process {pid} holds the lock"))
            .follows("a second agent that starts now only observes"),
        Err(why) => for_root(SUBJECT.unknown(why.clone()), facts),
    }
}

fn button(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("state.stop-button", "stop button");
    let pressed = match &facts.state.button {
        Ok(pressed) => pressed,
        Err(why) => return for_root(SUBJECT.unknown(why.clone()), facts),
    };
    let found = match pressed {
        Pressed::No => return SUBJECT.ok("not pressed"),
        Pressed::Forever => "pressed, until it is lifted".to_owned(),
        Pressed::For(left) => format!("pressed, for another {} s", left.as_secs()),
    };
    let state = match facts.config.mode {
        RunMode::Enforce => State::Warning,
        RunMode::Observe => State::Note,
    };
    SUBJECT
        .trouble(state, found)
        .follows("everything is decided and told, and nothing is killed")
        .run("lift it", "brink resume")
}

fn journal(facts: &Facts) -> Option<Check> {
    const SUBJECT: Subject = Subject("state.journal", "journal of inputs");
    let (path, writable) = facts.state.journal.as_ref()?;
    let path = path.display();
    let Err(why) = writable else {
        return Some(SUBJECT.ok(path.to_string()));
    };
    let closed = SUBJECT
        .failed(format!("{path} cannot be written ({why})"))
        .follows("the agent does not start");
    let elsewhere = "set paths.decisionJournal to a file in a folder of the agent's user";
    Some(opened(closed, why, &facts.process, elsewhere))
}

/// With less room than this its disk counts as full: a segment is begun with some kilobytes.
const FULL: u64 = 1 << 20;

fn event_journal(facts: &Facts) -> Option<Check> {
    const SUBJECT: Subject = Subject("state.event-journal", "journal of events");
    let journal = facts.state.event_journal.as_ref()?;
    let path = journal.path.display();
    let later = "events are not kept over a restart until that is over; nothing else depends on it";
    Some(match (&journal.writable, &journal.room) {
        (Err(why), _) => {
            let closed = SUBJECT
                .warning(format!("{path} cannot be written to ({why})"))
                .follows(later);
            let elsewhere = "set events.journal.path to a folder of the agent's user";
            opened(closed, why, &facts.process, elsewhere)
        }
        (Ok(()), Ok(room)) if *room < FULL => SUBJECT
            .warning(format!("{path}: its disk is full"))
            .follows(later)
            .run("see what takes it", format!("df {}", quoted(&journal.path))),
        (Ok(()), Err(why)) => SUBJECT.unknown(format!("{path}: {why}")),
        (Ok(()), Ok(_)) => SUBJECT.ok(path.to_string()),
    })
}

fn event_port(facts: &Facts) -> Option<Check> {
    const SUBJECT: Subject = Subject("state.event-port", "port of events");
    let (address, found) = facts.state.event_port.as_ref()?;
    let Err(error) = found else {
        return Some(SUBJECT.ok(format!("{address}, free")));
    };
    let is_taken = error.kind() == ErrorKind::AddrInUse;
    let trouble = if is_taken && facts.state.socket.state == SocketState::Answers {
        let found = format!("{address} is in use: by the agent that runs, or by somebody else");
        SUBJECT.trouble(State::Note, found)
    } else {
        SUBJECT
            .warning(format!("{address} cannot be had ({error})"))
            .follows("events are not served there; nothing else depends on it")
    };
    let port = address.port();
    let whose = format!("ss -ltnp 'sport = :{port}'");
    Some(if is_taken {
        trouble.run("see who has it", whose)
    } else {
        trouble.next("set events.listen to an address that this machine has")
    })
}

fn hooks(facts: &Facts) -> Option<Check> {
    const SUBJECT: Subject = Subject("state.hooks", "hooks");
    let hooks = &facts.state.hooks;
    if hooks.is_empty() {
        return None;
    }
    let bad: Vec<String> = hooks
        .iter()
        .filter_map(|(name, path, may)| {
            Some(format!(
                "{name} {}: {}",
                path.display(),
                may.as_ref().err()?
            ))
        })
        .collect();
    if bad.is_empty() {
        return Some(SUBJECT.ok("each can be run"));
    }
    Some(
        SUBJECT
            .failed(bad.join("; "))
            .follows("it is called in vain; kills do not wait for it")
            .next("name a program that is there and may be executed, by its absolute path (hooks.beforeKill, hooks.afterKill)"),
    )
}
