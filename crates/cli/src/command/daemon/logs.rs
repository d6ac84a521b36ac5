//! `heddle daemon logs`: prints the end of the daemon's log, and follows it if asked.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use heddle::session::given;

use crate::failure::Failure;

/// How many bytes at the end of the log are read.
const TAIL_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How often to poll for new lines.
const POLL: Duration = Duration::from_millis(200);

/// Prints the last lines of a log, and with `follow` new ones.
pub(super) fn print(path: &Path, lines: usize, follow: bool) -> Result<ExitCode, Failure> {
    let mut file = match given::open(path) {
        Ok(file) => file,
        Err(error) if error.is_missing() => {
            return Err(Failure::failed(anyhow!(
                "no daemon has run here yet; `heddle daemon start` starts one"
            )));
        }
        Err(error) => return Err(Failure::failed(anyhow!("{}: {error}", path.display()))),
    };
    match follow_from(&mut file, path, lines, follow) {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::failed(error)),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn follow_from(file: &mut File, path: &Path, lines: usize, follow: bool) -> io::Result<()> {
    let mut stdout = io::stdout();
    let tail = last_lines(file, lines)?;
    stdout.write_all(tail.as_bytes())?;
    stdout.flush()?;
    if !follow {
        return Ok(());
    }
    loop {
        let mut more = Vec::new();
        Read::by_ref(file).take(TAIL_BYTES_MAX).read_to_end(&mut more)?;
        stdout.write_all(&more)?;
        stdout.flush()?;
        if !more.is_empty() {
            continue;
        }
        // After a rotation, the log continues in a new file of the same name.
        if let Ok(now) = std::fs::metadata(path)
            && now.ino() != file.metadata()?.ino()
        {
            *file = given::open(path)?;
            continue;
        }
        std::thread::sleep(POLL);
    }
}

/// Reads the last lines and leaves the position at the end of the file.
fn last_lines(file: &mut File, lines: usize) -> io::Result<String> {
    let length = file.metadata()?.len();
    let begin = length.saturating_sub(TAIL_BYTES_MAX);
    file.seek(SeekFrom::Start(begin))?;
    let mut reader = BufReader::new(Read::by_ref(file).take(length - begin));
    if begin > 0 {
        // The first line is probably incomplete.
        reader.skip_until(b'\n')?;
    }
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<_> = text.split_inclusive('\n').collect();
    Ok(all[all.len().saturating_sub(lines)..].concat())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    #[test]
    fn the_last_lines() {
        let path = std::env::temp_dir().join(format!("heddle-logs-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"one\ntwo\nthree\n").unwrap();
        for (lines, want) in
            [(0, ""), (1, "three\n"), (2, "two\nthree\n"), (9, "one\ntwo\nthree\n")]
        {
            let mut file = std::fs::File::open(&path).unwrap();
            assert_eq!(super::last_lines(&mut file, lines).unwrap(), want, "{lines}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
