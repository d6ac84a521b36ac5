//! Contains panics of libraries that process client input: they end the request, not the daemon.
//!
//! A panic anywhere else is a bug that leaves state inconsistent, and aborts the process immediately, as it
//! would without unwinding: [`abort_unless_contained`] ensures that, in every command.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Runs work whose state is discarded if it panics; returns the panic message in that case.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    DEPTH.set(DEPTH.get() + 1);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    done.map_err(|said| message(&*said))
}

/// Makes panics abort the process, except for contained ones. Call it once, before there are other threads.
pub fn abort_unless_contained() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        print(panicked);
        if DEPTH.get() == 0 {
            std::process::abort();
        }
    }));
}

fn message(said: &(dyn Any + Send)) -> String {
    let text = said.downcast_ref::<&str>().copied();
    let text = text.or_else(|| said.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("without a word"))
}

#[cfg(test)]
mod tests {
    use super::contain;

    #[test]
    fn a_contained_panic_is_reported() {
        let number = |text: &str| text.parse::<u8>().expect("a number");
        assert_eq!(contain(|| number("7")), Ok(7));
        let said = contain(|| contain(|| number("x")).is_err()).unwrap();
        assert!(said);
        let said = contain(|| number("x")).unwrap_err();
        assert!(said.starts_with("panic: a number: "), "{said}");
        assert_eq!(contain(|| panic!("so")), Err::<(), _>("panic: so".to_owned()));
        assert_eq!(contain(|| number("8")), Ok(8));
    }
}
