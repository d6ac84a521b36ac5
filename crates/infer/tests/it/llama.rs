//! The engine with tiny models of random weights, and with the one that heddle comes with.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use infer::engine::{Ended, Engine, Generation, Job, Step};
use infer::llama::{Llama, LoadError, Options};
use prompt::refusal::Refusal;
use prompt::{Piece, Sampling};
use serde_json::Value;
use testkit::gguf::{self, Gguf, gpt_oss, llama};

fn try_load(model: &Gguf, options: &Options) -> Result<Llama, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    model.write(&path).unwrap();
    // The mapping stays valid when the file is removed.
    Llama::load(&path, options, &mut |_| ())
}

/// An unwanted prompt is not tokenized to its end.
#[test]
fn tokenizing_stops_when_cancelled() {
    let engine = load(&llama(1));
    let long = [Piece::Text("some words ".repeat(100_000))];
    let all = engine.tokenise(&long);
    let mut most = 0;
    let some = engine.tokenise_while(&long, &mut |count| {
        most = count;
        count < all.len() / 3
    });
    assert!(some.len() == most && most < all.len() / 2, "{most} of {}", all.len());
    assert_eq!(said(&engine, &all), "some words ".repeat(100_000));
}

/// Large models come in several files; they generate the same as in one.
#[test]
fn a_model_in_parts() {
    let whole = llama(7);
    let folder = tempfile::tempdir().unwrap();
    for (index, part) in (1..).zip(whole.parts(3)) {
        part.write(&folder.path().join(format!("m-{index:05}-of-00003.gguf"))).unwrap();
    }
    let first = folder.path().join("m-00001-of-00003.gguf");
    let parts = Llama::load(&first, &OPTIONS, &mut |_| ()).unwrap();
    let whole = load(&whole);
    let prompt = text(&whole, "The answer is");
    let want = run(&whole, letters(&prompt, 20));
    assert_eq!(run(&parts, letters(&prompt, 20)), want);
}

fn load(model: &Gguf) -> Llama {
    try_load(model, &OPTIONS).unwrap()
}

fn text(engine: &Llama, text: &str) -> Vec<u32> {
    engine.tokenise(&[Piece::Text(text.to_owned())])
}

fn job(prompt: &[u32], tokens: u32) -> Job {
    Job { prompt: prompt.to_vec(), output_tokens_max: Some(tokens), ..Job::default() }
}

/// An answer of this many letters: unconstrained, a random model ends at random.
fn letters(prompt: &[u32], letters: u32) -> Job {
    let grammar = Some(format!("start: /[a-z ]{{{letters}}}/"));
    Job { prompt: prompt.to_vec(), grammar, ..Job::default() }
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    cached: u32,
    tokens: Vec<u32>,
    ended: Ended,
}

fn read(mut generation: Generation) -> Answer {
    let (mut cached, mut tokens) = (None, Vec::new());
    loop {
        match generation.steps.blocking_recv().expect("the end is told") {
            Step::Begun { cached: count } => assert_eq!(cached.replace(count), None),
            Step::Token(token) => tokens.push(token),
            Step::Ended(ended) => return Answer { cached: cached.unwrap_or(0), tokens, ended },
        }
    }
}

fn run(engine: &Llama, job: Job) -> Answer {
    read(engine.start(job).unwrap())
}

fn said(engine: &Llama, tokens: &[u32]) -> String {
    let bytes = tokens.iter().flat_map(|&token| engine.token(token).bytes);
    String::from_utf8(bytes.copied().collect()).unwrap()
}

/// Waits until `done`, and returns how long that took.
fn wait(mut done: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it never happens");
        std::thread::sleep(Duration::from_millis(1));
    }
    begun.elapsed()
}

#[test]
fn text_goes_in_and_comes_out() {
    for model in [llama(1), gpt_oss(1)] {
        let engine = load(&model);
        let facts = engine.facts();
        for name in &facts.specials {
            // As text it is only text, whatever llama.cpp makes of it.
            let tokens = text(&engine, &format!("a {name}{name} the b"));
            assert!(tokens.iter().all(|&token| !engine.token(token).special), "{name}");
            assert_eq!(said(&engine, &tokens), format!("a {name}{name} the b"));
            let special = engine.tokenise(&[Piece::Special(name.clone())]);
            assert_eq!(engine.tokenise(&[Piece::Template(name.clone())]), special);
            assert_eq!(special.len(), 1);
            let token = engine.token(special[0]);
            assert!(token.special && token.bytes == name.as_bytes(), "{token:?}");
        }
        let odd = "\0\u{1}ünï \u{1f9f5} «the»\r\n\t\"x\": ";
        assert_eq!(said(&engine, &text(&engine, odd)), odd);
        assert!(engine.tokenise(&[Piece::Text(String::new())]).is_empty());
        // Runs that would overflow the stack of recursive regular expressions.
        for run in ["x", " ", "=", "漢", "7", "<|"] {
            let long = run.repeat(100_000);
            for piece in [Piece::Text(long.clone()), Piece::Template(long.clone())] {
                assert_eq!(said(&engine, &engine.tokenise(&[piece])), long);
            }
        }
        assert!(engine.token(u32::MAX).bytes.is_empty());
    }
}

#[test]
fn a_second_turn_reads_little() {
    for model in [llama(2), gpt_oss(2)] {
        let engine = load(&model);
        let keyed = |prompt: &[u32]| Job { cache_key: Some("t".into()), ..letters(prompt, 20) };
        let mut prompt = text(&engine, &"You are a tiny model. ".repeat(20));
        let first = run(&engine, keyed(&prompt));
        assert_eq!(first.cached, 0);
        prompt.extend(&first.tokens);
        prompt.extend(text(&engine, "And then?"));
        let second = run(&engine, keyed(&prompt));
        assert!(
            second.cached as usize * 10 >= prompt.len() * 9,
            "{} of {}",
            second.cached,
            prompt.len()
        );
        // The KV cache is equivalent to a fresh evaluation.
        let fresh = load(&model);
        assert_eq!(run(&fresh, keyed(&prompt)).tokens, second.tokens);
        // Another thread shares the prefix.
        let mut other = prompt[..200].to_vec();
        other.extend(text(&engine, "Something else."));
        let third = run(&engine, Job { cache_key: Some("u".into()), ..letters(&other, 20) });
        assert_eq!(third.cached, 200);
        assert_eq!(run(&load(&model), letters(&other, 20)).tokens, third.tokens);
        let stats = engine.stats();
        assert_eq!(stats.cached_tokens, u64::from(second.cached + third.cached));
        assert!(stats.output_tokens >= 30 && stats.memory_bytes > 1 << 20, "{stats:?}");
    }
}

#[test]
fn concurrent_answers_equal_separate_ones() {
    let (mut alike, mut answers) = (0, 0);
    for model in (1..6).flat_map(|seed| [llama(seed), gpt_oss(seed)]) {
        let engine = load(&model);
        let prompts: Vec<Vec<u32>> =
            (1..=4).map(|n| text(&engine, &"xyz the ".repeat(10 * n))).collect();
        let alone: Vec<_> =
            prompts.iter().map(|prompt| run(&load(&model), letters(prompt, 60)).tokens).collect();
        let started: Vec<_> =
            prompts.iter().map(|prompt| engine.start(letters(prompt, 60)).unwrap()).collect();
        let together: Vec<_> = started.into_iter().map(read).collect();
        alike += together.iter().zip(&alone).filter(|(a, b)| a.tokens == **b).count();
        answers += alone.len();
        // The shared prefix is evaluated once, so only the first one copies nothing.
        let copied: Vec<bool> = together.iter().map(|answer| answer.cached >= 60).collect();
        assert_eq!(copied, [false, true, true, true]);
    }
    // Sums in another order differ slightly, which matters if two tokens are equally likely.
    assert!(alike * 10 >= answers * 9, "{alike} of {answers}");
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let engine = load(&llama(4));
    let prompt = text(&engine, "Once upon a time");
    let draw = |seed| {
        let sampling = Sampling { temperature: 1.0, top_k: 50, seed, ..Sampling::default() };
        run(&engine, Job { sampling, ..job(&prompt, 30) }).tokens
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn a_dropped_generation_is_noticed() {
    let engine = load(&llama(5));
    let long = text(&engine, &"All work and no play. ".repeat(170));
    for prompt in [&long[..10], &long[..]] {
        // The best of several: other processes may want the machine too.
        let leave = |_| {
            let mut generation = engine.start(letters(prompt, 300)).unwrap();
            assert!(matches!(generation.steps.blocking_recv(), Some(Step::Begun { .. })));
            assert_eq!(engine.stats().running, 1);
            drop(generation);
            wait(|| engine.stats().running == 0)
        };
        let took = (0..5).map(leave).min().unwrap();
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
    // A queued client can disconnect too. The running ones are not read, and so never finish.
    let running: Vec<_> =
        (0..4).map(|_| engine.start(letters(&long[..10], 1000)).unwrap()).collect();
    wait(|| engine.stats().running == 4);
    let waiting = engine.start(letters(&long[..10], 10)).unwrap();
    assert_eq!(engine.stats().waiting, 1);
    drop(waiting);
    wait(|| engine.stats().waiting == 0);
    assert_eq!(engine.stats().running, 4);
    drop(running);
    wait(|| engine.stats().running == 0);
}

/// A client that disconnects during prompt evaluation costs the others only time: their answers stay the
/// same.
#[test]
fn aborted_batches_lose_nothing() {
    for (model, threads) in [(llama(3), 1), (gpt_oss(3), 2)] {
        let options = Options { threads: Some(threads), ..OPTIONS };
        let engine = try_load(&model, &options).unwrap();
        let prompt = text(&engine, "The answer is");
        let want = run(&engine, letters(&prompt, 120));
        let staying = engine.start(letters(&prompt, 120)).unwrap();
        let reader = thread::spawn(move || read(staying));
        let mut long = text(&engine, &"some words ".repeat(40));
        for round in 0..100_u64 {
            // It has no cached prefix.
            long[0] = 32 + round as u32;
            let mut leaving = engine.start(job(&long, 100)).unwrap();
            assert!(matches!(leaving.steps.blocking_recv(), Some(Step::Begun { .. })));
            thread::sleep(Duration::from_micros(round * 37 % 1500));
            drop(leaving);
            if reader.is_finished() {
                break;
            }
        }
        let stayed = reader.join().unwrap();
        assert_eq!((stayed.tokens, stayed.ended), (want.tokens.clone(), want.ended));
        wait(|| engine.stats().running == 0);
    }
}

#[test]
fn fifty_concurrent_requests_are_served_and_more_are_refused() {
    let options = Options { waiting_max: 46, ..OPTIONS };
    let engine = try_load(&llama(6), &options).unwrap();
    let prompts: Vec<_> = (0..50).map(|n| text(&engine, &format!("client {n} says"))).collect();
    // Nobody reads, so nobody finishes yet.
    let started: Vec<_> =
        prompts.iter().map(|prompt| engine.start(letters(prompt, 300)).unwrap()).collect();
    match engine.start(job(&prompts[0], 1)) {
        Err(Refusal::Busy { waiting }) => assert_eq!(waiting, 46),
        other => panic!("{other:?}"),
    }
    assert!(engine.stats().running <= 4);
    thread::scope(|scope| {
        for generation in started {
            scope.spawn(|| assert_eq!(read(generation).ended, Ended::Stop));
        }
    });
    wait(|| engine.stats().waiting + engine.stats().running == 0);
}

#[test]
fn the_context_has_a_limit() {
    let options = Options { context_tokens: Some(300), ..OPTIONS };
    let engine = try_load(&llama(7), &options).unwrap();
    assert_eq!(engine.context_tokens(), 300);
    let prompt = vec![65; 300];
    match engine.start(job(&prompt, 1)) {
        Err(Refusal::ContextFull { used: 300, wanted: 1, limit: 300 }) => {}
        other => panic!("{other:?}"),
    }
    // A grammar that never ends, so that the model does not either.
    let endless = Some("start: /[a-z]+/ \"!\"".to_owned());
    let answer =
        run(&engine, Job { output_tokens_max: None, grammar: endless, ..job(&prompt[..250], 0) });
    assert!(answer.tokens.len() <= 50);
    assert!(answer.tokens.len() == 50 || answer.ended == Ended::Stop, "{answer:?}");
    let answer = run(&engine, job(&prompt[..250], 0));
    assert_eq!((answer.tokens.len(), answer.ended), (0, Ended::Length));
    for (wrong, want) in [(Vec::new(), "empty"), (vec![1_000_000], "no token 1000000")] {
        let error = engine.start(job(&wrong, 1)).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}

/// With cells for only one of them, answers take turns, and lose nothing.
#[test]
fn when_memory_is_short_answers_take_turns() {
    let model = llama(8).context_tokens(512);
    let Err(LoadError::TooBig { needed, .. }) =
        try_load(&model, &Options { memory_bytes_max: Some(1), ..OPTIONS })
    else {
        panic!("there is no model of one byte")
    };
    let options = Options { memory_bytes_max: Some(needed), ..OPTIONS };
    let engine = try_load(&model, &options).unwrap();
    let jobs: Vec<_> = (0..4).map(|n| job(&[65 + n; 40], 200)).collect();
    let alone: Vec<_> = jobs.iter().map(|job| run(&load(&model), job.clone()).tokens).collect();
    assert!(alone.iter().map(Vec::len).sum::<usize>() > 400, "they must be too much together");
    let started: Vec<_> = jobs.into_iter().map(|job| engine.start(job).unwrap()).collect();
    for (generation, alone) in started.into_iter().zip(alone) {
        assert_eq!(read(generation).tokens, alone);
    }
}

#[test]
fn a_client_that_does_not_read_blocks_no_other() {
    let options = Options { sessions: 1, ..OPTIONS };
    let engine = try_load(&llama(9), &options).unwrap();
    let prompt = text(&engine, "Count: ");
    let grammar = Some("start: /[0-9]{1000}/".to_owned());
    let job = Job { prompt, grammar, ..Job::default() };
    let asleep = engine.start(job.clone()).unwrap();
    // More than fits into its buffer.
    let other = run(&engine, Job { cache_key: Some("o".into()), ..job.clone() });
    assert_eq!(other.ended, Ended::Stop);
    let late = read(asleep);
    assert_eq!((late.tokens, late.ended), (other.tokens, Ended::Stop));
}

fn schema_job(engine: &Llama, seed: u32, temperature: f32) -> Job {
    Job {
        prompt: text(engine, "Say something in JSON."),
        grammar: Some(format!("start: %json {SCHEMA}")),
        sampling: Sampling { temperature, seed, ..Sampling::default() },
        ..Job::default()
    }
}

/// Tells whether a value follows the schema.
fn valid(value: &Value) -> bool {
    let keys: Vec<_> = value.as_object().unwrap().keys().collect();
    let name = value["name"].as_str().is_some_and(|name| name.chars().count() <= 12);
    let kind = ["file", "folder", "<|im_end|>"].iter().any(|kind| value["kind"] == *kind);
    let sizes = value["sizes"].as_array().is_some_and(|sizes| {
        sizes.len() <= 3
            && sizes.iter().all(|size| size.as_i64().is_some_and(|n| (0..=500).contains(&n)))
    });
    keys == ["name", "kind", "sizes"] && name && kind && sizes
}

/// However random the model, its answer follows the grammar.
#[test]
fn random_weights_write_json() {
    for model in [llama(10), gpt_oss(10)] {
        let engine = load(&model);
        let mut different = HashMap::new();
        let jobs: Vec<_> = (0..24)
            .map(|seed| {
                engine.start(schema_job(&engine, seed, if seed < 2 { 0.0 } else { 1.5 })).unwrap()
            })
            .collect();
        for generation in jobs {
            let answer = read(generation);
            assert_eq!(answer.ended, Ended::Stop);
            let said = said(&engine, &answer.tokens);
            let value: Value =
                serde_json::from_str(&said).unwrap_or_else(|e| panic!("{said}: {e}"));
            assert!(valid(&value), "{said}");
            different.insert(said, ());
        }
        assert!(different.len() > 15, "{different:?}");
    }
}

#[test]
fn grammars_that_cannot_be_used_are_refused() {
    let engine = load(&llama(11));
    for (grammar, want) in [
        ("start: nothing", "nothing"),
        ("no grammar at all", "expected"),
        ("start: <|no_such_token|>", "no_such_token"),
        ("start: %json {\"type\": \"nonsense\"}", "nonsense"),
        ("start: /[a-z/", ""),
    ] {
        let job = Job { prompt: vec![65], grammar: Some(grammar.to_owned()), ..Job::default() };
        match engine.start(job) {
            Err(Refusal::Invalid { message, .. }) => {
                assert!(message.to_lowercase().contains(want), "{message}");
                assert!(message.len() < 2000, "{message}");
            }
            other => panic!("{grammar}: {other:?}"),
        }
    }
    let long = Job { prompt: vec![65], grammar: Some("#".repeat(2 << 20)), ..Job::default() };
    assert!(matches!(engine.start(long), Err(Refusal::Invalid { .. })));
    assert_eq!(engine.stats().waiting, 0);
}

#[test]
fn gpt_oss_speaks_harmony() {
    let engine = load(&gpt_oss(12));
    let start =
        [Piece::Template("<|start|>user<|message|>hello<|end|><|start|>assistant".to_owned())];
    let prompt = engine.tokenise(&start);
    for seed in 0..8 {
        let sampling = Sampling { temperature: 1.2, seed, ..Sampling::default() };
        let job = Job {
            prompt: prompt.clone(),
            grammar: Some(HARMONY.to_owned()),
            sampling,
            ..Job::default()
        };
        let answer = run(&engine, job);
        assert_eq!(answer.ended, Ended::Stop);
        let specials = answer.tokens.iter().map(|&token| engine.token(token));
        let specials: Vec<_> =
            specials.filter(|token| token.special).map(|token| token.bytes).collect();
        let said = said(&engine, &answer.tokens);
        // The end token is not among them.
        let want =
            "<|channel|> <|message|> <|end|> <|start|> <|channel|> <|constrain|> <|message|>";
        assert_eq!(specials.join(&b' '), want.as_bytes(), "{said}");
        let (_, arguments) = said.rsplit_once("<|constrain|>json<|message|>").unwrap();
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        assert!(arguments["command"].is_string());
        assert!(said.starts_with("<|channel|>analysis<|message|>"), "{said}");
    }
}

#[test]
fn dropping_the_engine_ends_all_answers() {
    let engine = load(&llama(13));
    let prompt = text(&engine, "And so on");
    let grammar = Some("start: /[0-9]{2000}/".to_owned());
    let job = Job { prompt, grammar, ..Job::default() };
    let mut started: Vec<_> = (0..8).map(|_| engine.start(job.clone()).unwrap()).collect();
    assert!(matches!(started[0].steps.blocking_recv(), Some(Step::Begun { .. })));
    drop(engine);
    for generation in started {
        assert!(matches!(read(generation).ended, Ended::Failed(_)));
    }
}

#[test]
fn load_errors_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let load = || Llama::load(&path, &OPTIONS, &mut |_| ());
    assert!(matches!(load(), Err(LoadError::NotAModel(_))), "there is none");
    fs::write(&path, "hello").unwrap();
    assert!(matches!(load(), Err(LoadError::NotAModel(_))));
    let whole = llama(14).to_bytes();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(load(), Err(LoadError::NotAModel(_))));
    let mut other = llama(14);
    other.set("general.architecture", gguf::Value::Text("perceptron".into()));
    for (key, _) in &mut other.keys {
        *key = key.replace("llama.", "perceptron.");
    }
    other.write(&path).unwrap();
    assert!(matches!(load(), Err(LoadError::Failed { .. })));
    let mut missing = llama(14);
    missing.tensors.pop();
    missing.write(&path).unwrap();
    assert!(matches!(load(), Err(LoadError::Failed { .. })));
    // And a complete one, with progress.
    fs::write(&path, &whole).unwrap();
    let mut shares = Vec::new();
    Llama::load(&path, &OPTIONS, &mut |share| shares.push(share)).unwrap();
    assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
}

/// A file with changed bytes in its header is refused or works; llama.cpp would abort the process for some.
#[test]
fn a_damaged_file_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let (mut refused, mut loaded) = (0, 0);
    for round in 0..60 {
        let mut bytes = if round % 2 == 0 { llama(15) } else { gpt_oss(15) }.to_bytes();
        let header = 9000;
        for _ in 0..=random(2) {
            bytes[24 + random(header)] = random(256) as u8;
        }
        fs::write(&path, bytes).unwrap();
        let options = Options { context_tokens: Some(256), ..OPTIONS };
        match Llama::load(&path, &options, &mut |_| ()) {
            Ok(engine) => {
                loaded += 1;
                run(&engine, job(&[65, 66], 2));
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 10 && loaded > 10, "{refused} {loaded}");
}

#[test]
fn a_real_model_keeps_to_its_schema_and_remembers() {
    let Some(path) = testkit::model() else { return };
    let options = Options { context_tokens: Some(2048), ..OPTIONS };
    let engine = Llama::load(&path, &options, &mut |_| ()).unwrap();
    let ask = |question: &str| {
        engine.tokenise(&[Piece::Template(format!(
            "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        ))])
    };
    let capital = Job {
        grammar: Some("start: %json {\"type\": \"object\", \"properties\": {\"capital\": {\"enum\": \
             [\"Oslo\", \"Paris\", \"Lima\"]}}, \"required\": [\"capital\"], \"additionalProperties\": false}".into()),
        ..job(&ask("What is the capital of France? Answer in JSON."), 60)
    };
    let answer = run(&engine, capital);
    assert_eq!(answer.ended, Ended::Stop);
    let value: Value = serde_json::from_str(&said(&engine, &answer.tokens)).unwrap();
    assert_eq!(value["capital"], "Paris");

    let question = ask("List three colours of the rainbow.");
    let first = run(&engine, job(&question, 24));
    assert_eq!(first.tokens, run(&engine, job(&question, 24)).tokens, "from memory");
    let fresh = Llama::load(&path, &options, &mut |_| ()).unwrap();
    let mut more = question.clone();
    more.extend(&first.tokens);
    more.extend(ask("And three more?"));
    let (warm, cold) = (run(&engine, job(&more, 24)), run(&fresh, job(&more, 24)));
    assert!(warm.cached > 0 && cold.cached == 0);
    assert_eq!(warm.tokens, cold.tokens);
}

/// One thread: tiny models gain nothing from more, and on a busy machine threads wait for each other.
const OPTIONS: Options = Options {
    context_tokens: None,
    sessions: 4,
    threads: Some(1),
    memory_bytes_max: None,
    waiting_max: 64,
};

const SCHEMA: &str = r#"{"type": "object", "additionalProperties": false,
    "x-guidance": {"whitespace_flexible": false}, "required": ["name", "kind", "sizes"],
    "properties": {"name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["file", "folder", "<|im_end|>"]},
        "sizes": {"type": "array", "maxItems": 3, "items": {"type": "integer", "minimum": 0, "maximum": 500}}}}"#;

const HARMONY: &str = r#"
start: <|channel|> "analysis" <|message|> THOUGHT <|end|> <|start|> "assistant" <|channel|> "commentary to=functions.shell " <|constrain|> "json" <|message|> arguments <|call|>
THOUGHT: /[a-z ]{1,30}/
arguments: %json {"type": "object", "properties": {"command": {"type": "string", "maxLength": 20}}, "required": ["command"], "additionalProperties": false, "x-guidance": {"whitespace_flexible": false}}
"#;
