//! Injecting faults into foreign objects. No instruction moves, so that labels, branches and tables stay valid: a removed
//! instruction becomes NOPs, and its relocation becomes one that does nothing.

use std::ops::Range;

use codegen::contract::Contract;
use codegen::effect::effects::Effects;
use codegen::effect::faults::Operator;
use codegen::listing::pattern::{Fields, Found, InsnPattern, PatternTable};
use codegen::mutate::{At, Edit, Mutant, Ways, edits};
use codegen::words::error::Result;
use object::elf;
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, Sym as _};

use crate::elf::{Header, Input, LE, damaged};
use crate::marks::{Step, code_in, mark};

/// A function in an object's file.
#[derive(Clone, Debug)]
pub struct Function {
    /// Offset of the function's code in the file.
    at: usize,
    code: Vec<u8>,
    /// Fields that the linker changes: the offset in the function, and the place of the relocation's type in the file.
    relocations: Vec<(usize, usize)>,
    /// References of the function: the offset in the function, and the target.
    pub references: Vec<(usize, Refers)>,
    /// The relocation types of [`Function::references`], in the same order.
    pub types: Vec<u32>,
    /// Labels in the function, with their offsets.
    pub labels: Vec<(String, usize)>,
    /// Functions and labels of the same section, with their offsets from the function's beginning.
    beside: Vec<(String, i64)>,
}

/// The target of a relocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refers {
    /// This offset in the function itself.
    Own(usize),
    /// A symbol, and bytes from there.
    To(String),
}

impl Refers {
    fn to(symbol: &[u8], addend: i64) -> Refers {
        let sign = if addend < 0 { '-' } else { '+' };
        let addend = match addend.unsigned_abs() {
            0 => String::new(),
            by => format!("{sign}{by:#x}"),
        };
        Refers::To(String::from_utf8_lossy(symbol).into_owned() + &addend)
    }
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub struct Line {
    /// The offset of the instruction in the function.
    pub offset: usize,
    /// The size in bytes.
    pub size: usize,
    /// The disassembled text.
    pub text: String,
    /// The instruction does nothing.
    pub nop: bool,
    /// The target of a direct branch.
    pub target: Option<usize>,
    /// The direct branch is a jump, not a call.
    pub jumps: bool,
    /// The instruction is an indirect jump or a return.
    pub leaves: bool,
    /// What comes behind it is not executed next.
    pub last: bool,
}

/// A decoder: from code that begins at an offset to its instructions.
pub type Decode<'d> = &'d dyn Fn(&[u8], usize) -> Result<Vec<Line>>;

/// The name of a symbol, unless it is a mapping symbol.
fn unmarked(name: &[u8]) -> Option<String> {
    str::from_utf8(name).ok().filter(|name| mark(name).is_none()).map(str::to_owned)
}

impl Function {
    /// The function called `name`, if the object defines it.
    ///
    /// # Errors
    /// A damaged file.
    pub fn find(object: &Input, name: &str) -> Result<Option<Function>> {
        let bytes = object.bytes;
        let fail = damaged(object.name);
        let header = Header::parse(bytes).map_err(&fail)?;
        let sections = header.sections(LE, bytes).map_err(&fail)?;
        // A stripped library still has its dynamic symbols.
        let whole = sections.iter().any(|s| s.sh_type(LE) == elf::SHT_SYMTAB);
        let names = if whole { elf::SHT_SYMTAB } else { elf::SHT_DYNSYM };
        let table = sections.symbols(LE, bytes, names).map_err(&fail)?;
        let mut symbols = Vec::new();
        for (index, symbol) in table.enumerate() {
            let section = table.symbol_section(LE, symbol, index).map_err(&fail)?;
            let text = table.symbol_name(LE, symbol).map_err(&fail)?;
            if let Some(section) = section.filter(|_| !text.is_empty() && !text.starts_with(b".L")) {
                symbols.push((section, text, symbol));
            }
        }
        let found = symbols.iter().filter(|(_, text, _)| *text == name.as_bytes());
        let Some(&(section, _, symbol)) = found.min_by_key(|(.., symbol)| symbol.is_local()) else { return Ok(None) };
        let (index, header) = (section, sections.section(section).map_err(&fail)?);
        // In a linked file, places of relocations are addresses.
        let in_section = |place: u64| place.wrapping_sub(header.sh_addr(LE));
        let start = in_section(symbol.st_value(LE));
        let mine = symbols.iter().filter(|(section, ..)| *section == index);
        let mine = mine.map(|(_, text, s)| (*text, in_section(s.st_value(LE))));
        let named = mine.clone().filter(|(text, _)| str::from_utf8(text).is_ok_and(|name| mark(name).is_none()));
        let next = named.map(|(_, value)| value).filter(|value| *value > start).min();
        let end = match symbol.st_size(LE) {
            0 => next.unwrap_or(header.sh_size(LE)),
            size => start.saturating_add(size),
        };
        let contents = header.data(LE, bytes).map_err(&fail)?;
        let code = contents.get(start as usize..end.min(contents.len() as u64) as usize).unwrap_or_default();
        let inside = |place: u64| (start..start + code.len() as u64).contains(&place);
        let (mut relocations, mut references, mut types) = (Vec::new(), Vec::new(), Vec::new());
        for section in sections.iter().filter(|s| s.info_link(LE) == index) {
            let Some((entries, _)) = section.rela(LE, bytes).map_err(&fail)? else { continue };
            let first = section.sh_offset(LE);
            for (n, rela) in entries.iter().enumerate().filter(|(_, rela)| inside(in_section(rela.r_offset(LE)))) {
                let place = (in_section(rela.r_offset(LE)) - start) as usize;
                // r_info is the second word of the three.
                relocations.push((place, first as usize + 24 * n + 8));
                // A relocation without a symbol describes the instruction, for example that the linker may relax it.
                let Some(number) = rela.symbol(LE, false) else { continue };
                let symbol = table.symbol(number).map_err(&fail)?;
                let home = table.symbol_section(LE, symbol, number).map_err(&fail)?;
                let (value, addend) = (in_section(symbol.st_value(LE)), rela.r_addend(LE));
                types.push(rela.r_type(LE, false).0);
                let to = match home {
                    Some(home) if home == index && inside(value) => {
                        Refers::Own(value.wrapping_add_signed(addend).wrapping_sub(start) as usize)
                    }
                    _ => {
                        let name = table.symbol_name(LE, symbol).map_err(&fail)?;
                        let home = home.filter(|_| name.is_empty()).and_then(|home| sections.section(home).ok());
                        let name = home.map_or(name, |home| sections.section_name(LE, home).unwrap_or_default());
                        Refers::to(name, addend)
                    }
                };
                references.push((place, to));
            }
        }
        let label = |(text, value): (&[u8], u64)| {
            let text = String::from_utf8_lossy(text).into_owned();
            inside(value).then_some((text, value.wrapping_sub(start) as usize))
        };
        Ok(Some(Function {
            at: header.sh_offset(LE).wrapping_add(start) as usize,
            code: code.to_vec(),
            relocations,
            references,
            types,
            beside: mine
                .clone()
                .filter_map(|(name, value)| Some((unmarked(name)?, value.wrapping_sub(start) as i64)))
                .collect(),
            labels: mine.filter_map(label).collect(),
        }))
    }

    /// The instructions of the function, without data.
    ///
    /// # Errors
    /// Code that the decoder refuses.
    pub fn lines(&self, decode: Decode) -> Result<Vec<Line>> {
        let decode = |part: Range<u64>| {
            let (start, end) = (part.start as usize, part.end as usize);
            decode(self.code.get(start..end).unwrap_or_default(), start)
        };
        let step = |line: Line| Step {
            at: line.offset as u64..(line.offset + line.size) as u64,
            to: line.target.map(|to| to as u64),
            falls: !line.last,
        };
        let steps = |part| Ok(decode(part)?.into_iter().map(step).collect());
        let labels = self.labels.iter().map(|(name, offset)| (name.as_str(), *offset as u64));
        let parts = code_in(labels, 0..self.code.len() as u64, &steps)?;
        Ok(parts.into_iter().map(decode).collect::<Result<Vec<_>>>()?.concat())
    }

    /// Is an offset inside of the function?
    pub fn lies_in(&self, offset: usize) -> bool {
        offset < self.code.len()
    }

    /// The name of another function of the same section that contains the offset.
    pub fn name_of(&self, offset: usize) -> Option<String> {
        let before = self.beside.iter().filter(|(_, start)| *start <= offset as i64);
        let (name, start) = before.max_by_key(|(_, start)| *start)?;
        let own = usize::try_from(*start).is_ok_and(|start| self.lies_in(start));
        (!own).then(|| name.clone())
    }

    /// The effects of an instruction of the function, as far as the patterns know it.
    pub fn effects(&self, patterns: &PatternTable, line: &Line) -> Effects {
        self.found(patterns, line).effects()
    }

    /// All mutants of the function: edits that fit in place, each with code different from all mutants before it. Instructions
    /// at offsets for which `skip` holds are not mutated.
    ///
    /// # Errors
    /// Code that the decoder refuses.
    pub fn mutants(
        &self,
        patterns: &PatternTable,
        contract: &Contract,
        decode: Decode,
        skip: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Mutant>> {
        let lines = self.lines(decode)?;
        let mut code = Vec::new();
        for (n, line) in lines.iter().enumerate().filter(|(_, line)| !line.nop && !skip(line.offset)) {
            let insn = self.found(patterns, line);
            code.push(At { line: n, insn, effects: insn.effects() });
        }
        let ways =
            Ways { with_registers: Found::with_registers, with_displacement: |insn, _| insn, faults: Found::faults };
        let (mut seen, mut mutants) = (Vec::new(), Vec::new());
        for edit in edits(&code, contract, &ways).into_iter().filter(|edit| edit.misstate.is_none()) {
            let Some(parts) = self.parts(&edit, &lines) else { continue };
            let Some(patch) = parts.iter().map(|part| self.patch(part, patterns)).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let patch = patch.concat();
            if patch.is_empty() || seen.contains(&patch) {
                continue;
            }
            let mut diff = Vec::new();
            for part in &parts {
                let show = |sign, line: &Line| format!("{sign}{:4x}  {}", line.offset, line.text);
                diff.extend(lines.iter().filter(|line| part.old.contains(&line.offset)).map(|line| show('-', line)));
                diff.extend(decode(&part.new, part.old.start)?.iter().map(|line| show('+', line)));
            }
            seen.push(patch.clone());
            mutants.push(Mutant {
                operator: edit.operator,
                operand: edit.operand.text(&contract.facts.abi),
                symbol: String::new(),
                offset: parts.first().map_or(0, |part| part.old.start),
                diff,
                number: 0,
                patch,
            });
        }
        Ok(mutants)
    }

    /// The instruction of a line.
    fn found(&self, patterns: &PatternTable, line: &Line) -> Found {
        let code = self.code.get(line.offset..line.offset + line.size).unwrap_or_default();
        let fits = |form: &InsnPattern| Some((*form, form.read(code)?));
        let known = patterns.list.iter().filter(|form| form.size() == line.size).find_map(fits);
        let (form, fields) = known.unwrap_or((InsnPattern::UNKNOWN, Fields::NONE));
        Found { form, fields, relocated: self.relocated(&(line.offset..line.offset + line.size)) }
    }

    fn relocated(&self, range: &Range<usize>) -> bool {
        self.relocations.iter().any(|(place, _)| range.contains(place))
    }

    /// The parts that an edit changes, with neighbours joined. `None` if an instruction would have to move.
    fn parts(&self, edit: &Edit<Found>, lines: &[Line]) -> Option<Vec<Part>> {
        let mut out = edit.out.clone();
        out.sort_unstable();
        out.dedup();
        if edit.put.iter().any(|(line, _)| !out.contains(line)) {
            return None;
        }
        let mut parts: Vec<Part> = Vec::new();
        for n in out {
            let line = lines.get(n)?;
            let old = line.offset..line.offset + line.size;
            let mut new = Vec::new();
            let put: Vec<&Found> = edit.put.iter().filter(|(at, _)| *at == n).map(|(_, insn)| insn).collect();
            for insn in &put {
                new.extend(insn.form.encode(&insn.fields)?);
            }
            let kept = !put.is_empty();
            if edit.operator == Operator::Swap && self.relocated(&old) {
                return None;
            }
            match parts.last_mut().filter(|part| part.old.end == old.start && part.kept == kept) {
                Some(part) => {
                    part.old.end = old.end;
                    part.new.extend(new);
                }
                None => parts.push(Part { old, new, kept }),
            }
        }
        Some(parts)
    }

    /// The bytes of the file that a part changes. `None` if it does not fit.
    fn patch(&self, part: &Part, patterns: &PatternTable) -> Option<Vec<(usize, Vec<u8>)>> {
        let mut new = part.new.clone();
        new.extend(patterns.fill(part.old.len().checked_sub(new.len())?)?);
        let mut patch = Vec::new();
        if self.code.get(part.old.clone()) != Some(&new[..]) {
            patch.push((self.at + part.old.start, new));
        }
        if !part.kept {
            let gone = self.relocations.iter().filter(|(place, _)| part.old.contains(place));
            patch.extend(gone.map(|(_, at)| (*at, vec![0; 8])));
        }
        Some(patch)
    }
}

/// Neighbouring instructions, and their replacement.
struct Part {
    old: Range<usize>,
    new: Vec<u8>,
    /// The relocations stay.
    kept: bool,
}
