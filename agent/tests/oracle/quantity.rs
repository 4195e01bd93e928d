//! Amounts as the specification words them, in plain arithmetic of billionths.

/// Billionths in one.
pub(crate) const ONE: i128 = 1_000_000_000;

const TENS: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const TWOS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The family of suffixes an amount prints with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Family {
    Tens,
    Twos,
    Exponent,
}

/// An amount, and how it prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    pub(crate) nanos: i128,
    pub(crate) family: Family,
}

impl Amount {
    pub(crate) const NONE: Self = Self::of(0, Family::Twos);

    pub(crate) const fn of(whole: i64, family: Family) -> Self {
        Self {
            nanos: whole as i128 * ONE,
            family,
        }
    }

    /// What the generator writes: a number, perhaps with a fraction, and a suffix.
    pub(crate) fn read(text: &str) -> Self {
        let text = text.trim();
        let end = text.find(|c: char| c.is_ascii_alphabetic());
        let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: i128 = format!("{whole}{fraction}").parse().unwrap();
        let ten = |power: usize| 10i128.pow(u32::try_from(power).unwrap());
        let (factor, family) = if let Some(place) = TENS.iter().position(|s| *s == suffix) {
            (ten(3 * place), Family::Tens)
        } else if let Some(place) = TWOS.iter().position(|s| *s == suffix) {
            (ONE << (10 * place), Family::Twos)
        } else {
            let power = suffix.strip_prefix('e').unwrap();
            (ONE * ten(power.parse().unwrap()), Family::Exponent)
        };
        let (exact, unit) = (digits * factor, ten(fraction.len()));
        let away = i128::from(exact % unit != 0) * exact.signum();
        let nanos = exact / unit + away;
        let below_one = family == Family::Twos && 0 < nanos && nanos < ONE;
        let family = if below_one { Family::Tens } else { family };
        Self { nanos, family }
    }

    /// Rounded away from zero to a whole number.
    pub(crate) fn whole(self) -> i64 {
        let away = i128::from(self.nanos % ONE != 0) * self.nanos.signum();
        i64::try_from(self.nanos / ONE + away).unwrap()
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let family = if self.nanos == 0 {
            other.family
        } else {
            self.family
        };
        Self {
            nanos: self.nanos + other.nanos,
            family,
        }
    }

    /// The canonical text.
    pub(crate) fn text(self) -> String {
        let large = self.nanos.abs() >= 1024 * ONE;
        if self.nanos == 0 {
            return "0".into();
        }
        if self.family == Family::Twos && large && self.nanos % ONE == 0 {
            let (mut number, mut power) = (self.nanos / ONE, 0);
            while number % 1024 == 0 {
                (number, power) = (number / 1024, power + 1);
            }
            return format!("{number}{}", TWOS[power]);
        }
        let (mut number, mut power) = (self.nanos, 0usize);
        while number % 1000 == 0 {
            (number, power) = (number / 1000, power + 1);
        }
        match (self.family, power) {
            (_, 3) => number.to_string(),
            (Family::Exponent, power) => {
                format!("{number}e{}", 3 * i64::try_from(power).unwrap() - 9)
            }
            _ => format!("{number}{}", TENS[power]),
        }
    }
}
