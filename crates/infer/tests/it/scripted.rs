//! An engine that follows commands in the prompt: `[[say TEXT]]`, `[[slow MS TEXT]]`, `[[hang]]`, `[[fail]]`,
//! `[[flood N]]`, `[[call NAME JSON]]`. The last command counts; after a tool output, it repeats that output.
//! Its tokens are bytes, plus a few special ones, which are written by name. A prompt with `[[ponder]]` is
//! tokenized for as long as it is wanted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use infer::engine::{Ended, Engine, Generation, Job, Stats, Step, Workings};
use prompt::refusal::Refusal;
use prompt::{Facts, Piece, Token};
use tokio::sync::{Semaphore, mpsc};

/// Those of ChatML, and those of Harmony.
const SPECIALS: [&str; 9] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
];
const BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = byte as u8;
        byte += 1;
    }
    bytes
};
/// Tokens buffered for a reader.
pub(crate) const STEPS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Scripted {
    facts: Facts,
    context_tokens: u32,
    waiting_max: usize,
    slots: Arc<Semaphore>,
    pub(crate) seen: Arc<Seen>,
}

/// What an engine did.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) running: AtomicUsize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) tokens: AtomicUsize,
    pub(crate) pondering: AtomicUsize,
    pub(crate) cancelled: Mutex<Vec<Instant>>,
    /// The cache keys of answers, in the order in which they began.
    pub(crate) order: Mutex<Vec<String>>,
    pub(crate) prompts: Mutex<Vec<String>>,
}

impl Scripted {
    pub(crate) fn new(slots: usize, waiting_max: usize) -> Self {
        let facts = Facts {
            architecture: "llama".to_owned(),
            template: Some(TEMPLATE.to_owned()),
            parameters: 7_000_000_000,
            context_tokens: 100_000,
            specials: SPECIALS[..2].iter().map(|&name| name.to_owned()).collect(),
            end: Some("<|im_end|>".to_owned()),
            ..Facts::default()
        };
        let slots = Arc::new(Semaphore::new(slots));
        Self { facts, context_tokens: 100_000, waiting_max, slots, seen: Arc::default() }
    }

    /// Returns the same for a model of the Harmony family.
    pub(crate) fn harmony(mut self) -> Self {
        self.facts.architecture = "gpt-oss".to_owned();
        self.facts.template = None;
        self.facts.specials = SPECIALS.map(str::to_owned).to_vec();
        self
    }
}

impl Engine for Scripted {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn context_tokens(&self) -> u32 {
        self.context_tokens
    }

    fn tokenise_while(&self, pieces: &[Piece], go_on: &mut dyn FnMut(usize) -> bool) -> Vec<u32> {
        let mut tokens = Vec::new();
        for piece in pieces {
            if !go_on(tokens.len()) {
                break;
            }
            if matches!(piece, Piece::Template(text) if text.contains("[[ponder]]")) {
                self.seen.pondering.fetch_add(1, Ordering::Relaxed);
                while go_on(tokens.len()) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.seen.pondering.fetch_sub(1, Ordering::Relaxed);
                break;
            }
            match piece {
                Piece::Text(text) => tokens.extend(text.bytes().map(u32::from)),
                Piece::Special(name) => tokens.extend(special(name)),
                Piece::Template(text) => {
                    let mut rest = &text[..];
                    while let Some(first) = rest.chars().next() {
                        if let Some(name) = SPECIALS.iter().find(|name| rest.starts_with(**name)) {
                            tokens.extend(special(name));
                            rest = &rest[name.len()..];
                        } else {
                            tokens.extend(rest[..first.len_utf8()].bytes().map(u32::from));
                            rest = &rest[first.len_utf8()..];
                        }
                    }
                }
            }
        }
        tokens
    }

    fn token(&self, id: u32) -> Token<'_> {
        let at = id as usize;
        match at.checked_sub(256) {
            Some(at) => Token { id, bytes: SPECIALS[at].as_bytes(), special: true },
            None => Token { id, bytes: &BYTES[at..=at], special: false },
        }
    }

    fn start(&self, job: Job) -> Result<Generation, Refusal> {
        let limit = u64::from(self.context_tokens);
        let used = job.prompt.len() as u64;
        if used >= limit {
            return Err(Refusal::ContextFull { used, wanted: 1, limit });
        }
        let waiting = self.seen.waiting.load(Ordering::SeqCst);
        if waiting >= self.waiting_max {
            return Err(Refusal::Busy { waiting });
        }
        let text: Vec<u8> =
            job.prompt.iter().flat_map(|id| self.token(*id).bytes).copied().collect();
        let text = String::from_utf8_lossy(&text).into_owned();
        self.seen.prompts.lock().unwrap().push(text.clone());
        let (steps, receiver) = mpsc::channel(STEPS_MAX);
        let play = Play { steps, seen: Arc::clone(&self.seen), max: job.output_tokens_max };
        self.seen.waiting.fetch_add(1, Ordering::SeqCst);
        let slots = Arc::clone(&self.slots);
        let key = job.cache_key.unwrap_or_default();
        tokio::runtime::Handle::current().spawn(async move {
            let slot = tokio::select! {
                slot = slots.acquire_owned() => slot.unwrap(),
                () = play.steps.closed() => {
                    play.seen.waiting.fetch_sub(1, Ordering::SeqCst);
                    return play.cancelled();
                }
            };
            play.seen.waiting.fetch_sub(1, Ordering::SeqCst);
            play.seen.running.fetch_add(1, Ordering::SeqCst);
            play.seen.order.lock().unwrap().push(key);
            if play.run(&text).await.is_none() {
                play.cancelled();
            }
            play.seen.running.fetch_sub(1, Ordering::SeqCst);
            drop(slot);
        });
        Ok(Generation { steps: receiver })
    }

    fn stats(&self) -> Stats {
        Stats {
            running: self.seen.running.load(Ordering::SeqCst),
            waiting: self.seen.waiting.load(Ordering::SeqCst),
            output_tokens: self.seen.tokens.load(Ordering::SeqCst) as u64,
            memory_bytes: 1234,
            ..Stats::default()
        }
    }

    fn workings(&self) -> Workings {
        Workings { kernels: "a script".to_owned(), threads: 3 }
    }
}

fn special(name: &str) -> Option<u32> {
    let at = SPECIALS.iter().position(|special| *special == name)?;
    u32::try_from(256 + at).ok()
}

struct Play {
    steps: mpsc::Sender<Step>,
    seen: Arc<Seen>,
    max: Option<u32>,
}

impl Play {
    fn cancelled(&self) {
        self.seen.cancelled.lock().unwrap().push(Instant::now());
    }

    /// Follows the prompt; `None` if the reader is gone.
    async fn run(&self, prompt: &str) -> Option<()> {
        self.steps.send(Step::Begun { cached: 3 }).await.ok()?;
        let output = prompt.rfind("tool\n").map(|at| (at, &prompt[at + 5..]));
        let command = prompt.rfind("[[").unwrap_or_default();
        let after = prompt[command..].trim_start_matches("[[");
        let words = after.split("]]").next().unwrap_or_default();
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        let ended = match (word, output) {
            ("call", Some((at, text))) if at > command => {
                let text = text.split("<|im_end|>").next().unwrap_or_default();
                self.say(&format!("it said: {text}"), Duration::ZERO).await?
            }
            ("call", _) => {
                let (name, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                let call = format!(
                    "<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>"
                );
                self.say(&call, Duration::ZERO).await?
            }
            ("slow", _) => {
                let (ms, text) = rest.split_once(' ').unwrap_or((rest, ""));
                self.say(text, Duration::from_millis(ms.parse().unwrap())).await?
            }
            ("hang", _) => {
                self.say("a", Duration::ZERO).await?;
                self.steps.closed().await;
                return None;
            }
            ("flood", _) => {
                let line = "0123456789abcdef".repeat(64);
                for _ in 0..rest.parse::<usize>().unwrap() {
                    self.say(&line, Duration::ZERO).await?;
                }
                Ended::Stop
            }
            ("fail", _) => {
                self.say("half", Duration::ZERO).await?;
                Ended::Failed("the engine broke".to_owned())
            }
            _ => self.say(rest, Duration::ZERO).await?,
        };
        self.steps.send(Step::Ended(ended)).await.ok()
    }

    async fn say(&self, text: &str, pause: Duration) -> Option<Ended> {
        for (said, token) in tokens_of(text).enumerate() {
            if self.max.is_some_and(|max| said >= max as usize) {
                return Some(Ended::Length);
            }
            if !pause.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.steps.closed() => return None,
                }
            }
            self.steps.send(Step::Token(token)).await.ok()?;
            self.seen.tokens.fetch_add(1, Ordering::SeqCst);
        }
        Some(Ended::Stop)
    }
}

/// Splits text into bytes and special tokens.
fn tokens_of(text: &str) -> impl Iterator<Item = u32> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let known = SPECIALS.iter().find(|name| rest.starts_with(name.as_bytes()));
        let (token, length) = match known.and_then(|name| Some((special(name)?, name.len()))) {
            Some(found) => found,
            None => (first.into(), 1),
        };
        rest = &rest[length..];
        Some(token)
    })
}

/// A template with tools in the Hermes format.
const TEMPLATE: &str = "{%- if tools %}<|im_start|>system\nTools: <tools>{{ tools | tojson }}</tools> \
Call with <tool_call>{\"name\": …, \"arguments\": …}</tool_call><|im_end|>\n{% endif %}\
{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}\
{%- for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}\
<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
