//! `log`: lines of a plugin in the gateway's log.

use wasmtime::Result;

use crate::plugin::{
    bindings::imports::log::{Host, Level},
    store::InstanceState,
};

impl Host for InstanceState {
    fn write(&mut self, level: Level, message: String) -> Result<()> {
        let level = match level {
            Level::Trace => tracing::Level::TRACE,
            Level::Debug => tracing::Level::DEBUG,
            Level::Info => tracing::Level::INFO,
            Level::Warn => tracing::Level::WARN,
            Level::Error => tracing::Level::ERROR,
        };
        self.module.log(level, &message, self.exchange.as_deref_mut(), None);
        Ok(())
    }

    fn threshold(&mut self) -> Result<Option<Level>> {
        use tracing::level_filters::LevelFilter;
        let threshold = LevelFilter::current();
        Ok(match threshold {
            LevelFilter::TRACE => Some(Level::Trace),
            LevelFilter::DEBUG => Some(Level::Debug),
            LevelFilter::INFO => Some(Level::Info),
            LevelFilter::WARN => Some(Level::Warn),
            LevelFilter::ERROR => Some(Level::Error),
            _ => None,
        })
    }
}
