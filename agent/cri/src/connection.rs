//! One connection to the runtime: HTTP/2 over its socket, which gRPC is spoken on.

use std::io::ErrorKind;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::body::Body;
use tower_service::Service;

use crate::fault::CriError;

/// What connecting is called in an error.
pub(crate) const CONNECTING: &str = "for a connection";

/// How a client begins HTTP/2: the words, and a frame of settings that changes none.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The head of a frame, where in it the kind stands, and the kind that comes first from every server.
const HEAD: usize = 9;
const KIND: usize = 3;
const SETTINGS: u8 = 4;

/// An open connection; what is cloned shares it, and it ends with the last of them.
#[derive(Clone)]
pub struct Connection {
    sender: SendRequest<Body>,
    /// Ends the task that drives the connection.
    _driver: Arc<Driver>,
}

struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Connects to a socket. Nothing is asked yet, so nobody knows what listens there.
    ///
    /// # Errors
    /// [`CriError::Absent`], [`CriError::Denied`], [`CriError::Hung`] or [`CriError::Connect`].
    pub async fn open(socket: &Path, within: Duration) -> Result<Self, CriError> {
        let hung = || CriError::Hung {
            call: CONNECTING,
            after: within,
        };
        let connected = timeout(within, UnixStream::connect(socket)).await;
        let stream = connected.map_err(|_elapsed| hung())?.map_err(|source| {
            let socket = socket.to_owned();
            let why = source.to_string();
            match source.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    CriError::Absent { socket, why }
                }
                ErrorKind::PermissionDenied => CriError::Denied { socket, why },
                // The queue of those who wait to be let in is full, and nobody lets them in.
                ErrorKind::WouldBlock => hung(),
                _ => CriError::Connect { socket, source },
            }
        })?;
        let (sender, driven) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| CriError::Connect {
                socket: socket.to_owned(),
                source: std::io::Error::other(error),
            })?;
        // How it ends is told to whoever waits for an answer on it.
        let task = tokio::spawn(async move { driven.await.unwrap_or_default() });
        Ok(Self {
            sender,
            _driver: Arc::new(Driver(task)),
        })
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Whether what listens at a socket answers in another protocol. Of such a connection nobody is told more than that it ended, so
/// this greets once more and looks at the first bytes.
pub(crate) async fn speaks_otherwise(socket: &Path, within: Duration) -> bool {
    let greeted = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(GREETING).await?;
        let mut head = [0; HEAD];
        stream.read_exact(&mut head).await?;
        Ok::<_, std::io::Error>(head)
    };
    // Who says nothing, or is gone, speaks no other protocol.
    matches!(timeout(within, greeted).await, Ok(Ok(head)) if head[KIND] != SETTINGS)
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
