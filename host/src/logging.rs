//! The gateway's own log: one line per event on stderr.
//!
//! `2026-12-01T09:00:00.123Z INFO config 2 serving routes=3`: time, level,
//! message, fields. The level is set by the environment variable `WEIR_LOG`.

use std::{
    env,
    fmt::{self, Write},
    io::{self, IsTerminal},
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format::Writer},
    registry::LookupSpan,
};

use crate::clock::{Clock, Timestamp};

/// Keeps a source of log lines from filling the disk: so many in a second, and
/// what was dropped is counted.
#[derive(Debug)]
pub struct Budget {
    started: Instant,
    second: AtomicU64,
    lines: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { started: Instant::now(), second: AtomicU64::new(0), lines: AtomicU64::new(0) }
    }
}

impl Budget {
    /// Lines in a second.
    const LINES: u64 = 100;

    /// Whether this second has room for one more line, and how many the last
    /// one had no room for, told once.
    pub fn take(&self) -> (bool, u64) {
        let second = self.started.elapsed().as_secs() + 1;
        let mut dropped = 0;
        if self.second.swap(second, Ordering::Relaxed) != second {
            dropped = self.lines.swap(0, Ordering::Relaxed).saturating_sub(Self::LINES);
        }
        (self.lines.fetch_add(1, Ordering::Relaxed) < Self::LINES, dropped)
    }
}

/// Sets up logging for the whole process; called once, first of all. Coloured if
/// stderr is a terminal and `NO_COLOR` is not set.
///
/// Fails if `WEIR_LOG` holds anything but `off`, `error`, `warn`, `info` (which
/// it is without), `debug` or `trace`, or if logging has been set up before.
pub fn init() -> Result<(), String> {
    let level = match env::var("WEIR_LOG") {
        Ok(level) => parse_level(&level)?,
        Err(env::VarError::NotPresent) => LevelFilter::INFO,
        Err(error) => return Err(format!("WEIR_LOG: {error}")),
    };
    let colour = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let subscriber = subscriber(level, colour, Clock::system(), io::stderr);
    tracing::subscriber::set_global_default(subscriber).map_err(|error| error.to_string())
}

fn parse_level(level: &str) -> Result<LevelFilter, String> {
    match level {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" | "" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        other => Err(format!("WEIR_LOG: no level {other:?}; there are off, error, warn, info, debug and trace")),
    }
}

fn subscriber<W>(level: LevelFilter, colour: bool, clock: Clock, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt().with_max_level(level).with_writer(writer).event_format(Line { colour, clock }).finish()
}

/// How an event becomes a line.
struct Line {
    colour: bool,
    clock: Clock,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = *event.metadata().level();
        let (begin, end) = if self.colour { (colour(level), "\x1b[0m") } else { ("", "") };
        write!(out, "{} {begin}{level}{end}", Timestamp::new(self.clock.now_ms()).as_str())?;
        // The message stands first, wherever it was written.
        for wants_message in [true, false] {
            let mut fields = Fields { out: Escaped(&mut out), wants_message, result: Ok(()) };
            event.record(&mut fields);
            fields.result?;
        }
        out.write_char('\n')
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        _ => "\x1b[2m",
    }
}

/// Writes the message of an event, or everything else.
struct Fields<'a, 'w> {
    out: Escaped<'a, 'w>,
    wants_message: bool,
    result: fmt::Result,
}

impl Visit for Fields<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let is_message = field.name() == "message";
        if is_message != self.wants_message || self.result.is_err() {
            return;
        }
        self.result =
            if is_message { write!(self.out, " {value:?}") } else { write!(self.out, " {}={value:?}", field.name()) };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // Quoted only where it could be misread.
        let is_plain =
            !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\=".contains(&byte));
        if is_plain {
            self.record_debug(field, &format_args!("{value}"));
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Keeps control characters out of the log: what comes from outside must not
/// forge lines or steer a terminal. Line breaks of our own texts (backtraces,
/// lists of config errors) become `\n` as well: one event is one line.
struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((place, control)) = rest.char_indices().find(|(_, character)| character.is_control()) {
            self.0.write_str(&rest[..place])?;
            write!(self.0, "{}", control.escape_default())?;
            rest = &rest[place + control.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged at 09:00, with the time taken off again.
    fn logged(level: LevelFilter, colour: bool, log: impl FnOnce()) -> String {
        let folder = tempfile::tempdir().unwrap();
        let now = folder.path().join("now");
        std::fs::write(&now, "1796115600123").unwrap();
        let (sink, clock) = (Sink::default(), Clock::scripted(&now).unwrap());
        let writer = sink.clone();
        tracing::subscriber::with_default(subscriber(level, colour, clock, move || writer.clone()), log);
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.strip_prefix("2026-12-01T09:00:00.123Z ").unwrap().to_owned() + "\n").collect()
    }

    #[test]
    fn a_line_is_time_level_message_fields() {
        let text = logged(LevelFilter::INFO, false, || {
            tracing::info!(routes = 3, file = "weir.yaml", "config {} serving", 2);
            tracing::warn!(error = %io::Error::other("two words"), name = "two words", empty = "", "odd");
            tracing::debug!("not shown");
        });
        assert_eq!(
            text,
            "INFO config 2 serving routes=3 file=weir.yaml\nWARN odd error=two words name=\"two words\" empty=\"\"\n"
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        let text = logged(LevelFilter::TRACE, false, || {
            tracing::error!("a\nINFO forged \x1b[2J{}", '\u{9b}');
            tracing::error!(path = "/x\r\ny", debug = ?"\x07", display = %"z\n");
        });
        assert_eq!(
            text,
            "ERROR a\\nINFO forged \\u{1b}[2J\\u{9b}\nERROR path=\"/x\\r\\ny\" debug=\"\\u{7}\" display=z\\n\n"
        );
    }

    #[test]
    fn a_terminal_gets_colour() {
        assert_eq!(logged(LevelFilter::INFO, true, || tracing::error!("x")), "\x1b[31mERROR\x1b[0m x\n");
    }

    #[test]
    fn levels_are_known_by_name() {
        assert_eq!(parse_level("debug"), Ok(LevelFilter::DEBUG));
        assert!(parse_level("verbose").unwrap_err().contains("\"verbose\""));
    }
}
