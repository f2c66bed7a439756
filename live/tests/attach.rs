//! What handlers and replacements do, and what is said where they cannot be.
#![allow(unsafe_code, reason = "functions of C are called, and attached to")]

mod common;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Compiled, Functions, live};
use tramptool_live::{Class, Error, Live, Policy};

type Add = extern "C" fn(i64, i64) -> i64;

fn bytes(at: *const ()) -> Vec<u8> {
    // SAFETY: a function of this process.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), 32).to_vec() }
}

#[test]
fn handlers_are_called_around_and_replacements_instead() {
    for compiled in [Compiled::WithRoom, Compiled::AsUsual] {
        around_and_instead(compiled);
    }
}

fn around_and_instead(compiled: Compiled) {
    let functions = Functions::load(common::C, compiled);
    let add: Add = functions.get("add");
    let before = bytes(functions.address("add"));
    let live = live();
    let f = live.function_at(functions.address("add")).unwrap();
    assert_eq!((f.name(), f.range().start), ("add", functions.address("add") as u64));
    assert!(matches!(f.class(), Class::Word | Class::Short) && f.object().ends_with("functions.so"));
    let seen = Arc::new(AtomicU64::new(0));
    let (at_entry, at_exit) = (seen.clone(), seen.clone());
    // SAFETY: the handlers give it integers.
    let hook = unsafe {
        live.around(
            &f,
            move |call| {
                at_entry.fetch_add(call.argument(0), Ordering::Relaxed);
                call.set_argument(1, call.argument(1) + 100);
            },
            move |call| {
                at_exit.fetch_add(1000 * call.result(), Ordering::Relaxed);
                call.set_result(call.result() + 1);
            },
        )
    }
    .unwrap();
    assert_eq!(add(2, 3), 5, "it is disabled at first");
    let notes = live.batch(|batch| batch.enable(&hook)).unwrap();
    assert!(notes.trapped.is_empty() || std::env::consts::ARCH != "x86_64", "{notes:?}");
    assert!(hook.is_enabled());
    assert_eq!((add(2, 3), seen.load(Ordering::Relaxed)), (106, 105_002));
    hook.disable().unwrap();
    assert_eq!((add(2, 3), seen.load(Ordering::Relaxed)), (5, 105_002));
    hook.enable().unwrap();
    assert_eq!(add(2, 3), 106);
    drop(hook);
    assert_eq!((add(2, 3), bytes(functions.address("add"))), (5, before.clone()), "the code is as it was");

    extern "C" fn times(a: i64, b: i64) -> i64 {
        a * b
    }
    // SAFETY: the same prototype.
    let hook = unsafe { live.replace(&f, times as *const ()) }.unwrap();
    hook.enable().unwrap();
    // SAFETY: the function without its hook.
    let original: Add = unsafe { std::mem::transmute(hook.original()) };
    assert_eq!((add(5, 7), original(5, 7)), (35, 12));
    drop(hook);
    assert_eq!((add(5, 7), bytes(functions.address("add"))), (12, before));
}

/// The signal that ends a child of this process in which this is called; 0 if it returns.
fn ends_by(call: extern "C" fn()) -> i32 {
    let mut status = 0;
    // SAFETY: the child calls what returns or ends it.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            call();
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
    libc::WTERMSIG(status)
}

#[cfg(target_arch = "aarch64")]
fn looks_for_landing_pads() -> bool {
    std::arch::is_aarch64_feature_detected!("bti")
}

#[cfg(not(target_arch = "aarch64"))]
fn looks_for_landing_pads() -> bool {
    false
}

/// Functions are hooked behind their landing pads, BTI or PACIASP, and the processor still looks for them.
#[test]
fn landing_pads_stay_and_are_looked_for() {
    for compiled in [Compiled::WithRoom, Compiled::AsUsual] {
        let functions = Functions::load(common::C, compiled);
        let no_pad = functions.get("no_pad");
        let wanted = if looks_for_landing_pads() { libc::SIGILL } else { 0 };
        assert_eq!(ends_by(no_pad), wanted);
        let (add, calls_add): (Add, Add) = (functions.get("add"), functions.get("calls_add"));
        let (live, calls) = (live(), Arc::new(AtomicU64::new(0)));
        let hooks = ["add", "calls_add"].map(|name| {
            let f = live.function_at(functions.address(name)).unwrap();
            assert!(matches!(f.class(), Class::Word | Class::Short), "{name}");
            let counter = calls.clone();
            // SAFETY: nothing is changed.
            let hook = unsafe { live.around(&f, move |_| _ = counter.fetch_add(1, Ordering::Relaxed), |_| ()) };
            hook.unwrap()
        });
        for n in 1..4 {
            hooks.iter().for_each(|hook| drop(hook.enable().unwrap()));
            assert_eq!((add(1, 2), calls_add(3, 4), ends_by(no_pad)), (3, 70, wanted), "{compiled:?}");
            assert_eq!(calls.load(Ordering::Relaxed), 3 * n, "{compiled:?}");
            hooks.iter().for_each(|hook| drop(hook.disable().unwrap()));
            assert_eq!((calls_add(1, 2), ends_by(no_pad)), (30, wanted), "{compiled:?}");
        }
        extern "C" fn times(a: i64, b: i64) -> i64 {
            a * b
        }
        let f = live.function_at(functions.address("calls_add")).unwrap();
        // SAFETY: the same prototype.
        let hook = unsafe { live.replace(&f, times as *const ()) }.unwrap();
        hook.enable().unwrap();
        // SAFETY: the function without its hook.
        let original: Add = unsafe { std::mem::transmute(hook.original()) };
        assert_eq!((calls_add(3, 5), original(3, 5), ends_by(no_pad)), (15, 80, wanted), "{compiled:?}");
    }
}

#[test]
fn arguments_on_the_stack_and_numbers_are_kept() {
    for compiled in [Compiled::WithRoom, Compiled::AsUsual] {
        all_is_kept(compiled);
    }
}

fn all_is_kept(compiled: Compiled) {
    type Many = extern "C" fn(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64) -> i64;
    let functions = Functions::load(common::C, compiled);
    let many: Many = functions.get("many");
    let halves: extern "C" fn(f64, i64) -> f64 = functions.get("halves");
    let call = || (many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), halves(1000.0, 5));
    let before = call();
    let live = live();
    let calls = Arc::new(AtomicU64::new(0));
    let hooks = ["many", "halves"].map(|name| {
        let f = live.function_at(functions.address(name)).unwrap();
        let (entries, exits) = (calls.clone(), calls.clone());
        let count = |calls: &AtomicU64, n| calls.fetch_add(n, Ordering::Relaxed);
        // SAFETY: nothing is changed.
        unsafe { live.around(&f, move |_| _ = count(&entries, 1), move |_| _ = count(&exits, 1000)) }.unwrap()
    });
    live.batch(|batch| hooks.iter().for_each(|hook| batch.enable(hook))).unwrap();
    assert_eq!(call(), before);
    assert_eq!(calls.load(Ordering::Relaxed), 7007, "halves calls itself five times");
}

/// Those that were left have no return, and those around them have theirs.
#[test]
fn calls_that_a_jump_leaves_are_forgotten() {
    let functions = Functions::load(common::C, Compiled::WithRoom);
    let jumps: extern "C" fn(i64) -> i64 = functions.get("jumps");
    let add: Add = functions.get("add");
    let live = live();
    let counts = [const { AtomicU64::new(0) }; 2];
    let counts: &'static [AtomicU64; 2] = Box::leak(Box::new(counts));
    let hooks = ["deep", "add"].map(|name| {
        let f = live.function_at(functions.address(name)).unwrap();
        let count = |n: usize| counts[n].fetch_add(1, Ordering::Relaxed);
        // SAFETY: nothing is changed.
        unsafe { live.around(&f, move |_| _ = count(0), move |_| _ = count(1)) }.unwrap()
    });
    live.batch(|batch| hooks.iter().for_each(|hook| batch.enable(hook))).unwrap();
    for n in 0..100 {
        assert_eq!((jumps(50), add(n, 1)), (50, n + 1));
    }
    assert_eq!(counts.each_ref().map(|c| c.load(Ordering::Relaxed)), [5200, 100]);
    // As many as that no thread has room for them all.
    for _ in 0..300_000 {
        assert_eq!(jumps(1), 1);
    }
}

#[test]
fn errors_say_what_to_do() {
    let functions = Functions::load(common::C, Compiled::WithRoom);
    let live = live();
    let error = live.function("functions.so:halvs").unwrap_err();
    assert!(matches!(&error, Error::NotFound { near, .. } if near.contains(&"halves".to_owned())), "{error}");
    let error = live.function("functions.so:twin").unwrap_err();
    assert!(matches!(&error, Error::Ambiguous { at, .. } if at.len() == 2), "{error}");
    let error = live.function("functions.so:tiny").unwrap_err();
    assert!(matches!(&error, Error::Refused { class: Class::TrapOnly, .. }), "{error}");
    assert!(error.to_string().contains("valid: Policy::traps"), "{error}");
    let at = functions.address("many");
    let f = live.function_at(at).unwrap();
    let stack = f.clone().with_prototype("long many(long, long, long, long, long, long, long, long, long, long)");
    // SAFETY: nothing is attached.
    let refused = unsafe { live.around(&stack, |_| (), |_| ()) };
    assert!(matches!(refused, Err(Error::Generator(_))));
    // Somebody else writes there.
    let page = (at as usize & !0xfff) as *mut libc::c_void;
    // SAFETY: the page is this library's, and nobody executes the function.
    unsafe {
        assert_eq!(libc::mprotect(page, 0x2000, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC), 0);
        (0..16).for_each(|n| at.cast_mut().cast::<u8>().add(n).write(0xc3));
    }
    // SAFETY: as above.
    let foreign = unsafe { live.around(&f, |_| (), |_| ()) };
    assert!(matches!(foreign, Err(Error::Foreign { .. })), "{:?}", foreign.err());
}

/// An object that is unloaded takes its hooks with it, and is like any other one when it comes again.
#[test]
fn objects_are_unloaded_and_loaded_again() {
    for compiled in [Compiled::WithRoom, Compiled::AsUsual] {
        let (mut functions, other) = (Functions::load(common::C, compiled), Functions::load(common::C, compiled));
        let (live, calls, mut originals) = (live(), Arc::new(AtomicU64::new(0)), HashMap::new());
        let attached = |functions: &Functions| {
            let f = live.function_at(functions.address("add")).unwrap();
            let calls = calls.clone();
            // SAFETY: nothing is changed.
            let hook = unsafe { live.around(&f, move |_| _ = calls.fetch_add(1, Ordering::Relaxed), |_| ()) };
            hook.unwrap()
        };
        for n in 1..5 {
            let (hook, beside) = (attached(&functions), attached(&other));
            hook.enable().unwrap();
            let original = originals.entry(functions.address("add")).or_insert(hook.original());
            assert_eq!(*original, hook.original(), "in the same place, what was made for it serves again");
            let [first, second]: [Add; 2] = [functions.get("add"), other.get("add")];
            assert_eq!((first(1, 2), calls.load(Ordering::Relaxed)), (3, 2 * n - 1), "{compiled:?}");
            functions = functions.load_again();
            // Nothing of it is in others' way.
            live.batch(|batch| (batch.disable(&hook), batch.enable(&beside)).1).unwrap();
            assert_eq!((second(1, 2), calls.load(Ordering::Relaxed)), (3, 2 * n));
            drop(hook);
        }
        functions.unload();
    }
}

/// A child process does what the test says.
const CHILD: &str = "TRAMPTOOL_LIVE_ATTACH";

/// What cannot be undone is done in a process of its own.
#[test]
fn what_the_system_refuses_is_said() {
    if std::env::consts::ARCH != "x86_64" {
        // An emulator has memory of its own, and knows nothing of these rights.
        return;
    }
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "the_child", "--nocapture", "--include-ignored"];
    let output = std::process::Command::new(program).args(args).env(CHILD, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Takes all memory within reach of this address. Gives it back when dropped.
struct Taken(Vec<(*mut libc::c_void, usize)>);

impl Taken {
    fn around(at: u64) -> Taken {
        let mut taken = Taken(Vec::new());
        let page = at & !0xfff;
        // Reading the list needs memory too.
        while taken.take(page - (1 << 31)..page + (1 << 31)) {}
        taken
    }

    /// Take what nobody has. Was there any?
    fn take(&mut self, within: Range<u64>) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let used = maps.lines().map(|line| line.split([' ', '-']).take(2).map(number).collect::<Vec<_>>());
        let used: Vec<Vec<u64>> = used.collect();
        let ends = std::iter::once(0).chain(used.iter().map(|range| range[1]));
        let begins = used.iter().map(|range| range[0]).chain(std::iter::once(u64::MAX));
        let before = self.0.len();
        for (from, to) in ends.zip(begins).map(|(from, to)| (from.max(within.start), to.min(within.end))) {
            if from < to {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
                // SAFETY: it replaces nothing.
                let got = unsafe { libc::mmap(from as *mut _, (to - from) as usize, libc::PROT_NONE, flags, -1, 0) };
                self.0.extend((got != libc::MAP_FAILED).then_some((got, (to - from) as usize)));
            }
        }
        self.0.len() > before
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for (at, bytes) in &self.0 {
            // SAFETY: it is ours.
            unsafe { libc::munmap(*at, *bytes) };
        }
    }
}

#[test]
#[ignore = "the other one runs it"]
fn the_child() {
    if std::env::var(CHILD).is_err() {
        return;
    }
    let mut policy = Policy::default();
    policy.signal = Some(libc::SIGKILL);
    let missing = Live::new(policy).map(drop);
    assert!(matches!(&missing, Err(Error::Missing { .. })), "{missing:?}");
    assert!(missing.unwrap_err().to_string().contains("signal 9: Invalid argument (os error 22); valid: "));
    let functions = Functions::load(common::C, Compiled::AsUsual);
    let files = |most| {
        // SAFETY: both structures are there.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
            limit.rlim_cur = most;
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        }
    };
    // Without /proc/self/mem.
    files(0);
    let live = live();
    files(1024);
    let f = live.function_at(functions.address("add")).unwrap();
    let taken = Taken::around(f.range().start);
    // SAFETY: nothing is changed.
    let attach = || unsafe { live.around(&f, |_| (), |_| ()) };
    let far = attach().map(drop);
    assert!(matches!(&far, Err(Error::OutOfReach { function }) if function == "add"), "{far:?}");
    drop(taken);
    let hook = attach().unwrap();
    hook.enable().unwrap();
    hook.disable().unwrap();
    const PR_SET_MDWE: i32 = 65;
    // SAFETY: it takes away rights of this process.
    assert_eq!(unsafe { libc::prctl(PR_SET_MDWE, 1, 0, 0, 0) }, 0, "Linux 6.3 or later");
    let refused = hook.enable();
    assert!(matches!(&refused, Err(Error::Protected { tried }) if tried.len() == 2), "{refused:?}");
    let add: Add = functions.get("add");
    assert_eq!((hook.is_enabled(), add(1, 2)), (false, 3), "nothing has changed");
}

#[test]
fn the_names_of_retour_do_what_they_did() {
    use tramptool_live::retour::{GenericDetour, RawDetour};
    extern "C" fn times(a: i64, b: i64) -> i64 {
        a * b
    }
    let functions = Functions::load(common::C, Compiled::AsUsual);
    let add: Add = functions.get("add");
    // SAFETY: both have this type.
    let detour = unsafe { GenericDetour::<Add>::new(add, times) }.unwrap();
    // SAFETY: there is no danger.
    unsafe { detour.enable() }.unwrap();
    assert_eq!((add(3, 4), detour.call(3, 4), detour.is_enabled()), (12, 7, true));
    // SAFETY: there is no danger.
    unsafe { detour.disable() }.unwrap();
    assert_eq!((add(3, 4), detour.is_enabled()), (7, false));
    drop(detour);
    // SAFETY: as above.
    let raw = unsafe { RawDetour::new(add as *const (), times as *const ()) }.unwrap();
    // SAFETY: the function's type.
    let trampoline: Add = unsafe { std::mem::transmute(raw.trampoline()) };
    // SAFETY: there is no danger.
    unsafe { raw.enable() }.unwrap();
    assert_eq!((add(3, 4), trampoline(3, 4)), (12, 7));
    drop(raw);
    assert_eq!((add(3, 4), trampoline(3, 4)), (7, 7), "it is there for ever");
}
