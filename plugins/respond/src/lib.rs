//! Answers every request itself, always the same.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::collections::BTreeMap;

use weir_sdk::prelude::*;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The status code; 200 if not given.
    #[serde(default = "ok")]
    #[schemars(range(min = 200, max = 599))]
    status: u16,
    /// Values of header fields, by name.
    #[serde(default)]
    headers: BTreeMap<String, OneOrMore>,
    /// The body, as text. Without a `content-type` field it is sent as plain
    /// text in UTF-8.
    #[serde(default)]
    body: String,
}

fn ok() -> u16 {
    200
}

struct Respond {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Plugin for Respond {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        let problems = config.check();
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut headers: Vec<(String, String)> = Vec::new();
        for (name, values) in &config.headers {
            headers.extend(values.iter().map(|value| (name.clone(), value.clone())));
        }
        let is_typed = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if !config.body.is_empty() && !is_typed {
            headers.push(("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()));
        }
        Ok(Self { status: config.status, headers, body: config.body })
    }

    fn phases(&self) -> Phases {
        Phases::REQUEST
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        let headers: Vec<Field> = self.headers.iter().map(|(name, value)| Field::new(name, value)).collect();
        request.respond(self.status, &headers, &self.body)
    }
}

impl Config {
    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(200..=599).contains(&self.status) {
            problems.push(Problem::at(&["status"], "must be 200 to 599"));
        }
        for (name, values) in &self.headers {
            let checks = [field::check_name(name)].into_iter();
            let checks = checks.chain(values.iter().map(|value| field::check_value(value.as_bytes())));
            let refused = checks.filter_map(Result::err);
            problems.extend(refused.map(|error| Problem::refused(&["headers", name], error)));
        }
        // RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5.
        if matches!(self.status, 204 | 205 | 304) && !self.body.is_empty() {
            let message = format!("{} has no body: take it out or choose another status", self.status);
            problems.push(Problem::at(&["body"], message));
        }
        problems
    }
}

weir_sdk::export!(Respond);

#[cfg(test)]
mod tests {
    use weir_sdk::testing::{Answer, Exchange, Gateway};

    use super::*;

    fn answer(config: &str) -> Answer {
        let mut exchange = Exchange::get("/");
        Gateway::new().configure::<Respond>(config).unwrap().on_request(&mut exchange).unwrap();
        exchange.response.unwrap()
    }

    fn problems(config: &str) -> Vec<String> {
        let problems = Gateway::new().configure::<Respond>(config).err().unwrap();
        problems.into_iter().map(|problem| problem.pointer).collect()
    }

    #[test]
    fn the_answer_is_as_configured() {
        let found =
            answer(r#"{"status": 503, "headers": {"Retry-After": "60", "x-a": ["1", "2"]}, "body": "later\n"}"#);
        assert_eq!((found.status, &found.body[..]), (503, &b"later\n"[..]));
        assert_eq!(found.header("retry-after"), Some("60"));
        assert_eq!(found.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(found.headers.iter().filter(|(name, _)| name == "x-a").count(), 2);
    }

    #[test]
    fn defaults_are_plain() {
        assert_eq!(answer("{}"), Answer::new(200));
        let json = answer(r#"{"headers": {"Content-Type": "application/json"}, "body": "{}"}"#);
        assert_eq!(json.header("content-type"), Some("application/json"));
    }

    #[test]
    fn wrong_configurations_are_refused_with_their_place() {
        assert_eq!(problems(r#"{"status": 101}"#), ["/status"]);
        assert_eq!(problems(r#"{"headers": {"host": "x", "a": ["ok", "\r"]}}"#), ["/headers/a", "/headers/host"]);
        assert_eq!(problems(r#"{"status": 204, "body": "x"}"#), ["/body"]);
    }
}
