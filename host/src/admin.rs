//! What the admin listener answers: health, readiness, metrics.
//!
//! Pure: a request's head in, a whole answer out. Serving it is left to others.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::json;

use crate::metrics::{self, Metrics};

mod server;

pub use server::Server;

/// What the gateway is doing, as far as others want to know.
#[derive(Debug)]
pub struct AdminState {
    metrics: Arc<Metrics>,
    /// All modules are compiled, and each worker has its instances.
    warm: AtomicBool,
    /// All listeners take connections.
    listening: AtomicBool,
    draining: AtomicBool,
    /// Why the newest configuration was refused.
    refused: Mutex<Option<String>>,
}

impl AdminState {
    /// Nothing is ready yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            warm: AtomicBool::new(false),
            listening: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            refused: Mutex::new(None),
        }
    }

    /// Notes that a configuration serves, which it does only when warm.
    pub fn config_serving(&self, version: u64) {
        self.metrics.config_serving(version);
        self.set_refused(None);
        self.warm.store(true, Relaxed);
    }

    /// Notes that the newest configuration was refused, and why. If there is one
    /// that serves, the gateway stays ready.
    pub fn config_refused(&self, why: String) {
        self.metrics.config_refused();
        self.set_refused(Some(why));
    }

    pub fn listening(&self) {
        self.listening.store(true, Relaxed);
    }

    /// Notes that the gateway is about to end; there is no way back.
    pub fn draining(&self) {
        self.draining.store(true, Relaxed);
    }

    fn set_refused(&self, why: Option<String>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Why no requests should come; empty if they may.
    fn reasons(&self) -> Vec<&'static str> {
        let reasons = [
            (!self.warm.load(Relaxed), "modules are not compiled and warm yet"),
            (!self.listening.load(Relaxed), "listeners are not open yet"),
            (self.draining.load(Relaxed), "draining"),
        ];
        reasons.into_iter().filter(|(holds, _)| *holds).map(|(_, reason)| reason).collect()
    }

    fn readiness(&self) -> Response<Bytes> {
        let reasons = self.reasons();
        let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut body = json!({
            "ready": reasons.is_empty(),
            "reasons": reasons,
            "config_version": self.metrics.config_version(),
        });
        if let Some(why) = &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            body["config_error"] = why.as_str().into();
        }
        response(status, "application/json", format!("{body}\n"))
    }
}

/// Answers a request.
///
/// `/healthz` is 200 as long as anything answers at all. `/readyz` is 200 or 503
/// with the reasons, and tells of a configuration that was refused. `/metrics`
/// is in the Prometheus text format. An answer to HEAD has a Content-Length and
/// no body.
pub fn answer(state: &AdminState, method: &Method, path: &str) -> Response<Bytes> {
    let known = matches!(path, "/healthz" | "/readyz" | "/metrics");
    if known && method != Method::GET && method != Method::HEAD {
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".into());
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let mut answer = match path {
        "/healthz" => response(StatusCode::OK, "application/json", "{\"status\":\"ok\"}\n".into()),
        "/readyz" => state.readiness(),
        "/metrics" => response(StatusCode::OK, metrics::CONTENT_TYPE, state.metrics.exposition()),
        _ => response(StatusCode::NOT_FOUND, TEXT, "here are /healthz, /readyz and /metrics\n".into()),
    };
    if method == Method::HEAD {
        answer.body_mut().clear();
    }
    answer
}

const TEXT: &str = "text/plain; charset=utf-8";

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Bytes> {
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONTENT_LENGTH, length);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn state() -> AdminState {
        AdminState::new(Arc::new(Metrics::new(1)))
    }

    fn get(state: &AdminState, path: &str) -> Response<Bytes> {
        answer(state, &Method::GET, path)
    }

    fn readiness(state: &AdminState) -> (u16, Value) {
        let response = get(state, "/readyz");
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
    }

    #[test]
    fn it_is_healthy_from_the_start() {
        assert_eq!(get(&state(), "/healthz").status(), 200);
    }

    #[test]
    fn it_is_ready_between_warm_up_and_drain() {
        let state = state();
        let (status, body) = readiness(&state);
        assert_eq!((status, &body["ready"], body["reasons"].as_array().unwrap().len()), (503, &false.into(), 2));
        state.listening();
        assert_eq!(readiness(&state).1["reasons"], json!(["modules are not compiled and warm yet"]));
        state.config_serving(1);
        assert_eq!(readiness(&state), (200, json!({ "ready": true, "reasons": [], "config_version": 1 })));
        state.draining();
        assert_eq!(readiness(&state).1["reasons"], json!(["draining"]));
    }

    #[test]
    fn a_refused_configuration_is_told_of_until_a_good_one_comes() {
        let state = state();
        state.listening();
        state.config_serving(1);
        state.config_refused("weir.yaml:3:1: \"x\"".into());
        let told = json!({
            "ready": true, "reasons": [], "config_version": 1, "config_error": "weir.yaml:3:1: \"x\"",
        });
        assert_eq!(readiness(&state), (200, told));
        assert!(get(&state, "/metrics").body().windows(24).any(|text| text == b"weir_config_last_error 1"));
        state.config_serving(2);
        assert_eq!(readiness(&state).1["config_error"], Value::Null);
        assert!(get(&state, "/metrics").body().windows(24).any(|text| text == b"weir_config_last_error 0"));
    }

    #[test]
    fn other_methods_and_paths_are_refused() {
        let state = state();
        let refused = answer(&state, &Method::POST, "/metrics");
        assert_eq!((refused.status().as_u16(), &refused.headers()["allow"]), (405, &"GET, HEAD".parse().unwrap()));
        for path in ["/", "/metrics/", "/config", "*", ""] {
            assert_eq!(get(&state, path).status(), 404, "{path}");
        }
        assert_eq!(answer(&state, &Method::POST, "/other").status(), 404);
    }

    #[test]
    fn head_has_the_length_and_no_body() {
        for path in ["/healthz", "/readyz", "/metrics", "/other"] {
            let (get, head) = (get(&state(), path), answer(&state(), &Method::HEAD, path));
            assert_eq!((head.status(), head.headers()), (get.status(), get.headers()));
            assert_eq!(get.headers()["content-length"], get.body().len().to_string());
            assert!(head.body().is_empty());
        }
    }
}
