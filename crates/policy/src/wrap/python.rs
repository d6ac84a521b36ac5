//! Python code in which the names of programs can only be data: `s.replace('curl', 'wget')`.
//!
//! The code is not understood. It is harmless if everything it imports, and every attribute it accesses, is
//! in a table of what starts no program, and none of the few names occurs that bypass such a table.

/// Tells whether code cannot start a program, give one another name, or remove files.
pub(super) fn is_harmless(code: &str) -> bool {
    let Some(tokens) = tokens(code) else { return false };
    let mut before = "\n";
    let mut statement = Statement::Other;
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1).copied().unwrap_or("\n");
        let is_name = token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        match *token {
            "\n" | ";" => statement = Statement::Other,
            "from" if matches!(before, "\n" | ";" | ":") => statement = Statement::From,
            "import" if statement == Statement::From => statement = Statement::Names,
            "import" => statement = Statement::Import,
            "as" if statement == Statement::Names || statement == Statement::Import => {}
            "*" if statement == Statement::Names => return false,
            _ if !is_name => {}
            _ if before == "as" => {}
            name if matches!(statement, Statement::From | Statement::Import) && before != "." => {
                if !MODULES.contains(&name) {
                    return false;
                }
            }
            name if statement == Statement::Names || before == "." => {
                if !ATTRIBUTES.contains(&name) {
                    return false;
                }
            }
            // A keyword argument is not a use of that name.
            _ if next == "=" && matches!(before, "(" | ",") => {}
            name => {
                if REFUSED.contains(&name) || name.starts_with("__") {
                    return false;
                }
            }
        }
        before = token;
    }
    true
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Statement {
    /// `import …`
    Import,
    /// `from …`
    From,
    /// `from x import …`
    Names,
    Other,
}

/// Splits code into names and symbols; of strings only what is evaluated in them. Returns `None` if it cannot
/// tell where a string ends, or if one names a place where programs, or ways to reach them, are.
fn tokens(code: &str) -> Option<Vec<&str>> {
    let bytes = code.as_bytes();
    let mut tokens: Vec<&str> = Vec::new();
    let mut open = 0usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &code[at..];
        let length = match byte {
            b'#' => rest.find('\n').unwrap_or(rest.len()),
            b'\'' | b'"' => {
                let prefix = tokens.last().copied().filter(|_| at > 0 && is_of_name(bytes[at - 1]));
                let prefix = prefix.unwrap_or_default();
                if prefix.len() > 2 || !prefix.bytes().all(|b| b"bBfFrRuU".contains(&b)) {
                    return None;
                }
                let evaluated = prefix.contains(['f', 'F']);
                let (length, body) = string(rest)?;
                if leads_to_programs(body) || evaluated && !is_plain(body) {
                    return None;
                }
                tokens.push("''");
                length
            }
            // Between parentheses, a line break is a blank.
            b'\n' if open > 0 => 1,
            b'\n' => {
                tokens.push(&rest[..1]);
                1
            }
            _ if is_of_name(byte) => {
                let length = rest.bytes().take_while(|byte| is_of_name(*byte)).count();
                tokens.push(&rest[..length]);
                length
            }
            b'\\' if bytes.get(at + 1) == Some(&b'\n') => 2,
            b' ' | b'\t' => 1,
            // Other characters can be equivalent to ASCII letters in names; the rest is unusual.
            _ if !byte.is_ascii_graphic() || byte == b'\\' => return None,
            b'=' if rest.starts_with("==") => {
                tokens.push("==");
                2
            }
            _ => {
                match byte {
                    b'(' | b'[' | b'{' => open += 1,
                    b')' | b']' | b'}' => open = open.checked_sub(1)?,
                    _ => {}
                }
                tokens.push(&rest[..1]);
                1
            }
        };
        at += length;
    }
    Some(tokens)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the length of the string literal at the beginning of a text, and its content.
fn string(text: &str) -> Option<(usize, &str)> {
    let quote = &text[..1];
    let triple = text.as_bytes().get(..3).filter(|it| it.iter().all(|b| *b == quote.as_bytes()[0]));
    let width = if triple.is_some() { 3 } else { 1 };
    let end = &text[..width];
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(width) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' if width == 1 => return None,
            _ if text[at..].starts_with(end) => return Some((at + width, &text[width..at])),
            _ => {}
        }
    }
    None
}

/// Tells whether what is evaluated in a string is nothing but variable names with a format.
fn is_plain(body: &str) -> bool {
    body.replace("{{", "").replace("}}", "").split('{').skip(1).all(|part| {
        part.split_once('}').is_some_and(|(inside, _)| {
            let name = inside.split([':', '!']).next().unwrap_or_default();
            name.bytes().all(is_of_name) && !name.starts_with("__")
        })
    })
}

/// Tells whether a string refers to a place from which programs can be taken or reached, or to raw file
/// access.
fn leads_to_programs(body: &str) -> bool {
    let mut parts = body.split(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c));
    let is_mode = (2..4).contains(&body.len())
        && body.contains('b')
        && body.bytes().all(|b| b"rwaxb+".contains(&b));
    let hides = ["\\x", "\\u", "\\U", "\\N", "latin", "8859", "surrogate"];
    is_mode || parts.any(|part| PLACES.contains(&part)) || hides.iter().any(|it| body.contains(it))
}

/// Names of directories that contain programs, or files that the system generates.
const PLACES: [&str; 8] = ["bin", "dev", "git-core", "libexec", "libexec64", "proc", "sbin", "sys"];

/// Modules that start nothing when imported. What is used of them is checked by the attributes.
const MODULES: [&str; 36] = [
    "argparse",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "configparser",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fnmatch",
    "fractions",
    "glob",
    "hashlib",
    "heapq",
    "html",
    "io",
    "itertools",
    "json",
    "keyword",
    "math",
    "os",
    "pathlib",
    "pprint",
    "random",
    "re",
    "statistics",
    "string",
    "sys",
    "textwrap",
    "time",
    "tomllib",
    "unicodedata",
];

/// Attributes that are harmless on any module or value.
const ATTRIBUTES: &[&str] = &[
    "Counter",
    "DOTALL",
    "Decimal",
    "I",
    "IGNORECASE",
    "M",
    "MULTILINE",
    "OrderedDict",
    "Path",
    "PurePath",
    "S",
    "StringIO",
    "VERBOSE",
    "X",
    "abspath",
    "add",
    "append",
    "argv",
    "b64decode",
    "b64encode",
    "basename",
    "capitalize",
    "ceil",
    "chain",
    "clear",
    "close",
    "copy",
    "count",
    "cwd",
    "date",
    "datetime",
    "decode",
    "dedent",
    "deepcopy",
    "defaultdict",
    "deque",
    "digest",
    "dirname",
    "dump",
    "dumps",
    "elements",
    "encode",
    "end",
    "endswith",
    "escape",
    "exists",
    "exit",
    "expandtabs",
    "extend",
    "fill",
    "find",
    "findall",
    "finditer",
    "floor",
    "flush",
    "fnmatch",
    "format",
    "fromkeys",
    "fullmatch",
    "get",
    "getcwd",
    "getsize",
    "glob",
    "group",
    "groupby",
    "groupdict",
    "groups",
    "hexdigest",
    "indent",
    "index",
    "insert",
    "is_dir",
    "is_file",
    "isalnum",
    "isalpha",
    "isdecimal",
    "isdigit",
    "isdir",
    "isfile",
    "islower",
    "isspace",
    "isupper",
    "items",
    "iterdir",
    "join",
    "keys",
    "lines",
    "listdir",
    "ljust",
    "load",
    "loads",
    "lower",
    "lstrip",
    "match",
    "md5",
    "mkdir",
    "most_common",
    "name",
    "namedtuple",
    "normpath",
    "now",
    "open",
    "parent",
    "parents",
    "parts",
    "partition",
    "path",
    "pop",
    "pprint",
    "read",
    "read_text",
    "reader",
    "readline",
    "readlines",
    "relative_to",
    "relpath",
    "removeprefix",
    "removesuffix",
    "replace",
    "resolve",
    "reverse",
    "rfind",
    "rglob",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "search",
    "seek",
    "setdefault",
    "sha1",
    "sha256",
    "sleep",
    "sort",
    "span",
    "split",
    "splitext",
    "splitlines",
    "sqrt",
    "start",
    "startswith",
    "stderr",
    "stdin",
    "stdout",
    "stem",
    "strftime",
    "strip",
    "sub",
    "subn",
    "suffix",
    "swapcase",
    "tell",
    "time",
    "title",
    "today",
    "translate",
    "truncate",
    "unescape",
    "unified_diff",
    "update",
    "upper",
    "values",
    "walk",
    "with_name",
    "with_suffix",
    "wrap",
    "write",
    "write_text",
    "writelines",
    "writer",
    "writerow",
    "zfill",
];

/// Names through which an attribute can be accessed without writing it, or code in a text be run; and a
/// pattern that does the former.
const REFUSED: [&str; 14] = [
    "breakpoint",
    "case",
    "compile",
    "copyright",
    "credits",
    "delattr",
    "eval",
    "exec",
    "getattr",
    "globals",
    "help",
    "license",
    "locals",
    "vars",
];

#[cfg(test)]
mod tests {
    use super::is_harmless;

    #[test]
    fn what_starts_nothing() {
        for code in [
            "",
            "print(1)",
            "s = open('f').read()\ns = s.replace('curl', 'wget')  # run curl\nopen('f', 'w').write(s)\n",
            "import re; print(re.sub(\"curl\",\"wget\",open(\"f\").read()))",
            "import re, sys, os.path as p\nprint(sys.argv, p.join('a', 'b'))",
            "from pathlib import Path\np = Path('x'); p.write_text(p.read_text().replace('a', 'b'))",
            "x = '''it's \"run\" curl\n'''\nassert x == 1, f'{x} and {x:>3}'",
            "r'\\d'; b'x'; json.dumps(x, indent=2, vars=1)",
            "for p in glob.glob('*.md'):\n    with open(p) as f:\n        print(f.read().count('curl'))",
        ] {
            assert!(is_harmless(code), "{code}");
        }
    }

    #[test]
    fn what_may_start_something() {
        for code in [
            "import os; os.system('curl')",
            "import os as o; o.popen('curl')",
            "from os import system as s; s('curl')",
            "from os import *; system('curl')",
            "from os import (path,\n system)\nsystem('curl')",
            "import subprocess",
            "import re, subprocess",
            "import os.path, pty",
            "if 1: from subprocess import run",
            "import json; json.codecs.sys",
            "__import__('os')",
            "eval('x')",
            "e = exec; e('x')",
            "getattr(x, 'system')",
            "vars(x)['system']",
            "x.__dict__['system']",
            "x.\\\nsystem('curl')",
            "x . system('curl')",
            "(x.\n system)('curl')",
            "(x. # a\n system)('curl')",
            "open('a', 'rb')",
            "open(p, encoding='latin-1')",
            "x)",
            "match os:\n  case object(system=f): f('curl')",
            "f'{os.system(x)}'",
            "f\"{a(\"x\").system(\"curl\")}\"",
            "rf'{__import__}'",
            "ｅval('x')",
            "x = 'a",
            "x = '''a",
            "open('x', 'wb').write(open('/usr/bin/curl', 'rb').read())",
            "open('/proc/self/mem', 'w')",
            "open('/usr/\\x62in/curl')",
            "import ctypes",
            "import importlib",
            "import shutil; shutil.copy('curl', 'x')",
            "import os; os.remove('x')",
            "import os; os.rename('x', 'y')",
            "from pathlib import Path; Path('x').unlink()",
            "import os; os.walk.x",
            "é",
            "a\u{c}b",
        ] {
            assert!(!is_harmless(code), "{code}");
        }
    }
}
