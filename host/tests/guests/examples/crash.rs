//! Breaks down in one of its hooks, before or after it has edited something.

use weir_sdk::prelude::*;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Crash {
    how: How,
    hook: Hook,
    /// Sets `x-crash` first: on the request, or on the response. Nobody may see
    /// it.
    #[serde(default)]
    after_edits: bool,
    /// Only for requests with this field.
    only_with: Option<String>,
    /// Half of the times, by chance.
    #[serde(default)]
    sometimes: bool,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum How {
    /// An instruction that traps.
    Trap,
    /// A panic, with the message "crash as told".
    Panic,
    /// No crash: the hook returns an error, "failed as told".
    Fail,
    /// Endless recursion.
    Stack,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Hook {
    Configure,
    Request,
    Response,
    Finish,
}

impl Crash {
    #[allow(clippy::panic, reason = "what it is for")]
    fn crash(&self) -> Outcome {
        if self.sometimes && is_heads() {
            return Ok(Action::Continue);
        }
        match self.how {
            How::Trap => std::process::abort(),
            How::Panic => panic!("crash as told"),
            How::Fail => Err(Failure::new("failed as told")),
            How::Stack => Err(Failure::new(format!("depth {}", descend(0)))),
        }
    }

    fn concerns(&self, request: &Request) -> bool {
        self.only_with.as_ref().is_none_or(|name| request.header(name).is_some())
    }
}

/// Tosses a coin.
fn is_heads() -> bool {
    random::number().is_multiple_of(2)
}

/// Takes a frame for each step, so that no optimiser makes a loop of it.
#[allow(unconditional_recursion, reason = "what it is for")]
fn descend(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 32]);
    descend(depth + 1) + frame[depth as usize % 32]
}

impl Plugin for Crash {
    type Config = Self;

    fn new(config: Self) -> Result<Self, Vec<Problem>> {
        if config.hook == Hook::Configure {
            config.crash().map_err(|failure| Problem::at(&["how"], failure.to_string()))?;
        }
        Ok(config)
    }

    fn phases(&self) -> Phases {
        match self.hook {
            // What is never called is not configured anew.
            Hook::Configure | Hook::Request => Phases::REQUEST,
            Hook::Response => Phases::RESPONSE,
            Hook::Finish => Phases { finish: true, ..Phases::NONE },
        }
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        if self.hook == Hook::Configure || !self.concerns(request) {
            return Ok(Action::Continue);
        }
        if self.after_edits {
            request.edit(&[Edit::set("x-crash", "edited")])?;
            request.edit_response(&[Edit::set("x-crash", "planned")])?;
        }
        self.crash()
    }

    fn on_response(&self, request: &Request, response: &mut Response) -> Outcome {
        if !self.concerns(request) {
            return Ok(Action::Continue);
        }
        if self.after_edits {
            response.edit(&[Edit::set("x-crash", "edited")])?;
            response.set_status(299)?;
        }
        self.crash()
    }

    fn on_finish(&self, request: &Request, _: &Response, _: &Finish) {
        if self.concerns(request)
            && let Err(failure) = self.crash()
        {
            weir_sdk::error!("{failure}");
        }
    }
}

weir_sdk::export!(Crash, name = "crash");
