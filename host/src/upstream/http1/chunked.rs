//! Chunks (RFC 9112 section 7.1). Extensions mean nothing from hop to hop and
//! are left out.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::{
    HEAD, Malformed, head,
    head::{Lines, Names},
};

/// Bytes that a line with a chunk's size may have.
const LINE: usize = 4 << 10;
/// Bytes of extensions that a body may have in all.
const EXTENSIONS: usize = 16 << 10;

/// Takes a body of chunks apart, however it comes in.
#[derive(Debug, Default)]
pub struct Chunked {
    /// Whether the head announces fields behind it.
    pub announced: bool,
    state: State,
    /// Bytes of extensions so far.
    extensions: usize,
}

#[derive(Debug, Default)]
enum State {
    /// Before the line with a chunk's size.
    #[default]
    Size,
    /// In a chunk, with so many bytes left of it.
    Data(u64),
    /// Behind a chunk's last byte.
    DataEnd,
    /// Behind the last chunk.
    Trailers(Lines),
}

/// What comes next.
#[derive(Debug, PartialEq)]
pub enum Step {
    Data(Bytes),
    /// The body's end, with the fields that came there.
    End(HeaderMap),
    /// More has to come first.
    More,
}

impl Chunked {
    pub fn new(announced: bool) -> Self {
        Self { announced, ..Self::default() }
    }

    pub fn next(&mut self, received: &mut BytesMut) -> Result<Step, Malformed> {
        loop {
            match &mut self.state {
                State::Size => {
                    let Some(feed) = memchr::memchr(b'\n', received.get(..LINE).unwrap_or(received)) else {
                        return if received.len() < LINE {
                            Ok(Step::More)
                        } else {
                            Err(Malformed("a chunk's size too long"))
                        };
                    };
                    let (size, extensions) = size(received.get(..feed).unwrap_or_default())?;
                    self.extensions += extensions;
                    if self.extensions > EXTENSIONS {
                        return Err(Malformed("too many chunk extensions"));
                    }
                    let _ = received.split_to(feed + 1);
                    self.state = if size == 0 { State::Trailers(Lines::default()) } else { State::Data(size) };
                }
                State::Data(left) => {
                    if received.is_empty() {
                        return Ok(Step::More);
                    }
                    let here = usize::try_from(*left).map_or(received.len(), |left| left.min(received.len()));
                    *left -= here as u64;
                    if *left == 0 {
                        self.state = State::DataEnd;
                    }
                    return Ok(Step::Data(received.split_to(here).freeze()));
                }
                State::DataEnd => match received.get(..2) {
                    Some(b"\r\n") => {
                        let _ = received.split_to(2);
                        self.state = State::Size;
                    }
                    Some(_) => return Err(Malformed("a chunk longer than its size")),
                    None => return Ok(Step::More),
                },
                State::Trailers(lines) => {
                    let end = lines.find_end(received)?;
                    if end.unwrap_or(received.len()) > HEAD {
                        return Err(Malformed("trailers too large"));
                    }
                    let Some(end) = end else { return Ok(Step::More) };
                    let block = received.split_to(end).freeze();
                    let trailers = head::fields(&block, lines, 0, &mut Names::default(), |_, _| true)?;
                    *lines = Lines::default();
                    return Ok(Step::End(trailers));
                }
            }
        }
    }

    /// Takes the end that has come already, if nothing but that is left: whoever
    /// has the last piece of data then knows that it is the last.
    pub fn has_ended(&self, received: &mut BytesMut) -> bool {
        const END: &[u8] = b"\r\n0\r\n\r\n";
        let ended = matches!(self.state, State::DataEnd) && received.starts_with(END);
        if ended {
            let _ = received.split_to(END.len());
        }
        ended
    }
}

/// A chunk's size, and how long its extensions are. The line comes without its
/// LF.
fn size(line: &[u8]) -> Result<(u64, usize), Malformed> {
    const WRONG: Malformed = Malformed("a chunk's size that is none");
    let line = line.strip_suffix(b"\r").ok_or(Malformed("a line that ends without CR"))?;
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (number, rest) = line.split_at(digits);
    if !(1..=16).contains(&digits) {
        return Err(WRONG);
    }
    let size = number.iter().fold(0_u64, |size, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            _ => (digit | 0x20) - b'a' + 10,
        };
        size << 4 | u64::from(digit)
    });
    let extensions = rest.trim_ascii_start();
    let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    match extensions {
        [] | [b';', ..] if rest.iter().all(is_text) => Ok((size, rest.len())),
        _ => Err(WRONG),
    }
}
