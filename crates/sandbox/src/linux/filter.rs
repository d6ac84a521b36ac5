//! Which system calls a sandboxed process may make.
//!
//! Everything is allowed except the listed calls: ways out of the sandbox, and parts of the kernel that no
//! build or test needs. A call that is newer than this file fails as on an older kernel, and so do calls of
//! other ABIs.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::sandbox::Level;

/// Installs the filter for this process and everything it starts.
pub(crate) fn install(level: Level, network: bool) -> io::Result<()> {
    for program in [absent()?, refused(level, network)?] {
        seccompiler::apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that fail as if the kernel did not have them: programs that use them have a fallback.
fn absent() -> io::Result<BpfProgram> {
    // The arguments of these are in memory, where a filter cannot look.
    let rules = [libc::SYS_clone3, libc::SYS_openat2].map(|call| (call, Vec::new()));
    let mut program = compile(Rules::from(rules), libc::ENOSYS)?;
    // Before anything else: load the number of the call; everything from the first unknown one on is absent.
    // This includes the calls of the x32 ABI, whose numbers are far above.
    let first_unknown = u32::try_from(FIRST_UNKNOWN).unwrap_or(u32::MAX);
    let error = u32::from(SeccompAction::Errno(libc::ENOSYS.unsigned_abs()));
    let head = [
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_NOT_BELOW, jt: 0, jf: 1, k: first_unknown },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: error },
    ];
    program.splice(0..0, head);
    Ok(program)
}

fn refused(level: Level, network: bool) -> io::Result<BpfProgram> {
    let mut rules = Rules::new();
    for call in ALWAYS {
        rules.insert(*call, Vec::new());
    }
    new_namespaces(&mut rules);
    privileged_files(&mut rules);
    terminals(&mut rules);
    sockets(&mut rules, network);
    leases(&mut rules);
    if level == Level::Landlock {
        beyond_landlock(&mut rules);
    }
    compile(rules, libc::EPERM)
}

fn compile(rules: Rules, errno: i32) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let error = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, error, arch)
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
}

/// New namespaces bring new privileges inside them, and so access to more of the kernel.
fn new_namespaces(rules: &mut Rules) {
    let all = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    for flag in all {
        add(rules, libc::SYS_unshare, &[has(0, flag)]);
        add(rules, libc::SYS_clone, &[has(0, flag)]);
    }
    // For `clone` this bit is part of a signal number.
    add(rules, libc::SYS_unshare, &[has(0, NEW_TIME)]);
}

/// A set-user-id file would give its owner's rights to anyone who runs it later.
fn privileged_files(rules: &mut Rules) {
    for bit in [libc::S_ISUID, libc::S_ISGID].map(u32::cast_signed) {
        add(rules, libc::SYS_fchmod, &[has(1, bit)]);
        add(rules, libc::SYS_fchmodat, &[has(2, bit)]);
        add(rules, FCHMODAT2, &[has(2, bit)]);
        add(rules, libc::SYS_mknodat, &[has(2, bit)]);
        #[cfg(target_arch = "x86_64")]
        {
            add(rules, libc::SYS_chmod, &[has(1, bit)]);
            add(rules, libc::SYS_mknod, &[has(1, bit)]);
            add(rules, libc::SYS_creat, &[has(1, bit)]);
        }
        // Without one of these flags the mode is ignored, and may be anything.
        for flag in [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY] {
            add(rules, libc::SYS_openat, &[has(2, flag), has(3, bit)]);
            #[cfg(target_arch = "x86_64")]
            add(rules, libc::SYS_open, &[has(1, flag), has(2, bit)]);
        }
    }
}

/// Injecting input into a terminal, and other console requests.
fn terminals(rules: &mut Rules) {
    for request in [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD, libc::TIOCCONS] {
        add(rules, libc::SYS_ioctl, &[equals(1, request)]);
    }
}

/// Opening a leased file for writing blocks until the lease is returned, up to a minute, and any readable
/// file can be leased.
fn leases(rules: &mut Rules) {
    for request in [libc::F_SETLEASE, F_SETDELEG] {
        add(rules, libc::SYS_fcntl, &[equals(1, request)]);
    }
}

/// Without network access there are no sockets except pairs. With it there are Internet sockets, and those
/// that query the kernel for addresses. Unix sockets stay blocked: the programs behind them act on behalf of
/// any client.
fn sockets(rules: &mut Rules, network: bool) {
    if network {
        let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
        add(rules, libc::SYS_socket, &families.map(|family| differs(0, family)));
        add(
            rules,
            libc::SYS_socket,
            &[equals(0, libc::AF_NETLINK), differs(2, libc::NETLINK_ROUTE)],
        );
    } else {
        for call in [
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_listen,
            libc::SYS_accept,
            libc::SYS_accept4,
        ] {
            rules.insert(call, Vec::new());
        }
    }
    add(rules, libc::SYS_socketpair, &[differs(0, libc::AF_UNIX)]);
    // These can send to any address, paired or not; a raw socket is an alias of one of them.
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
        add(rules, libc::SYS_socketpair, &[masked(1, 0xf, kind)]);
    }
}

/// What namespaces isolate and Landlock does not cover: file metadata (owner, mode, times, attributes),
/// limits and priorities of other processes, and shared memory.
fn beyond_landlock(rules: &mut Rules) {
    for call in UNSEEN_BY_LANDLOCK {
        rules.insert(*call, Vec::new());
    }
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
    ] {
        add(rules, call, &[differs(0, 0)]);
    }
    for request in FILE_MARKS {
        add(rules, libc::SYS_ioctl, &[equals(1, request)]);
    }
    // One process at a time, and only itself: zero is the caller only if the call is about processes.
    for (call, process) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)] {
        add(rules, call, &[differs(0, process)]);
        add(rules, call, &[differs(1, 0)]);
    }
}

/// Adds one way to be refused: all conditions must hold.
fn add(rules: &mut Rules, call: c_long, conditions: &[SeccompCondition]) {
    let rule = SeccompRule::new(conditions.to_vec()).expect("a rule here has conditions");
    match rules.entry(call) {
        std::collections::btree_map::Entry::Vacant(entry) => {
            entry.insert(vec![rule]);
        }
        // An empty list of rules refuses the call whatever its arguments.
        std::collections::btree_map::Entry::Occupied(mut entry) if !entry.get().is_empty() => {
            entry.get_mut().push(rule);
        }
        std::collections::btree_map::Entry::Occupied(_) => {}
    }
}

fn has(argument: u8, bits: i32) -> SeccompCondition {
    masked(argument, bits, bits)
}

fn masked(argument: u8, mask: i32, value: i32) -> SeccompCondition {
    let mask = u64::from(mask.cast_unsigned());
    condition(argument, SeccompCmpOp::MaskedEq(mask), value.cast_unsigned().into())
}

/// The kernel looks at 32 bits of these arguments, and so must we.
fn equals(argument: u8, value: impl TryInto<u32>) -> SeccompCondition {
    condition(argument, SeccompCmpOp::Eq, value.try_into().unwrap_or(u32::MAX).into())
}

fn differs(argument: u8, value: i32) -> SeccompCondition {
    condition(argument, SeccompCmpOp::Ne, value.cast_unsigned().into())
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .expect("a call has six arguments")
}

/// Present since Linux 6.6; `libc` does not define it for every architecture, but the number is the same on
/// all of them.
const FCHMODAT2: libc::c_long = 452;
/// The newer form of a lease, also for directories.
const F_SETDELEG: i32 = 1040;
/// `CLONE_NEWTIME`.
const NEW_TIME: i32 = 0x80;

/// The first call that Linux 6.18 does not have. Numbers are the same everywhere from 424 on.
const FIRST_UNKNOWN: c_long = 471;
const SYS_SETXATTRAT: c_long = 463;
const SYS_REMOVEXATTRAT: c_long = 466;
const SYS_OPEN_TREE_ATTR: c_long = 467;
const SYS_FILE_SETATTR: c_long = 469;

/// BPF instructions: load a word, compare, return.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Calls that are refused at every level.
const ALWAYS: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_setns,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // File handles instead of paths, and watching files of others.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    // Parts of the kernel with a history of vulnerabilities.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_lookup_dcookie,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Requests that change file metadata through a descriptor that is open for reading: flags, project,
/// generation, verity and encryption, each for both word sizes.
const FILE_MARKS: [u32; 9] = [
    0x4004_6602,
    0x4008_6602,
    0x401c_5820,
    0x4004_7602,
    0x4008_7602,
    0x4004_6604,
    0x4008_6604,
    0x4080_6685,
    0x800c_6613,
];

/// Calls that change what Landlock does not guard.
const UNSEEN_BY_LANDLOCK: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

#[cfg(test)]
mod tests {
    use super::{absent, refused};
    use crate::sandbox::Level;

    #[test]
    fn the_filters_compile_and_fit_the_kernel() {
        for level in Level::ALL {
            for network in [false, true] {
                let program = refused(level, network).expect("a program");
                assert!(program.len() < 4096, "{level:?} {network}: {}", program.len());
            }
        }
        assert!(absent().expect("a program").len() > 3);
    }
}
