//! From a target to a connection that takes requests.

use std::{io, rc::Rc, time::Duration};

use bytes::Bytes;
use http_body::Body;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use tokio::{net::TcpStream, task::JoinHandle};

use super::{
    body::RequestContent,
    target::Target,
    wire::{Wire, Written},
};
use crate::{
    error::{ErrorKind, GatewayError},
    io::{Io, IoHandle},
    timer::Timer,
};

/// Bytes that the head of a response may have. hyper's limit of 100 fields
/// stays: a larger one would cost every response an allocation.
const HEAD: usize = 64 << 10;

/// A connection to a target, which closes when this is dropped.
pub struct Link<B> {
    pub sender: SendRequest<RequestContent<B>>,
    pub written: Rc<Written>,
    io: IoHandle,
    task: Option<JoinHandle<hyper::Result<()>>>,
}

impl<B> Link<B> {
    /// Whether the next request can be sent: the last one is through in both
    /// directions, and nothing has come since.
    pub fn is_usable(&self) -> bool {
        self.sender.is_ready() && self.io.is_quiet()
    }
}

impl<B> Drop for Link<B> {
    fn drop(&mut self) {
        // Without it the task would first send the rest of a request's body,
        // for which there may be nobody any more.
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Opens a connection. All addresses of the target's name are tried in their
/// order, within `limit` in all.
pub async fn connect<B>(target: &Target<B>, limit: Duration, timer: &Rc<Timer>) -> Result<Link<B>, GatewayError>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin + 'static,
{
    let failed =
        |kind, why: &dyn std::fmt::Display| GatewayError::because(kind, format!("{}: {why}", target.authority));
    match timer.timeout(limit, TcpStream::connect((&*target.host, target.port))).await {
        Ok(Ok(stream)) => open(stream).await.map_err(|error| failed(ErrorKind::Connect, &error)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => Err(failed(ErrorKind::ConnectTimeout, &error)),
        Ok(Err(error)) => Err(failed(ErrorKind::Connect, &error)),
        Err(elapsed) => Err(failed(ErrorKind::ConnectTimeout, &elapsed)),
    }
}

async fn open<B>(stream: TcpStream) -> io::Result<Link<B>>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin + 'static,
{
    let (mut link, connection) = handshake(stream).await?;
    link.task = Some(tokio::task::spawn_local(connection));
    Ok(link)
}

/// A link, and the connection that has yet to be run.
pub async fn handshake<B>(stream: TcpStream) -> io::Result<(Link<B>, Connection<Wire, RequestContent<B>>)>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin + 'static,
{
    stream.set_nodelay(true)?;
    let stream = Io::new(stream);
    let io = stream.handle();
    let (wire, written) = Wire::new(stream);
    let handshake = http1::Builder::new().max_header_size(HEAD).handshake(wire).await;
    let (sender, connection) = handshake.map_err(io::Error::other)?;
    Ok((Link { sender, written, io, task: None }, connection))
}
