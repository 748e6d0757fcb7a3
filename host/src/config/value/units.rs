//! Durations and sizes.

use std::{ops::RangeInclusive, time::Duration};

use super::quoted;
use crate::config::error::Fault;

/// The longest duration. More would not add up with a clock's time everywhere.
pub(in crate::config) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

const DURATIONS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 4] = [("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// `100ms`, `1s`, `1m`, `1h` or `1d`, and at most [`LONGEST`].
pub(in crate::config) fn duration(text: &str) -> Result<Duration, Fault> {
    let Some((count, unit)) = split(text, &DURATIONS) else {
        return Err(Fault::new(format!("{} is no duration", quoted(text)))
            .hint("a whole number and a unit: 100ms, 1s, 1m, 1h or 1d"));
    };
    let millis = count.and_then(|count| count.checked_mul(unit));
    match millis.map(Duration::from_millis) {
        Some(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(Fault::new(format!("{} is too long", quoted(text))).hint("at most 365d")),
    }
}

/// As [`duration`], but not none at all.
pub(in crate::config) fn some_duration(text: &str) -> Result<Duration, Fault> {
    match duration(text)? {
        Duration::ZERO => Err(Fault::new("the duration must be more than 0")),
        duration => Ok(duration),
    }
}

/// Bytes, as `512`, `64KiB`, `16MiB` or `1GiB`, within `range`.
pub(in crate::config) fn size(text: &str, range: RangeInclusive<u64>) -> Result<u64, Fault> {
    let Some((count, unit)) = split(text, &SIZES) else {
        return Err(Fault::new(format!("{} is no size", quoted(text)))
            .hint("a whole number of bytes, or one with a unit: 512, 64KiB, 16MiB or 1GiB"));
    };
    match count.and_then(|count| count.checked_mul(unit)) {
        Some(bytes) if range.contains(&bytes) => Ok(bytes),
        Some(bytes) if bytes < *range.start() => {
            Err(Fault::new(format!("{} is too small", quoted(text)))
                .hint(format!("at least {}", shown(*range.start()))))
        }
        _ => Err(Fault::new(format!("{} is too large", quoted(text))).hint(format!("at most {}", shown(*range.end())))),
    }
}

/// The count, unless it is too large, and what one of its unit is worth.
fn split(text: &str, units: &[(&str, u64)]) -> Option<(Option<u64>, u64)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (count, unit) = text.split_at(digits);
    let (_, worth) = units.iter().find(|(name, _)| *name == unit)?;
    (digits > 0).then(|| (count.parse().ok(), *worth))
}

/// A size in the largest unit that it is a whole number of.
fn shown(bytes: u64) -> String {
    let whole = SIZES.iter().rev().find(|(_, worth)| bytes.is_multiple_of(*worth) && bytes >= *worth);
    match whole {
        Some((unit, worth)) => format!("{}{unit}", bytes / worth),
        None => bytes.to_string(),
    }
}
