//! Exceptions, ends of threads, panics and traces pass functions that are hooked as they pass others.
#![allow(unsafe_code, reason = "functions of C++ are called, and attached to")]

mod common;

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Compiled, Functions, live};
use tramptool_live::{Function, Hook, Live};

/// Entries and returns that handlers were told of.
#[derive(Default)]
struct Counts {
    entries: AtomicU64,
    exits: AtomicU64,
}

impl Counts {
    fn get(&self) -> (u64, u64) {
        (self.entries.load(Ordering::Relaxed), self.exits.load(Ordering::Relaxed))
    }

    /// Attach to this function, and enable.
    fn hook(self: &Arc<Counts>, live: Live, function: &Function) -> Hook {
        let (at_entry, at_exit) = (self.clone(), self.clone());
        // SAFETY: nothing is changed, and the prototype is right.
        let hook = unsafe {
            live.around(
                function,
                move |_| _ = at_entry.entries.fetch_add(1, Ordering::Relaxed),
                move |_| _ = at_exit.exits.fetch_add(1, Ordering::Relaxed),
            )
        };
        let hook = hook.unwrap();
        hook.enable().unwrap();
        hook
    }
}

/// Each way to be hooked: how functions are compiled, and whether their prototypes are given.
const WAYS: [(Compiled, bool); 4] =
    [(Compiled::WithRoom, false), (Compiled::WithRoom, true), (Compiled::AsUsual, false), (Compiled::AsUsual, true)];

/// The library's functions that have these prototypes, hooked.
fn hooked(functions: &Functions, prototypes: &[(&str, &str)], given: bool) -> (Arc<Counts>, Vec<Hook>) {
    let (live, counts) = (live(), Arc::new(Counts::default()));
    let hook = |(name, prototype): &(&str, &str)| {
        let f = live.function_at(functions.address(name)).unwrap();
        counts.hook(live, &if given { f.with_prototype(prototype) } else { f })
    };
    let hooks = prototypes.iter().map(hook).collect();
    (counts, hooks)
}

fn counter(functions: &Functions, name: &str) -> u64 {
    // SAFETY: the library's counter.
    unsafe { functions.address(name).cast::<u64>().read_volatile() }
}

#[test]
fn exceptions_pass() {
    for (compiled, given) in WAYS {
        let functions = Functions::load(common::THROW, compiled);
        let catches: extern "C" fn(i64, i64) -> i64 = functions.get("catches");
        let prototypes = [
            ("throws", "long throws(long n)"),
            ("jumps_to", "long jumps_to(long n)"),
            ("deep", "long deep(long depth, long n)"),
            ("catches", "long catches(long depth, long n)"),
        ];
        let (counts, hooks) = hooked(&functions, &prototypes, given);
        // More than what is looked through while a thread has few open calls.
        for n in (1..400).step_by(2) {
            assert_eq!((catches(5, n), catches(5, n + 1)), (-(n + 2), n + 3 + 6), "{compiled:?} {given}");
        }
        let (calls, thrown) = (400 * (6 + 3), 200 * (6 + 2));
        assert_eq!(counts.get(), (calls, calls - thrown), "{compiled:?} {given}");
        assert_eq!(counter(&functions, "bodies"), 400 * (6 + 2));
        assert_eq!(counter(&functions, "cleanups"), 400 * 6);
        drop(hooks);
    }
}

#[test]
fn threads_end_in_them() {
    for (compiled, given) in WAYS {
        let functions = Functions::load(common::THROW, compiled);
        let ends: extern "C" fn(i64) -> i32 = functions.get("thread_that_ends");
        let (counts, _hooks) = hooked(&functions, &[("ends", "void ends(long how)")], given);
        assert_eq!((ends(0), ends(1)), (0, 0));
        assert_eq!(counts.get(), (2, 0), "{compiled:?} {given}");
        assert_eq!(counter(&functions, "cleanups"), 4, "of the function and of its caller");
    }
}

/// The addresses behind calls in a trace.
type Traces = extern "C" fn(*mut u64, i32) -> i32;

fn trace(traces: Traces) -> Vec<u64> {
    let mut found = vec![0; 100];
    let n = traces(found.as_mut_ptr(), 100);
    found.truncate(n as usize);
    found
}

#[test]
fn traces_go_on() {
    for (compiled, given) in WAYS {
        let functions = Functions::load(common::THROW, compiled);
        let traces: Traces = functions.get("calls_traces");
        let live = live();
        let around = |name: &str| live.function_at(functions.address(name)).unwrap().range();
        let before = trace(traces);
        let prototypes = [("traces", "int traces(void **to, int most)")];
        let (counts, hooks) = hooked(&functions, &prototypes, given);
        let during = trace(traces);
        drop(hooks);
        assert_eq!(counts.get(), (1, 1));
        assert!(around("traces").contains(&during[0]) && around("calls_traces").contains(&during[2]), "{during:x?}");
        // The trampoline is one more, and the rest is the same but for what called this time.
        assert_eq!(during.len(), before.len() + 1, "{during:x?} {before:x?}");
        assert_eq!(during[2..3], before[1..2]);
    }
}

/// Of handlers, what they see of the function's callers.
#[test]
fn traces_from_handlers_have_the_caller() {
    let functions = Functions::load(common::THROW, Compiled::AsUsual);
    let catches: extern "C" fn(i64, i64) -> i64 = functions.get("catches");
    let live = live();
    let caller = live.function_at(functions.address("catches")).unwrap().range();
    let f = live.function_at(functions.address("deep")).unwrap();
    for f in [f.clone(), f.with_prototype("long deep(long depth, long n)")] {
        let seen: Arc<[AtomicU64; 2]> = Arc::default();
        let (range, at_entry, at_exit) = (caller.clone(), seen.clone(), seen.clone());
        let look = move |seen: &AtomicU64| {
            let mut found = [std::ptr::null_mut(); 100];
            // SAFETY: there is room for so many.
            let n = unsafe { libc::backtrace(found.as_mut_ptr(), 100) };
            let has = found[..n as usize].iter().any(|at| range.contains(&(*at as u64)));
            seen.fetch_add(has.into(), Ordering::Relaxed);
        };
        let look_again = look.clone();
        // SAFETY: nothing is changed, and the prototype is right.
        let hook = unsafe { live.around(&f, move |_| look(&at_entry[0]), move |_| look_again(&at_exit[1])) }.unwrap();
        hook.enable().unwrap();
        assert_eq!(catches(0, 2), 5);
        assert_eq!(seen.each_ref().map(|n| n.load(Ordering::Relaxed)), [1, 1]);
    }
}

#[inline(never)]
fn panics(n: u64) -> u64 {
    assert!(std::hint::black_box(n).is_multiple_of(2), "odd");
    n / 2
}

#[test]
fn panics_pass() {
    let (live, counts) = (live(), Arc::new(Counts::default()));
    let f = live.function_at(panics as *const ()).unwrap();
    let _hook = counts.hook(live, &f);
    assert_eq!(panics(4), 2);
    assert!(panic::catch_unwind(|| panics(3)).is_err());
    assert_eq!((panics(6), counts.get()), (3, (3, 2)));
}

/// The same with LLVM's unwinder in place of libgcc's. It ends no threads, as glibc asks libgcc's for that.
#[test]
#[cfg(target_arch = "x86_64")]
fn they_pass_by_llvms_unwinder() {
    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libunwind.so.1";
    assert!(std::path::Path::new(LIBRARY).exists(), "no {LIBRARY}: apt-get install libunwind-14");
    for test in ["exceptions_pass", "panics_pass", "traces_go_on"] {
        let mut this = std::process::Command::new(std::env::current_exe().unwrap());
        let out = this.args(["--exact", test]).env("LD_PRELOAD", LIBRARY).output().unwrap();
        let told = String::from_utf8_lossy(&out.stdout);
        assert!(
            out.status.success() && told.contains("1 passed"),
            "{test}: {told}{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}
