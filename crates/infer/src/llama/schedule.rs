//! Decides which answers use the model next, without touching it.
//!
//! Answers wait in a FIFO queue until one of a few *slots* is free. A slot is a sequence in the KV cache; its
//! tokens stay there when an answer ends, so that the next one of the same thread only has to evaluate what is
//! new. All slots share one store of *cells*, one per token. [`Schedule::plan`] builds the next batch: one token
//! of every answer being generated, and as much of the prompts as the caller has time for. A prefix shared by
//! several prompts is evaluated once: later ones wait for the first, and copy it.
//!
//! ```text
//! submit ─▶ queue ──admit──▶ slot ──plan, decoded, say──▶ … ──end──▶ idle slot, still with its tokens
//!             ▲                │
//!             └─ out of cells, or its reader sleeps while others wait
//! ```
//!
//! Operations on the KV cache are returned as [`Order`]s, to be performed in order, before the batch that came
//! with them.

use std::collections::{BTreeMap, VecDeque};

pub(crate) type JobId = u64;

/// The resources to share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many answers are generated concurrently.
    pub(crate) slots: usize,
    /// KV cache cells of all slots together. No answer may ever have more.
    pub(crate) cells: usize,
    /// Whether the KV cache can be truncated and copied. That of recurrent models cannot.
    pub(crate) rewind: bool,
}

/// An operation on the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Truncates a slot.
    Cut {
        slot: usize,
        /// How many tokens to keep.
        keep: usize,
    },
    /// Copies a prefix into an empty slot.
    Copy { from: usize, to: usize, tokens: usize },
}

/// Tokens of one answer in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) job: JobId,
    pub(crate) slot: usize,
    /// Position of the first token.
    pub(crate) start: usize,
    pub(crate) count: usize,
    /// Whether this is its first part in any batch: everything before `start` was cached.
    pub(crate) first: bool,
    /// Whether it ends with the answer's last token, so that logits are needed.
    pub(crate) last: bool,
}

/// The slots, the answers in them, and the queue.
#[derive(Debug)]
pub(crate) struct Schedule {
    limits: Limits,
    slots: Vec<Slot>,
    jobs: BTreeMap<JobId, Job>,
    queue: VecDeque<JobId>,
    clock: u64,
    turn: usize,
    /// Whether the last batch was aborted.
    aborted: bool,
}

#[derive(Debug, Default)]
struct Slot {
    /// The tokens in the KV cache.
    tokens: Vec<u32>,
    key: Option<String>,
    used: u64,
    job: Option<JobId>,
}

#[derive(Debug)]
struct Job {
    /// The prompt, and what was generated.
    tokens: Vec<u32>,
    key: Option<String>,
    place: Place,
    paused: bool,
    begun: bool,
    admitted: u64,
    leader: Option<Leader>,
}

/// An answer that is evaluating a prefix which another one needs, too.
#[derive(Clone, Copy, Debug)]
struct Leader {
    job: JobId,
    /// Length of the shared prefix, in tokens.
    tokens: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Queued,
    Slot(usize),
    /// Without a slot, until its reader reads.
    Parked,
}

impl Schedule {
    /// Creates a schedule with empty slots.
    pub(crate) fn new(limits: Limits) -> Self {
        let slots = (0..limits.slots).map(|_| Slot::default()).collect();
        Self {
            limits,
            slots,
            jobs: BTreeMap::new(),
            queue: VecDeque::new(),
            clock: 0,
            turn: 0,
            aborted: false,
        }
    }

    /// Queues an answer. The prompt has at least one token, and fits into the cells.
    pub(crate) fn submit(&mut self, job: JobId, prompt: Vec<u32>, key: Option<String>) {
        debug_assert!(!prompt.is_empty() && prompt.len() < self.limits.cells);
        let queued = Job {
            tokens: prompt,
            key,
            place: Place::Queued,
            paused: false,
            begun: false,
            admitted: 0,
            leader: None,
        };
        self.jobs.insert(job, queued);
        self.queue.push_back(job);
    }

    /// Removes an answer, because it is complete or cancelled. Its slot keeps the KV cache.
    pub(crate) fn end(&mut self, job: JobId) {
        let Some(gone) = self.jobs.remove(&job) else { return };
        match gone.place {
            Place::Slot(slot) => self.vacate(slot),
            Place::Queued => self.queue.retain(|&other| other != job),
            Place::Parked => {}
        }
    }

    /// Removes an answer whose KV cache is unreliable.
    pub(crate) fn spoil(&mut self, job: JobId) -> Option<Order> {
        let place = self.jobs.get(&job).map(|job| job.place);
        self.end(job);
        let Some(Place::Slot(slot)) = place else { return None };
        self.slots[slot].tokens.clear();
        Some(Order::Cut { slot, keep: 0 })
    }

    /// Appends generated tokens to an answer, to be evaluated in the next batch.
    pub(crate) fn say(&mut self, job: JobId, tokens: &[u32]) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.tokens.extend_from_slice(tokens);
        }
    }

    /// Returns all tokens of an answer: the prompt, and what was generated.
    pub(crate) fn tokens(&self, job: JobId) -> &[u32] {
        self.jobs.get(&job).map_or(&[], |job| &job.tokens)
    }

    /// Records whether the reader of an answer has room. Without room, no work is done for it.
    pub(crate) fn pause(&mut self, id: JobId, paused: bool) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.paused = paused;
        if !paused && job.place == Place::Parked {
            job.place = Place::Queued;
            self.queue.push_back(id);
        }
    }

    /// Takes the slot of a paused answer away for a queued one. It is queued again when its reader reads.
    pub(crate) fn park(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Place::Slot(slot) = job.place else { return };
        if job.paused {
            job.place = Place::Parked;
            self.vacate(slot);
        }
    }

    /// Returns how many answers are ready for a slot.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns how many answers have a slot.
    pub(crate) fn running(&self) -> usize {
        self.slots.iter().filter(|slot| slot.job.is_some()).count()
    }

    /// Gives free slots to the answers that have waited longest.
    pub(crate) fn admit(&mut self, orders: &mut Vec<Order>) {
        while let Some(&id) = self.queue.front() {
            let Some(slot) = self.seat(id) else { break };
            self.queue.pop_front();
            self.occupy(id, slot, orders);
        }
    }

    /// Plans the next batch: one token of each answer being generated, then prompts, up to `budget` tokens.
    ///
    /// Before the next call comes [`Schedule::decoded`] or [`Schedule::aborted`] with the whole plan, or
    /// [`Schedule::spoil`] with every answer in it.
    pub(crate) fn plan(&mut self, budget: usize, orders: &mut Vec<Order>) -> Vec<Stretch> {
        self.turn = self.turn.wrapping_add(1);
        let count = self.slots.len();
        let in_turn: Vec<usize> = (0..count).map(|index| (index + self.turn) % count).collect();
        let mut ready = Vec::new();
        for slot in in_turn {
            if !self.waits(slot, orders) {
                ready.extend(self.rest(slot));
            }
        }
        let (said, prompts): (Vec<_>, Vec<_>) = ready.into_iter().partition(|rest| rest.count == 1);
        // Prompts always make progress, however many answers there are.
        let mut left = budget.saturating_sub(said.len()).max(BUDGET_MIN.min(budget));
        let mut plan = said;
        for mut rest in prompts {
            if left == 0 && !plan.is_empty() {
                break;
            }
            let most = left.max(1);
            if rest.count > most {
                (rest.count, rest.last) = (most, false);
            }
            left = left.saturating_sub(rest.count);
            plan.push(rest);
        }
        self.make_room(&mut plan, orders);
        plan
    }

    /// Returns how many tokens of a batch must be unwanted before it is aborted.
    ///
    /// All of them; or so many that the rest, which has to be evaluated again, is a small part. That happens
    /// to others only once in a row, so that they make progress whoever comes and goes.
    pub(crate) fn unwanted_min(&self, plan: &[Stretch]) -> usize {
        let all: usize = plan.iter().map(|stretch| stretch.count).sum();
        let spare = if self.limits.rewind && !self.aborted { all / AGAIN_PART } else { 0 };
        all - spare
    }

    /// Records that a batch was aborted. Its remaining answers are evaluated again.
    pub(crate) fn aborted(&mut self, plan: &[Stretch], orders: &mut Vec<Order>) {
        self.aborted = true;
        for stretch in plan {
            if let Some(job) = self.jobs.get_mut(&stretch.job) {
                job.begun = true;
            }
            let keep = if self.limits.rewind { stretch.start } else { 0 };
            self.slots[stretch.slot].tokens.truncate(keep);
            orders.push(Order::Cut { slot: stretch.slot, keep });
        }
    }

    /// Records that a batch is in the KV cache.
    pub(crate) fn decoded(&mut self, plan: &[Stretch]) {
        self.clock += 1;
        self.aborted = false;
        for stretch in plan {
            let Some(job) = self.jobs.get_mut(&stretch.job) else { continue };
            job.begun = true;
            let slot = &mut self.slots[stretch.slot];
            slot.tokens.extend_from_slice(&job.tokens[stretch.start..][..stretch.count]);
            slot.used = self.clock;
        }
    }

    /// Returns what an answer in a slot still has to evaluate, if it can continue.
    fn rest(&self, slot: usize) -> Option<Stretch> {
        let id = self.slots[slot].job?;
        let job = &self.jobs[&id];
        let start = self.slots[slot].tokens.len();
        let count = job.tokens.len() - start;
        let stretch = Stretch { job: id, slot, start, count, first: !job.begun, last: true };
        (!job.paused && count > 0).then_some(stretch)
    }

    /// Chooses a slot for an answer, if one is available with enough cells.
    fn seat(&self, id: JobId) -> Option<usize> {
        let job = &self.jobs[&id];
        let busy: usize = self
            .slots
            .iter()
            .filter_map(|slot| slot.job)
            .map(|id| self.jobs[&id].tokens.len())
            .sum();
        if busy > 0 && busy + job.tokens.len() + CELLS_SPARE > self.limits.cells {
            return None;
        }
        let idle = || (0..self.slots.len()).filter(|&slot| self.slots[slot].job.is_none());
        let mine = idle().filter(|&slot| {
            let slot = &self.slots[slot];
            // Without a key, a slot belongs to the same thread if most of its tokens match.
            let shared = common(&slot.tokens, &job.tokens);
            let goes_on = job.key.is_none() && shared > 0 && shared * 2 >= slot.tokens.len();
            slot.key == job.key && (job.key.is_some() || goes_on)
        });
        let best = mine.max_by_key(|&slot| (self.usable(slot, job), self.slots[slot].used));
        best.or_else(|| idle().min_by_key(|&slot| self.oldness(slot)))
    }

    /// Puts an answer into a free slot, with the longest cached prefix of any slot.
    fn occupy(&mut self, id: JobId, slot: usize, orders: &mut Vec<Order>) {
        let own = self.usable(slot, &self.jobs[&id]);
        if !self.adopt(id, slot, own, orders) && self.slots[slot].tokens.len() > own {
            orders.push(Order::Cut { slot, keep: own });
            self.slots[slot].tokens.truncate(own);
        }
        let leader = self.leader(id, self.slots[slot].tokens.len());
        self.clock += 1;
        let job = self.jobs.get_mut(&id).expect("whoever is queued is there");
        (job.place, job.admitted, job.leader) = (Place::Slot(slot), self.clock, leader);
        let place = &mut self.slots[slot];
        (place.job, place.used) = (Some(id), self.clock);
        place.key.clone_from(&job.key);
    }

    /// Copies another slot's prefix of an answer, if that is longer than its own `have` tokens.
    fn adopt(&mut self, id: JobId, slot: usize, have: usize, orders: &mut Vec<Order>) -> bool {
        let job = &self.jobs[&id];
        let others = (0..self.slots.len()).filter(|&other| other != slot && self.limits.rewind);
        let best = others.map(|other| (self.usable(other, job), other)).max();
        let Some((tokens, from)) = best.filter(|(tokens, _)| *tokens > have) else { return false };
        if !self.slots[slot].tokens.is_empty() {
            orders.push(Order::Cut { slot, keep: 0 });
        }
        orders.push(Order::Copy { from, to: slot, tokens });
        self.slots[slot].tokens = self.slots[from].tokens[..tokens].to_vec();
        true
    }

    /// Finds an answer that is about to evaluate the same tokens beyond `have`.
    fn leader(&self, id: JobId, have: usize) -> Option<Leader> {
        let job = &self.jobs[&id];
        let wanted = &job.tokens[..job.tokens.len() - 1];
        let seated = self.slots.iter().filter_map(|slot| slot.job).filter(|_| self.limits.rewind);
        let leaders = seated
            .map(|other| Leader { job: other, tokens: common(&self.jobs[&other].tokens, wanted) });
        leaders
            .filter(|leader| leader.tokens >= have + SHARED_MIN)
            .max_by_key(|leader| leader.tokens)
    }

    /// Tells whether an answer waits for its leader; copies the leader's prefix once it need not wait.
    ///
    /// Leaders came earlier, and a paused answer leads nobody, so some answer always makes progress.
    fn waits(&mut self, slot: usize, orders: &mut Vec<Order>) -> bool {
        let Some(id) = self.slots[slot].job else { return false };
        let Some(leader) = self.jobs[&id].leader else { return false };
        if let Some(ahead) = self.jobs.get(&leader.job)
            && let Place::Slot(its) = ahead.place
            && !ahead.paused
            && self.slots[its].tokens.len() < leader.tokens
        {
            return true;
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.leader = None;
        }
        self.adopt(id, slot, self.slots[slot].tokens.len(), orders);
        false
    }

    /// Returns how many cached tokens of a slot an answer can use. The last token is always evaluated again,
    /// for its logits.
    fn usable(&self, slot: usize, job: &Job) -> usize {
        let has = &self.slots[slot].tokens;
        let shared = common(has, &job.tokens[..job.tokens.len() - 1]);
        if self.limits.rewind || shared == has.len() { shared } else { 0 }
    }

    /// Orders slots for eviction: empty ones, then the least recently used.
    fn oldness(&self, slot: usize) -> (bool, u64) {
        (!self.slots[slot].tokens.is_empty(), self.slots[slot].used)
    }

    /// Frees cells for a batch: from idle slots, then from paused answers, then from the youngest.
    fn make_room(&mut self, plan: &mut Vec<Stretch>, orders: &mut Vec<Order>) {
        loop {
            // Shared cells are counted for each slot: an overestimate, never an underestimate.
            let used: usize = self.slots.iter().map(|slot| slot.tokens.len()).sum();
            let wanted: usize = plan.iter().map(|stretch| stretch.count).sum();
            if used + wanted <= self.limits.cells {
                return;
            }
            let full = |slot: &usize| !self.slots[*slot].tokens.is_empty();
            let idle = (0..self.slots.len()).filter(|&slot| self.slots[slot].job.is_none());
            let oldest = idle.filter(full).min_by_key(|&slot| self.slots[slot].used);
            let Some(slot) = oldest.or_else(|| self.preempt(plan)) else {
                debug_assert!(false, "one answer always fits");
                plan.clear();
                return;
            };
            self.slots[slot].tokens.clear();
            orders.push(Order::Cut { slot, keep: 0 });
        }
    }

    /// Sends an answer back to the head of the queue, but never the oldest, so that it can finish.
    fn preempt(&mut self, plan: &mut Vec<Stretch>) -> Option<usize> {
        let seated = self.slots.iter().enumerate().filter_map(|(slot, at)| Some((at.job?, slot)));
        let mut seated: Vec<_> = seated
            .map(|(id, slot)| (self.jobs[&id].paused, self.jobs[&id].admitted, id, slot))
            .collect();
        seated.sort_unstable();
        let (paused, _, id, slot) =
            seated.pop().filter(|_| !seated.is_empty() || plan.is_empty())?;
        plan.retain(|stretch| stretch.job != id);
        self.slots[slot].job = None;
        let job = self.jobs.get_mut(&id)?;
        job.leader = None;
        job.place = if paused { Place::Parked } else { Place::Queued };
        if !paused {
            self.queue.push_front(id);
        }
        Some(slot)
    }

    fn vacate(&mut self, slot: usize) {
        self.clock += 1;
        self.slots[slot].job = None;
        self.slots[slot].used = self.clock;
    }
}

/// Limits the prompt tokens of a batch, so that no batch takes long: answers in the same batch wait for it.
///
/// On a busy machine the time of equal batches varies by a factor of three, so the slowest of the recent ones
/// counts. On an idle machine they are all alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    budget: usize,
    /// Seconds per token of the recent batches, the newest last.
    recent: [f64; RECENT],
}

impl Pace {
    /// Starts conservatively.
    pub(crate) fn new() -> Self {
        Self { budget: BUDGET_FIRST, recent: [0.0; RECENT] }
    }

    /// Returns the token limit of the next batch.
    pub(crate) fn budget(self) -> usize {
        self.budget
    }

    /// Learns from a batch: slows down immediately, speeds up gradually.
    pub(crate) fn measured(&mut self, tokens: usize, seconds: f64) {
        // A few tokens take as long as one, so they tell nothing.
        if tokens < BUDGET_MIN || seconds <= 0.0 {
            return;
        }
        self.recent.rotate_left(1);
        self.recent[RECENT - 1] = seconds / tokens as f64;
        let slowest = self.recent.iter().copied().fold(0.0, f64::max);
        let fitting = (BATCH_SECONDS / slowest).round() as usize;
        self.budget = fitting.clamp(BUDGET_MIN, BATCH_TOKENS_MAX.min(self.budget * 2));
    }
}

/// Returns the length of the common prefix.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Most tokens decoded at once; compute buffers are allocated for it.
pub(crate) const BATCH_TOKENS_MAX: usize = 256;
/// Target for the duration of a batch.
const BATCH_SECONDS: f64 = 0.05;
/// An unwanted batch is aborted if at most one part in this many has to be evaluated again for others.
const AGAIN_PART: usize = 8;
const BUDGET_FIRST: usize = 32;
/// How many batches are considered: about half a second.
const RECENT: usize = 8;
/// Below this, prompt evaluation is no faster than generation.
const BUDGET_MIN: usize = 8;
/// Shared prefix length that is worth waiting for.
const SHARED_MIN: usize = 16;
/// Cells that must be free when an answer starts next to others, so that it is not preempted immediately.
const CELLS_SPARE: usize = 32;

#[cfg(test)]
mod tests;
