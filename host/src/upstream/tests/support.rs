//! A fake target on a thread, a worker to call it from, and bodies.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    pin::{Pin, pin},
    rc::Rc,
    sync::mpsc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};

use crate::{
    config::{self, Balance, RouteTimeouts, UpstreamKind},
    error::{ErrorKind, GatewayError},
    timer::Timer,
    upstream::{Host, OutgoingHead, Pools, ResponseBody, Targets, Upstream},
};

pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

pub const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A server whose connections are each handled by a script.
pub struct Fake {
    pub address: SocketAddr,
    seen: mpsc::Receiver<Seen>,
}

/// What a connection's script reports.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Accepted,
    /// A request's head without its last empty line, and its body.
    Request(String, String),
    /// The client has closed.
    Closed,
}

impl Fake {
    /// Runs `script` for each connection, with its number.
    pub fn start(script: impl Fn(usize, &mut Wire) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (report, seen) = mpsc::channel();
        let script = std::sync::Arc::new(script);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                let _ = report.send(Seen::Accepted);
                let (script, report) = (script.clone(), report.clone());
                std::thread::spawn(move || script(number, &mut Wire { stream: BufReader::new(stream), report }));
            }
        });
        Self { address, seen }
    }

    /// Answers every request on every connection in the same way.
    pub fn answering(response: &'static [u8]) -> Self {
        Self::start(move |_, wire| {
            while wire.request() {
                wire.send(response)
            }
        })
    }

    /// What the scripts have reported since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.try_iter().collect()
    }

    pub fn accepted(&self) -> usize {
        self.seen().iter().filter(|seen| **seen == Seen::Accepted).count()
    }

    /// Waits for a report, which must come.
    pub fn wait_for(&self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        loop {
            let seen = self.seen.recv_timeout(Duration::from_secs(10)).unwrap();
            if wanted(&seen) {
                return seen;
            }
        }
    }

    pub fn wait_for_request(&self) -> (String, String) {
        match self.wait_for(|seen| matches!(seen, Seen::Request(..))) {
            Seen::Request(head, body) => (head, body),
            _ => unreachable!(),
        }
    }
}

/// The server's end of a connection.
pub struct Wire {
    stream: BufReader<TcpStream>,
    report: mpsc::Sender<Seen>,
}

impl Wire {
    /// Reads a request and reports it; false when there is no other.
    pub fn request(&mut self) -> bool {
        self.request_after(b"")
    }

    /// The same, with something said between its head and its body.
    pub fn request_after(&mut self, early: &[u8]) -> bool {
        let head = self.head();
        self.send(early);
        if head.is_empty() {
            let _ = self.report.send(Seen::Closed);
            return false;
        }
        let body = if head.contains("transfer-encoding: chunked") {
            self.chunked()
        } else if let Some((_, length)) = head.split_once("content-length: ") {
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            let mut body = vec![0; length];
            match self.stream.read_exact(&mut body) {
                Ok(()) => String::from_utf8(body).unwrap(),
                Err(_) => "cut".into(),
            }
        } else {
            String::new()
        };
        let _ = self.report.send(Seen::Request(head, body));
        true
    }

    /// Reads a request's head only.
    pub fn head(&mut self) -> String {
        let mut head = Vec::new();
        loop {
            let start = head.len();
            match self.stream.read_until(b'\n', &mut head) {
                Ok(0) | Err(_) => return String::new(),
                Ok(_) if &head[start..] == b"\r\n" => {
                    head.truncate(start);
                    return String::from_utf8_lossy(&head).into_owned();
                }
                Ok(_) => {}
            }
        }
    }

    /// The body as it is on the wire.
    fn chunked(&mut self) -> String {
        let mut body = String::new();
        while !body.ends_with("0\r\n\r\n") {
            match self.stream.read_line(&mut body) {
                Ok(0) | Err(_) => return body + "cut",
                Ok(_) => {}
            }
        }
        body
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Waits until the client has closed, and reports it.
    pub fn wait_for_close(&mut self) {
        let _ = self.stream.read_to_end(&mut Vec::new());
        let _ = self.report.send(Seen::Closed);
    }
}

/// One worker's upstream side.
pub struct Worker {
    pub pools: Pools,
    pub timeouts: RouteTimeouts,
}

impl Worker {
    pub fn new() -> Self {
        Self { pools: Pools::new(Timer::start()), timeouts: RouteTimeouts::default() }
    }

    pub fn upstream(&self, targets: &[SocketAddr]) -> Rc<Upstream> {
        self.pools.upstream(&upstream("test", Balance::RoundRobin, targets), &Targets::default())
    }

    /// Sends with the target's Host field and reads all of the response.
    pub async fn fetch(&self, upstream: &Upstream, request: Request<TestBody>) -> Fetched {
        read(self.send(upstream, request, Host::Target).await?).await
    }

    pub async fn send(
        &self,
        upstream: &Upstream,
        request: Request<TestBody>,
        host: Host,
    ) -> Result<Response<ResponseBody>, GatewayError> {
        let (head, body) = request.into_parts();
        let head = OutgoingHead {
            method: &head.method,
            target: head.uri.path_and_query().unwrap(),
            headers: &head.headers,
            forwarded_for: None,
            host,
            trailers: &[],
            takes_trailers: false,
        };
        upstream.send(head, body, &self.timeouts).await
    }
}

pub type Fetched = Result<(Response<()>, String, Option<HeaderMap>), GatewayError>;

/// A response's head, body and trailers.
pub async fn read(response: Response<ResponseBody>) -> Fetched {
    let (head, body) = response.into_parts();
    let mut body = pin!(body);
    let (mut text, mut trailers) = (String::new(), None);
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(data) => text.push_str(std::str::from_utf8(&data).unwrap()),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((Response::from_parts(head, ()), text, trailers))
}

/// The body of what was fetched.
pub fn text(fetched: Fetched) -> String {
    fetched.unwrap().1
}

pub fn kind(fetched: Fetched) -> ErrorKind {
    fetched.unwrap_err().kind
}

pub fn upstream(name: &str, balance: Balance, targets: &[SocketAddr]) -> config::Upstream {
    let target = |address: &SocketAddr| config::Target {
        host: address.ip().to_string().into(),
        port: address.port(),
        authority: address.to_string().into(),
        weight: 1,
    };
    let targets = targets.iter().map(target).collect();
    config::Upstream { name: name.into(), kind: UpstreamKind::Targets { balance, targets } }
}

/// Runs a test as a worker runs its tasks.
pub fn on_worker(test: impl AsyncFnOnce(Worker)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async { test(Worker::new()).await });
}

/// Lets the other tasks run until something has come about, which must not take
/// long.
pub async fn until(mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "does not come about");
        tokio::task::yield_now().await;
    }
}

/// An address that refuses connections for as long as the value lives.
pub struct Refusing(tokio::net::TcpSocket);

impl Refusing {
    pub fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// A request's body: frames, with a length known or not.
pub struct TestBody {
    frames: VecDeque<TestFrame>,
    length: Option<u64>,
}

pub enum TestFrame {
    Data(&'static str),
    Error(ErrorKind),
    /// Nothing until this has been sent or dropped.
    Wait(tokio::sync::oneshot::Receiver<()>),
}

impl TestBody {
    pub fn empty() -> Self {
        Self::known("")
    }

    pub fn known(text: &'static str) -> Self {
        let frames = if text.is_empty() { VecDeque::new() } else { [TestFrame::Data(text)].into() };
        Self { frames, length: Some(text.len() as u64) }
    }

    /// Says that it is so long, whatever it is.
    pub fn with_length(self, length: u64) -> Self {
        Self { length: Some(length), ..self }
    }

    pub fn unknown(frames: impl IntoIterator<Item = TestFrame>) -> Self {
        Self { frames: frames.into_iter().collect(), length: None }
    }
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = GatewayError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, GatewayError>>> {
        let body = self.get_mut();
        if let Some(TestFrame::Wait(signal)) = body.frames.front_mut() {
            let _ = std::task::ready!(Pin::new(signal).poll(cx));
            body.frames.pop_front();
        }
        Poll::Ready(match body.frames.pop_front() {
            Some(TestFrame::Data(text)) => Some(Ok(Frame::data(Bytes::from_static(text.as_bytes())))),
            Some(TestFrame::Error(kind)) => Some(Err(kind.into())),
            Some(TestFrame::Wait(_)) | None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.length.is_some()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or(SizeHint::default(), SizeHint::with_exact)
    }
}

pub fn request(method: &str, body: TestBody) -> Request<TestBody> {
    Request::builder().method(method).uri("/path?query").body(body).unwrap()
}

pub fn get() -> Request<TestBody> {
    request("GET", TestBody::empty())
}

pub fn post(text: &'static str) -> Request<TestBody> {
    request("POST", TestBody::known(text))
}
