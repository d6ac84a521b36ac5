//! Files truncated, torn, zeroed, flipped and shuffled: everything intact is returned, the rest is reported,
//! and the thread can be continued.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::thread;

use store::ReadReport;

use crate::disk::{MemDisk, Random};
use crate::record::{Item, Sample, id, message, ours, store, theirs};

/// A way to damage a file.
struct Harm {
    bytes: Vec<u8>,
    /// The ranges of the sample that were changed or moved.
    touched: Vec<Range<usize>>,
    /// Where the sample was truncated: what came after is unknown.
    cut: Option<usize>,
    /// Whole lines were moved; none is damaged.
    moved: bool,
}

/// The lines returned: kind and payload, with the ordinal.
type Given = Vec<(Option<u64>, String, String)>;

/// Damages a sample, and checks that nothing else is lost.
#[track_caller]
fn check(sample: &Sample, harm: &Harm, what: &dyn Fn() -> String) {
    let disk = MemDisk::default();
    disk.put(sample.path, &harm.bytes);
    let store = store(&disk);

    let mut first = Given::new();
    let (mut log, report) = store.open(sample.id, &mut |line| note(&mut first, line)).unwrap();
    compare(sample, harm, &first, &report, what);

    log.append(&[message("one more"), message("and another")]).unwrap();
    log.syncer().sync().unwrap();
    log.close();
    let mut second = Given::new();
    let again = store.read(sample.id, &mut |line| note(&mut second, line)).unwrap();
    // Nothing that was returned before is gone, and the new lines are after it.
    let mut rest = second.iter();
    for line in &first {
        let kept = rest.any(|other| other.1 == line.1 && other.2 == line.2);
        assert!(kept, "{}: lost by reopening: {line:?}\n{again:?}", what());
    }
    let added: Vec<_> = rest.filter(|line| line.1 == "response_item").collect();
    assert_eq!(added.len(), 2, "{}: {added:?} {report:?} {again:?}", what());
    let ordinals = added.iter().filter_map(|line| line.0);
    let before = first.iter().filter_map(|line| line.0).max();
    assert!(ordinals.min() > before, "{}: an ordinal was used again", what());
    // What is damaged now was damaged before, and is in the side file.
    for damage in &again.damage {
        let known = report.damage.iter().any(|before| {
            let same = before.offset == damage.offset && before.length == damage.length;
            let within = before.missing.as_ref().zip(damage.missing.as_ref());
            same || within.is_some_and(|(b, d)| b.start <= d.start && d.end <= b.end)
        });
        assert!(known, "{}: new: {damage:?}\n{report:?}", what());
    }
    let stretches = report.damage.iter().filter(|damage| damage.length > 0).count();
    let aside = disk.bytes(format!("{}.damaged", sample.path)).unwrap_or_default();
    let aside = aside.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    assert_eq!(aside, stretches, "{}", what());
}

fn note(given: &mut Given, line: &log::Line<'_>) {
    given.push((line.ordinal, line.kind.to_string(), line.payload.get().to_owned()));
}

fn compare(
    sample: &Sample,
    harm: &Harm,
    lines: &Given,
    report: &ReadReport,
    what: &dyn Fn() -> String,
) {
    let mut counts: HashMap<(Option<u64>, &str, &str), usize> = HashMap::new();
    for (ordinal, kind, payload) in lines {
        *counts.entry((*ordinal, kind, payload)).or_default() += 1;
    }
    let mut order = lines.iter();
    for item in &sample.items {
        // A line break may be lost without the line.
        let text = item.start..item.end - 1;
        let hit = |touched: &Range<usize>| touched.start < text.end && text.start < touched.end;
        let whole = !harm.touched.iter().any(hit) && harm.cut.is_none_or(|cut| text.end <= cut);
        let given = counts.get(&(item.ordinal, &*item.kind, &*item.payload)).copied().unwrap_or(0);
        if whole {
            assert_eq!(given, 1, "{}: undamaged: {item:?}\n{report:?}", what());
            let in_order = order.any(|line| line.1 == item.kind && line.2 == item.payload);
            assert!(in_order || (harm.moved && !sample.checked), "{}: {item:?}", what());
        } else if given == 0 && harm.cut.is_none_or(|cut| item.start < cut) {
            // Without a checksum, a change can go unnoticed.
            let changed = !sample.checked && lines.iter().any(|line| line.0 == item.ordinal);
            assert!(named(item, report) || changed, "{}: {item:?}\n{report:?}", what());
        }
    }
    if sample.checked {
        let known = |item: &Item| (item.kind.clone(), item.payload.clone());
        let known: HashSet<(String, String)> = sample.items.iter().map(known).collect();
        let is_known =
            |line: &&(_, String, String)| known.contains(&(line.1.clone(), line.2.clone()));
        let strange: Vec<_> = lines.iter().filter(|line| !is_known(line)).collect();
        assert!(
            strange.iter().all(|line| line.1 == "session_meta") && strange.len() <= 1,
            "{}: {strange:?}",
            what()
        );
    }
}

/// Returns whether a report says that an item is missing.
fn named(item: &Item, report: &ReadReport) -> bool {
    report.damage.iter().any(|damage| {
        let range = damage.offset..damage.offset + damage.length;
        let missing = damage.missing.as_ref().zip(item.ordinal);
        (range.start < item.end as u64 && (item.start as u64) < range.end)
            || damage.ordinal.is_some() && damage.ordinal == item.ordinal
            || missing.is_some_and(|(missing, ordinal)| missing.contains(&ordinal))
    })
}

/// Splits cases between two threads.
fn share(count: usize, case: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for half in 0..2 {
            let case = &case;
            scope.spawn(move || (half..count).step_by(2).for_each(case));
        }
    });
}

fn cut(sample: &Sample, at: usize) -> Harm {
    Harm { bytes: sample.bytes[..at].to_vec(), touched: Vec::new(), cut: Some(at), moved: false }
}

fn torn(sample: &Sample, at: usize, random: &mut Random) -> Harm {
    let mut harm = cut(sample, at);
    let garbage = 1 + random.below(600);
    harm.bytes.extend((0..garbage).map(|_| random.below(256) as u8));
    harm
}

fn over(sample: &Sample, at: usize, with: &[u8]) -> Harm {
    let mut bytes = sample.bytes.clone();
    let end = (at + with.len()).min(bytes.len());
    bytes[at..end].copy_from_slice(&with[..end - at]);
    Harm { bytes, touched: std::iter::once(at..end).collect(), cut: None, moved: false }
}

#[test]
fn cut_anywhere_near_the_end() {
    for sample in [ours(10), theirs()] {
        let length = sample.bytes.len();
        assert!(length > 16 << 10, "{length}");
        share(16 << 10, |back| {
            let at = length - back;
            check(&sample, &cut(&sample, at), &|| format!("cut at {at} of {length}"));
        });
    }
}

#[test]
fn changed_anywhere_near_the_end() {
    let sample = ours(10);
    let length = sample.bytes.len();
    share(16 << 10, |back| {
        let mut random = Random(back as u64);
        let at = length - 1 - back;
        let harm = torn(&sample, at, &mut random);
        check(&sample, &harm, &|| format!("torn at {at} of {length}"));
        let zeros = vec![0; 1 + random.below(4096)];
        let harm = over(&sample, at, &zeros);
        check(&sample, &harm, &|| format!("{} zeros at {at} of {length}", zeros.len()));
        let bit = random.below(8);
        let harm = over(&sample, at, &[sample.bytes[at] ^ (1 << bit)]);
        check(&sample, &harm, &|| format!("bit {bit} at {at} of {length}"));
    });
}

#[test]
fn cut_and_torn_anywhere() {
    let sample = ours(40);
    let length = sample.bytes.len();
    assert!(length > 80_000 && length < 160_000, "{length}");
    share(2000, |seed| {
        let mut random = Random(seed as u64);
        let at = random.below(length);
        check(&sample, &cut(&sample, at), &|| format!("cut at {at} of {length}"));
        let harm = torn(&sample, at, &mut random);
        check(&sample, &harm, &|| format!("torn at {at} of {length}, seed {seed}"));
    });
}

#[test]
fn changed_anywhere() {
    for (sample, rounds) in [(ours(40), 2000), (ours(4), 1000), (theirs(), 1000)] {
        let length = sample.bytes.len();
        share(rounds, |seed| {
            let mut random = Random(seed as u64);
            let at = random.below(length);
            let zeros = vec![0; 1 + random.below(4096)];
            let harm = over(&sample, at, &zeros);
            check(&sample, &harm, &|| format!("{} zeros at {at} of {length}", zeros.len()));
            let bit = random.below(8);
            let harm = over(&sample, at, &[sample.bytes[at] ^ (1 << bit)]);
            check(&sample, &harm, &|| format!("bit {bit} at {at} of {length}"));
        });
    }
}

#[test]
fn ends_of_lines_changed() {
    for sample in [ours(4), theirs()] {
        let ends: Vec<usize> = sample.items.iter().map(|item| item.end - 1).collect();
        share(ends.len() * 4, |case| {
            let (at, with) = (ends[case / 4], [b"\0", b"\r", b"}", b"N"][case % 4]);
            check(&sample, &over(&sample, at, with), &|| format!("{with:?} at {at}"));
        });
    }
}

#[test]
fn shuffled() {
    for (sample, rounds) in [(ours(15), 2000), (theirs(), 1000)] {
        share(rounds, |seed| {
            let mut random = Random(seed as u64);
            let sectors = sample.bytes.len() / 512;
            let (a, b) = (random.below(sectors) * 512, random.below(sectors) * 512);
            let mut bytes = sample.bytes.clone();
            bytes[a..a + 512].copy_from_slice(&sample.bytes[b..b + 512]);
            bytes[b..b + 512].copy_from_slice(&sample.bytes[a..a + 512]);
            let touched = if a == b { vec![] } else { vec![a..a + 512, b..b + 512] };
            // A sector can contain a whole line, which then is intact in another place.
            let harm = Harm { bytes, touched, cut: None, moved: true };
            check(&sample, &harm, &|| format!("sectors at {a} and {b}"));
        });
        let lines = sample.items.len();
        share(rounds, |seed| {
            let mut random = Random(seed as u64);
            let mut order: Vec<usize> = (0..lines).collect();
            for _ in 0..1 + random.below(3) {
                order.swap(random.below(lines), random.below(lines));
            }
            if random.below(2) == 0 {
                order.push(random.below(lines));
            }
            let line = |index: &usize| {
                let item = &sample.items[*index];
                sample.bytes[item.start..item.end].to_vec()
            };
            let bytes = order.iter().flat_map(line).collect();
            let harm = Harm { bytes, touched: Vec::new(), cut: None, moved: true };
            // Only a checksum shows that a line is a copy, or where it belongs.
            if sample.checked {
                check(&sample, &harm, &|| format!("lines {order:?}"));
            }
        });
    }
}

#[test]
fn repaired() {
    let sample = ours(6);
    share(600, |seed| {
        let mut random = Random(seed as u64);
        let at = random.below(sample.bytes.len());
        let harm = match seed % 3 {
            0 => over(&sample, at, &vec![0; 1 + random.below(900)]),
            1 => torn(&sample, at, &mut random),
            _ => over(&sample, at, &[sample.bytes[at] ^ 4]),
        };
        let disk = MemDisk::default();
        disk.put(sample.path, &harm.bytes);
        let store = store(&disk);
        let lines = |store: &store::FileStore| {
            let mut given = Given::new();
            store.read(id(), &mut |line| note(&mut given, line)).unwrap();
            given.retain(|line| line.1 != "heddle_tombstone" && line.1 != "session_meta");
            given
        };
        let before = lines(&store);
        let what = || format!("seed {seed} at {at}");
        let report = store.fsck(None, true, &mut |_, _| {}).unwrap();
        assert!(report.is_clean(), "{}: {report:?}", what());
        let report = store.fsck(Some(id()), false, &mut |_, _| {}).unwrap();
        assert!(report.is_clean(), "{}: {report:?}", what());
        let mut damage = Vec::new();
        damage.extend(store.read(id(), &mut |_| {}).unwrap().damage);
        assert!(damage.is_empty(), "{}: {damage:?}", what());
        assert_eq!(lines(&store), before, "{}", what());
    });
}
