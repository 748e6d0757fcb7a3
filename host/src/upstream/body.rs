//! A response's body, which holds on to its connection until it ends.

use std::{
    cell::{Cell, RefCell},
    fmt::Display,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::{
    http1::{Broken, Incoming, Outgoing, SendError},
    target::Lease,
};
use crate::{
    error::{ErrorKind, GatewayError},
    io::Io,
};

/// A response's body. When it has been read to its end, its connection is there
/// for the next request at once; dropped before that, it closes it.
pub struct ResponseBody {
    source: Source,
    target: Arc<str>,
}

enum Source {
    Whole(Bytes),
    Connection(Reading),
    /// All of a connection's body has been read, or it has broken.
    Ended,
}

/// A body that comes over a connection.
struct Reading {
    incoming: Incoming,
    lease: Lease,
    /// Whether the connection may be used again, as far as the response goes.
    persistent: bool,
    /// The request's body, where that has not been sent to its end.
    rest: Option<Rest>,
}

impl ResponseBody {
    pub(super) fn new(incoming: Incoming, lease: Lease, persistent: bool, rest: Option<Rest>) -> Self {
        let target = lease.target.authority.clone();
        let is_end = incoming.is_end();
        let mut body = Self { source: Source::Connection(Reading { incoming, lease, persistent, rest }), target };
        if is_end {
            body.end();
        }
        body
    }

    pub(super) fn whole(bytes: Bytes, target: Arc<str>) -> Self {
        Self { source: Source::Whole(bytes), target }
    }

    /// Who has answered: a target's authority, or the name of an upstream
    /// without targets.
    pub fn target(&self) -> &Arc<str> {
        &self.target
    }

    /// Whether the head announces fields behind it.
    pub fn announces(&self) -> bool {
        matches!(&self.source, Source::Connection(reading) if reading.incoming.announces())
    }

    /// The body is through. Where the request is not, the connection closes.
    fn end(&mut self) {
        if let Source::Connection(reading) = std::mem::replace(&mut self.source, Source::Ended) {
            let is_sent = reading.rest.is_none_or(|rest| rest.is_sent());
            reading.lease.finish(reading.incoming.into_connection(), reading.persistent && is_sent);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = GatewayError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, GatewayError>>> {
        let body = self.get_mut();
        match &mut body.source {
            Source::Ended => Poll::Ready(None),
            Source::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Source::Connection(reading) => match reading.poll_frame(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some(Err(error))) => {
                    body.source = Source::Ended;
                    Poll::Ready(Some(Err(error)))
                }
                Poll::Ready(frame) => {
                    // Whoever reads may stop here, without asking for more.
                    if frame.is_none() || reading.incoming.is_end() {
                        body.end();
                    }
                    Poll::Ready(frame)
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Ended => true,
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Connection(reading) => reading.incoming.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Ended => SizeHint::with_exact(0),
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Connection(reading) => reading.incoming.size_hint(),
        }
    }
}

impl Reading {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, GatewayError>>> {
        if let Some(rest) = &self.rest
            && let Poll::Ready(error) = rest.poll_failed(cx)
        {
            return Poll::Ready(Some(Err(error)));
        }
        self.incoming.poll_frame(cx).map_err(|broken| {
            let why: &dyn Display = match &broken {
                Broken::Cut(error) => error,
                Broken::Malformed(malformed) => malformed,
            };
            GatewayError::because(ErrorKind::BadResponse, format!("{}: {why}", self.lease.target.authority))
        })
    }
}

/// The rest of a request, which goes on while its response comes: a target may
/// answer early, and a client may not read before it has sent everything. This
/// alone of an exchange runs in a task of its own.
pub struct Rest {
    task: JoinHandle<()>,
    state: Rc<RestState>,
}

#[derive(Default)]
struct RestState {
    sent: Cell<bool>,
    /// What the request's body has failed with.
    failure: RefCell<Option<GatewayError>>,
    reader: RefCell<Option<Waker>>,
}

impl Rest {
    pub fn send<B>(mut outgoing: Outgoing<B>, io: Io) -> Self
    where
        B: Body<Data = Bytes, Error = GatewayError> + Unpin + 'static,
    {
        let state = Rc::new(RestState::default());
        let shared = state.clone();
        let task = tokio::task::spawn_local(async move {
            match poll_fn(|cx| outgoing.poll_send(cx, &io)).await {
                Ok(()) => shared.sent.set(true),
                // A target that has answered need not read on.
                Err(SendError::Connection(_)) => {}
                Err(SendError::Body(error)) => {
                    *shared.failure.borrow_mut() = Some(error);
                    let reader = shared.reader.borrow_mut().take();
                    reader.into_iter().for_each(Waker::wake);
                }
            }
        });
        Self { task, state }
    }

    fn is_sent(&self) -> bool {
        self.state.sent.get()
    }

    /// Ready when the request's body has failed.
    fn poll_failed(&self, cx: &mut Context<'_>) -> Poll<GatewayError> {
        if let Some(error) = self.state.failure.borrow_mut().take() {
            return Poll::Ready(error);
        }
        let replaced = self.state.reader.borrow_mut().replace(cx.waker().clone());
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Rest {
    /// Nobody waits any more for what becomes of the request.
    fn drop(&mut self) {
        self.task.abort();
    }
}
