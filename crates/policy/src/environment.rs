//! Which environment variables a model's commands get.

/// Which variables to start with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inherit {
    /// All of heddle's own.
    #[default]
    All,
    /// Those a shell needs to be usable.
    Core,
    None,
}

/// How the environment of commands is derived from ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentPolicy {
    pub inherit: Inherit,
    /// Whether variables that look like secrets are kept.
    pub keep_secrets: bool,
    /// Patterns of names to drop.
    pub exclude: Vec<String>,
    pub set: Vec<(String, String)>,
    /// If not empty, only names that match one of these are kept.
    pub include_only: Vec<String>,
}

const CORE: [&str; 11] = [
    "HOME", "LOGNAME", "PATH", "SHELL", "USER", "USERNAME", "TMPDIR", "TEMP", "TMP", "TERM", "LANG",
];
/// Patterns of names that look like secrets.
const SECRETS: [&str; 12] = [
    "*KEY*",
    "*SECRET*",
    "*TOKEN*",
    "*PASS*",
    "*PWD",
    "*PSWD*",
    "*CREDENTIAL*",
    "*PRIVATE*",
    "*CONNECTION_STRING*",
    "*CONNECTIONSTRING*",
    "*CONN_STR*",
    "*BINDPW",
];
/// Parts of names, between underscores, that mark the value as a secret.
const SECRET_PARTS: [&str; 12] = [
    "AUTH",
    "AUTHORIZATION",
    "BEARER",
    "COOKIE",
    "COOKIES",
    "CRED",
    "CREDS",
    "DSN",
    "JWT",
    "PAT",
    "PW",
    "PWD",
];
/// Names that look like secrets but are not.
const HARMLESS: [&str; 4] = ["PWD", "OLDPWD", "SSH_AUTH_SOCK", "GOPRIVATE"];
/// Prefixes of values that are tokens, whatever the variable is called.
const TOKENS: [&str; 32] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJhbGci",
    "hf_",
    "npm_",
    "SG.",
    "pypi-",
    "dop_v1_",
    "ya29.",
    "xapp-",
    "gsk_",
    "hvs.",
    "shpat_",
    "r8_",
    "nvapi-",
    "lin_api_",
    "whsec_",
    "tskey-",
    "AGE-SECRET-KEY-1",
    "xoxe",
];
/// Names of secrets in settings embedded in a value, as in `password=…`, `"client_secret": "…"` or
/// `?token=…`.
const SECRET_SETTINGS: [&str; 22] = [
    "accesskey",
    "access_key",
    "accountkey",
    "api-key",
    "api_key",
    "apikey",
    "auth",
    "authorization",
    "bindpw",
    "credential",
    "credentials",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "pwd",
    "secret",
    "sharedaccesskey",
    "sig",
    "signature",
    "token",
];

impl EnvironmentPolicy {
    /// Applies the policy: inherit, drop secrets, drop excluded names, set, keep only included names.
    pub fn apply(&self, ours: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
        let mut kept: Vec<_> = ours
            .into_iter()
            .filter(|(name, _)| match self.inherit {
                Inherit::All => true,
                Inherit::Core => CORE.iter().any(|core| name.eq_ignore_ascii_case(core)),
                Inherit::None => false,
            })
            .filter(|(name, value)| {
                self.keep_secrets || !(names_a_secret(name) || is_a_secret(name, value))
            })
            .map(|(name, value)| match self.keep_secrets {
                true => (name, value),
                false => {
                    let value = without_logins(&value);
                    let value = without_login_of_proxy(&name, value);
                    (name, value)
                }
            })
            .filter(|(name, _)| !self.exclude.iter().any(|pattern| matches(pattern, name)))
            .collect();
        drop_half_git_settings(&mut kept);
        for (name, value) in &self.set {
            kept.retain(|(other, _)| other != name);
            kept.push((name.clone(), value.clone()));
        }
        if !self.include_only.is_empty() {
            kept.retain(|(name, _)| self.include_only.iter().any(|pattern| matches(pattern, name)));
        }
        kept
    }
}

/// Drops all of git's settings in variables if one is missing, because git refuses to run with an incomplete
/// list.
fn drop_half_git_settings(kept: &mut Vec<(String, String)>) {
    let value =
        |wanted: &str| kept.iter().find(|(name, _)| name == wanted).map(|(_, it)| it.clone());
    let count = value("GIT_CONFIG_COUNT").and_then(|count| count.parse::<usize>().ok());
    let count = count.unwrap_or_default().min(GIT_SETTINGS_MAX);
    let has = |kind: &str, n: usize| value(&format!("GIT_CONFIG_{kind}_{n}")).is_some();
    if (0..count).all(|n| has("KEY", n) && has("VALUE", n)) {
        return;
    }
    let part = |name: &str| {
        let kinds = ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"];
        kinds.iter().any(|kind| name.starts_with(kind))
    };
    kept.retain(|(name, _)| !part(name));
}

/// How many of git's settings in variables are examined.
const GIT_SETTINGS_MAX: usize = 1000;

/// Tells whether a variable has the name of a secret.
fn names_a_secret(name: &str) -> bool {
    let is = |known: &&str| name.eq_ignore_ascii_case(known);
    if HARMLESS.iter().any(is) || name.starts_with("GIT_CONFIG_KEY_") {
        return false;
    }
    let mut parts = name.split(['_', '-', '.']);
    SECRETS.iter().any(|pattern| matches(pattern, name))
        || parts.any(|part| SECRET_PARTS.iter().any(|it| part.eq_ignore_ascii_case(it)))
}

/// Removes from a text for people what is a secret wherever it appears: tokens, and passwords in URLs. A line that contains
/// another kind of secret, such as the value of a password, is left out as a whole.
pub fn mask_secrets(text: &str) -> String {
    let mask = |line: &str| match is_a_secret("", &mask_tokens(&without_logins(line))) {
        true => "[a line with a secret]".to_owned(),
        false => mask_tokens(&without_logins(line)),
    };
    text.split('\n').map(mask).collect::<Vec<_>>().join("\n")
}

/// Replaces the words of a line that begin as tokens do.
fn mask_tokens(line: &str) -> String {
    let mut masked = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(in_token) {
        masked.push_str(&rest[..start]);
        rest = &rest[start..];
        let word = &rest[..rest.find(|c| !in_token(c)).unwrap_or(rest.len())];
        masked.push_str(if is_token(word) { "[redacted]" } else { word });
        rest = &rest[word.len()..];
    }
    masked.push_str(rest);
    masked
}

/// Tells whether a token may contain a character. A path component is not a token, whatever its prefix.
fn in_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./".contains(c)
}

fn is_token(word: &str) -> bool {
    word.len() >= TOKEN_BYTES_MIN && TOKENS.iter().any(|begin| word.starts_with(begin))
}

/// Tells whether a value is a secret, or contains one that cannot be removed.
fn is_a_secret(name: &str, value: &str) -> bool {
    if HARMLESS.contains(&name) || CORE.contains(&name) {
        return false;
    }
    let folded = value.to_ascii_lowercase();
    value.split(|c| !in_token(c)).any(is_token)
        || sets_a_secret(&folded)
        || credentials(&folded, value, "bearer").any(|word| word.len() >= BEARER_BYTES_MIN)
        || credentials(&folded, value, "basic").any(is_base64)
        || passes_a_secret(&folded)
        || logs_in_without_scheme(value)
        || (value.contains("-----BEGIN") && value.contains("PRIVATE KEY"))
}

/// Tells whether a setting embedded in a value, in lower case, has the name of a secret.
fn sets_a_secret(folded: &str) -> bool {
    SECRET_SETTINGS.iter().any(|name| {
        follows(folded, name).any(|rest| {
            let rest = rest.trim_start_matches(['"', '\'', ' ', '\t', '\\']);
            let value = rest
                .strip_prefix(['=', ':'])
                .map(|it| it.trim_start_matches(['"', '\'', ' ', '\t']));
            value.is_some_and(|value| !value.is_empty() && !value.starts_with(['&', ';', ',', '}']))
        })
    })
}

/// Returns what follows the name of an authentication scheme. `folded` is the value in lower case.
fn credentials<'a>(
    folded: &'a str,
    value: &'a str,
    scheme: &'a str,
) -> impl Iterator<Item = &'a str> {
    follows(folded, scheme).filter_map(|rest| {
        // Both have the same length, as only ASCII was changed.
        let rest = &value[value.len() - rest.len()..];
        rest.strip_prefix([' ', '\t'])?.split_whitespace().next()
    })
}

/// Tells whether a word is base64 rather than a word of a language.
fn is_base64(word: &str) -> bool {
    let mixed = word.contains(|c: char| c.is_ascii_lowercase())
        && word.chars().skip(1).any(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let alphabet = |c: char| c.is_ascii_alphanumeric() || "+/=_-".contains(c);
    word.len() >= BEARER_BYTES_MIN && word.chars().all(alphabet) && mixed
}

/// Tells whether a command line in a value, in lower case, hands a secret to an option: `--token x`, `-u a:b`.
fn passes_a_secret(folded: &str) -> bool {
    let words: Vec<_> = folded.split_whitespace().collect();
    words.windows(2).any(|pair| {
        let names = |option: &str| SECRET_SETTINGS.iter().any(|name| option.ends_with(name));
        let value = !pair[1].starts_with('-');
        match pair[0].strip_prefix("--") {
            Some(option) => value && names(option),
            None => matches!(pair[0], "-u" | "--user") && pair[1].contains(':'),
        }
    })
}

/// Returns what follows each occurrence of a name that is not the end of a longer word.
fn follows<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(name).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        // `compass=` is not `pass=`, but `db_pass=` and `accessToken=` count.
        let begins = name.len() > 4 || !before.is_some_and(|c| c.is_ascii_alphanumeric());
        begins.then(|| &text[at + name.len()..])
    })
}

/// Tells whether a value contains database credentials as Go drivers write them:
/// `user:password@tcp(host)/name`.
fn logs_in_without_scheme(value: &str) -> bool {
    value.match_indices('@').any(|(at, _)| {
        let network = value[at + 1..].split('(').next().unwrap_or_default();
        let opens = value[at + 1..].contains('(');
        opens
            && network.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && value[..at].contains(':')
    })
}

/// Removes user names and passwords from every URL in a value. A user name alone stays, except in web URLs,
/// where it is a token.
fn without_logins(value: &str) -> String {
    let mut kept = String::with_capacity(value.len());
    let mut rest = value;
    // Without a scheme, too: `//user:password@host`.
    while let Some(at) = rest.find("//") {
        let (before, after) = rest.split_at(at + 2);
        kept.push_str(before);
        let end = after.find(ENDS_AUTHORITY).unwrap_or(after.len());
        // A password may contain an `@`, or a `/` that should have been escaped.
        let login = after[..end].rfind('@').or_else(|| {
            let line = after.find([' ', '\n', '"', '\'', ',']).unwrap_or(after.len());
            let at = after[..line].rfind('@')?;
            let colon = after[..at].find(':').filter(|colon| *colon < end)?;
            // Digits up to the path are a port.
            let port = after[colon + 1..end].bytes().all(|byte| byte.is_ascii_digit());
            (!port).then_some(at)
        });
        rest = match login {
            Some(at) => {
                let web = before.to_ascii_lowercase();
                let web = web.ends_with("http://") || web.ends_with("https://");
                // Without a scheme it may be a path of some kind, but not one with a password.
                match after[..at].contains(':') || web {
                    true => &after[at + 1..],
                    false => after,
                }
            }
            None => after,
        };
    }
    kept.push_str(rest);
    kept
}

/// Removes user name and password from the address of a proxy, which needs no scheme: `me:secret@proxy:3128`.
fn without_login_of_proxy(name: &str, value: String) -> String {
    let is_proxy = name.to_ascii_lowercase().ends_with("_proxy") && !value.contains("//");
    let login = is_proxy.then(|| value.rfind('@')).flatten();
    match login {
        Some(at) => value[at + 1..].to_owned(),
        None => value,
    }
}

/// Characters that end the authority part of a URL.
const ENDS_AUTHORITY: [char; 9] = ['/', '?', '#', ' ', '\n', '"', '\'', ',', '\\'];
/// Shorter values are ordinary words.
const TOKEN_BYTES_MIN: usize = 20;
const BEARER_BYTES_MIN: usize = 8;

/// Matches a name against a pattern with `*` and `?`, ignoring case.
///
/// The usual two-pointer algorithm: a mismatch backtracks to the last star only, so the cost is bounded by
/// the product of the lengths and there is no recursion. It allocates nothing, as every variable is held against every
/// pattern when a thread is opened.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    let mut star = None;
    while let Some(next) = name.clone().next() {
        let mut after = pattern.clone();
        match after.next() {
            Some('*') => {
                star = Some((after.clone(), name.clone()));
                pattern = after;
            }
            Some(wanted) if wanted == '?' || wanted.eq_ignore_ascii_case(&next) => {
                pattern = after;
                name.next();
            }
            _ => match &mut star {
                Some((after, taken)) => {
                    taken.next();
                    (pattern, name) = (after.clone(), taken.clone());
                }
                None => return false,
            },
        }
    }
    pattern.all(|c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::{EnvironmentPolicy, Inherit, matches};

    #[track_caller]
    fn check(policy: EnvironmentPolicy, want: &str) {
        let ours = ["PATH", "HOME", "OPENAI_API_KEY", "my_token", "EDITOR"]
            .map(|name| (name.to_owned(), "1".to_owned()));
        let got: Vec<_> = policy.apply(ours).into_iter().map(|(name, _)| name).collect();
        assert_eq!(got.join(" "), want, "{policy:?}");
    }

    #[test]
    fn policies() {
        let base = EnvironmentPolicy::default;
        check(base(), "PATH HOME EDITOR");
        check(
            EnvironmentPolicy { keep_secrets: true, ..base() },
            "PATH HOME OPENAI_API_KEY my_token EDITOR",
        );
        check(EnvironmentPolicy { inherit: Inherit::Core, ..base() }, "PATH HOME");
        check(EnvironmentPolicy { inherit: Inherit::None, ..base() }, "");
        check(EnvironmentPolicy { exclude: vec!["ED*".into()], ..base() }, "PATH HOME");
        let set = vec![("PATH".to_owned(), "/x".to_owned()), ("A_KEY".to_owned(), "2".to_owned())];
        check(EnvironmentPolicy { set: set.clone(), ..base() }, "HOME EDITOR PATH A_KEY");
        let include_only = vec!["P*".into()];
        check(EnvironmentPolicy { set, include_only, ..base() }, "PATH");
    }

    #[test]
    fn secrets_by_name() {
        for name in [
            "PGPASSWORD",
            "MYSQL_PWD",
            "GITHUB_PAT",
            "GH_PAT",
            "pat",
            "DB_PASS",
            "PGPASSFILE",
            "GIT_ASKPASS",
            "SSH_PASSPHRASE",
            "DBPWD",
            "LDAP_BINDPW",
            "ADMIN_PW",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "DOCKER_AUTH_CONFIG",
            "npm_config__auth",
            "HTTP_AUTHORIZATION",
            "SENTRY_DSN",
            "CI_JOB_JWT",
            "AWS_CREDS",
            "AZURE_STORAGE_CONNECTION_STRING",
            "SESSION_COOKIE",
            "TLS_PRIVATE",
        ] {
            check_one(name, "x", None);
        }
        for name in [
            "PWD",
            "OLDPWD",
            "PATH",
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
            "SSH_AUTH_SOCK",
            "XAUTHORITY",
            "PATTERN",
            "MANPATH",
            "DBUS_SESSION_BUS_ADDRESS",
            "LANG",
            "COMPOSE_FILE",
        ] {
            check_one(name, "x", Some("x"));
        }
    }

    #[test]
    fn secrets_by_value() {
        for (value, want) in [
            ("postgres://u:p@h:5/db", Some("postgres://h:5/db")),
            ("http://user:pass@proxy:3128", Some("http://proxy:3128")),
            ("http://user:p@ss@proxy:3128/", Some("http://proxy:3128/")),
            ("http://user:p/ss@proxy:3128", Some("http://proxy:3128")),
            ("https://tokenonly@host/x", Some("https://host/x")),
            ("HTTPS://t@host", Some("HTTPS://host")),
            ("ssh://git@host/x", Some("ssh://git@host/x")),
            ("redis://:p@h a amqp://u:p@i/", Some("redis://h a amqp://i/")),
            ("a=http://u:p@h,b=http://h", Some("a=http://h,b=http://h")),
            ("http://h/a@b", Some("http://h/a@b")),
            ("http://h:80/a:b@c", Some("http://h:80/a:b@c")),
            ("u:p@h", Some("u:p@h")),
            ("://", Some("://")),
            ("é://é:é@é", Some("é://é")),
            ("host=h password=p", None),
            ("Server=h;Pwd=p", None),
            ("AUTHORIZATION: bearer x", None),
            ("//me:s3cr3t@proxy", Some("//proxy")),
            ("//me@proxy", Some("//me@proxy")),
            ("Basic dXNlcjpwYXNzd29yZA==", None),
            ("Basic training", Some("Basic training")),
            ("Basic élanVital9", Some("Basic élanVital9")),
            ("Bearer\tabcdefgh", None),
            ("PASSWORD\t=\tsecret", None),
            ("curl --token secret x", None),
            ("curl -u me:secret x", None),
            ("sort -u a", Some("sort -u a")),
            ("x --token", Some("x --token")),
            ("https://x/?X-Amz-Signature=abc", None),
            ("{\"auths\":{\"h\":{\"auth\":\"bWU6cHc=\"}}}", None),
            ("the author: me", Some("the author: me")),
            ("-----BEGIN RSA PRIVATE KEY-----", None),
            ("ghp_0123456789012345678901234567890123", None),
            ("sk-short", Some("sk-short")),
            ("use=ghp_0123456789012345678901234567890123;x", None),
            ("{\"password\": \"p\"}", None),
            ("{'password':'p'}", None),
            ("{\\\"password\\\":\\\"p\\\"}", None),
            ("Password = p", None),
            ("user=u db_pass=p", None),
            ("accessToken: t", None),
            ("x Bearer abcdefgh", None),
            ("https://h/x?token=t", None),
            ("https://h/x?sv=1&sig=abc", None),
            ("SG.abcdefghijklmnop.qrstuvwxyz", None),
            ("pypi-AgEIcHlwaS5vcmcCJDU4", None),
            ("user:pw@tcp(h:3306)/db", None),
            ("user:pw@unix(/run/s)/db", None),
            ("user:pw@(h)/db", None),
            ("password=", Some("password=")),
            ("token=&x=1", Some("token=&x=1")),
            ("max_tokens=5", Some("max_tokens=5")),
            ("compass=n", Some("compass=n")),
            ("bearer of news", Some("bearer of news")),
            ("a@b (c)", Some("a@b (c)")),
            ("git@github.com:a/b", Some("git@github.com:a/b")),
        ] {
            check_one("X", value, want);
        }
        let kept = EnvironmentPolicy { keep_secrets: true, ..EnvironmentPolicy::default() };
        let ours = vec![("X_PAT".to_owned(), "http://u:p@h".to_owned())];
        assert_eq!(kept.apply(ours.clone()), ours);
    }

    #[test]
    fn values_without_secrets_are_unchanged() {
        for (name, value) in [
            ("PATH", "/home/me/sk-learn-experiments-2024/bin:/usr/bin"), // tidy-ok
            ("VIRTUAL_ENV", "/srv/hf_models_of_last_year_2024/env"),
            ("GOPRIVATE", "example.com/x"),
            ("NO_PROXY", "localhost,127.0.0.1"),
        ] {
            check_one(name, value, Some(value));
        }
        let settings = |value: &str| {
            let pairs = [
                ("GIT_CONFIG_COUNT", "1"),
                ("GIT_CONFIG_KEY_0", "safe.directory"),
                ("GIT_CONFIG_VALUE_0", value),
            ];
            let ours = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            EnvironmentPolicy::default().apply(ours).len()
        };
        assert_eq!(settings("*"), 3);
        assert_eq!(settings("AUTHORIZATION: bearer abcdefghi"), 0);
    }

    #[test]
    fn texts_are_masked() {
        for (text, want) in [
            ("", ""),
            ("plain\n\ntext\n", "plain\n\ntext\n"),
            ("key sk-abcdefghijklmnopqrstuvwxyz is wrong", "key [redacted] is wrong"),
            ("at https://me:pw@example.com/x: 401", "at https://example.com/x: 401"),
            ("ok\npassword=hunter22\nok", "ok\n[a line with a secret]\nok"),
            ("Authorization: Bearer abcdefghijk", "[a line with a secret]"),
            ("é sk-abcdefghijklmnopqrstuvwxyz é", "é [redacted] é"),
        ] {
            assert_eq!(super::mask_secrets(text), want);
        }
    }

    #[test]
    fn logins_of_proxies() {
        for name in ["HTTPS_PROXY", "all_proxy", "npm_config_https_proxy"] {
            check_one(name, "me:s3cr3t@proxy:3128", Some("proxy:3128"));
            check_one(name, "proxy:3128", Some("proxy:3128"));
        }
    }

    #[track_caller]
    fn check_one(name: &str, value: &str, want: Option<&str>) {
        let ours = [(name.to_owned(), value.to_owned())];
        let got = EnvironmentPolicy::default().apply(ours).into_iter().next();
        assert_eq!(got.as_ref().map(|(_, value)| value.as_str()), want, "{name}={value}");
    }

    #[test]
    fn patterns() {
        for (pattern, name, want) in [
            ("*KEY*", "OPENAI_API_KEY", true),
            ("*KEY*", "monkey_x", true),
            ("A?C", "abc", true),
            ("A?C", "ac", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("A**B*", "AxxBxx", true),
            ("*A*A*A*A*B", "AAAAAAAAAAAAAAAAAAAA", false),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }
}
