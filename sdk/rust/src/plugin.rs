//! What an author implements, and the types that it is made of.

use std::{borrow::Cow, error::Error, fmt};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

pub use crate::bindings::exports::weir::plugin::hooks::{Buffering, Phase, Phases, Problem};
use crate::{EditError, Finish, PreparedEdits, Request, Response, store::StoreError};

/// A plugin: one value for each configuration.
///
/// The hooks take `&self`. A plugin that keeps state of its own in it has one
/// such state in every instance and loses it with the instance: counters and
/// the like belong into [`crate::store`].
pub trait Plugin: Sized + 'static {
    /// What `weir.yaml` may say about this plugin. Its JSON Schema is checked by
    /// the gateway first; doc comments become descriptions there. Derive with
    /// `#[serde(deny_unknown_fields)]`, so that a misspelt key is an error.
    type Config: DeserializeOwned + JsonSchema;

    /// Checks a configuration and makes ready what the hooks need, so that they
    /// need not do it for each request. Reports all problems at once. Must give
    /// the same result for the same configuration every time.
    fn new(config: Self::Config) -> Result<Self, Vec<Problem>>;

    /// The hooks that this configuration needs. One that is off is never called
    /// and costs nothing.
    fn phases(&self) -> Phases;

    /// Called for each request, before it goes upstream.
    ///
    /// `Err` means that the plugin could not do its work: the message is
    /// logged, nothing that the hook has edited is kept, and `on_error` of the
    /// chain entry decides what becomes of the request.
    fn on_request(&self, _request: &mut Request) -> Outcome {
        Err(Failure::new("phases() asks for on_request, which is not written"))
    }

    /// Called for each response on its way to the client, also for answers that
    /// a later plugin or the gateway has made ([`Response::made_by`]).
    fn on_response(&self, _request: &Request, _response: &mut Response) -> Outcome {
        Err(Failure::new("phases() asks for on_response, which is not written"))
    }

    /// Called once when all is over, however it ended. Nothing can be changed any
    /// more. May run in another instance than the hooks before.
    fn on_finish(&self, _request: &Request, _response: &Response, _finish: &Finish) {
        crate::error!("phases() asks for on_finish, which is not written");
    }
}

/// How a hook ends; see [`Plugin::on_request`] for `Err`.
pub type Outcome = Result<Action, Failure>;

/// What becomes of the request, or of the response.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes on its way.
    Continue,
    /// The client gets the answer that [`Request::respond`] or
    /// [`Response::replace`] has prepared.
    Respond(Prepared),
}

/// Shows that an answer has been prepared: only the functions that do so make
/// one.
#[derive(Debug, PartialEq, Eq)]
pub struct Prepared(pub(crate) ());

/// Why a hook could not do its work. Any error turns into one by `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(Cow<'static, str>);

impl Failure {
    /// A failure with this message, which goes to the gateway's log. Never a
    /// secret.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let any: &(dyn Error + 'static) = &error;
        // These display as a mere name.
        let explained = match (any.downcast_ref::<EditError>(), any.downcast_ref::<StoreError>()) {
            (Some(error), _) => format!("edit refused: {}", one_line(error.message())),
            (_, Some(error)) => format!("store: {}", one_line(error.message())),
            _ => error.to_string(),
        };
        Self(explained.into())
    }
}

/// Undoes the line breaks of a doc comment.
fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Phases {
    /// No hook at all; for struct update syntax.
    pub const NONE: Self =
        Self { request: Phase::Off, response: Phase::Off, finish: false, request_edits: None, response_edits: None };
    /// [`Plugin::on_request`] only.
    pub const REQUEST: Self = Self { request: Phase::Head, ..Self::NONE };
    /// [`Plugin::on_response`] only.
    pub const RESPONSE: Self = Self { response: Phase::Head, ..Self::NONE };

    /// With these edits of every request that passes: done when
    /// [`Plugin::on_request`] has let it go on, or without a call. They can't take
    /// values of the hook's.
    #[must_use]
    pub fn with_request_edits(self, edits: &PreparedEdits) -> Self {
        Self { request_edits: Some(edits.id()), ..self }
    }

    /// With these edits of every response that passes, before what hooks do to it.
    #[must_use]
    pub fn with_response_edits(self, edits: &PreparedEdits) -> Self {
        Self { response_edits: Some(edits.id()), ..self }
    }
}

impl Problem {
    /// A problem with the value at this path into the configuration: keys and
    /// places in lists. An empty path stands for the whole.
    ///
    /// ```
    /// # use weir_sdk::Problem;
    /// let problem = Problem::at(&["limits", "0", "window"], "must be more than 0");
    /// assert_eq!(problem.pointer, "/limits/0/window");
    /// ```
    pub fn at(path: &[&str], message: impl Into<String>) -> Self {
        let mut pointer = String::new();
        for part in path {
            push_token(&mut pointer, part);
        }
        Self { pointer, message: message.into() }
    }

    /// A problem with a name or value that the gateway would refuse in an edit;
    /// for what [`crate::field::check_name`] and its like find.
    pub fn refused(path: &[&str], error: EditError) -> Self {
        let message = match error {
            EditError::InvalidName => "is no field name: letters, digits and `-`, for example `x-tenant`",
            EditError::InvalidValue => "must be one line without control characters",
            EditError::Forbidden => "belongs to the gateway, which frames messages itself: choose another field",
            EditError::TooMany => "has more fields, or more bytes of them, than the gateway allows in a head",
            _ => "would be refused by the gateway",
        };
        Self::at(path, message)
    }
}

/// So that a single problem is returned by `?` too.
impl From<Problem> for Vec<Problem> {
    fn from(problem: Problem) -> Self {
        vec![problem]
    }
}

/// Adds a reference token to a JSON Pointer (RFC 6901 section 3).
pub(crate) fn push_token(pointer: &mut String, token: &str) {
    pointer.push('/');
    for c in token.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_escaped() {
        assert_eq!(Problem::at(&["headers", "set", "a/b~c"], "").pointer, "/headers/set/a~1b~0c");
        assert_eq!(Problem::at(&[], "").pointer, "");
    }

    #[test]
    fn errors_become_failures() {
        fn hook() -> Outcome {
            Err(crate::EditError::Forbidden)?;
            Ok(Action::Continue)
        }
        assert!(hook().unwrap_err().to_string().starts_with("edit refused: Framing and connection belong"));
    }
}
