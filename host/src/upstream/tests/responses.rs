//! What comes back.

use std::time::Duration;

use super::{reuse::target, support::*};
use crate::error::ErrorKind;

/// What the target sends before it closes.
async fn fetch(worker: &Worker, response: &'static [u8]) -> Fetched {
    let fake = Fake::start(move |_, wire| {
        wire.request();
        wire.send(response);
    });
    let upstream = worker.upstream(&[fake.address]);
    let fetched = worker.fetch(&upstream, get()).await;
    assert_eq!(target(&upstream).in_flight.count(), 0);
    fetched
}

#[test]
fn a_cut_body_is_an_error() {
    on_worker(async |worker| {
        for response in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"[..],
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nha",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nhalf\r\n0\r\n\r\n",
        ] {
            assert_eq!(kind(fetch(&worker, response).await), ErrorKind::BadResponse);
        }
    });
}

#[test]
fn close_delimited_bodies_pass() {
    on_worker(async |worker| {
        for response in [&b"HTTP/1.1 200 OK\r\n\r\nall of it"[..], b"HTTP/1.0 200 OK\r\n\r\nall of it"] {
            assert_eq!(text(fetch(&worker, response).await), "all of it");
        }
    });
}

#[test]
fn chunks_and_trailers_pass_and_the_connection_stays() {
    on_worker(async |worker| {
        let fake = Fake::answering(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n3\r\none\r\n4\r\n two\r\n0\r\nx-sum: 7\r\n\r\n",
        );
        let upstream = worker.upstream(&[fake.address]);
        for _ in 0..2 {
            let (head, text, trailers) = worker.fetch(&upstream, get()).await.unwrap();
            assert_eq!(head.headers()["trailer"], "x-sum");
            assert_eq!(text, "one two");
            assert_eq!(trailers.unwrap()["x-sum"], "7");
        }
        assert_eq!(fake.accepted(), 1);
    });
}

#[test]
fn interim_responses_are_left_out() {
    on_worker(async |worker| {
        let response = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let (head, text, _) = fetch(&worker, response).await.unwrap();
        assert_eq!((head.status().as_u16(), &*text), (200, "ok"));
        assert!(head.headers().get("link").is_none());
    });
}

#[test]
fn what_is_no_response() {
    on_worker(async |worker| {
        for response in [
            &b""[..],
            b"garbage\r\n\r\n",
            b"HTTP/1.1 200 O",
            b"HTTP/1.1 200 OK\r\nbad name: 1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nx: 1\r\n folded\r\ncontent-length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
            b"HTTP/1.1 200 OK\r\nx: 1\ncontent-length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nx: 1\rcontent-length: 2\r\n\r\nok",
            b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n",
            b"\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nxx",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok",
            b"HTTP/2 200 OK\r\n\r\n",
        ] {
            let shown = String::from_utf8_lossy(response);
            let fetched = fetch(&worker, response).await;
            assert!(matches!(&fetched, Err(error) if error.kind == ErrorKind::BadResponse), "{shown:?} {fetched:?}");
        }
    });
}

#[test]
fn the_heads_limits() {
    on_worker(async |worker| {
        let head = |fields: usize, size: usize| -> &'static [u8] {
            let field = format!("x: {}\r\n", "v".repeat(size));
            format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n{}\r\nok", field.repeat(fields)).leak().as_bytes()
        };
        assert_eq!(text(fetch(&worker, head(99, 500)).await), "ok");
        assert_eq!(kind(fetch(&worker, head(100, 1)).await), ErrorKind::BadResponse);
        assert_eq!(kind(fetch(&worker, head(50, 2000)).await), ErrorKind::BadResponse);
        assert_eq!(kind(fetch(&worker, head(1, 1 << 20)).await), ErrorKind::BadResponse);
    });
}

#[test]
fn no_response_in_time() {
    on_worker(async |mut worker| {
        worker.timeouts.response = Duration::from_millis(20);
        for body in [|| TestBody::empty(), || TestBody::known("body")] {
            let fake = Fake::start(|_, wire| {
                wire.request();
                wire.send(b"HTTP/1.1 200 OK\r\n");
                wire.wait_for_close();
            });
            let upstream = worker.upstream(&[fake.address]);
            assert_eq!(kind(worker.fetch(&upstream, request("POST", body())).await), ErrorKind::ResponseTimeout);
            assert_eq!((target(&upstream).in_flight.count(), target(&upstream).pool.len()), (0, 0));
            tokio::task::yield_now().await;
            fake.wait_for(|seen| *seen == Seen::Closed);
        }
    });
}

#[test]
fn a_target_that_does_not_take_the_body_is_out_of_time_too() {
    on_worker(async |mut worker| {
        worker.timeouts.response = Duration::from_millis(50);
        let fake = Fake::start(|_, wire| {
            wire.head();
            std::thread::park();
        });
        let upstream = worker.upstream(&[fake.address]);
        let piece: &str = "0123456789abcdef".repeat(64 << 10).leak();
        let body = TestBody::unknown((0..64).map(|_| TestFrame::Data(piece)));
        assert_eq!(kind(worker.fetch(&upstream, request("POST", body)).await), ErrorKind::ResponseTimeout);
    });
}
