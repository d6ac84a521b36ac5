//! Repairs JSON from outside that is almost valid.

use std::borrow::Cow;

/// Replaces escapes of unpaired surrogates by `\\ufffd`. JSON allows them, many programs write them, and no
/// string can contain them: a parser would refuse the whole text.
///
/// Costs one search for a backslash if there is none, and changes nothing but such escapes.
pub fn mend(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut mended = String::new();
    // Up to where the text was copied, and where to continue searching.
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = json[at..].find('\\') {
        let start = at + found;
        at = start
            + match (unit(bytes, start), unit(bytes, start + ESCAPE)) {
                (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * ESCAPE,
                (Some(0xd800..=0xdfff), _) => {
                    mended.push_str(&json[copied..start]);
                    mended.push_str("\\ufffd");
                    copied = start + ESCAPE;
                    ESCAPE
                }
                (Some(_), _) => ESCAPE,
                // The next character belongs to the backslash, whatever it is.
                (None, _) => 1 + json[start + 1..].chars().next().map_or(0, char::len_utf8),
            };
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    mended.push_str(&json[copied..]);
    Cow::Owned(mended)
}

/// Length of an escape such as `\\ud83d`.
const ESCAPE: usize = 6;

/// Parses an escape of four digits.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + ESCAPE)?;
    let digits = escape.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::mend;

    #[test]
    fn halves_of_pairs() {
        for (json, want) in [
            (r#""plain""#, r#""plain""#),
            (r#""\ud800""#, r#""\ufffd""#),
            (r#""\uDC00x""#, r#""\ufffdx""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\u0041\ud83d\n""#, r#""\ufffd\u0041\ufffd\n""#),
            // An escaped backslash, invalid escapes, and a truncated one.
            (r#""\\ud800""#, r#""\\ud800""#),
            (r#""\\\ud800""#, r#""\\\ufffd""#),
            (r#""\ud8""#, r#""\ud8""#),
            (r#""\ud8zz\é\"#, r#""\ud8zz\é\"#),
            (r"\ud83d\ude0", r"\ufffd\ude0"),
            ("\\", "\\"),
        ] {
            let got = mend(json);
            assert_eq!(got, want, "{json}");
            assert_eq!(matches!(got, Cow::Borrowed(_)), json == want, "{json}");
        }
    }
}
