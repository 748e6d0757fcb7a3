//! HTTP/1.1 towards a target (RFC 9112), as a proxy needs it: strict with what
//! comes, plain in what goes.
//!
//! It is run by the request's own task: nothing is spawned, sent through a
//! channel or locked for a request. `outgoing` writes a request, `head` reads a
//! response's head, `framing` decides where its body ends, and `chunked` takes
//! chunks apart. What can be read in two ways is refused rather than repaired:
//! bare CR or LF, folded lines, blanks before a colon, a length beside a transfer
//! coding, lengths that differ, any coding but `chunked`.

use std::{
    fmt, io,
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use http::{HeaderMap, Method, StatusCode};
use tokio::net::TcpStream;

mod chunked;
mod framing;
mod head;
mod incoming;
mod outgoing;

pub use framing::Framing;
pub use incoming::{Broken, Incoming};
pub use outgoing::{Host, Outgoing, OutgoingHead, SendError, Turn};

use crate::io::Io;
use head::{Lines, Names};

/// Bytes that the head of a response may have, with the interim ones before it,
/// and its trailers once more.
const HEAD: usize = 64 << 10;
/// Fields that either of them may have.
pub const FIELDS: usize = 100;

/// Bytes that an idle connection keeps room for: for a head and a little more.
const ROOM: usize = 4 << 10;

/// What came is no HTTP/1.1, or none that can be read in one way only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// A connection to a target. It takes one request after the other, and closes
/// when it is dropped.
pub struct Connection {
    io: Io,
    /// What has come and has not been used. Its memory serves one response after
    /// the other, once all parts of the one before are gone.
    received: BytesMut,
    /// More has come at once than is kept room for.
    is_stretched: bool,
    /// What requests are written from.
    spare: Vec<u8>,
    /// Of the fields that the target sends.
    names: Names,
}

/// A response's head, interim ones and the fields of the connection left out.
pub struct Head {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub framing: Framing,
    /// Whether the connection may be used again, as far as the head goes.
    pub persistent: bool,
}

/// Why there is no head.
#[derive(Debug)]
pub enum NoHead {
    /// The connection ended or broke before anything came.
    Nothing(io::Error),
    /// The same in the middle of a head.
    Cut(io::Error),
    Malformed(Malformed),
}

/// How far a head has come.
#[derive(Default)]
pub struct HeadProgress {
    lines: Lines,
    /// Bytes of interim responses so far.
    interim: usize,
}

impl Connection {
    /// Boxed, as it goes from hand to hand.
    pub fn new(stream: TcpStream) -> io::Result<Box<Self>> {
        stream.set_nodelay(true)?;
        Ok(Box::new(Self {
            io: Io::new(stream),
            received: BytesMut::new(),
            is_stretched: false,
            spare: Vec::new(),
            names: Names::default(),
        }))
    }

    pub fn io(&self) -> &Io {
        &self.io
    }

    /// Whether the next request may be sent: the connection is open, and nothing
    /// has come that no request has asked for.
    pub fn is_usable(&self) -> bool {
        self.io.is_quiet()
    }

    /// Lets go of all memory but a little before the connection stays idle. False
    /// if more has come than was asked for: then it is good for nothing.
    pub fn rest(&mut self) -> bool {
        let is_quiet = self.received.is_empty();
        if std::mem::take(&mut self.is_stretched) {
            self.received = BytesMut::new();
        }
        is_quiet
    }

    /// Waits for more.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = ready!(self.io.poll_fill(cx, &mut self.received, ROOM))?;
        self.is_stretched |= self.received.len() > ROOM;
        Poll::Ready(Ok(read))
    }

    /// Waits for the head of the response to a request with this method.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        progress: &mut HeadProgress,
        method: &Method,
    ) -> Poll<Result<Head, NoHead>> {
        loop {
            if !self.received.is_empty()
                && let Some(head) = self.next_head(progress, method).map_err(NoHead::Malformed)?
            {
                return Poll::Ready(Ok(head));
            }
            let is_fresh = self.received.is_empty() && progress.interim == 0;
            let lost = |error| if is_fresh { NoHead::Nothing(error) } else { NoHead::Cut(error) };
            if ready!(self.poll_fill(cx)).map_err(lost)? == 0 {
                return Poll::Ready(Err(lost(io::ErrorKind::UnexpectedEof.into())));
            }
        }
    }

    /// The final head, if all of it is there.
    fn next_head(&mut self, progress: &mut HeadProgress, method: &Method) -> Result<Option<Head>, Malformed> {
        loop {
            let Some(end) = progress.lines.find_end(&self.received)? else {
                let held = progress.interim + self.received.len();
                return if held > HEAD { Err(Malformed("head too large")) } else { Ok(None) };
            };
            let lines = std::mem::take(&mut progress.lines);
            if progress.interim + end > HEAD {
                return Err(Malformed("head too large"));
            }
            let parsed = head::parse(self.received.split_to(end).freeze(), &lines, &mut self.names)?;
            match parsed.status {
                StatusCode::SWITCHING_PROTOCOLS => return Err(Malformed("switches protocols unasked")),
                status if status.is_informational() => progress.interim += end,
                _ => return framing::decide(parsed, method).map(Some),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
