//! New ids.

use std::time::{SystemTime, UNIX_EPOCH};

use protocol::id::ThreadId;

/// Makes the id of a new thread; fails only where there are no random numbers.
pub fn thread() -> Result<ThreadId, getrandom::Error> {
    let mut random = [0; 10];
    getrandom::getrandom(&mut random)?;
    Ok(ThreadId::new(now_ms(), random))
}

/// Makes the id of a new turn.
pub fn turn() -> String {
    // Without random numbers, the time alone tells the turns of a thread apart.
    thread().unwrap_or_else(|_| ThreadId::new(now_ms(), [0; 10])).to_string()
}

/// Returns the milliseconds since 1970.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
