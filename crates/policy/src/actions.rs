//! What a script does, in the few words that a person wants to read: it reads a file, lists files, searches, or something else.
//!
//! For display only: nothing is decided by it.

use std::path::{Path, PathBuf};

use crate::shell::{Script, SimpleCommand};

/// What a part of a script does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptAction {
    /// It prints a file, or a part of it.
    Read {
        command: String,
        /// The name of the file.
        name: String,
        path: PathBuf,
    },
    ListFiles {
        command: String,
        /// The last part of the directory; none for the working directory.
        path: Option<String>,
    },
    Search {
        command: String,
        query: Option<String>,
        /// The last part of the path where it searches; none for the working directory.
        path: Option<String>,
    },
    /// Something else.
    Unknown { command: String },
}

/// Returns what a script does, part by part. If any part is something else, so is the whole script.
pub fn script_actions(script: &str, cwd: &Path) -> Vec<ScriptAction> {
    actions(script, cwd)
        .unwrap_or_else(|| vec![ScriptAction::Unknown { command: script.to_owned() }])
}

fn actions(script: &str, cwd: &Path) -> Option<Vec<ScriptAction>> {
    let Script { commands, features, settings, inputs, outputs, unclear } = Script::parse(script);
    let plain = features.is_empty()
        && settings.is_empty()
        && inputs.is_empty()
        && outputs.is_empty()
        && unclear.is_empty();
    if !plain || commands.is_empty() {
        return None;
    }
    let (mut cwd, mut found, mut moved) = (cwd.to_owned(), Vec::new(), false);
    let many = commands.len() > 1;
    for SimpleCommand { words, input } in &commands {
        let words: Option<Vec<&str>> = words.iter().map(|word| word.known()).collect();
        let words = words?;
        let (program, arguments) = words.split_first()?;
        match (*program, arguments) {
            ("cd", [to]) => {
                cwd.push(to);
                moved = true;
            }
            ("true" | ":", []) if many => {}
            // It only shapes what is piped into it.
            (program, arguments) if input.is_some() && shapes(program, arguments) => {}
            (program, arguments) => found.push(action(program, arguments, &words, &cwd)?),
        }
    }
    // Nothing is left of a script that only goes somewhere.
    (moved || !found.is_empty()).then_some(found)
}

/// Returns what one command does; none for something else.
fn action(program: &str, arguments: &[&str], words: &[&str], cwd: &Path) -> Option<ScriptAction> {
    let command = shlex::try_join(words.iter().copied()).ok()?;
    let read = |file: &str| {
        let path = cwd.join(file);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        ScriptAction::Read { command: command.clone(), name: name.unwrap_or_default(), path }
    };
    let list = |path: Option<&&str>| ScriptAction::ListFiles {
        command: command.clone(),
        path: path.map(|path| short(path)),
    };
    let search = |query: Option<&str>, path: Option<&&str>| ScriptAction::Search {
        command: command.clone(),
        query: query.map(str::to_owned),
        path: path.map(|path| short(path)),
    };
    match (program, arguments) {
        ("cat" | "bat" | "batcat" | "less" | "more", arguments) => {
            one(operands(arguments, &[])).map(read)
        }
        ("nl", arguments) => one(operands(arguments, &["-b", "-s", "-v", "-w"])).map(read),
        ("head" | "tail", ["-n", count, file]) if is_count(count) => Some(read(file)),
        ("head" | "tail", [file]) if !file.starts_with('-') => Some(read(file)),
        ("sed", ["-n", lines, file]) if is_line_range(lines) => Some(read(file)),
        ("awk", [program, file]) if !program.starts_with('-') => Some(read(file)),
        ("ls" | "eza" | "exa" | "tree", arguments) => {
            Some(list(operands(arguments, &["-I", "-L", "-P"]).first()))
        }
        ("git", ["ls-files", arguments @ ..]) => Some(list(operands(arguments, &[]).first())),
        ("rg", arguments) if arguments.contains(&"--files") => {
            Some(list(operands(arguments, SEARCH_VALUES).first()))
        }
        ("git", ["grep", arguments @ ..])
        | ("grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack", arguments) => {
            let operands = operands(arguments, SEARCH_VALUES);
            let after = |pair: &[&str]| {
                (pair[0] == "-e" || pair[0] == "--regexp").then_some(pair[1].to_owned())
            };
            match arguments.windows(2).find_map(after) {
                Some(query) => Some(search(Some(&query), operands.first())),
                None => Some(search(operands.first().copied(), operands.get(1))),
            }
        }
        ("fd" | "fdfind", arguments) => {
            let operands = operands(arguments, &["-e", "-t", "-d", "-E"]);
            Some(match operands.first() {
                None => list(None),
                Some(query) => search(Some(*query), operands.get(1)),
            })
        }
        ("find", arguments) => {
            if arguments.iter().any(|it| FIND_ACTS.contains(it)) {
                return None;
            }
            let path = arguments.first().filter(|it| !it.starts_with(['-', '(', '!']));
            let named = |pair: &[&str]| FIND_NAMES.contains(&pair[0]).then_some(pair[1].to_owned());
            Some(match arguments.windows(2).find_map(named) {
                Some(query) => search(Some(&query), path),
                None => list(path),
            })
        }
        _ => None,
    }
}

/// Options of programs that search, whose value is the next word.
const SEARCH_VALUES: &[&str] = &[
    "-e",
    "-f",
    "-g",
    "-t",
    "-T",
    "-A",
    "-B",
    "-C",
    "-m",
    "-d",
    "--regexp",
    "--glob",
    "--type",
    "--max-count",
    "--include",
    "--exclude",
    "--exclude-dir",
    "--max-depth",
];
/// Conditions of `find` on names.
const FIND_NAMES: [&str; 5] = ["-name", "-iname", "-path", "-wholename", "-regex"];
/// What `find` does besides printing.
const FIND_ACTS: [&str; 8] =
    ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprintf", "-fls"];

/// Returns the words that are no options; those of `valued` have a value in the next word.
fn operands<'a>(arguments: &[&'a str], valued: &[&str]) -> Vec<&'a str> {
    let mut operands = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match *argument {
            "--" => {
                operands.extend(arguments.by_ref());
            }
            option if valued.contains(&option) => {
                arguments.next();
            }
            option if option.starts_with('-') && option.len() > 1 => {}
            operand => operands.push(operand),
        }
    }
    operands
}

fn one(operands: Vec<&str>) -> Option<&str> {
    match operands[..] {
        [operand] => Some(operand),
        _ => None,
    }
}

/// Tells whether a command with piped input only cuts, counts or sorts it.
fn shapes(program: &str, arguments: &[&str]) -> bool {
    match program {
        "wc" | "sort" | "uniq" | "cut" | "tr" | "column" | "nl" | "cat" | "less" | "more" => {
            arguments
                .iter()
                .all(|argument| argument.starts_with('-') || program == "tr" || program == "cut")
        }
        "head" | "tail" => match arguments {
            [] => true,
            ["-n" | "-c", count] => is_count(count),
            [count] => count.starts_with('-'),
            _ => false,
        },
        "sed" => matches!(arguments, ["-n", lines] if is_line_range(lines)),
        _ => false,
    }
}

fn is_count(word: &str) -> bool {
    let digits = word.trim_start_matches(['+', '-']);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Tells whether a script of sed prints some lines, such as `5,9p`.
fn is_line_range(script: &str) -> bool {
    let Some(range) = script.strip_suffix('p') else { return false };
    let (from, to) = range.split_once(',').unwrap_or((range, range));
    let is_line = |line: &str| {
        line == "$" || !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())
    };
    is_line(from) && is_line(to)
}

/// Returns the last part of a path.
fn short(path: &str) -> String {
    let name = Path::new(path).file_name();
    name.map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn brief(action: &ScriptAction) -> String {
        let or_here = |path: &Option<String>| path.clone().unwrap_or_else(|| "here".to_owned());
        match action {
            ScriptAction::Read { name, path, .. } => format!("read {name} {}", path.display()),
            ScriptAction::ListFiles { path, .. } => format!("list {}", or_here(path)),
            ScriptAction::Search { query, path, .. } => {
                format!("search {} {}", query.clone().unwrap_or_default(), or_here(path))
            }
            ScriptAction::Unknown { .. } => "other".to_owned(),
        }
    }

    /// As the reference shows them, but for `2>/dev/null`, which changes nothing for a person.
    #[test]
    fn scripts() {
        for (script, want) in [
            ("ls", "list here"),
            ("ls -la src", "list src"),
            ("ls src lib", "list src"),
            ("ls -R a/b", "list b"),
            ("ls -- src", "list src"),
            ("tree", "list here"),
            ("cat a.txt", "read a.txt /w/a.txt"),
            ("cat -n 'a b.txt'", "read a b.txt /w/a b.txt"),
            ("cat /etc/passwd", "read passwd /etc/passwd"),
            ("cat -- -a.txt", "read -a.txt /w/-a.txt"),
            ("cat a.txt b.txt", "other"),
            ("head -n 5 a.txt", "read a.txt /w/a.txt"),
            ("head -5 a.txt", "other"),
            ("tail -f a.txt", "other"),
            ("sed -n '1,5p' d/a.txt", "read a.txt /w/d/a.txt"),
            ("sed -i s/a/b/ a.txt", "other"),
            ("nl -ba a.txt | sed -n 1,5p", "read a.txt /w/a.txt"),
            ("awk '{print}' a.txt", "read a.txt /w/a.txt"),
            ("grep -rn foo src", "search foo src"),
            ("grep foo", "search foo here"),
            ("grep -e foo -e bar src", "search foo src"),
            ("rg -l foo -g '*.rs' src", "search foo src"),
            ("rg foo src lib", "search foo src"),
            ("rg --files src", "list src"),
            ("rg foo || true", "search foo here"),
            ("git grep foo", "search foo here"),
            ("git ls-files", "list here"),
            ("git status", "other"),
            ("fd foo src", "search foo src"),
            ("find . -name '*.rs'", "search *.rs ."),
            ("find src -type f", "list src"),
            ("find . -name x -delete", "other"),
            ("cd src && ls", "list here"),
            ("cd src && cat a.txt", "read a.txt /w/src/a.txt"),
            ("cd .", ""),
            ("cat a.txt | wc -l", "read a.txt /w/a.txt"),
            ("ls | head -5", "list here"),
            ("cat a.txt | grep foo", "read a.txt /w/a.txt, search foo here"),
            ("ls && cat a.txt", "list here, read a.txt /w/a.txt"),
            ("ls; true", "list here"),
            ("true", "other"),
            ("ls && make", "other"),
            ("ls $HOME", "other"),
            ("cat *.txt", "other"),
            ("cat a.txt > b.txt", "other"),
            ("cat < a.txt", "other"),
            ("bash -lc 'cat a.txt'", "other"),
            ("env | sort", "other"),
            ("", "other"),
            ("cat 'a", "other"),
        ] {
            let got: Vec<_> = script_actions(script, Path::new("/w")).iter().map(brief).collect();
            assert_eq!(got.join(", "), want, "{script}");
        }
    }

    #[test]
    fn commands_are_quoted_again() {
        let [ScriptAction::Read { command, .. }] =
            &script_actions("sed -n 1,5p a.txt | head", Path::new("/w"))[..]
        else {
            panic!("not one file");
        };
        assert_eq!(command, "sed -n '1,5p' a.txt");
    }

    proptest! {
        #[test]
        fn any_script_has_actions(script in "[ -~\n]{0,60}") {
            script_actions(&script, Path::new("/w"));
        }
    }
}
