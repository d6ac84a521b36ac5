//! SHA-256 of files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use ring::digest::{Context, SHA256};

#[derive(Clone)]
pub struct Sha256(Context);

impl std::fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sha256")
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Sha256 {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash in hexadecimal.
    pub fn finish(self) -> String {
        hex(self.0.finish().as_ref())
    }

    /// Hashes the rest of a file, of which `total` bytes are expected; returns how many there were.
    pub fn read(
        &mut self,
        file: &mut File,
        total: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> io::Result<u64> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut done = 0;
        loop {
            progress(done, total);
            let count = match file.read(&mut buffer) {
                Ok(0) => return Ok(done),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.update(&buffer[..count]);
            done += count as u64;
        }
    }
}

/// Returns the hash of a file, of which `total` bytes are expected.
pub fn hash_file(
    path: &Path,
    total: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<String> {
    let mut sum = Sha256::default();
    sum.read(&mut files::open(path)?, total, progress)?;
    Ok(sum.finish())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const BUFFER_BYTES: usize = 1 << 20;
