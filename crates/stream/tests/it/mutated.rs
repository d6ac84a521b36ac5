//! Randomly mutated vectors: nothing panics, nothing depends on the chunking, nothing is lost.
//!
//! A few hundred of each family in every run; `HEDDLE_ROUNDS=N` makes it N, and `HEDDLE_SEED=N` starts from
//! another seed. A failure prints its input.

#![expect(
    clippy::disallowed_methods,
    reason = "an environment variable may set the number of rounds"
)]
#![expect(clippy::print_stderr, reason = "the failing input is needed to find the cause")]

use stream::dialect::{Options, Tools};

use crate::invariants::{FAMILIES, check};

struct Vector {
    format: String,
    options: Options,
    tools: Tools,
    input: Vec<u8>,
}

fn vectors() -> Vec<Vector> {
    let list = crate::vectors::load().into_iter();
    list.filter_map(|vector| {
        let input = vector["input"].as_str()?.as_bytes().to_vec();
        // Long vectors contain nothing that short ones do not.
        (input.len() < 4096).then(|| Vector {
            format: vector["format"].as_str().unwrap().to_owned(),
            options: serde_json::from_value(vector["options"].clone()).unwrap_or_default(),
            tools: Tools::from_json(&vector["tools"]).unwrap_or_default(),
            input,
        })
    })
    .collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    /// Returns a random piece of a text.
    fn piece<'a>(&mut self, text: &'a [u8]) -> &'a [u8] {
        let from = self.below(text.len() + 1);
        let len = self.below(24).min(text.len() - from);
        &text[from..from + len]
    }
}

/// Mutates an input, possibly with pieces of another one.
fn bend(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(10) {
            0 => input.truncate(at),
            // Longer than any name may be.
            8 if random.below(8) == 0 => {
                let letter = [b'n', b'"', b'<', b'{'][random.below(4)];
                input.splice(at..at, vec![letter; 4090 + random.below(20)]);
            }
            1 => {
                let end = (at + 1 + random.below(12)).min(input.len());
                input.drain(at.min(end)..end);
            }
            2 => {
                let piece = random.piece(other).to_vec();
                input.splice(at..at, piece);
            }
            3 => {
                let piece = random.piece(&input.clone()).to_vec();
                input.splice(at..at, piece);
            }
            9 => {
                // Models omit a tag, or what is between two of them.
                let tags = |from: usize| input[from..].iter().position(|b| *b == b'<');
                if let Some(open) = tags(at).map(|found| at + found)
                    && let Some(next) = tags(open + 1).map(|found| open + 1 + found)
                {
                    let text = input[open..next].iter().position(|b| *b == b'>');
                    let text = text.map_or(next, |found| open + found + 1);
                    match random.below(3) {
                        0 => input.drain(open..text),
                        1 => input.drain(text..next),
                        _ => input.drain(open..next),
                    };
                }
            }
            4 => input
                .insert(at, [b'<', b'>', b'"', b'\\', b'{', b'}', b'\n', b' '][random.below(8)]),
            5 => input.insert(at, random.below(256) as u8),
            6 => {
                // Tags and brackets are where grammars meet.
                if let Some(found) = input[at.min(input.len())..].iter().position(|b| *b == b'<') {
                    input.truncate(at + found);
                    input.extend_from_slice(other);
                }
            }
            _ => {
                let blanks = vec![b" \n\t\r"[random.below(4)]; 1 + random.below(40)];
                input.splice(at..at, blanks);
            }
        }
        input.truncate(16384);
    }
}

#[test]
fn mutated_vectors() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("HEDDLE_ROUNDS").unwrap_or(400);
    let seed = number("HEDDLE_SEED").unwrap_or(1);
    let vectors = vectors();
    for (family, formats) in FAMILIES {
        // The detecting formats accept everything.
        let own: Vec<&Vector> = vectors
            .iter()
            .filter(|vector| *family == "detected" || formats.contains(&vector.format.as_str()))
            .collect();
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..rounds {
            let vector = own[random.below(own.len())];
            let other = &own[random.below(own.len())].input;
            let mut input = vector.input.clone();
            bend(&mut random, &mut input, other);
            let format = if *family == "detected" {
                formats[random.below(formats.len())]
            } else {
                &vector.format
            };
            let mut options = vector.options.clone();
            if random.below(4) == 0 {
                options.tool_call_ends_reasoning ^= true;
                options.start_in_reasoning ^= random.below(2) == 0;
            }
            let cuts = random.below(1 << 16) as u64;
            let run = std::panic::AssertUnwindSafe(|| {
                check(format, &options, &vector.tools, &input, cuts);
            });
            if let Err(panic) = std::panic::catch_unwind(run) {
                let shown = String::from_utf8_lossy(&input);
                eprintln!("{family}, {format}, {options:?}, cuts {cuts}:\n{shown}\n{shown:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}
