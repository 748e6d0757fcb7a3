//! What goes wrong with a request: the kind says whose fault it is, and
//! `error_response` alone turns it into a status.

use std::{error::Error, fmt};

/// A failure that ends a request.
#[derive(Debug)]
pub struct GatewayError {
    pub kind: ErrorKind,
    /// For the log, never for the client.
    pub cause: Option<Box<dyn Error + Send + Sync>>,
}

/// Who has to mend it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorSource {
    Downstream,
    Upstream,
    Plugin,
    Internal,
}

/// Every way in which a request can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request breaks HTTP; the text says how and may be shown.
    BadRequest(&'static str),
    /// The request target is longer than the listener allows.
    TargetTooLong,
    /// More fields, or a longer head, than the listener allows.
    HeadTooLarge,
    /// No route matches.
    NoRoute,
    /// CONNECT and TRACE.
    MethodRefused,
    /// The body is longer than the route allows.
    BodyTooLarge,
    /// The client stopped sending its body.
    BodyTimeout,
    /// The client's connection broke before its request was whole.
    ClientGone,

    /// No target takes a connection.
    Connect,
    /// No connection in time.
    ConnectTimeout,
    /// No response in time.
    ResponseTimeout,
    /// The request as a whole took too long.
    TotalTimeout,
    /// The connection broke, or what came was no HTTP.
    BadResponse,

    /// The plugin trapped or panicked.
    Trap,
    /// The plugin used up its CPU time.
    CpuLimit,
    /// The plugin took too long.
    WallLimit,
    /// The plugin wanted more memory than it may have.
    MemoryLimit,
    /// The plugin returned `fail`, or an answer it had not prepared.
    Failed,
    /// No instance became free in time.
    Busy,
    /// The plugin has crashed too often and is left alone for a while.
    Suspended,

    /// The gateway is at its limits.
    Overload,
    /// A fault of our own.
    Internal,
}

impl ErrorKind {
    pub fn source(self) -> ErrorSource {
        use ErrorKind::*;
        match self {
            BadRequest(_) | TargetTooLong | HeadTooLarge | NoRoute | MethodRefused | BodyTooLarge | BodyTimeout
            | ClientGone => ErrorSource::Downstream,
            Connect | ConnectTimeout | ResponseTimeout | TotalTimeout | BadResponse => ErrorSource::Upstream,
            Trap | CpuLimit | WallLimit | MemoryLimit | Failed | Busy | Suspended => ErrorSource::Plugin,
            Overload | Internal => ErrorSource::Internal,
        }
    }

    /// One word for metrics and logs.
    pub fn name(self) -> &'static str {
        use ErrorKind::*;
        match self {
            BadRequest(_) => "bad_request",
            TargetTooLong => "target_too_long",
            HeadTooLarge => "head_too_large",
            NoRoute => "no_route",
            MethodRefused => "method_refused",
            BodyTooLarge => "body_too_large",
            BodyTimeout => "body_timeout",
            ClientGone => "client_gone",
            Connect => "connect",
            ConnectTimeout => "connect_timeout",
            ResponseTimeout => "response_timeout",
            TotalTimeout => "total_timeout",
            BadResponse => "bad_response",
            Trap => "trap",
            CpuLimit => "cpu_limit",
            WallLimit => "wall_limit",
            MemoryLimit => "memory_limit",
            Failed => "failed",
            Busy => "busy",
            Suspended => "suspended",
            Overload => "overload",
            Internal => "internal",
        }
    }
}

impl GatewayError {
    pub fn new(kind: ErrorKind) -> Self {
        Self { kind, cause: None }
    }

    pub fn because(kind: ErrorKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, cause: Some(cause.into()) }
    }
}

impl From<ErrorKind> for GatewayError {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let ErrorKind::BadRequest(why) = self.kind {
            write!(f, ": {why}")?;
        }
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
            let mut inner = cause.source();
            while let Some(error) = inner {
                write!(f, ": {error}")?;
                inner = error.source();
            }
        }
        Ok(())
    }
}

impl Error for GatewayError {}
