//! How much memory a model needs, and how much is available.
//!
//! The estimate is made before loading: the file, which is mapped, the KV cache, and compute buffers. It is
//! meant to be slightly too high.

use std::path::Path;

use super::schedule::BATCH_TOKENS_MAX;
use super::{LoadError, Options};
use crate::gguf::Shape;

/// The sizes to load a model with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Context size of one answer, with its prompt.
    pub(crate) context_tokens: u32,
    /// KV cache cells of all answers together.
    pub(crate) cells: u32,
    /// Total memory.
    pub(crate) bytes: u64,
}

/// Chooses the context size, or reports that the model does not fit.
pub(crate) fn fit(
    shape: &Shape,
    trained: u32,
    options: &Options,
    available: u64,
) -> Result<Fit, LoadError> {
    let available = options.memory_bytes_max.map_or(available, |most| most.min(available));
    let most = trained.max(CONTEXT_MIN);
    match fit_context(shape, options.context_tokens.unwrap_or(most), most, options, available) {
        // The user did not ask for the full context; the size that fits is shown wherever the daemon's state
        // is.
        Err(LoadError::TooBig { context_tokens_fitting: fitting, .. })
            if options.context_tokens.is_none() && fitting >= CONTEXT_TOKENS_ENOUGH =>
        {
            fit_context(shape, fitting, most, options, available)
        }
        fit => fit,
    }
}

fn fit_context(
    shape: &Shape,
    context_tokens: u32,
    most: u32,
    options: &Options,
    available: u64,
) -> Result<Fit, LoadError> {
    let context_tokens = context_tokens.clamp(CONTEXT_MIN, most);
    let context = u64::from(context_tokens).next_multiple_of(CELLS_STEP);
    let least = shape.file_bytes + work_bytes(shape, context);
    let needed = least + context * shape.token_bytes;
    if needed > available {
        let per_token = shape.token_bytes + MASK_BYTES;
        let base = shape.file_bytes + work_bytes(shape, 0);
        let would = available.saturating_sub(base) / per_token.max(1) / CELLS_STEP * CELLS_STEP;
        let context_tokens_fitting = u32::try_from(would.min(context)).unwrap_or(0);
        return Err(LoadError::TooBig {
            needed,
            available,
            context_tokens,
            context_tokens_fitting,
        });
    }
    // Concurrent answers share a cache that is hardly larger than necessary: all of it is touched when it is
    // allocated.
    let per_cell = (shape.token_bytes + MASK_BYTES).max(1);
    let most = context * options.sessions.max(1) as u64;
    let spare = (available - needed) / 2 / per_cell;
    let wished = (CACHE_BYTES / per_cell).clamp(context, most);
    let cells = wished.min(context + spare) / CELLS_STEP * CELLS_STEP;
    let bytes = shape.file_bytes + work_bytes(shape, cells) + cells * shape.token_bytes;
    Ok(Fit { context_tokens, cells: u32::try_from(cells).unwrap_or(u32::MAX / 2), bytes })
}

/// Estimates the compute buffers: the activations of a batch, and the logits.
fn work_bytes(shape: &Shape, cells: u64) -> u64 {
    let Shape { embedding, feed_forward, vocabulary, .. } = *shape;
    let token = 4 * (vocabulary + 12 * embedding + 3 * feed_forward);
    BATCH_TOKENS_MAX as u64 * token + cells * MASK_BYTES + PROCESS_BYTES
}

/// Returns the memory that becomes free when a process ends. Files that it has mapped count as available
/// already.
pub(crate) fn held_by(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, "RssAnon:").map_or(0, |kib| kib.saturating_mul(1024))
}

/// Returns the available memory: of the machine, and of our control group.
pub(crate) fn available() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| field(&text, "MemAvailable:"));
    let machine = machine.map_or(u64::MAX, |kib| kib.saturating_mul(1024));
    let groups = Path::new("/sys/fs/cgroup");
    let own = read(Path::new("/proc/self/cgroup")).and_then(|text| own_group(&text));
    let own = own.map(|name| groups.join(name.trim_start_matches('/')));
    let group = own.iter().flat_map(|own| own.ancestors().take_while(|at| at.starts_with(groups)));
    let left = group.filter_map(|folder| {
        let file = |name: &str| read(&folder.join(name));
        group_left(&file("memory.max")?, &file("memory.current")?, &file("memory.stat")?)
    });
    let old = read(&groups.join("memory/memory.limit_in_bytes"));
    let old = old.and_then(|text| text.trim().parse().ok());
    left.chain(old).fold(machine, u64::min)
}

/// Returns the number after a name.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn own_group(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

/// Returns what a control group may still use; its page cache can be dropped.
fn group_left(most: &str, current: &str, stat: &str) -> Option<u64> {
    let most: u64 = most.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let files = field(stat, "inactive_file ").unwrap_or(0);
    Some(most.saturating_sub(current.saturating_sub(files)))
}

/// A context size in which an agent can work; with less, an error is better.
const CONTEXT_TOKENS_ENOUGH: u32 = 16_384;
/// Size of the shared KV cache, unless a single answer needs more.
const CACHE_BYTES: u64 = 256 << 20;
/// Memory that does not depend on the model: code, vocabulary, grammars.
const PROCESS_BYTES: u64 = 64 << 20;
/// Attention mask per cell and batch, at four and at two bytes.
const MASK_BYTES: u64 = BATCH_TOKENS_MAX as u64 * 6;
/// Granularity of cells.
const CELLS_STEP: u64 = 256;
/// Too small for any answer.
const CONTEXT_MIN: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// A 135M model, like the one heddle comes with.
    const SMALL: Shape = Shape {
        file_bytes: 98 << 20,
        token_bytes: 23_040,
        embedding: 576,
        feed_forward: 1536,
        vocabulary: 49_152,
    };
    /// A 20B model.
    const LARGE: Shape = Shape {
        file_bytes: 12 << 30,
        token_bytes: 49_152,
        embedding: 2880,
        feed_forward: 11_520,
        vocabulary: 201_088,
    };

    #[test]
    fn models_that_fit() {
        let options = Options::default();
        let fit = |shape, trained, options: &Options, available| {
            super::fit(shape, trained, options, available).unwrap()
        };
        let small = fit(&SMALL, 8192, &options, 8 << 30);
        assert_eq!(small.context_tokens, 8192);
        assert!((8192..=4 * 8192).contains(&small.cells), "{small:?}");
        assert!((300 << 20..700 << 20).contains(&small.bytes), "{small:?}");
        // A smaller context is possible, and then several fit.
        let asked = Options { context_tokens: Some(1000), ..Options::default() };
        assert_eq!(fit(&SMALL, 8192, &asked, 8 << 30).cells, 4096);
        // A larger one than in training is not.
        let asked = Options { context_tokens: Some(100_000), ..Options::default() };
        assert_eq!(fit(&SMALL, 8192, &asked, 8 << 30).context_tokens, 8192);
        // With little memory, answers share the cells of one.
        assert_eq!(fit(&SMALL, 8192, &options, 420 << 20).cells, 8192);
        let large = fit(&LARGE, 131_072, &options, 32 << 30);
        assert_eq!((large.context_tokens, large.cells), (131_072, 131_072));
    }

    #[test]
    fn models_that_do_not_fit_are_refused_with_numbers() {
        let check = |shape: &Shape, options: &Options, available: u64| match fit(
            shape, 131_072, options, available,
        ) {
            Err(LoadError::TooBig { needed, available, context_tokens_fitting, .. }) => {
                assert!(needed > available);
                context_tokens_fitting
            }
            other => panic!("{other:?}"),
        };
        let all = Options { context_tokens: Some(131_072), ..Options::default() };
        let fitting = check(&LARGE, &all, 16 << 30);
        assert!((40_000..80_000).contains(&fitting), "{fitting}");
        // The suggested size fits, and is used if the user did not ask for more.
        let smaller = Options { context_tokens: Some(fitting), ..Options::default() };
        let options = Options::default();
        for options in [&smaller, &options] {
            let fit = fit(&LARGE, 131_072, options, 16 << 30).unwrap();
            assert_eq!(fit.context_tokens, fitting);
            assert!(fit.bytes <= 16 << 30, "{fit:?}");
        }
        // Too small to work with.
        assert!((1..16_384).contains(&check(&LARGE, &options, 13 << 30)));
        assert_eq!(check(&LARGE, &options, 8 << 30), 0);
        let bounded = Options { memory_bytes_max: Some(1 << 30), ..Options::default() };
        assert_eq!(check(&LARGE, &bounded, 64 << 30), 0);
    }

    #[test]
    fn memory_information_is_parsed() {
        assert_eq!(field("MemTotal: 9 kB\nMemAvailable:   1234 kB\n", "MemAvailable:"), Some(1234));
        assert_eq!(own_group("1:name=x:/y\n0::/a/b\n").as_deref(), Some("/a/b"));
        assert_eq!(group_left("1000\n", "700\n", "anon 600\ninactive_file 100\n"), Some(400));
        assert_eq!(group_left("max\n", "700\n", ""), None);
        assert_eq!(group_left("5\n", "700\n", ""), Some(0));
        assert!(available() > 1 << 20);
        assert!(cfg!(not(target_os = "linux")) || held_by(std::process::id()) > 1 << 16);
        assert_eq!(held_by(u32::MAX), 0);
    }
}
