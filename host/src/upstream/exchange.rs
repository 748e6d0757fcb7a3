//! One request over one connection.

use std::{
    error::Error,
    io,
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Method;
use http_body::Body;

use super::http1::{Connection, Head, HeadProgress, NoHead, Outgoing, SendError, Turn};
use crate::{
    error::{ErrorKind, GatewayError},
    timer::{Deadline, Timer},
};

/// Why there is no response.
pub enum Failure {
    /// The connection broke before anything came, which one that had been idle
    /// may do at any time.
    Broken(GatewayError),
    /// Another connection would not help.
    Final(GatewayError),
}

impl Failure {
    /// Adds whose failure it is, where the log does not see it otherwise.
    pub fn at(self, target: &str) -> Self {
        let named = |error: GatewayError| match error.cause {
            Some(cause) if error.kind == ErrorKind::BadResponse => {
                GatewayError::because(error.kind, format!("{target}: {cause}"))
            }
            cause => GatewayError { kind: error.kind, cause },
        };
        match self {
            Failure::Broken(error) => Failure::Broken(named(error)),
            Failure::Final(error) => Failure::Final(named(error)),
        }
    }
}

/// Sends the request and waits for the response's head, but no longer than
/// `limit` while it is the target's turn. Tells with the head whether the
/// request is through.
pub async fn run<B>(
    connection: &mut Connection,
    outgoing: &mut Outgoing<B>,
    method: &Method,
    limit: Duration,
    timer: &Rc<Timer>,
) -> Result<(Head, bool), Failure>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin,
{
    let mut sending = Sending::Going;
    let mut progress = HeadProgress::default();
    let mut patience = Patience { limit, timer, deadline: None };
    std::future::poll_fn(|cx| {
        if matches!(sending, Sending::Going)
            && let Poll::Ready(outcome) = outgoing.poll_send(cx, connection.io())
        {
            sending = match outcome {
                Ok(()) => {
                    outgoing.leave_spare(connection);
                    Sending::Done
                }
                Err(SendError::Body(error)) => return Poll::Ready(Err(Failure::Final(error))),
                Err(SendError::Connection(error)) if !outgoing.is_touched() => {
                    return Poll::Ready(Err(Failure::Broken(bad(error))));
                }
                // A target that refuses a request may answer before it closes.
                Err(SendError::Connection(error)) => Sending::Broken(Some(error)),
            };
        }
        match connection.poll_head(cx, &mut progress, method) {
            Poll::Ready(Ok(head)) => Poll::Ready(Ok((head, matches!(sending, Sending::Done)))),
            Poll::Ready(Err(no_head)) => Poll::Ready(Err(failure(no_head, &mut sending))),
            Poll::Pending => {
                ready!(patience.poll_lost(cx, outgoing.turn()));
                Poll::Ready(Err(Failure::Final(ErrorKind::ResponseTimeout.into())))
            }
        }
    })
    .await
}

/// How far the request is.
enum Sending {
    Going,
    Done,
    /// The connection takes no more.
    Broken(Option<io::Error>),
}

fn failure(no_head: NoHead, sending: &mut Sending) -> Failure {
    match no_head {
        // What it says to a write tells more than its end.
        NoHead::Nothing(end) => Failure::Broken(bad(match sending {
            Sending::Broken(error) => error.take().unwrap_or(end),
            _ => end,
        })),
        NoHead::Cut(end) => Failure::Final(bad(end)),
        NoHead::Malformed(malformed) => Failure::Final(bad(malformed)),
    }
}

fn bad(why: impl Error + Send + Sync + 'static) -> GatewayError {
    GatewayError::because(ErrorKind::BadResponse, why)
}

/// Waits for a target as long as it may take.
struct Patience<'a> {
    limit: Duration,
    timer: &'a Rc<Timer>,
    deadline: Option<Deadline>,
}

impl Patience<'_> {
    /// Ready when the target has had its time. The deadline is not moved with
    /// each piece of the body, but looked into when it expires.
    fn poll_lost(&mut self, cx: &mut Context<'_>, turn: Option<Turn>) -> Poll<()> {
        let (limit, timer) = (self.limit, self.timer);
        let deadline = self.deadline.get_or_insert_with(|| {
            let deadline = timer.deadline();
            deadline.set(timer.now() + limit);
            deadline
        });
        loop {
            ready!(deadline.poll_expired(cx));
            let now = Instant::now();
            match turn {
                Some(Turn::Client) => deadline.set(now + limit),
                Some(Turn::Target(since)) if since + limit > now => deadline.set(since + limit),
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
            let mut patience = Patience { limit: Duration::from_millis(1), timer: &timer, deadline: None };
            let mut lost = async |turn, wait| {
                timer
                    .timeout(Duration::from_millis(wait), poll_fn(|cx| patience.poll_lost(cx, Some(turn))))
                    .await
                    .is_ok()
            };
            assert!(!lost(Turn::Client, 50).await);
            assert!(lost(Turn::Target(timer.now()), 10_000).await);
        });
    }
}
