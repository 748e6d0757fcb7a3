//! One address of an upstream, and a request's stay there.

use std::{rc::Rc, sync::Arc};

use http::{HeaderValue, Response, StatusCode, Version, header};
use hyper::body::Incoming;

use super::{balance::InFlight, body::ResponseBody, connect::Link, pool::Pool};
use crate::{
    config,
    error::{ErrorKind, GatewayError},
};

/// A target as one worker uses it; all its upstreams there share it.
pub struct Target<B> {
    pub host: Arc<str>,
    pub port: u16,
    pub authority: Arc<str>,
    pub host_field: HeaderValue,
    pub in_flight: Arc<InFlight>,
    pub pool: Pool<B>,
}

impl<B> Target<B> {
    pub fn new(config: &config::Target, in_flight: Arc<InFlight>) -> Self {
        // A checked authority fits. One that did not would be sent as RFC 9112
        // 3.2 has it for a target without: an empty field.
        let host_field = HeaderValue::from_str(&config.authority).unwrap_or(HeaderValue::from_static(""));
        Self {
            host: config.host.clone(),
            port: config.port,
            authority: config.authority.clone(),
            host_field,
            in_flight,
            pool: Pool::default(),
        }
    }
}

/// A request's place in a target's count. It is given back when this goes,
/// whatever happens; the connection goes back to the pool only if the response
/// has come to its end.
pub struct Lease<B> {
    pub target: Rc<Target<B>>,
    link: Option<Link<B>>,
}

impl<B> Lease<B> {
    pub fn new(target: &Rc<Target<B>>) -> Self {
        target.in_flight.begin();
        Self { target: target.clone(), link: None }
    }

    /// Checks a response's head, and ties the connection to its body.
    pub fn response(
        mut self,
        link: Link<B>,
        response: Response<Incoming>,
    ) -> Result<Response<ResponseBody<B>>, GatewayError> {
        if let Err(problem) = check(&response) {
            let cause = format!("{}: {problem}", self.target.authority);
            return Err(GatewayError::because(ErrorKind::BadResponse, cause));
        }
        // hyper speaks HTTP/1.0 on a connection that has done so once, which
        // leaves no way to frame a body of unknown length.
        let reusable = response.version() == Version::HTTP_11;
        link.written.forget();
        self.link = Some(link);
        Ok(response.map(|incoming| ResponseBody::new(incoming, self, reusable)))
    }

    /// The response has come to its end. If the request has not, or the
    /// response asks for it, the connection is closed all the same.
    pub fn finish(mut self, reusable: bool) {
        if let Some(link) = self.link.take()
            && reusable
            && link.sender.is_ready()
        {
            self.target.pool.put(link);
        }
    }
}

impl<B> Drop for Lease<B> {
    fn drop(&mut self) {
        self.target.in_flight.end();
    }
}

/// What hyper lets pass and a proxy must not.
fn check(response: &Response<Incoming>) -> Result<(), &'static str> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err("switches protocols unasked");
    }
    let headers = response.headers();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        // With any other coding the bytes would go on under a name that the
        // next hop is not told.
        if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err("transfer coding other than chunked");
        }
        // RFC 9112 6.3: may be an attempt at response splitting.
        if headers.contains_key(header::CONTENT_LENGTH) {
            return Err("both Transfer-Encoding and Content-Length");
        }
    }
    Ok(())
}
