//! Rules as they are written into a rule file when an answer is to be remembered.

use stdx::visible;

/// Writes the line of a rule file, without its end, that allows commands with this prefix.
///
/// The prefix must have a word, as a pattern must.
pub fn render_rule<W: AsRef<str>>(prefix: &[W]) -> String {
    let words: Vec<String> = prefix.iter().map(|word| quote(word.as_ref())).collect();
    format!("prefix_rule(pattern=[{}], decision=\"allow\")", words.join(", "))
}

fn quote(word: &str) -> String {
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text += "\\n",
            '\r' => text += "\\r",
            '\t' => text += "\\t",
            c if c.is_ascii_control() => text += &format!("\\x{:02x}", u32::from(c)),
            // Kept visible, and from being taken for the end of a line.
            c if visible::is_hidden(c) => text += &format!("\\U{:08x}", u32::from(c)),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}
