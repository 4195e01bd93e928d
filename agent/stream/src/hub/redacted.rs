//! The past of a run that tells no arguments of processes: those that earlier runs have told are left out as it is read.
//!
//! The files stay as they are. A line is changed where arguments stand in it and nowhere else, byte by byte: another version may have
//! told more than this one knows.

use std::sync::Arc;

use super::{Line, Look, Page, Past, PastError, Position};

/// The key that arguments stand behind, in every event. Inside a text of JSON its quotes would be escaped, so nobody can write it
/// into a name.
const KEY: &[u8] = b"\"argv\"";
/// What stands in their place.
const REDACTED: &[u8] = b"{\"missing\":\"redacted\"}";

/// A past without arguments of processes.
pub struct Redacted {
    past: Arc<dyn Past>,
}

impl Redacted {
    /// The same past without them.
    pub fn new(past: Arc<dyn Past>) -> Self {
        Self { past }
    }
}

impl Past for Redacted {
    fn after(&self, position: Option<&Position>, limit: usize) -> Result<Page, PastError> {
        let mut page = self.past.after(position, limit)?;
        for line in &mut page.lines {
            if let Some(changed) = redacted(line) {
                *line = changed;
            }
        }
        Ok(page)
    }

    fn back(&self, look: &mut dyn Look) -> Result<(), PastError> {
        self.past.back(&mut Redacting(look))
    }

    fn before(&self, wall_us: i64) -> Result<Option<Position>, PastError> {
        self.past.before(wall_us)
    }
}

/// Sees no arguments.
struct Redacting<'a>(&'a mut dyn Look);

impl Look for Redacting<'_> {
    fn see(&mut self, line: &Arc<Line>) {
        match redacted(line) {
            Some(changed) => self.0.see(&changed),
            None => self.0.see(line),
        }
    }

    fn misses(&mut self) {
        self.0.misses();
    }

    fn goes_on(&mut self) -> bool {
        self.0.goes_on()
    }
}

/// The line without arguments; none where it has none.
fn redacted(line: &Line) -> Option<Arc<Line>> {
    let text = without_arguments(&line.text)?;
    Some(Arc::new(Line {
        boot: Arc::clone(&line.boot),
        seq: line.seq,
        of: line.of,
        wall_us: line.wall_us,
        subject: line.subject.clone(),
        text: text.into(),
    }))
}

/// The same JSON without arguments; none where it has none.
fn without_arguments(text: &[u8]) -> Option<Vec<u8>> {
    let mut changed: Option<Vec<u8>> = None;
    let (mut done, mut at) = (0, 0);
    while let Some(begin) = next_value(text, at) {
        let value = &text[begin..];
        let value = &value[..length(value)];
        at = begin + value.len();
        if !is_missing(value) {
            let out = changed.get_or_insert_with(|| Vec::with_capacity(text.len()));
            out.extend_from_slice(&text[done..begin]);
            out.extend_from_slice(REDACTED);
            done = at;
        }
    }
    let mut changed = changed?;
    changed.extend_from_slice(&text[done..]);
    Some(changed)
}

/// Where the value behind the next such key begins, from a place on.
fn next_value(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = text.get(at..)?;
        at += rest.windows(KEY.len()).position(|bytes| bytes == KEY)? + KEY.len();
        at += blanks(&text[at..]);
        // Without it that is the value of something: a process may be called so.
        if text.get(at) == Some(&b':') {
            at += 1;
            return Some(at + blanks(&text[at..]));
        }
    }
}

fn blanks(text: &[u8]) -> usize {
    let is_blank = |byte: &&u8| byte.is_ascii_whitespace();
    text.iter().take_while(is_blank).count()
}

/// How long the value at the front is. One without an end would be no JSON: then it is all there is, for too much is better left out
/// than too little.
fn length(text: &[u8]) -> usize {
    let (mut depth, mut is_quoted, mut at) = (0_usize, false, 0);
    while let Some(byte) = text.get(at).copied() {
        let is_over = match byte {
            b'\\' if is_quoted => {
                // What comes next ends nothing.
                at += 1;
                false
            }
            b'"' => {
                is_quoted = !is_quoted;
                !is_quoted && depth == 0
            }
            _ if is_quoted => false,
            b'{' | b'[' => {
                depth += 1;
                false
            }
            // A number or a word ends where what it stands in goes on, or ends.
            b',' | b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                depth == 0
            }
            _ => false,
        };
        at += 1;
        if is_over {
            return at;
        }
    }
    text.len()
}

/// Whether there are none, with the reason. Whatever else stands there is taken for arguments, in whichever form.
fn is_missing(value: &[u8]) -> bool {
    let inside = value.strip_prefix(b"{");
    inside.is_some_and(|inside| inside.trim_ascii_start().starts_with(b"\"missing\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let changed = without_arguments(text.as_bytes());
        let changed = changed.map(|bytes| String::from_utf8(bytes).unwrap());
        let expected = (text != expected).then_some(expected);
        assert_eq!(changed.as_deref(), expected, "{text}");
    }

    #[test]
    fn arguments_go_and_everything_else_stays_to_the_byte() {
        const GONE: &str = r#"{"missing":"redacted"}"#;
        check(
            r#"{"argv":{"value":["sh","-c","a \"b\" ]}","\\"]},"pid":7}"#,
            &format!(r#"{{"argv":{GONE},"pid":7}}"#),
        );
        check(
            r#"{"victims":[{"argv":{"value":[]},"x":1.50},{"argv":{"value":["b"]}}],"root":{"argv":{"value":["c"]}}} "#,
            &format!(
                r#"{{"victims":[{{"argv":{GONE},"x":1.50}},{{"argv":{GONE}}}],"root":{{"argv":{GONE}}}}} "#
            ),
        );
        // Of another form, or written otherwise.
        check(
            r#"{ "argv" : { "value" : [ "a" ] } , "argv" :null}"#,
            &format!(r#"{{ "argv" : {GONE} , "argv" :{GONE}}}"#),
        );
        check(r#"{"argv":"a"}"#, &format!(r#"{{"argv":{GONE}}}"#));
        check(
            r#"[{"argv":[["a"],{}]}]"#,
            &format!(r#"[{{"argv":{GONE}}}]"#),
        );
        for same in [
            "",
            "\"argv\"",
            r#"{"pid":7}"#,
            r#"{"argv":{"missing":"processGone"}}"#,
            r#"{"argv": { "missing" : "redacted"}}"#,
            r#"{"comm":"argv","value":["argv"]}"#,
            r#"{"comm":"\"argv\":{\"value\":[1]}"}"#,
        ] {
            check(same, same);
        }
        // No JSON: nothing behind it is shown.
        check(r#"{"argv":["a"#, &format!(r#"{{"argv":{GONE}"#));
        check(r#"{"argv":"a\"#, &format!(r#"{{"argv":{GONE}"#));
    }

    /// The same by a parser.
    fn parsed(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(parsed),
            Value::Object(fields) => {
                for (key, inner) in fields {
                    let first = inner.as_object().and_then(|inner| inner.keys().next());
                    let is_missing = first.is_some_and(|first| first == "missing");
                    if key != "argv" {
                        parsed(inner);
                    } else if !is_missing {
                        *inner = json!({"missing": "redacted"});
                    }
                }
            }
            _ => {}
        }
    }

    fn anything() -> impl Strategy<Value = Value> {
        let names = || prop::sample::select(vec!["argv", "missing", "value", "a\"argv\":{\\", ""]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            names().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 4, move |inner| {
            let fields = prop::collection::vec((names(), inner.clone()), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                fields.prop_map(|fields| {
                    let fields = fields.into_iter();
                    Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_found_as_bytes_is_what_a_parser_finds(value in anything()) {
            let text = serde_json::to_vec(&value).unwrap();
            let changed = without_arguments(&text);
            let mut expected = value.clone();
            parsed(&mut expected);
            prop_assert_eq!(changed.is_none(), expected == value);
            let changed: Value = serde_json::from_slice(&changed.unwrap_or(text)).unwrap();
            prop_assert_eq!(changed, expected);
        }
    }
}
