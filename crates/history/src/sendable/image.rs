//! Checks whether an image can be sent. Looks at its encoding and its first bytes, never at all of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::repair::RepairKind;

/// Checks the URL of an image. The error contains the text that replaces it, or none if it was repaired.
pub(super) fn check(url: &mut String) -> Result<(), (RepairKind, Option<&'static str>)> {
    let Some((head, body)) = data_url(url) else {
        return if is_web(url) { Ok(()) } else { Err((RepairKind::ImageBroken, Some(BROKEN))) };
    };
    if body.len() / 4 * 3 > IMAGE_BYTES_MAX {
        return Err((RepairKind::ImageOversized, Some(OVERSIZED)));
    }
    let Some(kind) = kind(body).filter(|_| is_base64(body)) else {
        return Err((RepairKind::ImageBroken, Some(BROKEN)));
    };
    let right = format!("data:{kind};base64,");
    if head != right {
        *url = format!("{right}{body}");
        return Err((RepairKind::ImageTypeWrong, None));
    }
    Ok(())
}

/// Splits a `data:` URL after its comma.
fn data_url(url: &str) -> Option<(&str, &str)> {
    let scheme = url.get(..5)?;
    let comma = url.find(',')? + 1;
    scheme.eq_ignore_ascii_case("data:").then(|| url.split_at(comma))
}

fn is_web(url: &str) -> bool {
    let after = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    after.is_some_and(|after| !after.is_empty() && !after.contains(|c: char| c <= ' '))
}

/// Detects the type of an image by its first bytes.
fn kind(body: &str) -> Option<&'static str> {
    let start = body.as_bytes().get(..16)?;
    let bytes = STANDARD.decode(start).ok()?;
    match &bytes[..] {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => Some("image/webp"),
        _ => None,
    }
}

/// Returns whether a text is complete base64, including padding.
fn is_base64(body: &str) -> bool {
    let bytes = body.as_bytes();
    let is_letter = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    let Some(start) = bytes.len().checked_sub(4).filter(|_| bytes.len().is_multiple_of(4)) else {
        return false;
    };
    let (start, end) = bytes.split_at(start);
    start.iter().all(is_letter) && STANDARD.decode(end).is_ok()
}

/// Largest image, in bytes.
pub const IMAGE_BYTES_MAX: usize = 20 << 20;
const BROKEN: &str = "(An image stood here. It cannot be read.)";
const OVERSIZED: &str = "(An image stood here. It is too large to be sent.)";
