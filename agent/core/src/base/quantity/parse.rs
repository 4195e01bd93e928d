//! Reading a quantity: sign, decimals, and one of three families of suffix.
//!
//! The amount is exact to a billionth; anything finer is rounded away from zero, because whoever
//! asks for a little shall get a little. A number is kept as its digits until the exponent is
//! known, so that no intermediate step loses precision or overflows.

use core::str::FromStr;

use super::{Format, NANO, Quantity};

/// Why a text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number followed by a suffix.
    #[error("a quantity is a number and a suffix, such as 100Mi, 1.5G or 12e6")]
    Form,
    /// No digits where the exponent needs some.
    #[error("the number of the quantity has no digits")]
    Number,
    /// A suffix that is none of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, `e<exponent>`.
    #[error("unknown suffix; one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e and an exponent")]
    Suffix,
}

/// A quantity taken apart: leading zeros of the whole part are dropped.
struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    has_digits: bool,
    suffix: &'a [u8],
}

#[derive(Clone, Copy)]
enum Scale {
    Ten(i32, Format),
    Two(u32),
}

/// Largest whole amount a quantity with a binary suffix can have; more is cut to it.
const BINARY_CAP: i128 = i64::MAX as i128 * NANO;

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::split(text)?;
        let scale = Scale::read(parts.suffix)?;
        // Upstream's exact path takes a number without digits for zero; its slow path, which finer
        // exponents than nano need, refuses it.
        if !parts.has_digits && matches!(scale, Scale::Ten(..-9, _)) {
            return Err(QuantityError::Number);
        }
        let (magnitude, format) = match scale {
            Scale::Ten(exponent, format) => (decimal_nanos(&parts, exponent), format),
            Scale::Two(exponent) => binary_nanos(&parts, exponent),
        };
        let nanos = if parts.negative {
            -magnitude
        } else {
            magnitude
        };
        Ok(Self { nanos, format })
    }
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let bytes = text.as_bytes();
        let (negative, unsigned) = match bytes {
            [] => return Err(QuantityError::Form),
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, bytes),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = match rest {
            [b'.', digits @ ..] => split_digits(digits),
            _ => (&[][..], rest),
        };
        check_suffix_form(suffix)?;
        let has_digits = !whole.is_empty() || !fraction.is_empty();
        // A text that ends right after its sign counts as zero upstream.
        let has_digits = has_digits || unsigned.is_empty();
        Ok(Self {
            negative,
            whole: trim_zeros(whole),
            fraction,
            has_digits,
            suffix,
        })
    }

    /// All digits of the number, without leading zeros, and their count.
    fn digits(&self) -> (impl Iterator<Item = u8>, usize) {
        let fraction = if self.whole.is_empty() {
            trim_zeros(self.fraction)
        } else {
            self.fraction
        };
        let digits = self.whole.iter().chain(fraction).map(|byte| byte - b'0');
        (digits, self.whole.len() + fraction.len())
    }
}

fn split_digits(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(bytes.len());
    bytes.split_at(end)
}

fn trim_zeros(digits: &[u8]) -> &[u8] {
    let start = digits
        .iter()
        .position(|&byte| byte != b'0')
        .unwrap_or(digits.len());
    &digits[start..]
}

/// Letters, then perhaps a sign, then digits, and nothing after them.
fn check_suffix_form(suffix: &[u8]) -> Result<(), QuantityError> {
    let letters = suffix
        .iter()
        .take_while(|byte| b"eEinumkKMGTP".contains(byte))
        .count();
    let tail = &suffix[letters..];
    let tail = tail
        .strip_prefix(b"-")
        .or_else(|| tail.strip_prefix(b"+"))
        .unwrap_or(tail);
    if tail.iter().all(u8::is_ascii_digit) {
        Ok(())
    } else {
        Err(QuantityError::Form)
    }
}

impl Scale {
    fn read(suffix: &[u8]) -> Result<Self, QuantityError> {
        let si = |exponent| Ok(Self::Ten(exponent, Format::DecimalSi));
        match suffix {
            b"n" => si(-9),
            b"u" => si(-6),
            b"m" => si(-3),
            b"" => si(0),
            b"k" => si(3),
            b"M" => si(6),
            b"G" => si(9),
            b"T" => si(12),
            b"P" => si(15),
            b"E" => si(18),
            b"Ki" => Ok(Self::Two(10)),
            b"Mi" => Ok(Self::Two(20)),
            b"Gi" => Ok(Self::Two(30)),
            b"Ti" => Ok(Self::Two(40)),
            b"Pi" => Ok(Self::Two(50)),
            b"Ei" => Ok(Self::Two(60)),
            [b'e' | b'E', exponent @ ..] => {
                read_exponent(exponent).map(|e| Self::Ten(e, Format::DecimalExponent))
            }
            _ => Err(QuantityError::Suffix),
        }
    }
}

/// An exponent whose negation still has 32 bits; older kubelets cut longer ones silently.
fn read_exponent(text: &[u8]) -> Result<i32, QuantityError> {
    core::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<i32>().ok())
        .filter(|&exponent| exponent != i32::MIN)
        .ok_or(QuantityError::Suffix)
}

/// `digits × 10^exponent` in billionths, rounded up, held at the bound of the type.
fn decimal_nanos(parts: &Parts<'_>, exponent: i32) -> i128 {
    let (digits, count) = parts.digits();
    if count == 0 {
        return 0;
    }
    // The number without its point is `digits × 10^(exponent − fraction)`; in billionths, plus 9.
    let shift = i64::from(exponent) + 9 - length(parts.fraction.len());
    let kept = length(count) + shift;
    let mut nanos = 0i128;
    let mut dropped = false;
    for (place, digit) in digits.enumerate() {
        if length(place) < kept {
            nanos = push_digit(nanos, digit);
        } else {
            dropped |= digit != 0;
        }
    }
    for _ in length(count)..kept.min(length(count) + MAX_DIGITS) {
        nanos = push_digit(nanos, 0);
    }
    nanos.saturating_add(i128::from(dropped))
}

/// More digits than the type has.
const MAX_DIGITS: i64 = 40;

fn push_digit(nanos: i128, digit: u8) -> i128 {
    nanos.saturating_mul(10).saturating_add(i128::from(digit))
}

fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / 4)
}

/// `number × 2^exponent` in billionths, rounded up and cut to the largest 64-bit amount.
fn binary_nanos(parts: &Parts<'_>, exponent: u32) -> (i128, Format) {
    let factor = NANO << exponent;
    let whole = parts
        .whole
        .iter()
        .fold(0i128, |n, byte| push_digit(n, byte - b'0'));
    // From the last digit to the first, so that each division by ten keeps what is left of it;
    // `inexact` remembers whether anything was lost below the last place.
    let (mut fraction, mut inexact) = (0i128, false);
    for byte in parts.fraction.iter().rev() {
        let sum = i128::from(byte - b'0') * factor + fraction;
        inexact |= sum % 10 != 0;
        fraction = sum / 10;
    }
    let nanos = whole
        .saturating_mul(factor)
        .saturating_add(fraction + i128::from(inexact));
    // Less than one of anything prints in decimal, to avoid both rounding and confusion.
    let format = if (1..NANO).contains(&nanos) {
        Format::DecimalSi
    } else {
        Format::BinarySi
    };
    (nanos.min(BINARY_CAP), format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, nanos: i128, format: Format) {
        let read: Quantity = text
            .parse()
            .unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!((read.nanos(), read.format()), (nanos, format), "{text:?}");
    }

    #[test]
    fn every_suffix_has_its_factor() {
        use Format::{BinarySi, DecimalExponent, DecimalSi};
        check("0", 0, DecimalSi);
        check("1", NANO, DecimalSi);
        check("5n", 5, DecimalSi);
        check("5u", 5_000, DecimalSi);
        check("5m", 5_000_000, DecimalSi);
        check("5k", 5_000 * NANO, DecimalSi);
        check("5M", 5_000_000 * NANO, DecimalSi);
        check("5G", 5_000_000_000 * NANO, DecimalSi);
        check("5T", 5_000_000_000_000 * NANO, DecimalSi);
        check("5P", 5_000_000_000_000_000 * NANO, DecimalSi);
        check("5E", 5_000_000_000_000_000_000 * NANO, DecimalSi);
        check("5Ki", (5 * NANO) << 10, BinarySi);
        check("5Mi", (5 * NANO) << 20, BinarySi);
        check("5Gi", (5 * NANO) << 30, BinarySi);
        check("5Ti", (5 * NANO) << 40, BinarySi);
        check("5Pi", (5 * NANO) << 50, BinarySi);
        check("5Ei", (5 * NANO) << 60, BinarySi);
        check("5e3", 5_000 * NANO, DecimalExponent);
        check("5E+3", 5_000 * NANO, DecimalExponent);
        check("5e-3", 5_000_000, DecimalExponent);
    }

    #[test]
    fn signs_points_and_zeros() {
        use Format::{BinarySi, DecimalSi};
        check("+1.5Gi", (3 * NANO) << 29, BinarySi);
        check("-150Mi", -((150 * NANO) << 20), BinarySi);
        check("1.", NANO, DecimalSi);
        check(".5", NANO / 2, DecimalSi);
        check("0.5Ki", 512 * NANO, BinarySi);
        check("007", 7 * NANO, DecimalSi);
        check("1.500", 3 * NANO / 2, DecimalSi);
        check("0.000000001", 1, DecimalSi);
    }

    #[test]
    fn what_is_finer_than_nano_is_rounded_away_from_zero() {
        use Format::{DecimalExponent, DecimalSi};
        check("0.1n", 1, DecimalSi);
        check("1.1n", 2, DecimalSi);
        check("-0.1n", -1, DecimalSi);
        check("1e-10", 1, DecimalExponent);
        check("1e-2000000000", 1, DecimalExponent);
        check("0e-2000000000", 0, DecimalExponent);
        check("0.0001Ki", 102_400_000, DecimalSi);
        check("0.000000000001Ki", 2, DecimalSi);
        check("0.00000012345", 124, DecimalSi);
        check(
            "1.00000000000000000000000000000000000000001Ki",
            (NANO << 10) + 1,
            Format::BinarySi,
        );
    }

    #[test]
    fn large_amounts_are_capped() {
        use Format::{BinarySi, DecimalExponent, DecimalSi};
        check("8Ei", BINARY_CAP, BinarySi);
        check("-9000Ei", -BINARY_CAP, BinarySi);
        check(
            "99999999999999999999999999999999999999999999Ki",
            BINARY_CAP,
            BinarySi,
        );
        check(
            "9223372036854775808",
            (i128::from(i64::MAX) + 1) * NANO,
            DecimalSi,
        );
        check("10E", 10_000_000_000_000_000_000 * NANO, DecimalSi);
        check("1e2000000000", i128::MAX, DecimalExponent);
    }

    #[test]
    fn numbers_without_digits_are_zero_where_upstream_takes_them_for_it() {
        for text in ["+", "-", ".", "-.", "k", "Ki", ".Mi", "m", "n", "e5", "+e3"] {
            check(text, 0, text.parse::<Quantity>().unwrap().format());
        }
        assert_eq!("e-10".parse::<Quantity>(), Err(QuantityError::Number));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", " 1", "1 ", "1 Gi", "1.1.M", "1+1.0M", "0x10", "1,5", "1_000", "µ",
        ] {
            assert_eq!(
                text.parse::<Quantity>(),
                Err(QuantityError::Form),
                "{text:?}"
            );
        }
        for text in [
            "--1", "1K", "1Kb", "1gi", "0.1mi", "0.1am", "1i", "1e", "-3.01i", "1E-", "5m3", "1mM",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
        for text in [
            "1e4294967297",
            "1e2147483648",
            "1e-2147483648",
            "1e99999999999999999999",
        ] {
            assert_eq!(
                text.parse::<Quantity>(),
                Err(QuantityError::Suffix),
                "{text:?}"
            );
        }
    }
}
