//! `request`: the request in hand.

use http::{HeaderMap, HeaderName};
use wasmtime::Result;

use super::types::{address, edit, line};
use crate::{
    exchange::known_name,
    plugin::{
        bindings::imports::{
            request::Host,
            types::{EditError as WitEditError, Field, FieldEdit, IpAddress},
        },
        store::InstanceState,
    },
};

type Edited = Result<Result<(), WitEditError>>;

impl Host for InstanceState {
    fn method(&mut self) -> Result<String> {
        Ok(self.exchange()?.request.method.as_str().into())
    }

    fn scheme(&mut self) -> Result<String> {
        Ok(self.exchange()?.request.scheme.into())
    }

    fn authority(&mut self) -> Result<String> {
        Ok(self.exchange()?.request.authority().into())
    }

    fn path(&mut self) -> Result<String> {
        Ok(self.exchange()?.request.path().into())
    }

    fn raw_path(&mut self) -> Result<String> {
        Ok(self.exchange()?.request.target.path().into())
    }

    fn query(&mut self) -> Result<Option<String>> {
        Ok(self.exchange()?.request.target.query().map(String::from))
    }

    fn client_address(&mut self) -> Result<IpAddress> {
        Ok(address(self.exchange()?.request.client))
    }

    fn route(&mut self) -> Result<String> {
        let exchange = self.exchange()?;
        Ok(exchange.snapshot.route_name(exchange.route).into())
    }

    fn consumer(&mut self) -> Result<Option<String>> {
        Ok(self.exchange()?.consumer.as_deref().map(String::from))
    }

    fn header(&mut self, name: String) -> Result<Option<Vec<u8>>> {
        let exchange = self.exchange()?;
        Ok(known_name(&name).and_then(|name| exchange.request.field(&name)))
    }

    fn header_lines(&mut self, names: Vec<String>) -> Result<Vec<u8>> {
        let request = &mut self.exchange()?.request;
        match &*names {
            [] => request.trailers.clear(),
            names => names.iter().filter_map(|name| known_name(name)).for_each(|name| request.look_at(&name)),
        }
        let request = &*request;
        let pseudo = |name: &str| match name {
            ":method" => Some(request.method.as_str()),
            ":scheme" => Some(request.scheme),
            ":authority" => Some(request.authority()),
            ":path" => Some(request.target.as_str()),
            _ => None,
        };
        Ok(lines(&request.headers, &names, pseudo))
    }

    fn edit_headers(&mut self, edits: Vec<FieldEdit>) -> Edited {
        Ok(self.exchange()?.edit_request(edits.iter().map(edit)).map_err(Into::into))
    }

    fn edit_response_headers(&mut self, edits: Vec<FieldEdit>) -> Edited {
        Ok(self.exchange()?.plan(edits.iter().map(edit)).map_err(Into::into))
    }

    fn set_method(&mut self, method: String) -> Edited {
        Ok(self.exchange()?.set_method(&method).map_err(Into::into))
    }

    fn set_authority(&mut self, authority: String) -> Edited {
        Ok(self.exchange()?.set_authority(&authority).map_err(Into::into))
    }

    fn set_path(&mut self, path: String) -> Edited {
        Ok(self.exchange()?.set_path(&path).map_err(Into::into))
    }

    fn set_query(&mut self, query: Option<String>) -> Edited {
        Ok(self.exchange()?.set_query(query.as_deref()).map_err(Into::into))
    }

    fn respond(&mut self, status: u16, headers: Vec<Field>, body: Vec<u8>) -> Edited {
        if body.len() as u64 > self.meter.limits().body {
            return Ok(Err(WitEditError::TooLong));
        }
        let answered = self.exchange()?.prepare(status, headers.iter().map(line), body.into());
        Ok(answered.map_err(Into::into))
    }

    fn attribute(&mut self, name: String) -> Result<Option<Vec<u8>>> {
        Ok(self.exchange()?.attribute(&name).map(<[u8]>::to_vec))
    }

    fn set_attribute(&mut self, name: String, value: Option<Vec<u8>>) -> Edited {
        Ok(self.exchange()?.set_attribute(&name, value.as_deref()).map_err(Into::into))
    }
}

/// Header lines as one block of `name: value` CR LF, pseudo-headers first.
pub fn lines<'a>(headers: &HeaderMap, names: &[String], pseudo: impl Fn(&str) -> Option<&'a str>) -> Vec<u8> {
    let mut block = Vec::with_capacity(512);
    let mut push = |name: &str, value: &[u8]| {
        block.extend_from_slice(name.as_bytes());
        block.extend_from_slice(b": ");
        block.extend_from_slice(value);
        block.extend_from_slice(b"\r\n");
    };
    for name in names {
        if let Some(value) = pseudo(name) {
            push(name, value.as_bytes());
        }
    }
    let wanted: Vec<HeaderName> = names.iter().filter_map(|name| known_name(name)).collect();
    for (name, value) in headers {
        if names.is_empty() || wanted.contains(name) {
            push(name.as_str(), value.as_bytes());
        }
    }
    block
}
