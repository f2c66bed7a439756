//! Frame layouts: tables of the slots in a trampoline's frame.
//!
//! Offsets stand in layouts and nowhere else. The planner saves and restores the slots of a layout, the text prints
//! their names, the manifest lists them, and the contract promises them.

use crate::ask::live::{Carriers, Live, MOST_WORDS, Word};
use crate::ask::spec::{Bracket, Program, Programs, TailCall};
use crate::words::abi::{Abi, Reg, RegSet};
use crate::words::error::{Error, Result};

/// The value in a slot when the callback is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// A register of the traced function.
    Reg(Reg),
    /// A callee-saved register that the trampoline uses for itself.
    Own(Reg),
    /// A result register, once the traced function has returned.
    Result(Reg),
    /// A vector argument register of the traced function: an index into the machine's table.
    Vector(u8),
    /// A vector result register, once the traced function has returned.
    VectorResult(u8),
    /// A word of the traced function's stack arguments.
    StackWord(u8),
    /// The cookie of the program that is called.
    Cookie,
    /// The word of the session with this number: zero when the trampoline is entered.
    Session(u8),
    /// The address of the site's first byte.
    Ip,
    /// The address at which the traced function goes on.
    Pc,
    /// The return address of the traced function.
    ParentIp,
    /// SP as it was at the site, before the site's call.
    SiteSp,
    /// SP as it was when a redirected return arrived.
    ExitSp,
    /// The flags register.
    Flags,
    /// A constant.
    Const(i32),
    /// Zero; a callback stores a direct trampoline's address here to leave for it.
    Direct,
    /// Not written: reading it is an error.
    Unfilled,
}

impl Content {
    const WORDS: [(&str, Content); 7] = [
        ("pc", Content::Pc),
        ("parent-ip", Content::ParentIp),
        ("site-sp", Content::SiteSp),
        ("exit-sp", Content::ExitSp),
        ("flags", Content::Flags),
        ("direct", Content::Direct),
        ("nothing", Content::Unfilled),
    ];

    /// The word from which [`Content::parse`] reads this content; `None` for contents that no structure has.
    pub fn word(self, abi: &Abi) -> Option<String> {
        let word = Content::WORDS.iter().find(|(_, content)| *content == self).map(|(word, _)| (*word).to_owned());
        word.or_else(|| match self {
            Content::Reg(reg) => Some(abi.name(reg).to_owned()),
            Content::Const(n) => Some(format!("{}{:#x}", if n < 0 { "-" } else { "" }, n.unsigned_abs())),
            _ => None,
        })
    }

    /// Parse a slot's content as written in a profile or a contract: a register, a number as `0x...`, or one of a few words.
    ///
    /// # Errors
    /// The text is none of these; the message lists them.
    pub fn parse(text: &str, abi: &Abi) -> Result<Content> {
        if let Some((_, content)) = Content::WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(*content);
        }
        let (minus, digits) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
        let digits = digits.strip_prefix("0x").map(|digits| format!("{minus}{digits}"));
        let number = digits.and_then(|digits| i32::from_str_radix(&digits, 16).ok());
        abi.find(text).map(Content::Reg).or(number.map(Content::Const)).ok_or_else(|| {
            let known =
                Content::WORDS.iter().map(|(word, _)| *word).chain(["0x..."]).chain(abi.regs.iter().map(|r| r.name));
            Error::unknown("content", text, known)
        })
    }
}

/// The effect of a store by the callback to a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stores {
    /// A store by the callback takes effect.
    TakeEffect,
    /// The contract ignores stores to this slot, whether or not the trampoline reloads it.
    Ignored,
    /// No callee gets the slot's address. The trampoline reloads it.
    Hidden,
}

/// One slot of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name in the assembly text, as the kernel's asm-offsets spell it.
    pub symbol: &'static str,
    /// The member's name in the C struct; empty for a slot outside it.
    pub member: &'static str,
    /// Bytes above SP during the callback.
    pub offset: i32,
    /// The value in the slot when the callback is entered.
    pub content: Content,
    /// The effect of a callback's store to the slot.
    pub stores: Stores,
    /// A frame record stores this slot, so the save sequence leaves it out.
    pub in_record: bool,
}

/// A frame record {frame pointer, return address}, at `offset` bytes above SP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The name of its offset in the assembly text.
    pub symbol: &'static str,
    /// Bytes above SP.
    pub offset: i32,
    /// The return address in the record: [`Content::Pc`] or [`Content::ParentIp`].
    pub ret: Content,
}

/// A trampoline's frame. SP points at offset 0 during the callback, except where the stack is realigned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameLayout {
    /// The C struct that a callback gets a pointer to; empty if none.
    pub c_struct: &'static str,
    /// Bytes of that struct.
    pub c_size: i32,
    /// The name of the frame's size in the assembly text.
    pub size_symbol: &'static str,
    /// Bytes of stack from SP at the trampoline's entry, without pushed flags.
    pub size: i32,
    /// The slots, lowest offset first.
    pub fields: Vec<Field>,
    /// Frame records in the order in which they are linked: the traced function's caller first.
    pub records: Vec<Record>,
    /// The slots are pushed one by one instead of stored into an allocated frame.
    pub pushed: bool,
}

impl Field {
    /// The member's name, or the name in the assembly text for a slot outside of the struct.
    pub fn name(&self) -> &'static str {
        if self.member.is_empty() { self.symbol } else { self.member }
    }

    /// Does the trampoline load the slot again after its callees?
    pub fn reloaded(&self) -> bool {
        self.stores != Stores::Ignored
    }

    /// The slot's size in bytes; `of_vector` is the number of bytes saved of a vector register.
    pub fn bytes(&self, of_vector: i32) -> i32 {
        match self.content {
            Content::Vector(_) | Content::VectorResult(_) => of_vector,
            Content::Cookie => Bracket::RUN_CONTEXT,
            _ => 8,
        }
    }
}

impl FrameLayout {
    /// Does a handler's store to one of its members take effect?
    pub fn has_effect(&self) -> bool {
        self.fields.iter().any(|field| field.stores == Stores::TakeEffect)
    }

    /// A frame with no slots.
    pub fn empty() -> FrameLayout {
        FrameLayout {
            c_struct: "",
            c_size: 0,
            size_symbol: "",
            size: 0,
            fields: Vec::new(),
            records: Vec::new(),
            pushed: false,
        }
    }

    /// Add slots of `bytes` bytes for vector registers: behind the structure that C code knows, or at the bottom. The slots
    /// above keep their offsets modulo 16.
    pub fn with_vectors(mut self, carriers: Carriers, bytes: i32) -> FrameLayout {
        let behind = self.c_size;
        let from = (behind + bytes - 1) / bytes * bytes;
        let most = carriers.entered.len().max(carriers.returned.len()) as i32;
        let room = (from - behind + bytes * most + 15) & !15;
        self.fields.iter_mut().filter(|f| f.offset >= behind).for_each(|f| f.offset += room);
        self.records.iter_mut().for_each(|r| r.offset += room);
        self.size += room;
        let slot = |(at, (&symbol, content))| field(symbol, "", at, content, Stores::Hidden);
        let places = || (from..).step_by(bytes as usize);
        let entered = VECTOR_SLOTS.iter().zip(carriers.entered.iter().map(|&v| Content::Vector(v)));
        let returned = VECTOR_RESULTS.iter().zip(carriers.returned.iter().map(|&v| Content::VectorResult(v)));
        let at = self.fields.iter().position(|f| f.offset >= behind).unwrap_or(self.fields.len());
        let slots: Vec<Field> = places().zip(entered).map(slot).chain(places().zip(returned).map(slot)).collect();
        self.fields.splice(at..at, slots);
        self
    }

    /// The index of the first slot with this content.
    pub fn find(&self, content: Content) -> Option<usize> {
        self.fields.iter().position(|f| f.content == content)
    }
}

/// Names of slots for argument registers.
pub const ARG_SLOTS: [&str; 8] = ["ARG0", "ARG1", "ARG2", "ARG3", "ARG4", "ARG5", "ARG6", "ARG7"];
/// Names of slots for vector argument registers.
pub const VECTOR_SLOTS: [&str; 8] = ["VEC0", "VEC1", "VEC2", "VEC3", "VEC4", "VEC5", "VEC6", "VEC7"];
/// Names of slots for other registers that are live at a function's entry.
pub const LIVE_SLOTS: [&str; 5] = ["LIVE0", "LIVE1", "LIVE2", "LIVE3", "LIVE4"];
/// Names of slots for result registers.
pub const RESULT_SLOTS: [&str; 2] = ["RESULT0", "RESULT1"];

/// The slots of a C struct, and the result registers once more in those of the members for which `result` has one.
pub fn with_results(mut fields: Vec<Field>, result: impl Fn(&str) -> Option<Reg>) -> Vec<Field> {
    let again =
        |f: &Field| Some(Field { content: Content::Result(result(f.member)?), stores: Stores::TakeEffect, ..*f });
    let results: Vec<Field> = fields.iter().filter_map(again).collect();
    fields.extend(results);
    fields
}

/// A slot of a C struct: name in assembly, member, offset, content, and whether stores to it take effect.
pub const fn field(symbol: &'static str, member: &'static str, offset: i32, content: Content, stores: Stores) -> Field {
    Field { symbol, member, offset, content, stores, in_record: false }
}

/// Names of slots for the words of a context.
const WORDS: [&str; MOST_WORDS] = [
    "CTX_0", "CTX_1", "CTX_2", "CTX_3", "CTX_4", "CTX_5", "CTX_6", "CTX_7", "CTX_8", "CTX_9", "CTX_10", "CTX_11",
    "CTX_12", "CTX_13", "CTX_14", "CTX_15", "CTX_16", "CTX_17", "CTX_18", "CTX_19", "CTX_20", "CTX_21", "CTX_22",
    "CTX_23",
];
/// Names of slots for vector result registers.
const VECTOR_RESULTS: [&str; 4] = ["VECRESULT0", "VECRESULT1", "VECRESULT2", "VECRESULT3"];
/// Names of slots for registers of [`Programs::own`].
const OWN_SLOTS: [&str; 2] = ["OWN0", "OWN1"];
/// Names of slots for the words of sessions.
const SESSIONS: [&str; Program::MOST / 2] = [
    "SESSION0",
    "SESSION1",
    "SESSION2",
    "SESSION3",
    "SESSION4",
    "SESSION5",
    "SESSION6",
    "SESSION7",
    "SESSION8",
    "SESSION9",
    "SESSION10",
    "SESSION11",
    "SESSION12",
    "SESSION13",
    "SESSION14",
    "SESSION15",
    "SESSION16",
    "SESSION17",
    "SESSION18",
];

/// The slots of a trampoline that calls programs, from SP up, and the bytes that they take: stack arguments of the
/// function's call, vector registers, `struct bpf_tramp_run_ctx` with the cookie in its first word, and what the context
/// points into: words of sessions, ip, number of words, the words, and behind them the result (kernel
/// arch/x86/net/bpf_jit_comp.c, arch_prepare_bpf_trampoline). Above that is what is live but no argument, and registers of
/// [`Programs::own`].
pub fn context(programs: &Programs, abi: &Abi) -> (Vec<Field>, i32) {
    let slot = |symbol, at, content| {
        let takes_effect =
            !matches!(content, Content::Cookie | Content::Ip | Content::Const(_) | Content::StackWord(_));
        field(symbol, "", at, content, if takes_effect { Stores::TakeEffect } else { Stores::Ignored })
    };
    let Programs { live, call_orig, .. } = *programs;
    // Without CALL_ORIG the context has no result.
    let result = if call_orig { programs.result } else { Live::default() };
    let mut fields = Vec::new();
    let vector = abi.vector_bytes as i32;
    let copied = if call_orig { 8 * i32::from(live.stack) } else { 0 };
    // Slots of vector arguments and of vector results are never needed at the same time.
    let vectors = (copied + vector - 1) / vector * vector;
    let mut at = if live.saved_vectors() + result.saved_vectors() > 0 { vectors } else { copied };
    for (i, (symbol, &v)) in (0..live.saved_vectors()).zip(VECTOR_SLOTS.iter().zip(abi.vector_args)) {
        fields.push(slot(symbol, vectors + vector * i32::from(i), Content::Vector(v)));
    }
    for (i, (symbol, &v)) in (0..result.saved_vectors()).zip(VECTOR_RESULTS.iter().zip(abi.vector_rets)) {
        fields.push(slot(symbol, vectors + vector * i32::from(i), Content::VectorResult(v)));
    }
    at += vector * i32::from(live.saved_vectors().max(result.saved_vectors()));
    let run_ctx = slot("RUN_CTX", at, Content::Cookie);
    fields.push(run_ctx);
    at += run_ctx.bytes(vector);
    for (n, symbol) in (0..programs.sessions).zip(SESSIONS) {
        fields.push(slot(symbol, at, Content::Session(n)));
        at += 8;
    }
    if programs.ip_arg {
        fields.push(slot("CTX_IP", at, Content::Ip));
        at += 8;
    }
    let words = programs.words.iter().flatten();
    fields.push(slot("CTX_COUNT", at, Content::Const(programs.meta_at_first() as i32)));
    at += 8;
    for (symbol, word) in WORDS.iter().zip(words) {
        let content = match *word {
            Word::Reg(reg) => Content::Reg(reg),
            Word::Stack(n) => Content::StackWord(n),
        };
        fields.push(slot(symbol, at, content));
        at += 8;
    }
    for (symbol, &reg) in ["CTX_RESULT", "CTX_RESULT1"].iter().zip(abi.rets).filter(|(_, r)| result.regs.contains(**r))
    {
        fields.push(slot(symbol, at, Content::Result(reg)));
        at += 8;
    }
    let shown = programs.words.iter().flatten().filter_map(|word| match *word {
        Word::Reg(reg) => Some(reg),
        Word::Stack(_) => None,
    });
    let others = live.regs.minus(RegSet::of(&shown.collect::<Vec<_>>()));
    for (symbol, reg) in LIVE_SLOTS.iter().zip(others.iter()) {
        fields.push(field(symbol, "", at, Content::Reg(reg), Stores::Hidden));
        if call_orig && programs.tail_call == Some(TailCall { reg, returned: true }) {
            fields.push(field(symbol, "", at, Content::Result(reg), Stores::Hidden));
        }
        at += 8;
    }
    for (symbol, reg) in OWN_SLOTS.iter().zip(programs.own.iter()) {
        fields.push(field(symbol, "", at, Content::Own(reg), Stores::Hidden));
        at += 8;
    }
    (fields, at)
}
