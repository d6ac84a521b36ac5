//! Test cases that every implementation of [`Store`] must pass.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! use std::sync::Arc;
//! use store::{MemoryStore, conformance};
//!
//! for case in conformance::CASES {
//!     // Each case needs an empty store.
//!     case.run(Arc::new(MemoryStore::default())).await.unwrap();
//! }
//! # });
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{BaseInstructions, Line, Record, SessionMeta, kind};
use protocol::id::ThreadId;
use serde_json::json;

use crate::index::{Direction, Filter, List, ResolveError, Role, Search, Sort};
use crate::manage::ManageError;
use crate::store::{NewThread, OpenError, StoreError};
use crate::thread_store::{Store, ThreadLog};

/// A test case for stores.
#[derive(Clone, Copy)]
pub struct Case {
    /// Describes the expected behavior.
    pub name: &'static str,
    run: fn(Arc<dyn Store>) -> Running,
}

/// The result of a failed case.
#[derive(Debug, thiserror::Error)]
#[error("{case}: {what}")]
pub struct Violation {
    /// Name of the case that failed.
    pub case: &'static str,
    /// The expected and the actual behavior.
    pub what: String,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

impl Case {
    /// Runs the case with a store that must be empty.
    pub async fn run(self, store: Arc<dyn Store>) -> Result<(), Violation> {
        (self.run)(store).await.map_err(|what| Violation { case: self.name, what })
    }
}

type Running = Pin<Box<dyn Future<Output = Checked> + Send>>;
type Checked<T = ()> = Result<T, String>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$(Case { name: stringify!($name), run: |store| Box::pin($name(store)) }),*]
    };
}

pub const CASES: &[Case] = cases![
    a_thread_exists_after_its_first_append,
    lines_are_kept_in_order,
    appends_need_not_be_waited_for,
    every_text_comes_back,
    a_closed_thread_can_be_continued,
    one_writer_at_a_time,
    two_threads_of_one_id,
    forks_begin_with_the_lines_of_another,
    forks_before_an_ordinal,
    forks_of_forks,
    the_archive,
    deleted_threads_are_gone,
    deleting_a_forked_thread,
    unknown_threads,
    names,
    lists_and_pages,
    searches,
    the_last_thread,
];

async fn a_thread_exists_after_its_first_append(store: Arc<dyn Store>) -> Checked {
    let mut log = store.create(new_thread(1)).await.map_err(told)?;
    equal("before the first append", store.find(id(1)).await.map_err(told)?, None)?;
    is_not_found("a read before the first append", store.read(id(1), &mut |_| {}).await)?;
    log.append(Vec::new()).await.map_err(told)?;
    let found = store.find(id(1)).await.map_err(told)?.ok_or("it is not found after an append")?;
    equal("archived", found.archived, false)?;
    equal("the lines", read(&*store, 1).await?, "[1]")
}

async fn lines_are_kept_in_order(store: Arc<dyn Store>) -> Checked {
    let mut log = begin(&*store, 1, "a b").await?;
    let more = vec![message("c"), message("d"), message("e")];
    log.append(more).await.map_err(told)?;
    log.sync().await.map_err(told)?;
    equal("the lines", read(&*store, 1).await?, "[1] a b c d e")?;
    let mut ordinals = Vec::new();
    let report = store.read(id(1), &mut |line| ordinals.extend(line.ordinal)).await;
    equal("the lines that are counted", report.map_err(told)?.lines, 6)?;
    if !log.is_legacy() {
        equal("the ordinals", ordinals, (0..6).collect::<Vec<_>>())?;
    }
    Ok(())
}

async fn appends_need_not_be_waited_for(store: Arc<dyn Store>) -> Checked {
    let mut log = begin(&*store, 1, "a").await?;
    drop(log.append(vec![message("b")]));
    drop(log.sync());
    let waited = log.append(vec![message("c")]);
    drop(log.append(vec![message("d")]));
    waited.await.map_err(told)?;
    drop(log);
    // The thread is released once everything is written.
    drop(reopen(&*store, 1).await?);
    equal("the lines", read(&*store, 1).await?, "[1] a b c d")
}

async fn every_text_comes_back(store: Arc<dyn Store>) -> Checked {
    let long = "x\u{1F9F5}\u{0}\u{7f}\"\\\n\r\t".repeat(100_000);
    let texts = ["", " ", "\n", "\u{0}", "\u{2028}", "\u{10ffff}", "{\"type\":1}", &long];
    let mut log = store.create(new_thread(1)).await.map_err(told)?;
    log.append(texts.iter().map(|text| message(text)).collect()).await.map_err(told)?;
    let mut read = Vec::new();
    store.read(id(1), &mut |line| read.extend(text(line))).await.map_err(told)?;
    match read == texts {
        true => Ok(()),
        false => Err(format!("{} texts came back, or others than were written", read.len())),
    }
}

async fn a_closed_thread_can_be_continued(store: Arc<dyn Store>) -> Checked {
    drop(begin(&*store, 1, "a b").await?);
    let mut lines = Vec::new();
    let opened = reopen_with(&*store, 1, &mut |line| lines.push(show(line))).await;
    let mut log = opened?;
    equal("what opening gives", lines.join(" "), "[1] a b")?;
    log.append(vec![message("c")]).await.map_err(told)?;
    drop(log);
    drop(reopen(&*store, 1).await?);
    let mut ordinals = Vec::new();
    store.read(id(1), &mut |line| ordinals.extend(line.ordinal)).await.map_err(told)?;
    equal("the lines", read(&*store, 1).await?, "[1] a b c")?;
    let increasing = ordinals.is_sorted_by(|one, other| one < other);
    if increasing { Ok(()) } else { Err(format!("ordinals do not increase: {ordinals:?}")) }
}

async fn one_writer_at_a_time(store: Arc<dyn Store>) -> Checked {
    let mut log = begin(&*store, 1, "a").await?;
    let held = |what: &str, held: bool| match held {
        true => Ok(()),
        false => Err(format!("{what} is not refused while somebody writes")),
    };
    let opened = store.open(id(1), &mut |_| {}).await;
    held("open", matches!(opened, Err(OpenError::Held { .. })))?;
    let archived = store.archive(id(1)).await;
    held("archive", matches!(archived, Err(ManageError::Held { .. })))?;
    let deleted = store.delete(id(1)).await;
    held("delete", matches!(deleted, Err(ManageError::Held { .. })))?;
    equal("what a reader sees", read(&*store, 1).await?, "[1] a")?;
    drop(fork(&*store, 1, 2, None, "f").await?);
    log.append(vec![message("b")]).await.map_err(told)?;
    drop(log);
    drop(reopen(&*store, 1).await?);
    equal("the lines", read(&*store, 1).await?, "[1] a b")
}

async fn two_threads_of_one_id(store: Arc<dyn Store>) -> Checked {
    let mut first = store.create(new_thread(1)).await.map_err(told)?;
    let second = store.create(new_thread(1)).await;
    first.append(vec![message("a")]).await.map_err(told)?;
    if let Ok(mut second) = second
        && second.append(vec![message("b")]).await.is_ok()
    {
        return Err("both were written".to_owned());
    }
    equal("the lines", read(&*store, 1).await?, "[1] a")
}

async fn forks_begin_with_the_lines_of_another(store: Arc<dyn Store>) -> Checked {
    let mut source = begin(&*store, 1, "a b").await?;
    let mut given = Vec::new();
    let forked = store.fork(id(1), new_thread(2), None, &mut |line| given.push(show(line))).await;
    let (mut log, _) = forked.map_err(told)?;
    equal("the lines that are given out", given.join(" "), "[1] a b")?;
    log.append(vec![message("f")]).await.map_err(told)?;
    source.append(vec![message("c")]).await.map_err(told)?;
    equal("the fork", read(&*store, 2).await?, "[1] a b [2] f")?;
    equal("its source", read(&*store, 1).await?, "[1] a b c")?;
    let mut heads = Vec::new();
    let sink = &mut |line: &Line<'_>| heads.extend(head(line));
    store.read(id(2), sink).await.map_err(told)?;
    let own = heads.pop().ok_or("the fork has no head")?;
    equal("whose head comes last", own.id, Some(id(2)))?;
    equal("where it comes from", own.forked_from_id, Some(id(1)))?;
    let instructions = own.base_instructions.map(|base| base.text);
    equal("the instructions", instructions.as_deref(), Some("instructions of 1"))
}

async fn forks_before_an_ordinal(store: Arc<dyn Store>) -> Checked {
    let log = begin(&*store, 1, "a b c").await?;
    if log.is_legacy() {
        return Ok(());
    }
    drop(fork(&*store, 1, 2, Some(2), "f").await?);
    equal("the fork", read(&*store, 2).await?, "[1] a [2] f")
}

async fn forks_of_forks(store: Arc<dyn Store>) -> Checked {
    drop(begin(&*store, 1, "a").await?);
    drop(fork(&*store, 1, 2, None, "b").await?);
    drop(fork(&*store, 2, 3, None, "c").await?);
    let mut log = reopen(&*store, 3).await?;
    log.append(vec![message("d")]).await.map_err(told)?;
    equal("the fork of a fork", read(&*store, 3).await?, "[1] a [2] b [3] c d")?;
    equal("the fork", read(&*store, 2).await?, "[1] a [2] b")
}

async fn the_archive(store: Arc<dyn Store>) -> Checked {
    drop(begin(&*store, 1, "a").await?);
    drop(begin(&*store, 2, "b").await?);
    drop(reopen(&*store, 1).await?);
    for _ in 0..2 {
        store.archive(id(1)).await.map_err(told)?;
    }
    let found = store.find(id(1)).await.map_err(told)?.ok_or("an archived thread is not found")?;
    equal("archived", found.archived, true)?;
    equal("an archived thread", read(&*store, 1).await?, "[1] a")?;
    equal("the list", listed(&*store, Filter::default()).await?, "2")?;
    let archived = Filter { archived: true, ..Filter::default() };
    equal("the archive", listed(&*store, archived).await?, "1")?;
    for _ in 0..2 {
        store.unarchive(id(1)).await.map_err(told)?;
    }
    equal("the list", listed(&*store, Filter::default()).await?.len(), "2 1".len())
}

async fn deleted_threads_are_gone(store: Arc<dyn Store>) -> Checked {
    drop(begin(&*store, 1, "needle").await?);
    drop(reopen(&*store, 1).await?);
    store.set_name(id(1), "a name").await.map_err(told)?;
    equal("the list", listed(&*store, Filter::default()).await?, "1")?;
    store.delete(id(1)).await.map_err(told)?;
    is_not_found("a read", store.read(id(1), &mut |_| {}).await)?;
    equal("the list", listed(&*store, Filter::default()).await?, "")?;
    equal("what is found", found(&*store, "needle").await?, "")?;
    match store.resolve("a name").await {
        Err(ResolveError::Unknown(_)) => Ok(()),
        other => Err(format!("its name still stands for {other:?}")),
    }
}

async fn deleting_a_forked_thread(store: Arc<dyn Store>) -> Checked {
    drop(begin(&*store, 1, "a").await?);
    drop(fork(&*store, 1, 2, None, "b").await?);
    drop(reopen(&*store, 1).await?);
    match store.delete(id(1)).await {
        Ok(()) => is_not_found("a read", store.read(id(1), &mut |_| {}).await)?,
        Err(ManageError::Referenced { .. }) => {
            equal("the source", read(&*store, 1).await?, "[1] a")?;
        }
        Err(error) => return Err(told(error)),
    }
    equal("the fork", read(&*store, 2).await?, "[1] a [2] b")
}

async fn unknown_threads(store: Arc<dyn Store>) -> Checked {
    fn managed<T>(what: &str, done: Result<T, ManageError>) -> Checked {
        match done {
            Err(ManageError::Store(StoreError::NotFound(_))) => Ok(()),
            Err(error) => Err(format!("{what}: {error}")),
            Ok(_) => Err(format!("{what} works")),
        }
    }
    fn opened<T>(what: &str, done: Result<T, OpenError>) -> Checked {
        match done {
            Err(OpenError::Store(StoreError::NotFound(_))) => Ok(()),
            Err(error) => Err(format!("{what}: {error}")),
            Ok(_) => Err(format!("{what} works")),
        }
    }
    equal("find", store.find(id(9)).await.map_err(told)?, None)?;
    is_not_found("read", store.read(id(9), &mut |_| {}).await)?;
    is_not_found("set_name", store.set_name(id(9), "x").await)?;
    managed("archive", store.archive(id(9)).await)?;
    managed("unarchive", store.unarchive(id(9)).await)?;
    managed("delete", store.delete(id(9)).await)?;
    opened("open", store.open(id(9), &mut |_| {}).await)?;
    opened("fork", store.fork(id(9), new_thread(1), None, &mut |_| {}).await)?;
    match store.resolve("nothing is called so").await {
        Err(ResolveError::Unknown(_)) => Ok(()),
        other => Err(format!("a name of no thread stands for {other:?}")),
    }
}

async fn names(store: Arc<dyn Store>) -> Checked {
    for number in 1..=3 {
        drop(begin(&*store, number, "a").await?);
    }
    store.set_name(id(1), "one").await.map_err(told)?;
    store.set_name(id(1), " The\nfirst\u{200b} ").await.map_err(told)?;
    store.set_name(id(2), "twins").await.map_err(told)?;
    store.set_name(id(3), "twins").await.map_err(told)?;
    let named = store.find(id(1)).await.map_err(told)?.and_then(|found| found.name);
    equal("the name", named.as_deref(), Some("The first"))?;
    equal("whom it stands for", store.resolve("The first").await.map_err(told)?, id(1))?;
    match store.resolve("twins").await {
        Err(ResolveError::Ambiguous { candidates, .. }) => equal("twins", candidates.len(), 2)?,
        other => return Err(format!("a name of two stands for {other:?}")),
    }
    let by_name = Filter { name: Some("FIRST".to_owned()), ..Filter::default() };
    equal("the list by name", listed(&*store, by_name).await?, "1")?;
    let digits = id(2).to_string();
    equal("an id", store.resolve(&digits).await.map_err(told)?, id(2))?;
    equal("its digits", store.resolve(&digits[..digits.len() - 2]).await.map_err(told)?, id(2))?;
    store.set_name(id(1), "").await.map_err(told)?;
    let named = store.find(id(1)).await.map_err(told)?.and_then(|found| found.name);
    equal("the name that was taken away", named, None)
}

async fn lists_and_pages(store: Arc<dyn Store>) -> Checked {
    for number in 1..=5 {
        drop(begin(&*store, number, "hello there").await?);
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let list = List {
            filter: Filter::default(),
            sort: Sort::Created,
            direction: Direction::Oldest,
            limit: 2,
            cursor,
        };
        let page = store.list(list).await.map_err(told)?;
        seen.extend(page.threads.iter().map(|thread| number(thread.id)));
        cursor = page.next;
        if cursor.is_none() || seen.len() > 5 {
            break;
        }
    }
    equal("the pages", seen, vec![1, 2, 3, 4, 5])?;
    let elsewhere = Filter { cwd: Some("/place/3".to_owned()), ..Filter::default() };
    equal("those of a directory", listed(&*store, elsewhere).await?, "3")?;
    let list = List::newest(Some("/place/3"));
    let page = store.list(list).await.map_err(told)?;
    let thread = page.threads.first().ok_or("nothing is listed")?;
    equal("the provider", &*thread.provider, "a provider")?;
    equal("the preview", &*thread.preview, "hello")
}

async fn searches(store: Arc<dyn Store>) -> Checked {
    drop(begin(&*store, 1, "haystack Needle").await?);
    drop(begin(&*store, 2, "haystack").await?);
    drop(fork(&*store, 1, 3, None, "thread").await?);
    equal("what is found", found(&*store, "needle").await?, "1")?;
    equal("in a fork", found(&*store, "thread").await?, "3")?;
    equal("of two words", found(&*store, "haystack needle").await?, "")?;
    let hits = store.search(words("needle")).await.map_err(told)?;
    let hit = hits.first().ok_or("nothing is found")?;
    equal("who said it", hit.role, Role::User)?;
    let marked: String =
        hit.snippet.iter().filter(|piece| piece.hit).map(|piece| &*piece.text).collect();
    equal("what is marked", marked, "Needle".to_owned())
}

async fn the_last_thread(store: Arc<dyn Store>) -> Checked {
    equal("of none", store.last(None).await.map_err(told)?, None)?;
    drop(begin(&*store, 1, "a").await?);
    tick();
    drop(begin(&*store, 2, "a").await?);
    equal("of all", store.last(None).await.map_err(told)?, Some(id(2)))?;
    equal("of a directory", store.last(Some("/place/1")).await.map_err(told)?, Some(id(1)))?;
    equal("of another", store.last(Some("/place")).await.map_err(told)?, None)?;
    tick();
    let mut log = reopen(&*store, 1).await?;
    log.append(vec![message("b")]).await.map_err(told)?;
    equal("of all", store.last(None).await.map_err(told)?, Some(id(1)))
}

/// Waits until the next timestamp of log lines differs.
fn tick() {
    let before = jiff::Timestamp::now().as_millisecond();
    while jiff::Timestamp::now().as_millisecond() == before {
        std::thread::yield_now();
    }
}

fn id(number: u8) -> ThreadId {
    ThreadId::new(0x01a1_e26e_4000 + u64::from(number), [number; 10])
}

fn number(thread: ThreadId) -> u8 {
    (0..=u8::MAX).find(|number| id(*number) == thread).unwrap_or(u8::MAX)
}

fn new_thread(number: u8) -> NewThread {
    let meta = SessionMeta {
        id: Some(id(number)),
        timestamp: format!("2026-11-16T03:37:{number:02}.000Z"),
        cwd: format!("/place/{number}"),
        originator: "conformance".to_owned(),
        model_provider: Some("a provider".to_owned()),
        base_instructions: (number == 1)
            .then(|| BaseInstructions { text: format!("instructions of {number}") }),
        ..SessionMeta::default()
    };
    NewThread { id: id(number), meta }
}

/// Returns the log record of a user message.
fn message(text: &str) -> Record {
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    let raw = serde_json::value::to_raw_value(&item).expect("a message is JSON");
    Record::ResponseItem(raw.into())
}

async fn begin(store: &dyn Store, number: u8, words: &str) -> Checked<Box<dyn ThreadLog>> {
    let mut log = store.create(new_thread(number)).await.map_err(told)?;
    log.append(words.split(' ').map(message).collect()).await.map_err(told)?;
    Ok(log)
}

async fn fork(
    store: &dyn Store,
    from: u8,
    to: u8,
    before: Option<u64>,
    words: &str,
) -> Checked<Box<dyn ThreadLog>> {
    let forked = store.fork(id(from), new_thread(to), before, &mut |_| {}).await;
    let (mut log, _) = forked.map_err(told)?;
    log.append(words.split(' ').map(message).collect()).await.map_err(told)?;
    Ok(log)
}

async fn reopen(store: &dyn Store, number: u8) -> Checked<Box<dyn ThreadLog>> {
    reopen_with(store, number, &mut |_| {}).await
}

/// Opens a thread whose log was just dropped; its release may take a moment.
async fn reopen_with(
    store: &dyn Store,
    number: u8,
    sink: &mut (dyn FnMut(&Line<'_>) + Send),
) -> Checked<Box<dyn ThreadLog>> {
    let began = Instant::now();
    loop {
        match store.open(id(number), &mut *sink).await {
            Ok((log, report)) if report.damage.is_empty() => return Ok(log),
            Ok((_, report)) => return Err(format!("it has damage: {:?}", report.damage)),
            Err(OpenError::Held { .. }) if began.elapsed() < LETS_GO_WITHIN => {
                std::thread::yield_now();
            }
            Err(error) => return Err(told(error)),
        }
    }
}

/// Limit for the release of a thread.
const LETS_GO_WITHIN: Duration = Duration::from_secs(10);

/// Formats the lines of a thread: texts, and the numbers of heads in brackets.
async fn read(store: &dyn Store, number: u8) -> Checked<String> {
    let mut lines = Vec::new();
    store.read(id(number), &mut |line| lines.push(show(line))).await.map_err(told)?;
    Ok(lines.join(" "))
}

fn show(line: &Line<'_>) -> String {
    let head = head(line).and_then(|head| head.id).map(|id| format!("[{}]", number(id)));
    head.or(text(line)).unwrap_or_else(|| format!("<{}>", line.kind))
}

fn head(line: &Line<'_>) -> Option<SessionMeta> {
    (line.kind == kind::SESSION_META)
        .then(|| serde_json::from_str(line.payload.get()).ok())
        .flatten()
}

fn text(line: &Line<'_>) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(line.payload.get()).ok()?;
    value["content"][0]["text"].as_str().map(str::to_owned)
}

/// Returns the numbers of the listed threads, newest first.
async fn listed(store: &dyn Store, filter: Filter) -> Checked<String> {
    let list = List { filter, limit: 100, ..List::newest(None) };
    let page = store.list(list).await.map_err(told)?;
    let numbers: Vec<_> = page.threads.iter().map(|it| number(it.id).to_string()).collect();
    Ok(numbers.join(" "))
}

fn words(words: &str) -> Search {
    Search { words: words.to_owned(), raw: false, cwd: None, archived: false, limit: 10 }
}

async fn found(store: &dyn Store, text: &str) -> Checked<String> {
    let hits = store.search(words(text)).await.map_err(told)?;
    let mut numbers: Vec<_> = hits.iter().map(|hit| number(hit.thread.id).to_string()).collect();
    numbers.sort_unstable();
    Ok(numbers.join(" "))
}

fn is_not_found<T>(what: &str, done: Result<T, StoreError>) -> Checked {
    match done {
        Err(StoreError::NotFound(_)) => Ok(()),
        Err(error) => Err(format!("{what}: {error}")),
        Ok(_) => Err(format!("{what} works")),
    }
}

fn equal<T: PartialEq<U> + fmt::Debug, U: fmt::Debug>(what: &str, got: T, want: U) -> Checked {
    match got == want {
        true => Ok(()),
        false => Err(format!("{what}: {got:?} instead of {want:?}")),
    }
}

fn told(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}
