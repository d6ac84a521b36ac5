//! Measures the app-server as its clients see it, with a scripted model on loopback, and prints each figure next to its
//! target. Fails if one is missed.
//!
//!     cargo bench -p heddle-cli --bench app_server [-- [--bin PATH] [--against PATH] [--only WORD]]
//!
//! With `--against`, another program that speaks the same protocol does what is compared with it, in turn with ours.
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

mod client;
mod process;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::script::{after_ms, deltas, message, response};
use testkit::{Lab, ModelServer};

use client::{Client, Followers, Server};

type Failure = Box<dyn std::error::Error>;

/// Measures something, and returns its rows of the table.
type Measure = fn(&Options) -> Result<Vec<Row>, Failure>;

/// The figures: a name, and what measures it.
const ALL: [(&str, Measure); 7] = [
    ("start", start),
    ("turn", second_turn),
    ("deltas", many_deltas),
    ("threads", many_threads),
    ("followers", many_followers),
    ("list", long_list),
    ("idle", idle),
];

struct Options {
    binary: PathBuf,
    against: Option<PathBuf>,
    only: String,
}

/// A figure next to the most that it may be; none if there is nothing to compare it with.
struct Row {
    what: String,
    figure: f64,
    unit: &'static str,
    most: Option<f64>,
}

fn main() -> Result<ExitCode, Failure> {
    let mut options =
        Options { binary: env!("CARGO_BIN_EXE_heddle").into(), against: None, only: String::new() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            // Cargo says what this is.
            "--bench" => {}
            "--bin" => options.binary = value()?.into(),
            "--against" => options.against = Some(value()?.into()),
            "--only" => options.only = value()?,
            _ => return Err(format!("unknown option {arg}").into()),
        }
    }
    println!("{:<52} {:>10}  target", "", "");
    let mut met = true;
    for (_, measure) in ALL.iter().filter(|(name, _)| name.contains(&options.only)) {
        for Row { what, figure, unit, most } in measure(&options)? {
            let verdict = match most {
                None => String::new(),
                Some(most) if figure <= most => format!("<= {most} met"),
                Some(most) => {
                    met = false;
                    format!("<= {most} missed")
                }
            };
            println!("{what:<52} {figure:>10.3}  {verdict:<16} {unit}");
        }
    }
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(what: impl Into<String>, figure: f64, unit: &'static str, most: f64) -> Row {
    Row { what: what.into(), figure, unit, most: Some(most) }
}

/// A lab whose threads talk to `model`.
fn lab_for(model: &ModelServer) -> Result<Lab, Failure> {
    model.forget_bodies();
    let lab = Lab::new()?;
    lab.home.write_mock_config(model.port())?;
    Ok(lab)
}

/// From the start of the process to the answer of the first request.
fn start(options: &Options) -> Result<Vec<Row>, Failure> {
    let model = ModelServer::start(json!([]))?;
    let lab = lab_for(&model)?;
    let mut times = Vec::new();
    for round in 0..=30 {
        let began = Instant::now();
        let mut server = Server::on_stdio(&options.binary, &lab)?;
        server.client()?.introduce()?;
        // The first one reads the program from disk.
        if round > 0 {
            times.push(ms(began.elapsed()));
        }
    }
    Ok(vec![row("initialize answered after the start, median of 30", median(times), "ms", 8.0)])
}

/// From the request of a turn to its end, in a thread that has had one.
fn second_turn(options: &Options) -> Result<Vec<Row>, Failure> {
    let model = ModelServer::start(json!([response([message("Done.")])]))?;
    let lab = lab_for(&model)?;
    let mut server = Server::on_stdio(&options.binary, &lab)?;
    let mut client = server.client()?;
    client.introduce()?;
    let mut times = Vec::new();
    for round in 0..50 {
        let thread = client.start_thread()?;
        client.turn(&thread)?;
        let took = client.turn(&thread)?;
        if round >= 10 {
            times.push(ms(took));
        }
        client.ask("thread/unsubscribe", &json!({"threadId": thread}))?;
    }
    Ok(vec![row("second turn of a warm thread, median of 40", median(times), "ms", 5.0)])
}

/// A long streamed answer, by both programs in turn.
fn many_deltas(options: &Options) -> Result<Vec<Row>, Failure> {
    const DELTAS: usize = 50_000;
    let words = std::iter::repeat_n("word ", DELTAS);
    let script = || json!([response([message("Hi.")]), response(deltas(words.clone()))]);
    let run = |binary: &Path| -> Result<[f64; 2], Failure> {
        let model = ModelServer::start(script())?;
        let lab = lab_for(&model)?;
        let mut server = Server::on_stdio(binary, &lab)?;
        let pid = server.pid();
        let mut client = server.client()?;
        client.introduce()?;
        let thread = client.start_thread()?;
        client.turn(&thread)?;
        let before = process::cpu(pid)?;
        let took = client.turn(&thread)?;
        Ok([ms(took), ms(process::cpu(pid)?.saturating_sub(before))])
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        ours.push(run(&options.binary)?);
        if let Some(against) = &options.against {
            theirs.push(run(against)?);
        }
    }
    let of = |runs: &[[f64; 2]], index: usize| median(runs.iter().map(|run| run[index]).collect());
    let mut rows = Vec::new();
    for (index, what) in ["wall", "CPU"].into_iter().enumerate() {
        let figure = of(&ours, index);
        let what = format!("{DELTAS} deltas, {what}, median of 5");
        rows.push(Row { what: what.clone(), figure, unit: "ms", most: None });
        if !theirs.is_empty() {
            let share = figure / of(&theirs, index);
            rows.push(row(format!("{what}, of the other's"), share, "", 0.06));
        }
    }
    Ok(rows)
}

/// Memory while a turn runs in each of many threads.
fn many_threads(options: &Options) -> Result<Vec<Row>, Failure> {
    const THREADS: usize = 200;
    /// Longer than all turns take to begin: they run when the memory is measured.
    const PAUSE_MS: u64 = 8_000;
    let mut events = deltas(["Do", "ne."]);
    let last = events.pop().map(|last| after_ms(PAUSE_MS, last));
    events.extend(last);
    let model = ModelServer::start(json!([response([message("Hi.")]), response(events)]))?;
    let lab = lab_for(&model)?;
    let mut server = Server::on_stdio(&options.binary, &lab)?;
    let pid = server.pid();
    let mut client = server.client()?;
    client.introduce()?;
    // The first thread loads what all of them share.
    let first = client.start_thread()?;
    client.turn(&first)?;
    let before = process::pss_mb(pid)?;
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        threads.push(client.start_thread()?);
    }
    for thread in &threads {
        client.begin_turn(thread)?;
    }
    // Each has shown both parts of its text.
    let (mut parts, mut ends) = (0, 0);
    while parts < 2 * THREADS {
        let line = client.line()?;
        parts += usize::from(line.contains("\"item/agentMessage/delta\""));
        ends += usize::from(line.contains("\"turn/completed\""));
    }
    let after = process::pss_mb(pid)?;
    if ends > 0 {
        return Err("turns ended before all had begun: this machine is too slow".into());
    }
    let mut complete = 0;
    while ends < THREADS {
        let line = client.line()?;
        if line.contains("\"turn/completed\"") {
            ends += 1;
            let told: Value = serde_json::from_str(&line)?;
            complete += usize::from(told["params"]["turn"]["status"] == "completed");
        }
    }
    let each = (after - before) / THREADS as f64;
    Ok(vec![
        row(format!("{THREADS} threads with a running turn, each"), each, "MB of PSS", 0.3),
        row("turns of these that did not complete", (THREADS - complete) as f64, "", 0.0),
    ])
}

/// What it costs that many connections follow one thread.
fn many_followers(options: &Options) -> Result<Vec<Row>, Failure> {
    const FOLLOWERS: usize = 50;
    const DELTAS: usize = 50_000;
    let words = std::iter::repeat_n("word ", DELTAS);
    let model = ModelServer::start(json!([response([message("Hi.")]), response(deltas(words))]))?;
    let lab = lab_for(&model)?;
    let server = Server::on_socket(&options.binary, &lab)?;
    let mut client = Client::connect(&server)?;
    client.introduce()?;
    let thread = client.start_thread()?;
    client.turn(&thread)?;
    let mut followers = Followers::default();
    let mut turn = |followers: &mut Followers| -> Result<[f64; 2], Failure> {
        let (before, began) = (process::cpu(server.pid())?, Instant::now());
        client.begin_turn(&thread)?;
        followers.read_turn(&mut client)?;
        let wall = began.elapsed();
        Ok([ms(wall), ms(process::cpu(server.pid())?.saturating_sub(before))])
    };
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        one.push(turn(&mut followers)?);
        followers.connect(FOLLOWERS - 1, &server, &thread)?;
        many.push(turn(&mut followers)?);
        followers.disconnect(&server)?;
    }
    let of = |runs: &[[f64; 2]], index: usize| median(runs.iter().map(|run| run[index]).collect());
    let mut rows = Vec::new();
    for (index, what) in ["wall", "CPU"].into_iter().enumerate() {
        let (figure, more) = (of(&one, index), of(&many, index));
        let what = format!("{DELTAS} deltas for one connection, {what}");
        rows.push(Row { what, figure, unit: "ms", most: None });
        rows.push(row(format!("the same for {FOLLOWERS}, times as much"), more / figure, "", 2.0));
    }
    Ok(rows)
}

/// The first page of a long list.
fn long_list(options: &Options) -> Result<Vec<Row>, Failure> {
    const THREADS: u32 = 10_000;
    let model = ModelServer::start(json!([]))?;
    let lab = lab_for(&model)?;
    for number in 0..THREADS {
        testkit::saved::write_thread(&lab, number)?;
    }
    // The index trusts a directory's modification time only once it is older than the clock's resolution.
    std::thread::sleep(Duration::from_secs(3));
    let mut server = Server::on_stdio(&options.binary, &lab)?;
    let mut client = server.client()?;
    client.introduce()?;
    let mut rows = Vec::new();
    for limit in [25, 100] {
        let mut times = Vec::new();
        for round in 0..=20 {
            let began = Instant::now();
            let page = client.ask("thread/list", &json!({"limit": limit}))?;
            let took = ms(began.elapsed());
            if page["data"].as_array().map(Vec::len) != Some(limit) {
                return Err(format!("a page of {limit} has other threads: {page:.200}").into());
            }
            // The first one makes the index.
            if round > 0 {
                times.push(took);
            }
        }
        let what = format!("thread/list of {THREADS}, {limit} on a page");
        rows.push(row(what, median(times), "ms", 25.0));
    }
    Ok(rows)
}

/// What a server does while nobody asks it for anything.
fn idle(options: &Options) -> Result<Vec<Row>, Failure> {
    let model = ModelServer::start(json!([response([message("Done.")])]))?;
    let lab = lab_for(&model)?;
    let server = Server::on_socket(&options.binary, &lab)?;
    let mut client = Client::connect(&server)?;
    client.introduce()?;
    let thread = client.start_thread()?;
    client.turn(&thread)?;
    let mut followers = Followers::default();
    followers.connect(9, &server, &thread)?;
    // Threads that have written the log and read it end by themselves a while after that.
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut before, mut after);
    loop {
        before = process::activity(server.pid())?;
        std::thread::sleep(Duration::from_secs(5));
        after = process::activity(server.pid())?;
        if after == before || Instant::now() > deadline {
            break;
        }
    }
    Ok(vec![
        row(
            "idle with 10 clients: ticks of CPU in 5 s",
            (after.ticks - before.ticks) as f64,
            "",
            0.0,
        ),
        row(
            "idle with 10 clients: context switches in 5 s",
            after.switches.abs_diff(before.switches) as f64,
            "",
            0.0,
        ),
    ])
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
