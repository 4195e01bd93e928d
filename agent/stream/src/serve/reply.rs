//! What is answered, and how it is written on the wire.

use std::fmt::Write as _;

use bytes::Bytes;
use serde::Serialize;

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Bytes,
    /// More headers; what cannot stand in a header is left out of their values.
    pub headers: Vec<(&'static str, String)>,
}

/// What every refusal says.
#[derive(Serialize)]
struct Refusal<'a> {
    error: &'a str,
    next: &'a str,
}

impl Reply {
    /// An answer with a body of any kind.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            content_type,
            body: body.into(),
            headers: Vec::new(),
        }
    }

    /// An answer in JSON, on one line. What cannot be written as JSON becomes a 500 that says so.
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(mut body) => {
                body.push(b'\n');
                Self::new(status, "application/json", body)
            }
            Err(error) => Self::refusal(
                500,
                &format!("the answer cannot be written: {error}"),
                "this is a defect of the agent; report it",
            ),
        }
    }

    /// A refusal: what is wrong, and what to do next.
    pub fn refusal(status: u16, error: &str, next: &str) -> Self {
        Self::json(status, &Refusal { error, next })
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The head on the wire, for a body of known length or for one in chunks.
    pub(super) fn head(&self, length: Length, keeps: bool) -> String {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        push(&mut head, "Content-Type", self.content_type);
        match length {
            Length::Known(bytes) => push(&mut head, "Content-Length", &bytes.to_string()),
            Length::Chunked => push(&mut head, "Transfer-Encoding", "chunked"),
            Length::UntilClose => {}
        }
        if !keeps {
            push(&mut head, "Connection", "close");
        }
        for (name, value) in [
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ] {
            if !self
                .headers
                .iter()
                .any(|(own, _)| own.eq_ignore_ascii_case(name))
            {
                push(&mut head, name, value);
            }
        }
        for (name, value) in &self.headers {
            push(&mut head, name, value);
        }
        head.push_str("\r\n");
        head
    }
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Known(usize),
    Chunked,
    UntilClose,
}

fn push(head: &mut String, name: &str, value: &str) {
    let visible = value
        .chars()
        .filter(|letter| letter.is_ascii_graphic() || *letter == ' ');
    // Writing to a text cannot fail.
    let _written = write!(head, "{name}: ");
    head.extend(visible);
    head.push_str("\r\n");
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        410 => "Gone",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Other",
    }
}
