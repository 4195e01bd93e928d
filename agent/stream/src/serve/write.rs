//! Bytes to a client: whole, as long as it takes some of them now and then.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::Reply;
use super::reply::Length;

/// Writes everything. A client that takes nothing for `stall` is given up.
pub(super) async fn all(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    stall: Duration,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match timeout(stall, stream.write(bytes)).await {
            Ok(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written?..],
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    Ok(())
}

/// Writes a whole answer.
pub(super) async fn reply(
    stream: &mut (impl AsyncWrite + Unpin),
    reply: &Reply,
    (with_body, keeps): (bool, bool),
    stall: Duration,
) -> io::Result<()> {
    let head = reply.head(Length::Known(reply.body.len()), keeps);
    all(stream, head.as_bytes(), stall).await?;
    if with_body {
        all(stream, &reply.body, stall).await?;
    }
    Ok(())
}

/// Ends a conversation. What the client still sends is read for a moment: to close over it would take the answer from it.
pub(super) async fn farewell(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    const MOMENT: Duration = Duration::from_secs(1);
    const MOST: usize = 1 << 20;
    if stream.shutdown().await.is_err() {
        return;
    }
    let end = Instant::now() + MOMENT;
    let (mut scratch, mut read) = ([0; 1024], 0);
    while read < MOST {
        match timeout_at(end, stream.read(&mut scratch)).await {
            Ok(Ok(some)) if some > 0 => read += some,
            _ => return,
        }
    }
}
