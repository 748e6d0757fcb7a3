//! The two ends of the traffic: an upstream, and a client on one connection.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::FIELDS;

/// Reached only where something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\
    Server: upstream\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nConnection: keep-alive\r\n\r\n{\"ok\": true}";

/// Serves for as long as the process lives.
pub fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(1..)) {
                return;
            }
        }
        if reader.get_mut().write_all(ANSWER.as_bytes()).is_err() {
            return;
        }
    }
}

/// Sends so many requests, one after the other, each of which must be answered
/// by 200.
pub fn ask(address: SocketAddr, path: &str, requests: usize) {
    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
    stream.get_mut().set_nodelay(true).unwrap();
    stream.get_mut().set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\n{FIELDS}\r\n");
    let mut head = String::new();
    let mut body = Vec::new();
    for _ in 0..requests {
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        head.clear();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "the connection ended after {head:?}");
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let length = head.to_lowercase().split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse();
        body.resize(length.unwrap(), 0);
        stream.read_exact(&mut body).unwrap();
    }
}
