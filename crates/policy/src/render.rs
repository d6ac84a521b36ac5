//! Writes rules in the syntax of rule files, for answers to be remembered.

use stdx::visible;

/// Formats the line of a rule file, without its line ending, that allows commands with this prefix.
///
/// The prefix must not be empty, as a pattern must not.
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
            // Keeps it visible, and from being taken for the end of a line.
            c if visible::is_hidden(c) || visible::is_blank(c) => {
                text += &format!("\\U{:08x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}
