//! Reviews of code changes: what is reviewed, and what a reviewer found.

use serde::{Deserialize, Serialize};

/// The change that a review is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ReviewTarget {
    /// Everything in the working directory that is not committed.
    UncommittedChanges,
    /// What the current branch would bring into another one.
    BaseBranch {
        /// The other branch.
        branch: String,
    },
    /// One commit.
    Commit {
        /// Its hash, or another name of it.
        sha: String,
        /// Its first line, for people.
        #[serde(default)]
        title: Option<String>,
    },
    /// Whatever the user describes.
    Custom {
        /// The user's own words.
        instructions: String,
    },
}

/// A target of a review that names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} must not be empty")]
pub struct BlankTarget(pub &'static str);

impl ReviewTarget {
    /// Removes the white space around what the user wrote; fails if nothing is left.
    pub fn trimmed(self) -> Result<Self, BlankTarget> {
        let filled = |name, text: String| match text.trim() {
            "" => Err(BlankTarget(name)),
            text => Ok(text.to_owned()),
        };
        Ok(match self {
            Self::UncommittedChanges => Self::UncommittedChanges,
            Self::BaseBranch { branch } => Self::BaseBranch { branch: filled("branch", branch)? },
            Self::Commit { sha, title } => {
                let title = title.and_then(|title| filled("title", title).ok());
                Self::Commit { sha: filled("sha", sha)?, title }
            }
            Self::Custom { instructions } => {
                Self::Custom { instructions: filled("instructions", instructions)? }
            }
        })
    }

    /// Describes it in a few words, or in the user's own.
    pub fn hint(&self) -> String {
        let short = |sha: &str| sha.chars().take(SHA_CHARS_SHOWN).collect::<String>();
        match self {
            Self::UncommittedChanges => "current changes".to_owned(),
            Self::BaseBranch { branch } => format!("changes against '{branch}'"),
            Self::Commit { sha, title: Some(title) } => format!("commit {}: {title}", short(sha)),
            Self::Commit { sha, title: None } => format!("commit {}", short(sha)),
            Self::Custom { instructions } => instructions.clone(),
        }
    }
}

/// How much of a hash people are shown.
const SHA_CHARS_SHOWN: usize = 7;

/// What a reviewer found. The names are those of the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// What is wrong with the change, the most important first.
    pub findings: Vec<Finding>,
    /// The verdict in a few words, such as `patch is correct`.
    #[serde(default)]
    pub overall_correctness: String,
    /// The reasons for it; for an answer that is only text, all of it.
    #[serde(default)]
    pub overall_explanation: String,
    /// How sure the reviewer is, from 0 to 1.
    #[serde(default)]
    pub overall_confidence_score: f64,
}

/// One thing that is wrong with a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is, in one line.
    pub title: String,
    /// Why it is wrong, and when that matters.
    #[serde(default)]
    pub body: String,
    /// How sure the reviewer is, from 0 to 1.
    #[serde(default)]
    pub confidence_score: f64,
    /// From 0, which must be fixed at once, to 3, which would be nice.
    #[serde(default)]
    pub priority: Option<i64>,
    /// Where it is.
    #[serde(default)]
    pub code_location: CodeLocation,
}

/// Lines of a file. Without a path, the reviewer did not say where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLocation {
    /// The path, which should be absolute.
    #[serde(default)]
    pub absolute_file_path: String,
    /// The lines.
    #[serde(default)]
    pub line_range: LineRange,
}

/// Lines, counted from 1, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineRange {
    /// The first one.
    #[serde(default)]
    pub start: u64,
    /// The last one.
    #[serde(default)]
    pub end: u64,
}

impl Review {
    /// Reads the answer of a reviewer: JSON, also with text or a code fence around it. Any other answer is an explanation
    /// without findings.
    pub fn read(answer: &str) -> Self {
        let braces = answer.find('{').zip(answer.rfind('}')).filter(|(from, to)| from < to);
        let inside = braces.map(|(from, to)| &answer[from..=to]);
        let read = [Some(answer), inside].into_iter().flatten();
        read.filter_map(|json| serde_json::from_str(json).ok()).next().unwrap_or_else(|| Self {
            overall_explanation: answer.trim().to_owned(),
            ..Self::default()
        })
    }

    /// Returns it as people read it, in Markdown.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        let explanation = self.overall_explanation.trim();
        if !explanation.is_empty() {
            parts.push(explanation.to_owned());
        }
        match self.findings.len() {
            0 if parts.is_empty() => parts.push("The reviewer found nothing to report.".to_owned()),
            0 => {}
            1 => parts.push("Finding:".to_owned()),
            _ => parts.push("Findings:".to_owned()),
        }
        parts.extend(self.findings.iter().map(Finding::text));
        parts.join("\n\n")
    }

    /// Returns a review of which only the text is known; none if that says that the reviewer did not finish.
    pub fn shown(text: String) -> Option<Self> {
        let is_review = text != UNFINISHED;
        is_review.then(|| Self { overall_explanation: text, ..Self::default() })
    }

    /// Returns the approximate size of its texts in bytes.
    pub fn text_bytes(&self) -> usize {
        let finding = |finding: &Finding| {
            finding.title.len()
                + finding.body.len()
                + finding.code_location.absolute_file_path.len()
                + crate::item::PART_BYTES
        };
        self.overall_explanation.len() + self.findings.iter().map(finding).sum::<usize>()
    }
}

/// What people read instead of a review that did not finish.
pub const UNFINISHED: &str = "The reviewer did not finish.";

impl Finding {
    fn text(&self) -> String {
        let title = self.title.trim();
        let mut text = match self.priority {
            Some(priority) if !title.starts_with('[') => format!("- [P{priority}] {title}"),
            _ => format!("- {title}"),
        };
        let CodeLocation { absolute_file_path: path, line_range } = &self.code_location;
        if !path.is_empty() {
            text += &match line_range {
                LineRange { start: 0, .. } => format!(" — {path}"),
                LineRange { start, end } if end > start => format!(" — {path}:{start}-{end}"),
                LineRange { start, .. } => format!(" — {path}:{start}"),
            };
        }
        for line in self.body.trim().lines() {
            text.push('\n');
            if !line.trim().is_empty() {
                text += &format!("  {line}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, findings: usize, want: &str) {
        let review = Review::read(answer);
        assert_eq!((review.findings.len(), review.text().as_str()), (findings, want), "{answer}");
        // Readers of the log read the same.
        let logged = serde_json::to_string(&review).unwrap();
        assert_eq!(serde_json::from_str::<Review>(&logged).unwrap(), review);
    }

    #[test]
    fn answers_of_reviewers() {
        let full = r#"{"findings":[{"title":"[P1] Off by one","body":"Too far.\n\nAlways.","confidence_score":0.9,
            "priority":1,"code_location":{"absolute_file_path":"/w/a.rs","line_range":{"start":3,"end":5}}},
            {"title":"Leak","body":"","priority":2,"code_location":{"absolute_file_path":"/w/b.rs","line_range":{"start":7,"end":7}}}],
            "overall_correctness":"patch is incorrect","overall_explanation":"It breaks.","overall_confidence_score":1}"#;
        let text = "It breaks.\n\nFindings:\n\n- [P1] Off by one — /w/a.rs:3-5\n  Too far.\n\n  Always.\n\n- [P2] Leak — /w/b.rs:7";
        check(full, 2, text);
        check(&format!("Here it is:\n```json\n{full}\n```\n"), 2, text);
        check(r#"{"findings":[{"title":"Slow","priority":null}]}"#, 1, "Finding:\n\n- Slow");
        check(
            r#"{"findings":[{"title":"Old","code_location":{"absolute_file_path":"/a"}}],"more":1}"#,
            1,
            "Finding:\n\n- Old — /a",
        );
        check(r#"{"findings":[]}"#, 0, "The reviewer found nothing to report.");
        check(" all is well \n", 0, "all is well");
        check("", 0, "The reviewer found nothing to report.");
        // This is no review, so nothing of it is lost.
        check(r#"{"ok":true}"#, 0, r#"{"ok":true}"#);
        check("a } b { c", 0, "a } b { c");
    }

    #[track_caller]
    fn check_target(target: ReviewTarget, want: Result<&str, &str>) {
        let trimmed = target.trimmed().map(|target| target.hint());
        let got = trimmed.as_deref().map_err(ToString::to_string);
        assert_eq!(got, want.map_err(ToOwned::to_owned));
    }

    #[test]
    fn targets() {
        let branch = |branch: &str| ReviewTarget::BaseBranch { branch: branch.to_owned() };
        let commit = |sha: &str, title: Option<&str>| ReviewTarget::Commit {
            sha: sha.to_owned(),
            title: title.map(ToOwned::to_owned),
        };
        let custom = |words: &str| ReviewTarget::Custom { instructions: words.to_owned() };
        check_target(ReviewTarget::UncommittedChanges, Ok("current changes"));
        check_target(branch(" main "), Ok("changes against 'main'"));
        check_target(branch(" "), Err("branch must not be empty"));
        check_target(commit("0123456789abcdef", None), Ok("commit 0123456"));
        check_target(commit("HEAD", Some(" a title ")), Ok("commit HEAD: a title"));
        check_target(commit("HEAD", Some(" ")), Ok("commit HEAD"));
        check_target(commit("", Some("t")), Err("sha must not be empty"));
        check_target(custom(" look\nhere "), Ok("look\nhere"));
        check_target(custom("\n"), Err("instructions must not be empty"));
    }
}
