//! A route's plugins: the request down, in order; the response up, in reverse;
//! and the end of it all.
//!
//! A plugin takes part in the response and in the end of every request that
//! has reached its place, whoever makes the response: so a 401 of a later
//! plugin carries the CORS fields of an earlier one.

use std::{rc::Rc, time::Instant};

use crate::{
    body::Content,
    config::OnError,
    error::{ErrorKind, GatewayError},
    exchange::{Exchange, MadeBy, ResponseHead, Stage},
    flow::Flow,
    gateway::{Active, Link},
    plugin::{Hook, bindings::Action},
    worker::Worker,
};

/// Runs the request hooks. An early answer ends the way down.
pub async fn down(flow: &mut Flow) -> Result<Option<Content>, GatewayError> {
    let active = flow.active.clone();
    let chain = active.chain(flow.route());
    if !chain.is_empty()
        && let Some(exchange) = &mut flow.exchange
    {
        exchange.request.set_forwarded(&flow.connection.client_text);
        exchange.keep_client_fields();
    }
    for (place, link) in chain.iter().enumerate() {
        flow.reached = place + 1;
        let outcome = match link.request {
            true => call(flow, link, place, Hook::Request).await,
            false => edit(flow, link, place, Stage::Request),
        };
        let failure = match outcome {
            Ok(Action::Respond) => {
                // Its own response hook is not called for its own answer; what
                // it has planned is applied.
                flow.answering = Some(place);
                return Ok(Some(take_answer(flow, link, place)));
            }
            Ok(_) => continue,
            Err(kind) => kind,
        };
        // Nor is it called for the answer to its own failure.
        on_error(flow, link, failure).inspect_err(|_| flow.answering = Some(place))?;
    }
    Ok(None)
}

/// Runs the response hooks of the places reached, last first. A plugin that
/// fails here replaces the response by an error, which passes the rest.
pub async fn up(flow: &mut Flow, mut content: Content) -> Content {
    if flow.reached == 0 {
        return content;
    }
    let active = flow.active.clone();
    let chain = active.chain(flow.route());
    for place in (0..flow.reached).rev() {
        let Some(link) = chain.get(place) else { continue };
        if let Err(kind) = edit(flow, link, place, Stage::Response)
            && let Err(error) = on_error(flow, link, kind)
        {
            content = flow.fail(error);
            continue;
        }
        if let Some(exchange) = &mut flow.exchange {
            exchange.apply_planned(place as u8);
        }
        if !link.response || flow.answering == Some(place) {
            continue;
        }
        let outcome = match call(flow, link, place, Hook::Response).await {
            Ok(Action::Respond) => {
                content = take_answer(flow, link, place);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(kind) => on_error(flow, link, kind),
        };
        if let Err(error) = outcome {
            content = flow.fail(error);
        }
    }
    content
}

/// Tells the plugins of the places reached that the request is over.
pub async fn finish(worker: Rc<Worker>, active: Rc<Active>, mut slot: Option<Box<Exchange>>, reached: usize) {
    let _open = worker.open();
    let route = slot.as_ref().map_or(usize::MAX, |exchange| exchange.route);
    for (place, link) in active.chain(route).iter().enumerate().take(reached).rev() {
        if !link.finish {
            continue;
        }
        if let Some(exchange) = &mut slot {
            exchange.begin(Stage::Finish, place as u8);
        }
        let started = Instant::now();
        let outcome = link.pool.call(&worker, Hook::Finish, &link.used, &mut slot).await;
        link.record(Hook::Finish, started.elapsed(), outcome.err());
    }
    if let Some(exchange) = slot {
        worker.keep_exchange(exchange);
    }
}

/// Calls a hook, and makes its edits final or takes them back. `fail`, and
/// `respond` with nothing prepared, are errors here.
async fn call(flow: &mut Flow, link: &Link, place: usize, hook: Hook) -> Result<Action, ErrorKind> {
    let Some(exchange) = &mut flow.exchange else { return Err(ErrorKind::Internal) };
    exchange.begin(if hook == Hook::Request { Stage::Request } else { Stage::Response }, place as u8);
    let started = Instant::now();
    let outcome = link.pool.call(flow.connection.worker.as_ref(), hook, &link.used, &mut flow.exchange).await;
    let took = started.elapsed();
    let Some(exchange) = &mut flow.exchange else { return Err(ErrorKind::Internal) };
    let outcome = match outcome {
        Ok(Action::Respond) if exchange.answer.is_none() => Err(ErrorKind::Failed),
        Ok(Action::Fail) => Err(ErrorKind::Failed),
        Ok(Action::Continue) if hook == Hook::Request => always(exchange, link, Stage::Request),
        outcome => outcome,
    };
    match outcome {
        Ok(_) => exchange.commit(),
        Err(_) => exchange.roll_back(),
    }
    link.record(hook, took, outcome.err());
    outcome
}

/// Does what a plugin does to every message without being called.
fn edit(flow: &mut Flow, link: &Link, place: usize, stage: Stage) -> Result<Action, ErrorKind> {
    let is_any = match stage {
        Stage::Request => link.used.request_edits.is_some(),
        Stage::Response | Stage::Finish => link.used.response_edits.is_some(),
    };
    let Some(exchange) = flow.exchange.as_mut().filter(|_| is_any) else { return Ok(Action::Continue) };
    exchange.begin(stage, place as u8);
    let outcome = always(exchange, link, stage);
    match outcome {
        Ok(_) => exchange.commit(),
        Err(kind) => {
            exchange.roll_back();
            link.failed(kind);
        }
    }
    outcome
}

/// Edits that are refused are as bad as a hook that returns `fail`.
fn always(exchange: &mut Exchange, link: &Link, stage: Stage) -> Result<Action, ErrorKind> {
    let edits = match stage {
        Stage::Request => &link.used.request_edits,
        Stage::Response | Stage::Finish => &link.used.response_edits,
    };
    let Some(edits) = edits else { return Ok(Action::Continue) };
    let consumer = exchange.consumer.clone();
    let edited = edits.fill(b"", consumer.as_deref()).and_then(|edits| match stage {
        Stage::Request => exchange.edit_request(edits),
        Stage::Response | Stage::Finish => exchange.edit_response(edits),
    });
    edited.map(|()| Action::Continue).map_err(|error| {
        let message = format!("edits of every message refused: {error:?}");
        link.pool.plugin.context.log(tracing::Level::ERROR, &message, Some(exchange), None);
        ErrorKind::Failed
    })
}

/// Puts the answer that a plugin has prepared in the place of the response.
fn take_answer(flow: &mut Flow, link: &Link, place: usize) -> Content {
    let Some(exchange) = &mut flow.exchange else { return Content::Empty };
    let Some(answer) = exchange.answer.take() else { return Content::Empty };
    link.rejected(answer.status);
    exchange.response = Some(ResponseHead::new(answer.status, answer.headers, MadeBy::Plugin(place as u8)));
    if answer.body.is_empty() { Content::Empty } else { Content::Whole(answer.body) }
}

fn on_error(flow: &mut Flow, link: &Link, kind: ErrorKind) -> Result<(), GatewayError> {
    match link.on_error {
        OnError::Skip => Ok(()),
        OnError::Deny => Err(failed(flow, link, kind)),
    }
}

fn failed(flow: &mut Flow, link: &Link, kind: ErrorKind) -> GatewayError {
    if let Some(exchange) = &mut flow.exchange {
        exchange.log.failed_plugin = Some(link.name().clone());
    }
    GatewayError::new(kind)
}
