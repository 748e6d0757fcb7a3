//! Never comes back from one of its hooks, or only after a while.

use std::{hint, time::Duration};

use weir_sdk::prelude::*;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LoopForever {
    hook: Hook,
    /// Comes back after so much time.
    time: Option<Interval>,
    /// Comes back after so much work, which takes the same CPU time however busy
    /// the machine is.
    rounds: Option<u64>,
    /// Only for requests with this field.
    only_with: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Hook {
    Configure,
    Request,
    Response,
    Finish,
}

impl LoopForever {
    fn turn(&self) {
        let start = clock::monotonic();
        let time = self.time.map(|time| time.0);
        let mut left = self.rounds.unwrap_or(u64::MAX);
        while left > 0 && time.is_none_or(|time: Duration| clock::monotonic() - start < time) {
            left -= 1;
            // Hardly any host calls: nothing but the gateway's clock stops it.
            (0..100_000).for_each(|i| {
                hint::black_box(i);
            });
        }
    }

    fn concerns(&self, request: &Request) -> bool {
        self.only_with.as_ref().is_none_or(|name| request.header(name).is_some())
    }
}

impl Plugin for LoopForever {
    type Config = Self;

    fn new(config: Self) -> Result<Self, Vec<Problem>> {
        if config.hook == Hook::Configure {
            config.turn();
        }
        Ok(config)
    }

    fn phases(&self) -> Phases {
        match self.hook {
            Hook::Configure => Phases::NONE,
            Hook::Request => Phases::REQUEST,
            Hook::Response => Phases::RESPONSE,
            Hook::Finish => Phases { finish: true, ..Phases::NONE },
        }
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        if self.concerns(request) {
            self.turn();
        }
        Ok(Action::Continue)
    }

    fn on_response(&self, request: &Request, _: &mut Response) -> Outcome {
        if self.concerns(request) {
            self.turn();
        }
        Ok(Action::Continue)
    }

    fn on_finish(&self, request: &Request, _: &Response, _: &Finish) {
        if self.concerns(request) {
            self.turn();
        }
    }
}

weir_sdk::export!(LoopForever, name = "loop-forever");
