//! Decodes the framing of `text/event-stream`: lines to the data of events.
//!
//! `data` is what matters: most model endpoints put the event type inside it. The name of an event is kept
//! for those that do not. Lines end with LF, CR or CRLF; a byte order mark at the start, comments and other
//! fields are skipped.

use memchr::{memchr, memchr2};

/// Size limit of one event, in bytes.
pub const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How much buffer is kept for the next event.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Decodes one stream, incrementally.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The beginning of an unfinished line.
    line: Vec<u8>,
    data: Vec<u8>,
    name: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    begun: bool,
    errors_are_data: bool,
}

/// An event with its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    /// The name of the event; empty if it has none.
    pub(crate) name: &'a [u8],
    pub(crate) data: &'a [u8],
    /// Bytes of the push up to the end of the event; the line feed of a CRLF is not counted, because it may
    /// come later.
    pub(crate) end: usize,
}

/// An event of the stream is longer than [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("an event of the stream is longer than {EVENT_BYTES_MAX} bytes")]
pub struct EventTooLong;

impl Decoder {
    /// Decodes the next bytes and passes the data of each completed event to `sink`.
    pub fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> Result<(), EventTooLong> {
        self.push_bounded(bytes, EVENT_BYTES_MAX, |event| sink(event.data))
    }

    /// Returns a decoder that treats a field `error` as the data of an event of that name.
    ///
    /// The standard has no such field, but some servers report failures in one.
    pub(crate) fn with_errors() -> Self {
        Self { errors_are_data: true, ..Self::default() }
    }

    /// Decodes the next bytes and passes each completed event to `sink`, with its name.
    pub(crate) fn push_named(
        &mut self,
        bytes: &[u8],
        sink: impl FnMut(Named<'_>),
    ) -> Result<(), EventTooLong> {
        self.push_bounded(bytes, EVENT_BYTES_MAX, sink)
    }

    /// Ends the stream; an event that only lacks its blank line still counts.
    ///
    /// The standard drops such an event. Some endpoints close right after the last one, and half an event
    /// does not parse, so this is safe.
    pub fn finish(&mut self, mut sink: impl FnMut(&[u8])) {
        self.finish_named(|event| sink(event.data));
    }

    /// Ends the stream like [`Self::finish`], and also passes the name of the last event.
    pub(crate) fn finish_named(&mut self, mut sink: impl FnMut(Named<'_>)) {
        let line = std::mem::take(&mut self.line);
        self.take_line(&line, 0, &mut sink);
        self.dispatch(0, &mut sink);
    }

    fn push_bounded(
        &mut self,
        mut bytes: &[u8],
        bytes_max: usize,
        mut sink: impl FnMut(Named<'_>),
    ) -> Result<(), EventTooLong> {
        let length = bytes.len();
        // A line feed right after a carriage return belongs to it, also across chunks.
        if let (true, Some(first)) = (self.after_cr, bytes.first()) {
            self.after_cr = false;
            if *first == b'\n' {
                bytes = &bytes[1..];
            }
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            let taken = length - bytes.len() + end + 1;
            if self.line.is_empty() {
                self.take_line(&bytes[..end], taken, &mut sink);
            } else {
                self.line.extend_from_slice(&bytes[..end]);
                let mut line = std::mem::take(&mut self.line);
                if line.len() > KEPT_BYTES_MAX && !self.has_data && line.starts_with(b"data:") {
                    // The only line of a long event becomes its data, instead of being copied.
                    let blank = usize::from(line.get(5) == Some(&b' '));
                    line.drain(..5 + blank);
                    (self.data, self.has_data, self.begun) = (line, true, true);
                } else {
                    self.take_line(&line, taken, &mut sink);
                    self.line = line;
                    self.line.clear();
                    self.line.shrink_to(KEPT_BYTES_MAX);
                }
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

    fn take_line(&mut self, line: &[u8], end: usize, sink: &mut impl FnMut(Named<'_>)) {
        let line =
            if self.begun { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            self.dispatch(end, sink);
            return;
        }
        let (field, value) = match memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => self.take_data(value),
            b"event" => self.set_name(value),
            b"error" if self.errors_are_data => {
                self.set_name(b"error");
                self.take_data(value);
            }
            _ => {}
        }
    }

    fn take_data(&mut self, value: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
    }

    fn set_name(&mut self, name: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(name);
    }

    fn dispatch(&mut self, end: usize, sink: &mut impl FnMut(Named<'_>)) {
        if self.has_data {
            sink(Named { name: &self.name, data: &self.data, end });
            self.has_data = false;
            self.data.clear();
            self.data.shrink_to(KEPT_BYTES_MAX);
        }
        self.name.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Decoder, EventTooLong, Named};

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

    /// The only line of a long event is not copied; what surrounds it is still decoded.
    #[test]
    fn long_events() {
        let long = "x".repeat(super::KEPT_BYTES_MAX + 7);
        for (text, want) in [
            (format!("data: a\n\ndata: {long}\n\ndata: b\n\n"), vec!["a", &long, "b"]),
            (format!("data:{long}\r\n\r\ndata:b"), vec![&long, "b"]),
            (format!("\u{feff}data: {long}\n\n"), vec![&long]),
        ] {
            for chunk in [1000, text.len() - 1, text.len()] {
                assert_eq!(decode(text.as_bytes(), chunk), want, "by {chunk}");
            }
        }
        let text = format!("event: e\ndata: {long}\ndata: b\n\n");
        assert_eq!(decode(text.as_bytes(), 70_000), [format!("{long}\nb")]);
    }

    #[test]
    fn framing() {
        check("", &[]);
        check("data: a\n\n", &["a"]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("data: a\r\n\ndata: b\n\r\ndata: c\r\n\n", &["a", "b", "c"]);
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
    fn names_and_places() {
        for (text, want) in [
            ("event: a\ndata: 1\n\ndata: 2\n\n", &["a 1 @18", " 2 @27"][..]),
            ("event:a\r\n\r\ndata: 1\r\n\r\n", &[" 1 @21"]),
            ("event: a\nevent: b\ndata: 1", &["b 1 at the end"]),
            ("error: oh\n\n", &["error oh @11"]),
        ] {
            for chunk in 1..=text.len() {
                let (mut decoder, mut at, mut got) = (Decoder::with_errors(), 0, Vec::new());
                let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                for piece in text.as_bytes().chunks(chunk) {
                    let sink = |event: Named<'_>| {
                        let (name, data) = (show(event.name), show(event.data));
                        got.push(format!("{name} {data} @{}", at + event.end));
                    };
                    decoder.push_named(piece, sink).expect("it is short");
                    at += piece.len();
                }
                decoder.finish_named(|event| {
                    got.push(format!("{} {} at the end", show(event.name), show(event.data)));
                });
                assert_eq!(got, want, "{text:?} by {chunk}");
            }
        }
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
        fn any_bytes_decode_the_same_in_any_chunking(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b'd'), any::<u8>()], 0..200),
            chunk in 1usize..40,
        ) {
            prop_assert_eq!(decode(&bytes, chunk), decode(&bytes, bytes.len().max(1)));
        }
    }
}
