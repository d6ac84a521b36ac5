//! Every change to a ground is detected.

use std::fs;
use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;

use super::{Ground, Live};

/// Changes a fresh ground, and expects these reports.
#[track_caller]
fn check(change: impl FnOnce(&Ground), want: &[&str]) {
    let mut live = Live::make(&std::env::temp_dir()).unwrap();
    change(&live.ground);
    let root = format!("{}/", live.ground.root.display());
    let found: Vec<_> = live.damage().iter().map(|text| text.replace(&root, "")).collect();
    assert_eq!(found, want);
    let root = live.ground.root.clone();
    drop(live);
    assert!(!root.exists(), "the ground is still there");
}

#[test]
fn untouched() {
    let mut live = Live::make(&std::env::temp_dir()).unwrap();
    assert!(!live.is_untouched(), "nobody has looked for processes yet");
    live.damage();
    assert!(live.is_untouched());
    fs::create_dir(live.ground.work(".heddle")).unwrap();
    assert!(!live.is_untouched());
    fs::remove_dir(live.ground.work(".heddle")).unwrap();
    assert!(live.is_untouched());
    fs::write(live.ground.work("file"), "ours to change\n").unwrap();
    assert!(!live.is_untouched());
}

#[test]
fn nothing() {
    check(|_| {}, &[]);
    // The workspace may be written.
    check(|ground| fs::write(ground.work("new"), "new").unwrap(), &[]);
    check(|ground| fs::create_dir(ground.work(".heddle")).unwrap(), &[]);
}

#[test]
fn files() {
    let victim = "outside/victim has other contents";
    check(|ground| fs::write(ground.outside("victim"), "").unwrap(), &[victim]);
    check(
        |ground| fs::hard_link(ground.outside("victim"), ground.work("link")).unwrap(),
        &["outside/victim was changed"],
    );
    check(
        |ground| {
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(ground.work(".git/config"), mode).unwrap();
        },
        &["workspace/.git/config has other permissions"],
    );
    check(|ground| fs::remove_file(ground.tree(".git")).unwrap(), &["tree/.git is gone"]);
    check(|ground| fs::write(ground.work(".heddle"), "").unwrap(), &["workspace/.heddle appeared"]);
    check(
        |ground| {
            let file = ground.shared_memory.as_ref().unwrap();
            fs::OpenOptions::new().append(true).open(file).unwrap().write_all(b"x").unwrap();
        },
        &["the file in shared memory was changed"],
    );
}

#[test]
fn listeners() {
    check(
        |ground| drop(TcpStream::connect(("127.0.0.1", ground.tcp)).unwrap()),
        &["the TCP listener was reached"],
    );
    check(
        |ground| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"x", ("127.0.0.1", ground.udp)).unwrap();
        },
        &["the UDP socket was reached"],
    );
    check(
        |ground| drop(UnixStream::connect(ground.outside("stream.sock")).unwrap()),
        &["the Unix listener was reached"],
    );
    check(
        |ground| fs::write(ground.terminal.as_ref().unwrap(), "x").unwrap(),
        &["another user's terminal was written to"],
    );
}

#[test]
fn processes() {
    let kill = |pid| rustix::process::Pid::from_raw(pid).unwrap();
    check(
        |ground| {
            let signal = rustix::process::Signal::KILL;
            rustix::process::kill_process(kill(ground.victim), signal).unwrap();
            // A killed process has not necessarily ended; `Z` shows that it has.
            let stat = format!("/proc/{}/stat", ground.victim);
            while !fs::read_to_string(&stat).unwrap().contains(") Z ") {}
        },
        &["the process outside has ended"],
    );
    check(
        |ground| {
            rustix::process::setpriority_process(Some(kill(ground.victim)), 19).unwrap();
        },
        &["the process outside was changed"],
    );
    check(
        |ground| {
            let mut command = std::process::Command::new("sleep");
            command.arg0(&ground.root).arg("60").stdout(std::process::Stdio::null());
            // Killed by the ground, which finds it by its name.
            drop(command.stderr(std::process::Stdio::null()).spawn().unwrap());
        },
        &["a process outlived the call"],
    );
}
