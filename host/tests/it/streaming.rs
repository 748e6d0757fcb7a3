//! Bodies on their way: nothing is held back, nothing is added, and what was cut
//! short looks cut short.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

use crate::support::{Gateway, PATIENCE, Site, read_until, scripted};

fn gateway(upstream: SocketAddr, listener: &str, route: &str) -> Gateway {
    let site = Site::new();
    let yaml = format!(
        "workers: 1\nlisten: [{{ address: 127.0.0.1:0, {listener} }}]\n\
         routes: [{{ name: all, upstream: \"http://{upstream}\", {route} }}]\n"
    );
    site.put("weir.yaml", yaml);
    site.start()
}

fn connect(gateway: &Gateway) -> TcpStream {
    let stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Everything up to the end, and whether that was a reset.
fn read_all(stream: &mut TcpStream) -> (String, bool) {
    let mut read = Vec::new();
    let reset = stream.read_to_end(&mut read).is_err();
    (String::from_utf8_lossy(&read).into_owned(), reset)
}

#[test]
fn pipelined_requests_are_answered_in_order_on_one_connection() {
    let upstream = scripted(|mut stream| {
        loop {
            let head = read_until(&mut stream, "\r\n\r\n");
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let gateway = gateway(upstream, "", "");
    let mut client = connect(&gateway);
    client.write_all(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let (all, _) = read_all(&mut client);
    let bodies: Vec<_> = all.split("\r\n\r\n").skip(1).map(|part| &part[..2]).collect();
    assert_eq!(bodies, ["/1", "/2", "/3"], "{all}");
}

#[test]
fn a_request_body_arrives_as_it_was_sent_while_it_is_sent() {
    let (sender, received) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let upstream = scripted(move |mut stream| {
        let head = read_until(&mut stream, "\r\n\r\n");
        sender.lock().unwrap().send(head).unwrap();
        for _ in 0..2 {
            let size = read_until(&mut stream, "\r\n");
            let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap() + 2];
            stream.read_exact(&mut chunk).unwrap();
            sender.lock().unwrap().send(String::from_utf8(chunk).unwrap()).unwrap();
        }
        read_until(&mut stream, "0\r\n\r\n");
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let gateway = gateway(upstream, "", "");
    let mut client = connect(&gateway);
    client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    assert!(received.recv().unwrap().to_lowercase().contains("transfer-encoding: chunked\r\n"));
    for part in ["one", "two!"] {
        client.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).unwrap();
        // It is there before the next one is sent: nothing waits for the whole.
        assert_eq!(received.recv_timeout(PATIENCE).unwrap(), format!("{part}\r\n"));
    }
    client.write_all(b"0\r\n\r\n").unwrap();
    let head = read_until(&mut client, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 204") && !head.contains("content-length"), "{head}");
}

#[test]
fn an_event_is_not_held_back() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let upstream = scripted(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n").unwrap();
        let _ = gate.lock().unwrap().recv();
        let _ = stream.write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n");
    });
    let gateway = gateway(upstream, "", "plugins: [{ response-transform: { headers: { set: { x-a: b } } } }]");
    let mut client = connect(&gateway);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(read_until(&mut client, "\r\n\r\n").contains("x-a: b\r\n"));
    read_until(&mut client, "data: 1\n\n\r\n");
    go.send(()).unwrap();
    read_until(&mut client, "data: 2\n\n\r\n0\r\n\r\n");
}

#[test]
fn trailers_reach_a_client_that_takes_them() {
    let upstream = scripted(|mut stream| {
        let head = read_until(&mut stream, "\r\n\r\n").to_lowercase();
        assert!(head.contains("te: trailers\r\n"), "{head}");
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 42\r\n\r\n",
        );
    });
    let gateway = gateway(upstream, "", "");
    let mut client = connect(&gateway);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: te\r\n\r\n").unwrap();
    let all = read_until(&mut client, "x-sum: 42\r\n\r\n");
    assert!(all.contains("2\r\nhi\r\n0\r\n"), "{all}");
}

#[test]
fn answers_without_a_body_leave_the_connection_usable() {
    let upstream = scripted(|mut stream| {
        loop {
            let head = read_until(&mut stream, "\r\n\r\n");
            let answer: &[u8] = match head.split(' ').nth(1).unwrap() {
                "/204" => b"HTTP/1.1 204 No Content\r\n\r\n",
                "/205" => b"HTTP/1.1 205 Reset Content\r\nContent-Length: 5\r\n\r\nhello",
                "/299" => b"HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n",
                "/304" => b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 5\r\n\r\n",
                _ if head.starts_with("HEAD") => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                _ => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            };
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    });
    let gateway = gateway(upstream, "", "");
    let mut client = connect(&gateway);
    for (request, line, length) in [
        ("HEAD /x", "200 OK", Some(5)),
        ("GET /204", "204 No Content", None),
        // No body comes with it, whatever the target sends (RFC 9110 section 15.3.6).
        ("GET /205", "205 Reset Content", Some(0)),
        // A status without a name.
        ("GET /299", "299 ", Some(0)),
        // It may leave the length out (RFC 9110 section 8.6), and hyper does.
        ("GET /304", "304 Not Modified", None),
        ("HEAD /x", "200 OK", Some(5)),
    ] {
        client.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let head = read_until(&mut client, "\r\n\r\n");
        assert!(head.starts_with(&format!("HTTP/1.1 {line}\r\n")), "{head}");
        let told = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map(str::to_owned);
        assert_eq!(told, length.map(|length: u8| length.to_string()), "{head}");
    }
    client.write_all(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    read_until(&mut client, "\r\n\r\nhello");
}

#[test]
fn a_body_is_asked_for_only_when_it_is_wanted() {
    // A refused upload is refused before its first byte.
    let site = Site::new();
    site.put(
        "weir.yaml",
        "listen: [{ address: 127.0.0.1:0 }]\nroutes:\n\
         - { name: closed, match: { path_prefix: /closed }, upstream: \"internal:echo\", plugins: [{ key-auth: {} }] }\n\
         - { name: open, upstream: \"internal:echo\" }\n",
    );
    let gateway = site.start();
    let mut client = connect(&gateway);
    client
        .write_all(b"POST /closed HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
        .unwrap();
    let (all, _) = read_all(&mut client);
    assert!(all.starts_with("HTTP/1.1 401 "), "{all}");

    let mut client = connect(&gateway);
    client.write_all(b"POST /open HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n").unwrap();
    assert!(read_until(&mut client, "\r\n\r\n").starts_with("HTTP/1.1 100 "));
    client.write_all(b"body").unwrap();
    assert!(read_until(&mut client, "\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn what_is_cut_short_looks_cut_short() {
    for (answer, request, why) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "HTTP/1.1", "unexpected end of file"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "HTTP/1.1", "unexpected end of file"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "HTTP/1.0", "unexpected end of file"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nx", "HTTP/1.1", "unexpected end of file"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nx\r\n", "HTTP/1.1", "size that is none"),
    ] {
        let upstream = scripted(move |mut stream| {
            read_until(&mut stream, "\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            let _ = stream.shutdown(Shutdown::Both);
        });
        let gateway = gateway(upstream, "", "");
        let mut client = connect(&gateway);
        client.write_all(format!("GET / {request}\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let (all, reset) = read_all(&mut client);
        assert!(!all.ends_with("0\r\n\r\n"), "{all:?} looks whole");
        // HTTP/1.0 has nothing but the end of the connection to tell by.
        assert!(request == "HTTP/1.1" || reset, "{all:?} ends like a whole answer");
        let line = gateway.log.wait_for("response cut: bad_response: ");
        assert!(line.contains(&upstream.to_string()) && line.contains(why), "{line}");
        let logged: serde_json::Value = serde_json::from_str(&gateway.access_log.wait_for("\"error\"")).unwrap();
        assert_eq!(logged["error"], "bad_response");
        assert!(line.contains(logged["id"].as_str().unwrap()), "{line} {logged}");
    }
}

#[test]
fn an_old_client_gets_a_body_it_can_read() {
    let upstream = scripted(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    });
    let gateway = gateway(upstream, "", "");
    let mut client = connect(&gateway);
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let (all, reset) = read_all(&mut client);
    assert!(all.ends_with("\r\n\r\nhello") && !all.contains("chunked") && !reset, "{all}");
}

#[test]
fn a_reader_that_stalls_stalls_the_upstream() {
    // What is read from the upstream is bounded by what the client has taken.
    const BODY: usize = 256 << 20;
    let (sender, sent) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let upstream = scripted(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n").as_bytes()).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let block = vec![b'x'; 1 << 16];
        let mut total = 0;
        // Ends at the first write that nobody makes room for.
        while total < BODY && stream.write_all(&block).is_ok() {
            total += block.len();
        }
        sender.lock().unwrap().send(total).unwrap();
    });
    let gateway = gateway(upstream, "", "");
    let mut client = connect(&gateway);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    read_until(&mut client, "\r\n\r\n");
    let total = sent.recv_timeout(PATIENCE).unwrap();
    // Socket buffers of the system on both sides, and little of ours.
    assert!(total < 64 << 20, "{total} bytes were taken for nobody");
}

#[test]
fn a_body_that_breaks_off_is_told_from_one_that_is_none() {
    // Takes all and says nothing.
    let upstream = scripted(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let gateway = gateway(upstream, "", "");
    for (chunks, why) in [
        ("5\nhello\n0\n\n", "a body with invalid chunks"),
        ("FFFFFFFFFFFFFFFFF\r\n", "a body with invalid chunks"),
        ("5 hello\r\n", "a body with invalid chunks"),
        ("5\r\nhell", "the request was cut short"),
    ] {
        let mut stream = connect(&gateway);
        let head = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}{chunks}").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(why), "{chunks:?}: {answer}");
    }
}

#[test]
fn a_client_that_sends_too_slowly_is_let_go() {
    let upstream = scripted(|mut stream| drop(read_all(&mut stream)));
    let gateway = gateway(upstream, "timeouts: { head: 100ms, body_idle: 100ms, keep_alive: 100ms }", "");
    // No byte at all, half a head, and nothing after an answer.
    for start in ["", "GET / HT", "GET /%00 HTTP/1.1\r\nHost: x\r\n"] {
        let mut client = connect(&gateway);
        client.write_all(start.as_bytes()).unwrap();
        let begun = Instant::now();
        read_all(&mut client);
        assert!(begun.elapsed() < PATIENCE);
    }
    let mut client = connect(&gateway);
    client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
    let (all, _) = read_all(&mut client);
    assert!(all.starts_with("HTTP/1.1 408 "), "{all}");
}

#[test]
fn an_upstream_that_does_not_answer_is_given_up() {
    let upstream = scripted(|mut stream| drop(read_all(&mut stream)));
    for route in ["timeouts: { response: 100ms }", "timeouts: { total: 100ms }"] {
        let gateway = gateway(upstream, "", route);
        let mut client = connect(&gateway);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(read_until(&mut client, "\r\n\r\n").starts_with("HTTP/1.1 504 "));
    }
}
