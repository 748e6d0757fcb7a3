//! The request in hand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    Action, Edit, EditError, Field, Lines, Outcome, Prepared, PreparedEdits, Value, Values,
    bindings::weir::plugin::types::IpAddress, host::request as host,
};

/// The request in hand.
///
/// Edits are seen by the hook's own later reads at once, and by everybody else
/// when the hook has ended well. In response hooks the request reads as it was
/// sent to the upstream.
#[derive(Debug)]
pub struct Request(());

impl Request {
    pub(crate) fn in_hand() -> Self {
        Self(())
    }

    /// The method (RFC 9110 section 9), case kept.
    pub fn method(&self) -> String {
        host::method()
    }

    /// `http` or `https`: how the client sent it, trusted proxies believed.
    pub fn scheme(&self) -> String {
        host::scheme()
    }

    /// Host and port that the client asked for: lower case, without the
    /// default port.
    pub fn authority(&self) -> String {
        host::authority()
    }

    /// The path that the router has matched, normalised (RFC 3986 section
    /// 6.2.2). Decide by this one.
    pub fn path(&self) -> String {
        host::path()
    }

    /// The path as it goes upstream: the client's bytes, dot segments resolved,
    /// unless edited.
    pub fn raw_path(&self) -> String {
        host::raw_path()
    }

    /// The query without `?`, as the client wrote it. `None`: no `?` at all.
    pub fn query(&self) -> Option<String> {
        host::query()
    }

    /// The client's address: the connection's, or what trusted proxies report.
    pub fn client_address(&self) -> IpAddr {
        match host::client_address() {
            IpAddress::Ipv4(bits) => Ipv4Addr::from_bits(bits).into(),
            IpAddress::Ipv6((upper, lower)) => Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower)).into(),
        }
    }

    /// The name of the route that has matched.
    pub fn route(&self) -> String {
        host::route()
    }

    /// The consumer that a plugin has recognised, by name.
    pub fn consumer(&self) -> Option<String> {
        host::consumer()
    }

    /// The value of a field, several lines joined by `, ` (`cookie` by `; `):
    /// what is sent twice matches nothing, rather than the first here and the
    /// second upstream. Case of the name does not matter.
    pub fn header(&self, name: &str) -> Option<Value> {
        host::header(name).map(Value)
    }

    /// The lines of these names as they are in the message, repeated ones
    /// apart; of all names, if the list is empty. `:method`, `:scheme`,
    /// `:authority` and `:path` (raw path and query) may be asked for too.
    pub fn header_lines(&self, names: &[&str]) -> Lines {
        Lines(host::header_lines(names))
    }

    /// Edits header fields, in order, all or nothing. One call for several edits
    /// costs less than several calls.
    pub fn edit(&mut self, edits: &[Edit<'_>]) -> Result<(), EditError> {
        host::edit_headers(edits)
    }

    /// Edits the fields of the response to come, whoever makes it, before
    /// `on_response`; also those of the answer that this plugin gives. Calls add
    /// up. A plugin that knows now what it will add needs no response hook.
    pub fn edit_response(&mut self, edits: &[Edit<'_>]) -> Result<(), EditError> {
        host::edit_response_headers(edits)
    }

    /// Edits header fields as prepared: with these values, and one for each that
    /// the edits take.
    pub fn edit_prepared(&mut self, edits: &PreparedEdits, values: &Values) -> Result<(), EditError> {
        edits.edit_request(values)
    }

    /// Edits the fields of the response to come, as [`Request::edit_response`]
    /// does, as prepared.
    pub fn edit_response_prepared(&mut self, edits: &PreparedEdits, values: &Values) -> Result<(), EditError> {
        edits.plan_response(values)
    }

    /// Sets the method.
    pub fn set_method(&mut self, method: &str) -> Result<(), EditError> {
        host::set_method(method)
    }

    /// Sets host and port as sent upstream.
    pub fn set_authority(&mut self, authority: &str) -> Result<(), EditError> {
        host::set_authority(authority)
    }

    /// Sets the path sent upstream, percent-encoded as it is to be sent. The
    /// route stays the one that was matched.
    pub fn set_path(&mut self, path: &str) -> Result<(), EditError> {
        host::set_path(path)
    }

    /// Sets the query sent upstream, percent-encoded; `None` takes the `?` away.
    pub fn set_query(&mut self, query: Option<&str>) -> Result<(), EditError> {
        host::set_query(query)
    }

    /// Prepares an answer, to be returned from the hook:
    /// `return request.respond(403, &[], "no\n")`. Date and framing are the
    /// gateway's.
    pub fn respond(&mut self, status: u16, headers: &[Field<'_>], body: impl AsRef<[u8]>) -> Outcome {
        host::respond(status, headers, body.as_ref())?;
        Ok(Action::Respond(Prepared(())))
    }

    /// What a plugin of the chain has noted down for this request.
    pub fn attribute(&self, name: &str) -> Option<Value> {
        host::attribute(name).map(Value)
    }

    /// Notes something down for the rest of this request: for this plugin's
    /// later hooks, for later plugins, for the access log. `None` takes it away.
    /// Any plugin of the chain sees it: no place for secrets. Choose names like
    /// `my-plugin.thing`.
    pub fn set_attribute(&self, name: &str, value: Option<&[u8]>) -> Result<(), EditError> {
        host::set_attribute(name, value)
    }
}
