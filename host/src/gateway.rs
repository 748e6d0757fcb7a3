//! The gateway: everything that one configuration builds, and the life of a
//! request in it.

use std::{convert::Infallible, rc::Rc, sync::Arc};

use http::{Request, Response};
use hyper::body::Incoming;

use crate::{
    body::{Content, ResponseBody},
    chain,
    config::{Config, OnError},
    error::GatewayError,
    flow::Flow,
    identity::Identity,
    intake,
    plugin::Use,
    router::Router,
    server::Connection,
};

mod active;
mod build;

pub use active::{Active, ActiveRoute, Link, Settings};

/// What all workers share of one configuration; never changed once it is built.
pub struct Gateway {
    /// 1 for the first configuration, one more for each that has served since.
    pub version: u64,
    pub config: Config,
    pub router: Router,
    pub identity: Identity,
    /// The chain of each route, in the routes' order.
    pub chains: Vec<Vec<Entry>>,
}

/// A gateway as an exchange holds it. The outer count is one worker's own, so
/// that workers do not fight over the inner one at every request.
pub type Snapshot = Arc<Arc<Gateway>>;

/// A plugin's place in a chain.
pub struct Entry {
    pub used: Use,
    pub on_error: OnError,
}

impl Gateway {
    /// A route's name; empty for a request that no route has matched.
    pub fn route_name(&self, route: usize) -> &str {
        self.config.routes.get(route).map_or("", |route| &route.name)
    }
}

/// The life of a request.
pub async fn handle(
    connection: Rc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let (mut flow, incoming) = Flow::begin(connection, request);
    let content = match answer(&mut flow, incoming).await {
        Ok(content) => content,
        Err(error) => flow.fail(error),
    };
    let content = chain::up(&mut flow, content).await;
    Ok(flow.send(content))
}

/// Everything up to a response, whoever makes it.
async fn answer(flow: &mut Flow, incoming: Incoming) -> Result<Content, GatewayError> {
    intake::check(flow)?;
    intake::find_route(flow)?;
    let body = intake::limit_body(flow, incoming)?;
    if let Some(early) = chain::down(flow).await? {
        return Ok(early);
    }
    flow.send_upstream(body).await
}
