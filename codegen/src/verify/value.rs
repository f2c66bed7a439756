//! Values of registers and words while the checker follows a listing: the origin of each value, never a number of a run.

use crate::words::abi::{Abi, Reg};
use crate::words::recorder::{Event, Recorder};
use crate::words::step::Sym;

/// The reason why a value is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// Nothing was stored there since SP came down to it.
    Unwritten,
    /// A callee may have overwritten it.
    Clobbered,
    /// It was computed in a way that the checker does not follow.
    Computed,
}

/// The origin of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Root {
    /// The value is unknown.
    Lost(Why),
    /// The value is a number.
    Number,
    /// The value of the register at the start.
    Register(Reg),
    /// Eight bytes of a vector register at the start: the register, and the index of the eight bytes.
    Vector(u8, u8),
    /// The flags at the start.
    Flags,
    /// SP at the start.
    Stack,
    /// The word at this offset from SP at the start, which other code has stored.
    Word(i32),
    /// The address at which the traced function goes on.
    Pc,
    /// The return address of the traced function; of a C function, its own.
    Parent,
    /// The return address of the traced function, signed with SP at the start.
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
    /// The value that call number n left in the slot at this offset from SP at the start.
    Left(i32, u8),
    /// The lowest bit of [`Root::Left`].
    LowBit(i32, u8),
    /// The return value of call number n.
    Returned(u8),
    /// The thread pointer.
    Thread,
    /// The high part of the offset of a thread-local variable, and whether the thread pointer was added to it.
    TlsHigh(Sym, bool),
    /// The thread's own copy of a variable.
    Tls(Sym),
    /// The thread's word at this offset, as in the contract.
    ThreadWord(i32),
    /// The slot for a record that was taken as this one.
    Slot(u8),
    /// The offset in a block of [`Recorder::BLOCK`] bytes of the address this many bytes above the slot.
    InBlock(u8, i32),
    /// The top of the shadow stack when the function has returned. Its contents are unknown.
    Top,
    /// SP in the entry at this offset from the top of the shadow stack.
    KeptSp(i64),
    /// The bit of the slot's address that is set if the buffer has no room, for the slot with this number.
    Full(u8),
    /// The CPU's clock: how many slots were taken when it was read, and which half if not the whole.
    Clock(u8, Option<Half>),
    /// The value of the register when the traced function returned.
    Body(Reg),
    /// The exception with which the unwinder came.
    Exception,
    /// The value of eight bytes of a vector register when the traced function returned.
    BodyVector(u8, u8),
}

/// Half of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Half {
    Low,
    High,
}

/// A value: its origin, and the number added to it.
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

    /// The address `offset` bytes above SP at the start.
    pub const fn stack(offset: i32) -> Value {
        Value { root: Root::Stack, add: offset as i64 }
    }

    pub fn plus(self, n: i64) -> Value {
        Value { add: self.add.wrapping_add(n), ..self }
    }

    /// Are both values certainly equal? Unknown values equal none.
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
    /// The stack at the start, with only the caller's words.
    pub fn new() -> Memory {
        let mut memory = Memory { words: Vec::with_capacity(64) };
        (0..TOP / 8).for_each(|word| memory.store(8 * word, Value::of(Root::Word(8 * word))));
        memory
    }

    fn index(offset: i32) -> Option<usize> {
        usize::try_from((TOP - 8 - offset) / 8).ok().filter(|_| offset % 8 == 0 && offset < TOP)
    }

    pub fn load(&self, offset: i32) -> Value {
        let aligned = offset.saturating_sub(offset.rem_euclid(8));
        let unwritten = Value::lost(Why::Unwritten);
        let word = match Memory::index(aligned) {
            Some(i) => self.words.get(i).copied().unwrap_or(unwritten),
            None => Value::of(Root::Word(aligned)),
        };
        if aligned == offset || word == unwritten { word } else { Value::lost(Why::Computed) }
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

    /// In how many words a value is.
    pub fn count(&self, value: Value) -> usize {
        self.words.iter().filter(|word| **word == value).count()
    }

    pub fn replace(&mut self, from: Value, to: Value) {
        self.words.iter_mut().filter(|word| **word == from).for_each(|word| *word = to);
    }
}

/// The offsets of the thread's words, for a trampoline that records.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub recorder: Recorder,
    /// Bytes to the cursor, the limit and the counter, from the thread pointer or in the contract's variable.
    pub cursor: i32,
    pub limit: i32,
    pub count: i32,
    /// The offsets of the two words of the shadow stack, if there is one.
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
    /// The buffer has no room for the slot; `None` if not tested yet.
    pub full: Option<bool>,
    /// The record needs the time, if only some do; `None` if not tested yet.
    pub timed: Option<bool>,
    /// The stores, by offset.
    pub stores: Vec<(i32, Value)>,
    /// The slot is the second one for its event, after a call of the refill routine.
    pub second: bool,
}

/// The state of the thread's shadow stack.
#[derive(Clone, Debug, Default)]
pub(super) struct Shadow {
    /// The shadow stack has no room; `None` if not tested yet.
    pub full: Option<bool>,
    /// An entry was taken.
    pub taken: bool,
    /// The stores, by offset.
    pub stores: Vec<(i64, Value)>,
    /// How many entries were another function's, from the top down.
    pub passed: i64,
    /// There is an entry below the last of these; `None` if not tested yet.
    pub below: Option<bool>,
    /// How far below the top the function's own entry is, once that is known.
    pub own: Option<i64>,
    /// The function's own entry was popped, with all above.
    pub given_back: bool,
}

/// The CPU's state where it was stored.
#[derive(Clone, Debug)]
pub(super) struct Area {
    /// The offset of the start.
    pub from: i32,
    /// The offset of the end.
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
    /// The value that the flags compare with zero.
    pub tested: Option<Value>,
    /// The values that the flags compare: is the first below the second?
    pub compared: Option<(Value, Value)>,
    /// Slots that were taken for records.
    pub slots: Vec<Slot>,
    /// The routine was called that makes room, and no slot was taken since.
    pub refilled: bool,
    /// The shadow stack.
    pub shadow: Shadow,
    /// What was pushed onto the CPU's shadow stack.
    pub pushed: Vec<Value>,
    /// Times that the counter was counted up.
    pub counted: u32,
    pub memory: Memory,
    /// The CPU's state, if it was stored.
    pub area: Option<Area>,
    /// How many of the calls were made, or passed over.
    pub calls: usize,
    /// The offset of the frame that a handler got, and the number of the last call that got it.
    pub shown: Option<(i32, u8)>,
    /// The number of the last call that got results.
    pub results: Option<u8>,
    /// A callback chose a direct trampoline; `None` if not tested yet.
    pub direct: Option<bool>,
    /// The `ftrace_ops` names a direct trampoline; `None` if not tested yet.
    pub early: Option<bool>,
    /// The direct trampoline that a callback chose is one to which the site jumps; `None` if not tested yet.
    pub jump: Option<bool>,
    /// The number of the call of the program whose result stands for that of the traced function.
    pub skipped_by: Option<u8>,
    /// The number of the call before the program that was not called, if there is one on this way.
    pub refused: Option<u8>,
    /// The offset of the run context that the function before a program was given.
    pub run_context: Option<i32>,
    /// The code has tested the return value of the last call.
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
            pushed: Vec::new(),
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
            refused: None,
            run_context: None,
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

    /// Replace `from` by `to` everywhere, as both are known to be equal.
    pub fn replace(&mut self, from: Value, to: Value) {
        self.registers.iter_mut().filter(|r| **r == from).for_each(|r| *r = to);
        self.memory.replace(from, to);
    }
}
