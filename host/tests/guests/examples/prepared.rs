//! Prepares edits and a limiter as its configuration says, and uses them.

use serde_json::{Value as Json, json};
use weir_sdk::{
    prelude::*,
    store::{Algorithm, KeyPart, Limit, Limiter},
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Edits of the request and of the response to come; `GIVEN` and `CONSUMER`
    /// for a value mean the gateway's.
    #[serde(default)]
    edits: Vec<EditStep>,
    /// The values for `GIVEN`.
    #[serde(default)]
    values: Vec<String>,
    /// Edits of every request and of every response.
    #[serde(default)]
    request_edits: Vec<EditStep>,
    #[serde(default)]
    response_edits: Vec<EditStep>,
    /// Whether the request hook is called, and how it ends.
    #[serde(default)]
    ending: Ending,
    /// The field that holds a key.
    #[serde(default)]
    key: Option<String>,
    /// Ways to make a key, of `route`, `consumer`, `network`, `header:<name>`, or
    /// of other text, which stands for itself.
    #[serde(default)]
    keys: Vec<Vec<String>>,
    #[serde(default)]
    quota: u64,
    /// Edits of how many bytes to prepare, over and over, until they are refused.
    #[serde(default)]
    fill: Option<usize>,
    #[serde(default)]
    misuse: Misuse,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum EditStep {
    Set(String, String),
    Append(String, String),
    Remove(String),
}

#[derive(Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Ending {
    #[default]
    Continue,
    Respond,
    Fail,
    NotCalled,
}

/// What no plugin may do.
#[derive(Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Misuse {
    #[default]
    None,
    /// Prepare in a hook.
    Late,
    LateLimiter,
    /// Name edits that it has not prepared.
    NoSuchEdits,
}

struct Prepared {
    config: Config,
    edits: Result<PreparedEdits, EditError>,
    limiter: Option<Result<Limiter, store::StoreError>>,
    filled: usize,
    request_edits: Option<PreparedEdits>,
    response_edits: Option<PreparedEdits>,
}

impl Plugin for Prepared {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Vec<Problem>> {
        let edits = PreparedEdits::new(&config.edits.iter().map(template).collect::<Vec<_>>());
        let limiter = (!config.keys.is_empty()).then(|| limiter(&config));
        let mut filled = 0;
        if let Some(bytes) = config.fill {
            let value = "v".repeat(bytes);
            while PreparedEdits::new(&[EditTemplate::set("x-fill", ValueTemplate::fixed(&value))]).is_ok() {
                filled += 1;
            }
        }
        let always = |steps: &[EditStep]| match steps {
            [] => Ok(None),
            steps => PreparedEdits::new(&steps.iter().map(template).collect::<Vec<_>>()).map(Some),
        };
        let refused = |error| Problem::refused(&[], error);
        let request_edits = always(&config.request_edits).map_err(refused)?;
        let response_edits = always(&config.response_edits).map_err(refused)?;
        Ok(Self { config, edits, limiter, filled, request_edits, response_edits })
    }

    fn phases(&self) -> Phases {
        let mut phases = if self.config.ending == Ending::NotCalled { Phases::NONE } else { Phases::REQUEST };
        if let Some(edits) = &self.request_edits {
            phases = phases.with_request_edits(edits);
        }
        if let Some(edits) = &self.response_edits {
            phases = phases.with_response_edits(edits);
        }
        match self.config.misuse {
            Misuse::NoSuchEdits => Phases { request_edits: Some(1000), ..phases },
            _ => phases,
        }
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        match self.config.misuse {
            Misuse::None | Misuse::NoSuchEdits => {}
            Misuse::Late => drop(PreparedEdits::new(&[EditTemplate::remove("x-a")])),
            Misuse::LateLimiter => drop(limiter(&self.config)),
        }
        let key = self.config.key.as_ref().map(|name| format!("{:?}", identity::authenticate_key_header(name)));
        let mut values = Values::new();
        self.config.values.iter().for_each(|value| values.push(value));
        let (edited, planned) = match &self.edits {
            Ok(edits) => {
                (done(request.edit_prepared(edits, &values)), done(request.edit_response_prepared(edits, &values)))
            }
            Err(error) => (json!(error.name()), Json::Null),
        };
        let taken = match &self.limiter {
            Some(Ok(limiter)) => {
                limiter.take(1).map_or_else(|error| json!(error.name()), |taken| json!(taken.remaining))
            }
            Some(Err(error)) => json!(format!("refused: {}", error.name())),
            None => Json::Null,
        };
        let report = json!({ "key": key, "edited": edited, "planned": planned, "taken": taken, "filled": self.filled });
        request.edit_response(&[Edit::set("x-report", &report.to_string())])?;
        match self.config.ending {
            Ending::Respond => request.respond(200, &[Field::new("x-a", "own")], "own\n"),
            Ending::Fail => Err(Failure::new("as told")),
            Ending::Continue | Ending::NotCalled => Ok(Action::Continue),
        }
    }
}

fn template(step: &EditStep) -> EditTemplate<'_> {
    fn value(text: &str) -> ValueTemplate<'_> {
        match text {
            "GIVEN" => ValueTemplate::Given,
            "CONSUMER" => ValueTemplate::Consumer,
            text => ValueTemplate::fixed(text),
        }
    }
    match step {
        EditStep::Set(name, text) => EditTemplate::set(name, value(text)),
        EditStep::Append(name, text) => EditTemplate::append(name, value(text)),
        EditStep::Remove(name) => EditTemplate::remove(name),
    }
}

fn limiter(config: &Config) -> Result<Limiter, store::StoreError> {
    fn part(text: &str) -> KeyPart<'_> {
        match text {
            "route" => KeyPart::Route,
            "consumer" => KeyPart::Consumer,
            "network" => KeyPart::ClientNetwork,
            text => text.strip_prefix("header:").map_or(KeyPart::Fixed(text.as_bytes()), KeyPart::Header),
        }
    }
    let keys: Vec<Vec<_>> = config.keys.iter().map(|parts| parts.iter().map(|text| part(text)).collect()).collect();
    let keys: Vec<&[_]> = keys.iter().map(Vec::as_slice).collect();
    Limiter::new(&keys, &[Limit::new(Algorithm::FixedWindow, config.quota, std::time::Duration::from_secs(86_400))])
}

fn done(result: Result<(), EditError>) -> Json {
    result.map_or_else(|error| json!(error.name()), |()| json!("ok"))
}

weir_sdk::export!(Prepared, name = "prepared");
