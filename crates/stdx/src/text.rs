//! Cutting UTF-8 text without cutting a character.

/// Returns the largest character boundary at or below `index`.
pub fn floor_char_boundary(text: &str, index: usize) -> usize {
    let mut at = index.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Returns the smallest character boundary at or above `index`.
pub fn ceil_char_boundary(text: &str, index: usize) -> usize {
    let mut at = index.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::{ceil_char_boundary, floor_char_boundary};

    #[test]
    fn boundaries() {
        // (text, index, floor, ceil)
        for (text, index, floor, ceil) in
            [("abc", 1, 1, 1), ("aéb", 2, 1, 3), ("é", 1, 0, 2), ("abc", 9, 3, 3), ("", 0, 0, 0)]
        {
            assert_eq!(floor_char_boundary(text, index), floor, "{text} {index}");
            assert_eq!(ceil_char_boundary(text, index), ceil, "{text} {index}");
        }
    }
}
