//! A TCP connection, as hyper wants it and as we do.

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// The most that one read takes.
const READ: usize = 64 << 10;

thread_local! {
    /// Where reads land first. hyper's buffer is not initialised, so reading
    /// into it directly would take unsafe code or zeroing all of it each time:
    /// copying what has really come is far less.
    static LANDING: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into_boxed_slice());
}

/// The end that reads and writes.
#[derive(Clone)]
pub struct Io {
    stream: Rc<RefCell<TcpStream>>,
}

/// A second end, for looking at the connection while hyper has it.
pub struct IoHandle {
    stream: Rc<RefCell<TcpStream>>,
}

impl Io {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream: Rc::new(RefCell::new(stream)) }
    }

    pub fn handle(&self) -> IoHandle {
        IoHandle { stream: self.stream.clone() }
    }

    /// Reads what has come, to the end of `into`, and tells how much: 0 at the
    /// other side's end. `into` grows by no less than `room`, if it does.
    pub fn poll_fill(&self, cx: &mut Context<'_>, into: &mut BytesMut, room: usize) -> Poll<io::Result<usize>> {
        LANDING.with_borrow_mut(|landing| {
            let mut landed = ReadBuf::new(landing);
            ready!(Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, &mut landed))?;
            let filled = landed.filled().len();
            if into.capacity() - into.len() < filled {
                into.reserve(filled.max(room));
            }
            into.extend_from_slice(landed.filled());
            Poll::Ready(Ok(landed.filled().len()))
        })
    }

    /// Writes from the start of these, in order.
    pub fn poll_write_slices(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut stream = self.stream.borrow_mut();
        match slices {
            [only] => Pin::new(&mut *stream).poll_write(cx, only),
            slices => Pin::new(&mut *stream).poll_write_vectored(cx, slices),
        }
    }

    /// Whether the connection is open and nothing waits to be read, as far as
    /// the runtime has been told: in that case this is no system call. A byte
    /// that waits is lost, so the connection is good for nothing afterwards.
    pub fn is_quiet(&self) -> bool {
        let read = self.stream.borrow().try_read(&mut [0]);
        matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Reads as hyper does, and tells how many bytes have come.
    pub fn poll_read_count(&mut self, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<usize>> {
        LANDING.with_borrow_mut(|landing| {
            let room = buf.remaining().min(landing.len());
            let mut landed = ReadBuf::new(&mut landing[..room]);
            ready!(Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, &mut landed))?;
            buf.put_slice(landed.filled());
            Poll::Ready(Ok(landed.filled().len()))
        })
    }
}

impl IoHandle {
    /// Reads and drops what still comes, up to the other side's end. For when
    /// hyper has let go of its end: a close with bytes unread is a reset, which
    /// can overtake the answer that explains it.
    pub async fn discard(&self) {
        let mut dropped = [0; 4 << 10];
        loop {
            let ready = poll_fn(|cx| self.stream.borrow().poll_read_ready(cx)).await;
            let read = self.stream.borrow().try_read(&mut dropped);
            match (ready, read) {
                (Ok(()), Ok(1..)) => {}
                (Ok(()), Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }

    /// Makes the close of the connection a reset: how a message looks cut short
    /// that has nothing but the close to mark its end.
    pub fn reset_on_close(&self) {
        // It fails on a connection that is broken already, which will do.
        let _ = self.stream.borrow().set_zero_linger();
    }
}

impl Read for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.poll_read_count(cx, buf).map_ok(drop)
    }
}

impl Write for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket keeps nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_write_vectored(cx, bufs)
    }
}
