//! Aborts a llama.cpp computation whose result is no longer needed.
//!
//! The callback runs after every node of the compute graph, on the computing thread: a few hundred times per
//! batch.

use std::cell::RefCell;

/// Tells whether the result of this thread's computation is no longer needed.
type IsUnwanted = Box<dyn Fn() -> bool>;

thread_local! {
    static ASKED: RefCell<Option<IsUnwanted>> = const { RefCell::new(None) };
}

#[expect(unsafe_code, reason = "llama-cpp-2 cannot set ggml's abort callback, so our own C++ does")]
// SAFETY: this is how `kernels/abort.cpp` defines it. It keeps a pointer to a function, which lives as long as the
// program, and calls that only in the thread that gave it.
unsafe extern "C" {
    safe fn heddle_abort_when(callback: Option<extern "C" fn() -> bool>);
}

extern "C" fn ask() -> bool {
    ASKED.with_borrow(|asked| asked.as_ref().is_some_and(|is_unwanted| is_unwanted()))
}

/// Runs a llama.cpp computation, which is aborted as soon as `is_unwanted` returns true.
pub(crate) fn unless<T>(
    is_unwanted: impl Fn() -> bool + 'static,
    compute: impl FnOnce() -> T,
) -> T {
    ASKED.set(Some(Box::new(is_unwanted)));
    heddle_abort_when(Some(ask));
    let computed = compute();
    heddle_abort_when(None);
    ASKED.set(None);
    computed
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::rc::Rc;

    use llama_cpp_2::context::params::LlamaContextParams;
    use llama_cpp_2::llama_backend::LlamaBackend;
    use llama_cpp_2::llama_batch::LlamaBatch;
    use llama_cpp_2::model::LlamaModel;
    use llama_cpp_2::model::params::LlamaModelParams;
    use llama_cpp_2::token::LlamaToken;

    use super::*;

    /// A batch is aborted at the node after which it is unwanted, and the next one is not affected.
    #[test]
    fn a_batch_can_be_aborted() {
        let backend = LlamaBackend::init().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        testkit::gguf::llama(7).write(&path).unwrap();
        let model = LlamaModel::load_from_file(&backend, &path, &LlamaModelParams::default());
        let model = model.unwrap();
        for threads in [1, 2] {
            let params = LlamaContextParams::default()
                .with_n_ctx(NonZeroU32::new(256))
                .with_n_threads(threads)
                .with_n_threads_batch(threads);
            let mut context = model.new_context(&backend, params).unwrap();
            let mut batch = LlamaBatch::new(64, 1);
            for at in 0..40 {
                batch.add(LlamaToken(at * 7 % 260), at, &[0], at == 39).unwrap();
            }
            // Returns how many nodes were computed, and the result.
            let mut read = |nodes_max: usize| {
                let seen = Rc::new(RefCell::new(0));
                let count = Rc::clone(&seen);
                let is_unwanted = move || {
                    *count.borrow_mut() += 1;
                    *count.borrow() >= nodes_max
                };
                let decoded = unless(is_unwanted, || context.decode(&mut batch));
                let logits = decoded.is_ok().then(|| context.get_logits_ith(39).to_vec());
                context.clear_kv_cache_seq(Some(0), Some(0), None).unwrap();
                (*seen.borrow(), decoded.map_err(|error| error.to_string()), logits)
            };
            let whole = read(usize::MAX);
            assert!(whole.0 > 20 && whole.1 == Ok(()), "{threads}: {whole:?}");
            for nodes in [1, 2, whole.0 / 2, whole.0 - 1] {
                let (seen, decoded, _) = read(nodes);
                assert_eq!((seen, decoded), (nodes, Err("Decode Error 2: unknown".to_owned())));
                assert_eq!(read(usize::MAX), whole, "after {nodes} with {threads}");
            }
        }
    }
}
