//! When a connection is used again, and when not.

use std::rc::Rc;

use super::support::*;
use crate::upstream::{Host, Upstream, Way, target::Target};

/// The upstream's only target.
pub fn target(upstream: &Upstream<TestBody>) -> &Rc<Target<TestBody>> {
    match &upstream.way {
        Way::Targets(_, targets) => &targets[0],
        Way::Echo => panic!("no target"),
    }
}

#[test]
fn one_connection_for_many_requests() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[fake.address]);
        for _ in 0..3 {
            assert_eq!(text(worker.fetch(&upstream, get()).await), "ok");
            assert_eq!(text(worker.fetch(&upstream, post("body")).await), "ok");
        }
        assert_eq!(fake.accepted(), 1);
        assert_eq!(target(&upstream).pool.len(), 1);
    });
}

#[test]
fn two_requests_at_a_time_take_two() {
    on_worker(async |worker| {
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[fake.address]);
        let (one, other) = tokio::join!(worker.fetch(&upstream, get()), worker.fetch(&upstream, get()));
        assert_eq!((text(one), text(other)), ("ok".into(), "ok".into()));
        assert_eq!(target(&upstream).pool.len(), 2);
        assert_eq!(fake.accepted(), 2);
    });
}

#[test]
fn answers_without_a_body_leave_the_connection_at_once() {
    for (method, response) in [
        ("HEAD", &b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"[..]),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n"),
        ("POST", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ] {
        on_worker(async |worker| {
            let fake = Fake::answering(response);
            let upstream = worker.upstream(&[fake.address]);
            for _ in 0..2 {
                let request = request(method, TestBody::empty());
                let response = upstream.send(request, Host::Target, &worker.timeouts).await.unwrap();
                assert_eq!(target(&upstream).pool.len(), 1);
                assert_eq!(text(read(response).await), "");
            }
            assert_eq!(fake.accepted(), 1);
        });
    }
}

/// Bytes after a response would be the answer to somebody else's request.
#[test]
fn stray_bytes_with_the_response() {
    on_worker(async |worker| {
        let fake = Fake::start(|_, wire| {
            while wire.request() {
                wire.send(&[OK, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray"].concat());
            }
        });
        let upstream = worker.upstream(&[fake.address]);
        for _ in 0..2 {
            assert_eq!(text(worker.fetch(&upstream, get()).await), "ok");
        }
        assert_eq!(fake.accepted(), 2);
    });
}

#[test]
fn stray_bytes_while_idle() {
    on_worker(async |worker| {
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let told = std::sync::Mutex::new(told);
        let fake = Fake::start(move |number, wire| {
            wire.request();
            wire.send(OK);
            if number == 0 {
                let _ = told.lock().unwrap().recv();
                wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray");
            }
            wire.wait_for_close();
        });
        let upstream = worker.upstream(&[fake.address]);
        assert_eq!(text(worker.fetch(&upstream, get()).await), "ok");
        tell.send(()).unwrap();
        until(|| target(&upstream).pool.checkout().map(|link| target(&upstream).pool.put(link)).is_none()).await;
        assert_eq!(text(worker.fetch(&upstream, post("body")).await), "ok");
        assert_eq!(fake.accepted(), 2);
    });
}

#[test]
fn closed_while_idle() {
    on_worker(async |worker| {
        let fake = Fake::start(|_, wire| {
            wire.request();
            wire.send(OK);
        });
        let upstream = worker.upstream(&[fake.address]);
        for _ in 0..3 {
            assert_eq!(text(worker.fetch(&upstream, post("body")).await), "ok");
            until(|| target(&upstream).pool.checkout().map(|link| target(&upstream).pool.put(link)).is_none()).await;
        }
        assert_eq!(fake.accepted(), 3);
    });
}

#[test]
fn a_connection_that_says_it_closes_is_not_kept() {
    for response in [
        &b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"[..],
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        // Kept, it would have to be spoken to in HTTP/1.0.
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
    ] {
        on_worker(async |worker| {
            let fake = Fake::answering(response);
            let upstream = worker.upstream(&[fake.address]);
            assert_eq!(text(worker.fetch(&upstream, get()).await), "ok");
            assert_eq!(target(&upstream).pool.len(), 0);
            tokio::task::yield_now().await;
            fake.wait_for(|seen| *seen == Seen::Closed);
        });
    }
}

#[test]
fn a_response_dropped_half_way_closes() {
    on_worker(async |worker| {
        let fake = Fake::start(|_, wire| {
            wire.request();
            wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
            wire.wait_for_close();
        });
        let upstream = worker.upstream(&[fake.address]);
        let response = upstream.send(get(), Host::Target, &worker.timeouts).await.unwrap();
        assert_eq!(target(&upstream).in_flight.count(), 1);
        drop(response);
        assert_eq!(target(&upstream).in_flight.count(), 0);
        assert_eq!(target(&upstream).pool.len(), 0);
        tokio::task::yield_now().await;
        fake.wait_for(|seen| *seen == Seen::Closed);
    });
}

/// What is left of the request has nobody any more who waits for it.
#[test]
fn a_response_before_the_request_has_ended_closes() {
    on_worker(async |worker| {
        let fake = Fake::start(|_, wire| {
            wire.head();
            wire.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno");
            wire.wait_for_close();
        });
        let upstream = worker.upstream(&[fake.address]);
        let (_never, wait) = tokio::sync::oneshot::channel();
        let body = TestBody::unknown([TestFrame::Data("start"), TestFrame::Wait(wait), TestFrame::Data("end")]);
        let (head, text, _) = worker.fetch(&upstream, request("POST", body)).await.unwrap();
        assert_eq!((head.status().as_u16(), &*text), (413, "no"));
        assert_eq!(target(&upstream).pool.len(), 0);
        tokio::task::yield_now().await;
        fake.wait_for(|seen| *seen == Seen::Closed);
    });
}
