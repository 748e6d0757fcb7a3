//! Methods, field names and what they are compared with.

use http::{HeaderName, HeaderValue, Method};

use super::quoted;
use crate::config::error::Fault;

/// A method, which is case-sensitive (RFC 9110 9.1).
pub(in crate::config) fn method(text: &str) -> Result<Method, Fault> {
    let no_method = Fault::new(format!("{} is no method", quoted(text)));
    let upper = text.to_ascii_uppercase();
    if text != upper {
        return Err(no_method.hint(format!("write {}", quoted(&upper))));
    }
    match Method::from_bytes(text.as_bytes()) {
        Ok(Method::CONNECT | Method::TRACE) => Err(Fault::new(format!("{text} is refused on every route"))),
        Ok(method) => Ok(method),
        Err(_) => Err(no_method),
    }
}

/// A header field's name, in lower case.
pub(in crate::config) fn field_name(text: &str) -> Result<HeaderName, Fault> {
    HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| Fault::new(format!("{} is no name of a header field", quoted(text))))
}

/// A value that a header field can have.
pub(in crate::config) fn field_value(text: &str) -> Result<String, Fault> {
    match HeaderValue::from_str(text).is_ok() && text.trim() == text {
        true => Ok(text.to_owned()),
        false => {
            Err(Fault::new("no header field can have this value").hint("visible ASCII, without white space around it"))
        }
    }
}
