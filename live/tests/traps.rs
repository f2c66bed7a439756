//! Functions that are too short for a branch have a breakpoint.
#![allow(unsafe_code, reason = "functions of C are called, and attached to")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Compiled, Functions};
use tramptool_live::{Class, Error, Live, Policy};

#[test]
fn breakpoints_call_handlers() {
    let functions = Functions::load(common::C, Compiled::AsUsual);
    let tiny: extern "C" fn(u64) -> u64 = functions.get("tiny");
    let mut policy = Policy::default();
    policy.traps = true;
    let live = Live::new(policy).unwrap();
    let f = live.function("functions.so:tiny").unwrap();
    assert_eq!((f.class(), live.function_at(functions.address("tiny"))), (Class::TrapOnly, Ok(f.clone())));
    let loops = live.function("functions.so:turns").unwrap_err();
    assert!(matches!(&loops, Error::Refused { class: Class::Refused, .. }), "{loops}");
    let seen = Arc::new(AtomicU64::new(0));
    let sum = seen.clone();
    // SAFETY: the handlers give it integers.
    let hook = unsafe {
        live.around(
            &f,
            move |call| _ = sum.fetch_add(call.argument(0), Ordering::Relaxed),
            |call| call.set_result(call.result() + 1),
        )
    };
    let hook = hook.unwrap();
    for n in 1..5 {
        assert_eq!(tiny(n), n);
        assert_eq!(hook.enable().unwrap().trapped, Vec::<String>::new());
        assert_eq!((tiny(n), seen.swap(0, Ordering::Relaxed)), (n + 1, n));
        hook.disable().unwrap();
    }
    drop(hook);
    extern "C" fn other(n: u64) -> u64 {
        n + 100
    }
    // SAFETY: the same prototype.
    let hook = unsafe { live.replace(&f, other as *const ()) }.unwrap();
    hook.enable().unwrap();
    // SAFETY: the function without its hook.
    let original: extern "C" fn(u64) -> u64 = unsafe { std::mem::transmute(hook.original()) };
    assert_eq!((tiny(1), original(2)), (101, 2));
    drop(hook);
    assert_eq!(tiny(3), 3);
}
