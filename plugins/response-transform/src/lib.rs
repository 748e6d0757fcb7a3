//! Changes header fields and status of responses on their way to the client.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use weir_sdk::prelude::*;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Header fields to rename, remove, set and append, in this order.
    headers: HeaderEdits,
    /// The status that every response gets.
    #[schemars(range(min = 200, max = 599))]
    status: Option<u16>,
}

struct ResponseTransform {
    headers: HeaderEdits,
    /// The header edits, where they are the same for every response.
    prepared: Option<PreparedEdits>,
    status: Option<u16>,
}

impl Plugin for ResponseTransform {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        let mut problems = config.headers.check(&["headers"]);
        if config.status.is_some_and(|status| !(200..=599).contains(&status)) {
            problems.push(Problem::at(&["status"], "must be 200 to 599"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let prepared = config.headers.prepare().map_err(|error| Problem::refused(&["headers"], error))?;
        Ok(Self { headers: config.headers, prepared, status: config.status })
    }

    fn phases(&self) -> Phases {
        // Without a call, as far as that goes.
        let phases = if self.headers.need_message() || self.status.is_some() { Phases::RESPONSE } else { Phases::NONE };
        match &self.prepared {
            Some(edits) => phases.with_response_edits(edits),
            None => phases,
        }
    }

    fn on_response(&self, _: &Request, response: &mut Response) -> Outcome {
        if self.headers.need_message() {
            self.headers.edit_response(response)?;
        }
        if let Some(status) = self.status {
            response.set_status(status)?;
        }
        Ok(Action::Continue)
    }
}

weir_sdk::export!(ResponseTransform);

#[cfg(test)]
mod tests {
    use weir_sdk::testing::{Answer, Exchange, Gateway};

    use super::*;

    fn transformed(config: &str, answer: Answer) -> Answer {
        let plugin = Gateway::new().configure::<ResponseTransform>(config).unwrap();
        let mut exchange = Exchange::get("/");
        plugin.on_request(&mut exchange).unwrap();
        exchange.response = Some(answer);
        plugin.on_response(&mut exchange).unwrap();
        exchange.response.unwrap()
    }

    fn phases(config: &str) -> Phases {
        Gateway::new().configure::<ResponseTransform>(config).unwrap().plugin().phases()
    }

    #[test]
    fn headers_alone_need_no_hook() {
        let config = r#"{"headers": {"set": {"x-a": "1"}, "remove": ["server"], "append": {"vary": "accept"}}}"#;
        assert!(matches!(
            phases(config),
            Phases { request: Phase::Off, response: Phase::Off, response_edits: Some(_), .. }
        ));
        let answer = transformed(config, Answer::new(200).with_header("server", "x").with_header("vary", "origin"));
        assert_eq!(answer.header("x-a"), Some("1"));
        assert_eq!(answer.header("server"), None);
        assert_eq!(answer.headers.iter().filter(|(name, _)| name == "vary").count(), 2);
    }

    #[test]
    fn renaming_and_status_need_the_response() {
        let config = r#"{"headers": {"rename": {"x-old": "x-new"}}, "status": 418}"#;
        assert!(matches!(phases(config), Phases { request: Phase::Off, response: Phase::Head, .. }));
        let answer = transformed(config, Answer::new(200).with_header("x-old", "1"));
        assert_eq!((answer.status, answer.header("x-new"), answer.header("x-old")), (418, Some("1"), None));
    }

    #[test]
    fn nothing_to_do_costs_nothing() {
        assert!(matches!(
            phases("{}"),
            Phases {
                request: Phase::Off,
                response: Phase::Off,
                finish: false,
                request_edits: None,
                response_edits: None
            }
        ));
    }

    #[test]
    fn wrong_configurations_are_refused_with_their_place() {
        let config = r#"{"headers": {"set": {"content-length": "1"}}, "status": 199}"#;
        let problems = Gateway::new().configure::<ResponseTransform>(config).err().unwrap();
        let pointers: Vec<_> = problems.iter().map(|problem| problem.pointer.as_str()).collect();
        assert_eq!(pointers, ["/headers/set/content-length", "/status"]);
    }
}
