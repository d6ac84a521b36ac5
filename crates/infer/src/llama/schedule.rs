//! Who gets the model next, decided but never performed.
//!
//! Answers wait in a queue, first come first served, until one of a few *slots* is free. A slot is a
//! sequence in the model's memory; what it has read stays there when an answer ends, so that the next
//! one of the same thread has only to read what is new. All slots share one store of *cells*, one
//! per token. [`Schedule::plan`] makes the next batch: one token of every answer that is being said, and
//! as much of the prompts as the caller has time for.
//!
//! ```text
//! submit ─▶ queue ──admit──▶ slot ──plan, decoded, say──▶ … ──end──▶ idle slot, still with its tokens
//!             ▲                │
//!             └─ cells ran out, or its reader sleeps while others wait
//! ```
//!
//! What is to be done with the memory is handed out as [`Order`]s, to be performed in order, before the
//! batch that came with them.

use std::collections::{BTreeMap, VecDeque};

/// Names an answer.
pub(crate) type JobId = u64;

/// What there is to share out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many answers are made at once.
    pub(crate) slots: usize,
    /// How many tokens all slots have together. No answer may ever have more.
    pub(crate) cells: usize,
    /// Whether memory can be cut or copied in the middle. That of recurrent models cannot.
    pub(crate) rewind: bool,
}

/// What to do with the model's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Forget all but the first tokens of a slot.
    Cut {
        /// The slot.
        slot: usize,
        /// How many stay.
        keep: usize,
    },
    /// Let a slot that is empty begin like another.
    Copy {
        /// The slot that has the tokens.
        from: usize,
        /// The slot that gets them.
        to: usize,
        /// How many.
        tokens: usize,
    },
}

/// An answer that has a slot now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The answer.
    pub(crate) job: JobId,
    /// Tokens that need not be read.
    pub(crate) cached: usize,
    /// Whether this is the first time, and not the end of a break.
    pub(crate) first: bool,
}

/// Tokens of one answer that are in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The answer.
    pub(crate) job: JobId,
    /// Its slot.
    pub(crate) slot: usize,
    /// Which of its tokens is the first.
    pub(crate) start: usize,
    /// How many there are.
    pub(crate) count: usize,
    /// Whether the last token is the last there is: what comes after it is wanted.
    pub(crate) last: bool,
}

/// Slots, those who have them, and those who wait.
#[derive(Debug)]
pub(crate) struct Schedule {
    limits: Limits,
    slots: Vec<Slot>,
    jobs: BTreeMap<JobId, Job>,
    queue: VecDeque<JobId>,
    clock: u64,
    turn: usize,
}

#[derive(Debug, Default)]
struct Slot {
    /// What is in memory.
    tokens: Vec<u32>,
    key: Option<String>,
    used: u64,
    job: Option<JobId>,
}

#[derive(Debug)]
struct Job {
    /// The prompt, and what was said.
    tokens: Vec<u32>,
    key: Option<String>,
    place: Place,
    paused: bool,
    begun: bool,
    admitted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Queued,
    Slot(usize),
    /// Out of its slot, until its reader reads.
    Parked,
}

impl Schedule {
    /// Makes a schedule with empty slots.
    pub(crate) fn new(limits: Limits) -> Self {
        let slots = (0..limits.slots).map(|_| Slot::default()).collect();
        Self { limits, slots, jobs: BTreeMap::new(), queue: VecDeque::new(), clock: 0, turn: 0 }
    }

    /// Queues an answer. The prompt has at least one token, and fits the cells.
    pub(crate) fn submit(&mut self, job: JobId, prompt: Vec<u32>, key: Option<String>) {
        debug_assert!(!prompt.is_empty() && prompt.len() < self.limits.cells);
        let (place, paused, begun) = (Place::Queued, false, false);
        self.jobs.insert(job, Job { tokens: prompt, key, place, paused, begun, admitted: 0 });
        self.queue.push_back(job);
    }

    /// Takes an answer out, because it is over or nobody wants it. What its slot has read stays.
    pub(crate) fn end(&mut self, job: JobId) {
        let Some(gone) = self.jobs.remove(&job) else { return };
        match gone.place {
            Place::Slot(slot) => self.vacate(slot),
            Place::Queued => self.queue.retain(|&other| other != job),
            Place::Parked => {}
        }
    }

    /// Takes out an answer whose memory is in doubt.
    pub(crate) fn spoil(&mut self, job: JobId) -> Option<Order> {
        let place = self.jobs.get(&job).map(|job| job.place);
        self.end(job);
        let Some(Place::Slot(slot)) = place else { return None };
        self.slots[slot].tokens.clear();
        Some(Order::Cut { slot, keep: 0 })
    }

    /// Adds what the model said to an answer, to be read by it in the next batch.
    pub(crate) fn say(&mut self, job: JobId, tokens: &[u32]) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.tokens.extend_from_slice(tokens);
        }
    }

    /// Returns all tokens of an answer: the prompt, and what was said.
    pub(crate) fn tokens(&self, job: JobId) -> &[u32] {
        self.jobs.get(&job).map_or(&[], |job| &job.tokens)
    }

    /// Notes whether the reader of an answer has room for more. Until it has, no work is done for it.
    pub(crate) fn pause(&mut self, id: JobId, paused: bool) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.paused = paused;
        if !paused && job.place == Place::Parked {
            job.place = Place::Queued;
            self.queue.push_back(id);
        }
    }

    /// Takes the slot of a paused answer away, for somebody who waits. It queues again when its reader reads.
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

    /// Gives free slots to those who wait longest.
    pub(crate) fn admit(&mut self, orders: &mut Vec<Order>) -> Vec<Admitted> {
        let mut admitted = Vec::new();
        while let Some(&id) = self.queue.front() {
            let Some(slot) = self.seat(id) else { break };
            self.queue.pop_front();
            admitted.push(self.occupy(id, slot, orders));
        }
        admitted
    }

    /// Makes the next batch: one token of each answer that is being said, then prompts, `budget` in all.
    ///
    /// Everybody who takes part is told of to [`Schedule::decoded`] or to [`Schedule::spoil`] before the next.
    pub(crate) fn plan(&mut self, budget: usize, orders: &mut Vec<Order>) -> Vec<Stretch> {
        self.turn = self.turn.wrapping_add(1);
        let count = self.slots.len();
        let in_turn = (0..count).map(|index| (index + self.turn) % count);
        let ready: Vec<Stretch> = in_turn.filter_map(|slot| self.rest(slot)).collect();
        let (said, prompts): (Vec<_>, Vec<_>) = ready.into_iter().partition(|rest| rest.count == 1);
        let mut left = budget.saturating_sub(said.len());
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

    /// Notes that a batch is in memory.
    pub(crate) fn decoded(&mut self, plan: &[Stretch]) {
        self.clock += 1;
        for stretch in plan {
            let Some(job) = self.jobs.get(&stretch.job) else { continue };
            let slot = &mut self.slots[stretch.slot];
            slot.tokens.extend_from_slice(&job.tokens[stretch.start..][..stretch.count]);
            slot.used = self.clock;
        }
    }

    /// Returns what an answer in a slot still has to read, if it can go on.
    fn rest(&self, slot: usize) -> Option<Stretch> {
        let id = self.slots[slot].job?;
        let job = &self.jobs[&id];
        let start = self.slots[slot].tokens.len();
        let count = job.tokens.len() - start;
        let stretch = Stretch { job: id, slot, start, count, last: true };
        (!job.paused && count > 0).then_some(stretch)
    }

    /// Chooses a slot for an answer, if there is one, and cells for what it has to read.
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
            // Without a key, a slot is taken for the same thread if most of what it has is asked for again.
            let shared = common(&slot.tokens, &job.tokens);
            let goes_on = job.key.is_none() && shared > 0 && shared * 2 >= slot.tokens.len();
            slot.key == job.key && (job.key.is_some() || goes_on)
        });
        let best = mine.max_by_key(|&slot| (self.usable(slot, job), self.slots[slot].used));
        best.or_else(|| idle().min_by_key(|&slot| self.oldness(slot)))
    }

    /// Puts an answer into a slot that is free, with as much of its prompt as any slot has.
    fn occupy(&mut self, id: JobId, slot: usize, orders: &mut Vec<Order>) -> Admitted {
        let job = &self.jobs[&id];
        let own = self.usable(slot, job);
        let others = (0..self.slots.len()).filter(|&other| other != slot && self.limits.rewind);
        let best = others.map(|other| (self.usable(other, job), other)).max();
        let mut cached = own;
        match best {
            Some((shared, from)) if shared > own => {
                cached = shared;
                if !self.slots[slot].tokens.is_empty() {
                    orders.push(Order::Cut { slot, keep: 0 });
                }
                orders.push(Order::Copy { from, to: slot, tokens: shared });
                self.slots[slot].tokens = self.slots[from].tokens[..shared].to_vec();
            }
            _ if self.slots[slot].tokens.len() > own => {
                orders.push(Order::Cut { slot, keep: own });
                self.slots[slot].tokens.truncate(own);
            }
            _ => {}
        }
        self.clock += 1;
        let job = self.jobs.get_mut(&id).expect("whoever is queued is there");
        let first = !std::mem::replace(&mut job.begun, true);
        (job.place, job.admitted) = (Place::Slot(slot), self.clock);
        let place = &mut self.slots[slot];
        (place.job, place.used) = (Some(id), self.clock);
        place.key.clone_from(&job.key);
        Admitted { job: id, cached, first }
    }

    /// Returns how much of an answer a slot has read. The last token is always read again, for what follows.
    fn usable(&self, slot: usize, job: &Job) -> usize {
        let has = &self.slots[slot].tokens;
        let shared = common(has, &job.tokens[..job.tokens.len() - 1]);
        if self.limits.rewind || shared == has.len() { shared } else { 0 }
    }

    /// Orders slots by who can best be done without: empty ones, then the longest unused.
    fn oldness(&self, slot: usize) -> (bool, u64) {
        (!self.slots[slot].tokens.is_empty(), self.slots[slot].used)
    }

    /// Makes cells free for a batch: of idle slots, then of answers that sleep, then of the youngest.
    fn make_room(&mut self, plan: &mut Vec<Stretch>, orders: &mut Vec<Order>) {
        loop {
            // What slots share is counted for each of them: too much, never too little.
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

    /// Sends an answer back to the head of the queue, but never the oldest, which so comes to its end.
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

/// How many tokens of prompts a batch has, so that no batch takes long: whoever cancels waits for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    budget: usize,
}

impl Pace {
    /// Begins carefully.
    pub(crate) fn new() -> Self {
        Self { budget: BUDGET_FIRST }
    }

    /// Returns how many tokens the next batch should have at most.
    pub(crate) fn budget(self) -> usize {
        self.budget
    }

    /// Learns from a batch: slower at once, faster by and by.
    pub(crate) fn measured(&mut self, tokens: usize, seconds: f64) {
        // A few tokens take as long as one; there is nothing to learn from them.
        if tokens < BUDGET_MIN || seconds <= 0.0 {
            return;
        }
        let fitting = (tokens as f64 * BATCH_SECONDS / seconds).round() as usize;
        self.budget = fitting.clamp(BUDGET_MIN, BATCH_TOKENS_MAX.min(self.budget * 2));
    }
}

/// Returns how many tokens two texts begin with alike.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The most tokens that are decoded at once; the model's work space is made for it.
pub(crate) const BATCH_TOKENS_MAX: usize = 256;
/// How long a batch should take at most.
const BATCH_SECONDS: f64 = 0.05;
const BUDGET_FIRST: usize = 32;
/// Below this, reading a prompt is no faster than saying it.
const BUDGET_MIN: usize = 8;
/// Cells that must be left when an answer begins beside others, so that it is not sent away at once.
const CELLS_SPARE: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { slots: 2, cells: 100, rewind: true };

    fn admit(schedule: &mut Schedule) -> (Vec<(JobId, usize)>, Vec<Order>) {
        let mut orders = Vec::new();
        let admitted = schedule.admit(&mut orders);
        (admitted.iter().map(|admitted| (admitted.job, admitted.cached)).collect(), orders)
    }

    /// Reads all prompts, and says `said` for everybody.
    fn finish(schedule: &mut Schedule, said: u32) {
        loop {
            let plan = schedule.plan(16, &mut Vec::new());
            schedule.decoded(&plan);
            if plan.is_empty() {
                return;
            }
            for stretch in plan.iter().filter(|stretch| stretch.last) {
                schedule.say(stretch.job, &[said]);
                let again = schedule.plan(16, &mut Vec::new());
                let own: Vec<_> =
                    again.into_iter().filter(|other| other.job == stretch.job).collect();
                schedule.decoded(&own);
                schedule.end(stretch.job);
            }
        }
    }

    #[test]
    fn a_second_turn_reads_what_is_new() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.submit(1, vec![1, 2, 3], Some("a".into()));
        assert_eq!(admit(&mut schedule), (vec![(1, 0)], vec![]));
        finish(&mut schedule, 4);
        // The answer is part of the next prompt.
        schedule.submit(2, vec![1, 2, 3, 4, 5, 6], Some("a".into()));
        assert_eq!(admit(&mut schedule), (vec![(2, 4)], vec![]));
        finish(&mut schedule, 7);
        // The same again: all but the last token is there.
        schedule.submit(3, vec![1, 2, 3, 4, 5, 6], Some("a".into()));
        assert_eq!(admit(&mut schedule), (vec![(3, 5)], vec![Order::Cut { slot: 0, keep: 5 }]));
        finish(&mut schedule, 7);
        // Another thread begins alike, and leaves the first one its memory.
        schedule.submit(4, vec![1, 2, 9, 9], Some("b".into()));
        let copy = Order::Copy { from: 0, to: 1, tokens: 2 };
        assert_eq!(admit(&mut schedule), (vec![(4, 2)], vec![copy]));
        finish(&mut schedule, 7);
        // A third takes the place of the one that was used least recently.
        schedule.submit(5, vec![8, 8], Some("c".into()));
        assert_eq!(admit(&mut schedule), (vec![(5, 0)], vec![Order::Cut { slot: 0, keep: 0 }]));
    }

    #[test]
    fn without_a_key_what_goes_on_is_recognised() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.submit(1, vec![1, 2, 3], None);
        admit(&mut schedule);
        finish(&mut schedule, 4);
        schedule.submit(2, vec![1, 2, 3, 4, 5], None);
        assert_eq!(admit(&mut schedule), (vec![(2, 4)], vec![]));
        finish(&mut schedule, 6);
        // Too little in common to be the same thread.
        schedule.submit(3, vec![1, 9, 9], None);
        let copy = Order::Copy { from: 0, to: 1, tokens: 1 };
        assert_eq!(admit(&mut schedule), (vec![(3, 1)], vec![copy]));
    }

    #[test]
    fn memory_that_cannot_be_cut_is_used_whole_or_not_at_all() {
        let mut schedule = Schedule::new(Limits { rewind: false, ..LIMITS });
        schedule.submit(1, vec![1, 2, 3], Some("a".into()));
        admit(&mut schedule);
        finish(&mut schedule, 4);
        schedule.submit(2, vec![1, 2, 3, 4, 5], Some("a".into()));
        assert_eq!(admit(&mut schedule), (vec![(2, 4)], vec![]));
        finish(&mut schedule, 6);
        schedule.submit(3, vec![1, 2, 3, 9], Some("a".into()));
        assert_eq!(admit(&mut schedule), (vec![(3, 0)], vec![Order::Cut { slot: 0, keep: 0 }]));
    }

    #[test]
    fn a_batch_has_everybody_in_it() {
        let mut schedule = Schedule::new(Limits { slots: 3, cells: 200, rewind: true });
        schedule.submit(1, vec![1; 1], None);
        schedule.submit(2, vec![2; 50], None);
        schedule.submit(3, vec![3; 50], None);
        admit(&mut schedule);
        let mut read = [0; 4];
        for _ in 0..2 {
            let plan = schedule.plan(16, &mut Vec::new());
            assert_eq!(plan.iter().map(|stretch| stretch.count).sum::<usize>(), 16, "{plan:?}");
            assert_eq!((plan[0].job, plan[0].count, plan[0].last), (1, 1, true));
            schedule.decoded(&plan);
            schedule.say(1, &[7]);
            for stretch in plan {
                read[stretch.job as usize] += stretch.count;
            }
        }
        assert_eq!(read, [0, 2, 15, 15], "prompts take turns");
    }

    #[test]
    fn whoever_sleeps_makes_room() {
        let mut schedule = Schedule::new(Limits { slots: 1, cells: 100, rewind: true });
        schedule.submit(1, vec![1, 2], None);
        schedule.submit(2, vec![3, 4], None);
        assert_eq!(admit(&mut schedule).0, [(1, 0)]);
        schedule.park(1);
        assert_eq!((schedule.running(), schedule.queued()), (1, 1), "it is awake");
        schedule.pause(1, true);
        assert_eq!(schedule.plan(16, &mut Vec::new()), []);
        schedule.park(1);
        assert_eq!(admit(&mut schedule).0, [(2, 0)]);
        schedule.end(2);
        assert_eq!(admit(&mut schedule).0, [], "it still sleeps");
        schedule.pause(1, false);
        let mut orders = Vec::new();
        let again = schedule.admit(&mut orders);
        assert_eq!(again, [Admitted { job: 1, cached: 0, first: false }]);
    }

    #[test]
    fn when_cells_run_out_the_oldest_goes_on() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.submit(1, vec![1; 20], None);
        schedule.submit(2, vec![2; 20], None);
        assert_eq!(admit(&mut schedule).0.len(), 2);
        let mut sent_away = false;
        for _ in 0..70 {
            let mut orders = Vec::new();
            let plan = schedule.plan(40, &mut orders);
            sent_away |= orders.contains(&Order::Cut { slot: 1, keep: 0 });
            assert!(plan.iter().any(|stretch| stretch.job == 1), "{plan:?}");
            schedule.decoded(&plan);
            for stretch in plan {
                schedule.say(stretch.job, &[7]);
            }
            assert!(admit(&mut schedule).0.is_empty());
        }
        assert!(sent_away);
        schedule.end(1);
        assert_eq!(admit(&mut schedule).0, [(2, 0)]);
        assert_eq!(schedule.tokens(2)[..20], [2; 20]);
        assert!(schedule.tokens(2).len() > 30, "what it said is kept");
    }

    #[test]
    fn fifty_at_once_are_served_in_order() {
        let mut schedule = Schedule::new(Limits { slots: 4, cells: 1000, rewind: true });
        for id in 0..50 {
            schedule.submit(id, vec![id as u32 + 1; 10], None);
        }
        let mut begun = Vec::new();
        while !schedule.jobs.is_empty() {
            begun.extend(admit(&mut schedule).0.iter().map(|(id, _)| *id));
            finish(&mut schedule, 1);
        }
        assert_eq!(begun, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn pace_is_found() {
        let mut pace = Pace::new();
        for _ in 0..20 {
            pace.measured(pace.budget(), pace.budget() as f64 / 1000.0);
        }
        assert_eq!(pace.budget(), 50);
        pace.measured(50, 1.0);
        assert_eq!(pace.budget(), BUDGET_MIN);
        pace.measured(1, 1e-9);
        assert_eq!(pace.budget(), BUDGET_MIN, "nothing is learnt from one token");
        for _ in 0..20 {
            pace.measured(pace.budget(), 1e-9);
        }
        assert_eq!(pace.budget(), BATCH_TOKENS_MAX);
    }

    /// What the model would have in memory.
    struct Memory(Vec<Vec<u32>>);

    impl Memory {
        fn perform(&mut self, orders: &[Order]) {
            for &order in orders {
                match order {
                    Order::Cut { slot, keep } => {
                        assert!(self.0[slot].len() >= keep);
                        self.0[slot].truncate(keep);
                    }
                    Order::Copy { from, to, tokens } => {
                        assert!(self.0[to].is_empty());
                        self.0[to] = self.0[from][..tokens].to_vec();
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn any_traffic_comes_to_an_end(
            seed in any::<u64>(),
            slots in 1_usize..5,
            cells in 64_usize..200,
            rewind in any::<bool>(),
        ) {
            let mut rng = stdx::Rng::new(seed);
            let mut schedule = Schedule::new(Limits { slots, cells, rewind });
            let mut memory = Memory(vec![Vec::new(); slots]);
            let (mut next, mut left) = (0, BTreeMap::new());
            let mut begun = Vec::new();
            for round in 0.. {
                assert!(round < 20_000, "it hangs: {schedule:?}");
                if next < 30 && rng.one_in(3) {
                    // Few kinds of tokens, so that prompts begin alike.
                    let length = 1 + rng.below(cells as u64 / 2) as usize;
                    let flips = rng.below(4) as usize;
                    let mut prompt = vec![1; length];
                    for _ in 0..flips {
                        let at = rng.below(length as u64) as usize;
                        prompt[at] = rng.below(3) as u32;
                    }
                    let key = (!rng.one_in(3)).then(|| format!("{}", rng.below(3)));
                    let more = 1 + rng.below((cells - length) as u64) as usize;
                    left.insert(next, more);
                    schedule.submit(next, prompt, key);
                    next += 1;
                } else if next == 30 && left.is_empty() {
                    break;
                }
                if rng.one_in(20) && let Some(&id) = left.keys().next() {
                    schedule.end(id);
                    left.remove(&id);
                }
                for &id in left.keys() {
                    // Everybody wakes in the end.
                    schedule.pause(id, rng.one_in(5) && round < 2000);
                    if rng.one_in(10) {
                        schedule.park(id);
                    }
                }
                let mut orders = Vec::new();
                for admitted in schedule.admit(&mut orders) {
                    if admitted.first {
                        begun.push(admitted.job);
                    }
                }
                let plan = schedule.plan(1 + rng.below(20) as usize, &mut orders);
                memory.perform(&orders);
                for stretch in &plan {
                    let tokens = &schedule.tokens(stretch.job)[stretch.start..][..stretch.count];
                    assert_eq!(memory.0[stretch.slot].len(), stretch.start);
                    let ends = stretch.start + stretch.count == schedule.tokens(stretch.job).len();
                    assert_eq!(ends, stretch.last);
                    memory.0[stretch.slot].extend_from_slice(tokens);
                }
                schedule.decoded(&plan);
                assert!(memory.0.iter().map(Vec::len).sum::<usize>() <= cells);
                for (index, slot) in schedule.slots.iter().enumerate() {
                    assert_eq!(slot.tokens, memory.0[index]);
                    if let Some(id) = slot.job {
                        assert!(schedule.tokens(id).starts_with(&slot.tokens));
                    }
                }
                for stretch in plan.iter().filter(|stretch| stretch.last) {
                    let more = left.get_mut(&stretch.job).unwrap();
                    *more -= 1;
                    if *more == 0 {
                        left.remove(&stretch.job);
                        schedule.end(stretch.job);
                    } else {
                        schedule.say(stretch.job, &[rng.below(3) as u32]);
                    }
                }
            }
            assert!(begun.is_sorted(), "first come, first served: {begun:?}");
        }
    }
}
