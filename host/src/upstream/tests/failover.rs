//! Targets that can't be reached, and connections that die.

use std::time::Duration;

use http::HeaderValue;

use super::{reuse::target, support::*};
use crate::{error::ErrorKind, upstream::http1::Connection};

#[test]
fn the_next_target_gets_the_whole_body() {
    on_worker(async |worker| {
        let refusing = [Refusing::new(), Refusing::new()];
        let fake = Fake::answering(OK);
        let targets = [refusing[0].address(), refusing[1].address(), fake.address];
        let upstream = worker.upstream(&targets);
        for _ in 0..3 {
            let body = TestBody::unknown([TestFrame::Data("all "), TestFrame::Data("of it")]);
            assert_eq!(text(worker.fetch(&upstream, request("POST", body)).await), "ok");
            let (head, body) = fake.wait_for_request();
            assert_eq!(body, "4\r\nall \r\n5\r\nof it\r\n0\r\n\r\n");
            assert!(head.contains(&format!("host: {}\r\n", fake.address)), "{head}");
        }
    });
}

#[test]
fn no_target_at_all() {
    on_worker(async |worker| {
        let refusing = [Refusing::new(), Refusing::new()];
        let upstream = worker.upstream(&[refusing[0].address(), refusing[1].address()]);
        let error = worker.fetch(&upstream, post("body")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connect);
        assert!(error.to_string().contains(&refusing[1].address().to_string()), "{error}");
        assert_eq!(target(&upstream).in_flight.count(), 0);
    });
}

/// Its queue is full, so the kernel leaves further connections unanswered.
#[cfg(target_os = "linux")]
#[test]
fn a_target_that_does_not_accept() {
    on_worker(async |mut worker| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(1).unwrap();
        let address = full.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) =
            tokio::time::timeout(Duration::from_millis(200), tokio::net::TcpStream::connect(address)).await
        {
            waiting.push(stream.unwrap());
        }
        worker.timeouts.connect = Duration::from_millis(20);
        let upstream = worker.upstream(&[address]);
        assert_eq!(kind(worker.fetch(&upstream, get()).await), ErrorKind::ConnectTimeout);

        worker.timeouts.connect = Duration::from_millis(300);
        let fake = Fake::answering(OK);
        let upstream = worker.upstream(&[address, fake.address]);
        assert_eq!(text(worker.fetch(&upstream, post("body")).await), "ok");
        assert_eq!(fake.wait_for_request().1, "body");
    });
}

#[test]
fn a_name_with_several_addresses() {
    on_worker(async |worker| {
        // `localhost` may have ::1 first, where nobody listens.
        let fake = Fake::answering(OK);
        let mut config = upstream("named", Default::default(), &[fake.address]);
        let crate::config::UpstreamKind::Targets { targets, .. } = &mut config.kind else { unreachable!() };
        targets[0].host = "localhost".into();
        targets[0].authority = format!("localhost:{}", fake.address.port()).into();
        let upstream = worker.pools.upstream(&config, &Default::default());
        assert_eq!(text(worker.fetch(&upstream, get()).await), "ok");
        assert!(fake.wait_for_request().0.contains("host: localhost:"));
    });
}

/// A target whose first connection dies with its second request.
fn dying_on_the_second() -> Fake {
    Fake::start(|number, wire| {
        wire.request();
        wire.send(EMPTY);
        while wire.request() && number > 0 {
            wire.send(EMPTY);
        }
    })
}

#[test]
fn who_may_be_repeated() {
    let with = || TestBody::known("body");
    type Case = (&'static str, fn() -> TestBody, bool);
    let cases: [Case; 10] = [
        ("GET", TestBody::empty, true),
        ("HEAD", TestBody::empty, true),
        ("OPTIONS", TestBody::empty, true),
        ("PUT", TestBody::empty, true),
        ("DELETE", TestBody::empty, true),
        ("POST", TestBody::empty, false),
        ("PATCH", TestBody::empty, false),
        ("GET", with, false),
        ("PUT", with, false),
        ("POST", with, false),
    ];
    for (method, body, repeated) in cases {
        on_worker(async |worker| {
            let fake = dying_on_the_second();
            let upstream = worker.upstream(&[fake.address]);
            assert_eq!(text(worker.fetch(&upstream, get()).await), "");
            let mut request = request(method, body());
            request.headers_mut().append("x-one", HeaderValue::from_static("1"));
            request.headers_mut().append("x-two", HeaderValue::from_static(""));
            request.headers_mut().append("x-one", HeaderValue::from_bytes(b"\xff: 2").unwrap());
            let fetched = worker.fetch(&upstream, request).await;
            fake.wait_for_request();
            let dead = fake.wait_for_request();
            if repeated {
                assert_eq!(fetched.unwrap().0.status(), 200, "{method}");
                assert_eq!(fake.wait_for_request(), dead, "{method}: byte for byte");
                assert_eq!(target(&upstream).pool.len(), 1);
            } else {
                assert_eq!(kind(fetched), ErrorKind::BadResponse, "{method}");
                assert_eq!(fake.accepted(), 0, "{method}");
            }
            assert_eq!(target(&upstream).in_flight.count(), 0);
        });
    }
}

#[test]
fn a_fresh_connection_that_dies_is_not_repeated() {
    on_worker(async |worker| {
        let fake = Fake::start(|_, wire| assert!(wire.request()));
        let upstream = worker.upstream(&[fake.address]);
        assert_eq!(kind(worker.fetch(&upstream, get()).await), ErrorKind::BadResponse);
        assert_eq!(fake.accepted(), 1);
    });
}

#[test]
fn repeated_once_only() {
    on_worker(async |worker| {
        let fake = Fake::start(|number, wire| {
            wire.request();
            if number == 0 {
                wire.send(OK);
                wire.request();
            }
        });
        let upstream = worker.upstream(&[fake.address]);
        assert_eq!(text(worker.fetch(&upstream, get()).await), "ok");
        assert_eq!(kind(worker.fetch(&upstream, get()).await), ErrorKind::BadResponse);
        assert_eq!(fake.accepted(), 2);
    });
}

/// A connection that looks well, but takes nothing.
#[test]
fn whatever_was_not_written_is_repeated() {
    on_worker(async |worker| {
        for (body, sent) in [
            (TestBody::known("body"), "body"),
            (TestBody::unknown([TestFrame::Data("bo"), TestFrame::Data("dy")]), "2 bo 2 dy 0  "),
            // Its end has come before anything was written.
            (TestBody::unknown([]), "0  "),
        ] {
            let fake = Fake::start(|number, wire| match number {
                0 => std::thread::park(),
                _ => {
                    while wire.request() {
                        wire.send(OK)
                    }
                }
            });
            let upstream = worker.upstream(&[fake.address]);
            let stream = tokio::net::TcpStream::connect(fake.address).await.unwrap();
            socket2::SockRef::from(&stream).shutdown(std::net::Shutdown::Write).unwrap();
            target(&upstream).pool.put(Connection::new(stream).unwrap());
            assert_eq!(text(worker.fetch(&upstream, request("POST", body)).await), "ok");
            assert_eq!(fake.wait_for_request().1.replace("\r\n", " "), sent);
        }
    });
}
