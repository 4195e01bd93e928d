//! What a plain scalar means: the rules by which Kubernetes reads YAML, which are those of YAML 1.1.
//!
//! `yes` and `off` are truth values, `010` is eight, `1_000` a thousand; a number becomes what JSON
//! carries. Keys of maps are left as they were written.

use super::Value;

/// The meaning of a plain scalar. In a JSON document a number keeps its text.
pub(super) fn resolve(text: &str, json: bool) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            Value::Bool(true, text.to_string())
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            Value::Bool(false, text.to_string())
        }
        _ => match number(text, json) {
            Some(number) => Value::Number(number),
            None => Value::Text(text.to_string()),
        },
    }
}

fn number(text: &str, json: bool) -> Option<String> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    // The kubelet reads what is not JSON after all as YAML.
    if json && is_json(text) {
        return Some(text.to_string());
    }
    let plain: String = text.chars().filter(|&c| c != '_').collect();
    integer(&plain).map(|value| value.to_string()).or_else(|| {
        let value = is_decimal(&plain).then(|| plain.parse::<f64>().ok())??;
        value.is_finite().then(|| float(value))
    })
}

/// As Go's `encoding/json` writes it: with an exponent where it would be long.
fn float(value: f64) -> String {
    if value == 0.0 || (1e-6..1e21).contains(&value.abs()) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

/// A whole number of 64 bits, signed or not, in the base its prefix says.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', _, ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, base).ok()?;
    let value = if negative { -magnitude } else { magnitude };
    (i128::from(i64::MIN)..=i128::from(u64::MAX))
        .contains(&value)
        .then_some(value)
}

/// Sign, digits, point, digits, exponent; at least one digit before the exponent.
fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_exponent = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !unsigned.is_empty() && digits(unsigned)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && has_exponent
}

/// A number as JSON has it: no plus, no leading zero, digits on both sides of the point.
fn is_json(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let behind = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
    let whole = &unsigned[..unsigned.len() - behind.len()];
    let has_zeros = whole.len() > 1 && whole.starts_with('0');
    let fraction = behind.strip_prefix('.').unwrap_or("0");
    let is_complete = !whole.is_empty() && fraction.starts_with(|c: char| c.is_ascii_digit());
    is_decimal(text) && is_complete && !has_zeros
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &Value) {
        assert_eq!(&resolve(text, false), expected, "{text:?}");
    }

    #[test]
    fn words_for_nothing_and_truth() {
        for text in ["", "~", "null", "NULL"] {
            check(text, &Value::Null);
        }
        for (text, value) in [("true", true), ("Yes", true), ("OFF", false), ("n", false)] {
            check(text, &Value::Bool(value, text.to_string()));
        }
    }

    #[test]
    fn numbers_become_what_json_carries() {
        for (text, expected) in [
            ("0", "0"),
            ("-5", "-5"),
            ("+5", "5"),
            ("1_000", "1000"),
            ("010", "8"),
            ("0x1F", "31"),
            ("0b11", "3"),
            ("0o17", "15"),
            ("08", "8"),
            ("1.50", "1.5"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1e3", "1000"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "18446744073709552000"),
            ("999999999999999868928", "999999999999999900000"),
            ("9e99", "9e+99"),
            ("-12.5e20", "-1.25e+21"),
            ("0.000001", "0.000001"),
            ("25e-9", "2.5e-8"),
        ] {
            check(text, &Value::Number(expected.to_string()));
        }
    }

    #[test]
    fn numbers_of_json_keep_their_text_and_others_are_those_of_yaml() {
        for text in ["0", "-0", "-5", "1e3", "1.50", "0.5", "-0.5E-3", "1e999"] {
            assert_eq!(resolve(text, true), Value::Number(text.to_string()));
        }
        for text in [
            "-0375", "010", "+5", "5.", ".5", "-.5", "0x1F", "1_000", "00.5", "5.e1",
        ] {
            assert_eq!(resolve(text, true), resolve(text, false), "{text}");
        }
    }

    #[test]
    fn everything_else_is_text() {
        for text in [
            "100Mi",
            "10%",
            "5m",
            "1.2.3",
            "-",
            "+",
            ".",
            "..",
            "1e",
            "e5",
            ".inf",
            ".nan",
            "0x",
            "0xg",
            "--1",
            "1-2",
            "2026-01-01",
            "abc",
            "1e999",
        ] {
            check(text, &Value::Text(text.to_string()));
        }
    }
}
