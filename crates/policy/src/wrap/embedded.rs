//! Code of other languages that is given to its interpreter as an argument and may start programs:
//! `awk '{ system("rm " $1) }'`, `sed 's/x/rm y/e'`, `python -c '…'`, `vim -c '!…'`.
//!
//! Such code is not understood. It is kept as text, in which names of programs can be looked for.

use super::base_name;
use crate::shell::Word;

/// Returns the arguments that are code which may start programs.
pub(crate) fn code(words: &[Word]) -> Vec<String> {
    let Some((name, arguments)) = words.split_first() else { return Vec::new() };
    let Some(name) = name.known().map(base_name) else { return Vec::new() };
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let known = arguments.iter().filter_map(Word::known);
    let starts: fn(&str) -> bool = match unversioned {
        "sed" | "gsed" => {
            let scripts = sed_scripts(&known.collect::<Vec<_>>());
            return scripts.into_iter().filter(|script| sed_runs_something(script)).collect();
        }
        _ if INTERPRETERS.contains(&unversioned) || name == "m4" => language_runs_something,
        _ if ESCAPES.contains(&unversioned) => |text| ESCAPE.iter().any(|it| text.contains(it)),
        _ => return Vec::new(),
    };
    // The code may be attached to its option.
    known.filter(|text| starts(text)).map(str::to_owned).collect()
}

/// Tells whether a program reads code of another language than a shell's.
pub(crate) fn interprets(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name) || ESCAPES.contains(&name)
}

/// Tells whether a program is an interpreter of another language than a shell's.
pub(crate) fn is_interpreter(name: &str) -> bool {
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

/// Tells whether a command is an interpreter that reads its code from the standard input.
pub(crate) fn reads_code(words: &[Word]) -> bool {
    let Some((name, arguments)) = words.split_first() else { return false };
    let name = name.known().map(base_name).unwrap_or_default();
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    // Of awk and its relatives the first operand is the code, and of make it is in a file.
    let elsewhere = name.ends_with("awk") || name.ends_with("make");
    let options = arguments.iter().all(|word| word.text.starts_with('-'));
    INTERPRETERS.contains(&name) && !elsewhere && options
}

/// Tells whether code, of whatever language, may start programs.
pub(crate) fn may_start_programs(code: &str) -> bool {
    language_runs_something(code) || ESCAPE.iter().any(|it| code.contains(it))
}

/// Returns the here-documents of a script that an interpreter is given on its line, if their code may start
/// programs. Only these: other documents are text.
pub(crate) fn code_in_documents(text: &str) -> Vec<String> {
    let interprets = |word: &str| interprets(base_name(word));
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((before, after)) = line.split_once("<<") else { continue };
        // What a here-string says is on the line itself.
        if after.starts_with('<') || !before.split([' ', '\t', ';', '|', '&', '(']).any(interprets)
        {
            continue;
        }
        let word = after.trim_start_matches('-').trim_start();
        let word = word.split([' ', '\t', ';', '|', '&', ')', '>', '<']).next().unwrap_or_default();
        let end = word.replace(['"', '\'', '\\'], "");
        let body: Vec<&str> =
            lines.by_ref().take_while(|line| line.trim_start_matches('\t') != end).collect();
        let body = body.join("\n");
        if language_runs_something(&body) {
            found.push(body);
        }
    }
    found
}

/// The scripts of a call of sed: those that options name, or else the first operand. Which letters of a
/// cluster take a value is not told apart, so it may be one script too many.
fn sed_scripts(arguments: &[&str]) -> Vec<String> {
    let mut scripts = Vec::new();
    let mut operand = None;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let long = word.strip_prefix("--").filter(|name| name.starts_with('e'));
        let short = word.strip_prefix('-').and_then(|cluster| cluster.split_once('e'));
        match (long, short) {
            (Some(long), _) => match long.split_once('=') {
                Some((_, script)) => scripts.push(script.to_owned()),
                None => scripts.extend(words.next().map(ToString::to_string)),
            },
            (None, Some((_, ""))) if !word.starts_with("--") => {
                scripts.extend(words.next().map(ToString::to_string));
            }
            (None, Some((_, script))) if !word.starts_with("--") => scripts.push(script.to_owned()),
            _ if !word.starts_with('-') => operand = operand.or(Some(word.to_string())),
            _ => {}
        }
    }
    if scripts.is_empty() { operand.into_iter().collect() } else { scripts }
}

fn language_runs_something(code: &str) -> bool {
    // In most languages, two of them are an "or".
    STARTS.iter().any(|it| code.contains(it)) || code.replace("||", "").contains('|')
}

/// Tells whether a text, read as a script of sed, has the command `e` or a substitution with that flag.
/// One that cannot be read has not: sed does not run it either.
fn sed_runs_something(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', ';', '{', '}']);
        let Some(after) = skip_addresses(rest) else { return false };
        let mut chars = after.chars();
        let Some(command) = chars.next() else { return false };
        let after = chars.as_str();
        rest = match command {
            'e' => return true,
            's' | 'y' => {
                let Some(flags) = skip_sections(after) else { return false };
                let end = flags.find(['\n', ';', '}', 'w']).unwrap_or(flags.len());
                if command == 's' && flags[..end].contains('e') {
                    return true;
                }
                if flags[end..].starts_with('w') { line_after(flags) } else { &flags[end..] }
            }
            // What follows is text, a name of a file or a comment, up to the end of the line.
            'a' | 'i' | 'c' | 'r' | 'R' | 'w' | 'W' | '#' => line_after(after),
            'b' | 't' | 'T' | ':' | 'q' | 'Q' | 'l' | 'L' | 'v' => {
                &after[after.find(['\n', ';', '}']).unwrap_or(after.len())..]
            }
            _ => after,
        };
    }
}

fn line_after(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

/// Goes over `1,/x/!` and the like.
fn skip_addresses(mut text: &str) -> Option<&str> {
    loop {
        text = text.trim_start_matches(|c: char| c.is_ascii_digit() || " \t,~+$!".contains(c));
        text = match text.strip_prefix('/') {
            Some(pattern) => skip_section(pattern, '/')?,
            None => match text.strip_prefix('\\') {
                Some(pattern) => {
                    let mut chars = pattern.chars();
                    let end = chars.next()?;
                    skip_section(chars.as_str(), end)?
                }
                None => return Some(text),
            },
        };
        text = text.trim_start_matches(['I', 'M']);
    }
}

/// Goes over `/x/y/`, with whatever character stands for the slash.
fn skip_sections(text: &str) -> Option<&str> {
    let mut chars = text.chars();
    let end = chars.next()?;
    skip_section(skip_section(chars.as_str(), end)?, end)
}

fn skip_section(text: &str, end: char) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == end => return text.get(at + c.len_utf8()..),
            _ => {}
        }
    }
    None
}

/// Programs that run code from their arguments, without versions.
const INTERPRETERS: [&str; 25] = [
    "R", "Rscript", "awk", "bun", "deno", "elixir", "emacs", "erl", "gawk", "gmake", "gnuplot",
    "groovy", "guile", "julia", "lua", "luajit", "make", "mawk", "nawk", "node", "perl", "php",
    "pypy", "python", "ruby",
];

/// What such code has in it that starts programs, or removes whole directories by itself.
const STARTS: [&str; 15] = [
    "`", "call", "exec", "fork", "getline", "open", "qx", "remove", "rmSync", "rm_r", "rmtree",
    "run", "shell", "spawn", "system",
];

/// Programs with commands of their own, one of which leads to a shell.
const ESCAPES: [&str; 14] = [
    "ed", "ex", "gdb", "less", "lldb", "man", "more", "mysql", "nvim", "psql", "sqlite", "vi",
    "view", "vim",
];

/// What these commands are.
const ESCAPE: [&str; 3] = ["!", "shell", "system"];

#[cfg(test)]
mod tests {
    use super::code;
    use crate::shell::Word;

    #[track_caller]
    fn check(line: &str, want: bool) {
        let words = shlex::split(line).expect("a line");
        let words: Vec<_> = words.into_iter().map(Word::literal).collect();
        assert_eq!(!code(&words).is_empty(), want, "{line}");
    }

    #[test]
    fn what_may_start_programs() {
        for line in [
            r#"awk '{ system("rm " $1) }' x"#,
            r#"awk 'BEGIN { print "x" | "sh" }'"#,
            r#"gawk -e 'BEGIN { "rm x" | getline }'"#,
            r#"/usr/bin/python3.11 -c 'import os; os.system("rm x")'"#,
            r#"python -c'import subprocess; subprocess.run(["rm"])'"#,
            r#"perl -ne 'unlink; exec "rm"'"#,
            r#"node --eval='require("child_process").execSync("rm x")'"#,
            "vim -c '!rm x'",
            "sqlite3 db '.shell rm x'",
            "sed '1e rm x'",
            "sed 's/x/rm y/e' z",
            "sed -n -e 's,a,b,gpe'",
            "sed -e's/x/y/;e rm'",
            "sed --in-place -e 's/x/rm -rf y/e' f",
            "sed --expression='/a\\/b/,$ { s/x/y/; e\n}'",
            "sed 'y/ab/cd/; \\,x, e rm'",
        ] {
            check(line, true);
        }
        for line in [
            "awk '{ print $1 }' x",
            "awk -F: '/rm/ || !/x/ { n++ } END { print n }'",
            "python x.py",
            "python -c 'print(1)'",
            "sed 's/rm -rf/e/' x",
            "sed -i 's/e/x/g; /e/d' e",
            "sed -n '1,5p' e",
            "sed 'a e rm'",
            "sed 's/a/b/w e'",
            "sed 's/a'",
            "sed ''",
            "sed é",
            "ls -e 'system(1)'",
        ] {
            check(line, false);
        }
    }
}
