//! Serves the admin address, beside the workers and not on them.

use std::{convert::Infallible, net::TcpListener, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use tokio::{net, task::JoinHandle};

use super::{AdminState, answer};
use crate::io::Io;

/// How long one connection may take: it has one request.
const CONNECTION: Duration = Duration::from_secs(30);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A socket that is served until this is dropped.
pub struct Server(JoinHandle<()>);

impl Server {
    /// Must be called within a `LocalSet`.
    pub fn start(socket: TcpListener, state: Arc<AdminState>) -> Self {
        Self(tokio::task::spawn_local(async move {
            match net::TcpListener::from_std(socket) {
                Ok(socket) => accept(socket, state).await,
                Err(error) => tracing::error!(%error, "admin listener can't be used"),
            }
        }))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept(socket: net::TcpListener, state: Arc<AdminState>) {
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                let state = state.clone();
                tokio::task::spawn_local(tokio::time::timeout(CONNECTION, serve(stream, state)));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(stream: net::TcpStream, state: Arc<AdminState>) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = answer(&state, request.method(), request.uri().path()).map(Whole);
        async move { Ok::<Response<Whole>, Infallible>(response) }
    });
    let _ = http1::Builder::new().keep_alive(false).serve_connection(Io::new(stream), service).await;
}

/// A body that is there already.
struct Whole(Bytes);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.0);
        std::task::Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}
