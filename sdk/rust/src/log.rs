//! The gateway's log.
//!
//! Write with [`crate::error!`], [`crate::warn!`], [`crate::info!`],
//! [`crate::debug!`] and [`crate::trace!`], which format as `format!` does, and
//! only if the line is written. The gateway adds time, plugin, route and request
//! id. Never write a secret.

use std::fmt;

pub use crate::bindings::weir::plugin::log::Level;
use crate::host::log as host;

/// Writes a line, unless the level is not logged now.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    // What is grave is hardly ever switched off: asking costs more than it saves.
    if level < Level::Warn && !enabled(level) {
        return;
    }
    match message.as_str() {
        Some(text) => host::write(level, text),
        None => host::write(level, &message.to_string()),
    }
}

/// Whether lines of that level are written now. Ask before work that only a log
/// line needs.
pub fn enabled(level: Level) -> bool {
    host::threshold().is_some_and(|threshold| level >= threshold)
}

/// Logs that the plugin could not do its work.
#[macro_export]
macro_rules! error {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Error, format_args!($($message)+)) };
}

/// Logs that something is not as it should be; the request goes on.
#[macro_export]
macro_rules! warn {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Warn, format_args!($($message)+)) };
}

/// Logs what is worth knowing in daily use.
#[macro_export]
macro_rules! info {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Info, format_args!($($message)+)) };
}

/// Logs for whoever develops the plugin.
#[macro_export]
macro_rules! debug {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Debug, format_args!($($message)+)) };
}

/// Logs every step.
#[macro_export]
macro_rules! trace {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Trace, format_args!($($message)+)) };
}
