//! Tells clients that an API is deprecated (RFC 9745) and when it will end (RFC
//! 8594); from then on answers 410 itself.

use std::time::Duration;

use weir_sdk::prelude::*;

mod date;

/// What `weir.yaml` may say. The gateway checks it against the JSON Schema that is
/// derived from this, before `new` sees it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Since when the API is deprecated, in seconds since 1970.
    since: u64,
    /// When it ends, in seconds since 1970.
    sunset: u64,
    /// Where clients read what to do.
    link: Option<String>,
}

/// What the hooks need, made ready once.
struct Deprecation {
    sunset: Duration,
    deprecation_field: String,
    sunset_field: String,
    link_field: Option<String>,
}

impl Plugin for Deprecation {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        if config.sunset <= config.since {
            problems.push(Problem::at(&["sunset"], "must be later than `since`"));
        }
        if config.sunset > date::LAST {
            problems.push(Problem::at(&["sunset"], "must be before the year 10000: it is in seconds"));
        }
        let link_field = config.link.map(|link| format!("<{link}>; rel=\"deprecation\""));
        if let Some(Err(error)) = link_field.as_ref().map(|link| field::check_value(link.as_bytes())) {
            problems.push(Problem::refused(&["link"], error));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            sunset: Duration::from_secs(config.sunset),
            deprecation_field: format!("@{}", config.since),
            sunset_field: date::http(config.sunset),
            link_field,
        })
    }

    fn phases(&self) -> Phases {
        Phases::REQUEST
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        if clock::now() >= self.sunset {
            weir_sdk::info!("{} {} came too late", request.method(), request.path());
            let mut headers = vec![Field::new("content-type", "text/plain; charset=utf-8")];
            headers.extend(self.link());
            return request.respond(410, &headers, "This API has ended.\n");
        }
        // What the response is to say is known now: no response hook is needed.
        request.edit_response(&[
            Edit::set("deprecation", &self.deprecation_field),
            Edit::set("sunset", &self.sunset_field),
        ])?;
        if let Some(link) = self.link() {
            request.edit_response(&[Edit::Append(link)])?;
        }
        Ok(Action::Continue)
    }
}

impl Deprecation {
    fn link(&self) -> Option<Field<'_>> {
        self.link_field.as_ref().map(|link| Field::new("link", link))
    }
}

weir_sdk::export!(Deprecation);

#[cfg(test)]
mod tests {
    use weir_sdk::testing::{Answer, Exchange, Gateway};

    use super::*;

    /// The fake gateway's clock stands at 2026-01-01.
    const CONFIG: &str = r#"{"since": 1735689600, "sunset": 1767312000, "link": "https://example.com/v2"}"#;

    #[test]
    fn responses_say_when_it_ends() {
        let plugin = Gateway::new().configure::<Deprecation>(CONFIG).unwrap();
        let mut exchange = Exchange::get("/v1/orders");
        plugin.on_request(&mut exchange).unwrap();
        exchange.response = Some(Answer::new(200));
        plugin.on_response(&mut exchange).unwrap();

        let answer = exchange.response.unwrap();
        assert_eq!(answer.header("deprecation"), Some("@1735689600"));
        assert_eq!(answer.header("sunset"), Some("Fri, 02 Jan 2026 00:00:00 GMT"));
        assert_eq!(answer.header("link"), Some("<https://example.com/v2>; rel=\"deprecation\""));
    }

    #[test]
    fn when_its_time_has_come_it_is_gone() {
        let gateway = Gateway::new();
        let plugin = gateway.configure::<Deprecation>(CONFIG).unwrap();
        gateway.advance(Duration::from_secs(24 * 60 * 60));
        let mut exchange = Exchange::get("/v1/orders");
        plugin.on_request(&mut exchange).unwrap();
        assert_eq!(exchange.response.unwrap().status, 410);
        assert_eq!(gateway.take_log().len(), 1);
    }

    #[test]
    fn a_wrong_configuration_is_told_with_its_place() {
        let problems = Gateway::new().configure::<Deprecation>(r#"{"since": 2, "sunset": 1}"#).err().unwrap();
        assert_eq!(problems[0].pointer, "/sunset");
    }
}
