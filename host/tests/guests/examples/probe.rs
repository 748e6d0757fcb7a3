//! Does what its configuration says and reports, as JSON, what each step gave
//! and what it sees afterwards.

use serde_json::{Value as Json, json};
use weir_sdk::{
    log::Level,
    prelude::*,
    store::{Algorithm, Limit},
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Probe {
    #[serde(default)]
    hook: Hook,
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(default)]
    report: Report,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Hook {
    #[default]
    Request,
    Response,
    Finish,
}

/// Where the report goes.
#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Report {
    /// Into an answer with status 200, from either hook.
    #[default]
    Answer,
    /// Into the response's field `x-probe`.
    Header,
    /// Into the log, at level info. The only place from `finish`.
    Log,
    /// Nowhere: nothing is read but what the steps read.
    Nowhere,
}

/// What is done. Each is told as `ok`, a value, or an error's name.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Step {
    Header(String),
    Lines(Vec<String>),
    SetMethod(String),
    SetAuthority(String),
    SetPath(String),
    SetQuery(Option<String>),
    SetStatus(u16),
    /// Of the hook's own message.
    Edit(Vec<EditStep>),
    PlanResponse(Vec<EditStep>),
    Attribute(String),
    SetAttribute(String, Option<String>),
    AuthenticateKey(String),
    SetConsumer(String),
    Groups,
    Take {
        key: String,
        cost: u64,
        quota: u64,
        window: Interval,
        algorithm: AlgorithmName,
    },
    StoreGet(String),
    StoreSet {
        key: String,
        value: String,
        ttl: Interval,
    },
    StoreSetNew {
        key: String,
        value: String,
        ttl: Interval,
    },
    StoreIncrement {
        key: String,
        by: i64,
        ttl: Interval,
    },
    StoreDelete(String),
    Log(LevelName, String),
    Now,
    Random(usize),
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum EditStep {
    Set(String, String),
    Append(String, String),
    Remove(String),
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AlgorithmName {
    FixedWindow,
    SlidingWindow,
    TokenBucket,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LevelName {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Plugin for Probe {
    type Config = Self;

    fn new(config: Self) -> Result<Self, Vec<Problem>> {
        if config.hook == Hook::Finish && config.report != Report::Log {
            return Err(Problem::at(&["report"], "must be `log` from `finish`").into());
        }
        Ok(config)
    }

    fn phases(&self) -> Phases {
        match self.hook {
            Hook::Request => Phases::REQUEST,
            Hook::Response => Phases::RESPONSE,
            Hook::Finish => Phases { finish: true, ..Phases::NONE },
        }
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        let steps: Vec<Json> = self.steps.iter().map(|step| on_request(step, request)).collect();
        if self.report == Report::Nowhere {
            return Ok(Action::Continue);
        }
        let report = json!({ "steps": steps, "request": seen(request) }).to_string();
        match self.report {
            Report::Answer => return request.respond(200, &[Field::new("content-type", "application/json")], report),
            Report::Header => request.edit_response(&[Edit::set("x-probe", &report)])?,
            Report::Log | Report::Nowhere => weir_sdk::info!("{report}"),
        }
        Ok(Action::Continue)
    }

    fn on_response(&self, request: &Request, response: &mut Response) -> Outcome {
        let steps: Vec<Json> = self.steps.iter().map(|step| on_response(step, request, response)).collect();
        let report = json!({ "steps": steps, "request": seen(request), "response": answered(response) }).to_string();
        match self.report {
            Report::Answer => return response.replace(200, &[Field::new("content-type", "application/json")], report),
            Report::Header => response.edit(&[Edit::set("x-probe", &report)])?,
            Report::Log | Report::Nowhere => weir_sdk::info!("{report}"),
        }
        Ok(Action::Continue)
    }

    fn on_finish(&self, request: &Request, response: &Response, finish: &Finish) {
        let steps: Vec<Json> = self.steps.iter().map(|step| anywhere(step, request)).collect();
        let finish = json!({
            "ending": format!("{:?}", finish.ending()),
            "sent": finish.sent(),
            "duration": finish.duration().as_nanos() as u64,
            "upstream_duration": finish.upstream_duration().as_nanos() as u64,
        });
        let (request, response) = (seen(request), answered(response));
        weir_sdk::info!("{}", json!({ "steps": steps, "request": request, "response": response, "finish": finish }));
    }
}

fn seen(request: &Request) -> Json {
    json!({
        "method": request.method(),
        "scheme": request.scheme(),
        "authority": request.authority(),
        "path": request.path(),
        "raw_path": request.raw_path(),
        "query": request.query(),
        "client_address": request.client_address().to_string(),
        "route": request.route(),
        "consumer": request.consumer(),
        "headers": lines(&request.header_lines(&[])),
    })
}

fn answered(response: &Response) -> Json {
    json!({
        "status": response.status(),
        "made_by": format!("{:?}", response.made_by()),
        "headers": lines(&response.header_lines(&[])),
    })
}

fn on_request(step: &Step, request: &mut Request) -> Json {
    match step {
        Step::Header(name) => value(request.header(name)),
        Step::Lines(names) => lines(&request.header_lines(&names.iter().map(String::as_str).collect::<Vec<_>>())),
        Step::SetMethod(method) => done(request.set_method(method)),
        Step::SetAuthority(authority) => done(request.set_authority(authority)),
        Step::SetPath(path) => done(request.set_path(path)),
        Step::SetQuery(query) => done(request.set_query(query.as_deref())),
        Step::Edit(steps) => done(request.edit(&edits(steps))),
        Step::PlanResponse(steps) => done(request.edit_response(&edits(steps))),
        step => anywhere(step, request),
    }
}

fn on_response(step: &Step, request: &Request, response: &mut Response) -> Json {
    match step {
        Step::Header(name) => value(response.header(name)),
        Step::Lines(names) => lines(&response.header_lines(&names.iter().map(String::as_str).collect::<Vec<_>>())),
        Step::SetStatus(status) => done(response.set_status(*status)),
        Step::Edit(steps) => done(response.edit(&edits(steps))),
        step => anywhere(step, request),
    }
}

fn anywhere(step: &Step, request: &Request) -> Json {
    match step {
        Step::Attribute(name) => value(request.attribute(name)),
        Step::SetAttribute(name, value) => done(request.set_attribute(name, value.as_ref().map(String::as_bytes))),
        Step::AuthenticateKey(key) => json!(identity::authenticate_key(key.as_bytes())),
        Step::SetConsumer(name) => json!(identity::set_consumer(name)),
        Step::Groups => json!(identity::groups()),
        Step::Take { key, cost, quota, window, algorithm } => {
            let limit = Limit::new((*algorithm).into(), *quota, window.0);
            stored(store::take(key.as_bytes(), *cost, &[limit]).map(|decision| {
                json!({
                    "allowed": decision.allowed,
                    "tightest": decision.tightest,
                    "remaining": decision.remaining,
                    "reset": decision.reset,
                    "retry_after": decision.retry_after,
                })
            }))
        }
        Step::StoreGet(key) => {
            stored(store::get(key.as_bytes()).map(|found| json!(found.map(|found| escaped(&found)))))
        }
        Step::StoreSet { key, value, ttl } => {
            stored(store::set(key.as_bytes(), value.as_bytes(), ttl.0).map(|()| json!("ok")))
        }
        Step::StoreSetNew { key, value, ttl } => {
            stored(store::set_new(key.as_bytes(), value.as_bytes(), ttl.0).map(Json::from))
        }
        Step::StoreIncrement { key, by, ttl } => stored(store::increment(key.as_bytes(), *by, ttl.0).map(Json::from)),
        Step::StoreDelete(key) => stored(store::delete(key.as_bytes()).map(|()| json!("ok"))),
        Step::Log(level, message) => {
            weir_sdk::log::write((*level).into(), format_args!("{message}"));
            json!("ok")
        }
        Step::Now => json!(clock::now().as_millis() as u64),
        Step::Random(len) => {
            let mut bytes = vec![0; *len];
            random::fill(&mut bytes);
            // So that two runs can be told apart.
            json!({ "len": bytes.len(), "sum": bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>() })
        }
        _ => json!("not in this hook"),
    }
}

fn edits(steps: &[EditStep]) -> Vec<Edit<'_>> {
    fn edit(step: &EditStep) -> Edit<'_> {
        match step {
            EditStep::Set(name, value) => Edit::set(name, value),
            EditStep::Append(name, value) => Edit::append(name, value),
            EditStep::Remove(name) => Edit::remove(name),
        }
    }
    steps.iter().map(edit).collect()
}

fn done(result: Result<(), EditError>) -> Json {
    match result {
        Ok(()) => json!("ok"),
        Err(error) => json!({ "error": error.name() }),
    }
}

fn stored(result: Result<Json, store::StoreError>) -> Json {
    result.unwrap_or_else(|error| json!({ "error": error.name() }))
}

fn value(value: Option<Value>) -> Json {
    json!(value.map(|value| escaped(&value)))
}

fn lines(lines: &weir_sdk::Lines) -> Json {
    lines.iter().map(|(name, value)| json!([name, escaped(value)])).collect()
}

/// Bytes that are no ASCII text as `\xff`.
fn escaped(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

impl From<AlgorithmName> for Algorithm {
    fn from(name: AlgorithmName) -> Self {
        match name {
            AlgorithmName::FixedWindow => Self::FixedWindow,
            AlgorithmName::SlidingWindow => Self::SlidingWindow,
            AlgorithmName::TokenBucket => Self::TokenBucket,
        }
    }
}

impl From<LevelName> for Level {
    fn from(name: LevelName) -> Self {
        match name {
            LevelName::Trace => Self::Trace,
            LevelName::Debug => Self::Debug,
            LevelName::Info => Self::Info,
            LevelName::Warn => Self::Warn,
            LevelName::Error => Self::Error,
        }
    }
}

weir_sdk::export!(Probe, name = "probe");
