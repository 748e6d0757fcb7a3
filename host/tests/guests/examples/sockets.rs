//! Wants to talk to others by itself, for which it imports WASI's sockets where
//! it is built for `wasm32-wasip2`.

use std::net::TcpStream;

use weir_sdk::prelude::*;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sockets {
    address: String,
}

impl Plugin for Sockets {
    type Config = Self;

    fn new(config: Self) -> Result<Self, Vec<Problem>> {
        Ok(config)
    }

    fn phases(&self) -> Phases {
        Phases::REQUEST
    }

    fn on_request(&self, _: &mut Request) -> Outcome {
        TcpStream::connect(&self.address)?;
        Ok(Action::Continue)
    }
}

weir_sdk::export!(Sockets, name = "sockets");
