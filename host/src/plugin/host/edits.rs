//! `edits`: edits of header fields that were prepared. The hooks' three are in
//! `hot.rs` again.

use wasmtime::{Result, bail};

use crate::{
    exchange::{EditError, Exchange},
    plugin::{
        bindings::imports::{
            edits::{EditTemplate, Host, ValueTemplate},
            types::EditError as WitEditError,
        },
        prepared::{Filled, Prepared, Template, Value},
        store::InstanceState,
    },
};

type Edited = Result<Result<(), WitEditError>>;

impl Host for InstanceState {
    fn prepare(&mut self, edits: Vec<EditTemplate>) -> Result<Result<u32, WitEditError>> {
        self.outside_hooks()?;
        let caps = self.module.head;
        Ok(self.prepared.add_edits(edits.iter().map(template), caps).map_err(Into::into))
    }

    fn edit_request(&mut self, id: u32, values: Vec<u8>) -> Edited {
        let (prepared, exchange) = self.prepared_and_exchange()?;
        filled(prepared, exchange, id, &values, |exchange, edits| exchange.edit_request(edits))
    }

    fn plan_response(&mut self, id: u32, values: Vec<u8>) -> Edited {
        let (prepared, exchange) = self.prepared_and_exchange()?;
        filled(prepared, exchange, id, &values, |exchange, edits| exchange.plan(edits))
    }

    fn edit_response(&mut self, id: u32, values: Vec<u8>) -> Edited {
        let (prepared, exchange) = self.prepared_and_exchange()?;
        filled(prepared, exchange, id, &values, |exchange, edits| exchange.edit_response(edits))
    }
}

impl InstanceState {
    /// What is prepared is prepared once, not for each request.
    pub(super) fn outside_hooks(&self) -> Result<()> {
        if self.exchange.is_some() {
            bail!("nothing can be prepared in a hook: do it in `configure`");
        }
        Ok(())
    }

    pub(super) fn prepared_and_exchange(&mut self) -> Result<(&Prepared, &mut Exchange)> {
        match self.exchange.as_deref_mut() {
            Some(exchange) => Ok((&self.prepared, exchange)),
            None => bail!("no request in hand: this function works in hooks only"),
        }
    }
}

/// Fills prepared edits with values and does them.
pub fn filled(
    prepared: &Prepared,
    exchange: &mut Exchange,
    id: u32,
    values: &[u8],
    edit: impl FnOnce(&mut Exchange, Filled) -> Result<(), EditError>,
) -> Edited {
    let Some(edits) = prepared.edits(id) else { bail!("no edits are prepared under {id}") };
    // Edits don't change it, but the exchange is theirs.
    let consumer = exchange.consumer.clone();
    let done = match edits.fill(values, consumer.as_deref()) {
        Ok(edits) => edit(exchange, edits),
        Err(error) => Err(error),
    };
    Ok(done.map_err(Into::into))
}

fn template(edit: &EditTemplate) -> Result<Template, EditError> {
    let value = |value: &ValueTemplate| match value {
        ValueTemplate::Fixed(value) => Value::fixed(value),
        ValueTemplate::Given => Ok(Value::Given),
        ValueTemplate::Consumer => Ok(Value::Consumer),
    };
    match edit {
        EditTemplate::Set(field) => Template::set(&field.name, value(&field.value)?),
        EditTemplate::Append(field) => Template::append(&field.name, value(&field.value)?),
        EditTemplate::Remove(name) => Template::remove(name),
    }
}
