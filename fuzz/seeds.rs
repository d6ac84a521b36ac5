//! Writes the initial corpus for libFuzzer.

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for seed in fuzzing::seeds::all()? {
        let directory = corpus.join(&seed.target);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(&seed.name), &seed.bytes)?;
    }
    Ok(())
}
