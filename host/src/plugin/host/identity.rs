//! `identity`: consumers and their credentials.

use wasmtime::Result;

use crate::plugin::{
    bindings::imports::identity::{Host, KeyOutcome},
    store::InstanceState,
};

impl Host for InstanceState {
    fn authenticate_key(&mut self, key: Vec<u8>) -> Result<bool> {
        Ok(self.exchange()?.authenticate_key(&key))
    }

    fn authenticate_key_header(&mut self, name: String) -> Result<KeyOutcome> {
        Ok(self.exchange()?.authenticate_key_header(&name).into())
    }

    fn set_consumer(&mut self, name: String) -> Result<bool> {
        let exchange = self.exchange()?;
        let Some(consumer) = exchange.snapshot.identity.by_name(&name) else { return Ok(false) };
        let name = consumer.name.clone();
        exchange.set_consumer(name);
        Ok(true)
    }

    fn groups(&mut self) -> Result<Vec<String>> {
        let exchange = self.exchange()?;
        let consumer = exchange.consumer.as_deref().and_then(|name| exchange.snapshot.identity.by_name(name));
        Ok(consumer
            .map(|consumer| consumer.groups.iter().map(|group| String::from(&**group)).collect())
            .unwrap_or_default())
    }
}

impl From<Option<bool>> for KeyOutcome {
    fn from(is_known: Option<bool>) -> Self {
        match is_known {
            Some(true) => KeyOutcome::Known,
            Some(false) => KeyOutcome::Unknown,
            None => KeyOutcome::Absent,
        }
    }
}
