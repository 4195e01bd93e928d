//! The event stream: what is asked over HTTP, and what a file of numbers or a kept line of events says.

use brink_stream::hub::{Line, numbers};
use brink_stream::serve::head::{LONGEST, parse};
use brink_stream::serve::query::Query;
use brink_stream::serve::{Reply, Request};

use crate::Taken;

/// The head of a request, and what of the events it asks for.
pub(crate) fn requests(bytes: &[u8]) -> Taken {
    match parse(bytes) {
        Ok(Some((request, size))) => {
            assert!(size <= bytes.len() && size <= LONGEST);
            assert!(request.path.starts_with('/'));
            let again = parse(&bytes[..size]).ok().flatten();
            assert_eq!(
                again,
                Some((request.clone(), size)),
                "nothing behind it counts"
            );
            let cut = parse(&bytes[..size - 1]);
            assert!(!matches!(cut, Ok(Some(_))), "a part is no whole");
            Taken::from_accepted(asks(&request))
        }
        Ok(None) => {
            assert!(bytes.len() <= LONGEST);
            Taken::Refused
        }
        Err(refusal) => {
            assert_says_what_to_do(&refusal);
            Taken::Refused
        }
    }
}

fn asks(request: &Request) -> bool {
    let texts = request.query.iter().flat_map(|(key, value)| [key, value]);
    for text in texts.chain([&request.path]) {
        assert!(!text.contains(char::is_control), "{text:?}");
    }
    match Query::read(request) {
        Ok(query) => {
            assert!(query.limit != Some(0));
            true
        }
        Err(refusal) => {
            assert_says_what_to_do(&refusal);
            false
        }
    }
}

fn assert_says_what_to_do(refusal: &Reply) {
    assert!((400..500).contains(&refusal.status));
    let said: Option<serde_json::Value> = serde_json::from_slice(&refusal.body).ok();
    let says = |key: &str| {
        let said = said.as_ref().and_then(|said| said[key].as_str());
        said.is_some_and(|text| !text.is_empty())
    };
    assert!(says("error") && says("next"), "{refusal:?}");
}

/// A kept line, or else a file of numbers.
pub(crate) fn kept_events(bytes: &[u8]) -> Taken {
    if let Ok(line) = Line::parse(bytes) {
        assert_eq!(Line::parse(&line.text).ok(), Some(line));
        return Taken::Accepted;
    }
    match numbers::parse(bytes) {
        Ok((boot, last)) => {
            assert!(boot.len() <= bytes.len() && last < 1 << 53);
            Taken::Accepted
        }
        Err(why) => {
            assert!(!why.is_empty());
            Taken::Refused
        }
    }
}
