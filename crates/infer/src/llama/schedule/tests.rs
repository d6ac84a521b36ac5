//! Every scheduling rule on its own, and random traffic.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { slots: 2, cells: 100, rewind: true };

fn admit(schedule: &mut Schedule) -> (Vec<(JobId, usize)>, Vec<Order>) {
    let (before, mut orders) = (schedule.clock, Vec::new());
    schedule.admit(&mut orders);
    let mut admitted: Vec<_> =
        seated(schedule).filter(|(_, job, _)| job.admitted > before).collect();
    admitted.sort_by_key(|(_, job, _)| job.admitted);
    (admitted.into_iter().map(|(id, _, cached)| (id, cached)).collect(), orders)
}

/// Returns the answers with a slot, and how much of each is in the KV cache.
fn seated(schedule: &Schedule) -> impl Iterator<Item = (JobId, &Job, usize)> {
    let slots = schedule.slots.iter();
    slots.filter_map(|slot| Some((slot.job?, &schedule.jobs[&slot.job?], slot.tokens.len())))
}

/// Evaluates all prompts, and generates `said` for everyone.
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
            let own: Vec<_> = again.into_iter().filter(|other| other.job == stretch.job).collect();
            schedule.decoded(&own);
            schedule.end(stretch.job);
        }
    }
}

#[test]
fn a_second_turn_evaluates_only_new_tokens() {
    let mut schedule = Schedule::new(LIMITS);
    schedule.submit(1, vec![1, 2, 3], Some("a".into()));
    assert_eq!(admit(&mut schedule), (vec![(1, 0)], vec![]));
    finish(&mut schedule, 4);
    // The answer is part of the next prompt.
    schedule.submit(2, vec![1, 2, 3, 4, 5, 6], Some("a".into()));
    assert_eq!(admit(&mut schedule), (vec![(2, 4)], vec![]));
    finish(&mut schedule, 7);
    // The same again: everything except the last token is cached.
    schedule.submit(3, vec![1, 2, 3, 4, 5, 6], Some("a".into()));
    assert_eq!(admit(&mut schedule), (vec![(3, 5)], vec![Order::Cut { slot: 0, keep: 5 }]));
    finish(&mut schedule, 7);
    // Another thread has the same prefix, and leaves the first one its cache.
    schedule.submit(4, vec![1, 2, 9, 9], Some("b".into()));
    let copy = Order::Copy { from: 0, to: 1, tokens: 2 };
    assert_eq!(admit(&mut schedule), (vec![(4, 2)], vec![copy]));
    finish(&mut schedule, 7);
    // A third one evicts the least recently used.
    schedule.submit(5, vec![8, 8], Some("c".into()));
    assert_eq!(admit(&mut schedule), (vec![(5, 0)], vec![Order::Cut { slot: 0, keep: 0 }]));
}

#[test]
fn uncertain_cells_are_not_reused() {
    let mut schedule = Schedule::new(LIMITS);
    schedule.submit(1, vec![1, 2, 3], Some("a".into()));
    admit(&mut schedule);
    assert_eq!(schedule.spoil(1), Some(Order::Cut { slot: 0, keep: 0 }));
    assert_eq!(schedule.spoil(1), None);
    schedule.submit(2, vec![1, 2, 3, 4], Some("a".into()));
    assert_eq!(admit(&mut schedule), (vec![(2, 0)], vec![]));
}

#[test]
fn without_a_key_a_continued_conversation_is_recognized() {
    let mut schedule = Schedule::new(LIMITS);
    schedule.submit(1, vec![1, 2, 3], None);
    admit(&mut schedule);
    finish(&mut schedule, 4);
    schedule.submit(2, vec![1, 2, 3, 4, 5], None);
    assert_eq!(admit(&mut schedule), (vec![(2, 4)], vec![]));
    finish(&mut schedule, 6);
    // The common prefix is too short to be the same thread.
    schedule.submit(3, vec![1, 9, 9], None);
    let copy = Order::Copy { from: 0, to: 1, tokens: 1 };
    assert_eq!(admit(&mut schedule), (vec![(3, 1)], vec![copy]));
}

#[test]
fn memory_that_cannot_be_truncated_is_reused_whole_or_not_at_all() {
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
fn a_batch_contains_every_answer() {
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
fn a_shared_prefix_is_evaluated_once() {
    let prompt = |own: u32| [vec![1; 40], vec![own; 10]].concat();
    let limits = Limits { slots: 3, cells: 200, rewind: true };
    let read = |limits| {
        let mut schedule = Schedule::new(limits);
        for own in 2..5 {
            schedule.submit(u64::from(own), prompt(own), None);
        }
        assert_eq!(admit(&mut schedule).0, [(2, 0), (3, 0), (4, 0)]);
        let (mut read, mut copied, mut firsts) = (0, Vec::new(), BTreeMap::new());
        loop {
            let mut orders = Vec::new();
            let plan = schedule.plan(16, &mut orders);
            copied.extend(orders);
            if plan.is_empty() {
                return (read, copied, firsts);
            }
            for stretch in plan.iter().filter(|stretch| stretch.first) {
                assert_eq!(firsts.insert(stretch.job, stretch.start), None);
            }
            read += plan.iter().map(|stretch| stretch.count).sum::<usize>();
            schedule.decoded(&plan);
        }
    };
    let (read_once, copied, firsts) = read(limits);
    assert_eq!(read_once, 40 + 3 * 10);
    assert_eq!(copied.len(), 2, "{copied:?}");
    assert_eq!(firsts.into_iter().collect::<Vec<_>>(), [(2, 0), (3, 40), (4, 40)]);
    let (read_thrice, ..) = read(Limits { rewind: false, ..limits });
    assert_eq!(read_thrice, 3 * 50);
}

#[test]
fn followers_of_a_cancelled_or_paused_leader_evaluate_the_prefix() {
    for sleeps in [false, true] {
        let mut schedule = Schedule::new(Limits { slots: 2, cells: 200, rewind: true });
        schedule.submit(1, vec![1; 60], None);
        schedule.submit(2, vec![1; 60], None);
        admit(&mut schedule);
        let plan = schedule.plan(20, &mut Vec::new());
        assert_eq!(plan.iter().map(|stretch| stretch.job).collect::<Vec<_>>(), [1]);
        schedule.decoded(&plan);
        if sleeps {
            schedule.pause(1, true);
        } else {
            schedule.end(1);
        }
        let mut orders = Vec::new();
        let plan = schedule.plan(20, &mut orders);
        assert_eq!(orders, [Order::Copy { from: 0, to: 1, tokens: 20 }]);
        let own: Vec<_> = plan.iter().map(|stretch| (stretch.job, stretch.start)).collect();
        assert_eq!(own, [(2, 20)]);
    }
}

#[test]
fn paused_answers_give_up_their_slot() {
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
    assert_eq!(admit(&mut schedule).0, [(1, 0)]);
}

#[test]
fn when_cells_run_out_the_oldest_answer_continues() {
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
fn the_batch_budget_adapts_to_the_speed() {
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
    // On a busy machine every third batch takes three times as long: the limit adapts to that.
    for turn in 0..21 {
        let slow = if turn % 3 == 0 { 3.0 } else { 1.0 };
        pace.measured(pace.budget(), pace.budget() as f64 * slow / 1000.0);
        assert!(turn == 0 || pace.budget() as f64 * 3.0 / 1000.0 < 0.06, "{}", pace.budget());
    }
}

/// A model of the KV cache.
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

/// One answer is being generated, a prompt is evaluated, and the clients of one or both disconnect in the
/// middle.
#[test]
fn a_batch_that_no_answer_needs_is_aborted() {
    let answer_and_prompt = |rewind, prompt: usize| {
        let mut schedule = Schedule::new(Limits { rewind, ..LIMITS });
        schedule.submit(1, vec![1, 2], None);
        admit(&mut schedule);
        let plan = schedule.plan(64, &mut Vec::new());
        schedule.decoded(&plan);
        schedule.say(1, &[3]);
        schedule.submit(2, vec![7; prompt], None);
        admit(&mut schedule);
        let plan = schedule.plan(64, &mut Vec::new());
        assert_eq!(plan.iter().map(|stretch| stretch.count).sum::<usize>(), prompt + 1);
        (schedule, plan)
    };
    // Whether the others can be rewound, how long the prompt is, and how many tokens must be unwanted.
    for (rewind, prompt, want) in [(true, 7, 7), (true, 6, 7), (true, 39, 35), (false, 39, 40)] {
        let (schedule, plan) = answer_and_prompt(rewind, prompt);
        assert_eq!(schedule.unwanted_min(&plan), want, "{rewind} {prompt}");
    }
    for rewind in [true, false] {
        let (mut schedule, plan) = answer_and_prompt(rewind, 39);
        let mut orders = Vec::new();
        schedule.aborted(&plan, &mut orders);
        schedule.end(2);
        let kept = |slot: usize| if rewind && slot == plan[0].slot { 2 } else { 0 };
        let cuts = plan.iter().map(|Stretch { slot, .. }| (*slot, kept(*slot)));
        let cuts: Vec<_> = cuts.map(|(slot, keep)| Order::Cut { slot, keep }).collect();
        assert_eq!(orders, cuts);
        // The other one is evaluated again, but not reported as started a second time.
        let again = schedule.plan(64, &mut Vec::new());
        let [one] = again[..] else { panic!("{again:?}") };
        let start = if rewind { 2 } else { 0 };
        let want = Stretch {
            job: 1,
            slot: plan[0].slot,
            start,
            count: 3 - start,
            first: false,
            last: true,
        };
        assert_eq!(one, want);
        // That does not happen to it again, whoever disconnects.
        schedule.submit(3, vec![8; 39], None);
        admit(&mut schedule);
        let plan = schedule.plan(64, &mut Vec::new());
        assert_eq!(schedule.unwanted_min(&plan), plan.iter().map(|part| part.count).sum::<usize>());
        schedule.decoded(&plan);
        schedule.say(1, &[3]);
        schedule.say(3, &[3; 39]);
        let plan = schedule.plan(64, &mut Vec::new());
        assert_eq!(schedule.unwanted_min(&plan), if rewind { 35 } else { 40 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_traffic_finishes(
        seed in any::<u64>(),
        slots in 1_usize..5,
        cells in 64_usize..200,
        rewind in any::<bool>(),
    ) {
        let mut rng = stdx::Rng::new(seed);
        let mut schedule = Schedule::new(Limits { slots, cells, rewind });
        let mut memory = Memory(vec![Vec::new(); slots]);
        let (mut next, mut left) = (0, BTreeMap::new());
        let (mut begun, mut seen) = (Vec::new(), BTreeSet::new());
        for round in 0.. {
            assert!(round < 20_000, "it hangs: {schedule:?}");
            if next < 30 && rng.one_in(3) {
                // Few distinct tokens, so that prompts share prefixes.
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
                // Everyone wakes up in the end.
                schedule.pause(id, rng.one_in(5) && round < 2000);
                if rng.one_in(10) {
                    schedule.park(id);
                }
            }
            let mut orders = Vec::new();
            let before = schedule.clock;
            schedule.admit(&mut orders);
            let mut admitted: Vec<_> = seated(&schedule)
                .filter(|(_, job, _)| job.admitted > before)
                .map(|(id, job, _)| (job.admitted, id))
                .collect();
            admitted.sort_unstable();
            begun.extend(admitted.into_iter().map(|(_, id)| id).filter(|id| seen.insert(*id)));
            let plan = schedule.plan(1 + rng.below(20) as usize, &mut orders);
            memory.perform(&orders);
            if rng.one_in(8) {
                let mut orders = Vec::new();
                schedule.aborted(&plan, &mut orders);
                memory.perform(&orders);
                continue;
            }
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
