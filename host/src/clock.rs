//! The wall clock that plugins and their shared state go by.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How long a scripted clock may lag behind its file.
const REREAD: Duration = Duration::from_millis(2);

/// Tells the time in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    /// What the file said last.
    Scripted(Arc<AtomicU64>),
}

impl Clock {
    /// The system's time.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// The time that a file holds as a decimal number of milliseconds. The file
    /// is read again about every 2 ms, until the last copy of the clock is gone;
    /// while it can't be read or holds no number, the clock stands still. For
    /// tests: write a new file and rename it over the old one.
    pub fn scripted(path: &Path) -> io::Result<Self> {
        let now = Arc::new(AtomicU64::new(read(path)?));
        let (path, follower) = (path.to_owned(), Arc::downgrade(&now));
        thread::Builder::new().name("clock".into()).spawn(move || follow(path, follower))?;
        Ok(Self(Source::Scripted(now)))
    }

    /// Now. A time before 1970 reads as 0.
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            Source::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                since.as_secs() * 1000 + u64::from(since.subsec_millis())
            }
            Source::Scripted(now) => now.load(Ordering::Acquire),
        }
    }
}

fn read(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn follow(path: PathBuf, clock: Weak<AtomicU64>) {
    loop {
        thread::sleep(REREAD);
        let Some(now) = clock.upgrade() else { return };
        if let Ok(time) = read(&path) {
            now.store(time, Ordering::Release);
        }
    }
}

/// A time as RFC 3339 text with milliseconds, such as
/// `2026-12-01T09:00:00.123Z`. Years beyond 9999 read as 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp([u8; 24]);

impl Timestamp {
    pub fn new(unix_ms: u64) -> Self {
        let (days, in_day) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
        let (year, month, day) = civil(days);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[0..4], year.min(9999));
        put(&mut text[5..7], month);
        put(&mut text[8..10], day);
        put(&mut text[11..13], in_day / 3_600_000);
        put(&mut text[14..16], in_day / 60_000 % 60);
        put(&mut text[17..19], in_day / 1000 % 60);
        put(&mut text[20..23], in_day % 1000);
        Self(text)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Writes the last digits of a number, as many as there is room for.
fn put(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of a year,
/// and in eras of 400 years, which all have 146 097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    // From 0000-03-01 to 1970-01-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // The lengths of the months from March on follow 153 days in five.
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_past_2024() {
        assert!(Clock::system().now_ms() > 1_704_067_200_000);
    }

    #[test]
    fn a_scripted_clock_follows_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("now");
        fs::write(&path, "1000\n").unwrap();
        let clock = Clock::scripted(&path).unwrap();
        assert_eq!(clock.now_ms(), 1000);
        let next = folder.path().join("next");
        fs::write(&next, "61000").unwrap();
        fs::rename(&next, &path).unwrap();
        while clock.clone().now_ms() != 61_000 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_scripted_clock_needs_a_number_to_begin_with() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Clock::scripted(&folder.path().join("absent")).is_err());
        let path = folder.path().join("now");
        fs::write(&path, "noon").unwrap();
        assert_eq!(Clock::scripted(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn timestamps_are_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599_001, "2024-12-31T23:59:59.001Z"),
            (1_796_115_600_123, "2026-12-01T09:00:00.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::new(ms).as_str(), text);
        }
        assert!(Timestamp::new(u64::MAX).as_str().starts_with("9999-"));
    }
}
