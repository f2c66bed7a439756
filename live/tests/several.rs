//! Several users of a function: each sees each call, in a stated order, and leaves when it wants.
#![allow(unsafe_code, reason = "functions of C are called, and attached to")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use common::{Compiled, Functions, live};
use tramptool_live::{Function, Hook, Live};

type Add = extern "C" fn(i64, i64) -> i64;

fn bytes(at: *const ()) -> Vec<u8> {
    // SAFETY: a function of this process.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), 32).to_vec() }
}

#[test]
fn handlers_of_several_hooks_lie_in_each_other() {
    let functions = Functions::load(common::C, Compiled::WithRoom);
    let add: Add = functions.get("add");
    let (live, seen) = (live(), Arc::new(Mutex::new(String::new())));
    let f = live.function_at(functions.address("add")).unwrap().with_prototype("long add(long a, long b)");
    let hooks = ["a", "b"].map(|name| {
        let (at_entry, at_exit) = (seen.clone(), seen.clone());
        // SAFETY: nothing is changed, and the prototype is that of the function.
        let hook = unsafe {
            live.around(
                &f,
                move |_| at_entry.lock().unwrap().push_str(name),
                move |_| at_exit.lock().unwrap().push_str(&name.to_uppercase()),
            )
        };
        hook.unwrap()
    });
    hooks.iter().for_each(|hook| drop(hook.enable().unwrap()));
    assert_eq!((add(1, 2), seen.lock().unwrap().as_str()), (3, "abBA"));
    let [first, second] = hooks;
    drop(first);
    assert_eq!((add(1, 2), seen.lock().unwrap().as_str()), (3, "abBAbB"));
    drop(second);
    assert_eq!((add(1, 2), seen.lock().unwrap().as_str()), (3, "abBAbB"));
}

/// What the replacements call: each the one below it.
static BELOW: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// What has been called instead, as decimal digits.
static SEEN: AtomicU64 = AtomicU64::new(0);

fn below(n: usize, a: i64, b: i64) -> i64 {
    let digit = |seen: u64| Some(seen.wrapping_mul(10).wrapping_add(n as u64 + 1));
    SEEN.fetch_update(Ordering::SeqCst, Ordering::SeqCst, digit).unwrap();
    // SAFETY: the original of this one.
    let original: Add = unsafe { std::mem::transmute(BELOW[n].load(Ordering::SeqCst) as *const ()) };
    original(a, b)
}

extern "C" fn first(a: i64, b: i64) -> i64 {
    below(0, a, b)
}

extern "C" fn second(a: i64, b: i64) -> i64 {
    below(1, a, b)
}

extern "C" fn third(a: i64, b: i64) -> i64 {
    below(2, a, b)
}

const REPLACEMENTS: [Add; 3] = [first, second, third];

/// The cases use the same variables.
static ONE: Mutex<()> = Mutex::new(());

fn replace(live: Live, f: &Function, n: usize) -> Hook {
    // SAFETY: the same prototype.
    let hook = unsafe { live.replace(f, REPLACEMENTS[n] as *const ()) }.unwrap();
    BELOW[n].store(hook.original() as u64, Ordering::SeqCst);
    hook.enable().unwrap();
    hook
}

#[test]
fn replacements_lie_on_each_other_and_leave_in_any_order() {
    let _one = ONE.lock().unwrap();
    for compiled in [Compiled::WithRoom, Compiled::AsUsual] {
        let functions = Functions::load(common::C, compiled);
        let add: Add = functions.get("add");
        let (live, before) = (live(), bytes(functions.address("add")));
        let f = live.function_at(functions.address("add")).unwrap();
        let seen = || {
            assert_eq!(add(2, 3), 5);
            SEEN.swap(0, Ordering::SeqCst)
        };
        for leaves in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for watched in [false, true] {
                let told = Arc::new(AtomicU64::new(0));
                let [at_entry, at_exit] = [told.clone(), told.clone()];
                let mut hooks = [const { None }; 3];
                hooks[0] = Some(replace(live, &f, 0));
                // SAFETY: nothing is changed.
                let handlers = watched.then(|| unsafe {
                    let around = live.around(
                        &f,
                        move |_| _ = at_entry.fetch_add(1, Ordering::SeqCst),
                        move |_| _ = at_exit.fetch_add(100, Ordering::SeqCst),
                    );
                    around.unwrap()
                });
                handlers.iter().for_each(|hook| drop(hook.enable().unwrap()));
                (1..3).for_each(|n| hooks[n] = Some(replace(live, &f, n)));
                assert_eq!(seen(), 321);
                hooks[1].as_ref().unwrap().disable().unwrap();
                assert_eq!(seen(), 31);
                hooks[1].as_ref().unwrap().enable().unwrap();
                let mut stay = vec![3, 2, 1];
                for leaver in leaves {
                    drop(hooks[leaver].take());
                    stay.retain(|n| *n != leaver as u64 + 1);
                    assert_eq!(seen(), stay.iter().fold(0, |seen, n| seen * 10 + n), "{leaves:?}");
                }
                assert_eq!(told.load(Ordering::SeqCst), if watched { 505 } else { 0 });
                drop(handlers);
                assert_eq!((seen(), bytes(functions.address("add"))), (0, before.clone()));
            }
        }
    }
}

/// Where a replacement waits until somebody has left.
static INSIDE: [Barrier; 2] = [const { Barrier::new(2) }; 2];

extern "C" fn waits(a: i64, b: i64) -> i64 {
    INSIDE.iter().for_each(|barrier| _ = barrier.wait());
    below(2, a, b)
}

/// A call inside one that leaves goes on to those that stay, and past one that leaves meanwhile.
#[test]
fn replacements_leave_while_calls_are_inside() {
    let _one = ONE.lock().unwrap();
    let functions = Functions::load(common::C, Compiled::WithRoom);
    let add: Add = functions.get("add");
    let live = live();
    let f = live.function_at(functions.address("add")).unwrap();
    for (leaver, seen) in [(0, 32), (1, 31), (2, 321)] {
        let mut hooks = [0, 1].map(|n| Some(replace(live, &f, n))).into_iter().collect::<Vec<_>>();
        // SAFETY: the same prototype.
        hooks.push(Some(unsafe { live.replace(&f, waits as *const ()) }.unwrap()));
        let last = hooks[2].as_ref().unwrap();
        BELOW[2].store(last.original() as u64, Ordering::SeqCst);
        last.enable().unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| add(2, 3));
            INSIDE[0].wait();
            drop(hooks[leaver].take());
            INSIDE[1].wait();
            assert_eq!(inside.join().unwrap(), 5);
        });
        assert_eq!(SEEN.swap(0, Ordering::SeqCst), seen);
    }
}

/// Two users know nothing of each other.
#[test]
fn users_come_and_go_while_threads_call() {
    let _one = ONE.lock().unwrap();
    for compiled in [Compiled::WithRoom, Compiled::AsUsual] {
        let functions = Functions::load(common::C, compiled);
        let add: Add = functions.get("add");
        let (live, before, stop) = (live(), bytes(functions.address("add")), AtomicBool::new(false));
        let f = live.function_at(functions.address("add")).unwrap();
        let calls = std::thread::scope(|scope| {
            let callers = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        n += 1;
                        assert_eq!(add(n, 1), n + 1);
                    }
                    n
                })
            });
            let users = [0, 1].map(|n| {
                let f = &f;
                scope.spawn(move || {
                    for _ in 0..50 {
                        let hook = replace(live, f, n);
                        let told = Arc::new(AtomicU64::new(0));
                        let at_entry = told.clone();
                        // SAFETY: nothing is changed.
                        let around =
                            unsafe { live.around(f, move |_| _ = at_entry.fetch_add(1, Ordering::SeqCst), |_| ()) };
                        let around = around.unwrap();
                        around.enable().unwrap();
                        (0..10).for_each(|n| assert_eq!(add(n, n), 2 * n));
                        assert!(told.load(Ordering::SeqCst) >= 10);
                        drop(hook);
                    }
                })
            });
            users.into_iter().for_each(|user| user.join().unwrap());
            stop.store(true, Ordering::Relaxed);
            callers.map(|caller| caller.join().unwrap()).into_iter().sum::<i64>()
        });
        SEEN.store(0, Ordering::SeqCst);
        // SAFETY: the library's counter.
        let bodies = unsafe { *functions.address("bodies").cast::<u64>() };
        assert_eq!(bodies, calls as u64 + 2 * 50 * 10, "each call has run the function once");
        assert_eq!(bytes(functions.address("add")), before);
    }
}
