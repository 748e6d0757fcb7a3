//! What `weir.yaml` says.

use schemars::JsonSchema;
use serde::Deserialize;
use weir_sdk::{
    Interval, Problem,
    store::{Algorithm, Limit},
};

/// The largest integer of a structured field (RFC 9651 section 3.3.1).
const MOST: u64 = 999_999_999_999_999;
const LONGEST_WINDOW_DAYS: u64 = 366;
const MOST_LIMITS: usize = 8;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Requests that are allowed per `window`.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
    /// The time that `limit` is for.
    window: Option<Interval>,
    /// Several limits in place of one; a request must keep all of them.
    #[serde(default)]
    #[schemars(length(max = 8))]
    limits: Vec<LimitConfig>,
    /// Which requests are counted together.
    #[serde(default)]
    pub by: By,
    /// How they are counted.
    #[serde(default)]
    algorithm: AlgorithmConfig,
    /// Whether all routes with this plugin share one count, rather than each
    /// having its own.
    #[serde(default)]
    pub shared: bool,
    /// What happens to a request that can't be counted.
    #[serde(default)]
    pub on_store_error: OnStoreError,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitConfig {
    /// Requests that are allowed per `window`.
    #[schemars(range(min = 1))]
    limit: u64,
    /// The time that `limit` is for.
    window: Interval,
}

/// Which requests are counted together.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Those of one client address; of IPv6, of one /64.
    #[default]
    Address,
    /// All.
    Route,
    /// Those of one consumer; without one, of one address.
    Consumer,
    /// Those with the same value of this header field; without it, of one
    /// address.
    Header(String),
}

/// How requests are counted.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AlgorithmConfig {
    /// In windows that start at fixed times.
    #[default]
    FixedWindow,
    /// In any window, estimated from two fixed ones.
    SlidingWindow,
    /// A bucket of `limit` tokens, refilled steadily in `window`.
    TokenBucket,
}

/// What happens to a request that can't be counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreError {
    /// The plugin fails; the chain entry's `on_error` decides.
    #[default]
    Deny,
    /// It passes.
    Allow,
}

impl Config {
    /// The limits, checked.
    pub fn limits(&self) -> Result<Vec<Limit>, Vec<Problem>> {
        let single = |limit, window| LimitConfig { limit, window };
        let (written, is_list) = match (self.limit, self.window) {
            (None, None) if self.limits.is_empty() => {
                return Err(Problem::at(&[], "no limit: give `limit` and `window`, or `limits`").into());
            }
            (None, None) => (None, true),
            _ if !self.limits.is_empty() => {
                return Err(Problem::at(&["limits"], "stands in place of `limit` and `window`: keep one").into());
            }
            (Some(limit), Some(window)) => (Some(single(limit, window)), false),
            (Some(_), None) => return Err(Problem::at(&[], "`limit` needs a `window`, for example `1m`").into()),
            (None, Some(_)) => return Err(Problem::at(&[], "`window` needs a `limit`, for example `100`").into()),
        };
        let limits: Vec<&LimitConfig> = written.iter().chain(&self.limits).collect();

        let mut problems = Vec::new();
        for (i, limit) in limits.iter().enumerate() {
            let place = i.to_string();
            let path = |key| if is_list { vec!["limits", place.as_str(), key] } else { vec![key] };
            if limit.limit == 0 || limit.limit > MOST {
                problems.push(Problem::at(&path("limit"), format!("must be 1 to {MOST}")));
            }
            if limit.window.0.is_zero() || limit.window.0.as_secs() > LONGEST_WINDOW_DAYS * 86_400 {
                problems.push(Problem::at(&path("window"), format!("must be 1ms to {LONGEST_WINDOW_DAYS}d")));
            }
            if limits.iter().take(i).any(|earlier| earlier.window == limit.window) {
                problems.push(Problem::at(&path("window"), "is there twice: keep the lower limit"));
            }
        }
        if limits.len() > MOST_LIMITS {
            problems.push(Problem::at(&["limits"], format!("has more than {MOST_LIMITS}: keep the ones that matter")));
        }
        if !problems.is_empty() {
            return Err(problems);
        }

        let algorithm = self.algorithm.into();
        Ok(limits.iter().map(|limit| Limit::new(algorithm, limit.limit, limit.window.0)).collect())
    }
}

impl From<AlgorithmConfig> for Algorithm {
    fn from(algorithm: AlgorithmConfig) -> Self {
        match algorithm {
            AlgorithmConfig::FixedWindow => Self::FixedWindow,
            AlgorithmConfig::SlidingWindow => Self::SlidingWindow,
            AlgorithmConfig::TokenBucket => Self::TokenBucket,
        }
    }
}
