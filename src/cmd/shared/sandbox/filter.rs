//! The system calls that are left.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use libc::c_long;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Is a wall there? The system may not have it.
pub type Built = Result<bool>;

/// What computing needs, on memory and descriptors that are there: none of them opens, names or reaches anything else.
const ANY: [c_long; 27] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_wait4,
];

/// An argument by its number, and what it has to be.
type Argument = (u8, SeccompCmpOp, u64);

/// What only some arguments make harmless: each row is a way to call it.
fn some(socket: Option<RawFd>) -> Result<Vec<(c_long, Vec<Argument>)>> {
    let bits = |flag: i32| -> Result<SeccompCmpOp> { Ok(MaskedEq(u64::try_from(flag)?)) };
    let word = |value: i32| u64::try_from(value);
    let own = u64::from(std::process::id());
    let mut rows = vec![
        // Memory of nobody else.
        (libc::SYS_mmap, vec![(3, bits(libc::MAP_ANONYMOUS)?, word(libc::MAP_ANONYMOUS)?)]),
        // Threads, not processes. `clone3` has its flags in memory: without it, the C library uses this.
        (libc::SYS_clone, vec![(0, bits(libc::CLONE_THREAD)?, word(libc::CLONE_THREAD)?)]),
        // Limits are read, not set.
        (libc::SYS_prlimit64, vec![(0, Eq, 0), (2, Eq, 0)]),
        // Who is told to end does so.
        (libc::SYS_kill, vec![(0, Eq, own)]),
        (libc::SYS_tgkill, vec![(0, Eq, own)]),
        // Is it a terminal, and how wide? Others put words into its input.
        (libc::SYS_ioctl, vec![(1, Eq, libc::TCGETS)]),
        (libc::SYS_ioctl, vec![(1, Eq, libc::TIOCGWINSZ)]),
    ];
    for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO].into_iter().chain(socket) {
        let calls = [libc::SYS_write, libc::SYS_writev, libc::SYS_sendto, libc::SYS_shutdown, libc::SYS_recvfrom];
        for call in calls {
            rows.push((call, vec![(0, Eq, word(fd)?)]));
        }
    }
    Ok(rows)
}

/// From now on, every other call fails as one that the kernel does not have, in every thread.
///
/// # Errors
/// The kernel has filters, and refuses this one.
pub fn apply(socket: Option<RawFd>) -> Built {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = ANY.into_iter().map(|call| (call, Vec::new())).collect();
    for (call, arguments) in some(socket)? {
        let condition = |(i, is, value)| SeccompCondition::new(i, SeccompCmpArgLen::Dword, is, value);
        let conditions = arguments.into_iter().map(condition).collect::<std::result::Result<_, _>>()?;
        rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
    }
    let absent = SeccompAction::Errno(u32::try_from(libc::ENOSYS)?);
    let Ok(machine) = std::env::consts::ARCH.try_into() else { return Ok(false) };
    let program: BpfProgram = SeccompFilter::new(rules, absent, SeccompAction::Allow, machine)?.try_into()?;
    match apply_filter_all_threads(&program) {
        Ok(()) => Ok(true),
        // As emulators of a kernel say it.
        Err(Error::Seccomp(e)) if [Some(libc::ENOSYS), Some(libc::EINVAL)].contains(&e.raw_os_error()) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
