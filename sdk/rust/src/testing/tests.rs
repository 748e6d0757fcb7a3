use schemars::JsonSchema;
use serde::Deserialize;

use super::*;
use crate::{
    Edit, EditError, EditTemplate, Failure, Field, PreparedEdits, ValueTemplate, Values,
    store::{Algorithm, KeyPart, Limit, Limiter},
};

#[derive(Deserialize, JsonSchema)]
struct Script {
    /// What the request hook does.
    step: String,
}

impl Plugin for Script {
    type Config = Self;

    fn new(config: Self) -> Result<Self, Vec<Problem>> {
        crate::info!("made for {}", config.step);
        Ok(config)
    }

    fn phases(&self) -> Phases {
        Phases { response: Phase::Head, ..Phases::REQUEST }
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        match self.step.as_str() {
            "edit, then fail" => {
                request.edit(&[Edit::set("x-a", "1")])?;
                Err(Failure::new("on purpose"))
            }
            "forbidden" => {
                assert_eq!(request.edit(&[Edit::set("x-a", "1"), Edit::remove("Host")]), Err(EditError::Forbidden));
                Ok(Action::Continue)
            }
            "answer" => {
                request.edit_response(&[Edit::set("x-planned", "1")])?;
                request.respond(403, &[Field::new("X-Why", "no")], "no\n")
            }
            "target" => {
                assert_eq!(request.path(), "/a/b%2Fc");
                assert_eq!(request.set_path("/x y"), Err(EditError::InvalidValue));
                request.set_path("/p//%7Eq/")?;
                assert_eq!(request.path(), "/p/~q/");
                request.set_query(None)?;
                Ok(Action::Continue)
            }
            _ => Ok(Action::Continue),
        }
    }

    fn on_response(&self, request: &Request, response: &mut Response) -> Outcome {
        assert_eq!(request.method(), "GET");
        response.edit(&[Edit::append("set-cookie", "b=2")])?;
        response.set_status(203)?;
        Ok(Action::Continue)
    }
}

fn script(gateway: &Gateway, step: &str) -> Use<Script> {
    gateway.configure(&format!(r#"{{"step": "{step}"}}"#)).unwrap()
}

#[test]
fn a_failed_hook_changes_nothing() {
    let gateway = Gateway::new();
    let mut exchange = Exchange::get("/");
    assert!(script(&gateway, "edit, then fail").on_request(&mut exchange).is_err());
    assert!(exchange.headers.is_empty());
    let log: Vec<String> = gateway.take_log().into_iter().map(|(_, line)| line).collect();
    assert_eq!(log, ["made for edit, then fail", "on purpose"]);
}

#[test]
fn a_refused_edit_changes_nothing() {
    let mut exchange = Exchange::get("/");
    script(&Gateway::new(), "forbidden").on_request(&mut exchange).unwrap();
    assert!(exchange.headers.is_empty());
}

#[test]
fn an_answer_gets_what_was_planned() {
    let mut exchange = Exchange::get("/");
    let outcome = script(&Gateway::new(), "answer").on_request(&mut exchange);
    assert!(matches!(outcome, Ok(Action::Respond(_))));
    let answer = exchange.response.unwrap();
    assert_eq!((answer.status, answer.header("x-why"), answer.header("x-planned")), (403, Some("no"), Some("1")));
}

#[test]
fn paths_are_normalised_for_reading_only() {
    let mut exchange = Exchange::get("/a//./x/../%62%2fc?q");
    script(&Gateway::new(), "target").on_request(&mut exchange).unwrap();
    assert_eq!(exchange.target(), "/p//%7Eq/");
}

#[test]
fn response_lines_stay_apart() {
    let mut exchange = Exchange::get("/");
    exchange.response = Some(Answer::new(200).with_header("set-cookie", "a=1"));
    script(&Gateway::new(), "").on_response(&mut exchange).unwrap();
    let answer = exchange.response.unwrap();
    assert_eq!(answer.status, 203);
    assert_eq!(answer.headers.iter().map(|(_, value)| &value[..]).collect::<Vec<_>>(), [b"a=1", b"b=2"]);
}

#[derive(Debug)]
struct Stamped {
    edits: PreparedEdits,
    always: PreparedEdits,
    limiter: Limiter,
}

impl Plugin for Stamped {
    type Config = Script;

    fn new(config: Script) -> Result<Self, Vec<Problem>> {
        let edits = [
            EditTemplate::set("x-given", ValueTemplate::Given),
            EditTemplate::append("x-consumer", ValueTemplate::Consumer),
        ];
        let name: &[u8] = if config.step == "wrong name" { b"x y" } else { b"x-always" };
        let always = EditTemplate::set(std::str::from_utf8(name).unwrap(), ValueTemplate::fixed("1"));
        let limit = Limit::new(Algorithm::FixedWindow, 2, Duration::from_secs(60));
        let keys: &[&[KeyPart<'_>]] = &[&[KeyPart::Header("x-tenant")], &[KeyPart::Consumer, KeyPart::Route]];
        Ok(Self {
            edits: PreparedEdits::new(&edits).unwrap(),
            always: PreparedEdits::new(&[always]).map_err(|error| Problem::refused(&["step"], error))?,
            limiter: Limiter::new(keys, &[limit]).unwrap(),
        })
    }

    fn phases(&self) -> Phases {
        Phases::REQUEST.with_request_edits(&self.always).with_response_edits(&self.always)
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        assert_eq!(request.edit_prepared(&self.edits, &Values::NONE), Err(EditError::InvalidValue));
        let mut values = Values::new();
        values.push("7");
        request.edit_prepared(&self.edits, &values)?;
        values.push("8");
        assert_eq!(request.edit_prepared(&self.edits, &values), Err(EditError::InvalidValue));
        let left = self.limiter.take(1)?.remaining;
        request.edit_response(&[Edit::set("x-left", &left.to_string())])?;
        Ok(Action::Continue)
    }
}

#[test]
fn what_is_prepared_is_done_as_the_gateway_does_it() {
    let gateway = Gateway::new();
    gateway.add_consumer("alice", &[], &[]);
    let stamped = gateway.configure::<Stamped>(r#"{"step": ""}"#).unwrap();
    let pass = |mut exchange: Exchange| {
        stamped.on_request(&mut exchange).map(|_| {
            exchange.response = Some(Answer::new(200));
            stamped.on_response(&mut exchange).unwrap();
            exchange
        })
    };
    let alice = || {
        let mut exchange = Exchange::get("/");
        exchange.consumer = Some("alice".to_owned());
        exchange
    };
    let first = pass(alice()).unwrap();
    assert_eq!((first.header("x-given").as_deref(), first.header("x-consumer").as_deref()), (Some("7"), Some("alice")));
    assert_eq!(first.header("x-always").as_deref(), Some("1"));
    let answer = first.response.unwrap();
    assert_eq!((answer.header("x-always"), answer.header("x-left")), (Some("1"), Some("1")));
    let tenant = pass(alice().with_header("X-Tenant", "t")).unwrap();
    assert_eq!(tenant.response.unwrap().header("x-left"), Some("1"));
    assert_eq!(pass(alice()).unwrap().response.unwrap().header("x-left"), Some("0"));
    // Neither key is complete.
    let failed = pass(Exchange::get("/")).unwrap_err();
    assert!(failed.to_string().starts_with("store: A limit without quota"), "{failed}");
    let problems = gateway.configure::<Stamped>(r#"{"step": "wrong name"}"#).unwrap_err();
    assert_eq!(problems[0].pointer, "/step");
}
