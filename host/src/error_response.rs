//! What a client gets when its request fails: the one place that chooses the
//! status of a failure.
//!
//! The body says as much as may be known outside, with the id under which the
//! log has the rest.

use std::{
    cell::Cell,
    fmt::Write,
    hash::{BuildHasher, RandomState},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::error::{ErrorKind, GatewayError};

mod accept;

/// The status of a failure. A client that is gone never sees its own, but
/// metrics and access log do.
pub fn status(kind: ErrorKind) -> StatusCode {
    use ErrorKind::*;
    match kind {
        BadRequest(_) | ClientGone => StatusCode::BAD_REQUEST,
        NoRoute => StatusCode::NOT_FOUND,
        BodyTimeout => StatusCode::REQUEST_TIMEOUT,
        BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        TargetTooLong => StatusCode::URI_TOO_LONG,
        HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        // Not 405, which is about one resource and must list what it allows: no
        // resource here takes these methods (RFC 9110 section 15.6.2).
        MethodRefused => StatusCode::NOT_IMPLEMENTED,
        Connect | BadResponse => StatusCode::BAD_GATEWAY,
        ConnectTimeout | ResponseTimeout | TotalTimeout => StatusCode::GATEWAY_TIMEOUT,
        Trap | CpuLimit | WallLimit | MemoryLimit | Failed | Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Busy | Suspended | Overload => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Whether the connection must be closed behind the answer: where the next
/// request begins is unknown, or lies behind a body that is not wanted.
pub fn must_close(kind: ErrorKind) -> bool {
    use ErrorKind::*;
    matches!(kind, BadRequest(_) | TargetTooLong | HeadTooLarge | BodyTooLarge | BodyTimeout | ClientGone)
}

/// The whole answer to a failure, as JSON where the client's Accept field
/// prefers it, else as text. `id` is a [`RequestId`], or one of another make in
/// visible ASCII.
pub fn respond(error: &GatewayError, accept: Option<&[u8]>, id: &str) -> Response<Bytes> {
    let status = status(error.kind);
    let message = message(error.kind);
    let mut body = String::with_capacity(128);
    let content_type = if accept.is_some_and(accept::prefers_json) {
        // No message, nor an id that becomes a field value, needs escaping but
        // for these two.
        let id = id.replace('\\', "\\\\").replace('"', "\\\"");
        let code = status.as_u16();
        write_line(&mut body, format_args!(r#"{{"error":{{"status":{code},"message":"{message}","id":"{id}"}}}}"#));
        "application/json"
    } else {
        write_line(&mut body, format_args!("{status}: {message} (id {id})"));
        "text/plain; charset=utf-8"
    };
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", id);
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// What the client may know. Text without quotes, backslashes and control
/// characters.
fn message(kind: ErrorKind) -> &'static str {
    use ErrorKind::*;
    match kind {
        BadRequest(why) => why,
        ClientGone => "the request was cut short",
        NoRoute => "no route matches",
        BodyTimeout => "the request body took too long",
        BodyTooLarge => "the request body is too large",
        TargetTooLong => "the request target is too long",
        HeadTooLarge => "the request head is too large",
        MethodRefused => "this method is not supported",
        Connect => "the upstream takes no connection",
        BadResponse => "the upstream gave no valid response",
        ConnectTimeout | ResponseTimeout => "the upstream took too long",
        TotalTimeout => "the request took too long",
        Trap | CpuLimit | WallLimit | MemoryLimit | Failed => "a plugin failed",
        Busy | Suspended => "a plugin is not available for the moment",
        Overload => "the gateway is overloaded",
        Internal => "an internal error",
    }
}

fn write_line(body: &mut String, line: std::fmt::Arguments<'_>) {
    // A String takes whatever is written.
    let _ = writeln!(body, "{line}");
}

/// 16 hexadecimal digits that name a request in answers and logs. Unique for all
/// practical purposes, but no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId([u8; 16]);

impl RequestId {
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A new id: SplitMix64, begun in each thread at a random place by the system.
pub fn request_id() -> RequestId {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    let state = STATE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    STATE.set(state);
    let mut bits = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    let mut digits = [0; 16];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(bits & 15) as usize];
        bits >>= 4;
    }
    RequestId(digits)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ALL: [ErrorKind; 22] = {
        use ErrorKind::*;
        [
            BadRequest("two Host fields"),
            TargetTooLong,
            HeadTooLarge,
            NoRoute,
            MethodRefused,
            BodyTooLarge,
            BodyTimeout,
            ClientGone,
            Connect,
            ConnectTimeout,
            ResponseTimeout,
            TotalTimeout,
            BadResponse,
            Trap,
            CpuLimit,
            WallLimit,
            MemoryLimit,
            Failed,
            Busy,
            Suspended,
            Overload,
            Internal,
        ]
    };

    #[test]
    fn the_client_is_blamed_for_its_own_faults_only() {
        use crate::error::ErrorSource;
        for kind in ALL.into_iter().filter(|kind| *kind != ErrorKind::MethodRefused) {
            assert_eq!(status(kind).is_client_error(), kind.source() == ErrorSource::Downstream, "{kind:?}");
        }
        assert_eq!(status(ErrorKind::Connect), 502);
        assert_eq!(status(ErrorKind::ConnectTimeout), 504);
        assert_eq!(status(ErrorKind::MethodRefused), 501);
    }

    #[test]
    fn text_names_status_message_and_id() {
        let response = respond(&ErrorKind::Connect.into(), None, "00000000000000ff");
        assert_eq!(response.status(), 502);
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        assert_eq!(response.headers()["x-request-id"], "00000000000000ff");
        assert_eq!(response.body(), "502 Bad Gateway: the upstream takes no connection (id 00000000000000ff)\n");
    }

    #[test]
    fn every_json_body_parses() {
        for kind in ALL {
            let response = respond(&kind.into(), Some(b"application/json"), "a\"b\\c");
            assert_eq!(response.headers()["content-type"], "application/json");
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(body["error"]["status"], status(kind).as_u16());
            assert_eq!(body["error"]["message"], message(kind));
            assert_eq!(body["error"]["id"], "a\"b\\c");
        }
    }

    #[test]
    fn only_503_asks_to_come_again() {
        for kind in ALL {
            let response = respond(&kind.into(), None, "id");
            assert_eq!(response.headers().contains_key("retry-after"), response.status() == 503, "{kind:?}");
        }
    }

    #[test]
    fn causes_stay_inside() {
        let error = GatewayError::because(ErrorKind::Connect, "10.0.0.7:9001 refused");
        for accept in [None, Some(&b"application/json"[..])] {
            let response = respond(&error, accept, "id");
            assert!(!String::from_utf8_lossy(response.body()).contains("10.0.0.7"));
        }
    }

    #[test]
    fn ids_are_hexadecimal_and_differ() {
        let ids = || (0..1000).map(|_| request_id().as_str().to_owned()).collect::<Vec<_>>();
        let other = std::thread::spawn(ids).join().unwrap();
        let all: HashSet<_> = ids().into_iter().chain(other).collect();
        assert_eq!(all.len(), 2000);
        assert!(all.iter().all(|id| id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit())));
    }
}
