//! Stages a large file, next to hashing and copying it: the first time may take at most 1.3 times as long, and the second
//! time must write nothing.
//!
//!     cargo bench -p heddle-staging --bench stage [-- MEGABYTES]
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use ring::digest::{Context, SHA256};
use staging::{Area, Limits};

/// Size of the file, in megabytes.
const MEGABYTES: usize = 100;
/// Rounds; of each measure, the median counts.
const ROUNDS: usize = 9;
/// Limit of staging, relative to hashing and copying.
const RATIO_MAX: f64 = 1.3;
const LIMITS: Limits =
    Limits { image_bytes_max: u64::MAX, pdf_bytes_max: u64::MAX, text_bytes_max: u64::MAX };

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let megabytes = args.next().map_or(Ok(MEGABYTES), |count| count.parse())?;
    let root =
        tempfile::tempdir_in(std::env::var_os("HEDDLE_BENCH_DIR").unwrap_or("/var/tmp".into()))?;
    let source = root.path().join("source.pdf");
    write(&source, megabytes)?;
    let (mut hashing, mut copying, mut first, mut second) = (vec![], vec![], vec![], vec![]);
    let mut written = 0;
    // The first round is a warm-up. Rounds alternate, so that noise hits all alike.
    for round in 0..=ROUNDS {
        let hash = time(|| hash(&source))?;
        let copy = time(|| copy(&source, &root.path().join("copy")))?;
        let home = tempfile::tempdir_in(root.path())?;
        let area = Area::new(home.path());
        let stage = |reused: bool| -> Result<(), Box<dyn Error>> {
            match area.stage(&source, &LIMITS)?.is_reused() == reused {
                true => Ok(()),
                false => Err("it was staged in the wrong way".into()),
            }
        };
        let once = time(|| stage(false))?;
        let before = bytes_written()?;
        let again = time(|| stage(true))?;
        if round > 0 {
            written = written.max(bytes_written()? - before);
            hashing.push(hash);
            copying.push(copy);
            first.push(once);
            second.push(again);
        }
    }
    let [hashing, copying, first, second] = [hashing, copying, first, second].map(median);
    let ratio = first / (hashing + copying);
    println!("file                {megabytes} MB");
    println!("hash                {hashing:.0} ms");
    println!("copy and sync       {copying:.0} ms");
    println!("stage               {first:.0} ms");
    println!("ratio               {ratio:.2} (at most {RATIO_MAX})");
    println!("stage again         {second:.0} ms");
    println!("written for that    {written} bytes (none)");
    let met = ratio <= RATIO_MAX && written == 0;
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes a file without a pattern.
fn write(path: &Path, megabytes: usize) -> Result<(), Box<dyn Error>> {
    let mut file = File::create(path)?;
    let mut state = 1_u64;
    let mut block = b"%PDF-1.7\n".to_vec();
    for _ in 0..megabytes {
        while block.len() < 1_000_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block[..1_000_000])?;
        block.clear();
    }
    Ok(file.sync_all()?)
}

fn hash(path: &Path) -> Result<(), Box<dyn Error>> {
    let (mut file, mut context) = (File::open(path)?, Context::new(&SHA256));
    let mut buffer = vec![0; 256 << 10];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            context.finish();
            return Ok(());
        }
        context.update(&buffer[..length]);
    }
}

fn copy(source: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    fs::copy(source, to)?;
    File::open(to)?.sync_data()?;
    Ok(fs::remove_file(to)?)
}

fn time(run: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let began = Instant::now();
    run()?;
    Ok(began.elapsed().as_secs_f64() * 1000.0)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns how many bytes this process has written to files, as the system counts them.
fn bytes_written() -> Result<u64, Box<dyn Error>> {
    let counts = fs::read_to_string("/proc/self/io")?;
    let line = counts.lines().find_map(|line| line.strip_prefix("wchar:")).ok_or("no count")?;
    Ok(line.trim().parse()?)
}
