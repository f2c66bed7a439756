//! Signals: the trap of a breakpoint that stands at a site, whose handler does what the jump will do; and the one by which each thread
//! is asked to leave code that is about to change.
#![allow(unsafe_code, reason = "handlers are given contexts by address, and may be called at any moment")]

use std::io;
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::error::{Error, Result};
use crate::machine::{self, MACHINE};
use crate::table::Table;

/// The address at which a thread goes on that hits the breakpoint at a site.
pub struct Way {
    /// A trampoline, or the function without one. Both are there for ever, so that no thread comes too late.
    pub to: AtomicU64,
}

/// All sites that ever had a breakpoint.
pub static WAYS: Table<Way> = Table::new();

/// The handler of SIGTRAP from before ours was installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Code that is about to change, and where a thread goes on that is in the middle of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Middle {
    /// The first byte of it.
    pub at: u64,
    /// The size in bytes.
    pub len: u64,
    /// By how far behind the first byte, the address where to go on.
    pub moved: Vec<(u64, u64)>,
}

impl Middle {
    fn contains(&self, pc: u64) -> bool {
        pc > self.at && pc < self.at + self.len
    }

    fn to(&self, pc: u64) -> Option<u64> {
        let found = self.moved.iter().find(|(behind, _)| self.at + behind == pc);
        found.map(|(_, to)| *to)
    }
}

/// The question to threads.
#[derive(Default)]
pub struct Question {
    /// Ascending.
    pub middles: Vec<Middle>,
    /// Memory that may be a stack, ascending.
    pub stacks: Vec<(u64, u64)>,
    /// `/proc/self/mem`, or -1.
    pub memory: c_int,
}

/// The most bytes of a stack that are looked at.
const DEEPEST: u64 = 8 << 20;

impl Question {
    /// The code that has this address in its middle.
    fn middle(&self, pc: u64) -> Option<&Middle> {
        let after = self.middles.partition_point(|middle| middle.at < pc);
        self.middles.get(after.checked_sub(1)?).filter(|middle| middle.contains(pc))
    }

    /// Whether a stack, from this address on, may have the address of the middle of such code: a handler that is on the stack may
    /// return there. It may also where nobody knows the stack.
    pub fn may_return(&self, sp: u64) -> bool {
        let after = self.stacks.partition_point(|(from, _)| *from <= sp);
        let Some((_, end)) = after.checked_sub(1).and_then(|n| self.stacks.get(n)).filter(|(_, end)| sp < *end) else {
            return true;
        };
        let (mut at, end) = (sp & !7, (*end).min(sp + DEEPEST));
        let mut words = [0_u64; 512];
        while at < end {
            let bytes = mem::size_of_val(&words).min((end - at) as usize);
            let to = words.as_mut_ptr().cast::<c_void>();
            // Not the C function, in which a thread that is cancelled ends: it would never have answered.
            // SAFETY: the kernel writes to our array, at most as many bytes as it has.
            let got = unsafe { libc::syscall(libc::SYS_pread64, self.memory, to, bytes, at as i64) };
            let Some(got) = usize::try_from(got).ok().filter(|got| *got >= 8) else { return true };
            if words.iter().take(got / 8).any(|word| self.middle(*word).is_some()) {
                return true;
            }
            at += got as u64 & !7;
        }
        false
    }
}

/// The current question, and the number of handlers that read it.
static QUESTION: AtomicPtr<Question> = AtomicPtr::new(ptr::null_mut());
static READERS: AtomicUsize = AtomicUsize::new(0);

/// The number of threads that are asked at once.
pub const ASKED: usize = 1 << 12;

/// For each asked thread, the round in which it has answered.
static ANSWERS: [AtomicU32; ASKED] = [const { AtomicU32::new(0) }; ASKED];

/// An answer of these says: not yet.
const NOT_YET: u32 = 1 << 31;

/// The answer of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing so far.
    None,
    /// The thread has left the code, and will not come back.
    Gone,
    /// The thread may come back.
    NotYet,
}

/// The answer of a thread in this round.
pub fn answer(slot: usize, round: u32) -> Answer {
    match ANSWERS.get(slot).map(|a| a.load(Ordering::Acquire)) {
        Some(said) if said == round => Answer::Gone,
        Some(said) if said == round | NOT_YET => Answer::NotYet,
        _ => Answer::None,
    }
}

/// Ask this while `then` runs.
pub fn asking<T>(question: Question, then: impl FnOnce(&Question) -> T) -> T {
    let question = Box::into_raw(Box::new(question));
    QUESTION.store(question, Ordering::SeqCst);
    // SAFETY: it is freed below.
    let result = then(unsafe { &*question });
    QUESTION.store(ptr::null_mut(), Ordering::SeqCst);
    while READERS.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
    // SAFETY: who comes now reads null, and who came before has gone.
    drop(unsafe { Box::from_raw(question) });
    result
}

/// Ask a thread: its answer goes to this slot. False if it has ended.
pub fn ask(signal: c_int, tid: u32, slot: usize, round: u32) -> bool {
    // SAFETY: all bytes zero is a value of this type.
    let mut info: siginfo_t = unsafe { mem::zeroed() };
    info.si_signo = signal;
    info.si_code = libc::SI_QUEUE;
    // SAFETY: the fields of a queued signal: process and user, and a value of eight bytes behind them.
    unsafe {
        let fields = ptr::from_mut(&mut info).cast::<u32>();
        fields.add(4).write(std::process::id());
        fields.add(5).write(libc::getuid());
        fields.add(6).cast::<u64>().write(u64::from(round) << 32 | slot as u64);
    }
    let (pid, tid) = (std::process::id(), i64::from(tid));
    // SAFETY: the call reads `info`.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, &raw const info) == 0 }
}

/// The handler of a thread that is asked.
extern "C" fn asked(_signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    READERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `asking` frees it when nobody reads.
    if let Some(question) = unsafe { QUESTION.load(Ordering::SeqCst).as_ref() } {
        // SAFETY: the kernel gives handlers both.
        let (context, value) = unsafe { (&mut *context.cast::<ucontext_t>(), (*info).si_value().sival_ptr as u64) };
        let pc = machine::pc(context);
        let unknown = match question.middle(pc) {
            Some(middle) => match middle.to(pc) {
                Some(to) => {
                    machine::set_pc(context, to);
                    false
                }
                None => true,
            },
            None => false,
        };
        // On a stack of its own, a handler does not know what it interrupted.
        let elsewhere = context.uc_stack.ss_flags & libc::SS_ONSTACK != 0;
        let not_yet = unknown || elsewhere || question.may_return(machine::sp(context));
        let (slot, round) = ((value & 0xffff_ffff) as usize, (value >> 32) as u32);
        if let Some(answer) = ANSWERS.get(slot) {
            let said = if not_yet { round | NOT_YET } else { round };
            // A thread that has blocked the signal answers to earlier rounds too, and not in their order.
            let newer = |before: u32| (before & !NOT_YET <= round).then_some(said);
            let _ = answer.fetch_update(Ordering::Release, Ordering::Relaxed, newer);
        }
    }
    READERS.fetch_sub(1, Ordering::SeqCst);
}

/// The handler of traps: a breakpoint at a site leads where the jump will lead.
extern "C" fn trapped(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives handlers a context.
    let interrupted = unsafe { &mut *context.cast::<ucontext_t>() };
    let at = machine::pc(interrupted).wrapping_sub(MACHINE.trap_behind);
    if let Some(way) = WAYS.get(at) {
        return machine::set_pc(interrupted, way.to.load(Ordering::SeqCst));
    }
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // The trap comes once more, and ends the process as it would have without us.
            // SAFETY: it is what was installed before us.
            unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
            machine::set_pc(interrupted, at);
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with this flag it is a handler of this type.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without it, of this one.
            let handler: extern "C" fn(c_int) = unsafe { mem::transmute(handler) };
            handler(signal);
        }
    }
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn install(signal: c_int, handler: Handler) -> Result<libc::sigaction> {
    // SAFETY: all bytes zero is a value of this type, twice.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { (mem::zeroed(), mem::zeroed()) };
    action.sa_sigaction = handler as *const () as usize;
    // A handler that interrupts ours may meet a breakpoint too.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
    // SAFETY: both are there, and the handler calls nothing that a signal may not interrupt.
    if unsafe { libc::sigaction(signal, &raw const action, &raw mut before) } != 0 {
        let what = format!("sigaction of signal {signal}: {}", io::Error::last_os_error());
        return Err(Error::Missing { what, remedy: "another number in Policy::signal" });
    }
    Ok(before)
}

/// Install the handler of those who are asked, and ask this thread. Emulators have signals that cannot be sent.
fn arrives(signal: &c_int) -> bool {
    let this = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let Ok(before) = install(*signal, asked) else { return false };
    let sent = ask(*signal, this, ASKED, 0);
    if !sent {
        // SAFETY: it is what was installed before us.
        unsafe { libc::sigaction(*signal, &raw const before, ptr::null_mut()) };
    }
    sent
}

/// Install both handlers; the second one for this signal, or one that nobody has a handler for.
///
/// # Errors
/// The system refuses, or there is no such signal.
pub fn begin(wanted: Option<c_int>) -> Result<c_int> {
    let free = |signal: &c_int| {
        // SAFETY: all bytes zero is a value of this type, and the call fills it.
        let mut now: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let asked = unsafe { libc::sigaction(*signal, ptr::null(), &raw mut now) };
        asked == 0 && now.sa_sigaction == libc::SIG_DFL
    };
    let none = || Error::Missing { what: "every realtime signal has a handler".to_owned(), remedy: "Policy::signal" };
    let signal = match wanted {
        Some(signal) => install(signal, asked).map(|_| signal)?,
        None => (libc::SIGRTMIN() + 2..libc::SIGRTMAX()).rev().filter(free).find(arrives).ok_or_else(none)?,
    };
    let before = install(libc::SIGTRAP, trapped)?;
    let _ = BEFORE.set(before);
    Ok(signal)
}

/// Run `then` while no signal comes to this thread, but those that its own instructions cause.
pub fn undisturbed<T>(then: impl FnOnce() -> T) -> T {
    // SAFETY: sets are filled before they are read, and the old mask comes back.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        for own in [libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigdelset(&raw mut all, own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let result = then();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        result
    }
}
