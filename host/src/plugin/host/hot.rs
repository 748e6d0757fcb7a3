//! The functions that most plugins call on most requests, once more, with
//! arguments borrowed from the guest's memory instead of copied out of it.
//!
//! They shadow the generated ones and must agree with them: both end in the
//! same methods of the exchange.

use wasmtime::{
    Result, StoreContextMut, bail,
    component::{ComponentType, Lift, Linker, WasmList, WasmStr},
};

use super::edits::filled;
use crate::{
    exchange::{Edit, EditError, Exchange, known_name},
    plugin::{
        bindings::imports::{
            identity::KeyOutcome,
            store::{Decision, Limit, StoreError},
            types::EditError as WitEditError,
        },
        prepared::Filled,
        store::InstanceState,
    },
    state,
};

type Store<'a> = StoreContextMut<'a, InstanceState>;
type Edited = (std::result::Result<(), WitEditError>,);
type Taken = (std::result::Result<Decision, StoreError>,);

#[derive(ComponentType, Lift)]
#[component(record)]
struct Field {
    name: WasmStr,
    value: WasmList<u8>,
}

#[derive(ComponentType, Lift)]
#[component(variant)]
enum FieldEdit {
    #[component(name = "set")]
    Set(Field),
    #[component(name = "append")]
    Append(Field),
    #[component(name = "remove")]
    Remove(WasmStr),
}

/// Puts the borrowing functions in the place of the generated ones.
pub fn shadow(linker: &mut Linker<InstanceState>) -> Result<()> {
    linker.allow_shadowing(true);
    let mut request = linker.instance("weir:plugin/request@0.1.0")?;
    request.func_wrap("header", header)?;
    request.func_wrap("consumer", |mut store: Store, (): ()| {
        with_exchange(&mut store, |_, exchange| Ok((exchange.consumer.clone(),)))
    })?;
    request.func_wrap("edit-headers", |mut store: Store, (edits,): (Vec<FieldEdit>,)| {
        edit(&mut store, &edits, |exchange, edits| exchange.edit_request(edits))
    })?;
    request.func_wrap("edit-response-headers", |mut store: Store, (edits,): (Vec<FieldEdit>,)| {
        edit(&mut store, &edits, |exchange, edits| exchange.plan(edits))
    })?;
    let mut response = linker.instance("weir:plugin/response@0.1.0")?;
    response.func_wrap("edit-headers", |mut store: Store, (edits,): (Vec<FieldEdit>,)| {
        edit(&mut store, &edits, |exchange, edits| exchange.edit_response(edits))
    })?;
    let mut edits = linker.instance("weir:plugin/edits@0.1.0")?;
    edits.func_wrap("edit-request", |mut store: Store, (id, values): (u32, WasmList<u8>)| {
        edit_prepared(&mut store, id, values, |exchange, edits| exchange.edit_request(edits))
    })?;
    edits.func_wrap("plan-response", |mut store: Store, (id, values): (u32, WasmList<u8>)| {
        edit_prepared(&mut store, id, values, |exchange, edits| exchange.plan(edits))
    })?;
    edits.func_wrap("edit-response", |mut store: Store, (id, values): (u32, WasmList<u8>)| {
        edit_prepared(&mut store, id, values, |exchange, edits| exchange.edit_response(edits))
    })?;
    let mut identity = linker.instance("weir:plugin/identity@0.1.0")?;
    identity.func_wrap("authenticate-key", authenticate_key)?;
    identity.func_wrap("authenticate-key-header", authenticate_key_header)?;
    linker.instance("weir:plugin/store@0.1.0")?.func_wrap("take", take)?;
    linker.allow_shadowing(false);
    Ok(())
}

fn header(mut store: Store, (name,): (WasmStr,)) -> Result<(Option<Vec<u8>>,)> {
    with_exchange(&mut store, |store, exchange| {
        let name = known_name(&name.to_str(store)?);
        Ok((name.and_then(|name| exchange.request.field(&name)),))
    })
}

fn authenticate_key(mut store: Store, (key,): (WasmList<u8>,)) -> Result<(bool,)> {
    with_exchange(&mut store, |store, exchange| Ok((exchange.authenticate_key(key.as_le_slice(store)),)))
}

fn authenticate_key_header(mut store: Store, (name,): (WasmStr,)) -> Result<(KeyOutcome,)> {
    with_exchange(&mut store, |store, exchange| Ok((exchange.authenticate_key_header(&name.to_str(store)?).into(),)))
}

fn take(mut store: Store, (key, cost, limits): (WasmList<u8>, u64, Vec<Limit>)) -> Result<Taken> {
    const NONE: state::Limit = state::Limit { algorithm: state::Algorithm::FixedWindow, quota: 0, window: 0, burst: 0 };
    let mut converted = [NONE; state::MAX_LIMITS];
    if limits.len() > converted.len() {
        return Ok((Err(state::StoreError::Invalid.into()),));
    }
    for (to, from) in converted.iter_mut().zip(&limits) {
        *to = (*from).into();
    }
    with_exchange(&mut store, |store, _| {
        let module = &store.data().module;
        let (now, key) = (module.clock.now_ms(), key.as_le_slice(store));
        let taken = module.space.take(now, key, cost, &converted[..limits.len()]);
        Ok((taken.map(Into::into).map_err(Into::into),))
    })
}

fn edit(
    store: &mut Store,
    edits: &[FieldEdit],
    apply: impl FnOnce(&mut Exchange, &mut dyn Iterator<Item = Checked>) -> Checked<()>,
) -> Result<Edited> {
    with_exchange(store, |store, exchange| {
        let mut broken = None;
        let mut edits = edits.iter().map(|edit| {
            checked(store, edit).unwrap_or_else(|error| {
                broken = Some(error);
                Err(EditError::InvalidName)
            })
        });
        let outcome = apply(exchange, &mut edits);
        match broken {
            Some(error) => Err(error),
            None => Ok((outcome.map_err(Into::into),)),
        }
    })
}

fn edit_prepared(
    store: &mut Store,
    id: u32,
    values: WasmList<u8>,
    apply: impl FnOnce(&mut Exchange, Filled) -> Checked<()>,
) -> Result<Edited> {
    with_exchange(store, |store, exchange| {
        Ok((filled(&store.data().prepared, exchange, id, values.as_le_slice(store), apply)?,))
    })
}

type Checked<T = Edit> = std::result::Result<T, EditError>;

/// The outer error is a string that is no UTF-8: a breach of the contract.
fn checked(store: &Store, edit: &FieldEdit) -> Result<Checked> {
    Ok(match edit {
        FieldEdit::Set(field) => Edit::set(&field.name.to_str(store)?, field.value.as_le_slice(store)),
        FieldEdit::Append(field) => Edit::append(&field.name.to_str(store)?, field.value.as_le_slice(store)),
        FieldEdit::Remove(name) => Edit::remove(&name.to_str(store)?),
    })
}

/// Takes the exchange out of the store while guest memory is borrowed.
fn with_exchange<T>(store: &mut Store, f: impl FnOnce(&Store, &mut Exchange) -> Result<T>) -> Result<T> {
    let Some(mut exchange) = store.data_mut().exchange.take() else {
        bail!("no request in hand: this function works in hooks only");
    };
    let outcome = f(store, &mut exchange);
    store.data_mut().exchange = Some(exchange);
    outcome
}
