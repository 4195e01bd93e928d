//! JSON whose keys stand in the order in which they were given.

use std::fmt::Write as _;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Json {
    /// `true` or `false`.
    Bool(bool),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// Keys and values.
    Map(Vec<(String, Json)>),
}

impl Json {
    /// A text.
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// A list of texts.
    pub(super) fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// Keys and values.
    pub(super) fn map<const N: usize>(pairs: [(&str, Self); N]) -> Self {
        Self::Map(pairs.map(|(key, value)| (key.to_owned(), value)).into())
    }

    /// A map with one more pair at its end; anything else as it is.
    #[must_use]
    pub(super) fn with(mut self, key: &str, value: Self) -> Self {
        if let Self::Map(pairs) = &mut self {
            pairs.push((key.to_owned(), value));
        }
        self
    }

    /// The same as text, one value a line.
    pub(super) fn pretty(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0);
        text.push('\n');
        text
    }

    fn write(&self, text: &mut String, depth: usize) {
        match self {
            Self::Bool(value) => drop(write!(text, "{value}")),
            Self::Text(value) => quote(text, value),
            Self::List(values) => {
                let each = |text: &mut String, value: &Self| value.write(text, depth + 1);
                wrap(text, depth, ('[', ']'), values, each);
            }
            Self::Map(pairs) => {
                let each = |text: &mut String, (key, value): &(String, Self)| {
                    quote(text, key);
                    text.push_str(": ");
                    value.write(text, depth + 1);
                };
                wrap(text, depth, ('{', '}'), pairs, each);
            }
        }
    }
}

fn quote(text: &mut String, value: &str) {
    text.push_str(&serde_json::Value::from(value).to_string());
}

fn wrap<T>(
    text: &mut String,
    depth: usize,
    (open, close): (char, char),
    members: &[T],
    each: impl Fn(&mut String, &T),
) {
    text.push(open);
    for (place, member) in members.iter().enumerate() {
        text.push_str(if place > 0 { ",\n" } else { "\n" });
        text.push_str(&"  ".repeat(depth + 1));
        each(text, member);
    }
    if !members.is_empty() {
        text.push('\n');
        text.push_str(&"  ".repeat(depth));
    }
    text.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_json_in_the_given_order() {
        let value = Json::map([("b", Json::texts(["\"", "x"])), ("a", Json::map([]))])
            .with("0", Json::Bool(true));
        let text = value.pretty();
        assert_eq!(
            text,
            "{\n  \"b\": [\n    \"\\\"\",\n    \"x\"\n  ],\n  \"a\": {},\n  \"0\": true\n}\n"
        );
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["b"][0], "\"");
    }
}
