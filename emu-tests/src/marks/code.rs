//! The instructions of an object's functions, with what they do to return addresses.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use codegen::arch::machine::{Branch, Goes};
use codegen::arch::moves::Move;
use codegen::backend::Backend;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use link::{Image, Symbol, SymbolKind};

use crate::engine::disasm::{decode, parts};
use crate::engine::unwind::{Frame, frames};

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct Insn {
    pub at: u64,
    /// The address behind it.
    pub next: u64,
    pub text: String,
    pub branch: Option<Branch>,
    pub goes: Goes,
    pub target: Option<u64>,
    /// Nothing behind it comes next.
    pub last: bool,
    /// It only fills space.
    pub filler: bool,
    pub moves: Vec<Move>,
    /// The register that it branches by.
    pub by: Option<Reg>,
}

/// A function, and where it ends.
#[derive(Clone, Debug)]
pub(super) struct Function<'i> {
    pub symbol: &'i Symbol,
    pub range: Range<u64>,
    /// A part that the compiler cut off, because it is seldom run: others jump there with their frames.
    pub cut_off: bool,
}

/// All functions of an object.
pub(super) struct Code<'i> {
    pub backend: &'static dyn Backend,
    pub image: &'i Image,
    pub functions: Vec<Function<'i>>,
    insns: BTreeMap<u64, Insn>,
    /// Where bytes are no instruction that is known.
    pub unreadable: BTreeSet<u64>,
    frames: HashMap<u64, Frame>,
    /// What may still be spent on following paths: values that are compared or copied.
    left: Cell<u64>,
}

/// What may be spent on an object. The largest of libstdc++ and SQLite take less than a hundredth of it.
const BUDGET: u64 = 1 << 28;

impl<'i> Code<'i> {
    /// Decode them.
    ///
    /// # Errors
    /// A disassembler that does not start; code of no bounds.
    pub fn of(image: &'i Image, backend: &'static dyn Backend) -> Result<Code<'i>> {
        let functions = functions(image);
        let mut code = Code {
            backend,
            image,
            functions: Vec::new(),
            insns: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            frames: HashMap::new(),
            left: Cell::new(BUDGET),
        };
        for function in &functions {
            let size = function.range.end - function.range.start;
            for part in parts(backend.machine(), image, (function.range.start, size))? {
                code.read(part)?;
            }
        }
        code.functions = functions;
        code.link();
        code.frames = frames(image, &backend.facts().abi, code.insns.keys().copied());
        Ok(code)
    }

    /// Where direct branches go to what a linker finds for them.
    fn link(&mut self) {
        let counts_from_behind = self.backend.facts().abi.link.is_none();
        for relocation in &self.image.references {
            let Some((_, insn)) = self.insns.range_mut(..=relocation.place).next_back() else { continue };
            if insn.goes == Goes::To && relocation.place < insn.next {
                let rest = if counts_from_behind { insn.next - relocation.place } else { 0 };
                insn.target = Some(relocation.value.wrapping_add(rest));
            }
        }
    }

    /// Decode a part.
    fn read(&mut self, part: Range<u64>) -> Result<()> {
        let machine = self.backend.machine();
        let abi = &self.backend.facts().abi;
        let bytes = self.image.bytes(part.start, (part.end - part.start) as usize).unwrap_or_default();
        let mut end = part.start;
        for decoded in decode(machine, bytes, part.start)? {
            let (mnemonic, operands) = decoded.parts();
            let operands = operands.trim_start();
            let moves = (machine.moves)(mnemonic, operands);
            let stops = moves.contains(&Move::Stop);
            let branches = matches!(decoded.goes, Goes::Anywhere | Goes::Back);
            end = decoded.at + u64::from(decoded.size);
            let insn = Insn {
                at: decoded.at,
                next: end,
                branch: decoded.branch,
                goes: decoded.goes,
                target: decoded.target,
                last: decoded.last || stops,
                filler: decoded.filler || stops || mnemonic == "nop",
                by: abi.find(operands).filter(|_| branches),
                moves,
                text: decoded.text.to_string(),
            };
            self.insns.insert(insn.at, insn);
        }
        if end < part.end {
            self.unreadable.insert(end);
        }
        Ok(())
    }

    /// Spend this much. Returns whether something is left.
    pub fn spend(&self, much: u64) -> bool {
        self.left.set(self.left.get().saturating_sub(much));
        self.left.get() > 0
    }

    /// The instruction here.
    pub fn insn(&self, at: u64) -> Option<&Insn> {
        self.insns.get(&at)
    }

    /// The instructions of a part, in order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = &Insn> {
        self.insns.range(range).map(|(_, insn)| insn)
    }

    /// Does the function that is called here return? Where the unwind table has another frame behind the call than at it, whoever
    /// wrote the table knows that it does not.
    pub fn returns(&self, call: &Insn) -> bool {
        if self.insn(call.next).is_none() || self.begins(call.next).is_some() {
            return false;
        }
        match (self.frame(call.at), self.frame(call.next)) {
            (Some(at), Some(next)) => at.cfa == next.cfa,
            _ => true,
        }
    }

    /// What the unwind table says of the frame here.
    pub fn frame(&self, at: u64) -> Option<Frame> {
        self.frames.get(&at).copied()
    }

    /// The function that begins here.
    pub fn begins(&self, at: u64) -> Option<&Function<'i>> {
        let found = self.functions.binary_search_by_key(&at, |function| function.range.start);
        found.ok().and_then(|n| self.functions.get(n))
    }

    /// The function with this address in it.
    pub fn around(&self, at: u64) -> Option<&Function<'i>> {
        let behind = self.functions.partition_point(|function| function.range.start <= at);
        self.functions[..behind].last().filter(|function| function.range.contains(&at))
    }
}

impl Insn {
    /// It calls.
    pub fn calls(&self) -> bool {
        self.branch.is_some_and(|branch| branch.pushes)
    }
}

/// The functions that the object defines, by address: one for each place. Each ends where its size or the next one says.
fn functions(image: &Image) -> Vec<Function<'_>> {
    let code = |symbol: &&Symbol| {
        let defined = symbol.input.is_some();
        let section = image.section_at(symbol.address);
        defined && section.is_some_and(|s| s.access == link::Access::Execute)
    };
    // A label inside of a function is none.
    let sized = image.symbols.iter().filter(|symbol| symbol.kind == SymbolKind::Function && symbol.size > 1);
    let mut inside: Vec<Range<u64>> =
        sized.map(|s| s.address.saturating_add(1)..s.address.saturating_add(s.size)).collect();
    inside.sort_by_key(|range| range.start);
    let is_inside = |at: u64| {
        let behind = inside.partition_point(|range| range.start <= at);
        inside[..behind].last().is_some_and(|range| range.contains(&at))
    };
    let is_function = |symbol: &&Symbol| match symbol.kind {
        SymbolKind::Function => true,
        SymbolKind::NoType => !symbol.local && !is_inside(symbol.address),
        SymbolKind::Object => false,
    };
    let mut symbols: Vec<&Symbol> = image.symbols.iter().filter(is_function).filter(code).collect();
    symbols.sort_by_key(|symbol| (symbol.address, symbol.local, symbol.kind != SymbolKind::Function));
    symbols.dedup_by_key(|symbol| symbol.address);
    let mut all = Vec::new();
    for (n, symbol) in symbols.iter().enumerate() {
        let section = image.section_at(symbol.address);
        let end = section.map_or(symbol.address, |s| s.address + s.size);
        let next = symbols.get(n + 1).map_or(end, |next| next.address.min(end));
        let end = if symbol.size > 0 { symbol.address.saturating_add(symbol.size).min(next) } else { next };
        all.push(Function {
            symbol,
            range: symbol.address..end,
            cut_off: symbol.local && symbol.name.contains(".cold"),
        });
    }
    all
}
