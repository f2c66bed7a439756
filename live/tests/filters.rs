//! A process that has forbidden itself system calls: what still works does, and of the rest an error says what to do.
#![allow(unsafe_code, reason = "functions of C are called, and attached to")]

mod common;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Compiled, Functions};
use tramptool_live::{Error, Function, Live, Notes, Policy, Result};

type Same = extern "C" fn(i64) -> i64;

/// A child process has the filter that this variable names.
const CHILD: &str = "TRAMPTOOL_LIVE_FILTER";

/// Let these system calls of this thread fail with EPERM from now on.
fn forbid(calls: &[libc::c_long]) {
    let step = |code: u32, yes, no, k| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        filter.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    filter.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: it takes away rights of this process.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// A function is hooked and left again while another thread calls it. What the first of both batches notes.
fn hook(live: Live, f: &Function, same: Same, forbidden: &[libc::c_long]) -> Result<Notes> {
    let (told, stop, calls) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false), AtomicU64::new(0));
    let at_entry = told.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                assert_eq!(same(2), 2);
                calls.fetch_add(1, Ordering::SeqCst);
            }
        });
        while calls.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // Threads that begin need some of them.
        forbid(forbidden);
        let count = move |_: &mut tramptool_live::Entry| _ = at_entry.fetch_add(1, Ordering::SeqCst);
        // SAFETY: nothing is changed.
        let hook = unsafe { live.around(f, count, |_| ()) }.inspect_err(|_| stop.store(true, Ordering::SeqCst))?;
        let mut notes = Ok(Notes::default());
        for _ in 0..20 {
            notes = hook.enable();
            let before = told.load(Ordering::SeqCst);
            assert_eq!(same(1), 1);
            assert_eq!(told.load(Ordering::SeqCst) > before, notes.is_ok());
            if notes.is_err() {
                break;
            }
            hook.disable().unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        notes
    })
}

/// What is forbidden, and whether functions are hooked by more than a breakpoint then.
const LATER: [(&str, &[libc::c_long], bool); 7] = [
    ("nothing", &[], true),
    ("membarrier", &[libc::SYS_membarrier], true),
    ("mprotect", &[libc::SYS_mprotect], true),
    ("memfd", &[libc::SYS_memfd_create], true),
    ("signals", &[libc::SYS_rt_tgsigqueueinfo], false),
    ("open", &[libc::SYS_openat], false),
    ("userfaultfd", &[libc::SYS_userfaultfd, libc::SYS_ptrace, libc::SYS_bpf], true),
];

#[test]
#[ignore = "the others run it"]
fn the_child() {
    let case = std::env::var(CHILD).unwrap();
    let functions = Functions::load(common::C, Compiled::AsUsual);
    let same: Same = functions.get("same");
    let mut policy = Policy::default();
    policy.patience = if case == "signals" { Duration::from_millis(50) } else { Duration::from_secs(60) };
    if case == "membarrier first" {
        forbid(&[libc::SYS_membarrier]);
        let missing = Live::new(policy).map(drop).unwrap_err();
        assert!(matches!(missing, Error::Missing { .. }), "{missing}");
        return assert!(missing.to_string().contains("valid: Linux 4.16 or later, and no filter"), "{missing}");
    }
    let live = Live::new(policy).unwrap();
    let f = live.function_at(functions.address("same")).unwrap();
    let (_, calls, answered) = *LATER.iter().find(|(name, ..)| *name == case).unwrap();
    if case == "open" {
        // Nothing new can be attached: the list of what is mapped cannot be read any more.
        // SAFETY: nothing is changed.
        drop(unsafe { live.around(&f, |_| (), |_| ()) }.unwrap());
    }
    let notes = hook(live, &f, same, calls).unwrap();
    assert_eq!(notes.trapped.is_empty(), answered, "{notes:?}");
}

#[test]
fn what_is_forbidden_is_said_or_done_otherwise() {
    if std::env::consts::ARCH != "x86_64" {
        // An emulator makes system calls of its own.
        return;
    }
    for case in LATER.map(|(name, ..)| name).into_iter().chain(["membarrier first"]) {
        let program = std::env::current_exe().unwrap();
        let args = ["--exact", "the_child", "--nocapture", "--include-ignored"];
        let output = Command::new(program).args(args).env(CHILD, case).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case}: {}\n{complaint}", output.status);
    }
}
