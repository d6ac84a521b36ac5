//! Our own kernels, as they are built into llama.cpp.

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
use ring::digest;
use testkit::gguf::{Gguf, llama_of_width};

/// Reads `tokens` in batches of `batch`, and returns what the model makes of every one of them.
fn logits(model: &Gguf, tokens: &[i32], batch: usize, threads: i32) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    model.write(&path).unwrap();
    let model = LlamaModel::load_from_file(&BACKEND, &path, &LlamaModelParams::default()).unwrap();
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(256))
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    let mut context = model.new_context(&BACKEND, params).unwrap();
    let mut made = Vec::new();
    let positions: Vec<_> = (0..).zip(tokens).collect();
    for some in positions.chunks(batch) {
        let mut batch = LlamaBatch::new(some.len(), 1);
        for &(position, &token) in some {
            batch.add(LlamaToken(token), position, &[0], true).unwrap();
        }
        context.decode(&mut batch).unwrap();
        for row in 0..batch.n_tokens() {
            made.extend_from_slice(context.get_logits_ith(row));
        }
    }
    made
}

/// Checks that packed weights give what the same weights give as they are: about, since what they are multiplied with
/// is rounded to 8 bits. A single row or column that is wrong is seen.
#[track_caller]
fn check(feed_forward: u32, batch: usize, threads: i32) {
    let packed = llama_of_width(u64::from(feed_forward), feed_forward).pack();
    let tokens: Vec<i32> = (0..35).map(|at| at * 7 % 260).collect();
    let got = logits(&packed, &tokens, batch, threads);
    let want = logits(&packed.unpack(), &tokens, batch, threads);
    let square =
        |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
    let row = want.len() / tokens.len();
    for (at, (got, want)) in got.chunks(row).zip(want.chunks(row)).enumerate() {
        let off = square(&mut got.iter().zip(want).map(|(got, want)| got - want));
        let off = (off / square(&mut want.iter().copied())).sqrt();
        assert!(off < 0.06, "token {at} in batches of {batch}, width {feed_forward}: {off} off");
    }
}

#[test]
fn packed_weights_multiply_as_they_are() {
    loaded();
    // Rows that are no multiple of eight; more columns than a panel has.
    for feed_forward in [45, 128, 2144] {
        for (batch, threads) in
            [(1, 1), (2, 1), (3, 2), (4, 1), (5, 2), (6, 1), (7, 2), (35, 1), (35, 2)]
        {
            check(feed_forward, batch, threads);
        }
    }
}

/// An answer does not depend on what else is in its batch.
#[test]
fn a_column_does_not_see_the_others() {
    loaded();
    let model = llama_of_width(3, 128).pack();
    let tokens: Vec<i32> = (0..24).collect();
    let alone = logits(&model, &tokens[..1], 1, 1);
    for batch in [2, 3, 4, 5, 8, 24] {
        let first = &logits(&model, &tokens, batch, 1)[..alone.len()];
        assert!(first == alone, "in batches of {batch}");
    }
}

/// Cargo does not see when our kernels change, but it sees when this does.
#[test]
fn the_build_knows_which_kernels_it_has() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        fs::read_dir(here.join("kernels")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let all: Vec<u8> = files.iter().flat_map(|path| fs::read(path).unwrap()).collect();
    let sum = digest::digest(&digest::SHA256, &all);
    let want: String = sum.as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let path = here.join("../../.cargo/config.toml");
    let config = fs::read_to_string(&path).unwrap();
    let line = |sum: &str| format!("GGML_HEDDLE_KERNELS = \"{sum}\"");
    let old = config.lines().find(|line| line.starts_with("GGML_HEDDLE_KERNELS")).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, config.replace(old, &line(&want))).unwrap();
    } else {
        assert_eq!(old, line(&want), "run it with UPDATE=1");
    }
}

/// Starts the backend as the engine does, once.
fn loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    llama_of_width(1, 128).write(&path).unwrap();
    Llama::load(&path, &Options { threads: Some(1), ..Options::default() }, &mut |_| ()).unwrap();
}

/// The engine has started it. This must never be dropped, which would end it.
static BACKEND: LlamaBackend = LlamaBackend {};
