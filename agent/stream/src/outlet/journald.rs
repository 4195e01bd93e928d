//! Events to journald by its own protocol: one datagram of fields each, or a sealed file where that is too long.

use std::io::{self, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix};

use super::{Failure, Outlet};
use crate::hub::Line;
use crate::model::kind::Kind;

/// Where journald listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";
/// A journald that takes nothing for so long is down.
const STALL: Duration = Duration::from_secs(2);

/// The way to journald.
pub struct Journald {
    path: PathBuf,
    socket: UnixDatagram,
    /// What an event says to people.
    says: fn(&Line) -> String,
}

impl Journald {
    /// To whoever listens at `path`; nobody has to yet. `says` makes the message of an event.
    ///
    /// # Errors
    /// When no socket can be made, or `path` is too long for one.
    pub fn new(path: &Path, says: fn(&Line) -> String) -> io::Result<Self> {
        SocketAddrUnix::new(path)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(STALL))?;
        Ok(Self {
            path: path.to_path_buf(),
            socket,
            says,
        })
    }

    fn send(&self, fields: &[u8]) -> io::Result<()> {
        match self.socket.send_to(fields, &self.path) {
            Ok(_) => Ok(()),
            Err(error) if is_too_long(&error) => self.send_file(fields),
            Err(error) => Err(error),
        }
    }

    /// The same as a file in memory that nobody can change any more, which is what journald asks for.
    fn send_file(&self, fields: &[u8]) -> io::Result<()> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("brink-event", flags)?;
        let mut file = std::fs::File::from(file);
        file.write_all(fields)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::Error::other("no room for a file in a message"));
        }
        let address = SocketAddrUnix::new(&self.path)?;
        let nothing = [IoSlice::new(&[])];
        rustix::net::sendmsg_addr(
            &self.socket,
            &address,
            &nothing,
            &mut control,
            SendFlags::empty(),
        )?;
        Ok(())
    }
}

fn is_too_long(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    errno == Some(rustix::io::Errno::MSGSIZE) || errno == Some(rustix::io::Errno::NOBUFS)
}

impl Outlet for Journald {
    fn name(&self) -> &'static str {
        "journald"
    }

    fn put(&mut self, lines: &[Arc<Line>]) -> Result<(), Failure> {
        for (done, line) in lines.iter().enumerate() {
            self.send(&fields(line, &(self.says)(line)))
                .map_err(|error| Failure {
                    why: format!("journald at {}: {error}", self.path.display()),
                    ..Failure::io(done, &error)
                })?;
        }
        Ok(())
    }
}

/// How pressing it is, as syslog counts: 4 is a warning, 5 a notice, 6 information.
const fn priority(of: Kind) -> &'static str {
    match of {
        Kind::EvictionOrdered | Kind::OomKill | Kind::KillObserved | Kind::Loss => "4",
        Kind::Pressure
        | Kind::ThresholdCrossed
        | Kind::LimitImminent
        | Kind::OomScoreAdjDiffers
        | Kind::NodeReclaim
        | Kind::RungChanged => "5",
        _ => "6",
    }
}

/// An event in the fields of journald.
fn fields(line: &Line, message: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.text.len() + 512);
    field(&mut out, "MESSAGE", message.as_bytes());
    field(&mut out, "PRIORITY", priority(line.of).as_bytes());
    field(&mut out, "SYSLOG_IDENTIFIER", b"brink");
    field(&mut out, "BRINK_KIND", line.of.word().as_bytes());
    field(&mut out, "BRINK_SEQ", line.seq.to_string().as_bytes());
    field(&mut out, "BRINK_BOOT_ID", line.boot.as_bytes());
    if let Some(subject) = &line.subject {
        field(&mut out, "BRINK_NAMESPACE", subject.namespace.as_bytes());
        field(&mut out, "BRINK_NAME", subject.name.as_bytes());
        field(&mut out, "BRINK_UID", subject.uid.as_bytes());
        if let Some(incident) = &subject.incident {
            field(&mut out, "BRINK_INCIDENT", incident.as_bytes());
        }
    }
    field(&mut out, "BRINK_EVENT", line.text.trim_ascii_end());
    out
}

/// One field. Its length is told where a newline in it could be taken for the end.
fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    if value.is_empty() {
        return;
    }
    out.extend_from_slice(name.as_bytes());
    if value.contains(&b'\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value);
    out.push(b'\n');
}
