//! Clients that are not let in: each is told why, and a few at a time are listened to until they go.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::connection::Entrance;
use super::door::Client;
use super::places::Places;
use super::{Bounds, Reply, write};

/// Those who were told why and may still be sending their request: to close over it would take the answer from them. One more is
/// told all the same, and the one that has had the longest moment goes.
const AT_A_TIME: usize = 64;

/// Says why.
pub(super) struct Doorman {
    leaving: Arc<Places>,
}

impl Default for Doorman {
    fn default() -> Self {
        // As at a public port, where everybody makes room: so there is always a place.
        Self {
            leaving: Arc::new(Places::new(Entrance::Public, AT_A_TIME)),
        }
    }
}

impl Doorman {
    pub(super) fn refuse(&self, client: Client, refusal: Reply, bounds: Bounds) {
        let Some((place, ended)) = self.leaving.take() else {
            return;
        };
        tokio::spawn(async move {
            match client {
                Client::Unix(stream) => tell(stream, &refusal, bounds, ended).await,
                Client::Tcp(stream) => tell(stream, &refusal, bounds, ended).await,
            }
            drop(place);
        });
    }
}

async fn tell(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    refusal: &Reply,
    bounds: Bounds,
    ended: oneshot::Receiver<()>,
) {
    // Before room is made: nothing was sent to this client yet, so the kernel has room for all of this at once.
    let stall = bounds.stall.min(bounds.hearing);
    let told = write::reply(&mut stream, refusal, (true, false), stall).await;
    if told.is_ok() {
        // What has come by now is read in any case.
        tokio::select! {
            biased;
            () = write::farewell(&mut stream) => {}
            _ = ended => {}
        }
    }
}
