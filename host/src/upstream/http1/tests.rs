//! What is read from a target, byte for byte: whatever can't be read in one way
//! only is refused, and how the bytes are cut changes nothing.

#![allow(clippy::panic)]

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Version};

mod mutations;

use super::{
    chunked::{Chunked, Step},
    head::{self, Parsed},
    *,
};

/// What a head is read as, however it comes in.
fn parse(text: &[u8]) -> Result<Option<Parsed>, Malformed> {
    let mut lines = Lines::default();
    let mut cut = 0..=text.len();
    let end = cut.find_map(|cut| lines.find_end(&text[..cut]).transpose()).transpose()?;
    let at_once = Lines::default().find_end(text)?;
    assert_eq!(end, at_once);
    let Some(end) = end else { return Ok(None) };
    let head = Bytes::copy_from_slice(&text[..end]);
    let mut names = Names::default();
    let parsed = head::parse(head.clone(), &lines, &mut names);
    // Whatever the connection has seen before: the same head, or one like it.
    assert_eq!(format!("{:?}", head::parse(head.clone(), &lines, &mut names)), format!("{parsed:?}"));
    let other = b"HTTP/1.1 200 OK\r\nContent-Type: a\r\nX: b\r\nx-A: c\r\nConnection: close\r\n\r\n";
    let mut names = Names::default();
    let mut others = Lines::default();
    assert_eq!(others.find_end(other).unwrap(), Some(other.len()));
    head::parse(Bytes::from_static(other), &others, &mut names).unwrap();
    assert_eq!(format!("{:?}", head::parse(head, &lines, &mut names)), format!("{parsed:?}"));
    parsed.map(Some)
}

fn decided(text: &[u8], method: &Method) -> Result<Head, Malformed> {
    framing::decide(parse(text)?.unwrap(), method)
}

fn answer(fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into_bytes()
}

#[test]
fn a_head_is_taken_apart() {
    let text = b"HTTP/1.1 404 Not Found, \xe4\t!\r\nContent-Type:text/plain\r\nX-A: \t b c \t\r\nx-a:\r\nSET-COOKIE: \xff\r\n\r\nbody";
    let head = parse(text).unwrap().unwrap();
    assert_eq!((head.version, head.status.as_u16()), (Version::HTTP_11, 404));
    let fields: Vec<_> = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(fields, [("content-type", &b"text/plain"[..]), ("x-a", b"b c"), ("x-a", b""), ("set-cookie", b"\xff")]);
}

#[test]
fn status_lines() {
    for (line, status) in
        [("HTTP/1.1 200 OK", 200), ("HTTP/1.0 599 ", 599), ("HTTP/1.1 204", 204), ("HTTP/1.1 999 x", 999)]
    {
        let head = parse(format!("{line}\r\n\r\n").as_bytes()).unwrap().unwrap();
        assert_eq!(head.status.as_u16(), status, "{line}");
    }
    for line in [
        "",
        "HTTP/1.1",
        "HTTP/1.1 ",
        "HTTP/1.1 20",
        "HTTP/1.1 2000",
        "HTTP/1.1 099 x",
        "HTTP/1.1 +20 x",
        "HTTP/1.1 20x OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1\t200 OK",
        "HTTP/1.1 200OK",
        "HTTP/1.2 200 OK",
        "HTTP/2 200 OK",
        "HTTP/2.0 200 OK",
        "http/1.1 200 OK",
        " HTTP/1.1 200 OK",
        "ICY 200 OK",
        "HTTP/1.1 200 O\0K",
        "HTTP/1.1 200 O\rK",
        "HTTP/1.1 200 O\x7fK",
    ] {
        assert!(parse(format!("{line}\r\n\r\n").as_bytes()).is_err(), "{line:?}");
    }
}

#[test]
fn lines_that_could_be_read_in_two_ways() {
    for fields in [
        "a: 1\n",
        "a: 1\n\r\n",
        "a: 1\r\r\n",
        "a: 1\rb: 2\r\n",
        "a: 1\r\n b\r\n",
        "a: 1\r\n\tb: 2\r\n",
        " a: 1\r\n",
        "a : 1\r\n",
        "a\t: 1\r\n",
        "a\r\n",
        ": 1\r\n",
        "a b: 1\r\n",
        "a\0: 1\r\n",
        "\u{e4}: 1\r\n",
        "a: \0\r\n",
        "a: \x7f\r\n",
        "a: \x0b\r\n",
        "(a): 1\r\n",
    ] {
        assert!(matches!(parse(&answer(fields)), Err(Malformed(_))), "{fields:?}");
    }
}

/// Neither is waited for once the start of a head is wrong.
#[test]
fn a_bare_feed_is_refused_before_the_heads_end() {
    for text in [&b"HTTP/1.1 200 OK\n"[..], b"\n", b"HTTP/1.1 200 OK\r\na: 1\n"] {
        assert!(parse(text).is_err());
    }
    for text in [&b""[..], b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r"] {
        assert!(parse(text).unwrap().is_none());
    }
}

#[test]
fn where_a_body_ends() {
    let framing = |fields: &str, method| format!("{:?}", decided(&answer(fields), &method).unwrap().framing);
    for (fields, expected) in [
        ("", "Close"),
        ("content-length: 0\r\n", "Empty"),
        ("content-length: 7\r\n", "Length(7)"),
        ("content-length: 007\r\n", "Length(7)"),
        ("content-length: 7\r\ncontent-length: 7\r\n", "Length(7)"),
        ("content-length: 18446744073709551615\r\n", "Length(18446744073709551615)"),
    ] {
        assert_eq!(framing(fields, Method::GET), expected);
        assert_eq!(framing(fields, Method::HEAD), "Empty");
    }
    // Zeros in front may be taken for octal, behind us.
    for (told, length) in [("0", "0"), ("00", "0"), ("007", "7"), ("0010", "10"), ("10", "10")] {
        for fields in [format!("content-length: {told}\r\n"), format!("content-length: {told}\r\n").repeat(2)] {
            assert_eq!(decided(&answer(&fields), &Method::HEAD).unwrap().headers["content-length"], length);
        }
    }
    for coding in ["chunked", "Chunked", "CHUNKED"] {
        let fields = format!("transfer-encoding: {coding}\r\n");
        assert!(framing(&fields, Method::GET).starts_with("Chunked"));
        assert_eq!(framing(&fields, Method::HEAD), "Empty");
    }
    for status in [204, 304] {
        for fields in ["", "content-length: 7\r\n", "transfer-encoding: chunked\r\n"] {
            let text = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
            let head = decided(text.as_bytes(), &Method::GET).unwrap();
            assert!(matches!(head.framing, Framing::Empty), "{text}");
            assert!(head.persistent, "{text}");
        }
    }
}

/// Also where there is no body: the next reader may think otherwise.
#[test]
fn framing_that_is_at_odds() {
    for fields in [
        "content-length: \r\n",
        "content-length: -1\r\n",
        "content-length: +1\r\n",
        "content-length: 1 1\r\n",
        "content-length: 1, 1\r\n",
        "content-length: 0x1\r\n",
        "content-length: 18446744073709551616\r\n",
        "content-length: 1\r\ncontent-length: 2\r\n",
        "content-length: 1\r\ncontent-length:\r\n",
        "content-length: 1\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 1\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked;x\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: \r\n",
        "transfer-encoding: \x0bchunked\r\n",
    ] {
        for method in [Method::GET, Method::HEAD] {
            assert!(decided(&answer(fields), &method).is_err(), "{method} {fields:?}");
        }
    }
    let old = b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    assert!(decided(old, &Method::GET).is_err());
}

#[test]
fn fields_of_the_connection_stay_here() {
    let fields =
        "connection: x-hop, keep-alive\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nx-end: 1\r\ncontent-length: 1\r\n";
    let head = decided(&answer(fields), &Method::GET).unwrap();
    assert!(head.persistent);
    let names: Vec<_> = head.headers.keys().map(|name| name.as_str()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(head.headers["x-end"], HeaderValue::from_static("1"));
    for (version, fields, persistent) in [
        ("1.1", "content-length: 1\r\n", true),
        ("1.1", "connection: close\r\ncontent-length: 1\r\n", false),
        ("1.1", "connection: x-hop, Close\r\ncontent-length: 1\r\n", false),
        ("1.1", "connection: x\r\nconnection: close\r\ncontent-length: 1\r\n", false),
        ("1.1", "", false),
        ("1.0", "connection: keep-alive\r\ncontent-length: 1\r\n", false),
    ] {
        let text = format!("HTTP/{version} 200 OK\r\n{fields}\r\n");
        assert_eq!(decided(text.as_bytes(), &Method::GET).unwrap().persistent, persistent, "{text}");
    }
}

/// A body of chunks, and what is behind it.
#[derive(Debug, PartialEq)]
struct Read {
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    /// `None` if there is no end.
    rest: Option<Vec<u8>>,
}

/// Reads chunks that come in pieces of the lengths given, the last of them over
/// and over.
fn read_chunks(text: &[u8], cuts: impl IntoIterator<Item = usize>) -> Result<Read, Malformed> {
    let (mut chunked, mut received) = (Chunked::default(), BytesMut::new());
    let mut read = Read { body: Vec::new(), trailers: Vec::new(), rest: None };
    let (mut left, mut cuts, mut size) = (text, cuts.into_iter(), 1);
    loop {
        match chunked.next(&mut received)? {
            Step::Data(piece) => {
                assert!(!piece.is_empty());
                read.body.extend_from_slice(&piece);
                if chunked.has_ended(&mut received) {
                    read.rest = Some([&received[..], left].concat());
                    return Ok(read);
                }
            }
            Step::End(trailers) => {
                let field =
                    |(name, value): (&http::HeaderName, &HeaderValue)| (name.to_string(), value.as_bytes().to_vec());
                read.trailers = trailers.iter().map(field).collect();
                read.rest = Some([&received[..], left].concat());
                return Ok(read);
            }
            Step::More if left.is_empty() => return Ok(read),
            Step::More => {
                size = cuts.next().unwrap_or(size).clamp(1, left.len());
                let (piece, rest) = left.split_at(size);
                received.extend_from_slice(piece);
                left = rest;
            }
        }
    }
}

const CHUNKS: &[u8] =
    b"5\r\nhello\r\n00a ;x=\"y\"\r\n, chunked \r\n5 \t\r\nworld\r\n000\r\nX-Sum: 7\r\nx-sum: 8\r\n\r\nHTTP/1.1 200";

#[test]
fn chunks_are_taken_apart_however_they_come() {
    let whole = read_chunks(CHUNKS, [usize::MAX]).unwrap();
    assert_eq!(whole.body, b"hello, chunked world");
    assert_eq!(whole.trailers, [("x-sum".to_owned(), b"7".to_vec()), ("x-sum".to_owned(), b"8".to_vec())]);
    assert_eq!(whole.rest.as_deref(), Some(&b"HTTP/1.1 200"[..]));
    for first in 1..CHUNKS.len() {
        assert_eq!(read_chunks(CHUNKS, [first, 1]).unwrap(), whole, "{first}");
        assert_eq!(read_chunks(CHUNKS, [first, usize::MAX]).unwrap(), whole, "{first}");
    }
    let (mut seed, plain) = (1_u32, b"3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
    for _ in 0..1000 {
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as usize % 9
        };
        let cuts: Vec<usize> = (0..CHUNKS.len()).map(|_| random()).collect();
        assert_eq!(read_chunks(CHUNKS, cuts.clone()).unwrap(), whole);
        let read = read_chunks(plain, cuts).unwrap();
        assert_eq!((&read.body[..], read.rest.as_deref()), (&b"abc0123456789abcdef"[..], Some(&b""[..])));
    }
}

#[test]
fn a_cut_body_has_no_end() {
    let end = CHUNKS.len() - b"HTTP/1.1 200".len();
    for end in 0..end {
        assert_eq!(read_chunks(&CHUNKS[..end], [usize::MAX]).unwrap().rest, None, "{end}");
    }
}

#[test]
fn chunks_that_are_none() {
    for text in [
        &b"\r\n"[..],
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\n",
        b"+5\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5x\r\nhello\r\n0\r\n\r\n",
        b"5 5\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"5\r\nhelloXY0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b"5;a\0\r\nhello\r\n0\r\n\r\n",
        b"5\r\r\nhello\r\n0\r\n\r\n",
        b"10000000000000000\r\n",
        b"00000000000000005\r\nhello\r\n0\r\n\r\n",
        b"0\n\r\n",
        b"0\r\n\n",
        b"0\r\na\r\n\r\n",
        b"0\r\na: 1\n\r\n",
        b"0\r\n a: 1\r\n\r\n",
    ] {
        for cut in [1, usize::MAX] {
            assert!(read_chunks(text, [cut]).is_err(), "{:?}", String::from_utf8_lossy(text));
        }
    }
    let largest = read_chunks(b"ffffffffffffffff\r\nx", [usize::MAX]).unwrap();
    assert_eq!((&largest.body[..], largest.rest), (&b"x"[..], None));
}

#[test]
fn what_a_target_may_say_has_limits() {
    let line = |extension: usize| format!("1;{}\r\nx\r\n", "e".repeat(extension));
    assert!(read_chunks(line(4000).as_bytes(), [usize::MAX]).is_ok());
    assert!(read_chunks(line(5000).as_bytes(), [usize::MAX]).is_err());
    assert!(read_chunks("1".repeat(5000).as_bytes(), [usize::MAX]).is_err());
    assert!(read_chunks(line(1000).repeat(16).as_bytes(), [usize::MAX]).is_ok());
    assert!(read_chunks(line(1000).repeat(17).as_bytes(), [usize::MAX]).is_err());

    let fields =
        |fields: usize, size: usize| format!("0\r\n{}\r\n", format!("a: {}\r\n", "v".repeat(size)).repeat(fields));
    assert_eq!(read_chunks(fields(100, 600).as_bytes(), [usize::MAX]).unwrap().trailers.len(), 100);
    assert!(read_chunks(fields(101, 1).as_bytes(), [usize::MAX]).is_err());
    assert!(read_chunks(fields(100, 700).as_bytes(), [usize::MAX]).is_err());
    assert!(read_chunks(fields(1, 70_000).as_bytes(), [1000]).is_err());
}
