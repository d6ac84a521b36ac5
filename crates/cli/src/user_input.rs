//! The user's input: the prompt, and what was piped in.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long to wait for piped input to start when there is already a prompt. A program that starts us with a
/// pipe it never closes must not block us forever.
const PIPE_PATIENCE: Duration = Duration::from_millis(200);

pub(crate) fn prompt(argument: Option<&str>) -> anyhow::Result<String> {
    let mut stdin = std::io::stdin().lock();
    match argument {
        Some(prompt) if prompt != "-" => {
            let piped = if stdin.is_terminal() {
                String::new()
            } else if !has_input(&stdin, PIPE_PATIENCE) {
                // If stderr cannot be written, there is nowhere to report that.
                let _ = writeln!(
                    std::io::stderr(),
                    "heddle: nothing came through stdin within {} ms, so it is not read; to have it waited \
                     for, pipe the prompt too: (echo PROMPT; COMMAND) | heddle exec -",
                    PIPE_PATIENCE.as_millis()
                );
                String::new()
            } else {
                read_text(&mut stdin)?
            };
            if piped.trim().is_empty() {
                if prompt.trim().is_empty() {
                    bail!("the prompt is empty; say what to do");
                }
                return Ok(prompt.to_owned());
            }
            let end = if piped.ends_with('\n') { "" } else { "\n" };
            Ok(format!("{prompt}\n\n<stdin>\n{piped}{end}</stdin>"))
        }
        None if stdin.is_terminal() => {
            bail!("no prompt: give one as an argument, or pipe it in")
        }
        argument => {
            if argument.is_none() {
                // If stderr cannot be written, there is nowhere to report that.
                let _ = writeln!(std::io::stderr(), "heddle: reading the prompt from stdin");
            }
            let prompt = read_text(&mut stdin)?;
            if prompt.trim().is_empty() {
                bail!("no prompt: stdin was empty; give one as an argument, or pipe it in");
            }
            Ok(prompt)
        }
    }
}

/// Reads piped input for a moment before the program exits without having used it.
///
/// A client that writes its prompt while we refuse its flags would get a broken pipe. The published
/// TypeScript SDK does not expect that and crashes its whole program, so that the error message is never
/// read.
pub(crate) fn drain() {
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        return;
    }
    let deadline = Instant::now() + PIPE_PATIENCE;
    let mut buffer = [0; 8192];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !has_input(&stdin, left) {
            return;
        }
        if !stdin.read(&mut buffer).is_ok_and(|length| length > 0) {
            return;
        }
    }
}

fn has_input(stdin: &std::io::StdinLock<'_>, patience: Duration) -> bool {
    let mut fds = [PollFd::new(stdin, PollFlags::IN)];
    let patience = Timespec::try_from(patience).ok();
    // A descriptor that cannot be polled (because it is closed) has no input either.
    poll(&mut fds, patience.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Reads text to its end: UTF-8, or UTF-16 with a byte order mark.
fn read_text(stdin: &mut impl std::io::Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).map_err(|error| anyhow!("stdin could not be read: {error}"))?;
    decode(bytes)
}

fn decode(bytes: Vec<u8>) -> anyhow::Result<String> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<_> =
            bytes.chunks(2).map(|p| unit([p[0], *p.get(1).unwrap_or(&0)])).collect();
        String::from_utf16(&units).map_err(|_| {
            anyhow!("stdin has a UTF-16 byte order mark but is not valid UTF-16; convert it to UTF-8 first")
        })
    };
    match bytes.as_slice() {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
            bail!("stdin is UTF-32: convert it to UTF-8 first")
        }
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest.to_vec()),
        _ => utf8(bytes),
    }
}

fn utf8(bytes: Vec<u8>) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("stdin is not UTF-8: byte {at} is invalid; convert it first")
    })
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn encodings() {
        for (bytes, want) in [
            (&b"hi\n"[..], Some("hi\n")),
            (b"\xef\xbb\xbfhi", Some("hi")),
            (b"\xff\xfeh\0i\0", Some("hi")),
            (b"\xfe\xff\0h\0i", Some("hi")),
            (b"\xff\xfeh", Some("h")),
            (b"\xff\xfe\0\xd8", None),
            (b"\xff\xfe\0\0x", None),
            (b"a\xffb", None),
            (b"", Some("")),
        ] {
            assert_eq!(decode(bytes.to_vec()).ok().as_deref(), want, "{bytes:?}");
        }
        let error = decode(b"ab\xff".to_vec()).expect_err("not UTF-8").to_string();
        assert!(error.contains("byte 2"), "{error}");
    }
}
