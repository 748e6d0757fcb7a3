//! A request's first steps: what breaks HTTP is refused, what belongs to the
//! client's connection is taken off, and a route is found.

use http::{HeaderName, HeaderValue, Method, Uri, header, uri::PathAndQuery};
use hyper::body::Incoming;

use crate::{
    body::RequestBody,
    config::UnderscoreHeaders,
    error::{ErrorKind, GatewayError},
    exchange::{Exchange, LogFields, RequestHead},
    flow::Flow,
    headers::{self, Seen},
    path,
    router::Asked,
};

/// Checks the head and brings it into the form that everybody behind works on.
pub fn check(flow: &mut Flow) -> Result<(), GatewayError> {
    let settings = flow.settings.clone();
    let Some(exchange) = &mut flow.exchange else { return Err(ErrorKind::Internal.into()) };
    let Exchange { request: head, log: LogFields { uri, .. }, .. } = &mut **exchange;
    if head.method == Method::CONNECT || head.method == Method::TRACE {
        return Err(ErrorKind::MethodRefused.into());
    }
    let seen = Seen::scan(&head.headers);
    let size = head_size(head, uri);
    headers::check_framing(&head.headers, &seen, head.version)?;
    head.authority = headers::authority(uri.authority(), &head.headers, &seen, head.version)?;
    if uri.authority().is_some() {
        // The target wins, so nobody behind is to read another Host.
        head.headers.insert(header::HOST, head.authority.clone());
    }
    if seen.trailer() {
        head.trailers = headers::take_announced(&mut head.headers);
    }
    flow.takes_trailers = headers::strip_request(&mut head.headers, &seen);
    if settings.underscore_headers == UnderscoreHeaders::Drop {
        headers::drop_underscores(&mut head.headers, &seen);
        head.trailers.retain(|name| !name.as_str().contains('_'));
    }
    read_target(head, uri, settings.limits.target)?;
    // hyper looks at its limit only between two reads, and takes none below 8 KiB.
    if size > settings.limits.head {
        return Err(ErrorKind::HeadTooLarge.into());
    }
    if seen.forwarded() {
        let (client, trusted) = (&flow.connection.client_text, &settings.trusted_proxies);
        let forwarded = headers::forward(&mut head.headers, head.client, client, &head.authority, trusted);
        head.client = forwarded.client;
        head.scheme = forwarded.scheme;
    } else {
        head.forwarded_pending = true;
    }
    Ok(())
}

/// Bytes of the head, without blanks around values.
fn head_size(head: &RequestHead, uri: &Uri) -> usize {
    let line = head.method.as_str().len() + uri.path_and_query().map_or(0, |target| target.as_str().len());
    let field = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + ":\r\n".len();
    line + "  HTTP/1.1\r\n".len() + head.headers.iter().map(field).sum::<usize>()
}

/// Splits the request target into what is decided by and what is sent.
fn read_target(head: &mut RequestHead, uri: &Uri, limit: usize) -> Result<(), ErrorKind> {
    let Some(target) = uri.path_and_query() else {
        return Err(ErrorKind::BadRequest("a request target without path"));
    };
    if target.as_str().len() > limit {
        return Err(ErrorKind::TargetTooLong);
    }
    if target.query().is_some_and(|query| !query.is_ascii()) {
        return Err(ErrorKind::BadRequest("the query is not ASCII"));
    }
    let paths = path::normalise(target.path())?;
    // In absolute form it may lack the path, for which `path` says `/`.
    let as_it_came = target.as_str().starts_with('/') && *paths.upstream == *target.path();
    if *paths.normal != *paths.upstream {
        head.path = Some(Box::from(&*paths.normal));
    }
    head.target = if as_it_came { target.clone() } else { with_path(target, &paths.upstream)? };
    Ok(())
}

/// The same target with another path.
fn with_path(target: &PathAndQuery, path: &str) -> Result<PathAndQuery, ErrorKind> {
    let text = match target.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    PathAndQuery::from_maybe_shared(bytes::Bytes::from(text)).map_err(|_| ErrorKind::BadRequest("an invalid path"))
}

/// Chooses the route, before any plugin; what a plugin rewrites goes upstream,
/// the choice stays.
pub fn find_route(flow: &mut Flow) -> Result<(), GatewayError> {
    let Some(exchange) = &mut flow.exchange else { return Err(ErrorKind::Internal.into()) };
    let snapshot = exchange.snapshot.clone();
    if snapshot.router.looks_at_headers() {
        exchange.request.set_forwarded(&flow.connection.client_text);
    }
    let head = &mut exchange.request;
    head.trailers.retain(|name| !snapshot.router.looks_at(name));
    let asked = Asked {
        host: headers::host_of(&head.authority),
        path: head.path(),
        method: &head.method,
        headers: &head.headers,
        query: head.target.query(),
    };
    let place = snapshot.router.find(&asked).ok_or(ErrorKind::NoRoute)?;
    exchange.route = place;
    let Some(prefix) = snapshot.config.routes.get(place).and_then(|route| route.strip_prefix.as_deref()) else {
        return Ok(());
    };
    strip_prefix(head, prefix)?;
    Ok(())
}

/// Takes a prefix off what goes upstream, if the path has it.
fn strip_prefix(head: &mut RequestHead, prefix: &str) -> Result<(), ErrorKind> {
    let path = head.path();
    let has = path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if !has {
        return Ok(());
    }
    let stripped = with_path(&head.target, &path::strip_prefix(head.target.path(), prefix))?;
    // The path that was matched stays what plugins decide by.
    head.path = Some(Box::from(head.path()));
    head.target = stripped;
    Ok(())
}

/// The body as far as the route allows it.
pub fn limit_body(flow: &Flow, incoming: Incoming) -> Result<RequestBody, GatewayError> {
    let exchange = flow.exchange.as_ref();
    let route = exchange.and_then(|exchange| exchange.snapshot.config.routes.get(exchange.route));
    let max = route.and_then(|route| route.max_body);
    Ok(RequestBody::new(incoming, max, flow.settings.timeouts.body_idle, &flow.worker().timer)?)
}
