//! Clients that are not let in: a few at a time are told why, the others find the door shut.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use super::door::Client;
use super::{Bounds, Reply, write};

/// Says why.
#[derive(Debug)]
pub(super) struct Doorman {
    room: Arc<Semaphore>,
}

impl Default for Doorman {
    fn default() -> Self {
        const AT_A_TIME: usize = 64;
        Self {
            room: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }
}

impl Doorman {
    pub(super) fn refuse(&self, client: Client, refusal: Reply, bounds: Bounds) {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            match client {
                Client::Unix(stream) => tell(stream, &refusal, bounds).await,
                Client::Tcp(stream) => tell(stream, &refusal, bounds).await,
            }
            drop(place);
        });
    }
}

async fn tell(mut stream: impl AsyncRead + AsyncWrite + Unpin, refusal: &Reply, bounds: Bounds) {
    let stall = bounds.stall.min(bounds.hearing);
    let told = write::reply(&mut stream, refusal, (true, false), stall).await;
    if told.is_ok() {
        write::farewell(&mut stream).await;
    }
}
