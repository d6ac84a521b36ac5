//! Commands that are nothing but their words, for those who decide about them by their words.

use std::path::Path;

use crate::shell::Script;

/// Shells that run a script given with `-c`.
const SHELLS: [&str; 5] = ["bash", "sh", "zsh", "dash", "ksh"];

/// Returns the words of a command that is one program with literal arguments, also if a shell runs it; none if it does
/// anything else as well: a second command, a pipe, a redirection, an assignment, an expansion, or what is not understood.
///
/// An approver that decides by words needs this: the beginning of a script says nothing about its end.
pub fn plain_words(argv: &[String]) -> Option<Vec<String>> {
    let name = Path::new(argv.first()?).file_name()?.to_str()?;
    if !SHELLS.contains(&name) {
        return Some(argv.to_vec());
    }
    let [_, "-c" | "-lc", script] = argv.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        return None;
    };
    let Script { commands, features, settings, inputs, outputs, unclear } = Script::parse(script);
    let more = !features.is_empty()
        || !settings.is_empty()
        || !inputs.is_empty()
        || !outputs.is_empty()
        || !unclear.is_empty();
    let [command] = &commands[..] else { return None };
    if more || command.input.is_some() {
        return None;
    }
    command.words.iter().map(|word| word.known().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::plain_words;

    fn script(text: &str) -> Option<Vec<String>> {
        plain_words(&["/bin/bash".to_owned(), "-lc".to_owned(), text.to_owned()])
    }

    #[track_caller]
    fn check(text: &str, want: Option<&[&str]>) {
        let want =
            want.map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(script(text), want, "{text}");
    }

    #[test]
    fn scripts() {
        check("docker ps", Some(&["docker", "ps"]));
        check("  touch 'a b' c\\ d\n", Some(&["touch", "a b", "c d"]));
        check("touch a # b", Some(&["touch", "a"]));
        check("{ docker ps; }", Some(&["docker", "ps"]));
        check("! docker ps", Some(&["docker", "ps"]));
        for more in [
            "docker ps; rm -r x",
            "docker ps && rm x",
            "docker ps || rm x",
            "docker ps | sh",
            "docker ps & rm x",
            "docker ps\nrm x",
            "docker ps > x",
            "docker ps < x",
            "docker ps >> ~/.profile",
            "docker ps $(rm x)",
            "docker ps `rm x`",
            "docker ps <(rm x)",
            "docker ps $x",
            "docker ps \"$x\"",
            "docker ps *",
            "docker ps {a,b}",
            "docker ps ~",
            "PATH=. docker ps",
            "(docker ps)",
            "docker ps <<E\nx\nE",
            "if docker ps; then rm x; fi",
            "docker() { rm x; }; docker ps",
            "docker 'ps",
            "$x ps",
            "",
            "# nothing",
        ] {
            check(more, None);
        }
    }

    #[test]
    fn argument_vectors() {
        let words = |argv: &[&str]| {
            plain_words(&argv.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(words(&["docker", "a;b"]).unwrap(), ["docker", "a;b"]);
        assert_eq!(words(&["sh", "-c", "docker ps"]).unwrap(), ["docker", "ps"]);
        for odd in [
            &["sh"][..],
            &["sh", "x.sh"],
            &["bash", "-c", "docker ps", "docker"],
            &["bash", "-x", "-c", "docker ps"],
            &["bash", "-ic", "docker ps"],
            &[],
        ] {
            assert_eq!(words(odd), None, "{odd:?}");
        }
    }

    proptest! {
        /// Words that were quoted for a shell come back, and nothing that is appended to them goes unnoticed.
        #[test]
        fn quoted_words_come_back(
            words in prop::collection::vec("[ -~]{1,12}", 1..5),
            more in prop::sample::select(vec![";x", "&&x", "|x", "\nx", ">x", "$(x)", "`x`", "&", "*"]),
        ) {
            let quote = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
            let text = words.iter().map(quote).collect::<Vec<_>>().join(" ");
            // What is not understood has none.
            prop_assert!(script(&text).is_none_or(|found| found == words), "{}", text);
            let with_more = script(&(text.clone() + more));
            prop_assert!(with_more.is_none() || with_more != script(&text), "{}{}", text, more);
        }
    }
}
