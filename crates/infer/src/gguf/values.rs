//! Parses the metadata of a file, and checks that its numbers are consistent.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::Read;

use prompt::Facts;
use prompt::model::is_mark;

use super::bytes::{Bytes, KIND_F32};
use super::{GgufError, Header, Shape};

/// The keys that matter to us.
#[derive(Debug, Default)]
pub(super) struct Values {
    names: HashSet<Vec<u8>>,
    numbers: HashMap<String, u64>,
    floats: HashMap<String, f32>,
    texts: HashMap<String, String>,
    lists: HashMap<String, Vec<u64>>,
    tokens: Vec<Vec<u8>>,
    /// How many token scores there are.
    scores: Option<u64>,
}

impl Values {
    /// Parses a key and its value.
    pub(super) fn read<R: Read>(&mut self, bytes: &mut Bytes<R>) -> Result<(), GgufError> {
        let name = bytes.text(KEY_NAME_MAX)?;
        if name.is_empty() || !self.names.insert(name.clone()) {
            return Err(GgufError::Invalid("a key is there twice, or has no name".to_owned()));
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        let kind = bytes.u32()?;
        if !kinds_of(&name).contains(&kind) {
            return Err(odd_kind(&name));
        }
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
        if LISTS.iter().any(|(known, kinds)| *known == name && !kinds.contains(&kind)) {
            return Err(odd_kind(&name));
        }
        if kind == KIND_TEXT {
            let (are_tokens, are_merges) = (name == TOKENS, name == MERGES);
            for at in 0..count {
                let text = bytes.text(TEXT_BYTES_MAX)?;
                if are_merges && !is_pair(&text) {
                    let what = format!("its merge {at} does not have two parts");
                    return Err(GgufError::Invalid(what));
                }
                if are_tokens {
                    self.tokens.push(text);
                }
            }
            return Ok(());
        }
        if name == SCORES {
            self.scores = Some(count);
            for _ in 0..count {
                let score = bytes.array()?;
                if kind == KIND_F32 && f32::from_le_bytes(score).is_nan() {
                    return Err(GgufError::Invalid(
                        "a score of a token is not a number".to_owned(),
                    ));
                }
            }
            return Ok(());
        }
        if kind == KIND_ARRAY {
            return Err(GgufError::Invalid(format!("`{name}` is a list of lists")));
        }
        let wanted = name == TYPES || name == SUPPRESSED || count <= LAYERS_MAX;
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

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    pub(super) fn alignment(&self) -> Result<u64, GgufError> {
        let alignment = self.number("general.alignment").unwrap_or(32);
        if alignment.is_power_of_two() && alignment <= ALIGNMENT_MAX {
            return Ok(alignment);
        }
        Err(GgufError::Invalid(format!("its alignment is {alignment}")))
    }

    pub(super) fn header(mut self, parameters: u64, file_bytes: u64) -> Result<Header, GgufError> {
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

    /// Returns the vocabulary size; token names must be unique.
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
        let mut names = self.tokens.iter().enumerate().map(named);
        if let Some(twice) = names.find(|token| !seen.insert(token.clone())) {
            let twice = String::from_utf8_lossy(&twice);
            return Err(GgufError::Invalid(format!("its token `{twice}` is there twice")));
        }
        self.check_kinds(|name: &str| seen.contains(name.as_bytes()))?;
        self.check_ids(count as u64)?;
        Ok(count as u64)
    }

    /// Checks that every key that refers to a token refers to an existing one: llama.cpp would silently use
    /// another one.
    fn check_ids(&self, count: u64) -> Result<(), GgufError> {
        let ids = self.numbers.iter().filter(|(name, _)| is_id(name));
        let ids = ids.map(|(name, id)| (name.as_str(), *id));
        let suppressed = self.lists.get(SUPPRESSED).into_iter().flatten();
        let mut all = ids.chain(suppressed.map(|id| (SUPPRESSED, *id)));
        match all.find(|(_, id)| *id >= count) {
            Some((name, _)) => Err(GgufError::Invalid(format!(
                "`{name}` names a token that is not there: it has {count}"
            ))),
            None => Ok(()),
        }
    }

    /// Checks that the vocabulary is of a text kind, and has what that kind requires.
    fn check_kinds(&self, has: impl Fn(&str) -> bool) -> Result<(), GgufError> {
        let invalid = |what: String| Err(GgufError::Invalid(what));
        let count = self.tokens.len();
        let kind = self.texts.get("tokenizer.ggml.model").map_or("", String::as_str);
        if !VOCABULARIES.contains(&kind) {
            return invalid(format!("its tokens are of the kind `{kind}`, which cannot be used"));
        }
        let in_pieces = |byte: u8| has(&format!("<0x{byte:02X}>"));
        let is_there =
            |byte: u8| in_pieces(byte) || byte.is_ascii() && has(&char::from(byte).to_string());
        if kind == "llama" && !(0..=u8::MAX).all(is_there) {
            return invalid("it has no tokens for single bytes".to_owned());
        }
        if kind == "rwkv" && !has("\\n") && !has("'\\n'") && !has("\n") {
            return invalid("it has no token for a line end".to_owned());
        }
        let is_merged = MERGED.contains(&kind)
            && self.texts.get("tokenizer.ggml.pre").is_none_or(|pre| pre != UNMERGED);
        if is_merged && !self.names.contains(MERGES.as_bytes()) {
            return invalid("it has no merges, which tokens of its kind are made with".to_owned());
        }
        if let Some(scores) = self.scores.filter(|scores| *scores != count as u64) {
            return invalid(format!(
                "it says of {scores} tokens how likely they are, and has {count}"
            ));
        }
        let Some(types) = self.lists.get(TYPES) else { return Ok(()) };
        if types.len() != count {
            return invalid(format!(
                "it says of {} tokens what they are, and has {count}",
                types.len()
            ));
        }
        let is_byte = |token: &[u8]| {
            token.len() == 6
                && token.starts_with(b"<0x")
                && token.ends_with(b">")
                && token[3..5].iter().all(u8::is_ascii_hexdigit)
        };
        let odd = types
            .iter()
            .zip(&self.tokens)
            .find(|(kind, token)| **kind == TOKEN_BYTE && !is_byte(token));
        match odd {
            Some((_, token)) => {
                let token = String::from_utf8_lossy(token);
                invalid(format!("its token `{token}` stands for no byte, and says that it does"))
            }
            None => Ok(()),
        }
    }

    /// Returns the names of the special tokens. User-defined tokens need not be special: some are runs of
    /// blanks or HTML tags. One that the chat template names, or that is a known mark, is special.
    fn specials(&self) -> Vec<String> {
        let Some(types) = self.lists.get(TYPES) else { return Vec::new() };
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

/// Tells whether a key is a token id.
fn is_id(name: &str) -> bool {
    name.starts_with("tokenizer.ggml.") && name.ends_with("_token_id")
}

/// Returns the allowed types of a key's value.
fn kinds_of(name: &str) -> &'static [u32] {
    const ANY: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    match name {
        // llama.cpp aborts the process if this has another type.
        "split.no" => &[KIND_U16],
        _ if is_id(name) => &[KIND_U32],
        "tokenizer.ggml.add_bos_token" | "tokenizer.ggml.add_eos_token" => &[KIND_BOOL],
        _ if LISTS.iter().any(|(known, _)| *known == name) => &[KIND_ARRAY],
        _ => ANY,
    }
}

fn odd_kind(name: &str) -> GgufError {
    GgufError::Invalid(format!("`{name}` is of a kind that it cannot have"))
}

/// Tells whether a merge names both parts. The first one may begin with a blank.
fn is_pair(merge: &[u8]) -> bool {
    let blank = merge.iter().skip(1).position(|&byte| byte == b' ');
    blank.is_some_and(|at| at + 2 < merge.len())
}

/// Returns the name of a token; llama.cpp names tokens that have none.
fn named((at, token): (usize, &Vec<u8>)) -> Cow<'_, [u8]> {
    match token.is_empty() {
        true => Cow::Owned(format!("[EMPTY_{at}]").into_bytes()),
        false => Cow::Borrowed(token.as_slice()),
    }
}

/// The architecture-specific numbers.
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

    /// Returns the values of an optional number that may be given per layer.
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
        if let Some(name) = DIVISORS.iter().find(|name| self.get(name) == Some(0)) {
            return Err(self.wrong(name));
        }
        let is_ernie = self.architecture.starts_with("ernie");
        if is_ernie && experts > 0 && self.get(MOE_STEP).unwrap_or(0) == 0 {
            return Err(self.wrong(MOE_STEP));
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
        self.check_heads()?;
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

    /// Refuses head sizes that llama.cpp asserts against.
    fn check_heads(&self) -> Result<(), GgufError> {
        let own = match (self.get("embedding_length"), self.get("attention.head_count")) {
            (Some(embedding), Some(heads)) => embedding.checked_div(heads),
            _ => None,
        };
        let key = self.get("attention.key_length").or(own);
        let value = self.get("attention.value_length").or(own);
        let architecture = &self.architecture;
        if key != value && !WIDTHS_DIFFER.contains(architecture) {
            return Err(self.wrong("attention.value_length"));
        }
        let rotated = self.get("rope.dimension_count").or(key);
        if rotated != key && ROTATED_WHOLE.contains(architecture) {
            return Err(self.wrong("rope.dimension_count"));
        }
        Ok(())
    }

    /// Returns the KV cache size per token, in bytes.
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

    /// Returns the feed-forward length, if the file contains it.
    fn feed_forward(&self) -> u64 {
        let width = |name: &str| {
            let listed = self.list(name).and_then(|list| list.iter().copied().max());
            listed.or_else(|| self.get(name)).unwrap_or(0).min(WIDTH_MAX)
        };
        let used = self.get("expert_used_count").unwrap_or(1).min(EXPERTS_MAX);
        width("feed_forward_length").max(width("expert_feed_forward_length") * used)
    }
}

const KEY_NAME_MAX: u64 = 65_535;
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
/// Smaller vocabularies have no room for the default ids of llama.cpp.
const VOCABULARY_MIN: usize = 128;

/// Token trees are walked recursively.
const TOKEN_BYTES_MAX: usize = 1024;

const KIND_U16: u32 = 2;
const KIND_U32: u32 = 4;
const KIND_I32: u32 = 5;
const KIND_BOOL: u32 = 7;
const KIND_TEXT: u32 = 8;
const KIND_ARRAY: u32 = 9;
const TOKEN_CONTROL: u64 = 3;
const TOKEN_ADDED: u64 = 4;
const TOKEN_BYTE: u64 = 6;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
const SUPPRESSED: &str = "tokenizer.ggml.suppress_tokens";
/// Element types of per-token lists. llama.cpp reads some of them as raw bytes.
const LISTS: [(&str, &[u32]); 5] = [
    (TOKENS, &[KIND_TEXT]),
    (TYPES, &[KIND_I32]),
    (SCORES, &[KIND_F32, KIND_I32]),
    (MERGES, &[KIND_TEXT]),
    (SUPPRESSED, &[KIND_I32]),
];
const TEXTS: [&str; 5] = [
    "general.architecture",
    "general.name",
    "tokenizer.chat_template",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
];
/// Kinds of vocabularies of text models.
const VOCABULARIES: [&str; 7] =
    ["llama", "gpt2", "gemma4", "plamo2", "rwkv", "hybriddna", "whitespace"];
/// Kinds whose tokens are built from a merge list; and the pre-tokenizer of the one that has no such list.
const MERGED: [&str; 4] = ["gpt2", "gemma4", "hybriddna", "whitespace"];
const UNMERGED: &str = "kimi-k2";
/// Numbers that llama.cpp divides by unconditionally.
const DIVISORS: [&str; 2] = ["full_attention_interval", "experts_per_group"];
/// Another divisor, for one family; elsewhere it may be 0.
const MOE_STEP: &str = "interleave_moe_layer_step";
/// Architectures whose key and value heads may have different sizes.
const WIDTHS_DIFFER: [&str; 14] = [
    "bailingmoe3",
    "deepseek2",
    "deepseek2-ocr",
    "deepseek32",
    "dots3note",
    "glm-dsa",
    "glm5-next",
    "kimi-k3",
    "kimi-linear",
    "mimo2",
    "minicpm3",
    "mistral4",
    "plm",
    "step35",
];
/// Architectures that apply rotary embedding to whole heads, or not at all.
const ROTATED_WHOLE: [&str; 61] = [
    "apertus",
    "arcee",
    "arctic",
    "baichuan",
    "chameleon",
    "codeshell",
    "cogvlm",
    "cohere2moe",
    "dbrx",
    "deci",
    "deepseek",
    "dots1",
    "dream",
    "ernie4_5",
    "ernie4_5-moe",
    "exaone",
    "exaone-moe",
    "exaone4",
    "falcon",
    "granite",
    "granite_swa",
    "granitemoe",
    "graniteswitch",
    "grok",
    "grovemoe",
    "hunyuan-dense",
    "hunyuan-moe",
    "hunyuan_vl",
    "hy_v3",
    "internlm2",
    "jais2",
    "llada",
    "llada-moe",
    "llama",
    "llama4",
    "maincoder",
    "mellum",
    "mistral3",
    "olmo",
    "olmo2",
    "olmoe",
    "orion",
    "paddleocr",
    "pangu-embedded",
    "plamo",
    "pockettts",
    "qwen2",
    "qwen2moe",
    "qwen2vl",
    "qwen3",
    "qwen3moe",
    "qwen3vl",
    "qwen3vlmoe",
    "rnd1",
    "seed_oss",
    "smallthinker",
    "smollm3",
    "starcoder2",
    "talkie",
    "xverse",
    "llama-embed",
];
const ROPE_SCALINGS: [&str; 4] = ["none", "linear", "yarn", "longrope"];
/// Kinds of vocabulary that add a beginning-of-text token by default.
const BEGINNING: [&str; 6] = ["llama3", "llama-v3", "llama-bpe", "falcon3", "tekken", "chameleon"];
