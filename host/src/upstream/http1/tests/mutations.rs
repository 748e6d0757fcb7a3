//! Responses with random faults. Nothing panics, the way that bytes are cut
//! changes nothing, and a head that is taken is read by a parser of other make in
//! the same way.

use super::*;

const HEADS: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-One: 1\r\nSet-Cookie: a=b; c\r\nSet-Cookie: d\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\nConnection: close, x-one\r\nX-One: \xff\r\n\r\n",
    b"HTTP/1.0 404\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
];

/// What a fault is made of, beside any byte.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b": ",
    b":",
    b" ",
    b"\t",
    b"\0",
    b";",
    b",",
    b"0",
    b"f",
    b"chunked",
    b"Content-Length: 4\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"ffffffffffffffff",
];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    fn spoil(&mut self, text: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(text.len() + 1);
            let end = (at + self.below(4)).min(text.len());
            let piece = PIECES[self.below(PIECES.len())];
            match self.below(5) {
                0 => drop(text.drain(at..end)),
                1 => text.insert(at, self.below(256) as u8),
                2 if at < text.len() => text[at] ^= 1 << self.below(8),
                3 => drop(text.splice(at..end, piece.iter().copied())),
                _ => drop(text.splice(at..at, piece.iter().copied())),
            }
        }
    }
}

#[test]
fn heads() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut taken = 0;
    for round in 0..20_000 {
        let mut text = HEADS[round % HEADS.len()].to_vec();
        random.spoil(&mut text);
        // Checks the cuts by itself.
        let Ok(Some(head)) = parse(&text) else { continue };
        taken += 1;
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut other = httparse::Response::new(&mut fields);
        let shown = String::from_utf8_lossy(&text).into_owned();
        assert!(other.parse(&text).is_ok_and(|status| status.is_complete()), "{shown:?}");
        assert_eq!(other.code, Some(head.status.as_u16()), "{shown:?}");
        let mut ours: Vec<_> =
            head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
        let mut theirs: Vec<_> =
            other.headers.iter().map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec())).collect();
        // The map keeps the lines of a name together.
        ours.sort_by(|one, other| one.0.cmp(&other.0));
        theirs.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(ours, theirs, "{shown:?}");
        for method in [Method::GET, Method::HEAD] {
            if let Ok(Head { framing: Framing::Length(_), headers, .. }) = decided(&text, &method) {
                assert_eq!(headers.get_all("content-length").iter().count(), 1, "{shown:?}");
            }
        }
    }
    // Most faults are in a value or beyond the head, and do no harm.
    assert!(taken > 1000, "{taken}");
}

#[test]
fn chunks() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut ended = 0;
    for _ in 0..20_000 {
        let mut text = CHUNKS.to_vec();
        random.spoil(&mut text);
        let at_once = read_chunks(&text, [usize::MAX]);
        let cuts: Vec<usize> = (0..text.len()).map(|_| 1 + random.below(9)).collect();
        let in_pieces = read_chunks(&text, cuts);
        let shown = String::from_utf8_lossy(&text);
        match (&at_once, &in_pieces) {
            (Ok(read), Ok(other)) => assert_eq!(read, other, "{shown:?}"),
            // Only which fault is told first may depend on the cuts.
            (Err(_), Err(_)) => {}
            _ => panic!("{shown:?}: {at_once:?}, {in_pieces:?}"),
        }
        ended += usize::from(at_once.is_ok_and(|read| read.rest.is_some()));
    }
    assert!(ended > 1000, "{ended}");
}
