//! A request on its way to a target.

use std::{
    io::{self, IoSlice, Write},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header, uri::PathAndQuery};
use http_body::{Body, Frame};

use super::{Connection, ROOM};
use crate::{
    error::{ErrorKind, GatewayError},
    headers,
    io::Io,
};

/// What most heads fit into.
const HEAD: usize = 1 << 10;

/// A request's head as it goes to any target. Its fields are without those of the
/// client's connection; framing fields do not matter, as the body decides.
pub struct OutgoingHead<'a> {
    pub method: &'a Method,
    /// In origin-form.
    pub target: &'a PathAndQuery,
    pub headers: &'a HeaderMap,
    /// The client's address and the host that it has asked for, if X-Forwarded
    /// fields are to be added that tell of them.
    pub forwarded_for: Option<(&'a HeaderValue, &'a HeaderValue)>,
    pub host: Host,
    /// Fields that may come behind the body.
    pub trailers: &'a [HeaderName],
    /// Whether trailers are welcome in the response.
    pub takes_trailers: bool,
}

/// What goes into the Host field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// What is there.
    Keep,
    /// The authority of the target that is chosen.
    Target,
}

/// Whose turn it is while a body is sent.
#[derive(Debug, Clone, Copy)]
pub enum Turn {
    /// The client's: no more of the body has come.
    Client,
    /// The target's, since then: to take what there is, or to respond.
    Target(Instant),
}

/// Why a request can't be sent on.
#[derive(Debug)]
pub enum SendError {
    /// The connection takes no more. What was sent may yet be answered.
    Connection(io::Error),
    /// The body has failed.
    Body(GatewayError),
}

/// How the target is told where the body ends (RFC 9112 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// There is none.
    Empty,
    /// After so many bytes.
    Length(u64),
    Chunked,
}

/// A request: what of it waits to be written, and what has yet to come.
pub struct Outgoing<B> {
    /// What goes before `piece`: the head, the size of a chunk, an end.
    before: Vec<u8>,
    /// Of the body.
    piece: Bytes,
    /// What goes behind it.
    behind: &'static [u8],
    /// Bytes of these three that have been written.
    written: usize,
    /// Whether the connection has taken any byte.
    touched: bool,
    /// `None` from its end on.
    body: Option<B>,
    framing: Framing,
    /// Bytes that the body has yet to have, if its length is known.
    left: u64,
    /// Fields that may come behind the body.
    trailers: Vec<HeaderName>,
    /// The end of a chunked body, once it has come.
    end: Vec<u8>,
    turn: Option<Turn>,
}

impl<B> Outgoing<B>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin,
{
    /// `start` has to be called before any of it is sent.
    pub fn new(head: &OutgoingHead<'_>, body: B) -> Self {
        let (body, framing) = match (body.is_end_stream(), body.size_hint().exact()) {
            (true, _) => (None, Framing::Empty),
            (false, Some(length)) => (Some(body), Framing::Length(length)),
            (false, None) => (Some(body), Framing::Chunked),
        };
        // Whatever stands in the head somebody has looked at, or has set.
        let may_follow = |name: &&HeaderName| framing == Framing::Chunked && !head.headers.contains_key(*name);
        let trailers = head.trailers.iter().filter(may_follow).cloned().collect();
        let turn = body.is_some().then_some(Turn::Client);
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        let (before, piece, behind) = (Vec::new(), Bytes::new(), &b""[..]);
        Self { before, piece, behind, written: 0, touched: false, body, framing, left, trailers, end: Vec::new(), turn }
    }

    /// Begins on a new connection, to the target with this authority. Only where
    /// none has taken a byte is the request whole.
    pub fn start(&mut self, head: &OutgoingHead<'_>, target: &HeaderValue, connection: &mut Connection) {
        self.before = std::mem::take(&mut connection.spare);
        self.before.clear();
        self.written = 0;
        self.touched = false;
        write_head(&mut self.before, head, target, self.framing, &self.trailers);
        if self.framing == Framing::Chunked && !self.piece.is_empty() {
            write_size(&mut self.before, self.piece.len());
        }
        // A body that was empty has ended before the connection took anything.
        self.before.extend_from_slice(&self.end);
    }

    /// Leaves the memory that it has written from to the connection's next
    /// request, once it is through.
    pub fn leave_spare(&mut self, connection: &mut Connection) {
        if self.body.is_none() && self.before.is_empty() && self.before.capacity() <= ROOM {
            connection.spare = std::mem::take(&mut self.before);
        }
    }

    /// Whether the connection has taken any of it.
    pub fn is_touched(&self) -> bool {
        self.touched
    }

    /// Whether it has no body.
    pub fn is_bodiless(&self) -> bool {
        self.framing == Framing::Empty
    }

    /// `None` if there is no body, and it was the target's turn from the start.
    pub fn turn(&self) -> Option<Turn> {
        self.turn
    }

    /// Writes until all of the request is through.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, io: &Io) -> Poll<Result<(), SendError>> {
        // What there is of the body goes with the head.
        if !self.touched
            && self.body.is_some()
            && self.piece.is_empty()
            && let Poll::Ready(outcome) = self.poll_body(cx)
        {
            outcome.map_err(SendError::Body)?;
        }
        loop {
            ready!(self.poll_write(cx, io)).map_err(SendError::Connection)?;
            if self.body.is_none() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_body(cx)).map_err(SendError::Body)?;
        }
    }

    /// Writes what waits.
    fn poll_write(&mut self, cx: &mut Context<'_>, io: &Io) -> Poll<io::Result<()>> {
        loop {
            let mut skip = self.written;
            let mut left = |part: &'_ [u8]| {
                let from = skip.min(part.len());
                skip -= from;
                from
            };
            let (before, piece, behind) = (left(&self.before), left(&self.piece), left(self.behind));
            let slices = [
                IoSlice::new(self.before.get(before..).unwrap_or_default()),
                IoSlice::new(self.piece.get(piece..).unwrap_or_default()),
                IoSlice::new(self.behind.get(behind..).unwrap_or_default()),
            ];
            if slices.iter().all(|slice| slice.is_empty()) {
                break;
            }
            match ready!(io.poll_write_slices(cx, &slices))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => {
                    self.touched = true;
                    self.written += written;
                }
            }
        }
        self.before.clear();
        self.piece = Bytes::new();
        self.behind = b"";
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Waits for the body's next frame, and puts it behind what waits to be
    /// written, of which nothing may be of the body.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GatewayError>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
        let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) else {
            self.turn = Some(Turn::Client);
            return Poll::Pending;
        };
        self.turn = Some(Turn::Target(Instant::now()));
        Poll::Ready(match frame {
            Some(Ok(frame)) => self.put(frame),
            Some(Err(error)) => Err(error),
            None => self.end(None),
        })
    }

    fn put(&mut self, frame: Frame<Bytes>) -> Result<(), GatewayError> {
        let piece = match frame.into_data() {
            Ok(piece) if piece.is_empty() => return Ok(()),
            Ok(piece) => piece,
            Err(frame) => return self.end(frame.into_trailers().ok()),
        };
        match self.framing {
            Framing::Length(_) => {
                let Some(left) = self.left.checked_sub(piece.len() as u64) else {
                    return Err(GatewayError::because(ErrorKind::Internal, "a body longer than it was to be"));
                };
                self.left = left;
                if left == 0 {
                    self.body = None;
                }
            }
            Framing::Chunked => {
                write_size(&mut self.before, piece.len());
                self.behind = b"\r\n";
            }
            Framing::Empty => {}
        }
        self.piece = piece;
        Ok(())
    }

    /// The body has come to its end.
    fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), GatewayError> {
        self.body = None;
        match self.framing {
            // The target must not take what follows for the rest of it.
            Framing::Length(_) if self.left > 0 => Err(ErrorKind::ClientGone.into()),
            Framing::Length(_) | Framing::Empty => Ok(()),
            Framing::Chunked => {
                self.end.extend_from_slice(b"0\r\n");
                let trailers = trailers.unwrap_or_default();
                for (name, value) in trailers.iter().filter(|(name, _)| self.trailers.contains(name)) {
                    write_field(&mut self.end, name.as_str(), value);
                }
                self.end.extend_from_slice(b"\r\n");
                self.before.extend_from_slice(&self.end);
                Ok(())
            }
        }
    }
}

/// Writes the head, with the framing that the body needs.
fn write_head(
    out: &mut Vec<u8>,
    head: &OutgoingHead<'_>,
    target: &HeaderValue,
    framing: Framing,
    trailers: &[HeaderName],
) {
    out.reserve(HEAD);
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.target.as_str().as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if head.host == Host::Target {
        // First, as RFC 9110 section 7.2 has it. Another is where the client
        // has put it.
        write_field(out, header::HOST.as_str(), target);
    }
    let mut length = None;
    for (name, value) in head.headers {
        match name.as_str() {
            "host" if head.host == Host::Target => {}
            "content-length" => length = Some(0),
            "transfer-encoding" => {}
            name => write_field(out, name, value),
        }
    }
    if let Some((client, host)) = head.forwarded_for {
        for (name, value) in headers::forwarded_lines(client, host) {
            write_field(out, name.as_str(), value);
        }
    }
    if head.takes_trailers {
        // A TE field has to be named in Connection (RFC 9110 section 10.1.4).
        out.extend_from_slice(b"te: trailers\r\nconnection: te\r\n");
    }
    if let [first, others @ ..] = trailers {
        out.extend_from_slice(b"trailer: ");
        out.extend_from_slice(first.as_str().as_bytes());
        for name in others {
            out.extend_from_slice(b", ");
            out.extend_from_slice(name.as_str().as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    match framing {
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::Length(bytes) => length = Some(bytes),
        // Some servers wait for a body otherwise (RFC 9110 section 8.6).
        Framing::Empty if [Method::POST, Method::PUT, Method::PATCH].contains(head.method) => length = Some(0),
        Framing::Empty => {}
    }
    if let Some(length) = length.filter(|_| framing != Framing::Chunked) {
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &HeaderValue) {
    let value = value.as_bytes();
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The line before a chunk.
fn write_size(out: &mut Vec<u8>, size: usize) {
    // Writing to a vector does not fail.
    let _ = write!(out, "{size:x}\r\n");
}
