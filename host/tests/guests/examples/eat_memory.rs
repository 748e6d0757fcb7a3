//! Takes memory until there is none left, and keeps it.

use std::cell::RefCell;

use weir_sdk::prelude::*;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Bytes taken for each request; without it all there is.
    bytes: Option<usize>,
    /// Only for requests with this field.
    only_with: Option<String>,
}

struct EatMemory {
    config: Config,
    eaten: RefCell<Vec<Vec<u8>>>,
}

impl Plugin for EatMemory {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        Ok(Self { config, eaten: RefCell::default() })
    }

    fn phases(&self) -> Phases {
        Phases::REQUEST
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        if self.config.only_with.as_ref().is_some_and(|name| request.header(name).is_none()) {
            return Ok(Action::Continue);
        }
        let mut eaten = self.eaten.borrow_mut();
        match self.config.bytes {
            Some(bytes) => eaten.push(vec![1; bytes]),
            None => loop {
                eaten.push(vec![1; 1 << 20]);
            },
        }
        Ok(Action::Continue)
    }
}

weir_sdk::export!(EatMemory, name = "eat-memory");
