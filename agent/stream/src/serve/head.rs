//! The head of a request, from bytes: what was asked, or why it cannot be answered.

use super::Reply;

/// The longest head that is read, in bytes.
pub const LONGEST: usize = 16 << 10;
/// The most headers.
const HEADERS: usize = 64;
/// How to ask rightly. It names no path and no address: who reads this has found the door, and it may be any of them.
const EXAMPLE: &str = "ask by plain HTTP/1.1, without TLS: curl http://ADDRESS/PATH at a port, curl --unix-socket SOCKET http://localhost/PATH at a socket";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// An answer.
    Get,
    /// Its head alone.
    Head,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub method: Method,
    /// The path, decoded; begins with a slash.
    pub path: String,
    /// Keys and values behind the question mark, decoded, in their order.
    pub query: Vec<(String, String)>,
    /// Whether the connection stays open after the answer.
    pub keeps: bool,
    /// Whether the client understands an answer in chunks.
    pub takes_chunks: bool,
    headers: Vec<(String, String)>,
}

impl Request {
    /// The first header of a name, which is written in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        let found = all.find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a key behind the question mark.
    pub fn value(&self, key: &str) -> Option<&str> {
        let found = self.query.iter().find(|(own, _)| own == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Refuses any key but these, and one that is given twice: what is not understood would be answered as if it had not been asked.
    /// `known` says which there are, and `once` what to do instead of giving one twice.
    ///
    /// # Errors
    /// The answer that says what is wrong.
    pub fn only(&self, keys: &[&str], known: &str, once: &str) -> Result<(), Reply> {
        for (at, (key, _)) in self.query.iter().enumerate() {
            if !keys.contains(&key.as_str()) {
                return Err(Reply::refusal(
                    400,
                    &format!("there is no key {key:?}"),
                    known,
                ));
            }
            if self.query[..at].iter().any(|(other, _)| other == key) {
                return Err(Reply::refusal(400, &format!("{key} is given twice"), once));
            }
        }
        Ok(())
    }
}

/// Reads a head from the start of `bytes`. Nothing if it is not whole yet; otherwise the request and how many bytes it had.
///
/// # Errors
/// The answer that says what is wrong with it.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Reply> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut raw = httparse::Request::new(&mut headers);
    let size = match raw.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) if bytes.len() > LONGEST => return Err(too_large()),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(too_large()),
        Err(error) => {
            let problem = format!("this is no HTTP/1.1 request: {error}");
            return Err(Reply::refusal(400, &problem, EXAMPLE));
        }
    };
    if size > LONGEST {
        return Err(too_large());
    }
    let headers = raw.headers.iter().map(|header| {
        let value = String::from_utf8_lossy(header.value).trim().to_owned();
        (header.name.to_ascii_lowercase(), value)
    });
    let mut headers: Vec<_> = headers.collect();
    let method = method_of(raw.method.unwrap_or_default())?;
    refuse_body(&headers)?;
    let is_new = raw.version == Some(1);
    check_host(&headers, is_new)?;
    let (authority, path, query) = target(raw.path.unwrap_or_default())?;
    if let Some(authority) = authority {
        // Whoever writes the whole address means that one, whatever the header says.
        headers.retain(|(name, _)| name != "host");
        headers.push(("host".to_owned(), authority));
    }
    let says = |word: &str| says(&headers, "connection", word);
    let request = Request {
        method,
        path,
        query,
        keeps: is_new && !says("close"),
        takes_chunks: is_new,
        headers,
    };
    Ok(Some((request, size)))
}

fn too_large() -> Reply {
    let problem =
        format!("the head of the request has more than {LONGEST} bytes or {HEADERS} headers");
    Reply::refusal(
        431,
        &problem,
        "ask with fewer and shorter headers and filters",
    )
}

fn says(headers: &[(String, String)], name: &str, word: &str) -> bool {
    let mut named = headers.iter().filter(|(own, _)| own == name);
    named.any(|(_, value)| {
        let mut words = value.split(',');
        words.any(|own| own.trim().eq_ignore_ascii_case(word))
    })
}

fn method_of(method: &str) -> Result<Method, Reply> {
    match method {
        "GET" => Ok(Method::Get),
        "HEAD" => Ok(Method::Head),
        _ => {
            let next = "everything here is read with GET or HEAD; nothing can be changed";
            let refusal = Reply::refusal(405, "this method is not known here", next);
            Err(refusal.with("Allow", "GET, HEAD"))
        }
    }
}

/// What comes behind the head would be taken for the next request.
fn refuse_body(headers: &[(String, String)]) -> Result<(), Reply> {
    let has_body = headers.iter().any(|(name, value)| {
        name == "transfer-encoding" || (name == "content-length" && value != "0")
    });
    if has_body {
        let next = "send the request without Content-Length and Transfer-Encoding";
        return Err(Reply::refusal(400, "a request has no body here", next));
    }
    Ok(())
}

/// RFC 9112 asks for one, and no more: of two, each reader might take another one.
fn check_host(headers: &[(String, String)], is_needed: bool) -> Result<(), Reply> {
    let hosts = headers.iter().filter(|(name, _)| name == "host").count();
    let problem = match hosts {
        0 if is_needed => "the request has no Host",
        0 | 1 => return Ok(()),
        _ => "the request has more than one Host",
    };
    let next = "send one Host header, as every HTTP/1.1 client does";
    Err(Reply::refusal(400, problem, next))
}

/// The host, if one is named, the path, and the query.
type Target = (Option<String>, String, Vec<(String, String)>);

fn target(text: &str) -> Result<Target, Reply> {
    // A client that was told of a proxy writes the whole address.
    let (authority, text) = match text.strip_prefix("http://") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let path = if path.is_empty() { "/" } else { path };
            (Some(authority.to_owned()), path)
        }
        None => (None, text),
    };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let path = decoded(path, false).filter(|path| path.starts_with('/'));
    let path = path.ok_or_else(|| malformed("path"))?;
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(key, true)?, decoded(value, true)?))
    });
    let query: Option<Vec<_>> = pairs.collect();
    let query = query.ok_or_else(|| malformed("query"))?;
    Ok((authority, path, query))
}

fn malformed(part: &str) -> Reply {
    let problem = format!("the {part} of the address is malformed");
    let next = "write what is no letter or digit as % and two hexadecimal digits of UTF-8";
    Reply::refusal(400, &problem, next)
}

/// Undoes the percent encoding; nothing if that is malformed, no UTF-8, or has control characters.
fn decoded(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.contains(char::is_control)).then_some(text)
}
