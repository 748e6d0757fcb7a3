//! One downstream connection: its phases, its deadlines, its end.
//!
//! hyper reads and writes HTTP; what it does not do is watch the clock before
//! the first byte, between requests and while the client does not read. The
//! socket is wrapped for that: it notes when bytes come and when none can be
//! sent, and one coarse deadline for the connection follows from the phase.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use http::HeaderValue;
use hyper::{
    rt::{Read, ReadBufCursor, Write},
    server::conn::http1,
    service::service_fn,
};
use tokio::net::TcpStream;

use super::Listener;
use crate::{
    config::ListenerTimeouts,
    error::ErrorKind,
    flow,
    gateway::{self, Settings},
    io::Io,
    worker::Worker,
};

/// How long a connection without any request may stay when its listener has
/// closed.
const LAST_CHANCE: Duration = Duration::from_secs(1);
/// How long what a client still sends is taken, once its answer has ended the
/// connection.
const LINGER: Duration = Duration::from_secs(1);
/// hyper takes no smaller read buffer.
const SMALLEST_BUFFER: usize = 8 << 10;

/// What a request may ask about the connection that it came on.
pub struct Connection {
    pub worker: Rc<Worker>,
    pub listener: Rc<Listener>,
    /// IPv4 also where it came mapped into IPv6.
    pub client_address: IpAddr,
    /// The client's address as it goes into X-Forwarded-For.
    pub client_text: HeaderValue,
    /// The listener's settings when the connection came.
    pub settings: Rc<Settings>,
    progress: Progress,
}

/// Where a connection stands.
struct Progress {
    phase: Cell<Phase>,
    since: Cell<Instant>,
    /// Since when the client has not taken what was written.
    stalled: Cell<Option<Instant>>,
    /// The answer was cut: a plain end would make it look whole.
    reset: Cell<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Connected, no byte yet.
    Fresh,
    /// A request's head is being read.
    Head,
    /// A request is being answered.
    Busy,
    /// Between two requests.
    Idle,
}

impl Connection {
    /// A request's head has been read.
    pub fn begin(&self) {
        self.progress.phase.set(Phase::Busy);
    }

    /// Its answer is complete.
    pub fn end(&self, now: Instant) {
        self.progress.phase.set(Phase::Idle);
        self.progress.since.set(now);
    }

    /// The answer can't be completed: whoever reads it must see that.
    pub fn cut(&self) {
        self.progress.reset.set(true);
    }
}

impl Progress {
    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(Instant::now());
    }

    /// When the connection has lasted, or waited for the client, long enough.
    fn deadline(&self, timeouts: &ListenerTimeouts, closing: Option<Instant>) -> Option<Instant> {
        let waiting = self.waiting(timeouts, closing.is_some());
        closing.map_or(waiting, |until| Some(waiting.map_or(until, |deadline| deadline.min(until))))
    }

    fn waiting(&self, timeouts: &ListenerTimeouts, closing: bool) -> Option<Instant> {
        if let Some(since) = self.stalled.get() {
            return Some(since + timeouts.body_idle);
        }
        let longest = match self.phase.get() {
            Phase::Busy => return None,
            Phase::Fresh if closing => timeouts.head.min(LAST_CHANCE),
            Phase::Fresh | Phase::Head => timeouts.head,
            Phase::Idle => timeouts.keep_alive,
        };
        Some(self.since.get() + longest)
    }
}

/// Tells a connection that its listener closes.
#[derive(Default)]
pub struct Closer {
    /// Until when the connection may go on.
    until: Cell<Option<Instant>>,
    waker: RefCell<Option<Waker>>,
}

impl Closer {
    pub fn close(&self, until: Instant) {
        self.until.set(Some(until));
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn closing(&self, cx: &Context<'_>) -> Option<Instant> {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.until.get()
    }
}

/// Serves a connection to its end.
pub async fn run(worker: Rc<Worker>, listener: Rc<Listener>, stream: TcpStream, client: SocketAddr) {
    let _open = worker.open();
    let settings = worker.active().listener(listener.address).unwrap_or_else(|| listener.settings.clone());
    let Ok(client_text) = HeaderValue::from_str(&client.ip().to_canonical().to_string()) else { return };
    let _ = stream.set_nodelay(true);
    let connection = Rc::new(Connection {
        worker: worker.clone(),
        listener: listener.clone(),
        client_address: client.ip().to_canonical(),
        client_text,
        settings: settings.clone(),
        progress: Progress {
            phase: Cell::new(Phase::Fresh),
            since: Cell::new(Instant::now()),
            stalled: Cell::new(None),
            reset: Cell::new(false),
        },
    });
    let closer = Rc::new(Closer::default());
    closer.until.set(listener.closing.get());
    let place = listener.connections.borrow_mut().insert(closer.clone());
    settings.series.connections.add(1);

    let io = Io::new(stream);
    let handle = io.handle();
    let finished = serve(&connection, &closer, io).await;
    if finished && !connection.progress.reset.get() {
        let _ = worker.timer.timeout(LINGER, handle.discard()).await;
    }
    settings.series.connections.subtract(1);
    listener.connections.borrow_mut().try_remove(place);
}

/// Lets hyper serve a connection. False if it was stopped by a deadline.
async fn serve(connection: &Rc<Connection>, closer: &Closer, io: Io) -> bool {
    let (worker, settings) = (&connection.worker, &connection.settings);
    let io = Watched { io, connection: connection.clone() };
    let service = service_fn(|request| gateway::handle(connection.clone(), request));
    // No `pipeline_flush`: it takes any amount of a body for a client that does
    // not read.
    let mut builder = http1::Builder::new();
    builder.max_headers(settings.limits.fields).max_buf_size(settings.limits.head.max(SMALLEST_BUFFER));
    let mut http = pin!(builder.serve_connection(io, service));
    let deadline = worker.timer.deadline();
    let mut shut = false;
    let mut last_deadline = None;
    poll_fn(|cx| {
        let closing = closer.closing(cx);
        loop {
            // Before anything is answered, so that the answer says it.
            if closing.is_some() && !shut && connection.progress.phase.get() != Phase::Fresh {
                shut = true;
                http.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(outcome) = http.as_mut().poll(cx) {
                if let Err(error) = outcome {
                    note_unreadable(connection, &error);
                }
                return Poll::Ready(true);
            }
            if closing.is_none() || shut || connection.progress.phase.get() == Phase::Fresh {
                break;
            }
        }
        let next = connection.progress.deadline(&settings.timeouts, closing);
        if next != last_deadline {
            last_deadline = next;
            match next {
                Some(at) => deadline.set(at),
                None => deadline.clear(),
            }
        }
        deadline.poll_expired(cx).map(|()| false)
    })
    .await
}

/// Counts and logs a head that hyper has refused by itself, with an empty 400 or
/// 431; HTTP/2 it leaves without an answer.
fn note_unreadable(connection: &Connection, error: &hyper::Error) {
    if error.is_parse_too_large() {
        flow::log_unreadable(connection, ErrorKind::HeadTooLarge);
    } else if error.is_parse() && !error.is_parse_version_h2() {
        flow::log_unreadable(connection, ErrorKind::BadRequest("no HTTP"));
    }
}

/// A socket that notes what the client does.
struct Watched {
    io: Io,
    connection: Rc<Connection>,
}

impl Watched {
    fn note_write<T>(&self, outcome: &Poll<io::Result<T>>) {
        let stalled = &self.connection.progress.stalled;
        match outcome {
            Poll::Pending if stalled.get().is_none() => stalled.set(Some(Instant::now())),
            Poll::Pending => {}
            Poll::Ready(_) => stalled.set(None),
        }
    }
}

impl Read for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let Poll::Ready(read) = self.io.poll_read_count(cx, buffer)? else { return Poll::Pending };
        let progress = &self.connection.progress;
        if read > 0 {
            match progress.phase.get() {
                Phase::Fresh => progress.phase.set(Phase::Head),
                Phase::Idle => progress.enter(Phase::Head),
                Phase::Head | Phase::Busy => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.note_write(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.note_write(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An answer without a length ends with the connection: one that was cut
        // must not end like a whole one.
        if self.connection.progress.reset.get() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.connection.progress.reset.get() {
            self.io.handle().reset_on_close();
        }
    }
}
