//! Our own kernels, as built into llama.cpp.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use infer::llama::{Llama, Options};
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use memchr::memmem;
use ring::digest;
use testkit::gguf::{Gguf, Sizes, gpt_oss, llama_of};

/// How a text is evaluated.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Tokens per batch.
    batch: usize,
    threads: i32,
    /// Number of texts, evaluated alternately, one token each.
    texts: i32,
    /// Whether they share one KV cache.
    unified: bool,
    /// Whether attention runs as a fused kernel, or as separate operations.
    attention: bool,
}

/// Evaluates `tokens`, and returns the logits of each.
fn logits(model: &Gguf, tokens: &[i32], reading: Reading) -> Vec<Vec<f32>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    model.write(&path).unwrap();
    let model = LlamaModel::load_from_file(&BACKEND, &path, &LlamaModelParams::default()).unwrap();
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(512))
        .with_n_seq_max(4)
        .with_kv_unified(reading.unified)
        .with_flash_attention_policy(i32::from(reading.attention))
        .with_n_threads(reading.threads)
        .with_n_threads_batch(reading.threads);
    let mut context = model.new_context(&BACKEND, params).unwrap();
    let mut made = Vec::new();
    let positions: Vec<_> = (0..).zip(tokens).collect();
    for some in positions.chunks(reading.batch) {
        let mut batch = LlamaBatch::new(some.len(), 1);
        for &(at, &token) in some {
            let (position, text) = (at / reading.texts, at % reading.texts);
            batch.add(LlamaToken(token), position, &[text], true).unwrap();
        }
        context.decode(&mut batch).unwrap();
        made.extend((0..batch.n_tokens()).map(|row| context.get_logits_ith(row).to_vec()));
    }
    made
}

/// Checks that the logits of each token differ by at most `slack`, relatively.
#[track_caller]
fn check(got: &[Vec<f32>], want: &[Vec<f32>], slack: f32, what: &str) {
    let length = |values: &mut dyn Iterator<Item = f32>| {
        values.map(|value| value * value).sum::<f32>().sqrt()
    };
    assert_eq!(got.len(), want.len());
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let off = length(&mut got.iter().zip(want).map(|(got, want)| got - want));
        let off = off / length(&mut want.iter().copied());
        assert!(off < slack, "{what}: {off} off at token {at}");
    }
}

/// Packed weights give approximately the same result as the original ones, since the activations are rounded
/// to 8 bits. With narrow weights, a single wrong row or column is detected.
#[test]
fn packed_weights_multiply_as_they_are() {
    loaded();
    // Rows that are not a multiple of eight; more columns than a panel has.
    for feed_forward in [45, 128, 2144] {
        let packed = llama_of(7, Sizes { feed_forward, ..Sizes::default() }).pack();
        let want = logits(&packed.clone().unpack(), &tokens(35), Reading { batch: 35, ..READING });
        for (batch, threads) in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 2), (35, 2)] {
            let reading = Reading { batch, threads, ..READING };
            let got = logits(&packed, &tokens(35), reading);
            check(&got, &want, 0.06, &format!("{reading:?}, width {feed_forward}"));
        }
    }
}

/// Fused attention gives the same result as its parts. Heads of 12 and of 264 are left to ggml.
#[test]
fn attention_is_what_it_is_made_of() {
    loaded();
    let mut models = vec![("gpt-oss".to_owned(), gpt_oss(5))];
    for (head, heads) in [
        (8, (4, 4)),
        (8, (34, 2)),
        (12, (4, 2)),
        (16, (4, 2)),
        (40, (3, 1)),
        (256, (2, 1)),
        (264, (2, 1)),
    ] {
        let model = llama_of(5, Sizes { head, heads, ..Sizes::default() });
        models.push((format!("{heads:?} heads of {head}"), model));
    }
    for (name, model) in models {
        for (texts, unified) in [(1, true), (3, true), (3, false)] {
            let reading = Reading { batch: 80, texts, unified, ..READING };
            let want = logits(&model, &tokens(80), Reading { attention: false, ..reading });
            for (batch, threads) in [(1, 1), (7, 2), (20, 1), (80, 2)] {
                let reading = Reading { batch, threads, ..reading };
                let got = logits(&model, &tokens(80), reading);
                check(&got, &want, 0.01, &format!("{reading:?}, {name}"));
            }
        }
    }
}

/// The KV cache of one text does not affect another one, not even with infinities.
#[test]
fn overflow_in_one_sequence_does_not_affect_others() {
    loaded();
    // One token is unlike all others, and its attention values exceed 16 bits.
    let mut model = llama_of(9, Sizes::default());
    let mut spoil = |name: &str, spoil: &dyn Fn(usize, &mut [f32])| {
        let tensor = model.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        let width = tensor.shape[0] as usize;
        tensor.data.chunks_mut(width).enumerate().for_each(|(row, weights)| spoil(row, weights));
    };
    const ODD: i32 = 261;
    spoil("token_embd.weight", &|token, weights| {
        if token == ODD as usize {
            weights.fill(0.0);
        }
        weights[0] = f32::from(token == ODD as usize);
    });
    spoil("blk.0.attn_v.weight", &|_, weights| weights[0] = 1e6);
    let mut tokens = tokens(80);
    tokens[2] = ODD;
    for batch in [7, 20, 80] {
        let made = logits(&model, &tokens, Reading { batch, texts: 3, ..READING });
        for (at, made) in made.iter().enumerate() {
            let finite = made.iter().all(|value| value.is_finite());
            assert_eq!(finite, at % 3 != 2, "token {at} in batches of {batch}");
        }
    }
}

/// An answer does not depend on what else is in its batch, unless that is a long prompt.
#[test]
fn a_token_does_not_depend_on_the_batch() {
    loaded();
    let model = llama_of(3, Sizes::default()).pack();
    let alone = logits(&model, &tokens(60), Reading { texts: 3, ..READING });
    for batch in [2, 3, 4, 5, 8, 15] {
        let made = logits(&model, &tokens(60), Reading { batch, texts: 3, ..READING });
        assert!(made == alone, "in batches of {batch}");
    }
}

/// Cargo does not track our kernels, but it tracks their checksum; and they are in the build.
#[test]
fn the_build_knows_which_kernels_it_has() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        fs::read_dir(here.join("kernels")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let hex = |bytes: &[u8]| -> String {
        let sum = digest::digest(&digest::SHA256, bytes);
        sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let sums: String = files.iter().map(|path| hex(&fs::read(path).unwrap())).collect();
    let sum = &hex(sums.as_bytes())[..8];
    let path = here.join("../../.cargo/config.toml");
    let config = fs::read_to_string(&path).unwrap();
    let line = format!("GGML_HEDDLE_KERNELS = \"{sum}\"");
    let old = config.lines().find(|line| line.starts_with("GGML_HEDDLE_KERNELS")).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        return fs::write(&path, config.replace(old, &line)).unwrap();
    }
    assert_eq!(old, line, "run it with UPDATE=1");
    let built = fs::read(std::env::current_exe().unwrap()).unwrap();
    let built = memmem::find(&built, format!("heddle kernels {sum}").as_bytes());
    assert!(built.is_some(), "llama.cpp was built without these: cargo clean -p llama-cpp-sys-2");
}

fn tokens(count: i32) -> Vec<i32> {
    (0..count).map(|at| at * 7 % 260).collect()
}

/// Initializes the backend as the engine does, once.
fn loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    llama_of(1, Sizes::default()).write(&path).unwrap();
    Llama::load(&path, &Options { threads: Some(1), ..Options::default() }, &mut |_| ()).unwrap();
}

/// The engine has initialized it. This must never be dropped, which would shut it down.
static BACKEND: LlamaBackend = LlamaBackend {};

const READING: Reading = Reading { batch: 1, threads: 1, texts: 1, unified: true, attention: true };
