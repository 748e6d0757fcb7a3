//! Upstreams with several targets, and targets that break down: who gets a
//! request, what is tried again, and when it is given up.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::support::{Client, Gate, Gateway, PATIENCE, Refusing, Response, Site, Upstream, eventually, ok};

/// A gateway with one route to these targets.
fn start(balance: &str, targets: &[(String, u32)], route: &str) -> Gateway {
    let targets: Vec<_> =
        targets.iter().map(|(address, weight)| format!("{{ url: \"http://{address}\", weight: {weight} }}")).collect();
    let site = Site::new();
    let yaml = format!(
        "workers: 1\nlisten: [address: 127.0.0.1:0]\nadmin: {{ address: 127.0.0.1:0 }}\n\
         upstreams: {{ all: {{ balance: {balance}, targets: [{}] }} }}\n\
         routes: [{{ name: all, upstream: all, {route} }}]\n",
        targets.join(", ")
    );
    site.put("weir.yaml", yaml);
    site.start()
}

fn start_one(address: SocketAddr, route: &str) -> Gateway {
    start("round_robin", &[(address.to_string(), 1)], route)
}

// Balance.

/// Upstreams that answer with their name.
fn named<const N: usize>(names: [&'static str; N]) -> [Upstream; N] {
    names.map(|name| Upstream::start(move |_| ok(name)))
}

#[test]
fn turns_are_exact_by_weight() {
    let upstreams = named(["a", "b", "c"]);
    let targets: Vec<_> =
        upstreams.iter().zip([5, 1, 1]).map(|(upstream, weight)| (upstream.address.to_string(), weight)).collect();
    let gateway = start("round_robin", &targets, "");
    // Whichever connection they come on.
    let mut clients = [gateway.connect(), gateway.connect()];
    let order: String = (0..28).map(|turn| clients[turn % 2].get("/").text()).collect();
    // As nginx has it: the heavy one is not asked five times in a row.
    assert_eq!(order, "aabacaa".repeat(4));
    for run in order.as_bytes().windows(7) {
        let count = |name| run.iter().filter(|byte| **byte == name).count();
        assert_eq!([count(b'a'), count(b'b'), count(b'c')], [5, 1, 1]);
    }
}

/// Connections of clients, of which two are on different workers: each worker has
/// connections of its own to the upstream of `/which`, which tells them apart.
fn on_two_workers(gateway: &Gateway) -> [Client; 2] {
    let mut first = gateway.connect();
    let worker = first.get("/which").text();
    let mut other = None;
    eventually("a connection to the other worker", || {
        let mut client = gateway.connect();
        other = (client.get("/which").text() != worker).then_some(client);
        other.is_some()
    });
    [first, other.unwrap()]
}

#[test]
fn requests_in_flight_are_counted_over_all_workers() {
    let gates = [Gate::default(), Gate::default()];
    let [a, b] = gates.clone().map(|gate| {
        Upstream::start(move |_| {
            gate.pass();
            ok("late")
        })
    });
    let which = Scripted::start(|number, wire| {
        while wire.request().is_some() {
            wire.send(&ok(&number.to_string()));
        }
    });
    let site = Site::new();
    let yaml = format!(
        "workers: 2\nlisten: [address: 127.0.0.1:0]\n\
         upstreams: {{ held: {{ balance: least_requests, targets: [{{ url: \"{}\" }}, {{ url: \"{}\" }}] }} }}\n\
         routes:\n  - {{ name: held, upstream: held }}\n\
         \x20 - {{ name: which, match: {{ path: /which }}, upstream: \"http://{}\" }}\n",
        a.url(),
        b.url(),
        which.address
    );
    site.put("weir.yaml", yaml);
    let gateway = site.start();
    let mut clients = on_two_workers(&gateway);
    // Each worker by itself would begin with the first one.
    for (place, client) in clients.iter_mut().enumerate() {
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        eventually("held", || a.requests() + b.requests() == place + 1);
    }
    assert_eq!((a.requests(), b.requests()), (1, 1));
    // What is over is counted no more: of the two, only this one is idle now.
    gates[0].open();
    assert_eq!(clients[0].response().text(), "late");
    let mut clients = on_two_workers(&gateway);
    for turn in 0..6 {
        assert_eq!(clients[turn % 2].get("/").text(), "late");
    }
    assert_eq!((a.requests(), b.requests()), (7, 1));
    gates[1].open();
}

// Targets that break down.

/// An upstream that is a script for each of its connections, which are numbered.
struct Scripted {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    /// Of the connection that it came on.
    connection: usize,
    head: String,
    body: String,
}

struct Wire {
    number: usize,
    stream: BufReader<TcpStream>,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Scripted {
    fn start(script: impl Fn(usize, &mut Wire) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (script, shared) = (Arc::new(script), seen.clone());
        thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (script, seen) = (script.clone(), shared.clone());
                thread::spawn(move || script(number, &mut Wire { number, stream: BufReader::new(stream), seen }));
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

impl Wire {
    /// A whole request, unless the connection ends before.
    fn request(&mut self) -> Option<Request> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(self.stream.read_line(&mut head), Ok(1..)) {
                return None;
            }
        }
        let field = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(": "));
            fields.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        let mut body = Vec::new();
        if let Some(length) = field("content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut body).ok()?;
        } else if field("transfer-encoding") == Some("chunked") {
            while !body.ends_with(b"0\r\n\r\n") {
                self.stream.read_until(b'\n', &mut body).ok().filter(|read| *read > 0)?;
            }
        }
        let request = Request { connection: self.number, head, body: String::from_utf8(body).unwrap() };
        self.seen.lock().unwrap().push(request.clone());
        Some(request)
    }

    fn send(&mut self, text: &str) {
        let _ = self.stream.get_mut().write_all(text.as_bytes());
    }

    /// Ends its own side.
    fn end(&mut self) {
        let _ = self.stream.get_mut().shutdown(Shutdown::Write);
    }

    /// Waits until the other side has seen an end, or has had enough.
    fn wait_for_end(&mut self) {
        let _ = self.stream.read_to_end(&mut Vec::new());
    }
}

fn ask(client: &mut Client, method: &str, body: &str) -> Response {
    client.send(&format!("{method} /x HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    client.response()
}

fn last_error(gateway: &Gateway) -> Value {
    let line = gateway.access_log.wait_for("\"error\"");
    serde_json::from_str::<Value>(&line).unwrap()["error"].clone()
}

#[test]
fn the_next_target_gets_the_whole_request() {
    let refusing = [Refusing::new(), Refusing::new()];
    let good = Scripted::start(|_, wire| {
        while wire.request().is_some() {
            wire.send(&ok("taken"));
        }
    });
    let mut targets = refusing.each_ref().map(|refusing| (refusing.address().to_string(), 100)).to_vec();
    targets.push((good.address.to_string(), 1));
    for balance in ["round_robin", "least_requests"] {
        let gateway = start(balance, &targets, "preserve_host: false");
        let mut client = gateway.connect();
        let long = "long".repeat(100_000);
        let chunked =
            "POST /x HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n4\r\ntwo!\r\n0\r\n\r\n";
        for _ in 0..2 {
            assert_eq!(ask(&mut client, "POST", "short").text(), "taken");
            assert_eq!(ask(&mut client, "PATCH", &long).text(), "taken");
            client.send(chunked);
            assert_eq!(client.response().text(), "taken");
        }
        let seen = std::mem::take(&mut *good.seen.lock().unwrap());
        assert_eq!(seen.len(), 6);
        for requests in seen.chunks(3) {
            assert_eq!((requests[0].body.as_str(), requests[1].body == long), ("short", true));
            assert!(requests[2].body.contains("one\r\n") && requests[2].body.contains("two!\r\n"), "{requests:?}");
        }
        // Its own name, not that of the first who was tried.
        let host = format!("host: {}\r\n", good.address);
        assert!(seen.iter().all(|request| request.head.contains(&host)), "{seen:?}");
    }
    let gateway = start("round_robin", &targets[..2], "");
    assert_eq!(ask(&mut gateway.connect(), "POST", "body").status, 502);
    assert_eq!(last_error(&gateway), "connect");
}

/// Each request gets its own answer, also one that can't be sent a second time,
/// though each connection is spoiled behind its first answer: by bytes that come
/// together with it, and by what is done before the next request.
fn check_that_spoiled_connections_are_left(behind: &'static str, spoil: fn(&mut Wire)) {
    let (go, gate) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let (gate, tell) = (Mutex::new(gate), Mutex::new(tell));
    let scripted = Scripted::start(move |number, wire| {
        while wire.request().is_some() {
            wire.send(&(ok(&number.to_string()) + behind));
            gate.lock().unwrap().recv().unwrap();
            spoil(wire);
            tell.lock().unwrap().send(()).unwrap();
        }
    });
    let gateway = start_one(scripted.address, "");
    let mut client = gateway.connect();
    for number in 0..4 {
        let answer = ask(&mut client, "POST", "body");
        assert_eq!((answer.status, answer.text()), (200, number.to_string()));
        go.send(()).unwrap();
        // From then on it lies in the gateway's socket, whether it has looked or not.
        told.recv_timeout(PATIENCE).unwrap();
    }
    let seen = scripted.seen();
    assert_eq!(seen.iter().map(|request| request.connection).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(seen.iter().all(|request| request.body == "body"), "{seen:?}");
}

#[test]
fn a_connection_that_has_ended_is_not_used_again() {
    check_that_spoiled_connections_are_left("", Wire::end);
}

/// Bytes behind a response would be the answer to somebody else's request.
#[test]
fn a_connection_with_stray_bytes_is_not_used_again() {
    check_that_spoiled_connections_are_left("", |wire| wire.send(&ok("stray")));
    check_that_spoiled_connections_are_left("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray", |_| {});
}

const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// An upstream that reads so many requests without an answer, and hangs up each
/// time; the first on each connection that it takes after that is answered.
fn hanging_up(times: usize) -> Scripted {
    let left = Mutex::new(times);
    Scripted::start(move |_, wire| {
        let mut answered = false;
        while wire.request().is_some() {
            let mut left = left.lock().unwrap();
            // The first request of all warms the connection up.
            if wire.number == 0 && !answered {
                answered = true;
            } else if *left > 0 {
                *left -= 1;
                return;
            }
            wire.send(EMPTY);
        }
    })
}

#[test]
fn only_what_is_idempotent_and_has_no_body_is_sent_again() {
    for (method, body, repeated) in [
        ("GET", "", true),
        ("HEAD", "", true),
        ("OPTIONS", "", true),
        ("PUT", "", true),
        ("DELETE", "", true),
        ("POST", "", false),
        ("PATCH", "", false),
        ("GET", "body", false),
        ("PUT", "body", false),
        ("DELETE", "body", false),
    ] {
        let scripted = hanging_up(1);
        let gateway = start_one(scripted.address, "");
        let mut client = gateway.connect();
        assert_eq!(ask(&mut client, "GET", "").status, 200);
        let response = ask(&mut client, method, body);
        let seen = scripted.seen();
        let what = format!("{method} {body:?}: {seen:?}");
        assert_eq!((response.status, seen.len()), if repeated { (200, 3) } else { (502, 2) }, "{what}");
        assert_eq!(seen[1].connection, 0, "{what}");
        if repeated {
            assert_eq!((seen[2].connection, &seen[2].head), (1, &seen[1].head), "{what}");
        } else {
            assert_eq!(last_error(&gateway), "bad_response", "{what}");
        }
    }
}

#[test]
fn a_request_is_sent_again_once_at_most() {
    let scripted = hanging_up(2);
    let gateway = start_one(scripted.address, "");
    let mut client = gateway.connect();
    assert_eq!(ask(&mut client, "GET", "").status, 200);
    assert_eq!(ask(&mut client, "GET", "").status, 502);
    assert_eq!(scripted.seen().iter().map(|request| request.connection).collect::<Vec<_>>(), [0, 0, 1]);
    // That was all: the next one is answered.
    assert_eq!(ask(&mut client, "GET", "").status, 200);
}

/// A connection that was opened for the request has not gone stale: whoever ends
/// it has seen the request.
#[test]
fn what_ends_a_new_connection_is_not_sent_again() {
    let scripted = Scripted::start(|_, wire| drop(wire.request()));
    let gateway = start_one(scripted.address, "");
    assert_eq!(ask(&mut gateway.connect(), "GET", "").status, 502);
    assert_eq!(scripted.seen().len(), 1);
}

// Time.

/// An address where connections are neither taken nor refused: the queue is full.
fn full() -> (SocketAddr, Socket, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(1).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
    let waiting = std::iter::from_fn(connect).collect();
    (address, socket, waiting)
}

#[test]
fn a_target_that_takes_no_connection_is_given_up() {
    let (address, _socket, _waiting) = full();
    let timeouts = "timeouts: { connect: 500ms }";
    let gateway = start_one(address, timeouts);
    assert_eq!(ask(&mut gateway.connect(), "POST", "body").status, 504);
    assert_eq!(last_error(&gateway), "connect_timeout");
    assert_eq!(gateway.metric("weir_upstream_errors_total{upstream=\"all\",kind=\"connect_timeout\"}"), 1);

    // Where there is another one, it is asked.
    let good = Scripted::start(|_, wire| {
        wire.request();
        wire.send(EMPTY);
    });
    let gateway = start("round_robin", &[(address.to_string(), 1), (good.address.to_string(), 1)], timeouts);
    assert_eq!(ask(&mut gateway.connect(), "POST", "body").status, 200);
    assert_eq!(good.seen()[0].body, "body");
}

#[test]
fn a_target_that_does_not_answer_in_time_is_given_up() {
    for (timeouts, error) in [
        ("response: 200ms", "response_timeout"),
        ("total: 200ms", "total_timeout"),
        ("response: 1h, total: 200ms", "total_timeout"),
    ] {
        let scripted = Scripted::start(|_, wire| {
            wire.request();
            wire.wait_for_end();
        });
        let gateway = start_one(scripted.address, &format!("timeouts: {{ {timeouts} }}"));
        assert_eq!(ask(&mut gateway.connect(), "GET", "").status, 504, "{timeouts}");
        assert_eq!(last_error(&gateway), error, "{timeouts}");
        assert_eq!(gateway.metric(&format!("weir_upstream_errors_total{{upstream=\"all\",kind=\"{error}\"}}")), 1);
        // It has not been asked twice.
        assert_eq!(scripted.seen().len(), 1);
    }
}

/// The total is for the whole answer: one that takes longer is cut, and looks it.
#[test]
fn an_answer_that_takes_too_long_in_all_is_cut() {
    let scripted = Scripted::start(|_, wire| {
        wire.request();
        wire.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
        wire.wait_for_end();
    });
    let gateway = start_one(scripted.address, "timeouts: { total: 1s }");
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let error = client.try_response().expect_err("half an answer");
    assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it was not cut");
    assert_eq!(last_error(&gateway), "total_timeout");
}
