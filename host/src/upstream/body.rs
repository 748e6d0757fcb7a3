//! Bodies as this side sees them: a request's on its way to a connection, and
//! a response's, which holds on to its connection until it ends.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::target::Lease;
use crate::error::{ErrorKind, GatewayError};

/// Whose turn it is while a request's body is sent.
#[derive(Debug, Clone, Copy)]
pub enum Progress {
    /// The client's: no more of the body has come.
    Downstream,
    /// The target's, since then: to take what there is, or to respond.
    Upstream(Instant),
}

/// A request's body, watched on its way.
pub struct RequestContent<B> {
    body: Option<B>,
    /// Not there for an empty body.
    progress: Option<Rc<Cell<Progress>>>,
}

impl<B: Body> RequestContent<B> {
    pub fn new(body: B) -> Self {
        let progress = (!body.is_end_stream()).then(|| Rc::new(Cell::new(Progress::Downstream)));
        Self { body: Some(body), progress }
    }

    pub fn empty() -> Self {
        Self { body: None, progress: None }
    }

    pub fn progress(&self) -> Option<Rc<Cell<Progress>>> {
        self.progress.clone()
    }
}

impl<B> Body for RequestContent<B>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin,
{
    type Data = Bytes;
    type Error = GatewayError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, GatewayError>>> {
        let content = self.get_mut();
        let Some(body) = &mut content.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        if let Some(progress) = &content.progress {
            let ready = frame.is_ready();
            progress.set(if ready { Progress::Upstream(Instant::now()) } else { Progress::Downstream });
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), B::size_hint)
    }
}

/// A response's body. When it has been read to its end, its connection is there
/// for the next request at once; dropped before that, it closes it.
pub struct ResponseBody<B> {
    source: Source<B>,
    target: Arc<str>,
}

enum Source<B> {
    /// Without a lease from the end on, whichever way it ended.
    Connection {
        incoming: Incoming,
        lease: Option<Lease<B>>,
        reusable: bool,
    },
    Whole(Bytes),
}

impl<B> ResponseBody<B> {
    pub(super) fn new(incoming: Incoming, lease: Lease<B>, reusable: bool) -> Self {
        let target = lease.target.authority.clone();
        let mut lease = Some(lease);
        if incoming.is_end_stream() {
            finish(&mut lease, reusable);
        }
        Self { source: Source::Connection { incoming, lease, reusable }, target }
    }

    pub(super) fn whole(bytes: Bytes, target: Arc<str>) -> Self {
        Self { source: Source::Whole(bytes), target }
    }

    /// Who has answered: a target's authority, or the name of an upstream
    /// without targets.
    pub fn target(&self) -> &Arc<str> {
        &self.target
    }
}

fn finish<B>(lease: &mut Option<Lease<B>>, reusable: bool) {
    if let Some(lease) = lease.take() {
        lease.finish(reusable);
    }
}

impl<B> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = GatewayError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, GatewayError>>> {
        match &mut self.get_mut().source {
            Source::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Source::Connection { incoming, lease, reusable } => {
                let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
                Poll::Ready(match frame {
                    Some(Ok(frame)) => {
                        // Whoever reads may stop here, without asking for more.
                        if frame.is_trailers() || incoming.is_end_stream() {
                            finish(lease, *reusable);
                        }
                        Some(Ok(frame))
                    }
                    Some(Err(error)) => {
                        *lease = None;
                        Some(Err(GatewayError::because(ErrorKind::BadResponse, error)))
                    }
                    None => {
                        finish(lease, *reusable);
                        None
                    }
                })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Connection { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Connection { incoming, .. } => incoming.size_hint(),
        }
    }
}
