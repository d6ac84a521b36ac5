//! Compares our Harmony parser, on text and on token ids, with openai-harmony.
//!
//! Run `cargo run -- [CONVERSATIONS] [SEED]` in this folder. Conversations are random and either rendered by
//! openai-harmony or written with headers in the orders that models use; half of them are truncated at some
//! token. Input that we accept and openai-harmony refuses is not compared. `cargo run -- fixtures` writes what
//! openai-harmony renders and parses, for the tests of `prompt`.

use std::path::PathBuf;
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use openai_harmony::chat::{Author, Content, Message, Role};
use openai_harmony::{
    HarmonyEncoding, HarmonyEncodingName, StreamableParser, load_harmony_encoding,
};
use stream::canonical::{Canonical, Collector, Kind};
use stream::dialect::harmony::{Tokens, Vocabulary};
use stream::dialect::{Dialect, Format, Options, Parser, Tools};

mod fixtures;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|word| word == "fixtures") {
        write_vocabulary()?;
        return fixtures::write(&load_harmony_encoding(HarmonyEncodingName::HarmonyGptOss)?);
    }
    let count: u64 = arguments.next().map_or(Ok(2000), |word| word.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(1), |word| word.parse())?;
    write_vocabulary()?;
    let encoding = load_harmony_encoding(HarmonyEncodingName::HarmonyGptOss)?;
    let words = Words::new(&encoding)?;
    let mut tally = Tally::default();
    for seed in seed..seed + count {
        compare(&encoding, &words, seed, &mut tally).with_context(|| format!("seed {seed}"))?;
    }
    println!(
        "{count} conversations agree: {} messages, {} calls, {} cut short, {} also as text",
        tally.messages, tally.calls, tally.cut, tally.texts
    );
    Ok(())
}

#[derive(Default)]
struct Tally {
    messages: usize,
    calls: usize,
    cut: usize,
    texts: usize,
}

fn compare(encoding: &HarmonyEncoding, words: &Words, seed: u64, tally: &mut Tally) -> Result<()> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let messages: Vec<_> = (0..=random.below(4)).map(|_| message(&mut random)).collect();
    let mut tokens = if random.below(2) == 0 {
        let mut tokens = Vec::new();
        for message in &messages {
            encoding.render_into(message, &mut tokens, None)?;
        }
        tokens
    } else {
        messages.iter().flat_map(|message| write(encoding, message, &mut random)).collect()
    };
    // A completion begins after the prompt's `<|start|>assistant`, if the assistant speaks first.
    let speaks = messages[0].author.role == Role::Assistant;
    let role = (speaks && random.below(2) == 0).then_some(Role::Assistant);
    if role.is_some() {
        tokens.drain(..2);
    }
    if random.below(2) == 0 {
        tokens.truncate(random.below(tokens.len() as u64 + 1));
        tally.cut += 1;
        // Before the first marker we emit text, as an answer without a header.
        if tokens.iter().all(|id| *id < ORDINARY) {
            return Ok(());
        }
    }

    let theirs = read(encoding, role, &tokens)?;
    let want = merge(theirs.iter().filter_map(part));
    tally.messages += theirs.len();
    tally.calls += want.iter().filter(|part| matches!(part, Part::Call(..))).count();

    let mut collector = Collector::default();
    let mut parser = Tokens::new(words);
    tokens.iter().for_each(|id| parser.push(*id, &mut collector));
    parser.finish(&mut collector);
    let ours = merge(parts(collector));
    ensure!(ours == want, "as tokens we read {ours:?}, they read {want:?}");

    // As text, a marker is indistinguishable from its characters, and a character must not be split.
    let text = encoding.tokenizer().decode_utf8(&tokens);
    let Ok(text) = text else { return Ok(()) };
    let markers = tokens.iter().filter(|id| **id >= ORDINARY).count();
    let spelled: usize = MARKERS.iter().map(|word| text.matches(word).count()).sum();
    // Half a marker after complete arguments counts as a truncated marker.
    let half = |word: &str| (1..word.len()).any(|length| text.ends_with(&word[..length]));
    if spelled != markers || MARKERS.into_iter().any(half) {
        return Ok(());
    }
    tally.texts += 1;
    let format = Format::named("harmony").context("there is no Harmony in the table")?;
    let dialect = Dialect::new(format, &Options::default(), &Tools::default());
    let (mut parser, mut collector, mut from) = (Parser::new(&dialect), Collector::default(), 0);
    while from < text.len() {
        let mut to = (from + 1 + random.below(9)).min(text.len());
        while !text.is_char_boundary(to) {
            to += 1;
        }
        parser.push_str(&text[from..to], &mut collector);
        from = to;
    }
    parser.finish(&mut collector);
    let ours = merge(parts(collector));
    ensure!(ours == want, "as text we read {ours:?}, they read {want:?}: {text}");
    Ok(())
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Reasoning(String),
    Call(String, String),
}

/// Parses tokens with openai-harmony; if that fails, returns the messages so far.
fn read(encoding: &HarmonyEncoding, role: Option<Role>, tokens: &[u32]) -> Result<Vec<Message>> {
    let mut parser = StreamableParser::new(encoding.clone(), role)?;
    for token in tokens {
        parser.process(*token)?;
    }
    // It fails inside a header.
    let _ = parser.process_eos();
    Ok(parser.messages().to_vec())
}

fn part(message: &Message) -> Option<Part> {
    if message.author.role != Role::Assistant {
        return None;
    }
    let text = message.content.iter().filter_map(|content| match content {
        Content::Text(content) => Some(content.text.as_str()),
        _ => None,
    });
    let text: String = text.collect();
    Some(match (&message.recipient, message.channel.as_deref()) {
        (Some(recipient), _) => {
            let name = recipient.strip_prefix("functions.").unwrap_or(recipient);
            Part::Call(name.to_owned(), text)
        }
        (None, Some("analysis" | "commentary")) => Part::Reasoning(text),
        (None, _) => Part::Text(text),
    })
}

fn parts(collector: Collector) -> impl Iterator<Item = Part> {
    let mut name = String::new();
    let mut arguments = String::new();
    collector.into_events(false).into_iter().filter_map(move |Canonical { kind, .. }| match kind {
        Kind::Text { text } => Some(Part::Text(text)),
        Kind::Reasoning { text } => Some(Part::Reasoning(text)),
        Kind::ToolStart { name: called, .. } => {
            name = called;
            None
        }
        Kind::ToolArgs { text, .. } => {
            arguments = text;
            None
        }
        Kind::ToolEnd { .. } => {
            Some(Part::Call(std::mem::take(&mut name), std::mem::take(&mut arguments)))
        }
        _ => None,
    })
}

/// Merges adjacent parts of the same kind, as events do; drops empty ones.
fn merge(parts: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut merged: Vec<Part> = Vec::new();
    for part in parts {
        match (merged.last_mut(), &part) {
            (_, Part::Text(more) | Part::Reasoning(more)) if more.is_empty() => {}
            (Some(Part::Text(text)), Part::Text(more))
            | (Some(Part::Reasoning(text)), Part::Reasoning(more)) => text.push_str(more),
            _ => merged.push(part),
        }
    }
    merged
}

fn message(random: &mut Random) -> Message {
    let text: String = (0..random.below(8)).map(|_| random.pick(&PIECES)).collect();
    if random.below(8) == 0 {
        let author = Author::new(Role::Tool, random.pick(&["functions.f", "python"]));
        return Message::from_author_and_content(author, text)
            .with_recipient("assistant")
            .with_channel("commentary");
    }
    let channel = random.pick(&["analysis", "commentary", "final"]);
    let recipient =
        random.pick(&["", "functions.f", "functions.get_weather-2", "python", "browser.search"]);
    let text = if recipient.starts_with("functions.") && random.below(2) == 0 {
        serde_json::json!({ "a": text, "b": [1, {}] }).to_string()
    } else {
        text
    };
    let message = Message::from_role_and_content(Role::Assistant, text).with_channel(channel);
    match (recipient, random.below(3)) {
        ("", _) => message,
        (recipient, 0) => message.with_recipient(recipient).with_content_type("<|constrain|>json"),
        (recipient, 1) => message.with_recipient(recipient).with_content_type("code"),
        (recipient, _) => message.with_recipient(recipient),
    }
}

/// Renders a message as models do: the recipient before or after the channel, with or without blanks.
fn write(encoding: &HarmonyEncoding, message: &Message, random: &mut Random) -> Vec<u32> {
    let author = message.author.name.as_deref().unwrap_or("assistant");
    let to = message.recipient.as_deref().map(|recipient| format!(" to={recipient}"));
    let to = to.unwrap_or_default();
    let (before, after) = if random.below(2) == 0 { (&*to, "") } else { ("", &*to) };
    let channel = message.channel.as_deref().unwrap_or_default();
    let blank = random.pick(&["", " "]);
    let kind = message.content_type.as_deref().map_or(String::new(), |kind| {
        // A word needs a blank before it, a marker does not.
        format!("{}{kind}", if kind.starts_with('<') { blank } else { " " })
    });
    let header = format!("<|start|>{author}{before}<|channel|>{channel}{after}{kind}<|message|>");
    let mut tokens = encoding.tokenizer().encode_with_special_tokens(&header);
    if let [Content::Text(content)] = &message.content[..] {
        tokens.extend(encoding.tokenizer().encode_ordinary(&content.text));
    }
    let end = if message.recipient.is_some() { "<|call|>" } else { "<|end|>" };
    tokens.extend(encoding.tokenizer().encode_with_special_tokens(end));
    tokens
}

/// Puts the vocabulary where openai-harmony looks for it, so that nothing is downloaded.
fn write_vocabulary() -> Result<()> {
    let folder = env::var_os("TIKTOKEN_ENCODINGS_BASE").context("run `cargo run` in diff/")?;
    let file = PathBuf::from(folder).join("o200k_base.tiktoken");
    if file.exists() {
        return Ok(());
    }
    let vocabulary = tiktoken_rs::o200k_base()?;
    let mut lines = String::new();
    for id in 0..ORDINARY {
        let bytes = vocabulary.decode_bytes(&[id]).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        lines += &format!("{} {id}\n", base64::prelude::BASE64_STANDARD.encode(bytes));
    }
    fs::create_dir_all(file.parent().context("a folder")?)?;
    Ok(fs::write(file, lines)?)
}

/// The bytes of all ordinary tokens.
struct Words(Vec<Vec<u8>>);

impl Words {
    fn new(encoding: &HarmonyEncoding) -> Result<Self> {
        let bytes = |id| encoding.tokenizer().decode_bytes([id]);
        let words = (0..ORDINARY).map(bytes).collect::<Result<_, _>>();
        Ok(Self(words.map_err(|error| anyhow::anyhow!("{error:?}"))?))
    }
}

impl Vocabulary for &Words {
    fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.0.get(id as usize).map(Vec::as_slice)
    }
}

/// A repeatable random generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit) as usize
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u64)]
    }
}

/// How many tokens of the vocabulary are not special.
const ORDINARY: u32 = 199_998;

const MARKERS: [&str; 7] = [
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
];

const PIECES: [&str; 16] = [
    "Hello",
    " world",
    "\n",
    "é",
    " 👩‍👩‍👧",
    "日本語",
    "𓀀",
    "<",
    "<|",
    "<|end",
    "|>",
    "<|end|>",
    "<|start|>assistant",
    "{\"a\": 1}",
    " to=functions.f",
    "  ",
];
