//! Lengths of time in a configuration.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

/// The units, largest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// A length of time as `weir.yaml` has it everywhere: a whole number and one of
/// `ms`, `s`, `m`, `h`, `d`, such as `100ms` or `1m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(pub Duration);

impl Interval {
    fn parse(text: &str) -> Option<Self> {
        let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at(unit_at);
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let millis = number.parse::<u64>().ok()?.checked_mul(*millis)?;
        Some(Self(Duration::from_millis(millis)))
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        for (unit, length) in UNITS {
            if millis.is_multiple_of(u128::from(length)) {
                return write!(f, "{}{unit}", millis / u128::from(length));
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::custom(format_args!("{text:?} is no length of time: write `100ms`, `1s`, `1m`, `1h` or `1d`"))
        })
    }
}

impl JsonSchema for Interval {
    fn schema_name() -> Cow<'static, str> {
        "Interval".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A length of time: `100ms`, `1s`, `1m`, `1h`, `1d`.",
            "pattern": "^[0-9]+(ms|s|m|h|d)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for (text, millis) in [("100ms", 100), ("1s", 1000), ("90s", 90_000), ("1m", 60_000), ("2h", 7_200_000)] {
            let interval = Interval::parse(text).unwrap();
            assert_eq!(interval.0.as_millis(), millis);
            assert_eq!(interval.to_string(), text);
        }
        for text in ["", "1", "s", "1 s", "-1s", "1.5s", "1w", "1M", "99999999999999999999s", "999999999999999999d"] {
            assert_eq!(Interval::parse(text), None, "{text}");
        }
    }
}
