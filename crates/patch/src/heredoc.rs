//! Extracts the patch from a shell script that does nothing but apply one.
//!
//! Models that have a shell tool often write a patch as a command. Such a script is never run: it is
//! recognized here as a whole, and its patch is handled like any other. A script that does anything else is
//! not recognized and stays a command.

use std::borrow::Cow;

/// A patch that was written as a shell command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Embedded<'a> {
    /// The directory that the script changes to first, relative or absolute.
    pub directory: Option<&'a str>,
    /// The patch text, not yet parsed.
    pub patch: Cow<'a, str>,
}

/// Recognizes `[cd DIR &&] apply_patch <<EOF`, or the patch as one quoted argument.
///
/// The body of a here-document is taken literally even if its delimiter is not quoted: a shell would expand
/// `$` in it, which is never what the author of a patch means.
pub fn extract(script: &str) -> Option<Embedded<'_>> {
    let script = script.trim_start();
    let (directory, rest) = match keyword(script, "cd") {
        Some(rest) => {
            let (directory, rest) = directory(rest)?;
            let rest = rest.trim_start_matches(BLANKS).strip_prefix("&&")?;
            (Some(directory), rest.trim_start())
        }
        None => (None, script),
    };
    let rest = COMMANDS.iter().find_map(|command| rest.strip_prefix(command))?;
    let argument = rest.trim_start_matches(BLANKS);
    let patch = if let Some(rest) = argument.strip_prefix("<<") {
        here_document(rest.trim_start_matches(BLANKS))?.into()
    } else if argument.len() < rest.len() {
        let patch = quoted_argument(argument.trim_end())?;
        patch.trim_start().starts_with("*** Begin Patch").then_some(patch)?
    } else {
        return None;
    };
    Some(Embedded { directory, patch })
}

/// Returns what follows `word` and at least one blank.
fn keyword<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(word)?;
    rest.starts_with(BLANKS).then(|| rest.trim_start_matches(BLANKS))
}

/// Returns one word that a shell would take literally, and what follows it.
fn directory(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = if let Some(text) = text.strip_prefix('\'') {
        text.split_once('\'')?
    } else if let Some(text) = text.strip_prefix('"') {
        let (word, rest) = text.split_once('"')?;
        (!word.contains(EXPANDED)).then_some((word, rest))?
    } else {
        text.split_at(text.find(|c| !is_plain(c)).unwrap_or(text.len()))
    };
    // `cd -` goes somewhere else, `cd ''` nowhere.
    (!word.is_empty() && !word.starts_with('-')).then_some((word, rest))
}

/// Tells whether no shell gives the character a special meaning anywhere in a word.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "/._-+@%,:=".contains(c)
}

/// Returns the body up to the delimiter, which must be the last word of the script.
fn here_document(text: &str) -> Option<&str> {
    let (first, body) = text.split_once('\n')?;
    let first = first.trim_end();
    let delimiter = ['\'', '"']
        .into_iter()
        .find_map(|quote| first.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(first);
    // `<<-` is another operator, which drops the tabs that a patch may need.
    let is_word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    if delimiter.is_empty() || delimiter.starts_with('-') || !delimiter.chars().all(is_word) {
        return None;
    }
    let mut length = 0;
    for line in body.split_inclusive('\n') {
        if line.trim_end_matches(['\r', '\n']) == delimiter {
            let (patch, rest) = body.split_at(length);
            return rest[line.len()..].trim().is_empty().then_some(patch);
        }
        length += line.len();
    }
    None
}

/// Returns the text of a quoted word that reaches to the end of the script.
fn quoted_argument(text: &str) -> Option<Cow<'_, str>> {
    if let Some(text) = text.strip_prefix('\'') {
        let text = text.strip_suffix('\'')?;
        return (!text.contains('\'')).then_some(text.into());
    }
    let mut rest = text.strip_prefix('"')?;
    let mut unescaped = String::new();
    loop {
        let at = rest.find(EXPANDED_OR_QUOTE)?;
        let (plain, special) = rest.split_at(at);
        unescaped.push_str(plain);
        if special == "\"" {
            return Some(unescaped.into());
        }
        let escaped = special.strip_prefix('\\')?.chars().next()?;
        match escaped {
            '$' | '`' | '"' | '\\' => unescaped.push(escaped),
            '\n' => {}
            // A backslash before any other character stands for itself.
            _ => unescaped.extend(['\\', escaped]),
        }
        rest = &special[1 + escaped.len_utf8()..];
    }
}

const COMMANDS: [&str; 2] = ["apply_patch", "applypatch"];
const BLANKS: [char; 2] = [' ', '\t'];
const EXPANDED: [char; 3] = ['$', '`', '\\'];
const EXPANDED_OR_QUOTE: [char; 4] = ['$', '`', '\\', '"'];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(script: &str, want: Option<(Option<&str>, &str)>) {
        let got = extract(script);
        let got = got.as_ref().map(|found| (found.directory, found.patch.as_ref()));
        assert_eq!(got, want, "{script}");
    }

    #[test]
    fn here_documents() {
        check("apply_patch <<'EOF'\nP\nEOF", Some((None, "P\n")));
        check("\napplypatch <<\"X_1\" \nP\n\nX_1\n\n", Some((None, "P\n\n")));
        check("apply_patch<< PATCH\n$a `b` \\\nPATCH\n", Some((None, "$a `b` \\\n")));
        check("apply_patch <<'EOF'\r\nP\r\nEOF\r\n", Some((None, "P\r\n")));
        check("apply_patch <<'EOF'\n EOF\nEOF \nEOFX\nEOF", Some((None, " EOF\nEOF \nEOFX\n")));
        check("apply_patch <<EOF\nEOF", Some((None, "")));
        check("apply_patch <<END-1.x\nP\nEND-1.x", Some((None, "P\n")));
        check("apply_patch <<'EOF'\nP\n", None);
        check("apply_patch <<'EOF'\nP\nEOF\nls", None);
        check("apply_patch <<'EOF' && ls\nP\nEOF", None);
        check("apply_patch <<'EOF' > f\nP\nEOF", None);
        check("apply_patch <<'EOF\nP\nEOF", None);
        check("apply_patch <<''\nP\n\n", None);
        check("apply_patch <<-EOF\nP\nEOF", None);
        check("apply_patch <<<EOF\nP\nEOF", None);
        check("apply_patch -f <<EOF\nP\nEOF", None);
        check("apply_patchy <<EOF\nP\nEOF", None);
        check("ls; apply_patch <<EOF\nP\nEOF", None);
        check("A=1 apply_patch <<EOF\nP\nEOF", None);
        check("apply_patch", None);
        check("apply_patch <<EOF", None);
        check("", None);
    }

    #[test]
    fn directories() {
        let with = |start: &str| format!("{start} apply_patch <<'EOF'\nP\nEOF");
        check(&with("cd a-b/../é &&"), Some((Some("a-b/../é"), "P\n")));
        check(&with("cd  'a $b'&&\n"), Some((Some("a $b"), "P\n")));
        check(&with("cd \"/a b\" &&"), Some((Some("/a b"), "P\n")));
        for refused in [
            "cd a;",
            "cd a ||",
            "cd a &",
            "cd &&",
            "cd - &&",
            "cd '' &&",
            "cd $a &&",
            "cd ~/a &&",
            "cd \"$a\" &&",
            "cd a b &&",
            "cd 'a'b &&",
            "cd a* &&",
            "cd a\\ b &&",
            "cd a\n",
            "cda &&",
            "cd 'a &&",
            "cd a && cd b &&",
            "cd a && ls &&",
            "pushd a &&",
        ] {
            check(&with(refused), None);
        }
    }

    #[test]
    fn arguments() {
        let body = "*** Begin Patch\n+x\n*** End Patch";
        check(&format!("apply_patch '{body}'\n"), Some((None, body)));
        check(
            &format!("cd d && apply_patch \"\n{body}\n\""),
            Some((Some("d"), &format!("\n{body}\n"))),
        );
        check(
            "apply_patch \"*** Begin Patch \\\"\\$\\`\\\\ \\d a\\\nb\"",
            Some((None, "*** Begin Patch \"$`\\ \\d ab")),
        );
        for refused in [
            "'*** Begin Patch' x",
            "'*** Begin Patch'\\''x'",
            "\"*** Begin Patch $a\"",
            "\"*** Begin Patch `a`\"",
            "\"*** Begin Patch\" \"\"",
            "\"*** Begin Patch",
            "\"*** Begin Patch\\\"",
            "'*** Begin Patch",
            "'ls'",
            "*** Begin Patch",
            "'",
        ] {
            check(&format!("apply_patch {refused}"), None);
        }
        check("apply_patch'*** Begin Patch'", None);
    }
}
