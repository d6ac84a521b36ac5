//! Privileged kernel interfaces. If a call could do harm, it is made with arguments that every kernel
//! rejects: getting that error is as good as being admitted.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use super::super::ground::Ground;
use super::super::sys::{Outcome, call, own, reached, text, void};
use super::{Attempt, Outside, forbid};

pub(super) const TABLE: &[Attempt] = &[
    forbid("proc-sys-kernel", "change a setting of the kernel", |_| {
        rewrite("/proc/sys/kernel/panic")
    })
    .root(),
    forbid("proc-sys-core", "change what runs when a program crashes", |_| {
        rewrite("/proc/sys/kernel/core_pattern")
    })
    .root(),
    forbid("proc-sys-modprobe", "change what loads modules", |_| {
        rewrite("/proc/sys/kernel/modprobe")
    })
    .unsaid(),
    forbid("proc-sys-net", "change a setting of the network", |_| {
        rewrite("/proc/sys/net/ipv4/ip_forward")
    })
    .root(),
    forbid("proc-sys-vm", "change a setting of the memory", |_| {
        rewrite("/proc/sys/vm/overcommit_memory")
    })
    .root(),
    forbid("proc-sysrq", "open the door of emergency keys", |_| open("/proc/sysrq-trigger"))
        .unsaid(),
    forbid("proc-kcore", "open the memory of the kernel", |_| {
        File::open("/proc/kcore")?;
        Ok("opened".into())
    })
    .unsaid(),
    forbid("sys-write", "change a setting below /sys", |_| {
        for path in ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/profiling"] {
            if Path::new(path).exists() {
                return open(path);
            }
        }
        void("there is none of the usual ones")
    })
    .unsaid(),
    forbid("cgroup", "make a control group", |ground| {
        let name = ground.root.file_name().unwrap_or_default();
        let path = Path::new("/sys/fs/cgroup").join(name);
        fs::create_dir(&path)?;
        fs::remove_dir(&path)?;
        Ok("made".into())
    })
    .unsaid(),
    forbid("bpf", "load a program into the kernel", |_| {
        // A map of one element; not a program, which kernels take long to verify.
        let attributes = [0x0000_0004_0000_0002_u64, 0x0000_0001_0000_0004, 0, 0, 0, 0, 0, 0, 0];
        own(call!(libc::SYS_bpf, 0, &attributes[..], 72)?);
        Ok("made a map".into())
    })
    .unsaid(),
    forbid("perf", "watch the machine's performance", |_| {
        let mut attributes = [0_u64; 16];
        // A software clock counter.
        attributes[0] = 1 | 128 << 32;
        own(call!(libc::SYS_perf_event_open, &attributes[..], 0, -1, -1, 0)?);
        Ok("opened".into())
    })
    .unsaid(),
    forbid("io-uring", "make system calls by a ring", |_| {
        let mut parameters = [0_u64; 15];
        parameters[0] = 0;
        own(call!(libc::SYS_io_uring_setup, 4, &parameters[..])?);
        Ok("made".into())
    })
    .unsaid(),
    forbid("keyctl", "use the session's keys", |_| {
        // KEYCTL_GET_KEYRING_ID of the session, without creating one.
        reached(call!(libc::SYS_keyctl, 0, -3, 0))
    })
    .unsaid(),
    forbid("add-key", "add a key", |_| {
        call!(libc::SYS_add_key, c"user", c"heddle-prove", &b"x"[..], 1, -2)?;
        Ok("added".into())
    })
    .unsaid(),
    forbid("request-key", "ask for a key", |_| {
        reached(call!(libc::SYS_request_key, c"user", c"heddle-prove", 0, 0))
    })
    .unsaid(),
    forbid("userfaultfd", "handle faults of the memory", |_| {
        own(call!(libc::SYS_userfaultfd, USER_MODE_ONLY)?);
        Ok("made".into())
    })
    .unsaid(),
    forbid("userfaultfd-device", "do so by the device", |_| open("/dev/userfaultfd")).unsaid(),
    forbid("fanotify", "watch the files of everybody", |_| {
        own(call!(libc::SYS_fanotify_init, 0x200, 0)?);
        Ok("watching".into())
    })
    .unsaid(),
    forbid("kexec", "start another kernel", |_| {
        reached(call!(libc::SYS_kexec_load, 0, u64::MAX, 0, u64::MAX))
    })
    .unsaid(),
    forbid("kexec-file", "start another kernel from a file", |_| {
        reached(call!(SYS_KEXEC_FILE_LOAD, -1, -1, 0, 0, u64::MAX))
    })
    .unsaid(),
    forbid("init-module", "load a module", |_| {
        reached(call!(libc::SYS_init_module, &b""[..], 0, c""))
    })
    .unsaid(),
    forbid("finit-module", "load a module from a file", |_| {
        reached(call!(libc::SYS_finit_module, -1, c"", 0))
    })
    .unsaid(),
    forbid("delete-module", "unload a module", |_| {
        reached(call!(libc::SYS_delete_module, c"heddle-prove-none", libc::O_NONBLOCK))
    })
    .unsaid(),
    forbid("reboot", "restart the machine", |_| {
        // Neither magic number is valid.
        reached(call!(libc::SYS_reboot, 0, 0, 0, 0))
    })
    .root(),
    forbid("settimeofday", "set the clock", |_| {
        // With null pointers, which changes nothing but requires the same privilege.
        reached(call!(libc::SYS_settimeofday, 0, 0))
    })
    .root(),
    forbid("clock-settime", "set a clock", |_| {
        // A time with more nanoseconds than a second has.
        let time = [0_u64, u64::MAX];
        reached(call!(libc::SYS_clock_settime, libc::CLOCK_REALTIME, &time[..]))
    }),
    forbid("adjtimex", "make the clock run faster", |_| {
        // A tick that every kernel rejects.
        let mut timex = [0_u64; 26];
        timex[0] = 0x4000;
        timex[11] = 1;
        reached(call!(libc::SYS_adjtimex, &timex[..]))
    })
    .root(),
    forbid("sethostname", "name the machine", |_| {
        let name = fs::read("/proc/sys/kernel/hostname")?;
        let name = name.trim_ascii_end();
        call!(libc::SYS_sethostname, name, name.len())?;
        Ok("named".into())
    })
    .root(),
    forbid("setdomainname", "name the machine's domain", |_| {
        let name = fs::read("/proc/sys/kernel/domainname")?;
        let name = name.trim_ascii_end();
        call!(libc::SYS_setdomainname, name, name.len())?;
        Ok("named".into())
    })
    .root(),
    forbid("syslog", "read the kernel's messages", |_| {
        let mut buffer = [0_u8; 256];
        call!(libc::SYS_syslog, 3, &mut buffer[..], 256)?;
        Ok("read".into())
    })
    .unsaid(),
    forbid("swapon", "swap to a file", |ground| {
        reached(call!(libc::SYS_swapon, &text(ground.work("none")), 0))
    })
    .root(),
    forbid("swapoff", "stop swapping", |ground| {
        reached(call!(libc::SYS_swapoff, &text(ground.work("none"))))
    })
    .root(),
    forbid("acct", "log every process into a file", |ground| {
        reached(call!(libc::SYS_acct, &text(ground.work("none"))))
    })
    .unsaid(),
    forbid("quotactl", "change quotas", |_| {
        // Q_QUOTAON for users, on something that is not a device.
        reached(call!(libc::SYS_quotactl, 0x8000_0200_u32, c"/dev/null", 0, c""))
    })
    .unsaid(),
    #[cfg(target_arch = "x86_64")]
    forbid("ioperm", "use the ports of the machine", |_| {
        call!(libc::SYS_ioperm, 0x80, 1, 1)?;
        Ok("allowed".into())
    })
    .unsaid(),
    #[cfg(target_arch = "x86_64")]
    forbid("iopl", "use all ports of the machine", |_| {
        call!(libc::SYS_iopl, 3)?;
        Ok("allowed".into())
    })
    .unsaid(),
    forbid("vhangup", "hang up the terminal", |_| {
        call!(libc::SYS_vhangup)?;
        Ok("hung up".into())
    })
    .outside(Outside::Never),
    forbid("dev-mem", "open the memory of the machine", |_| open("/dev/mem")).unsaid(),
    forbid("dev-kmsg", "write into the kernel's messages", |_| open("/dev/kmsg")).unsaid(),
    forbid("dev-kvm", "run virtual machines", |_| open("/dev/kvm")).unsaid(),
    forbid("dev-fuse", "be a file system", |_| open("/dev/fuse")).unsaid(),
    forbid("dev-loop", "make disks of files", |_| open("/dev/loop-control")).unsaid(),
    forbid("dev-disk", "open a disk for writing", |ground| {
        let Some((path, _)) = &ground.disk else { return void("there is no disk") };
        // Opened and closed again; nothing is written.
        OpenOptions::new().read(true).write(true).open(path)?;
        Ok("opened".into())
    })
    .outside(Outside::Unsaid),
    forbid("mknod-disk", "make a device in the workspace, and open it", |ground| {
        let Some((_, device)) = ground.disk else { return void("there is no disk") };
        device_node(ground, libc::S_IFBLK, device)
    })
    .unsaid(),
    forbid("mknod-mem", "make a device of the memory, and open it", |ground| {
        device_node(ground, libc::S_IFCHR, libc::makedev(1, 1))
    })
    .unsaid(),
    forbid("mknod-null", "make a device that does nothing, and open it", |ground| {
        device_node(ground, libc::S_IFCHR, libc::makedev(1, 3))
    })
    .root(),
];

/// Opens a file for writing, and writes nothing.
fn open(path: &str) -> Outcome {
    OpenOptions::new().write(true).open(path)?;
    Ok("opened for writing".into())
}

/// Writes the current value to a setting.
fn rewrite(path: &str) -> Outcome {
    let value = fs::read(path)?;
    OpenOptions::new().write(true).open(path)?.write_all(&value)?;
    Ok("written".into())
}

fn device_node(ground: &Ground, kind: u32, device: u64) -> Outcome {
    let path = ground.work("node");
    call!(libc::SYS_mknodat, libc::AT_FDCWD, &text(&path), kind | 0o600, device)?;
    File::open(path)?;
    Ok("made and opened".into())
}

/// Only faults of user code, which need no privilege.
const USER_MODE_ONLY: i32 = 1;

/// The C library does not define it for every architecture.
#[cfg(target_arch = "x86_64")]
const SYS_KEXEC_FILE_LOAD: i64 = 320;
#[cfg(not(target_arch = "x86_64"))]
const SYS_KEXEC_FILE_LOAD: i64 = 294;
