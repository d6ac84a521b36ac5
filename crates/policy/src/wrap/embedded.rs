//! Code in other languages that is passed to its interpreter as an argument and may start programs: `awk '{
//! system("rm " $1) }'`, `sed 's/x/rm y/e'`, `python -c '…'`, `vim -c '!…'`.
//!
//! Such code is not parsed. It is kept as text, in which program names can be searched for.

use super::{base_name, python};
use crate::shell::Word;

/// Returns the arguments that are code which may start programs.
pub(crate) fn code(words: &[Word]) -> Vec<String> {
    let Some((name, arguments)) = words.split_first() else { return Vec::new() };
    let Some(name) = name.known().map(base_name) else { return Vec::new() };
    let mut found = own_commands(unversioned(name), arguments);
    // Code in which names are data; an expansion in it could be more.
    let is_data = |word: &&Word| is_python(name) && word.known().is_some_and(python::is_harmless);
    let arguments = arguments.iter().filter(|word| !is_data(word));
    // If it contains expansions, the code around them still counts.
    let texts = arguments.map(|word| word.known().unwrap_or(&word.source));
    let starts: fn(&str) -> bool = match unversioned(name) {
        "sed" | "gsed" => {
            let scripts = sed_scripts(&texts.collect::<Vec<_>>());
            found.extend(scripts.into_iter().filter(|script| sed_runs_something(script)));
            return found;
        }
        name if INTERPRETERS.contains(&name) => language_runs_something,
        name if ESCAPES.contains(&name) => escapes,
        _ => return found,
    };
    // The code may be attached to its option.
    found.extend(texts.filter(|text| starts(text)).map(str::to_owned));
    found
}

/// Returns what programs get as a file of commands through `<(…)`, or as text through an option: all of it is
/// run.
fn own_commands(name: &str, arguments: &[Word]) -> Vec<String> {
    if !READS_COMMANDS.contains(&name) {
        return Vec::new();
    }
    let make = name.ends_with("make") && name != "cmake";
    let is_eval = |text: &str| make && (text.starts_with("--ev") || text == "-E");
    let mut before = "";
    let mut found = Vec::new();
    for word in arguments {
        let text = word.known().unwrap_or(&word.source);
        let in_file = text.contains("<(") && (takes_code(before) || !text.starts_with("<("));
        let attached = is_eval(text) && text.contains('=');
        if in_file || attached || is_eval(before) && !before.contains('=') {
            found.push(written(text));
        }
        before = text;
    }
    found
}

/// Replaces escapes for line breaks and tabs of `printf` with blanks, because their letters would become part
/// of a name.
pub(crate) fn written(text: &str) -> String {
    ["\\n", "\\t", "\\r"].iter().fold(text.to_owned(), |text, it| text.replace(it, " "))
}

/// Tells whether the word after this option is a file of code.
fn takes_code(option: &str) -> bool {
    let short = option.starts_with('-') && option.ends_with(['f', 'E', 'P', 'C']);
    short && !option.starts_with("--") || option.starts_with("--f") || option.starts_with("--mak")
}

fn is_python(name: &str) -> bool {
    matches!(unversioned(name), "python" | "pypy")
}

/// Tells whether a program reads code in a language other than a shell's.
pub(crate) fn interprets(name: &str) -> bool {
    is_interpreter(name) || ESCAPES.contains(&unversioned(name))
}

/// Tells whether a program is an interpreter for a language other than a shell's.
pub(crate) fn is_interpreter(name: &str) -> bool {
    INTERPRETERS.contains(&unversioned(name))
}

/// How a command interprets its stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reads {
    Code,
    Python,
    /// As its own commands, some of which start programs.
    Escapes,
    /// As shell commands, or as something that contains them.
    Commands,
}

impl Reads {
    /// Tells whether a text, interpreted like this, may start programs.
    pub(crate) fn may_start_programs(self, text: &str) -> bool {
        match self {
            Self::Code | Self::Python => language_runs_something(text),
            Self::Escapes => escapes(text),
            Self::Commands => true,
        }
    }

    /// Returns the part of a text in a script that may start programs: a here-document that certainly
    /// contains only data is left out.
    pub(crate) fn without_data(self, text: &str) -> String {
        let data = if self == Self::Python { heredoc(text) } else { None };
        match data {
            Some((line, body)) if python::is_harmless(body) => line,
            _ => text.to_owned(),
        }
    }
}

/// Splits a command's stdin into the rest of the line and the lines of the here-document, if it consists of
/// exactly one here-document without expansions.
fn heredoc(text: &str) -> Option<(String, &str)> {
    let (line, lines) = text.split_once('\n')?;
    let (before, after) = line.split_once("<<")?;
    let quote = after.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
    let (delimiter, after) = after[1..].split_once(quote)?;
    // Other commands in between may change the text.
    let redirects = |c: char| c.is_ascii_alphanumeric() || " >./_-".contains(c);
    // The grammar drops the dash before it.
    let direct = matches!(before.trim(), "" | "-")
        || before.trim_start().starts_with('>') && before.chars().all(redirects);
    let ended = lines.trim_end().strip_suffix(delimiter)?;
    let body = ended.strip_suffix('\n').or(ended.is_empty().then_some(""))?;
    let whole = !delimiter.is_empty() && body.lines().all(|line| line != delimiter);
    (direct && whole && !after.contains('<')).then(|| (after.replace('|', " "), body))
}

/// Returns how a command interprets its stdin, if that may start programs.
pub(crate) fn reads(words: &[Word]) -> Option<Reads> {
    let (name, arguments) = words.split_first()?;
    let full = name.known().map(base_name)?;
    let name = unversioned(full);
    let named = || arguments.iter().any(|word| names_input(&word.text));
    // For some, stdin alone is data.
    let by_option = || {
        let before = std::iter::once("").chain(arguments.iter().map(|word| word.text.as_str()));
        let mut pairs = before.zip(arguments.iter().map(|word| word.text.as_str()));
        pairs.any(|(before, text)| {
            let attached = text.len() > 1 && text.starts_with('-');
            names_input(text) && (attached || takes_code(before))
        })
    };
    if super::carry::reads_commands(full, words) {
        return Some(Reads::Commands);
    }
    match name {
        "make" | "gmake" | "ninja" | "just" => named().then_some(Reads::Commands),
        "cmake" => by_option().then_some(Reads::Commands),
        "sed" | "gsed" => by_option().then_some(Reads::Commands),
        // The first operand of awk and its relatives is the code.
        _ if name.ends_with("awk") => by_option().then_some(Reads::Code),
        _ if INTERPRETERS.contains(&name) => {
            let reads = if is_python(name) { Reads::Python } else { Reads::Code };
            (named() || !has_code(arguments)).then_some(reads)
        }
        // With a dash, an editor reads the text to edit.
        "nvim" | "vi" | "vim" => (!named()).then_some(Reads::Escapes),
        // These take commands only from the terminal.
        "less" | "man" | "more" | "view" => None,
        _ => ESCAPES.contains(&name).then_some(Reads::Escapes),
    }
}

/// Tells whether a word refers to stdin: `-`, `/dev/stdin`, `-f-`, `--file=/dev/stdin`.
fn names_input(text: &str) -> bool {
    let value = text.split_once('=').map_or(text, |(_, value)| value);
    let attached = value.strip_prefix("-f").unwrap_or(value);
    matches!(attached, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

/// Tells whether an interpreter gets its code, or the name of a file with it, as an argument.
fn has_code(arguments: &[Word]) -> bool {
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        let text = word.text.as_str();
        if !text.starts_with('-') || CODE_OPTIONS.contains(&text) {
            return true;
        }
        if VALUE_OPTIONS.contains(&text) {
            arguments.next();
        }
    }
    false
}

/// Tells whether code, in any language, may start programs.
pub(crate) fn may_start_programs(code: &str) -> bool {
    language_runs_something(code) || escapes(code)
}

fn unversioned(name: &str) -> &str {
    // The digit is part of this name.
    if name == "m4" {
        return name;
    }
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

/// Tells whether a text contains a command that leads from an editor, a debugger or a client to a shell.
fn escapes(text: &str) -> bool {
    let marks = text.match_indices('!').any(|(at, _)| !text[at + 1..].starts_with('='));
    marks || ESCAPE.iter().any(|it| text.contains(it)) || has_pipe(text)
}

/// Tells whether there is a single bar; in most languages, two bars mean "or".
fn has_pipe(text: &str) -> bool {
    text.replace("||", "").contains('|')
}

/// Returns the scripts of a sed command line: those given by options, or the first operand. Since letters
/// with a value in clusters are not distinguished, it may return one too many.
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
    STARTS.iter().any(|it| code.contains(it)) || has_pipe(code)
}

/// Tells whether a text, read as a sed script, has the command `e` or a substitution with that flag. An
/// invalid script has not: sed does not run it either.
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
            // What follows is text, a file name or a comment, up to the end of the line.
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

/// Skips `1,/x/!` and the like.
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

/// Skips `/x/y/`, with any delimiter in place of the slash.
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
const INTERPRETERS: [&str; 44] = [
    "R", "Rscript", "awk", "bun", "clisp", "csi", "deno", "elixir", "emacs", "erl", "expect",
    "gawk", "ghci", "gmake", "gnuplot", "groovy", "guile", "iex", "irb", "jshell", "julia",
    "jython", "lua", "luajit", "m4", "make", "mawk", "nawk", "node", "nodejs", "ocaml", "octave",
    "perl", "php", "pypy", "python", "racket", "ruby", "sbcl", "scala", "tclsh", "ts-node", "tsx",
    "wish",
];

/// Programs whose code files are commands, or contain them anywhere.
const READS_COMMANDS: [&str; 7] = ["cmake", "gmake", "gsed", "just", "make", "ninja", "sed"];

/// Options of interpreters with which stdin is not code.
const CODE_OPTIONS: [&str; 10] =
    ["-c", "-e", "-E", "-m", "-ne", "-p", "-pe", "--eval", "--print", "--version"];

/// Options of interpreters that take the next word as their value.
const VALUE_OPTIONS: [&str; 11] =
    ["-C", "-I", "-W", "-X", "-d", "-encoding", "-l", "-r", "--import", "--loader", "--require"];

/// What such code contains if it starts programs, gives them another name, or removes whole directories
/// itself.
const STARTS: [&str; 27] = [
    "%x",
    "`",
    "Command",
    "call",
    "cmd",
    "copy",
    "exec",
    "fork",
    "getline",
    "getoutput",
    "link",
    "open",
    "passthru",
    "pipe",
    "process",
    "qx",
    "remove",
    "rename",
    "rmSync",
    "rm_r",
    "rmtree",
    "run",
    "shell",
    "spawn",
    "syscmd",
    "system",
    "System",
];

/// Programs with their own commands, one of which leads to a shell.
const ESCAPES: [&str; 22] = [
    "dc", "ed", "ex", "ftp", "gdb", "less", "lftp", "lldb", "mail", "mailx", "man", "more",
    "mysql", "nvim", "psql", "red", "sftp", "sqlite", "telnet", "vi", "view", "vim",
];

/// The names of these commands, if they are more than one character.
const ESCAPE: [&str; 7] = ["`", "exec", "job_", "program", "PROGRAM", "shell", "system"];

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
