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

/// Bytes up to which parts are copied together to be written: the system call
/// for parts costs more than copying so few.
const GATHERED: usize = 2 << 10;

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
        let stream = Pin::new(&mut *stream);
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        if let (Some(only), None) = (filled.next(), filled.next()) {
            return stream.poll_write(cx, only);
        }
        if slices.iter().map(|slice| slice.len()).sum::<usize>() > GATHERED {
            return stream.poll_write_vectored(cx, slices);
        }
        LANDING.with_borrow_mut(|landing| {
            let mut end = 0;
            for slice in slices {
                landing[end..end + slice.len()].copy_from_slice(slice);
                end += slice.len();
            }
            stream.poll_write(cx, &landing[..end])
        })
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
        self.poll_write_slices(cx, bufs)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;

    #[test]
    fn parts_are_written_whole_and_in_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let io = Io::new(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let (mut other, _) = listener.accept().await.unwrap();
            for lengths in [
                &[5][..],
                &[0, 5, 0],
                &[1, 2, 3],
                &[GATHERED, 0],
                &[GATHERED - 1, 1],
                &[GATHERED - 1, 1, 1],
                &[0, GATHERED, GATHERED],
            ] {
                let parts: Vec<Vec<u8>> =
                    lengths.iter().zip(b'a'..).map(|(length, letter)| vec![letter; *length]).collect();
                let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
                let written = poll_fn(|cx| io.poll_write_slices(cx, &slices)).await.unwrap();
                // So little the socket takes at once.
                assert_eq!(written, lengths.iter().sum::<usize>(), "{lengths:?}");
                let mut read = vec![0; written];
                other.read_exact(&mut read).await.unwrap();
                assert!(read == parts.concat(), "{lengths:?}");
            }
        });
    }
}
