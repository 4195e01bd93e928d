//! The watch of this node's pods, kept going whatever becomes of the API server.

use std::time::Duration;

use jiff::Timestamp;
use tracing::{info, warn};

use super::{Pod, Pods};
use crate::client::{Access, SOON};
use crate::retry::Backoff;
use crate::watch::{Change, LASTS, Query, Streaming, Watch, lasts};

/// Whose pods are followed, and how.
#[derive(Clone, Debug)]
pub struct Follow {
    /// How the API server is reached.
    pub access: Access,
    /// The node.
    pub node: String,
    /// Whether lists come as streams.
    pub streaming: Streaming,
    /// Anything that differs from run to run: no two wait alike.
    pub seed: u64,
}

impl Follow {
    /// Fills the list for ever. Drop the future to end it.
    pub async fn run(&self, pods: &Pods) {
        let mut backoff = Backoff::new(&self.node, self.seed);
        let lasts = lasts(&mut backoff);
        let mut watch: Option<Watch<Pod>> = None;
        loop {
            let client = match self.access.connect().await {
                Ok(client) => client,
                Err(error) => {
                    self.pause(pods, error.to_string(), backoff.failed(None))
                        .await;
                    continue;
                }
            };
            let watch = match &mut watch {
                Some(watch) => {
                    watch.reconnect(client);
                    watch
                }
                none => none.insert(Watch::new(client, query(&self.node, self.streaming, lasts))),
            };
            let error = loop {
                match watch.next().await {
                    Ok(change) => {
                        if matches!(change, Change::Complete | Change::Opened) {
                            backoff.succeeded();
                            self.say_reached(pods);
                        }
                        pods.take(change, Timestamp::now());
                    }
                    Err(error) => break error,
                }
            };
            if watch.is_to_be_renewed(&error) {
                continue;
            }
            // The next client reads its credentials anew: these may be the reason.
            let wait = backoff.failed(error.asked_wait());
            self.pause(pods, error.to_string(), wait).await;
        }
    }

    async fn pause(&self, pods: &Pods, why: String, wait: Duration) {
        let before = pods.standing(Timestamp::now());
        // Once a reason, not once an attempt.
        if before.why.as_deref() != Some(&why) {
            let known = before.pods;
            warn!(
                node = self.node,
                why,
                known,
                "the API server is not reached by {}; what is known of pods stands",
                self.access.in_words()
            );
        }
        pods.lost(why, Timestamp::now());
        tokio::time::sleep(wait).await;
    }

    fn say_reached(&self, pods: &Pods) {
        if !pods.standing(Timestamp::now()).connected {
            info!(
                node = self.node,
                "the API server is reached; pods are followed"
            );
        }
    }
}

/// The pods of a node.
fn query(node: &str, streaming: Streaming, lasts: Duration) -> Query {
    Query {
        path: "/api/v1/pods",
        fields: format!("spec.nodeName={node}"),
        only_metadata: false,
        streaming,
        lasts,
    }
}

/// Asks the API server once for this node's pods, and whether it lets them be watched.
///
/// # Errors
/// A sentence that says what keeps it from being asked, or what it says.
pub async fn try_out(access: &Access, node: &str) -> Result<Vec<Pod>, String> {
    let client = access.connect_within(SOON).await;
    let client = client.map_err(|error| error.to_string())?;
    let mut watch: Watch<Pod> = Watch::new(client, query(node, Streaming::Never, LASTS));
    let mut pods = Vec::new();
    loop {
        match watch.next().await.map_err(|error| error.to_string())? {
            Change::Found(pod) => pods.push(pod),
            // That it may be watched too is seen when the watch is open.
            Change::Opened => return Ok(pods),
            _ => {}
        }
    }
}
