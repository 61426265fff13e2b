//! Durations as users write them: `30m`, `4h`, `2ms`, `1h30m`, `1.31ms`.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A span of time of nanosecond grain, at least zero, at most about 584 years.
///
/// Text form: one or more decimal numbers, each with a unit of `h`, `m`, `s`, `ms`, `us` or
/// `ns`. It prints in whole hours, minutes and seconds where it has them, else in the largest
/// unit with up to three decimals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanoseconds: u64,
}

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// No number and unit were found.
    #[error("'{0}' is no duration: write a number and a unit (h, m, s, ms, us, ns), such as 30m")]
    Malformed(String),
    /// The unit is unknown or missing.
    #[error("'{text}' has the unit '{unit}': use one of h, m, s, ms, us, ns")]
    Unit {
        /// The whole text.
        text: String,
        /// What stood where a unit must.
        unit: String,
    },
    /// The sum does not fit in 64 bits of nanoseconds.
    #[error("'{0}' is too long: the longest duration is about 5000000h")]
    TooLong(String),
}

/// Units, nanoseconds each, longest first.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The pattern that the API server applies.
pub const PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))+$";

impl Duration {
    /// A duration of whole nanoseconds.
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self { nanoseconds }
    }

    /// A duration of whole seconds; saturates at the longest.
    pub const fn from_secs(seconds: u64) -> Self {
        Self { nanoseconds: seconds.saturating_mul(1_000_000_000) }
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.nanoseconds
    }

    /// Whole seconds, rounded up, so that a deadline is never shorter than asked for.
    pub const fn as_secs_ceil(self) -> u64 {
        self.nanoseconds.div_ceil(1_000_000_000)
    }

    /// The same span as the standard library's type.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.nanoseconds)
    }
}

impl From<Duration> for std::time::Duration {
    fn from(value: Duration) -> Self {
        value.to_std()
    }
}

/// Splits `text` into its leading number and the letters after it; the rest follows.
fn take_part(text: &str) -> Option<(&str, &str, &str)> {
    let number = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let rest = &text[number..];
    let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    (number > 0).then_some((&text[..number], &rest[..unit], &rest[unit..]))
}

/// `number` (decimal text) times `scale`, exact to the nanosecond (further digits are cut).
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, fraction)) => (whole, fraction),
        None => (number, ""),
    };
    let mut total = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut part = scale;
    for digit in fraction.chars() {
        part /= 10;
        total = total.checked_add(u64::from(digit.to_digit(10)?) * part)?;
    }
    Some(total)
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || DurationError::Malformed(text.to_owned());
        let mut rest = text;
        let mut nanoseconds = 0u64;
        if rest.is_empty() {
            return Err(malformed());
        }
        while !rest.is_empty() {
            let (number, unit, tail) = take_part(rest).ok_or_else(malformed)?;
            let scale = UNITS.iter().find(|(name, _)| *name == unit);
            let (_, scale) = scale.ok_or_else(|| DurationError::Unit {
                text: text.to_owned(),
                unit: unit.to_owned(),
            })?;
            if number.matches('.').count() > 1 || number.starts_with('.') || number.ends_with('.') {
                return Err(malformed());
            }
            let part =
                scaled(number, *scale).ok_or_else(|| DurationError::TooLong(text.to_owned()))?;
            nanoseconds = nanoseconds
                .checked_add(part)
                .ok_or_else(|| DurationError::TooLong(text.to_owned()))?;
            rest = tail;
        }
        Ok(Self { nanoseconds })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.nanoseconds;
        if total == 0 {
            return f.write_str("0s");
        }
        if total.is_multiple_of(1_000_000_000) {
            let mut rest = total;
            for (unit, scale) in &UNITS[..3] {
                if rest / scale > 0 {
                    write!(f, "{}{unit}", rest / scale)?;
                    rest %= scale;
                }
            }
            return Ok(());
        }
        let fits = UNITS[2..].iter().find(|(_, scale)| total >= *scale);
        let (unit, scale) = fits.copied().unwrap_or(("ns", 1));
        let thousandths = (u128::from(total) * 1000 + u128::from(scale) / 2) / u128::from(scale);
        let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{text}{unit}")
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": PATTERN, "maxLength": 32})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_and_prints() {
        for (text, nanoseconds, printed) in [
            ("30m", 1_800_000_000_000, "30m"),
            ("4h", 14_400_000_000_000, "4h"),
            ("2ms", 2_000_000, "2ms"),
            ("1h30m", 5_400_000_000_000, "1h30m"),
            ("90s", 90_000_000_000, "1m30s"),
            ("1.31ms", 1_310_000, "1.31ms"),
            ("1.5h", 5_400_000_000_000, "1h30m"),
            ("0s", 0, "0s"),
            ("850ns", 850, "850ns"),
            ("1500us", 1_500_000, "1.5ms"),
        ] {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration.as_nanos(), nanoseconds, "{text}");
            assert_eq!(duration.to_string(), printed);
        }
    }

    #[test]
    fn refuses_with_the_reason() {
        for (text, expected) in [
            ("", "'' is no duration"),
            ("30", "'30' has the unit ''"),
            ("4 hours", "has the unit ' hours'"),
            ("-5s", "'-5s' is no duration"),
            ("1..5s", "'1..5s' is no duration"),
            ("7d", "has the unit 'd'"),
            ("99999999999h", "too long"),
        ] {
            let error = text.parse::<Duration>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn seconds_round_up() {
        assert_eq!(Duration::from_nanos(1).as_secs_ceil(), 1);
        assert_eq!(Duration::from_secs(7).as_secs_ceil(), 7);
    }
}
