//! The text of a duration, as Go's `time` package reads and prints it ("1h1m1.5s").

use core::fmt;
use core::str::FromStr;

use super::time::Span;

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a sequence of numbers with units.
    #[error("invalid duration")]
    Invalid,
    /// A number without a unit.
    #[error("missing unit in duration")]
    MissingUnit,
    /// A unit that is not one of ns, us, µs, ms, s, m, h.
    #[error("unknown unit in duration")]
    UnknownUnit,
    /// Longer than 292 years.
    #[error("duration out of range, the longest is 292 years (2562047h)")]
    OutOfRange,
}

/// One past the largest magnitude of a positive span; exactly it is allowed with a minus sign.
const LIMIT: u64 = 1 << 63;

impl FromStr for Span {
    type Err = DurationError;

    /// Reads what Go's `time.ParseDuration` accepts, with its rounding: a fraction is cut to whole
    /// nanoseconds after a multiplication in 64-bit floating point.
    fn from_str(text: &str) -> Result<Self, DurationError> {
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(DurationError::Invalid);
        }
        let mut total = 0u64;
        while !rest.is_empty() {
            let term;
            (term, rest) = parse_term(rest)?;
            // Both are at most 2^63, so the sum fits.
            total = total.checked_add(term).ok_or(DurationError::OutOfRange)?;
            if total > LIMIT {
                return Err(DurationError::OutOfRange);
            }
        }
        if negative {
            return Ok(Self(0i64.wrapping_sub_unsigned(total)));
        }
        i64::try_from(total)
            .map(Self)
            .map_err(|_| DurationError::OutOfRange)
    }
}

/// One number with its unit, in nanoseconds, and what follows it.
fn parse_term(text: &str) -> Result<(u64, &str), DurationError> {
    let (whole, after_whole) = leading_integer(text)?;
    let (fraction, scale, after_number) = match after_whole.strip_prefix('.') {
        Some(digits) => leading_fraction(digits),
        None => (0, 1.0, after_whole),
    };
    let has_digits =
        after_whole.len() < text.len() || after_whole.len().saturating_sub(after_number.len()) > 1;
    if !has_digits {
        return Err(DurationError::Invalid);
    }
    let unit_end = after_number
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(after_number.len());
    let (unit, rest) = after_number.split_at(unit_end);
    if unit.is_empty() {
        return Err(DurationError::MissingUnit);
    }
    let unit = unit_nanos(unit).ok_or(DurationError::UnknownUnit)?;
    if whole > LIMIT / unit {
        return Err(DurationError::OutOfRange);
    }
    let nanos = whole * unit + fraction_nanos(fraction, scale, unit);
    if nanos > LIMIT {
        return Err(DurationError::OutOfRange);
    }
    Ok((nanos, rest))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the same 64-bit floating point steps as the original, so that the last nanosecond agrees"
)]
fn fraction_nanos(fraction: u64, scale: f64, unit: u64) -> u64 {
    (fraction as f64 * (unit as f64 / scale)) as u64
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // U+00B5 is the micro sign, U+03BC the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn leading_integer(text: &str) -> Result<(u64, &str), DurationError> {
    let mut value = 0u64;
    for (at, byte) in text.bytes().enumerate() {
        if !byte.is_ascii_digit() {
            return Ok((value, &text[at..]));
        }
        if value > LIMIT / 10 {
            return Err(DurationError::OutOfRange);
        }
        value = value * 10 + u64::from(byte - b'0');
        if value > LIMIT {
            return Err(DurationError::OutOfRange);
        }
    }
    Ok((value, ""))
}

/// Digits after the point: their value, ten to the power of their count, and what follows.
/// Digits that no longer fit are read and dropped.
fn leading_fraction(text: &str) -> (u64, f64, &str) {
    let (mut value, mut scale, mut full) = (0u64, 1.0f64, false);
    for (at, byte) in text.bytes().enumerate() {
        if !byte.is_ascii_digit() {
            return (value, scale, &text[at..]);
        }
        full |= value > (LIMIT - 1) / 10;
        if full {
            continue;
        }
        let longer = value * 10 + u64::from(byte - b'0');
        if longer > LIMIT {
            full = true;
            continue;
        }
        value = longer;
        scale *= 10.0;
    }
    (value, scale, "")
}

impl fmt::Display for Span {
    /// Prints as Go's `Duration.String`: "0s", "1.5ms", "1h0m0.25s".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => decimal(f, nanos, 1_000).and_then(|()| f.write_str("\u{b5}s")),
            1_000_000..1_000_000_000 => {
                decimal(f, nanos, 1_000_000).and_then(|()| f.write_str("ms"))
            }
            _ => clock(f, nanos),
        }
    }
}

/// Hours and minutes only when there are any, seconds always.
fn clock(f: &mut fmt::Formatter<'_>, nanos: u64) -> fmt::Result {
    let minutes = nanos / 60_000_000_000;
    if minutes >= 60 {
        write!(f, "{}h", minutes / 60)?;
    }
    if minutes > 0 {
        write!(f, "{}m", minutes % 60)?;
    }
    decimal(f, nanos % 60_000_000_000, 1_000_000_000)?;
    f.write_str("s")
}

/// `nanos / unit` with as many decimals as it needs.
fn decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64) -> fmt::Result {
    write!(f, "{}", nanos / unit)?;
    let mut rest = nanos % unit;
    if rest > 0 {
        f.write_str(".")?;
    }
    let mut unit = unit;
    while rest > 0 {
        unit /= 10;
        write!(f, "{}", rest / unit)?;
        rest %= unit;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<i64, DurationError>) {
        assert_eq!(
            text.parse::<Span>().map(Span::as_nanos),
            expected,
            "{text:?}"
        );
    }

    #[test]
    fn reads_what_go_reads() {
        const S: i64 = 1_000_000_000;
        check("0", Ok(0));
        check("+0", Ok(0));
        check("-0", Ok(0));
        check("90s", Ok(90 * S));
        check("1m30s", Ok(90 * S));
        check("1h1m1.5s", Ok(3_661 * S + S / 2));
        check("-1.5h", Ok(-5_400 * S));
        check("5.s", Ok(5 * S));
        check(".5s", Ok(S / 2));
        check("3000ns", Ok(3_000));
        check("11us", Ok(11_000));
        check("12\u{b5}s", Ok(12_000));
        check("12\u{3bc}s10ns", Ok(12_010));
        check("39h9m14.425s", Ok(140_954 * S + 425_000_000));
        // More digits than 64 bits hold after the point.
        check("0.3333333333333333333h", Ok(1_200 * S));
        check("0.100000000000000000000h", Ok(360 * S));
        check("0.9223372036854775808h", Ok(3_320_413_933_267));
        check("9223372036854775807ns", Ok(i64::MAX));
        check("-9223372036854775808ns", Ok(i64::MIN));
        check("9223372036854775.807us", Ok(i64::MAX));
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "", "-", "+", ".", "-.", ".s", "+.s", "s", "1s ", " 1s", "\u{85}", "3s-4s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
        check("3", Err(DurationError::MissingUnit));
        check("1m30", Err(DurationError::MissingUnit));
        check("1d", Err(DurationError::UnknownUnit));
        check("1\u{b5}", Err(DurationError::UnknownUnit));
        check("9223372036854775808ns", Err(DurationError::OutOfRange));
        check("-9223372036854775809ns", Err(DurationError::OutOfRange));
        check("3000000h", Err(DurationError::OutOfRange));
        check("9223372036854775807ns1ns", Err(DurationError::OutOfRange));
    }

    #[test]
    fn prints_as_go_prints() {
        for (nanos, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (480_000_000_001, "8m0.000000001s"),
            (300_000_000_000, "5m0s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(Span(nanos).to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn print_and_read_are_inverse(nanos: i64) {
            let span = Span(nanos);
            let read: Span = span.to_string().parse().unwrap();
            // The fraction goes through floating point; below 2^53 ns nothing is lost there.
            prop_assert_eq!(read, span);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*|[-+.0-9hmsnu\u{b5}]{0,12}") {
            let _ = text.parse::<Span>();
        }
    }
}
