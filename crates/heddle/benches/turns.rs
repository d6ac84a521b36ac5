//! Measures what a turn costs beside the model: in this process, and over an app-server. The model is scripted, on
//! loopback, and answers at once.
//!
//!     cargo bench -p heddle --bench turns [-- PROGRAM]
//!
//! PROGRAM is the app-server: by default `target/release/heddle`, if it is there.
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use heddle::transport::{AppServer, Program};
use heddle::{Heddle, SandboxMode, ThreadSpec};
use serde_json::json;
use testkit::ModelServer;
use testkit::script::{message, response};

type Failure = Box<dyn std::error::Error>;

/// How often everything is done.
const ROUNDS: usize = 200;
/// Rounds that do not count.
const WARM_UP: usize = 20;

/// Limits, in milliseconds.
const START_MS_MAX: f64 = 2.0;
const SECOND_TURN_MS_MAX: f64 = 3.0;
const APP_SERVER_MORE_MS_MAX: f64 = 2.0;

fn main() -> Result<ExitCode, Failure> {
    let given = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/heddle");
    let program = given.map(PathBuf::from).or_else(|| usual.exists().then_some(usual));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(program))
}

async fn measure(program: Option<PathBuf>) -> Result<ExitCode, Failure> {
    let server = ModelServer::start(json!([response([message("Done.")])]))?;
    server.forget_bodies();
    let root = tempfile::tempdir()?;
    let (home, work) = (root.path().join("home"), root.path().join("work"));
    std::fs::create_dir_all(&work)?;
    let heddle = Heddle::builder().home(&home).directory(&work).build()?;
    let spec = || {
        ThreadSpec::new()
            .sandbox(SandboxMode::DangerFullAccess)
            .setting("model_provider=\"mock\"")
            .setting("model_providers.mock.name=\"mock\"")
            .setting(format!("model_providers.mock.base_url=\"{}\"", server.base_url()))
    };
    let over = match &program {
        Some(program) => {
            let program = Program::new(program).home(home.display().to_string());
            Some(heddle.over(AppServer::start(program).await?))
        }
        None => None,
    };
    let (mut start, mut second, mut served) = (Vec::new(), Vec::new(), Vec::new());
    // In turn, so that noise of the machine hits all of them.
    for round in 0..ROUNDS + WARM_UP {
        let mut all = [Duration::ZERO; 3];
        (all[0], all[1]) = one(&heddle, spec()).await?;
        if let Some(over) = &over {
            (_, all[2]) = one(over, spec()).await?;
        }
        if round >= WARM_UP {
            start.push(all[0]);
            second.push(all[1]);
            served.push(all[2]);
        }
    }
    println!("{:<36} {:>8} {:>8}  target", "", "median", "best");
    let mut met = true;
    let (start, second, served) = (Times::of(start), Times::of(second), Times::of(served));
    met &= start.row("start of a thread, ms", 0.0, START_MS_MAX);
    met &= second.row("second turn, ms", 0.0, SECOND_TURN_MS_MAX);
    match over {
        Some(_) => {
            let less = second.median_ms;
            met &= served.row("app-server: second turn, more ms", less, APP_SERVER_MORE_MS_MAX);
        }
        None => println!("app-server: not measured, as there is no program; build it, or name one"),
    }
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts a thread and runs two turns; returns what the start and the second turn took.
async fn one(heddle: &Heddle, spec: ThreadSpec) -> Result<(Duration, Duration), Failure> {
    let began = Instant::now();
    let thread = heddle.start(spec).await?;
    let start = began.elapsed();
    thread.turn("hello").run().await?;
    let began = Instant::now();
    let result = thread.turn("hello again").run().await?;
    let second = began.elapsed();
    if result.final_response.as_deref() != Some("Done.") {
        return Err(format!("{:?}", result.final_response).into());
    }
    thread.close().await;
    Ok((start, second))
}

struct Times {
    median_ms: f64,
    best_ms: f64,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
        Self { median_ms: ms(times.get(times.len() / 2)), best_ms: ms(times.first()) }
    }

    /// Prints how much more than `less` it is; returns whether the median meets the target.
    fn row(&self, what: &str, less: f64, target: f64) -> bool {
        let (median, best) = (self.median_ms - less, self.best_ms - less);
        let met = median <= target;
        let verdict = if met { "met" } else { "missed" };
        println!("{what:<36} {median:>8.2} {best:>8.2}  <= {target} {verdict}");
        met
    }
}
