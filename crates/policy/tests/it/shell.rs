//! Scripts: which simple commands are found, with which words, and what is not understood.

use policy::shell::{HEREDOCS_MAX, NESTING_MAX, SCRIPT_BYTES_MAX, Script, Trouble, Word};

/// Formats commands as `[word, word]`; unknown words as `known-prefix?Why`.
fn commands(script: &Script) -> String {
    let word = |word: &Word| match word.unknown {
        None => word.text.clone(),
        Some(why) => format!("{}?{why:?}", word.text),
    };
    let shown = script.commands.iter().map(|command| {
        let words: Vec<String> = command.words.iter().map(word).collect();
        format!("[{}]", words.join(", "))
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Checks that the script is understood, and has these commands and features.
#[track_caller]
fn check(text: &str, want: &str, features: &str) {
    let script = Script::parse(text);
    let found: Vec<String> = script.features.iter().map(|f| format!("{f:?}")).collect();
    assert_eq!((commands(&script).as_str(), &*found.join(" ")), (want, features), "{text}");
    assert_eq!(script.unclear, [], "{text}");
}

/// Checks that the script is not understood, for this reason among others.
#[track_caller]
fn check_unclear(text: &str, want: Trouble) {
    let script = Script::parse(text);
    let why: Vec<Trouble> = script.unclear.iter().map(|unclear| unclear.why).collect();
    assert!(why.contains(&want), "{why:?} {} {text}", commands(&script));
}

#[test]
fn lists_and_pipes() {
    check("", "", "");
    check("# nothing", "", "");
    check("ls", "[ls]", "");
    check("ls -l; pwd", "[ls, -l] [pwd]", "");
    check("ls && pwd || id", "[ls] [pwd] [id]", "");
    check("ls | sort | uniq -c", "[ls] [sort] [uniq, -c]", "");
    check("ls |& cat", "[ls] [cat]", "");
    check("ls\npwd\n\n  id # who", "[ls] [pwd] [id]", "");
    check("ls & pwd", "[ls] [pwd]", "Background");
    check("! ls", "[ls]", "");
    check("ls \\\n  -l", "[ls, -l]", "");
    check("(ls; pwd)", "[ls] [pwd]", "Subshell");
    check("{ ls; pwd; }", "[ls] [pwd]", "");
    check("time -p ls", "[time, -p, ls]", "");
    check("coproc ls", "[coproc, ls]", "");
}

#[test]
fn quotes_and_escapes() {
    check("echo 'a b' \"c d\" e\\ f", "[echo, a b, c d, e f]", "");
    check("g'i't \"pu\"sh", "[git, push]", "");
    check("\\rm x", "[rm, x]", "");
    check("echo \"a\\\"b\\$c\\\\d\\`e\\n\"", "[echo, a\"b$c\\d`e\\n]", "");
    check("echo ''", "[echo, ]", "");
    check("echo 'a'\\''b'", "[echo, a'b]", "");
    check("echo $'a\\tb\\x41\\101\\u00e9\\'\\\\'", "[echo, a\tbAAé'\\]", "");
    check("echo $'\\q\\e'", "[echo, \\q\u{1b}]", "");
    check("echo $'\\xff'", "[echo, ?Quoted]", "");
    check("echo \"a\nb\"", "[echo, a\nb]", "");
    check("echo 'a\nb'", "[echo, a\nb]", "");
    check("echo \"a\\\nb\"", "[echo, ab]", "");
    check("echo a#b", "[echo, a#b]", "");
    check("echo $ a$", "[echo, $, a$]", "");
    check("find . -exec ls {} \\;", "[find, ., -exec, ls, {}, ;]", "");
    check("echo =~ ==", "[echo, ?Quoted, ?Quoted]", "");
    check("echo éa '日本'", "[echo, éa, 日本]", "");
    check("make X=1 --y=2", "[make, X=1, --y=2]", "");
}

#[test]
fn unknown_words() {
    check("ls $x", "[ls, ?Expansion]", "");
    check("ls a$x", "[ls, a?Expansion]", "");
    check("ls \"a$x\"b", "[ls, a?Quoted]", "");
    check("ls \"$@\"", "[ls, ?Expansion]", "");
    check("ls \"${a[@]}\"", "[ls, ?Expansion]", "");
    check("ls ${x}", "[ls, ?Expansion]", "");
    check("ls ${x:-y}", "[ls, ?Expansion]", "");
    check("ls ~ ~/a b=~/c", "[ls, ?Tilde, ?Tilde, b=?Tilde]", "");
    check("ls a~", "[ls, a~]", "");
    check("ls *.c a? [ab]", "[ls, ?Glob, a?Glob, ?Glob]", "Glob");
    check("ls '*' \\* \"?\"", "[ls, *, *, ?]", "");
    check("ls -{a,b} {1..3}", "[ls, -?Brace, ?Brace]", "");
    check("ls {a} '{a,b}'", "[ls, {a}, {a,b}]", "");
    check("ls $((1+2))", "[ls, ?Expansion]", "Test");
}

#[test]
fn nested_commands() {
    check("echo $(rm -f x)", "[echo, ?Expansion] [rm, -f, x]", "Substitution");
    check("echo \"a $(id) b\"", "[echo, a ?Quoted] [id]", "Substitution");
    check("echo `id -u`", "[echo, ?Expansion] [id, -u]", "Substitution");
    check("diff <(ls a) <(ls b)", "[diff, ?Expansion, ?Expansion] [ls, a] [ls, b]", "Substitution");
    check("tee >(cat)", "[tee, ?Expansion] [cat]", "Substitution");
    check("x=$(id)", "[id]", "Assignment Substitution");
    check("echo ${x:-$(id)}", "[echo, ?Expansion] [id]", "Substitution");
    check("echo $((1 + $(id)))", "[echo, ?Expansion] [id]", "Substitution Test");
    check(
        "echo $(echo $(echo $(id)))",
        "[echo, ?Expansion] [echo, ?Expansion] [echo, ?Expansion] [id]",
        "Substitution",
    );
    check("[[ -n $(id) ]] && ls", "[id] [ls]", "Substitution Test");
    check("[ -f x ] || ls", "[ls]", "Test");
    check("((x++)); ls", "[ls]", "Test");
}

#[test]
fn control_flow() {
    check("for i in a b; do ls $i; done", "[ls, ?Expansion]", "Assignment ControlFlow");
    check("for i in $(id); do ls; done", "[id] [ls]", "Assignment Substitution ControlFlow");
    check("while true; do ls; done", "[true] [ls]", "ControlFlow");
    check("until false; do ls; done", "[false] [ls]", "ControlFlow");
    check("if a; then b; elif c; then d; else e; fi", "[a] [b] [c] [d] [e]", "ControlFlow");
    check("case $x in a|b) ls;; *) rm y;; esac", "[ls] [rm, y]", "Substitution ControlFlow");
    check("case x in $y) ls;; esac", "[ls]", "Substitution ControlFlow");
    check("f() { rm x; }; f", "[rm, x] [f]", "Function");
    check("function f { rm x; }", "[rm, x]", "Function");
    check("for ((i=0;i<3;i++)); do ls; done", "[ls]", "Assignment Test");
    check("select x in a; do ls; done", "[ls]", "Assignment ControlFlow");
    check(
        "while read x; do rm \"$x\"; done < f",
        "[read, x] [rm, ?Quoted]",
        "Redirect ControlFlow",
    );
}

#[test]
fn redirections_and_variables() {
    check("ls > x", "[ls]", "Redirect");
    check("ls < x", "[ls]", "Redirect");
    check("ls >> x 2>&1", "[ls]", "Redirect");
    check("ls &> x", "[ls]", "Redirect");
    check("ls 2>/dev/null", "[ls]", "");
    check("ls 2>&1 >&- | cat", "[ls] [cat]", "");
    check("ls >& x", "[ls]", "Redirect");
    check("ls > $x", "[ls]", "Redirect Substitution");
    check("rm > x -rf foo", "[rm, -rf, foo]", "Redirect");
    check("> x rm -rf foo", "[rm, -rf, foo]", "Redirect");
    check("a | b > x y", "[a] [b, y]", "Redirect");
    check("(ls) > x", "[ls]", "Redirect Subshell");
    check("A=1 B=2 ls", "[ls]", "Assignment");
    check("A=1", "", "Assignment");
    check("A=(1 2); ls", "[ls]", "Assignment");
    check("export A=b C", "[export, A=b, C]", "");
    check("unset A", "[unset, A]", "");
    check("local x=$(id)", "[local, x=?Expansion] [id]", "Substitution");
}

#[test]
fn here_documents() {
    check("cat <<EOF\nrm -rf /\nEOF\nls", "[cat] [ls]", "Heredoc");
    check("cat <<'EOF'\n$(rm x) `rm y`\nEOF", "[cat]", "Heredoc");
    check("cat <<EOF\na $(rm x) $y\nEOF", "[cat] [rm, x]", "Heredoc Substitution");
    check("cat <<EOF | sort\na\nEOF", "[cat] [sort]", "Heredoc");
    check("cat <<EOF > x -n\na\nEOF", "[cat, -n]", "Redirect Heredoc");
    check("cat <<-EOF\n\ta\n\tEOF\nls", "[cat] [ls]", "Heredoc");
    check("cat - <<'EOF'\nx\nEOF", "[cat, -]", "Heredoc");
    check("python3 - <<'EOF' > x -n\nx\nEOF\nls", "[python3, -, -n] [ls]", "Redirect Heredoc");
    check("cd x && python3 - <<'EOF'\nx\nEOF", "[cd, x] [python3, -]", "Heredoc");
    check("python3 - a <<'EOF'\nx\nEOF", "[python3, -, a]", "Heredoc");
    check("cat <<< 'rm x'", "[cat]", "Heredoc");
    check("cat <<< $(id)", "[cat] [id]", "Heredoc Substitution");
}

#[test]
fn not_understood() {
    use Trouble::*;
    for text in ["ls (", "ls )", "if ls", "'", "\"", "$(", "`", "ls && ", "}", "time { rm x; }; }"]
    {
        let script = Script::parse(text);
        assert!(!script.unclear.is_empty(), "{text} {script:?}");
    }
    check_unclear("$x -rf", Name);
    check_unclear("\"$x\" y", Name);
    check_unclear("r* x", Name);
    check_unclear("$(echo rm) x", Name);
    check_unclear("{rm,-rf,x}", Syntax);
    check_unclear("~/bin/x", Name);
    // Where bash parses differently from the grammar.
    check_unclear("echo $'a\\\\' ; rm -rf / ; echo 'x'", Quoting);
    check_unclear("echo \"${x:-'}\" ; rm -rf / ; echo \"'}\"", Quoting);
    check_unclear("echo \\ rm", Quoting);
    check_unclear("\\ rm x", Quoting);
    check_unclear("ls $\"hello\"", Quoting);
    check_unclear("ec\\\nho a", Quoting);
    check_unclear("ls\r\nrm x\r", Quoting);
    check_unclear("echo `echo \\`rm x\\``", Quoting);
    check_unclear("cat <<EOF\n`rm x`\nEOF", Quoting);
    check_unclear("cat <<E\"O\"F\nx\nEOF\nrm x\nE\"O\"F", Quoting);
    check_unclear("cat <<EOF\nx\n EOF\nrm x", Quoting);
    check_unclear("ls a\u{a0}b\u{c}c", Quoting);
    check_unclear("ls\0rm", Syntax);
    check_unclear("1=a ls", Quoting);
    check_unclear("# a\n\r", Quoting);
    check_unclear("![[ x ]] && ls", Quoting);
    check_unclear("{}\nls", Quoting);
    check_unclear("ls >$ x! y", Quoting);
    check_unclear("{A=1 ls;}2>&1", Quoting);
    check_unclear("ls <(id)\\a", Quoting);
    check_unclear("[[\\a == a ]] && ls", Quoting);
    check_unclear("echo $\\\n'a\\'; rm x #'", Quoting);
    check_unclear("echo $\\\n(rm x)", Quoting);
    check_unclear("echo \"$\\\n(rm x)\"", Quoting);
    check_unclear("echo \"$\\\n{x@P}\"", Quoting);
    // Where a variable is set, or its value is run.
    for text in ["ls {x}>/dev/null", "ls {x}>&-", "{x}<&0 ls", "ls {x[1]}>&1", "ls > y {x}<z"] {
        check_unclear(text, Syntax);
    }
    check_unclear("ls ${x@P}", Inner);
    check_unclear("case ${x@P} in a) ls;; esac", Inner);
    let function = Script::parse("ls ${ rm x;}");
    assert!(!function.unclear.is_empty());
}

#[test]
fn bounds() {
    use Trouble::*;
    check_unclear(&"a".repeat(SCRIPT_BYTES_MAX + 1), TooLong);
    check(&format!("ls {}", "a".repeat(10_000)), &format!("[ls, {}]", "a".repeat(10_000)), "");
    let nested = |depth: usize| format!("{}ls{}", "{ ".repeat(depth), "; }".repeat(depth));
    check(&nested(NESTING_MAX), "[ls]", "");
    check_unclear(&nested(NESTING_MAX + 1), TooDeep);
    check_unclear(&"cat <<A\nA\n".repeat(HEREDOCS_MAX + 1), Syntax);
    check_unclear(&"a=b)".repeat(15_000), TooMuchWork);
    check_unclear(&"(".repeat(100_000), TooMuchWork);
    check_unclear(&"f() ".repeat(20_000), TooMuchWork);
}

/// Texts on which a parser could hang or overflow its stack.
#[test]
fn hostile_texts_end() {
    let pieces = [
        "(",
        ")",
        "{ ",
        "$(",
        "${",
        "`",
        "\"",
        "'",
        "((",
        "[[ ",
        "if ls; then ",
        "case x in ",
        "<(",
        "a=(",
        "f() ",
        "function f { ",
        "ls && ",
        "ls | ",
        "! ",
        "> ",
        "<<a ",
        "<<a\n",
        "=~ ",
        "a=b)",
        "$((",
        "${a[",
        "for x in ",
        "\\\n",
        "# ",
        "$'",
        "é",
        "\u{0}",
        "* ",
        "{a,",
        "~",
        ";;",
        "&",
        "${a/",
        "$x",
        "x=y ",
        "while ",
        "coproc ",
        "time ",
    ];
    for piece in pieces {
        let text = piece.repeat(20_000 / piece.len());
        let _ = Script::parse(&text);
        let _ = Script::parse(&format!("{text}; rm -rf x"));
    }
}

/// The grammar's scanner reads beyond its tables for these, which may crash.
#[test]
fn characters_beyond_its_tables_do_not_reach_the_grammar() {
    for c in ['é', '\u{a0}', '\u{3000}', '\u{ffff}', '\u{10ffff}', '\u{1f600}'] {
        for around in [("", ""), ("${", "}"), ("$", ""), ("{", "..3}"), ("a[", "]=1"), ("<<", "\n")]
        {
            let _ = Script::parse(&format!("echo {}{c}{}", around.0, around.1));
        }
        let script = Script::parse(&format!("echo a{c}b"));
        assert_eq!((script.commands.len(), script.unclear.len()), (1, 0), "{c:?}");
    }
}

#[test]
fn a_pipeline_without_an_end_is_given_up() {
    assert!(!Script::parse(&"a|".repeat(60_000)).unclear.is_empty());
}
