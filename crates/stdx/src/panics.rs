//! The message of a caught panic.

use std::any::Any;

/// Returns the message of a panic, cut at [`MESSAGE_BYTES_MAX`].
pub fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("it did not say why");
    &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)]
}

/// Longest message of a panic that is reported, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::{MESSAGE_BYTES_MAX, message};

    #[test]
    fn messages() {
        let long = "ä".repeat(MESSAGE_BYTES_MAX);
        let cut = "ä".repeat(MESSAGE_BYTES_MAX / 2);
        let panics: [(Box<dyn Any + Send>, &str); 4] = [
            (Box::new("plain"), "plain"),
            (Box::new("formatted".to_owned()), "formatted"),
            (Box::new(7), "it did not say why"),
            (Box::new(long), &cut),
        ];
        for (panic, want) in panics {
            assert_eq!(message(&*panic), want);
        }
    }
}
