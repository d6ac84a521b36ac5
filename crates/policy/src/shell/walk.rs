//! Converts the grammar's tree into simple commands, and verifies it on the way.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use tree_sitter::{Node, TreeCursor};

use super::heredoc::Heredoc;
use super::word::{self, Unknown, Word};
use super::{Feature, NESTING_MAX, Script, SimpleCommand, Trouble, Unclear, excerpt};
use crate::wrap::is_run;

/// Visits every node once, in text order, with an explicit stack, so that deep trees are safe.
pub(super) fn walk<'a>(text: &'a str, root: Node<'a>) -> Script {
    let mut walker = Walker {
        text,
        script: Script::default(),
        trailing: HashMap::new(),
        dashes: HashMap::new(),
        herestrings: HashSet::new(),
        variables: HashMap::new(),
        candidates: 0,
        cursor: root.walk(),
        stack: vec![Visit { node: root, parent: "", depth: 0, argument: false, input: None }],
    };
    if !gap_is_blank(&text[..root.start_byte()], true)
        || !gap_is_blank(&text[root.end_byte()..], true)
    {
        walker.unclear(root, Trouble::Quoting);
    }
    // Shells remove continued lines before anything else, which the grammar does not: for them, `$` and `(`
    // on two lines are one token.
    if ["$\\\n", "<\\\n", ">\\\n"].iter().any(|split| text.contains(split)) {
        walker.unclear(root, Trouble::Quoting);
    }
    while let Some(visit) = walker.stack.pop() {
        walker.visit(visit);
    }
    walker.script
}

/// A node to visit. It carries its parent, because the tree would search for it from the root.
#[derive(Clone, Copy)]
struct Visit<'a> {
    node: Node<'a>,
    parent: &'a str,
    depth: usize,
    /// Whether it is inside a word of a simple command, where the word itself records expansions.
    argument: bool,
    /// The range of text that it reads as stdin.
    input: Option<(usize, usize)>,
}

struct Walker<'a> {
    text: &'a str,
    script: Script,
    /// Words that the grammar assigns to a redirection, by the command they belong to.
    trailing: HashMap<usize, Vec<Node<'a>>>,
    /// Where a command has a `-` that the grammar drops, as it does before a here-document.
    dashes: HashMap<usize, usize>,
    /// Parts of here-strings that the grammar parses as an error and a redirection from a file.
    herestrings: HashSet<usize>,
    /// Variables whose value is certain from here on.
    variables: HashMap<&'a str, &'a str>,
    /// How many variables were examined for that.
    candidates: usize,
    cursor: TreeCursor<'a>,
    stack: Vec<Visit<'a>>,
}

impl<'a> Walker<'a> {
    fn visit(&mut self, Visit { node, parent, depth, argument, input }: Visit<'a>) {
        let herestring = self.herestrings.remove(&node.id());
        if herestring && node.is_error() {
            return;
        }
        if node.is_error() || node.is_missing() {
            self.unclear(node, Trouble::Syntax);
        }
        let depth = depth + usize::from(NESTS.contains(&node.kind()));
        if depth > NESTING_MAX {
            self.unclear(node, Trouble::TooDeep);
            return;
        }
        if LITERALS.contains(&node.kind()) {
            let argument = argument || COMMANDS.contains(&parent);
            self.literal(Visit { node, parent, depth, argument, input });
            return;
        }
        let children = self.children(node);
        self.check_gaps(node, &children);
        let argument = argument || (COMMANDS.contains(&parent) && HOLES.contains(&node.kind()));
        if EXPANDS.contains(&node.kind()) && !argument {
            self.feature(Feature::Substitution);
        }
        match node.kind() {
            kind if COMMANDS.contains(&kind) => self.command(node, &children, input),
            "redirected_statement" => self.redirected(node, &children, input),
            "file_redirect" if herestring => self.feature(Feature::Heredoc),
            "file_redirect" => self.file_redirect(node, &children),
            "herestring_redirect" => self.feature(Feature::Heredoc),
            "heredoc_redirect" => self.heredoc(node, &children),
            "variable_assignment" => self.assignment(node, parent),
            "command_substitution" | "process_substitution" => self.substitution(node),
            "expansion" => self.expansion(node),
            "subshell" => self.feature(Feature::Subshell),
            "function_definition" => self.feature(Feature::Function),
            "arithmetic_expansion" | "c_style_for_statement" => self.arithmetic(node),
            "compound_statement" if self.slice(node).starts_with("((") => self.arithmetic(node),
            "test_command" => self.test(node),
            // A pattern may contain anything, except what could end it elsewhere.
            "regex" | "extglob_pattern"
                if self.slice(node).contains(['\'', '"', '\\', '`', '$', '\n', ';', '&']) =>
            {
                self.unclear(node, Trouble::Quoting);
            }
            "comment" => self.comment(node),
            "&" => self.feature(Feature::Background),
            "for_statement" => {
                // The loop variable is set to each of the words.
                self.feature(Feature::ControlFlow);
                self.feature(Feature::Assignment);
            }
            kind if CONTROL.contains(&kind) => self.feature(Feature::ControlFlow),
            // A reserved word is one only if it is a word of its own.
            kind if !node.is_named() && RESERVED.contains(&kind) && !INSIDE.contains(&parent) => {
                let range = node.byte_range();
                if !begins_here(self.text, range.start) || !ends_here(self.text, range.end) {
                    self.unclear(node, Trouble::Quoting);
                }
            }
            _ => {}
        }
        let argument = argument && !SCOPES.contains(&node.kind());
        self.push(Visit { node, parent, depth, argument, input }, children);
    }

    /// Reads a literal by our own rules; only its expansions are visited further.
    fn literal(&mut self, visit: Visit<'a>) {
        let node = visit.node;
        let holes = self.holes(node);
        let word = word::read(self.text, node.byte_range(), &ranges(&holes));
        let inside = INSIDE.contains(&visit.parent);
        if word.is_none() || !(inside || ends_here(self.text, node.end_byte())) {
            self.unclear(node, Trouble::Quoting);
        }
        if word.is_some_and(|word| word.unknown == Some(Unknown::Glob)) {
            self.feature(Feature::Glob);
        }
        if !inside && names_descriptor(self.slice(node), &self.text[node.end_byte()..]) {
            self.feature(Feature::Assignment);
            self.unclear(node, Trouble::Syntax);
        }
        self.push(visit, holes);
    }

    fn push(&mut self, above: Visit<'a>, nodes: Vec<Node<'a>>) {
        let body = match above.node.kind() {
            "redirected_statement" => above.node.child_by_field_name("body"),
            _ => None,
        };
        let body = body.map(|body| body.id());
        let below = |node: Node<'a>| {
            let (outer, end) = (above.node.byte_range(), node.end_byte());
            let reads = match above.node.kind() {
                "pipeline" => Some((outer.start, node.start_byte())),
                // A command after a here-document on the same line may read it through a pipe.
                "redirected_statement" if body != Some(node.id()) => Some((outer.start, outer.end)),
                "redirected_statement" => Some((end, outer.end)),
                _ => None,
            };
            let input = joined(above.input, reads);
            Visit { node, parent: above.node.kind(), input, ..above }
        };
        self.stack.extend(nodes.into_iter().rev().map(below));
    }

    fn expansion(&mut self, node: Node<'a>) {
        let text = self.slice(node);
        if text.contains(['\'', '"', '\\', '`', '\n']) {
            self.unclear(node, Trouble::Quoting);
        }
        // The value is expanded again, as a prompt is, or contains a script.
        if text.contains("@P") || ["${ ", "${\t", "${|"].iter().any(|begin| text.starts_with(begin))
        {
            self.unclear(node, Trouble::Inner);
        }
    }

    fn command(
        &mut self,
        node: Node<'a>,
        children: &[Node<'a>],
        mut input: Option<(usize, usize)>,
    ) {
        let mut words = self.trailing.remove(&node.id()).unwrap_or_default();
        for child in children {
            if ["heredoc_redirect", "herestring_redirect", "file_redirect"].contains(&child.kind())
            {
                input = joined(input, Some((child.start_byte(), child.end_byte())));
            }
            match child.kind() {
                "variable_assignment" if node.kind() == "command" => {}
                "heredoc_redirect" | "herestring_redirect" | "comment" => {}
                "file_redirect" => words.extend(self.beyond_target(*child)),
                "subshell" => self.unclear(*child, Trouble::Syntax),
                _ => words.push(*child),
            }
        }
        self.push_command(node, words, input);
    }

    fn push_command(
        &mut self,
        node: Node<'a>,
        mut nodes: Vec<Node<'a>>,
        input: Option<(usize, usize)>,
    ) {
        nodes.sort_by_key(Node::start_byte);
        let mut words: Vec<Word> = nodes.iter().map(|node| self.word(*node)).collect();
        if let Some(at) = self.dashes.remove(&node.id()) {
            let before = nodes.iter().take_while(|node| node.start_byte() < at).count();
            words.insert(before, Word { quoted: false, ..Word::literal("-") });
        }
        if let Some(name) = words.first_mut().filter(|name| name.unknown.is_some())
            && let Some(value) = self.value_of(&name.source)
        {
            *name = Word { source: name.source.clone(), ..Word::literal(value) };
        }
        let Some(name) = words.first() else {
            self.unclear(node, Trouble::Syntax);
            return;
        };
        let agrees = nodes.iter().all(|node| {
            begins_here(self.text, node.start_byte()) && ends_here(self.text, node.end_byte())
        });
        let reserved = name.is_bare(&RESERVED);
        let named = name.unknown.is_none();
        if !agrees {
            self.unclear(node, Trouble::Quoting);
        } else if reserved {
            self.unclear(node, Trouble::Syntax);
        } else if !named {
            self.unclear(node, Trouble::Name);
        }
        let input = input.map(|(start, end)| start..end);
        self.script.commands.push(SimpleCommand { words, input });
    }

    /// Returns the value of a word that is just a variable.
    fn value_of(&self, source: &str) -> Option<&'a str> {
        let bare = source.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(source);
        let name = bare.strip_prefix('$')?;
        let name = name.strip_prefix('{').and_then(|it| it.strip_suffix('}')).unwrap_or(name);
        self.variables.get(name).copied()
    }

    /// Remembers a variable that is assigned a plain word, if nothing else in the script could set it: its
    /// name occurs only where its value is used, and nothing sets variables by other means.
    fn remember(&mut self, node: Node<'a>) {
        if self.candidates == VARIABLES_MAX {
            return;
        }
        self.candidates += 1;
        let (text, range) = (self.text, node.byte_range());
        let Some((name, value)) = self.slice(node).split_once('=') else { return };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        let is_plain = value.bytes().all(plain) && !value.is_empty();
        let rest = text[range.end..].trim_start_matches([' ', '\t']);
        let ends = rest.starts_with([';', '\n']) && !rest.starts_with(";;");
        let first = text[..range.start].trim_end_matches([' ', '\t']);
        let begins = first.is_empty() || first.ends_with(['\n', ';']);
        let other = text.match_indices(name).any(|(at, _)| {
            let named = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let (before, after) = (&text[..at], &text[at + name.len()..]);
            let part = before.bytes().next_back().is_some_and(named)
                || after.bytes().next().is_some_and(named);
            let taken = before.ends_with('$') || before.ends_with("${") && after.starts_with('}');
            at != range.start && !part && !taken
        });
        if is_plain && ends && begins && !other && !SETTERS.iter().any(|it| text.contains(it)) {
            self.variables.insert(name, value);
        }
    }

    fn word(&mut self, node: Node<'a>) -> Word {
        let holes = self.holes(node);
        let range = node.byte_range();
        word::read(self.text, range, &ranges(&holes)).unwrap_or_else(|| Word::any(self.slice(node)))
    }

    /// A redirection takes one word; if the grammar gives it more, these belong to the command.
    fn redirected(&mut self, node: Node<'a>, children: &[Node<'a>], input: Option<(usize, usize)>) {
        for pair in children.windows(2) {
            if self.is_herestring(pair[0], pair[1]) {
                self.herestrings.extend([pair[0].id(), pair[1].id()]);
            }
        }
        let mut beyond = Vec::new();
        for child in children {
            match child.kind() {
                "file_redirect" => beyond.extend(self.beyond_target(*child)),
                "heredoc_redirect" => {
                    for inner in self.children(*child) {
                        match inner.kind() {
                            "file_redirect" => beyond.extend(self.beyond_target(inner)),
                            kind if is_argument(kind) => beyond.push(inner),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        if beyond.is_empty() {
            return;
        }
        let mut body = node.child_by_field_name("body");
        while let Some(inner) = body {
            body = match inner.kind() {
                "command" | "declaration_command" | "unset_command" => {
                    self.trailing.entry(inner.id()).or_default().extend(beyond);
                    return;
                }
                "pipeline" | "list" | "negated_command" => self.children(inner).pop(),
                "redirected_statement" => inner.child_by_field_name("body"),
                _ => {
                    self.unclear(node, Trouble::Syntax);
                    None
                }
            };
        }
        // Without a command before, these words are the command.
        let input = joined(input, Some((node.start_byte(), node.end_byte())));
        self.push_command(node, beyond, input);
    }

    /// Recognizes a here-string after another redirection, which the grammar does not know: it sees a dropped
    /// `<<` and `< word`.
    fn is_herestring(&mut self, mark: Node<'a>, redirect: Node<'a>) -> bool {
        // What directly precedes it may be its file descriptor, or part of another operator.
        let before = self.text[..mark.start_byte()].bytes().next_back();
        let alone = before.is_none_or(|it| !it.is_ascii_digit() && !b"<>&}$\\".contains(&it));
        let marks = mark.is_error() && self.slice(mark) == "<<" && alone;
        let tight = redirect.kind() == "file_redirect" && redirect.start_byte() == mark.end_byte();
        if !marks || !tight {
            return false;
        }
        let children = self.children(redirect);
        let reads = children.first().is_some_and(|operator| operator.kind() == "<");
        // A second mark, a descriptor or a parenthesis would be something else.
        let target = self.text[redirect.start_byte()..].strip_prefix('<').unwrap_or_default();
        reads && children.len() > 1 && !target.starts_with(['<', '>', '&', '('])
    }

    fn beyond_target(&mut self, redirect: Node<'a>) -> Vec<Node<'a>> {
        let children = self.children(redirect);
        let closes = children.iter().any(|child| matches!(child.kind(), "<&-" | ">&-"));
        let words = children.into_iter().filter(|child| is_argument(child.kind()));
        words.skip(usize::from(!closes)).collect()
    }

    fn file_redirect(&mut self, node: Node<'a>, children: &[Node<'a>]) {
        let operator = children.iter().map(Node::kind).find(|kind| kind.contains(['<', '>']));
        let target = children.iter().copied().find(|child| is_argument(child.kind()));
        let target = target.map(|target| self.word(target));
        match operator {
            Some("<" | "<>") => self.script.inputs.extend(target.clone()),
            _ => self.script.outputs.extend(target.clone()),
        }
        let target = target.as_ref().and_then(Word::known);
        let is_descriptor =
            |text: &str| text.trim_end_matches('-').bytes().all(|b| b.is_ascii_digit());
        let harmless = match operator {
            Some("<&-" | ">&-") => true,
            Some("<&" | ">&") => target.is_some_and(is_descriptor),
            Some(_) => target == Some("/dev/null"),
            None => {
                self.unclear(node, Trouble::Syntax);
                false
            }
        };
        if !harmless {
            self.feature(Feature::Redirect);
        }
    }

    fn heredoc(&mut self, node: Node<'a>, children: &[Node<'a>]) {
        self.feature(Feature::Heredoc);
        let find = |kinds: &[&str]| children.iter().find(|child| kinds.contains(&child.kind()));
        let operator = find(&["<<", "<<-"]).map(Node::kind);
        let parts = (find(&["heredoc_start"]), find(&["heredoc_body"]), find(&["heredoc_end"]));
        let (Some(operator), (Some(start), Some(body), Some(end))) = (operator, parts) else {
            self.unclear(node, Trouble::Syntax);
            return;
        };
        let holes = ranges(&self.holes(*body));
        let (start, body, end) = (start.byte_range(), body.byte_range(), end.byte_range());
        let line_end = self.text[start.end..].find('\n').map_or(start.end, |n| start.end + n + 1);
        // A quoted line feed does not end the operator's line.
        let plain_line = !self.text[start.end..line_end].contains(['\'', '"', '\\', '`']);
        let seen = Heredoc { operator, start, body, end, holes: &holes };
        if !plain_line || !seen.agrees(self.text, line_end) {
            self.unclear(node, Trouble::Quoting);
        }
    }

    fn substitution(&mut self, node: Node<'a>) {
        self.feature(Feature::Substitution);
        let text = self.slice(node);
        // Between backticks, backslashes are removed before anything else is parsed.
        if text.starts_with(['`', '$']) && !text.starts_with("$(") && text.contains('\\') {
            self.unclear(node, Trouble::Quoting);
        }
    }

    fn arithmetic(&mut self, node: Node<'a>) {
        self.feature(Feature::Test);
        let text = self.slice(node);
        // Double parentheses are arithmetic only if they are closed together.
        let inner = text.find("((").map_or("", |at| &text[at + 2..]);
        let inner = inner.rfind("))").map_or("", |at| &inner[..at]);
        let mut depth = 0i64;
        let balanced = inner.bytes().all(|byte| {
            depth += i64::from(byte == b'(') - i64::from(byte == b')');
            depth >= 0
        });
        if !balanced || text.contains(['\'', '"', '\\', '`', '\n']) {
            self.unclear(node, Trouble::Quoting);
        }
    }

    fn test(&mut self, node: Node<'a>) {
        self.feature(Feature::Test);
        let operators = ["-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
        if !self.slice(node).split_whitespace().any(|part| operators.contains(&part)) {
            return;
        }
        // Their operands are names or arithmetic, in which a subscript is expanded again.
        let mut stack = self.children(node);
        while let Some(inner) = stack.pop() {
            if LITERALS.contains(&inner.kind()) {
                let holes = ranges(&self.holes(inner));
                if has_subscript(self.text, inner.byte_range(), &holes) {
                    self.unclear(node, Trouble::Inner);
                }
            } else if !HOLES.contains(&inner.kind()) {
                stack.extend(self.children(inner));
            }
        }
    }

    fn assignment(&mut self, node: Node<'a>, parent: &str) {
        if parent != "declaration_command" {
            self.feature(Feature::Assignment);
        }
        if parent == "program" {
            self.remember(node);
        }
        // Without a name it is a word, not an assignment.
        let text = self.slice(node);
        let name = &text[..text.find(['=', '+', '[']).unwrap_or(text.len())];
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !name.bytes().all(plain) || name.bytes().next().is_none_or(|b| b.is_ascii_digit()) {
            self.unclear(node, Trouble::Quoting);
        }
        let word = self.word(node);
        self.script.settings.push(word);
        let value = text.split_once('=').map_or("", |(_, value)| value);
        if is_run(name, value) {
            self.unclear(node, Trouble::Inner);
        }
    }

    fn comment(&mut self, node: Node<'a>) {
        if !begins_here(self.text, node.start_byte()) {
            self.unclear(node, Trouble::Quoting);
        }
    }

    /// Checks that nothing between two tokens would be part of a word for bash.
    fn check_gaps(&mut self, node: Node<'a>, children: &[Node<'a>]) {
        if UNCHECKED.contains(&node.kind()) {
            return;
        }
        let lines = !ONE_LINE.contains(&node.kind());
        let mut end = node.start_byte();
        let mut before: Option<&Node<'a>> = None;
        for child in children {
            let gap = self.text.get(end..child.start_byte()).unwrap_or_default();
            let before = before.replace(child);
            if child.kind() == "heredoc_redirect"
                && gap.trim_matches([' ', '\t']) == "-"
                && gap.starts_with([' ', '\t'])
                && let Some(command) = before.and_then(|before| self.last_command(*before))
            {
                self.dashes.insert(command.id(), end);
                end = child.end_byte();
                continue;
            }
            let tight = TIGHT.contains(&node.kind()) && !gap.is_empty();
            if tight || !gap_is_blank(gap, lines) {
                self.unclear(node, Trouble::Quoting);
                return;
            }
            end = child.end_byte();
        }
        let rest = self.text.get(end..node.end_byte()).unwrap_or_default();
        if !children.is_empty() && !gap_is_blank(rest, true) {
            self.unclear(node, Trouble::Quoting);
        }
    }

    /// Returns the simple command that ends a list or a pipeline, or is the node itself.
    fn last_command(&mut self, node: Node<'a>) -> Option<Node<'a>> {
        let mut last = Some(node);
        while let Some(inner) = last {
            last = match inner.kind() {
                "command" => return Some(inner),
                "pipeline" | "list" | "negated_command" => self.children(inner).pop(),
                _ => None,
            };
        }
        None
    }

    /// Returns the outermost expansions and substitutions in a node, possibly the node itself.
    fn holes(&mut self, node: Node<'a>) -> Vec<Node<'a>> {
        let mut found = Vec::new();
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            if HOLES.contains(&node.kind()) {
                found.push(node);
            } else {
                stack.extend(self.children(node).into_iter().rev());
            }
        }
        found
    }

    fn children(&mut self, node: Node<'a>) -> Vec<Node<'a>> {
        node.children(&mut self.cursor).collect()
    }

    fn slice(&self, node: Node<'a>) -> &'a str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    fn feature(&mut self, feature: Feature) {
        self.script.features.insert(feature);
    }

    fn unclear(&mut self, node: Node<'a>, why: Trouble) {
        let unclear = Unclear { part: excerpt(self.slice(node)), why };
        let known = &mut self.script.unclear;
        if known.len() < UNCLEAR_MAX && !known.contains(&unclear) {
            known.push(unclear);
        }
    }
}

/// Returns the text from the beginning of the first to the end of the last.
fn joined(one: Option<(usize, usize)>, other: Option<(usize, usize)>) -> Option<(usize, usize)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

fn ranges(nodes: &[Node<'_>]) -> Vec<Range<usize>> {
    nodes.iter().map(Node::byte_range).collect()
}

fn is_argument(kind: &str) -> bool {
    LITERALS.contains(&kind) || HOLES.contains(&kind)
}

/// Tells whether a gap contains only blanks, continued lines and, where allowed, line breaks.
fn gap_is_blank(gap: &str, lines: bool) -> bool {
    let mut rest = gap;
    while let Some(byte) = rest.bytes().next() {
        let step = match byte {
            b' ' | b'\t' => 1,
            b'\n' if lines => 1,
            b'\\' if rest[1..].starts_with('\n') => 2,
            _ => return false,
        };
        rest = &rest[step..];
    }
    true
}

/// Tells whether a word has a bracket outside its expansions, and something to expand.
fn has_subscript(text: &str, word: Range<usize>, holes: &[Range<usize>]) -> bool {
    let mut at = word.start;
    let mut plain = String::new();
    for hole in holes {
        plain += text.get(at..hole.start).unwrap_or_default();
        at = hole.end;
    }
    plain += text.get(at..word.end).unwrap_or_default();
    plain.contains('[') && (!holes.is_empty() || plain.contains(['$', '`']))
}

/// Tells whether a word is `{NAME}` before a redirection, which sets that variable.
fn names_descriptor(word: &str, rest: &str) -> bool {
    let name = word.strip_prefix('{').and_then(|word| word.strip_suffix('}'));
    name.is_some_and(|name| !name.is_empty()) && rest.starts_with(['<', '>'])
}

/// Tells whether a word that begins here also begins here for bash.
fn begins_here(text: &str, at: usize) -> bool {
    text[..at].bytes().next_back().is_none_or(|byte| b" \t\n;&|()<>`".contains(&byte))
        // A continued line may have begun in the middle of a word.
        && text[..at].strip_suffix("\\\n").is_none_or(|before| before.ends_with([' ', '\t']))
}

/// Tells whether a word that ends here also ends here for bash.
fn ends_here(text: &str, at: usize) -> bool {
    text[at..].bytes().next().is_none_or(|byte| b" \t\n;&|()<>`".contains(&byte))
}

/// How many unparsed parts are listed separately.
const UNCLEAR_MAX: usize = 16;

/// How many variables are examined, each in a scan of the whole text.
const VARIABLES_MAX: usize = 8;

/// What may set a variable without naming it plainly, or change how a value is read.
const SETTERS: [&str; 15] = [
    "((",
    "[[",
    "IFS",
    "alias",
    "declare",
    "eval",
    "getopts",
    "let",
    "mapfile",
    "printf -v",
    "read",
    "set",
    "source",
    "typeset",
    "local",
];

const LITERALS: [&str; 8] = [
    "word",
    "string",
    "raw_string",
    "ansi_c_string",
    "translated_string",
    "concatenation",
    "number",
    "brace_expression",
];

const HOLES: [&str; 5] = [
    "expansion",
    "simple_expansion",
    "command_substitution",
    "process_substitution",
    "arithmetic_expansion",
];

/// Nodes that contain commands of their own.
const SCOPES: [&str; 2] = ["command_substitution", "process_substitution"];

/// Nodes that count as one level of nesting.
const NESTS: [&str; 12] = [
    "subshell",
    "compound_statement",
    "command_substitution",
    "process_substitution",
    "if_statement",
    "while_statement",
    "for_statement",
    "c_style_for_statement",
    "case_statement",
    "function_definition",
    "expansion",
    "parenthesized_expression",
];

const CONTROL: [&str; 3] = ["if_statement", "while_statement", "case_statement"];

/// Nodes that are simple commands.
const COMMANDS: [&str; 3] = ["command", "declaration_command", "unset_command"];

/// Nodes that are expanded in place; a subscript or an operator in them may set variables and run commands.
const EXPANDS: [&str; 4] = ["expansion", "simple_expansion", "arithmetic_expansion", "subscript"];

/// Parents in which a literal is not a shell word, and may end at any character.
const INSIDE: [&str; 9] = [
    "concatenation",
    "expansion",
    "subscript",
    "arithmetic_expansion",
    "binary_expression",
    "unary_expression",
    "postfix_expression",
    "ternary_expression",
    "parenthesized_expression",
];

/// Nodes that stay on one line.
const ONE_LINE: [&str; 9] = [
    "command",
    "declaration_command",
    "unset_command",
    "variable_assignment",
    "variable_assignments",
    "redirected_statement",
    "file_redirect",
    "herestring_redirect",
    "negated_command",
];

/// Nodes without gaps between their tokens.
const TIGHT: [&str; 3] = ["simple_expansion", "variable_assignment", "subscript"];

/// Nodes whose gaps are content, or are checked elsewhere.
const UNCHECKED: [&str; 3] = ["heredoc_body", "expansion", "arithmetic_expansion"];

/// Words that are not commands in command position, unless quoted. `time` and `coproc` are treated as
/// programs that run others.
const RESERVED: [&str; 23] = [
    "!", "{", "}", "[", "[[", "]", "]]", "if", "then", "elif", "else", "fi", "do", "done", "while",
    "until", "for", "case", "esac", "select", "function", "foreach", "end",
];
