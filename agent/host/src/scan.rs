//! Reading numbers and words out of kernel text, byte by byte and without allocation.

/// The decimal number these bytes are, if they are nothing else and fit.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The decimal number these bytes are, a leading minus allowed.
pub(crate) fn signed_number(digits: &[u8]) -> Option<i64> {
    match digits.strip_prefix(b"-") {
        Some(magnitude) => 0i64.checked_sub_unsigned(number(magnitude)?),
        None => i64::try_from(number(digits)?).ok(),
    }
}

/// The lines of a text, without their ends. Empty lines are left out.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
}

/// The words of a line: what stands between spaces and tabs.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// The value of a file that holds one number and a line end.
pub(crate) fn lone_number(text: &[u8]) -> Option<u64> {
    number(text.trim_ascii())
}

/// A path as the kernel prints it in mountinfo and swaps: space, tab, line end and backslash as three octal digits.
pub(crate) fn unescape_octal(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let (byte, after) = octal_escape(rest).unwrap_or((*first, tail));
        plain.push(byte);
        rest = after;
    }
    plain
}

/// The byte that `\ooo` at the start of a text stands for, and what follows it.
fn octal_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'\\', digits @ ..] = text else {
        return None;
    };
    let (digits, after) = digits.split_at_checked(3)?;
    let mut value = 0u8;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value = value.checked_mul(8)?.checked_add(digit)?;
    }
    Some((value, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        fn check(text: &str, expected: Option<u64>) {
            assert_eq!(number(text.as_bytes()), expected, "{text:?}");
        }
        check("0", Some(0));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", None);
        check("", None);
        check("-1", None);
        check("+1", None);
        check(" 1", None);
        check("1 ", None);
        check("12a", None);
        assert_eq!(signed_number(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed_number(b"9223372036854775808"), None);
        assert_eq!(lone_number(b" 42\n"), Some(42));
    }

    #[test]
    fn octal_escapes_are_the_kernels() {
        fn check(text: &str, expected: &str) {
            assert_eq!(
                unescape_octal(text.as_bytes()),
                expected.as_bytes(),
                "{text:?}"
            );
        }
        check(r"/mnt/my\040disk", "/mnt/my disk");
        check(r"a\011b\012c\134d", "a\tb\nc\\d");
        check(r"\04", r"\04");
        check(r"\777", r"\777");
        check(r"end\", r"end\");
    }

    proptest! {
        #[test]
        fn number_agrees_with_the_standard_parser(text in "[0-9]{1,24}") {
            prop_assert_eq!(number(text.as_bytes()), text.parse().ok());
        }

        #[test]
        fn every_number_is_read_back(value: u64, signed: i64) {
            prop_assert_eq!(number(value.to_string().as_bytes()), Some(value));
            prop_assert_eq!(signed_number(signed.to_string().as_bytes()), Some(signed));
        }
    }
}
