//! Where clients come in: a Unix socket with mode 0600, a port on loopback, or one of the network with nothing but public pages.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::geteuid;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tracing::{debug, warn};

use super::connection::{Entrance, converse};
use super::places::Places;
use super::refused::Doorman;
use super::{Reply, Service};

/// The longest path a socket can have, in bytes.
pub const LONGEST_PATH: usize = 107;
/// Clients that wait to be accepted: as many as the kernel allows, `net.core.somaxconn`.
const MOST_WAITING: i32 = -1;

/// An address that is listened on. The file of a socket goes with it.
#[derive(Debug)]
pub struct Door {
    listener: Listener,
    entrance: Entrance,
}

#[derive(Debug)]
enum Listener {
    Unix(PrivateSocket),
    Tcp(TcpListener),
}

/// A Unix socket that only root and our own user can connect to; its file goes with it.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl PrivateSocket {
    /// Listens at a path, in a runtime of tokio's. A socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// `AddrInUse` when another one listens there, `AlreadyExists` when what is there is no socket; when the file cannot be
    /// made.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        make_way(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file takes its mode from the socket, so there is no moment at which others could connect. The umask would do as well,
        // but other threads make folders meanwhile.
        fchmod(&socket, Mode::from_raw_mode(0o600))?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, MOST_WAITING)?;
        Ok(Self {
            listener: UnixListener::from_std(socket.into())?,
            path: path.to_path_buf(),
        })
    }

    /// The next client.
    ///
    /// # Errors
    /// When none can be accepted just now.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        Ok(stream)
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.path);
    }
}

/// Who may not come in, in words; nothing for root and our own user.
///
/// # Errors
/// When the kernel does not tell who it is.
pub fn stranger(stream: &UnixStream) -> io::Result<Option<String>> {
    let (peer, own) = (stream.peer_cred()?.uid(), geteuid().as_raw());
    Ok((peer != 0 && peer != own).then(|| {
        format!("uid {peer} asked, and only root and the agent's own user (uid {own}) are answered")
    }))
}

/// Removes a socket that nobody listens on any more, and nothing else.
fn make_way(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => {
            let problem = format!("{} is there already and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let problem = format!("another agent listens on {}", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

impl Door {
    /// A Unix socket, as [`PrivateSocket::bind`] makes it.
    ///
    /// # Errors
    /// Those of [`PrivateSocket::bind`].
    pub fn unix(path: &Path) -> io::Result<Self> {
        PrivateSocket::bind(path).map(|socket| Self {
            listener: Listener::Unix(socket),
            entrance: Entrance::Socket,
        })
    }

    /// A port on loopback, in a runtime of tokio's. Whoever can reach it may read everything.
    ///
    /// # Errors
    /// When the address is not on loopback, or cannot be had.
    pub fn loopback(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            let problem = format!("{address} is not on loopback");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Self::port(address, Entrance::Loopback)
    }

    /// A port that whoever reaches this address may ask for the public pages, and for nothing else, in a runtime of tokio's.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn public(address: SocketAddr) -> io::Result<Self> {
        Self::port(address, Entrance::Public)
    }

    fn port(address: SocketAddr, entrance: Entrance) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        // It listens already, and lets 128 wait.
        listen(&listener, MOST_WAITING)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: Listener::Tcp(TcpListener::from_std(listener)?),
            entrance,
        })
    }

    /// The port's address, which the kernel chose where port 0 was asked for; none for a socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Unix(_) => None,
            Listener::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    pub(super) async fn serve(self, service: Arc<Service>) {
        // Places of its own: anybody on the machine can fill the port's, and must not keep root from the socket.
        let most = match self.entrance {
            Entrance::Loopback => service.bounds.at_port,
            Entrance::Socket | Entrance::Public => service.bounds.connections,
        };
        let places = Arc::new(Places::new(self.entrance, most));
        let doorman = Doorman::default();
        loop {
            let met = match &self.listener {
                Listener::Unix(socket) => socket.accept().await.map(Client::Unix),
                Listener::Tcp(listener) => match listener.accept().await {
                    Ok((stream, _)) => stream.set_nodelay(true).map(|()| Client::Tcp(stream)),
                    Err(error) => Err(error),
                },
            };
            match met {
                Ok(client) => let_in(client, &service, &places, &doorman),
                Err(error) => {
                    warn!(%error, "the event stream cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// Gives a client a place of its own, or tells it why it gets none.
fn let_in(client: Client, service: &Arc<Service>, places: &Arc<Places>, doorman: &Doorman) {
    if let Client::Unix(stream) = &client
        && let Some(refusal) = refusal_of(stranger(stream))
    {
        return doorman.refuse(client, refusal, service.bounds);
    }
    let Some((place, ended)) = places.take() else {
        let most = places.most();
        let problem = format!("all {most} connections are in use");
        let next = "close one of them, or try again in ten seconds";
        let refusal = Reply::refusal(503, &problem, next).with("Retry-After", "10");
        return doorman.refuse(client, refusal, service.bounds);
    };
    let service = Arc::clone(service);
    tokio::spawn(async move {
        let talk = async {
            match client {
                Client::Unix(stream) => converse(stream, &place, &service).await,
                Client::Tcp(stream) => converse(stream, &place, &service).await,
            }
        };
        tokio::select! {
            biased;
            _ = ended => debug!("a client of the event stream had to make room"),
            () = talk => {}
        }
    });
}

/// Whoever has connected.
pub(super) enum Client {
    Unix(UnixStream),
    Tcp(tokio::net::TcpStream),
}

fn refusal_of(stranger: io::Result<Option<String>>) -> Option<Reply> {
    let problem = match stranger {
        Ok(stranger) => stranger?,
        Err(error) => format!("it is not known who asks: {error}"),
    };
    let next = "ask as root: put sudo in front of the command";
    Some(Reply::refusal(403, &problem, next))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[track_caller]
    fn check(path: &Path, expected: Option<io::ErrorKind>) {
        let found = make_way(path).err().map(|error| error.kind());
        assert_eq!(found, expected, "{}", path.display());
    }

    #[test]
    fn only_a_socket_that_nobody_listens_on_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        check(&path("nothing"), None);

        let (file, link) = (path("file"), path("link"));
        fs::write(&file, "precious").unwrap();
        check(&file, Some(io::ErrorKind::AlreadyExists));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        check(&link, Some(io::ErrorKind::AlreadyExists));
        check(folder.path(), Some(io::ErrorKind::AlreadyExists));
        assert_eq!(fs::read_to_string(&link).unwrap(), "precious");

        let socket = path("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        check(&socket, Some(io::ErrorKind::AddrInUse));
        drop(listener);
        check(&socket, None);
        assert!(!socket.exists());
    }

    #[test]
    fn only_loopback_is_listened_on() {
        for address in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
            let refused = Door::loopback(address.parse().unwrap()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{address}");
        }
    }
}
