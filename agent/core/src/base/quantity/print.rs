//! Printing a quantity in canonical form: no fraction, the largest suffix that loses nothing.

use core::fmt;

use super::{Format, NANO, Quantity};

impl fmt::Display for Quantity {
    /// Binary format falls back to decimal below 1024 and for fractions of one: 512 prints "512",
    /// 1536 MiB prints "1536Mi", half a byte prints "500m".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let whole = self.nanos % NANO == 0;
        let small = self.nanos.unsigned_abs() < 1024 * NANO.unsigned_abs();
        match self.format {
            Format::BinarySi if whole && !small => print_binary(f, self.nanos / NANO),
            Format::BinarySi | Format::DecimalSi => print_decimal(f, self.nanos, decimal_suffix),
            Format::DecimalExponent => print_decimal(f, self.nanos, exponent_suffix),
        }
    }
}

fn print_binary(f: &mut fmt::Formatter<'_>, value: i128) -> fmt::Result {
    let (mut mantissa, mut power) = (value, 0);
    while mantissa.unsigned_abs() >= 1024 && mantissa % 1024 == 0 {
        mantissa /= 1024;
        power += 1;
    }
    match BINARY.get(power) {
        Some(suffix) => write!(f, "{mantissa}{suffix}"),
        // Only a sum can be this large; nothing is lost in decimal.
        None => print_decimal(f, value.saturating_mul(NANO), decimal_suffix),
    }
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

type WriteSuffix = fn(&mut fmt::Formatter<'_>, i32) -> fmt::Result;

/// The mantissa without trailing zeros, then brought to an exponent that is a multiple of three.
fn print_decimal(f: &mut fmt::Formatter<'_>, nanos: i128, suffix: WriteSuffix) -> fmt::Result {
    let (mut mantissa, mut exponent) = (nanos, -9);
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    while exponent % 3 != 0 {
        mantissa *= 10;
        exponent -= 1;
    }
    write!(f, "{mantissa}")?;
    suffix(f, exponent)
}

/// Amounts too large for a suffix keep their exponent.
fn decimal_suffix(f: &mut fmt::Formatter<'_>, exponent: i32) -> fmt::Result {
    f.write_str(match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => return exponent_suffix(f, exponent),
    })
}

fn exponent_suffix(f: &mut fmt::Formatter<'_>, exponent: i32) -> fmt::Result {
    if exponent == 0 {
        Ok(())
    } else {
        write!(f, "e{exponent}")
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, printed: &str) {
        let quantity: Quantity = text
            .parse()
            .unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(quantity.to_string(), printed, "{text:?}");
    }

    #[test]
    fn binary_uses_the_largest_exact_suffix() {
        check("1.5Gi", "1536Mi");
        check("1024Ki", "1Mi");
        check("1023Ki", "1023Ki");
        check("0.5Ki", "512");
        check("1Ki", "1Ki");
        check("10240Mi", "10Gi");
        check("-1.5Gi", "-1536Mi");
        check("8Ei", "9223372036854775807");
        assert_eq!(Quantity::from_bytes(104_857_601).to_string(), "104857601");
        assert_eq!(Quantity::from_bytes(1000).to_string(), "1k");
        assert_eq!(Quantity::from_bytes(1_572_864_000).to_string(), "1500Mi");
    }

    #[test]
    fn binary_fractions_print_in_decimal() {
        check("1.1Ki", "1126400m");
        check("0.0001Ki", "102400u");
    }

    #[test]
    fn decimal_exponents_are_multiples_of_three() {
        check("1000", "1k");
        check("1200", "1200");
        check("1500m", "1500m");
        check("1.5", "1500m");
        check("100m", "100m");
        check("10", "10");
        check("100000", "100k");
        check("1000000", "1M");
        check("0.001k", "1");
        check("12000n", "12u");
        check("-1000", "-1k");
        check("9223372036854775807", "9223372036854775807");
        assert_eq!(Quantity::from_count(1200).to_string(), "1200");
    }

    #[test]
    fn decimal_exponent_format_keeps_its_family() {
        check("12e6", "12e6");
        check("1e4", "10e3");
        check("1e0", "1");
        check("15e-1", "1500e-3");
        check("1E3", "1e3");
        check("0.001e0", "1e-3");
        check(".001e12", "1e9");
    }

    #[test]
    fn beyond_the_largest_suffix_the_exponent_stays() {
        check("1000E", "1e21");
        check("-5000E", "-5e21");
        let large = Quantity::from_bytes(i64::MAX).plus(Quantity::from_bytes(1));
        assert_eq!(large.to_string(), "8Ei");
        let larger = (0..9).fold(large, |sum, _| sum.plus(sum)).plus(large);
        assert_eq!(larger.to_string(), "4104Ei");
        let largest = (0..7).fold(large, |sum, _| sum.plus(sum));
        assert_eq!(largest.to_string(), "1180591620717411303424");
    }

    proptest! {
        #[test]
        fn print_and_read_are_inverse(nanos in -(1i128 << 96)..(1i128 << 96), binary: bool) {
            let format = if binary { Format::BinarySi } else { Format::DecimalSi };
            let quantity = Quantity::from_nanos(nanos, format);
            // A binary suffix is only ever read back up to 64 bits, as upstream cuts it there.
            prop_assume!(!binary || nanos.abs() < i128::from(i64::MAX) * NANO);
            prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
        }

        #[test]
        fn printing_is_a_fixed_point(mantissa in 0u64..100_000_000, suffix in "(|[numkMGTPE]|[KMGTPE]i|e-?[0-9])") {
            let once: Quantity = format!("{mantissa}{suffix}").parse().unwrap();
            let twice: Quantity = once.to_string().parse().unwrap();
            prop_assert_eq!(once.to_string(), twice.to_string());
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*|[-+.0-9eEinumkKMGTP]{0,30}") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let _ = quantity.to_string();
            }
        }
    }
}
