//! From a target to a connection that takes requests.

use std::{io, rc::Rc, time::Duration};

use tokio::net::TcpStream;

use super::{http1::Connection, target::Target};
use crate::{
    error::{ErrorKind, GatewayError},
    timer::Timer,
};

/// Opens a connection. All addresses of the target's name are tried in their
/// order, within `limit` in all.
pub async fn connect(target: &Target, limit: Duration, timer: &Rc<Timer>) -> Result<Box<Connection>, GatewayError> {
    let failed =
        |kind, why: &dyn std::fmt::Display| GatewayError::because(kind, format!("{}: {why}", target.authority));
    match timer.timeout(limit, TcpStream::connect((&*target.host, target.port))).await {
        Ok(Ok(stream)) => Connection::new(stream).map_err(|error| failed(ErrorKind::Connect, &error)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => Err(failed(ErrorKind::ConnectTimeout, &error)),
        Ok(Err(error)) => Err(failed(ErrorKind::Connect, &error)),
        Err(elapsed) => Err(failed(ErrorKind::ConnectTimeout, &elapsed)),
    }
}
