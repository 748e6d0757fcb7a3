//! Upstreams of our own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use socket2::{Domain, Socket, Type};

use super::eventually;

/// A server of our own. Counts what comes.
pub struct Upstream {
    pub address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl Upstream {
    /// Answers each request's head with what the function gives. It may block:
    /// each connection has a thread.
    pub fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counts: Arc<Counts> = Arc::default();
        let (shared, answer) = (counts.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (counts, answer) = (shared.clone(), answer.clone());
                thread::spawn(move || serve(stream, &counts, &*answer));
            }
        });
        Self { address, counts }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, counts: &Counts, answer: &dyn Fn(&str) -> String) {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(1..)) {
                return;
            }
        }
        counts.requests.fetch_add(1, Ordering::SeqCst);
        if reader.get_mut().write_all(answer(&head).as_bytes()).is_err() {
            return;
        }
    }
}

/// Whether nobody listens there any more.
pub fn refuses(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err()
}

/// An address that refuses connections for as long as this lives.
pub struct Refusing(Socket);

impl Refusing {
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // Bound, so that nobody else gets the port, but not listening.
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        Self(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap().as_socket().unwrap()
    }
}

/// Requests that an upstream holds back until they are let go.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<Waiting>, Condvar)>);

#[derive(Default)]
struct Waiting {
    held: usize,
    /// Since then nothing is held any more.
    open: bool,
}

impl Gate {
    /// Holds the caller.
    pub fn pass(&self) {
        let mut waiting = self.0.0.lock().unwrap();
        waiting.held += 1;
        drop(self.0.1.wait_while(waiting, |waiting| !waiting.open).unwrap());
    }

    pub fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }

    /// Waits until so many have come.
    pub fn wait_for(&self, held: usize) {
        eventually("held", || self.0.0.lock().unwrap().held >= held);
    }
}

/// An upstream that is a script: each connection is handed to it.
pub fn scripted(script: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let script = script.clone();
            thread::spawn(move || script(stream));
        }
    });
    address
}

/// Reads until the bytes end like this.
pub fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(end.as_bytes()) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "ended after {:?}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

/// A whole answer with a body of text.
pub fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
