//! Lets pass only who sends the key of a consumer, in a header field, a query
//! parameter or a cookie.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use weir_sdk::prelude::*;

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
        Ok(Self { place, forward: config.forward })
    }

    fn phases(&self) -> Phases {
        Phases::REQUEST
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        let Some(key) = self.key(request) else {
            return refuse(request, "An API key is needed.\n");
        };
        let Some(consumer) = identity::authenticate_key(&key) else {
            return refuse(request, "This API key is not known.\n");
        };
        self.pass_on(request, &consumer)?;
        Ok(Action::Continue)
    }
}

impl KeyAuth {
    /// The key that the request holds. One that is there twice is none: the
    /// upstream might see the other.
    fn key(&self, request: &Request) -> Option<Vec<u8>> {
        match &self.place {
            // Two lines come joined, which is nobody's key.
            Place::Header(name) => request.header(name).map(Value::into_bytes),
            Place::Query(name) => {
                let query = request.query()?;
                only(query::values(&query, name)).map(|key| key.into_owned())
            }
            Place::Cookie(name) => {
                let cookies = request.header("cookie")?;
                only(cookie::values(&cookies, name)).map(<[u8]>::to_vec)
            }
        }
    }

    /// Names the consumer to the upstream, in place of whom the client may have
    /// named, and takes the key away.
    fn pass_on(&self, request: &mut Request, consumer: &str) -> Result<(), EditError> {
        let consumer = Edit::set(CONSUMER, consumer);
        match &self.place {
            _ if self.forward => request.edit(&[consumer]),
            Place::Header(name) => request.edit(&[Edit::remove(name), consumer]),
            Place::Query(name) => {
                let rest = query::without(&request.query().unwrap_or_default(), name);
                request.set_query(Some(rest.as_str()).filter(|rest| !rest.is_empty()))?;
                request.edit(&[consumer])
            }
            Place::Cookie(name) => {
                let cookies = request.header("cookie").map(Value::into_bytes).unwrap_or_default();
                match cookie::without(&cookies, name) {
                    rest if rest.is_empty() => request.edit(&[Edit::remove("cookie"), consumer]),
                    rest => request.edit(&[Edit::set("cookie", &rest), consumer]),
                }
            }
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
