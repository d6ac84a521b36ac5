//! Panics of libraries that work on what a client wrote: they end the request, not the daemon.
//!
//! A panic anywhere else is a bug that leaves things half done, and ends the process at once, as it would without
//! unwinding: [`abort_unless_contained`] sees to that, in every command.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Does something of which nothing is used any more if it panics; then returns what the panic said.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    DEPTH.set(DEPTH.get() + 1);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    done.map_err(|said| message(&*said))
}

/// Has panics end the process, but for those that are contained. To be called once, before there are other threads.
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
    fn what_panics_is_told_and_nothing_else_is_lost() {
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
