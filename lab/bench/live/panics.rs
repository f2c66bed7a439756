// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that panic in the middle of calls, and catch it: at the end it says how often each function was called.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

static CALLS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

fn count(function: usize) {
    CALLS[function].fetch_add(1, Relaxed);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn own_leaf(n: u64) -> u64 {
    count(0);
    n.wrapping_mul(7919) ^ n >> 3
}

#[unsafe(no_mangle)]
#[inline(never)]
fn own_deep(n: u64, salt: u64) -> u64 {
    count(1);
    if n == 0 { own_fails(own_leaf(salt)) } else { own_deep(n - 1, salt).rotate_left(1) ^ n }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn own_fails(n: u64) -> u64 {
    count(2);
    if n % 2 == 0 { panic!("{n} is even") } else { n }
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let work = || (0..500).filter(|n| catch_unwind(|| own_deep(n % 17, *n) ^ own_leaf(*n)).is_err()).count();
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(work)).collect();
    let panics: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{panics} panics");
    for (name, calls) in ["own_leaf", "own_deep", "own_fails"].iter().zip(&CALLS) {
        println!("{name} {}", calls.load(Relaxed));
    }
    std::process::exit(i32::from(panics == 0) + 3);
}
