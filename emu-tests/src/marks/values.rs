//! What is known of registers and of the stack at an instruction.

use std::collections::BTreeMap;

use codegen::arch::moves::{Modifier, Move, Seal};
use codegen::words::abi::{Abi, Reg};

use crate::engine::unwind::Frame;

/// What a register or a word of the stack holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// Nobody knows.
    Unknown,
    /// A place of the stack: bytes from SP at the function's entry, or from where the instruction at this address put SP.
    Stack { from: Option<u64>, bytes: i64 },
    /// The function's return address; perhaps it has been in memory, where nothing guarded it.
    Return { stored: bool },
    /// The same, signed. SP was here.
    Signed { seal: Seal, sp: Option<(Option<u64>, i64)> },
    /// A number.
    Number(i64),
    /// The address behind the call here.
    Behind(u64),
    /// What the caller has there, or what memory has that is not the function's: it does not come from this call.
    Foreign,
}

impl Value {
    /// Is it the return address, in whatever form?
    pub fn is_return(self) -> bool {
        matches!(self, Value::Return { .. } | Value::Signed { .. })
    }

    /// What is known of a value that is the one or the other.
    fn or(self, other: Value) -> Value {
        match (self, other) {
            _ if self == other => self,
            (Value::Return { .. }, Value::Return { .. }) => Value::Return { stored: true },
            _ => Value::Unknown,
        }
    }
}

/// Registers and stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    regs: Vec<Value>,
    stack: BTreeMap<(Option<u64>, i64), Value>,
    /// The return address was stored where nobody knows, or where the caller says.
    apart: bool,
    /// The function has called the next instruction, and that call has no return.
    pub taken: bool,
    /// What it has put onto the shadow stack.
    pub pushed: Option<Value>,
    /// What it has put onto the shadow call stack.
    pub scs: Option<Value>,
}

impl State {
    /// At a function's entry.
    pub fn entry(abi: &Abi) -> State {
        let regs = vec![Value::Foreign; abi.regs.len()];
        let mut state = State { regs, stack: BTreeMap::new(), apart: false, taken: false, pushed: None, scs: None };
        state.set(abi.sp, Value::Stack { from: None, bytes: 0 });
        match abi.link {
            Some(link) => state.set(link, Value::Return { stored: false }),
            None => drop(state.stack.insert((None, 0), Value::Return { stored: false })),
        }
        state
    }

    /// What the register holds.
    pub fn get(&self, reg: Reg) -> Value {
        self.regs.get(usize::from(reg.0)).copied().unwrap_or(Value::Unknown)
    }

    pub fn set(&mut self, reg: Reg, value: Value) {
        if let Some(place) = self.regs.get_mut(usize::from(reg.0)) {
            *place = value;
        }
    }

    /// What eight bytes of memory hold.
    pub fn load(&self, at: Value, plus: i64) -> Value {
        match at {
            Value::Stack { from, bytes } => {
                let place = (from, bytes.wrapping_add(plus));
                let above = from.is_none() && place.1 >= 0;
                self.stack.get(&place).copied().unwrap_or(if above { Value::Foreign } else { Value::Unknown })
            }
            Value::Foreign | Value::Number(_) if !self.apart => Value::Foreign,
            _ => Value::Unknown,
        }
    }

    fn store(&mut self, at: Value, plus: i64, bytes: u8, what: Value) {
        let Value::Stack { from, bytes: base } = at else {
            self.apart |= what.is_return();
            return;
        };
        let place = base.wrapping_add(plus);
        let reaches = place.saturating_sub(7)..place.saturating_add(bytes.into());
        let lost: Vec<_> = self.stack.range((from, reaches.start)..(from, reaches.end)).map(|(key, _)| *key).collect();
        for key in lost {
            self.stack.remove(&key);
        }
        // What is written over is no longer the caller's.
        let known = match what {
            _ if bytes != 8 => Value::Unknown,
            Value::Return { .. } => Value::Return { stored: true },
            other => other,
        };
        self.stack.insert((from, place), known);
    }

    /// The return address as it is with this seal, where SP is.
    pub fn sealed(&self, abi: &Abi, seal: Seal) -> Value {
        let sp = match (seal, self.get(abi.sp)) {
            (Seal { modifier: Modifier::Sp, .. }, Value::Stack { from, bytes }) => Some((from, bytes)),
            _ => None,
        };
        Value::Signed { seal, sp }
    }

    /// An instruction at `pc` makes this move.
    pub fn step(&mut self, abi: &Abi, step: Move, pc: u64) {
        match step {
            Move::Add { to, from, plus } => self.set(to, moved(self.get(from), plus)),
            Move::Number { to, value } => self.set(to, Value::Number(value)),
            Move::Sum { to, from, by, minus } => {
                let sum = match (self.get(from), self.get(by)) {
                    (of, Value::Number(n)) => moved(of, if minus { n.wrapping_neg() } else { n }),
                    (Value::Number(n), of) if !minus => moved(of, n),
                    // A frame whose size is not known begins at a place of its own.
                    (Value::Stack { .. }, _) => Value::Stack { from: Some(pc), bytes: 0 },
                    _ => Value::Unknown,
                };
                self.set(to, sum);
            }
            Move::Align(reg) => {
                let aligned = match self.get(reg) {
                    Value::Stack { .. } => Value::Stack { from: Some(pc), bytes: 0 },
                    _ => Value::Unknown,
                };
                self.set(reg, aligned);
            }
            Move::Load { to, at, plus } => self.set(to, self.load(self.get(at), plus)),
            Move::Store { what, at, plus, bytes } => {
                self.store(self.get(at), plus, bytes, what.map_or(Value::Unknown, |reg| self.get(reg)));
            }
            Move::Swap(a, b) => {
                let (was_a, was_b) = (self.get(a), self.get(b));
                self.set(a, was_b);
                self.set(b, was_a);
            }
            Move::Lose(reg) => self.set(reg, Value::Unknown),
            Move::Sign(reg, seal) if matches!(self.get(reg), Value::Return { .. }) => {
                self.set(reg, self.sealed(abi, seal));
            }
            Move::Authenticate(reg, _) if matches!(self.get(reg), Value::Signed { .. }) => {
                self.set(reg, Value::Return { stored: false });
            }
            Move::Sign(reg, _) | Move::Authenticate(reg, _) => self.set(reg, Value::Unknown),
            Move::Push(reg) => self.pushed = Some(self.get(reg)),
            Move::PushScs(reg) => self.scs = Some(self.get(reg)),
            Move::PopScs(reg) => {
                let popped = self.scs.take().unwrap_or(Value::Unknown);
                let plain = matches!(popped, Value::Return { .. });
                self.set(reg, if plain { Value::Return { stored: false } } else { popped });
            }
            // Behind the check it is what was pushed.
            Move::PopCheck(reg) => match self.pushed.take() {
                Some(Value::Return { .. }) => self.set(reg, Value::Return { stored: false }),
                _ => self.set(reg, Value::Unknown),
            },
            Move::ShadowPointer | Move::ShadowRead | Move::Stop => {}
        }
    }

    /// A function was called, and has returned to `next`.
    pub fn called(&mut self, abi: &Abi, next: u64) {
        for reg in abi.caller_saved.iter() {
            self.set(reg, Value::Unknown);
        }
        if let Some(link) = abi.link {
            self.set(link, Value::Behind(next));
        }
    }

    /// A call of the next instruction puts its address onto the stack.
    pub fn called_next(&mut self, abi: &Abi, next: u64) {
        match abi.link {
            Some(link) => self.set(link, Value::Behind(next)),
            None => {
                self.step(abi, Move::Add { to: abi.sp, from: abi.sp, plus: -8 }, next);
                self.store(self.get(abi.sp), 0, 8, Value::Behind(next));
            }
        }
        self.taken = true;
    }

    /// What a return by this register goes to; `None` where the stack has it.
    pub fn returns_to(&self, abi: &Abi, by: Option<Reg>) -> Value {
        by.map_or_else(|| self.load(self.get(abi.sp), 0), |reg| self.get(reg))
    }

    /// Is everything as the caller left it, so that another function can be jumped to?
    pub fn is_as_called(&self, abi: &Abi) -> bool {
        let sp = self.get(abi.sp) == Value::Stack { from: None, bytes: 0 };
        sp && !self.taken && self.scs.is_none() && matches!(self.returns_to(abi, abi.link), Value::Return { .. })
    }

    /// How much is known: what it costs to compare it.
    pub fn size(&self) -> u64 {
        (self.regs.len() + self.stack.len()) as u64
    }

    /// Does this register, plus these bytes, lead to where SP was before the function was called?
    pub fn is_frame(&self, abi: &Abi, (reg, bytes): (Reg, i64)) -> bool {
        let before = abi.return_bytes() as i64;
        moved(self.get(reg), bytes) == Value::Stack { from: None, bytes: before }
    }

    /// Is the return address signed where the unwind table says that it is not, or the other way round?
    pub fn is_misstated(&self, abi: &Abi, frame: &Frame) -> bool {
        let (reg, bytes) = frame.cfa;
        let there = frame.link.map(|offset| self.load(moved(self.get(reg), bytes), offset));
        match there.or(abi.link.map(|link| self.get(link))) {
            Some(Value::Signed { .. }) => !frame.signed,
            Some(Value::Return { .. }) => frame.signed,
            _ => false,
        }
    }

    /// Is something of the function's own on the stack?
    pub fn has_frame(&self, abi: &Abi) -> bool {
        matches!(self.get(abi.sp), Value::Stack { from, bytes } if from.is_some() || bytes != 0)
    }

    /// What is known on both ways. Returns whether that is less than was known.
    pub fn meet(&mut self, other: &State) -> bool {
        let before = self.clone();
        for (value, also) in self.regs.iter_mut().zip(&other.regs) {
            *value = value.or(*also);
        }
        for (key, value) in &mut self.stack {
            *value = other.stack.get(key).map_or(Value::Unknown, |also| value.or(*also));
        }
        for key in other.stack.keys() {
            self.stack.entry(*key).or_insert(Value::Unknown);
        }
        let both = |one: Option<Value>, other: Option<Value>| match (one, other) {
            (Some(one), Some(other)) => Some(one.or(other)),
            (None, None) => None,
            _ => Some(Value::Unknown),
        };
        (self.pushed, self.scs) = (both(self.pushed, other.pushed), both(self.scs, other.scs));
        self.taken |= other.taken;
        self.apart |= other.apart;
        *self != before
    }
}

fn moved(value: Value, plus: i64) -> Value {
    match value {
        Value::Stack { from, bytes } => Value::Stack { from, bytes: bytes.wrapping_add(plus) },
        Value::Number(n) => Value::Number(n.wrapping_add(plus)),
        other if plus == 0 => other,
        Value::Foreign => Value::Foreign,
        _ => Value::Unknown,
    }
}
