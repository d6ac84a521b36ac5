//! Byte offsets become lines and columns counted in characters.

use config::position;

#[track_caller]
fn check(text: &str, offset: usize, line: usize, column: usize) {
    let found = position(text, offset);
    assert_eq!((found.line, found.column), (line, column), "{text:?} at {offset}");
}

#[test]
fn positions() {
    check("", 0, 1, 1);
    check("", 9, 1, 1);
    check("abc", 2, 1, 3);
    check("abc", 3, 1, 4);
    check("abc", 99, 1, 4);
    check("a\nb", 1, 1, 2);
    check("a\nb", 2, 2, 1);
    check("a\n", 2, 2, 1);
    check("a\r\nb", 3, 2, 1);
    // A two-byte character is one column, and an offset inside a character belongs to it.
    check("éa", 2, 1, 2);
    check("éa", 1, 1, 1);
    check("x\né = 1", 3, 2, 1);
    // A byte order mark is not a column.
    check("\u{feff}abc", 3, 1, 1);
    check("\u{feff}abc", 4, 1, 2);
}
