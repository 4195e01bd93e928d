//! A list and what changes in it, for as long as the agent runs.
//!
//! A list first, then a watch from the version it was made at; where the watch ends, another from the newest version that was
//! seen; where the server has forgotten that one, a list again. Lists are asked of the server's cache: the same question put
//! to etcd would make the server read the pods of the whole cluster for each node.

mod fault;
#[cfg(test)]
mod tests;

use std::time::Duration;
use std::vec::IntoIter;

use futures_util::stream::{BoxStream, StreamExt as _};
use jiff::Timestamp;
use kube::Client;
use kube::api::{ListParams, ObjectList, Request, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use crate::client::{Release, has_run_out};
use crate::retry::Backoff;

pub use fault::WatchError;

/// A server that has not begun to answer by then is as good as away.
const ANSWER: Duration = Duration::from_secs(30);
/// A watch that ends sooner than this and told nothing is a failure: whoever came back at once would never rest.
const SHORTEST: Duration = Duration::from_secs(1);
/// How much later than asked the server may end a watch before it counts as lost.
const GRACE: Duration = Duration::from_secs(15);
/// How long the server keeps one watch open at least.
pub(crate) const LASTS: Duration = Duration::from_mins(5);
/// Objects in one page where the server makes pages.
const PAGE: u32 = 500;
/// The first release that knows lists as streams, if only to refuse them.
const STREAMS: Release = Release {
    major: 1,
    minor: 27,
};
/// The mark at the end of a streamed list.
const END_OF_LIST: &str = "k8s.io/initial-events-end";

/// How long the server keeps each watch of a node open: up to twice the least, so that not all nodes ask at once. The first that
/// is drawn from `backoff`.
pub fn lasts(backoff: &mut Backoff) -> Duration {
    LASTS + backoff.part_of(LASTS)
}

/// What is watched: as much of an object as is wanted of it.
pub trait Object: Clone + DeserializeOwned + Send + 'static {
    /// Its `metadata.resourceVersion`.
    fn resource_version(&self) -> &str;
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The collection, `/api/v1/pods` and the like.
    pub path: &'static str,
    /// A field selector.
    pub fields: String,
    /// Whether the server is to send metadata alone.
    pub only_metadata: bool,
    /// Whether the list comes as a stream.
    pub streaming: Streaming,
    /// How long the server keeps one watch open.
    pub lasts: Duration,
}

/// Whether lists come as streams, object by object, which saves memory here and in the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// Where the server does so.
    #[default]
    Auto,
    /// Always; a server that does not is an error.
    Always,
    /// Never.
    Never,
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<K> {
    /// A list begins: what follows, up to [`Self::Complete`], is all there is.
    Began,
    /// An object of the list.
    Found(K),
    /// The list is complete; what was known and not in it is gone.
    Complete,
    /// A watch is open: what is known is up to date. After a streamed list it goes without saying.
    Opened,
    /// An object is new, or another.
    Applied(K),
    /// An object is gone.
    Deleted(K),
}

/// A watch that goes on for ever.
pub struct Watch<K> {
    client: Client,
    query: Query,
    /// Whether lists are streamed, once that is known.
    streams: Option<bool>,
    /// The newest version that was seen.
    version: Option<String>,
    /// The server's cache does not have what we have seen: etcd is asked.
    from_etcd: bool,
    /// The server had forgotten our version, and nothing was told since.
    expired: bool,
    /// Credentials were renewed, and nothing was heard since.
    renewed: bool,
    state: State<K>,
}

type Events<K> = BoxStream<'static, Result<WatchEvent<K>, kube::Error>>;

enum State<K> {
    /// Nothing is known, or it is all too old.
    Empty,
    /// A list, a page of it in hand.
    Listing(IntoIter<K>, Pages),
    /// A list that comes as a stream.
    Streaming(Events<K>),
    /// Everything up to a version is known.
    Listed,
    /// A watch since when, and whether it told anything.
    Watching(Events<K>, Instant, bool),
}

/// What is missing of a list.
enum Pages {
    All,
    After(String),
    None,
}

impl<K: Object> Watch<K> {
    /// A watch that has asked nothing yet.
    pub fn new(client: Client, query: Query) -> Self {
        Self {
            client,
            query,
            streams: None,
            version: None,
            from_etcd: false,
            expired: false,
            renewed: false,
            state: State::Empty,
        }
    }

    /// Goes on by another client.
    pub fn reconnect(&mut self, client: Client) {
        self.client = client;
    }

    /// Whether the server refuses because the credentials of this client hold no longer, and nobody is away: with newer ones it may go
    /// on at once. Once in a row, as a plugin may say what has run out already.
    pub fn is_to_be_renewed(&mut self, error: &WatchError) -> bool {
        let is_outdated =
            error.is_refused() && has_run_out(*self.client.valid_until(), Timestamp::now());
        is_outdated && !std::mem::replace(&mut self.renewed, true)
    }

    /// Waits for the next change. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// [`WatchError`]; the next call tries again at once, so wait before it.
    pub async fn next(&mut self) -> Result<Change<K>, WatchError> {
        loop {
            let change = match &mut self.state {
                State::Empty => self.begin().await,
                State::Listing(items, _) => match items.next() {
                    Some(item) => Ok(Some(Change::Found(item))),
                    None => self.turn_page().await,
                },
                State::Listed => self.open().await,
                State::Streaming(events) => match timeout(ANSWER, events.next()).await {
                    Ok(event) => self.take_first(event),
                    Err(_) => Err(WatchError::Slow),
                },
                State::Watching(events, ..) => {
                    let event = timeout(self.query.lasts + GRACE, events.next()).await;
                    self.take(event.unwrap_or(None))
                }
            };
            match change.or_else(|error| self.judge(error).map(|()| None)) {
                Ok(None) => {}
                Ok(Some(change)) => {
                    if matches!(change, Change::Complete | Change::Opened) {
                        self.renewed = false;
                    }
                    return Ok(change);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn begin(&mut self) -> Result<Option<Change<K>>, WatchError> {
        if self.is_streamed().await? {
            let from = if self.from_etcd {
                String::new()
            } else {
                self.version.clone().unwrap_or_else(|| "0".to_owned())
            };
            match self.events(true, &from).await {
                Ok(events) => {
                    self.state = State::Streaming(events);
                    return Ok(Some(Change::Began));
                }
                Err(error) if self.query.streaming == Streaming::Auto && error.is_refusal() => {
                    self.streams = Some(false);
                }
                Err(error) => return Err(error),
            }
        }
        self.state = State::Listing(Vec::new().into_iter(), Pages::All);
        Ok(Some(Change::Began))
    }

    async fn is_streamed(&mut self) -> Result<bool, WatchError> {
        let known = match (self.streams, self.query.streaming) {
            (Some(known), _) => known,
            (None, Streaming::Always) => true,
            (None, Streaming::Never) => false,
            (None, Streaming::Auto) => {
                let release = answer(Release::of(&self.client)).await?;
                // Older ones take the question for a plain watch, and the list would never end.
                release.is_some_and(|release| release >= STREAMS)
            }
        };
        self.streams = Some(known);
        Ok(known)
    }

    /// The next page of the list, or its end.
    async fn turn_page(&mut self) -> Result<Option<Change<K>>, WatchError> {
        let State::Listing(_, pages) = &self.state else {
            return Ok(None);
        };
        let (token, version) = match pages {
            Pages::None => {
                self.state = State::Listed;
                return Ok(Some(Change::Complete));
            }
            Pages::After(token) => (Some(token.clone()), None),
            Pages::All if self.from_etcd => (None, None),
            Pages::All => (
                None,
                Some(self.version.as_deref().unwrap_or("0").to_owned()),
            ),
        };
        let params = ListParams {
            field_selector: Some(self.query.fields.clone()),
            // The cache knows no pages, and with a limit it would not be asked.
            limit: version.is_none().then_some(PAGE),
            continue_token: token,
            resource_version: version,
            ..ListParams::default()
        };
        let request = Request::new(self.query.path);
        let request = if self.query.only_metadata {
            request.list_metadata(&params)
        } else {
            request.list(&params)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let list: ObjectList<K> = answer(self.client.request(request)).await?;
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        let version = filled(list.metadata.resource_version);
        self.version = Some(version.ok_or(WatchError::NoVersion)?);
        let pages = filled(list.metadata.continue_).map_or(Pages::None, Pages::After);
        self.state = State::Listing(list.items.into_iter(), pages);
        Ok(None)
    }

    async fn open(&mut self) -> Result<Option<Change<K>>, WatchError> {
        let version = self.version.clone().ok_or(WatchError::NoVersion)?;
        let events = self.events(false, &version).await?;
        self.state = State::Watching(events, Instant::now(), false);
        Ok(Some(Change::Opened))
    }

    async fn events(&self, with_list: bool, version: &str) -> Result<Events<K>, WatchError> {
        let params = WatchParams {
            field_selector: Some(self.query.fields.clone()),
            timeout: u32::try_from(self.query.lasts.as_secs()).ok(),
            send_initial_events: with_list,
            ..WatchParams::default()
        };
        let request = Request::new(self.query.path);
        let request = if self.query.only_metadata {
            request.watch_metadata(&params, version)
        } else {
            request.watch(&params, version)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let events = answer(self.client.request_events::<K>(request)).await?;
        Ok(events.boxed())
    }

    /// Takes what a streamed list says.
    fn take_first(
        &mut self,
        event: Option<Result<WatchEvent<K>, kube::Error>>,
    ) -> Result<Option<Change<K>>, WatchError> {
        match event {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                Ok(Some(Change::Found(object)))
            }
            Some(Ok(WatchEvent::Bookmark(mark)))
                if mark.metadata.annotations.contains_key(END_OF_LIST) =>
            {
                self.version = Some(mark.metadata.resource_version);
                if let State::Streaming(events) = std::mem::replace(&mut self.state, State::Listed)
                {
                    self.state = State::Watching(events, Instant::now(), true);
                }
                self.heard();
                Ok(Some(Change::Complete))
            }
            Some(Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_))) => Ok(None),
            Some(Ok(WatchEvent::Error(status))) => Err(kube::Error::Api(status).into()),
            Some(Err(error)) => Err(error.into()),
            None => Err(WatchError::Cut),
        }
    }

    /// Takes what a watch says.
    fn take(
        &mut self,
        event: Option<Result<WatchEvent<K>, kube::Error>>,
    ) -> Result<Option<Change<K>>, WatchError> {
        let change = match event {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                self.see(object.resource_version())?;
                Some(Change::Applied(object))
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                self.see(object.resource_version())?;
                Some(Change::Deleted(object))
            }
            Some(Ok(WatchEvent::Bookmark(mark))) => {
                self.see(&mark.metadata.resource_version)?;
                None
            }
            Some(Ok(WatchEvent::Error(status))) => return Err(kube::Error::Api(status).into()),
            Some(Err(error)) if !fault::is_break(&error) => return Err(error.into()),
            // Servers end every watch in time, and so do those who carry it: the next one shows whether anybody is there.
            Some(Err(_)) | None => return self.ended(),
        };
        self.heard();
        Ok(change)
    }

    fn see(&mut self, version: &str) -> Result<(), WatchError> {
        if version.is_empty() {
            return Err(WatchError::NoVersion);
        }
        self.version = Some(version.to_owned());
        Ok(())
    }

    /// The server told something: it is there, and our version is none that it has forgotten.
    fn heard(&mut self) {
        (self.expired, self.from_etcd) = (false, false);
        if let State::Watching(_, _, told) = &mut self.state {
            *told = true;
        }
    }

    fn ended(&mut self) -> Result<Option<Change<K>>, WatchError> {
        let State::Watching(_, since, told) = std::mem::replace(&mut self.state, State::Listed)
        else {
            return Ok(None);
        };
        if !told && since.elapsed() < SHORTEST {
            return Err(WatchError::Cut);
        }
        Ok(None)
    }

    /// What becomes of the list after an error; nothing to tell if it is only begun anew.
    fn judge(&mut self, error: WatchError) -> Result<(), WatchError> {
        let was_watching = matches!(self.state, State::Listed | State::Watching(..));
        let is_whole =
            was_watching && !error.is_expired() && !matches!(error, WatchError::NoVersion);
        self.state = if is_whole {
            State::Listed
        } else {
            State::Empty
        };
        // A list that this happens to asked for a version its server no longer has, or has not yet.
        self.from_etcd |= error.is_ahead() || (error.is_expired() && !was_watching);
        let is_first = error.is_expired() && !self.expired;
        self.expired |= error.is_expired();
        if is_first { Ok(()) } else { Err(error) }
    }
}

/// An answer in good time.
async fn answer<T>(asked: impl Future<Output = Result<T, kube::Error>>) -> Result<T, WatchError> {
    match timeout(ANSWER, asked).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(WatchError::Slow),
    }
}
