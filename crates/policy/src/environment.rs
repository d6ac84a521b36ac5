//! Which variables the commands of a model get to see.

/// Which variables to begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inherit {
    /// All of ours.
    #[default]
    All,
    /// Those without which a shell is not usable.
    Core,
    /// None.
    None,
}

/// How the environment of commands is made from ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentPolicy {
    /// What to begin with.
    pub inherit: Inherit,
    /// Whether variables that look like secrets are kept.
    pub keep_secrets: bool,
    /// Patterns of names to drop.
    pub exclude: Vec<String>,
    /// Variables to add or replace.
    pub set: Vec<(String, String)>,
    /// If not empty, only names that match one of these stay.
    pub include_only: Vec<String>,
}

/// What [`Inherit::Core`] keeps.
const CORE: [&str; 11] = [
    "HOME", "LOGNAME", "PATH", "SHELL", "USER", "USERNAME", "TMPDIR", "TEMP", "TMP", "TERM", "LANG",
];
/// Names that look like secrets.
const SECRETS: [&str; 3] = ["*KEY*", "*SECRET*", "*TOKEN*"];

impl EnvironmentPolicy {
    /// Applies the policy: inherit, drop secrets, drop excluded, set, keep only what is included.
    pub fn apply(&self, ours: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
        let mut kept: Vec<_> = ours
            .into_iter()
            .filter(|(name, _)| match self.inherit {
                Inherit::All => true,
                Inherit::Core => CORE.iter().any(|core| name.eq_ignore_ascii_case(core)),
                Inherit::None => false,
            })
            .filter(|(name, _)| self.keep_secrets || !SECRETS.iter().any(|p| matches(p, name)))
            .filter(|(name, _)| !self.exclude.iter().any(|pattern| matches(pattern, name)))
            .collect();
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

/// Matches a name against a pattern with `*` and `?`, whatever the case.
///
/// The usual two-pointer walk: a mismatch goes back to the last star only, so the cost is bounded by
/// the product of the lengths and there is no recursion.
fn matches(pattern: &str, name: &str) -> bool {
    let fold = |text: &str| text.chars().map(|c| c.to_ascii_uppercase()).collect::<Vec<_>>();
    let (pattern, name) = (fold(pattern), fold(name));
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some('?') => (p, n) = (p + 1, n + 1),
            Some(c) if *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
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
