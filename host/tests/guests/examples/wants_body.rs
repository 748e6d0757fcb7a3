//! Wants the body of the request.

use weir_sdk::{Buffering, prelude::*};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WantsBody {
    Streamed,
    Buffered,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    phase: WantsBody,
}

impl Plugin for WantsBody {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        Ok(config.phase)
    }

    fn phases(&self) -> Phases {
        let request = match self {
            Self::Streamed => Phase::Streamed,
            Self::Buffered => {
                Phase::Buffered(Buffering { max_bytes: 1 << 20, media_types: Vec::new(), refuse_longer: true })
            }
        };
        Phases { request, ..Phases::NONE }
    }

    fn on_request(&self, _: &mut Request) -> Outcome {
        Ok(Action::Continue)
    }
}

weir_sdk::export!(WantsBody, name = "wants-body");
