//! The fake's side of each interface in `wit/`: the same functions as the
//! generated bindings have.

use std::{cell::RefCell, rc::Rc};

use super::{
    Answer, Exchange, Gateway, Hook, State,
    head::{OwnedEdit, check, check_target, edit, join, lines, normalise},
};
use crate::{Edit, EditError};

const MOST_BODY: usize = 8 << 20;

thread_local! {
    static IN_HAND: RefCell<Option<InHand>> = const { RefCell::new(None) };
}

struct InHand {
    gateway: Gateway,
    exchange: Option<Exchange>,
}

/// Runs a call of the plugin with this gateway and exchange in hand, and gives
/// the exchange back.
pub(super) fn run<R>(gateway: &Gateway, exchange: Option<Exchange>, call: impl FnOnce() -> R) -> (R, Option<Exchange>) {
    struct PutDown;
    impl Drop for PutDown {
        fn drop(&mut self) {
            IN_HAND.take();
        }
    }

    IN_HAND.set(Some(InHand { gateway: gateway.clone(), exchange }));
    let _put_down = PutDown;
    let result = call();
    (result, IN_HAND.take().and_then(|in_hand| in_hand.exchange))
}

fn with_state<R>(f: impl FnOnce(&mut State) -> R) -> R {
    let gateway = IN_HAND.with_borrow(|in_hand| in_hand.as_ref().map(|in_hand| Rc::clone(&in_hand.gateway.0)));
    match gateway {
        Some(state) => f(&mut state.borrow_mut()),
        None => panic!("no gateway here: call the plugin through weir_sdk::testing"),
    }
}

fn with_exchange<R>(f: impl FnOnce(&mut Exchange) -> R) -> R {
    IN_HAND.with_borrow_mut(|in_hand| match in_hand.as_mut().and_then(|in_hand| in_hand.exchange.as_mut()) {
        Some(exchange) => f(exchange),
        None => panic!("no request in hand: the gateway traps here"),
    })
}

/// What is prepared is prepared once, not for each request.
fn outside_hooks() {
    if IN_HAND.with_borrow(|in_hand| in_hand.as_ref().is_some_and(|in_hand| in_hand.exchange.is_some())) {
        panic!("prepared in a hook: the gateway traps here");
    }
}

/// Edits of the request are for its own hook.
fn edit_request(f: impl FnOnce(&mut Exchange) -> Result<(), EditError>) -> Result<(), EditError> {
    with_exchange(|exchange| if exchange.hook == Hook::Request { f(exchange) } else { Err(EditError::Closed) })
}

fn with_response<R>(f: impl FnOnce(&mut Answer) -> R) -> R {
    with_exchange(|exchange| match &mut exchange.response {
        Some(response) if exchange.hook != Hook::Request => f(response),
        _ => panic!("no response in hand: the gateway traps here"),
    })
}

pub(crate) mod request {
    use std::net::IpAddr;

    use super::*;
    use crate::{Field, bindings::weir::plugin::types::IpAddress, field::is_token};

    pub(crate) fn method() -> String {
        with_exchange(|exchange| exchange.method.clone())
    }

    pub(crate) fn scheme() -> String {
        with_exchange(|exchange| exchange.scheme.clone())
    }

    pub(crate) fn authority() -> String {
        with_exchange(|exchange| exchange.authority.clone())
    }

    pub(crate) fn path() -> String {
        with_exchange(|exchange| normalise(&exchange.raw_path))
    }

    pub(crate) fn raw_path() -> String {
        with_exchange(|exchange| exchange.raw_path.clone())
    }

    pub(crate) fn query() -> Option<String> {
        with_exchange(|exchange| exchange.query.clone())
    }

    pub(crate) fn client_address() -> IpAddress {
        match with_exchange(|exchange| exchange.client_address.to_canonical()) {
            IpAddr::V4(address) => IpAddress::Ipv4(address.to_bits()),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                IpAddress::Ipv6(((bits >> 64) as u64, bits as u64))
            }
        }
    }

    pub(crate) fn route() -> String {
        with_exchange(|exchange| exchange.route.clone())
    }

    pub(crate) fn consumer() -> Option<String> {
        with_exchange(|exchange| exchange.consumer.clone())
    }

    pub(crate) fn header(name: &str) -> Option<Vec<u8>> {
        with_exchange(|exchange| join(&exchange.headers, name))
    }

    pub(crate) fn header_lines(names: &[&str]) -> Vec<u8> {
        with_exchange(|exchange| {
            let pseudo = [
                (":method", exchange.method.clone()),
                (":scheme", exchange.scheme.clone()),
                (":authority", exchange.authority.clone()),
                (":path", exchange.target()),
            ];
            lines(&pseudo, &exchange.headers, names)
        })
    }

    pub(crate) fn edit_headers(edits: &[Edit<'_>]) -> Result<(), EditError> {
        edit_request(|exchange| edit(&mut exchange.headers, edits))
    }

    pub(crate) fn edit_response_headers(edits: &[Edit<'_>]) -> Result<(), EditError> {
        edit_request(|exchange| {
            exchange.planned.extend(check(edits)?);
            Ok(())
        })
    }

    pub(crate) fn set_method(method: &str) -> Result<(), EditError> {
        edit_request(|exchange| {
            if !is_token(method) {
                return Err(EditError::InvalidName);
            }
            exchange.method = method.to_owned();
            Ok(())
        })
    }

    pub(crate) fn set_authority(authority: &str) -> Result<(), EditError> {
        edit_request(|exchange| {
            check_target(authority, b"/?#@")?;
            if authority.is_empty() {
                return Err(EditError::InvalidValue);
            }
            exchange.authority = authority.to_ascii_lowercase();
            Ok(())
        })
    }

    pub(crate) fn set_path(path: &str) -> Result<(), EditError> {
        edit_request(|exchange| {
            check_target(path, b"?#")?;
            if !path.starts_with('/') {
                return Err(EditError::InvalidValue);
            }
            exchange.raw_path = path.to_owned();
            Ok(())
        })
    }

    pub(crate) fn set_query(query: Option<&str>) -> Result<(), EditError> {
        edit_request(|exchange| {
            check_target(query.unwrap_or_default(), b"#")?;
            exchange.query = query.map(str::to_owned);
            Ok(())
        })
    }

    pub(crate) fn respond(status: u16, headers: &[Field<'_>], body: &[u8]) -> Result<(), EditError> {
        with_exchange(|exchange| {
            if exchange.hook == Hook::Finish {
                return Err(EditError::Closed);
            }
            if !(200..=599).contains(&status) {
                return Err(EditError::InvalidValue);
            }
            if body.len() > MOST_BODY {
                return Err(EditError::TooLong);
            }
            let mut answer = Answer { status, headers: Vec::new(), body: body.to_vec() };
            let fields: Vec<_> = headers.iter().cloned().map(Edit::Append).collect();
            edit(&mut answer.headers, &fields)?;
            exchange.prepared = Some(answer);
            Ok(())
        })
    }

    pub(crate) fn attribute(name: &str) -> Option<Vec<u8>> {
        with_exchange(|exchange| exchange.attributes.get(name).cloned())
    }

    pub(crate) fn set_attribute(name: &str, value: Option<&[u8]>) -> Result<(), EditError> {
        with_exchange(|exchange| {
            let Some(value) = value else {
                exchange.attributes.remove(name);
                return Ok(());
            };
            if exchange.hook == Hook::Finish {
                return Err(EditError::Closed);
            }
            if name.is_empty() || name.len() > 256 {
                return Err(EditError::InvalidName);
            }
            if value.len() > 8 << 10 {
                return Err(EditError::TooLong);
            }
            let others = exchange.attributes.iter().filter(|(other, _)| *other != name);
            let (count, bytes) = others.fold((1, name.len() + value.len()), |(count, bytes), (name, value)| {
                (count + 1, bytes + name.len() + value.len())
            });
            if count > 64 || bytes > 64 << 10 {
                return Err(EditError::TooMany);
            }
            exchange.attributes.insert(name.to_owned(), value.to_vec());
            Ok(())
        })
    }
}

pub(crate) mod response {
    use super::*;
    use crate::Maker;

    pub(crate) fn status() -> u16 {
        with_response(|response| response.status)
    }

    pub(crate) fn made_by() -> Maker {
        with_response(|_| ());
        with_exchange(|exchange| exchange.made_by)
    }

    pub(crate) fn header(name: &str) -> Option<Vec<u8>> {
        with_response(|response| join(&response.headers, name))
    }

    pub(crate) fn header_lines(names: &[&str]) -> Vec<u8> {
        with_response(|response| lines(&[(":status", response.status.to_string())], &response.headers, names))
    }

    pub(crate) fn set_status(status: u16) -> Result<(), EditError> {
        edit_response(|response| {
            if !(200..=599).contains(&status) {
                return Err(EditError::InvalidValue);
            }
            response.status = status;
            Ok(())
        })
    }

    pub(crate) fn edit_headers(edits: &[Edit<'_>]) -> Result<(), EditError> {
        edit_response(|response| edit(&mut response.headers, edits))
    }

    fn edit_response(f: impl FnOnce(&mut Answer) -> Result<(), EditError>) -> Result<(), EditError> {
        if with_exchange(|exchange| exchange.hook == Hook::Finish) {
            return Err(EditError::Closed);
        }
        with_response(f)
    }
}

pub(crate) mod finish {
    use super::*;
    use crate::Ending;

    fn with_finished<R>(f: impl FnOnce(&Exchange) -> R) -> R {
        with_exchange(|exchange| {
            if exchange.hook != Hook::Finish {
                panic!("the request has not ended: the gateway traps here");
            }
            f(exchange)
        })
    }

    pub(crate) fn outcome() -> Ending {
        with_finished(|exchange| exchange.ending)
    }

    pub(crate) fn sent() -> u64 {
        with_finished(|exchange| exchange.sent)
    }

    pub(crate) fn duration() -> u64 {
        with_finished(|exchange| u64::try_from(exchange.duration.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn upstream_duration() -> u64 {
        with_finished(|exchange| u64::try_from(exchange.upstream_duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

pub(crate) mod log {
    use super::*;
    use crate::log::Level;

    pub(crate) fn write(level: Level, message: &str) {
        // Pure logic that logs is tested without a gateway too.
        if IN_HAND.with_borrow(Option::is_none) {
            eprintln!("{level:?}: {message}");
            return;
        }
        with_state(|state| {
            if state.threshold.is_some_and(|threshold| level >= threshold) {
                state.log.push((level, message.to_owned()));
            }
        });
    }

    pub(crate) fn threshold() -> Option<Level> {
        if IN_HAND.with_borrow(Option::is_none) { Some(Level::Trace) } else { with_state(|state| state.threshold) }
    }
}

pub(crate) mod clock {
    use super::*;

    pub(crate) fn now() -> u64 {
        with_state(|state| state.now)
    }

    pub(crate) fn monotonic() -> u64 {
        with_state(|state| state.now.wrapping_mul(1_000_000))
    }
}

/// Not random at all, so that tests repeat; and without a gateway, so that hash
/// tables can be made anywhere.
pub(crate) mod random {
    use std::cell::Cell;

    pub(crate) fn bytes(len: u32) -> Vec<u8> {
        if len > 4096 {
            panic!("more than 4096 random bytes: the gateway traps here");
        }
        (0..len).map(|_| number() as u8).collect()
    }

    /// SplitMix64.
    pub(crate) fn number() -> u64 {
        thread_local! {
            static SEED: Cell<u64> = const { Cell::new(0) };
        }
        SEED.set(SEED.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = SEED.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub(crate) mod identity {
    use super::*;
    use crate::identity::KeyOutcome;

    pub(crate) fn authenticate_key(key: &[u8]) -> bool {
        let name = with_state(|state| {
            let holds_key = |keys: &[String]| keys.iter().any(|own| own.as_bytes() == key);
            state.consumers.iter().find(|consumer| holds_key(&consumer.keys)).map(|consumer| consumer.name.clone())
        });
        let is_known = name.is_some();
        with_exchange(|exchange| exchange.consumer = name.or(exchange.consumer.take()));
        is_known
    }

    pub(crate) fn authenticate_key_header(name: &str) -> KeyOutcome {
        match super::request::header(name) {
            None => KeyOutcome::Absent,
            Some(key) if authenticate_key(&key) => KeyOutcome::Known,
            Some(_) => KeyOutcome::Unknown,
        }
    }

    pub(crate) fn set_consumer(name: &str) -> bool {
        let is_known = with_state(|state| state.consumers.iter().any(|consumer| consumer.name == name));
        with_exchange(|exchange| {
            if is_known {
                exchange.consumer = Some(name.to_owned());
            }
        });
        is_known
    }

    pub(crate) fn groups() -> Vec<String> {
        let Some(name) = with_exchange(|exchange| exchange.consumer.clone()) else { return Vec::new() };
        with_state(|state| {
            let consumer = state.consumers.iter().find(|consumer| consumer.name == name);
            consumer.map(|consumer| consumer.groups.clone()).unwrap_or_default()
        })
    }
}

pub(crate) mod edits {
    use super::*;
    use crate::EditTemplate;

    pub(crate) fn prepare(edits: &[EditTemplate<'_>]) -> Result<u32, EditError> {
        outside_hooks();
        with_state(|state| state.prepared.add_edits(edits))
    }

    pub(crate) fn edit_request(id: u32, values: &[u8]) -> Result<(), EditError> {
        filled(id, values, super::request::edit_headers)
    }

    pub(crate) fn plan_response(id: u32, values: &[u8]) -> Result<(), EditError> {
        filled(id, values, super::request::edit_response_headers)
    }

    pub(crate) fn edit_response(id: u32, values: &[u8]) -> Result<(), EditError> {
        filled(id, values, super::response::edit_headers)
    }

    fn filled(
        id: u32,
        values: &[u8],
        edit: impl FnOnce(&[Edit<'_>]) -> Result<(), EditError>,
    ) -> Result<(), EditError> {
        let consumer = with_exchange(|exchange| exchange.consumer.clone());
        let edits = with_state(|state| state.prepared.fill(id, values, consumer.as_deref()))?;
        edit(&edits.iter().map(OwnedEdit::borrow).collect::<Vec<_>>())
    }
}

pub(crate) mod store {
    use super::*;
    use crate::{
        store::{Decision, KeyPart, Limit, StoreError},
        testing::store::Store,
    };

    pub(crate) fn prepare_limiter(keys: &[&[KeyPart<'_>]], limits: &[Limit]) -> Result<u32, StoreError> {
        outside_hooks();
        with_state(|state| state.prepared.add_limiter(keys, limits))
    }

    pub(crate) fn take_prepared(limiter: u32, cost: u64) -> Result<Decision, StoreError> {
        let exchange = with_exchange(|exchange| exchange.clone());
        let found = with_state(|state| state.prepared.limiter(limiter, &exchange));
        let (key, limits) = found.ok_or(StoreError::Invalid)?;
        take(&key, cost, &limits)
    }

    fn with_store<R>(f: impl FnOnce(&mut Store, u64) -> Result<R, StoreError>) -> Result<R, StoreError> {
        with_exchange(|_| ());
        with_state(|state| match state.store_error {
            Some(error) => Err(error),
            None => f(&mut state.store, state.now),
        })
    }

    pub(crate) fn take(key: &[u8], cost: u64, limits: &[Limit]) -> Result<Decision, StoreError> {
        with_store(|store, now| store.take(now, key, cost, limits))
    }

    pub(crate) fn get(key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        with_store(|store, now| Ok(store.get(now, key)))
    }

    pub(crate) fn set(key: &[u8], value: &[u8], ttl: u64) -> Result<(), StoreError> {
        with_store(|store, now| store.set(now, key, value, ttl))
    }

    pub(crate) fn set_new(key: &[u8], value: &[u8], ttl: u64) -> Result<bool, StoreError> {
        with_store(|store, now| store.set_new(now, key, value, ttl))
    }

    pub(crate) fn increment(key: &[u8], by: i64, ttl: u64) -> Result<i64, StoreError> {
        with_store(|store, now| store.increment(now, key, by, ttl))
    }

    pub(crate) fn delete(key: &[u8]) -> Result<(), StoreError> {
        with_store(|store, _| {
            store.delete(key);
            Ok(())
        })
    }
}
