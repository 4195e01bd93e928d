//! Lines and values with the node they are from.

use std::io::{self, BufRead, Read as _, Write};

use serde::de::IgnoredAny;

use crate::record::text::counted;

/// Longest line, in bytes; what is longer is cut there.
const LONGEST: u64 = 1 << 20;

/// A line of what somebody says.
pub(super) struct Line {
    /// What is no UTF-8 is replaced.
    pub(super) text: String,
    is_utf8: bool,
}

impl Line {
    /// Whether it is a value in JSON.
    pub(super) fn is_value(&self) -> bool {
        self.is_utf8 && serde_json::from_str::<IgnoredAny>(&self.text).is_ok()
    }
}

impl From<Vec<u8>> for Line {
    fn from(line: Vec<u8>) -> Self {
        match String::from_utf8(line) {
            Ok(text) => Self {
                text,
                is_utf8: true,
            },
            Err(error) => Self {
                text: String::from_utf8_lossy(error.as_bytes()).into_owned(),
                is_utf8: false,
            },
        }
    }
}

impl From<&str> for Line {
    fn from(line: &str) -> Self {
        Self {
            text: line.to_owned(),
            is_utf8: true,
        }
    }
}

/// The next line without its end; none at the end.
pub(super) fn next_line(lines: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let read = lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(line.into()))
}

/// Hands on all lines, to their end. What is said of those of which `write` says that they should have been values.
pub(super) fn hand_on(
    mut lines: impl BufRead,
    mut write: impl FnMut(&Line) -> io::Result<bool>,
) -> io::Result<Option<String>> {
    let mut broken = 0;
    while let Some(line) = next_line(&mut lines)? {
        broken += u64::from(!write(&line)?);
    }
    Ok(faulty(broken))
}

/// What is said of so many lines that should have been values.
fn faulty(count: u64) -> Option<String> {
    (count > 0).then(|| format!("no JSON in its answer: {}", counted(count, "line")))
}

/// A whole answer that should be one value.
///
/// # Errors
/// What is wrong with it.
pub(super) fn value(answer: Vec<u8>) -> Result<String, String> {
    let answer = String::from_utf8(answer).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        format!("its answer is no JSON: no UTF-8 after {valid} bytes")
    })?;
    if answer.trim().is_empty() {
        return Err("it has ended without an answer".to_owned());
    }
    match serde_json::from_str::<IgnoredAny>(&answer) {
        Ok(_) => Ok(answer),
        Err(error) if error.is_eof() => Err(format!("its answer breaks off: {error}")),
        Err(error) => Err(format!("its answer is no JSON: {error}")),
    }
}

/// Writes a line after its node, or as the value beside it; what should be a value and is none is `null` there. Whether it was one.
pub(super) fn write_line(
    out: &mut impl Write,
    node: &str,
    line: &Line,
    is_json: bool,
) -> io::Result<bool> {
    let text = line.text.as_str();
    if !is_json {
        writeln!(out, "{node}  {text}")?;
        return Ok(true);
    }
    let is_value = line.is_value();
    let value = if is_value { text } else { "null" };
    let node = serde_json::Value::from(node);
    writeln!(out, r#"{{"node":{node},"value":{value}}}"#)?;
    Ok(is_value)
}

/// Writes a value bare; what is none is left out. Whether it was one.
pub(super) fn write_value(out: &mut impl Write, line: &Line) -> io::Result<bool> {
    let is_value = line.is_value();
    if is_value {
        writeln!(out, "{}", line.text)?;
    }
    Ok(is_value)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[track_caller]
    fn check(line: &str, is_json: bool, expected: &str) {
        let mut out = Vec::new();
        let is_right = write_line(&mut out, "a\"b", &line.into(), is_json).unwrap();
        assert_eq!(is_right, !expected.ends_with(":null}"), "{line}");
        assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn each_line_has_its_node() {
        check("oom-kill web", false, "a\"b  oom-kill web");
        check(
            r#"{"kind":"loss"}"#,
            true,
            r#"{"node":"a\"b","value":{"kind":"loss"}}"#,
        );
        check(
            "{\n  \"a\": 1\n}",
            true,
            "{\"node\":\"a\\\"b\",\"value\":{\n  \"a\": 1\n}}",
        );
        check("error: away", true, r#"{"node":"a\"b","value":null}"#);
        check("", true, r#"{"node":"a\"b","value":null}"#);
        let half_a_letter = Line::from(b"{\"a\":\"\xc3\"}".to_vec());
        assert!(half_a_letter.text.contains('\u{fffd}') && !half_a_letter.is_value());
    }

    #[test]
    fn an_answer_is_one_whole_value_or_it_is_said_what_is_wrong() {
        for (answer, expected) in [
            ("{\"a\": 1}\n", Ok("{\"a\": 1}\n")),
            ("null", Ok("null")),
            (" \n", Err("it has ended without an answer")),
            (
                "{\"a\": [1",
                Err("its answer breaks off: EOF while parsing"),
            ),
            ("away", Err("its answer is no JSON: expected")),
            ("{} {}", Err("its answer is no JSON: trailing")),
        ] {
            let found = value(answer.into());
            let fits = match (&found, expected) {
                (Ok(found), Ok(expected)) => found == expected,
                (Err(fault), Err(beginning)) => fault.starts_with(beginning),
                _ => false,
            };
            assert!(fits, "{found:?}, {expected:?}");
        }
        let half_a_letter = value(b"{\"a\": \"\xff\"}".to_vec()).unwrap_err();
        assert_eq!(
            half_a_letter,
            "its answer is no JSON: no UTF-8 after 7 bytes"
        );
        assert_eq!(faulty(0), None);
        assert!(faulty(2).is_some_and(|fault| fault.ends_with(": 2 lines")));
    }

    #[test]
    fn lines_are_bounded_and_need_no_end() {
        let mut text = vec![b'x'; usize::try_from(LONGEST).unwrap() + 3];
        text.extend(b"\nlast");
        let mut lines = BufReader::new(&text[..]);
        let mut lengths = Vec::new();
        while let Some(line) = next_line(&mut lines).unwrap() {
            lengths.push(line.text.len());
        }
        assert_eq!(lengths, [1 << 20, 3, 4]);
    }
}
