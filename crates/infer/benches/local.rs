//! Benchmarks the engine against its targets: `cargo bench -p heddle-infer --features llama -- MODEL`.
//!
//! Every figure except the last is a ratio of two measurements from one run, taken alternately, so that a
//! busy machine affects both.
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use infer::daemon::SPIN;
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
        println!("Name a model: cargo bench -p heddle-infer --features llama -- MODEL");
        return;
    };
    // As in the daemon, where waiting threads sleep after a while. It is read at program start.
    if std::env::var_os(SPIN.0).is_none() {
        let exe = std::env::current_exe().expect("this is a program");
        let again =
            Command::new(exe).args(std::env::args_os().skip(1)).env(SPIN.0, SPIN.1).status();
        return assert!(again.is_ok_and(|status| status.success()), "it runs again");
    }
    let path = Path::new(&path);
    let cold = median((0..3).map(|_| cold(path)).collect());
    let load = || {
        let options = Options { context_tokens: Some(CONTEXT), ..Options::default() };
        Llama::load(path, &options, &mut |_| ()).expect("it was loaded before")
    };
    let plain = LlamaModel::load_from_file(&BACKEND, path, &LlamaModelParams::default());
    let plain = plain.expect("it was loaded before");
    let prompt = load().tokenise(&[Piece::Template(PROMPT.to_owned())]);
    let start = |engine: &Llama, thread: &str, grammar: Option<&str>| {
        let job = Job {
            prompt: prompt.clone(),
            cache_key: Some(thread.to_owned()),
            grammar: grammar.map(str::to_owned),
            output_tokens_max: Some(TOKENS),
            ..Job::default()
        };
        engine.start(job).expect("there is room")
    };
    // Each has the machine to itself: a team's threads exist as long as the team, and with more threads than
    // cores they do not spin at all.
    let plain_speed = |sequences| {
        let run = || plain_speed(&plain, &prompt, sequences);
        thread::scope(|scope| scope.spawn(run).join().expect("it only runs"))
    };

    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let engine = load();
        let own = speed(vec![start(&engine, "a", None)]);
        let bound = speed(vec![start(&engine, "a", Some(GRAMMAR))]);
        let four = speed(["a", "b", "c", "d"].map(|name| start(&engine, name, None)).into());
        let crowded = speed(vec![start(&engine, "a", None)]);
        let (read, after) = reading(&engine, round);
        let one_agent = agents(&engine, &format!("{round} for one"), 1);
        let four_agents = agents(&engine, &format!("{round} for four"), 4);
        drop(engine);
        let (plain, plain_four) = (plain_speed(1), plain_speed(4));
        rounds.push(Round {
            own,
            plain,
            bound,
            four,
            plain_four,
            crowded,
            read,
            after,
            one_agent,
            four_agents,
        });
    }
    let of = |what: fn(&Round) -> f64| median(rounds.iter().map(what).collect());
    println!(
        "tokens/s: {:.1} for one session, {:.1} for llama.cpp by itself, {:.1} under a grammar, \
         {:.1} for four sessions; {:.0} where a prompt of 1,000 tokens is read, {:.1} \
         after it\n",
        of(|round| round.own),
        of(|round| round.plain),
        of(|round| round.bound),
        of(|round| round.four),
        of(|round| round.read),
        of(|round| round.after),
    );
    println!("{:<60} {:>8} {:>8}", "what", "measured", "target");
    let at_least = Target::AtLeast;
    row("generation / llama.cpp by itself", of(|round| round.own / round.plain), at_least(0.95));
    row("  beside three idle threads", of(|round| round.crowded / round.plain), Target::None);
    row("second turn: share that is read again", second_turn(&load()), Target::AtMost(0.10));
    row("under a grammar / free", of(|round| round.bound / round.own), at_least(0.90));
    row("four sessions / one", of(|round| round.four / round.own), at_least(1.50));
    let most = of(|round| round.plain_four / round.plain);
    row("  llama.cpp by itself, four sequences in a batch / one", most, Target::None);
    // A shared prompt prefix is evaluated once: this measures the cache, not the engine.
    let agents = of(|round| round.four_agents / round.one_agent);
    row("  four agents / one, answers per second, instructions in common", agents, Target::None);
    row("start to first token, seconds", cold, Target::AtMost(1.50));
}

/// What is measured alternately: tokens per second, and for agents answers per second.
struct Round {
    own: f64,
    plain: f64,
    bound: f64,
    four: f64,
    plain_four: f64,
    crowded: f64,
    read: f64,
    after: f64,
    one_agent: f64,
    four_agents: f64,
}

enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Printed for comparison only.
    None,
}

fn row(what: &str, measured: f64, target: Target) {
    let verdict = |met| if met { "pass" } else { "MISS" };
    let (target, met) = match target {
        Target::AtLeast(limit) => (format!("≥ {limit:.2}"), verdict(measured >= limit)),
        Target::AtMost(limit) => (format!("≤ {limit:.2}"), verdict(measured <= limit)),
        Target::None => (String::new(), ""),
    };
    println!("{what:<60} {measured:>8.3} {target:>8} {met}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns how long it takes to load a model and generate the first token, in seconds.
fn cold(path: &Path) -> f64 {
    let begun = Instant::now();
    let engine = Llama::load(path, &Options::default(), &mut |_| ()).expect("this is a model");
    let prompt = engine.tokenise(&[Piece::Template(PROMPT.to_owned())]);
    let job = Job { prompt, output_tokens_max: Some(1), ..Job::default() };
    let mut generation = engine.start(job).expect("there is room");
    while !matches!(generation.steps.blocking_recv(), Some(Step::Token(_)) | None) {}
    begun.elapsed().as_secs_f64()
}

/// Returns the total tokens per second of several answers, from the first token of any to the last of all.
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

/// Returns the tokens per second of evaluating a long prompt without a cached prefix, and of generating after
/// it.
fn reading(engine: &Llama, round: usize) -> (f64, f64) {
    let text = format!("{round}: {}", "Read files before you change them. ".repeat(143));
    let prompt = engine.tokenise(&[Piece::Text(text)]);
    let tokens = prompt.len();
    let begun = Instant::now();
    let job = Job { prompt, output_tokens_max: Some(AGENT_TOKENS), ..Job::default() };
    let mut generation = engine.start(job).expect("there is room");
    while !matches!(generation.steps.blocking_recv(), Some(Step::Token(_)) | None) {}
    (tokens as f64 / begun.elapsed().as_secs_f64(), speed(vec![generation]))
}

/// Returns the answers per second of agents with the same instructions, which are not cached yet.
fn agents(engine: &Llama, nonce: &str, count: usize) -> f64 {
    let instructions = "You are an agent. Read files before you change them. ".repeat(40);
    let start = |agent: usize| {
        let text = format!(
            "<|im_start|>system\nThis is number {nonce}. {instructions}<|im_end|>\n<|im_start|>user\n\
             Agent {agent}: say what you are going to do.<|im_end|>\n<|im_start|>assistant\n"
        );
        let job = Job {
            prompt: engine.tokenise(&[Piece::Template(text)]),
            cache_key: Some(format!("{nonce} {agent}")),
            output_tokens_max: Some(AGENT_TOKENS),
            ..Job::default()
        };
        engine.start(job).expect("there is room")
    };
    let begun = Instant::now();
    let mut started: Vec<_> = (0..count).map(start).collect();
    for generation in &mut started {
        while generation.steps.blocking_recv().is_some() {}
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Returns the tokens per second of a minimal decode loop for this many sequences.
fn plain_speed(model: &LlamaModel, prompt: &[u32], sequences: i32) -> f64 {
    let threads = thread::available_parallelism().map_or(1, usize::from) as i32;
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(CONTEXT * sequences as u32))
        .with_n_seq_max(sequences as u32)
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    let mut context = model.new_context(&BACKEND, params).expect("there is memory");
    let mut sampler = LlamaSampler::greedy();
    let mut batch = LlamaBatch::new(512, 1);
    let mut tokens = Vec::new();
    for sequence in 0..sequences {
        batch.clear();
        for (position, &token) in (0..).zip(prompt) {
            let last = position as usize + 1 == prompt.len();
            let added = batch.add(LlamaToken(token as i32), position, &[sequence], last);
            added.expect("the prompt is short");
        }
        context.decode(&mut batch).expect("there is room");
        tokens.push(sampler.sample(&context, batch.n_tokens() - 1));
    }
    let (begun, first) = (Instant::now(), prompt.len() as i32);
    for position in first..first + TOKENS as i32 - 1 {
        batch.clear();
        for (sequence, &token) in (0..).zip(&tokens) {
            batch.add(token, position, &[sequence], true).expect("they are few");
        }
        context.decode(&mut batch).expect("there is room");
        for (row, token) in (0..).zip(&mut tokens) {
            *token = sampler.sample(&context, row);
        }
    }
    f64::from(sequences) * f64::from(TOKENS - 1) / begun.elapsed().as_secs_f64()
}

/// Runs a conversation of two turns, and returns how much of the second prompt was evaluated again.
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

/// The engine has initialized it. This must never be dropped, which would shut it down.
static BACKEND: LlamaBackend = LlamaBackend {};

const CONTEXT: u32 = 2048;
const TOKENS: u32 = 128;
/// As many as a tool call has.
const AGENT_TOKENS: u32 = 48;
const ROUNDS: usize = 9;
const PROMPT: &str = "<|im_start|>user\nWrite a long story about a weaver and her loom, with many \
     details.<|im_end|>\n<|im_start|>assistant\n";
/// Strings with any content, and so many that no answer reaches the end.
const GRAMMAR: &str =
    "start: %json {\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"minItems\": 100}";
