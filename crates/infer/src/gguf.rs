//! Reads the header of a model file, and trusts nothing in it.
//!
//! What loads models takes a file's word for much, and ends the process where the file lied. So
//! [`read`] looks first: every count has a bound, every tensor lies inside of the file, and the numbers
//! that a model is built from fit each other. It also says what is known of the model before it is
//! loaded: its [`Facts`], and its [`Shape`], which is what its memory can be estimated from.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Read};

use prompt::Facts;
use prompt::model::is_mark;

/// What the header of a model file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// What is known of the model.
    pub facts: Facts,
    /// What its memory can be estimated from.
    pub shape: Shape,
}

/// The sizes of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes that a token takes that was read, at two bytes a number.
    pub token_bytes: u64,
    /// Numbers that stand for a token.
    pub embedding: u64,
    /// Numbers between the two halves of a layer; for experts, of all that work at a time.
    pub feed_forward: u64,
    /// Tokens that the model knows.
    pub vocabulary: u64,
}

/// Why a file cannot be used as a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// Name another file.
    #[error("this is not a GGUF file")]
    NotGguf,
    /// Convert it with a newer converter.
    #[error("this is a GGUF file of version {0}; versions 2 and 3 can be read")]
    Version(u32),
    /// Fetch it again.
    #[error("the file ends too early: it has {found} bytes and speaks of {wanted}")]
    Truncated {
        /// Bytes that it should have, as far as it was read.
        wanted: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Join the parts.
    #[error("this is one of {0} parts; join them with `llama-gguf-split --merge` first")]
    Split(u64),
    /// Fetch it again, or name another.
    #[error("the file is damaged: {0}")]
    Invalid(String),
    /// Look at the disk.
    #[error("the file cannot be read")]
    Io(#[from] io::Error),
}

/// Reads a header from the beginning of a file that has `file_bytes` bytes.
///
/// # Errors
///
/// See [`GgufError`]; no content makes this panic or take more than [`HEADER_BYTES_MAX`] of memory.
pub fn read(source: impl Read, file_bytes: u64) -> Result<Header, GgufError> {
    let mut bytes = Bytes { source: BufReader::with_capacity(1 << 16, source), at: 0, file_bytes };
    if bytes.array().ok() != Some(*b"GGUF") {
        return Err(GgufError::NotGguf);
    }
    let version = bytes.u32()?;
    if !(2..=3).contains(&version) {
        return Err(GgufError::Version(version));
    }
    let tensors = bytes.count(TENSORS_MAX, "tensors")?;
    let keys = bytes.count(KEYS_MAX, "keys")?;
    let mut values = Values::default();
    for _ in 0..keys {
        values.read(&mut bytes)?;
    }
    let parts = values.number("split.count").unwrap_or(1);
    if parts > 1 {
        return Err(GgufError::Split(parts));
    }
    let parameters = read_tensors(&mut bytes, tensors, values.alignment()?)?;
    values.header(parameters, file_bytes)
}

/// Reads what is said of the weights, and returns how many there are.
fn read_tensors<R: Read>(
    bytes: &mut Bytes<R>,
    tensors: u64,
    alignment: u64,
) -> Result<u64, GgufError> {
    let (mut parameters, mut end, mut names) = (0_u64, 0_u64, HashSet::new());
    for _ in 0..tensors {
        let name = bytes.text(TENSOR_NAME_MAX)?;
        let broken = |what: &str| {
            GgufError::Invalid(format!("tensor `{}` {what}", String::from_utf8_lossy(&name)))
        };
        let dimensions = bytes.u32()?;
        if !(1..=4).contains(&dimensions) {
            return Err(broken("has no shape"));
        }
        let (mut first, mut elements) = (1, 1_u64);
        for dimension in 0..dimensions {
            let extent = bytes.u64()?;
            if dimension == 0 {
                first = extent;
            }
            elements = elements
                .checked_mul(extent)
                .filter(|&elements| (1..=i64::MAX as u64).contains(&elements))
                .ok_or_else(|| broken("has an impossible shape"))?;
        }
        let kind = bytes.u32()?;
        let &(_, block, block_bytes) = TYPES
            .iter()
            .find(|(number, ..)| *number == kind)
            .ok_or_else(|| broken("is of a type that is not known"))?;
        if !first.is_multiple_of(block) {
            return Err(broken("has rows that its type cannot have"));
        }
        // What is added or multiplied number by number is not quantised, in any model.
        if dimensions == 1 && !PLAIN.contains(&kind) {
            return Err(broken("is of a type that it cannot have"));
        }
        if bytes.u64()? != end {
            return Err(broken("does not follow the one before it"));
        }
        end = (elements / block)
            .checked_mul(block_bytes)
            .and_then(|size| size.checked_next_multiple_of(alignment))
            .and_then(|size| size.checked_add(end))
            .ok_or_else(|| broken("is larger than any file"))?;
        parameters = parameters.saturating_add(elements);
        if names.contains(&name) {
            return Err(broken("is there twice"));
        }
        names.insert(name);
    }
    if tensors == 0 {
        return Err(GgufError::Invalid("it has no weights".to_owned()));
    }
    let wanted = bytes.at.checked_next_multiple_of(alignment).and_then(|at| at.checked_add(end));
    // The last tensor need not be padded.
    let wanted = wanted.unwrap_or(u64::MAX).saturating_sub(alignment - 1);
    if wanted > bytes.file_bytes {
        return Err(GgufError::Truncated { wanted, found: bytes.file_bytes });
    }
    Ok(parameters)
}

/// The keys that matter to us.
#[derive(Debug, Default)]
struct Values {
    names: HashSet<Vec<u8>>,
    numbers: HashMap<String, u64>,
    floats: HashMap<String, f32>,
    texts: HashMap<String, String>,
    lists: HashMap<String, Vec<u64>>,
    tokens: Vec<Vec<u8>>,
}

impl Values {
    /// Reads a key and its value.
    fn read<R: Read>(&mut self, bytes: &mut Bytes<R>) -> Result<(), GgufError> {
        let name = bytes.text(KEY_NAME_MAX)?;
        if name.is_empty() || !self.names.insert(name.clone()) {
            return Err(GgufError::Invalid("a key is there twice, or has no name".to_owned()));
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        let kind = bytes.u32()?;
        match kind {
            KIND_TEXT => {
                let text = bytes.text(TEXT_BYTES_MAX)?;
                if TEXTS.contains(&name.as_str()) || name.ends_with(".rope.scaling.type") {
                    let text = String::from_utf8(text).map_err(|_| {
                        GgufError::Invalid(format!("the value of `{name}` is not text"))
                    })?;
                    self.texts.insert(name, text);
                }
            }
            KIND_ARRAY => self.read_list(name, bytes)?,
            KIND_F32 => {
                let number = f32::from_le_bytes(bytes.array()?);
                self.floats.insert(name, number);
            }
            _ => {
                let number = bytes.number(kind)?;
                self.numbers.insert(name, number);
            }
        }
        Ok(())
    }

    fn read_list<R: Read>(&mut self, name: String, bytes: &mut Bytes<R>) -> Result<(), GgufError> {
        let kind = bytes.u32()?;
        let count = bytes.count(LIST_MAX, "elements of a list")?;
        if kind == KIND_TEXT {
            let wanted = name == "tokenizer.ggml.tokens";
            for _ in 0..count {
                let text = bytes.text(TEXT_BYTES_MAX)?;
                if wanted {
                    self.tokens.push(text);
                }
            }
            return Ok(());
        }
        if kind == KIND_ARRAY {
            return Err(GgufError::Invalid(format!("`{name}` is a list of lists")));
        }
        let wanted = name == "tokenizer.ggml.token_type" || count <= LAYERS_MAX;
        let mut list = Vec::new();
        for _ in 0..count {
            let number = bytes.number(kind)?;
            if wanted {
                list.push(number);
            }
        }
        if wanted {
            self.lists.insert(name, list);
        }
        Ok(())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    fn alignment(&self) -> Result<u64, GgufError> {
        let alignment = self.number("general.alignment").unwrap_or(32);
        if alignment.is_power_of_two() && alignment <= ALIGNMENT_MAX {
            return Ok(alignment);
        }
        Err(GgufError::Invalid(format!("its alignment is {alignment}")))
    }

    /// Puts together what was read.
    fn header(mut self, parameters: u64, file_bytes: u64) -> Result<Header, GgufError> {
        let architecture = self
            .texts
            .remove("general.architecture")
            .ok_or_else(|| GgufError::Invalid("it does not name its architecture".to_owned()))?;
        let model = Numbers { values: &self, architecture: &architecture };
        let context = model.within("context_length", 1, CONTEXT_MAX)?;
        let embedding = model.within("embedding_length", 1, WIDTH_MAX)?;
        let layers = model.within("block_count", 1, LAYERS_MAX)?;
        model.check_experts(layers)?;
        model.check_rope()?;
        let token_bytes = model.token_bytes(layers, embedding)?;
        let feed_forward = model.feed_forward();
        let vocabulary = self.check_tokens()?;
        let shape = Shape { file_bytes, token_bytes, embedding, feed_forward, vocabulary };
        let specials = self.specials();
        let facts = Facts {
            name: self.texts.remove("general.name"),
            template: self.texts.remove("tokenizer.chat_template"),
            parameters,
            context_tokens: context as u32,
            specials,
            begin: self.begin(),
            end: self.special("eos"),
            architecture,
        };
        Ok(Header { facts, shape })
    }

    /// Returns how many tokens there are; each must have a name of its own.
    fn check_tokens(&self) -> Result<u64, GgufError> {
        let count = self.tokens.len();
        if count < VOCABULARY_MIN {
            return Err(GgufError::Invalid(format!("it has only {count} tokens")));
        }
        if self.tokens.iter().any(|token| token.len() > TOKEN_BYTES_MAX) {
            return Err(GgufError::Invalid(format!(
                "it has tokens of more than {TOKEN_BYTES_MAX} bytes"
            )));
        }
        let mut seen = HashSet::with_capacity(count);
        let named = self.tokens.iter().filter(|token| !token.is_empty());
        if let Some(twice) = named.into_iter().find(|token| !seen.insert(token.as_slice())) {
            let twice = String::from_utf8_lossy(twice);
            return Err(GgufError::Invalid(format!("its token `{twice}` is there twice")));
        }
        Ok(count as u64)
    }

    /// Returns the names of the special tokens. Tokens that somebody added need not be special: some are
    /// runs of blanks or tags of HTML. One that the chat template names, or that is known as a mark, is one.
    fn specials(&self) -> Vec<String> {
        let Some(types) = self.lists.get("tokenizer.ggml.token_type") else { return Vec::new() };
        let template = self.texts.get("tokenizer.chat_template").map_or("", String::as_str);
        let kinds = types.iter().zip(&self.tokens);
        let special = kinds.filter_map(|(&kind, token)| {
            let name = std::str::from_utf8(token).ok().filter(|name| !name.is_empty())?;
            let looks =
                name.len() > 2 && name.starts_with(['<', '[']) && name.ends_with(['>', ']']);
            let mark = || looks && (is_mark(name) || template.contains(name));
            let special = kind == TOKEN_CONTROL || kind == TOKEN_ADDED && mark();
            special.then(|| name.to_owned())
        });
        special.collect()
    }

    fn special(&self, which: &str) -> Option<String> {
        let id = self.number(&format!("tokenizer.ggml.{which}_token_id"))?;
        let name = self.tokens.get(usize::try_from(id).ok()?)?;
        String::from_utf8(name.clone()).ok()
    }

    fn begin(&self) -> Option<String> {
        let by_kind = self.texts.get("tokenizer.ggml.model").is_some_and(|kind| kind == "llama")
            || self
                .texts
                .get("tokenizer.ggml.pre")
                .is_some_and(|pre| BEGINNING.contains(&pre.as_str()));
        let wanted = self.number("tokenizer.ggml.add_bos_token").map_or(by_kind, |flag| flag != 0);
        if wanted { self.special("bos") } else { None }
    }
}

/// The numbers that belong to the architecture.
struct Numbers<'a> {
    values: &'a Values,
    architecture: &'a str,
}

impl Numbers<'_> {
    fn get(&self, name: &str) -> Option<u64> {
        self.values.number(&format!("{}.{name}", self.architecture))
    }

    fn list(&self, name: &str) -> Option<&[u64]> {
        self.values.lists.get(&format!("{}.{name}", self.architecture)).map(Vec::as_slice)
    }

    fn within(&self, name: &str, least: u64, most: u64) -> Result<u64, GgufError> {
        let number = self.get(name);
        number.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
            let found = number.map_or("missing".to_owned(), |number| number.to_string());
            let name = format!("{}.{name}", self.architecture);
            GgufError::Invalid(format!("`{name}` is {found}, and can be {least} to {most}"))
        })
    }

    /// Returns a number that may be missing, and may be one per layer: all of them.
    fn per_layer(&self, name: &str, layers: u64) -> Result<Vec<u64>, GgufError> {
        if let Some(list) = self.list(name) {
            if (list.len() as u64) < layers {
                return Err(self.wrong(name));
            }
            return Ok(list[..layers as usize].to_vec());
        }
        Ok(self.get(name).map_or(Vec::new(), |number| vec![number; layers as usize]))
    }

    fn wrong(&self, name: &str) -> GgufError {
        GgufError::Invalid(format!("`{}.{name}` does not fit the rest", self.architecture))
    }

    fn check_experts(&self, layers: u64) -> Result<(), GgufError> {
        let experts = self.get("expert_count").unwrap_or(0);
        let used = self.per_layer("expert_used_count", layers)?.into_iter().max().unwrap_or(0);
        if experts > EXPERTS_MAX || used > experts || (experts > 0) != (used > 0) {
            return Err(self.wrong("expert_used_count"));
        }
        let groups = self.get("expert_group_count").unwrap_or(0);
        let groups_used = self.get("expert_group_used_count").unwrap_or(0);
        let grouped = groups > 1;
        if groups > 0 && groups >= experts
            || grouped
                && (!experts.is_multiple_of(groups) || groups_used == 0 || groups_used >= groups)
        {
            return Err(self.wrong("expert_group_count"));
        }
        if self.get("nextn_predict_layers").unwrap_or(0) > layers {
            return Err(self.wrong("nextn_predict_layers"));
        }
        Ok(())
    }

    fn check_rope(&self) -> Result<(), GgufError> {
        let scaling = self.values.texts.get(&format!("{}.rope.scaling.type", self.architecture));
        if scaling.is_some_and(|kind| !ROPE_SCALINGS.contains(&kind.as_str())) {
            return Err(self.wrong("rope.scaling.type"));
        }
        let heads = ["attention.key_length", "attention.value_length"];
        for name in heads {
            if self.get(name).is_some_and(|width| !(1..=HEAD_WIDTH_MAX).contains(&width)) {
                return Err(self.wrong(name));
            }
        }
        let rotated = self.get("rope.dimension_count").unwrap_or(0);
        let width = self.get("attention.key_length").unwrap_or(HEAD_WIDTH_MAX);
        if !rotated.is_multiple_of(2) || rotated > width {
            return Err(self.wrong("rope.dimension_count"));
        }
        let window = self.get("attention.sliding_window");
        if self.architecture == "gpt-oss" && window.unwrap_or(0) == 0 {
            return Err(self.wrong("attention.sliding_window"));
        }
        for name in ["layer_norm_epsilon", "layer_norm_rms_epsilon"] {
            let key = format!("{}.attention.{name}", self.architecture);
            let epsilon = self.values.floats.get(&key);
            if epsilon.is_some_and(|epsilon| !(0.0..1.0).contains(epsilon)) {
                return Err(self.wrong(&format!("attention.{name}")));
            }
        }
        Ok(())
    }

    /// Returns how many bytes of memory a token takes that was read.
    fn token_bytes(&self, layers: u64, embedding: u64) -> Result<u64, GgufError> {
        let heads = self.per_layer("attention.head_count", layers)?;
        let mut heads_kv = self.per_layer("attention.head_count_kv", layers)?;
        if heads_kv.is_empty() {
            heads_kv.clone_from(&heads);
        }
        if heads.iter().chain(&heads_kv).any(|&heads| heads > HEADS_MAX) {
            return Err(self.wrong("attention.head_count"));
        }
        let most = heads.iter().copied().max().unwrap_or(0).max(1);
        if most > embedding {
            return Err(self.wrong("attention.head_count"));
        }
        let key = self.get("attention.key_length").unwrap_or(embedding / most);
        let value = self.get("attention.value_length").unwrap_or(embedding / most);
        Ok(heads_kv.iter().sum::<u64>() * (key + value) * 2)
    }

    /// Returns how wide a layer gets, as far as the file says.
    fn feed_forward(&self) -> u64 {
        let width = |name: &str| {
            let listed = self.list(name).and_then(|list| list.iter().copied().max());
            listed.or_else(|| self.get(name)).unwrap_or(0).min(WIDTH_MAX)
        };
        let used = self.get("expert_used_count").unwrap_or(1).min(EXPERTS_MAX);
        width("feed_forward_length").max(width("expert_feed_forward_length") * used)
    }
}

/// What is left of a file.
struct Bytes<R> {
    source: BufReader<R>,
    at: u64,
    file_bytes: u64,
}

impl<R: Read> Bytes<R> {
    /// Makes sure that so many bytes can follow.
    fn claim(&mut self, count: u64) -> Result<(), GgufError> {
        let end = self.at.saturating_add(count);
        if end > self.file_bytes {
            return Err(GgufError::Truncated { wanted: end, found: self.file_bytes });
        }
        if end > HEADER_BYTES_MAX {
            return Err(GgufError::Invalid(format!(
                "its header has more than {HEADER_BYTES_MAX} bytes"
            )));
        }
        self.at = end;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        self.claim(N as u64)?;
        let mut array = [0; N];
        self.fill(&mut array)?;
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self, most: u64, what: &str) -> Result<u64, GgufError> {
        let count = self.u64()?;
        if count > most {
            return Err(GgufError::Invalid(format!("it has {count} {what}, and can have {most}")));
        }
        Ok(count)
    }

    fn text(&mut self, most: u64) -> Result<Vec<u8>, GgufError> {
        let length = self.count(most, "bytes in a name or text")?;
        self.claim(length)?;
        let mut text = vec![0; length as usize];
        self.fill(&mut text)?;
        Ok(text)
    }

    /// Reads a number of any kind as one without a sign; what is negative or broken becomes huge, and is
    /// refused where it matters.
    fn number(&mut self, kind: u32) -> Result<u64, GgufError> {
        Ok(match kind {
            0 | 1 | 7 => u64::from(self.array::<1>()?[0]),
            2 | 3 => u64::from(u16::from_le_bytes(self.array()?)),
            4 => u64::from(self.u32()?),
            5 => i64::from(i32::from_le_bytes(self.array()?)) as u64,
            KIND_F32 => f32::from_le_bytes(self.array()?) as u64,
            10 | 11 => self.u64()?,
            12 => f64::from_le_bytes(self.array()?) as u64,
            _ => return Err(GgufError::Invalid(format!("a value is of the unknown kind {kind}"))),
        })
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), GgufError> {
        self.source.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                GgufError::Truncated { wanted: self.at, found: self.at - buffer.len() as u64 }
            }
            _ => GgufError::Io(error),
        })
    }
}

/// A header beyond this is refused; vocabularies of a quarter of a million tokens take 20 MB.
pub const HEADER_BYTES_MAX: u64 = 256 << 20;
const TENSORS_MAX: u64 = 65_535;
const KEYS_MAX: u64 = 65_535;
const KEY_NAME_MAX: u64 = 65_535;
const TENSOR_NAME_MAX: u64 = 63;
const TEXT_BYTES_MAX: u64 = 4 << 20;
const LIST_MAX: u64 = 16 << 20;
const ALIGNMENT_MAX: u64 = 1 << 20;
const CONTEXT_MAX: u64 = 1 << 30;
const WIDTH_MAX: u64 = 1 << 20;
const HEAD_WIDTH_MAX: u64 = 1 << 13;
const HEADS_MAX: u64 = 1 << 13;
/// These two are limits of llama.cpp.
const LAYERS_MAX: u64 = 512;
const EXPERTS_MAX: u64 = 1024;
/// Below this there is no room for the ids that llama.cpp takes where a file names none.
const VOCABULARY_MIN: usize = 128;

/// Trees of tokens are walked to their depth.
const TOKEN_BYTES_MAX: usize = 1024;

const KIND_F32: u32 = 6;
const KIND_TEXT: u32 = 8;
const KIND_ARRAY: u32 = 9;
const TOKEN_CONTROL: u64 = 3;
const TOKEN_ADDED: u64 = 4;

const TEXTS: [&str; 5] = [
    "general.architecture",
    "general.name",
    "tokenizer.chat_template",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
];
const ROPE_SCALINGS: [&str; 4] = ["none", "linear", "yarn", "longrope"];
/// The kinds of vocabulary that begin a text with a token unless the file says otherwise.
const BEGINNING: [&str; 6] = ["llama3", "llama-v3", "llama-bpe", "falcon3", "tekken", "chameleon"];

/// Types of tensors: number, elements in a block, bytes of a block. Those that models are computed with but
/// never stored in are left out.
const TYPES: [(u32, u64, u64); 33] = [
    (0, 1, 4),      // F32
    (1, 1, 2),      // F16
    (2, 32, 18),    // Q4_0
    (3, 32, 20),    // Q4_1
    (6, 32, 22),    // Q5_0
    (7, 32, 24),    // Q5_1
    (8, 32, 34),    // Q8_0
    (10, 256, 84),  // Q2_K
    (11, 256, 110), // Q3_K
    (12, 256, 144), // Q4_K
    (13, 256, 176), // Q5_K
    (14, 256, 210), // Q6_K
    (16, 256, 66),  // IQ2_XXS
    (17, 256, 74),  // IQ2_XS
    (18, 256, 98),  // IQ3_XXS
    (19, 256, 50),  // IQ1_S
    (20, 32, 18),   // IQ4_NL
    (21, 256, 110), // IQ3_S
    (22, 256, 82),  // IQ2_S
    (23, 256, 136), // IQ4_XS
    (24, 1, 1),     // I8
    (25, 1, 2),     // I16
    (26, 1, 4),     // I32
    (27, 1, 8),     // I64
    (28, 1, 8),     // F64
    (29, 256, 56),  // IQ1_M
    (30, 1, 2),     // BF16
    (34, 256, 54),  // TQ1_0
    (35, 256, 66),  // TQ2_0
    (39, 32, 17),   // MXFP4
    (40, 64, 36),   // NVFP4
    (41, 128, 18),  // Q1_0
    (42, 64, 18),   // Q2_0
];
const PLAIN: [u32; 4] = [0, 1, 26, 30];
