//! Writes tiny model files with random weights, for tests that need a model but not its knowledge.
//!
//! [`llama`] is a plain transformer with the ChatML template; [`gpt_oss`] has the experts, the sliding window
//! and the special tokens of gpt-oss. The same seed gives the same file. Their output is noise: every token
//! that a grammar allows is about equally likely.

use std::io;
use std::path::Path;

/// A model file under construction; its fields are public, so that a test can corrupt them.
#[derive(Clone, Debug)]
pub struct Gguf {
    /// The metadata, in order.
    pub keys: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U16(u16),
    U32(u32),
    U64(u64),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
}

#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// Its dimensions, the innermost first.
    pub shape: Vec<u64>,
    pub data: Vec<f32>,
    pub packing: Packing,
}

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packing {
    F32,
    /// As 4 bits each, with a scale and a minimum for every 32 (`Q4_1`).
    FourBits,
}

/// Sizes of a model that matter to kernels.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub feed_forward: u32,
    /// Size of a head.
    pub head: u32,
    /// Number of heads, and of key-value heads.
    pub heads: (u32, u32),
}

impl Default for Sizes {
    fn default() -> Self {
        Self { feed_forward: FEED_FORWARD, head: HEAD, heads: (HEADS, HEADS_KV) }
    }
}

/// Builds a transformer with two layers and the ChatML template.
pub fn llama(seed: u64) -> Gguf {
    llama_of(seed, Sizes::default())
}

/// Builds one with these sizes.
pub fn llama_of(seed: u64, sizes: Sizes) -> Gguf {
    let Sizes { feed_forward, head, heads: (heads, heads_kv) } = sizes;
    let mut model = Gguf::new("llama", "Tiny", &CHATML, "gpt-2", CHATML_TEMPLATE);
    for key in ["attention.key_length", "attention.value_length", "rope.dimension_count"] {
        model.set(&format!("llama.{key}"), Value::U32(head));
    }
    model.set("llama.attention.head_count", Value::U32(heads));
    model.set("llama.attention.head_count_kv", Value::U32(heads_kv));
    model.set("llama.feed_forward_length", Value::U32(feed_forward));
    model.set("llama.vocab_size", Value::U32(model.vocabulary()));
    model.special("<|im_start|>", "<|im_end|>");
    let mut weights = Weights::new(seed);
    weights.ends(&mut model);
    let (wide, narrow) = (u64::from(EMBEDDING), u64::from(feed_forward));
    let (asked, kept) = (u64::from(head * heads), u64::from(head * heads_kv));
    for layer in 0..LAYERS {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        model.tensors.push(weights.ones(name("attn_norm"), wide));
        model.tensors.push(weights.random(name("attn_q"), &[wide, asked]));
        model.tensors.push(weights.random(name("attn_k"), &[wide, kept]));
        model.tensors.push(weights.random(name("attn_v"), &[wide, kept]));
        model.tensors.push(weights.random(name("attn_output"), &[asked, wide]));
        model.tensors.push(weights.ones(name("ffn_norm"), wide));
        model.tensors.push(weights.random(name("ffn_gate"), &[wide, narrow]));
        model.tensors.push(weights.random(name("ffn_up"), &[wide, narrow]));
        model.tensors.push(weights.random(name("ffn_down"), &[narrow, wide]));
    }
    model
}

/// Builds a model with the gpt-oss architecture: two layers, one of them with a sliding window, and four
/// experts, two of which are active.
pub fn gpt_oss(seed: u64) -> Gguf {
    let mut model = Gguf::new("gpt-oss", "Tiny OSS", &HARMONY, "gpt-4o", HARMONY_TEMPLATE);
    for (key, value) in [
        ("expert_count", EXPERTS as u32),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", FEED_FORWARD),
        ("attention.sliding_window", 32),
    ] {
        model.set(&format!("gpt-oss.{key}"), Value::U32(value));
    }
    model.special("<|startoftext|>", "<|return|>");
    let mut weights = Weights::new(seed);
    weights.ends(&mut model);
    let (wide, narrow) = (u64::from(EMBEDDING), u64::from(FEED_FORWARD));
    for layer in 0..LAYERS {
        let name = |part: &str| format!("blk.{layer}.{part}");
        model.tensors.push(weights.ones(name("attn_norm.weight"), wide));
        model.tensors.push(weights.ones(name("post_attention_norm.weight"), wide));
        for (part, width) in [("attn_q", wide), ("attn_k", KV_WIDTH), ("attn_v", KV_WIDTH)] {
            model.tensors.push(weights.random(name(&format!("{part}.weight")), &[wide, width]));
            model.tensors.push(weights.random(name(&format!("{part}.bias")), &[width]));
        }
        model.tensors.push(weights.random(name("attn_output.weight"), &[wide, wide]));
        model.tensors.push(weights.random(name("attn_output.bias"), &[wide]));
        model.tensors.push(weights.random(name("attn_sinks.weight"), &[u64::from(HEADS)]));
        model.tensors.push(weights.random(name("ffn_gate_inp.weight"), &[wide, EXPERTS]));
        model.tensors.push(weights.random(name("ffn_gate_inp.bias"), &[EXPERTS]));
        for (part, inner, outer) in
            [("gate", wide, narrow), ("down", narrow, wide), ("up", wide, narrow)]
        {
            let part = name(&format!("ffn_{part}_exps"));
            model.tensors.push(weights.random(format!("{part}.weight"), &[inner, outer, EXPERTS]));
            model.tensors.push(weights.random(format!("{part}.bias"), &[outer, EXPERTS]));
        }
    }
    model
}

impl Gguf {
    /// Starts a model: its sizes, its vocabulary, its template.
    fn new(architecture: &str, name: &str, specials: &[&str], words: &str, template: &str) -> Self {
        let mut model = Self { keys: Vec::new(), tensors: Vec::new() };
        model.set("general.architecture", Value::Text(architecture.to_owned()));
        model.set("general.name", Value::Text(name.to_owned()));
        for (key, value) in [
            ("context_length", CONTEXT_TOKENS),
            ("embedding_length", EMBEDDING),
            ("block_count", LAYERS),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", HEADS_KV),
            ("attention.key_length", HEAD),
            ("attention.value_length", HEAD),
            ("rope.dimension_count", HEAD),
        ] {
            model.set(&format!("{architecture}.{key}"), Value::U32(value));
        }
        model.set(&format!("{architecture}.rope.freq_base"), Value::F32(10_000.0));
        let epsilon = format!("{architecture}.attention.layer_norm_rms_epsilon");
        model.set(&epsilon, Value::F32(1e-5));
        let mut tokens: Vec<String> = (0..=u8::MAX).map(|byte| letter(byte).to_string()).collect();
        let mut merges = Vec::new();
        for (left, right) in MERGES {
            merges.push(format!("{left} {right}"));
            tokens.push(format!("{left}{right}"));
        }
        let mut types = vec![NORMAL; tokens.len()];
        tokens.extend(specials.iter().map(ToString::to_string));
        types.resize(tokens.len(), CONTROL);
        model.set("tokenizer.ggml.model", Value::Text("gpt2".to_owned()));
        model.set("tokenizer.ggml.pre", Value::Text(words.to_owned()));
        model.set("tokenizer.ggml.tokens", Value::Texts(tokens));
        model.set("tokenizer.ggml.token_type", Value::I32s(types));
        model.set("tokenizer.ggml.merges", Value::Texts(merges));
        model.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
        model.set("tokenizer.chat_template", Value::Text(template.to_owned()));
        model
    }

    /// Sets a key, replacing an existing one.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.keys.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.keys.push((key.to_owned(), value)),
        }
    }

    /// Sets the context size, by default 4096.
    #[must_use]
    pub fn context_tokens(mut self, tokens: u32) -> Self {
        let architecture = self.architecture().to_owned();
        self.set(&format!("{architecture}.context_length"), Value::U32(tokens));
        self
    }

    /// Quantizes all matrices whose rows allow it, and rounds each weight accordingly.
    #[must_use]
    pub fn pack(mut self) -> Self {
        for tensor in &mut self.tensors {
            if tensor.shape.len() > 1 && tensor.shape[0].is_multiple_of(BLOCK as u64) {
                tensor.packing = Packing::FourBits;
                tensor.data = tensor.blocks().flat_map(|block| block.unpacked()).collect();
            }
        }
        self
    }

    /// Stores all matrices unquantized: the same weights, in more space.
    #[must_use]
    pub fn unpack(mut self) -> Self {
        for tensor in &mut self.tensors {
            tensor.packing = Packing::F32;
        }
        self
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend_from_slice(&3_u32.to_le_bytes());
        out.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            put_text(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            put_text(&mut out, &tensor.name);
            out.extend_from_slice(&(tensor.shape.len() as u32).to_le_bytes());
            for extent in &tensor.shape {
                out.extend_from_slice(&extent.to_le_bytes());
            }
            let kind: u32 = match tensor.packing {
                Packing::F32 => 0,
                Packing::FourBits => 3,
            };
            out.extend_from_slice(&kind.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            offset += (tensor.to_bytes().len() as u64).next_multiple_of(ALIGNMENT as u64);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend(tensor.to_bytes());
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.to_bytes())
    }

    /// Splits the model into this many parts. The first has all metadata and no weights, as is common for
    /// large models.
    pub fn parts(&self, total: u16) -> Vec<Self> {
        let each = self.tensors.len().div_ceil(usize::from(total) - 1);
        let mut tensors = self.tensors.chunks(each);
        let part = |number| {
            let (keys, tensors) = match number {
                0 => (self.keys.clone(), Vec::new()),
                _ => (Vec::new(), tensors.next().unwrap_or_default().to_vec()),
            };
            let mut part = Self { keys, tensors };
            part.set("split.no", Value::U16(number));
            part.set("split.count", Value::U16(total));
            part.set("split.tensors.count", Value::I32(self.tensors.len() as i32));
            part
        };
        (0..total).map(part).collect()
    }

    fn architecture(&self) -> &str {
        match self.keys.first() {
            Some((_, Value::Text(name))) => name,
            _ => "",
        }
    }

    fn tokens(&self) -> &[String] {
        let list = self.keys.iter().find(|(key, _)| key == "tokenizer.ggml.tokens");
        match list {
            Some((_, Value::Texts(tokens))) => tokens,
            _ => &[],
        }
    }

    fn vocabulary(&self) -> u32 {
        self.tokens().len() as u32
    }

    fn special(&mut self, begin: &str, end: &str) {
        for (key, name) in [("bos", begin), ("eos", end)] {
            let id = self.tokens().iter().position(|token| token == name).unwrap_or(0);
            self.set(&format!("tokenizer.ggml.{key}_token_id"), Value::U32(id as u32));
        }
    }
}

impl Tensor {
    fn to_bytes(&self) -> Vec<u8> {
        match self.packing {
            Packing::F32 => self.data.iter().flat_map(|weight| weight.to_le_bytes()).collect(),
            Packing::FourBits => self.blocks().flat_map(|block| block.to_bytes()).collect(),
        }
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        self.data.chunks_exact(BLOCK).map(Block::new)
    }
}

/// Weights of 4 bits: each is `scale * number + minimum`.
struct Block {
    scale: f32,
    minimum: f32,
    numbers: [u8; BLOCK],
}

impl Block {
    fn new(weights: &[f32]) -> Self {
        let least = weights.iter().copied().fold(f32::INFINITY, f32::min);
        let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (scale, minimum) = (short((most - least) / 15.0), short(least));
        let number = |at: usize| ((weights[at] - minimum) / scale).round().clamp(0.0, 15.0) as u8;
        Self { scale, minimum, numbers: std::array::from_fn(number) }
    }

    fn unpacked(&self) -> [f32; BLOCK] {
        self.numbers.map(|number| self.scale * f32::from(number) + self.minimum)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let (low, high) = self.numbers.split_at(BLOCK / 2);
        let mut out = half(self.scale).to_le_bytes().to_vec();
        out.extend(half(self.minimum).to_le_bytes());
        out.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
        out
    }
}

/// Rounds a number to the precision of a 16-bit float, unless it is out of range.
fn short(number: f32) -> f32 {
    f32::from_bits(number.to_bits() & !0x1fff)
}

/// Returns the 16-bit float of a [`short`] number.
fn half(number: f32) -> u16 {
    let bits = number.to_bits();
    let (sign, exponent, fraction) = (bits >> 31, bits >> 23 & 0xff, bits >> 13 & 0x3ff);
    assert!((113..143).contains(&exponent), "{number} is not in the range of 16 bits");
    (sign << 15 | (exponent - 112) << 10 | fraction) as u16
}

/// Random weights, deterministic by seed.
struct Weights(u64);

impl Weights {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Adds the tensors before and after the layers.
    fn ends(&mut self, model: &mut Gguf) {
        let (wide, words) = (u64::from(EMBEDDING), u64::from(model.vocabulary()));
        model.tensors.push(self.random("token_embd.weight".to_owned(), &[wide, words]));
        model.tensors.push(self.ones("output_norm.weight".to_owned(), wide));
        model.tensors.push(self.random("output.weight".to_owned(), &[wide, words]));
    }

    fn ones(&mut self, name: String, width: u64) -> Tensor {
        Tensor { name, shape: vec![width], data: vec![1.0; width as usize], packing: Packing::F32 }
    }

    /// Creates weights that preserve the magnitude of their input.
    fn random(&mut self, name: String, shape: &[u64]) -> Tensor {
        let reach = (3.0 / shape[0] as f32).sqrt();
        let count = shape.iter().product::<u64>();
        let data = (0..count).map(|_| (self.next() * 2.0 - 1.0) * reach).collect();
        Tensor { name, shape: shape.to_vec(), data, packing: Packing::F32 }
    }

    /// Returns a number from 0 to 1 (SplitMix64).
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1_u64 << 24) as f32
    }
}

/// Returns the character for a byte in GPT-2 vocabularies: itself if printable, otherwise one beyond Latin-1.
fn letter(byte: u8) -> char {
    let seen = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if seen(byte) {
        return char::from(byte);
    }
    let unseen = (0..byte).filter(|&earlier| !seen(earlier)).count() as u32;
    char::from_u32(256 + unseen).expect("there are 68 of them, all of them letters")
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let kind = |out: &mut Vec<u8>, kind: u32| out.extend_from_slice(&kind.to_le_bytes());
    match value {
        Value::U16(number) => {
            kind(out, 2);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::U32(number) => {
            kind(out, 4);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::I32(number) => {
            kind(out, 5);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::F32(number) => {
            kind(out, 6);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Bool(yes) => {
            kind(out, 7);
            out.push(u8::from(*yes));
        }
        Value::Text(text) => {
            kind(out, 8);
            put_text(out, text);
        }
        Value::U64(number) => {
            kind(out, 10);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Texts(texts) => {
            kind(out, 9);
            kind(out, 8);
            out.extend_from_slice(&(texts.len() as u64).to_le_bytes());
            for text in texts {
                put_text(out, text);
            }
        }
        Value::I32s(numbers) => {
            kind(out, 9);
            kind(out, 5);
            out.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
            for number in numbers {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        Value::F32s(numbers) => {
            kind(out, 9);
            kind(out, 6);
            out.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
            for number in numbers {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
}

const CONTEXT_TOKENS: u32 = 4096;
const EMBEDDING: u32 = 64;
const FEED_FORWARD: u32 = 128;
const LAYERS: u32 = 2;
const HEADS: u32 = 4;
const HEADS_KV: u32 = 2;
const HEAD: u32 = EMBEDDING / HEADS;
const KV_WIDTH: u64 = (HEAD * HEADS_KV) as u64;
const EXPERTS: u64 = 4;
const ALIGNMENT: usize = 32;
/// Weights that share a scale.
const BLOCK: usize = 32;
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// A few tokens longer than a byte, so that text can be tokenized in more than one way.
const MERGES: [(&str, &str); 4] = [("t", "h"), ("th", "e"), ("\"", ":"), ("Ġ", "\"")];

const CHATML: [&str; 5] =
    ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"];
const CHATML_TEMPLATE: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + \
     message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\n' }}{% endif %}";

const HARMONY: [&str; 9] = [
    "<|startoftext|>",
    "<|endoftext|>",
    "<|return|>",
    "<|constrain|>",
    "<|channel|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|call|>",
];
const HARMONY_TEMPLATE: &str = "{# Harmony: rendered by the daemon itself. #}";

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    #[test]
    fn a_seed_makes_one_file_that_is_small() {
        let begin = Instant::now();
        for make in [super::llama, super::gpt_oss] {
            let bytes = make(1).to_bytes();
            assert!(bytes.len() < 2 << 20, "{} bytes", bytes.len());
            assert!(bytes == make(1).to_bytes());
            assert!(bytes != make(2).to_bytes());
        }
        assert!(begin.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn letters_are_those_of_gpt_2() {
        let letters: String =
            [0, b'\n', b' ', b'a', 0x7f, 0xa0, 0xad, 0xff].map(super::letter).iter().collect();
        assert_eq!(letters, "ĀĊĠaġłŃÿ");
    }
}
