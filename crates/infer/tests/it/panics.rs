//! A contained panic ends only its work; any other one ends the process, whichever thread it is in.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, exit};
use std::thread;

use infer::panics::{abort_unless_contained, contain};

/// Set for the process that panics: this test runs itself.
const PLACE: &str = "HEDDLE_TEST_PANIC";
const SURVIVED: i32 = 7;
const SIGABRT: i32 = 6;

#[test]
fn only_contained_panics_are_survived() {
    if let Ok(place) = std::env::var(PLACE) {
        abort_unless_contained();
        match &*place {
            "contained" => assert!(contain(|| panic!("in a library")).is_err()),
            "thread" => drop(thread::spawn(|| panic!("in a thread")).join()),
            // A containment before it, or on another thread, does not cover it.
            "after" => {
                let _ = contain(|| panic!("in a library"));
                drop(thread::spawn(|| panic!("in a thread")).join());
            }
            "beside" => {
                let beside = || drop(thread::spawn(|| panic!("in a thread")).join());
                let _ = contain(beside);
            }
            other => panic!("{other}"),
        }
        exit(SURVIVED);
    }
    let died = (None, Some(SIGABRT));
    for (place, want) in [
        ("contained", (Some(SURVIVED), None)),
        ("thread", died),
        ("after", died),
        ("beside", died),
        ("main", died),
    ] {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "panics::only_contained_panics_are_survived"]).env(PLACE, place);
        let output = again.output().unwrap();
        let got = (output.status.code(), output.status.signal());
        assert_eq!(got, want, "{place}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
