//! Lets pass only who sends the key of a consumer, in a header field, a query
//! parameter or a cookie.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use weir_sdk::{identity::KeyOutcome, prelude::*};

mod cookie;

/// Where the consumer's name goes, for the upstream.
const CONSUMER: &str = "x-consumer";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The header field that holds the key. Without `query` and `cookie` it is
    /// `x-api-key`.
    header: Option<String>,
    /// The query parameter that holds the key.
    query: Option<String>,
    /// The cookie that holds the key.
    cookie: Option<String>,
    /// Whether the key goes upstream too.
    #[serde(default)]
    forward: bool,
}

/// Where the key is.
#[derive(Debug, PartialEq)]
enum Place {
    Header(String),
    Query(String),
    Cookie(String),
}

#[derive(Debug)]
struct KeyAuth {
    place: Place,
    forward: bool,
    /// Names the consumer to the upstream, and takes the key's own field away.
    pass_on: PreparedEdits,
}

impl Plugin for KeyAuth {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        let place = match (config.header, config.query, config.cookie) {
            (None, None, None) => Place::Header("x-api-key".to_owned()),
            (Some(name), None, None) => Place::Header(check_header(name)?),
            (None, Some(name), None) => Place::Query(check_query(name)?),
            (None, None, Some(name)) => Place::Cookie(check_cookie(name)?),
            (Some(_), Some(_), _) | (None, Some(_), Some(_)) => return Err(more_than_one("query").into()),
            (Some(_), None, Some(_)) => return Err(more_than_one("cookie").into()),
        };
        // Named in place of whom the client may have named.
        let consumer = EditTemplate::set(CONSUMER, ValueTemplate::Consumer);
        let pass_on = match &place {
            Place::Header(name) if !config.forward => PreparedEdits::new(&[EditTemplate::remove(name), consumer]),
            Place::Header(_) | Place::Query(_) | Place::Cookie(_) => PreparedEdits::new(&[consumer]),
        };
        let pass_on = pass_on.map_err(|error| Problem::refused(&["header"], error))?;
        Ok(Self { place, forward: config.forward, pass_on })
    }

    fn phases(&self) -> Phases {
        Phases::REQUEST.with_request_edits(&self.pass_on)
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        match self.authenticate(request) {
            KeyOutcome::Absent => refuse(request, "An API key is needed.\n"),
            KeyOutcome::Unknown => refuse(request, "This API key is not known.\n"),
            KeyOutcome::Known => {
                self.take_key(request)?;
                Ok(Action::Continue)
            }
        }
    }
}

impl KeyAuth {
    /// Whose key the request holds. One that is there twice is nobody's: the
    /// upstream might see the other.
    fn authenticate(&self, request: &Request) -> KeyOutcome {
        let key = match &self.place {
            Place::Header(name) => return identity::authenticate_key_header(name),
            Place::Query(name) => request.query().and_then(|query| {
                let key = only(query::values(&query, name))?;
                Some(key.into_owned())
            }),
            Place::Cookie(name) => request.header("cookie").and_then(|cookies| {
                let key = only(cookie::values(&cookies, name))?;
                Some(key.to_vec())
            }),
        };
        match key {
            None => KeyOutcome::Absent,
            Some(key) if identity::authenticate_key(&key) => KeyOutcome::Known,
            Some(_) => KeyOutcome::Unknown,
        }
    }

    /// Takes the key away, where it has no field of its own.
    fn take_key(&self, request: &mut Request) -> Result<(), EditError> {
        match &self.place {
            Place::Query(name) if !self.forward => {
                let rest = query::without(&request.query().unwrap_or_default(), name);
                request.set_query(Some(rest.as_str()).filter(|rest| !rest.is_empty()))
            }
            Place::Cookie(name) if !self.forward => {
                let cookies = request.header("cookie").map(Value::into_bytes).unwrap_or_default();
                match cookie::without(&cookies, name) {
                    rest if rest.is_empty() => request.edit(&[Edit::remove("cookie")]),
                    rest => request.edit(&[Edit::set("cookie", &rest)]),
                }
            }
            Place::Header(_) | Place::Query(_) | Place::Cookie(_) => Ok(()),
        }
    }
}

/// RFC 9110 section 15.5.2 wants a challenge on every 401. No scheme for API keys
/// is registered; `ApiKey` is what is in use.
fn refuse(request: &mut Request, why: &str) -> Outcome {
    let headers = [
        Field::new("www-authenticate", "ApiKey realm=\"weir\""),
        Field::new("content-type", "text/plain; charset=utf-8"),
    ];
    request.respond(401, &headers, why)
}

fn only<T>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

fn check_header(name: String) -> Result<String, Problem> {
    field::check_name(&name).map_err(|error| Problem::refused(&["header"], error))?;
    match name.to_ascii_lowercase() {
        name if name == CONSUMER => Err(Problem::at(&["header"], "names the consumer to the upstream: choose another")),
        name if name == "cookie" => Err(Problem::at(&["header"], "holds many things: use `cookie: <name>`")),
        name => Ok(name),
    }
}

fn check_query(name: String) -> Result<String, Problem> {
    if name.is_empty() {
        return Err(Problem::at(&["query"], "must not be empty: name the parameter, for example `api_key`"));
    }
    Ok(name)
}

/// RFC 6265 section 4.1.1.
fn check_cookie(name: String) -> Result<String, Problem> {
    if !field::is_token(&name) {
        return Err(Problem::at(
            &["cookie"],
            "is no cookie's name: letters, digits, `-` and `_`, for example `api_key`",
        ));
    }
    Ok(name)
}

fn more_than_one(second: &str) -> Problem {
    Problem::at(&[second], "a key is in one place: keep one of `header`, `query` and `cookie`")
}

weir_sdk::export!(KeyAuth);

#[cfg(test)]
mod tests;
