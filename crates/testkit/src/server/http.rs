//! The part of HTTP/1.1 that a model client sends: a request with a body by length or chunked.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// With lower-case names.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Reads one request; `None` if the client has closed the connection before it.
pub(crate) fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let Some(line) = read_line(reader)? else { return Ok(None) };
    let mut words = line.split(' ');
    let (Some(method), Some(path), Some(_version)) = (words.next(), words.next(), words.next())
    else {
        return Err(malformed("request line"));
    };
    let mut headers = BTreeMap::new();
    while let Some(line) = read_line(reader)?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("header"))?;
        headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
    }
    let body = if let Some(length) = headers.get("content-length") {
        read_exact(reader, length.parse().map_err(|_| malformed("content-length"))?)?
    } else if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        read_chunks(reader)?
    } else {
        Vec::new()
    };
    Ok(Some(Request { method: method.to_owned(), path: path.to_owned(), headers, body }))
}

fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(reader)?.ok_or_else(|| malformed("chunk"))?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| malformed("chunk size"))?;
        if size == 0 {
            break;
        }
        if body.len().saturating_add(size) > BODY_BYTES_MAX {
            return Err(malformed("body: too long"));
        }
        body.append(&mut read_exact(reader, size)?);
        read_line(reader)?;
    }
    // Trailers, which nobody sends, and the empty line after them.
    while read_line(reader)?.is_some_and(|line| !line.is_empty()) {}
    Ok(body)
}

fn read_exact(reader: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    if length > BODY_BYTES_MAX {
        return Err(malformed("body: too long"));
    }
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads a line without its line ending; `None` at the end of the input.
fn read_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(malformed("line: cut off or too long"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what}"))
}

const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Much larger than any context window, but small enough for the machine.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &str, want: Result<&[(&str, &str, &str)], io::ErrorKind>) {
        let mut reader = bytes.as_bytes();
        let mut got = Vec::new();
        let end = loop {
            match read_request(&mut reader) {
                Ok(Some(request)) => got.push(request),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.kind()),
            }
        };
        let got: Vec<_> = got
            .iter()
            .map(|r| (&r.method[..], &r.path[..], std::str::from_utf8(&r.body).unwrap()))
            .collect();
        assert_eq!(end.map(|()| &got[..]), want, "{bytes:?}");
    }

    #[test]
    fn requests() {
        let invalid = Err(io::ErrorKind::InvalidData);
        check("", Ok(&[]));
        check("GET /a HTTP/1.1\r\nHost: x\r\n\r\n", Ok(&[("GET", "/a", "")]));
        check(
            "POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\n\r\n",
            Ok(&[("POST", "/a", "hi"), ("GET", "/b", "")]),
        );
        check(
            "POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\nA;x=y\r\n0123456789\r\n\
             0\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
            Ok(&[("POST", "/a", "hi0123456789"), ("GET", "/b", "")]),
        );
        check("nonsense\r\n\r\n", invalid);
        check("GET /a HTTP/1.1\r\nno colon\r\n\r\n", invalid);
        check("POST /a HTTP/1.1\r\ncontent-length: many\r\n\r\n", invalid);
        check("POST /a HTTP/1.1\r\ncontent-length: 999999999999\r\n\r\n", invalid);
        check("POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", invalid);
        check("POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\nhi", Err(io::ErrorKind::UnexpectedEof));
        check(&format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(70_000)), invalid);
    }
}
