//! What registers and words hold while a listing is followed: never a number that a run would have, but where it is from.

use crate::words::abi::{Abi, Reg};
use crate::words::recorder::{Event, Recorder};
use crate::words::step::Sym;

/// Why nobody can tell what a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// Nothing was stored there since SP came down to it.
    Unwritten,
    /// What was called may have overwritten it.
    Clobbered,
    /// It was computed in a way that makes no sense here.
    Computed,
}

/// Where a value is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Root {
    /// It cannot be told.
    Lost(Why),
    /// It is a number.
    Number,
    /// What the register held at the start.
    Register(Reg),
    /// Eight bytes of what the vector register held at the start: which one, and which eight.
    Vector(u8, u8),
    /// The flags at the start.
    Flags,
    /// SP at the start.
    Stack,
    /// The word so many bytes above SP at the start, which somebody else put there.
    Word(i32),
    /// Where the traced function goes on.
    Pc,
    /// The return address of the traced function; of a C function, its own.
    Parent,
    /// The same, signed for SP at the start.
    Signed,
    /// pc, down to a multiple of 8.
    Rounded,
    /// The `ftrace_ops` that a literal before the function names.
    Literal,
    /// The word so many bytes into the `ftrace_ops`.
    OpField(i32),
    /// The address of a symbol.
    Symbol(Sym),
    /// The word at a symbol.
    Content(Sym),
    /// The high part of a symbol's address, from the instruction on this line.
    High(Sym, u16),
    /// The address behind the instruction on this line.
    Next(u16),
    /// What call number n left in the slot so many bytes above SP at the start.
    Left(i32, u8),
    /// The lowest bit of that.
    LowBit(i32, u8),
    /// What call number n returned.
    Returned(u8),
    /// The thread pointer.
    Thread,
    /// The high part of the offset of a thread-local variable, and whether the thread pointer was added to it.
    TlsHigh(Sym, bool),
    /// The thread's own copy of a variable.
    Tls(Sym),
    /// The thread's word at this place, as the contract counts.
    ThreadWord(i32),
    /// The slot for a record that was taken as this one.
    Slot(u8),
    /// Where in a block of [`Recorder::BLOCK`] bytes the address so many bytes above that slot lies.
    InBlock(u8, i32),
    /// The top of the shadow stack, as it is when the function has returned: what lies there nobody knows.
    Top,
    /// SP in the entry so many bytes from there.
    KeptSp(i64),
    /// The bit of the slot with this number that says that there is no room.
    Full(u8),
    /// The CPU's clock: how many slots were taken when it was read, and which half if not the whole.
    Clock(u8, Option<Half>),
    /// What the traced function left in the register when it returned.
    Body(Reg),
    /// The exception with which the unwinder came.
    Exception,
    /// The same of eight bytes of a vector register.
    BodyVector(u8, u8),
}

/// Half of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Half {
    Low,
    High,
}

/// A value: where it is from, and what was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub root: Root,
    pub add: i64,
}

impl Value {
    pub const fn of(root: Root) -> Value {
        Value { root, add: 0 }
    }

    pub const fn number(n: i64) -> Value {
        Value { root: Root::Number, add: n }
    }

    pub const fn lost(why: Why) -> Value {
        Value::of(Root::Lost(why))
    }

    /// So many bytes above SP at the start.
    pub const fn stack(offset: i32) -> Value {
        Value { root: Root::Stack, add: offset as i64 }
    }

    pub fn plus(self, n: i64) -> Value {
        Value { add: self.add.wrapping_add(n), ..self }
    }

    /// Surely the same: what cannot be told is the same as nothing.
    pub fn is(self, other: Value) -> bool {
        self == other && !matches!(self.root, Root::Lost(_))
    }

    /// Its distance from SP at the start, if it is an address on the stack.
    pub fn on_stack(self) -> Option<i32> {
        if self.root == Root::Stack { i32::try_from(self.add).ok() } else { None }
    }
}

/// Bytes above SP at the start up to which words are kept here: what a site's call pushes, and what it finds.
const TOP: i32 = 32;

/// The stack, by words.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// From [`TOP`] down.
    words: Vec<Value>,
}

impl Memory {
    /// What the caller put there, and nothing of our own.
    pub fn new() -> Memory {
        let mut memory = Memory { words: Vec::with_capacity(64) };
        (0..TOP / 8).for_each(|word| memory.store(8 * word, Value::of(Root::Word(8 * word))));
        memory
    }

    fn index(offset: i32) -> Option<usize> {
        usize::try_from((TOP - 8 - offset) / 8).ok().filter(|_| offset % 8 == 0 && offset < TOP)
    }

    pub fn load(&self, offset: i32) -> Value {
        match Memory::index(offset) {
            Some(i) => self.words.get(i).copied().unwrap_or(Value::lost(Why::Unwritten)),
            None if offset % 8 == 0 => Value::of(Root::Word(offset)),
            None => Value::lost(Why::Computed),
        }
    }

    pub fn store(&mut self, offset: i32, value: Value) {
        // No frame is so large: it is a fault that is found elsewhere.
        let Some(i) = Memory::index(offset).filter(|i| *i < 1 << 16) else { return };
        if i >= self.words.len() {
            self.words.resize(i + 1, Value::lost(Why::Unwritten));
        }
        self.words[i] = value;
    }

    /// An interrupt may overwrite what is below SP.
    pub fn forget_below(&mut self, sp: i32) {
        if let Some(last) = Memory::index(sp) {
            self.words.truncate(last + 1);
        }
    }

    pub fn replace(&mut self, from: Value, to: Value) {
        self.words.iter_mut().filter(|word| **word == from).for_each(|word| *word = to);
    }
}

/// What a trampoline that records knows of its thread.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub recorder: Recorder,
    /// Bytes to the cursor, the limit and the counter, from the thread pointer or in the contract's variable.
    pub cursor: i32,
    pub limit: i32,
    pub count: i32,
    /// The same to the two words of the shadow stack, if there is one.
    pub shadow: Option<[i32; 2]>,
    /// The variable with the time.
    pub clock: Option<Sym>,
}

impl Places {
    /// The events of which there must be records on this way, in their order.
    pub fn due(&self, state: &State) -> &'static [Event] {
        match state.shadow.full {
            // The function is not traced.
            Some(true) => &[],
            _ if state.thrown.is_some() => self.recorder.unwound(),
            _ => self.recorder.recorded(),
        }
    }
}

/// A slot that was taken.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// There is no room for it; nobody asked yet.
    pub full: Option<bool>,
    /// The time belongs into it, where only some have one; nobody asked yet.
    pub timed: Option<bool>,
    /// What was stored where in it.
    pub stores: Vec<(i32, Value)>,
    /// It is the second one for its event, after the routine was called that makes room.
    pub second: bool,
}

/// What happened to the thread's shadow stack.
#[derive(Clone, Debug, Default)]
pub(super) struct Shadow {
    /// It has no room; nobody asked yet.
    pub full: Option<bool>,
    /// An entry was taken.
    pub taken: bool,
    /// What was stored where in it.
    pub stores: Vec<(i64, Value)>,
    /// How many entries were another function's, from the top down.
    pub passed: i64,
    /// There is one below the last of them; nobody asked yet.
    pub below: Option<bool>,
    /// How far below the top the function's own entry is, once that is known.
    pub own: Option<i64>,
    /// It was given back, with all above.
    pub given_back: bool,
}

/// The CPU's state where it was stored.
#[derive(Clone, Debug)]
pub(super) struct Area {
    /// Where it begins.
    pub from: i32,
    /// Where it ends.
    pub to: i32,
    /// The vector registers in it.
    pub vectors: Box<[[Value; 2]; 32]>,
}

/// Registers, stack, and what happened on the way here.
#[derive(Clone, Debug)]
pub(super) struct State {
    registers: [Value; 32],
    pub vectors: [[Value; 2]; 32],
    pub flags: Value,
    /// Whether this is zero is what the flags say.
    pub tested: Option<Value>,
    /// Whether the first of these is below the second, they say too.
    pub compared: Option<(Value, Value)>,
    /// Slots that were taken for records.
    pub slots: Vec<Slot>,
    /// The routine was called that makes room, and no slot was taken since.
    pub refilled: bool,
    /// The shadow stack.
    pub shadow: Shadow,
    /// Times that the counter was counted up.
    pub counted: u32,
    pub memory: Memory,
    /// The CPU's state, if it was stored.
    pub area: Option<Area>,
    /// How many of the calls were made, or passed over.
    pub calls: usize,
    /// Where the frame is that a handler was shown, and the number of the call that it was last shown to.
    pub shown: Option<(i32, u8)>,
    /// The number of the call that was last shown results.
    pub results: Option<u8>,
    /// A callback chose a direct trampoline, or did not; nobody asked yet.
    pub direct: Option<bool>,
    /// The `ftrace_ops` names one, or does not.
    pub early: Option<bool>,
    /// The one that a callback chose is one that the site jumps to, or not.
    pub jump: Option<bool>,
    /// The number of the call of the program whose result stands for that of the traced function.
    pub skipped_by: Option<u8>,
    /// What the last call returned was looked at.
    pub decided: bool,
    /// The traced function was called.
    pub returned: bool,
    /// An exception left it, with SP here.
    pub thrown: Option<i32>,
}

impl State {
    /// Everything is as it was at the start.
    pub fn new(abi: &Abi) -> State {
        let mut state = State {
            registers: std::array::from_fn(|i| Value::of(Root::Register(Reg(i as u8)))),
            vectors: std::array::from_fn(|i| [0, 1].map(|half| Value::of(Root::Vector(i as u8, half)))),
            flags: Value::of(Root::Flags),
            tested: None,
            compared: None,
            slots: Vec::new(),
            refilled: false,
            shadow: Shadow::default(),
            counted: 0,
            memory: Memory::new(),
            area: None,
            calls: 0,
            shown: None,
            results: None,
            direct: None,
            jump: None,
            early: None,
            skipped_by: None,
            decided: false,
            returned: false,
            thrown: None,
        };
        state.set(abi.sp, Value::stack(0));
        state
    }

    pub fn get(&self, reg: Reg) -> Value {
        self.registers.get(usize::from(reg.0)).copied().unwrap_or(Value::lost(Why::Computed))
    }

    pub fn set(&mut self, reg: Reg, value: Value) {
        self.registers.get_mut(usize::from(reg.0)).into_iter().for_each(|r| *r = value);
    }

    pub fn vector(&self, vector: u8) -> [Value; 2] {
        self.vectors.get(usize::from(vector)).copied().unwrap_or([Value::lost(Why::Computed); 2])
    }

    /// It turned out that these are the same.
    pub fn replace(&mut self, from: Value, to: Value) {
        self.registers.iter_mut().filter(|r| **r == from).for_each(|r| *r = to);
        self.memory.replace(from, to);
    }
}
