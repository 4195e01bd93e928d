//! The 32-bit floating point numbers of a percentage, as Go's `strconv.ParseFloat` reads them.
//!
//! Decimal numbers are left to the standard library, which rounds correctly too. What it does not
//! know is added: underscores between digits, hexadecimal numbers, and overflow as an error.

use alloc::string::String;

/// Why a text is no 32-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FloatError {
    /// Not a number.
    #[error("invalid number")]
    Syntax,
    /// Larger than the largest 32-bit number.
    #[error("number out of range")]
    Range,
}

/// Reads a number; words for infinity and not-a-number are numbers, as they are upstream.
///
/// # Errors
/// When the text is no number at all, or a finite one that is too large.
pub fn parse_f32(text: &str) -> Result<f32, FloatError> {
    if let Some(special) = special(text) {
        return Ok(special);
    }
    if !underscores_separate_digits(text) {
        return Err(FloatError::Syntax);
    }
    let plain: String = text.chars().filter(|&c| c != '_').collect();
    let (sign, magnitude) = split_sign(&plain);
    let value = match magnitude.as_bytes() {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits)?,
        // The standard library also takes words, which have been dealt with.
        [b'0'..=b'9' | b'.', ..] => magnitude.parse::<f32>().map_err(|_| FloatError::Syntax)?,
        _ => return Err(FloatError::Syntax),
    };
    if value.is_infinite() {
        Err(FloatError::Range)
    } else {
        Ok(value * sign)
    }
}

fn split_sign(text: &str) -> (f32, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        _ => (1.0, text),
    }
}

fn special(text: &str) -> Option<f32> {
    let (sign, word) = split_sign(text);
    if word.eq_ignore_ascii_case("inf") || word.eq_ignore_ascii_case("infinity") {
        return Some(f32::INFINITY * sign);
    }
    text.eq_ignore_ascii_case("nan").then_some(f32::NAN)
}

/// An underscore stands between two digits, or between the prefix `0x` and a digit.
fn underscores_separate_digits(text: &str) -> bool {
    let (_, magnitude) = split_sign(text);
    let bytes = magnitude.as_bytes();
    let hex = matches!(bytes, [b'0', b'x' | b'X', ..]);
    let is_digit = |byte: u8| byte.is_ascii_digit() || hex && byte.is_ascii_hexdigit();
    (0..bytes.len()).filter(|&at| bytes[at] == b'_').all(|at| {
        let before = at.checked_sub(1).map(|before| bytes[before]);
        let after_digit = before.is_some_and(is_digit) || hex && at == 2;
        after_digit && bytes.get(at + 1).copied().is_some_and(is_digit)
    })
}

/// A hexadecimal number after its prefix: digits with a point, and an exponent of two after `p`.
fn hexadecimal(text: &[u8]) -> Result<f32, FloatError> {
    let exponent_at = text.iter().position(|byte| matches!(byte, b'p' | b'P'));
    let (digits, exponent) = text.split_at(exponent_at.ok_or(FloatError::Syntax)?);
    let exponent = binary_exponent(&exponent[1..])?;
    let (mut mantissa, mut shift, mut point, mut any) = (0u64, 0i64, false, false);
    for &byte in digits {
        let Some(digit) = char::from(byte).to_digit(16) else {
            if byte != b'.' || point {
                return Err(FloatError::Syntax);
            }
            point = true;
            continue;
        };
        any = true;
        if mantissa < 1 << 56 {
            mantissa = mantissa << 4 | u64::from(digit);
        } else {
            // More digits than matter: the lowest bit remembers that something was there.
            mantissa |= u64::from(digit != 0);
            shift += 4;
        }
        shift -= if point { 4 } else { 0 };
    }
    if any {
        Ok(rounded(mantissa, exponent.saturating_add(shift)))
    } else {
        Err(FloatError::Syntax)
    }
}

fn binary_exponent(text: &[u8]) -> Result<i64, FloatError> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(FloatError::Syntax);
    }
    let value = digits.iter().fold(0i64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
            .min(FAR)
    });
    Ok(if negative { -value } else { value })
}

/// An exponent that is out of range whatever the mantissa.
const FAR: i64 = 1 << 40;

/// `mantissa × 2^exponent`, rounded once: the mantissa is cut to what a 64-bit number holds, with
/// the lowest bit set if anything was cut off, and the last step to 32 bits rounds to even.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the one rounding step that is wanted"
)]
#[expect(
    clippy::cast_precision_loss,
    reason = "the mantissa has been cut to 32 bits before"
)]
fn rounded(mantissa: u64, exponent: i64) -> f32 {
    let (mut mantissa, mut exponent) = (mantissa, exponent);
    while mantissa >= 1 << 32 {
        mantissa = mantissa >> 1 | mantissa & 1;
        exponent += 1;
    }
    match exponent {
        _ if mantissa == 0 => 0.0,
        300.. => f32::INFINITY,
        ..=-400 => 0.0,
        _ => {
            let bits = u64::try_from(exponent + 1023).unwrap_or(0) << 52;
            (mantissa as f64 * f64::from_bits(bits)) as f32
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<f32, FloatError>) {
        let read = parse_f32(text).map(f32::to_bits);
        assert_eq!(read, expected.map(f32::to_bits), "{text:?}");
    }

    #[test]
    fn decimal_numbers() {
        for (text, value) in [
            ("10", 10.0),
            ("10.5", 10.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("+1e1", 10.0),
            ("-0", -0.0),
            ("1_0.0_5", 10.05),
            ("1_23.50_0_0e+1_2", 1.235e14),
            // Halfway between 1 and the next number: to even, unless something follows.
            ("1.000000059604644775390625", 1.0),
            ("1.000000059604644775390626", 1.000_000_1),
            ("3.402823567e38", f32::MAX),
            ("1e-46", 0.0),
        ] {
            check(text, Ok(value));
        }
    }

    #[test]
    fn hexadecimal_numbers() {
        for (text, value) in [
            ("0x1p0", 1.0),
            ("0x1ep-1", 15.0),
            ("0x0.fp4", 15.0),
            ("0X_1p+2", 4.0),
            ("-0x2P3", -16.0),
            ("0x1.000001p0", 1.0),
            ("0x1.0000018p0", 1.000_000_1),
            ("0x1.0000011p0", 1.000_000_1),
            ("0x.ffffff7fp128", f32::MAX),
            ("0x0.00000081p-125", 1e-45),
            ("0x0.0000008p-125", 0.0),
            ("0x0p999999999999999999999", 0.0),
            ("0x1p-4294967296", 0.0),
        ] {
            check(text, Ok(value));
        }
        check("0x1.0p128", Err(FloatError::Range));
        check("0x.ffffff8p128", Err(FloatError::Range));
        check("0x1p+18446744073709551616", Err(FloatError::Range));
    }

    #[test]
    fn words() {
        check("inf", Ok(f32::INFINITY));
        check("-Infinity", Ok(f32::NEG_INFINITY));
        assert!(parse_f32("NaN").unwrap().is_nan());
        check("+nan", Err(FloatError::Syntax));
        check("infx", Err(FloatError::Syntax));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", " 1", "1 ", ".", "+", "1.1.", "1e", "1e-", ".e-1", "12%345", "foo", "0x", "0x1",
            "0x.", "0x1p", "0x1e2", "0x1p-", "1p2", "_1", "1_", "1__2", "1_.5", "1._5", "1e_5",
            "0x1_p2", "µ",
        ] {
            check(text, Err(FloatError::Syntax));
        }
        check("3.4028236e38", Err(FloatError::Range));
        check("-1e400", Err(FloatError::Range));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*|[-+.0-9eExXpP_a-f]{0,16}") {
            let _ = parse_f32(&text);
        }

        #[test]
        fn every_finite_number_is_read_back(bits: u32) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            prop_assert_eq!(parse_f32(&alloc::format!("{value:e}")).map(f32::to_bits), Ok(bits));
        }
    }
}
