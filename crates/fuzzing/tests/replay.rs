//! Runs every target for a bounded time: first with its seeds, then with random mutations of them.
//!
//! Every run uses the same random numbers. `HEDDLE_ROUNDS=N` makes N mutations of each target's seeds
//! instead, however long that takes, and `HEDDLE_SEED=N` starts from another seed. A failure prints its
//! input, which then belongs into `seeds/TARGET`. For coverage-guided search use libFuzzer: `./x fuzz`.

#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]
#![expect(clippy::print_stderr, reason = "the failing input is needed to find the cause")]

use std::collections::BTreeSet;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use fuzzing::seeds::{Seed, all};

/// Time limit of one target.
const TIME_MAX: Duration = Duration::from_secs(3);
/// How many mutated inputs each target gets within its time limit.
const ROUNDS: u64 = 2000;
/// Longer inputs find nothing that shorter ones do not.
const INPUT_BYTES_MAX: usize = 8192;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// Mutates an input, possibly with pieces of another one.
fn change(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let from = random.below(other.len() + 1);
        let piece = &other[from..(from + random.below(40)).min(other.len())];
        match random.below(7) {
            0 => input.truncate(at),
            1 => input.insert(at, random.below(256) as u8),
            2 if at < input.len() => input[at] = random.below(256) as u8,
            3 if at < input.len() => input[at] ^= 1 << random.below(8),
            4 => drop(input.splice(at..at, piece.iter().copied())),
            5 => drop(input.drain(at..(at + random.below(16)).min(input.len()))),
            _ => {
                let end = (at + random.below(64)).min(input.len());
                let again = input[at..end].to_vec();
                drop(input.splice(at..at, again));
            }
        }
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn check(name: &str) {
    let target = fuzzing::target(name).unwrap();
    let run = |what: &str, input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
            eprintln!("{name} fails with {what}: b\"{}\"", input.escape_ascii());
            resume_unwind(panic);
        }
    };
    let seeds: Vec<Seed> = all().unwrap().into_iter().filter(|seed| seed.target == name).collect();
    assert!(!seeds.is_empty(), "{name} has seeds");
    let begun = Instant::now();
    for seed in &seeds {
        run(&seed.name, &seed.bytes);
    }
    let rounds = number("HEDDLE_ROUNDS");
    let mut random =
        Random(number("HEDDLE_SEED").unwrap_or(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..rounds.unwrap_or(ROUNDS) {
        if rounds.is_none() && begun.elapsed() > TIME_MAX {
            break;
        }
        let (seed, other) = (&seeds[random.below(seeds.len())], &seeds[random.below(seeds.len())]);
        let mut input = seed.bytes.clone();
        change(&mut random, &mut input, &other.bytes);
        run(&seed.name, &input);
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn none_is_left_out() {
            let here: BTreeSet<_> = [$(stringify!($name)),*].into();
            let there: BTreeSet<_> = fuzzing::TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(here, there);
        }
    };
}

targets! {
    app_server attached chat config daemon dialect_channels dialect_detected dialect_json dialect_literals dialect_tagged dialect_wire
    document exec_lines gguf history json partial patch_parse plans replay request responses rollout rules shell sse
    strict_form
}
