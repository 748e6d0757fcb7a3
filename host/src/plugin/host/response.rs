//! `response`: the response in hand.

use wasmtime::{Result, bail};

use super::{request::lines, types::edit};
use crate::{
    exchange::{MadeBy, ResponseHead, Stage, joined, known_name},
    plugin::{
        bindings::imports::{
            response::{Host, Maker},
            types::{EditError as WitEditError, FieldEdit},
        },
        store::InstanceState,
    },
};

impl InstanceState {
    fn response(&mut self) -> Result<&mut ResponseHead> {
        let exchange = self.exchange()?;
        match (exchange.stage, &mut exchange.response) {
            (Stage::Response | Stage::Finish, Some(response)) => Ok(response),
            _ => bail!("no response in hand yet"),
        }
    }
}

impl Host for InstanceState {
    fn status(&mut self) -> Result<u16> {
        Ok(self.response()?.status.as_u16())
    }

    fn made_by(&mut self) -> Result<Maker> {
        Ok(match self.response()?.made_by {
            MadeBy::Upstream => Maker::Upstream,
            MadeBy::Plugin(_) => Maker::Plugin,
            MadeBy::Gateway => Maker::Gateway,
        })
    }

    fn header(&mut self, name: String) -> Result<Option<Vec<u8>>> {
        let response = self.response()?;
        Ok(known_name(&name).and_then(|name| Some(joined(&response.headers, &name)?.into_owned())))
    }

    fn header_lines(&mut self, names: Vec<String>) -> Result<Vec<u8>> {
        let response = self.response()?;
        let status = response.status;
        let pseudo = |name: &str| (name == ":status").then(|| status.as_str());
        Ok(lines(&response.headers, &names, pseudo))
    }

    fn set_status(&mut self, status: u16) -> Result<Result<(), WitEditError>> {
        Ok(self.exchange()?.set_status(status).map_err(Into::into))
    }

    fn edit_headers(&mut self, edits: Vec<FieldEdit>) -> Result<Result<(), WitEditError>> {
        Ok(self.exchange()?.edit_response(edits.iter().map(edit)).map_err(Into::into))
    }
}
