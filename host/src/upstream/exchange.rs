//! One request over one connection.

use std::{
    cell::Cell,
    error::Error,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::{body::Incoming, client::conn::TrySendError};

use super::{
    body::{Progress, RequestContent},
    connect::Link,
};
use crate::{
    error::{ErrorKind, GatewayError},
    timer::{Deadline, Timer},
};

/// Why there is no response.
pub enum Failure {
    /// The connection broke, which one that had been idle may do at any time.
    Broken(GatewayError),
    /// Another connection would not help.
    Final(GatewayError),
}

/// Sends the request and waits for the response's head, but no longer than
/// `limit` while it is the target's turn. Where nothing of the request has been
/// written, it is in its place again after a failure.
pub async fn run<B>(
    link: &mut Link<B>,
    request: &mut Option<Request<RequestContent<B>>>,
    limit: Duration,
    timer: &Rc<Timer>,
) -> Result<Response<Incoming>, Failure>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin + 'static,
{
    let Some(sent) = request.take() else {
        return Err(Failure::Final(ErrorKind::Internal.into()));
    };
    let mut patience = Patience { limit, timer, progress: sent.body().progress(), deadline: None };
    let mut response = pin!(link.sender.try_send_request(sent));
    std::future::poll_fn(|cx| match response.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(outcome.map_err(|error| failure(error, request))),
        Poll::Pending => patience.poll_lost(cx).map(|()| Err(Failure::Final(ErrorKind::ResponseTimeout.into()))),
    })
    .await
}

/// Sorts an error of hyper, and saves the request if it comes with it.
fn failure<B>(mut error: TrySendError<Request<B>>, request: &mut Option<Request<B>>) -> Failure {
    *request = error.take_message();
    let error = error.into_error();
    // The request's body has failed, not the target.
    if let Some(own) = error.source().and_then(|source| source.downcast_ref::<GatewayError>()) {
        let kind = own.kind;
        return Failure::Final(GatewayError::because(kind, error));
    }
    let not_http = error.is_parse();
    let error = GatewayError::because(ErrorKind::BadResponse, error);
    if not_http { Failure::Final(error) } else { Failure::Broken(error) }
}

/// Waits for a target as long as it may take.
struct Patience<'a> {
    limit: Duration,
    timer: &'a Rc<Timer>,
    /// How far the request's body is, if it has one.
    progress: Option<Rc<Cell<Progress>>>,
    deadline: Option<Deadline>,
}

impl Patience<'_> {
    /// Ready when the target has had its time. The deadline is not moved with
    /// each piece of the body, but looked into when it expires.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (limit, timer) = (self.limit, self.timer);
        let deadline = self.deadline.get_or_insert_with(|| {
            let deadline = timer.deadline();
            deadline.set(timer.now() + limit);
            deadline
        });
        loop {
            ready!(deadline.poll_expired(cx));
            let now = Instant::now();
            match self.progress.as_ref().map(|progress| progress.get()) {
                Some(Progress::Downstream) => deadline.set(now + limit),
                Some(Progress::Upstream(since)) if since + limit > now => deadline.set(since + limit),
                _ => return Poll::Ready(()),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// The clock runs while it is the target's turn, not while the client sends.
    #[test]
    fn a_slow_client_does_not_use_up_the_targets_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let timer = Timer::start();
            let progress = Rc::new(Cell::new(Progress::Downstream));
            let limit = Duration::from_millis(1);
            let mut patience = Patience { limit, timer: &timer, progress: Some(progress.clone()), deadline: None };
            let mut lost = async |progress_now, wait| {
                progress.set(progress_now);
                timer.timeout(Duration::from_millis(wait), poll_fn(|cx| patience.poll_lost(cx))).await.is_ok()
            };
            assert!(!lost(Progress::Downstream, 50).await);
            assert!(lost(Progress::Upstream(timer.now()), 10_000).await);
        });
    }
}
