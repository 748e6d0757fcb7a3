//! How the client stands, in response fields.
//!
//! `RateLimit` and `RateLimit-Policy` follow
//! draft-ietf-httpapi-ratelimit-headers-10; `X-RateLimit-Limit`, `-Remaining`
//! and `-Reset` (seconds from now) are what came before. All but the policy are
//! about the tightest limit.

use std::fmt::Write;

use weir_sdk::{
    EditError, EditTemplate, Interval, PreparedEdits, Problem, Request, ValueTemplate, Values,
    edits::Decimal,
    store::{Decision, Limit},
};

/// What is the same for every request, by the tightest limit.
pub struct Policy(Vec<Named>);

struct Named {
    /// `RateLimit` up to the number that is left.
    start: String,
    /// Takes `RateLimit` and the two numbers in it.
    fields: PreparedEdits,
}

impl Policy {
    pub fn new(limits: &[Limit]) -> Result<Self, Problem> {
        let name = |limit: &Limit| match limits {
            [_] => "default".to_owned(),
            _ => Interval(std::time::Duration::from_millis(limit.window)).to_string(),
        };
        let mut policy = String::new();
        for limit in limits {
            if !policy.is_empty() {
                policy.push_str(", ");
            }
            // Writing to a string does not fail.
            let _ = write!(policy, "\"{}\";q={}", name(limit), limit.quota);
            // `w` is optional, and in whole seconds.
            if limit.window.is_multiple_of(1000) {
                let _ = write!(policy, ";w={}", limit.window / 1000);
            }
        }
        let named = |limit: &Limit| {
            let start = format!("\"{}\";r=", name(limit));
            let fields = fields(&policy, limit.quota).map_err(|error| Problem::refused(&[], error))?;
            Ok(Named { start, fields })
        };
        Ok(Self(limits.iter().map(named).collect::<Result<_, _>>()?))
    }
}

fn fields(policy: &str, quota: u64) -> Result<PreparedEdits, EditError> {
    PreparedEdits::new(&[
        EditTemplate::set("ratelimit-policy", ValueTemplate::fixed(policy)),
        EditTemplate::set("ratelimit", ValueTemplate::Given),
        EditTemplate::set("x-ratelimit-limit", ValueTemplate::fixed(&quota.to_string())),
        EditTemplate::set("x-ratelimit-remaining", ValueTemplate::Given),
        EditTemplate::set("x-ratelimit-reset", ValueTemplate::Given),
    ])
}

/// What is this request's.
pub struct Standing<'a> {
    policy: &'a Policy,
    decision: &'a Decision,
}

impl<'a> Standing<'a> {
    pub fn new(policy: &'a Policy, decision: &'a Decision) -> Self {
        Self { policy, decision }
    }

    /// Has the response tell it.
    pub fn tell(&self, request: &mut Request) -> Result<(), EditError> {
        // The gateway names one of the limits that it was given.
        let Some(limit) = self.policy.0.get(self.decision.tightest as usize) else { return Ok(()) };
        let (remaining, reset) = (Decimal::new(self.decision.remaining), Decimal::new(seconds(self.decision.reset)));
        let mut values = Values::new();
        values.push_parts(&[limit.start.as_bytes(), remaining.as_ref(), b";t=", reset.as_ref()]);
        values.push(&remaining);
        values.push(&reset);
        request.edit_response_prepared(&limit.fields, &values)
    }

    /// For an answer in place of the upstream's (RFC 9110 section 10.2.3).
    pub fn retry_after(&self) -> String {
        seconds(self.decision.retry_after).to_string()
    }
}

/// Whole seconds, rounded up: whoever waits that long has waited enough.
fn seconds(millis: u64) -> u64 {
    millis.div_ceil(1000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!([0, 1, 1000, 1001].map(seconds), [1, 1, 1, 2]);
    }
}
