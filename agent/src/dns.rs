//! Names as RFC 1123 has them, by which Kubernetes calls nodes and namespaces.

/// The longest name of several labels.
const LONGEST_NAME: usize = 253;
/// The longest label where it is a name of its own.
const LONGEST_LABEL: usize = 63;

/// Whether it is a subdomain: labels with dots between them. Kubernetes bounds the whole of it, and none of its labels.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= LONGEST_NAME && text.split('.').all(has_letters)
}

/// Whether it is one label.
pub fn is_label(text: &str) -> bool {
    text.len() <= LONGEST_LABEL && has_letters(text)
}

/// Whether it has the letters of a label, however many.
fn has_letters(label: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (first, last) = (label.bytes().next(), label.bytes().last());
    label.bytes().all(|byte| plain(byte) || byte == b'-')
        && first.is_some_and(plain)
        && last.is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_in_letters_and_in_length() {
        let [longest, longer, too_long] = [63, 64, 254].map(|letters| "a".repeat(letters));
        for (text, expected) in [
            ("a", (true, true)),
            ("team-7", (true, true)),
            ("node.example", (false, true)),
            ("a..b", (false, false)),
            ("-a", (false, false)),
            ("a-", (false, false)),
            ("A", (false, false)),
            ("a_b", (false, false)),
            ("", (false, false)),
            (longest.as_str(), (true, true)),
            (longer.as_str(), (false, true)),
            (too_long.as_str(), (false, false)),
        ] {
            assert_eq!((is_label(text), is_subdomain(text)), expected, "{text:?}");
        }
    }
}
