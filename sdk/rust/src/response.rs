//! The response in hand.

pub use crate::bindings::weir::plugin::response::Maker;
use crate::{
    Action, Edit, EditError, Field, Lines, Outcome, Prepared, PreparedEdits, Value, Values,
    host::{request, response as host},
};

/// The response in hand.
#[derive(Debug)]
pub struct Response(());

impl Response {
    pub(crate) fn in_hand() -> Self {
        Self(())
    }

    /// The status code (RFC 9110 section 15); 1xx are not seen here.
    pub fn status(&self) -> u16 {
        host::status()
    }

    /// Who made it.
    pub fn made_by(&self) -> Maker {
        host::made_by()
    }

    /// The value of a field, several lines joined by `, `. Ask for the lines of
    /// `set-cookie` instead, which must not be joined (RFC 9110 section 5.3).
    pub fn header(&self, name: &str) -> Option<Value> {
        host::header(name).map(Value)
    }

    /// The lines of these names as they are in the message, repeated ones
    /// apart; of all names, if the list is empty. `:status` may be asked for
    /// too.
    pub fn header_lines(&self, names: &[&str]) -> Lines {
        Lines(host::header_lines(names))
    }

    /// Sets the status code, 200 to 599.
    pub fn set_status(&mut self, status: u16) -> Result<(), EditError> {
        host::set_status(status)
    }

    /// Edits header fields, in order, all or nothing. One call for several edits
    /// costs less than several calls.
    pub fn edit(&mut self, edits: &[Edit<'_>]) -> Result<(), EditError> {
        host::edit_headers(edits)
    }

    /// Edits header fields as prepared: with these values, and one for each that
    /// the edits take.
    pub fn edit_prepared(&mut self, edits: &PreparedEdits, values: &Values) -> Result<(), EditError> {
        edits.edit_response(values)
    }

    /// Prepares another answer in place of this response, to be returned from
    /// the hook.
    pub fn replace(&mut self, status: u16, headers: &[Field<'_>], body: impl AsRef<[u8]>) -> Outcome {
        request::respond(status, headers, body.as_ref())?;
        Ok(Action::Respond(Prepared(())))
    }
}
