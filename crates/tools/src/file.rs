//! Reading files that somebody else named.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a regular file of at most `bytes_max` bytes.
///
/// A device or a pipe under an innocent name would be read for ever, so it is refused; so is a file
/// that turns out longer than it said.
pub fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is larger than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::read_bounded;

    #[test]
    fn what_is_read_and_what_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("f");
        std::fs::write(&file, "12345").expect("a file");
        for (path, bytes_max, want) in [
            (file.as_path(), 5, Some("12345")),
            (&file, 4, None),
            (directory.path(), 99, None),
            (Path::new("/dev/zero"), 99, None),
            (Path::new("/no/such/file"), 99, None),
        ] {
            let got = read_bounded(path, bytes_max).ok();
            assert_eq!(got.as_deref(), want.map(str::as_bytes), "{}", path.display());
        }
    }
}
