//! Closures in the place of functions of this program, by the names of the crate retour.
#![allow(unsafe_code, reason = "functions are replaced, and called that are unsafe")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tramptool_live::retour::{Error, Result, StaticDetour, static_detour};

/// A function of this program for each test, long enough for a branch.
macro_rules! functions {
    ($([$($qualifier:tt)*] $name:ident)+) => {$(
        #[inline(never)]
        $($qualifier)* fn $name(a: i64, b: i64) -> i64 {
            // The compiler would merge functions that are the same.
            black_box(stringify!($name));
            black_box(black_box(a) * 1000) + black_box(b)
        }
    )+};
}

functions! {
    [] used
    [] busy
    [] erroneous
    [extern "C"] of_c
    [extern "system"] of_system
    [unsafe extern "C"] not_safe
}

#[test]
fn a_closure_sees_arguments_and_calls_the_function() {
    static_detour! {
        static Used: fn(i64, i64) -> i64;
    }
    let sum = Arc::new(AtomicI64::new(0));
    let seen = sum.clone();
    let closure = move |a, b| {
        seen.fetch_add(a + b, Ordering::Relaxed);
        Used.call(b, a) + 1
    };
    // SAFETY: callers may get any number.
    let detour: &StaticDetour<_> = unsafe { Used.initialize(used, closure) }.unwrap();
    assert_eq!((used(2, 3), Used.call(2, 3), detour.is_enabled()), (2003, 2003, false), "it is disabled at first");
    // SAFETY: there is no danger.
    unsafe { detour.enable() }.unwrap();
    assert_eq!((used(2, 3), Used.call(2, 3), detour.is_enabled()), (3003, 2003, true));
    assert_eq!(sum.load(Ordering::Relaxed), 5, "the function without its detour calls no closure");
    Used.set_detour(|a, b| a - b);
    assert_eq!((used(2, 3), Used.call(2, 3)), (-1, 2003));
    // SAFETY: the static's type.
    let original: fn(i64, i64) -> i64 = unsafe { std::mem::transmute(Used.trampoline().unwrap()) };
    assert_eq!(original(2, 3), 2003);
    // SAFETY: there is no danger.
    unsafe { Used.disable() }.unwrap();
    assert_eq!((used(2, 3), Used.call(2, 3), Used.is_enabled()), (2003, 2003, false));
    Used.set_detour(|a, b| a * b);
    assert_eq!(used(2, 3), 2003);
    // SAFETY: there is no danger.
    unsafe { Used.enable() }.unwrap();
    assert_eq!((used(2, 3), sum.load(Ordering::Relaxed)), (6, 5));
}

/// Statics of all forms that the macro takes.
mod forms {
    use tramptool_live::retour::static_detour;

    static_detour! {
        /// A function of C.
        pub static OF_C: extern "C" fn(i64, i64) -> i64;
        pub(crate) static OfSystem: extern "system" fn(i64, i64) -> i64;
        #[allow(dead_code, reason = "it is compiled")]
        static Nothing: fn();
        #[allow(dead_code, reason = "it is compiled")]
        static Many: fn(u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, f64) -> f64;
        pub(in crate::forms) static Hidden: unsafe extern "C" fn(a: i64, b: i64) -> i64;
    }

    pub fn hide() {
        // SAFETY: the function is as safe as any, and its callers may get any number.
        unsafe {
            let detour = Hidden.initialize(super::not_safe, |a, b| Hidden.call(a, b) + 7).unwrap();
            assert_eq!(super::not_safe(4, 5), 4005);
            detour.enable().unwrap();
            assert_eq!((super::not_safe(4, 5), Hidden.call(4, 5)), (4012, 4005));
        }
    }
}

#[test]
fn each_static_has_its_own_closure() {
    // SAFETY: callers may get any number.
    unsafe {
        forms::OF_C.initialize(of_c, |a, b| a + b).unwrap().enable().unwrap();
        forms::OfSystem.initialize(of_system, |a, b| a - b).unwrap().enable().unwrap();
    }
    forms::hide();
    assert_eq!((of_c(4, 5), of_system(4, 5)), (9, -1));
}

/// A closure that is replaced stays while a thread is in it.
#[test]
fn closures_change_while_threads_call_them() {
    const THREADS: usize = 3;
    const CLOSURES: i64 = 10_000;
    static_detour! {
        static Busy: fn(i64, i64) -> i64;
    }
    // SAFETY: callers may get any number.
    unsafe { Busy.initialize(busy, |a, b| a + b).unwrap().enable().unwrap() };
    let zero = Arc::new(0);
    let (end, calls) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut last = 0;
                while !end.load(Ordering::Relaxed) {
                    let got = busy(0, 1) - 1;
                    assert!(got >= last, "{got} after {last}");
                    last = got;
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for n in 1..=CLOSURES {
            let more = zero.clone();
            Busy.set_detour(move |a, b| a + b + n + *more);
            assert_eq!(busy(0, 1), n + 1);
        }
        while calls.load(Ordering::Relaxed) < CLOSURES {
            std::thread::yield_now();
        }
        end.store(true, Ordering::Relaxed);
    });
    assert_eq!(Arc::strong_count(&zero) as i64, CLOSURES + 1, "all are there, and have theirs");
    // SAFETY: there is no danger.
    unsafe { Busy.disable() }.unwrap();
    assert_eq!(busy(2, 3), 2003);
}

#[test]
fn statics_are_initialized_once_and_first() {
    static_detour! {
        static Erroneous: fn(i64, i64) -> i64;
    }
    let not_initialized = |result: Result<()>| assert_eq!(result, Err(Error::NotInitialized));
    Erroneous.set_detour(|_, _| 1);
    // SAFETY: there is no danger.
    unsafe {
        not_initialized(Erroneous.enable());
        not_initialized(Erroneous.disable());
    }
    not_initialized(Erroneous.trampoline().map(drop));
    assert!(!Erroneous.is_enabled());
    assert!(std::panic::catch_unwind(|| Erroneous.call(2, 3)).is_err());
    // SAFETY: callers may get any number.
    let again = || unsafe { Erroneous.initialize(erroneous, |_, _| 5) }.map(drop);
    again().unwrap();
    assert_eq!(again(), Err(Error::AlreadyInitialized));
    // SAFETY: there is no danger.
    unsafe { Erroneous.enable() }.unwrap();
    assert_eq!((erroneous(2, 3), Erroneous.call(2, 3)), (5, 2003));
}
