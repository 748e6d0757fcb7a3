//! Limits how many requests a client may make in a time.
//!
//! The gateway's store counts, exactly and for all workers; the plugin says what
//! is counted together (`key.rs`), and tells the client how it stands
//! (`standing.rs`).
#![cfg_attr(test, allow(clippy::unwrap_used))]

use weir_sdk::{prelude::*, store::Limiter};

mod config;
mod key;
mod standing;

use config::Config;
use standing::{Policy, Standing};

struct RateLimit {
    limiter: Limiter,
    policy: Policy,
    pass_unchecked: bool,
}

impl Plugin for RateLimit {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        let limits = config.limits()?;
        Ok(Self {
            limiter: key::limiter(&config.by, config.shared, &limits)?,
            policy: Policy::new(&limits)?,
            pass_unchecked: config.on_store_error == config::OnStoreError::Allow,
        })
    }

    fn phases(&self) -> Phases {
        // What the response is to say is known when the request is counted.
        Phases::REQUEST
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        let decision = match self.limiter.take(1) {
            Ok(decision) => decision,
            Err(error) if self.pass_unchecked => {
                weir_sdk::warn!("not counted: {}", error.name());
                return Ok(Action::Continue);
            }
            Err(error) => return Err(error.into()),
        };
        let standing = Standing::new(&self.policy, &decision);
        standing.tell(request)?;
        if decision.allowed {
            return Ok(Action::Continue);
        }
        let retry_after = standing.retry_after();
        let headers =
            [Field::new("retry-after", &retry_after), Field::new("content-type", "text/plain; charset=utf-8")];
        request.respond(429, &headers, "Too many requests.\n")
    }
}

weir_sdk::export!(RateLimit);

#[cfg(test)]
mod tests;
