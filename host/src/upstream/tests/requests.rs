//! What a target gets to see.

use http::{HeaderValue, header};

use super::{reuse::target, support::*};
use crate::{
    config,
    error::ErrorKind,
    upstream::{Host, Targets},
};

#[test]
fn head_and_body_as_given() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[fake.address]);
        let mut request = post("body");
        request.headers_mut().insert("x-one", HeaderValue::from_static("1"));
        request.headers_mut().append("x-one", HeaderValue::from_static("2"));
        *request.version_mut() = http::Version::HTTP_2;
        assert_eq!(text(worker.fetch(&upstream, request).await), "ok");
        let (head, body) = fake.wait_for_request();
        let address = fake.address;
        assert_eq!(
            head,
            format!("POST /path?query HTTP/1.1\r\nhost: {address}\r\nx-one: 1\r\nx-one: 2\r\ncontent-length: 4\r\n")
        );
        assert_eq!(body, "body");
    });
}

#[test]
fn host_is_kept_or_the_targets() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[fake.address]);
        for (host, expected) in [(Host::Keep, "example.com".into()), (Host::Target, fake.address.to_string())] {
            let mut request = get();
            request.headers_mut().insert(header::HOST, HeaderValue::from_static("example.com"));
            let response = worker.send(&upstream, request, host).await.unwrap();
            assert_eq!(text(read(response).await), "ok");
            assert_eq!(fake.wait_for_request().0, format!("GET /path?query HTTP/1.1\r\nhost: {expected}\r\n"));
        }
    });
}

/// hyper leaves such a body out for GET, unless told.
#[test]
fn a_body_of_unknown_length_is_chunked_for_every_method() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[fake.address]);
        for method in ["GET", "POST", "DELETE"] {
            let body = TestBody::unknown([TestFrame::Data("body")]);
            assert_eq!(text(worker.fetch(&upstream, request(method, body)).await), "ok");
            let (head, body) = fake.wait_for_request();
            assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
            assert_eq!(body, "4\r\nbody\r\n0\r\n\r\n");
        }
    });
}

/// A body that fails is the downstream's fault, and must not look whole.
#[test]
fn the_bodys_own_error_comes_out() {
    on_worker(async |worker| {
        for error in [ErrorKind::BodyTooLarge, ErrorKind::ClientGone, ErrorKind::BodyTimeout] {
            let fake = Fake::answering(OK);
            let upstream = worker.upstream(&[fake.address]);
            let body = TestBody::unknown([TestFrame::Data("start"), TestFrame::Error(error)]);
            assert_eq!(kind(worker.fetch(&upstream, request("POST", body)).await), error);
            assert_eq!(target(&upstream).in_flight.count(), 0);
            tokio::task::yield_now().await;
            let seen = fake.wait_for(|seen| matches!(seen, Seen::Closed | Seen::Request(..)));
            assert!(!matches!(&seen, Seen::Request(_, body) if !body.ends_with("cut")), "{seen:?}");
        }
    });
}

#[test]
fn a_body_shorter_than_announced_is_no_whole_request() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[fake.address]);
        let (_, wait) = tokio::sync::oneshot::channel();
        let frames = [TestFrame::Data("short"), TestFrame::Wait(wait)];
        let mut request = request("POST", TestBody::unknown(frames).with_length(10));
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("10"));
        assert_eq!(kind(worker.fetch(&upstream, request).await), ErrorKind::ClientGone);
    });
}

#[test]
fn the_demo_upstream_echoes() {
    on_worker(async |worker| {
        let config = config::Upstream { name: "internal:echo".into(), kind: config::UpstreamKind::Echo };
        let upstream = worker.pools.upstream(&config, &Targets::default());
        let mut sent = post("hello \"world\"");
        sent.headers_mut().insert("x-one", HeaderValue::from_static("1"));
        sent.headers_mut().append("x-two", HeaderValue::from_static("a"));
        sent.headers_mut().append("x-two", HeaderValue::from_static("b"));
        let response = worker.send(&upstream, sent, Host::Target).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(&**response.body().target(), "internal:echo");
        let shown: serde_json::Value = serde_json::from_str(&text(read(response).await)).unwrap();
        assert_eq!(
            shown,
            serde_json::json!({
                "method": "POST",
                "path": "/path?query",
                "headers": { "x-one": "1", "x-two": ["a", "b"] },
                "body": "hello \"world\"",
            })
        );

        let long: &str = "0123456789abcdef".repeat(4 << 10).leak();
        let body = TestBody::unknown([TestFrame::Data(long)]);
        let shown: serde_json::Value =
            serde_json::from_str(&text(worker.fetch(&upstream, request("PUT", body)).await)).unwrap();
        assert_eq!(shown["body"].as_str().unwrap().len(), 64 << 10);

        let body = TestBody::unknown([TestFrame::Data(long), TestFrame::Data("!")]);
        let shown: serde_json::Value =
            serde_json::from_str(&text(worker.fetch(&upstream, request("PUT", body)).await)).unwrap();
        assert_eq!((&shown["body"], &shown["body_length"]), (&serde_json::Value::Null, &serde_json::json!(65537)));

        let body = TestBody::unknown([TestFrame::Error(ErrorKind::BodyTooLarge)]);
        assert_eq!(kind(worker.fetch(&upstream, request("PUT", body)).await), ErrorKind::BodyTooLarge);
    });
}
