//! A foreign decoder: instruction boundaries for coverage, lines for a failure's context.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use capstone::{Capstone, Endian, ExtraMode, Insn};
use codegen::arch::machine::{Branch, Goes, Machine};
use codegen::backend::Backend;
use codegen::listing::pattern::Constant;
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use link::object_mutants::Line;
use link::{Image, Step, code_in};

/// The instructions of a function, by their offsets in it.
///
/// # Errors
/// A disassembler that does not start.
pub fn disassemble(machine: &'static Machine, code: &[u8], offset: usize) -> Result<Vec<Line>> {
    let line = |d: Decoded| Line {
        offset: d.at as usize,
        size: d.size.into(),
        nop: d.text.starts_with("nop"),
        text: d.text.to_string(),
        target: d.target.map(|to| to as usize),
        jumps: d.target.is_some() && !d.branch.is_some_and(|branch| branch.pushes),
        leaves: d.goes == Goes::Anywhere && !d.branch.is_some_and(|branch| branch.pushes),
        last: d.last,
    };
    Ok(decode(machine, code, offset as u64)?.into_iter().map(line).collect())
}

/// Bytes of code that are decoded in one piece, and instructions that are followed: each takes some hundred bytes of memory.
const MOST: usize = 1 << 20;

/// Refuse more than that.
fn bounded(much: usize) -> Result<()> {
    if much <= MOST {
        return Ok(());
    }
    Err(Error::new(format!(
        "more than {MOST} bytes of code in one piece; valid: less, as in a dump that ends with the trampolines, or an object of \
         them alone"
    )))
}

/// One decoded instruction.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub at: u64,
    /// Bytes.
    pub size: u8,
    pub text: Arc<str>,
    /// Bytes of the mnemonic in the text; its operands are behind.
    pub mnemonic: u8,
    pub branch: Option<Branch>,
    pub goes: Goes,
    /// Where it goes, if it says so itself.
    pub target: Option<u64>,
    /// What comes behind it is not executed next.
    pub last: bool,
    /// It stops speculation, or fills the space behind the last instruction: never executed.
    pub filler: bool,
}

impl Decoded {
    /// Does it leave a return address behind, as a shadow stack has it?
    pub fn is_call(&self) -> bool {
        self.branch.is_some_and(|branch| branch.pushes)
    }

    /// Its mnemonic and operands.
    pub fn parts(&self) -> (&str, &str) {
        let (mnemonic, operands) = self.text.split_at(usize::from(self.mnemonic).min(self.text.len()));
        (mnemonic, operands.trim_start())
    }
}

/// The number at the end of these operands; Capstone writes those below ten without 0x.
pub(crate) fn number(operands: &str) -> Option<u64> {
    let text = operands.rsplit([' ', ',', '#']).next()?;
    let (text, negative) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

/// What an instruction is.
fn decoded(machine: &Machine, insn: &Insn, behind: bool) -> Decoded {
    let (mnemonic, operands) = (insn.mnemonic().unwrap_or("?"), insn.op_str().unwrap_or(""));
    let goes = (machine.goes)(mnemonic, operands);
    let target = number(operands).filter(|_| goes == Goes::To);
    let branch = (machine.branch)(mnemonic, operands);
    let calls = branch.is_some_and(|branch| branch.pushes);
    let trap = [machine.trap, machine.short_trap].contains(&insn.bytes());
    Decoded {
        at: insn.address(),
        size: insn.len() as u8,
        branch,
        goes,
        target: target.map(|to| if machine.relative { to.wrapping_add(insn.address()) } else { to }),
        last: trap || machine.jumps.contains(&mnemonic) || (matches!(goes, Goes::Anywhere | Goes::Back) && !calls),
        text: format!("{mnemonic:<7} {operands}").trim_end().into(),
        mnemonic: mnemonic.len() as u8,
        filler: behind || trap,
    }
}

/// The instructions of a function in an image.
pub(crate) fn decode_function(machine: &'static Machine, image: &Image, range: (u64, u64)) -> Result<Vec<Decoded>> {
    let decode = |part| decode_part(machine, image, &part);
    Ok(parts(machine, image, range)?.into_iter().map(decode).collect::<Result<Vec<_>>>()?.concat())
}

/// Where they are: data of the function has none.
pub(crate) fn parts(machine: &'static Machine, image: &Image, (start, size): (u64, u64)) -> Result<Vec<Range<u64>>> {
    let symbols = image.symbols.iter().map(|symbol| (symbol.name.as_str(), symbol.address));
    let step = |d: Decoded| Step { at: d.at..d.at + u64::from(d.size), to: d.target, falls: !d.last };
    let steps = |part| Ok(decode_part(machine, image, &part)?.into_iter().map(step).collect());
    code_in(symbols, start..start.saturating_add(size), &steps)
}

fn decode_part(machine: &'static Machine, image: &Image, part: &Range<u64>) -> Result<Vec<Decoded>> {
    let code = image.bytes(part.start, (part.end - part.start) as usize).unwrap_or_default();
    decode(machine, code, part.start)
}

/// Add the instructions that control comes to from `entries` without leaving `code`, which begins at `base`, and where it goes
/// from one to an address for which `follows` holds. Each is decoded once. Returns the addresses of those that are new.
fn reachable(
    machine: &'static Machine,
    (code, base): (&[u8], u64),
    entries: Vec<u64>,
    all: &mut BTreeMap<u64, Decoded>,
    follows: &dyn Fn(&Decoded, u64) -> bool,
) -> Result<Vec<u64>> {
    let capstone = open(machine)?;
    let (mut open, mut new) = (entries, Vec::new());
    while let Some(at) = open.pop() {
        let rest = usize::try_from(at.wrapping_sub(base)).ok().and_then(|from| code.get(from..));
        if all.contains_key(&at) || rest.is_none_or(<[u8]>::is_empty) {
            continue;
        }
        let insns = capstone.disasm_count(rest.unwrap_or_default(), at, 1);
        let insns = insns.map_err(|e| Error::new(format!("disassembler: {e}")))?;
        let Some(insn) = insns.iter().next() else { continue };
        let decoded = decoded(machine, insn, false);
        let next = (!decoded.last).then_some(at.wrapping_add(decoded.size.into()));
        open.extend(decoded.target.into_iter().chain(next).filter(|next| follows(&decoded, *next)));
        all.insert(at, decoded);
        bounded(all.len())?;
        new.push(at);
    }
    Ok(new)
}

/// The same, for code of any architecture; and where it goes by an address that the instructions before put together.
pub(crate) fn followed(
    backend: &dyn Backend,
    (code, base): (&[u8], u64),
    entries: Vec<u64>,
    follows: &dyn Fn(&Decoded, u64) -> bool,
) -> Result<BTreeMap<u64, Decoded>> {
    let (mut lines, mut open) = (BTreeMap::new(), entries);
    while !open.is_empty() {
        for at in reachable(backend.machine(), (code, base), std::mem::take(&mut open), &mut lines, follows)? {
            let insn = code.get((at - base) as usize..).unwrap_or_default();
            let there = constants(backend, &lines, insn, at);
            open.extend(there.filter(|(user, to)| follows(user, *to) && !lines.contains_key(to)).map(|(_, to)| to));
        }
    }
    Ok(lines)
}

/// The addresses that the instructions at `at` put together and that are branched to, each with what branches.
pub(crate) fn constants<'l>(
    backend: &dyn Backend,
    lines: &'l BTreeMap<u64, Decoded>,
    code: &[u8],
    at: u64,
) -> impl Iterator<Item = (&'l Decoded, u64)> {
    let constants = Constant::read(backend.patterns(), code, at).into_iter();
    let link = backend.facts().abi.link;
    constants.filter_map(move |constant| Some((branched_to(lines, at, &constant, link)?, constant.value)))
}

/// What branches by a constant: the instruction behind it, or its own last one. Where the constant is in the link register, and the
/// instruction goes elsewhere, whoever is there returns to it.
pub(crate) fn branched_to<'l>(
    lines: &'l BTreeMap<u64, Decoded>,
    at: u64,
    constant: &Constant,
    link: Option<Reg>,
) -> Option<&'l Decoded> {
    let user = at.wrapping_add(constant.last.unwrap_or(constant.size) as u64);
    let linked = Some(constant.register) == link;
    lines.get(&user).filter(|line| line.goes == Goes::Anywhere || linked && line.goes == Goes::Back)
}

thread_local! {
    /// The disassembler of each architecture: to start one takes longer than to decode a trampoline.
    static OPEN: RefCell<HashMap<*const Machine, Rc<Capstone>>> = RefCell::default();
}

fn open(machine: &'static Machine) -> Result<Rc<Capstone>> {
    let key = std::ptr::from_ref(machine);
    if let Some(open) = OPEN.with_borrow(|all| all.get(&key).cloned()) {
        return Ok(open);
    }
    let failed = |what: &str| Error::new(format!("disassembler: {what}"));
    let (arch, mode, extra) = machine.disassembler;
    let extra: Vec<ExtraMode> =
        extra.iter().map(|e| e.parse()).collect::<std::result::Result<_, _>>().map_err(failed)?;
    let (arch, mode) = (arch.parse().map_err(failed)?, mode.parse().map_err(failed)?);
    let capstone = Capstone::new_raw(arch, mode, extra.into_iter(), Some(Endian::Little));
    let capstone = Rc::new(capstone.map_err(|e| failed(&e.to_string()))?);
    OPEN.with_borrow_mut(|all| all.insert(key, Rc::clone(&capstone)));
    Ok(capstone)
}

/// Code: whose it is, where it begins, and its bytes.
type Code = (*const Machine, u64, Vec<u8>);

/// Pieces of code that a thread remembers: those of some images.
const REMEMBERED: usize = 500;

/// Bytes of a piece that is remembered.
const LONGEST: usize = 1 << 16;

thread_local! {
    /// What was decoded. The same functions at the same addresses are in image after image, and are looked at several times in each.
    static DECODED: RefCell<HashMap<Code, Vec<Decoded>>> = RefCell::default();
}

/// Decode `code` at `base`; a byte that is no instruction ends it.
pub(crate) fn decode(machine: &'static Machine, code: &[u8], base: u64) -> Result<Vec<Decoded>> {
    let key = (std::ptr::from_ref(machine), base, code.to_vec());
    if let Some(known) = DECODED.with_borrow(|all| all.get(&key).cloned()) {
        return Ok(known);
    }
    let decoded = disassembled(machine, code, base)?;
    if code.len() > LONGEST {
        return Ok(decoded);
    }
    DECODED.with_borrow_mut(|all| {
        if all.len() >= REMEMBERED {
            all.clear();
        }
        all.insert(key, decoded.clone());
    });
    Ok(decoded)
}

fn disassembled(machine: &'static Machine, code: &[u8], base: u64) -> Result<Vec<Decoded>> {
    bounded(code.len())?;
    let failed = |what: &str| Error::new(format!("disassembler: {what}"));
    let capstone = open(machine)?;
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let insns = capstone.disasm_all(rest, base + at as u64).map_err(|e| failed(&e.to_string()))?;
        let behind = insns.iter().rposition(|i| i.mnemonic() != Some("nop")).map_or(0, |last| last + 1);
        all.extend(insns.iter().enumerate().map(|(n, insn)| match named(machine, insn.bytes()) {
            // Some of them it takes for others.
            Some((bytes, name)) if bytes.len() == insn.len() => unnamed(bytes, name, insn.address()),
            _ => decoded(machine, insn, n >= behind),
        }));
        at += insns.iter().map(|insn| insn.len()).sum::<usize>();
        let rest = code.get(at..).unwrap_or_default();
        let Some((bytes, name)) = named(machine, rest) else { break };
        all.push(unnamed(bytes, name, base + at as u64));
        at += bytes.len();
    }
    Ok(all)
}

/// The instruction at the start of code, if it is one that the disassembler does not know.
fn named(machine: &'static Machine, code: &[u8]) -> Option<(&'static [u8], (&'static str, &'static str))> {
    machine.unnamed.iter().find(|(bytes, _)| code.starts_with(bytes)).copied()
}

/// An instruction that the disassembler does not know. None of them branches.
fn unnamed(bytes: &[u8], (mnemonic, operands): (&str, &str), at: u64) -> Decoded {
    Decoded {
        at,
        size: bytes.len() as u8,
        text: format!("{mnemonic:<7} {operands}").into(),
        mnemonic: mnemonic.len() as u8,
        branch: None,
        goes: Goes::On,
        target: None,
        last: false,
        filler: false,
    }
}
