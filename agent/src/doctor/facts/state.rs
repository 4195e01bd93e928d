//! The agent's own files: its folder, socket, ledger, lock, stop button, journal and hooks.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brink_host::clock::BootId;
use brink_host::ledger::{Found, Ledger};
use brink_host::lock::holder_of;
use rustix::fs::{
    Access, AtFlags, CWD, FileType, StatVfsMountFlags, accessat, stat, statfs, statvfs,
};
use rustix::io::Errno;

use super::source::{Known, known};
use crate::config::AgentConfig;
use crate::control::client::{AskError, ask_within};
use crate::control::protocol::Question;
use crate::doctor::advice::quoted;
use crate::ledger::{self, DECISIONS};
use crate::runtime::LOCK;
use crate::runtime::stop_button::{Pressed, StopButton};

/// How long a running agent may take to answer: longer than a crowd of silent clients keeps others waiting.
const PATIENCE: Duration = Duration::from_secs(5);
/// Magic number of tmpfs (`linux/magic.h`).
const TMPFS: u64 = 0x0102_1994;

/// The agent's own files.
#[derive(Debug)]
pub struct StateFiles {
    /// Its folder.
    pub folder: Folder,
    /// Its socket.
    pub socket: Socket,
    /// Its ledger.
    pub ledger: Known<Found>,
    /// Whether the ledger is somebody else's file, by its user.
    pub ledger_owner: Option<u32>,
    /// Who holds the enforcer's lock.
    pub enforcer: Known<Option<i32>>,
    /// The stop button.
    pub button: Known<Pressed>,
    /// Whether the journal can be written to; none without a journal.
    pub journal: Option<(PathBuf, Writable)>,
    /// The folder of the event journal; none where none is to be kept.
    pub event_journal: Option<JournalPlace>,
    /// Where events are to be served on loopback, and why nobody could listen there now.
    pub event_port: Option<(SocketAddr, io::Result<()>)>,
    /// Each configured hook, and why it cannot be run if so.
    pub hooks: Vec<(&'static str, PathBuf, Known<()>)>,
}

/// Whether a file or folder can be written to, or made where it is missing.
pub type Writable = Result<(), Unwritable>;

/// Why it cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unwritable {
    /// No part of its path is there.
    Nowhere(PathBuf),
    /// This is to be a folder, and is none.
    NoFolder(PathBuf),
    /// This is to be a file, and is a folder.
    Folder(PathBuf),
    /// This is to be a file, and is a pipe, a device or a socket.
    NoFile(PathBuf),
    /// The kernel's answer on this, the nearest part that is there.
    Refused(PathBuf, Errno),
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere(path) => write!(f, "no part of {} is there", path.display()),
            Self::NoFolder(path) => write!(f, "{} is no folder", path.display()),
            Self::Folder(path) => write!(f, "{} is a folder", path.display()),
            Self::NoFile(path) => write!(f, "{} is no file", path.display()),
            Self::Refused(path, errno) => {
                write!(f, "{}: {}", path.display(), io::Error::from(*errno))
            }
        }
    }
}

/// The agent's folder.
#[derive(Debug)]
pub struct Folder {
    /// Where.
    pub path: PathBuf,
    /// Whether it is there already.
    pub exists: bool,
    /// Why it cannot be written to, or made.
    pub writable: Writable,
    /// Who else may write to it.
    pub strangers: Option<Strangers>,
    /// Whether it is in memory, so that writing to it never waits for a disk.
    pub in_memory: Known<bool>,
}

/// Where the event journal is to be.
#[derive(Debug)]
pub struct JournalPlace {
    /// The folder.
    pub path: PathBuf,
    /// Why it cannot be written to, or made.
    pub writable: Writable,
    /// What its disk has left, in bytes.
    pub room: Known<u64>,
}

/// The agent's socket.
#[derive(Debug)]
pub struct Socket {
    /// Where.
    pub path: PathBuf,
    /// How it is found.
    pub state: SocketState,
}

/// How the socket is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketState {
    /// There is none, and it could be made.
    Absent,
    /// An agent answers.
    Answers,
    /// An agent listens, and does not answer.
    Silent(String),
    /// It is there and nobody listens: an agent did not end well.
    Left,
    /// We may not talk to it.
    Forbidden,
    /// Something else has that name.
    NoSocket,
    /// It cannot be made or looked at.
    Impossible(String),
}

/// The longest path a socket can have (`sun_path`, with its zero byte).
const LONGEST_SOCKET_PATH: usize = 107;

impl StateFiles {
    /// Looks at everything, and makes nothing.
    pub fn read(root: &Path, config: &AgentConfig) -> Self {
        let paths = &config.paths;
        let folder = &paths.state_dir;
        let ledger = folder.join(ledger::FILE);
        let own = rustix::process::geteuid().as_raw();
        let owner = std::fs::symlink_metadata(&ledger)
            .ok()
            .map(|found| found.uid());
        Self {
            folder: Folder::look(folder),
            socket: Socket::look(&paths.socket),
            ledger: known(BootId::read(root))
                .and_then(|boot| known(Ledger::look(&ledger, DECISIONS, boot))),
            ledger_owner: owner.filter(|owner| *owner != own),
            enforcer: known(holder_of(root, &folder.join(LOCK))),
            button: button(folder),
            journal: paths
                .journal
                .as_ref()
                .map(|path| (path.clone(), journal_place(path))),
            event_journal: (config.events.enabled && config.events.journal.enabled)
                .then(|| JournalPlace::look(&config.events.journal.path)),
            event_port: config
                .events
                .listen
                .filter(|_| config.events.enabled)
                .map(|address| (address, TcpListener::bind(address).map(drop))),
            hooks: hooks(config),
        }
    }
}

impl JournalPlace {
    fn look(path: &Path) -> Self {
        let room = |there: &Path| {
            known(statvfs(there)).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
        };
        Self {
            path: path.to_owned(),
            writable: folder_or_makeable(path),
            room: nearest(path)
                .map_or_else(|| Err("no part of its path is there".to_owned()), room),
        }
    }
}

impl Folder {
    fn look(path: &Path) -> Self {
        let nearest = nearest(path);
        Self {
            path: path.to_owned(),
            exists: path.is_dir(),
            writable: folder_or_makeable(path),
            strangers: Strangers::of(path, rustix::process::geteuid().as_raw()),
            in_memory: match nearest {
                Some(there) => {
                    known(statfs(there)).map(|found| u64::try_from(found.f_type) == Ok(TMPFS))
                }
                None => Err("no part of its path is there".to_owned()),
            },
        }
    }
}

/// Who may make files of ours in a folder, or remove them, beside root and the agent's own user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    /// Everybody.
    Everybody,
    /// The user it belongs to.
    Owner(u32),
}

impl Strangers {
    /// Those of a folder of an agent of that user. One that is not there is made for its owner alone, and nobody writes where
    /// the mount is read-only.
    pub fn of(folder: &Path, own: u32) -> Option<Self> {
        const ROOT: u32 = 0;
        let found = std::fs::metadata(folder).ok()?;
        if statvfs(folder).is_ok_and(|disk| disk.f_flag.contains(StatVfsMountFlags::RDONLY)) {
            return None;
        }
        if found.mode() & 0o002 != 0 {
            return Some(Self::Everybody);
        }
        let owner = found.uid();
        (owner != own && owner != ROOT).then_some(Self::Owner(owner))
    }

    /// What keeps them out.
    pub fn remedy(self, folder: &Path, own: u32) -> String {
        let folder = quoted(folder);
        match self {
            Self::Everybody => format!("chmod o-w {folder}"),
            Self::Owner(_) => format!("chown {own} {folder}"),
        }
    }
}

impl fmt::Display for Strangers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("everybody"),
            Self::Owner(user) => write!(f, "user {user}, whom it belongs to,"),
        }
    }
}

impl Socket {
    fn look(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            state: socket_state(path, PATIENCE),
        }
    }
}

fn socket_state(path: &Path, patience: Duration) -> SocketState {
    if path.as_os_str().len() > LONGEST_SOCKET_PATH {
        return SocketState::Impossible(format!(
            "the path is longer than {LONGEST_SOCKET_PATH} bytes"
        ));
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return SocketState::NoSocket,
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = path.parent().map_or(Ok(()), folder_or_makeable);
            return match made {
                Ok(()) => SocketState::Absent,
                Err(why) => SocketState::Impossible(why.to_string()),
            };
        }
        Err(error) => return SocketState::Impossible(error.to_string()),
    }
    // Whether somebody listens is the kernel's word: a hung agent is still connected to.
    match ask_within(patience, path, &Question::Status) {
        Ok(_) | Err(AskError::Refused(_) | AskError::Foreign { .. }) => SocketState::Answers,
        Err(AskError::NotAllowed { .. }) => SocketState::Forbidden,
        Err(AskError::NoAgent { .. }) => SocketState::Left,
        Err(AskError::Broken { source, .. }) => SocketState::Silent(source.to_string()),
        Err(error @ AskError::OtherSocket { .. }) => SocketState::Silent(error.to_string()),
    }
}

/// The path itself, or the nearest folder above it that is there.
fn nearest(path: &Path) -> Option<&Path> {
    path.ancestors()
        .find(|part| !part.as_os_str().is_empty() && part.symlink_metadata().is_ok())
}

/// Whether a file or folder can be written to, or made where it is missing.
fn writable_or_makeable(path: &Path) -> Writable {
    let there = nearest(path).ok_or_else(|| Unwritable::Nowhere(path.to_owned()))?;
    if there != path && !there.is_dir() {
        return Err(Unwritable::NoFolder(there.to_owned()));
    }
    let wanted = if there.is_dir() {
        Access::WRITE_OK | Access::EXEC_OK
    } else {
        Access::WRITE_OK
    };
    accessat(CWD, there, wanted, AtFlags::EACCESS)
        .map_err(|errno| Unwritable::Refused(there.to_owned(), errno))
}

/// Whether a folder can be written to, or made where it is missing.
fn folder_or_makeable(path: &Path) -> Writable {
    if nearest(path) == Some(path) && !path.is_dir() {
        return Err(Unwritable::NoFolder(path.to_owned()));
    }
    writable_or_makeable(path)
}

/// Whether a journal can be begun here: its folder is not made for it.
fn journal_place(path: &Path) -> Writable {
    match stat(path).map(|found| FileType::from_raw_mode(found.st_mode)) {
        Ok(FileType::Directory) => return Err(Unwritable::Folder(path.to_owned())),
        Ok(FileType::RegularFile) | Err(_) => {}
        Ok(_) => return Err(Unwritable::NoFile(path.to_owned())),
    }
    let parent = path.parent();
    let Some(folder) = parent.filter(|folder| !folder.as_os_str().is_empty()) else {
        return writable_or_makeable(path);
    };
    match stat(folder).map(|found| FileType::from_raw_mode(found.st_mode)) {
        Ok(FileType::Directory) => writable_or_makeable(path),
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Err(Unwritable::NoFolder(folder.to_owned())),
        Err(errno) => Err(Unwritable::Refused(folder.to_owned(), errno)),
    }
}

/// The button counts a file it cannot read as pressed; here that is only unknown.
fn button(folder: &Path) -> Known<Pressed> {
    let button = StopButton::new(folder);
    match accessat(CWD, button.path(), Access::READ_OK, AtFlags::EACCESS).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(format!("{}: {error}", button.path().display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(format!("{} is no folder", folder.display()))
        }
        _ => Ok(button.read()),
    }
}

fn hooks(config: &AgentConfig) -> Vec<(&'static str, PathBuf, Known<()>)> {
    let hooks = [
        ("beforeKill", &config.hooks.before_kill),
        ("afterKill", &config.hooks.after_kill),
    ];
    let program = |(name, command): (&'static str, &Option<Vec<String>>)| {
        let path = PathBuf::from(command.as_ref()?.first()?);
        let may = accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|errno| io::Error::from(errno).to_string());
        let is_file = || path.is_file().then_some(());
        let may = may.and_then(|()| is_file().ok_or_else(|| "it is no file".to_owned()));
        Some((name, path, may))
    };
    hooks.into_iter().filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use crate::control::protocol::RefusalReason;
    use crate::control::server::refused;

    /// For a listener that never answers.
    const NONE: Duration = Duration::from_millis(1);

    /// Answers everybody who has asked so far, in their order, and the one who asks next.
    fn answer(listener: &UnixListener) {
        let refusal = refused(RefusalReason::NotPossible, "no", "wait");
        let line = serde_json::to_string(&refusal).unwrap();
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).unwrap();
            // The first has given up.
            let _gone = stream.write_all(format!("{line}\n").as_bytes());
        }
    }

    #[test]
    fn a_socket_is_told_from_what_an_agent_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("brink.sock");
        let state = || socket_state(&path, NONE);
        assert_eq!(state(), SocketState::Absent);
        let listener = UnixListener::bind(&path).unwrap();
        assert!(matches!(state(), SocketState::Silent(_)));
        let answering = thread::spawn(move || answer(&listener));
        let found = socket_state(&path, Duration::from_mins(1));
        assert_eq!(found, SocketState::Answers);
        answering.join().unwrap();
        assert_eq!(state(), SocketState::Left);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(state(), SocketState::NoSocket);
        let long = folder.path().join("x".repeat(120));
        let found = socket_state(&long, NONE);
        assert!(matches!(found, SocketState::Impossible(_)));
    }

    #[test]
    fn a_folder_that_is_missing_is_judged_by_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("a/b/c");
        let found = Folder::look(&inside);
        assert!(!found.exists && found.writable.is_ok(), "{found:?}");
        std::fs::write(folder.path().join("a"), "a file").unwrap();
        let found = Folder::look(&inside);
        let file = folder.path().join("a");
        let no_folder = Err(Unwritable::NoFolder(file.clone()));
        assert_eq!(found.writable, no_folder);
        assert!(!inside.exists());
        let found = Folder::look(&file);
        assert_eq!(found.writable, no_folder);
        assert_eq!(JournalPlace::look(&file).writable, no_folder);
        let why = format!("{} is no folder", file.display());
        assert_eq!(found.writable.unwrap_err().to_string(), why);
        assert_eq!(button(&file), Err(why), "nobody can have pressed it");
    }

    #[test]
    fn a_folder_that_others_write_to_is_told_from_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(Strangers::of(path, own), None);
        assert_eq!(Strangers::of(&path.join("none"), own), None);
        // To an agent of another user it is somebody's, unless that is root.
        let theirs = (own != 0).then_some(Strangers::Owner(own));
        assert_eq!(Strangers::of(path, own + 1), theirs);
        if own == 0 {
            std::os::unix::fs::chown(path, Some(12_345), None).unwrap();
            let found = Strangers::of(path, own).unwrap();
            assert_eq!(found, Strangers::Owner(12_345));
            assert_eq!(found.remedy(Path::new("/run/x"), 0), "chown 0 /run/x");
            assert_eq!(Strangers::of(path, 12_345), None);
        }
        let open = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(path, open).unwrap();
        assert_eq!(Strangers::of(path, own), Some(Strangers::Everybody));
        // Everybody might, and nobody can.
        let read_only = Path::new("/proc/sys");
        if statvfs(read_only)
            .unwrap()
            .f_flag
            .contains(StatVfsMountFlags::RDONLY)
        {
            assert_eq!(Strangers::of(read_only, own), None);
        }
    }

    #[test]
    fn a_journal_needs_a_folder_and_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| journal_place(&folder.path().join(name));
        assert_eq!(place("journal"), Ok(()));
        let is_folder = Unwritable::Folder(folder.path().join(""));
        assert_eq!(place(""), Err(is_folder));
        let no_folder = Unwritable::NoFolder(folder.path().join("none"));
        assert_eq!(place("none/journal"), Err(no_folder));
        let device = journal_place(Path::new("/dev/null"));
        assert_eq!(device, Err(Unwritable::NoFile("/dev/null".into())));
        let round = folder.path().join("round");
        std::os::unix::fs::symlink(&round, &round).unwrap();
        let refused = Unwritable::Refused(round, Errno::LOOP);
        assert_eq!(place("round/journal"), Err(refused));
    }

    #[test]
    fn looking_at_the_button_is_not_pressing_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(button(folder.path()), Ok(Pressed::No));
        std::fs::write(folder.path().join("pause"), "").unwrap();
        assert_eq!(button(folder.path()), Ok(Pressed::Forever));
    }
}
