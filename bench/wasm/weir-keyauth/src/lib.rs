//! The plugin of `../proxy-wasm-keyauth` and `../http-wasm-keyauth`, written with
//! Weir's SDK. Its buckets are in the gateway's store, so that they hold over all
//! workers; the others' are in each instance's memory.

use std::{collections::HashSet, hint::black_box, str, time::Duration};

use weir_sdk::{
    RandomState,
    prelude::*,
    store::{Algorithm, Limit},
};

/// The benchmark overwrites the digits in the built file to make versions of it.
static VERSION: [u8; 27] = *b"weir-keyauth-version-000001";
const DIGITS: usize = 6;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// Both hooks are called and do nothing.
    Noop,
    /// Key, bucket, response field.
    Full,
    /// Only tells which version this is.
    Version,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    mode: Mode,
    /// Tells the buckets of several uses apart.
    #[serde(default, rename = "use")]
    name: String,
    /// Tokens a second, and the size of a bucket.
    #[serde(default)]
    limit: u64,
    /// Keys that are let in.
    #[serde(default)]
    keys: HashSet<String>,
}

struct KeyAuth {
    mode: Mode,
    name: String,
    limits: [Limit; 1],
    keys: HashSet<Vec<u8>, RandomState>,
}

impl Plugin for KeyAuth {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        Ok(Self {
            mode: config.mode,
            name: config.name,
            limits: [Limit::new(Algorithm::TokenBucket, config.limit, Duration::from_secs(1))],
            keys: config.keys.into_iter().map(String::into_bytes).collect(),
        })
    }

    fn phases(&self) -> Phases {
        match self.mode {
            Mode::Noop => Phases { request: Phase::Head, response: Phase::Head, ..Phases::NONE },
            Mode::Full | Mode::Version => Phases::REQUEST,
        }
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        match self.mode {
            Mode::Noop => Ok(Action::Continue),
            Mode::Full => self.check(request),
            Mode::Version => tell_version(request),
        }
    }

    fn on_response(&self, _request: &Request, _response: &mut Response) -> Outcome {
        Ok(Action::Continue)
    }
}

impl KeyAuth {
    fn check(&self, request: &mut Request) -> Outcome {
        let Some(key) = request.header("x-api-key").filter(|key| self.keys.contains::<[u8]>(key)) else {
            return request.respond(401, &[], "");
        };
        let bucket = [self.name.as_bytes(), b"/", &key].concat();
        if !store::take(&bucket, 1, &self.limits)?.allowed {
            return request.respond(429, &[], "");
        }
        request.edit_response(&[Edit::set("x-plugin", "1")])?;
        Ok(Action::Continue)
    }
}

/// The mark is read at run time: what the compiler knows of it is not what the
/// file says.
fn tell_version(request: &mut Request) -> Outcome {
    let mark = black_box(&VERSION);
    let digits = str::from_utf8(&mark[mark.len() - DIGITS..])?;
    request.edit_response(&[Edit::set("x-config-version", digits)])?;
    Ok(Action::Continue)
}

weir_sdk::export!(KeyAuth);
