//! Bodies on their way through: never buffered, counted, and watched by a
//! deadline while nothing moves.

use std::{
    error::Error,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::{
    error::{ErrorKind, GatewayError},
    exchange::Ending,
    flow::Flow,
    timer::{Deadline, Timer},
};

/// A response's body as it comes from a target.
pub type FromTarget = crate::upstream::ResponseBody;

/// A request's body, from the client to the upstream.
pub enum RequestBody {
    Empty,
    Streamed(Box<Streamed>),
}

pub struct Streamed {
    incoming: Incoming,
    /// Bytes that may still come.
    left: u64,
    idle: Duration,
    deadline: Deadline,
    waiting: bool,
}

impl RequestBody {
    /// Refuses a body at once that says to be longer than allowed.
    pub fn new(incoming: Incoming, max: Option<u64>, idle: Duration, timer: &Rc<Timer>) -> Result<Self, ErrorKind> {
        if incoming.is_end_stream() {
            return Ok(RequestBody::Empty);
        }
        let left = max.unwrap_or(u64::MAX);
        if incoming.size_hint().lower() > left {
            return Err(ErrorKind::BodyTooLarge);
        }
        let deadline = timer.deadline();
        Ok(RequestBody::Streamed(Box::new(Streamed { incoming, left, idle, deadline, waiting: false })))
    }
}

/// Why a request's body can't be read on: its chunks are none, or it has ended
/// too early.
fn broken(error: &hyper::Error) -> ErrorKind {
    use io::ErrorKind::{InvalidData, InvalidInput};
    match error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind) {
        Some(InvalidData | InvalidInput) => ErrorKind::BadRequest("a body with invalid chunks"),
        _ => ErrorKind::ClientGone,
    }
}

impl Streamed {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ErrorKind>>> {
        match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Pending => {
                if !self.waiting {
                    self.waiting = true;
                    self.deadline.set(Instant::now() + self.idle);
                }
                self.deadline.poll_expired(cx).map(|()| Some(Err(ErrorKind::BodyTimeout)))
            }
            Poll::Ready(Some(Ok(frame))) => {
                self.moved();
                if let Some(data) = frame.data_ref() {
                    match self.left.checked_sub(data.len() as u64) {
                        Some(left) => self.left = left,
                        None => return Poll::Ready(Some(Err(ErrorKind::BodyTooLarge))),
                    }
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(broken(&error)))),
            Poll::Ready(None) => {
                self.moved();
                Poll::Ready(None)
            }
        }
    }

    fn moved(&mut self) {
        if self.waiting {
            self.waiting = false;
            self.deadline.clear();
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = GatewayError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, GatewayError>>> {
        let RequestBody::Streamed(body) = self.get_mut() else { return Poll::Ready(None) };
        body.poll(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Streamed(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty => SizeHint::with_exact(0),
            RequestBody::Streamed(body) => body.incoming.size_hint(),
        }
    }
}

/// A response's body, from wherever to the client. It owns what is left of the
/// request, and ends it when it ends itself, one way or another.
pub struct ResponseBody {
    content: Content,
    flow: Option<Flow>,
    ended: bool,
}

/// Where a response's body comes from.
pub enum Content {
    Empty,
    Whole(Bytes),
    Upstream(Box<FromUpstream>),
}

pub struct FromUpstream {
    body: FromTarget,
    idle: Duration,
    /// The whole request's deadline.
    total: Option<Instant>,
    deadline: Deadline,
    waiting: bool,
}

impl Content {
    pub fn upstream(body: FromTarget, idle: Duration, total: Option<Instant>, timer: &Rc<Timer>) -> Self {
        if body.is_end_stream() {
            return Content::Empty;
        }
        let deadline = timer.deadline();
        Content::Upstream(Box::new(FromUpstream { body, idle, total, deadline, waiting: false }))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Content::Empty => SizeHint::with_exact(0),
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Upstream(from) => from.body.size_hint(),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Content::Empty => true,
            Content::Whole(bytes) => !bytes.has_remaining(),
            Content::Upstream(from) => from.body.is_end_stream(),
        }
    }
}

impl FromUpstream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, GatewayError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => {
                if !self.waiting {
                    self.waiting = true;
                    let idle = Instant::now() + self.idle;
                    self.deadline.set(self.total.map_or(idle, |total| total.min(idle)));
                }
                self.deadline.poll_expired(cx).map(|()| Some(Err(self.expired().into())))
            }
            Poll::Ready(frame) => {
                if self.waiting {
                    self.waiting = false;
                    self.deadline.clear();
                }
                if frame.is_some() && self.total.is_some_and(|total| Instant::now() > total) {
                    return Poll::Ready(Some(Err(ErrorKind::TotalTimeout.into())));
                }
                Poll::Ready(frame)
            }
        }
    }

    /// Which of the two times the deadline was for.
    fn expired(&self) -> ErrorKind {
        match self.total.is_some_and(|total| Instant::now() >= total) {
            true => ErrorKind::TotalTimeout,
            false => ErrorKind::ResponseTimeout,
        }
    }
}

impl ResponseBody {
    pub fn new(content: Content, flow: Flow) -> Self {
        Self { content, flow: Some(flow), ended: false }
    }

    /// Ends the request.
    fn end(&mut self, ending: Ending) {
        self.ended = true;
        if let Some(flow) = self.flow.take() {
            flow.end(ending);
        }
    }

    fn count(&mut self, bytes: usize) {
        if let Some(flow) = &mut self.flow {
            flow.count_sent(bytes as u64);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = GatewayError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, GatewayError>>> {
        let body = self.get_mut();
        match &mut body.content {
            Content::Empty => {
                body.end(Ending::Complete);
                Poll::Ready(None)
            }
            Content::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                if bytes.is_empty() {
                    body.end(Ending::Complete);
                    return Poll::Ready(None);
                }
                body.count(bytes.len());
                body.end(Ending::Complete);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Content::Upstream(from) => match from.poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => {
                    body.end(Ending::Complete);
                    Poll::Ready(None)
                }
                Poll::Ready(Some(Ok(frame))) => {
                    let (bytes, last) = (frame.data_ref().map_or(0, Bytes::len), from.body.is_end_stream());
                    body.count(bytes);
                    if last {
                        body.end(Ending::Complete);
                    }
                    Poll::Ready(Some(Ok(frame)))
                }
                Poll::Ready(Some(Err(error))) => {
                    if let Some(flow) = &mut body.flow {
                        flow.cut(&error);
                    }
                    body.end(match error.kind {
                        ErrorKind::BadResponse => Ending::UpstreamCut,
                        ErrorKind::ClientGone => Ending::ClientGone,
                        kind => Ending::Stopped(kind),
                    });
                    Poll::Ready(Some(Err(error)))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.content.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        if self.ended { SizeHint::with_exact(0) } else { self.content.size_hint() }
    }
}

impl Drop for ResponseBody {
    /// Dropped with nothing left to send it was complete; hyper does not poll a
    /// body that has none, nor one of an answer to HEAD.
    fn drop(&mut self) {
        if self.flow.is_some() {
            let ending = if self.content.is_end() { Ending::Complete } else { Ending::ClientGone };
            self.end(ending);
        }
    }
}
