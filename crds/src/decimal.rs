//! Decimal numbers that cross the API as text, such as `"1e-3"`: JSON numbers lose digits on the way.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A finite number of at least zero, kept as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Decimal {
    text: String,
    value: f64,
}

/// Why a text is no decimal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no decimal number of at least zero: write it in quotes, such as \"1e-3\"")]
pub struct DecimalError(String);

/// The pattern that the API server applies.
pub const PATTERN: &str = r"^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$";

impl Decimal {
    /// The nearest double-precision number.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// A number printed with the fewest digits that read back the same; `None` where it is
    /// negative, infinite or not a number.
    pub fn from_f64(value: f64) -> Option<Self> {
        if !value.is_finite() || value < 0.0 {
            return None;
        }
        let text = if value == 0.0 || (1e-3..1e6).contains(&value) {
            format!("{value}")
        } else {
            format!("{value:e}")
        };
        Some(Self { text, value })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || DecimalError(text.to_owned());
        // The standard parser also takes 'inf', 'nan', '+1' and '.5', which the API does not.
        let plain = text.starts_with(|c: char| c.is_ascii_digit())
            && text.ends_with(|c: char| c.is_ascii_digit());
        let value = text.parse::<f64>().map_err(|_| refuse())?;
        if !plain || !value.is_finite() || text.contains(".e") || text.contains(".E") {
            return Err(refuse());
        }
        Ok(Self { text: text.to_owned(), value })
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Decimal {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Decimal".into()
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
    fn keeps_its_text() {
        for (text, value) in [("1e-3", 1e-3), ("0.03", 0.03), ("2", 2.0), ("5E+2", 500.0)] {
            let decimal: Decimal = text.parse().unwrap();
            assert_eq!(decimal.value(), value);
            assert_eq!(decimal.to_string(), text);
        }
    }

    #[test]
    fn refuses_what_the_schema_refuses() {
        for text in ["", "-1", "nan", "inf", ".5", "1.", "1.e3", "one", "1e999", "+1"] {
            assert!(text.parse::<Decimal>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_measured_values() {
        assert_eq!(Decimal::from_f64(2e-5).unwrap().as_str(), "2e-5");
        assert_eq!(Decimal::from_f64(0.5).unwrap().as_str(), "0.5");
        assert_eq!(Decimal::from_f64(0.0).unwrap().as_str(), "0");
        assert!(Decimal::from_f64(f64::NAN).is_none());
    }
}
