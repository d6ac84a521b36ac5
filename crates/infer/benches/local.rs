//! How fast the engine is, beside what was promised: `cargo bench -p infer --features llama -- MODEL`.
//!
//! Every figure but the last is a ratio of two things that are measured in one run, in turns, so that a busy
//! machine spoils both.
#![expect(clippy::print_stdout, reason = "this is what it is for")]

use std::num::NonZeroU32;
use std::path::Path;
use std::thread;
use std::time::Instant;

use infer::engine::{Engine, Generation, Job, Step};
use infer::llama::{Llama, Options};
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use prompt::Piece;

fn main() {
    // Cargo adds an option of its own.
    let Some(path) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) else {
        println!("Name a model: cargo bench -p infer --features llama -- MODEL");
        return;
    };
    let path = Path::new(&path);
    let cold = median((0..3).map(|_| cold(path)).collect());
    let options = Options { context_tokens: Some(CONTEXT), ..Options::default() };
    let engine = Llama::load(path, &options, &mut |_| ()).expect("it was loaded before");
    let plain = LlamaModel::load_from_file(&BACKEND, path, &LlamaModelParams::default());
    let plain = plain.expect("it was loaded before");
    let prompt = engine.tokenise(&[Piece::Template(PROMPT.to_owned())]);
    let job = |grammar: Option<&str>| Job {
        prompt: prompt.clone(),
        grammar: grammar.map(str::to_owned),
        output_tokens_max: Some(TOKENS),
        ..Job::default()
    };
    let start = |grammar| engine.start(job(grammar)).expect("there is room");

    let (mut own, mut theirs, mut bound, mut four) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        own.push(speed(vec![start(None)]));
        theirs.push(plain_speed(&plain, &prompt));
        bound.push(speed(vec![start(Some(GRAMMAR))]));
        four.push(speed((0..4).map(|_| start(None)).collect()));
    }
    let (own, theirs, bound, four) = (median(own), median(theirs), median(bound), median(four));
    println!(
        "tokens/s: {own:.1} for one session, {theirs:.1} for llama.cpp by itself, \
         {bound:.1} under a grammar, {four:.1} for four sessions\n"
    );
    println!("{:<40} {:>10} {:>10}", "what", "measured", "target");
    row("generation / llama.cpp by itself", own / theirs, Target::AtLeast(0.95));
    row("second turn: share that is read again", second_turn(&engine), Target::AtMost(0.10));
    row("under a grammar / free", bound / own, Target::AtLeast(0.90));
    row("four sessions / one", four / own, Target::AtLeast(1.50));
    row("start to first token, seconds", cold, Target::AtMost(1.50));
}

enum Target {
    AtLeast(f64),
    AtMost(f64),
}

fn row(what: &str, measured: f64, target: Target) {
    let (target, met) = match target {
        Target::AtLeast(limit) => (format!("≥ {limit:.2}"), measured >= limit),
        Target::AtMost(limit) => (format!("≤ {limit:.2}"), measured <= limit),
    };
    println!("{what:<40} {measured:>10.3} {target:>10} {}", if met { "pass" } else { "MISS" });
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Loads a model and waits for its first token, in seconds.
fn cold(path: &Path) -> f64 {
    let begun = Instant::now();
    let engine = Llama::load(path, &Options::default(), &mut |_| ()).expect("this is a model");
    let prompt = engine.tokenise(&[Piece::Template(PROMPT.to_owned())]);
    let job = Job { prompt, output_tokens_max: Some(1), ..Job::default() };
    let mut generation = engine.start(job).expect("there is room");
    while !matches!(generation.steps.blocking_recv(), Some(Step::Token(_)) | None) {}
    begun.elapsed().as_secs_f64()
}

/// Returns the tokens per second of answers together, from the first token of any to the last of all.
fn speed(started: Vec<Generation>) -> f64 {
    let reader = |mut generation: Generation| {
        move || {
            let mut times = Vec::new();
            while let Some(step) = generation.steps.blocking_recv() {
                if matches!(step, Step::Token(_)) {
                    times.push(Instant::now());
                }
            }
            times
        }
    };
    let readers: Vec<_> =
        started.into_iter().map(|started| thread::spawn(reader(started))).collect();
    let times = readers.into_iter().map(|reader| reader.join().expect("it only reads"));
    let mut times: Vec<_> = times.flatten().collect();
    times.sort();
    let span = times[times.len() - 1] - times[0];
    (times.len() - 1) as f64 / span.as_secs_f64()
}

/// Returns the tokens per second of the shortest loop there is.
fn plain_speed(model: &LlamaModel, prompt: &[u32]) -> f64 {
    let threads = thread::available_parallelism().map_or(1, usize::from) as i32;
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(CONTEXT))
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    let mut context = model.new_context(&BACKEND, params).expect("there is memory");
    let mut sampler = LlamaSampler::greedy();
    let mut batch = LlamaBatch::new(512, 1);
    for (position, &token) in (0..).zip(prompt) {
        let last = position as usize + 1 == prompt.len();
        batch.add(LlamaToken(token as i32), position, &[0], last).expect("the prompt is short");
    }
    context.decode(&mut batch).expect("there is room");
    let mut token = sampler.sample(&context, batch.n_tokens() - 1);
    let (begun, first) = (Instant::now(), prompt.len() as i32);
    for position in first..first + TOKENS as i32 - 1 {
        batch.clear();
        batch.add(token, position, &[0], true).expect("it is one");
        context.decode(&mut batch).expect("there is room");
        token = sampler.sample(&context, 0);
    }
    f64::from(TOKENS - 1) / begun.elapsed().as_secs_f64()
}

/// Has a conversation of two turns, and returns how much of the second prompt was read again.
fn second_turn(engine: &Llama) -> f64 {
    let turn = |text: &str| {
        let asked = format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n");
        engine.tokenise(&[Piece::Template(asked)])
    };
    let mut prompt = turn(&"You are careful, and you explain what you do. ".repeat(40));
    let mut share = 1.0;
    for question in ["What is a thread?", "And a loom?"] {
        prompt.extend(turn(question));
        let key = Some("conversation".to_owned());
        let job = Job {
            prompt: prompt.clone(),
            cache_key: key,
            output_tokens_max: Some(32),
            ..Job::default()
        };
        let mut generation = engine.start(job).expect("there is room");
        let read = prompt.len();
        while let Some(step) = generation.steps.blocking_recv() {
            match step {
                Step::Begun { cached } => share = (read - cached as usize) as f64 / read as f64,
                Step::Token(token) => prompt.push(token),
                Step::Ended(_) => {}
            }
        }
    }
    share
}

/// The engine has started it. This must never be dropped, which would end it.
static BACKEND: LlamaBackend = LlamaBackend {};

const CONTEXT: u32 = 2048;
const TOKENS: u32 = 128;
const ROUNDS: usize = 5;
const PROMPT: &str = "<|im_start|>user\nWrite a long story about a weaver and her loom, with many \
     details.<|im_end|>\n<|im_start|>assistant\n";
/// Strings of any content, and so many that no answer comes to the end of them.
const GRAMMAR: &str =
    "start: %json {\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"minItems\": 100}";
