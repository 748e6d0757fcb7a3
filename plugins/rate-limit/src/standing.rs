//! How the client stands, in response fields.
//!
//! `RateLimit` and `RateLimit-Policy` follow
//! draft-ietf-httpapi-ratelimit-headers-10; `X-RateLimit-Limit`, `-Remaining`
//! and `-Reset` (seconds from now) are what came before. All but the policy are
//! about the tightest limit.

use std::{fmt::Write, ops::Range};

use weir_sdk::{
    Edit, Interval,
    store::{Decision, Limit},
};

/// What is the same for every request.
pub struct Policy {
    /// `RateLimit-Policy`.
    text: String,
    limits: Vec<Named>,
}

struct Named {
    /// `RateLimit` up to the number that is left.
    start: String,
    /// `X-RateLimit-Limit`.
    quota: String,
}

impl Policy {
    pub fn new(limits: &[Limit]) -> Self {
        let mut policy = Self { text: String::new(), limits: Vec::new() };
        for limit in limits {
            let window = std::time::Duration::from_millis(limit.window);
            let name = if limits.len() == 1 { "default".to_owned() } else { Interval(window).to_string() };
            if !policy.text.is_empty() {
                policy.text.push_str(", ");
            }
            // Writing to a string does not fail.
            let _ = write!(policy.text, "\"{name}\";q={}", limit.quota);
            // `w` is optional, and in whole seconds.
            if limit.window.is_multiple_of(1000) {
                let _ = write!(policy.text, ";w={}", limit.window / 1000);
            }
            policy.limits.push(Named { start: format!("\"{name}\";r="), quota: limit.quota.to_string() });
        }
        policy
    }
}

/// What is this request's.
pub struct Standing<'a> {
    policy: &'a str,
    quota: &'a str,
    /// `RateLimit`; the numbers of the other fields are parts of it.
    text: Vec<u8>,
    remaining: Range<usize>,
    reset: Range<usize>,
    retry_after: Vec<u8>,
}

impl<'a> Standing<'a> {
    pub fn new(policy: &'a Policy, decision: &Decision) -> Self {
        let (start, quota) = match policy.limits.get(decision.tightest as usize) {
            Some(limit) => (limit.start.as_str(), limit.quota.as_str()),
            None => ("\"default\";r=", "0"),
        };
        let mut text = Vec::with_capacity(64);
        text.extend_from_slice(start.as_bytes());
        let remaining = push_number(&mut text, decision.remaining);
        text.extend_from_slice(b";t=");
        let reset = push_number(&mut text, seconds(decision.reset));
        let mut retry_after = Vec::new();
        if !decision.allowed {
            push_number(&mut retry_after, seconds(decision.retry_after));
        }
        Self { policy: &policy.text, quota, text, remaining, reset, retry_after }
    }

    pub fn edits(&self) -> [Edit<'_>; 5] {
        [
            Edit::set("ratelimit-policy", self.policy),
            Edit::set("ratelimit", &self.text),
            Edit::set("x-ratelimit-limit", self.quota),
            Edit::set("x-ratelimit-remaining", &self.text[self.remaining.clone()]),
            Edit::set("x-ratelimit-reset", &self.text[self.reset.clone()]),
        ]
    }

    /// For an answer in place of the upstream's (RFC 9110 section 10.2.3).
    pub fn retry_after(&self) -> &[u8] {
        &self.retry_after
    }
}

/// Whole seconds, rounded up: whoever waits that long has waited enough.
fn seconds(millis: u64) -> u64 {
    millis.div_ceil(1000).max(1)
}

/// Adds a number in decimal, and says where it stands. The way by `write!` takes
/// ten times as long, on every request.
fn push_number(text: &mut Vec<u8>, mut number: u64) -> Range<usize> {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    let start = text.len();
    text.extend_from_slice(&digits[at..]);
    start..text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 999, u64::MAX] {
            let mut text = b"x".to_vec();
            let range = push_number(&mut text, number);
            assert_eq!(text[range], *number.to_string().as_bytes());
        }
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!([0, 1, 1000, 1001].map(seconds), [1, 1, 1, 2]);
    }
}
