//! Bash builtins that expand their arguments again, or run what an option names.

use crate::shell::Word;

/// Tells whether a builtin could run something in its arguments.
pub(super) fn evaluates(name: &str, arguments: &[Word]) -> bool {
    let has = |letters: &str| arguments.iter().any(|word| has_option(word, letters));
    let has_any = |is: fn(&Word) -> bool| arguments.iter().any(is);
    match name {
        "printf" => {
            let first = arguments.first();
            first.is_some_and(|word| word.splits() || has_option(word, "v"))
                || (arguments.iter().any(|word| counts(&word.text)) && has_any(has_subscript))
        }
        "test" | "[" => {
            // A subscript is evaluated, and a name in it is replaced by its value: `_` by the last argument.
            let names = |word: &Word| word.known().is_none_or(|text| matches!(text, "-v" | "-R"));
            let subscript = |word: &Word| word.text.contains('[');
            (arguments.iter().any(names) && arguments.iter().any(subscript))
                || (arguments.iter().any(is_arithmetic) && arguments.iter().any(has_subscript))
        }
        "read" | "unset" | "let" | "getopts" => arguments.iter().any(has_subscript),
        "declare" | "typeset" | "local" | "export" | "readonly" => {
            let integer = has("i");
            arguments.iter().any(|word| declares_more(word, integer))
        }
        "wait" => has("p") || arguments.iter().any(has_subscript),
        "mapfile" | "readarray" => has("C") || arguments.iter().any(has_subscript),
        "compgen" | "complete" => has("CFW") || arguments.iter().any(Word::splits),
        "hash" => has("p"),
        "enable" => has("f"),
        _ => false,
    }
}

/// Tells whether a format of `printf` stores a count in a variable: `%n`.
fn counts(format: &str) -> bool {
    let conversions = format.split('%').skip(1);
    let flags = |c: char| c.is_ascii_digit() || " #'*+-.hjlLqtz".contains(c);
    conversions.map(|text| text.trim_start_matches(flags)).any(|text| text.starts_with('n'))
}

fn has_option(word: &Word, letters: &str) -> bool {
    let cluster = word.text.strip_prefix('-');
    cluster.is_some_and(|cluster| cluster.contains(|letter| letters.contains(letter)))
}

/// Tells whether this is an operator of `test` whose operands are names or arithmetic.
fn is_arithmetic(word: &Word) -> bool {
    word.unknown.is_some() || ARITHMETIC.contains(&word.text.as_str())
}

/// Tells whether there is a subscript that contains an expansion.
fn has_subscript(word: &Word) -> bool {
    let expands = |text: &str| text.contains(['$', '`']);
    (word.text.contains('[') && expands(&word.text))
        || (without_parameters(&word.source).contains('[') && expands(&word.source))
}

/// The same for a declaration, in which a value is expanded again only for integers and arrays.
fn declares_more(word: &Word, integer: bool) -> bool {
    if word.unknown.is_none() || integer {
        let value = word.known().unwrap_or(&word.source);
        return value.contains(['[', '(']) && value.contains(['$', '`']);
    }
    let source = without_parameters(&word.source);
    source.split('=').next().is_some_and(|name| name.contains('['))
}

/// Removes `${…}`, whose subscripts are its own.
fn without_parameters(source: &str) -> String {
    let mut kept = String::new();
    let mut depth = 0usize;
    let mut before = ' ';
    for c in source.chars() {
        match c {
            '{' if depth > 0 || before == '$' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
        before = c;
    }
    kept
}

const ARITHMETIC: [&str; 8] = ["-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
