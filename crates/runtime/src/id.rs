//! Generates ids of threads and turns.

use std::time::{SystemTime, UNIX_EPOCH};

use protocol::id::ThreadId;

/// Generates a thread id; fails only if there are no random numbers.
pub fn thread() -> Result<ThreadId, getrandom::Error> {
    let mut random = [0; 10];
    getrandom::getrandom(&mut random)?;
    Ok(ThreadId::new(now_ms(), random))
}

/// Generates a turn id.
pub fn turn() -> String {
    // Without random numbers, the time alone distinguishes the turns of a thread.
    thread().unwrap_or_else(|_| ThreadId::new(now_ms(), [0; 10])).to_string()
}

pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
