//! Uses the standard library's way to the system, which is WASI's: built for
//! `wasm32-wasip2`, it tells what it was given.

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::json;
use weir_sdk::prelude::*;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wasi {
    /// Sleeps first, which takes no CPU time.
    sleep: Option<Interval>,
    /// Tells the value of this environment variable.
    env: Option<String>,
    /// Prints this to standard output and error.
    print: Option<String>,
    /// Tries to read this file.
    file: Option<String>,
}

impl Plugin for Wasi {
    type Config = Self;

    fn new(config: Self) -> Result<Self, Vec<Problem>> {
        Ok(config)
    }

    fn phases(&self) -> Phases {
        Phases::REQUEST
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        if let Some(time) = self.sleep {
            thread::sleep(time.0);
        }
        if let Some(text) = &self.print {
            println!("{text}");
            eprintln!("{text}");
        }
        let report = json!({
            "env": self.env.as_ref().and_then(|name| env::var(name).ok()),
            "all_env": env::vars().count(),
            "arguments": env::args().count(),
            "time": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            // Seeds of hash tables are from the system.
            "random": RandomState::new().hash_one(0).to_string(),
            "file": self.file.as_ref().map(|file| fs::read(file).is_ok()),
        });
        request.respond(200, &[Field::new("content-type", "application/json")], report.to_string())
    }
}

weir_sdk::export!(Wasi, name = "wasi");
