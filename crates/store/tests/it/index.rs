//! The index of threads: it agrees with the files, whatever was done to them or to it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;
use store::index::{CatalogError, Cursor, Direction, List, ResolveError, Role, Search, Sort};

use crate::index_home::{Home, Script, all, append, id, say, scan, script, shown};

/// Lists a home and compares with its files, twice: what was just indexed must also be stored.
#[track_caller]
fn check(home: &Home, what: &str) {
    for round in ["first", "second"] {
        assert_eq!(shown(&home.list()), scan(home.path()), "{what}, {round} time");
    }
}

#[test]
fn a_row_says_what_the_file_says() {
    let home = Home::new();
    let mut thread = script(1);
    thread.said = vec!["  first\nline\tof it ".to_owned() + &"x".repeat(300), "second".to_owned()];
    home.write(&thread);
    let rows = home.list();
    let row = &rows[0];
    assert_eq!((rows.len(), row.id), (1, id(1)));
    assert!(row.preview.starts_with("first line of it xxx"), "{}", row.preview);
    assert_eq!(row.preview.chars().count(), 200);
    let texts = [&row.cwd, &row.provider, &row.model, &row.source];
    assert_eq!(texts, ["/work", "mock", "gpt-test", "exec"]);
    assert_eq!((row.turns, row.tokens, row.branch.as_deref()), (2, 1200, Some("main")));
    assert_eq!(row.created_ms, thread.made * 1000);
    assert_eq!(row.updated_ms, (thread.made + 60) * 1000);
    assert!(home.path().join(&row.path).is_file());
    assert_eq!((row.archived, &row.name, row.forked_from), (false, &None, None));
}

/// Another model takes over, of another provider: what is shown is what the last turn used.
#[test]
fn a_row_has_the_provider_and_the_model_of_the_last_turn() {
    let home = Home::new();
    let path = home.write(&script(1));
    let applied = |model, provider| {
        let settings = json!({ "model": model, "model_provider_id": provider });
        json!({ "type": "thread_settings_applied", "thread_settings": settings })
    };
    for (ordinal, event, want) in [
        (20, applied(json!("gpt-test"), json!("other")), ["gpt-test", "other"]),
        (21, applied(json!("m2"), json!("third")), ["m2", "third"]),
        // What cannot be read changes nothing.
        (22, applied(json!(7), json!(null)), ["m2", "third"]),
        (23, applied(json!(""), json!("")), ["m2", "third"]),
    ] {
        append(&path, 1_790_000_100, ordinal, "event_msg", &event);
        let rows = home.list();
        assert_eq!([&rows[0].model, &rows[0].provider], want, "{event}");
    }
    let mut of = all();
    of.filter.provider = Some("third".into());
    assert_eq!(home.index().list(&of).unwrap().threads.len(), 1);
}

#[test]
fn changes_of_files_are_noticed() {
    let home = Home::new();
    check(&home, "a home with nothing in it");
    let paths: Vec<_> = (0..8).map(|number| home.write(&script(number))).collect();
    check(&home, "new files");
    let later = home.write(&script(100));
    check(&home, "another in the same directory, at once");
    say(&paths[3], 1_890_000_000, 50, "more");
    check(&home, "one that grew");
    assert_eq!(home.list()[0].id, id(3));
    say(&paths[3], 1_890_000_060, 60, "and more");
    check(&home, "and again");
    fs::remove_file(&paths[5]).unwrap();
    check(&home, "one that is gone");
    let bytes = fs::read(&paths[2]).unwrap();
    let half = bytes[..bytes.len() / 2].iter().rposition(|&byte| byte == b'\n').unwrap();
    fs::write(&paths[2], &bytes[..=half]).unwrap();
    check(&home, "one that was cut");
    let mut other = script(4);
    other.said = vec!["entirely different, and longer than what was there before".to_owned(); 3];
    home.write(&other);
    check(&home, "one that was written anew and is longer");
    let archive = home.path().join("archived_sessions");
    fs::create_dir(&archive).unwrap();
    fs::rename(&later, archive.join(later.file_name().unwrap())).unwrap();
    check(&home, "one that was archived");
    let mut archived = all();
    archived.filter.archived = true;
    let found = home.index().list(&archived).unwrap().threads;
    assert_eq!((found.len(), found[0].id, found[0].archived), (1, id(100), true));
    // The newest file of a thread determines its location, even after an interrupted move.
    let older = home.write(&script(9));
    let newer = older.file_stem().unwrap().to_str().unwrap();
    let newer = archive.join(format!("{newer}_01a1e26e-392c-7690-abfb-eb0dc0cda447.jsonl"));
    fs::copy(&older, &newer).unwrap();
    let found = home.index().list(&archived).unwrap().threads;
    assert!(found.iter().any(|thread| thread.id == id(9)), "{found:?}");
    fs::remove_file(&newer).unwrap();
    fs::remove_dir_all(home.path().join("sessions")).unwrap();
    check(&home, "all that are gone");
}

#[test]
fn a_file_that_grew_is_read_from_where_it_ended() {
    let home = Home::new();
    let path = home.write(&script(1));
    home.list();
    // Indexed data is not read again, even if it was damaged since: except for the last bytes, which
    // distinguish growth from change.
    let mut bytes = fs::read(&path).unwrap();
    let spoilt = bytes.len() - 400;
    bytes[..spoilt].fill(b'x');
    fs::write(&path, &bytes).unwrap();
    say(&path, 1_890_000_000, 50, "more");
    let row = &home.list()[0];
    assert_eq!((row.turns, row.preview.as_str()), (2, "question 1 of the user"));
}

/// With many files, a second list soon after the first checks only some of them: the most recently written,
/// those that it shows, and those that are open.
#[test]
fn a_list_soon_after_another_notices_what_it_must() {
    let home = Home::new();
    let paths: Vec<_> = (0..700).map(|number| home.write(&script(number))).collect();
    // Old enough for directory times to be reliable, and with a defined order.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(100_000);
    for (number, path) in (0..).zip(&paths) {
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(old + std::time::Duration::from_secs(number)).unwrap();
        fs::File::open(path.parent().unwrap()).unwrap().set_modified(old).unwrap();
    }
    let few = List { limit: 5, ..all() };
    let listed = || home.index().list(&few).unwrap().threads[0].id;
    assert_eq!(listed(), id(699));
    say(&paths[690], 1_890_000_000, 50, "recent");
    assert_eq!(listed(), id(690), "one of the last");
    // An old one: a list does not see the change until a lock was taken or released; others see it.
    say(&paths[3], 1_890_000_060, 50, "hidden");
    assert_eq!(listed(), id(690));
    assert_eq!(home.index().search(&search("hidden")).unwrap().len(), 2);
    assert_eq!(listed(), id(3));
    say(&paths[4], 1_890_000_120, 50, "again");
    assert_eq!(listed(), id(3));
    let locks = home.path().join("thread-writer-locks");
    fs::create_dir(&locks).unwrap();
    let lock = locks.join(format!("{}.lock", id(5)));
    fs::write(&lock, "").unwrap();
    fs::File::open(&locks).unwrap().set_modified(old).unwrap();
    assert_eq!(listed(), id(4), "somebody came");
    say(&paths[5], 1_890_000_180, 50, "held");
    assert_eq!(listed(), id(5), "somebody is there");
    say(&paths[6], 1_890_000_240, 50, "unlocked");
    assert_eq!(listed(), id(5));
    // What is shown is always correct.
    let oldest = List { direction: Direction::Oldest, ..few.clone() };
    let first = home.index().list(&oldest).unwrap().threads[0].id;
    let path =
        &paths[usize::try_from((0..700).find(|&number| id(number) == first).unwrap()).unwrap()];
    say(path, 1_890_000_300, 50, "shown");
    assert_ne!(home.index().list(&oldest).unwrap().threads[0].id, first);
    assert_eq!(shown(&home.list()), scan(home.path()));
}

#[test]
fn a_line_that_is_not_whole_counts_once_it_is() {
    let home = Home::new();
    let path = home.write(&script(1));
    let whole = fs::read(&path).unwrap();
    say(&path, 1_890_000_000, 50, "more");
    let grown = fs::read(&path).unwrap();
    for cut in (whole.len()..=grown.len()).step_by(37).chain([grown.len() - 1, grown.len()]) {
        fs::write(&path, &whole).unwrap();
        home.list();
        fs::write(&path, &grown[..cut]).unwrap();
        home.list();
        fs::write(&path, &grown).unwrap();
        let row = &home.list()[0];
        assert_eq!((row.turns, row.tokens), (2, 5000), "cut at {cut}");
        let hits = home.index().search(&search("more")).unwrap();
        assert_eq!(hits.len(), 2, "cut at {cut}");
    }
}

#[test]
fn an_index_in_any_state_is_rebuilt() {
    type Harm = fn(&Home);
    let states: [(&str, Harm); 12] = [
        ("missing", |home| fs::remove_file(home.database()).unwrap()),
        ("empty", |home| fs::write(home.database(), "").unwrap()),
        ("garbage", |home| fs::write(home.database(), [0xa5; 100_000]).unwrap()),
        ("text", |home| fs::write(home.database(), "SQLite format 3\0 and no more").unwrap()),
        ("cut", |home| cut(&home.database(), 2)),
        ("cut to a page", |home| {
            fs::OpenOptions::new()
                .write(true)
                .open(home.database())
                .unwrap()
                .set_len(4096)
                .unwrap();
        }),
        ("spoilt in the middle", |home| spoil(&home.database())),
        ("of another version", |home| sql(home, "PRAGMA user_version = 99")),
        ("of another version with other tables", |home| {
            sql(home, "DROP TABLE threads; CREATE TABLE threads (x); PRAGMA user_version = 7");
        }),
        ("without a table", |home| sql(home, "DROP TABLE items")),
        ("with tables of another shape", |home| {
            sql(home, "DROP TABLE folders; CREATE TABLE folders (path, changed, files)");
        }),
        ("with rows of the wrong type", |home| sql(home, "UPDATE threads SET created = 'then'")),
    ];
    for (what, harm) in states {
        let home = Home::new();
        for number in 0..20 {
            home.write(&script(number));
        }
        check(&home, "before");
        harm(&home);
        check(&home, what);
        let hits = home.index().search(&search("question")).unwrap();
        assert_eq!(hits.len(), 40, "{what}");
        assert!(home.index().is_on_disk(), "{what}");
    }
}

#[test]
fn a_directory_in_its_place_or_a_home_that_cannot_be_written_is_no_obstacle() {
    let home = Home::new();
    home.write(&script(1));
    fs::create_dir_all(home.database().join("x")).unwrap();
    assert_eq!(shown(&home.list()), scan(home.path()));
    assert!(!home.index().is_on_disk());

    let home = Home::new();
    home.write(&script(1));
    home.list();
    fs::set_permissions(home.database(), fs::Permissions::from_mode(0o444)).unwrap();
    home.write(&script(2));
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let got = shown(&home.list());
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(got, scan(home.path()));
}

#[test]
fn a_locked_index_is_waited_for_then_built_in_memory() {
    let home = Home::new();
    home.write(&script(1));
    home.list();
    home.write(&script(2));
    let lock = rusqlite::Connection::open(home.database()).unwrap();
    lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let begun = std::time::Instant::now();
    let told = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let hears = std::rc::Rc::clone(&told);
    let mut index = store::index::Index::open(home.path(), move |progress| {
        if let store::index::Progress::InMemory(why) = progress {
            hears.borrow_mut().push(why);
        }
    })
    .unwrap();
    assert_eq!(shown(&index.list(&all()).unwrap().threads), scan(home.path()));
    assert!(!index.is_on_disk());
    assert!(begun.elapsed() < std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(matches!(told.borrow().as_slice(), [why] if why.contains("locked")), "{told:?}");
    lock.execute_batch("ROLLBACK").unwrap();
    assert!(home.index().is_on_disk());
    check(&home, "afterwards");
}

/// The index of older builds in the home itself is removed.
#[test]
fn an_older_index_is_removed() {
    let home = Home::new();
    home.write(&script(1));
    let old = |suffix: &str| home.path().join(format!("heddle_index.sqlite{suffix}"));
    for suffix in ["", "-wal", "-shm"] {
        fs::write(old(suffix), "x").unwrap();
    }
    check(&home, "first");
    assert!(home.database().is_file());
    assert!(["", "-wal", "-shm"].iter().all(|suffix| !old(suffix).exists()));
    let mode = fs::metadata(home.database().parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn many_at_once_agree() {
    let home = Home::new();
    for number in 0..600 {
        home.write(&script(number));
    }
    let want = scan(home.path());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..3 {
                    assert_eq!(shown(&home.list()), want);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..10 {
                // A process that has it open continues with the old content, or rebuilds it.
                let _ = fs::remove_file(home.database());
                std::thread::yield_now();
            }
        });
    });
    check(&home, "afterwards");
}

#[test]
fn pages_stay_correct_while_threads_change() {
    let orders = [
        (Sort::Updated, Direction::Newest),
        (Sort::Updated, Direction::Oldest),
        (Sort::Created, Direction::Newest),
        (Sort::Created, Direction::Oldest),
    ];
    for (sort, direction) in orders {
        let home = Home::new();
        for number in 0..30 {
            // Every second one has the same time as the previous one.
            let mut thread = script(number);
            thread.made = script(number / 2 * 2).made;
            home.write(&thread);
        }
        let mut index = home.index();
        let whole = List { sort, direction, limit: 7, ..all() };
        let want = index.list(&List { limit: 1000, ..whole.clone() }).unwrap();
        assert_eq!((want.threads.len(), want.next), (30, None));
        let mut got = Vec::new();
        let mut cursor = None;
        for round in 0.. {
            let page = index.list(&List { cursor, ..whole.clone() }).unwrap();
            got.extend(page.threads.into_iter().map(|thread| thread.id));
            // New ones at both ends, and the last one shown is removed.
            let mut first = script(1000 + round);
            first.made += 1_000_000;
            home.write(&first);
            let mut last = script(2000 + round);
            last.made = 1_700_000_000;
            home.write(&last);
            let gone = index.get(*got.last().unwrap()).unwrap().unwrap();
            fs::remove_file(home.path().join(gone.path)).unwrap();
            let text = page.next.map(|next| next.to_string());
            cursor = text.map(|text| text.parse::<Cursor>().unwrap());
            if cursor.is_none() || round > 10 {
                break;
            }
        }
        got.retain(|id| want.threads.iter().any(|thread| thread.id == *id));
        let want: Vec<_> = want.threads.iter().map(|thread| thread.id).collect();
        assert_eq!(got, want, "{sort:?} {direction:?}");
        let other = List {
            cursor: "un.1.01a1e26e-392c-7690-abfb-eb0dc0cda447".parse().ok(),
            sort: Sort::Created,
            ..all()
        };
        assert!(matches!(index.list(&other), Err(CatalogError::Order)));
    }
}

#[test]
fn filters() {
    let home = Home::new();
    let cases = [("/a", "one", 0), ("/a", "two", 1), ("/b", "one", 2), ("/b/c", "one", 3)];
    for (cwd, provider, number) in cases {
        home.write(&Script { cwd, provider, ..script(number) });
    }
    let name =
        |number: u64, name: &str| json!({ "id": id(number), "thread_name": name }).to_string();
    let names = [
        name(0, "x"),
        name(1, "Fix 50% of it"),
        name(0, "fixed"),
        name(2, "no"),
        name(2, ""),
        name(3, "Ärger"),
    ];
    fs::write(home.path().join("session_index.jsonl"), names.join("\n") + "\n{broken\n").unwrap();
    let mut index = home.index();
    let mut check = |set: fn(&mut List), want: &[u64]| {
        let mut list = all();
        list.direction = Direction::Oldest;
        set(&mut list);
        let got: Vec<_> = index.list(&list).unwrap().threads.iter().map(|t| t.id).collect();
        assert_eq!(got, want.iter().map(|&number| id(number)).collect::<Vec<_>>(), "{list:?}");
    };
    check(|_| {}, &[0, 1, 2, 3]);
    check(|list| list.filter.cwd = Some("/b".into()), &[2]);
    check(|list| list.filter.provider = Some("one".into()), &[0, 2, 3]);
    check(|list| list.filter.name = Some("FIX".into()), &[0, 1]);
    check(|list| list.filter.name = Some("äRGER".into()), &[3]);
    check(|list| list.filter.name = Some("%".into()), &[1]);
    check(|list| list.filter.archived = true, &[]);
    check(|list| list.filter.since_ms = Some(script(2).made * 1000), &[2, 3]);
    check(|list| list.filter.until_ms = Some(script(2).made * 1000), &[0, 1]);
    check(|list| list.limit = 0, &[0]);
}

fn search(words: &str) -> Search {
    Search { words: words.to_owned(), raw: false, cwd: None, archived: false, limit: 100 }
}

#[test]
fn words_are_found_where_they_were_said() {
    let home = Home::new();
    let path = home.write(&script(1));
    say(&path, 1_890_000_000, 50, "Grüße an den compiler");
    home.write(&script(2));
    let mut index = home.index();
    let hits = index.search(&search("grusse COMPILER")).unwrap();
    let found: Vec<_> =
        hits.iter().map(|hit| (hit.thread.id, hit.turn, hit.ordinal, hit.role)).collect();
    assert_eq!(found.len(), 0, "ß is not ss");
    let hits = index.search(&search("gruße COMPILER")).unwrap();
    let mut found: Vec<_> = hits.iter().map(|hit| (hit.turn, hit.ordinal, hit.role)).collect();
    found.sort_by_key(|(_, ordinal, _)| *ordinal);
    assert_eq!(found, [(2, Some(52), Role::User), (2, Some(55), Role::Agent)]);
    assert!(hits.iter().all(|hit| hit.thread.id == id(1)));
    let marked: Vec<_> = hits[0].snippet.iter().filter(|piece| piece.hit).collect();
    assert_eq!(
        marked.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>(),
        ["Grüße", "compiler"]
    );
    for (words, count) in [
        ("question", 4),
        ("cargo build", 3),
        ("outputword", 0),
        ("environment_context", 0),
        ("question 2", 2),
        ("question nothing", 0),
    ] {
        assert_eq!(index.search(&search(words)).unwrap().len(), count, "{words}");
    }
    let elsewhere = Search { cwd: Some("/other".into()), ..search("question") };
    assert_eq!(index.search(&elsewhere).unwrap().len(), 0);
    fs::remove_file(&path).unwrap();
    assert_eq!(index.search(&search("compiler")).unwrap().len(), 0);
    assert_eq!(index.search(&search("question")).unwrap().len(), 2);
}

#[test]
fn no_words_mean_anything_else() {
    let home = Home::new();
    home.write(&Script {
        said: vec!["OR NOT a\"b c++ near(x) text: \u{1}\u{2}y".into()],
        ..script(1)
    });
    let mut index = home.index();
    let long = "x".repeat(4000);
    let many = "word ".repeat(800);
    for words in [
        "",
        " ",
        "\"",
        "\"\"\"",
        "'",
        "*",
        "a*",
        "OR",
        "AND AND",
        "NOT a",
        "(",
        ")",
        "NEAR(a b, 5)",
        "^a",
        "text:",
        "text : a",
        "{text}: a",
        "-a",
        "+",
        "a + b",
        "\0",
        "a\0b",
        "\u{2}",
        "--",
        ";DROP TABLE items",
        "c++",
        "日本語",
        "🙂",
        "a\"b",
        "\u{202e}",
        &long,
        &many,
    ] {
        let shown: String = words.chars().take(20).collect();
        let hits =
            index.search(&search(words)).unwrap_or_else(|error| panic!("{shown:?}: {error}"));
        for hit in hits {
            let text: String = hit.snippet.iter().map(|piece| piece.text.as_str()).collect();
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{shown:?} {text:?}");
        }
    }
    assert_eq!(index.search(&search("OR \"c++\"")).unwrap().len(), 2);
    let raw = |words: &str| Search { raw: true, ..search(words) };
    assert_eq!(index.search(&raw("nothing OR near")).unwrap().len(), 2);
    for words in ["\"", "(", "AND", "nosuch: a", ""] {
        let got = index.search(&raw(words));
        let fine = words.is_empty() && got.is_ok();
        assert!(fine || matches!(got, Err(CatalogError::Expression(_))), "{words:?} {got:?}");
    }
    // What is not searched for is not ignored silently.
    for words in ["x".repeat(5000), "word ".repeat(1000)] {
        for raw in [false, true] {
            let got = index.search(&Search { raw, ..search(&words) });
            assert!(matches!(got, Err(CatalogError::TooLong)), "{got:?}");
        }
    }
    assert!(index.is_on_disk(), "an expression is no reason to throw anything away");
}

#[test]
fn texts_without_spaces_are_found_by_their_parts() {
    let home = Home::new();
    home.write(&Script {
        said: vec!["今日は東京タワーのbug42を直す".into()], ..script(1)
    });
    home.write(&Script {
        said: vec!["데이터베이스를 고쳤다, 京東 ไทยแลนด์".into()], ..script(2)
    });
    let mut index = home.index();
    for (words, count) in [
        ("東京", 2),
        ("京東", 2),
        ("東京 直す", 2),
        ("タワー", 2),
        ("bug42", 2),
        ("のbug42を", 2),
        ("東タ", 0),
        ("베이스", 2),
        ("แลนด์", 2),
        ("京", 4),
    ] {
        assert_eq!(index.search(&search(words)).unwrap().len(), count, "{words}");
    }
    let hits = index.search(&search("京タワ")).unwrap();
    let pieces: Vec<_> =
        hits[0].snippet.iter().map(|piece| (piece.text.as_str(), piece.hit)).collect();
    let text: String = pieces.iter().map(|(text, _)| *text).collect();
    assert!(text.contains("今日は東京タワーのbug42を直す"), "{text}");
    assert!(pieces.contains(&("京タワ", true)), "{pieces:?}");
    for (words, count) in [("東京 OR 베이스", 4), ("タワ* NOT x", 2), ("\"京タ\" AND bug*", 2)]
    {
        let raw = Search { raw: true, ..search(words) };
        assert_eq!(index.search(&raw).unwrap().len(), count, "{words}");
    }
}

#[test]
fn the_files_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    home.write(&script(1));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let check = || {
        // It is open, so that all of its files exist.
        let mut index = home.index();
        index.sync().unwrap();
        for entry in fs::read_dir(home.path()).unwrap() {
            let path = entry.unwrap().path();
            let ours = path.file_name().unwrap().to_str().unwrap().starts_with("heddle_index");
            assert!(!ours || mode(&path) == 0o600, "{} {:o}", path.display(), mode(&path));
        }
    };
    check();
    fs::set_permissions(home.database(), fs::Permissions::from_mode(0o644)).unwrap();
    check();
}

#[test]
fn nothing_remains_of_deleted_threads() {
    let home = Home::new();
    let said =
        |number: u64| (0..40).map(|turn| format!("secretword{number} tale {turn}")).collect();
    for number in 1..4 {
        home.write(&Script { said: said(number), ..script(number) });
    }
    let store = store::FileStore::new(home.path());
    store.set_name(id(1), "secretname1").unwrap();
    store.set_name(id(2), "secretname2").unwrap();
    store.set_name(id(1), "secretname1 again").unwrap();
    let mut index = home.index();
    index.sync().unwrap();
    assert_eq!(found(&home, "secretword1"), found(&home, "secretword2"));
    store.delete(id(1)).unwrap();
    index.forget().unwrap();
    assert_eq!(found(&home, "secretword1") + found(&home, "secretname1"), 0);
    assert!(found(&home, "secretword2") > 0 && found(&home, "secretname2") > 0);
    assert_eq!(index.search(&search("secretword2")).unwrap().len(), 80);
    assert_eq!(store.names().unwrap().len(), 1);
    store.set_name(id(3), "third").unwrap();
    assert_eq!(index.resolve("third").unwrap(), id(3));
}

/// Counts the files below a home that contain a text.
fn found(home: &Home, text: &str) -> usize {
    let mut queue = vec![home.path().to_owned()];
    let mut count = 0;
    while let Some(path) = queue.pop() {
        if path.is_dir() {
            queue.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let bytes = fs::read(path).unwrap();
            count += usize::from(bytes.windows(text.len()).any(|window| window == text.as_bytes()));
        }
    }
    count
}

#[test]
fn threads_are_found_by_id_beginning_and_name() {
    let home = Home::new();
    for number in [1, 2, 3] {
        home.write(&script(number));
    }
    let name =
        |number: u64, name: &str| json!({ "id": id(number), "thread_name": name }).to_string();
    let family = "👨\u{200d}👩\u{200d}👧 fam";
    home.write(&script(4));
    home.write(&script(5));
    let shadow = id(1).to_string()[..8].to_owned();
    let names =
        [name(1, "twice"), name(2, "twice"), name(3, "once"), name(4, family), name(5, &shadow)];
    fs::write(home.path().join("session_index.jsonl"), names.join("\n")).unwrap();
    let mut index = home.index();
    let three = id(3).to_string();
    let beginning = &three[..13];
    let without_hyphens = beginning.replace('-', "");
    for text in [&three, "once", beginning, &without_hyphens, &three.to_uppercase()] {
        assert_eq!(index.resolve(text).unwrap(), id(3), "{text}");
    }
    for text in [family, " \u{200b}👨\u{200d}👩\u{200d}👧 fam\t"] {
        assert_eq!(index.resolve(text).unwrap(), id(4), "{text}");
    }
    for (text, several) in [
        ("twice", true),
        (&shadow, true),
        (&three[..5], true),
        ("01", false),
        ("never", false),
        ("", false),
    ] {
        match index.resolve(text).unwrap_err() {
            ResolveError::Ambiguous { candidates, .. } => assert!(several && candidates.len() > 1),
            ResolveError::Unknown(_) => assert!(!several, "{text}"),
            ResolveError::Index(error) => panic!("{error}"),
        }
    }
    fs::write(home.path().join("session_index.jsonl"), name(3, "anew")).unwrap();
    assert_eq!(index.resolve("anew").unwrap(), id(3));
    assert!(index.resolve("once").is_err());
}

#[test]
fn the_last_thread() {
    let home = Home::new();
    assert_eq!(store::index::last(home.path(), None), None);
    home.write(&Script { cwd: "/a", ..script(1) });
    let grown = home.write(&Script { cwd: "/a", ..script(2) });
    home.write(&Script { cwd: "/b", ..script(3) });
    assert_eq!(store::index::last(home.path(), None), Some(id(3)));
    assert_eq!(store::index::last(home.path(), Some("/a")), Some(id(2)));
    assert_eq!(store::index::last(home.path(), Some("/")), None);
    say(&grown, 1_890_000_000, 50, "more");
    assert_eq!(store::index::last(home.path(), None), Some(id(2)));
}

#[test]
fn damaged_files_are_listed_as_far_as_possible() {
    let home = Home::new();
    let whole = fs::read(home.write(&script(0))).unwrap();
    let mut odd: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    odd.insert(1, Vec::new());
    odd.insert(2, b"garbage\n\xff\xfe\n\0\0\0\n".to_vec());
    // Without its head.
    odd.insert(3, whole[whole.iter().position(|&byte| byte == b'\n').unwrap() + 1..].to_vec());
    odd.insert(4, whole.iter().map(|&byte| if byte == b'\n' { b' ' } else { byte }).collect());
    odd.insert(5, whole.strip_suffix(b"\n").unwrap().to_vec());
    for (number, bytes) in &odd {
        fs::write(home.write(&script(*number)), bytes).unwrap();
    }
    let rows: BTreeMap<_, _> = home.list().into_iter().map(|row| (row.id, row)).collect();
    assert_eq!(rows.len(), 6);
    for (number, cwd, turns) in [(1, "", 0), (2, "", 0), (3, "/work", 1), (5, "/work", 1)] {
        let row = &rows[&id(number)];
        assert_eq!((row.cwd.as_str(), row.turns), (cwd, turns), "{number}");
        assert!(row.created_ms > 1_700_000_000_000, "{number} {row:?}");
    }
    // A directory with the name of a thread, and files that are not thread files.
    let folder = home.write(&script(7));
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.with_extension("jsonl.damaged"), "x").unwrap();
    fs::write(home.path().join("sessions/rollout-x.jsonl"), "x").unwrap();
    assert_eq!(home.list().len(), 6);
}

#[test]
fn older_files_without_ordinals_and_marks_of_turns() {
    let home = Home::new();
    let path = home.write(&script(1));
    fs::write(&path, "").unwrap();
    let lines = [
        (
            "session_meta",
            json!({ "id": id(1), "timestamp": "2026-01-01T00:00:00Z", "cwd": "/old", "source": { "subagent": "x" } }),
        ),
        (
            "response_item",
            json!({ "type": "message", "role": "user", "content": "# AGENTS.md instructions for /old" }),
        ),
        (
            "response_item",
            json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "with a prefix: hello" }] }),
        ),
        ("event_msg", json!({ "type": "user_message", "message": "hello" })),
        ("event_msg", json!({ "type": "user_message", "message": "later" })),
        (
            "response_item",
            json!({ "type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\",\"-la\"]}" }),
        ),
        (
            "event_msg",
            json!({ "type": "token_count", "info": { "total_token_usage": { "total_tokens": 77 } } }),
        ),
        ("event_msg", json!({ "type": "token_count", "info": null })),
    ];
    for (kind, payload) in &lines {
        append(&path, 1_790_000_000, 0, kind, payload);
    }
    let row = &home.list()[0];
    assert_eq!((row.preview.as_str(), row.turns, row.tokens), ("hello", 1, 77));
    assert_eq!((row.cwd.as_str(), row.source.as_str()), ("/old", "subagent"));
    assert_eq!(home.index().search(&search("ls la")).unwrap()[0].role, Role::Command);
}

#[test]
fn a_fork_begins_with_what_it_was_forked_from() {
    let home = Home::new();
    home.write(&Script { said: vec!["a common start".into(), "left behind".into()], ..script(1) });
    let threads = store::FileStore::new(home.path());
    let meta = log::SessionMeta {
        cwd: "/fork".into(),
        timestamp: "2027-01-01T00:00:00Z".into(),
        ..Default::default()
    };
    let new = store::NewThread { id: id(2), meta };
    // The second turn starts at 12.
    let (mut log, _) = threads.fork(id(1), new, Some(12), &mut |_| {}).unwrap();
    let said = json!({
        "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "another way" }],
    });
    let event = |value: serde_json::Value| serde_json::from_value(value).unwrap();
    let started = event(json!({ "type": "task_started", "turn_id": "t" }));
    log.append(&[log::Record::raw_event(started), log::Record::ResponseItem(event(said))]).unwrap();
    log.close();
    let rows = home.list();
    let fork = rows.iter().find(|row| row.id == id(2)).unwrap();
    assert_eq!((fork.preview.as_str(), fork.turns), ("a common start", 2));
    assert_eq!((fork.forked_from, fork.cwd.as_str()), (Some(id(1)), "/fork"));
    assert_eq!(fork.created_ms, 1_798_761_600_000);
    // Earlier messages are found once, in their own thread.
    for (words, want) in [("common start", id(1)), ("left behind", id(1)), ("another way", id(2))] {
        let hits = home.index().search(&search(words)).unwrap();
        assert!(
            !hits.is_empty() && hits.iter().all(|hit| hit.thread.id == want),
            "{words} {hits:?}"
        );
    }
}

/// Threads are added, extended and removed at random; the index follows.
#[test]
fn a_list_equals_a_scan() {
    for seed in 0..12_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
        let home = Home::new();
        let mut files = Vec::new();
        for step in 0..40 {
            match random.below(6) {
                0..=2 => {
                    let number = random.below(1 << 20);
                    let mut thread = script(number);
                    thread.made -= i64::try_from(random.below(40)).unwrap() * 86_400;
                    files.push(home.write(&thread));
                    files.dedup();
                }
                3..=4 if !files.is_empty() => {
                    let at = 1_860_000_000 + i64::try_from(random.below(10_000)).unwrap();
                    say(&files[random.index(files.len())], at, 50 + step * 10, "on");
                }
                _ if !files.is_empty() => {
                    fs::remove_file(files.swap_remove(random.index(files.len()))).unwrap();
                }
                _ => {}
            }
            if random.below(3) == 0 {
                assert_eq!(shown(&home.list()), scan(home.path()), "seed {seed}, step {step}");
            }
        }
        check(&home, &format!("seed {seed}"));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }
}

fn cut(path: &Path, parts: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / parts).unwrap();
}

fn spoil(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let from = 4096.min(bytes.len());
    bytes[from..].iter_mut().step_by(3).for_each(|byte| *byte = !*byte);
    fs::write(path, bytes).unwrap();
}

fn sql(home: &Home, sql: &str) {
    rusqlite::Connection::open(home.database()).unwrap().execute_batch(sql).unwrap();
}
