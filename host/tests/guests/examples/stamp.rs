//! Says who it is, on request and response: `x-stamp` is from its configuration,
//! `x-stamp-version` from its build.

use weir_sdk::prelude::*;

/// Set when it is built, so that two builds differ.
const VERSION: &str = match option_env!("STAMP_VERSION") {
    Some(version) => version,
    None => "0",
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stamp {
    #[serde(default)]
    value: String,
    /// Stamps the response in a hook of its own, rather than planning it.
    #[serde(default)]
    response_hook: bool,
}

impl Stamp {
    fn edits(&self) -> [Edit<'_>; 2] {
        [Edit::set("x-stamp", &self.value), Edit::set("x-stamp-version", VERSION)]
    }
}

impl Plugin for Stamp {
    type Config = Self;

    fn new(config: Self) -> Result<Self, Vec<Problem>> {
        Ok(config)
    }

    fn phases(&self) -> Phases {
        Phases { response: if self.response_hook { Phase::Head } else { Phase::Off }, ..Phases::REQUEST }
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        request.edit(&self.edits())?;
        if !self.response_hook {
            request.edit_response(&self.edits())?;
        }
        Ok(Action::Continue)
    }

    fn on_response(&self, _: &Request, response: &mut Response) -> Outcome {
        response.edit(&self.edits())?;
        Ok(Action::Continue)
    }
}

weir_sdk::export!(Stamp, name = "stamp");
