//! Rule files: what they mean, and where they are refused.

use policy::{PatternToken, PrefixRule, RuleDecision, parse_rule_file, parse_rules};

/// Formats rules as `decision word a|b — justification`.
#[track_caller]
fn check(text: &str, want: &[&str]) {
    let rules = parse_rules("r.rules", text).unwrap();
    let shown: Vec<String> = rules.iter().map(show).collect();
    assert_eq!(shown, want, "{text}");
}

fn show(rule: &PrefixRule) -> String {
    let words = rule.pattern.iter().map(|token| match token {
        PatternToken::One(word) => word.clone(),
        PatternToken::AnyOf(words) => words.join("|"),
    });
    let decision = match rule.decision {
        RuleDecision::Allow => "allow",
        RuleDecision::Prompt => "prompt",
        RuleDecision::Forbidden => "forbidden",
    };
    let mut shown = format!("{decision} {}", words.collect::<Vec<_>>().join(" "));
    if let Some(why) = &rule.justification {
        shown += &format!(" — {why}");
    }
    shown
}

#[test]
fn rules() {
    check("", &[]);
    check("# nothing\n\n  # more", &[]);
    check("prefix_rule(pattern=[\"ls\"])", &["allow ls"]);
    check(
        "prefix_rule(pattern=['git', ['push', 'fetch']], decision='prompt')",
        &["prompt git push|fetch"],
    );
    check("prefix_rule([['a', 'b']], 'forbidden', justification='w',)", &["forbidden a|b — w"]);
    check(
        "# first\r\nprefix_rule (  # call\r\n\tpattern = [\r\n 'rm', # word\r\n '-rf',\r\n],\r\n \
         decision = \"forbidden\",\r\n)  # done\r\n\r\nprefix_rule(pattern=['ls'],)\r\n",
        &["forbidden rm -rf", "allow ls"],
    );
    check("prefix_rule(pattern=['ls'], decision=None, match=None, not_match=[])", &["allow ls"]);
    check("\u{feff}prefix_rule(pattern=['é'])", &["allow é"]);
}

#[test]
fn strings() {
    check(r#"prefix_rule(pattern=["a\"b", 'c\'d', "e'f", 'g"h'])"#, &[r#"allow a"b c'd e'f g"h"#]);
    check(
        "prefix_rule(pattern=['x', '''a\n'b''', \"\"\"c\"d\"\"\", ''])",
        &["allow x a\n'b c\"d "],
    );
    check(r"prefix_rule(pattern=['x', '\\\n\t\x41\u00e9\U0001F600'])", &["allow x \\\n\tAé😀"]);
    check(r"prefix_rule(pattern=[r'a\n', r'\'', 'r'])", &[r"allow a\n \' r"]);
    check("prefix_rule(pattern=['a\\\nb', 'c\\\r\nd'])", &["allow ab cd"]);
    check("prefix_rule(pattern=['#a'])", &["allow #a"]);
}

#[test]
fn other_calls_are_kept() {
    let text = "host_executable(name='git', paths=['/usr/bin/git'])\nnetwork_rule('h', on=True)";
    let file = parse_rule_file("r.rules", text).unwrap();
    let shown: Vec<_> =
        file.others.iter().map(|call| (&*call.name, call.arguments.len())).collect();
    assert_eq!(shown, [("host_executable", 2), ("network_rule", 2)]);
    check(text, &[]);
}

#[test]
fn examples_that_hold() {
    check(
        "prefix_rule(pattern=['git', ['push', 'fetch']],\n  match=['git push', 'git  \"fetch\" -f', \
         ['git', 'push', 'a b']],\n  not_match=['git', 'git pull', ['git push'], 'gitpush'])",
        &["allow git push|fetch"],
    );
}

#[track_caller]
fn check_refused(text: &str, want: &str) {
    let error = parse_rules("r.rules", text).unwrap_err();
    assert_eq!(error.to_string(), want, "{text}");
}

#[test]
fn examples_that_do_not_hold() {
    check_refused(
        "prefix_rule(\n  pattern=['a', 'b'],\n  match=['a b', 'a c'])",
        "r.rules:3:17: the rule does not match this example: change its pattern, or the example",
    );
    check_refused(
        "prefix_rule(pattern=['a', 'b'], match=['a'])",
        "r.rules:1:40: the rule does not match this example: change its pattern, or the example",
    );
    check_refused(
        "prefix_rule(pattern=['a'], not_match=['b', ['a', 'x']])",
        "r.rules:1:44: the rule matches this example, but must not: change its pattern, or the \
         example",
    );
}

#[test]
fn bad_arguments() {
    let known = "pattern, decision, match, not_match, justification";
    check_refused(
        "\nprefix_rule()",
        "r.rules:2:1: in prefix_rule, `pattern` is missing: add pattern=[\"command\"]",
    );
    check_refused(
        "prefix_rule(pattern=[])",
        "r.rules:1:13: in prefix_rule, `pattern` is empty: name at least one word",
    );
    for text in ["['git push']", "[['git', 'git push'], 'x']"] {
        check_refused(
            &format!("prefix_rule(pattern={text})"),
            "r.rules:1:13: in prefix_rule, `pattern` begins with \"git push\", which is not a program: \
             write each word as a separate string, [\"git\", \"push\"]",
        );
    }
    check_refused(
        "prefix_rule(pattern='ls')",
        "r.rules:1:13: in prefix_rule, `pattern` must be a list",
    );
    check_refused(
        "prefix_rule(pattern=['a', []])",
        "r.rules:1:27: in prefix_rule, `pattern` has an empty list in it: name at least one word",
    );
    check_refused(
        "prefix_rule(pattern=['a', [['b']]])",
        "r.rules:1:28: in prefix_rule, `pattern` may hold only strings and lists of strings",
    );
    check_refused(
        "prefix_rule(pattern=['é'], decision='maybe')",
        "r.rules:1:28: in prefix_rule, `decision` must be \"allow\", \"prompt\" or \"forbidden\"",
    );
    check_refused(
        "prefix_rule(pattern=['a'], justification='  ')",
        "r.rules:1:28: in prefix_rule, `justification` must be a string that says why",
    );
    check_refused(
        "prefix_rule(pattern=['a'], patern=['b'])",
        &format!("r.rules:1:28: in prefix_rule, `patern` is not an argument: use {known}"),
    );
    check_refused(
        "prefix_rule(['a'], None, None, None, None, 'x')",
        &format!("r.rules:1:44: in prefix_rule, `#6` is not an argument: use {known}"),
    );
    check_refused(
        "prefix_rule(['a'], pattern=['b'])",
        "r.rules:1:20: in prefix_rule, `pattern` is given twice: remove one",
    );
    check_refused(
        "prefix_rule(['a'], match=[\"it's\"])",
        "r.rules:1:27: in prefix_rule, `match` has an example that is not a command line",
    );
}

#[test]
fn bad_text() {
    check_refused(
        "x = 1",
        "r.rules:1:3: expected `(`: a rule file holds nothing but calls, found `=`",
    );
    check_refused(
        "# é\nfoo()",
        "r.rules:2:1: unknown function `foo`: a rule file may call prefix_rule, host_executable and \
         network_rule",
    );
    check_refused(
        "prefix_rule(['a']) prefix_rule(['b'])",
        "r.rules:1:20: expected a new line after the call, found `p`",
    );
    check_refused(
        "['a']",
        "r.rules:1:1: expected a call such as prefix_rule(pattern=[\"git\"]), found `[`",
    );
    check_refused(
        "prefix_rule(['a'",
        "r.rules:1:17: expected `,` or `]`, found the end of the file",
    );
    check_refused("prefix_rule(['a'] + ['b'])", "r.rules:1:19: expected `,` or `)`, found `+`");
    check_refused(
        "prefix_rule(pattern=WORDS)",
        "r.rules:1:21: expected a string or a list of strings, found `W`",
    );
    check_refused(
        "prefix_rule(pattern=['a'], 'allow')",
        "r.rules:1:28: expected a named argument after another named one, found `'`",
    );
    check_refused(
        "prefix_rule(['a\nb'])",
        "r.rules:1:16: expected the closing quote of the string on its line, found the end of the \
         line",
    );
    check_refused(
        "prefix_rule(['''a\n",
        "r.rules:2:1: expected the closing quote of the string, found the end of the file",
    );
    check_refused(
        "prefix_rule(['a\\d'])",
        "r.rules:1:16: expected an escape such as \\n, \\\\ or \\\", or a raw string r\"…\", found `\\`",
    );
    check_refused(
        &format!("prefix_rule({}", "[".repeat(100_000)),
        "r.rules:1:29: expected a string or a list of strings, found `[`",
    );
}
