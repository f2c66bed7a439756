//! The hooks on functions of this process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use codegen::arch::entry::Signing;
use codegen::arch::patch::{Branch, Patch};
use session::maps::{self, Mapping};

use crate::buffers;
use crate::calls::{self, Entry, Exit, Handlers, Hooked, aside};
use crate::code::{Around, STUB};
use crate::error::{Error, Result};
use crate::function::{Function, Room as At};
use crate::machine::{self, MACHINE};
use crate::memory::{Barrier, PAGE, Room, Writer, backend};
use crate::objects::{self, Found, Objects};
use crate::patch::{Change, Code, LeftOut, Notes, PATIENCE, Patcher, Site};
use crate::signals;
use crate::threads::{self, How};

/// The choices of the user.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// For how long a batch waits for threads that are in the middle of code that changes. Functions of which one is not out by then
    /// are hooked by a breakpoint.
    pub patience: Duration,
    /// The realtime signal by which threads are asked; without one, the last that nobody has a handler for.
    pub signal: Option<i32>,
    /// Whether functions without room for a branch are hooked by a breakpoint: each of their calls costs a signal.
    pub traps: bool,
    #[doc(hidden)]
    pub left_out: LeftOut,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { patience: PATIENCE, signal: None, traps: false, left_out: LeftOut::default() }
    }
}

/// All that is attached to functions of this process. There is one: copies are the same.
#[derive(Clone, Copy)]
pub struct Live(&'static Process);

struct Process {
    backend: &'static dyn Patch,
    patcher: Patcher,
    traps: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: Objects,
    rooms: Vec<Room>,
    around: Option<Arc<Around>>,
    /// By the address of what is patched.
    attached: HashMap<u64, Attached>,
    /// Functions whose object was unloaded: their trampolines serve again when it comes back to the same place.
    unloaded: HashMap<u64, Attached>,
    /// The number of the hook that comes next.
    next: u64,
}

/// A function that something is attached to, or was.
struct Attached {
    site: Site,
    /// The file of the object that has the function.
    object: Arc<Path>,
    /// The function, as its file has it.
    original: Code,
    room: At,
    branch: Branch,
    /// The branch follows the instruction that signs the return address.
    signed: Option<Signing>,
    /// The address at which the function goes on if its entry is overwritten.
    resume: u64,
    /// The address for callers of the original function.
    callable: u64,
    /// The function that handlers surround: the original one, or its replacement.
    inner: Option<Turn>,
    /// The trampoline for handlers, once there was one.
    around: Option<(u64, &'static Hooked)>,
    /// The users, in the order in which they were attached.
    users: Vec<User>,
    /// Users have changed since the entry was written.
    changed: bool,
}

/// How an entry is patched, where its function goes on, and what is there now.
struct Moved {
    branch: Branch,
    signed: Option<Signing>,
    resume: u64,
    original: Code,
}

/// Whose hook it is, and what it does.
struct User {
    number: u64,
    enabled: bool,
    does: Does,
}

#[derive(Clone, Copy)]
enum Does {
    /// Calls handlers around the function.
    Around(&'static Handlers),
    /// A function that is called instead.
    Replace(Replaced),
}

/// A new user's handlers, or the address of its replacement.
enum Wanted {
    Around(&'static Handlers),
    Replace(u64),
}

/// A replacement of a function.
#[derive(Clone, Copy)]
struct Replaced {
    with: u64,
    /// An address that leads to it, within the reach of the function's entry.
    near: u64,
    /// The address that is called without this replacement.
    below: u64,
    /// Leads to the replacement, or past it while it is disabled.
    turn: Turn,
}

/// Code that goes to an address which may change at any time.
#[derive(Clone, Copy)]
struct Turn {
    at: u64,
    to: &'static AtomicU64,
}

/// Something attached to a function. When it is dropped it is disabled, and nothing is freed: threads may still be in it.
pub struct Hook {
    live: Live,
    at: u64,
    number: u64,
    original: u64,
}

static PROCESS: OnceLock<Process> = OnceLock::new();
static BEGINNING: Mutex<()> = Mutex::new(());

impl Live {
    /// Prepare this process: install handlers of two signals, and open what the program may forbid itself later. The policy of the
    /// first call holds.
    ///
    /// # Errors
    /// The system does not have what is needed.
    pub fn new(policy: Policy) -> Result<Live> {
        let _one = BEGINNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = PROCESS.get() {
            return Ok(Live(process));
        }
        let (backend, writer, barrier) = (backend()?, Writer::new(), Barrier::new()?);
        follow_forks();
        let signal = signals::begin(policy.signal)?;
        let how = How { signal, patience: policy.patience, memory: writer.file() };
        let patcher = Patcher { writer, barrier, how, left_out: policy.left_out };
        let traps = policy.traps;
        let process = PROCESS.get_or_init(|| Process { backend, patcher, traps, state: Mutex::default() });
        Ok(Live(process))
    }

    /// The function of this name, as a symbol table has it. `OBJECT:NAME` is the one of a file whose name begins so.
    ///
    /// # Errors
    /// There is none, or more than one, or nothing can be attached to it.
    pub fn function(&self, name: &str) -> Result<Function> {
        let mut found = self.functions(name)?;
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                let at = found.into_iter().chain(last).map(|f| f.range.start).collect();
                Err(Error::Ambiguous { name: name.to_owned(), at })
            }
        }
    }

    /// All functions of this name in the first object that has one.
    ///
    /// # Errors
    /// There is none, or nothing can be attached to it.
    pub fn functions(&self, name: &str) -> Result<Vec<Function>> {
        self.0.with(|state| state.objects.named(name, self.0.found()))
    }

    /// The function that has this address in it.
    ///
    /// # Errors
    /// There is none to which anything can be attached.
    pub fn function_at(&self, address: *const ()) -> Result<Function> {
        self.0.with(|state| state.objects.at(address as u64, self.0.found()))
    }

    /// Attach handlers around a function: `entry` is called before it, `exit` when it returns. Those of several hooks are called in the
    /// order in which they were attached, and at the return in the opposite one. The hook is disabled at first.
    ///
    /// Calls that a handler makes itself are not reported; [`Live::missed`] counts them. A call that an exception, a panic or `longjmp`
    /// leaves has no `exit`.
    ///
    /// # Safety
    /// * The function's prototype, if it was given, is right.
    /// * The function changes no stack, and does not return twice (`setjmp`, `vfork`), unless it has a prototype that was given.
    /// * What the handlers change in arguments and results is what the function and its callers may get.
    /// * Where a compiler has left no room at its entry, no caller knows that the function leaves registers alone that the psABI gives
    ///   away: gcc's `-fipa-ra` does, of local functions.
    /// * No process that shares the memory (`vfork`, `CLONE_VM`) executes the function, and nobody else patches it.
    #[allow(unsafe_code, reason = "the caller promises what nothing here can see")]
    pub unsafe fn around(
        &self,
        function: &Function,
        entry: impl Fn(&mut Entry) + Send + Sync + 'static,
        exit: impl Fn(&mut Exit) + Send + Sync + 'static,
    ) -> Result<Hook> {
        let handlers: &'static Handlers =
            Box::leak(Box::new(Handlers { entry: Box::new(entry), exit: Box::new(exit) }));
        self.0.attach(function, Wanted::Around(handlers))
    }

    /// Let `with` be called instead of a function. [`Hook::original`] is what would be called without it: what another hook replaces it
    /// with that was attached before, or the function. Handlers are around all of them. The hook is disabled at first.
    ///
    /// # Safety
    /// * `with` is a function of the same prototype, and no caller knows more of the function than that: gcc's `-fipa-ra` does, of local
    ///   functions.
    /// * No process that shares the memory (`vfork`, `CLONE_VM`) executes the function, and nobody else patches it.
    #[allow(unsafe_code, reason = "the caller promises what nothing here can see")]
    pub unsafe fn replace(&self, function: &Function, with: *const ()) -> Result<Hook> {
        self.0.attach(function, Wanted::Replace(with as u64))
    }

    /// Enable and disable hooks, all at once.
    ///
    /// # Errors
    /// Nothing is changed then: code cannot be written, or somebody else has patched a function.
    pub fn batch(&self, fill: impl FnOnce(&mut Batch)) -> Result<Notes> {
        let mut batch = Batch { wanted: Vec::new(), all: None };
        fill(&mut batch);
        self.0.with(|state| state.run(batch, &self.0.patcher, self.0.backend))
    }

    /// Run `then` while nobody else changes anything, and this thread is not reported.
    pub(crate) fn alone<T>(&self, then: impl FnOnce() -> T) -> T {
        self.0.with(|_| then())
    }

    /// The number of calls that no handler was called for, because a handler of the same thread was running.
    pub fn missed(&self) -> u64 {
        calls::missed()
    }
}

/// Hooks that are to be enabled or disabled together.
pub struct Batch {
    wanted: Vec<(u64, u64, bool)>,
    all: Option<bool>,
}

impl Batch {
    /// Enable a hook.
    pub fn enable(&mut self, hook: &Hook) {
        self.wanted.push((hook.at, hook.number, true));
    }

    /// Disable a hook. Calls that have begun have their handler at the return.
    pub fn disable(&mut self, hook: &Hook) {
        self.wanted.push((hook.at, hook.number, false));
    }

    /// Enable all hooks that there are, but for what is said of one.
    pub fn enable_all(&mut self) {
        self.all = Some(true);
    }

    /// Disable all hooks that there are, but for what is said of one.
    pub fn disable_all(&mut self) {
        self.all = Some(false);
    }
}

impl Hook {
    /// Enable it alone.
    ///
    /// # Errors
    /// As [`Live::batch`].
    pub fn enable(&self) -> Result<Notes> {
        self.live.batch(|batch| batch.enable(self))
    }

    /// Disable it alone.
    ///
    /// # Errors
    /// As [`Live::batch`].
    pub fn disable(&self) -> Result<Notes> {
        self.live.batch(|batch| batch.disable(self))
    }

    /// Whether the hook is enabled.
    pub fn is_enabled(&self) -> bool {
        self.live.0.with(|state| {
            let attached = state.attached.get(&self.at);
            attached.is_some_and(|a| a.users.iter().any(|user| user.number == self.number && user.enabled))
        })
    }

    /// Calls the function without its hooks; of one that replaces it, with those that were attached before and replace it too. It is
    /// there for ever.
    pub fn original(&self) -> *const () {
        self.original as *const ()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let (at, number) = (self.at, self.number);
        let process = self.live.0;
        // What cannot be taken away is left, and harms nobody.
        let _ = process.with(|state| state.detach(at, number, &process.patcher, process.backend));
    }
}

thread_local! {
    /// While this thread forks.
    static HELD: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

/// Let nobody change code while a thread forks: the child has that thread alone, and no other one could go on.
fn follow_forks() {
    extern "C" fn before() {
        // A handler that forks may have interrupted what has the lock.
        let process = PROCESS.get().filter(|_| !calls::is_aside());
        HELD.set(process.map(|process| process.state.lock().unwrap_or_else(PoisonError::into_inner)));
    }
    extern "C" fn in_parent() {
        drop(HELD.take());
    }
    extern "C" fn in_child() {
        calls::forget_other_threads();
        buffers::forget();
        drop(HELD.take());
    }
    calls::at_fork(before, in_parent, in_child);
}

impl Process {
    fn found(&self) -> Found<'_> {
        Found { backend: self.backend, traps: self.traps, writer: &self.patcher.writer }
    }

    /// Whoever has the lock is not reported, and calls no handlers.
    fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        aside(|| {
            let mut state: MutexGuard<State> = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            run(&mut state)
        })
    }

    fn attach(&'static self, function: &Function, wanted: Wanted) -> Result<Hook> {
        let at = function.entry.at;
        let (number, original) = self.with(|state| state.attach(function, wanted, self))?;
        Ok(Hook { live: Live(self), at, number, original })
    }
}

/// The most bytes that the instructions at an entry take elsewhere.
const MOVED: usize = 160;

/// The number of attempts to find room, if another thread takes what was found.
const TRIES: u32 = 64;
/// What stays free for the program above a place where the kernel puts mappings, in bytes.
const CLEAR: u64 = 96 << 20;

impl State {
    fn attach(&mut self, function: &Function, wanted: Wanted, process: &Process) -> Result<(u64, u64)> {
        let at = function.entry.at;
        let writer = &process.patcher.writer;
        if self.attached.get(&at).is_some_and(|attached| attached.site.untouched(writer).is_err()) {
            self.forget_unloaded(writer);
        }
        let mut attached = match self.attached.remove(&at) {
            Some(attached) => attached,
            None => {
                let before = self.unloaded.remove(&at);
                match before.and_then(|before| before.again(function, &mut self.objects)) {
                    Some(again) => again,
                    None => self.begin(function, process)?,
                }
            }
        };
        let done = self.add(&mut attached, function, wanted, process);
        self.attached.insert(at, attached);
        done
    }

    /// Add a user to a function. Gives its number, and the function without it.
    fn add(
        &mut self,
        attached: &mut Attached,
        function: &Function,
        wanted: Wanted,
        process: &Process,
    ) -> Result<(u64, u64)> {
        attached.site.untouched(&process.patcher.writer)?;
        let (does, below) = match wanted {
            Wanted::Around(handlers) => {
                if attached.around.is_none() {
                    attached.around = Some(self.trampoline(attached, function, process)?);
                }
                (Does::Around(handlers), attached.callable)
            }
            Wanted::Replace(with) => {
                let below = attached.top();
                let turn = self.turn(attached, below, process.backend)?;
                let near = self.reach(attached, with, process.backend)?;
                (Does::Replace(Replaced { with, near, below, turn }), below)
            }
        };
        self.next += 1;
        attached.users.push(User { number: self.next, enabled: false, does });
        attached.tell();
        Ok((self.next, below))
    }

    /// The facts about a function before anything is attached to it.
    fn begin(&mut self, function: &Function, process: &Process) -> Result<Attached> {
        let entry = &function.entry;
        let text = self.objects.text(function)?;
        let Moved { branch, signed, resume, original } = self.moved(function, process)?;
        let (room, object) = (entry.room.clone(), function.object.clone());
        // Behind the room there is no landing pad.
        let callable = match room == At::Left && objects::is_guarded(&text) {
            true => self.put(&function.name, (entry.at, branch), STUB, process.backend, &|from| {
                Ok(process.backend.branch(branch, from, resume)?)
            })?,
            false => resume - signed.map_or(0, |signing| signing.sign.len() as u64),
        };
        let site = Site::new(&function.name, entry.at, text, original.clone());
        Ok(Attached {
            site,
            object,
            original,
            room,
            branch,
            signed,
            resume,
            callable,
            inner: None,
            around: None,
            users: Vec::new(),
            changed: false,
        })
    }

    /// The branch for an entry, where the function goes on, and what is there now. Of that, instructions are moved if they have to be.
    fn moved(&mut self, function: &Function, process: &Process) -> Result<Moved> {
        let (entry, backend) = (&function.entry, process.backend);
        let bytes = |covers: usize| entry.bytes.get(..covers).unwrap_or_default().to_vec();
        let long = |branch| backend.branch(branch, entry.at, entry.at).map(|jump| jump.len());
        let branches = match &entry.room {
            At::Left => &[][..],
            At::Moved(branches) => branches,
            At::Trap => {
                let make = |to: u64| Ok(backend.moved(&entry.bytes, entry.at, to)?);
                let resume = self.put(&function.name, (entry.at, Branch::SiteJump), MOVED, backend, &make)?;
                let original = Code { bytes: entry.bytes.clone(), moved: Vec::new() };
                return Ok(Moved { branch: Branch::SiteJump, signed: None, resume, original });
            }
        };
        if branches.is_empty() {
            let resume = entry.at + entry.bytes.len() as u64;
            let jump = backend.branch(Branch::SiteJump, entry.at, entry.at)?;
            let bytes = bytes(jump.len());
            let one = bytes == (MACHINE.idle)(&jump);
            let inner = (MACHINE.nop..bytes.len()).step_by(MACHINE.nop).filter(|_| !one);
            let original = Code { moved: inner.map(|n| (n as u64, resume)).collect(), bytes };
            return Ok(Moved { branch: Branch::SiteJump, signed: None, resume, original });
        }
        let mut refused = Err(Error::OutOfReach { function: function.name.clone() });
        for fits in branches {
            let covered = bytes(fits.covers);
            let move_from = |state: &mut State, n: usize| {
                let (code, from) = (covered.get(n..).unwrap_or_default(), entry.at + n as u64);
                let make = |to: u64| Ok(backend.resumed(fits, code, from, to)?);
                state.put(&function.name, (entry.at, fits.branch), MOVED, backend, &make)
            };
            // A part of an instruction is none.
            let begins = |n: &usize| backend.moved(covered.get(..*n).unwrap_or_default(), entry.at, entry.at).is_ok();
            let inner: Vec<usize> = (MACHINE.nop..fits.covers).step_by(MACHINE.nop).filter(begins).collect();
            let signs = fits.signed.map_or(0, |signing| signing.sign.len() as u64);
            let all = move_from(self, 0).and_then(|copy| {
                let inner = inner.into_iter().map(|n| Ok((n as u64, move_from(self, n)? + signs)));
                let original = Code { moved: inner.collect::<Result<_>>()?, bytes: bytes(long(fits.branch)?) };
                Ok(Moved { branch: fits.branch, signed: fits.signed, resume: copy + signs, original })
            });
            match all {
                Ok(all) => return Ok(all),
                Err(e) => refused = Err(e),
            }
        }
        refused
    }

    /// The trampoline of a function, which is made once.
    fn trampoline(
        &mut self,
        attached: &mut Attached,
        function: &Function,
        process: &Process,
    ) -> Result<(u64, &'static Hooked)> {
        let around = match &function.prototype {
            Some(prototype) => Arc::new(Around::framed(prototype)?),
            None => match &self.around {
                Some(around) => around.clone(),
                None => self.around.insert(Arc::new(Around::in_place()?)).clone(),
            },
        };
        let backend = process.backend;
        let inner = match attached.inner {
            Some(inner) => inner,
            None => *attached.inner.insert(self.turn(attached, attached.top(), backend)?),
        };
        let copy = |to: u64| around.copy(backend, to, inner.at);
        let to = self.put(&function.name, attached.near(), around.len(), backend, &copy)?;
        let returns_to = around.describe(to)?;
        let to = self.authenticated(attached, to, backend)?;
        let hooked = Hooked::new(&function.name, function.range.start, (inner.at, returns_to), around.layout);
        Ok((to, hooked))
    }

    /// Code that goes there, and elsewhere when it is told.
    fn turn(&mut self, attached: &Attached, to: u64, backend: &dyn Patch) -> Result<Turn> {
        let to: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(to)));
        let code = machine::turn(ptr::from_ref(to) as u64);
        let at = self.put(&attached.site.function, attached.near(), STUB, backend, &|_| Ok(code.clone()))?;
        Ok(Turn { at, to })
    }

    /// An address that leads to `with` and that the function's entry reaches.
    fn reach(&mut self, attached: &Attached, with: u64, backend: &dyn Patch) -> Result<u64> {
        let (at, branch) = attached.near();
        if attached.signed.is_some() {
            return self.authenticated(attached, with, backend);
        }
        if backend.branch(branch, at, with).is_ok() {
            return Ok(with);
        }
        let far = |from| Ok(backend.branch(Branch::Far, from, with)?);
        self.put(&attached.site.function, attached.near(), STUB, backend, &far)
    }

    /// Where the function's entry is to lead for code that expects a return address that is not signed.
    fn authenticated(&mut self, attached: &Attached, to: u64, backend: &dyn Patch) -> Result<u64> {
        let Some(signing) = attached.signed else { return Ok(to) };
        let make = |at| Ok(backend.authenticated(signing, Branch::Far, at, to)?);
        self.put(&attached.site.function, attached.near(), STUB, backend, &make)
    }

    /// Put code where this branch at `near` reaches it. It is made for the place.
    fn put(
        &mut self,
        function: &str,
        (near, branch): (u64, Branch),
        bytes: usize,
        backend: &dyn Patch,
        make: &dyn Fn(u64) -> Result<Vec<u8>>,
    ) -> Result<u64> {
        let reaches = |from: u64, to: u64| backend.branch(branch, from & !3, to & !3).is_ok();
        let both =
            |at: u64, end: u64| reaches(near, at) && reaches(near, end) && reaches(at, near) && reaches(end, near);
        let fits = |room: &&mut Room| room.next(bytes).is_some_and(|at| both(at, at + bytes as u64));
        if let Some(room) = self.rooms.iter_mut().find(fits) {
            let at = room.next(bytes).unwrap_or_default();
            room.put(&make(at)?);
            return Ok(at);
        }
        let size = 16 * PAGE;
        // Other threads map memory too, and an emulator has some that nobody sees, the more the farther.
        let mut taken: Vec<Mapping> = Vec::new();
        let found = |tried: u32| {
            let mut mappings = threads::mappings();
            mappings.extend(taken.iter().cloned());
            let at = maps::gap(&mappings, &(near..near), size, (1 << 31, CLEAR), PAGE, &|at| both(at, at + size))?;
            let room = Room::new(at, size).ok();
            let beside = (size << (tried / 8)) - size;
            let range = at.saturating_sub(beside)..at.saturating_add(size + beside);
            taken.push(Mapping { range, protection: 0, offset: 0, path: String::new() });
            Some((at, room?))
        };
        let (at, mut room) =
            (0..TRIES).find_map(found).ok_or_else(|| Error::OutOfReach { function: function.to_owned() })?;
        room.put(&make(at)?);
        self.rooms.push(room);
        Ok(at)
    }

    fn run(&mut self, batch: Batch, patcher: &Patcher, backend: &dyn Patch) -> Result<Notes> {
        let Batch { wanted, all } = batch;
        let before: Vec<(u64, u64, bool)> = self
            .attached
            .iter()
            .flat_map(|(at, attached)| attached.users.iter().map(|user| (*at, user.number, user.enabled)))
            .collect();
        // What is said last of a hook holds.
        let said: HashMap<u64, bool> = wanted.into_iter().map(|(_, number, enabled)| (number, enabled)).collect();
        for (at, number, enabled) in &before {
            self.set(*at, *number, said.get(number).copied().or(all).unwrap_or(*enabled));
        }
        let done = self.write(patcher, backend);
        if done.is_err() {
            before.into_iter().for_each(|(at, number, enabled)| self.set(at, number, enabled));
            self.attached.values_mut().for_each(|attached| attached.changed = false);
            self.attached.values().for_each(Attached::tell);
        }
        done
    }

    fn set(&mut self, at: u64, number: u64, enabled: bool) {
        let Some(attached) = self.attached.get_mut(&at) else { return };
        if let Some(user) = attached.users.iter_mut().find(|user| user.number == number) {
            attached.changed |= user.enabled != enabled;
            user.enabled = enabled;
        }
    }

    fn detach(&mut self, at: u64, number: u64, patcher: &Patcher, backend: &dyn Patch) -> Result<Notes> {
        self.set(at, number, false);
        let done = self.write(patcher, backend)?;
        if let Some(attached) = self.attached.get_mut(&at) {
            attached.users.retain(|user| user.number != number);
            attached.changed |= attached.users.is_empty();
            return self.write(patcher, backend);
        }
        Ok(done)
    }

    /// Let code be what the hooks want, and where nobody is attached any more, the function's own.
    fn write(&mut self, patcher: &Patcher, backend: &dyn Patch) -> Result<Notes> {
        let done = match self.try_to_write(patcher, backend) {
            Err(Error::Foreign { .. }) if self.forget_unloaded(&patcher.writer) => self.try_to_write(patcher, backend),
            done => done,
        };
        self.attached.values_mut().for_each(|attached| attached.changed = false);
        done
    }

    /// Forget functions whose object is not there any more, or was loaded again. Were there any?
    fn forget_unloaded(&mut self, writer: &Writer) -> bool {
        let (mappings, before) = (threads::mappings(), self.attached.len());
        let gone = self.attached.extract_if(|at, attached| {
            let there = mappings.iter().find(|mapping| mapping.range.contains(at));
            // The path of a file that was deleted has more behind it.
            let same = there.is_some_and(|there| there.path.starts_with(&*attached.object.to_string_lossy()));
            let bytes = &attached.original.bytes;
            let again = || attached.site.untouched(writer).is_err() && writer.read(*at, bytes.len()) == *bytes;
            !same || again()
        });
        self.unloaded.extend(gone);
        self.attached.len() < before
    }

    fn try_to_write(&mut self, patcher: &Patcher, backend: &dyn Patch) -> Result<Notes> {
        let mut changes = Vec::new();
        for attached in self.attached.values_mut().filter(|a| a.changed || a.site.is_trapped()) {
            attached.tell();
            let (to, way) = attached.wanted(backend)?;
            changes.push(Change { site: &mut attached.site, to, way });
        }
        patcher.apply(changes)
    }
}

impl Attached {
    /// The same for a function that was loaded again, if nothing of it is another.
    fn again(self, function: &Function, objects: &mut Objects) -> Option<Attached> {
        let (entry, bytes) = (&function.entry, &self.original.bytes);
        let text = objects.text(function).ok()?;
        let same = (&self.room, &self.object, &self.site.function) == (&entry.room, &function.object, &function.name);
        let same = same && self.site.text == text && entry.bytes.starts_with(bytes);
        let site = Site::new(&function.name, entry.at, text, self.original.clone());
        same.then(|| Attached { site, users: Vec::new(), changed: false, ..self })
    }

    /// The branch at the entry.
    fn near(&self) -> (u64, Branch) {
        (self.site.at, self.branch)
    }

    /// The replacements of the function, in the order in which they were attached.
    fn replaced(&self) -> impl DoubleEndedIterator<Item = (&User, Replaced)> {
        self.users.iter().filter_map(|user| match user.does {
            Does::Around(_) => None,
            Does::Replace(replaced) => Some((user, replaced)),
        })
    }

    /// The function with all that replaces it, for whoever calls that address. Those that leave are passed by.
    fn top(&self) -> u64 {
        self.replaced().next_back().map_or(self.callable, |(_, replaced)| replaced.turn.at)
    }

    /// Tell the trampoline whose handlers it has, and calls on their way where they go.
    fn tell(&self) {
        for (user, replaced) in self.replaced() {
            let to = if user.enabled { replaced.with } else { replaced.below };
            replaced.turn.to.store(to, Ordering::SeqCst);
        }
        if let Some(inner) = self.inner {
            inner.to.store(self.top(), Ordering::SeqCst);
        }
        let Some((_, hooked)) = self.around else { return };
        hooked.set(self.handlers().collect());
    }

    /// The users whose handlers are called, in the order in which they were attached.
    fn handlers(&self) -> impl Iterator<Item = &'static Handlers> {
        self.users.iter().filter(|user| user.enabled).filter_map(|user| match user.does {
            Does::Around(handlers) => Some(handlers),
            Does::Replace(_) => None,
        })
    }

    /// The code that the entry is to have, and the address at which threads go on meanwhile.
    fn wanted(&self, backend: &dyn Patch) -> Result<(Code, u64)> {
        let instead = || self.replaced().rfind(|(user, _)| user.enabled).map(|(_, replaced)| replaced.near);
        let to = match self.handlers().next() {
            Some(_) => self.around.map(|(to, _)| to),
            None => instead(),
        };
        let at = self.site.at;
        if let (At::Trap, Some(to)) = (&self.room, to) {
            let rest = self.original.bytes.iter().skip(MACHINE.trap.len());
            let bytes = MACHINE.trap.iter().chain(rest).copied().collect();
            return Ok((Code { bytes, moved: Vec::new() }, to));
        }
        let bytes = backend.branch(self.branch, at, to.unwrap_or(at))?;
        let inner = |to: u64| (MACHINE.piece..bytes.len()).step_by(MACHINE.piece).map(|n| (n as u64, to)).collect();
        match to {
            Some(to) => Ok((Code { moved: inner(to), bytes }, to)),
            None if self.room != At::Left || self.users.is_empty() || self.site.code() == &self.original => {
                Ok((self.original.clone(), self.resume))
            }
            None => {
                let idle = (MACHINE.idle)(&self.site.code().bytes);
                Ok((Code { moved: inner(self.resume), bytes: idle }, self.resume))
            }
        }
    }
}
