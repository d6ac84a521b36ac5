//! The framing of `text/event-stream`: lines to the data of events.
//!
//! Only `data` matters to us: the events of model endpoints name their type inside it. Lines end
//! with LF, CR or CRLF; a byte order mark at the start, comments and other fields are skipped.

use memchr::memchr2;

/// The most bytes one event may have; beyond it the stream is not one we can hold.
pub const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// An incremental decoder.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    begun: bool,
}

/// An event grew beyond [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("an event of the stream is longer than {EVENT_BYTES_MAX} bytes")]
pub struct EventTooLong;

impl Decoder {
    /// Takes the next bytes and gives the data of each event that they complete to `sink`.
    pub fn push(&mut self, bytes: &[u8], sink: impl FnMut(&[u8])) -> Result<(), EventTooLong> {
        self.push_bounded(bytes, EVENT_BYTES_MAX, sink)
    }

    /// Ends the stream; an event that only lacks its blank line still counts.
    ///
    /// The standard drops such an event. Endpoints that close right after the last one exist, and
    /// half an event does not parse, so nothing false can come of it.
    pub fn finish(&mut self, mut sink: impl FnMut(&[u8])) {
        let line = std::mem::take(&mut self.line);
        self.take_line(&line, &mut sink);
        self.dispatch(&mut sink);
    }

    fn push_bounded(
        &mut self,
        mut bytes: &[u8],
        bytes_max: usize,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<(), EventTooLong> {
        // A line feed right after a carriage return belongs to it, also across a cut.
        if self.after_cr && bytes.first() == Some(&b'\n') {
            bytes = &bytes[1..];
        }
        if !bytes.is_empty() {
            self.after_cr = false;
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            if self.line.is_empty() {
                self.take_line(&bytes[..end], &mut sink);
            } else {
                self.line.extend_from_slice(&bytes[..end]);
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut sink);
                self.line = line;
                self.line.clear();
            }
            if bytes[end] == b'\r' {
                match bytes.get(end + 1) {
                    Some(b'\n') => bytes = &bytes[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            bytes = &bytes[end + 1..];
            if self.data.len() > bytes_max {
                return Err(EventTooLong);
            }
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() + self.data.len() > bytes_max { Err(EventTooLong) } else { Ok(()) }
    }

    fn take_line(&mut self, line: &[u8], sink: &mut impl FnMut(&[u8])) {
        let line =
            if self.begun { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            self.dispatch(sink);
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        } else if line == b"data" {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
        }
    }

    fn dispatch(&mut self, sink: &mut impl FnMut(&[u8])) {
        if self.has_data {
            sink(&self.data);
            self.has_data = false;
            self.data.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Decoder, EventTooLong};

    fn decode(bytes: &[u8], chunk: usize) -> Vec<String> {
        let (mut decoder, mut out) = (Decoder::default(), Vec::new());
        for piece in bytes.chunks(chunk.max(1)) {
            decoder
                .push(piece, |data| out.push(String::from_utf8_lossy(data).into_owned()))
                .expect("the test data is small");
        }
        decoder.finish(|data| out.push(String::from_utf8_lossy(data).into_owned()));
        out
    }

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        for chunk in 1..=text.len().max(1) {
            assert_eq!(decode(text.as_bytes(), chunk), want, "{text:?} by {chunk}");
        }
    }

    #[test]
    fn framing() {
        check("", &[]);
        check("data: a\n\n", &["a"]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("data: a\ndata: b\n\n", &["a\nb"]);
        check("data:a\ndata:  b\n\n", &["a\n b"]);
        check("event: x\nid: 1\nretry: 5\n: note\ndata: a\n\n", &["a"]);
        check("\u{feff}data: a\n\n", &["a"]);
        check("data\n\ndata: \n\n", &["", ""]);
        check("\n\n\n", &[]);
        check("data: unfinished", &["unfinished"]);
        check("garbage without a colon\n\ndata: a\n\n", &["a"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = Decoder::default();
        let flood = vec![b'x'; 100];
        assert_eq!(decoder.push_bounded(&flood, 99, |_| ()), Err(EventTooLong));
        let mut decoder = Decoder::default();
        let lines = b"data: xxxxxxxxxx\n".repeat(10);
        assert_eq!(decoder.push_bounded(&lines, 99, |_| ()), Err(EventTooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_the_same_however_cut(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b'd'), any::<u8>()], 0..200),
            chunk in 1usize..40,
        ) {
            prop_assert_eq!(decode(&bytes, chunk), decode(&bytes, bytes.len().max(1)));
        }
    }
}
