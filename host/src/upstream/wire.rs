//! A connection to a target that remembers the head that went over it.
//!
//! A request that may be repeated has to be there again when its connection
//! dies. Copying its head before it is handed to hyper costs every request some
//! 1 600 instructions; copying the bytes that hyper writes costs 60, and only
//! the one request in many thousands that is repeated pays for the parsing.

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use http::{HeaderName, HeaderValue, Method, Request, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::io::Io;

/// A longer buffer is not kept while the connection is idle.
const KEPT: usize = 4 << 10;

/// The end that hyper has.
pub struct Wire {
    io: Io,
    written: Rc<Written>,
}

/// What has been written, as far as it matters.
#[derive(Default)]
pub struct Written {
    /// Whether what is written next is to be remembered.
    wanted: Cell<bool>,
    head: RefCell<Vec<u8>>,
}

impl Wire {
    pub fn new(io: Io) -> (Self, Rc<Written>) {
        let written = Rc::new(Written::default());
        (Self { io, written: written.clone() }, written)
    }
}

impl Written {
    /// The next write is the head of a request without body, which hyper writes
    /// from one piece.
    pub fn remember(&self) {
        self.head.borrow_mut().clear();
        self.wanted.set(true);
    }

    /// The head is not needed any more.
    pub fn forget(&self) {
        self.wanted.set(false);
        let mut head = self.head.borrow_mut();
        if head.capacity() > KEPT {
            *head = Vec::new();
        }
    }

    /// The request that has been remembered; `None` if it is not all there.
    pub fn request(&self) -> Option<Request<()>> {
        parse(&self.head.borrow())
    }

    fn note(&self, piece: &[u8]) {
        if self.wanted.get() && !piece.is_empty() {
            self.wanted.set(false);
            self.head.borrow_mut().extend_from_slice(piece);
        }
    }
}

/// Parses a head as hyper writes it: this is no parser for what others write.
fn parse(head: &[u8]) -> Option<Request<()>> {
    let head = head.strip_suffix(b"\r\n\r\n")?;
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut words = lines.next()?.split(|byte| *byte == b' ');
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(words.next()?).ok()?;
    *request.uri_mut() = Uri::try_from(words.next()?).ok()?;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at_checked(colon)?;
        let value = value.strip_prefix(b": ")?;
        request.headers_mut().append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    Some(request)
}

impl Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.written.note(buf);
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(first) = bufs.first() {
            self.written.note(first);
        }
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_back() {
        let text = b"PUT /a?b=%20 HTTP/1.1\r\nx-one: a: b \r\nx-two: \r\nx-one: \xff\r\nhost: x\r\n\r\n";
        let request = parse(text).unwrap();
        assert_eq!((request.method().as_str(), request.uri().to_string().as_str()), ("PUT", "/a?b=%20"));
        let values: Vec<_> = request.headers().get_all("x-one").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(values, [&b"a: b "[..], b"\xff"]);
        assert_eq!(request.headers()["x-two"], "");
        assert_eq!(request.headers()["host"], "x");
        assert_eq!(request.headers().len(), 4);
        assert!(parse(b"GET * HTTP/1.1\r\n\r\n").unwrap().headers().is_empty());
    }

    #[test]
    fn a_part_of_a_head_is_none() {
        for text in [
            &b""[..],
            b"GET / HTTP/1.1\r\n",
            b"GET / HTTP/1.1\r\nx: 1\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/1.1\r\nx\r\n\r\n",
        ] {
            assert!(parse(text).is_none());
        }
    }
}
