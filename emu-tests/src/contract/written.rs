//! The calls of a BPF trampoline that a kernel wrote: read from its code, which is one line of calls with jumps forward.

use std::collections::{BTreeMap, BTreeSet};

use codegen::arch::machine::Goes;
use codegen::backend::Backend;
use codegen::listing::pattern::Constant;
use codegen::words::error::{Error, Result};

use crate::engine::disasm::{Decoded, branched_to, followed, number};

/// What a called address is to a kernel (kernel kernel/bpf/trampoline.c).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callee {
    /// `__bpf_tramp_enter`.
    TrampEnter,
    /// `__bpf_tramp_exit`.
    TrampExit,
    /// One of the functions `__bpf_prog_enter*`.
    ProgEnter,
    /// One of the functions `__bpf_prog_exit*`.
    ProgExit,
    /// The traced function, behind its site.
    Function,
    /// Anything else: a program.
    Program,
}

/// The call of a program, and the calls around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrittenProgram {
    /// The address of the function called before it.
    pub enter: u64,
    /// The program's address.
    pub program: u64,
    /// The address of the function called after it.
    pub exit: u64,
    /// The function is skipped if the program does not return 0.
    pub decides: bool,
    /// The addresses of the instruction that becomes a jump past these calls, and of where it goes.
    pub skip: Option<(u64, u64)>,
}

/// The calls of a trampoline, in their order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WrittenCalls {
    /// Programs before the function.
    pub before: Vec<WrittenProgram>,
    /// Programs after it.
    pub after: Vec<WrittenProgram>,
    /// What comes first and last.
    pub around: Option<[u64; 2]>,
    /// The function is called: where it returns to.
    pub returns_to: Option<u64>,
    /// The first instruction without effect behind that, before the next call: it may become a jump to the epilogue.
    pub gap: Option<u64>,
    /// The address by which it is called, if it is not by that of its site.
    pub function: Option<u64>,
    /// Where what follows the last program begins: it tells [`WrittenCalls::around`]'s last function what it is given.
    pub epilogue: Option<u64>,
    /// The address that the site pushed is dropped at the end.
    pub drops: bool,
    /// All numbers that the code puts together, or has in an instruction.
    pub numbers: BTreeSet<u64>,
    /// Bytes of code.
    pub size: u64,
}

/// A call: its first and its next instruction, and whom it calls.
#[derive(Clone, Copy)]
struct Call {
    from: u64,
    next: u64,
    to: u64,
    callee: Callee,
}

/// Read the calls of the trampoline that `code` at `base` begins with.
///
/// # Errors
/// The code is none that a kernel of this kind writes, with the place.
pub fn written_calls(
    backend: &dyn Backend,
    (code, base): (&[u8], u64),
    callee: &dyn Fn(u64) -> Callee,
) -> Result<WrittenCalls> {
    let lines = followed(backend, (code, base), vec![base], &|_, _| true)?;
    let bytes = |at: u64| usize::try_from(at.wrapping_sub(base)).ok().and_then(|at| code.get(at..)).unwrap_or_default();
    let made = |at: u64| Constant::read(backend.patterns(), bytes(at), at);
    let stored = lines.values().filter_map(|line| number(&line.text));
    let mut found = WrittenCalls {
        size: lines.values().next_back().map_or(0, |last| last.at + u64::from(last.size) - base),
        numbers: lines.keys().flat_map(|at| made(*at)).map(|constant| constant.value).chain(stored).collect(),
        drops: drops(backend, &lines),
        ..WrittenCalls::default()
    };
    let end = base.saturating_add(code.len() as u64);
    if let Some(last) = lines.values().find(|line| !line.last && line.at + u64::from(line.size) >= end) {
        return Err(Error::new(format!("it goes on behind {:#x}, and what was read ends there", last.at)));
    }
    let calls = calls(backend, &lines, &bytes, callee);
    let mut open: Option<(Call, Option<Call>)> = None;
    let mut first = None;
    let odd = |at: u64, what: &str| Error::new(format!("{what} at {at:#x}"));
    for (n, call) in calls.iter().enumerate() {
        match (call.callee, open) {
            (Callee::TrampEnter, None) => first = Some(call.to),
            (Callee::TrampExit, None) => {
                let first = first.ok_or_else(|| odd(call.from, "__bpf_tramp_exit without __bpf_tramp_enter"))?;
                found.around = Some([first, call.to]);
                found.epilogue = Some(given(backend, &lines, &bytes, call.from));
            }
            (Callee::Function, None) => {
                let until = calls.get(n + 1).map_or(u64::MAX, |next| next.from);
                found.gap = nops(backend, &lines, (call.next, until), &bytes).next();
                (found.returns_to, found.function) = (Some(call.next), Some(call.to).filter(|to| *to != call.next));
            }
            (Callee::ProgEnter, None) => open = Some((*call, None)),
            (Callee::Program, Some((enter, None))) => open = Some((enter, Some(*call))),
            (Callee::ProgExit, Some((enter, Some(program)))) => {
                let until = calls.get(n + 1).map_or(u64::MAX, |next| next.from);
                let before = n.checked_sub(3).and_then(|n| calls.get(n)).map_or(base, |call| call.next);
                let before = if enter.from < before { base } else { before };
                let skip = nops(backend, &lines, (before, enter.from), &bytes).next_back().map(|nop| (nop, call.next));
                let jumps = lines.range(call.next..until).filter_map(|(_, line)| line.target.filter(|_| !pushes(line)));
                let past = jumps.max().unwrap_or(0);
                let program = WrittenProgram {
                    enter: enter.to,
                    program: program.to,
                    exit: call.to,
                    decides: past >= until,
                    skip,
                };
                match found.returns_to {
                    None => found.before.push(program),
                    Some(_) => found.after.push(WrittenProgram { decides: false, ..program }),
                }
                open = None;
            }
            _ => return Err(odd(call.from, "a call that no BPF trampoline makes there")),
        }
    }
    match (calls.is_empty(), open) {
        (true, _) => Err(odd(base, "no call")),
        (_, Some((enter, _))) => Err(odd(enter.from, "a program without a call after it")),
        _ => Ok(found),
    }
}

/// What a copy of an entry trampoline calls and reads (kernel arch/x86/kernel/ftrace.c, create_trampoline).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiedCalls {
    /// The address of the one call, and of what it calls.
    pub call: (u64, u64),
    /// The words behind the code that it reads.
    pub reads: BTreeSet<u64>,
    /// Bytes of code.
    pub size: u64,
}

/// Read the call of the copy that `code` at `base` begins with.
///
/// # Errors
/// It calls nothing, or several functions.
pub fn copied_calls(backend: &dyn Backend, (code, base): (&[u8], u64)) -> Result<CopiedCalls> {
    let lines = followed(backend, (code, base), vec![base], &|_, to| to.wrapping_sub(base) < code.len() as u64)?;
    let end = |line: &Decoded| line.at + u64::from(line.size);
    let size = lines.values().next_back().map_or(0, |last| end(last) - base);
    let reads = lines.values().filter_map(|line| read_at(&line.text, end(line)));
    let reads = reads.filter(|at| *at >= base + size).collect();
    let mut calls = lines.values().filter_map(|line| Some((line.at, line.target.filter(|_| pushes(line))?)));
    match (calls.next(), calls.next()) {
        (Some(call), None) => Ok(CopiedCalls { call, reads, size }),
        (None, _) => Err(Error::new(format!("no call at {base:#x}"))),
        (_, Some((second, _))) => Err(Error::new(format!("a second call at {second:#x}"))),
    }
}

/// The address in an operand that counts from the next instruction, as the disassembler writes it.
fn read_at(text: &str, next: u64) -> Option<u64> {
    let (_, rest) = text.split_once("[rip ")?;
    let (sign, rest) = rest.split_at_checked(2)?;
    let digits = rest.split(']').next()?;
    let by = digits.strip_prefix("0x").map_or_else(|| digits.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())?;
    Some(if sign == "- " { next.wrapping_sub(by) } else { next.wrapping_add(by) })
}

/// How many bytes the first instruction of some code has.
///
/// # Errors
/// There is none.
pub fn first_size(backend: &dyn Backend, code: &[u8], at: u64) -> Result<usize> {
    let lines = followed(backend, (code, at), vec![at], &|_, _| false)?;
    let first = lines.get(&at).filter(|line| line.size > 0);
    first.map(|line| line.size.into()).ok_or_else(|| Error::new(format!("no instruction at {at:#x}")))
}

/// Where the first instruction of some code goes, if it is a branch that says so.
pub fn first_target(backend: &dyn Backend, code: &[u8], at: u64) -> Option<u64> {
    followed(backend, (code, at), vec![at], &|_, _| false).ok()?.get(&at)?.target
}

fn pushes(line: &Decoded) -> bool {
    line.branch.is_some_and(|branch| branch.pushes)
}

/// What the code begins with from an address on.
type Bytes<'c> = &'c dyn Fn(u64) -> &'c [u8];

/// All calls, in the order of their places.
fn calls(
    backend: &dyn Backend,
    lines: &BTreeMap<u64, Decoded>,
    bytes: Bytes,
    callee: &dyn Fn(u64) -> Callee,
) -> Vec<Call> {
    let link = backend.facts().abi.link;
    let mut all = Vec::new();
    for line in lines.values() {
        let next = |line: &Decoded| line.at + u64::from(line.size);
        if let Some(to) = line.target.filter(|_| pushes(line)) {
            all.push(Call { from: line.at, next: next(line), to, callee: callee(to) });
        }
        // The whole number comes last, behind its parts.
        let constants = Constant::read(backend.patterns(), bytes(line.at), line.at).into_iter().rev();
        let used = |constant: Constant| Some((constant, branched_to(lines, line.at, &constant, link)?));
        if let Some((constant, user)) = constants.filter_map(used).next() {
            let to = constant.value;
            if pushes(user) {
                all.push(Call { from: line.at, next: next(user), to, callee: callee(to) });
            } else if Some(constant.register) == link {
                // The function is gone to with a return address that was put together.
                all.push(Call { from: line.at, next: to, to, callee: Callee::Function });
            }
        }
    }
    all.sort_by_key(|call| call.from);
    all
}

/// Where the instructions begin that put together what the call at `from` is given.
fn given(backend: &dyn Backend, lines: &BTreeMap<u64, Decoded>, bytes: Bytes, from: u64) -> u64 {
    /// Instructions of the longest number.
    const MOST: usize = 8;
    let ends = |at: &u64| {
        let constants = Constant::read(backend.patterns(), bytes(*at), *at);
        constants.iter().any(|constant| at + constant.size as u64 == from)
    };
    lines.range(..from).rev().take(MOST).map(|(at, _)| *at).filter(ends).min().unwrap_or(from)
}

/// The instructions without effect in a range.
fn nops(
    backend: &dyn Backend,
    lines: &BTreeMap<u64, Decoded>,
    (from, to): (u64, u64),
    bytes: Bytes,
) -> impl DoubleEndedIterator<Item = u64> {
    let nops = backend.patterns().nops;
    let is_nop = move |line: &Decoded| {
        let insn = bytes(line.at).get(..line.size.into()).unwrap_or_default();
        nops.contains(&insn) || line.text.starts_with("nop")
    };
    lines.range(from..to).filter(move |(_, line)| is_nop(line)).map(|(at, _)| *at)
}

/// Is the address that the site pushed dropped before the last return?
fn drops(backend: &dyn Backend, lines: &BTreeMap<u64, Decoded>) -> bool {
    let abi = &backend.facts().abi;
    let text = format!("{}, {}", abi.name(abi.sp), abi.return_bytes());
    let mut last = lines.values().rev().skip_while(|line| line.goes == Goes::On);
    let before = last.next().and_then(|end| lines.range(..end.at).next_back());
    abi.link.is_none() && before.is_some_and(|(_, line)| line.text.starts_with("add") && line.text.ends_with(&text))
}
