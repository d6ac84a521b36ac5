//! Samples a token from the logits.
//!
//! The repetition penalty is applied first, then the temperature, then the cutoffs: everything beyond the
//! `top_k` most likely, everything below `min_p` of the most likely, everything beyond the most likely that
//! add up to `top_p`. The rest is sampled with a seeded generator. At temperature 0 the most likely token is
//! taken.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};

use prompt::Sampling;
use stdx::Rng;

/// Samples the tokens of one answer.
#[derive(Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    rng: Rng,
    /// The last generated tokens. The prompt does not count: an answer has to repeat what it was told.
    recent: VecDeque<u32>,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling) -> Self {
        let seed = match sampling.any_seed {
            // Every instance has new random keys.
            true => RandomState::new().build_hasher().finish(),
            false => u64::from(sampling.seed),
        };
        let rng = Rng::new(seed);
        Self { sampling, rng, recent: VecDeque::new(), candidates: Vec::new() }
    }

    /// Samples a token, among those whose bit is set if `allowed` is given. `None` if there is no candidate.
    pub(crate) fn choose(&mut self, logits: &[f32], allowed: Option<&[u32]>) -> Option<u32> {
        let Sampling { temperature, repeat_penalty, .. } = self.sampling;
        // Also false for NaN.
        if temperature > 0.0 {
            return self.draw(logits, allowed);
        }
        if let Some(allowed) = allowed {
            let mut best = Best::default();
            each(allowed, logits.len(), |id| {
                best.offer(id, self.penalised(id, logits[id as usize]));
            });
            return best.id;
        }
        let likeliest = likeliest(logits)?;
        if repeat_penalty == 1.0 || !self.recent.contains(&likeliest) {
            return Some(likeliest);
        }
        let mut best = Best::default();
        for (id, &logit) in (0..).zip(logits) {
            // The penalty only lowers logits, so few have to be looked up.
            if best.beaten_by(logit) {
                best.offer(id, self.penalised(id, logit));
            }
        }
        best.id
    }

    /// Records a generated token.
    pub(crate) fn said(&mut self, token: u32) {
        let most = (self.sampling.repeat_tokens as usize).min(REPEAT_TOKENS_MAX);
        if most == 0 || self.sampling.repeat_penalty == 1.0 {
            return;
        }
        if self.recent.len() >= most {
            self.recent.pop_front();
        }
        self.recent.push_back(token);
    }

    fn draw(&mut self, logits: &[f32], allowed: Option<&[u32]>) -> Option<u32> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let temperature = self.sampling.temperature;
        let add = |id: u32, out: &mut Vec<(f32, u32)>| {
            let logit = logits[id as usize] / temperature;
            if !logit.is_nan() && logit > f32::NEG_INFINITY {
                out.push((logit, id));
            }
        };
        match allowed {
            Some(allowed) => each(allowed, logits.len(), |id| add(id, &mut candidates)),
            None => (0..logits.len() as u32).for_each(|id| add(id, &mut candidates)),
        }
        if !self.recent.is_empty() {
            for (logit, id) in &mut candidates {
                if self.recent.contains(id) {
                    *logit = penalise(*logit, self.sampling.repeat_penalty);
                }
            }
        }
        self.cut(&mut candidates);
        let total: f64 = candidates.iter().map(|(weight, _)| f64::from(*weight)).sum();
        let mut point = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * total;
        let drawn = candidates.iter().find(|(weight, _)| {
            point -= f64::from(*weight);
            point < 0.0
        });
        let token = drawn.or(candidates.last()).map(|(_, id)| *id);
        self.candidates = candidates;
        token
    }

    /// Applies the cutoffs, and computes weights of the rest, most likely first.
    fn cut(&self, candidates: &mut Vec<(f32, u32)>) {
        let Some(most) = candidates.iter().map(|(logit, _)| *logit).reduce(f32::max) else {
            return;
        };
        let Sampling { top_k, top_p, min_p, .. } = self.sampling;
        let floor = if min_p > 0.0 { min_p.min(1.0).ln().max(NEVER) } else { NEVER };
        candidates.retain(|(logit, _)| logit - most >= floor);
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let top_k = top_k as usize;
        if top_k > 0 && top_k < candidates.len() {
            candidates.select_nth_unstable_by(top_k - 1, order);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(order);
        for (weight, _) in candidates.iter_mut() {
            *weight = (*weight - most).exp();
        }
        if top_p < 1.0 {
            let enough = candidates.iter().map(|(weight, _)| weight).sum::<f32>() * top_p.max(0.0);
            let mut sum = 0.0;
            let reached = candidates.iter().position(|(weight, _)| {
                sum += weight;
                sum >= enough
            });
            candidates.truncate(reached.map_or(candidates.len(), |last| last + 1));
        }
    }

    fn penalised(&self, id: u32, logit: f32) -> f32 {
        let penalty = self.sampling.repeat_penalty;
        if penalty != 1.0 && self.recent.contains(&id) { penalise(logit, penalty) } else { logit }
    }
}

/// Makes a token less likely; a penalty that would make it likelier is ignored.
fn penalise(logit: f32, penalty: f32) -> f32 {
    let penalty = penalty.max(1.0);
    if logit > 0.0 { logit / penalty } else { logit * penalty }
}

/// The best so far; the first one among equals.
#[derive(Default)]
struct Best {
    logit: f32,
    id: Option<u32>,
}

impl Best {
    fn beaten_by(&self, logit: f32) -> bool {
        logit > f32::NEG_INFINITY && (self.id.is_none() || logit > self.logit)
    }

    fn offer(&mut self, id: u32, logit: f32) {
        if self.beaten_by(logit) {
            *self = Self { logit, id: Some(id) };
        }
    }
}

/// Returns the most likely token; the first one among equals.
///
/// This runs over the whole vocabulary for every generated token, so it works in lanes that compile to vector
/// code, and then searches for the maximum.
fn likeliest(logits: &[f32]) -> Option<u32> {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let chunks = logits.chunks_exact(lanes.len());
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    let most = lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return None;
    }
    logits.iter().position(|&logit| logit == most).map(|id| id as u32)
}

/// Calls `with` for every set bit that has a token.
fn each(bits: &[u32], tokens: usize, mut with: impl FnMut(u32)) {
    for (base, &word) in (0..).step_by(32).zip(bits) {
        let mut word: u32 = word;
        while word != 0 {
            let id = base + word.trailing_zeros();
            word &= word - 1;
            if (id as usize) < tokens {
                with(id);
            }
        }
    }
}

/// Logits this far below the maximum are never sampled: together, even in a large vocabulary, they amount to
/// less than one in a thousand.
const NEVER: f32 = -18.0;
/// Most recent tokens considered for the penalty: each is looked up for each.
const REPEAT_TOKENS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: Sampling = Sampling {
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        repeat_penalty: 1.0,
        repeat_tokens: 64,
        seed: 1,
        any_seed: false,
    };
    const WARM: Sampling = Sampling { temperature: 1.0, ..GREEDY };

    #[track_caller]
    fn check(
        sampling: Sampling,
        said: &[u32],
        logits: &[f32],
        allowed: Option<u32>,
        want: Option<u32>,
    ) {
        let mut sampler = Sampler::new(sampling);
        said.iter().for_each(|&token| sampler.said(token));
        let words = allowed.map(|word| [word]);
        let words = words.as_ref().map(<[u32; 1]>::as_slice);
        assert_eq!(sampler.choose(logits, words), want, "{sampling:?}");
    }

    #[test]
    fn temperature_zero_chooses_the_most_likely() {
        let nan = f32::NAN;
        let never = f32::NEG_INFINITY;
        let penalty = Sampling { repeat_penalty: 2.0, ..GREEDY };
        for (sampling, said, logits, allowed, want) in [
            (GREEDY, &[][..], &[1.0, 3.0, 2.0][..], None, Some(1)),
            (GREEDY, &[], &[3.0, 3.0], None, Some(0)),
            (GREEDY, &[], &[nan, -5.0, nan], None, Some(1)),
            (GREEDY, &[], &[never, nan], None, None),
            (GREEDY, &[], &[], None, None),
            (GREEDY, &[], &[1.0, 3.0, 2.0], Some(0b101), Some(2)),
            (GREEDY, &[], &[1.0, nan, never], Some(0b110), None),
            (GREEDY, &[], &[1.0, 3.0], Some(0), None),
            // Bits beyond the vocabulary are ignored.
            (GREEDY, &[], &[1.0, 3.0], Some(0b1001), Some(0)),
            (GREEDY, &[1, 1], &[1.0, 3.0, 2.0], None, Some(1)),
            (penalty, &[1], &[1.0, 3.0, 2.0], None, Some(2)),
            (penalty, &[1, 2], &[1.0, 3.0, 2.0], None, Some(1)),
            (penalty, &[0], &[1.0, 3.0, 2.0], None, Some(1)),
            (penalty, &[1], &[-5.0, -2.0, -3.0], None, Some(2)),
            (penalty, &[1], &[1.0, 3.0, 2.0], Some(0b010), Some(1)),
            (penalty, &[1], &[1.0, 3.0, 2.0], Some(0b111), Some(2)),
            (Sampling { repeat_tokens: 1, ..penalty }, &[1, 0], &[1.0, 3.0], None, Some(1)),
            (Sampling { repeat_tokens: 0, ..penalty }, &[1], &[2.0, 3.0], None, Some(1)),
            (Sampling { repeat_penalty: 0.5, ..GREEDY }, &[0], &[2.0, 3.0], None, Some(1)),
            (Sampling { temperature: f32::NAN, ..GREEDY }, &[], &[2.0, 3.0], None, Some(1)),
            // The only remaining candidate is taken.
            (Sampling { top_k: 1, ..WARM }, &[], &[2.0, 3.0, 1.0], None, Some(1)),
            (Sampling { top_p: 0.0, ..WARM }, &[], &[2.0, 3.0, 1.0], None, Some(1)),
            (Sampling { top_p: 0.5, ..WARM }, &[], &[2.0, 3.0, 1.0], None, Some(1)),
            (Sampling { min_p: 0.9, ..WARM }, &[], &[2.0, 3.0, 1.0], None, Some(1)),
            (Sampling { min_p: 7.0, ..WARM }, &[], &[2.0, 3.0, 1.0], None, Some(1)),
            (Sampling { temperature: 1e-6, ..WARM }, &[], &[2.0, 3.0, 1.0], None, Some(1)),
            (WARM, &[], &[2.0, 3.0, 1.0], Some(0b100), Some(2)),
            (WARM, &[], &[nan, never], None, None),
            (WARM, &[], &[], None, None),
        ] {
            check(sampling, said, logits, allowed, want);
        }
        // More than one word, and more than the lanes.
        let mut logits = vec![0.0; 100];
        (logits[50], logits[99]) = (1.0, 2.0);
        let mut sampler = Sampler::new(GREEDY);
        assert_eq!(sampler.choose(&logits, None), Some(99));
        assert_eq!(sampler.choose(&logits, Some(&[0, 1 << 18, 0, 0])), Some(50));
    }

    /// Samples often, and counts in percent.
    fn shares(sampling: Sampling, logits: &[f32], allowed: Option<&[u32]>) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling);
        let mut counts = vec![0; logits.len()];
        for _ in 0..20_000 {
            counts[sampler.choose(logits, allowed).unwrap() as usize] += 1;
        }
        counts.iter().map(|count| (count + 100) / 200).collect()
    }

    #[test]
    fn sampling_follows_the_probabilities() {
        let logits = [1_f32, 2.0, 4.0, 1.0].map(f32::ln);
        let near = |got: Vec<u32>, want: [u32; 4]| {
            let apart = got.iter().zip(want).map(|(a, b)| a.abs_diff(b)).max();
            assert!(apart <= Some(2), "{got:?} {want:?}");
        };
        near(shares(WARM, &logits, None), [13, 25, 50, 13]);
        near(shares(Sampling { temperature: 0.5, ..WARM }, &logits, None), [5, 18, 73, 5]);
        near(shares(Sampling { top_k: 2, ..WARM }, &logits, None), [0, 33, 67, 0]);
        near(shares(Sampling { top_p: 0.7, ..WARM }, &logits, None), [0, 33, 67, 0]);
        near(shares(Sampling { min_p: 0.4, ..WARM }, &logits, None), [0, 33, 67, 0]);
        near(shares(WARM, &logits, Some(&[0b1011])), [25, 50, 0, 25]);
    }

    #[test]
    fn without_a_seed_answers_differ() {
        let logits = vec![0.0; 1000];
        let draw = || {
            let mut sampler = Sampler::new(Sampling { any_seed: true, ..WARM });
            (0..8).filter_map(|_| sampler.choose(&logits, None)).collect::<Vec<_>>()
        };
        assert_ne!(draw(), draw());
    }

    #[test]
    fn the_same_seed_samples_the_same_tokens() {
        let logits = vec![0.0; 1000];
        let draw = |seed| {
            let mut sampler = Sampler::new(Sampling { seed, ..WARM });
            (0..10).map(|_| sampler.choose(&logits, None).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
