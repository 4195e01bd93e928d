//! Lines with the node they are from.

use std::io::{self, BufRead, Read as _, Write};

use serde::de::IgnoredAny;

/// Longest line, in bytes; what is longer is cut there.
const LONGEST: u64 = 1 << 20;

/// The next line without its end; none at the end. What is no UTF-8 is replaced.
pub(super) fn next_line(lines: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// Writes a line after its node, or as the value beside it; what should be a value and is none is `null` there.
pub(super) fn write_line(
    out: &mut impl Write,
    node: &str,
    line: &str,
    is_json: bool,
) -> io::Result<()> {
    if !is_json {
        return writeln!(out, "{node}  {line}");
    }
    let is_value = serde_json::from_str::<IgnoredAny>(line).is_ok();
    let value = if is_value { line } else { "null" };
    let node = serde_json::Value::from(node);
    writeln!(out, r#"{{"node":{node},"value":{value}}}"#)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[track_caller]
    fn check(line: &str, is_json: bool, expected: &str) {
        let mut out = Vec::new();
        write_line(&mut out, "a\"b", line, is_json).unwrap();
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
    }

    #[test]
    fn lines_are_bounded_and_need_no_end() {
        let mut text = vec![b'x'; usize::try_from(LONGEST).unwrap() + 3];
        text.extend(b"\nlast");
        let mut lines = BufReader::new(&text[..]);
        let mut lengths = Vec::new();
        while let Some(line) = next_line(&mut lines).unwrap() {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [1 << 20, 3, 4]);
    }
}
