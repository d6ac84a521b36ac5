//! Runs many threads in one process, one turn each with a scripted model on loopback: all must complete, and the memory
//! per thread must stay below a limit.
//!
//!     cargo bench -p heddle --bench threads [-- COUNT]
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use heddle::{Heddle, SandboxMode, ThreadSpec};
use serde_json::json;
use testkit::ModelServer;
use testkit::script::{message, response};

type Failure = Box<dyn std::error::Error>;

/// Default number of threads.
const COUNT: usize = 1_000;
/// Limit of the memory per thread, in megabytes.
const THREAD_MB_MAX: f64 = 0.3;
/// Argument for the copy of this program that serves the model.
const SERVE: &str = "serve";

fn main() -> Result<ExitCode, Failure> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if args.first().is_some_and(|arg| arg == SERVE) {
        return serve();
    }
    let count = args.first().map_or(Ok(COUNT), |count| count.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(count))
}

/// Serves the model from another process, so that its memory is not counted.
fn serve() -> Result<ExitCode, Failure> {
    let server = ModelServer::start(json!([response([message("Done.")])]))?;
    server.forget_bodies();
    println!("{}", server.base_url());
    std::io::stdout().flush()?;
    // Until the parent closes the pipe.
    let mut end = String::new();
    std::io::stdin().read_line(&mut end)?;
    Ok(ExitCode::SUCCESS)
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn measure(count: usize) -> Result<ExitCode, Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(SERVE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no stdout")?;
    let _server = Server(child);
    let mut base_url = String::new();
    BufReader::new(stdout).read_line(&mut base_url)?;
    let base_url = base_url.trim();

    let root = tempfile::tempdir()?;
    let work = root.path().join("work");
    std::fs::create_dir(&work)?;
    let heddle = Heddle::builder().home(root.path().join("home")).directory(&work).build()?;
    let spec = || {
        ThreadSpec::new()
            .sandbox(SandboxMode::DangerFullAccess)
            .setting("model_provider=\"mock\"")
            .setting("model_providers.mock.name=\"mock\"")
            .setting(format!("model_providers.mock.base_url=\"{base_url}\""))
    };
    // The first thread loads what all of them share.
    let first = heddle.start(spec()).await?;
    first.turn("hello").run().await?;
    let before = resident_mb()?;
    let began = Instant::now();
    let mut tasks = Vec::with_capacity(count);
    for _ in 0..count {
        let (heddle, spec) = (heddle.clone(), spec());
        tasks.push(tokio::spawn(async move {
            let thread = heddle.start(spec).await.map_err(|error| error.to_string())?;
            let result = thread.turn("hello").run().await.map_err(|error| error.to_string())?;
            Ok::<_, String>((thread, result.final_response))
        }));
    }
    let mut threads = Vec::with_capacity(count);
    let mut failed = Vec::new();
    for task in tasks {
        match task.await? {
            Ok((thread, Some(answer))) if &*answer == "Done." => threads.push(thread),
            Ok((_, answer)) => failed.push(format!("{answer:?}")),
            Err(error) => failed.push(error),
        }
    }
    let (took, after) = (began.elapsed(), resident_mb()?);
    let each = (after - before) / count as f64;
    println!("threads    {count}");
    println!("complete   {}", threads.len());
    println!("seconds    {:.2}", took.as_secs_f64());
    println!("MB each    {each:.3} (at most {THREAD_MB_MAX})");
    for error in failed.iter().take(3) {
        println!("failed     {error}");
    }
    let met = failed.is_empty() && each <= THREAD_MB_MAX;
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the resident memory of this process.
fn resident_mb() -> Result<f64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kb: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kb / 1024.0)
}
