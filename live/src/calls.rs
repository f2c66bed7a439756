//! What trampolines call at a function's entry and at its return: the handlers, and what is kept from one to the other.
#![allow(unsafe_code, reason = "trampolines give addresses, and each thread has memory of its own")]

use std::cell::Cell;
use std::mem::{self, offset_of};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use gimli::constants::{DW_OP_drop, DW_OP_dup, DW_OP_minus, DW_OP_mul, DW_OP_ne, DW_OP_over, DW_OP_plus};
use gimli::write::{Address, Expression};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::machine::MACHINE;
use crate::table::Table;

/// Where things are in the structure that a trampoline gives to handlers, in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The register with the result.
    pub result: usize,
    /// The number of members.
    pub words: usize,
}

/// A call that begins.
pub struct Entry<'a> {
    function: &'static Hooked,
    caller: u64,
    words: &'a mut [u64],
}

/// A call that returns.
pub struct Exit<'a> {
    function: &'static Hooked,
    words: &'a mut [u64],
}

impl Entry<'_> {
    /// The function's name; empty if it has none.
    pub fn function(&self) -> &'static str {
        &self.function.name
    }

    /// The function's address.
    pub fn address(&self) -> u64 {
        self.function.address
    }

    /// The address to which the function will return.
    pub fn caller(&self) -> u64 {
        self.caller
    }

    /// The register in which argument number `n` comes, from 0 on, if it is an integer or a pointer; 0 behind the last register.
    pub fn argument(&self, n: usize) -> u64 {
        self.words.get(n).filter(|_| n < MACHINE.arguments).copied().unwrap_or_default()
    }

    /// Give the function another value there.
    pub fn set_argument(&mut self, n: usize, value: u64) {
        if let Some(word) = self.words.get_mut(n).filter(|_| n < MACHINE.arguments) {
            *word = value;
        }
    }
}

impl Exit<'_> {
    /// The function's name; empty if it has none.
    pub fn function(&self) -> &'static str {
        &self.function.name
    }

    /// The function's address.
    pub fn address(&self) -> u64 {
        self.function.address
    }

    /// The register with the result, if that is an integer or a pointer.
    pub fn result(&self) -> u64 {
        self.words.get(self.function.layout.result).copied().unwrap_or_default()
    }

    /// Give the caller another value.
    pub fn set_result(&mut self, value: u64) {
        if let Some(word) = self.words.get_mut(self.function.layout.result) {
            *word = value;
        }
    }
}

/// Both handlers of a user.
pub struct Handlers {
    /// At the entry.
    pub entry: Box<dyn Fn(&mut Entry) + Send + Sync>,
    /// At the return.
    pub exit: Box<dyn Fn(&mut Exit) + Send + Sync>,
}

/// The users of a function at a moment, in the order in which they came. A call has those of its beginning until it returns.
pub struct Users {
    function: &'static Hooked,
    handlers: Vec<&'static Handlers>,
}

impl Users {
    fn is(&self, handlers: &[&'static Handlers]) -> bool {
        self.handlers.len() == handlers.len() && self.handlers.iter().zip(handlers).all(|(a, b)| ptr::eq(*a, *b))
    }
}

/// A function that has handlers, or once had.
pub struct Hooked {
    /// The function's name.
    pub name: String,
    /// The function's address.
    pub address: u64,
    /// Of what its trampoline gives to handlers.
    pub layout: Layout,
    users: AtomicPtr<Users>,
    nobody: AtomicPtr<Users>,
    /// The last ones that were not nobody.
    last: AtomicPtr<Users>,
}

impl Hooked {
    /// One without users, which goes on there behind its entry. `returns_to` is in its trampoline, if it returns there.
    pub fn new(name: &str, address: u64, (resume, returns_to): (u64, Option<u64>), layout: Layout) -> &'static Hooked {
        let same = |known: &&Hooked| (known.name.as_str(), known.address, known.layout) == (name, address, layout);
        // An object may have been loaded again.
        let hooked = FUNCTIONS.get(resume).filter(same).unwrap_or_else(|| {
            let [users, nobody, last] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];
            let hooked = Hooked { name: name.to_owned(), address, layout, users, nobody, last };
            let hooked: &'static Hooked = Box::leak(Box::new(hooked));
            for of in [&hooked.users, &hooked.nobody, &hooked.last] {
                of.store(leaked(hooked, Vec::new()), Ordering::Release);
            }
            FUNCTIONS.put(resume, hooked);
            hooked
        });
        if let Some(returns_to) = returns_to {
            RETURNS.put(returns_to, hooked);
        }
        hooked
    }

    /// Let calls that begin from now on have these users.
    pub fn set(&'static self, handlers: Vec<&'static Handlers>) {
        let as_last = self.users(&self.last).is(&handlers);
        let users = match handlers.is_empty() {
            true => self.nobody.load(Ordering::Acquire),
            false if as_last => self.last.load(Ordering::Acquire),
            false => leaked(self, handlers),
        };
        self.users.store(users, Ordering::Release);
        if users != self.nobody.load(Ordering::Acquire) {
            self.last.store(users, Ordering::Release);
        }
    }

    fn users(&self, of: &AtomicPtr<Users>) -> &'static Users {
        // SAFETY: all are set before anybody knows the function, and nothing is freed.
        unsafe { &*of.load(Ordering::Acquire) }
    }
}

fn leaked(function: &'static Hooked, handlers: Vec<&'static Handlers>) -> *mut Users {
    Box::into_raw(Box::new(Users { function, handlers }))
}

static FUNCTIONS: Table<Hooked> = Table::new();

/// By the address in its trampoline to which a function returns.
static RETURNS: Table<Hooked> = Table::new();

/// Calls that no handler was told of, because a handler of the thread was running.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// Calls that no handler was told of, because a handler of the thread was running.
pub fn missed() -> u64 {
    MISSED.load(Ordering::Relaxed)
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static STACK: Cell<*mut Stack> = const { Cell::new(ptr::null_mut()) };
}

/// Run `then` while no handler is told of the calls of this thread.
pub fn aside<T>(then: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(true);
    let result = then();
    INSIDE.set(before);
    result
}

/// Whether that is so now.
pub fn is_aside() -> bool {
    INSIDE.get()
}

/// A call that has not returned.
#[derive(Clone, Copy)]
#[repr(C)]
struct Open {
    /// Where its trampoline's structure is: at the return it is at the same address. Null while the others are not there yet.
    words: *mut u64,
    /// The address to which the call returns.
    parent: u64,
    /// The same, but of a function that another one ended with a jump to, where that one returns to.
    caller: u64,
    users: *const Users,
}

/// The greatest depth of nested calls.
const DEEPEST: usize = 1 << 19;

/// If a thread has as many open calls, those are looked for that have been left.
const CROWDED: usize = 1 << 10;

/// The open calls of a thread. When the thread has ended, another one takes it. Unwinders read it: see [`caller`].
#[repr(C)]
struct Stack {
    /// The thread; 0 if nobody has it.
    owner: AtomicU32,
    pid: AtomicU32,
    next: *mut Stack,
    top: Cell<usize>,
    open: [Open; DEEPEST],
}

/// All of them.
static STACKS: AtomicPtr<Stack> = AtomicPtr::new(ptr::null_mut());

/// That of this thread.
fn stack() -> &'static Stack {
    let mut stack = STACK.get();
    if stack.is_null() {
        stack = taken().unwrap_or_else(mapped);
        STACK.set(stack);
    }
    // SAFETY: nothing unmaps it, and only this thread has it.
    unsafe { &*stack }
}

/// This thread, as the kernel counts them.
pub fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Whether there is no such thread in this process any more. The program may want the error of a call of its own afterwards.
pub fn has_ended(thread: u32) -> bool {
    // SAFETY: signal 0 is none, and the number of the last error is this thread's.
    unsafe {
        let before = *libc::__errno_location();
        let ended = libc::syscall(libc::SYS_tgkill, std::process::id(), thread, 0) != 0;
        *libc::__errno_location() = before;
        ended
    }
}

/// All stacks that there are now.
fn stacks() -> impl Iterator<Item = &'static Stack> {
    let at = |stack: *mut Stack| {
        // SAFETY: what is in the list is there for ever.
        unsafe { stack.as_ref() }
    };
    std::iter::successors(at(STACKS.load(Ordering::Acquire)), move |stack| at(stack.next))
}

/// One whose thread has ended. This thread may have the memory of such a thread as its stack, so that what it has left there is
/// forgotten.
fn taken() -> Option<*mut Stack> {
    let (pid, this) = (std::process::id(), this_thread());
    let mut taken = None;
    for stack in stacks().filter(|stack| stack.pid.load(Ordering::Acquire) == pid) {
        let owner = stack.owner.load(Ordering::Acquire);
        let ended = || owner == this || has_ended(owner);
        let free = owner == 0;
        let swap = || stack.owner.compare_exchange(owner, this, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if (free && taken.is_some()) || !(free || ended()) || !swap() {
            continue;
        }
        stack.top.set(0);
        match taken {
            None => taken = Some(ptr::from_ref(stack).cast_mut()),
            Some(_) => stack.owner.store(0, Ordering::Release),
        }
    }
    taken
}

/// Call these functions before a thread forks, and afterwards in both processes.
pub fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: functions of ours, of this type.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// In the child of `fork` there is this thread alone, with another number.
pub fn forget_other_threads() {
    let own = STACK.get();
    for stack in stacks() {
        let of_this = ptr::eq(stack, own);
        if !of_this {
            stack.top.set(0);
        }
        stack.owner.store(if of_this { this_thread() } else { 0 }, Ordering::Release);
        stack.pid.store(std::process::id(), Ordering::Release);
    }
}

fn mapped() -> *mut Stack {
    let size = size_of::<Stack>();
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping.
    let at = unsafe { mmap_anonymous(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags) };
    let Ok(at) = at else { std::process::abort() };
    let stack = at.cast::<Stack>();
    // SAFETY: zeros are a value of each field, and nobody else knows the memory before it is in the list.
    unsafe {
        (*stack).owner.store(this_thread(), Ordering::Release);
        (*stack).pid.store(std::process::id(), Ordering::Release);
        let mut next = STACKS.load(Ordering::Acquire);
        loop {
            (*stack).next = next;
            match STACKS.compare_exchange(next, stack, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return stack,
                Err(now) => next = now,
            }
        }
    }
}

impl Stack {
    fn slot(&self, n: usize) -> *mut Open {
        let Some(open) = self.open.get(n) else { std::process::abort() };
        ptr::from_ref(open).cast_mut()
    }

    fn read(&self, n: usize) -> Open {
        // SAFETY: the slot is in this stack, and this thread's alone.
        unsafe { ptr::read_volatile(self.slot(n)) }
    }

    /// A signal's handler may push and pop at any moment: the slot is taken before it is filled. The unwinder of any thread may read
    /// it, and finds it by `words`, which come last.
    fn push(&self, words: *mut u64, parent: u64, users: *const Users) {
        let tail = RETURNS.get(parent).is_some();
        if self.top.get() >= CROWDED {
            self.forget(words, tail);
        }
        let caller = if tail { self.find(words).map_or(parent, |(_, open)| open.caller) } else { parent };
        let (top, open) = (self.top.get(), Open { words: ptr::null_mut(), parent, caller, users });
        let slot = self.slot(top);
        // SAFETY: the slot is this call's, and only this thread's.
        unsafe {
            ptr::write_volatile(&raw mut (*slot).words, ptr::null_mut());
            compiler_fence(Ordering::SeqCst);
            self.top.set(top + 1);
            compiler_fence(Ordering::SeqCst);
            ptr::write_volatile(slot, open);
            compiler_fence(Ordering::SeqCst);
            ptr::write_volatile(&raw mut (*slot).words, words);
        }
    }

    /// The last call with this structure, and its number.
    fn find(&self, words: *mut u64) -> Option<(usize, Open)> {
        (0..self.top.get()).rev().map(|n| (n, self.read(n))).find(|(_, open)| open.words == words)
    }

    /// The call with this structure, which is the last one now: those above it were left by a jump or an exception.
    fn last(&self, words: *mut u64) -> (usize, Open) {
        let Some(found) = self.find(words) else { std::process::abort() };
        self.top.set(found.0 + 1);
        found
    }

    /// Forget the last calls as far as they have been left: whoever calls with this structure lies where they were, or above.
    fn forget(&self, words: *mut u64, tail: bool) {
        let alternate = alternate_stack();
        while let Some(below) = self.top.get().checked_sub(1) {
            let at = self.read(below).words;
            let left = match [at, words].map(|words| alternate.contains(&(words as u64))) {
                [true, false] => true,
                [false, true] => false,
                _ => at < words || (at == words && !tail),
            };
            if !left || at.is_null() {
                return;
            }
            self.top.set(below);
        }
    }
}

/// The stack for handlers of signals that this thread has; empty without one.
fn alternate_stack() -> std::ops::Range<u64> {
    // SAFETY: all bytes zero is a value of this type, and the call fills it.
    let alternate = unsafe {
        let mut alternate: libc::stack_t = mem::zeroed();
        libc::sigaltstack(ptr::null(), &raw mut alternate);
        alternate
    };
    let from = alternate.ss_sp as u64;
    from..if alternate.ss_flags & libc::SS_DISABLE == 0 { from + alternate.ss_size as u64 } else { from }
}

/// Finds the address to which a function returns, for unwinders, which have CFA of its trampoline's frame: the structure is `depth` bytes
/// below. They cannot tell the thread, so that all stacks are looked through, from the last call on. No two threads have a structure at
/// the same address. 0 if there is no such call: there a trace ends.
pub fn caller(depth: u64) -> Expression {
    let mut e = Expression::new();
    // Twice, because libgcc's DW_OP_pick refuses the lowest value.
    e.op_constu(depth);
    e.op(DW_OP_minus);
    e.op(DW_OP_dup);
    e.op_addr(Address::Constant(ptr::from_ref(&STACKS) as u64));
    // From here on: words, words, the address of a pointer to a stack.
    let next_stack = e.next_index();
    e.op_deref();
    e.op(DW_OP_dup);
    let some = e.op_bra();
    let none = e.op_skip();
    let is_some = e.next_index();
    e.op(DW_OP_dup);
    e.op_plus_uconst(offset_of!(Stack, top) as u64);
    e.op_deref();
    e.op_constu(size_of::<Open>() as u64);
    e.op(DW_OP_mul);
    e.op(DW_OP_over);
    e.op(DW_OP_plus);
    e.op_plus_uconst(offset_of!(Stack, open) as u64);
    // Words, words, a stack, the end of its calls that are left to look at.
    let next_call = e.next_index();
    e.op(DW_OP_over);
    e.op_plus_uconst(offset_of!(Stack, open) as u64);
    e.op(DW_OP_over);
    e.op(DW_OP_ne);
    let more = e.op_bra();
    e.op(DW_OP_drop);
    e.op_plus_uconst(offset_of!(Stack, next) as u64);
    let to_next_stack = e.op_skip();
    let is_more = e.next_index();
    e.op_constu(size_of::<Open>() as u64);
    e.op(DW_OP_minus);
    e.op(DW_OP_dup);
    e.op_plus_uconst(offset_of!(Open, words) as u64);
    e.op_deref();
    e.op_pick(3);
    e.op(DW_OP_ne);
    let other = e.op_bra();
    e.op_plus_uconst(offset_of!(Open, caller) as u64);
    e.op_deref();
    let end = e.next_index();
    for (branch, to) in [(some, is_some), (none, end), (more, is_more), (to_next_stack, next_stack), (other, next_call)]
    {
        e.set_target(branch, to);
    }
    e
}

/// The users of a call that begins.
///
/// # Safety
/// `words` is what the function's trampoline gives.
unsafe fn begins(words: *mut u64) -> &'static Users {
    // SAFETY: the word is in every such structure.
    let resume = unsafe { words.add(PC.load(Ordering::Relaxed)).read() };
    let Some(function) = FUNCTIONS.get(resume) else { std::process::abort() };
    if INSIDE.get() {
        MISSED.fetch_add(1, Ordering::Relaxed);
        return function.users(&function.nobody);
    }
    function.users(&function.users)
}

/// Tell them that a call begins.
///
/// # Safety
/// `words` is what the function's trampoline gives.
unsafe fn tell_entry(users: &Users, caller: u64, words: *mut u64) {
    if users.handlers.is_empty() {
        return;
    }
    let function = users.function;
    // SAFETY: the trampoline's structure has so many words, and nobody else uses it now.
    let words = unsafe { std::slice::from_raw_parts_mut(words, function.layout.words) };
    let mut entry = Entry { function, caller, words };
    aside(|| users.handlers.iter().for_each(|handlers| (handlers.entry)(&mut entry)));
}

/// Tell them that it returns, the last one first: they lie in each other as calls do.
///
/// # Safety
/// As [`tell_entry`].
unsafe fn tell_exit(users: &Users, words: *mut u64) {
    if users.handlers.is_empty() {
        return;
    }
    let function = users.function;
    // SAFETY: as above.
    let words = unsafe { std::slice::from_raw_parts_mut(words, function.layout.words) };
    let mut exit = Exit { function, words };
    aside(|| users.handlers.iter().rev().for_each(|handlers| (handlers.exit)(&mut exit)));
}

/// Called by trampolines that leave the stack as it is, at the entry.
pub extern "C" fn entered_in_place(_ip: u64, parent: u64, words: *mut u64) {
    // SAFETY: it is what the trampoline gives.
    let users = unsafe { begins(words) };
    stack().push(words, parent, users);
    // SAFETY: it is what the trampoline gives.
    unsafe { tell_entry(users, parent, words) };
}

/// Called by them at the return, and gives the address to return to.
pub extern "C" fn left_in_place(words: *mut u64) -> u64 {
    let stack = stack();
    let (n, open) = stack.last(words);
    // SAFETY: users are never freed, and the structure is what the trampoline gives.
    unsafe { tell_exit(&*open.users, words) };
    // Not before: a trace from a handler finds the caller.
    stack.top.set(n);
    open.parent
}

/// Called by trampolines with a frame, at the entry.
pub extern "C" fn entered(_ip: u64, parent: u64, words: *mut u64) {
    // SAFETY: it is what the trampoline gives. Nobody reads the word from now on but `left`.
    unsafe {
        let users = begins(words);
        tell_entry(users, parent, words);
        words.add(PC.load(Ordering::Relaxed)).write(ptr::from_ref(users) as u64);
    }
}

/// Called by them at the return.
pub extern "C" fn left(words: *mut u64) {
    // SAFETY: `entered` has put it there.
    unsafe {
        let users = words.add(PC.load(Ordering::Relaxed)).read() as *const Users;
        tell_exit(&*users, words);
    }
}

/// Of the structure, which word says where the function goes on; the same for all trampolines.
pub static PC: AtomicUsize = AtomicUsize::new(0);
