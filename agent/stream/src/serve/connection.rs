//! One connection: requests one after the other, each answered before the next is read.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::feed::{Feed, Filled};
use super::head::{self, LONGEST, Method, Request};
use super::incidents::Asked;
use super::places::{Doing, Place};
use super::query::Query;
use super::reply::Length;
use super::{Reply, Service, write};

/// How a client came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    /// By the socket: it is known who it is.
    Socket,
    /// By a port on loopback: a browser may have been sent here by anybody.
    Loopback,
    /// By a port of the network: anybody.
    Public,
}

/// What is to be done for a request.
enum Answer {
    Reply(Reply),
    Events(Box<Query>),
    Incidents(Asked),
}

pub(super) async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    place: &Place,
    service: &Arc<Service>,
) {
    let mut unread = Vec::new();
    loop {
        match one(&mut stream, place, service, &mut unread).await {
            Ok(true) => {}
            Ok(false) => return write::farewell(&mut stream).await,
            Err(error) => return debug!(%error, "a client of the event stream is gone"),
        }
    }
}

/// Hears one request and answers it; says whether there may be another.
async fn one<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    place: &Place,
    service: &Arc<Service>,
    unread: &mut Vec<u8>,
) -> io::Result<bool> {
    let stall = service.bounds.stall;
    place.begins(Doing::Hearing);
    let heard = hear(stream, unread, service).await?;
    // Who has said nothing makes room as before while it is bidden farewell.
    if !matches!(heard, Heard::Nothing) {
        place.begins(Doing::Answering);
    }
    let request = match heard {
        Heard::Request(request) => request,
        Heard::Nothing => return Ok(false),
        Heard::Refused(refusal) => {
            write::reply(stream, &refusal, (true, false), stall).await?;
            return Ok(false);
        }
    };
    let entrance = place.entrance();
    let with_body = request.method == Method::Get;
    let answer = if entrance == Entrance::Loopback && is_sent_by_stranger(&request) {
        let next = "use the address of this machine itself, such as http://127.0.0.1:PORT";
        Answer::Reply(Reply::refusal(421, "this is no name of this agent", next))
    } else if entrance == Entrance::Loopback && is_asked_by_another_site(&request) {
        let next = "open the address itself; pages of other sites are told nothing";
        Answer::Reply(Reply::refusal(403, "another site asks", next))
    } else if entrance == Entrance::Public {
        Answer::Reply(service.public_page(&request))
    } else {
        service.answer(&request)
    };
    let reply = match answer {
        Answer::Reply(reply) => reply,
        Answer::Incidents(asked) => service.incidents(asked).await,
        Answer::Events(query) => match Feed::begin(Arc::clone(service), *query).await {
            Ok(feed) => return events(stream, feed, &request).await.map(|()| false),
            Err(refusal) => refusal,
        },
    };
    write::reply(stream, &reply, (with_body, request.keeps), stall).await?;
    Ok(request.keeps)
}

enum Heard {
    Request(Request),
    Nothing,
    Refused(Reply),
}

async fn hear(
    stream: &mut (impl AsyncRead + Unpin),
    unread: &mut Vec<u8>,
    service: &Service,
) -> io::Result<Heard> {
    let end = Instant::now() + service.bounds.hearing;
    loop {
        if !unread.is_empty() {
            match head::parse(unread) {
                Ok(Some((request, size))) => {
                    unread.drain(..size);
                    return Ok(Heard::Request(request));
                }
                Ok(None) => {}
                Err(refusal) => return Ok(Heard::Refused(refusal)),
            }
        }
        let mut some = [0; 2048];
        let room = some.len().min(LONGEST + 1 - unread.len().min(LONGEST));
        match timeout_at(end, stream.read(&mut some[..room])).await {
            Ok(read) => match read? {
                0 if unread.is_empty() => return Ok(Heard::Nothing),
                0 => return Ok(Heard::Refused(cut_off())),
                read => unread.extend_from_slice(&some[..read]),
            },
            Err(_) if unread.is_empty() => return Ok(Heard::Nothing),
            Err(_) => {
                let seconds = service.bounds.hearing.as_secs();
                let problem = format!("no whole request came within {seconds} s");
                let next = "send the head of the request at once, with an empty line at its end";
                return Ok(Heard::Refused(Reply::refusal(408, &problem, next)));
            }
        }
    }
}

fn cut_off() -> Reply {
    let next = "send the whole head, with an empty line at its end";
    Reply::refusal(400, "the request ended in its middle", next)
}

/// Whether a browser asks because a page of another site wants it. To follow a link to here is what people do; they then look at
/// our page, and the other site sees nothing of it.
fn is_asked_by_another_site(request: &Request) -> bool {
    let host = request.header("host").unwrap_or_default();
    let is_own = |origin: &str| {
        let own = origin.strip_prefix("http://");
        own.is_some_and(|own| own.eq_ignore_ascii_case(host))
    };
    let is_foreign = request
        .header("origin")
        .is_some_and(|origin| !is_own(origin));
    let site = request.header("sec-fetch-site");
    let is_other = site.is_some_and(|site| matches!(site, "cross-site" | "same-site"));
    is_foreign || (is_other && request.header("sec-fetch-mode") != Some("navigate"))
}

/// Whether the request is for a name that somebody else could make to mean this machine.
fn is_sent_by_stranger(request: &Request) -> bool {
    let Some(host) = request.header("host") else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = name
        .parse()
        .is_ok_and(|address: IpAddr| address.is_loopback());
    !is_loopback && !name.eq_ignore_ascii_case("localhost")
}

impl Service {
    fn answer(&self, request: &Request) -> Answer {
        if request.path == "/v1/events" {
            return match Query::read(request) {
                Ok(query) => Answer::Events(Box::new(query)),
                Err(refusal) => Answer::Reply(refusal),
            };
        }
        if let Some(asked) = Asked::read(request) {
            return match asked {
                Ok(asked) => Answer::Incidents(asked),
                Err(refusal) => Answer::Reply(refusal),
            };
        }
        let reply = match self.routes.find(&request.path) {
            Some(handler) => handler(request),
            None => self.unknown(&request.path),
        };
        Answer::Reply(reply)
    }

    /// What anybody may see: neither events, nor incidents, nor pages that speak of workloads.
    fn public_page(&self, request: &Request) -> Reply {
        if let Some(handler) = self.public.find(&request.path) {
            return handler(request);
        }
        let paths: Vec<_> = self.public.paths().collect();
        let problem = format!("there is nothing at {:?}", request.path);
        let next = format!("the paths are {}", paths.join(", "));
        Reply::refusal(404, &problem, &next)
    }

    fn unknown(&self, path: &str) -> Reply {
        let own = ["/v1/events", "/v1/incidents", "/v1/incidents/ID"];
        let paths: Vec<_> = own.into_iter().chain(self.routes.paths()).collect();
        let problem = format!("there is nothing at {path:?}");
        let next = format!("the paths are {}", paths.join(", "));
        Reply::refusal(404, &problem, &next)
    }
}

/// Sends events until the end, or until the client is gone.
async fn events<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    mut feed: Feed,
    request: &Request,
) -> io::Result<()> {
    let bounds = feed.bounds();
    let length = if request.takes_chunks {
        Length::Chunked
    } else {
        Length::UntilClose
    };
    let head = Reply::new(200, feed.content_type(), "").head(length, false);
    write::all(stream, head.as_bytes(), bounds.stall).await?;
    if request.method == Method::Head {
        return Ok(());
    }
    let mut chunk = Chunk::new(request.takes_chunks);
    loop {
        chunk.clear();
        let filled = feed.fill(&mut chunk.bytes).await;
        let is_empty = chunk.is_empty();
        if !is_empty {
            write::all(stream, chunk.whole(), bounds.stall).await?;
            feed.has_sent();
        }
        match filled {
            // A reader that wants little of much must not keep the others from their turn.
            Filled::More if is_empty => tokio::task::yield_now().await,
            Filled::More => {}
            Filled::End => return write::all(stream, chunk.last(), bounds.stall).await,
            Filled::Wait => {
                let alive = wait(stream, &mut feed, bounds.heartbeat).await?;
                if alive == Alive::Quiet && feed.is_sse() {
                    chunk.clear();
                    chunk.bytes.extend_from_slice(b": still here\n\n");
                    write::all(stream, chunk.whole(), bounds.stall).await?;
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alive {
    News,
    Quiet,
}

/// Waits for news; notices when the client goes. What it sends meanwhile is not heard.
async fn wait(
    stream: &mut (impl AsyncRead + Unpin),
    feed: &mut Feed,
    heartbeat: std::time::Duration,
) -> io::Result<Alive> {
    let mut scratch = [0; 256];
    let quiet = Instant::now() + heartbeat;
    loop {
        tokio::select! {
            () = feed.changed() => return Ok(Alive::News),
            read = stream.read(&mut scratch) => if read? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            },
            () = tokio::time::sleep_until(quiet) => return Ok(Alive::Quiet),
        }
    }
}

/// One piece of a body, with room in front for its length.
struct Chunk {
    bytes: Vec<u8>,
    is_framed: bool,
}

impl Chunk {
    /// Eight hexadecimal digits, and the end of that line.
    const FRONT: usize = 10;
    /// What is kept of its memory between two pieces.
    const KEPT: usize = 64 << 10;

    const fn new(is_framed: bool) -> Self {
        Self {
            bytes: Vec::new(),
            is_framed,
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(Self::KEPT);
        if self.is_framed {
            self.bytes.resize(Self::FRONT, b'0');
        }
    }

    fn is_empty(&self) -> bool {
        self.bytes.len() <= if self.is_framed { Self::FRONT } else { 0 }
    }

    /// The piece as it is sent.
    fn whole(&mut self) -> &[u8] {
        if self.is_framed {
            let length = self.bytes.len() - Self::FRONT;
            let front = format!("{length:08x}\r\n");
            self.bytes[..Self::FRONT].copy_from_slice(front.as_bytes());
            self.bytes.extend_from_slice(b"\r\n");
        }
        &self.bytes
    }

    /// What says that the body is whole.
    const fn last(&self) -> &'static [u8] {
        if self.is_framed { b"0\r\n\r\n" } else { b"" }
    }
}
