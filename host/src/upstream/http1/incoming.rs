//! A response's body as it comes.

use std::{
    io,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::{Connection, Framing, Malformed, chunked::Step};

/// A body that has not come to its end.
pub struct Incoming {
    connection: Box<Connection>,
    framing: Framing,
}

/// Why a body can't be read on.
#[derive(Debug)]
pub enum Broken {
    /// The connection ended or broke.
    Cut(io::Error),
    Malformed(Malformed),
}

impl Incoming {
    pub fn new(connection: Box<Connection>, framing: Framing) -> Self {
        Self { connection, framing }
    }

    /// Gives the connection back, behind the body's end.
    pub fn into_connection(self) -> Box<Connection> {
        self.connection
    }

    /// Whether the head announces fields behind it.
    pub fn announces(&self) -> bool {
        matches!(&self.framing, Framing::Chunked(chunked) if chunked.announced)
    }

    /// Whether all of it has been read.
    pub fn is_end(&self) -> bool {
        matches!(self.framing, Framing::Empty)
    }

    pub fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Empty => SizeHint::with_exact(0),
            Framing::Length(left) => SizeHint::with_exact(left),
            Framing::Chunked(_) | Framing::Close => SizeHint::default(),
        }
    }

    /// The next piece, or the trailers behind the last one.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            match self.next() {
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) if self.is_end() => return Poll::Ready(None),
                Ok(None) => {}
                Err(malformed) => return Poll::Ready(Some(Err(Broken::Malformed(malformed)))),
            }
            let read = ready!(self.connection.poll_fill(cx));
            match (read, &self.framing) {
                (Ok(1..), _) => {}
                (Ok(0), Framing::Close) => self.framing = Framing::Empty,
                (Ok(0), _) => return Poll::Ready(Some(Err(Broken::Cut(io::ErrorKind::UnexpectedEof.into())))),
                (Err(error), _) => return Poll::Ready(Some(Err(Broken::Cut(error)))),
            }
        }
    }

    /// A frame from what has come.
    fn next(&mut self) -> Result<Option<Frame<Bytes>>, Malformed> {
        let received = &mut self.connection.received;
        let piece = match &mut self.framing {
            Framing::Empty => return Ok(None),
            Framing::Chunked(chunked) => match chunked.next(received)? {
                Step::More => return Ok(None),
                Step::Data(piece) => {
                    if chunked.has_ended(received) {
                        self.framing = Framing::Empty;
                    }
                    piece
                }
                Step::End(trailers) => {
                    self.framing = Framing::Empty;
                    return Ok(Some(trailers).filter(|trailers| !trailers.is_empty()).map(Frame::trailers));
                }
            },
            _ if received.is_empty() => return Ok(None),
            Framing::Close => received.split().freeze(),
            Framing::Length(left) => {
                let here = usize::try_from(*left).map_or(received.len(), |left| left.min(received.len()));
                *left -= here as u64;
                if *left == 0 {
                    self.framing = Framing::Empty;
                }
                received.split_to(here).freeze()
            }
        };
        Ok(Some(Frame::data(piece)))
    }
}
