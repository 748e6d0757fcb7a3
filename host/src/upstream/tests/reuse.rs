//! When a connection is used again, and when not.

use std::rc::Rc;

use super::support::*;
use crate::{
    error::ErrorKind,
    upstream::{Host, Upstream, Way, target::Target},
};

/// The upstream's only target.
pub fn target(upstream: &Upstream) -> &Rc<Target> {
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
                let response = worker.send(&upstream, request, Host::Target).await.unwrap();
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
        let response = worker.send(&upstream, get(), Host::Target).await.unwrap();
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

/// A target may answer early, and a client may not read before it has sent
/// everything: so the request goes on by itself.
#[test]
fn a_request_goes_on_while_its_response_comes() {
    on_worker(async |worker| {
        let fake = Fake::start(|_, wire| {
            while wire.request_after(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsta") {
                wire.send(b"rt!");
            }
        });
        let upstream = worker.upstream(&[fake.address]);
        let mut seen = Vec::new();
        for round in 1..=2 {
            let (send, wait) = tokio::sync::oneshot::channel();
            let body = TestBody::unknown([TestFrame::Data("start"), TestFrame::Wait(wait), TestFrame::Data("end")]);
            let response = worker.send(&upstream, request("POST", body), Host::Target).await.unwrap();
            send.send(()).unwrap();
            // Nobody reads the response, and the request arrives all the same.
            until(|| {
                seen.extend(fake.seen());
                seen.iter().filter(|seen| matches!(seen, Seen::Request(..))).count() == round
            })
            .await;
            assert_eq!(text(read(response).await), "start!");
            assert_eq!(target(&upstream).pool.len(), 1);
        }
        assert_eq!(seen.iter().filter(|seen| **seen == Seen::Accepted).count(), 1);
    });
}

#[test]
fn a_request_that_fails_cuts_its_response() {
    on_worker(async |worker| {
        let fake = Fake::start(|_, wire| {
            wire.request_after(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsta");
        });
        let upstream = worker.upstream(&[fake.address]);
        let (send, wait) = tokio::sync::oneshot::channel();
        let frames = [TestFrame::Data("start"), TestFrame::Wait(wait), TestFrame::Error(ErrorKind::BodyTooLarge)];
        let response = worker.send(&upstream, request("POST", TestBody::unknown(frames)), Host::Target).await.unwrap();
        let reading = tokio::task::spawn_local(read(response));
        tokio::task::yield_now().await;
        send.send(()).unwrap();
        assert_eq!(kind(reading.await.unwrap()), ErrorKind::BodyTooLarge);
        assert_eq!((target(&upstream).in_flight.count(), target(&upstream).pool.len()), (0, 0));
        tokio::task::yield_now().await;
        assert!(matches!(fake.wait_for_request(), (_, body) if body.ends_with("cut")));
    });
}
