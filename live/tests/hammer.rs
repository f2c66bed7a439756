//! Threads call functions while others attach to them, enable and disable: no call is lost, and none is reported twice.
#![allow(unsafe_code, reason = "functions of C are called, and attached to")]

mod common;

use std::env;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Compiled, Functions};
use tramptool_live::{Hook, LeftOut, Live, Policy};

type Add = extern "C" fn(i64, i64) -> i64;
type Same = extern "C" fn(i64) -> i64;

/// A child process does what this variable says, and is right if it ends with 0.
const CHILD: &str = "TRAMPTOOL_LIVE_HAMMER";

/// What runs programs of this machine, if they do not run by themselves: a command and its options.
const RUNNER: &str = "TRAMPTOOL_LIVE_RUNNER";

/// Whether code runs in an emulator, which is slow.
fn emulated() -> bool {
    env::consts::ARCH != "x86_64"
}

/// Of a child, how its functions are compiled.
fn compiled() -> Compiled {
    if env::var(CHILD).is_ok_and(|case| case.starts_with("moved")) { Compiled::AsUsual } else { Compiled::WithRoom }
}

/// What the threads have counted.
#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    wrong: AtomicU64,
    entries: AtomicU64,
    exits: AtomicU64,
    stop: AtomicBool,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn attached(live: Live, at: *const (), counts: &Arc<Counts>) -> Hook {
    let (at_entry, at_exit) = (counts.clone(), counts.clone());
    let f = live.function_at(at).unwrap();
    // SAFETY: nothing is changed, and nothing is thrown.
    unsafe { live.around(&f, move |_| count(&at_entry.entries), move |_| count(&at_exit.exits)) }.unwrap()
}

/// Call both functions until told to stop.
fn hammer(add: Add, same: Same, counts: &Counts) {
    let mut n = 0_i64;
    while !counts.stop.load(Ordering::Relaxed) {
        for _ in 0..100 {
            n += 1;
            let right = add(n, 2 * n) == 3 * n && same(n) == n;
            if !right {
                count(&counts.wrong);
            }
        }
        counts.calls.fetch_add(200, Ordering::Relaxed);
    }
}

/// What goes on beside.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// Signals come to all threads, whose handler calls the function; and threads begin and end.
    Storm,
}

static STORM: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

extern "C" fn on_signal(_: i32) {
    // SAFETY: the function of this type that was put there before.
    let add: Add = unsafe { std::mem::transmute(STORM[0].load(Ordering::Relaxed) as *const ()) };
    STORM[1].fetch_add(1, Ordering::Relaxed);
    if add(1, 2) != 3 {
        std::process::abort();
    }
}

fn storm(counts: &Arc<Counts>, add: Add, same: Same) {
    STORM[0].store(add as *const () as u64, Ordering::Relaxed);
    // SAFETY: the handler calls what signals may interrupt.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as usize) };
    while !counts.stop.load(Ordering::Relaxed) {
        let own = counts.clone();
        let short = std::thread::spawn(move || {
            for n in 0..50 {
                if add(n, n) != 2 * n || same(n) != n {
                    count(&own.wrong);
                }
            }
            own.calls.fetch_add(100, Ordering::Relaxed);
        });
        // SAFETY: a signal to this process, which has a handler.
        unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
        short.join().unwrap();
    }
}

/// Stops all threads, however it comes to that.
struct Stop<'a>(&'a Counts);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Run `change` so often while four threads call, and see that all is counted. `change` returns how often it did it.
fn run(turns: u32, beside: Beside, policy: Policy, change: impl Fn(Live, &Functions, &Arc<Counts>, u32) -> u32) {
    let functions = Functions::load(common::C, compiled());
    let (add, same): (Add, Same) = (functions.get("add"), functions.get("same"));
    let live = Live::new(policy).unwrap();
    let counts = Arc::new(Counts::default());
    let missed = live.missed();
    let begun = Instant::now();
    let done = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| hammer(add, same, &counts));
        }
        if beside == Beside::Storm {
            scope.spawn(|| storm(&counts, add, same));
        }
        let _stop = Stop(&counts);
        change(live, &functions, &counts, turns)
    });
    let took = begun.elapsed();
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let signals = STORM[1].load(Ordering::Relaxed);
    // SAFETY: the library's counter.
    let bodies = unsafe { *functions.address("bodies").cast::<u64>() };
    assert_eq!(get(&counts.wrong), 0, "results are right");
    assert_eq!(bodies, get(&counts.calls) / 2 + signals, "each call has run the function once");
    assert_eq!(get(&counts.entries), get(&counts.exits), "each entry has its return");
    assert!(get(&counts.entries) > 0, "something was reported");
    let missed = live.missed() - missed;
    println!(
        "{done} of {turns} turns in {took:.1?}: {} calls, {} of them reported, {missed} from handlers, {signals} signals",
        get(&counts.calls),
        get(&counts.entries)
    );
}

/// How long a case runs at most, on a machine that has no time.
const LONGEST: Duration = Duration::from_secs(5);

/// How often things change, however long that takes, if this variable says so.
fn wanted() -> Option<u32> {
    env::var("TRAMPTOOL_LIVE_TURNS").ok().map(|turns| turns.parse().unwrap())
}

/// Do `turn` so often, if time allows, and return how often it was done.
fn repeat(turns: u32, turn: impl Fn()) -> u32 {
    let (begun, longest) = (Instant::now(), if wanted().is_some() { Duration::MAX } else { LONGEST });
    (0..turns).take_while(|_| begun.elapsed() < longest).map(|_| turn()).count() as u32
}

/// In an emulator, nobody may have run before a hook is disabled again.
fn a_moment() {
    if emulated() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Enable and disable.
fn toggle(live: Live, functions: &Functions, counts: &Arc<Counts>, turns: u32) -> u32 {
    let _hooks = ["add", "same"].map(|name| attached(live, functions.address(name), counts));
    repeat(turns, || {
        live.batch(|batch| batch.enable_all()).unwrap();
        a_moment();
        live.batch(|batch| batch.disable_all()).unwrap();
    })
}

/// Attach and detach: each time the function's own code comes back.
fn come_and_go(live: Live, functions: &Functions, counts: &Arc<Counts>, turns: u32) -> u32 {
    repeat(turns, || {
        let hooks = ["add", "same"].map(|name| attached(live, functions.address(name), counts));
        live.batch(|batch| batch.enable_all()).unwrap();
        a_moment();
        drop(hooks);
    })
}

/// Whether `leaves` does so with this argument.
fn is_left(n: u64) -> bool {
    matches!(n & 3, 1 | 2)
}

/// Calls that throw, jump out, and end threads, while hooks are enabled and disabled, processes fork and objects come and go.
fn leaving(turns: u32) {
    let functions = Functions::load(common::THROW, compiled());
    let (live, counts, left) = (Live::new(Policy::default()).unwrap(), Arc::new(Counts::default()), AtomicU64::new(0));
    let left: &'static AtomicU64 = Box::leak(Box::new(left));
    let hook = |name: &str, leaves: fn(u64) -> bool| {
        let (f, at_entry, at_exit) =
            (live.function_at(functions.address(name)).unwrap(), counts.clone(), counts.clone());
        let entry = move |call: &mut tramptool_live::Entry| {
            count(&at_entry.entries);
            left.fetch_add(leaves(call.argument(0)).into(), Ordering::Relaxed);
        };
        // SAFETY: nothing is changed.
        unsafe { live.around(&f, entry, move |_| count(&at_exit.exits)) }.unwrap()
    };
    let hooks = [hook("leaves", is_left), hook("comes_back", |_| false), hook("ends", |_| true)];
    let (comes_back, ends): (Same, extern "C" fn(i64) -> i32) =
        (functions.get("comes_back"), functions.get("thread_that_ends"));
    let begun = Instant::now();
    let done = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| come_back(comes_back, &counts));
        }
        scope.spawn(|| end_threads(ends, &counts));
        scope.spawn(|| fork(comes_back, &counts, left));
        scope.spawn(|| load_and_unload(live, &counts));
        let _stop = Stop(&counts);
        repeat(turns, || {
            live.batch(|batch| hooks.iter().for_each(|hook| batch.enable(hook))).unwrap();
            a_moment();
            live.batch(|batch| hooks.iter().for_each(|hook| batch.disable(hook))).unwrap();
        })
    });
    let took = begun.elapsed();
    let [calls, wrong, entries, exits, left] =
        [&counts.calls, &counts.wrong, &counts.entries, &counts.exits, left].map(|n| n.load(Ordering::Relaxed));
    // SAFETY: the library's counter.
    let bodies = unsafe { *functions.address("bodies").cast::<u64>() };
    assert_eq!((wrong, bodies), (0, calls), "each call has run the function once");
    assert_eq!(entries, exits + left, "each entry has its return, or was left");
    assert!(exits > 0 && left > 0, "{exits} returns, {left} left");
    println!("{done} of {turns} turns in {took:.1?}: {calls} calls, {entries} of them reported, {left} of these left");
}

/// Call the function that comes back in any case, until told to stop.
fn come_back(comes_back: Same, counts: &Counts) {
    let mut n = 0;
    while !counts.stop.load(Ordering::Relaxed) {
        n += 100;
        call_with(comes_back, counts, n..n + 100);
    }
}

fn call_with(comes_back: Same, counts: &Counts, numbers: impl Iterator<Item = i64>) {
    for n in numbers {
        counts.calls.fetch_add(2, Ordering::Relaxed);
        if comes_back(n) != n {
            count(&counts.wrong);
        }
    }
}

/// Threads end in a function, by themselves or as they are cancelled.
fn end_threads(ends: extern "C" fn(i64) -> i32, counts: &Counts) {
    while !counts.stop.load(Ordering::Relaxed) {
        for how in 0..2 {
            count(&counts.calls);
            assert_eq!(ends(how), 0);
        }
    }
}

/// Children of this process verify their own calls.
fn fork(comes_back: Same, counts: &Counts, left: &AtomicU64) {
    let open = || {
        let [entries, exits, left] = [&counts.entries, &counts.exits, left].map(|n| n.load(Ordering::SeqCst));
        entries - exits - left
    };
    while !counts.stop.load(Ordering::Relaxed) {
        // SAFETY: the child calls functions of C, and ends. Another thread may have had libgcc's lock, so that nothing is thrown.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let before = open();
                call_with(comes_back, counts, (0..100).filter(|n| n & 3 != 1));
                libc::_exit((open() != before || counts.wrong.load(Ordering::SeqCst) != 0).into());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0, "each entry of the child has its return, or was left");
        }
    }
}

/// An object comes and goes, whose functions are hooked meanwhile.
fn load_and_unload(live: Live, counts: &Counts) {
    let mut functions = Functions::load(common::C, compiled());
    while !counts.stop.load(Ordering::Relaxed) {
        let own = Arc::new(Counts::default());
        let hook = attached(live, functions.address("add"), &own);
        hook.enable().unwrap();
        let add: Add = functions.get("add");
        assert!((0..50).all(|n| add(n, 1) == n + 1));
        assert_eq!((own.entries.load(Ordering::Relaxed), own.exits.load(Ordering::Relaxed)), (50, 50));
        // Whoever has not answered may be there.
        while !hook.disable().unwrap().trapped.is_empty() {}
        drop(hook);
        functions = functions.load_again();
    }
}

/// Calls that are reported while a function is enabled are those that are made.
fn while_enabled(live: Live, functions: &Functions, counts: &Arc<Counts>) {
    let hook = attached(live, functions.address("add"), counts);
    hook.enable().unwrap();
    let add: Add = functions.get("add");
    (0..1000).for_each(|n| assert_eq!(add(n, 1), n + 1));
    assert_eq!(counts.entries.load(Ordering::Relaxed), 1000);
}

/// Memory is never writable and executable.
const PR_SET_MDWE: i32 = 65;

/// A thread blocks the signal: functions are hooked by breakpoints until it answers.
fn deaf() {
    let (functions, counts) = (Functions::load(common::C, compiled()), Arc::new(Counts::default()));
    let same: Same = functions.get("same");
    let mut policy = Policy::default();
    policy.patience = Duration::from_millis(500);
    let live = Live::new(policy).unwrap();
    let block = |how| {
        // SAFETY: sets are filled before they are read.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            (libc::SIGRTMIN()..=libc::SIGRTMAX()).for_each(|signal| _ = libc::sigaddset(&raw mut set, signal));
            libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
        }
    };
    let (blocked, hears) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let deaf = scope.spawn(|| {
            block(libc::SIG_BLOCK);
            blocked.store(true, Ordering::SeqCst);
            while !hears.load(Ordering::SeqCst) {
                assert_eq!(same(1), 1);
            }
            block(libc::SIG_UNBLOCK);
            while !counts.stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let _stop = Stop(&counts);
        while !blocked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let hook = attached(live, functions.address("same"), &counts);
        let notes = hook.enable().unwrap();
        // One word needs no answer.
        if MACHINE_ASKS {
            assert_eq!((notes.unanswered.len(), notes.trapped), (1, vec!["same".to_owned()]));
        }
        let before = counts.entries.load(Ordering::SeqCst);
        assert_eq!(same(2), 2);
        assert!(counts.entries.load(Ordering::SeqCst) > before && !deaf.is_finished());
        hears.store(true, Ordering::SeqCst);
        let again = live.batch(|_| ()).unwrap();
        assert_eq!(again.trapped, Vec::<String>::new(), "the next batch tries again");
        assert_eq!(same(3), 3);
    });
    assert_eq!(counts.entries.load(Ordering::SeqCst), counts.exits.load(Ordering::SeqCst));
}

/// Whether more than one store is needed.
const MACHINE_ASKS: bool = !cfg!(target_arch = "aarch64");

/// Run a case in a process of its own: there is one `Live` in each.
fn child(case: &str) -> Output {
    let program = env::current_exe().unwrap();
    let runner = env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace();
    let mut command = Command::new(words.next().map_or(program.as_os_str(), |word| word.as_ref()));
    if !runner.is_empty() {
        command.args(words).arg(&program);
    }
    command.args(["--exact", "the_child", "--nocapture", "--include-ignored"]).env(CHILD, case);
    command.output().unwrap()
}

/// Run a case that must be right.
fn holds(case: &str) {
    let output = child(case);
    let [said, complaint] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{case}: {}\n{said}\n{complaint}", output.status);
    println!("{case}: {}", said.lines().find(|line| line.contains(" turns in ")).unwrap_or("as it must"));
}

#[test]
#[ignore = "the others run it"]
fn the_child() {
    let left_out = |question, trap| {
        let mut policy = Policy::default();
        policy.left_out = LeftOut { question, trap };
        policy
    };
    let usual = if emulated() { [1_000, 300, 300] } else { [100_000, 1_000, 100] };
    let [many, few, fewest] = wanted().map_or(usual, |turns| [turns; 3]);
    match env::var(CHILD).as_deref() {
        Ok("toggle") => run(many, Beside::Nothing, Policy::default(), toggle),
        Ok("come and go") => run(few, Beside::Nothing, Policy::default(), come_and_go),
        Ok("storm") => run(few, Beside::Storm, Policy::default(), toggle),
        Ok("storm, come and go") => run(fewest, Beside::Storm, Policy::default(), come_and_go),
        Ok("moved") => run(few, Beside::Nothing, Policy::default(), toggle),
        Ok("moved, storm") => run(fewest, Beside::Storm, Policy::default(), toggle),
        Ok("moved, no question") => run(many, Beside::Nothing, left_out(true, false), toggle),
        Ok("leaving") => leaving(many),
        Ok("moved, leaving") => leaving(few),
        Ok("deaf" | "moved, deaf") => deaf(),
        Ok("protected") => {
            // SAFETY: it takes away rights of this process, which has none of them in use.
            let refused = unsafe { libc::prctl(PR_SET_MDWE, 1, 0, 0, 0) };
            assert_eq!(refused, 0, "Linux 6.3 or later");
            run(few, Beside::Storm, Policy::default(), toggle);
        }
        Ok("no question") => run(many, Beside::Nothing, left_out(true, false), come_and_go),
        Ok("no trap") => run(many, Beside::Nothing, left_out(true, true), come_and_go),
        Ok("enabled") => {
            let (functions, counts) = (Functions::load(common::C, compiled()), Arc::new(Counts::default()));
            while_enabled(Live::new(Policy::default()).unwrap(), &functions, &counts);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_enabled_is_reported() {
    holds("enabled");
}

#[test]
fn no_call_is_lost_while_hooks_are_enabled_and_disabled() {
    holds("toggle");
}

#[test]
fn no_call_is_lost_while_hooks_come_and_go() {
    holds("come and go");
}

#[test]
fn no_call_is_lost_in_a_storm_of_signals_and_threads() {
    holds("storm");
    holds("storm, come and go");
}

#[test]
fn no_call_is_lost_of_functions_without_room() {
    holds("moved");
    holds("moved, storm");
}

#[test]
fn no_call_is_lost_that_an_exception_or_a_jump_leaves() {
    holds("leaving");
    holds("moved, leaving");
}

#[test]
fn without_a_step_of_the_protocol_it_fails() {
    // It takes a thread that is interrupted in just that place, which none is in an emulator.
    if emulated() {
        return;
    }
    // Where others take the CPUs, threads are seldom interrupted there.
    const TRIES: usize = 15;
    for case in ["no question", "no trap", "moved, no question"] {
        let failed = (0..TRIES).map(|_| child(case)).find(|output| !output.status.success());
        println!("{case}: {}", failed.unwrap_or_else(|| panic!("{case}: it never fails")).status);
    }
}

#[test]
fn a_thread_that_does_not_answer_is_told_of() {
    holds("deaf");
    holds("moved, deaf");
}

/// The kernel refuses to make code writable: it is written through a file.
#[test]
fn code_that_may_not_be_made_writable_is_written() {
    if !emulated() {
        holds("protected");
    }
}
