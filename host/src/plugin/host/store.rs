//! `store`: limits, counters and values shared by all instances.

use wasmtime::{Result, bail};

use crate::{
    plugin::{
        bindings::imports::store::{Algorithm, Decision, Host, KeyPart, Limit, StoreError},
        prepared::Part,
        store::InstanceState,
    },
    state,
};

type Stored<T> = Result<Result<T, StoreError>>;

impl Host for InstanceState {
    fn take(&mut self, key: Vec<u8>, cost: u64, limits: Vec<Limit>) -> Stored<Decision> {
        let limits: Vec<state::Limit> = limits.into_iter().map(Into::into).collect();
        self.take_units(&key, cost, &limits)
    }

    fn prepare_limiter(&mut self, keys: Vec<Vec<KeyPart>>, limits: Vec<Limit>) -> Stored<u32> {
        self.outside_hooks()?;
        let key = |parts: &Vec<KeyPart>| parts.iter().map(part).collect();
        let Some(keys) = keys.iter().map(key).collect() else { return Ok(Err(StoreError::Invalid)) };
        let limits = limits.into_iter().map(Into::into).collect();
        Ok(self.prepared.add_limiter(keys, limits).map_err(Into::into))
    }

    fn take_prepared(&mut self, limiter: u32, cost: u64) -> Stored<Decision> {
        let now = self.store_time()?;
        let Self { exchange: Some(exchange), prepared, key, module, .. } = self else {
            return Ok(Err(StoreError::Other));
        };
        let Some(limiter) = prepared.limiter(limiter) else { bail!("no limiter is prepared under {limiter}") };
        let taken = match limiter.key(exchange, key) {
            true => module.space.take(now, key, cost, &limiter.limits),
            false => Err(state::StoreError::Invalid),
        };
        Ok(taken.map(Into::into).map_err(Into::into))
    }

    fn get(&mut self, key: Vec<u8>) -> Stored<Option<Vec<u8>>> {
        let now = self.store_time()?;
        Ok(Ok(self.module.space.get(now, &key).map(|value| value.to_vec())))
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>, ttl: u64) -> Stored<()> {
        let now = self.store_time()?;
        Ok(self.module.space.set(now, &key, &value, ttl).map_err(Into::into))
    }

    fn set_new(&mut self, key: Vec<u8>, value: Vec<u8>, ttl: u64) -> Stored<bool> {
        let now = self.store_time()?;
        Ok(self.module.space.set_new(now, &key, &value, ttl).map_err(Into::into))
    }

    fn increment(&mut self, key: Vec<u8>, by: i64, ttl: u64) -> Stored<i64> {
        let now = self.store_time()?;
        Ok(self.module.space.increment(now, &key, by, ttl).map_err(Into::into))
    }

    fn delete(&mut self, key: Vec<u8>) -> Stored<()> {
        self.exchange()?;
        self.module.space.delete(&key);
        Ok(Ok(()))
    }
}

impl InstanceState {
    /// The time for the store; a trap outside hooks.
    fn store_time(&mut self) -> Result<u64> {
        self.exchange()?;
        Ok(self.module.clock.now_ms())
    }

    pub fn take_units(&mut self, key: &[u8], cost: u64, limits: &[state::Limit]) -> Stored<Decision> {
        let now = self.store_time()?;
        Ok(self.module.space.take(now, key, cost, limits).map(Into::into).map_err(Into::into))
    }
}

fn part(part: &KeyPart) -> Option<Part> {
    match part {
        KeyPart::Fixed(bytes) => Some(Part::Fixed(bytes.as_slice().into())),
        KeyPart::Route => Some(Part::Route),
        KeyPart::Consumer => Some(Part::Consumer),
        KeyPart::ClientNetwork => Some(Part::ClientNetwork),
        KeyPart::Header(name) => Part::header(name),
    }
}

impl From<Limit> for state::Limit {
    fn from(limit: Limit) -> Self {
        let algorithm = match limit.algorithm {
            Algorithm::FixedWindow => state::Algorithm::FixedWindow,
            Algorithm::SlidingWindow => state::Algorithm::SlidingWindow,
            Algorithm::TokenBucket => state::Algorithm::TokenBucket,
        };
        state::Limit { algorithm, quota: limit.quota, window: limit.window, burst: limit.burst }
    }
}

impl From<state::Decision> for Decision {
    fn from(decision: state::Decision) -> Self {
        let state::Decision { allowed, tightest, remaining, reset, retry_after } = decision;
        Decision { allowed, tightest, remaining, reset, retry_after }
    }
}

impl From<state::StoreError> for StoreError {
    fn from(error: state::StoreError) -> Self {
        match error {
            state::StoreError::TooLong => StoreError::TooLong,
            state::StoreError::Full => StoreError::Full,
            state::StoreError::Invalid => StoreError::Invalid,
        }
    }
}
