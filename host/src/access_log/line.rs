//! What a line says, written as JSON by hand: nothing is allocated for it.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr},
};

use http::Version;

use crate::{
    clock::Timestamp,
    error::{ErrorKind, ErrorSource},
};

/// Bytes of a User-Agent that are written.
const MAX_USER_AGENT: usize = 512;

/// A request that is over. What is `None` is left out.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// When the request was over, in milliseconds since the epoch.
    pub time_ms: u64,
    /// The id that an error answer carries.
    pub id: Option<&'a str>,
    pub client: IpAddr,
    pub method: &'a str,
    pub host: &'a [u8],
    /// As the client wrote it, with the query.
    pub path: &'a [u8],
    pub version: Version,
    pub status: u16,
    /// Bytes of the answer's body.
    pub bytes_sent: u64,
    pub duration_ns: u64,
    pub upstream: Option<&'a str>,
    /// From sending to the response's head.
    pub upstream_ns: Option<u64>,
    pub route: Option<&'a str>,
    pub consumer: Option<&'a str>,
    /// The plugin that gave the answer.
    pub answered_by: Option<&'a str>,
    pub error: Option<ErrorKind>,
    /// Cut at 512 bytes.
    pub user_agent: Option<&'a [u8]>,
}

impl Line<'_> {
    /// Appends the line and its end.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(b"{\"time\":\"");
        to.extend_from_slice(Timestamp::new(self.time_ms).as_bytes());
        to.push(b'"');
        optional(to, "id", self.id.map(str::as_bytes));
        to.extend_from_slice(b",\"client\":\"");
        address(to, self.client);
        to.push(b'"');
        text(to, "method", self.method.as_bytes());
        text(to, "host", self.host);
        text(to, "path", self.path);
        text(to, "version", version(self.version));
        number(to, "status", self.status.into());
        number(to, "bytes_sent", self.bytes_sent);
        milliseconds(to, "duration_ms", self.duration_ns);
        optional(to, "upstream", self.upstream.map(str::as_bytes));
        if let Some(nanoseconds) = self.upstream_ns {
            milliseconds(to, "upstream_ms", nanoseconds);
        }
        optional(to, "route", self.route.map(str::as_bytes));
        optional(to, "consumer", self.consumer.map(str::as_bytes));
        optional(to, "answered_by", self.answered_by.map(str::as_bytes));
        if let Some(error) = self.error {
            text(to, "error", error.name().as_bytes());
            text(to, "error_source", source(error.source()));
        }
        optional(to, "user_agent", self.user_agent.map(|agent| &agent[..agent.len().min(MAX_USER_AGENT)]));
        to.extend_from_slice(b"}\n");
    }
}

fn version(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_09 => b"0.9",
        Version::HTTP_10 => b"1.0",
        Version::HTTP_2 => b"2",
        Version::HTTP_3 => b"3",
        _ => b"1.1",
    }
}

fn source(source: ErrorSource) -> &'static [u8] {
    match source {
        ErrorSource::Downstream => b"downstream",
        ErrorSource::Upstream => b"upstream",
        ErrorSource::Plugin => b"plugin",
        ErrorSource::Internal => b"internal",
    }
}

/// Starts a member behind another one.
fn name(to: &mut Vec<u8>, name: &str) {
    to.extend_from_slice(b",\"");
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b"\":");
}

fn text(to: &mut Vec<u8>, of: &str, value: &[u8]) {
    name(to, of);
    to.push(b'"');
    escape(to, value);
    to.push(b'"');
}

fn optional(to: &mut Vec<u8>, of: &str, value: Option<&[u8]>) {
    if let Some(value) = value {
        text(to, of, value);
    }
}

fn number(to: &mut Vec<u8>, of: &str, value: u64) {
    name(to, of);
    to.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Three decimals, cut.
fn milliseconds(to: &mut Vec<u8>, of: &str, nanoseconds: u64) {
    let microseconds = nanoseconds / 1000;
    number(to, of, microseconds / 1000);
    let digit = |weight: u64| b'0' + (microseconds / weight % 10) as u8;
    to.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

fn address(to: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => ipv4(to, address),
        // Writing to a Vec can't fail.
        IpAddr::V6(address) => drop(write!(to, "{address}")),
    }
}

/// By hand, because nearly all clients have one and formatting takes ten times
/// as long.
fn ipv4(to: &mut Vec<u8>, address: Ipv4Addr) {
    for (place, octet) in address.octets().into_iter().enumerate() {
        if place > 0 {
            to.push(b'.');
        }
        to.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
    }
}

/// Whether a byte stands for itself in a JSON string.
static IS_PLAIN: [bool; 256] = {
    let mut is_plain = [false; 256];
    let mut byte = 0x20;
    while byte < 0x7f {
        is_plain[byte] = byte != b'"' as usize && byte != b'\\' as usize;
        byte += 1;
    }
    is_plain
};

/// Appends bytes as the inside of a JSON string. What is no UTF-8 becomes
/// U+FFFD; control characters are escaped, also those that JSON would allow, for
/// logs are read in terminals.
fn escape(to: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.iter().all(|byte| IS_PLAIN[usize::from(*byte)]) {
        to.extend_from_slice(bytes);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => to.extend_from_slice(b"\\\""),
                '\\' => to.extend_from_slice(b"\\\\"),
                // All of them are below U+00A0.
                control if control.is_control() => drop(write!(to, "\\u{:04x}", u32::from(control))),
                other => to.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            to.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub const PLAIN: Line<'static> = Line {
        time_ms: 1_796_115_600_123,
        id: None,
        client: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)),
        method: "GET",
        host: b"api.example.com",
        path: b"/users?page=2",
        version: Version::HTTP_11,
        status: 200,
        bytes_sent: 512,
        duration_ns: 1_234_567,
        upstream: None,
        upstream_ns: None,
        route: None,
        consumer: None,
        answered_by: None,
        error: None,
        user_agent: None,
    };

    fn written(line: Line) -> String {
        let mut bytes = Vec::new();
        line.write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn absent_members_are_left_out() {
        assert_eq!(
            written(PLAIN),
            concat!(
                r#"{"time":"2026-12-01T09:00:00.123Z","client":"127.0.0.1","method":"GET","host":"api.example.com","#,
                r#""path":"/users?page=2","version":"1.1","status":200,"bytes_sent":512,"duration_ms":1.234}"#,
                "\n"
            )
        );
    }

    #[test]
    fn present_members_are_written() {
        let line = written(Line {
            id: Some("00ff"),
            client: "2001:db8::1".parse().unwrap(),
            version: Version::HTTP_2,
            upstream: Some("users"),
            upstream_ns: Some(50_000),
            route: Some("users"),
            consumer: Some("alice"),
            answered_by: Some("cache"),
            error: Some(ErrorKind::ResponseTimeout),
            user_agent: Some(&[b'a'; 1000]),
            ..PLAIN
        });
        let expected = json!({
            "time": "2026-12-01T09:00:00.123Z", "id": "00ff", "client": "2001:db8::1", "method": "GET",
            "host": "api.example.com", "path": "/users?page=2", "version": "2", "status": 200, "bytes_sent": 512,
            "duration_ms": 1.234, "upstream": "users", "upstream_ms": 0.05, "route": "users", "consumer": "alice",
            "answered_by": "cache", "error": "response_timeout", "error_source": "upstream",
            "user_agent": "a".repeat(512),
        });
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
    }

    #[test]
    fn any_bytes_make_one_line_of_json() {
        let all: Vec<u8> = (0..=255).collect();
        for path in [&all[..], b"\"\\\n\r\t\x00\x1b[2J", "é 漢 \u{9b}\u{7f}".as_bytes(), b"\xf0\x9f\x98", b""] {
            let line = written(Line { path, user_agent: Some(path), ..PLAIN });
            assert!(!line[..line.len() - 1].chars().any(char::is_control), "{line:?}");
            let value: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(value["path"], *String::from_utf8_lossy(path));
        }
    }
}
