//! Power cuts: what was synced is there afterwards.

use crate::disk::Random;
use crate::record::{empty_home, id, message, new_thread, store};

/// Writes, syncs and reopens depending on the seed, and cuts the power somewhere.
#[track_caller]
fn check(seed: u64) {
    let mut random = Random(seed);
    let mut disk = empty_home();
    let mut durable: Vec<String> = Vec::new();
    for round in 0..3 {
        let opened = match store(&disk).files(id()).unwrap() {
            Some(_) => store(&disk).open(id(), &mut |_| {}).map(|(log, _)| log),
            None => store(&disk).create(new_thread(id())),
        };
        let mut log = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut waiting = Vec::new();
        for step in 0..1 + random.below(6) {
            let line = format!("{round}.{step} {}", "x".repeat(random.below(1500)));
            log.append(&[message(&line), message(&format!("{line} again"))]).unwrap();
            waiting.push(line);
            if random.below(2) == 0 {
                log.syncer().sync().unwrap();
                durable.append(&mut waiting);
            }
        }
        disk = disk.reboot(seed + round);
        let mut found = String::new();
        if store(&disk).files(id()).unwrap().is_some() {
            let sink = &mut |line: &log::Line<'_>| found += line.payload.get();
            let report = store(&disk).read(id(), sink).unwrap();
            let missed = |damage: &store::Damage| damage.what == store::DamageKind::Cut;
            assert!(!report.damage.iter().any(missed), "seed {seed}, round {round}: {report:?}");
        }
        for line in &durable {
            assert!(found.contains(line), "seed {seed}, round {round}: lost: {line:.20}");
        }
    }
}

#[test]
fn synced_lines_survive() {
    for seed in 0..1500 {
        check(seed);
    }
}
