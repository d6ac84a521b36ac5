//! The commands that git runs because of its arguments: in settings (`-c`), filters, hooks and steps of a rebase.

use super::{Fed, Inner, script_of};
use crate::shell::Word;

/// Options of git, before the subcommand, that take the next word as their value.
pub(crate) const GIT_VALUES: [&str; 8] = [
    "-C",
    "-c",
    "--attr-source",
    "--config-env",
    "--git-dir",
    "--namespace",
    "--super-prefix",
    "--work-tree",
];

/// Options of git, before the subcommand, that take no value, or an attached one.
pub(crate) const GIT_FLAGS: [&str; 22] = [
    "-P",
    "-h",
    "-p",
    "-v",
    "--bare",
    "--exec-path",
    "--glob-pathspecs",
    "--help",
    "--html-path",
    "--icase-pathspecs",
    "--info-path",
    "--literal-pathspecs",
    "--man-path",
    "--no-advice",
    "--no-lazy-fetch",
    "--no-literal-pathspecs",
    "--no-optional-locks",
    "--no-pager",
    "--no-replace-objects",
    "--noglob-pathspecs",
    "--paginate",
    "--version",
];

/// Returns what a git command line runs.
pub(super) fn inner(words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at).filter(|word| word.text.starts_with('-')) {
        let text = word.text.as_str();
        let takes = GIT_VALUES.contains(&text);
        match (text, words.get(at + 1)) {
            ("-c", Some(setting)) => found.extend(script_in(at + 1, setting)),
            _ if text.starts_with("-c") => {
                let setting = Word { text: text[2..].to_owned(), ..word.clone() };
                found.extend(script_in(at, &setting));
            }
            // The value is in a variable.
            ("--config-env", Some(setting)) if names_a_script(&setting.text) => {
                found.push(Inner::Unclear);
            }
            _ if text.strip_prefix("--config-env=").is_some_and(names_a_script) => {
                found.push(Inner::Unclear);
            }
            _ => {}
        }
        at += 1 + usize::from(takes);
    }
    let rest = words.get(at..).unwrap_or_default();
    // A remote of this kind is a command.
    found.extend(rest.iter().enumerate().filter_map(|(place, word)| {
        let (_, text) = word.text.split_once("ext::")?;
        Some(Inner::Script { at: at + place, text: text.to_owned() })
    }));
    let name = |at: usize| rest.get(at).and_then(Word::known);
    let after = |skip: usize| rest.get(skip..).unwrap_or_default();
    match (name(0), name(1)) {
        (Some("submodule"), _) => {
            if let Some(each) = rest.iter().position(|word| word.known() == Some("foreach")) {
                let own = after(each + 1);
                let options = own.iter().take_while(|word| word.text.starts_with('-')).count();
                found.extend(script_of(at + each + 1 + options, &own[options..]));
            }
        }
        (Some("config"), _) => found.extend(configured(at, rest)),
        (Some(first), _) if pushes(first, after(1)) => {
            let mut words = vec![Word::literal("git"), Word::literal("push")];
            let own = |word: &&Word| {
                !SAME_AS_PUSH.iter().any(|(_, it)| it.is_some() && word.known() == *it)
            };
            words.extend(after(1).iter().filter(own).cloned());
            found.push(Inner::Words { at, words, fed: Fed::No, sets: false });
        }
        (Some("bisect"), Some("run")) => found.extend(script_of(at + 2, after(2))),
        (
            Some("rebase" | "filter-branch" | "difftool" | "fetch" | "pull" | "push" | "clone"),
            _,
        )
        | (Some("ls-remote" | "fetch-pack" | "archive" | "grep" | "send-email"), _) => {
            for (place, word) in rest.iter().enumerate().skip(1) {
                let next = rest.get(place + 1);
                found.extend(option(at + place, word, next));
                if name(0) == Some("clone") {
                    found.extend(upload_pack(at + place, word, next));
                }
                if name(0) == Some("clone") && matches!(word.known(), Some("-c" | "--config")) {
                    found.extend(next.and_then(|setting| script_in(at + place + 1, setting)));
                }
            }
        }
        _ => {}
    }
    found
}

/// Tells whether a git command does what `git push` does.
fn pushes(command: &str, rest: &[Word]) -> bool {
    let first = || {
        let mut words = rest.iter().filter_map(Word::known);
        while let Some(word) = words.next() {
            match word {
                "-P" | "--prefix" => drop(words.next()),
                _ if word.starts_with('-') => {}
                _ => return Some(word),
            }
        }
        None
    };
    let same = |(name, second): &(&str, Option<&str>)| {
        *name == command && (second.is_none() || *second == first())
    };
    SAME_AS_PUSH.iter().any(same)
}

/// Handles `git config [set] [OPTIONS] KEY VALUE`, after which git runs the value.
fn configured(at: usize, rest: &[Word]) -> Option<Inner> {
    let gets = |word: &Word| word.text.starts_with("--get") || word.text.starts_with("--unset");
    if rest.iter().any(gets) || rest.get(1).and_then(Word::known) == Some("unset") {
        return None;
    }
    let key = rest.iter().position(|word| word.text.contains('.') && names_a_script(&word.text))?;
    let value = rest.get(key + 1)?;
    let text = format!("{}={}", rest[key].text, value.text);
    let unknown = rest[key].unknown.max(value.unknown);
    script_in(at + key + 1, &Word { text, unknown, ..value.clone() })
}

/// Returns the script that a setting contains.
fn script_in(at: usize, setting: &Word) -> Option<Inner> {
    let (key, value) = setting.text.split_once('=').unwrap_or((&setting.text, ""));
    if !names_a_script(key) {
        return None;
    }
    // Further settings are in a file.
    if setting.unknown.is_some() || key.to_ascii_lowercase().starts_with("include") {
        return Some(Inner::Unclear);
    }
    let text = value.strip_prefix('!').unwrap_or(value);
    // An alias without the exclamation mark is a git command.
    let alias = key.to_ascii_lowercase().starts_with("alias.") && !value.starts_with('!');
    let text = if alias { format!("git {text}") } else { text.to_owned() };
    Some(Inner::Script { at, text })
}

/// Tells whether git runs the value of a setting.
fn names_a_script(key: &str) -> bool {
    let key = key.split('=').next().unwrap_or(key).to_ascii_lowercase();
    let last = key.rsplit('.').next().unwrap_or_default();
    key.starts_with("alias.") || SCRIPTS.contains(&last)
}

/// Handles `-u COMMAND` of `git clone`, alone, in a cluster or with the command attached.
fn upload_pack(at: usize, word: &Word, next: Option<&Word>) -> Option<Inner> {
    let cluster = word.text.strip_prefix('-')?.trim_start_matches(['l', 's', 'n', 'q', 'v']);
    let attached = cluster.strip_prefix('u')?;
    match (attached, next) {
        _ if word.unknown.is_some() => Some(Inner::Unclear),
        ("", next) => script_of(at + 1, next.map(std::slice::from_ref)?).into_iter().next(),
        (text, _) => Some(Inner::Script { at, text: text.to_owned() }),
    }
}

/// Handles an option whose value is run.
fn option(at: usize, word: &Word, next: Option<&Word>) -> Option<Inner> {
    let text = word.text.as_str();
    let (name, attached) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    // `-O` has its value attached.
    if let Some(value) = text.strip_prefix("-O").filter(|value| !value.is_empty()) {
        return Some(Inner::Script { at, text: value.to_owned() });
    }
    let known = OPTIONS.iter().any(|option| match name.len() > 4 {
        // Long options may be abbreviated.
        true => option.starts_with(name),
        false => *option == name,
    });
    let short = |option: &str| name.len() > 2 && option.starts_with(name);
    let known = known || short("--upload-pack") || short("--exec");
    let filter = name.starts_with("--") && name.ends_with("-filter");
    if !known && !filter {
        return None;
    }
    match (attached, next) {
        _ if word.unknown.is_some() => Some(Inner::Unclear),
        (Some(value), _) => Some(Inner::Script { at, text: value.to_owned() }),
        (None, Some(next)) => script_of(at + 1, std::slice::from_ref(next)).into_iter().next(),
        (None, None) => None,
    }
}

/// Git commands that send commits or related data, and a word that must follow.
const SAME_AS_PUSH: [(&str, Option<&str>); 9] = [
    ("http-push", None),
    ("lfs", Some("push")),
    ("p4", Some("submit")),
    ("remote-ftp", None),
    ("remote-http", None),
    ("remote-https", None),
    ("send-pack", None),
    ("subtree", Some("push")),
    ("svn", Some("dcommit")),
];

/// Last components of settings whose value is run.
const SCRIPTS: [&str; 22] = [
    "askpass",
    "clean",
    "cmd",
    "command",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "gitproxy",
    "helper",
    "packobjectshook",
    "pager",
    "path",
    "process",
    "program",
    "proxycommand",
    "receivepack",
    "smudge",
    "sshcommand",
    "textconv",
    "update",
    "uploadpack",
];

/// Options whose value is run.
const OPTIONS: [&str; 9] = [
    "-x",
    "-O",
    "--exec",
    "--extcmd",
    "--open-files-in-pager",
    "--receive-pack",
    "--sendmail-cmd",
    "--to-cmd",
    "--upload-pack",
];
